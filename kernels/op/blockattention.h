// Attention of drafted blocks for training: the rows of a block attend to a span of context rows and to the whole of
// their own block, in both directions (DFlash, arXiv 2602.06036: the target's features as additional keys and values).
//
//   Row m of qkv [M, (nh + 2 nkv) hd] is queries, keys and values, queries and keys already rotated; block g is its
//   rows g B .. g B + B - 1. Row r of kv [T, 2 nkv hd] is keys (rotated) and values of a context row.
//   Keys of block g, in this order:  context rows lo[g] .. hi[g] - 1, then the block's own B rows
//   s_j = q . k_j / sqrt(hd);  o = sum_j softmax(s)_j v_j;  query head h reads key/value head h / (nh / nkv)
//   lo[g] < 0: the block is padding, its output is zero.
//   window > 0: row j of the block, at position hi[g] + j as the context's rows count them, sees context rows from
//   hi[g] + j - window + 1 on; window >= B, so that a block's rows all see each other. causal: it sees the block's
//   rows up to itself.
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

typedef struct pl_block_rule {
    int  window; // positions up to a row's own that it sees; 0: all
    bool causal;
} pl_block_rule;

typedef struct pl_blockattention_args {
    pl_tensor      o;       // [M, nh hd]
    pl_tensor      lse;     // [M, nh], no gradient
    pl_tensor      qkv;     // [M, (nh + 2 nkv) hd]
    pl_tensor      kv;      // [T, 2 nkv hd]
    const int32_t *lo, *hi; // [M / block]
    int            block, nh, nkv, hd;
    double         scale;
    pl_block_rule  rule;
} pl_blockattention_args;

pl_tensor pl_blockattention(pl_ctx *ctx, pl_tensor qkv, pl_tensor kv, const int32_t *lo, const int32_t *hi, int block,
                            int nh, int nkv, int hd);
pl_tensor pl_blockattention_ruled(pl_ctx *ctx, pl_tensor qkv, pl_tensor kv, const int32_t *lo, const int32_t *hi,
                                  int block, pl_block_rule rule, int nh, int nkv, int hd);

// Returns the first context row that row j of block g sees.
static inline int32_t pl_block_first(const pl_blockattention_args *a, int64_t g, int64_t j) {
    int64_t first = a->rule.window > 0 ? a->hi[g] + j - a->rule.window + 1 : a->lo[g];
    return first > a->lo[g] ? (int32_t)first : a->lo[g];
}
// Returns how many of its block's rows it sees.
static inline int pl_block_own(const pl_blockattention_args *a, int64_t j) {
    return a->rule.causal ? (int)j + 1 : a->block;
}
// Returns how many keys it sees.
static inline int64_t pl_block_keys(const pl_blockattention_args *a, int64_t g, int64_t j) {
    return a->lo[g] < 0 ? 0 : a->hi[g] - pl_block_first(a, g, j) + pl_block_own(a, j);
}
#endif
