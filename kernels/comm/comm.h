// Ranks: processes that train one model together, each with its share of every step, connected in one of two ways:
//   pl_comm_fork  forks one process into several on the same machine, which communicate by shared memory. Rank 0 is the
//                 calling process and the parent of the others.
//   pl_comm_join  connects processes that were started separately, on one machine or many, over TCP or MPI, by a
//                 launcher (torchrun, srun, mpirun) or by hand (train/run/launch.h chooses rank and transport).
//
// When a rank fails or dies, every call of every other rank returns with that rank's line instead of blocking. A busy
// rank is not dead: joined ranks send a sign of life every second, whatever they compute, and half a minute without one
// counts as death; so does half a minute in which a forked rank is stopped. All functions are collective unless stated
// otherwise: every rank calls the same ones in the same order. A NULL pl_comm is a single rank, for which they cost
// nothing.
//
// The sum over ranks takes the fixed binary tree of train/loop/slots.h:
//   ((x0 + x1) + (x2 + x3)) + (x4 + x5)      for six ranks
// in be->real, so its bits depend on the addends alone, not on timing or transport, and a rank whose addend is the sum
// of a power of two of slots is a subtree of the tree over slots. Tensors are divided: each rank collects one piece
// from all ranks, adds in the tree's order, and sends the sum to all. A rank sends and receives 2 (ranks - 1) / ranks
// times the tensor, as in a ring all-reduce. A sum may overlap with the computation of its addends: summing.h.
//
// The transport moves the pieces:
//   host    as bytes of the host, by the group's own means; any backend (device memory by download and upload)
//   nccl    NVIDIA GPUs, one per rank, on the context's stream; libnccl is loaded when it is chosen
#ifndef PL_COMM_H
#define PL_COMM_H

#include "kernels/backend.h"

#define PL_RANKS_MAX 512
#define PL_TRANSPORTS_SYNTAX "auto|host|nccl"
// Bytes of one round, for groups (and so `host`) and for NCCL. Each round synchronises all ranks twice: few large
// rounds, within the spare memory of a GPU.
#define PL_COMM_ROUND ((size_t)4 << 20)
#define PL_COMM_ROUND_NCCL ((size_t)128 << 20)
#define PL_GROUPS_SYNTAX "auto|tcp|mpi"

typedef struct pl_comm pl_comm;

// Forks into `ranks` processes, each of which returns from this call with its own comm. Call it before any thread,
// device or file is opened: forked processes have one thread and share descriptors. Ranks above 0 ignore SIGINT,
// SIGTERM and SIGUSR1 (rank 0 handles them for all) and are killed when rank 0 ends. A group of one rank takes the same
// path without communication. PL_E_MEMORY, PL_E_IO.
pl_status pl_comm_fork(pl_comm **out, int ranks, pl_err *err);

// Ranks that join over TCP prove to each other that they have the same key (kernels/comm/handshake.h).
#define PL_COMM_KEY 32
// Derives the key from a secret of any length, with the secret's entropy; or draws a random key (PL_E_IO: the system
// has no random numbers).
void      pl_comm_key_of(uint8_t key[PL_COMM_KEY], const void *secret, size_t n);
pl_status pl_comm_key_draw(uint8_t key[PL_COMM_KEY], pl_err *err);
// Writes the key of the run. Rank 0 calls it once, when it listens; the others at every try to reach rank 0, once the
// other end has answered. PL_E_IO: there is none yet, for which ranks above 0 wait; other errors fail the join.
typedef pl_status (*pl_comm_find_key)(void *arg, uint8_t key[PL_COMM_KEY], pl_err *err);

// The rank of this process, and the address of rank 0.
typedef struct pl_comm_place {
    int              rank, ranks;
    int              local;    // index among the ranks of this host, from 0
    const char      *address;  // HOST:PORT, or [IPv6]:PORT. Over MPI for signs of life; NULL or "": any reachable one
    bool             mpi;      // over MPI, else over TCP
    const char      *identity; // must be equal on all ranks, such as the version; at most 255 bytes
    double           patience; // seconds within which all must have come; <= 0: PL_COMM_PATIENCE
    double           silence;  // seconds without a sign of life after which a rank counts as dead; <= 0:
                               // PL_COMM_SILENCE
    // Over TCP, with more than one rank; over MPI rank 0 draws a key and broadcasts it.
    pl_comm_find_key find_key;
    void            *key_arg;
} pl_comm_place;
#define PL_COMM_PATIENCE 300.0
#define PL_COMM_SILENCE 30.0
// Returns once all ranks are connected, each with each. Any number of threads may run; it starts one more, for the
// signs of life. PL_E_IO: a rank that did not come in time, by its number, or that has another key; PL_E_USAGE: two
// processes of one rank, different numbers of ranks or identities, if both have the key; MPI's numbers that differ from
// the place's. Connections without the key delay the ranks only briefly and end nothing. Rank 0 listens at the address,
// or at all of its host's if that is a name or no local address; the others connect to the address. If a rank has
// joined and failed (pl_comm_fail) before this one was connected with all, its line is returned. Over MPI once per
// process, with all calls of the group from the thread that joined; after a failure a process ends without
// MPI_Finalize, which would wait for dead ranks. PL_E_UNSUPPORTED: a build without MPI.
pl_status pl_comm_join(pl_comm **out, const pl_comm_place *p, pl_err *err);

// Chooses the transport that sums tensors of this backend; called once, before the first sum. auto: nccl for GPUs if it
// can be loaded, else host. PL_E_USAGE: no such transport; PL_E_UNSUPPORTED: not for this backend, not in this build,
// not on this machine, or the ranks' backends differ in kind or arithmetic.
pl_status pl_comm_open(pl_comm *c, const char *transport, const pl_backend *be, pl_err *err);
// Not collective. In a forked group rank 0 waits for the others to end (and kills them if they do not, or if a rank has
// failed).
void      pl_comm_close(pl_comm *c);

int         pl_comm_rank(const pl_comm *c);       // 0 for NULL
int         pl_comm_ranks(const pl_comm *c);      // 1 for NULL
int         pl_comm_local(const pl_comm *c);      // index among the ranks of its host, from 0
int         pl_comm_neighbours(const pl_comm *c); // number of ranks on its host, this one included
bool        pl_comm_joined(const pl_comm *c);     // true: each was started separately (pl_comm_join)
const char *pl_comm_transport(const pl_comm *c);  // "nccl", or the group's: "shared memory", "TCP"

// Tests: limits later rounds of sums to this many bytes, on all ranks alike.
void pl_comm_limit_rounds(size_t bytes);
// Tests: a forked rank that has been stopped for more than so many seconds counts as dead.
void pl_comm_limit_silence(double seconds);

// Not collective. Returns the bytes that this rank has sent and received so far, and its seconds in meetings and
// exchanges: waiting for slower ranks, or for bytes in transfer. Zeros for NULL.
typedef struct pl_comm_counts {
    uint64_t sent, received; // payload bytes, without a network's overhead
    double   seconds;
} pl_comm_counts;
pl_comm_counts pl_comm_counted(const pl_comm *c);

// Sums x[n], reals in the memory of ctx's backend, over ranks, with the same bits on all of them. Ordered with the ops
// of ctx, which must not record; done on return. The first call allocates room for pieces from that memory.
pl_status pl_comm_sum(pl_comm *c, pl_ctx *ctx, void *x, int64_t n, pl_err *err);
// The two halves of that sum, for pieces of `piece` elements: rank r's are [r piece, (r + 1) piece), the last ones
// smaller or empty; ranks * piece >= n. A rank sends and receives (ranks - 1) / ranks times x in each. x[n]: this
// rank's piece becomes the sum over ranks; the rest of x is undefined afterwards.
pl_status pl_comm_sum_pieces(pl_comm *c, pl_ctx *ctx, void *x, int64_t n, int64_t piece, pl_err *err);
// x of `bytes` and pieces of `piece` bytes, of any element type: sends each rank's piece to all.
pl_status pl_comm_gather_pieces(pl_comm *c, pl_ctx *ctx, void *x, size_t bytes, size_t piece, pl_err *err);
// Sums doubles of the host like pl_comm_sum, in the same tree; n <= 4096.
pl_status pl_comm_sum_doubles(pl_comm *c, double *x, int n, pl_err *err);
// Concatenates columns of all ranks: x [rows, width[rank]], each rank its own, becomes [rows, sum of width] in the
// frame, in the order of ranks. to: the rank that gets it (on others the values are undefined), or PL_TO_ALL. Exact.
// Ordered with the ops of ctx, whose error it sets; if ctx has failed it does nothing, and the others wait until
// pl_comm_fail. A rank sends its part once to each receiver.
#define PL_TO_ALL (-1)
pl_tensor pl_comm_columns(pl_comm *c, pl_ctx *ctx, pl_tensor x, const int64_t *width, int to);
// Returns once columns queued on ctx are complete, or a rank has failed: call it before the host waits for ctx itself.
pl_status pl_comm_settle(pl_comm *c, pl_ctx *ctx, pl_err *err);
// Returns the bytes of columns that this rank has sent so far.
uint64_t  pl_comm_sent(const pl_comm *c);
// Sends host bytes of rank 0 to all.
pl_status pl_comm_broadcast(pl_comm *c, void *data, size_t bytes, pl_err *err);
// Sends host bytes from every rank to every other: to rank i the out_bytes[i] at out[i], from it the in_bytes[i], which
// must equal what it sends, into in[i]. A rank's own entry is ignored. Any size.
typedef struct pl_comm_parcels {
    const void *out[PL_RANKS_MAX];
    void       *in[PL_RANKS_MAX];
    size_t      out_bytes[PL_RANKS_MAX], in_bytes[PL_RANKS_MAX];
} pl_comm_parcels;
pl_status pl_comm_exchange(pl_comm *c, const pl_comm_parcels *p, pl_err *err);
// Sends each rank's n bytes (each its own n) to all ranks: *all (pl_free) holds them in the order of ranks, bytes[r] of
// rank r. most: the limit of n on any rank, known to the caller beforehand. PL_E_IO names a rank that announces more,
// before anything is allocated for it.
pl_status pl_comm_gather(pl_comm *c, const void *mine, size_t n, size_t most, uint8_t **all, size_t *bytes,
                         pl_err *err);
// Returns once all ranks have called it.
pl_status pl_comm_barrier(pl_comm *c, pl_err *err);
// For work that rank 0 must do first (files that are made once): the others wait in enter until rank 0 leaves. If rank
// 0 fails in between, it calls pl_comm_fail instead of leave.
pl_status pl_comm_enter(pl_comm *c, pl_err *err);
pl_status pl_comm_leave(pl_comm *c, pl_err *err);

// Not collective. Declares that this rank has failed and ends: the others' calls return `why` from now on, as "rank N:
// ...". The first failure of a group is the one that is reported.
void pl_comm_fail(pl_comm *c, const pl_err *why);

// Not collective, for long work between meetings: fails if a rank has failed or died.
pl_status pl_comm_check(pl_comm *c, pl_err *err);

// Describes the NCCL of this build and machine, for `doctor`.
void pl_comm_describe_nccl(char *out, size_t room);
// Describes the MPI likewise.
void pl_comm_describe_mpi(char *out, size_t room);

// Which MPI implementation this build was linked against.
typedef enum pl_mpi_kind { PL_MPI_NONE, PL_MPI_OPEN, PL_MPI_MPICH } pl_mpi_kind; // MPICH: and its descendants
pl_mpi_kind pl_comm_mpi_kind(void);

#endif
