// Contexts and backends: where ops run.
//
// A context carries everything an op needs: backend, threads, frame memory, an optional tape. Module code (a decoder
// layer, a drafter, a head) is a sequence of op calls on a context. With a tape the ops also record themselves, so the
// same code trains; without one it only computes; on a measuring context it only sizes memory.
//
//   ref    plain, obviously right C in float            (every op; the oracle of the tests)
//   cpu    ref, overridden where it is beaten, chosen at run time by CPU features (portable, AVX2, AVX-512)
//   cuda   one NVIDIA GPU (kernels/cuda/README.md)
#ifndef PL_BACKEND_H
#define PL_BACKEND_H

#include "kernels/base/arena.h"
#include "kernels/base/parallel.h"
#include "kernels/base/status.h"
#include "kernels/tensor.h"

typedef enum pl_op {
#define X(NAME, name, backward) PL_OP_##NAME,
#include "kernels/ops.def"
#undef X
    PL_OP_COUNT
} pl_op;

const char *pl_op_name(pl_op op);

typedef struct pl_ctx  pl_ctx;
typedef struct pl_tape pl_tape;

// An op's function. args is the op's own args struct (kernels/op/<name>.h). The same struct serves forward and
// backward: backward reads .grad of outputs and accumulates into .grad of inputs, skipping those that are NULL.
// Memory: tensors lie in the backend's memory (PL_LOCAL or PL_SHARED); every other pointer in an args struct (ids,
// rows, spans, results such as topk's) in PL_SHARED, or, where an op has written it for other ops (frontier, route), in
// either. On host backends all of it is plain memory.
typedef void (*pl_op_fn)(pl_ctx *ctx, const void *args);

// What a backend with its own memory and its own time does for a context. Ops are queued in order; copies are calls of
// the caller's, in the same order, never made behind its back.
typedef struct pl_device {
    pl_status (*open)(pl_ctx *ctx, pl_err *err); // a stream for this context
    void (*close)(pl_ctx *ctx);
    void (*upload)(pl_ctx *ctx, void *to, const void *from, size_t bytes);   // host -> device; `from` is free on return
    void (*download)(pl_ctx *ctx, void *to, const void *from, size_t bytes); // device -> host; waits
    // Within the device, not overlapping: n pieces of `bytes`, each `pitch` after the one before on both sides.
    void (*copy)(pl_ctx *ctx, void *to, const void *from, size_t bytes, size_t pitch, size_t n);
    void (*zero)(pl_ctx *ctx, void *to, size_t bytes);
    void (*wait)(pl_ctx *ctx); // all that was queued is done, or the context has failed
    void (*fork)(pl_ctx *ctx); // pl_ctx_fork, pl_ctx_back, pl_ctx_join; NULL, all three: ops go one after another
    void (*back)(pl_ctx *ctx);
    void (*join)(pl_ctx *ctx);
} pl_device;

typedef struct pl_backend {
    const char *name; // "ref", "cpu-avx512", ...
    // The same name: the same bits. It changes with them, and stands in datasets, training states and results: what was
    // begun in one arithmetic is not continued in another.
    const char *arithmetic;
    pl_dtype    real;             // dtype of activations and gradients: PL_F32 or PL_F64
    pl_op_fn    fwd[PL_OP_COUNT]; // NULL: this backend lacks the op, which is an explicit error, never a silent copy
    pl_op_fn    bwd[PL_OP_COUNT];
    bool        keeps_logits; // divergence makes use of room for them (kernels/op/divergence.h)
    const pl_memory *memory;  // NULL: host memory
    const pl_device *device;  // NULL: ops are done when they return
} pl_backend;

const pl_backend *pl_backend_ref(void);
// The best CPU backend for this machine; PACELINE_ISA=portable|avx2|avx512|avx512-bf16|amx in the environment names
// another (or the best below it that runs here). units-emulated: avx2 with the units for bf16 in C, slow, for tests.
const pl_backend *pl_backend_cpu(void);
// By level; NULL where this machine or build lacks it. For tests that walk all of them.
const pl_backend *pl_backend_cpu_isa(const char *isa);
// What a cpu backend can do at most, measured (kernels/base/probe.h): multiply-adds of factors in F32 or BF16, counted
// as two operations each, per second on all threads of the pool; of BF16 on the unit that the level has for it.
// One sample, or the best of several. 0 on a device: its peak is not known.
double            pl_backend_peak_once(const pl_backend *be, pl_dtype factors, pl_pool *pool);
double            pl_backend_peak(const pl_backend *be, pl_dtype factors, pl_pool *pool);
// Names of all levels, best first, i = 0, 1, ...; NULL past the last.
const char       *pl_backend_cpu_level(int i);

// GPU number n, opened at the first call and kept: NULL and one line where this build has no CUDA, or the machine no
// driver, one that is too old, no such GPU, or one that this build has no code for.
const pl_backend *pl_backend_cuda(int n, pl_err *err);
// True if its blocks lie in the host's memory.
bool              pl_backend_on_host(const pl_backend *be);
// What this build and this machine have of CUDA, for people: "not built in", "built for sm_90 with CUDA 13.0; no NVIDIA
// driver", "...; driver 13.0; cuda:0 NVIDIA H200, 139.8 GiB". Written into out.
void              pl_backend_cuda_describe(char *out, size_t room);
// What training's products go through on a GPU, for people: "cuBLASLt 13.1.0", "own kernels (libcublasLt.so.13 is not
// installed, ...)". Opens the library.
void              pl_backend_cuda_libraries(char *out, size_t room);
// The same of training's attention: "cuDNN 9.19.0", "own kernels (PACELINE_ATTENTION=own)".
void              pl_backend_cuda_attention(char *out, size_t room);

// Measurements: what one change to the device would bring, tried in the process that also runs without it
// (`bench step --try`). NULL or "": none. PL_E_USAGE names those that there are.
//   early        launches of a recording context may start before the one before them is done, as those of contexts
//                that repeat do: a kernel begins while the last blocks of the one before it run, and reads what no
//                kernel writes
#define PL_CUDA_TRIALS_SYNTAX "early"
pl_status pl_backend_cuda_try(const char *name, pl_err *err);

// Tests: PL_LOCAL memory that is created from now on is pinned host memory, so that the host may look into tensors, and
// every op is waited for.
void pl_backend_cuda_pin(bool on);

// Which packed weight was read after which and how long ago, learned as steps repeat: so the end of one product fetches
// the start of the next, and a product knows whether its weight still lies in a cache. Hints: they change no result,
// and a stale entry costs a useless prefetch.
#define PL_TRAIL 1024
typedef struct pl_trail {
    const void *last;  // the weight read last
    uint64_t    read;  // bytes of weights read so far
    uint64_t    cache; // bytes of weights that may pass before a weight has left the last cache, about
    struct {
        const void *from;
        uint64_t    at; // `read` when `from` was read last
        pl_tensor   to;
    } next[PL_TRAIL]; // by address of `from`
} pl_trail;

typedef enum pl_branch { PL_BRANCH_NONE, PL_BRANCH_INSIDE, PL_BRANCH_BESIDE } pl_branch;

struct pl_ctx {
    const pl_backend *be;
    pl_pool          *pool;    // may be NULL: one thread
    pl_arena          frame;   // activations (and their gradients, with a tape) of one step
    pl_arena          scratch; // inside one op: mark, use, release
    pl_arena          aside;   // the same for ops of a branch, where a device has branches
    pl_arena          shared;  // index arrays of one step, where the frame is not the host's (else unused)
    pl_tape          *tape;    // NULL: inference; borrowed
    bool              measuring;
    bool              repeats; // steps (without a tape) come again and again: a device may send them as graphs
    bool              no_grad; // with a tape: ops run but neither record nor get gradients (frozen parts)
    pl_branch         branch;
    pl_trail          trail;
    void             *state; // of the backend's device: owned by it
    pl_err            err;   // the first op failure sticks; later ops do nothing
};

pl_status pl_ctx_init(pl_ctx *ctx, const pl_backend *be, pl_pool *pool);
void      pl_ctx_fini(pl_ctx *ctx);

// Sizes frame, scratch and tape: runs fn(ctx, arg) on a measuring context (ops compute nothing; data pointers are not
// to be touched by fn), then commits. fn does what a step does, pl_tape_backward included. On failure (an op that the
// backend lacks, memory) the context is left without memory. Call again to resize.
pl_status pl_ctx_measure(pl_ctx *ctx, void (*fn)(pl_ctx *ctx, void *arg), void *arg, pl_err *err);
// Starts a step: frame reset, tape cleared.
void      pl_ctx_begin(pl_ctx *ctx);
// Asks once per step: waits for what was queued; the sticky error, cleared by asking.
pl_status pl_ctx_sync(pl_ctx *ctx, pl_err *err);
// Within a step: waits for what was queued, so that results in PL_SHARED memory can be read and index arrays written
// again. False on a measuring context, which has no results, and on a failed one, whose error stays for pl_ctx_sync.
bool      pl_ctx_wait(pl_ctx *ctx);
void      pl_ctx_fail(pl_ctx *ctx, pl_status status, const char *fmt, ...) PL_PRINTF(3, 4);

// A branch: ops from fork to back may run beside those from back to join, so neither may read or write what the other
// writes. A device then runs them side by side, a host one after another. Within a step and without a tape; no copies
// and no waits from fork to join. One at a time; join without a branch does nothing.
void pl_ctx_fork(pl_ctx *ctx);
void pl_ctx_back(pl_ctx *ctx);
void pl_ctx_join(pl_ctx *ctx);

// Copies in order with the ops. On host backends: memcpy, memset. A failed context copies nothing; then download
// leaves `to` as it was.
void pl_ctx_upload(pl_ctx *ctx, void *to, const void *from, size_t bytes);
void pl_ctx_download(pl_ctx *ctx, void *to, const void *from, size_t bytes);
void pl_ctx_copy(pl_ctx *ctx, void *to, const void *from, size_t bytes);
void pl_ctx_copy_pieces(pl_ctx *ctx, void *to, const void *from, size_t bytes, size_t pitch, size_t n);
void pl_ctx_zero(pl_ctx *ctx, void *to, size_t bytes);
// Copies the first n of so many bytes over the rest, again and again.
void pl_ctx_repeat(pl_ctx *ctx, void *to, size_t n, size_t bytes);

// A tensor's values where the host can read them, and write them over: its own data on host backends, else a copy in
// the step's shared memory. Waits. A measuring context sizes that copy; there, and on a failed context, NULL.
void     *pl_ctx_read(pl_ctx *ctx, const pl_tensor *t);
// Host values as a constant tensor that ops can read: `from` itself on host backends, else a copy in the frame. They
// must stay as they are until the step ends.
pl_tensor pl_ctx_write(pl_ctx *ctx, const void *from, int64_t rows, int64_t cols);

// A new activation in the frame, dtype be->real; with a recording tape it gets a zeroed gradient.
pl_tensor          pl_ctx_tensor(pl_ctx *ctx, int64_t rows, int64_t cols);
// The same without a gradient (statistics, constants).
pl_tensor          pl_ctx_const(pl_ctx *ctx, int64_t rows, int64_t cols);
pl_tensor          pl_ctx_const_1d(pl_ctx *ctx, int64_t n);
// An op's output: with a gradient where `grad` (some input has one), else a constant. So what depends on constants
// alone (a frozen embedding, stored features) is a constant, and no backward is spent on it.
pl_tensor          pl_ctx_out(pl_ctx *ctx, int64_t rows, int64_t cols, bool grad);
// Raw memory of the step for index arrays and for results that the host reads (PL_SHARED). Each call gives bytes of
// their own, so that a queued op finds what was written for it.
void              *pl_ctx_bytes(pl_ctx *ctx, size_t bytes);
static inline bool pl_ctx_recording(const pl_ctx *ctx) {
    return ctx->tape && !ctx->no_grad;
}

// Runs an op now and, when recording and the op has a backward, stores a copy of its args on the tape.
void pl_run(pl_ctx *ctx, pl_op op, const void *args, size_t args_size);

// Ops that use no scratch return at once on a measuring context; ops that use it do their scratch allocations first
// (mark, alloc, release) and touch nothing.
#define PL_OP_SKIP_IF_MEASURING(ctx)                                                                                   \
    do {                                                                                                               \
        if ((ctx)->measuring) return;                                                                                  \
    } while (0)

// Which data an op moves and how much it computes, for benches: filled by each op's cost function.
typedef struct pl_cost {
    double bytes, flops;
} pl_cost;

#endif
