// Attention, one contract for all uses: queries of M rows over a KV view.
//
//   s_j = scale * q . k_j over the row's visible keys;  o = sum_j softmax(s)_j v_j;  GQA: query head h reads key/value
//   head h / (nh / nkv).  scale = 1/sqrt(hd) unless the rule sets it. Scores and softmax in fp32 (double on ref64),
//   with the maximum subtracted.
//   sinks (GPT-OSS, arXiv 2508.10925): sink[h] is an additional score of the head without a value: softmax runs over
//   the keys and it. In the order of sums it precedes all keys. Cached only, and not on a device.
//   cap > 0: s_j becomes cap tanh(s_j / cap) before softmax (Gemma 2's soft cap, arXiv 2408.00118, section 2); cached
//   only.
//
// A row of qkv is [nh*hd queries | nkv*hd keys | nkv*hd values], queries and keys already rotated.
//
// The view gives the visible keys of row m, in order of position along its path:
//   cached   (inference; no gradients) row[m].n_ctx committed keys at slots 0..n_ctx-1 of its session's cache, then
//            row[m].n_path keys of this forward's own rows of the same session, at slots path[0..n_path-1] (ancestors
//            from the root to the row itself; rope has written them). Key i of the path has position i.
//            path NULL (chains, prefill): consecutive slots n_ctx, n_ctx+1, ...
//            window > 0: of the keys up to the row's own the last `window`, its own included (Mistral's sliding
//            windows, arXiv 2310.06825, section 2): key i where own - i < window. Earlier keys are not read. The own
//            key is the last one; with path NULL it is that of position `slot`, and the keys behind it are seen too
//            (blocks that attend in both directions).
//   blocks   (training) block 0: own rows lo[m]..m (causal within the row's document); blocks j = 1..n_blocks-1: row m
//            of block j only (the diagonals of training-time test, EAGLE-3 §3; exact, merged by log-sum-exp, O(M)
//            memory). Queries come from block n_blocks-1. Gradients flow into queries, keys and values of all blocks.
//            lo[m] < 0: the row is padding, its output is zero. A sliding window is a lo that rises with m.
//            With fewer queries than block 0 has rows (pl_attention_part) query m is row at[m] of block 0, sees its
//            rows lo[m]..at[m], and of block j the row place[j][at[m]]. Keys and values are the last columns of a
//            block's row, queries the first of q's.
//            If the caller allows bf16 (its weights are bf16), a GPU may round queries, keys, values, probabilities,
//            gradients and the block's o to it (kernels/cuda/lib/cudnn_attention.h).
// On a GPU a number enters a product as the sum of two bf16 numbers, within 2^-16 of the product, in both views
// (attention_tiles.cuh; the diagonals are fp32); keys and values of a bf16 cache enter as they are.
//
// Reduction order (cached): keys are taken in groups of PL_ATTN_GROUP positions aligned to position 0; within a group
// scores, group maximum, exponentials and value sums go in order of position, groups merge in order. Grouping and order
// depend on positions alone: never on slots, other rows or threads. So a tree node, a chain row, a prefill row and a
// plain decode row of the same path give the same bits. A path is a list of slots, so trees may have any width.
#ifndef PL_OP_ATTENTION_H
#define PL_OP_ATTENTION_H
#include "kernels/backend.h"
#include "kernels/base/check.h"

#define PL_ATTN_GROUP 32
#define PL_MAX_UNROLL 16 // largest K of training-time test

// The keys and values of row m. k and v: [slots, nkv*hd], one layer of one session's cache. With a window the slots
// before that of the group that precedes the first visible key's need not be in memory.
typedef struct pl_kvrow {
    void          *k, *v;
    const int32_t *path; // n_path slots, or NULL: n_ctx, n_ctx+1, ...
    int32_t        n_ctx, n_path;
    int32_t        slot;  // slot to which rope writes this row's own key and value (= the last slot of its path)
    pl_dtype       dtype; // of k and v: PL_BF16, rounded to nearest even by rope; or PL_F32: be->real
} pl_kvrow;

// A layer's attention settings besides widths; zeroed: Llama's.
typedef struct pl_attention_rule {
    double    scale;  // 0: 1/sqrt(hd)
    double    cap;    // of the scores; 0: none
    int       window; // most visible keys up to the row's own; 0: all
    // [nh] in F32; .data NULL: none
    pl_tensor sink;
} pl_attention_rule;

typedef struct pl_attention_args {
    pl_tensor       o;   // [M, nh*hd]
    pl_tensor       lse; // [M, nh] log-sum-exp of the scores, kept for backward (blocks only; .data NULL when cached)
    int             nh, nkv, hd;
    double          scale;
    // cached
    double          cap;    // 0: none
    int             window; // 0: none
    const float    *sink;   // [nh] or NULL
    pl_tensor       qkv;    // [M, >= nh hd]: queries are the first columns
    const pl_kvrow *row;    // [M] or NULL
    // blocks
    int             n_blocks;
    pl_tensor       block[PL_MAX_UNROLL]; // keys and values are the last 2 nkv hd columns; [0] the causal block
    const int32_t  *lo;                   // [M]
    const int32_t  *at;                   // [M] row of block 0, ascending; NULL: row m of all blocks is query m's
    const int32_t  *place[PL_MAX_UNROLL]; // [rows of block 0] with `at`: row of block j; NULL: query m's is row m
    pl_dtype        numbers;              // PL_BF16: may be rounded to it; PL_F32
} pl_attention_args;

pl_tensor pl_attention_cached(pl_ctx *ctx, pl_tensor qkv, const pl_kvrow *row, int nh, int nkv, int hd);
pl_tensor pl_attention_ruled(pl_ctx *ctx, pl_tensor qkv, const pl_kvrow *row, int nh, int nkv, int hd,
                             const pl_attention_rule *rule);
pl_tensor pl_attention_blocks(pl_ctx *ctx, const pl_tensor *block, int n_blocks, const int32_t *lo, int nh, int nkv,
                              int hd);
// pl_attention_blocks with numbers that may be rounded, PL_BF16 or PL_F32 as above, and with a scale (0: 1/sqrt(hd)).
pl_tensor pl_attention_blocks_in(pl_ctx *ctx, pl_dtype numbers, double scale, const pl_tensor *block, int n_blocks,
                                 const int32_t *lo, int nh, int nkv, int hd);
// Queries of some of block 0's rows; borrowed until replay.
typedef struct pl_attention_part {
    pl_tensor             q;     // [M, >= nh hd]
    const int32_t        *at;    // [M]
    const int32_t *const *place; // [n_blocks] for blocks 1, 2, ...
} pl_attention_part;
// pl_attention_blocks_in for such queries; part NULL: for all.
pl_tensor pl_attention_some(pl_ctx *ctx, pl_dtype numbers, double scale, const pl_attention_part *part,
                            const pl_tensor *block, int n_blocks, const int32_t *lo, int nh, int nkv, int hd);

// Returns the row of block j that belongs to query m.
static inline int64_t pl_attention_row(const pl_attention_args *a, int j, int64_t m) {
    if (!a->at) return m;
    return j == 0 ? a->at[m] : a->place[j] ? a->place[j][a->at[m]] : m;
}
// Returns the first column of key head g's keys in a block; its values are nkv hd columns further.
static inline int64_t pl_attention_column(const pl_attention_args *a, const pl_tensor *block, int g) {
    return pl_tensor_cols(block) - (int64_t)(2 * a->nkv - g) * a->hd;
}
// Returns the dtype of the caches of a call's n rows; they all have the same.
static inline pl_dtype pl_kvrow_dtype(const pl_kvrow *row, int64_t n) {
    for (int64_t m = 1; m < n; m++)
        PL_CHECK(row[m].dtype == row[0].dtype, "row %lld over a cache in %s among rows over %s", (long long)m,
                 pl_dtype_name(row[m].dtype), pl_dtype_name(row[0].dtype));
    return n > 0 ? row[0].dtype : PL_F32;
}
// Returns the first visible key of a row.
static inline int32_t pl_attention_first(const pl_kvrow *row, int window) {
    int32_t n = row->path ? row->n_ctx + row->n_path : row->slot + 1; // up to the row's own
    return window > 0 && n > window ? n - window : 0;
}
#endif
