// EAGLE-3's drafter (Li et al. 2025, arXiv 2503.01840): one decoder layer over the target's fused features.
//
//   g_t = fc [tap_0; tap_1; ...]_t                      (target features to the drafter's width; no bias)
//   x   = [input_layernorm(embed(token)); hidden_norm(hidden)]   (embedding half first, width 2d)
//   h   = hidden + attention(x);   h = h + mlp(post_attention_layernorm(h))
//   logits = head(norm(h));  the next step's hidden is h, not normed
// Row t consumes hidden of position t and the embedding of token t+1, and predicts token t+2. hidden is g_t where the
// target's features are known, and the row's own previous output where they are not (decoding ahead; unroll step k of
// training, with rope position t + k). The embedding is the target's, frozen and shared.
#ifndef PL_EAGLE3_H
#define PL_EAGLE3_H

#include "infer/head.h"
#include "infer/layer.h"
#include "infer/llama.h"

typedef struct pl_eagle3 {
    pl_hf_config   config; // the drafter's own
    pl_layer_shape shape;  // d_attn = 2 d
    int            n_taps;
    int            tap[PL_MAX_TAPS]; // layer inputs, 0-based; n_layers: the last layer's output before the final norm
    int64_t        d_target;
    pl_tensor      embed; // the target's; borrowed
    pl_tensor      fc;    // [d, n_taps * d_target]
    pl_layer       layer; // norm_attn is input_layernorm (of the embedding half), norm_mlp post_attention_layernorm
    pl_tensor      hidden_norm, norm; // [d]
    pl_head        head;
    pl_tensor      cos, sin;
    void          *rope;
    size_t         rope_bytes;
    pl_params      params;
} pl_eagle3;

// What a new drafter is made of; zeros take the target's (or the stated default).
typedef struct pl_eagle3_options {
    const char *head_kind; // NULL: "full"
    int64_t     head_rank;
    int         n_taps, tap[PL_MAX_TAPS]; // 0: pl_llama_default_taps
    int         inter;                    // MLP width; 0: the target's
} pl_eagle3_options;

// Shapes and parameter list for a target; no weights (a trainer binds them).
pl_status pl_eagle3_init(pl_eagle3 *e, const pl_llama *target, const pl_eagle3_options *o, pl_dtype real, pl_err *err);
// A checkpoint directory, weights held in t for inference. Refused with one line when it does not fit the target.
pl_status pl_eagle3_open(pl_eagle3 *e, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err);
void      pl_eagle3_fini(pl_eagle3 *e);

// features [M, n_taps * d_target] -> hidden [M, d].
pl_tensor pl_eagle3_fuse(pl_ctx *ctx, const pl_eagle3 *e, pl_tensor features);
// One step for M rows. *hidden_out: the un-normed state that the next step consumes. Returns norm(h), what the head
// reads; y.data not NULL: written there (a slice of a larger tensor).
pl_tensor pl_eagle3_step(pl_ctx *ctx, const pl_eagle3 *e, const int32_t *token, pl_tensor hidden, pl_view *view,
                         pl_tensor *hidden_out, pl_tensor y);
// Writes config.json and model.safetensors into dir (which exists). data: one row-major block per parameter.
pl_status pl_eagle3_write(const pl_eagle3 *e, const char *dir, const float *const *data, pl_dtype t, pl_err *err);
// The taps side by side, each rounded to bf16: [M, n_taps * d_target], what datasets store and fc reads.
pl_tensor pl_features(pl_ctx *ctx, const pl_llama_out *out, int n_taps);
// Bytes that one draft step must read.
double    pl_eagle3_step_bytes(const pl_eagle3 *e);

#endif
