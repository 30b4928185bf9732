extern "C" {
#include "tests/cuda/emulate/queue.h"
#include "tests/cuda/standin.h"
#include "tests/cuda/standin_nccl.h"
}
#include <algorithm>
#include <cuda_runtime_api.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sched.h>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vector>

namespace {
enum what { KERNEL, COPY, RECORD, WAIT, GRAPH };
enum { DEVICES = 2 };

struct node { // of a graph
    std::function<void()> work;
    std::vector<size_t>   after;
};
} // namespace

struct CUgraph_st {
    std::vector<node> nodes;
};
struct CUgraphExec_st {
    std::vector<node> nodes;
};
struct CUevent_st {
    uint64_t            asked = 0, done = 0; // records
    uint64_t            at = 0;              // work that had been done by then
    struct CUstream_st *captured = NULL;     // recorded while its origin's capture ran
    std::vector<size_t> nodes;
};
namespace {
struct item {
    what                  kind;
    std::function<void()> work;
    cudaEvent_t           event;
    uint64_t              version;
    std::function<bool()> goes; // of another library: whether it has gone on to its end
};
} // namespace
struct CUstream_st {
    std::vector<item>   items;
    what                last = COPY; // that was queued
    int                 device = 0;
    CUstream_st        *origin = NULL; // of the capture that it is part of
    std::vector<size_t> ends;          // the captured nodes that what comes next waits for
};

standin_counts standin_seen;

namespace {
std::recursive_mutex        lock;
std::vector<CUstream_st *>  streams;
CUstream_st                 standard;
thread_local CUgraph_st    *capturing;
thread_local int            current;   // device
std::map<uintptr_t, size_t> blocks[2]; // device, pinned
uint64_t                    drawn = 1, worked, fail_in, kernel_fails_in;
cudaError_t                 fail_with, last_error, kernel_fails_with, broken; // broken: what all calls say from then on
struct known {
    void (*call)(const void *, void **);
    std::vector<size_t> size;
    int                 room, carveout;
};
std::map<const void *, known> kernels;

[[noreturn]] void undefined(const char *what) {
    fprintf(stderr, "stand-in for CUDA: %s\n", what);
    abort();
}

unsigned draw(unsigned below) {
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(drawn >> 33) % below;
}

bool ready(const CUstream_st *s) {
    return !s->items.empty() && (s->items[0].kind != WAIT || s->items[0].event->done >= s->items[0].version) &&
           (!s->items[0].goes || s->items[0].goes());
}

void step_of(CUstream_st *s) {
    item i = std::move(s->items[0]);
    s->items.erase(s->items.begin());
    worked++;
    if (i.kind == RECORD) i.event->done = std::max(i.event->done, i.version), i.event->at = worked;
    if (i.work && !broken) i.work();
}

bool step() { // one piece of work of any stream that has some
    std::vector<CUstream_st *> can;
    for (CUstream_st *s : streams)
        if (ready(s)) can.push_back(s);
    if (ready(&standard)) can.push_back(&standard);
    if (can.empty()) return false;
    step_of(can[draw((unsigned)can.size())]);
    return true;
}

bool waits_outside() { // for another process
    for (CUstream_st *s : streams)
        if (!s->items.empty() && s->items[0].goes) return sched_yield() == 0;
    return false;
}

void finish(CUstream_st *s) { // half the time without more of the others than it needs
    const bool alone = draw(2) == 0;
    while (!s->items.empty())
        if (alone && ready(s))
            step_of(s);
        else if (!step() && !waits_outside())
            undefined("a stream waits for what never comes");
}

cudaError_t enter(bool opens) {
    standin_seen.calls++;
    if (opens) standin_seen.opened |= 1u << current;
    for (unsigned n = draw(4) == 0 ? draw(6) : 0; n > 0 && step(); n--)
        ;
    if (fail_in && --fail_in == 0) {
        standin_seen.failed = true;
        return last_error = fail_with;
    }
    return broken ? last_error = broken : cudaSuccess;
}
#define ENTER                                                                                                          \
    std::lock_guard<std::recursive_mutex> held(lock);                                                                  \
    if (cudaError_t refused = enter(true); refused != cudaSuccess) return refused
#define NOT_CAPTURING                                                                                                  \
    if (capturing) undefined("a call that a capture forbids")

const std::pair<const uintptr_t, size_t> *block_of(const void *p, int kind) {
    auto at = blocks[kind].upper_bound((uintptr_t)p);
    if (at == blocks[kind].begin()) return NULL;
    --at;
    return (uintptr_t)p < at->first + at->second ? &*at : NULL;
}

// Whether it is the device's or pinned; a range that leaves its block stops.
bool known_range(const void *p, size_t n) {
    for (int kind = 0; kind < 2; kind++)
        if (auto b = block_of(p, kind)) {
            if ((uintptr_t)p + n > b->first + b->second) undefined("a copy leaves its block");
            return true;
        }
    return false;
}

cudaError_t put(CUstream_st *s, what kind, std::function<void()> work, cudaEvent_t event = NULL) {
    if (!s) s = &standard;
    s->last = kind;
    if (!s->origin) {
        s->items.push_back({kind, std::move(work), event, event ? event->asked : 0});
        return cudaSuccess;
    }
    capturing->nodes.push_back({std::move(work), s->ends});
    s->ends = {capturing->nodes.size() - 1};
    return cudaSuccess;
}

void run_graph(const std::vector<node> &nodes) {
    std::vector<bool> done(nodes.size());
    for (size_t left = nodes.size(); left > 0; left--) {
        std::vector<size_t> can;
        for (size_t i = 0; i < nodes.size(); i++)
            if (!done[i] &&
                std::all_of(nodes[i].after.begin(), nodes[i].after.end(), [&](size_t a) { return done[a]; }))
                can.push_back(i);
        size_t i = can[draw((unsigned)can.size())];
        done[i] = true;
        if (!broken) nodes[i].work();
    }
}

void note(const pl_cuda_launch *l) {
    std::lock_guard<std::recursive_mutex> held(lock);
    known                                &k = kernels[l->kernel];
    k.call = l->call;
    k.size.assign(l->size, l->size + l->n_args);
}

struct here {
    here() { pl_emu_on_launch = note; }
} set;
} // namespace

void standin_fail(uint64_t n, int error) {
    fail_in = n;
    fail_with = (cudaError_t)error;
    standin_seen.failed = false;
    broken = last_error = cudaSuccess;
}
void standin_fail_kernel(uint64_t n, int error) {
    kernel_fails_in = n;
    kernel_fails_with = (cudaError_t)error;
}
void standin_seed(uint64_t seed) {
    drawn = seed * 2 + 1;
}
int standin_pending(void) {
    std::lock_guard<std::recursive_mutex> held(lock);
    size_t                                n = standard.items.size();
    for (const CUstream_st *s : streams)
        n += s->items.size();
    return (int)n;
}

extern "C" {
void standin_queue(CUstream_st *s, bool (*goes)(void *), void (*end)(void *), void *arg) {
    std::lock_guard<std::recursive_mutex> held(lock);
    if (!s || s->origin) undefined("a library's work on the standard stream, or in a capture");
    s->last = KERNEL;
    s->items.push_back({KERNEL, [=] { end(arg); }, NULL, 0, [=] { return goes(arg); }});
}
void standin_of_device(const void *p, size_t n) {
    std::lock_guard<std::recursive_mutex> held(lock);
    auto                                  b = block_of(p, 0);
    if (!b || (uintptr_t)p + n > b->first + b->second) undefined("a piece that is not in a block of the device");
}
bool pl_standin_reachable(const void *p) {
    std::lock_guard<std::recursive_mutex> held(lock);
    for (int kind = 0; kind < 2; kind++)
        if (block_of(p, kind) || block_of((const char *)p - 1, kind)) return true;
    return false;
}
bool pl_standin_of_host(const void *) {
    return false;
}
cudaError_t pl_cuda_probe_code(void) {
    return cudaSuccess;
}

// ---- asking
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "out of memory" : "a failure that was asked for";
}
cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
    *v = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) {
    *v = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n) {
    *n = DEVICES;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int) {
    *p = {};
    snprintf(p->name, sizeof p->name, "stand-in");
    p->major = 9;
    p->multiProcessorCount = 2;
    p->l2CacheSize = 1 << 20;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->memPitch = 1u << 31;
    p->totalGlobalMem = 1u << 31;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int n) { // since CUDA 12 it opens the device
    std::lock_guard<std::recursive_mutex> held(lock);
    if (n < 0 || n >= DEVICES) return last_error = cudaErrorInvalidDevice;
    current = n;
    return enter(true);
}
cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
    *left = *all = 1u << 31;
    return cudaSuccess;
}

// ---- memory
// Blocks of a kind lie one behind another, each on pages of its own, which nobody can touch once it is freed.
static void *next_block(size_t n, int kind) {
    enum : size_t { ROOM = (size_t)1 << 38, PAGE = 4096 };
    static uint8_t *room[2];
    static size_t   used[2];
    if (!room[kind])
        room[kind] =
            (uint8_t *)mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room[kind] == MAP_FAILED || used[kind] + n > ROOM) undefined("out of addresses");
    void *p = room[kind] + used[kind];
    used[kind] += (n + PAGE - 1) / PAGE * PAGE;
    return p;
}
static cudaError_t take(void **p, size_t n, int kind) {
    ENTER;
    NOT_CAPTURING;
    *p = next_block(n, kind);
    memset(*p, 0xff, n);
    blocks[kind][(uintptr_t)*p] = n;
    standin_seen.blocks++;
    return cudaSuccess;
}
static cudaError_t let_go(void *p, int kind) {
    std::lock_guard<std::recursive_mutex> held(lock);
    if (!p) return cudaSuccess;
    NOT_CAPTURING;
    standin_seen.opened |= 1u << current;
    for (CUstream_st *s : streams) // cudaFree waits for the device
        finish(s);
    finish(&standard);
    auto at = blocks[kind].find((uintptr_t)p);
    if (at == blocks[kind].end()) undefined("a block is freed that is none");
    madvise(p, at->second, MADV_DONTNEED);
    mprotect(p, at->second, PROT_NONE);
    blocks[kind].erase(at);
    standin_seen.blocks--;
    return broken;
}
cudaError_t cudaMalloc(void **p, size_t n) {
    return take(p, n, 0);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) {
    return take(p, n, 1);
}
cudaError_t cudaFree(void *p) {
    return let_go(p, 0);
}
cudaError_t cudaFreeHost(void *p) {
    return let_go(p, 1);
}

static cudaError_t copy_on(CUstream_st *s, void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    standin_seen.copies++;
    const bool to_device = block_of(to, 0), from_device = block_of(from, 0);
    if (to_device && !from_device) standin_seen.sent += n;
    if (kind != cudaMemcpyDefault &&
        (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
         from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)))
        undefined("a copy goes another way than it says");
    const bool from_known = known_range(from, n), to_known = known_range(to, n);
    if (!from_known) { // pageable: staged now
        std::vector<uint8_t> staged((const uint8_t *)from, (const uint8_t *)from + n);
        return put(s, COPY, [=] { memcpy(to, staged.data(), n); });
    }
    put(s, COPY, [=] { memcpy(to, from, n); });
    if (!to_known) { // pageable: there when the call returns
        NOT_CAPTURING;
        finish(s ? s : &standard);
    }
    return broken;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
    ENTER;
    return copy_on(s, to, from, n, kind);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    ENTER;
    NOT_CAPTURING;
    const bool staged = !known_range(from, n);
    copy_on(&standard, to, from, n, kind);
    if (!staged) finish(&standard); // from pageable memory it may still be under way
    return broken;
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                              enum cudaMemcpyKind, cudaStream_t s) {
    ENTER;
    known_range(to, to_pitch * (rows - 1) + width), known_range(from, from_pitch * (rows - 1) + width);
    return put(s, COPY, [=] {
        for (size_t i = 0; i < rows; i++)
            memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    });
}
cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s) {
    ENTER;
    if (!known_range(p, n)) undefined("a fill of no block");
    return put(s, COPY, [=] { memset(p, v, n); });
}
cudaError_t cudaMemset(void *p, int v, size_t n) {
    return cudaMemsetAsync(p, v, n, &standard);
}

// ---- streams and events
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    ENTER;
    streams.push_back(*s = new CUstream_st);
    (*s)->device = current;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    std::lock_guard<std::recursive_mutex> held(lock);
    finish(s);
    streams.erase(std::find(streams.begin(), streams.end(), s));
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    ENTER;
    NOT_CAPTURING;
    finish(s ? s : &standard);
    return broken;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
    ENTER;
    step();
    return broken ? broken : s->items.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize(void) {
    ENTER;
    NOT_CAPTURING;
    for (CUstream_st *s : streams)
        finish(s);
    finish(&standard);
    return broken;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    ENTER;
    *e = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) { // pieces of work, as microseconds
    ENTER;
    if (from->done < from->asked || to->done < to->asked) return last_error = cudaErrorNotReady;
    *ms = 1e-3f * ((float)to->at - (float)from->at);
    return cudaSuccess;
}
cudaError_t cudaFuncGetName(const char **name, const void *) {
    *name = "_ZN12_GLOBAL__N_110own_kernelEPf";
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    ENTER;
    e->captured = s->origin;
    if (s->origin) {
        e->nodes = s->ends;
        return cudaSuccess;
    }
    e->asked++;
    s->items.push_back({RECORD, {}, e, e->asked});
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    ENTER;
    if (s->origin && !e->captured) undefined("a capture waits for an event from outside it");
    if (e->captured) { // joins the capture
        if (!s->origin) s->origin = e->captured, s->ends.clear();
        s->ends.insert(s->ends.end(), e->nodes.begin(), e->nodes.end());
        s->last = WAIT;
        return cudaSuccess;
    }
    return put(s, WAIT, {}, e);
}

// ---- kernels
cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute which, int v) {
    ENTER;
    const bool carveout = which == cudaFuncAttributePreferredSharedMemoryCarveout;
    if (v > (carveout ? 100 : 227 << 10)) return last_error = cudaErrorInvalidValue;
    (carveout ? kernels[f].carveout : kernels[f].room) = v;
    return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **arg) {
    ENTER;
    auto of = kernels.find(f);
    if (of == kernels.end() || !of->second.call) undefined("a kernel that no launcher names");
    if (c->dynamicSmemBytes > 48 << 10 && (int)c->dynamicSmemBytes > of->second.room)
        undefined("more shared memory than was asked for");
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) {
            if (c->stream->last == WAIT) undefined("an early launch behind a wait for an event");
            if (of->second.carveout != 100) undefined("an early launch beside which a product finds no shared memory");
            standin_seen.early++;
        }
    if (c->stream && c->stream->device != current) undefined("a kernel on another device's stream");
    standin_seen.kernels++;
    pl_cuda_launch l = {};
    l.kernel = f, l.call = of->second.call;
    l.grid[0] = c->gridDim.x, l.grid[1] = c->gridDim.y, l.grid[2] = c->gridDim.z;
    l.threads = c->blockDim.x, l.room = c->dynamicSmemBytes, l.early = c->numAttrs > 0;
    std::vector<std::vector<uint8_t>> bytes;
    for (size_t i = 0; i < of->second.size.size(); i++)
        bytes.emplace_back((uint8_t *)arg[i], (uint8_t *)arg[i] + of->second.size[i]);
    return put(c->stream, KERNEL, [l, bytes]() mutable {
        std::vector<void *> at;
        for (auto &b : bytes)
            at.push_back(b.data());
        l.arg = at.data();
        if (kernel_fails_in && --kernel_fails_in == 0)
            broken = kernel_fails_with;
        else
            pl_emu_run(0, &l);
    });
}

// ---- graphs
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode) {
    ENTER;
    NOT_CAPTURING;
    standin_seen.captures++;
    capturing = new CUgraph_st;
    s->origin = s;
    s->ends.clear();
    s->last = COPY;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
    std::lock_guard<std::recursive_mutex> held(lock);
    standin_seen.calls++;
    std::set<size_t> inner;
    bool             joined = true;
    for (const node &n : capturing->nodes)
        inner.insert(n.after.begin(), n.after.end());
    for (size_t i = 0; i < capturing->nodes.size(); i++)
        joined &= inner.count(i) || std::find(s->ends.begin(), s->ends.end(), i) != s->ends.end();
    if (!joined && !standin_seen.failed && !broken) undefined("a captured way is not joined");
    for (CUstream_st *o : streams)
        if (o->origin == s) o->origin = NULL, o->ends.clear();
    *g = joined ? capturing : NULL;
    if (!joined) delete capturing;
    capturing = NULL;
    return joined ? cudaSuccess : last_error = cudaErrorStreamCaptureUnjoined;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long) {
    ENTER;
    *x = new CUgraphExec_st{g->nodes};
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    delete g;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
    delete x;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
    ENTER;
    standin_seen.graphs++;
    auto nodes = x->nodes; // it may be destroyed while it runs
    return put(s, GRAPH, [nodes] { run_graph(nodes); });
}
}
