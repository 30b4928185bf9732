// The next level of draft trees: chooses which candidates of a level's rows are expanded, and writes the index arrays
// of the next level's rows, so that a device drafts level after level without synchronising.
//
// A group is one tree. Its candidate c = f k + r is the r-th of its row m = first + f:
//   s(c) = score[m] + min(value[m, r] - lse[m], 0)      in fp32; the difference counts as 0 if it is no number, or
//                                                       without value and lse
// Row to + i of the next level, i < width, is candidate pick[to + i] or, with pick NULL, the one with the i-th largest
// s, ties: the lower c. It gets
//   token   d2t[id[m, r]] (NULL: the id)
//   row     index[m] (NULL: m), the parent's row in the level's tensors, for gather
//   score   s(c)
//   path    the parent's path, then slot + i: for attention and rope
//   picked  c
// A candidate is missing if id < 0 (then the later ones of its row are missing too) or if its parent is missing. A row
// whose candidate is missing, or for which none is left, is missing: it has score +infinity, as no other row does, and
// picked -1. It is computed nevertheless, as a copy of its group's first existing row (token, row, path but for its own
// slot), so that it adds nothing to results that depend on all rows of a group, such as a routed head's support; in a
// group without any, with token -1 (embed gives zeros) and the group's first parent.
//
// The arithmetic is additions and comparisons, the same on every backend. id, value and lse are outputs of topk and
// headtopk, from a kernel just before or from the host after a synchronisation. Outputs lie in the frame, which the
// host cannot read on a device; `picked` alone is for the host, after a synchronisation. No gradient.
#ifndef PL_OP_FRONTIER_H
#define PL_OP_FRONTIER_H
#include "kernels/backend.h"

#define PL_FRONTIER_MAX 1024 // most candidates of a group that are chosen by score

typedef struct pl_frontier_group {
    int32_t first, rows; // rows of this level
    int32_t to, width;   // rows of the next one: groups fill 0..n-1 without gaps
    int32_t slot;        // cache slot of row `to`; each next row takes the next slot
} pl_frontier_group;

// Rows of a level, as the op writes them.
typedef struct pl_frontier_rows {
    int32_t *token;  // [n]
    int32_t *row;    // [n]
    float   *score;  // [n]
    int32_t *path;   // [n, depth]
    int32_t *picked; // [n]
} pl_frontier_rows;

typedef struct pl_frontier_args {
    const pl_frontier_group *group; // [n_groups]; like index and pick in host memory: written before the op is queued
    const int32_t           *index; // [m] or NULL
    const int32_t           *pick;  // [n] or NULL
    const int32_t           *id;    // [m, k]
    const float             *value; // [m, k] or NULL
    const float             *lse;   // [m] or NULL
    const int32_t           *d2t;   // in the backend's memory, or NULL
    pl_frontier_rows         at;    // this level's rows; all NULL for roots, whose path is empty and score 0
    pl_frontier_rows         next;  // out
    int32_t                  n_groups, k;
    int32_t                  n, depth; // rows of the next level; slots in a path of this one
} pl_frontier_args;

// Allocates a->next and fills it: token, row, score and path in the frame, picked as pl_ctx_bytes.
void pl_frontier(pl_ctx *ctx, pl_frontier_args *a);
#endif
