// What the parts of kernels/comm*.c share. Private to them and to kernels/cuda/lib/comm_nccl.c.
#ifndef PL_COMM_IMPL_H
#define PL_COMM_IMPL_H

#include "kernels/comm/comm.h"

// One exchange: to rank i the out_bytes[i] bytes at out[i], from rank i in_bytes[i] bytes into in[i]. All of it in the
// memory of the context's backend; what comes in overlaps nothing that goes out. A rank's own entry is left out (0).
typedef struct pl_comm_swap {
    const void *out[PL_RANKS_MAX];
    void       *in[PL_RANKS_MAX];
    size_t      out_bytes[PL_RANKS_MAX], in_bytes[PL_RANKS_MAX];
} pl_comm_swap;

// A way for pieces of tensors between ranks: one file and one line of the table in comm.c.
typedef struct pl_transport {
    const char *name;
    // Whether tensors of this backend can go this way; loads and checks what that takes. Not collective.
    pl_status (*open)(pl_comm *c, const pl_backend *be, pl_err *err);
    // Queued on ctx, in order with its ops.
    pl_status (*swap)(pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s, pl_err *err);
    // All that was queued is done, or a rank has failed. NULL: pl_ctx_sync.
    pl_status (*settle)(pl_comm *c, pl_ctx *ctx, pl_err *err);
    void (*close)(pl_comm *c);
} pl_transport;

extern const pl_transport pl_transport_local, pl_transport_nccl;

typedef struct pl_comm_shared pl_comm_shared; // group.c

struct pl_comm {
    int                 rank, ranks;
    pl_comm_shared     *shared;
    size_t              shared_bytes;
    int                 pid[PL_RANKS_MAX]; // rank 0: of the others, 0: has ended; else [0] is the parent
    unsigned            turn;              // meetings so far
    const pl_transport *transport;
    void               *own;    // of the transport
    const pl_memory    *memory; // of `room`
    void               *room;   // pieces of one round of a sum; NULL before the first
    bool                broken; // a failure has been told: nothing is in step any more
};

// Bytes of a rank's window, in which it shows the others what it has: one round of a sum.
#define PL_COMM_WINDOW ((size_t)4 << 20)

// A rank's window in the meeting that comes next. It is this rank's to write until then, and everybody's to read until
// the one after that: there are two, in turns, so that one meeting does for an exchange.
void *pl_comm_window(const pl_comm *c, int rank);
// The window of the meeting that was.
void *pl_comm_window_seen(const pl_comm *c, int rank);
// All ranks are here, and see what was written before. `what` must agree: ranks that meet for different things are a
// mistake of the caller's.
enum { PL_MEET_BARRIER, PL_MEET_BROADCAST, PL_MEET_DOUBLES, PL_MEET_SWAP };
pl_status pl_comm_meet(pl_comm *c, int what, pl_err *err);
// Not collective: whether any rank has failed or died. Asked while waiting elsewhere than in a meeting.
pl_status pl_comm_check(pl_comm *c, pl_err *err);

#endif
