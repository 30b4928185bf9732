#include "infer/drafter/draft_model.h"

#include "kernels/base/check.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/headtopk.h"

#include <math.h>
#include <string.h>

#define CHUNK 128  // least number of rows per forward while a context is read
#define PENDING 16 // most context rows that share a forward with logits

struct pl_draft_context {
    pl_kv    kv;
    int32_t *ids; // [positions] tokens whose rows are in the cache
    int      n;
    // Rows drafted after the context, at cache positions n, n + 1, ...
    int      used;
    int32_t *token, *parent; // [drafted]
};

// ---- create and destroy ---------------------------------------------------------------------------------------------

// Returns the hidden states of the rows that want logits.
static pl_tensor run_layers(pl_draft_model *m, const pl_draft_row *row, int n, int n_wanted) {
    const pl_llama *l = &m->target.model;
    pl_ctx         *ctx = &m->ctx;
    size_t          rows = (size_t)n, deep = (size_t)(m->drafted > 0 ? m->drafted : 1);
    int32_t        *id = pl_ctx_bytes(ctx, rows * sizeof *id), *pos = pl_ctx_bytes(ctx, rows * sizeof *pos);
    int32_t        *index = pl_ctx_bytes(ctx, rows * sizeof *index);
    int32_t        *path = pl_ctx_bytes(ctx, pl_size_mul(rows, deep, sizeof *path));
    pl_kvrow       *kv = pl_ctx_bytes(ctx, pl_size_mul(rows, (size_t)l->n_layers, sizeof *kv));
    for (int i = 0, k = 0; i < n && !ctx->measuring; i++) {
        const pl_draft_row     *r = &row[i];
        const pl_draft_context *c = &m->context[r->slot];
        int32_t                *p = NULL;
        id[i] = r->token;
        pos[i] = r->pos;
        if (r->wanted) index[k++] = i;
        if (r->drafted >= 0) {
            p = path + (size_t)i * deep;
            for (int at = r->drafted, j = r->n_path; j > 0; at = c->parent[at])
                p[--j] = c->n + at;
        }
        pl_kv_row(&c->kv, &kv[i], n, r->n_ctx, p, r->n_path, r->place);
    }
    pl_view      view = {.pos = pos, .cos = l->cos, .sin = l->sin, .row = kv, .m = n};
    pl_llama_out out;
    pl_llama_forward(ctx, l, id, n, &view, NULL, 0, &out);
    if (n_wanted == 0) return (pl_tensor){0};
    return n_wanted == n ? out.hidden : pl_gather(ctx, out.hidden, index, n_wanted);
}

// Uses one fused pass with the head, unless an op lies between hidden states and tokens.
static pl_draft_best choose_best(pl_draft_model *m, pl_tensor hidden) {
    const pl_llama *l = &m->target.model;
    pl_ctx         *ctx = &m->ctx;
    size_t          rows = (size_t)hidden.dim[0], k = (size_t)m->k;
    int32_t        *id = pl_ctx_bytes(ctx, pl_size_mul(rows, k, sizeof *id));
    float          *value = pl_ctx_bytes(ctx, pl_size_mul(rows, k, sizeof *value));
    float          *lse = m->scored ? pl_ctx_bytes(ctx, rows * sizeof *lse) : NULL;
    if (!m->barred.data && !(l->config.final_softcap > 0)) {
        pl_headtopk(ctx,
                    &(pl_headtopk_args){.x = hidden, .w = l->head, .k = m->k, .id = id, .value = value, .lse = lse});
    } else {
        pl_tensor z = pl_llama_logits(ctx, l, hidden);
        if (m->barred.data) z = pl_bias(ctx, z, m->barred);
        pl_topk(ctx, &(pl_topk_args){.x = z, .k = m->k, .id = id, .value = value, .lse = lse});
    }
    return (pl_draft_best){.id = id, .value = value, .lse = lse};
}

static const float *predict_acceptance(pl_draft_model *m, pl_tensor hidden) {
    pl_tensor z = pl_stopping_logits(&m->ctx, &m->stops, hidden);
    return pl_ctx_read(&m->ctx, &z);
}

static void measure_run(pl_ctx *ctx, void *arg) {
    pl_draft_model *m = arg;
    pl_tensor       hidden = run_layers(m, m->row, m->most, m->most_wanted);
    if (m->most == m->most_wanted) { // a smaller step may need a gather that this one skipped
        int32_t *index = pl_ctx_bytes(ctx, sizeof *index);
        pl_gather(ctx, pl_ctx_tensor(ctx, m->most, m->target.model.shape.d), index, m->most);
    }
    if (m->k > 0) choose_best(m, hidden);
    if (pl_stopping_least(&m->stops) > 0) predict_acceptance(m, hidden);
    pl_tensor logits = pl_llama_logits(ctx, &m->target.model, hidden);
    pl_ctx_read(ctx, &logits);
}

static pl_status allocate_rows(pl_draft_model *m, const pl_drafter_options *o, pl_err *err) {
    const pl_llama *l = &m->target.model;
    m->context = pl_calloc((size_t)m->sessions, sizeof *m->context);
    m->row = pl_calloc((size_t)m->most, sizeof *m->row);
    m->early = pl_calloc((size_t)m->most, sizeof *m->early);
    if (!m->context || !m->row || !m->early) return pl_fail(err, PL_E_MEMORY, "out of memory");
    PL_TRY(pl_llama_reach(l, m->positions + m->drafted, err));
    for (int i = 0; i < m->sessions; i++) {
        pl_draft_context *c = &m->context[i];
        c->ids = pl_calloc((size_t)m->positions, sizeof *c->ids);
        c->token = pl_calloc((size_t)m->drafted + 1, sizeof *c->token);
        c->parent = pl_calloc((size_t)m->drafted + 1, sizeof *c->parent);
        if (!c->ids || !c->token || !c->parent) return pl_fail(err, PL_E_MEMORY, "out of memory");
        PL_TRY(pl_kv_create(&c->kv, l->n_layers, m->positions + m->drafted, &l->shape, l->be, err));
        m->cache_bytes += (double)c->kv.bytes;
    }
    PL_TRY(pl_ctx_init(&m->ctx, l->be, o->pool));
    m->ctx.repeats = true;
    return pl_ctx_measure(&m->ctx, measure_run, m, err);
}

pl_status pl_draft_model_open(pl_draft_model *m, const char *path, const char *tokenizer, int slots, int per_level,
                              int drafted, const pl_drafter_options *o, pl_err *err) {
    *m = (pl_draft_model){.drafted = drafted, .sessions = o->max_sessions};
    PL_TRY(pl_target_open(&m->target, path, tokenizer, NULL, o->dtype == PL_BF16 ? PL_WEIGHTS_BF16 : PL_WEIGHTS_FP32,
                          o->target->be, err));
    m->target.model.shape.kv = o->target->shape.kv;
    if (m->target.model.recurrent) {
        pl_status refused = pl_fail(err, PL_E_UNSUPPORTED, "drafter %s: %s has recurrent layers and cannot draft", path,
                                    m->target.model.config.architecture);
        pl_draft_model_close(m);
        return refused;
    }
    int positions = m->target.model.config.max_position_embeddings;
    m->positions = slots < positions ? slots : positions;
    int level = per_level > PENDING ? per_level : PENDING;
    m->most = m->sessions * level > CHUNK ? m->sessions * level : CHUNK;
    m->most_wanted = m->sessions * per_level;
    pl_status st = allocate_rows(m, o, err);
    if (st == PL_OK) return PL_OK;
    pl_draft_model_close(m);
    return pl_fail_at(err, st, "drafter %s", path);
}

static pl_status bar_tokens(pl_draft_model *m, const int32_t *only, int64_t n, pl_err *err) {
    const pl_llama *l = &m->target.model;
    size_t          bytes = (size_t)l->vocab * sizeof(float);
    float          *all = pl_malloc(bytes);
    void           *to = pl_memory_create(l->be->memory, PL_LOCAL, bytes, err);
    pl_status       st = to ? PL_OK : PL_E_MEMORY;
    if (to) m->barred = pl_tensor_1d(to, PL_F32, l->vocab);
    if (!all) st = pl_fail(err, PL_E_MEMORY, "out of memory");
    for (int64_t i = 0; i < l->vocab && all; i++)
        all[i] = -INFINITY;
    for (int64_t i = 0; i < n && all; i++)
        all[only ? only[i] : i] = 0;
    if (st == PL_OK) st = pl_memory_write(l->be->memory, to, all, bytes, err);
    pl_free(all);
    return st;
}

pl_status pl_draft_model_chooses(pl_draft_model *m, int k, bool scored, const int32_t *only, int64_t n, pl_err *err) {
    PL_CHECK(k >= 1 && k <= PL_TOPK_MAX && m->target.model.be->real == PL_F32, "the best %d", k);
    m->k = k;
    m->scored = scored;
    if (only || n < m->target.model.vocab) PL_TRY(bar_tokens(m, only, n, err));
    return pl_ctx_measure(&m->ctx, measure_run, m, err);
}

pl_status pl_draft_model_stops(pl_draft_model *m, pl_dtype t, pl_err *err) {
    const pl_llama *l = &m->target.model;
    return pl_stopping_open(&m->stops, &m->stops_weights, l->path, l->shape.d, t, l->be->memory, err);
}

void pl_draft_model_close(pl_draft_model *m) {
    const pl_llama *l = &m->target.model;
    if (m->barred.data) pl_memory_destroy(l->be->memory, PL_LOCAL, m->barred.data, (size_t)l->vocab * sizeof(float));
    pl_ctx_fini(&m->ctx);
    pl_params_fini(&m->stops_weights);
    for (int i = 0; m->context && i < m->sessions; i++) {
        pl_draft_context *c = &m->context[i];
        pl_kv_destroy(&c->kv);
        pl_free(c->ids);
        pl_free(c->token);
        pl_free(c->parent);
    }
    pl_free(m->context);
    pl_free(m->row);
    pl_free(m->early);
    pl_target_close(&m->target);
    *m = (pl_draft_model){0};
}

void pl_draft_model_reset(pl_draft_model *m, int slot) {
    m->context[slot].n = m->context[slot].used = 0;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

// Turns drafted rows that match ids[at..n) into context. Returns the new length of the cached text.
static int adopt_rows(pl_draft_model *m, pl_draft_context *c, const int32_t *ids, int at, int n) {
    int32_t from[PL_TREE_GROWN];
    int     row = -1, k = 0;
    for (int r = 0; r < c->used && at + k < n && k < PL_TREE_GROWN; r++)
        if (c->parent[r] == row && c->token[r] == ids[at + k]) {
            from[k++] = c->n + r;
            row = r;
        }
    if (k > 0) pl_kv_move(&m->ctx, &c->kv, at, from, k);
    return at + k;
}

static pl_draft_row context_row(int slot, const int32_t *ids, int read, int at, bool wanted) {
    return (pl_draft_row){.slot = slot,
                          .token = ids[at],
                          .pos = at,
                          .n_ctx = read,
                          .n_path = at - read + 1,
                          .place = at,
                          .drafted = -1,
                          .wanted = wanted};
}

// Runs the rows and fills *out with the requested results (best, logits).
static bool run_rows(pl_draft_model *m, const pl_draft_row *row, int n, int n_wanted, bool best, bool logits,
                     pl_draft_best *out) {
    *out = (pl_draft_best){0};
    pl_ctx_begin(&m->ctx);
    pl_tensor hidden = run_layers(m, row, n, n_wanted);
    if (best && n_wanted > 0) *out = choose_best(m, hidden);
    if (logits && n_wanted > 0) {
        pl_tensor z = pl_llama_logits(&m->ctx, &m->target.model, hidden);
        out->logits = pl_ctx_read(&m->ctx, &z);
    }
    if (n_wanted > 0 && pl_stopping_least(&m->stops) > 0) out->sure = predict_acceptance(m, hidden);
    return pl_ctx_wait(&m->ctx);
}

bool pl_draft_model_context(pl_draft_model *m, int slot, const int32_t *ids, int n, bool wanted) {
    pl_draft_context *c = &m->context[slot];
    pl_draft_best     none;
    int               at = 0, last = wanted ? n - 1 : n; // the row whose logits are wanted is always read again
    if (n > m->positions || m->ctx.err.status != PL_OK) return false;
    while (at < c->n && at < last && c->ids[at] == ids[at])
        at++;
    for (int i = at; i < n; i++)
        if (ids[i] >= m->target.model.vocab) return false;
    if (at == c->n) at = adopt_rows(m, c, ids, at, last);
    memcpy(c->ids, ids, (size_t)n * sizeof *ids);
    c->used = 0;
    while (n - at > PENDING) {
        int k = n - at - PENDING < m->most ? n - at - PENDING : m->most;
        for (int i = 0; i < k; i++)
            m->early[i] = context_row(slot, ids, at, at + i, false);
        if (!run_rows(m, m->early, k, 0, false, false, &none)) return false;
        at += k;
    }
    for (int i = at; i < n; i++)
        m->row[m->n++] = context_row(slot, ids, at, i, wanted && i == n - 1);
    m->n_wanted += wanted;
    c->n = n;
    return true;
}

int pl_draft_model_row(pl_draft_model *m, int slot, int32_t token, int parent) {
    pl_draft_context *c = &m->context[slot];
    int               r = c->used, depth = 0;
    if (r == m->drafted || m->n == m->most || m->n_wanted == m->most_wanted) return -1;
    c->token[r] = token;
    c->parent[r] = parent;
    for (int at = r; at >= 0; at = c->parent[at])
        depth++;
    if (c->n + depth > m->target.model.config.max_position_embeddings) return -1;
    c->used++;
    m->row[m->n++] = (pl_draft_row){.slot = slot,
                                    .token = token,
                                    .pos = c->n + depth - 1,
                                    .n_ctx = c->n,
                                    .n_path = depth,
                                    .place = c->n + r,
                                    .drafted = r,
                                    .wanted = true};
    m->n_wanted++;
    return r;
}

static bool run_all(pl_draft_model *m, bool best, bool logits, pl_draft_best *out) {
    bool good = m->n > 0 && run_rows(m, m->row, m->n, m->n_wanted, best, logits, out) && m->n_wanted > 0;
    m->n = m->n_wanted = 0;
    return good;
}

const float *pl_draft_model_run(pl_draft_model *m) {
    pl_draft_best out;
    return run_all(m, false, true, &out) ? out.logits : NULL;
}

bool pl_draft_model_results(pl_draft_model *m, bool best, bool logits, pl_draft_best *out) {
    return run_all(m, best, logits, out);
}

void pl_draft_model_check(pl_draft_model *m, pl_ctx *ctx) {
    if (m->ctx.err.status != PL_OK && ctx->err.status == PL_OK)
        pl_ctx_fail(ctx, m->ctx.err.status, "drafter: %s", m->ctx.err.msg);
}

double pl_draft_model_bytes(const pl_draft_model *m) {
    return pl_llama_step_bytes(&m->target.model, m->positions / 2);
}
