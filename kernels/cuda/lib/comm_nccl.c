// Pieces between GPUs by NCCL: sends and receives in one group, on the context's stream. The library is loaded when
// this transport is chosen, so that a program built with it starts without it. The group (kernels/comm/comm.h)
// distributes the id, and is polled while NCCL joins the ranks and while the stream runs: NCCL itself waits forever for
// a rank that has died.
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/comm/impl.h"
#include "kernels/cuda/lib/library.h"
#include "kernels/cuda/table.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double SPIN = 50e-6; // seconds of polling before sleeping

#define FUNCTIONS(X)                                                                                                   \
    X(ncclGetVersion)                                                                                                  \
    X(ncclGetErrorString)                                                                                              \
    X(ncclGetUniqueId)                                                                                                 \
    X(ncclCommInitRankConfig)                                                                                          \
    X(ncclCommGetAsyncError)                                                                                           \
    X(ncclCommAbort)                                                                                                   \
    X(ncclCommDestroy)                                                                                                 \
    X(ncclGroupStart)                                                                                                  \
    X(ncclGroupEnd)                                                                                                    \
    X(ncclSend)                                                                                                        \
    X(ncclRecv)

static struct {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
} nccl;
static bool            loaded;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

// ---- the library

static pl_status load_locked(pl_err *err) {
#define X(name) #name,
    static const char *const symbol[] = {FUNCTIONS(X)};
#undef X
    const char *asked = getenv("PACELINE_NCCL"); // a named library is the only choice
    pl_err      why;
    if (loaded) return PL_OK;
    bool own = asked && *asked;
    loaded = pl_library_open(own ? asked : "libnccl.so.2", own ? NULL : PL_NCCL_FOLDER, symbol,
                             sizeof symbol / sizeof *symbol, &nccl, &why) == PL_OK;
    if (loaded) return PL_OK;
    return pl_fail(
        err, PL_E_UNSUPPORTED,
        "NCCL cannot be loaded: %s; install libnccl2, set PACELINE_NCCL to its file, or use --transport host", why.msg);
}

static pl_status load(pl_err *err) {
    pthread_mutex_lock(&loading);
    pl_status st = load_locked(err);
    pthread_mutex_unlock(&loading);
    return st;
}

void pl_comm_describe_nccl(char *out, size_t room) {
    pl_err err;
    int    v = 0;
    if (load(&err) != PL_OK)
        snprintf(out, room, "built in; %.*s", (int)strcspn(err.msg, ";"), err.msg);
    else if (nccl.ncclGetVersion(&v) == ncclSuccess)
        snprintf(out, room, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    else
        snprintf(out, room, "built in; it does not say its version");
}

// ---- the transport

typedef struct own {
    ncclComm_t comm; // NULL before the first sum
} own;

// Returns the stream after sending all kept launches to it.
static cudaStream_t stream_of(pl_ctx *ctx) {
    return PL_CUDA(stream)(ctx);
}

static pl_status fits(ncclResult_t r, const char *doing, pl_err *err) {
    if (r == ncclSuccess) return PL_OK;
    return pl_fail(err, PL_E_DEVICE, "NCCL: %s: %s; NCCL_DEBUG=WARN says more", doing, nccl.ncclGetErrorString(r));
}

static pl_status open_nccl(pl_comm *c, const pl_backend *be, pl_err *err) {
    if (strncmp(be->name, "cuda:", 5) != 0)
        return pl_fail(err, PL_E_UNSUPPORTED, "NCCL joins NVIDIA GPUs, not %s; use --transport host", be->name);
    PL_TRY(load(err));
    c->own = pl_calloc(1, sizeof(own));
    return c->own ? PL_OK : pl_fail(err, PL_E_MEMORY, "NCCL: out of memory");
}

// Aborts NCCL's kernels, which would wait forever for a dead rank and block waits for the stream, frees of memory and
// the context's end.
static void stop_nccl(pl_comm *c) {
    own *o = c->own;
    if (o && o->comm) nccl.ncclCommAbort(o->comm);
    if (o) o->comm = NULL;
}

static void close_nccl(pl_comm *c) {
    own *o = c->own;
    if (o && o->comm) nccl.ncclCommDestroy(o->comm);
    pl_free(o);
    c->own = NULL;
}

// Reports a failure to the others, unless it came from them.
static pl_status failed(pl_comm *c, pl_status st, const pl_err *why) {
    pl_comm_fail(c, why ? why : &(pl_err){.status = st, .msg = "NCCL failed"}); // which stops NCCL
    return st;
}

// Pauses between two polls since `since`: NCCL is mostly done before a sleep would end.
static void pause_briefly(double since) {
    if (pl_now() - since < SPIN) return;
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

// Waits for the outcome of a call that returned r: calls do not block, and a rank that dies meanwhile ends the wait.
static pl_status outcome(pl_comm *c, own *o, ncclResult_t r, const char *doing, pl_err *err) {
    pl_status st = PL_OK;
    double    since = pl_now();
    while (r == ncclInProgress && st == PL_OK) {
        pause_briefly(since);
        st = pl_comm_check(c, err);
        if (st == PL_OK) st = fits(nccl.ncclCommGetAsyncError(o->comm, &r), "its state", err);
    }
    if (st == PL_OK) st = fits(r, doing, err);
    return st == PL_OK ? st : failed(c, st, err);
}

static pl_status join(pl_comm *c, own *o, pl_err *err) {
    ncclUniqueId id = {{0}};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    pl_status st = c->rank == 0 ? fits(nccl.ncclGetUniqueId(&id), "no id", err) : PL_OK;
    if (st != PL_OK) return failed(c, st, err);
    PL_TRY(pl_comm_broadcast(c, &id, sizeof id, err));
    ncclResult_t r = nccl.ncclCommInitRankConfig(&o->comm, c->ranks, id, c->rank, &config);
    return outcome(c, o, r, "joining the ranks", err);
}

static bool goes_on(ncclResult_t r) {
    return r == ncclSuccess || r == ncclInProgress;
}

static pl_status swap(pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s, pl_err *err) {
    own *o = c->own;
    if (!PL_CUDA(enter)(ctx)) return pl_ctx_sync(ctx, err);
    if (!o->comm) PL_TRY(join(c, o, err));
    PL_TRY(pl_comm_check(c, err));
    pl_status st = fits(nccl.ncclGroupStart(), "a group", err);
    if (st != PL_OK) return failed(c, st, err);
    ncclResult_t r = ncclSuccess;
    for (int i = 0; i < c->ranks; i++) {
        if (goes_on(r) && s->out_bytes[i])
            r = nccl.ncclSend(s->out[i], s->out_bytes[i], ncclUint8, i, o->comm, stream_of(ctx));
        if (goes_on(r) && s->in_bytes[i])
            r = nccl.ncclRecv(s->in[i], s->in_bytes[i], ncclUint8, i, o->comm, stream_of(ctx));
    }
    ncclResult_t end = nccl.ncclGroupEnd(); // closes the group whatever came before
    return outcome(c, o, goes_on(r) ? end : r, "pieces", err);
}

static pl_status settle(pl_comm *c, pl_ctx *ctx, pl_err *err) {
    own   *o = c->own;
    double since = pl_now();
    while (o->comm && cudaStreamQuery(stream_of(ctx)) == cudaErrorNotReady) {
        ncclResult_t r = ncclSuccess;
        pl_status    st = pl_comm_check(c, err);
        if (st == PL_OK) st = fits(nccl.ncclCommGetAsyncError(o->comm, &r), "its state", err);
        if (st == PL_OK && r != ncclInProgress) st = fits(r, "pieces", err);
        if (st != PL_OK) return failed(c, st, err);
        pause_briefly(since);
    }
    return pl_ctx_sync(ctx, err);
}

const pl_transport pl_transport_nccl = {.name = "nccl",
                                        .room = PL_COMM_ROUND_NCCL,
                                        .open = open_nccl,
                                        .swap = swap,
                                        .settle = settle,
                                        .stop = stop_nccl,
                                        .close = close_nccl};
