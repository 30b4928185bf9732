#include "kernels/cuda/record.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include <string.h>

// Kept form: this, then the arguments' sizes, then the arguments, each at a multiple of ALIGN. All padding is zero, so
// that equal launches are equal bytes.
typedef struct kept {
    pl_cuda_launch launch; // arg and size are not kept
    uint64_t       bytes;  // from here to the next
} kept;

enum { ALIGN = 16, SEEN = 1024 };

typedef struct graph {
    uint64_t hash, used;
    uint8_t *bytes;
    size_t   n;
    void    *exec;
} graph;

struct pl_record {
    bool          graphs;
    int           launches; // kept launches
    int           room;     // capacity in launches
    size_t        used;     // bytes of the kept launches
    size_t        last;     // offset of the last one
    uint8_t       bytes[PL_RECORD_BYTES];
    graph         graph[PL_RECORD_GRAPHS];
    int           n_graphs;
    uint64_t      clock;
    uint64_t      seen[SEEN], n_seen; // hashes of the last sequences that came once, cyclic, and their number
    pl_cuda_array array[PL_RECORD_ARRAYS];
    int           n_arrays, n_sent; // arrays since the last wait; sent ones
};

pl_record *PL_CUDA(record_open)(bool graphs) {
    pl_record *r = pl_calloc(1, sizeof *r);
    if (!r) return NULL;
    r->graphs = graphs;
    r->room = PL_RECORD_FIRST;
    return r;
}

static void forget(graph *g) {
    PL_CUDA(drop)(g->exec);
    pl_free(g->bytes);
    *g = (graph){0};
}

void PL_CUDA(record_close)(pl_record *r) {
    for (int i = 0; r && i < r->n_graphs; i++)
        forget(&r->graph[i]);
    pl_free(r);
}

static size_t up(size_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void flush(pl_ctx *ctx);

// Sets the way of a launch, by the state of the branch.
static void direct(pl_cuda_state *s, pl_cuda_launch *l) {
    l->aside = s->aside;
    l->parts = s->aside && !s->parted;
    l->joins = !s->aside && s->joining;
    l->meets = l->joins && s->parted;
    s->parted = s->aside || (s->parted && !l->meets);
    s->joining = s->joining && !l->joins;
}

static void keep(pl_ctx *ctx, const pl_cuda_launch *l) {
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    pl_record     *r = s->record;
    size_t         head = up(sizeof(kept) + (size_t)l->n_args * sizeof(size_t)), bytes = head;
    PL_CHECK(l->n_args <= PL_RECORD_ARGS, "a kernel of %d arguments", l->n_args);
    for (int i = 0; i < l->n_args; i++)
        bytes += up(l->size[i]);
    PL_CHECK(bytes <= PL_RECORD_BYTES, "a launch of %zu bytes", bytes);
    int room = s->parted ? PL_RECORD_LAUNCHES : r->room; // a branch is not cut for an early start
    if (r->launches >= room || r->used + bytes > PL_RECORD_BYTES) flush(ctx);
    uint8_t *at = r->bytes + r->used;
    memset(at, 0, bytes);
    kept *k = (kept *)(void *)at;
    r->last = r->used;
    k->launch.kernel = l->kernel;
    k->launch.call = l->call;
    memcpy(k->launch.grid, l->grid, sizeof l->grid);
    k->launch.threads = l->threads;
    k->launch.room = l->room;
    k->launch.n_args = l->n_args;
    k->launch.early = l->early;
    direct(s, &k->launch);
    k->bytes = bytes;
    memcpy(at + sizeof *k, l->size, (size_t)l->n_args * sizeof(size_t));
    at += head;
    for (int i = 0; i < l->n_args; at += up(l->size[i++]))
        memcpy(at, l->arg[i], l->size[i]);
    r->used += bytes;
    r->launches++;
}

void PL_CUDA(launch)(pl_ctx *ctx, const pl_cuda_launch *l) {
    if (PL_CUDA(records)(ctx)) {
        keep(ctx, l);
        return;
    }
    flush(ctx);
    pl_cuda_launch own = *l;
    direct(pl_cuda_state_of(ctx), &own);
    PL_CUDA(submit)(ctx, &own);
}

void *PL_CUDA(stream)(pl_ctx *ctx) {
    PL_CHECK(!pl_cuda_state_of(ctx)->aside, "a library in a branch");
    PL_CUDA(record_flush)(ctx);
    return pl_cuda_state_of(ctx)->stream;
}

bool PL_CUDA(record_next)(const uint8_t *bytes, size_t n, size_t *at, pl_cuda_launch *l, void *arg[PL_RECORD_ARGS]) {
    if (*at >= n) return false;
    const kept    *k = (const kept *)(const void *)(bytes + *at);
    const size_t  *size = (const size_t *)(const void *)(k + 1);
    const uint8_t *from = (const uint8_t *)k + up(sizeof *k + (size_t)k->launch.n_args * sizeof *size);
    *l = k->launch;
    for (int i = 0; i < l->n_args; from += up(size[i++]))
        arg[i] = (void *)(uintptr_t)from;
    l->arg = arg;
    l->size = size;
    *at += k->bytes;
    return true;
}

static graph *find(pl_record *r, uint64_t hash) {
    for (int i = 0; i < r->n_graphs; i++) {
        graph *g = &r->graph[i];
        if (g->hash == hash && g->n == r->used && memcmp(g->bytes, r->bytes, r->used) == 0) return g;
    }
    return NULL;
}

// Searches all: with direct-mapped entries two sequences could evict each other in every step.
static bool came_before(pl_record *r, uint64_t hash) {
    for (int i = 0; i < SEEN; i++)
        if (r->seen[i] == hash) return true;
    r->seen[r->n_seen++ % SEEN] = hash;
    return false;
}

// Returns a graph of the kept launches if they came before; the least recently used one is evicted. NULL: no graph.
static graph *make(pl_ctx *ctx, pl_record *r, uint64_t hash) {
    if (!came_before(r, hash)) return NULL;
    uint8_t *bytes = pl_malloc(r->used);
    void    *exec = bytes ? PL_CUDA(capture)(ctx, r->bytes, r->used) : NULL;
    if (!exec) { // no graphs from here on
        pl_free(bytes);
        r->graphs = false;
        pl_log_warn("%s: no graph of %d launches; they go one by one", ctx->be->name, r->launches);
        return NULL;
    }
    memcpy(bytes, r->bytes, r->used);
    graph *g = &r->graph[0];
    if (r->n_graphs < PL_RECORD_GRAPHS) {
        g = &r->graph[r->n_graphs++];
    } else {
        for (int i = 1; i < r->n_graphs; i++)
            if (r->graph[i].used < g->used) g = &r->graph[i];
        forget(g);
    }
    *g = (graph){.hash = hash, .bytes = bytes, .n = r->used, .exec = exec};
    pl_cuda_state_of(ctx)->captured++;
    return g;
}

static void launch_each(pl_ctx *ctx, const pl_record *r) {
    void          *arg[PL_RECORD_ARGS];
    pl_cuda_launch l;
    for (size_t at = 0; ctx->err.status == PL_OK && PL_CUDA(record_next)(r->bytes, r->used, &at, &l, arg);)
        PL_CUDA(submit)(ctx, &l);
}

static void flush(pl_ctx *ctx) {
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    pl_record     *r = s->record;
    if (!r || r->launches == 0) return;
    if (s->parted) ((kept *)(void *)(r->bytes + r->last))->launch.ends = true;
    s->parted = false;
    if (ctx->err.status == PL_OK && r->n_sent < r->n_arrays)
        PL_CUDA(send)(ctx, r->array + r->n_sent, r->n_arrays - r->n_sent);
    r->n_sent = r->n_arrays;
    if (ctx->err.status == PL_OK) {
        bool     asked = r->graphs && r->launches > 1;
        uint64_t hash = asked ? pl_hash(r->bytes, r->used) : 0;
        graph   *g = asked ? find(r, hash) : NULL;
        if (!g && asked) g = make(ctx, r, hash);
        if (g) {
            g->used = ++r->clock;
            s->replayed++;
            PL_CUDA(replay)(ctx, g->exec);
        } else {
            launch_each(ctx, r);
        }
    }
    r->launches = 0;
    r->used = 0;
    r->room = PL_RECORD_LAUNCHES;
}

void PL_CUDA(record_flush)(pl_ctx *ctx) {
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    PL_CUDA(settle)(ctx);
    flush(ctx);
    if ((s->parted || s->joining) && ctx->err.status == PL_OK) PL_CUDA(meet)(ctx);
    s->parted = s->joining = false;
}

static void change_tickets(pl_cuda_state *s) {
    unsigned *other = s->spare;
    s->spare = s->ticket;
    s->ticket = other;
}

void PL_CUDA(fork)(pl_ctx *ctx) {
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    PL_CUDA(record_flush)(ctx);
    change_tickets(s);
    s->aside = true;
    s->forked = ctx->frame.used;
}

void PL_CUDA(back)(pl_ctx *ctx) {
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    PL_CUDA(settle)(ctx); // on the branch
    change_tickets(s);
    s->aside = false;
    if (ctx->frame.base && ctx->err.status == PL_OK)
        PL_CUDA(apart)(ctx, ctx->frame.base + s->forked, ctx->frame.used - s->forked);
}

void PL_CUDA(join)(pl_ctx *ctx) {
    pl_cuda_state_of(ctx)->joining = true;
}

void PL_CUDA(record_waited)(pl_record *r) {
    if (!r) return;
    r->n_arrays = r->n_sent = 0;
    r->room = PL_RECORD_FIRST;
}

const void *PL_CUDA(index)(pl_ctx *ctx, const void *p, size_t bytes) {
    const bool later = PL_CUDA(records)(ctx); // with the launches
    pl_record *r = pl_cuda_state_of(ctx)->record;
    void      *to = p && r && (later || ctx->tape) ? PL_CUDA(twin)(ctx, p, bytes) : NULL;
    if (!to) return p;
    for (int i = r->n_arrays - 1; i >= 0; i--) {
        const pl_cuda_array *a = &r->array[i];
        const uint8_t       *from = a->from;
        if ((const uint8_t *)p >= from && (const uint8_t *)p + bytes <= from + a->bytes) return to;
    }
    if (r->n_arrays == PL_RECORD_ARRAYS) return p; // read over the bus instead
    r->array[r->n_arrays++] = (pl_cuda_array){.from = p, .to = to, .bytes = bytes};
    if (later) return to;
    PL_CUDA(send)(ctx, r->array + r->n_sent, r->n_arrays - r->n_sent);
    r->n_sent = r->n_arrays;
    return to;
}
