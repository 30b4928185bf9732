// Ranks above 0 of a target that lies over ranks: they do what rank 0 sends, until it ends them or a rank fails.
#include "infer/model/kv.h"
#include "infer/model/llama.h"
#include "infer/model/tp_orders.h"
#include "kernels/base/check.h"
#include "kernels/base/room.h"
#include "kernels/op/gather.h"

#include <string.h>

typedef struct model {
    int           id;
    pl_llama      llama;
    struct model *next;
} model;

// What answers to rank 0's decode engine: its caches and the rows of one forward.
typedef struct caches {
    int             id;
    const pl_llama *m;
    pl_tp_sizes     sizes;
    pl_ctx          ctx;
    pl_kv          *kv;     // [sessions]
    pl_arena        arrays; // what ops read beside tensors
    int32_t        *token, *pos, *path, *logits;
    pl_kvrow       *row; // [layers][rows]
    int             rows, n_logits;
    struct caches  *next;
} caches;

typedef struct follower {
    pl_comm          *comm;
    const pl_backend *be;
    pl_pool          *pool;
    model            *models;
    caches           *caches;
    uint8_t          *data; // of the order
    size_t            room;
} follower;

// ---- models

static pl_status agree(pl_comm *c, char fingerprint[17], pl_err *err) {
    char first[17];
    memcpy(first, fingerprint, sizeof first);
    PL_TRY(pl_comm_broadcast(c, first, sizeof first, err));
    first[16] = 0;
    if (strcmp(first, fingerprint) == 0) return PL_OK;
    return pl_fail(err, PL_E_USAGE, "its target is %s, rank 0's is %s; give all ranks the same files", fingerprint,
                   first);
}

pl_status pl_tp_agree(pl_comm *c, char fingerprint[17], pl_err *err) {
    PL_TRY(agree(c, fingerprint, err));
    return pl_comm_barrier(c, err); // all have opened theirs
}

static pl_status open_model(follower *f, const pl_tp_order *o, pl_err *err) {
    model *m = pl_calloc(1, sizeof *m);
    if (!m) return pl_fail(err, PL_E_MEMORY, "target: out of memory");
    PL_CHECK(o->bytes > 0 && f->data[o->bytes - 1] == 0, "a path of %lld bytes", (long long)o->bytes);
    pl_status st = pl_llama_open_part(&m->llama, (const char *)f->data, (pl_dtype)o->n, f->be, f->comm, err);
    if (st != PL_OK) {
        pl_free(m);
        return st;
    }
    m->id = o->id;
    m->next = f->models;
    f->models = m;
    return pl_tp_agree(f->comm, m->llama.fingerprint, err);
}

static model *find_model(follower *f, int id) {
    model *m = f->models;
    while (m && m->id != id)
        m = m->next;
    PL_CHECK(m, "target %d is not open", id);
    return m;
}

static void close_model(follower *f, model *m) {
    model **at = &f->models;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    pl_llama_fini(&m->llama);
    pl_free(m);
}

// ---- caches

static void take_arrays(void *arg) {
    caches *k = arg;
    size_t  rows = (size_t)k->sizes.rows;
    k->token = pl_arena_alloc(&k->arrays, rows * sizeof *k->token);
    k->pos = pl_arena_alloc(&k->arrays, rows * sizeof *k->pos);
    k->path = pl_arena_alloc(&k->arrays, rows * (size_t)k->sizes.path * sizeof *k->path);
    k->logits = pl_arena_alloc(&k->arrays, (size_t)k->sizes.logits * sizeof *k->logits);
    k->row = pl_arena_alloc(&k->arrays, rows * (size_t)k->m->n_layers * sizeof *k->row);
}

// As the decode engine of rank 0 (infer/decode/decode.c): each gather must have its counterpart there.
static void forward(pl_ctx *ctx, const caches *k, int rows, int n_logits) {
    pl_llama_out out;
    pl_view      view = {.pos = k->pos, .cos = k->m->cos, .sin = k->m->sin, .row = k->row, .m = rows};
    pl_llama_forward(ctx, k->m, k->token, rows, &view, NULL, 0, &out);
    pl_llama_logits(ctx, k->m, n_logits == rows ? out.hidden : pl_gather(ctx, out.hidden, k->logits, n_logits));
}

static void measure(pl_ctx *ctx, void *arg) {
    caches *k = arg;
    forward(ctx, k, k->sizes.rows, k->sizes.logits);
    pl_ctx_const(ctx, k->sizes.logits, k->m->shape.d); // a smaller run may gather where this one did not
}

static void destroy_caches(caches *k) {
    for (int i = 0; k->kv && i < k->sizes.sessions; i++)
        pl_kv_destroy(&k->kv[i]);
    pl_free(k->kv);
    pl_ctx_fini(&k->ctx);
    pl_arena_fini(&k->arrays);
    pl_free(k);
}

static pl_status fill_caches(follower *f, caches *k, pl_err *err) {
    PL_TRY(pl_ctx_init(&k->ctx, f->be, f->pool));
    PL_TRY(pl_llama_reach(k->m, k->sizes.slots, err));
    k->kv = pl_calloc((size_t)k->sizes.sessions, sizeof *k->kv);
    if (!k->kv) return pl_fail(err, PL_E_MEMORY, "caches: out of memory");
    PL_TRY(pl_arena_init_shared(&k->arrays, "rows of rank 0", f->be->memory, take_arrays, k, err));
    pl_layer_shape shape = k->m->shape;
    shape.kv = k->sizes.kv;
    for (int i = 0; i < k->sizes.sessions; i++)
        PL_TRY(pl_kv_create(&k->kv[i], k->m->n_layers, k->sizes.slots, &shape, f->be, err));
    return pl_ctx_measure(&k->ctx, measure, k, err);
}

static pl_status create_caches(follower *f, const pl_tp_order *o, pl_err *err) {
    caches *k = pl_calloc(1, sizeof *k);
    if (!k) return pl_fail(err, PL_E_MEMORY, "caches: out of memory");
    *k = (caches){.id = o->id, .m = &find_model(f, o->n)->llama, .sizes = o->sizes};
    pl_status st = fill_caches(f, k, err);
    if (st != PL_OK) {
        destroy_caches(k);
        return st;
    }
    k->next = f->caches;
    f->caches = k;
    return PL_OK;
}

static caches *find_caches(follower *f, int id) {
    caches *k = f->caches;
    while (k && k->id != id)
        k = k->next;
    PL_CHECK(k, "caches %d are not there", id);
    return k;
}

static void drop_caches(follower *f, caches *k) {
    caches **at = &f->caches;
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    destroy_caches(k);
}

// ---- runs

static int count_rows(const int32_t *w, const int32_t *end) {
    int n = 0;
    while (w < end) {
        n += w[0] == PL_TP_ROW;
        w += w[0] == PL_TP_ROW ? PL_TP_ROW_WORDS + (w[8] ? w[5] : 0) : PL_TP_MOVE_WORDS + w[3];
    }
    PL_CHECK(w == end, "a run ends inside a record");
    return n;
}

static const int32_t *add_row(caches *k, int rows, const int32_t *w) {
    int            m = k->rows++, n_path = w[5];
    int32_t       *path = k->path + (size_t)m * (size_t)k->sizes.path;
    const int32_t *after = w + PL_TP_ROW_WORDS;
    PL_CHECK(w[3] >= 0 && w[3] < k->sizes.sessions, "session %d of %d", w[3], k->sizes.sessions);
    k->token[m] = w[1];
    k->pos[m] = w[2];
    if (w[8]) {
        PL_CHECK(n_path <= k->sizes.path, "a path of %d", n_path);
        memcpy(path, after, (size_t)n_path * sizeof *path);
        after += n_path;
    }
    pl_kv_row(&k->kv[w[3]], &k->row[m], rows, w[4], w[8] ? path : NULL, n_path, w[6]);
    if (w[7]) k->logits[k->n_logits++] = m;
    return after;
}

static const int32_t *move(caches *k, const int32_t *w) {
    pl_kv_move(&k->ctx, &k->kv[w[1]], w[2], w + PL_TP_MOVE_WORDS, w[3]);
    return w + PL_TP_MOVE_WORDS + w[3];
}

static pl_status run(follower *f, const pl_tp_order *o, pl_err *err) {
    caches        *k = find_caches(f, o->id);
    const int32_t *w = (const int32_t *)f->data, *end = w + o->bytes / (int64_t)sizeof *w;
    int            rows = count_rows(w, end);
    PL_CHECK(rows <= k->sizes.rows, "%d rows of %d", rows, k->sizes.rows);
    k->rows = k->n_logits = 0;
    pl_ctx_begin(&k->ctx);
    while (w < end)
        w = w[0] == PL_TP_ROW ? add_row(k, rows, w) : move(k, w);
    PL_CHECK(k->n_logits <= k->sizes.logits, "%d rows with logits of %d", k->n_logits, k->sizes.logits);
    forward(&k->ctx, k, rows, k->n_logits);
    PL_TRY(pl_comm_settle(f->comm, &k->ctx, err));
    return pl_ctx_sync(&k->ctx, err);
}

void pl_tp_put_use(const pl_comm *c, double *all) {
    double *u = all + (ptrdiff_t)pl_comm_rank(c) * PL_TP_USES;
    u[0] = (double)pl_comm_sent(c);
    u[1] = pl_memory_resident();
    u[2] = pl_memory_peak();
}

static pl_status used(follower *f, pl_err *err) {
    double all[PL_TP_USES * PL_RANKS_MAX] = {0};
    pl_tp_put_use(f->comm, all);
    return pl_comm_sum_doubles(f->comm, all, PL_TP_USES * pl_comm_ranks(f->comm), err);
}

// ---- orders

static pl_status take_data(follower *f, size_t bytes, pl_err *err) {
    if (bytes > f->room) {
        pl_free(f->data);
        f->data = pl_malloc(bytes);
        f->room = f->data ? bytes : 0;
        if (!f->data) return pl_fail(err, PL_E_MEMORY, "an order of %zu bytes: out of memory", bytes);
    }
    return pl_comm_broadcast(f->comm, f->data, bytes, err);
}

static pl_status follow(follower *f, pl_err *err) {
    for (;;) {
        pl_tp_order o;
        PL_TRY(pl_comm_broadcast(f->comm, &o, sizeof o, err));
        PL_TRY(take_data(f, (size_t)o.bytes, err));
        switch ((pl_tp_what)o.what) {
        case PL_TP_END: return PL_OK;
        case PL_TP_OPEN: PL_TRY(open_model(f, &o, err)); break;
        case PL_TP_CLOSE: close_model(f, find_model(f, o.id)); break;
        case PL_TP_CACHES: PL_TRY(create_caches(f, &o, err)); break;
        case PL_TP_DROP: drop_caches(f, find_caches(f, o.id)); break;
        case PL_TP_RUN: PL_TRY(run(f, &o, err)); break;
        case PL_TP_USED: PL_TRY(used(f, err)); break;
        }
    }
}

pl_status pl_tp_follow(pl_comm *c, const pl_backend *be, pl_pool *pool, pl_err *err) {
    follower  f = {.comm = c, .be = be, .pool = pool};
    pl_status st = follow(&f, err);
    while (f.caches)
        drop_caches(&f, f.caches);
    while (f.models)
        close_model(&f, f.models);
    pl_free(f.data);
    return st;
}
