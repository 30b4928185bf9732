// DFlash's backbone (arXiv 2602.06036): drafts a block in one forward, with the target's features as additional keys
// and values of each layer.
//
//   c_t   = hidden_norm(fc [tap_0; tap_1; ...]_t)          once for each position whose features are known
//   x_j   = embed(anchor) for j = 0, embed(mask) for j = 1 .. B - 1        at positions a + j, anchor at a
//   layer: n = input_layernorm(x);  q = Wq n;  (k, v) = Wkv n of the block and Wkv c of its context, positions < a;
//          q and k normed head by head and rotated;  x += Wo attention(q; k, v of context and block, both directions)
//          with a window W x_j sees positions from a + j - W + 1 on; causal layers (config) see slots up to their own
//          x += mlp(post_attention_layernorm(x))           SwiGLU
//   y     = norm(x)
// DFlash 2 (taps > 0) has a convolution over the block's slots (kernels/op/blockconv.h) around both sublayers f:
//   in place of f(n):  conv_1(f(conv_0(n))),  the dynamic weights of both sides from kernel_projection n
// which starts as the identity, and a selector after its head (infer/head/selector.h).
// Slots are drafted independently: slot j's distribution is softmax(head(y_j)), except with a head that reads the
// previous token (infer/head/markov.c, a selector). Only the context's keys and values stay in the cache. Tensor names
// and shapes are z-lab's.
#ifndef PL_DFLASH_H
#define PL_DFLASH_H

#include "infer/drafter/backbone.h"

#define PL_DFLASH_LAYERS 16

typedef struct pl_dflash_layer {
    pl_layer  base;    // without wqkv
    pl_tensor wq, wkv; // [nh hd, d], [2 nkv hd, d]
    // DFlash 2: around attention and around the MLP.
    struct {
        pl_tensor base, kernel; // [2 taps d], [2 taps d / group, d]
    } conv[2];
} pl_dflash_layer;

typedef struct pl_dflash {
    pl_backbone     base;
    pl_tensor       fc;                // [d, n_taps * d_target]
    pl_tensor       hidden_norm, norm; // [d]
    pl_dflash_layer layer[PL_DFLASH_LAYERS];
} pl_dflash;

#endif
