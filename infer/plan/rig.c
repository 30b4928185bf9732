#include "infer/plan/rig.h"

#include "infer/decode/decode.h"
#include "infer/drafter/drafter.h"
#include "infer/model/kv.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/op/draw.h"
#include "kernels/op/embed.h"
#include "kernels/op/gather.h"
#include "kernels/op/linear.h"
#include "kernels/op/topk.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS_LEAST 3
#define ROUNDS_MOST 200
#define PLAIN_STEPS 12 // of plain decoding after each subject's cycles,
#define PLAIN_COLD 4   // of which the first find caches that others have used
#define SAMPLES 512    // kept of one part at one number of rows
#define SIZES 24       // different row counts of one part
#define TREES 20
#define GIVEN 5                    // cycles in a row of a tree that is asked for
#define PATH (PL_SHAPE_LEVELS + 1) // nodes from the root to the deepest one, both counted

typedef struct rig_tree {
    int     n, levels, accepted; // nodes with the root; rows that become final, of a session
    int32_t parent[PL_SHAPE_NODES], depth[PL_SHAPE_NODES];
    int     w[PL_SHAPE_LEVELS]; // expanded nodes by depth
    int32_t expanded[PL_SHAPE_LEVELS][PL_SHAPE_NODES];
    int32_t place[PL_SHAPE_NODES]; // of an expanded node among all of them, by depth
} rig_tree;

// Samples of one part at one number of rows.
typedef struct series {
    int    rows, n;
    double x[SAMPLES];
} series;
typedef struct part_samples {
    int    n;
    series size[SIZES];
} part_samples;

typedef struct rig_subject {
    pl_plan_subject *s;
    pl_ctx           ctx;
    bool             ready, begins; // the head begins before the step
    pl_kv           *kv;            // [batch] the drafter's
    pl_drafter      *block;         // instead, of a backbone that drafts blocks
    part_samples     target, take_in, fuse, layer, first, head, router_first, router, embed, one, k, scored, by_level;
} rig_subject;

typedef struct rig {
    const pl_plan_rig_options *o;
    rig_tree                   tree[TREES];
    int                        n_trees, rows, width, levels; // the largest: rows of a forward, of a level; levels
    int                        k, layers;                    // candidates of a node, at most; layers of a drafter
    rig_subject               *subject;
    int                        n;
    pl_kv                     *kv;     // [batch] the target's
    pl_arena                   arrays; // of what ops read and give beside tensors:
    int32_t                   *id, *pos, *index, *last, *path, *choice;
    int32_t                   *head_token, *group, *text; // text: [context + 1] tokens
    float                     *value, *lse;
    pl_kvrow                  *row, *draft_row;
    pl_draw_row               *draw;  // of the target's tokens, where a device draws them
    uint64_t                   token; // of the next row: no embedding is read twice in a row
    // the subject and tree that a context is measured or run with
    rig_subject               *now;
    const rig_tree            *with;
    pl_tree                    draft[PL_PLAN_BATCH];
    pl_draft_item              item[PL_PLAN_BATCH];
    // plain decoding
    pl_engine                 *engine;
    int32_t                   *prompt;
    part_samples               plain_step, plain_target, plain_verify, plain_other;
} rig;

static void add_sample(part_samples *p, int rows, double seconds) {
    int i = 0;
    while (i < p->n && p->size[i].rows != rows)
        i++;
    if (i == SIZES) return;
    if (i == p->n) p->size[p->n++].rows = rows;
    series *s = &p->size[i];
    if (s->n < SAMPLES) s->x[s->n++] = seconds;
}

static void read_samples(const part_samples *p, pl_autotuner_cost *c) {
    *c = (pl_autotuner_cost){0};
    for (int i = 0; i < p->n; i++)
        pl_autotuner_cost_add(c, p->size[i].rows, pl_stats(p->size[i].x, p->size[i].n).median);
}

static double median_of(const part_samples *p) {
    return p->n ? pl_stats(p->size[0].x, p->size[0].n).median : 0;
}

// ---- trees ----------------------------------------------------------------------------------------------------------

static void add_tree(rig *r, int n, const int32_t *parent) {
    rig_tree *t = &r->tree[r->n_trees++];
    int       children[PL_SHAPE_NODES] = {0}, places = 0;
    *t = (rig_tree){.n = n};
    for (int i = 1; i < n; i++) {
        t->parent[i] = parent[i];
        t->depth[i] = t->depth[parent[i]] + 1;
        children[parent[i]]++;
        if (t->depth[i] > t->levels) t->levels = t->depth[i];
    }
    for (int i = 0; i < n; i++)
        if (children[i]) t->expanded[t->depth[i]][t->w[t->depth[i]]++] = i;
    for (int l = 1; l < t->levels; l++)
        for (int i = 0; i < t->w[l]; i++)
            t->place[t->expanded[l][i]] = places++;
    t->accepted = 1 + (t->levels + 1) / 2;
    for (int l = 0; l < t->levels; l++)
        if (t->w[l] > r->width) r->width = t->w[l];
    if (t->n > r->rows) r->rows = t->n;
    if (t->levels > r->levels) r->levels = t->levels;
}

// by[l]: children of each node of level l.
static void add_levels(rig *r, const int *by, int levels) {
    int32_t parent[PL_SHAPE_NODES] = {-1};
    int     n = 1, first = 0;
    for (int l = 0; l < levels; l++)
        for (int end = n; first < end; first++)
            for (int c = 0; c < by[l]; c++)
                parent[n++] = first;
    add_tree(r, n, parent);
}

static void make_trees(rig *r) {
    static const int chains[] = {1, 2, 3, 4, 5, 7, 9, 12, 15};
    static const int wide[][3] = {{2, 1, 1}, {3, 2, 0}, {4, 1, 1}, {8, 1, 0}};
    int32_t          parent[PL_SHAPE_NODES];
    for (int i = 0; i < PL_SHAPE_NODES; i++)
        parent[i] = i - 1;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        add_tree(r, chains[i] + 1, parent);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        add_levels(r, wide[i], wide[i][2] ? 3 : 2);
    // As in decoding with it, where the same shape follows itself.
    for (int i = 0; i < GIVEN && r->o->tree && r->o->tree->n > 1; i++)
        add_tree(r, r->o->tree->n, r->o->tree->parent);
}

// ---- one cycle ------------------------------------------------------------------------------------------------------

static int32_t next_token(rig *r) {
    return (int32_t)(r->token++ * 7919 % (uint64_t)r->o->target->vocab);
}

// Where row m's path of n cache slots is written.
static int32_t *path_of(rig *r, int m, int n) {
    PL_CHECK(n <= PATH, "a path of %d nodes, a row has room for %d", n, PATH);
    return r->path + (size_t)m * PATH;
}

// Rows of all sessions: root and tree.
static int target_rows(rig *r, const rig_tree *t) {
    int b = r->o->batch, m = 0;
    for (int s = 0; s < b; s++)
        for (int i = 0; i < t->n; i++, m++) {
            int      n = t->depth[i] + 1, node = i;
            int32_t *path = path_of(r, m, n);
            r->id[m] = next_token(r);
            r->pos[m] = r->o->context + t->depth[i];
            for (int k = n - 1; k >= 0; k--, node = t->parent[node])
                path[k] = r->o->context + node;
            pl_kv_row(&r->kv[s], &r->row[m], (int64_t)b * t->n, r->o->context, path, n, r->o->context + i);
        }
    return m;
}

// The drafter's rows for what became final: positions before the context's end.
static int final_rows(rig *r, const rig_tree *t) {
    int m = 0, rows = r->o->batch * t->accepted;
    for (int s = 0; s < r->o->batch; s++)
        for (int j = 0; j < t->accepted; j++, m++) {
            int32_t first = r->o->context - t->accepted;
            r->id[m] = next_token(r);
            r->pos[m] = first + j;
            r->index[m] = s * t->n + j;
            pl_kv_row(&r->now->kv[s], &r->draft_row[m], rows, first, NULL, j + 1, first + j);
        }
    return m;
}

// The drafter's rows for the nodes expanded at depth l >= 1; index: their parents' rows in the last level.
static int level_rows(rig *r, const rig_tree *t, int l) {
    int m = 0, rows = r->o->batch * t->w[l];
    for (int s = 0; s < r->o->batch; s++)
        for (int e = 0; e < t->w[l]; e++, m++) {
            int32_t *path = path_of(r, m, l);
            int      node = t->expanded[l][e], parent = t->parent[node], up = node;
            for (int k = l - 1; k >= 0; k--, up = t->parent[up])
                path[k] = r->o->context + t->place[up];
            r->id[m] = next_token(r);
            r->pos[m] = r->o->context + l - 1;
            r->index[m] = s;
            for (int p = 0; l > 1 && p < t->w[l - 1]; p++)
                if (t->expanded[l - 1][p] == parent) r->index[m] = s * t->w[l - 1] + p;
            pl_kv_row(&r->now->kv[s], &r->draft_row[m], rows, r->o->context, path, l, path[l - 1]);
        }
    return m;
}

static pl_tensor draft_step(rig *r, pl_ctx *ctx, pl_tensor hidden, int m, pl_tensor *out) {
    const pl_backbone *b = r->now->s->backbone;
    pl_view            view = {.pos = r->pos, .cos = b->cos, .sin = b->sin, .row = r->draft_row, .m = m};
    return b->kind->step(ctx, b, r->id, hidden, &view, out, (pl_tensor){0});
}

static pl_tensor target_part(rig *r, pl_ctx *ctx, int m) {
    const pl_llama    *t = r->o->target;
    const pl_backbone *b = r->now->s->backbone;
    pl_llama_out       out = {0};
    pl_view            view = {.pos = r->pos, .cos = t->cos, .sin = t->sin, .row = r->row, .m = m};
    pl_llama_forward(ctx, t, r->id, m, &view, b->tap, b->n_taps, &out);
    pl_tensor logits = pl_llama_logits(ctx, t, out.hidden);
    if (r->o->temperature == 0)
        pl_topk(ctx, &(pl_topk_args){.x = logits, .id = r->choice, .k = 1});
    else if (ctx->be->memory)
        pl_draw(ctx, &(pl_draw_args){.x = logits, .row = r->draw, .n = m, .id = r->choice});
    return pl_features(ctx, &out, b->n_taps);
}

// What the head reads but for x, before a step from `from`: its rows `index`, NULL: all m. A router that needs the
// step's inputs alone is begun. Each session has m / batch of the rows.
static pl_head_rows begin_head(rig *r, pl_ctx *ctx, pl_tensor from, const int32_t *index, int m, int level) {
    const pl_backbone *b = r->now->s->backbone;
    pl_head_rows       rows = {.level = level};
    if (!pl_head_reads_inputs(&b->head)) return rows;
    rows.hidden = index ? pl_gather(ctx, from, index, m) : from;
    rows.embed = b->embed;
    rows.token = r->head_token;
    rows.group = r->group;
    for (int i = 0; i < m && !ctx->measuring; i++) {
        r->head_token[i] = r->id[index ? index[i] : i];
        r->group[i] = i / (m / r->o->batch);
    }
    pl_head_begin(ctx, &b->head, &rows);
    return rows;
}

static void head_part(rig *r, pl_ctx *ctx, const pl_head_rows *rows) {
    pl_head_topk(ctx, &r->now->s->backbone->head, rows, r->now->s->k, r->choice, r->value, NULL);
}

// The end of a part that began at `began`: what was queued for it is done.
static void lap_since(pl_ctx *ctx, part_samples *p, int rows, double began, double *at, bool keep) {
    pl_ctx_wait(ctx);
    *at = pl_now();
    if (keep) add_sample(p, rows, *at - began);
}

static void lap(pl_ctx *ctx, part_samples *p, int rows, double *at, bool keep) {
    lap_since(ctx, p, rows, *at, at, keep);
}

// A router, timed by itself: one that was begun before the step, and one that reads what the step has put out.
static void lap_begun(pl_ctx *ctx, const pl_head_rows *rows, part_samples *p, int m, double *at, bool keep) {
    if (!rows->foreseen) return;
    pl_ctx_join(ctx);
    lap(ctx, p, m, at, keep);
}

static void lap_late(rig *r, pl_ctx *ctx, pl_head_rows *rows, part_samples *p, int m, double *at, bool keep) {
    const pl_head *h = &r->now->s->backbone->head;
    if (!h->kind->support || rows->foreseen) return;
    rows->support = h->kind->support(ctx, h, rows);
    rows->foreseen = true;
    lap(ctx, p, m, at, keep);
}

// What is told beside the parts, on the rows of the level just done.
static void run_extras(rig *r, rig_subject *s, pl_tensor from, pl_tensor y, bool keep) {
    pl_ctx        *ctx = &s->ctx;
    const pl_head *h = &s->s->backbone->head;
    int            b = r->o->batch;
    for (int i = 0; i < b; i++)
        r->last[i] = i;
    pl_head_rows rows = begin_head(r, ctx, from, r->last, b, 1);
    rows.x = pl_gather(ctx, y, r->last, b);
    pl_head_topk(ctx, h, &rows, 1, r->choice, r->value, NULL); // its panels are near now
    pl_ctx_wait(ctx);
    double at = pl_now();
    pl_head_topk(ctx, h, &rows, 1, r->choice, r->value, NULL);
    lap(ctx, &s->one, b, &at, keep);
    pl_head_topk(ctx, h, &rows, s->s->k, r->choice, r->value, NULL);
    lap(ctx, &s->k, b, &at, keep);
    pl_head_topk(ctx, h, &rows, s->s->k, r->choice, r->value, r->lse);
    lap(ctx, &s->scored, b, &at, keep);
    r->id[0] = next_token(r);
    at = pl_now();
    pl_embed(ctx, s->s->backbone->embed, r->id, 1);
    lap(ctx, &s->embed, 1, &at, keep);
}

// ---- a block drafter's cycle

// What a session's drafter gets: the rows that became final, and how many slots are wanted.
static void block_items(rig *r, const rig_tree *t) {
    for (int s = 0; s < r->o->batch; s++) {
        int32_t *row = r->index + (ptrdiff_t)s * t->accepted;
        for (int j = 0; j < t->accepted; j++)
            row[j] = s * t->n + j;
        r->item[s] = (pl_draft_item){.slot = s,
                                     .tokens = r->text,
                                     .n_tokens = r->o->context + 1,
                                     .first = r->o->context - t->accepted,
                                     .count = t->accepted,
                                     .feature_row = row,
                                     .tree = &r->draft[s],
                                     .depth = t->levels};
        pl_tree_root(&r->draft[s], r->text[r->o->context]);
    }
}

static void run_block(rig *r, rig_subject *s, const rig_tree *t, bool keep) {
    pl_ctx *ctx = &s->ctx;
    r->now = s;
    r->text[r->o->context] = next_token(r);
    pl_ctx_begin(ctx);
    double         at = pl_now();
    int            m = target_rows(r, t);
    pl_draft_batch b = {.item = r->item, .n = r->o->batch, .features = target_part(r, ctx, m)};
    lap(ctx, &s->target, m, &at, keep);
    block_items(r, t);
    s->block->parts = (pl_draft_parts){0};
    s->block->kind->propose(s->block, ctx, &b);
    pl_ctx_wait(ctx);
    double layer = s->block->parts.layer, all = pl_now() - at;
    if (!keep) return;
    add_sample(&s->take_in, r->o->batch * t->accepted, layer);
    if (t->n == t->levels + 1) add_sample(&s->first, r->o->batch * t->levels, all - layer);
}

static void measure_block(pl_ctx *ctx, void *arg) {
    rig           *r = arg;
    pl_draft_batch b = {.features = target_part(r, ctx, r->o->batch * r->rows)};
    r->now->block->kind->propose(r->now->block, ctx, &b);
}

static pl_status open_block(rig *r, rig_subject *s, pl_err *err) {
    char           tree[24];
    pl_tree_policy policy;
    snprintf(tree, sizeof tree, "chain:%d", s->s->backbone->drafts);
    PL_TRY(pl_tree_policy_parse(&policy, tree, err));
    pl_drafter_options o = {.target = r->o->target,
                            .max_sessions = r->o->batch,
                            .max_rows = r->o->batch * r->rows,
                            .slots = r->o->context + PL_SHAPE_NODES};
    return pl_drafter_block_create(&s->block, s->s->backbone, "plan", &policy, &o, err);
}

static void run_cycle(rig *r, rig_subject *s, const rig_tree *t, bool keep) {
    if (s->block) {
        if (t->levels <= s->s->backbone->drafts) run_block(r, s, t, keep);
        return;
    }
    pl_ctx   *ctx = &s->ctx;
    int       b = r->o->batch;
    pl_tensor hidden, from, y, f;
    r->now = s;
    pl_ctx_begin(ctx);
    double at = pl_now();
    int    m = target_rows(r, t);
    f = target_part(r, ctx, m);
    lap(ctx, &s->target, m, &at, keep);
    m = final_rows(r, t);
    for (int i = 0; i < b; i++)
        r->last[i] = (i + 1) * t->accepted - 1;
    double began = at;
    f = pl_gather(ctx, f, r->index, m);
    from = s->s->backbone->kind->fuse(ctx, s->s->backbone, f);
    if (s->begins) lap(ctx, &s->fuse, m, &at, keep);
    double       fused = at;
    pl_head_rows rows = begin_head(r, ctx, from, r->last, b, 0);
    lap_begun(ctx, &rows, &s->router_first, b, &at, keep);
    began += at - fused;
    y = draft_step(r, ctx, from, m, &hidden);
    lap_since(ctx, &s->take_in, m, began, &at, keep);
    rows.x = pl_gather(ctx, y, r->last, b);
    lap_late(r, ctx, &rows, &s->router_first, b, &at, keep);
    head_part(r, ctx, &rows);
    hidden = pl_gather(ctx, hidden, r->last, b); // what level 1 begins with
    lap(ctx, &s->first, b, &at, keep);
    for (int l = 1; l < t->levels; l++) {
        m = level_rows(r, t, l);
        from = pl_gather(ctx, hidden, r->index, m);
        rows = begin_head(r, ctx, from, NULL, m, l);
        lap_begun(ctx, &rows, &s->router, m, &at, keep);
        y = draft_step(r, ctx, from, m, &hidden);
        lap(ctx, &s->layer, m, &at, keep);
        rows.x = y;
        lap_late(r, ctx, &rows, &s->router, m, &at, keep);
        double since = at;
        head_part(r, ctx, &rows);
        lap(ctx, &s->head, m, &at, keep);
        if (keep && m == b) add_sample(&s->by_level, l, at - since);
    }
    if (t == &r->tree[r->n_trees - 1]) run_extras(r, s, from, y, keep);
}

static void measure_head(rig *r, pl_ctx *ctx, pl_tensor from, pl_tensor y, const int32_t *index, int m, int level) {
    pl_head_rows rows = begin_head(r, ctx, from, index, m, level);
    rows.x = index ? pl_gather(ctx, y, index, m) : y;
    head_part(r, ctx, &rows);
}

// The largest cycle: all that a tree of any of the shapes can want.
static void measure_cycle(pl_ctx *ctx, void *arg) {
    rig               *r = arg;
    const pl_backbone *b = r->now->s->backbone;
    int                rows = r->o->batch * r->rows, level = r->o->batch * r->width;
    pl_tensor          hidden, from, y, f = target_part(r, ctx, rows);
    from = b->kind->fuse(ctx, b, pl_gather(ctx, f, r->index, rows));
    y = draft_step(r, ctx, from, rows, &hidden);
    measure_head(r, ctx, from, y, r->last, r->o->batch, 0);
    hidden = pl_gather(ctx, hidden, r->last, r->o->batch);
    for (int l = 1; l < r->levels; l++) {
        from = pl_gather(ctx, hidden, r->index, level);
        y = draft_step(r, ctx, from, level, &hidden);
        measure_head(r, ctx, from, y, NULL, level, l);
    }
    for (int i = 0; i < 5; i++) // run_extras
        measure_head(r, ctx, from, y, r->last, level, 1);
    pl_embed(ctx, b->embed, r->id, 1);
}

// ---- plain decoding -------------------------------------------------------------------------------------------------

static pl_status start_plain(rig *r, pl_err *err) {
    for (int s = 0; s < r->o->batch; s++) {
        pl_session        *x = pl_engine_session(r->engine, s);
        pl_session_options so = {.sampling = {.temperature = r->o->temperature, .top_p = 1, .seed = (uint64_t)s + 1},
                                 .max_new = 1 << 20};
        if (x) pl_engine_end(r->engine, x);
        PL_TRY(pl_engine_start(r->engine, r->prompt, r->o->context, &so, &x, err));
    }
    // Prompts are read before anything is timed.
    for (bool reading = true; reading;) {
        PL_TRY(pl_engine_step(r->engine, err));
        reading = false;
        for (int s = 0; s < r->o->batch; s++) {
            const pl_session *x = pl_engine_session(r->engine, s);
            if (pl_session_reading(x)) reading = true;
        }
    }
    return PL_OK;
}

static pl_status run_plain(rig *r, bool keep, pl_err *err) {
    for (int i = 0; i < PLAIN_STEPS; i++) {
        for (int s = 0; s < r->o->batch; s++) {
            const pl_session *x = pl_engine_session(r->engine, s);
            if (x && pl_session_finish(x) == PL_RUNNING) continue;
            PL_TRY(start_plain(r, err));
            break;
        }
        const pl_session_stats *stats = pl_session_statistics(pl_engine_session(r->engine, 0));
        pl_session_stats        before = *stats;
        PL_TRY(pl_engine_step(r->engine, err));
        if (!keep || i < PLAIN_COLD) continue;
        double step = stats->seconds - before.seconds, target = stats->parts.target - before.parts.target,
               verify = stats->parts.verify - before.parts.verify;
        add_sample(&r->plain_step, 1, step);
        add_sample(&r->plain_target, r->o->batch, target);
        add_sample(&r->plain_verify, 1, verify / r->o->batch);
        add_sample(&r->plain_other, 1, step - target - verify);
    }
    return PL_OK;
}

// ---- the whole ------------------------------------------------------------------------------------------------------

static pl_status make_caches(pl_kv **kv, int batch, int layers, int slots, const pl_layer_shape *shape,
                             const pl_backend *be, pl_err *err) {
    *kv = pl_calloc((size_t)batch, sizeof **kv);
    if (!*kv) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    for (int i = 0; i < batch; i++) {
        PL_TRY(pl_kv_create(&(*kv)[i], layers, slots, shape, be, err));
        if (!be->memory) memset((*kv)[i].block, 0, (*kv)[i].bytes); // pages that nobody has written are one page
    }
    return PL_OK;
}

static void drop_caches(pl_kv *kv, int batch) {
    for (int i = 0; kv && i < batch; i++)
        pl_kv_destroy(&kv[i]);
    pl_free(kv);
}

static pl_status open_plain(rig *r, const pl_backend *be, pl_pool *pool, pl_err *err) {
    int               rows = r->o->batch > 64 ? r->o->batch : 64;
    pl_engine_options eo = {.max_sessions = r->o->batch, .max_rows = rows};
    r->prompt = pl_calloc((size_t)r->o->context, sizeof *r->prompt);
    if (!r->prompt) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    for (int i = 0; i < r->o->context; i++)
        r->prompt[i] = next_token(r);
    eo.max_len = r->o->context + 2 * PL_SHAPE_NODES; // the context that subjects have, about
    return pl_engine_create(&r->engine, be, pool, r->o->target, NULL, &eo, err);
}

static void take_arrays(void *arg) {
    rig      *r = arg;
    pl_arena *a = &r->arrays;
    size_t    rows = (size_t)r->o->batch * (size_t)(r->rows > r->width ? r->rows : r->width), k = (size_t)r->k;
    r->id = pl_arena_alloc(a, rows * sizeof *r->id);
    r->pos = pl_arena_alloc(a, rows * sizeof *r->pos);
    r->index = pl_arena_alloc(a, rows * sizeof *r->index);
    r->last = pl_arena_alloc(a, rows * sizeof *r->last);
    r->path = pl_arena_alloc(a, rows * PATH * sizeof *r->path);
    r->choice = pl_arena_alloc(a, rows * k * sizeof *r->choice);
    r->value = pl_arena_alloc(a, rows * k * sizeof *r->value);
    r->head_token = pl_arena_alloc(a, rows * sizeof *r->head_token);
    r->group = pl_arena_alloc(a, rows * sizeof *r->group);
    r->lse = pl_arena_alloc(a, rows * sizeof *r->lse);
    r->row = pl_arena_alloc(a, rows * (size_t)r->o->target->n_layers * sizeof *r->row);
    r->draft_row = pl_arena_alloc(a, rows * (size_t)r->layers * sizeof *r->draft_row);
    r->draw = pl_arena_alloc(a, rows * sizeof *r->draw);
    r->text = pl_arena_alloc(a, ((size_t)r->o->context + 1) * sizeof *r->text);
}

static pl_status open_rig(rig *r, pl_plan_subject *subject, const pl_backend *be, pl_pool *pool, pl_err *err) {
    const pl_llama *t = r->o->target;
    int             b = r->o->batch, slots = r->o->context + PL_SHAPE_NODES;
    r->subject = pl_calloc((size_t)r->n, sizeof *r->subject);
    if (!r->subject) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    r->k = r->layers = 1;
    for (int i = 0; i < r->n; i++) {
        if (subject[i].k > r->k) r->k = subject[i].k;
        if (subject[i].backbone->layers > r->layers) r->layers = subject[i].backbone->layers;
    }
    PL_TRY(pl_arena_init_shared(&r->arrays, "plan", be->memory, take_arrays, r, err));
    for (int i = 0; i < b * r->rows; i++)
        r->draw[i] =
            (pl_draw_row){.u = 0.5, .temperature = r->o->temperature, .top_p = 1, .penalty = 1, .at = i, .parent = -1};
    PL_TRY(pl_llama_reach(t, slots, err));
    PL_TRY(make_caches(&r->kv, b, t->n_layers, slots, &t->shape, t->be, err));
    PL_TRY(open_plain(r, be, pool, err));
    for (int i = 0; i < r->n; i++) {
        rig_subject   *s = &r->subject[i];
        const pl_head *h = &subject[i].backbone->head;
        s->s = &subject[i];
        s->begins = h->kind->foresees && h->kind->foresees(h);
        bool blocks = subject[i].backbone->kind->draft;
        PL_TRY(pl_backbone_reach(subject[i].backbone, slots, err));
        if (blocks)
            PL_TRY(open_block(r, s, err));
        else
            PL_TRY(make_caches(&s->kv, b, subject[i].backbone->layers, slots, &subject[i].backbone->shape, t->be, err));
        PL_TRY(pl_ctx_init(&s->ctx, be, pool));
        s->ready = true;
        r->now = s;
        PL_TRY(pl_ctx_measure(&s->ctx, blocks ? measure_block : measure_cycle, r, err));
    }
    return PL_OK;
}

static void close_rig(rig *r) {
    for (int i = 0; r->subject && i < r->n; i++) {
        drop_caches(r->subject[i].kv, r->o->batch);
        pl_drafter_destroy(r->subject[i].block);
        if (r->subject[i].ready) pl_ctx_fini(&r->subject[i].ctx);
    }
    drop_caches(r->kv, r->o->batch);
    pl_engine_destroy(r->engine);
    pl_arena_fini(&r->arrays);
    pl_free(r->subject);
    pl_free(r->prompt);
    pl_free(r);
}

static pl_status run_round(rig *r, bool keep, pl_err *err) {
    for (int i = 0; i < r->n; i++) {
        rig_subject *s = &r->subject[i];
        // A tree's first cycle finds what the last subject left in the caches.
        run_cycle(r, s, &r->tree[0], false);
        for (int t = 0; t < r->n_trees; t++) {
            run_cycle(r, s, &r->tree[t], keep);
        }
        PL_TRY(pl_ctx_sync(&s->ctx, err));
        PL_TRY(run_plain(r, keep, err));
    }
    return r->n ? PL_OK : run_plain(r, keep, err);
}

static pl_status run_rounds(rig *r, int *rounds, pl_err *err) {
    pl_progress p;
    double      t0 = pl_now();
    PL_TRY(run_round(r, false, err));
    pl_progress_begin(&p, "plan", 0, ROUNDS_MOST);
    *rounds = 0;
    pl_status st = PL_OK;
    while (st == PL_OK && *rounds < ROUNDS_MOST && (*rounds < ROUNDS_LEAST || pl_now() - t0 < r->o->seconds)) {
        st = run_round(r, true, err);
        pl_progress_update(&p, ++*rounds, "rounds of measuring");
    }
    pl_progress_end(&p);
    return st;
}

// What a level's head takes of what `head` says, where the rows that it reads depend on the level.
static void read_levels(const rig_subject *s, int batch, pl_plan_costs *c) {
    const pl_head *h = &s->s->backbone->head;
    double         mean = pl_plan_seconds(&c->head, batch);
    bool           even = true;
    for (int l = 2; l < PL_SHAPE_LEVELS; l++)
        if (pl_head_step_bytes(h, l) != pl_head_step_bytes(h, 1)) even = false;
    for (int i = 0; i < s->by_level.n && !even && mean > 0; i++)
        c->level_share[s->by_level.size[i].rows] = pl_stats(s->by_level.size[i].x, s->by_level.size[i].n).median / mean;
}

static void read_costs(const rig *r, pl_plan_plain *plain) {
    plain->costs = (pl_plan_costs){
        .batch = r->o->batch, .verify = median_of(&r->plain_verify), .other = fmax(median_of(&r->plain_other), 0)};
    plain->step = median_of(&r->plain_step);
    read_samples(&r->plain_target, &plain->costs.target);
    for (int i = 0; i < r->n; i++) {
        const rig_subject *s = &r->subject[i];
        pl_plan_costs     *c = &s->s->costs;
        *c = (pl_plan_costs){.batch = r->o->batch, .verify = plain->costs.verify, .other = plain->costs.other};
        if (s->block) c->drafts = s->s->backbone->drafts;
        read_samples(&s->target, &c->target);
        read_samples(&s->take_in, &c->take_in);
        read_samples(&s->layer, &c->layer);
        read_samples(&s->first, &c->first);
        read_samples(&s->head, &c->head);
        read_samples(&s->router_first, &c->router_first);
        read_samples(&s->router, &c->router);
        read_samples(&s->fuse, &c->fuse);
        c->overlaps = s->begins && pl_backend_branches(s->ctx.be);
        if (!s->block) read_levels(s, r->o->batch, c);
        c->embed = median_of(&s->embed);
        c->top_k = fmax(median_of(&s->k) - median_of(&s->one), 0);
        c->log_sum_exp = fmax(median_of(&s->scored) - median_of(&s->k), 0);
    }
}

pl_status pl_plan_measure(pl_plan_subject *subject, int n, pl_plan_plain *plain, const pl_backend *be, pl_pool *pool,
                          const pl_plan_rig_options *o, pl_err *err) {
    int positions = o->target->config.max_position_embeddings;
    PL_CHECK(o->batch >= 1 && o->batch <= PL_PLAN_BATCH && o->context >= PL_SHAPE_LEVELS, "batch %d, context %d",
             o->batch, o->context);
    if (o->context + PL_SHAPE_NODES > positions)
        return pl_fail(err, PL_E_INPUT, "a context of %d leaves no room for drafts: the target has %d positions",
                       o->context, positions);
    rig *r = pl_calloc(1, sizeof *r);
    if (!r) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    r->o = o;
    r->n = n;
    make_trees(r);
    pl_status st = open_rig(r, subject, be, pool, err);
    if (st == PL_OK) st = run_rounds(r, &plain->rounds, err);
    if (st == PL_OK) read_costs(r, plain);
    close_rig(r);
    return st;
}
