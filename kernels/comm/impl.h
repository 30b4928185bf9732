// What the parts of kernels/comm share. Private to them and to kernels/cuda/lib/comm_nccl.c.
//
// Two questions, each with a table of answers: how the ranks meet, pass words and learn of each other's end (pl_group),
// and how pieces of tensors travel (pl_transport).
#ifndef PL_COMM_IMPL_H
#define PL_COMM_IMPL_H

#include "kernels/comm/comm.h"
#include <stdatomic.h>

// One exchange: to rank i the out_bytes[i] bytes at out[i], from rank i in_bytes[i] bytes into in[i]. What comes in
// overlaps nothing that goes out. A rank's own entry is left out (0).
typedef pl_comm_parcels pl_comm_swap;

// Why ranks meet; it must agree: ranks that meet for different things are a mistake of the caller's.
enum { PL_MEET_BARRIER, PL_MEET_BROADCAST, PL_MEET_DOUBLES, PL_MEET_SWAP, PL_MEET_EXCHANGE };

// Processes that found each other: one file for each way.
typedef struct pl_group {
    const char *name;
    // Of processes that something else started: c, which has its rank and ranks, meets the others, and learns how many
    // neighbours it has. close follows where it fails, too. NULL: none come this way.
    pl_status (*join)(pl_comm *c, const pl_comm_place *place, pl_err *err);
    // All ranks have called it, and what they bring (host memory, at most PL_COMM_ROUND bytes that differ) has arrived.
    pl_status (*swap)(pl_comm *c, int what, const pl_comm_swap *s, pl_err *err);
    // Not collective: whether any rank has failed or died. Asked while waiting elsewhere than in a meeting.
    pl_status (*check)(pl_comm *c, pl_err *err);
    // pl_comm_fail.
    void (*fail)(pl_comm *c, const pl_err *why);
    // Ends the group, or what there is of it; c itself is freed by the caller.
    void (*close)(pl_comm *c);
} pl_group;

// A way for pieces of tensors between ranks: one file and one line of the table in comm.c. Memory of a swap is here
// that of the context's backend.
typedef struct pl_transport {
    const char *name;
    size_t      room; // bytes of one round of a sum; what more ranks bring at a time costs memory, a round its waits
    // Whether tensors of this backend can go this way; loads and checks what that takes. Not collective.
    pl_status (*open)(pl_comm *c, const pl_backend *be, pl_err *err);
    // Queued on ctx, in order with its ops.
    pl_status (*swap)(pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s, pl_err *err);
    // All that was queued is done, or a rank has failed. NULL: pl_ctx_sync.
    pl_status (*settle)(pl_comm *c, pl_ctx *ctx, pl_err *err);
    // A failure is known: what is queued must not wait for the others any more. NULL: nothing does.
    void (*stop)(pl_comm *c);
    void (*close)(pl_comm *c);
} pl_transport;

extern const pl_transport pl_transport_host, pl_transport_nccl;

struct pl_comm {
    int                 rank, ranks, local, neighbours;
    const pl_group     *group;
    void               *link;   // of the group
    unsigned            turn;   // meetings so far
    bool                broken; // a failure has been told: nothing is in step any more
    bool                beside; // calls of any thread, one at a time: the group takes them; once opened: every rank's
    const pl_transport *transport;
    void               *own;    // of the transport
    const pl_memory    *memory; // of `room`
    pl_comm_counts      counts;
    void               *room; // pieces of one round of a sum, transport->room bytes; NULL before the first
    uint64_t            sent; // bytes of columns
};

// A meeting of the group, a swap of the transport: counted (pl_comm_counted).
pl_status            pl_comm_meet(pl_comm *c, int what, const pl_comm_swap *s, pl_err *err);
pl_status            pl_comm_travel(pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s, pl_err *err);
// The same bytes to all, theirs one after the other into `in`; the place of this rank's own is not touched.
pl_status            pl_comm_show(pl_comm *c, int what, const void *mine, uint8_t *in, size_t bytes, pl_err *err);
// Of [at, end) what a round of `most` takes.
static inline size_t pl_comm_cut(size_t at, size_t end, size_t most) {
    return at >= end ? 0 : end - at < most ? end - at : most;
}

// What one round sums or gathers: of each rank's piece a part, the last ones smaller or empty.
typedef struct pl_comm_round {
    uint8_t *part[PL_RANKS_MAX];
    size_t   bytes[PL_RANKS_MAX];
} pl_comm_round;
// How many there are of x, and number k. piece: bytes of a rank's piece of x (pl_comm_sum_pieces); 0: x whole.
size_t    pl_comm_rounds(const pl_comm *c, size_t bytes, size_t piece);
void      pl_comm_round_at(const pl_comm *c, void *x, size_t bytes, size_t piece, size_t k, pl_comm_round *r);
// Room for what comes, before the first round.
pl_status pl_comm_make_room(pl_comm *c, pl_ctx *ctx, pl_err *err);
// Everybody's values of this rank's part come together in `room`; their sum stands in the part.
pl_status pl_comm_sum_round(pl_comm *c, pl_ctx *ctx, const pl_comm_round *r, pl_err *err);
// This rank's part to all, theirs to this rank.
pl_status pl_comm_give_round(pl_comm *c, pl_ctx *ctx, const pl_comm_round *r, pl_err *err);

// The first failure of a group, told to all; zeroed: nobody has failed. It may lie in memory that processes share.
typedef struct pl_comm_failure {
    atomic_int state;
    int        who, status; // a rank; a pl_status
    char       why[sizeof(((pl_err *)NULL)->msg)];
} pl_comm_failure;
bool      pl_comm_failed(pl_comm_failure *f);
// False: another one was first.
bool      pl_comm_failure_set(pl_comm_failure *f, int who, pl_status status, const char *why);
// Tells it: "rank N: ...". Nothing is in step any more.
pl_status pl_comm_failure_told(pl_comm *c, pl_comm_failure *f, pl_err *err);

extern const pl_group pl_group_forked, pl_group_tcp, pl_group_mpi;

pl_comm *pl_comm_new(const pl_group *g, int rank, int ranks); // NULL: out of memory

#endif
