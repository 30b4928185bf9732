// Chooses the rows of a cluster-sorted head that are read (infer/head/dynaspec.h), on the device that has the scores.
//   row m chooses the k clusters with the highest score[m, :]; ties: the lower cluster first; k beyond C: all
//   group g reads the rows of every cluster that one of its rows row[g] .. row[g+1] - 1 of scores chose
//   cluster c is rows offset[c] .. offset[c+1] - 1 of the head's matrix
// The result is spans of those rows, ascending and disjoint: neighbouring clusters (with only empty ones between) are
// one span. headtopk takes it as it is (span, held), on a device without the host.
//
// score [M, C] in be->real. offset [C + 1] and row [groups + 1] in PL_SHARED memory. NaN is refused: the context fails.
// No gradient. The same on all backends, for any k and M: nothing is rounded.
#ifndef PL_OP_ROUTE_H
#define PL_OP_ROUTE_H
#include "kernels/op/headtopk.h"

// Spans of groups: group g's start at span + g * most, held[g] of them; held NULL: `most` of them.
typedef struct pl_spans {
    const pl_span *span;
    const int32_t *held;
    int            groups, most;
} pl_spans;

typedef struct pl_route_args {
    pl_tensor      score;
    const int64_t *offset; // borrowed
    const int     *row;    // ascending, no group without rows; borrowed
    int            groups, k, most;
    pl_span       *span; // [groups, most]
    int32_t       *held; // [groups]
} pl_route_args;

// Its result lies in the frame, as tensors do: the host reads it by pl_route_read.
pl_spans pl_route(pl_ctx *ctx, pl_tensor score, const int64_t *offset, const int *row, int groups, int k);
// Returns the same spans in host memory (pl_ctx_read); synchronises. span NULL on a measuring and on a failed context.
pl_spans pl_route_read(pl_ctx *ctx, pl_spans s);
// Returns the rows of group 0's support, 0 on a failed context. For measurements: it synchronises and allocates.
int64_t  pl_route_rows(pl_ctx *ctx, pl_spans s);
// On the host: writes the spans of the chosen clusters (bytes 0 or 1), with room for one per cluster; returns their
// number.
int      pl_route_spans(const int64_t *offset, int64_t clusters, const uint8_t *chosen, pl_span *span);
#endif
