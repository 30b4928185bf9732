// Attention of drafted blocks for training: the rows of a block see a span of context rows and the whole of their own
// block, in both directions (DFlash, arXiv 2602.06036: the target's features as further keys and values).
//
//   Row m of qkv [M, (nh + 2 nkv) hd] is queries, keys and values, queries and keys already rotated; block g is its
//   rows g B .. g B + B - 1. Row r of kv [T, 2 nkv hd] is keys (rotated) and values of a context row.
//   Keys of block g, in this order:  context rows lo[g] .. hi[g] - 1, then the block's own B rows
//   s_j = q . k_j / sqrt(hd);  o = sum_j softmax(s)_j v_j;  query head h reads key/value head h / (nh / nkv)
//   lo[g] < 0: the block is padding, its output is zero.
// Blocks of one document stand together and have one lo; spans of different lo do not meet (so that threads may add up
// the documents' gradients apart).
// While decoding the same rows see the same keys by a cache: kernels/op/attention.h, whose path is the block for each
// of its rows.
//
// Scores and softmax in fp32 (double on ref64), maximum removed; lse is kept for backward, probabilities are computed
// again. With p = exp(s - lse):  dv += p do;  ds = p (do . v - do . o) / sqrt(hd);  dq += ds k;  dk += ds q.
// dk and dv of a context row add up blocks in ascending order, in a block query heads, in these rows. Cost: 2 flops x
// 2 nh hd for each row and key forward, 5/2 of that backward.
#ifndef PL_OP_BLOCKATTENTION_H
#define PL_OP_BLOCKATTENTION_H
#include "kernels/backend.h"

typedef struct pl_blockattention_args {
    pl_tensor      o;       // [M, nh hd]
    pl_tensor      lse;     // [M, nh], no gradient
    pl_tensor      qkv;     // [M, (nh + 2 nkv) hd]
    pl_tensor      kv;      // [T, 2 nkv hd]
    const int32_t *lo, *hi; // [M / block]
    int            block, nh, nkv, hd;
    double         scale;
} pl_blockattention_args;

pl_tensor pl_blockattention(pl_ctx *ctx, pl_tensor qkv, pl_tensor kv, const int32_t *lo, const int32_t *hi, int block,
                            int nh, int nkv, int hd);
#endif
