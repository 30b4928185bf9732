#include "train/task/routed.h"

#include "infer/head/draft_vocab.h"
#include "infer/head/dynaspec.h"
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/rowloss.h"
#include "kernels/tape.h"
#include "train/keys.h"
#include "train/loop/trainer.h"
#include "train/start/start.h"
#include "train/task/clusters.h"
#include "train/task/drafter.h"
#include "train/task/traces.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DEPTHS = 16, PRIOR_ROWS = 1 << 16 };

typedef struct router_task {
    pl_task          task;
    const pl_recipe *r;
    pl_teacher       teacher;
    pl_backbone     *model;
    pl_param_block   block;
    pl_trace_rows    rows;
    pl_ctx           ctx;
    pl_tape          tape;
    int64_t          cursor[2], eval_rows, top; // top: best tokens whose clusters are labels
    pl_dtype         dtype;                     // of the checkpoint
    int32_t         *cluster;                   // [V] cluster of each target id, -1: not drafted
    pl_arena         arrays;                    // memory of the ops' inputs: y, weight
    float           *y, *weight;                // [capacity, clusters], [capacity]
    int32_t         *best;                      // [clusters]
    uint8_t         *chosen;                    // [clusters]
    pl_span         *span;                      // [clusters]
} router_task;

static pl_routed *routed(const router_task *t) {
    return pl_routed_of(&t->model->head);
}

static int64_t clusters(const router_task *t) {
    return routed(t)->router.clusters;
}

// ---- a step

static void label_row(router_task *t, int64_t row, float *y) {
    const int32_t *id = t->rows.top_id + row * t->rows.top;
    const float   *p = t->rows.top_prob + row * t->rows.top;
    bool           shares = routed(t)->router.kind == PL_ROUTER_CORAL;
    double         sum = 0;
    memset(y, 0, (size_t)clusters(t) * sizeof *y);
    for (int64_t k = 0; k < t->top; k++)
        if (t->cluster[id[k]] >= 0) sum += (double)p[k];
    for (int64_t k = 0; k < t->top; k++) {
        int32_t c = t->cluster[id[k]];
        if (c < 0) continue;
        if (shares)
            y[c] += sum > 0 ? (float)((double)p[k] / sum) : 0;
        else
            y[c] = 1;
    }
}

typedef struct pass {
    router_task *t;
    int64_t      rows;
    bool         learn;
    pl_tensor    scores, loss; // in host memory
} pass;

static void forward(pl_ctx *ctx, pass *p) {
    router_task     *t = p->t;
    const pl_router *r = &routed(t)->router;
    pl_tensor        embed = pl_embed(ctx, t->model->embed, t->rows.tokens, p->rows);
    pl_tensor        hidden = pl_ctx_write(ctx, t->rows.hidden, p->rows, t->rows.d);
    pl_tensor        output = pl_ctx_write(ctx, t->rows.output, p->rows, t->rows.d);
    p->scores = pl_router_scores(ctx, r, embed, hidden, output);
    pl_classify_args a = {.z = p->scores,
                          .y = t->y,
                          .weight = t->weight,
                          .kind = r->kind == PL_ROUTER_CORAL ? PL_CLASSIFY_SOFTMAX : PL_CLASSIFY_BCE};
    p->loss = pl_classify(ctx, &a);
    if (p->learn) pl_tape_backward(ctx);
    p->loss.data = pl_ctx_read(ctx, &p->loss);
    if (!p->learn) p->scores.data = pl_ctx_read(ctx, &p->scores);
}

// Measures the larger of learning and scoring.
static void measure(pl_ctx *ctx, void *arg) {
    router_task *t = arg;
    pl_tape     *tape = ctx->tape;
    pass         score = {.t = t, .rows = t->rows.capacity}, learn = {.t = t, .rows = t->rows.capacity, .learn = true};
    ctx->tape = NULL;
    forward(ctx, &score);
    ctx->tape = tape;
    pl_ctx_begin(ctx);
    forward(ctx, &learn);
}

// Runs the current rows; *loss: their summed loss.
static pl_status run(router_task *t, pass *p, double *loss, pl_err *err) {
    for (int64_t i = 0; i < t->rows.rows; i++)
        label_row(t, i, t->y + i * clusters(t));
    p->t = t;
    p->rows = t->rows.rows;
    t->ctx.tape = p->learn ? &t->tape : NULL;
    pl_ctx_begin(&t->ctx);
    forward(&t->ctx, p);
    t->ctx.tape = &t->tape;
    PL_TRY(pl_ctx_sync(&t->ctx, err));
    for (int64_t i = 0; i < p->rows; i++)
        *loss += pl_real_at(&p->loss, i);
    return PL_OK;
}

static pl_status slot(pl_task *task, int64_t step, int number, double *sums, pl_err *err) {
    router_task *t = (router_task *)task;
    pass         p = {.learn = true};
    (void)step, (void)number; // the cursor alone determines the rows
    PL_TRY(pl_trace_rows_fill(&t->rows, PL_TRACE_TRAIN, t->cursor, err));
    PL_TRY(run(t, &p, &sums[PL_SUM_LOSS], err));
    sums[PL_SUM_WEIGHT] = sums[PL_SUM_TOKENS] = (double)p.rows;
    return PL_OK;
}

static pl_status skip(pl_task *task, int64_t step, int number, pl_err *err) {
    router_task *t = (router_task *)task;
    (void)step, (void)number;
    return pl_trace_rows_skip(&t->rows, t->cursor, err);
}

// ---- evaluation

typedef struct depth_sums {
    double count, first, top, mass, shortlist, read;
} depth_sums;

// Returns the rows that the fused head reads: each cluster fills its own panels, the last of which may be half as wide.
static int64_t rows_read(const int64_t *offset, int64_t n, const uint8_t *chosen) {
    int64_t rows = 0;
    for (int64_t c = 0; c < n; c++)
        if (chosen[c]) rows += (offset[c + 1] - offset[c] + PL_HALF_PANEL - 1) / PL_HALF_PANEL * PL_HALF_PANEL;
    return rows;
}

static pl_status score_row(router_task *t, const float *score, int64_t row, depth_sums *s, pl_err *err) {
    const int32_t *id = t->rows.top_id + row * t->rows.top;
    const float   *prob = t->rows.top_prob + row * t->rows.top;
    int64_t        n = clusters(t);
    double         hits = 0, wanted = 0, held = 0, all = 0;
    memset(t->chosen, 0, (size_t)n);
    if (!pl_router_choose(score, n, pl_routed_budget(routed(t)->own, t->rows.depth[row]), t->best, t->chosen))
        return pl_fail(err, PL_E_INPUT, "router: a score is NaN; lower train.lr");
    for (int64_t k = 0; k < t->rows.top; k++) {
        int32_t c = t->cluster[id[k]];
        bool    in = c >= 0 && t->chosen[c];
        if (k == 0) s->first += in;
        if (k < t->top) {
            wanted++;
            hits += in;
        }
        all += (double)prob[k];
        held += in ? (double)prob[k] : 0;
    }
    int spans = pl_route_spans(routed(t)->offset, n, t->chosen, t->span);
    s->count++;
    s->top += hits / wanted;
    s->mass += all > 0 ? held / all : 0;
    s->shortlist += (double)pl_spans_rows(t->span, spans);
    s->read += (double)rows_read(routed(t)->offset, n, t->chosen);
    return PL_OK;
}

static void put_depths(pl_metrics *m, const char *key, const depth_sums *s, size_t offset, int depths) {
    double mean[DEPTHS];
    for (int i = 0; i < depths; i++)
        mean[i] = s[i].count > 0 ? *(const double *)((const char *)&s[i] + offset) / s[i].count : 0;
    pl_metrics_nums(m, key, mean, depths);
}

static void put_evaluation(pl_metrics *m, const depth_sums *s, int depths) {
    put_depths(m, "eval_recall_head_best", s, offsetof(depth_sums, first), depths);
    put_depths(m, "eval_recall_head_top", s, offsetof(depth_sums, top), depths);
    put_depths(m, "eval_head_mass", s, offsetof(depth_sums, mass), depths);
    put_depths(m, "eval_shortlist", s, offsetof(depth_sums, shortlist), depths);
    put_depths(m, "eval_shortlist_read", s, offsetof(depth_sums, read), depths);
    double count[DEPTHS];
    for (int i = 0; i < depths; i++)
        count[i] = s[i].count;
    pl_metrics_nums(m, "eval_rows_by_depth", count, depths);
}

static pl_status evaluate(pl_task *task, int64_t step, pl_metrics *m, double *score, pl_err *err) {
    router_task *t = (router_task *)task;
    depth_sums   s[DEPTHS] = {{0}}, all = {0};
    int64_t      at[2] = {0}, rows = 0;
    int          depths = 1;
    double       loss = 0;
    while (rows < t->eval_rows) {
        pass p = {.learn = false};
        PL_TRY(pl_trace_rows_fill(&t->rows, PL_TRACE_HELD, at, err));
        if (t->rows.rows == 0) break;
        PL_TRY(run(t, &p, &loss, err));
        rows += p.rows;
        for (int64_t i = 0; i < p.rows; i++) {
            int depth = t->rows.depth[i] < DEPTHS ? t->rows.depth[i] : DEPTHS - 1;
            for (int64_t c = 0; c < clusters(t) && t->rows.real == PL_F64; c++) // choose as decoding does, in fp32
                t->y[c] = (float)pl_f64(&p.scores)[i * clusters(t) + c];
            const float *z = t->rows.real == PL_F64 ? t->y : pl_f32(&p.scores) + i * clusters(t);
            PL_TRY(score_row(t, z, i, &s[depth], err));
            if (depth + 1 > depths) depths = depth + 1;
        }
    }
    for (int i = 0; i < depths; i++) {
        all.count += s[i].count;
        all.first += s[i].first;
        all.mass += s[i].mass;
        all.shortlist += s[i].shortlist;
        all.read += s[i].read;
    }
    double n = all.count > 0 ? all.count : 1;
    pl_metrics_num(m, "eval_loss", loss / n);
    put_evaluation(m, s, depths);
    pl_metrics_num(m, "eval_mean_shortlist", all.shortlist / n);
    pl_metrics_num(m, "eval_mean_shortlist_read", all.read / n);
    pl_metrics_int(m, "eval_rows", rows);
    pl_log("step %lld: held out loss %.4f, the full head's best token in %.1f%% of shortlists, %.4f of its mass, %.0f "
           "rows, %.0f read",
           (long long)step, loss / n, 100 * all.first / n, all.mass / n, all.shortlist / n, all.read / n);
    *score = all.mass / n;
    return PL_OK;
}

static pl_status save_model(pl_task *task, const char *dir, pl_err *err) {
    router_task  *t = (router_task *)task;
    pl_param_view view;
    PL_TRY(pl_param_view_init(&view, &t->block, err));
    pl_status st = pl_backbone_write(t->model, dir, view.data, t->dtype, err);
    pl_param_view_fini(&view);
    return st;
}

// ---- the model: the starting drafter with its head's rows sorted by cluster

// Reads the target ids of the starting head's rows.
static pl_status start_vocab(int32_t **id, int64_t *n, const pl_hf_config *c, const pl_weight_source *src,
                             pl_err *err) {
    *n = c->draft_vocab_size ? c->draft_vocab_size : c->vocab_size;
    if (*n < c->vocab_size) return pl_draft_vocab_read(id, src, *n, c->vocab_size, err);
    *id = pl_malloc(pl_size_mul((size_t)*n, sizeof **id, 1));
    if (!*id) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    for (int64_t i = 0; i < *n; i++)
        (*id)[i] = (int32_t)i;
    return PL_OK;
}

static pl_status create_model(router_task *t, const pl_env *env, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(t->r);
    const char            *dir = tr->drafter.start;
    pl_hf_config           c;
    pl_weight_source      *src = NULL;
    int32_t               *id = NULL;
    PL_TRY(pl_hf_config_read(&c, dir, PL_HF_DRAFTER, err));
    if (c.vocab_size != t->teacher.model.vocab || c.hidden_size != t->teacher.model.shape.d)
        return pl_fail(err, PL_E_INPUT,
                       "%s: made for a vocabulary of %d and width %d, the target has %lld and %lld; use "
                       "the drafter's own target",
                       dir, c.vocab_size, c.hidden_size, (long long)t->teacher.model.vocab,
                       (long long)t->teacher.model.shape.d);
    const char *name = pl_hf_backbone_name(&c);
    if (pl_recipe_differs(t->r, &tr->drafter.kind) && pl_train_backbone(t->r) != pl_backbone_find(name))
        return pl_recipe_fail(t->r, &tr->drafter.kind, err, "drafter.start, %s, is an %s drafter", dir, name);
    PL_TRY(pl_weight_source_open(&src, dir, err));
    pl_backbone_options o = {.head = pl_train_head_read(t->r),
                             .bias = c.fc_bias == PL_HF_BIAS_YES || pl_weight_source_find(src, "fc.bias"),
                             .selector = c.selector};
    pl_backbone_like(&o, &c);
    o.own_embed = pl_weight_source_find(src, PL_BACKBONE_EMBED); // a routed head refuses own embeddings
    pl_status st = start_vocab(&id, &o.draft_vocab, &c, src, err);
    o.d2t = id;
    if (st == PL_OK)
        st = pl_backbone_create(&t->model, pl_backbone_find(name), &t->teacher.model, &o, env->backend, err);
    pl_free(id);
    pl_weight_source_close(src);
    return st;
}

static void log_clusters(const pl_clusters *c, double seconds) {
    int64_t least = c->n, most = 0;
    for (int64_t i = 0; i < c->m; i++) {
        int64_t size = c->offset[i + 1] - c->offset[i];
        if (size < least) least = size;
        if (size > most) most = size;
    }
    pl_log("clusters: %lld of %lld rows in %.1f s, %d rounds, mean cosine %.3f, %lld to %lld rows each",
           (long long)c->m, (long long)c->n, seconds, c->rounds, c->cosine, (long long)least, (long long)most);
}

static pl_status make_clusters(router_task *t, const pl_start *start, const pl_env *env, pl_err *err) {
    const pl_train_recipe    *tr = pl_train_recipe_of(t->r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(t->r);
    pl_head                  *h = &t->model->head;
    const char               *dir = tr->drafter.start;
    float                    *rows = pl_malloc(pl_size_mul((size_t)h->vocab, (size_t)h->d, sizeof *rows));
    int32_t                  *sorted = pl_malloc(pl_size_mul((size_t)h->vocab, sizeof *sorted, 1));
    pl_clusters               c = {0};
    pl_status st = rows && sorted ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory for the head");
    if (st == PL_OK) st = pl_start_head_rows(rows, start, dir, h->d2t, h->vocab, h->d, err);
    double began = pl_now();
    if (st == PL_OK) {
        pl_tensor         w = pl_tensor_2d(rows, PL_F32, h->vocab, h->d);
        // Clusters need fp32, also if the training backend is the double-precision reference.
        const pl_backend *be = pl_start_backend(env)->real == PL_F32 ? pl_start_backend(env) : pl_backend_ref();
        st = pl_clusters_make(&c, &w, NULL, h->vocab, clusters(t), (uint64_t)gen->seed, be, env->pool, err);
    }
    if (st == PL_OK) {
        log_clusters(&c, pl_now() - began);
        for (int64_t i = 0; i < h->vocab; i++)
            sorted[i] = h->d2t[c.order[i]];
        memcpy(h->d2t, sorted, (size_t)h->vocab * sizeof *sorted);
        pl_routed_set_offsets(h, c.offset);
        c.offset = NULL; // now owned by the head
    }
    pl_clusters_fini(&c);
    pl_free(sorted);
    pl_free(rows);
    return st;
}

// Reads the clusters of a resumed run from its checkpoint; the trainer checks that the checkpoint is this run's.
static pl_status read_clusters(router_task *t, const char *dir, pl_err *err) {
    pl_head          *h = &t->model->head;
    pl_weight_source *src;
    int32_t          *d2t = NULL;
    PL_TRY(pl_weight_source_open(&src, dir, err));
    pl_status st = h->kind->table->read(h, src, err);
    if (st == PL_OK) st = pl_draft_vocab_read(&d2t, src, h->vocab, t->teacher.model.vocab, err);
    if (st == PL_OK) memcpy(h->d2t, d2t, (size_t)h->vocab * sizeof *d2t);
    pl_free(d2t);
    pl_weight_source_close(src);
    return st;
}

static pl_status find_clusters(router_task *t, const pl_start *start, const char *out_dir, const pl_env *env,
                               pl_err *err) {
    char     *last = pl_path_join(out_dir, "checkpoints/last");
    pl_status st = last ? pl_atomic_dir_recover(last, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    bool      there = st == PL_OK && pl_path_exists(last);
    if (there) st = read_clusters(t, last, err);
    // The trainer skips a damaged folder; the clusters are recomputed from seed and start.
    if (st == PL_E_INPUT) there = false, st = PL_OK;
    if (st == PL_OK && !there) st = make_clusters(t, start, env, err);
    pl_free(last);
    PL_TRY(st);
    const pl_head *h = &t->model->head;
    t->cluster = pl_malloc(pl_size_mul((size_t)t->teacher.model.vocab, sizeof *t->cluster, 1));
    if (!t->cluster) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    for (int64_t v = 0; v < t->teacher.model.vocab; v++)
        t->cluster[v] = -1;
    for (int64_t c = 0; c < clusters(t); c++)
        for (int64_t i = routed(t)->offset[c]; i < routed(t)->offset[c + 1]; i++)
            t->cluster[h->d2t[i]] = (int32_t)c;
    return PL_OK;
}

static pl_status create_block(router_task *t, const pl_env *env, pl_err *err) {
    pl_params *ps = &t->model->params;
    bool      *frozen = pl_calloc((size_t)ps->n, sizeof *frozen);
    if (!frozen) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    for (int i = 0; i < ps->n; i++)
        frozen[i] = i < t->model->head_param || i >= t->model->selector_param || ps->p[i].fixed;
    pl_param_block_options o = {
        .backend = env->backend, .round_to = t->dtype, .frozen = frozen, .shard = pl_train_shard(t->r, env->comm)};
    pl_status st = pl_param_block_create(&t->block, ps, &o, err);
    pl_free(frozen);
    return st;
}

// Sets the bias to each cluster's log-odds in the first rows, with one positive and one negative row added.
static pl_status start_bias(router_task *t, pl_err *err) {
    int64_t   n = clusters(t), rows = 0, at[2] = {0};
    double   *count = pl_calloc((size_t)n, sizeof *count);
    float    *bias = pl_calloc((size_t)n, sizeof *bias);
    pl_status st = count && bias ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory");
    while (st == PL_OK && rows < PRIOR_ROWS && at[0] < t->rows.docs[PL_TRACE_TRAIN]) {
        st = pl_trace_rows_fill(&t->rows, PL_TRACE_TRAIN, at, err);
        for (int64_t row = 0; st == PL_OK && row < t->rows.rows; row++, rows++) {
            label_row(t, row, t->y);
            for (int64_t c = 0; c < n; c++)
                count[c] += (double)t->y[c];
        }
    }
    for (int64_t c = 0; c < n && st == PL_OK; c++)
        bias[c] = (float)log((count[c] + 1) / ((double)rows - count[c] + 1));
    if (st == PL_OK) {
        int b2 = pl_params_find(&t->model->params, &routed(t)->router.b2);
        st = pl_param_block_set(&t->block, b2, bias, err);
    }
    pl_free(count);
    pl_free(bias);
    return st;
}

// ---- keys that a router does not read

static const char *why_unread(const char *path) {
    static const struct {
        const char *front, *why;
    } rows[] = {{"drafter.freeze", "all but the router is frozen"},
                {"drafter.selector.", "the selector is drafter.start's"},
                {"drafter.head.frozen", "all but the router is frozen"},
                {"drafter.head.position_aware", "drafter.head.k0, k1 and kmin say what is read at each depth"},
                {"drafter.head.", "the head is drafter.start's, its rows sorted by cluster"},
                {"drafter.", "drafter.start's backbone is taken as it is"},
                {"train.decay_embeddings", "a router has no embeddings"},
                {"train.recompute", "a router is too shallow to be computed again"},
                {"", "a router learns which clusters hold the best traced tokens, by a loss of its own"}};
    int i = 0;
    while (strncmp(path, rows[i].front, strlen(rows[i].front)) != 0)
        i++;
    return rows[i].why;
}

const void *pl_router_unread(const pl_recipe *r, int k, const char **why) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const void *const      own[] = {&tr->train.decay_embeddings, &tr->train.recompute};
    const void            *field = k < 2 ? own[k] : pl_drafter_field(r, k - 2);
    if (field && why) *why = why_unread(pl_recipe_path(r, field));
    return field;
}

static pl_status unread(const pl_recipe *r, const void *field, const char *why, pl_err *err) {
    if (!pl_recipe_differs(r, field)) return PL_OK;
    return pl_recipe_fail(r, field, err, "a routed head's run does not read it: %s; leave it out", why);
}

pl_status pl_router_check(const pl_recipe *r, pl_err *err) {
    const pl_dynaspec *own = pl_recipe_struct(r, pl_dynaspec_keys);
    const void *const  budget[] = {&own->k1, &own->kmin, &own->floored};
    if (pl_head_recipe_of(r)->vocab)
        return pl_recipe_fail(r, &pl_head_recipe_of(r)->vocab, err,
                              "a routed head has the rows of drafter.start's: start from a trimmed one and leave this "
                              "out (in `drafters`: head.vocab: null for a routed one)");
    const char *why;
    const void *field;
    for (int i = 0; (field = pl_router_unread(r, i, &why)); i++)
        PL_TRY(unread(r, field, why, err));
    for (int i = 0; i < 3 && own->fixed; i++)
        PL_TRY(unread(r, budget[i], "drafter.head.fixed is k0 clusters at every depth", err));
    if (own->router == PL_ROUTER_CORAL)
        PL_TRY(unread(r, &own->width, "coral's hidden layer is as wide as the drafter", err));
    return PL_OK;
}

// ---- preparation

static pl_status open_traces(router_task *t, const char *out_dir, const pl_env *env, pl_err *err) {
    const pl_recipe          *r = t->r;
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const char               *given = tr->traces.path;
    char                      drafter[17], *dir = given ? pl_strdup(given) : pl_path_join(out_dir, "traces");
    int64_t                   capacity = tr->train.slot_rows;
    pl_status st = dir ? pl_start_identity(drafter, r, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK && !given) st = pl_traces_capture(r, out_dir, dir, env, err);
    pl_dataset_attrs want = {.target_fingerprint = t->teacher.model.fingerprint,
                             .vocab_size = (int32_t)t->teacher.model.vocab,
                             .d = (int32_t)t->model->shape.d,
                             .A = -1,
                             .drafter_fingerprint = drafter,
                             .top = -1};
    // Given traces must match the recipe's settings of traces.
    if (pl_recipe_differs(r, &tr->traces.tree)) want.tree = tr->traces.tree;
    if (pl_recipe_differs(r, &tr->traces.top)) want.top = (int32_t)tr->traces.top;
    if (st == PL_OK && given && pl_recipe_differs(r, &tr->traces.rows))
        st = pl_traces_check_rows(dir, tr->traces.rows, err);
    if (st == PL_OK) st = pl_trace_rows_open(&t->rows, dir, &want, (uint64_t)gen->seed, capacity, env->backend, err);
    pl_free(dir);
    if (st == PL_OK && t->top > t->rows.top)
        st = pl_recipe_fail(r, &((const pl_dynaspec *)pl_recipe_struct(r, pl_dynaspec_keys))->top, err,
                            "%lld, the traces hold %lld tokens of each row", (long long)t->top, (long long)t->rows.top);
    return st;
}

static void take_arrays(void *arg) {
    router_task *t = arg;
    size_t       rows = (size_t)t->rows.capacity;
    t->y = pl_arena_alloc(&t->arrays, pl_size_mul(rows, (size_t)clusters(t), sizeof *t->y));
    t->weight = pl_arena_alloc(&t->arrays, rows * sizeof *t->weight);
}

static pl_status make_room(router_task *t, const pl_backend *be, pl_err *err) {
    size_t n = (size_t)clusters(t), rows = (size_t)t->rows.capacity;
    PL_TRY(pl_arena_init_shared(&t->arrays, "training rows", be->memory, take_arrays, t, err));
    t->best = pl_calloc(n, sizeof *t->best);
    t->chosen = pl_calloc(n, sizeof *t->chosen);
    t->span = pl_calloc(n, sizeof *t->span);
    if (!t->best || !t->chosen || !t->span)
        return pl_fail(err, PL_E_MEMORY, "training: out of memory for %zu rows", rows);
    for (size_t i = 0; i < rows; i++)
        t->weight[i] = 1;
    return PL_OK;
}

static pl_status prepare(pl_task *task, const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    router_task              *t = (router_task *)task;
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    char                      recipe[17], start_id[17];
    int64_t                   done;
    t->r = r;
    PL_TRY(pl_recipe_require(r, &gen->target.path, err));
    PL_TRY(pl_recipe_require(r, &tr->drafter.start, err));
    PL_TRY(pl_router_check(r, err));
    PL_TRY(pl_recipe_hash(r, PL_STAGE_DRAFTER, recipe, err));
    PL_TRY(pl_start_identity(start_id, r, err));
    t->dtype = tr->train.dtype == PL_TRAIN_BF16 ? PL_BF16 : PL_F32;
    t->eval_rows = tr->train.eval_tokens;
    t->top = ((const pl_dynaspec *)pl_recipe_struct(r, pl_dynaspec_keys))->top;
    pl_dtype held = pl_target_dtype(gen);
    PL_TRY(pl_teacher_open(&t->teacher, gen->target.path, held, env->backend, false, NULL, err));
    PL_TRY(create_model(t, env, err));
    PL_TRY(pl_comm_enter(env->comm, err)); // rank 0 captures the traces; the other ranks open them
    PL_TRY(open_traces(t, out_dir, env, err));
    PL_TRY(pl_comm_leave(env->comm, err));
    PL_TRY(make_room(t, env->backend, err));
    PL_TRY(create_block(t, env, err));
    pl_start start = {.r = r, .model = t->model, .block = &t->block, .teacher = &t->teacher};
    PL_TRY(pl_comm_enter(env->comm, err)); // rank 0 repairs a checkpoint whose swap was interrupted
    PL_TRY(find_clusters(t, &start, out_dir, env, err));
    PL_TRY(pl_comm_leave(env->comm, err));
    PL_TRY(pl_param_block_init(&t->block, (uint64_t)gen->seed, err));
    PL_TRY(pl_start_from(&start, tr->drafter.start, env, err));
    PL_TRY(pl_trainer_done_steps(out_dir, &done, err));
    if (routed(t)->router.kind == PL_ROUTER_MLP && done == 0) PL_TRY(start_bias(t, err));
    PL_TRY(pl_ctx_init(&t->ctx, env->backend, env->pool));
    PL_TRY(pl_tape_init(&t->tape, 0, err));
    t->ctx.tape = &t->tape;
    PL_TRY(pl_ctx_measure(&t->ctx, measure, t, err));
    t->task.name = "router";
    t->task.block = &t->block;
    t->task.cursor = t->cursor;
    t->task.n_cursor = 2;
    t->task.tape = &t->tape;
    t->task.slot = slot;
    t->task.skip = skip;
    t->task.save_model = save_model;
    if (t->rows.docs[PL_TRACE_HELD] > 0) t->task.evaluate = evaluate;
    snprintf(t->task.identity, sizeof t->task.identity, "router recipe %s target %s traces %s start %s", recipe,
             t->teacher.model.fingerprint, pl_dataset_fingerprint(t->rows.ds), start_id);
    pl_log("router: %.2f M parameters over %lld clusters, %lld rows of traces", (double)t->block.n / 1e6,
           (long long)clusters(t), (long long)pl_dataset_rows(t->rows.ds));
    return PL_OK;
}

static void destroy(pl_task *task) {
    router_task *t = (router_task *)task;
    void        *owned[] = {t->cluster, t->best, t->chosen, t->span};
    pl_ctx_fini(&t->ctx);
    pl_arena_fini(&t->arrays);
    pl_tape_fini(&t->tape);
    pl_trace_rows_close(&t->rows);
    pl_param_block_destroy(&t->block);
    pl_backbone_destroy(t->model);
    pl_teacher_close(&t->teacher);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
}

const pl_training pl_training_router = {sizeof(router_task), prepare, destroy};
