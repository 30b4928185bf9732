// Ranks above 0 of a divided target: they execute rank 0's orders until it ends them or a rank fails.
#include "infer/model/kv.h"
#include "infer/model/llama.h"
#include "infer/model/tp_orders.h"
#include "kernels/base/room.h"
#include "kernels/comm/reader.h"
#include "kernels/op/elementwise.h"

#include <string.h>

typedef struct model {
    int           id;
    pl_llama      llama;
    struct model *next;
} model;

// Counterpart of rank 0's decode engine: its caches and the rows of one forward.
typedef struct caches {
    int             id;
    const pl_llama *m;
    pl_tp_sizes     sizes;
    pl_ctx          ctx;
    pl_kv          *kv;     // [sessions]
    pl_arena        arrays; // arrays that ops read, besides tensors
    int32_t        *token, *pos, *path, *logits;
    pl_kvrow       *row; // [layers][rows]
    int             rows, n_logits;
    struct caches  *next;
} caches;

typedef struct follower {
    pl_comm          *comm;
    const pl_backend *be;
    pl_pool          *pool;
    const char       *target; // path of this rank's own target; NULL: none
    model            *models;
    caches           *caches;
    int32_t          *data; // data of the current order
    size_t            room; // bytes
} follower;

// ---- models

static pl_status check_fingerprint(pl_comm *c, char fingerprint[17], pl_err *err) {
    char first[17];
    memcpy(first, fingerprint, sizeof first);
    PL_TRY(pl_comm_broadcast(c, first, sizeof first, err));
    pl_reader   in = pl_reader_of(0, "its target's fingerprint", first, sizeof first, err);
    const char *theirs = pl_reader_text(&in, "it", sizeof first);
    PL_TRY(in.status);
    if (strcmp(theirs, fingerprint) == 0) return PL_OK;
    return pl_fail(err, PL_E_USAGE, "its target is %s, rank 0's is %s; give all ranks the same files", fingerprint,
                   theirs);
}

pl_status pl_tp_agree(pl_comm *c, char fingerprint[17], pl_err *err) {
    PL_TRY(check_fingerprint(c, fingerprint, err));
    return pl_comm_barrier(c, err); // all ranks have opened theirs
}

static model *find_model(const follower *f, int id) {
    model *m = f->models;
    while (m && m->id != id)
        m = m->next;
    return m;
}

static caches *find_caches(const follower *f, int id) {
    caches *k = f->caches;
    while (k && k->id != id)
        k = k->next;
    return k;
}

static pl_status open_model(follower *f, const pl_tp_order *o, pl_err *err) {
    if (!f->target)
        return pl_fail(err, PL_E_USAGE, "has no target that rank 0 could lead; start all ranks with the same command");
    model *m = pl_calloc(1, sizeof *m);
    if (!m) return pl_fail(err, PL_E_MEMORY, "target: out of memory");
    pl_status st = pl_llama_open_part(&m->llama, f->target, (pl_dtype)o->n, f->be, f->comm, err);
    if (st != PL_OK) {
        pl_free(m);
        return st;
    }
    m->id = o->id;
    m->next = f->models;
    f->models = m;
    return pl_tp_agree(f->comm, m->llama.fingerprint, err);
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

// Matches rank 0's decode engine (infer/decode/decode.c): each gather must have its counterpart there.
static void run_forward(pl_ctx *ctx, const caches *k, int rows, int n_logits) {
    pl_llama_out out;
    pl_view      view = {.pos = k->pos, .cos = k->m->cos, .sin = k->m->sin, .row = k->row, .m = rows};
    pl_llama_forward(ctx, k->m, k->token, rows, &view, NULL, 0, &out);
    pl_llama_logits(ctx, k->m, n_logits == rows ? out.hidden : pl_gather(ctx, out.hidden, k->logits, n_logits));
}

static void measure_run(pl_ctx *ctx, void *arg) {
    caches *k = arg;
    run_forward(ctx, k, k->sizes.rows, k->sizes.logits);
    pl_ctx_const(ctx, k->sizes.logits, k->m->shape.d); // a smaller run may need a gather that this one skipped
}

static void destroy_caches(caches *k) {
    for (int i = 0; k->kv && i < k->sizes.sessions; i++)
        pl_kv_destroy(&k->kv[i]);
    pl_free(k->kv);
    pl_ctx_fini(&k->ctx);
    pl_arena_fini(&k->arrays);
    pl_free(k);
}

static pl_status create_cache(caches *k, int i, const pl_layer_shape *s, const pl_backend *be, pl_err *err) {
    PL_TRY(pl_kv_create(&k->kv[i], k->m->n_layers, k->sizes.slots, s, be, err));
    PL_TRY(pl_recurrent_keep(&k->kv[i].state, k->sizes.nodes, err));
    return k->sizes.saved ? pl_recurrent_keep_saved(&k->kv[i].state, err) : PL_OK;
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
        PL_TRY(create_cache(k, i, &shape, f->be, err));
    return pl_ctx_measure(&k->ctx, measure_run, k, err);
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

static void drop_caches(follower *f, caches *k) {
    caches **at = &f->caches;
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    destroy_caches(k);
}

// ---- runs

// Returns the most bytes of a run: all rows with the longest path, preceded for each session by a move, as long, and
// two of its states.
static int64_t most_bytes(const pl_tp_sizes *s) {
    int64_t rows = (int64_t)s->rows * (PL_TP_ROW_WORDS + s->path);
    return (rows + (int64_t)s->sessions * (PL_TP_MOVE_WORDS + s->path + 2 * PL_TP_STATE_WORDS)) *
           (int64_t)sizeof(int32_t);
}

// Takes n slots, each in [least, slots).
static const int32_t *take_slots(pl_reader *in, const char *name, int32_t n, int32_t least, int32_t slots) {
    const int32_t *slot = (const int32_t *)(const void *)in->at;
    for (int32_t i = 0; i < n && in->status == PL_OK; i++)
        pl_reader_int32(in, name, least, slots - 1);
    return slot;
}

static void take_row(pl_reader *in, caches *k, int rows) {
    const pl_tp_sizes *s = &k->sizes;
    int                m = k->rows++;
    int32_t           *path = k->path + (size_t)m * (size_t)s->path;
    if (m >= rows) pl_reader_refuse(in, "more than %d rows", rows);
    if (in->status != PL_OK) return;
    k->token[m] = pl_reader_int32(in, "a token", 0, (int32_t)k->m->vocab - 1);
    k->pos[m] = pl_reader_int32(in, "a position", 0, k->m->config.max_position_embeddings - 1);
    int32_t session = pl_reader_int32(in, "a session", 0, s->sessions - 1);
    int32_t n_ctx = pl_reader_int32(in, "the committed slots", 0, s->slots - 1);
    int32_t n_path = pl_reader_int32(in, "the length of a path", 1, s->slots - n_ctx);
    int32_t slot = pl_reader_int32(in, "a slot", 0, s->slots - 1);
    bool    logits = pl_reader_int32(in, "whether a row has logits", 0, 1);
    bool    listed = pl_reader_int32(in, "whether a path follows", 0, 1);
    if (listed && n_path > s->path) pl_reader_refuse(in, "a path of %d, not 1 to %d", n_path, s->path);
    if (logits && k->n_logits >= s->logits) pl_reader_refuse(in, "more than %d rows with logits", s->logits);
    const int32_t *slots = take_slots(in, "a slot of a path", listed ? n_path : 0, 0, s->slots);
    if (in->status == PL_OK && !pl_recurrent_takes(&k->kv[session].state, n_ctx, listed ? slots : NULL, n_path, slot))
        pl_reader_refuse(in, "a row that does not continue a state");
    if (in->status != PL_OK) return;
    if (listed) memcpy(path, slots, (size_t)n_path * sizeof *path);
    pl_kv_row(&k->kv[session], &k->row[m], rows, n_ctx, listed ? path : NULL, n_path, slot);
    if (logits) k->logits[k->n_logits++] = m;
}

static void take_move(pl_reader *in, caches *k) {
    int32_t        session = pl_reader_int32(in, "a session", 0, k->sizes.sessions - 1);
    int32_t        n_ctx = pl_reader_int32(in, "the committed slots", 0, k->sizes.slots);
    int32_t        n = pl_reader_int32(in, "the slots of a move", 0, k->sizes.slots - n_ctx);
    const int32_t *from = (const int32_t *)(const void *)in->at;
    for (int32_t i = 0; i < n && in->status == PL_OK; i++)
        pl_reader_int32(in, "a slot that moves", n_ctx + i, k->sizes.slots - 1);
    if (in->status == PL_OK && !pl_recurrent_commits(&k->kv[session].state, n_ctx, from, n))
        pl_reader_refuse(in, "a move that does not continue a state");
    if (in->status == PL_OK) pl_kv_move(&k->ctx, &k->kv[session], n_ctx, from, n);
}

static void take_state(pl_reader *in, caches *k) {
    int32_t session = pl_reader_int32(in, "a session", 0, k->sizes.sessions - 1);
    int32_t at = pl_reader_int32(in, "a state's position", 0, k->sizes.slots);
    bool    save = pl_reader_int32(in, "whether a state is saved", 0, 1);
    if (in->status != PL_OK) return;
    const pl_recurrent *s = &k->kv[session].state;
    if (save ? !s->saved || *s->at != at : s->layers == 0 || pl_recurrent_from(s, at) != at)
        pl_reader_refuse(in, "a state of %d, which is not there", at);
    else if (save)
        pl_recurrent_save(&k->ctx, s);
    else
        pl_recurrent_go(&k->ctx, s, at);
}

// Counts the rows of a run by the lengths of its records; take_row and take_move check the values.
static int count_rows(pl_reader *in) {
    static const size_t words[] = {
        [PL_TP_MOVE] = PL_TP_MOVE_WORDS, [PL_TP_STATE] = PL_TP_STATE_WORDS, [PL_TP_ROW] = PL_TP_ROW_WORDS};
    int rows = 0;
    while (in->status == PL_OK && in->at < in->end) {
        int32_t what = pl_reader_int32(in, "a record", PL_TP_MOVE, PL_TP_ROW), word[PL_TP_ROW_WORDS - 1] = {0};
        bool    row = what == PL_TP_ROW;
        pl_reader_copy(in, "a record", word, (words[what] - 1) * sizeof *word);
        int32_t more = what == PL_TP_MOVE ? word[2] : row && word[7] ? word[4] : 0;
        if (more < 0) pl_reader_refuse(in, "a record of %d slots", more);
        pl_reader_lend(in, "the slots of a record", in->status == PL_OK ? (size_t)more * sizeof *word : 0);
        rows += row;
    }
    return rows;
}

static pl_status run_order(follower *f, const pl_tp_order *o, pl_err *err) {
    caches   *k = find_caches(f, o->id);
    pl_reader in = pl_reader_of(0, "rows to run", f->data, (size_t)o->bytes, err), ahead = in;
    int       rows = count_rows(&ahead);
    if (rows < 1 || rows > k->sizes.rows) pl_reader_refuse(&ahead, "%d rows, not 1 to %d", rows, k->sizes.rows);
    PL_TRY(ahead.status);
    k->rows = k->n_logits = 0;
    pl_ctx_begin(&k->ctx);
    while (in.status == PL_OK && in.at < in.end) {
        int32_t what = pl_reader_int32(&in, "a record", PL_TP_MOVE, PL_TP_ROW);
        if (what == PL_TP_ROW)
            take_row(&in, k, rows);
        else if (what == PL_TP_STATE)
            take_state(&in, k);
        else
            take_move(&in, k);
    }
    PL_TRY(pl_reader_end(&in));
    run_forward(&k->ctx, k, rows, k->n_logits);
    PL_TRY(pl_comm_settle(f->comm, &k->ctx, err));
    return pl_ctx_sync(&k->ctx, err);
}

void pl_tp_put_use(const pl_comm *c, double *all) {
    double *u = all + (ptrdiff_t)pl_comm_rank(c) * PL_TP_USES;
    u[0] = (double)pl_comm_sent(c);
    u[1] = pl_memory_resident();
    u[2] = pl_memory_peak();
}

static pl_status send_use(follower *f, pl_err *err) {
    double all[PL_TP_USES * PL_RANKS_MAX] = {0};
    pl_tp_put_use(f->comm, all);
    return pl_comm_sum_doubles(f->comm, all, PL_TP_USES * pl_comm_ranks(f->comm), err);
}

// ---- orders

static void take_sizes(pl_reader *in, pl_tp_sizes *s) {
    s->sessions = pl_reader_int32(in, "sessions", 0, PL_TP_SESSIONS_MAX);
    s->slots = pl_reader_int32(in, "slots of a cache", 0, INT32_MAX);
    s->rows = pl_reader_int32(in, "rows of a forward", 0, PL_TP_ROWS_MAX);
    s->logits = pl_reader_int32(in, "rows with logits", 0, s->rows);
    s->path = pl_reader_int32(in, "slots of a path", 0, PL_TP_PATH_MAX);
    s->nodes = pl_reader_int32(in, "nodes of a tree", 0, PL_GDN_NODES);
    s->saved = pl_reader_int32(in, "whether states are saved", 0, 1);
    s->kv = (pl_dtype)pl_reader_int32(in, "the type of a cache", 0, PL_DTYPE_COUNT - 1);
}

// Checks sizes of caches over m: none is 0, no cache is longer than the longest text with a tree after it.
static void check_sizes(pl_reader *in, const pl_llama *m, const pl_tp_sizes *s) {
    int64_t longest = (int64_t)m->config.max_position_embeddings + PL_TP_PATH_MAX;
    if (s->sessions < 1 || s->rows < 1 || s->logits < 1 || s->path < 1 || s->slots < 1 || s->slots > longest)
        pl_reader_refuse(in, "caches of %d sessions, %d slots, %d rows, %d with logits, paths of %d", s->sessions,
                         s->slots, s->rows, s->logits, s->path);
    if (s->kv != PL_F32 && s->kv != PL_BF16) pl_reader_refuse(in, "caches of type %d", (int)s->kv);
}

static bool uses_model(const follower *f, const model *m) {
    const caches *k = f->caches;
    while (k && k->m != &m->llama)
        k = k->next;
    return k != NULL;
}

// Checks an order against the targets and caches that are open.
static void check_order(pl_reader *in, const follower *f, const pl_tp_order *o) {
    const model  *m = find_model(f, o->what == PL_TP_CACHES ? o->n : o->id);
    const caches *k = find_caches(f, o->id);
    int64_t       most = o->what == PL_TP_RUN && k ? most_bytes(&k->sizes) : 0;
    bool          of_caches = o->what == PL_TP_DROP || o->what == PL_TP_RUN;
    if (o->what == PL_TP_OPEN && (m || (o->n != PL_F32 && o->n != PL_BF16)))
        pl_reader_refuse(in, "to open target %d in type %d", o->id, o->n);
    if (o->what == PL_TP_CLOSE && (!m || uses_model(f, m))) pl_reader_refuse(in, "to close target %d", o->id);
    if (o->what == PL_TP_CACHES && (!m || k)) pl_reader_refuse(in, "caches %d of target %d", o->id, o->n);
    if (o->what == PL_TP_CACHES && m) check_sizes(in, &m->llama, &o->sizes);
    if (of_caches && !k) pl_reader_refuse(in, "caches %d are not there", o->id);
    if (o->bytes < 0 || o->bytes > most || o->bytes % (int64_t)sizeof(int32_t))
        pl_reader_refuse(in, "%lld bytes, not 0 to %lld", (long long)o->bytes, (long long)most);
}

static pl_status take_order(follower *f, pl_tp_order *o, pl_err *err) {
    pl_tp_order sent;
    PL_TRY(pl_comm_broadcast(f->comm, &sent, sizeof sent, err));
    pl_reader in = pl_reader_of(0, "an order", &sent, sizeof sent, err);
    o->bytes = pl_reader_int(&in, "its bytes", 0, INT64_MAX);
    o->what = pl_reader_int32(&in, "its kind", PL_TP_END, PL_TP_USED);
    o->id = pl_reader_int32(&in, "its number", 0, INT32_MAX);
    o->n = pl_reader_int32(&in, "its detail", 0, INT32_MAX);
    take_sizes(&in, &o->sizes);
    if (in.status == PL_OK) check_order(&in, f, o);
    return in.status;
}

static pl_status take_data(follower *f, size_t bytes, pl_err *err) {
    if (bytes > f->room) {
        pl_free(f->data);
        f->data = pl_malloc(bytes);
        f->room = f->data ? bytes : 0;
        if (!f->data) return pl_fail(err, PL_E_MEMORY, "an order of %zu bytes: out of memory", bytes);
    }
    return pl_comm_broadcast(f->comm, f->data, bytes, err);
}

static pl_status follow_orders(follower *f, pl_err *err) {
    for (;;) {
        pl_tp_order o;
        PL_TRY(take_order(f, &o, err));
        PL_TRY(take_data(f, (size_t)o.bytes, err));
        switch ((pl_tp_what)o.what) {
        case PL_TP_END: return PL_OK;
        case PL_TP_OPEN: PL_TRY(open_model(f, &o, err)); break;
        case PL_TP_CLOSE: close_model(f, find_model(f, o.id)); break;
        case PL_TP_CACHES: PL_TRY(create_caches(f, &o, err)); break;
        case PL_TP_DROP: drop_caches(f, find_caches(f, o.id)); break;
        case PL_TP_RUN: PL_TRY(run_order(f, &o, err)); break;
        case PL_TP_USED: PL_TRY(send_use(f, err)); break;
        }
    }
}

pl_status pl_tp_follow(pl_comm *c, const pl_backend *be, pl_pool *pool, const char *target, pl_err *err) {
    follower  f = {.comm = c, .be = be, .pool = pool, .target = target};
    pl_status st = follow_orders(&f, err);
    while (f.caches)
        drop_caches(&f, f.caches);
    while (f.models)
        close_model(&f, f.models);
    pl_free(f.data);
    return st;
}
