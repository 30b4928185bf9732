// Shared by the parts of kernels/comm. Private to them and to kernels/cuda/lib/comm_nccl.c.
//
// Two interfaces, each with a table of implementations: how the ranks meet, exchange bytes and detect failures
// (pl_group), and how pieces of tensors travel (pl_transport).
#ifndef PL_COMM_IMPL_H
#define PL_COMM_IMPL_H

#include "kernels/comm/comm.h"
#include <stdatomic.h>

// One exchange: to rank i the out_bytes[i] bytes at out[i], from rank i in_bytes[i] bytes into in[i]. Incoming and
// outgoing memory must not overlap. A rank's own entry is ignored (0).
typedef pl_comm_parcels pl_comm_swap;

// Purpose of a meeting; it must agree on all ranks: a difference is a caller's mistake.
enum { PL_MEET_BARRIER, PL_MEET_BROADCAST, PL_MEET_DOUBLES, PL_MEET_SWAP, PL_MEET_EXCHANGE };

// A way of connecting processes: one file each.
typedef struct pl_group {
    const char *name;
    // For separately started processes: connects c, which has its rank and ranks, with the others, and sets its number
    // of neighbours. close follows also if it fails. NULL: processes are not started separately.
    pl_status (*join)(pl_comm *c, const pl_comm_place *place, pl_err *err);
    // Returns once all ranks have called it and their data (host memory, at most PL_COMM_ROUND distinct bytes) has
    // arrived.
    pl_status (*swap)(pl_comm *c, int what, const pl_comm_swap *s, pl_err *err);
    // Not collective: fails if any rank has failed or died. Called while waiting outside a meeting.
    pl_status (*check)(pl_comm *c, pl_err *err);
    // pl_comm_fail.
    void (*fail)(pl_comm *c, const pl_err *why);
    // Ends the group, also one that is only partly joined; the caller frees c itself.
    void (*close)(pl_comm *c);
} pl_group;

// A way of moving pieces of tensors between ranks: one file and one line of the table in comm.c. A swap's memory is
// here that of the context's backend.
typedef struct pl_transport {
    const char *name;
    size_t      room; // bytes of one round of a sum; larger rounds cost memory, more rounds cost synchronisation
    // Checks that tensors of this backend can go this way, and loads what that needs. Not collective.
    pl_status (*open)(pl_comm *c, const pl_backend *be, pl_err *err);
    // Queued on ctx, ordered with its ops.
    pl_status (*swap)(pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s, pl_err *err);
    // Returns once everything queued is done, or a rank has failed. NULL: pl_ctx_sync.
    pl_status (*settle)(pl_comm *c, pl_ctx *ctx, pl_err *err);
    // Called after a failure: queued work must not wait for the other ranks any more. NULL: it never does.
    void (*stop)(pl_comm *c);
    void (*close)(pl_comm *c);
} pl_transport;

extern const pl_transport pl_transport_host, pl_transport_nccl;

struct pl_comm {
    int                 rank, ranks, local, neighbours;
    const pl_group     *group;
    void               *link;   // the group's state
    unsigned            turn;   // meetings so far
    bool                broken; // a failure has been reported: the ranks are no longer in step
    bool                beside; // calls may come from any thread, one at a time; after opening: on every rank
    const pl_transport *transport;
    void               *own;    // the transport's state
    const pl_memory    *memory; // of `room`
    pl_comm_counts      counts;
    void               *room; // pieces of one round of a sum, transport->room bytes; NULL before the first
    uint64_t            sent; // bytes of columns
};

// The group's meeting and the transport's swap, with counters (pl_comm_counted).
pl_status            pl_comm_meet(pl_comm *c, int what, const pl_comm_swap *s, pl_err *err);
pl_status            pl_comm_travel(pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s, pl_err *err);
// Sends the same bytes to all and receives theirs, in order of ranks, into `in`; this rank's own entry is not written.
pl_status            pl_comm_show(pl_comm *c, int what, const void *mine, uint8_t *in, size_t bytes, pl_err *err);
// Returns the bytes of [at, end) that a round of `most` takes.
static inline size_t pl_comm_cut(size_t at, size_t end, size_t most) {
    return at >= end ? 0 : end - at < most ? end - at : most;
}

// One round of a sum or gather: a part of each rank's piece, the last ones smaller or empty.
typedef struct pl_comm_round {
    uint8_t *part[PL_RANKS_MAX];
    size_t   bytes[PL_RANKS_MAX];
} pl_comm_round;
// Returns the number of rounds of x, and sets round k. piece: bytes of a rank's piece of x (pl_comm_sum_pieces); 0: x
// whole.
size_t    pl_comm_rounds(const pl_comm *c, size_t bytes, size_t piece);
void      pl_comm_round_at(const pl_comm *c, void *x, size_t bytes, size_t piece, size_t k, pl_comm_round *r);
// Allocates room for incoming parts, before the first round.
pl_status pl_comm_make_room(pl_comm *c, pl_ctx *ctx, pl_err *err);
// Collects all ranks' values of this rank's part in `room` and writes their sum to the part.
pl_status pl_comm_sum_round(pl_comm *c, pl_ctx *ctx, const pl_comm_round *r, pl_err *err);
// Sends this rank's part to all, and receives theirs.
pl_status pl_comm_give_round(pl_comm *c, pl_ctx *ctx, const pl_comm_round *r, pl_err *err);

// The first failure of a group, reported to all; zeroed: none. It may lie in memory that processes share.
typedef struct pl_comm_failure {
    atomic_int state;
    int        who, status; // a rank; a pl_status
    char       why[sizeof(((pl_err *)NULL)->msg)];
} pl_comm_failure;
bool      pl_comm_failed(pl_comm_failure *f);
// Returns false if another failure was first.
bool      pl_comm_failure_set(pl_comm_failure *f, int who, pl_status status, const char *why);
// Returns it as "rank N: ...". The ranks are no longer in step.
pl_status pl_comm_failure_told(pl_comm *c, pl_comm_failure *f, pl_err *err);

extern const pl_group pl_group_forked, pl_group_tcp, pl_group_mpi;

pl_comm *pl_comm_new(const pl_group *g, int rank, int ranks); // NULL: out of memory

#endif
