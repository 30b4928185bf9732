// Rank 0 of a divided target: sends orders to the other ranks.
#include "infer/model/llama.h"
#include "infer/model/tp_orders.h"
#include "kernels/base/check.h"
#include "kernels/comm/reader.h"

#include <string.h>

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
