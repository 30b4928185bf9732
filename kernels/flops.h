// What a step of training computes, counted as it runs: the operations of its products, a multiplication and a sum
// each. Ops that only move numbers, norms and activations are left out, as in model FLOPs utilisation (Chowdhery et al.
// 2022, arXiv 2204.02311, appendix B).
//   linear          2 M N K forward, as much again for each of x and W that learns
//   gatedlinear     2 M N K
//   attention       4 nh hd for each row and key that it sees forward (scores and values), twice that backward if
//                   anything before it learns; its
//                   form for training alone
//   blockattention  the same
//   divergence      2 d for each student row that counts and draft id, 2 d' for each teacher row and id that it is
//                   computed at (pl_divergence_args.whole); backward as linear for the student's
//   gatherdot       2 K for each entry, as much again for each of x and W that learns
// Walks that an implementation makes twice are counted once; a stretch that is computed again (kernels/tape.h) runs
// again and counts again.
#ifndef PL_FLOPS_H
#define PL_FLOPS_H

#include "kernels/backend.h"

// Of one op. Reads index arrays of attention and divergence: the host must see them (PL_SHARED).
double pl_op_flops(pl_op op, const void *args, bool backward);

// Of all ops that ran on contexts with a tape, forward and backward, on the calling thread so far.
double pl_flops_counted(void);
void   pl_flops_count(pl_op op, const void *args, bool backward); // the tape's and pl_run's

#endif
