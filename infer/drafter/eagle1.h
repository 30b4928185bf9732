// The backbone of EAGLE-1 and EAGLE-2 (Li et al. 2024, arXiv 2401.15077 and 2406.16858): autoregression on the feature
// that the target's output matrix reads.
//
//   f_t = the target's last hidden after its final norm                 (the one feature; nothing is fused)
//   x   = fc [embed(token); f] (+ bias)                                 (embedding half first, 2d -> d)
//   h   = x + attention(x);   f' = h + mlp(post_attention_layernorm(h)) (no input norm before attention, no final norm)
//   logits = head(f');  the next step's hidden is f', a prediction of f_{t+1}
// The full head is the target's own output matrix, frozen and not in the checkpoint (architecture
// LlamaForCausalLMEagle, as SGLang loads it); a head that is the drafter's own is declared PacelineEagle. The embedding
// in published checkpoints is a copy of the target's and is not read; checkpoints written here leave it out, as engines
// share it. EAGLE-2 is this model drafting a dynamic tree.
#ifndef PL_EAGLE1_H
#define PL_EAGLE1_H

#include "infer/drafter/backbone.h"

typedef struct pl_eagle1 {
    pl_backbone base;
    pl_tensor   fc;      // [d, 2 d]
    pl_tensor   fc_bias; // [d]; .data NULL: no bias
    pl_layer    layer;   // norm_attn is not used
} pl_eagle1;

#endif
