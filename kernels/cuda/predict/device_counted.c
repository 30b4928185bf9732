// The counted device (predict.h): the backend's launchers, whose launches are counted instead of run.
#define _GNU_SOURCE 1 // MAP_NORESERVE
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include "kernels/cuda/predict/count.h"
#include "kernels/cuda/record.h"
#include "kernels/cuda/table.h"
#include <string.h>
#include <sys/mman.h>

// ---- memory that is mapped and never filled ----

typedef struct block {
    struct block  *next;
    const uint8_t *p;
    size_t         bytes;
} block;

static block *blocks; // one thread's: a recorder's

static void *create(const pl_memory *m, pl_place place, size_t bytes, pl_err *err) {
    (void)m;
    block *b = pl_calloc(1, sizeof *b);
    void  *p = b ? mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (place == PL_LOCAL ? MAP_NORESERVE : 0), -1, 0)
                 : MAP_FAILED;
    if (p == MAP_FAILED) {
        pl_free(b);
        pl_fail(err, PL_E_MEMORY, "counted: no room to map %zu bytes", bytes);
        return NULL;
    }
    *b = (block){.next = blocks, .p = p, .bytes = bytes};
    blocks = b;
    return p;
}

static void destroy(const pl_memory *m, pl_place place, void *p, size_t bytes) {
    (void)m, (void)place;
    block **at = &blocks;
    while (*at && (*at)->p != p)
        at = &(*at)->next;
    PL_CHECK(*at, "counted: no block at %p", p);
    block *b = *at;
    *at = b->next;
    munmap(p, bytes ? bytes : 1);
    pl_free(b);
}

static pl_status write_nothing(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err) {
    (void)m, (void)to, (void)from, (void)bytes, (void)err;
    return PL_OK;
}

static pl_status read_zeros(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err) {
    (void)m, (void)from, (void)err;
    memset(to, 0, bytes);
    return PL_OK;
}

size_t pl_counted_block(const void *p) {
    for (const block *b = blocks; b; b = b->next)
        if ((uintptr_t)p - (uintptr_t)b->p < b->bytes) return b->bytes;
    return 0;
}

// ---- contexts ----

typedef struct own {
    pl_cuda_state state;
    pl_cuda_fault fault;
    unsigned      ticket[2 * PL_CUDA_TICKETS];
} own;

static const pl_memory memory = {
    .name = "counted", .create = create, .destroy = destroy, .write = write_nothing, .read = read_zeros};

static pl_status open_counted(pl_ctx *ctx, pl_err *err) {
    own *o = create(&memory, PL_SHARED, sizeof *o, err);
    if (!o) return PL_E_MEMORY;
    o->fault = (pl_cuda_fault)PL_NO_FAULTS;
    o->state = (pl_cuda_state){.sms = (int)pl_gpu(PL_GPU_MULTIPROCESSORS, PL_CENTRAL),
                               .room = 227 << 10,
                               .fault = &o->fault,
                               .ticket = o->ticket,
                               .spare = o->ticket + PL_CUDA_TICKETS,
                               .op = "none"};
    ctx->state = o;
    return PL_OK;
}

static void close_counted(pl_ctx *ctx) {
    destroy(&memory, PL_SHARED, ctx->state, sizeof(own));
    ctx->state = NULL;
}

static void upload(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    (void)to, (void)from, (void)bytes;
    PL_CUDA(settle)(ctx);
    pl_cuda_state_of(ctx)->rounded.of = NULL;
}

static void download(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    upload(ctx, to, from, bytes);
    memset(to, 0, bytes);
}

static void copy(pl_ctx *ctx, void *to, const void *from, size_t bytes, size_t pitch, size_t n) {
    (void)pitch, (void)n;
    upload(ctx, to, from, bytes);
}

static void zero(pl_ctx *ctx, void *to, size_t bytes) {
    upload(ctx, to, NULL, bytes);
}

static void wait_for(pl_ctx *ctx) {
    PL_CUDA(settle)(ctx);
    pl_cuda_state_of(ctx)->waits++;
}

bool PL_CUDA(enter)(pl_ctx *ctx) {
    (void)ctx;
    return true;
}

// ---- launches ----

static pl_prediction *recorder;

// Launches that differ in addresses alone are the same: of words that lead into the device's blocks counts whether the
// block fits into the L2 cache.
static uint64_t key_of(const pl_cuda_launch *l) {
    struct {
        const void *kernel;
        size_t      room;
        unsigned    grid[3], threads;
    } head = {.kernel = l->kernel, .room = l->room, .threads = l->threads};
    memcpy(head.grid, l->grid, sizeof head.grid);
    uint64_t key = pl_hash(&head, sizeof head);
    for (int i = 0; i < l->n_args; i++)
        for (size_t at = 0; at < l->size[i]; at += sizeof(void *)) {
            uint64_t    word = 0;
            size_t      n = l->size[i] - at < sizeof word ? l->size[i] - at : sizeof word;
            const void *p;
            memcpy(&word, (const uint8_t *)l->arg[i] + at, n);
            p = (const void *)(uintptr_t)word;
            size_t   room = pl_counted_block(p);
            uint64_t into = 1 + ((double)room > pl_gpu(PL_GPU_L2_BYTES, PL_CENTRAL)); // counted otherwise
            uint64_t pair[2] = {key, room ? into : word};
            key = pl_hash(pair, sizeof pair);
        }
    return key;
}

pl_predicted_kernel *pl_counted_launch(const pl_ctx *ctx, uint64_t key, bool *again) {
    pl_prediction *p = recorder;
    int            at = 0;
    if (!p) return NULL;
    while (at < p->n && p->k[at].key != key)
        at++;
    if (at == PL_PREDICT_KERNELS || p->launched == PL_PREDICT_LAUNCHES) {
        p->left++;
        return NULL;
    }
    pl_predicted_kernel *k = &p->k[at];
    p->order[p->launched++] = (uint16_t)at;
    k->launches++;
    *again = at < p->n;
    if (!*again) p->n++;
    k->key = key;
    k->op = pl_cuda_state_of(ctx)->op;
    return k;
}

void PL_CUDA(submit)(pl_ctx *ctx, const pl_cuda_launch *l) {
    own                 *o = ctx->state;
    bool                 again;
    pl_predicted_kernel *k = l->kernel ? pl_counted_launch(ctx, key_of(l), &again) : NULL;
    if (!k) return;
    recorder->way[recorder->launched - 1] = l->aside ? PL_ASIDE : l->meets ? PL_MEETS : PL_MAIN;
    if (again) return;
    k->blocks = (int64_t)l->grid[0] * l->grid[1] * l->grid[2];
    k->threads = (int)l->threads;
    k->room = l->room;
    k->early = l->early;
    pl_count_launch(l, &k->c);
    memset(o->ticket, 0, sizeof o->ticket); // of blocks that did not all come
    o->fault = (pl_cuda_fault)PL_NO_FAULTS; // what zeros lead to is no fault
}

void pl_predict_begin(pl_prediction *p) {
    *p = (pl_prediction){0};
    recorder = p;
}

void pl_predict_end(pl_prediction *p) {
    recorder = NULL;
    for (int i = 0; i < p->n; i++)
        pl_predict_kernel(&p->k[i]);
    pl_predict_sequence(p);
}

void PL_CUDA(meet)(pl_ctx *ctx) {
    (void)ctx;
}

void PL_CUDA(apart)(pl_ctx *ctx, void *p, size_t bytes) {
    (void)ctx, (void)p, (void)bytes;
}

void PL_CUDA(queued)(pl_ctx *ctx) {
    (void)ctx;
}

bool PL_CUDA(unseen)(const pl_ctx *ctx) {
    return !ctx->tape;
}

// No launch is kept, so none of these is called.
bool PL_CUDA(records)(const pl_ctx *ctx) {
    (void)ctx;
    return false;
}

void *PL_CUDA(capture)(pl_ctx *ctx, const uint8_t *bytes, size_t n) {
    (void)ctx, (void)bytes, (void)n;
    return NULL;
}

void PL_CUDA(replay)(pl_ctx *ctx, void *graph) {
    (void)ctx, (void)graph;
}

void PL_CUDA(drop)(void *graph) {
    (void)graph;
}

void *PL_CUDA(twin)(const pl_ctx *ctx, const void *p, size_t bytes) {
    (void)ctx, (void)p, (void)bytes;
    return NULL;
}

void PL_CUDA(send)(pl_ctx *ctx, const pl_cuda_array *array, int n) {
    (void)ctx, (void)array, (void)n;
}

const pl_backend *pl_backend_counted(void) {
    static const pl_device device = {.open = open_counted,
                                     .close = close_counted,
                                     .upload = upload,
                                     .download = download,
                                     .copy = copy,
                                     .zero = zero,
                                     .wait = wait_for,
                                     .fork = PL_CUDA(fork),
                                     .back = PL_CUDA(back),
                                     .join = PL_CUDA(join)};
    static pl_backend      be = {
             .name = "counted", .arithmetic = "none", .real = PL_F32, .memory = &memory, .device = &device};
    PL_CUDA(fill)(&be);
    return &be;
}
