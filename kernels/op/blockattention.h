// Attention of drafted blocks for training: the rows of a block attend to a span of context rows and to the whole of
// their own block, in both directions (DFlash, arXiv 2602.06036: the target's features as additional keys and values).
//
//   Row m of qkv [M, (nh + 2 nkv) hd] is queries, keys and values, queries and keys already rotated; block g is its
//   rows g B .. g B + B - 1. Row r of kv [T, 2 nkv hd] is keys (rotated) and values of a context row.
//   Keys of block g, in this order:  context rows lo[g] .. hi[g] - 1, then the block's own B rows
//   s_j = q . k_j / sqrt(hd);  o = sum_j softmax(s)_j v_j;  query head h reads key/value head h / (nh / nkv)
//   lo[g] < 0: the block is padding, its output is zero.
// Blocks of one document are consecutive and have the same lo; spans of different lo are disjoint (so that threads may
// sum the documents' gradients separately). In decoding the same rows see the same keys through a cache:
// kernels/op/attention.h, with the block as the path of each of its rows.
//
// Scores and softmax in fp32 (double on ref64), maximum subtracted; lse is kept for backward, probabilities are
// recomputed. With p = exp(s - lse):  dv += p do;  ds = p (do . v - do . o) / sqrt(hd);  dq += ds k;  dk += ds q. dk
// and dv of a context row sum blocks in ascending order, in a block query heads, in these rows. Cost: 2 flops x 2 nh hd
// for each row and key forward, 5/2 of that backward.
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
