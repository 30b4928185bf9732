// A draft head in one pass: projection, log-sum-exp and the k best, no logits written.
//   z[m, v] = sum_j x[m, j] W[v, j]   for the rows v of the support;   id[m, :], value[m, :] = the k largest z[m, v],
//   in descending order, ties: the lower row first;   lse[m] = log sum_v exp(z[m, v]) over the support.
// The support is all N rows of W, or a list of spans of rows, ascending and disjoint (a prefix for heads sorted by
// frequency, clusters for routed heads). id counts rows of W, not of the support. If the support has fewer than k rows
// the rest is id -1, value -infinity. An empty support gives lse -infinity. With by_id the same k ids come in ascending
// order instead, for rescoring (gatherdot). Trees need up to PL_TOPK_MAX, candidate lists up to PL_HEADTOPK_MAX: for
// more than PL_TOPK_MAX, and by id, a device has a key of 8 bytes per row of x and of W in scratch; otherwise its
// scratch is 12 bytes per panel, if lse is requested 8 per panel and row of x, and for each block two slots of sums and
// a list of k keys per row of x of a pass.
//
// x [M, K] in be->real; W [N, K]: PL_PANELS or (cpu, ref) PL_SEGMENTS in F32 or BF16, or PL_ROWMAJOR (ref only). NaN is
// refused as in topk. Bits: values are those of `linear`, so this op, and linear followed by topk, choose the same ids
// and values. lse is summed in an order fixed by the number of panels, the same for any M and any number of threads; it
// differs from topk's by rounding. Cost: 2 M K S flops and S K size(W) bytes, on cuda per pass of at most 64 rows of x,
// for a support of S rows (whole panels are read: up to PL_PANEL - 1 rows more at each end of a span, or, of whole
// segments, PL_HALF_PANEL - 1 rows more for each). A support computed by an earlier op (held: route) is readable on the
// device alone. The queued work then depends on the shapes of x and W only, the bytes read on the support.
#ifndef PL_OP_HEADTOPK_H
#define PL_OP_HEADTOPK_H
#include "kernels/backend.h"
#include "kernels/op/topk.h"

#define PL_HEADTOPK_MAX 4096

typedef struct pl_span {
    int32_t first, count;
} pl_span;

typedef struct pl_headtopk_args {
    pl_tensor      x, w;
    const pl_span *span; // [n_spans]; NULL: all rows. Borrowed.
    const int32_t *held; // not NULL: number of valid spans. Then both are outputs of `route` and lie with tensors
    int            n_spans;
    int            k;     // 1..PL_HEADTOPK_MAX
    bool           by_id; // order
    int32_t       *id;    // [M, k]
    float         *value; // [M, k] or NULL
    float         *lse;   // [M] or NULL
} pl_headtopk_args;

void              pl_headtopk(pl_ctx *ctx, const pl_headtopk_args *args);
// Returns the number of spans, on backends whose memory is the host's.
static inline int pl_headtopk_spans(const pl_headtopk_args *a) {
    return a->held ? *a->held : a->span ? a->n_spans : 1;
}
// Returns the rows of a support.
int64_t pl_spans_rows(const pl_span *span, int n);
#endif
