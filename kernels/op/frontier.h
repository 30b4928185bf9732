// The next level of draft trees: which candidates of a level's rows are expanded, and the index arrays of the rows that
// they become. So that a device goes from one level to the next while nobody waits for it.
//
// A group is one tree. Its candidate c = f k + r is the r-th of its row m = first + f:
//   s(c) = score[m] + min(value[m, r] - lse[m], 0)      in fp32; a difference that is no number counts as 0, without
//                                                       value and lse as well
// Row to + i of the next level, i < width, is candidate pick[to + i] or, where pick is NULL, the one with the i-th
// largest s, of equal ones the lower c. It gets
//   token   d2t[id[m, r]] (NULL: the id)
//   row     index[m] (NULL: m), the parent's row in the level's tensors, for gather
//   score   s(c)
//   path    the parent's path, then slot + i: for attention and rope
//   picked  c
// A candidate is not there where id < 0 (then the later ones of its row are none either) or where its parent is not. A
// row whose candidate is not there, or for which none is left, is not there: score +infinity, which no other has, and
// picked -1. All the same it is computed: as its group's first row that is there (token, row, path but for its own
// slot), so that to what depends on the rows of a group, a routed head's support, it adds nothing; in a group without
// any, from token -1 (embed gives zeros) and the group's first parent.
//
// The arithmetic is additions and comparisons, the same on every backend. id, value and lse come as topk and headtopk
// leave them, by a kernel just before or by the host after a wait. What comes out is read by ops where it lies: in the
// frame, out of the host's reach on a device; `picked` alone is for the host, after a wait. No gradient.
#ifndef PL_OP_FRONTIER_H
#define PL_OP_FRONTIER_H
#include "kernels/backend.h"

#define PL_FRONTIER_MAX 1024 // candidates of a group that are chosen among by score

typedef struct pl_frontier_group {
    int32_t first, rows; // of this level
    int32_t to, width;   // of the next one: groups fill 0..n-1 without gaps
    int32_t slot;        // of row `to`; the next row takes the next slot
} pl_frontier_group;

// Rows of a level as the op makes them.
typedef struct pl_frontier_rows {
    int32_t *token;  // [n]
    int32_t *row;    // [n]
    float   *score;  // [n]
    int32_t *path;   // [n, depth]
    int32_t *picked; // [n]
} pl_frontier_rows;

typedef struct pl_frontier_args {
    const pl_frontier_group *group; // [n_groups]; with index and pick the host's: written before the op is queued
    const int32_t           *index; // [m] or NULL
    const int32_t           *pick;  // [n] or NULL
    const int32_t           *id;    // [m, k]
    const float             *value; // [m, k] or NULL
    const float             *lse;   // [m] or NULL
    const int32_t           *d2t;   // in the backend's memory, or NULL
    pl_frontier_rows         at;    // this level's rows; all NULL for roots, whose path is empty and score 0
    pl_frontier_rows         next;  // out
    int32_t                  n_groups, k;
    int32_t                  n, depth; // rows of the next level; slots of a path of this one
} pl_frontier_args;

// Allocates a->next and fills it: token, row, score and path in the frame, picked as pl_ctx_bytes.
void pl_frontier(pl_ctx *ctx, pl_frontier_args *a);
#endif
