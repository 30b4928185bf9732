// The layer for drafting that a target's own files hold, trained with the target: Qwen3-Next's and Qwen3.5's, after
// DeepSeek-V3's multi-token prediction (arXiv 2412.19437, section 2.2). It is a layer of the target's kind with full
// attention, or a mixture of experts where the target has them:
//
//   f_t = the target's last hidden after its final norm
//   x   = fc [norm_embedding(embed(token)); norm_hidden(f)]                (embedding half first, 2d -> d)
//   h   = x + attention(input_layernorm(x))
//   y   = norm(h + mlp(post_attention_layernorm(h)));   logits = W_out y   (the target's output matrix)
//
// The next step's hidden is y. In files mtp.fc, mtp.pre_fc_norm_embedding, mtp.pre_fc_norm_hidden, mtp.layers.0.* and
// mtp.norm. For drafting alone: its layer has an output gate or experts, which have no backward here.
#ifndef PL_MTP_H
#define PL_MTP_H

#include "infer/drafter/backbone.h"

typedef struct pl_mtp {
    pl_backbone base;
    pl_tensor   norm_embedding, norm_hidden; // [d]
    pl_tensor   fc;                          // [d, 2 d]
    pl_layer    layer;
    pl_tensor   norm; // [d]
} pl_mtp;

#endif
