// NVIDIA GPUs as backends: opening, memory, streams, copies, errors. The first CUDA error sticks to the context as one
// line; the CUDA runtime is linked statically, so that the program starts without a driver.
#include "kernels/base/check.h"
#include "kernels/cuda/lib/cudnn_attention.h"
#include "kernels/cuda/record.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/timeline.h"
#include "kernels/devices.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 16 };

typedef struct twin { // of a PL_SHARED block, in device memory
    struct twin *next;
    uint8_t     *block, *own;
    size_t       bytes;
} twin;

typedef struct gpu {
    pl_backend            be;
    pl_memory             memory; // memory.name is be.name
    char                  name[32];
    struct cudaDeviceProp prop;
    int                   number;
    bool                  open;
    twin                 *twins;
} gpu;

static gpu             gpus[DEVICES];
static bool            pinned; // pl_backend_cuda_pin
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

cudaError_t pl_cuda_probe_code(void); // probe.cu: checks that this binary holds code for the current device

static const gpu *gpu_with(const pl_memory *m) {
    return (const gpu *)(const void *)((const char *)m - offsetof(gpu, memory));
}

// Finds the GPU by its memory: a backend may be a copy with replaced functions.
static const gpu *gpu_of(const pl_ctx *ctx) {
    return gpu_with(ctx->be->memory);
}

static bool fits(pl_ctx *ctx, cudaError_t e, const char *doing) {
    if (e == cudaSuccess) return true;
    pl_ctx_fail(ctx, e == cudaErrorMemoryAllocation ? PL_E_MEMORY : PL_E_DEVICE, "%s: %s: %s", ctx->be->name, doing,
                cudaGetErrorString(e));
    return false;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static void *allocate(const gpu *g, bool on_host, size_t bytes, pl_err *err) {
    void       *p = NULL;
    size_t      left = 0, all = 0;
    cudaError_t e = cudaSetDevice(g->number);
    if (bytes == 0) bytes = 1;
    if (e == cudaSuccess && on_host) {
        e = cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        if (e == cudaSuccess) memset(p, 0, bytes);
    } else if (e == cudaSuccess) {
        e = cudaMalloc(&p, bytes);
        if (e == cudaSuccess) e = cudaMemset(p, 0, bytes);
        if (e == cudaSuccess) e = cudaDeviceSynchronize(); // contexts' streams do not wait for it
    }
    if (e == cudaSuccess) return p;
    if (p) cudaFree(p);
    cudaGetLastError(); // clears the error, or the next launch would report it
    cudaMemGetInfo(&left, &all);
    pl_fail(err, PL_E_MEMORY,
            "%s: no block of %.1f MiB of %s memory: %s; %.1f of %.1f GiB are free; make the model, the batch or the "
            "context smaller",
            g->name, (double)bytes / 1048576, on_host ? "pinned host" : "device", cudaGetErrorString(e),
            (double)left / 1073741824, (double)all / 1073741824);
    return NULL;
}

static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER; // guards all twins

static pl_status add_twin(gpu *g, void *block, size_t bytes, pl_err *err) {
    twin *t = pl_calloc(1, sizeof *t);
    if (!t) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", g->name);
    *t = (twin){.block = block, .bytes = bytes, .own = allocate(g, false, bytes, err)};
    if (!t->own) {
        pl_free(t);
        return PL_E_MEMORY;
    }
    pthread_mutex_lock(&sharing);
    t->next = g->twins;
    g->twins = t;
    pthread_mutex_unlock(&sharing);
    return PL_OK;
}

static void remove_twin(gpu *g, const void *block) {
    pthread_mutex_lock(&sharing);
    twin **at = &g->twins, *t;
    while (*at && (*at)->block != block)
        at = &(*at)->next;
    t = *at;
    if (t) *at = t->next;
    pthread_mutex_unlock(&sharing);
    if (t) cudaFree(t->own);
    pl_free(t);
}

static void *create(const pl_memory *m, pl_place place, size_t bytes, pl_err *err) {
    gpu  *g = (gpu *)(uintptr_t)gpu_with(m);
    void *p = allocate(g, pinned || place == PL_SHARED, bytes, err);
    if (p && place == PL_SHARED && !pinned && add_twin(g, p, bytes, err) != PL_OK) {
        cudaFreeHost(p);
        return NULL;
    }
    return p;
}

static void destroy(const pl_memory *m, pl_place place, void *p, size_t bytes) {
    (void)bytes;
    cudaSetDevice(gpu_with(m)->number); // else a thread without a current device would open the first one
    if (place == PL_SHARED) remove_twin((gpu *)(uintptr_t)gpu_with(m), p);
    if (pinned || place == PL_SHARED)
        cudaFreeHost(p);
    else
        cudaFree(p);
}

// The default stream and those of contexts do not wait for each other: synchronises with the device on both sides.
static pl_status transfer(const pl_memory *m, void *to, const void *from, size_t bytes, const char *doing,
                          pl_err *err) {
    cudaError_t e = cudaSetDevice(gpu_with(m)->number);
    if (e == cudaSuccess) e = cudaDeviceSynchronize();
    if (e == cudaSuccess) e = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    if (e == cudaSuccess) e = cudaDeviceSynchronize();
    if (e == cudaSuccess) return PL_OK;
    cudaGetLastError();
    return pl_fail(err, PL_E_DEVICE, "%s: %s of %.1f MiB: %s", m->name, doing, (double)bytes / 1048576,
                   cudaGetErrorString(e));
}

static pl_status write_block(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err) {
    return transfer(m, to, from, bytes, "upload", err);
}

static pl_status read_block(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err) {
    return transfer(m, to, from, bytes, "download", err);
}

// ---- contexts -------------------------------------------------------------------------------------------------------

typedef struct own {
    pl_cuda_state  state;
    pl_cuda_fault *seen;       // pinned copy of the kernels' faults
    bool           early;      // early launches are allowed
    bool           waits[2];   // the stream, the branch: its last command is a wait for the other
    bool           astray;     // the branch has work that the stream does not wait for: a step ended before the join
    cudaStream_t   aside;      // the branch's
    cudaEvent_t    reached[2]; // events of the stream and of the branch
} own;

static cudaStream_t stream_of(const pl_ctx *ctx) {
    return (cudaStream_t)pl_cuda_state_of(ctx)->stream;
}

static const pl_cuda_fault no_fault = PL_NO_FAULTS;

// Uses the context's stream, which does not wait for copies on the default stream.
static cudaError_t clear_faults(const own *o) {
    cudaStream_t stream = (cudaStream_t)o->state.stream;
    cudaError_t  e = cudaMemcpyAsync(o->state.fault, &no_fault, sizeof no_fault, cudaMemcpyHostToDevice, stream);
    return e == cudaSuccess ? cudaStreamSynchronize(stream) : e;
}

static void close_context(pl_ctx *ctx) {
    own *o = ctx->state;
    PL_CUDA(record_close)(o->state.record);
    if (o->state.stream) cudaStreamDestroy((cudaStream_t)o->state.stream);
    if (o->aside) cudaStreamDestroy(o->aside);
    for (int i = 0; i < 2; i++)
        if (o->reached[i]) cudaEventDestroy(o->reached[i]);
    cudaFree(o->state.fault);
    cudaFree(o->state.spare);
    cudaFree(o->state.ticket);
    cudaFreeHost(o->seen);
    pl_free(o);
    ctx->state = NULL;
}

static pl_status open_context(pl_ctx *ctx, pl_err *err) {
    const gpu *g = gpu_of(ctx);
    own       *o = pl_calloc(1, sizeof *o);
    if (!o) return pl_fail(err, PL_E_MEMORY, "%s: context: out of memory", ctx->be->name);
    ctx->state = o;
    o->state.op = "none";
    o->state.sms = g->prop.multiProcessorCount;
    o->state.room = g->prop.sharedMemPerBlockOptin;
    pl_status   st = PL_E_MEMORY;
    const char *graphs = getenv("PACELINE_GRAPHS");      // 0: no graphs, to measure their effect
    const char *early = getenv("PACELINE_EARLY_LAUNCH"); // 0: likewise
    o->early = g->prop.major >= 9 && (!early || strcmp(early, "0") != 0);
    o->state.record = PL_CUDA(record_open)(!graphs || strcmp(graphs, "0") != 0);
    if (!o->state.record) {
        pl_fail(err, PL_E_MEMORY, "%s: context: out of memory", ctx->be->name);
        goto fail;
    }
    if ((o->state.fault = allocate(g, false, sizeof no_fault, err)) == NULL) goto fail;
    if ((o->state.ticket = allocate(g, false, PL_CUDA_TICKETS * sizeof(unsigned), err)) == NULL) goto fail;
    if ((o->state.spare = allocate(g, false, PL_CUDA_TICKETS * sizeof(unsigned), err)) == NULL) goto fail;
    if ((o->seen = allocate(g, true, sizeof no_fault, err)) == NULL) goto fail;
    cudaStream_t stream = NULL;
    cudaError_t  e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&o->aside, cudaStreamNonBlocking);
    for (int i = 0; i < 2 && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&o->reached[i], cudaEventDisableTiming);
    o->state.stream = stream;
    if (e == cudaSuccess) e = clear_faults(o);
    if (e == cudaSuccess) return PL_OK;
    st = pl_fail(err, PL_E_DEVICE, "%s: no stream: %s", ctx->be->name, cudaGetErrorString(e));
fail:
    close_context(ctx);
    return st;
}

bool PL_CUDA(enter)(pl_ctx *ctx) {
    if (!fits(ctx, cudaSetDevice(gpu_of(ctx)->number), "device")) return false;
    pl_timeline_before(ctx);
    return true;
}

// Reports the error of a call that synchronised, and so may come from an earlier op (CUDA_LAUNCH_BLOCKING=1 shows
// which).
static bool waited(pl_ctx *ctx, cudaError_t e, const char *call) {
    char doing[96];
    snprintf(doing, sizeof doing, "%s, op %s or one before it", call, pl_cuda_state_of(ctx)->op);
    return fits(ctx, e, doing);
}

static void wait_for(pl_ctx *ctx) {
    own        *o = ctx->state;
    cudaError_t e = cudaSetDevice(gpu_of(ctx)->number);
    o->state.waits++;
    PL_CUDA(record_flush)(ctx);
    PL_CUDA(record_waited)(o->state.record);
    // The branch's kernels may still write a fault: wait before faults are copied.
    if (e == cudaSuccess && o->astray) e = cudaStreamSynchronize(o->aside);
    if (e == cudaSuccess) o->astray = false;
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(o->seen, o->state.fault, sizeof *o->seen, cudaMemcpyDeviceToHost, stream_of(ctx));
    if (e == cudaSuccess) e = cudaStreamSynchronize(stream_of(ctx));
    pl_timeline_settle("a wait");
    if (!waited(ctx, e, "wait")) return;
    PL_CUDA(faults)(ctx, o->seen);
    if (memcmp(o->seen, &no_fault, sizeof no_fault) == 0) return;
    fits(ctx, clear_faults(o), "clearing faults");
}

// Returns true if the host reads and writes tensors and guard bytes while it queues: then every call synchronises.
static bool watched(const pl_ctx *ctx) {
    return pinned || ctx->frame.guard || ctx->scratch.guard;
}

// Makes later work wait for the other way's current point: the branch for the stream, or the stream for the branch.
static cudaError_t wait_across(const pl_ctx *ctx, bool branch_waits) {
    own         *o = ctx->state;
    cudaEvent_t  reached = o->reached[!branch_waits];
    cudaStream_t stream = stream_of(ctx);
    cudaError_t  e = cudaEventRecord(reached, branch_waits ? stream : o->aside);
    o->waits[branch_waits] = true;
    if (e == cudaSuccess) e = cudaStreamWaitEvent(branch_waits ? o->aside : stream, reached, 0);
    if (e == cudaSuccess && !branch_waits) o->astray = false;
    return e;
}

void PL_CUDA(meet)(pl_ctx *ctx) {
    fits(ctx, wait_across(ctx, false), "branch");
}

void PL_CUDA(apart)(pl_ctx *ctx, void *p, size_t bytes) {
    (void)ctx, (void)p, (void)bytes;
}

// Early (CUDA: programmatic dependent launch): if steps repeat, the device supports it (sm_90 and later), and the
// launch depends on the previous launch alone: after a wait for the other way it might start too soon.
static cudaError_t launch_on(const pl_ctx *ctx, const pl_cuda_launch *l) {
    own        *o = ctx->state;
    cudaError_t e = cudaSuccess;
    if (l->parts || l->meets) e = wait_across(ctx, l->parts);
    if (e != cudaSuccess) return e;
    cudaLaunchAttribute early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {.gridDim = {l->grid[0], l->grid[1], l->grid[2]},
                            .blockDim = {l->threads, 1, 1},
                            .dynamicSmemBytes = l->room,
                            .stream = l->aside ? o->aside : stream_of(ctx),
                            .attrs = &early};
    bool               repeats = PL_CUDA(records)(ctx) || (PL_CUDA(trial) & PL_TRY_EARLY && !watched(ctx));
    c.numAttrs = l->early && !o->waits[l->aside] && o->early && repeats;
    e = cudaLaunchKernelExC(&c, l->kernel, l->arg);
    if (e != cudaSuccess) return e; // the last command is unchanged
    o->waits[l->aside] = false;
    o->astray |= l->aside;
    return l->ends ? wait_across(ctx, false) : e;
}

void PL_CUDA(submit)(pl_ctx *ctx, const pl_cuda_launch *l) {
    // Bytes of dynamic shared memory that need no request: 48 KB less room for static shared memory.
    enum { OWED = 32 << 10 };
    char        doing[96];
    cudaError_t e = cudaSuccess;
    if (l->room > OWED) e = cudaFuncSetAttribute(l->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)l->room);
    // A multiprocessor has one split of its memory into L1 and shared at a time: with a small kernel's preference, the
    // next one's blocks would not fit beside it.
    if (e == cudaSuccess && l->early && ((const own *)ctx->state)->early)
        e = cudaFuncSetAttribute(l->kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
    if (e == cudaSuccess) e = launch_on(ctx, l);
    if (e != cudaSuccess) cudaGetLastError(); // clears the error
    snprintf(doing, sizeof doing, "op %s", pl_cuda_state_of(ctx)->op);
    if (!fits(ctx, e, doing)) return;
    pl_timeline_behind(ctx, l->kernel, NULL, 0);
    if (watched(ctx)) wait_for(ctx);
}

void PL_CUDA(queued)(pl_ctx *ctx) {
    pl_timeline_behind(ctx, NULL, NULL, 0);
    if (watched(ctx)) wait_for(ctx);
}

bool PL_CUDA(unseen)(const pl_ctx *ctx) {
    return !ctx->tape && !watched(ctx);
}

bool PL_CUDA(records)(const pl_ctx *ctx) {
    return ctx->repeats && PL_CUDA(unseen)(ctx);
}

// The kernels have been launched before, separately: they are loaded and have their shared memory.
void *PL_CUDA(capture)(pl_ctx *ctx, const uint8_t *bytes, size_t n) {
    cudaStream_t    stream = stream_of(ctx);
    cudaGraph_t     graph = NULL;
    cudaGraphExec_t exec = NULL;
    void           *arg[PL_RECORD_ARGS];
    pl_cuda_launch  l;
    cudaError_t     e = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (e == cudaSuccess) {
        for (size_t at = 0; e == cudaSuccess && PL_CUDA(record_next)(bytes, n, &at, &l, arg);)
            e = launch_on(ctx, &l);
        cudaError_t end = cudaStreamEndCapture(stream, &graph);
        if (e == cudaSuccess) e = end;
    }
    if (e == cudaSuccess) e = cudaGraphInstantiate(&exec, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (e == cudaSuccess) return exec;
    cudaGetLastError(); // the launches go one by one instead
    return NULL;
}

void PL_CUDA(replay)(pl_ctx *ctx, void *graph) {
    waited(ctx, cudaGraphLaunch((cudaGraphExec_t)graph, stream_of(ctx)), "graph");
    pl_timeline_behind(ctx, NULL, "graph", 0);
}

void PL_CUDA(drop)(void *graph) {
    cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

static const twin *twin_of(const pl_ctx *ctx, const void *p) {
    const uint8_t *at = p;
    pthread_mutex_lock(&sharing);
    const twin *t = gpu_of(ctx)->twins;
    while (t && !(at >= t->block && at < t->block + t->bytes))
        t = t->next;
    pthread_mutex_unlock(&sharing);
    return t;
}

void *PL_CUDA(twin)(const pl_ctx *ctx, const void *p, size_t bytes) {
    const twin *t = twin_of(ctx, p);
    size_t      at = t ? (size_t)((const uint8_t *)p - t->block) : 0;
    return t && at + bytes <= t->bytes ? t->own + at : NULL;
}

// Neighbouring arrays of one block share a copy: the bytes between them are unused at this point.
void PL_CUDA(send)(pl_ctx *ctx, const pl_cuda_array *array, int n) {
    enum { RANGES = 8, NEAR = 64 << 10 };
    struct {
        const twin    *of;
        const uint8_t *from, *end;
        uint8_t       *to;
    } range[RANGES];
    int         ranges = 0;
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < n; i++) {
        const uint8_t *from = array[i].from, *end = from + array[i].bytes;
        uint8_t       *to = array[i].to;
        const twin    *of = twin_of(ctx, from);
        int            k = 0;
        // One copy stays within one block. NEAR: otherwise the arrays belong to another owner.
        while (k < ranges && !(of == range[k].of && from <= range[k].end + NEAR && range[k].from <= end + NEAR))
            k++;
        if (k == RANGES) {
            if (e == cudaSuccess) e = cudaMemcpyAsync(to, from, array[i].bytes, cudaMemcpyHostToDevice, stream_of(ctx));
            continue;
        }
        if (k == ranges) {
            range[ranges].of = of, range[ranges].from = from, range[ranges].end = end, range[ranges++].to = to;
            continue;
        }
        if (from < range[k].from) range[k].from = from, range[k].to = to;
        if (end > range[k].end) range[k].end = end;
    }
    for (int k = 0; k < ranges && e == cudaSuccess; k++)
        e = cudaMemcpyAsync(range[k].to, range[k].from, (size_t)(range[k].end - range[k].from), cudaMemcpyHostToDevice,
                            stream_of(ctx));
    fits(ctx, e, "index arrays");
}

// `from` may be any host memory: pageable memory is staged before the call returns; for the same guarantee with pinned
// memory the call synchronises with the stream.
static void upload(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    if (!PL_CUDA(enter)(ctx)) return;
    pl_cuda_state_of(ctx)->rounded.of = NULL;
    PL_CUDA(record_flush)(ctx);
    cudaError_t e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_of(ctx));
    pl_timeline_behind(ctx, NULL, "upload", (double)bytes);
    if (e == cudaSuccess) e = cudaStreamSynchronize(stream_of(ctx));
    pl_timeline_settle("an upload");
    PL_CUDA(record_waited)(pl_cuda_state_of(ctx)->record);
    pl_cuda_state_of(ctx)->waits++;
    waited(ctx, e, "upload");
}

static void download(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    if (!PL_CUDA(enter)(ctx)) return;
    PL_CUDA(record_flush)(ctx);
    cudaError_t e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(ctx));
    pl_timeline_behind(ctx, NULL, "download", (double)bytes);
    if (e == cudaSuccess) e = cudaStreamSynchronize(stream_of(ctx));
    pl_timeline_settle("a download");
    PL_CUDA(record_waited)(pl_cuda_state_of(ctx)->record);
    pl_cuda_state_of(ctx)->waits++;
    waited(ctx, e, "download");
}

static void copy(pl_ctx *ctx, void *to, const void *from, size_t bytes, size_t pitch, size_t n) {
    if (!PL_CUDA(enter)(ctx)) return;
    pl_cuda_state_of(ctx)->rounded.of = NULL;
    PL_CUDA(record_flush)(ctx); // moves differ from step to step and are no part of a graph
    if (n > 1 && pitch <= gpu_of(ctx)->prop.memPitch) {
        fits(ctx, cudaMemcpy2DAsync(to, pitch, from, pitch, bytes, n, cudaMemcpyDefault, stream_of(ctx)), "copy");
    } else {
        cudaError_t e = cudaSuccess;
        for (size_t i = 0; i < n && e == cudaSuccess; i++)
            e = cudaMemcpyAsync((char *)to + i * pitch, (const char *)from + i * pitch, bytes, cudaMemcpyDefault,
                                stream_of(ctx));
        fits(ctx, e, "copy");
    }
    pl_timeline_behind(ctx, NULL, "copy", 2 * (double)bytes * (double)n);
    if (watched(ctx)) wait_for(ctx);
}

static void zero(pl_ctx *ctx, void *to, size_t bytes) {
    if (!PL_CUDA(enter)(ctx)) return;
    pl_cuda_state_of(ctx)->rounded.of = NULL;
    PL_CUDA(record_flush)(ctx);
    fits(ctx, cudaMemsetAsync(to, 0, bytes, stream_of(ctx)), "zero");
    pl_timeline_behind(ctx, NULL, "zero", (double)bytes);
    if (watched(ctx)) wait_for(ctx);
}

static const pl_device device = {.open = open_context,
                                 .close = close_context,
                                 .upload = upload,
                                 .download = download,
                                 .copy = copy,
                                 .zero = zero,
                                 .wait = wait_for,
                                 .fork = PL_CUDA(fork),
                                 .back = PL_CUDA(back),
                                 .join = PL_CUDA(join)};

// ---- opening --------------------------------------------------------------------------------------------------------

static void version(char *out, size_t room, int v) {
    snprintf(out, room, "%d.%d", v / 1000, v / 10 % 100);
}

// Returns the number of GPUs; 0 with one line if none is usable.
static int count(pl_err *err) {
    int  n = 0, driver = 0, runtime = 0;
    char has[16], needs[16];
    cudaRuntimeGetVersion(&runtime);
    cudaError_t e = cudaDriverGetVersion(&driver);
    version(has, sizeof has, driver);
    version(needs, sizeof needs, runtime);
    if (e == cudaSuccess && driver > 0) e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n > 0) return n;
    cudaGetLastError();
    if (driver == 0)
        pl_fail(err, PL_E_UNSUPPORTED, "no CUDA: this machine has no NVIDIA driver; use --device cpu");
    else if (e == cudaErrorInsufficientDriver)
        pl_fail(err, PL_E_UNSUPPORTED,
                "no CUDA: the NVIDIA driver is for CUDA %s, this build needs %s; update the driver or use --device cpu",
                has, needs);
    else
        pl_fail(err, PL_E_UNSUPPORTED, "no CUDA: no NVIDIA GPU can be used: %s; use --device cpu",
                e == cudaSuccess ? "none is visible" : cudaGetErrorString(e));
    return 0;
}

static pl_status open_gpu(gpu *g, int n, pl_err *err) {
    snprintf(g->name, sizeof g->name, "cuda:%d", n);
    g->number = n;
    cudaError_t e = cudaGetDeviceProperties(&g->prop, n);
    if (e == cudaSuccess) e = cudaSetDevice(n);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return pl_fail(err, PL_E_DEVICE, "cannot be opened: %s", cudaGetErrorString(e));
    }
    e = pl_cuda_probe_code();
    if (e != cudaSuccess) {
        cudaGetLastError();
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s is of architecture sm_%d%d, this build has code for " PL_CUDA_ARCHS
                       " (%s); build with -DCMAKE_CUDA_ARCHITECTURES=%d%d",
                       g->prop.name, g->prop.major, g->prop.minor, cudaGetErrorString(e), g->prop.major, g->prop.minor);
    }
    g->memory =
        (pl_memory){.name = g->name, .create = create, .destroy = destroy, .write = write_block, .read = read_block};
    g->be =
        (pl_backend){.name = g->name, .arithmetic = "cuda-3", .real = PL_F32, .memory = &g->memory, .device = &device};
    PL_CUDA(fill)(&g->be);
    g->open = true;
    return PL_OK;
}

const pl_backend *pl_backend_cuda(int n, pl_err *err) {
    int  found = count(err);
    gpu *g = n >= 0 && n < DEVICES ? &gpus[n] : NULL;
    if (found == 0) return NULL;
    if (!g || n >= found) {
        pl_fail(err, PL_E_UNSUPPORTED, "no such GPU: this machine has %d, cuda:0%s", found, found > 1 ? " and on" : "");
        return NULL;
    }
    pthread_mutex_lock(&opening);
    pl_status st = g->open ? PL_OK : open_gpu(g, n, err);
    pthread_mutex_unlock(&opening);
    return st == PL_OK ? &g->be : NULL;
}

double pl_backend_cuda_room(const pl_backend *be) {
    size_t left = 0, all = 0;
    if (cudaSetDevice(gpu_with(be->memory)->number) != cudaSuccess || cudaMemGetInfo(&left, &all) != cudaSuccess)
        cudaGetLastError();
    return (double)left;
}

pl_status pl_backend_cuda_try(const char *name, pl_err *err) {
    static const char *const names[] = {"early"}; // in the order of the bits
    PL_CUDA(trial) = 0;
    if (!name || !*name) return PL_OK;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            PL_CUDA(trial) = 1u << i;
            return PL_OK;
        }
    return pl_fail(err, PL_E_USAGE, "--try %s: expected some of " PL_CUDA_TRIALS_SYNTAX, name);
}

void pl_backend_cuda_attention(char *out, size_t room) {
    PL_CUDA(cudnn_describe)(out, room);
}

void pl_backend_cuda_describe(char *out, size_t room) {
    int    driver = 0, runtime = 0;
    char   has[16], needs[16];
    pl_err err;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    version(has, sizeof has, driver);
    version(needs, sizeof needs, runtime);
    size_t used = (size_t)snprintf(out, room, "built for %s with CUDA %s; ", PL_CUDA_ARCHS, needs);
    int    n = used < room ? count(&err) : 0;
    if (n == 0 && used < room) snprintf(out + used, room - used, "%s", err.msg);
    if (n > 0 && used < room) used += (size_t)snprintf(out + used, room - used, "driver for %s", has);
    for (int i = 0; i < n && used < room; i++) {
        struct cudaDeviceProp p;
        if (cudaGetDeviceProperties(&p, i) == cudaSuccess)
            used += (size_t)snprintf(out + used, room - used, "; cuda:%d %s, sm_%d%d, %.1f GiB", i, p.name, p.major,
                                     p.minor, (double)p.totalGlobalMem / 1073741824);
    }
}

void pl_backend_cuda_pin(bool on) {
    pinned = on;
}
