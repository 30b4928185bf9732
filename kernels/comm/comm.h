// Ranks: processes that train one model together, each with its share of every step. They find each other in one of two
// ways:
//
//   pl_comm_fork  turns one process into several of the same machine, which meet in memory that they share. Rank 0 is
//                 the process that called it and the parent of the others.
//   pl_comm_join  joins processes that something else started, on one machine or many, over TCP or MPI: a launcher
//                 (torchrun, srun, mpirun) or a person (train/run/launch.h decides which rank a process is, and how).
//
// When a rank fails or dies, every call of every other rank returns with that rank's line instead of waiting. A busy
// rank is not dead: those that were joined give a sign of life every second, whatever they compute, and half a minute
// without one is death; so is half a minute in which a forked one is stopped. All functions are collective unless they
// say otherwise: every rank calls the same ones in the same order. A NULL pl_comm is a single rank, for which they cost
// nothing.
//
// The sum over ranks takes the fixed binary tree of train/loop/slots.h:
//   ((x0 + x1) + (x2 + x3)) + (x4 + x5)      for six ranks
// in be->real, so its bits depend on the addends alone, on no timing and on no transport, and a rank that brings the
// sum of a power of two of slots is a subtree of the tree over slots. Tensors are cut: each rank collects one piece
// from all ranks, adds in the tree's order, and gives the sum to all. A rank sends and receives 2 (ranks - 1) / ranks
// times the tensor, which is what a ring all-reduce moves.
//
// A sum may go on beside what makes its addends: kernels/comm/summing.h.
//
// How pieces travel is the transport's:
//   host    as the ranks meet; any backend (device memory by download and upload)
//   nccl    NVIDIA GPUs, one per rank, on the context's stream; libnccl is loaded when it is chosen
#ifndef PL_COMM_H
#define PL_COMM_H

#include "kernels/backend.h"

#define PL_RANKS_MAX 512
#define PL_TRANSPORTS_SYNTAX "auto|host|nccl"
// Bytes of one round: of what groups carry, and so of `host`; of NCCL. Each round waits for all ranks twice: few, on
// memory that a GPU has to spare.
#define PL_COMM_ROUND ((size_t)4 << 20)
#define PL_COMM_ROUND_NCCL ((size_t)128 << 20)
#define PL_GROUPS_SYNTAX "auto|tcp|mpi"

typedef struct pl_comm pl_comm;

// From here on `ranks` processes run, each returning from this call with a comm of its own. Before any thread, device
// or file is opened: forked processes have one thread and share descriptors. Ranks above 0 ignore SIGINT, SIGTERM and
// SIGUSR1 (rank 0 decides, and asks them) and are killed when rank 0 ends. A group of one meets nobody, but takes the
// same way. PL_E_MEMORY, PL_E_IO.
pl_status pl_comm_fork(pl_comm **out, int ranks, pl_err *err);

// Ranks that join over TCP prove to each other that they have one key (kernels/comm/handshake.h).
#define PL_COMM_KEY 32
// Writes the key of a secret of any length, with the randomness that the secret has; a random key (PL_E_IO: the system
// has no random numbers).
void      pl_comm_key_of(uint8_t key[PL_COMM_KEY], const void *secret, size_t n);
pl_status pl_comm_key_draw(uint8_t key[PL_COMM_KEY], pl_err *err);
// Writes the key of the run. Rank 0 calls it once, when it listens; the others for every try to reach rank 0, once
// something there has answered. PL_E_IO: there is none yet, which ranks above 0 wait for; else the join fails.
typedef pl_status (*pl_comm_find_key)(void *arg, uint8_t key[PL_COMM_KEY], pl_err *err);

// Which rank this process is, and where rank 0 listens.
typedef struct pl_comm_place {
    int              rank, ranks;
    int              local;    // among those of this host, from 0
    const char      *address;  // HOST:PORT, or [IPv6]:PORT. Over MPI for signs of life; NULL or "": any that is reached
    bool             mpi;      // over MPI, else over TCP
    const char      *identity; // what must be the same on all ranks, such as the version; at most 255 bytes
    double           patience; // seconds in which all must have come; <= 0: PL_COMM_PATIENCE
    double           silence;  // seconds without a sign of life after which a rank is dead; <= 0: PL_COMM_SILENCE
    // Over TCP, with more than one rank; over MPI rank 0 draws a key and broadcasts it.
    pl_comm_find_key find_key;
    void            *key_arg;
} pl_comm_place;
#define PL_COMM_PATIENCE 300.0
#define PL_COMM_SILENCE 30.0
// Returns once all ranks are connected, each with each. Any number of threads may run; one more does from here on, for
// the signs of life. PL_E_IO: a rank that did not come in time, by its number, or that has another key; PL_E_USAGE: two
// processes of one rank, other numbers of ranks, another identity, by both sides' words, where both have the key; MPI's
// numbers that are not the place's. Connections without the key cost the ranks no time and end nothing.
// Rank 0 listens at the address, at all of its host's where that is a name or no address of its host's; the others at
// the address by which they reach rank 0. Where a rank
// has joined and failed (pl_comm_fail) before this one was connected with all, that rank's line.
// Over MPI once in a process, and all calls of the group from the thread that joined. Who ends after a failure leaves
// MPI_Finalize out, which would wait for the dead. PL_E_UNSUPPORTED: a build without MPI.
pl_status pl_comm_join(pl_comm **out, const pl_comm_place *p, pl_err *err);

// Which transport sums tensors of this backend; called once, before the first sum. auto: nccl for GPUs where it can be
// loaded, else host. PL_E_USAGE: no such transport; PL_E_UNSUPPORTED: not for this backend, not in this build, not on
// this machine, or the ranks' backends differ in kind or
// arithmetic.
pl_status pl_comm_open(pl_comm *c, const char *transport, const pl_backend *be, pl_err *err);
// Not collective. Of a forked group rank 0 waits for the others to end (and ends them where they do not, or where a
// rank has failed).
void      pl_comm_close(pl_comm *c);

int         pl_comm_rank(const pl_comm *c);       // 0 for NULL
int         pl_comm_ranks(const pl_comm *c);      // 1 for NULL
int         pl_comm_local(const pl_comm *c);      // which of its host's ranks this one is, from 0
int         pl_comm_neighbours(const pl_comm *c); // how many ranks its host has, this one included
bool        pl_comm_joined(const pl_comm *c);     // each was started by itself (pl_comm_join)
const char *pl_comm_transport(const pl_comm *c);  // "nccl", or how they meet: "shared memory", "TCP"

// Tests: rounds of sums are of at most so many bytes from now on, on all ranks alike.
void pl_comm_limit_rounds(size_t bytes);
// Tests: a forked rank that has been stopped for more than so many seconds is dead.
void pl_comm_limit_silence(double seconds);

// Not collective. What this rank has sent and taken in since it began, and for how long it was in meetings and
// exchanges: it waited for slower ranks, or for bytes on their way. Zeros for NULL.
typedef struct pl_comm_counts {
    uint64_t sent, received; // bytes of what is passed, without what a network adds
    double   seconds;
} pl_comm_counts;
pl_comm_counts pl_comm_counted(const pl_comm *c);

// x[n], reals in the memory of ctx's backend, becomes the sum over ranks, with the same bits on all of them. In order
// with the ops of ctx, which records nothing; done on return. The first call takes room for pieces from that memory.
pl_status pl_comm_sum(pl_comm *c, pl_ctx *ctx, void *x, int64_t n, pl_err *err);
// The two halves of that sum, for pieces of `piece` elements: rank r's are [r piece, (r + 1) piece), the last ones
// smaller or empty; ranks * piece >= n. A rank sends and receives (ranks - 1) / ranks times x in each.
// x[n]: this rank's piece becomes the sum over ranks; what else stands in x is of no further use.
pl_status pl_comm_sum_pieces(pl_comm *c, pl_ctx *ctx, void *x, int64_t n, int64_t piece, pl_err *err);
// x of `bytes` and pieces of `piece` bytes, of any elements: each rank's piece comes to all.
pl_status pl_comm_gather_pieces(pl_comm *c, pl_ctx *ctx, void *x, size_t bytes, size_t piece, pl_err *err);
// As pl_comm_sum, for doubles of the host, in the same tree; n <= 4096.
pl_status pl_comm_sum_doubles(pl_comm *c, double *x, int n, pl_err *err);
// Columns of all ranks side by side: x [rows, width[rank]], each rank its own, becomes [rows, sum of width] in the
// frame, in the order of ranks. to: the rank that gets it, the others' values are undefined; or PL_TO_ALL. Exact. Like
// an op, in order with others on ctx, whose error it sets; where ctx has failed it does nothing, and the others wait
// until somebody tells them (pl_comm_fail). A rank sends what it has once to each that gets it.
#define PL_TO_ALL (-1)
pl_tensor pl_comm_columns(pl_comm *c, pl_ctx *ctx, pl_tensor x, const int64_t *width, int to);
// Returns once what columns have queued on ctx is there, or a rank has failed: before the host waits for ctx itself.
pl_status pl_comm_settle(pl_comm *c, pl_ctx *ctx, pl_err *err);
// Bytes of columns that this rank has sent so far.
uint64_t  pl_comm_sent(const pl_comm *c);
// Host bytes of rank 0 to all.
pl_status pl_comm_broadcast(pl_comm *c, void *data, size_t bytes, pl_err *err);
// Host bytes from every rank to every other: to rank i the out_bytes[i] at out[i], from it the in_bytes[i], which is
// what it sends, into in[i]. A rank's own entry is left out. Of any size.
typedef struct pl_comm_parcels {
    const void *out[PL_RANKS_MAX];
    void       *in[PL_RANKS_MAX];
    size_t      out_bytes[PL_RANKS_MAX], in_bytes[PL_RANKS_MAX];
} pl_comm_parcels;
pl_status pl_comm_exchange(pl_comm *c, const pl_comm_parcels *p, pl_err *err);
// Gives each rank's n bytes (each its own n) to all ranks: *all (pl_free) holds them in the order of ranks, bytes[r] of
// rank r. most: the limit of n on any rank, from what the caller knows itself. PL_E_IO names a rank that announces
// more, before anything is allocated for it.
pl_status pl_comm_gather(pl_comm *c, const void *mine, size_t n, size_t most, uint8_t **all, size_t *bytes,
                         pl_err *err);
// Returns once all ranks have called it.
pl_status pl_comm_barrier(pl_comm *c, pl_err *err);
// What rank 0 must do first (files that are made once and then found): the others wait in enter until rank 0 leaves.
// Where rank 0 fails in between, it does not leave but calls pl_comm_fail.
pl_status pl_comm_enter(pl_comm *c, pl_err *err);
pl_status pl_comm_leave(pl_comm *c, pl_err *err);

// Not collective. This rank has failed and goes: the others' calls return `why` from now on, as "rank N: ...". The
// first failure of a group is the one that is told.
void pl_comm_fail(pl_comm *c, const pl_err *why);

// Not collective, for who works long without meeting the others: whether one of them has failed or died.
pl_status pl_comm_check(pl_comm *c, pl_err *err);

// What this build and this machine have of NCCL, for people.
void pl_comm_describe_nccl(char *out, size_t room);
// The same of MPI.
void pl_comm_describe_mpi(char *out, size_t room);

// Whose mpirun can start ranks of this build that join over MPI.
typedef enum pl_mpi_kind {
    PL_MPI_NONE,
    PL_MPI_OPEN,
    PL_MPI_MPICH
} pl_mpi_kind; // MPICH: and those that descend from it
pl_mpi_kind pl_comm_mpi_kind(void);

#endif
