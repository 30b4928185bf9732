// config.json of a Hugging Face model folder: decoders that are Llama's but for what the fields below say (Llama,
// Mistral, Qwen2, Qwen3, Gemma 2, Gemma 3's text, Phi-3; Mixtral, Qwen3-MoE and GPT-OSS with experts; Qwen3-Next and
// Qwen3.5 with gated delta nets), and draft heads for them.
//
// What the program cannot compute as the model's authors meant it (another activation, other biases, other RoPE
// scalings, another architecture) is refused by name, and so are numbers that cannot be a model.
#ifndef PL_HF_H
#define PL_HF_H

#include "checkpoints/hf_block.h"
#include "checkpoints/hf_head.h"
#include "kernels/base/dtype.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_HF_PACELINE_EAGLE3 "PacelineEagle3" // an EAGLE-3 head that engines would compute otherwise
#define PL_HF_EOS 63
#define PL_HF_TAPS 8

// Bounds of what is believed.
#define PL_HF_HIDDEN_MAX 65536
#define PL_HF_INTERMEDIATE_MAX (1 << 20)
#define PL_HF_LAYERS_MAX 1024
#define PL_HF_HEADS_MAX 4096
#define PL_HF_HEAD_DIM_MAX 4096
#define PL_HF_VOCAB_MAX (4 << 20)
#define PL_HF_POSITIONS_MAX (1 << 28)
#define PL_HF_EXPERTS_MAX 1024    // of a layer
#define PL_HF_MIXED_MAX (1 << 16) // of all layers
#define PL_HF_LONG_MAX 256        // pairs of a head that longrope may name divisors of
#define PL_HF_DELTA_DIM_MAX 512   // of a head in a recurrent layer
#define PL_HF_DELTA_TAPS_MAX 8    // of its convolution

typedef enum pl_hf_scaling {
    PL_HF_ROPE_NONE,
    PL_HF_ROPE_LINEAR,
    PL_HF_ROPE_LLAMA3,
    PL_HF_ROPE_YARN,
    PL_HF_ROPE_LONG // longrope, "su" in older files
} pl_hf_scaling;

typedef struct pl_hf_rope {
    pl_hf_scaling scaling;
    double        theta;                            // the base; 10000 where config.json is silent
    double        factor;                           // linear, llama3, yarn, longrope
    double        low_freq_factor;                  // llama3
    double        high_freq_factor;                 // llama3
    int           original_max_position_embeddings; // llama3, yarn, longrope
    double        beta_fast, beta_slow;             // yarn
    double        attention_factor;                 // yarn, longrope: of cos and sin
    bool          truncate;                         // yarn
    // The part of each head that is rotated, its first elements; 0: all of it. Phi-3.
    double        partial;
    // longrope: divisors of the pairs' frequencies, for texts up to original_max_position_embeddings and for longer
    // ones. transformers changes from one list to the other when a text grows past that length and computes all of it
    // again; what is in a cache here was rotated once. So max_position_embeddings, the longest text that is served,
    // decides for all texts, as vLLM has it by its max_model_len: `long` where it is more than the original length.
    // A file that states fewer positions is served by `short`.
    int           n_divisors;
    double        short_factor[PL_HF_LONG_MAX], long_factor[PL_HF_LONG_MAX];
} pl_hf_rope;

// a(z) of the MLP's gate, see kernels/op/swiglu.h.
typedef enum pl_hf_activation { PL_HF_SILU, PL_HF_GELU_TANH, PL_HF_CLAMPED } pl_hf_activation;

// How eagle_aux_hidden_state_layer_ids count (0-based): the hidden state that enters layer i, or the one that leaves
// it. Input i is output i - 1. UNSTATED where the file does not say: conventions in the field differ by one.
typedef enum pl_hf_tap_numbering { PL_HF_TAPS_UNSTATED, PL_HF_TAPS_INPUT, PL_HF_TAPS_OUTPUT } pl_hf_tap_numbering;

// What a draft head's config declares it to be.
// OTHER: one that no published architecture names; paceline.backbone does.
typedef enum pl_hf_backbone {
    PL_HF_NO_BACKBONE,
    PL_HF_EAGLE3,
    PL_HF_EAGLE1,
    PL_HF_DFLASH,
    PL_HF_PEAGLE,
    PL_HF_OTHER
} pl_hf_backbone;
typedef enum pl_hf_bias { PL_HF_BIAS_UNSTATED, PL_HF_BIAS_NO, PL_HF_BIAS_YES } pl_hf_bias;

// Layers with a gated delta net in place of attention (kernels/op/deltarule.h).
typedef struct pl_hf_delta {
    int     key_heads, value_heads, key_dim, value_dim, taps; // value_heads 0: no such layer
    // Qwen3-Next's files: in_proj_qkvz is one tensor, and in_proj_ba, their rows by key head.
    bool    joined_qkvz, joined_gates;
    uint8_t layer[PL_HF_LAYERS_MAX / 8]; // bit l % 8 of byte l / 8, see pl_hf_recurrent
} pl_hf_delta;

typedef struct pl_hf_config {
    char architecture[64]; // architectures[0]
    char model_type[32];

    // The architecture is not computed here; sizes, embeddings, final norm and output matrix are known. Drafters of
    // such a target learn from hidden states that an engine took (infer/generate/hidden_states.h).
    bool             foreign;
    int              hidden_size, intermediate_size, num_hidden_layers;
    int              num_attention_heads, num_key_value_heads, head_dim;
    int              vocab_size, max_position_embeddings;
    double           rms_norm_eps;
    pl_hf_rope       rope;
    bool             tie_word_embeddings;
    bool             qkv_bias; // Qwen2's: queries, keys and values have biases
    bool             qk_norm;  // Qwen3's: each head of queries and keys is normed (kernels/op/norm.h)
    // Beside these a target may differ from Llama in:
    pl_hf_activation activation;
    bool             fused;             // Phi-3's files: qkv_proj and gate_up_proj are one tensor each
    bool             norm_plus_one;     // Gemma's files hold the norms' gains less 1
    bool             post_norms;        // Gemma's: what attention and the MLP give is normed before it is added
    bool             embedding_scaled;  // Gemma's: embeddings times sqrt(hidden_size)
    double           query_scalar;      // query_pre_attn_scalar: scores times its -1/2th power; 0: head_dim's
    double           attention_softcap; // attn_logit_softcapping; 0: none
    double           final_softcap;     // final_logit_softcapping; 0: none. Greedy choices do not depend on it
    int              sliding_window;    // keys that a position sees in windowed layers, its own included; 0: no such
    uint8_t          windowed[PL_HF_LAYERS_MAX / 8]; // bit l % 8 of byte l / 8: layer l is one, see pl_hf_windowed
    double           local_theta;                    // Gemma 3's: RoPE of windowed layers, unscaled; 0: as the others
    bool             biased; // GPT-OSS's: attention's output, router and experts have biases too
    bool             sinks;  // GPT-OSS's: each head of attention has one (kernels/op/attention.h)
    // Qwen3-Next's and Qwen3.5's: attention's output times the sigmoid of a gate, whose rows follow each head's queries
    bool             output_gate;
    pl_hf_delta      delta;
    // 0 experts: each layer has one MLP; else a mixture of them (kernels/op/experts.h).
    int              experts, experts_per_token; // of a layer; of a row
    int              expert_size;         // width of an expert's MLP; intermediate_size is that of layers without
    bool             expert_norm;         // the weights of a row's experts sum to 1
    int              shared_expert;       // width of the expert that all rows have beside them; 0: none
    uint8_t  dense[PL_HF_LAYERS_MAX / 8]; // bit l % 8 of byte l / 8: layer l has one MLP all the same, see pl_hf_dense
    int      bos_token_id, pad_token_id;  // -1: none
    int      eos_token_id[PL_HF_EOS];     // config.json's, then generation_config.json's further ones
    int      n_eos;
    pl_dtype dtype; // torch_dtype or dtype: F32, BF16 or F16; F32 where config.json is silent

    // draft heads; zero, false or empty in a target
    pl_hf_backbone      backbone;           // from the architecture
    char                backbone_name[32];  // OTHER: paceline.backbone
    bool                target_head;        // EAGLE-1: the output matrix is the target's, not in the checkpoint
    pl_hf_bias          fc_bias;            // EAGLE-1: "bias"; the weights decide where it is unstated
    int                 draft_vocab_size;   // 0: none stated
    int                 target_hidden_size; // 0: as hidden_size
    int                 tap[PL_HF_TAPS];    // eagle_config.eagle_aux_hidden_state_layer_ids, target_layer_ids
    int                 n_taps;
    pl_hf_tap_numbering tap_numbering; // paceline.tap_numbering: "input" or "output"
    bool                fc_norm, norm_output, norm_before_fc, norm_before_residual; // EAGLE-3.1's
    pl_hf_block         block;
    pl_hf_head          head; // paceline.head
    pl_hf_selector      selector;
} pl_hf_config;

// What a config must be to be accepted.
typedef enum pl_hf_role { PL_HF_TARGET, PL_HF_DRAFTER } pl_hf_role;

// dir: a folder with config.json (and generation_config.json), or a config.json itself.
//   PL_HF_TARGET:  LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Phi3ForCausalLM,
//   MixtralForCausalLM, Qwen3MoeForCausalLM, GptOssForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM,
//   Gemma3ForConditionalGeneration (its text_config; images are not read), Qwen3NextForCausalLM, Qwen3_5ForCausalLM,
//   Qwen3_5MoeForCausalLM, Qwen3_5ForConditionalGeneration and Qwen3_5MoeForConditionalGeneration (likewise); quantised
//   as quant.h lists, or GPT-OSS's way
//   PL_HF_DRAFTER: LlamaForCausalLMEagle3, PacelineEagle3, LlamaForCausalLM with draft_vocab_size (published EAGLE-3
//   heads); LlamaForCausalLMEagle, EagleLlamaForCausalLM, PacelineEagle, LlamaForCausalLM of one layer without
//   draft_vocab_size (published EAGLE-1 and EAGLE-2 heads; their folders hold fc.weight); DFlashDraftModel
//   and DFlash2DraftModel, whose output matrix is the target's, and PacelineDFlash, whose head may be another or
// whose slots draft otherwise; PEagleDraftModel (P-EAGLE: EAGLE-3's members, mask_token_id, and num_depths, 8 where
//   it is silent: how many tokens are drafted at once) and PacelinePEagle, whose head may be another;
//   PacelineDrafter, whose backbone is the one that paceline.backbone names (num_depths: the drafts of its blocks)
// *cfg is zeroed on failure.
pl_status pl_hf_config_read(pl_hf_config *cfg, const char *dir, pl_hf_role role, pl_err *err);
// The same of a config.json's text. where: for messages.
pl_status pl_hf_config_parse(pl_hf_config *cfg, const char *where, const char *text, size_t n, pl_hf_role role,
                             pl_err *err);
// The same bounds for a config that came from elsewhere. where: for the message.
pl_status pl_hf_config_check(const pl_hf_config *cfg, const char *where, pl_err *err);
// A config with the defaults of config.json: theta 10000, eps 1e-6, no special tokens, F32; all sizes 0.
void      pl_hf_config_init(pl_hf_config *cfg);

// Names in one warning the members of a folder's generation_config.json that the runtime does not apply to decoding
// (repetition penalties, suppressed tokens, stop strings...). A path that is no folder has none.
pl_status pl_hf_warn_generation(const char *dir, pl_err *err);

// Whether a layer sees a window of the text alone.
bool          pl_hf_windowed(const pl_hf_config *cfg, int layer);
// Gives all layers a window of so many keys; 0: none.
void          pl_hf_set_window(pl_hf_config *cfg, int window);
// Returns true if the slots of a block drafter see those before them alone in a layer.
bool          pl_hf_causal_in(const pl_hf_config *cfg, int layer);
// Returns true if a layer has a gated delta net in place of attention.
bool          pl_hf_recurrent(const pl_hf_config *cfg, int layer);
// Whether a layer has one MLP instead of experts.
bool          pl_hf_dense(const pl_hf_config *cfg, int layer);
// Of longrope: the divisors of the longest text that is served.
const double *pl_hf_long_divisors(const pl_hf_config *cfg);
// EAGLE-3.1's switches as a set, bit i of which is that of names[i].
enum { PL_HF_FC_NORM = 1, PL_HF_NORM_OUTPUT = 2, PL_HF_NORM_BEFORE_FC = 4, PL_HF_NORM_BEFORE_RESIDUAL = 8 };
#define PL_HF_NORMS 4
extern const char *const pl_hf_norm_names[PL_HF_NORMS];
unsigned                 pl_hf_norms(const pl_hf_config *cfg);
// Elements of a head that are rotated.
int                      pl_hf_rotary_dim(const pl_hf_config *cfg);
// What a target's config has beside Llama's goes: for a drafter's own layer, which is Llama's whatever the target's is.
void                     pl_hf_config_plain(pl_hf_config *cfg);
const char *pl_hf_backbone_name(const pl_hf_config *cfg); // "eagle3", "eagle1", an OTHER's name; "" for none

// Parts of a config.json, members of an open object: rope_theta with rope_scaling; of an object of scaling rope_type
// ("default": none) and its numbers; a token id, where none (-1) is written out as null, since transformers' defaults
// for absent ids are 1 and 2.
void        pl_hf_put_rope(pl_json_out *o, const pl_hf_rope *r);
void        pl_hf_put_scaling(pl_json_out *o, const pl_hf_rope *r);
void        pl_hf_put_token(pl_json_out *o, const char *key, int id);
const char *pl_hf_dtype_name(pl_dtype t); // as torch_dtype says it: F32, BF16, F16

// Writes a config.json that engines read, atomically: rope_theta always stated, the drafter's fields where set, the
// paceline object where the head's kind is set or the tap numbering is stated. The same config gives the same bytes.
pl_status pl_hf_config_write(const char *path, const pl_hf_config *cfg, pl_err *err);

#endif
