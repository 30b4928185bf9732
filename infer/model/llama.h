// The target: one decoder, which config.json drives (checkpoints/hf.h); shared by pretraining, feature generation and
// decoding. Per layer, with norm = RMSNorm and W_o, W_d at the end of attention and MLP (infer/model/layer.h):
//
//   h = s embed[id]                          s = 1, or sqrt(d) rounded to the type in which the weights are held
//   h += [norm'] attention(norm(h))          the keys of a window, or all; scores scaled, capped as the config says
//   h += [norm'] mlp(norm(h))                norm': Gemma's, on what is added; mlp: one, or a mixture of experts
//   logits = [cap] norm(h) W^T               cap tanh(z / cap), Gemma 2's: pl_llama_logits
#ifndef PL_LLAMA_H
#define PL_LLAMA_H

#include "checkpoints/hf.h"
#include "infer/model/layer.h"
#include "infer/model/params.h"
#include "infer/model/tp.h"

#define PL_MAX_TAPS 8
#define PL_TAP_FINAL (-1) // as a tap: the last hidden after the final norm, what the head reads

typedef struct pl_taps {
    int n, layer[PL_MAX_TAPS]; // layers whose inputs are read, see pl_llama_forward
} pl_taps;

// Memory of rotary tables. They have rows for the longest cache so far, and grow: for all positions of a model that
// states millions they would be gigabytes. Blocks that were outgrown stay for graphs that read them.
#define PL_ROPE_BLOCKS 17 // from 2^12 rows to PL_HF_POSITIONS_MAX, at least twice as many each
typedef struct pl_rope_blocks {
    void  *block[PL_ROPE_BLOCKS];
    size_t bytes[PL_ROPE_BLOCKS];
    int    n;
} pl_rope_blocks;

typedef struct pl_llama {
    const pl_backend *be; // where it computes: its tensors lie in be->memory
    // The ranks that it lies over (infer/model/tp.h): wqkv, wo, wgu, wdown, head and the biases are this rank's rows,
    // and shape has its heads and MLP width. NULL: it is whole.
    pl_comm          *comm;
    int               number; // on rank 0, among those that lie over ranks; 0: none
    pl_hf_config      config;
    pl_layer_shape    shape;
    int               n_layers;
    int64_t           vocab;
    pl_tensor         embed; // [V, d] row-major
    pl_tensor         norm;  // [d]
    pl_tensor      head;  // [V, d]; when tied and packed it is a second copy, when tied and training it is embed itself
    pl_layer      *layer; // [n_layers]
    pl_tensor     *expert; // of all layers' mixtures, which borrow them; NULL: no layer has one
    // [positions reached, rotated dimensions / 2]; of windowed layers where they have their own, else .data NULL
    pl_tensor      cos, sin, local_cos, local_sin;
    pl_params      params;
    pl_rope_blocks rope, local_rope;
    char           fingerprint[17];
} pl_llama;

// For a backend: shapes, parameter list and rope tables (of its reals, in its memory); no weights yet: pl_llama_open
// loads them, a trainer binds its own. packed: the head becomes a parameter of its own even when tied (panels beside
// the embedding's rows).
pl_status pl_llama_init(pl_llama *m, const pl_hf_config *config, const pl_backend *be, bool packed, pl_err *err);
// A Hugging Face directory or a llama2.c file, weights held in t (PL_F32 or PL_BF16) for inference on be, which is of
// PL_F32 reals. What drafts for the model lies in the same memory. A backend that lacks what the layers take (experts,
// on a device) is PL_E_UNSUPPORTED.
pl_status pl_llama_open(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_err *err);
// The same over ranks, for their rank 0, whose others follow it (pl_tp_follow) and open their parts of their own.
// comm NULL: pl_llama_open. PL_E_USAGE, PL_E_UNSUPPORTED: it does not divide among so many.
pl_status pl_llama_open_over(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                             pl_err *err);
// The part of this rank, without a word to the others: what pl_tp_follow opens.
pl_status pl_llama_open_part(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                             pl_err *err);
void      pl_llama_fini(pl_llama *m);
// The same fingerprint and config without reading the weights; tie_word_embeddings is as config.json has it.
pl_status pl_llama_fingerprint(char out[17], const char *path, pl_err *err);
pl_status pl_llama_config(pl_hf_config *config, const char *path, pl_err *err);

// What a target's config says and its tensors, the one settled by the other, wherever they are read: where config.json
// ties the output matrix and the file holds another one than the embeddings, both count as they are, with a warning
// (tie_word_embeddings becomes false), as in transformers 5. The caller closes *src.
pl_status              pl_llama_source(pl_weight_source **src, pl_hf_config *config, const char *path, pl_err *err);
// One warning names what the file holds beside the model's tensors (biases, further layers, scales of a quantizer...),
// but for what files are known to carry along: rotary frequencies, vision towers and their projectors.
pl_status              pl_llama_warn_unclaimed(const pl_llama *m, const pl_weight_source *src, pl_err *err);
// The output matrix (head) or the embeddings of an open target; NULL: the file has none.
const pl_weight_entry *pl_llama_matrix(const pl_weight_source *src, const pl_hf_config *config, bool head);

// The residual stream at the *input* of layer taps[i] (0-based; n_layers: the last layer's output before the final
// norm), as engines number EAGLE-3's auxiliary layers; PL_TAP_FINAL: `hidden`.
typedef struct pl_llama_out {
    pl_tensor hidden;           // [M, d] after the final norm: what the head reads
    pl_tensor tap[PL_MAX_TAPS]; // [M, d] each, of view->tap_row [n_tap_rows, d]
} pl_llama_out;

// Runs M rows through all layers. id: [M] tokens. Tensors live in the frame.
void pl_llama_forward(pl_ctx *ctx, const pl_llama *m, const int32_t *id, int64_t rows, pl_view *view, const int *taps,
                      int n_taps, pl_llama_out *out);

// The logits of hidden states, [n, V]: what sampling, verification and teaching take. Over ranks: rank 0's.
pl_tensor pl_llama_logits(pl_ctx *ctx, const pl_llama *m, pl_tensor hidden);

// PL_E_UNSUPPORTED where the backend lacks what the layers take (experts, on a device).
pl_status pl_llama_computable(const pl_hf_config *config, const pl_backend *be, pl_err *err);

// Whether a config can be trained as a target: what has no backward here, or is not written, is refused by name.
// where: for the message.
pl_status pl_llama_trainable(const pl_hf_config *config, const char *where, pl_err *err);

// EAGLE-3's layers: inputs of 2, L/2 and L-3; for L < 7 at L/3, 2L/3 (rounded half up) and L, duplicates dropped.
// Returns how many.
int pl_llama_default_taps(int n_layers, int taps[PL_MAX_TAPS]);

// Bytes that one decode step must read (over ranks: this one): weights (embedding row aside; of a mixture the experts
// of one row) plus `context` cached positions.
double pl_llama_step_bytes(const pl_llama *m, int64_t context);

// The width and rope of a layer from a config: shared with drafters.
pl_status pl_layer_shape_from_config(pl_layer_shape *s, const pl_hf_config *c, pl_err *err);
// Makes room in m's rotary tables for a cache of so many positions, or for all that the model states, where that is
// less. The tables are no part of the model's value: those of a const one grow as well, while no other thread runs it.
pl_status pl_llama_reach(const pl_llama *m, int64_t positions, pl_err *err);
// The same of cos and sin tables of config's rope in blocks of `memory` (PL_LOCAL), a zeroed b to begin with.
pl_status pl_rope_reach(pl_tensor *cos, pl_tensor *sin, pl_rope_blocks *b, const pl_hf_config *c, int64_t positions,
                        pl_dtype real, const pl_memory *memory, pl_err *err);
void      pl_rope_fini(pl_rope_blocks *b, const pl_memory *memory);
// Adds a decoder layer's weights under names "<prefix>self_attn.q_proj.weight" and so on; norms are the caller's.
void      pl_layer_params(pl_params *ps, pl_layer *w, const pl_layer_shape *s, const char *prefix, double out_scale);

#endif
