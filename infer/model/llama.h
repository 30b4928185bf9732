// The target: one decoder, configured by config.json (checkpoints/hf.h); shared by pretraining, feature generation and
// decoding. Per layer, with norm = RMSNorm and W_o, W_d at the end of attention and MLP (infer/model/layer.h):
//
//   h = s embed[id]                          s = 1, or sqrt(d) rounded to the weights' dtype
//   h += [norm'] attention(norm(h))          over all keys or a window; scores scaled, capped as the config states
//   h += [norm'] mlp(norm(h))                norm': Gemma's, on the layer's output; mlp: one, or a mixture of experts
//   logits = [cap] norm(h) W^T               cap tanh(z / cap), Gemma 2's: pl_llama_logits
#ifndef PL_LLAMA_H
#define PL_LLAMA_H

#include "checkpoints/hf.h"
#include "infer/model/layer.h"
#include "infer/model/params.h"
#include "infer/model/tp.h"

#define PL_MAX_TAPS 8
#define PL_TAP_FINAL (-1) // as a tap: the last hidden state after the final norm, the head's input

typedef struct pl_taps {
    int n, layer[PL_MAX_TAPS]; // layers whose inputs are read, see pl_llama_forward
} pl_taps;

// Memory of rotary tables. They have rows for the longest cache so far, and grow: all positions of a model that states
// millions would take gigabytes. Outgrown blocks stay for graphs that read them.
#define PL_ROPE_BLOCKS 17 // from 2^12 rows to PL_HF_POSITIONS_MAX, at least twice as many each
typedef struct pl_rope_blocks {
    void  *block[PL_ROPE_BLOCKS];
    size_t bytes[PL_ROPE_BLOCKS];
    int    n;
} pl_rope_blocks;

typedef struct pl_llama {
    const pl_backend *be; // backend of the model; its tensors lie in be->memory
    // The ranks that share it (infer/model/tp.h): wqkv, wo, wgu, wdown, head and the biases are this rank's rows, and
    // shape has this rank's heads and MLP width. NULL: it is whole.
    pl_comm          *comm;
    int               number; // rank 0: index among the models that are shared over ranks; 0: none
    pl_hf_config      config;
    pl_layer_shape    shape;
    int               n_layers;
    int64_t           vocab;
    pl_tensor         embed; // [V, d] row-major
    pl_tensor         norm;  // [d]
    pl_tensor      head;  // [V, d]; when tied and packed it is a second copy, when tied and training it is embed itself
    pl_layer      *layer; // [n_layers]
    pl_tensor     *expert;    // of all layers' mixtures, which borrow them; NULL: no layer has one
    bool          *recurrent; // [n_layers] layers with a gated delta net in place of attention; NULL: none
    // [positions reached, rotated dimensions / 2]; local: of windowed layers with their own RoPE, else .data NULL
    pl_tensor      cos, sin, local_cos, local_sin;
    pl_params      params;
    pl_rope_blocks rope, local_rope;
    char           fingerprint[17];
    char          *path; // of the file or folder that it was opened from; owned, NULL: it was not opened
} pl_llama;

// Initialises shapes, parameter list and rope tables (of be's reals, in its memory) without weights: pl_llama_open
// loads them, a trainer binds its own. packed: the head becomes a separate parameter even when tied (panels in addition
// to the embedding's rows).
pl_status pl_llama_init(pl_llama *m, const pl_hf_config *config, const pl_backend *be, bool packed, pl_err *err);
// Opens a Hugging Face directory, a GGUF file (checkpoints/gguf_model.h) or a llama2.c file, with weights as t (PL_F32
// or PL_BF16) for inference on be, whose reals are PL_F32. Drafters of the model lie in the same memory. Returns
// PL_E_UNSUPPORTED if the backend lacks an op that the layers need (pl_llama_computable), or the architecture is not
// computed here.
pl_status pl_llama_open(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_err *err);
// Opens it over ranks, called by rank 0; the others follow it (pl_tp_follow) and open their own parts. comm NULL:
// pl_llama_open. PL_E_USAGE, PL_E_UNSUPPORTED: it cannot be divided among so many.
pl_status pl_llama_open_over(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                             pl_err *err);
// Opens this rank's part without messages to the others; used by pl_tp_follow.
pl_status pl_llama_open_part(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                             pl_err *err);
// pl_llama_open, but a target that is not computed here (pl_hf_config.foreign), or not by be, is opened all the same:
// embedding, final norm and output matrix alone.
pl_status pl_llama_open_ends(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_err *err);
void      pl_llama_fini(pl_llama *m);
// Reads fingerprint and config alone, without the weights; tie_word_embeddings is as config.json has it. A config also
// of a config.json itself.
pl_status pl_llama_fingerprint(char out[17], const char *path, pl_err *err);
pl_status pl_llama_config(pl_hf_config *config, const char *path, pl_err *err);

// Opens a target's config and tensors and reconciles them: if config.json ties the output matrix and the file holds one
// that differs from the embeddings, both are used as they are, with a warning (tie_word_embeddings becomes false), as
// in transformers 5. The caller closes *src.
pl_status              pl_llama_source(pl_weight_source **src, pl_hf_config *config, const char *path, pl_err *err);
// Logs one warning with the tensors of the file that the model does not use (biases, further layers, scales of a
// quantizer...), except for those that files are known to carry: rotary frequencies, vision towers and their
// projectors, Qwen's layer for drafting (mtp).
pl_status              pl_llama_warn_unclaimed(const pl_llama *m, const pl_weight_source *src, pl_err *err);
// Returns the output matrix (head) or the embeddings of an open target; NULL: the file has none.
const pl_weight_entry *pl_llama_matrix(const pl_weight_source *src, const pl_hf_config *config, bool head);

// tap[i]: the residual stream at the *input* of layer taps[i] (0-based; n_layers: the last layer's output before the
// final norm), the numbering of EAGLE-3's auxiliary layers in engines; PL_TAP_FINAL: `hidden`.
typedef struct pl_llama_out {
    pl_tensor hidden;           // [M, d] after the final norm: the head's input
    pl_tensor tap[PL_MAX_TAPS]; // [M, d] each
} pl_llama_out;

// Runs M rows through all layers. id: [M] tokens. Tensors live in the frame.
void pl_llama_forward(pl_ctx *ctx, const pl_llama *m, const int32_t *id, int64_t rows, pl_view *view, const int *taps,
                      int n_taps, pl_llama_out *out);

// Returns the logits of hidden states, [n, V], for sampling, verification and teaching. Over ranks: on rank 0 alone.
pl_tensor pl_llama_logits(pl_ctx *ctx, const pl_llama *m, pl_tensor hidden);

// Returns PL_E_UNSUPPORTED where the backend lacks an op that the layers take (experts on a device).
pl_status pl_llama_computable(const pl_hf_config *config, const pl_backend *be, pl_err *err);

// Checks that a config can be trained as a target; refuses by name a feature without backward, or one that cannot be
// written. where: for the message.
pl_status pl_llama_trainable(const pl_hf_config *config, const char *where, pl_err *err);

// Sets EAGLE-3's layers: inputs of 2, L/2 and L-3; for L < 7 of L/3, 2L/3 (rounded half up) and L, duplicates dropped.
// Returns their number.
int pl_llama_default_taps(int n_layers, int taps[PL_MAX_TAPS]);

// Returns the bytes that one decode step must read (over ranks: on this one): weights (except the embedding row; of a
// mixture the experts of one row) plus `context` cached positions.
double pl_llama_step_bytes(const pl_llama *m, int64_t context);

// Sets the widths and rope of a layer from a config; shared with drafters.
pl_status pl_layer_shape_from_config(pl_layer_shape *s, const pl_hf_config *c, pl_err *err);
// Grows m's rotary tables to `positions`, or to the model's own limit if that is less. The tables are no part of the
// model's value: those of a const model grow as well, while no other thread runs it.
pl_status pl_llama_reach(const pl_llama *m, int64_t positions, pl_err *err);
// Grows cos and sin tables of config's rope in blocks of `memory` (PL_LOCAL) likewise; b starts zeroed.
pl_status pl_rope_reach(pl_tensor *cos, pl_tensor *sin, pl_rope_blocks *b, const pl_hf_config *c, int64_t positions,
                        pl_dtype real, const pl_memory *memory, pl_err *err);
void      pl_rope_fini(pl_rope_blocks *b, const pl_memory *memory);
// Adds a decoder layer's weights under names "<prefix>self_attn.q_proj.weight" and so on; the caller adds the norms.
void      pl_layer_params(pl_params *ps, pl_layer *w, const pl_layer_shape *s, const char *prefix, double out_scale);

#endif
