// What a target's layers have beside Llama's, by its architecture's name and by what its config.json says.
#ifndef PL_HF_FAMILY_H
#define PL_HF_FAMILY_H

#include "checkpoints/hf.h"
#include "kernels/base/json.h"

// Which layers a sliding_window is for, where layer_types does not say: none may have one; all; from max_window_layers
// on where use_sliding_window; all where use_sliding_window; all but each n-th.
typedef enum pl_hf_windows {
    PL_HF_WINDOWS_NONE,
    PL_HF_WINDOWS_ALL,
    PL_HF_WINDOWS_SWITCHED,
    PL_HF_WINDOWS_SWITCHED_ALL,
    PL_HF_WINDOWS_PATTERN
} pl_hf_windows;

// A row of the table of targets, with what transformers takes where a file is silent.
typedef struct pl_hf_family {
    const char   *architecture; // NULL: a draft head's, whose layer is Llama's
    bool          qkv_bias, qk_norm, gemma;
    bool          fused;   // Phi-3
    bool          wrapped; // the decoder's members are in text_config
    bool          oss;     // GPT-OSS: biases everywhere, sinks, the clamped gate, YaRN, weights in MXFP4
    // Qwen3-Next and Qwen3.5: gated delta nets, an output gate, norms less 1, a quarter of a head rotated; the first's
    // projections lie by key head. num_experts may be 0.
    bool          delta, by_key_head;
    pl_hf_windows windows;
    int           pattern;      // PL_HF_WINDOWS_PATTERN: n
    double        softcap[2];   // of attention, of the logits; 0: none unless stated, negative: refused
    double        theta, local; // of RoPE; of windowed layers where they have their own, else 0
    int           heads, kv_heads, head_dim, vocab, positions; // 0: must be stated, or follows
    int           window;                                      // of sliding_window, where it has a default; 0: 4096
    double        eps;                                         // of norms; 0: 1e-6
    // Experts of a layer (0: none may be stated), of a row, their width (0: it is intermediate_size); whether a row's
    // weights always sum to 1.
    int           experts, experts_per_token, expert_size, shared_expert;
    int           inter; // of intermediate_size where no layer may need it: a drafter's MLP; 0: must be stated
    bool          expert_norm;
} pl_hf_family;

// NULL: no target's name.
const pl_hf_family       *pl_hf_family_of(const char *architecture);
extern const pl_hf_family pl_hf_drafter_family;
// Refuses a name that is none, with those that are. list: the node that has it.
pl_status                 pl_hf_family_fail(const pl_json *j, const cJSON *list, const char *name, pl_err *err);

// Reads activation, windows, soft caps, experts and the scale of scores into c, whose sizes are read already.
// PL_E_INPUT names a setting that is not computed here.
pl_status pl_hf_family_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err);
// Writes them as members of an open object, beside hidden_act; nothing for a Llama.
void      pl_hf_family_put(pl_json_out *o, const pl_hf_config *c);
// Writes layer_types: each layer with a window, or full attention.
void      pl_hf_put_layer_types(pl_json_out *o, const pl_hf_config *c);

// A target of an architecture that is not computed here (pl_hf_config.foreign), and of one in text_config.
extern const pl_hf_family pl_hf_foreign_family, pl_hf_foreign_wrapped;
// Reads into c, whose sizes are read already, what a drafter of such a target needs beside them: the final norm, a soft
// cap of the logits, the base of RoPE. PL_E_INPUT: its logits are no output matrix times an RMS norm.
pl_status                 pl_hf_foreign_read(pl_hf_config *c, const pl_json *j, pl_err *err);

// Reads the layers with a gated delta net, and what belongs to them.
pl_status pl_hf_delta_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err);
pl_status pl_hf_delta_check(const pl_hf_config *c, const char *where, pl_err *err);
// Writes them as members of an open object; nothing if there are none.
void      pl_hf_delta_put(pl_json_out *o, const pl_hf_config *c);

// Reads num_local_experts or num_experts, num_experts_per_tok, moe_intermediate_size, norm_topk_prob,
// decoder_sparse_step and mlp_only_layers into c, whose sizes are read already. A family without experts
// refuses them, with their names.
pl_status pl_hf_experts_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err);
pl_status pl_hf_experts_check(const pl_hf_config *c, const char *where, pl_err *err);
// Writes them as members of an open object; nothing if the model has no experts and may not have any.
void      pl_hf_experts_put(pl_json_out *o, const pl_hf_config *c, const pl_hf_family *f);

// Reads the rotary embedding of a config.json: from rope_scaling or, where that is missing or empty, rope_parameters,
// and from the top for members that neither has, as transformers 5 does (original_max_position_embeddings counts at the
// top first). A warning names a place that contradicts.
//
// Into c->rope and c->local_theta; c's positions are read already. What is not computed here is PL_E_INPUT, by name.
pl_status pl_hf_rope_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err);

#endif
