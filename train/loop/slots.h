// A global batch is a fixed list of slots (micro-batches), independent of ranks and threads. Each slot's gradient
// starts at zero; slots are added by a fixed binary tree:
//
//   ((s0 + s1) + (s2 + s3)) + (s4 + s5)      for six slots
// so the sum's bits depend on the slots alone. One process walks the tree with a binary counter: a stack of partial
// sums, one per level, none for a single slot. The slots' scalars (loss, weights, counts) take the same tree.
#ifndef PL_TRAIN_SLOTS_H
#define PL_TRAIN_SLOTS_H

#include "kernels/backend.h"

#define PL_SLOTS_MAX 4096
#define PL_SLOT_LEVELS 12
#define PL_SLOT_SUMS 136 // most scalars besides the gradient

typedef struct pl_slots {
    int              n_slots, next, levels;
    int64_t          n; // elements of the gradient
    pl_dtype         real;
    void            *stack; // [levels][n], in the backend's memory
    const pl_memory *memory;
    double           sums[PL_SLOT_LEVELS][PL_SLOT_SUMS];
    bool             held[PL_SLOT_LEVELS]; // the level holds a partial sum
} pl_slots;

// Sets the slots that rank `rank` of `ranks` works on: [*first, *first + *n). Shares are whole subtrees of the tree
// above, blocks of the smallest power of two that makes at most `ranks` of them, so that the sum of the ranks' sums by
// the tree over ranks (kernels/comm/comm.h) has the bits of one process's. The last share may be smaller; ranks after
// it have none.
void pl_slots_share(int n_slots, int rank, int ranks, int *first, int *n);

pl_status pl_slots_init(pl_slots *s, int n_slots, int64_t n, const pl_backend *be, pl_err *err);
void      pl_slots_fini(pl_slots *s);
void      pl_slots_begin(pl_slots *s);
// Adds the next slot's gradient (n reals) and scalars (PL_SLOT_SUMS). After the last slot both hold the sums over all
// slots; before, their contents move into the tree and are then undefined. Ordered with the ops of ctx (without a
// tape), on the host with its threads.
void      pl_slots_add(pl_slots *s, pl_ctx *ctx, void *grad, double *sums);
// pl_slots_add for the last slot in two steps: its scalars, and elements [from, from + n) of its gradient, each once,
// in any order, on any thread that has a ctx; until pl_slots_begin.
void      pl_slots_finish_sums(pl_slots *s, double *sums);
void      pl_slots_finish(const pl_slots *s, pl_ctx *ctx, void *grad, int64_t from, int64_t n);

#endif
