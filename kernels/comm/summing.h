// A sum over ranks that overlaps with the computation of its addends: complete parts of x are sent while the caller
// computes the others. A separate thread swaps and adds; the bits are those of pl_comm_sum or pl_comm_sum_pieces, as
// the tree over ranks (kernels/comm/comm.h) is the same and parts are independent elements.
//
// x is divided into rounds that fit the group. A round is summed once all of its elements are complete, in an order
// that all ranks share: at first that of x, later the order in which rank 0's rounds became complete, if it reported
// any. So ranks may complete rounds in any order, or report nothing before the end.
//
// For transports that go through the host's memory and groups that accept calls of another thread. Between begin and
// end the comm belongs to that thread: no other calls on it.
#ifndef PL_COMM_SUMMING_H
#define PL_COMM_SUMMING_H

#include "kernels/comm/comm.h"

typedef struct pl_summing pl_summing;

typedef struct pl_summing_of {
    void   *x;        // [n] reals of the backend, the same ones at every sum
    int64_t n, piece; // piece 0: all ranks get the sum of x; else as pl_comm_sum_pieces
    // Called in that thread before elements [from, from + n) of x are summed, to finish them. On a context without a
    // tape, with one thread. May be NULL.
    void (*before)(void *arg, pl_ctx *ctx, int64_t from, int64_t n);
    void *arg;
} pl_summing_of;

// Returns true if sums of this backend can overlap: the same on every rank of a group.
bool      pl_summing_can(const pl_comm *c, const pl_backend *be);
// Not collective. PL_E_MEMORY: no room, no thread.
pl_status pl_summing_create(pl_summing **s, pl_comm *c, const pl_backend *be, const pl_summing_of *of, pl_err *err);
void      pl_summing_destroy(pl_summing *s); // between end and begin

// Begins a sum: nothing of x is complete.
void      pl_summing_begin(pl_summing *s);
// Marks elements [from, to) complete; the caller does not touch them until end. Each element once.
void      pl_summing_ready(pl_summing *s, int64_t from, int64_t to);
// Marks all complete and waits for the sum. The comm's seconds (pl_comm_counted) grow by that wait alone.
pl_status pl_summing_end(pl_summing *s, pl_err *err);

#endif
