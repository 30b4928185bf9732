// A sum over ranks beside what makes its addends: parts of x that are complete are on their way while the caller goes
// on computing the others. A thread of its own swaps and adds; the bits are those of pl_comm_sum or
// pl_comm_sum_pieces, as the tree over ranks (kernels/comm/comm.h) is the same and the parts are elements of their own.
//
// x is cut into rounds of what the group carries. A round is summed once all that it takes of x is there, one after the
// other in an order that all ranks have: at first that of x, then the order in which rank 0's became complete when it
// told of any. So ranks may be complete in any order, or tell nothing before the end.
//
// Private to a transport that goes through the host's memory and a group that takes calls of another thread. Between
// begin and end the comm belongs to that thread: no other call of it.
#ifndef PL_COMM_SUMMING_H
#define PL_COMM_SUMMING_H

#include "kernels/comm/comm.h"

typedef struct pl_summing pl_summing;

typedef struct pl_summing_of {
    void   *x;        // [n] reals of the backend, always the same ones
    int64_t n, piece; // piece 0: all ranks get the sum of x; else as pl_comm_sum_pieces
    // In that thread, before elements [from, from + n) of x are summed: what is left to do to them. On a context
    // without a tape, with one thread. May be NULL.
    void (*before)(void *arg, pl_ctx *ctx, int64_t from, int64_t n);
    void *arg;
} pl_summing_of;

// Whether sums of this backend's can go on beside: every rank of a group has the same answer.
bool      pl_summing_can(const pl_comm *c, const pl_backend *be);
// Not collective. PL_E_MEMORY: no room, no thread.
pl_status pl_summing_create(pl_summing **s, pl_comm *c, const pl_backend *be, const pl_summing_of *of, pl_err *err);
void      pl_summing_destroy(pl_summing *s); // between end and begin

// A sum begins: nothing of x is complete.
void      pl_summing_begin(pl_summing *s);
// Elements [from, to) are complete, and the caller does not touch them until end. Each element once.
void      pl_summing_ready(pl_summing *s, int64_t from, int64_t to);
// All are, whatever was told. Waits for the sum. The comm's seconds (pl_comm_counted) grow by that wait alone.
pl_status pl_summing_end(pl_summing *s, pl_err *err);

#endif
