// EAGLE-3's backbone (Li et al. 2025, arXiv 2503.01840): one or more decoder layers over the target's fused features.
//
//   g_t = fc [tap_0; tap_1; ...]_t                      (target features to the drafter's width; no bias)
//   x   = [input_layernorm(embed(token)); hidden_norm(hidden)]   (embedding half first, width 2d)
//   h   = hidden + attention(x);   h = h + mlp(post_attention_layernorm(h))
//   and for each further layer, a plain one:
//   h   = h + attention(input_layernorm(h));   h = h + mlp(post_attention_layernorm(h))
//   logits = head(norm(h));  the next step's hidden is h, not normed
// EAGLE-3.1's switches (arXiv 2605.09992: the fed-back state grows from step to step, and attention drifts with it):
//   norm_output           the next step's hidden is norm(h)
//   fc_norm               each tap is normed by itself before fc (fc_norm.i)
//   norm_before_fc        all taps are normed as one vector before fc (input_norm); not with fc_norm
//   norm_before_residual  the first layer adds to hidden_norm(hidden) instead of hidden
// With a window each row sees the keys of the last so many positions of its path, its own included.
// The width may differ from the target's; the drafter then has its own embeddings, which it may have at equal width
// too. In files a single layer is called "midlayer", several "layers.i".
#ifndef PL_EAGLE3_H
#define PL_EAGLE3_H

#include "infer/drafter/backbone.h"

typedef struct pl_eagle3 {
    pl_backbone base;                  // shape.d_attn = 2 d, for the first layer
    pl_tensor   fc;                    // [d, n_taps * d_target]
    pl_tensor   tap_norm[PL_MAX_TAPS]; // [d_target], with fc_norm
    pl_tensor   input_norm;            // [n_taps * d_target], with norm_before_fc
    pl_layer    layer[PL_STEP_LAYERS]; // norm_attn is input_layernorm (first layer: of the embedding half)
    pl_tensor   hidden_norm, norm;     // [d]
} pl_eagle3;

// Shared with P-EAGLE (infer/drafter/peagle.c).
void      pl_eagle3_configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o);
pl_status pl_eagle3_check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err);
void      pl_eagle3_taps(pl_taps *t, const pl_hf_config *c, int n_layers);
void      pl_eagle3_init(pl_backbone *b);
pl_tensor pl_eagle3_fuse(pl_ctx *ctx, const pl_backbone *b, pl_tensor features);
pl_tensor pl_eagle3_step(pl_ctx *ctx, const pl_backbone *b, const int32_t *token, pl_tensor hidden, pl_view *view,
                         pl_tensor *hidden_out, pl_tensor y);
void      pl_eagle3_gains(const pl_backbone *b, const pl_feature_rms *in, double *gain);
const pl_tensor *pl_eagle3_fuse_only(const pl_backbone *b);

#endif
