#include "infer/model/tp.h"

#include "infer/model/llama.h"
#include "infer/model/tp_orders.h"
#include "kernels/base/check.h"
#include "kernels/comm/reader.h"

#include <string.h>

pl_status pl_tp_check(const pl_hf_config *c, int ranks, pl_err *err) {
    if (ranks <= 1) return PL_OK;
    if (c->experts > 0)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s has experts, which are not divided among ranks; run it without --tensor-parallel",
                       c->architecture);
    if (c->num_key_value_heads % ranks != 0)
        return pl_fail(err, PL_E_USAGE,
                       "--tensor-parallel %d: the target's %d key/value heads do not divide by it; take a divisor",
                       ranks, c->num_key_value_heads);
    if (c->delta.key_heads % ranks != 0)
        return pl_fail(err, PL_E_USAGE,
                       "--tensor-parallel %d: the %d key heads of the target's recurrent layers do not divide by it; "
                       "take a divisor",
                       ranks, c->delta.key_heads);
    return PL_OK;
}

// Returns the first element of a width that `rank` has.
static int64_t find_first(const pl_comm *c, int64_t n, int rank) {
    return n * rank / pl_comm_ranks(c);
}

int64_t pl_tp_own(const pl_comm *c, int64_t n) {
    int rank = pl_comm_rank(c);
    return find_first(c, n, rank + 1) - find_first(c, n, rank);
}

pl_weight_part pl_tp_part(const pl_comm *c, const char *name, int64_t rows) {
    return c ? pl_tp_run(c, name, 0, rows, rows) : (pl_weight_part){.name = name, .rows = rows};
}

pl_weight_part pl_tp_run(const pl_comm *c, const char *name, int64_t first, int64_t rows, int64_t of) {
    return (pl_weight_part){
        .name = name, .rows = pl_tp_own(c, rows), .first = first + find_first(c, rows, pl_comm_rank(c)), .of = of};
}

static pl_tensor gather_columns(pl_ctx *ctx, pl_comm *c, pl_tensor x, int64_t width, int to) {
    int64_t own[PL_RANKS_MAX];
    if (!c) return x;
    for (int r = 0; r < pl_comm_ranks(c); r++)
        own[r] = find_first(c, width, r + 1) - find_first(c, width, r);
    PL_CHECK(!pl_ctx_recording(ctx), "a target that lies over %d ranks is not trained", pl_comm_ranks(c));
    return pl_comm_columns(c, ctx, x, own, to);
}

pl_tensor pl_tp_all(pl_ctx *ctx, pl_comm *c, pl_tensor x, int64_t width) {
    return gather_columns(ctx, c, x, width, PL_TO_ALL);
}

pl_tensor pl_tp_first_rank(pl_ctx *ctx, pl_comm *c, pl_tensor x, int64_t width) {
    return gather_columns(ctx, c, x, width, 0);
}

// ---- rank 0: orders to the other ranks

struct pl_tp_caches {
    pl_comm *comm;
    int      id;
    int32_t *record; // of the next run
    size_t   n, room;
    bool     full; // memory ran out
};

static int last_id; // one process leads one group, from one thread

static pl_status send_order(pl_comm *c, pl_tp_order o, const void *data, pl_err *err) {
    PL_CHECK(pl_comm_rank(c) == 0, "rank %d gives orders", pl_comm_rank(c));
    PL_TRY(pl_comm_broadcast(c, &o, sizeof o, err));
    return pl_comm_broadcast(c, (void *)(uintptr_t)data, (size_t)o.bytes, err);
}

pl_status pl_tp_end(pl_comm *c, pl_err *err) {
    return c ? send_order(c, (pl_tp_order){.what = PL_TP_END}, NULL, err) : PL_OK;
}

pl_status pl_tp_used(pl_comm *c, pl_tp_use *use, pl_err *err) {
    double all[PL_TP_USES * PL_RANKS_MAX] = {0};
    if (c) PL_TRY(send_order(c, (pl_tp_order){.what = PL_TP_USED}, NULL, err));
    pl_tp_put_use(c, all);
    PL_TRY(pl_comm_sum_doubles(c, all, PL_TP_USES * pl_comm_ranks(c), err));
    pl_reader in =
        pl_reader_of(-1, "what they have used", all, PL_TP_USES * (size_t)pl_comm_ranks(c) * sizeof *all, err);
    for (int r = 0; r < pl_comm_ranks(c); r++) {
        use[r].sent = pl_reader_real(&in, "bytes sent", 0, (double)INT64_MAX);
        use[r].memory = pl_reader_real(&in, "bytes of memory", 0, (double)INT64_MAX);
        use[r].peak = pl_reader_real(&in, "bytes of memory", 0, (double)INT64_MAX);
    }
    return pl_reader_end(&in);
}

pl_status pl_tp_open(pl_comm *c, int *id, pl_dtype t, pl_err *err) {
    *id = ++last_id;
    return send_order(c, (pl_tp_order){.what = PL_TP_OPEN, .id = *id, .n = (int32_t)t}, NULL, err);
}

void pl_tp_close(pl_comm *c, int id) {
    send_order(c, (pl_tp_order){.what = PL_TP_CLOSE, .id = id}, NULL, NULL); // if this fails all ranks end
}

pl_status pl_tp_caches_create(pl_tp_caches **out, const pl_llama *m, const pl_tp_sizes *s, pl_err *err) {
    *out = NULL;
    if (!m->comm) return PL_OK;
    PL_CHECK(s->sessions <= PL_TP_SESSIONS_MAX && s->rows <= PL_TP_ROWS_MAX && s->path <= PL_TP_PATH_MAX,
             "%d sessions, %d rows, paths of %d", s->sessions, s->rows, s->path);
    pl_tp_caches *t = pl_calloc(1, sizeof *t);
    if (!t) return pl_fail(err, PL_E_MEMORY, "caches on other ranks: out of memory");
    *t = (pl_tp_caches){.comm = m->comm, .id = ++last_id};
    *out = t;
    return send_order(t->comm, (pl_tp_order){.what = PL_TP_CACHES, .id = t->id, .n = m->number, .sizes = *s}, NULL,
                      err);
}

void pl_tp_caches_destroy(pl_tp_caches *t) {
    if (!t) return;
    send_order(t->comm, (pl_tp_order){.what = PL_TP_DROP, .id = t->id}, NULL, NULL);
    pl_free(t->record);
    pl_free(t);
}

// Appends the numbers of a record, then its variable part.
static void put_record(pl_tp_caches *t, const int32_t *word, int n, const int32_t *more, int n_more) {
    size_t want = t->n + (size_t)n + (size_t)n_more;
    if (want > t->room) {
        size_t   room = want * 2;
        int32_t *grown = pl_realloc(t->record, room * sizeof *grown);
        if (!grown) t->full = true;
        if (!grown) return;
        t->record = grown;
        t->room = room;
    }
    memcpy(t->record + t->n, word, (size_t)n * sizeof *word);
    if (n_more) memcpy(t->record + t->n + n, more, (size_t)n_more * sizeof *more);
    t->n = want;
}

void pl_tp_add(pl_tp_caches *t, const pl_tp_row *r) {
    if (!t) return;
    int32_t word[PL_TP_ROW_WORDS] = {PL_TP_ROW, r->token, r->pos,    r->session,     r->n_ctx,
                                     r->n_path, r->slot,  r->logits, r->path != NULL};
    put_record(t, word, PL_TP_ROW_WORDS, r->path, r->path ? r->n_path : 0);
}

void pl_tp_state(pl_tp_caches *t, int session, int32_t at, bool save) {
    if (!t) return;
    int32_t word[PL_TP_STATE_WORDS] = {PL_TP_STATE, session, at, save};
    put_record(t, word, PL_TP_STATE_WORDS, NULL, 0);
}

void pl_tp_move(pl_tp_caches *t, int session, int32_t n_ctx, const int32_t *from, int n) {
    if (!t) return;
    int32_t word[PL_TP_MOVE_WORDS] = {PL_TP_MOVE, session, n_ctx, n};
    put_record(t, word, PL_TP_MOVE_WORDS, from, n);
}

pl_status pl_tp_begin(pl_tp_caches *t, pl_err *err) {
    if (!t) return PL_OK;
    if (t->full) return pl_fail(err, PL_E_MEMORY, "rows for other ranks: out of memory");
    pl_tp_order o = {.what = PL_TP_RUN, .id = t->id, .bytes = (int64_t)(t->n * sizeof *t->record)};
    t->n = 0;
    return send_order(t->comm, o, t->record, err);
}

void pl_tp_finish(pl_tp_caches *t, pl_ctx *ctx) {
    if (!t) return;
    pl_err err = {0};
    if (ctx->err.status == PL_OK && pl_comm_settle(t->comm, ctx, &err) != PL_OK)
        pl_ctx_fail(ctx, err.status, "%s", err.msg);
    if (ctx->err.status != PL_OK) pl_comm_fail(t->comm, &ctx->err);
}
