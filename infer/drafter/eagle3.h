// EAGLE-3's backbone (Li et al. 2025, arXiv 2503.01840): one decoder layer over the target's fused features.
//
//   g_t = fc [tap_0; tap_1; ...]_t                      (target features to the drafter's width; no bias)
//   x   = [input_layernorm(embed(token)); hidden_norm(hidden)]   (embedding half first, width 2d)
//   h   = hidden + attention(x);   h = h + mlp(post_attention_layernorm(h))
//   logits = head(norm(h));  the next step's hidden is h, not normed
#ifndef PL_EAGLE3_H
#define PL_EAGLE3_H

#include "infer/drafter/backbone.h"

typedef struct pl_eagle3 {
    pl_backbone base;  // shape.d_attn = 2 d
    pl_tensor   fc;    // [d, n_taps * d_target]
    pl_layer    layer; // norm_attn is input_layernorm (of the embedding half), norm_mlp post_attention_layernorm
    pl_tensor   hidden_norm, norm; // [d]
} pl_eagle3;

#endif
