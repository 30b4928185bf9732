// The emulated device as backends: the same launchers and kernels, with memory and a queue as device_emulated.h says.
#define _GNU_SOURCE 1 // mprotect
#include "tests/cuda/emulate/device_emulated.h"
#include "kernels/base/check.h"
#include "kernels/cuda/record.h"
#include "kernels/cuda/table.h"
#include "tests/cuda/emulate/queue.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// ---- memory of the strict device: a list of blocks ------------------------------------------------------------------

typedef struct block {
    struct block *next;
    uint8_t      *p, *twin; // twin: of a shared block (record.h), 0xff at first
    size_t        bytes;
    pl_place      place;
} block;

static pthread_mutex_t walls = PTHREAD_MUTEX_INITIALIZER;
static block          *blocks;
static int             inside; // contexts whose work runs: tensors can be touched

static void protect(const block *b, int how) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = ((b->bytes ? b->bytes : 1) + page - 1) / page * page;
    if (b->place == PL_LOCAL) PL_CHECK(mprotect(b->p, n, how) == 0, "mprotect of %zu bytes", n);
}

static void open_walls(void) {
    pthread_mutex_lock(&walls);
    for (block *b = inside++ == 0 ? blocks : NULL; b; b = b->next)
        protect(b, PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&walls);
}

static void close_walls(void) {
    pthread_mutex_lock(&walls);
    for (block *b = --inside == 0 ? blocks : NULL; b; b = b->next)
        protect(b, PROT_NONE);
    pthread_mutex_unlock(&walls);
}

static void *create(const pl_memory *m, pl_place place, size_t bytes, pl_err *err) {
    (void)m;
    block *b = pl_calloc(1, sizeof *b);
    if (!b) {
        pl_fail(err, PL_E_MEMORY, "emulated: out of memory");
        return NULL;
    }
    *b = (block){.bytes = bytes, .place = place, .p = pl_block_create(bytes, err)};
    if (b->p && place == PL_SHARED) b->twin = pl_block_create(bytes, err);
    if (!b->p || (place == PL_SHARED && !b->twin)) {
        if (b->p) pl_block_destroy(b->p, bytes);
        pl_free(b);
        return NULL;
    }
    if (b->twin) memset(b->twin, 0xff, bytes);
    void *p = b->p;
    pthread_mutex_lock(&walls);
    b->next = blocks;
    blocks = b;
    if (inside == 0) protect(b, PROT_NONE);
    pthread_mutex_unlock(&walls);
    return p;
}

static void destroy(const pl_memory *m, pl_place place, void *p, size_t bytes) {
    (void)m, (void)place;
    pthread_mutex_lock(&walls);
    block **at = &blocks, *b;
    while (*at && (*at)->p != p)
        at = &(*at)->next;
    b = *at;
    PL_CHECK(b && b->bytes == bytes, "emulated: no block of %zu bytes at %p", bytes, p);
    *at = b->next;
    pthread_mutex_unlock(&walls);
    if (b->twin) pl_block_destroy(b->twin, b->bytes);
    pl_block_destroy(b->p, b->bytes);
    pl_free(b);
}

static pl_status transfer(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err) {
    (void)m, (void)err;
    open_walls();
    memcpy(to, from, bytes);
    close_walls();
    return PL_OK;
}

bool pl_emu_reachable(const void *p) {
    bool found = false;
    pthread_mutex_lock(&walls);
    for (const block *b = blocks; b && !found; b = b->next)
        found = ((const uint8_t *)p >= b->p && (const uint8_t *)p <= b->p + b->bytes) ||
                (b->twin && (const uint8_t *)p >= b->twin && (const uint8_t *)p <= b->twin + b->bytes);
    pthread_mutex_unlock(&walls);
    return found;
}

bool pl_emu_shared(const void *p) {
    bool found = false;
    pthread_mutex_lock(&walls);
    for (const block *b = blocks; b && !found; b = b->next)
        found = b->place == PL_SHARED && (const uint8_t *)p >= b->p && (const uint8_t *)p < b->p + b->bytes;
    pthread_mutex_unlock(&walls);
    return found;
}

bool pl_emu_of_host(const void *p) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)p;
    if (at >> 46 == 0 || at >> 47 != 0 || pl_emu_reachable(p)) return false;
    return msync((void *)(at / page * page), page, MS_ASYNC) == 0; // fails where nothing is mapped
}

// ---- contexts -------------------------------------------------------------------------------------------------------

typedef struct own {
    pl_cuda_state state;
    pl_cuda_fault fault;
} own;

static const size_t    tickets = 2 * PL_CUDA_TICKETS * sizeof(unsigned); // and a branch's
static const pl_memory memory;

static pl_status open_on(pl_ctx *ctx, const pl_memory *m, pl_err *err) {
    own *o = pl_memory_create(m, PL_SHARED, sizeof *o + tickets, err);
    if (!o) return PL_E_MEMORY;
    o->fault = (pl_cuda_fault)PL_NO_FAULTS;
    // Two multiprocessors: enough blocks for work to be split among them, few enough for each to have several pieces.
    o->state =
        (pl_cuda_state){.sms = 2, .room = 227 << 10, .fault = &o->fault, .ticket = (unsigned *)(o + 1), .op = "none"};
    o->state.spare = o->state.ticket + PL_CUDA_TICKETS;
    ctx->state = o;
    return PL_OK;
}

static pl_status open_plain(pl_ctx *ctx, pl_err *err) {
    return open_on(ctx, NULL, err);
}

static void close_plain(pl_ctx *ctx) {
    pl_memory_destroy(NULL, PL_SHARED, ctx->state, sizeof(own) + tickets);
    ctx->state = NULL;
}

static pl_status open_queued(pl_ctx *ctx, pl_err *err) {
    PL_TRY(open_on(ctx, &memory, err));
    own *o = ctx->state;
    o->state.stream = pl_emu_queue_create();
    o->state.record = PL_CUDA(record_open)(true);
    if (o->state.stream && o->state.record) return PL_OK;
    if (o->state.stream) pl_emu_queue_destroy(o->state.stream);
    PL_CUDA(record_close)(o->state.record);
    pl_memory_destroy(&memory, PL_SHARED, o, sizeof *o + tickets);
    ctx->state = NULL;
    return pl_fail(err, PL_E_MEMORY, "emulated: context: out of memory");
}

static void close_queued(pl_ctx *ctx) {
    own *o = ctx->state;
    PL_CUDA(record_close)(o->state.record);
    pl_emu_queue_destroy(o->state.stream);
    pl_memory_destroy(&memory, PL_SHARED, o, sizeof *o + tickets);
    ctx->state = NULL;
}

static void *queue_of(const pl_ctx *ctx) {
    return ((const own *)ctx->state)->state.stream;
}

static void drain(pl_ctx *ctx) {
    pl_cuda_state_of(ctx)->waits++;
    PL_CUDA(record_flush)(ctx);
    PL_CUDA(record_waited)(pl_cuda_state_of(ctx)->record);
    open_walls();
    pl_emu_queue_run(queue_of(ctx));
    close_walls();
}

static void copy_out(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    PL_CUDA(settle)(ctx);
    pl_cuda_state_of(ctx)->rounded.of = NULL;
    if (queue_of(ctx)) {
        drain(ctx);
        transfer(NULL, to, from, bytes, NULL);
    } else {
        memcpy(to, from, bytes);
    }
}

static void copy(pl_ctx *ctx, void *to, const void *from, size_t bytes, size_t pitch, size_t n) {
    pl_cuda_state_of(ctx)->rounded.of = NULL;
    PL_CUDA(record_flush)(ctx);
    pl_emu_copy(queue_of(ctx), to, from, bytes, pitch, n);
}

static void zero(pl_ctx *ctx, void *to, size_t bytes) {
    pl_cuda_state_of(ctx)->rounded.of = NULL;
    PL_CUDA(record_flush)(ctx);
    pl_emu_zero(queue_of(ctx), to, bytes);
}

static void wait_for(pl_ctx *ctx) {
    own *o = ctx->state;
    PL_CUDA(settle)(ctx);
    if (o->state.stream)
        drain(ctx);
    else
        pl_emu_waited(NULL);
    PL_CUDA(faults)(ctx, &o->fault);
    o->fault = (pl_cuda_fault)PL_NO_FAULTS;
    for (int i = 0; i < PL_CUDA_TICKETS; i++)
        PL_CHECK(o->state.ticket[i] == 0 && o->state.spare[i] == 0, "op %s left ticket %d at %u, %u", o->state.op, i,
                 o->state.ticket[i], o->state.spare[i]);
}

bool PL_CUDA(enter)(pl_ctx *ctx) {
    (void)ctx;
    return true;
}

void PL_CUDA(submit)(pl_ctx *ctx, const pl_cuda_launch *l) {
    pl_emu_submit(queue_of(ctx), l);
}

// The queue keeps a branch's launches until one of the others joins it.
void PL_CUDA(meet)(pl_ctx *ctx) {
    if (queue_of(ctx)) pl_emu_join(queue_of(ctx));
}

static void spoil(const void *kernel, void **arg) {
    (void)kernel;
    memset(*(void **)arg[0], 0xff, *(size_t *)arg[1]);
}

// NaN, until the branch has written them.
void PL_CUDA(apart)(pl_ctx *ctx, void *p, size_t bytes) {
    void          *arg[] = {&p, &bytes};
    const size_t   size[] = {sizeof p, sizeof bytes};
    pl_cuda_launch l = {.call = spoil, .grid = {1, 1, 1}, .threads = 32, .arg = arg, .size = size, .n_args = 2};
    if (queue_of(ctx) && bytes) PL_CUDA(launch)(ctx, &l);
}

// Libraries' stand-ins compute at once.
void PL_CUDA(queued)(pl_ctx *ctx) {
    (void)ctx;
}

// ---- steps that repeat ----------------------------------------------------------------------------------------------

bool PL_CUDA(unseen)(const pl_ctx *ctx) {
    return queue_of(ctx) && !ctx->tape;
}

bool PL_CUDA(records)(const pl_ctx *ctx) {
    return ctx->repeats && PL_CUDA(unseen)(ctx);
}

typedef struct captured { // a graph: the launches themselves
    size_t  n;
    uint8_t bytes[];
} captured;

void *PL_CUDA(capture)(pl_ctx *ctx, const uint8_t *bytes, size_t n) {
    (void)ctx;
    captured *c = pl_malloc(sizeof *c + n);
    if (!c) return NULL;
    c->n = n;
    memcpy(c->bytes, bytes, n);
    return c;
}

void PL_CUDA(replay)(pl_ctx *ctx, void *graph) {
    const captured *c = graph;
    void           *arg[PL_RECORD_ARGS];
    pl_cuda_launch  l;
    for (size_t at = 0; PL_CUDA(record_next)(c->bytes, c->n, &at, &l, arg);)
        PL_CUDA(submit)(ctx, &l);
}

void PL_CUDA(drop)(void *graph) {
    pl_free(graph);
}

void *PL_CUDA(twin)(const pl_ctx *ctx, const void *p, size_t bytes) {
    const uint8_t *at = p;
    void          *found = NULL;
    (void)ctx;
    pthread_mutex_lock(&walls);
    for (const block *b = blocks; b && !found; b = b->next)
        if (b->twin && at >= b->p && at + bytes <= b->p + b->bytes) found = b->twin + (at - b->p);
    pthread_mutex_unlock(&walls);
    return found;
}

void PL_CUDA(send)(pl_ctx *ctx, const pl_cuda_array *array, int n) {
    for (int i = 0; i < n; i++)
        pl_emu_send(queue_of(ctx), array[i].to, array[i].from, array[i].bytes);
}

// ---- the two backends -----------------------------------------------------------------------------------------------

static void *create_plain(const pl_memory *m, pl_place place, size_t bytes, pl_err *err) {
    (void)m, (void)place;
    return pl_block_create(bytes, err);
}

static void destroy_plain(const pl_memory *m, pl_place place, void *p, size_t bytes) {
    (void)m, (void)place;
    pl_block_destroy(p, bytes);
}

static pl_status transfer_plain(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err) {
    (void)m, (void)err;
    memcpy(to, from, bytes);
    return PL_OK;
}

static const pl_memory memory = {
    .name = "emulated", .host = true, .create = create, .destroy = destroy, .write = transfer, .read = transfer};

#define DEVICE(opens, closes)                                                                                          \
    {                                                                                                                  \
        .open = opens, .close = closes, .upload = copy_out, .download = copy_out, .copy = copy, .zero = zero,          \
        .wait = wait_for, .fork = PL_CUDA(fork), .back = PL_CUDA(back), .join = PL_CUDA(join)                          \
    }

const pl_backend *pl_backend_cuda_emulated(void) {
    static const pl_memory plain = {.name = "cuda-emulated",
                                    .create = create_plain,
                                    .destroy = destroy_plain,
                                    .write = transfer_plain,
                                    .read = transfer_plain};
    static const pl_device device = DEVICE(open_plain, close_plain);
    static pl_backend      be = {
             .name = "cuda-emulated", .arithmetic = "cuda-emulated-3", .real = PL_F32, .memory = &plain, .device = &device};
    PL_CUDA(fill)(&be);
    return &be;
}

const pl_backend *pl_backend_emulated(void) {
    static const pl_device device = DEVICE(open_queued, close_queued);
    static pl_backend      be = {
             .name = "emulated", .arithmetic = "cuda-emulated-3", .real = PL_F32, .memory = &memory, .device = &device};
    PL_CUDA(fill)(&be);
    return &be;
}
