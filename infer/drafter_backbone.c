// A backbone as a drafter: takes in final rows with the target's features, then grows the tree level by level.
//
// Cache of a session: slot t holds row t (hidden of position t, embedding of token t+1). After the rows up to t = n-2
// are in (n tokens committed), the last row's output predicts token n: level 0. A node at depth j is row n-2+j of its
// path: it consumes its parent's output and its own token. Expanded nodes take slots n-1, n, ... in order of expansion
// and are overwritten by the next call's true rows.
#include "infer/backbone.h"
#include "infer/drafter.h"
#include "infer/kv.h"
#include "kernels/base/check.h"
#include "kernels/op/gather.h"

#include <string.h>

typedef struct backbone_drafter {
    pl_drafter         base;
    pl_drafter_kind    kind; // with the backbone's name
    const pl_backbone *model;
    pl_backbone       *owned; // the same, where it was opened here
    pl_kv             *kv;    // [max_sessions]
    // One level's rows, in the step's memory (take_rows): what ops read is written once for each.
    int32_t           *token, *pos, *index, *path;
    pl_kvrow          *row;
    // A level's candidates.
    int32_t           *id, *head_token, *group;
    float             *value, *lse, *logp;
    int               *frontier, *next; // [sessions][width]
    int               *n_frontier;      // [sessions]
    int               *expanded;        // [sessions] nodes that have a row
    int               *slot;            // [sessions][PL_TREE_GROWN]: cache slot of each expanded node
    int               *hidden_row; // [sessions][PL_TREE_GROWN]: row of the last level's output for each frontier node
} backbone_drafter;

// Arrays for m rows of a step of the backbone.
static void take_rows(backbone_drafter *d, pl_ctx *ctx, int m) {
    size_t n = (size_t)m;
    d->token = pl_ctx_bytes(ctx, n * sizeof *d->token);
    d->pos = pl_ctx_bytes(ctx, n * sizeof *d->pos);
    d->index = pl_ctx_bytes(ctx, n * sizeof *d->index);
    d->path = pl_ctx_bytes(ctx, n * PL_TREE_MAX * sizeof *d->path);
    d->row = pl_ctx_bytes(ctx, n * sizeof *d->row);
}

// And for n candidates' rows: which rows of the step they are.
static int32_t *take_candidates(backbone_drafter *d, pl_ctx *ctx, int n) {
    size_t m = (size_t)n, k = (size_t)d->base.policy.k;
    d->id = pl_ctx_bytes(ctx, m * k * sizeof *d->id);
    d->value = pl_ctx_bytes(ctx, m * k * sizeof *d->value);
    d->lse = pl_ctx_bytes(ctx, m * sizeof *d->lse);
    d->head_token = pl_ctx_bytes(ctx, m * sizeof *d->head_token);
    d->group = pl_ctx_bytes(ctx, m * sizeof *d->group);
    return pl_ctx_bytes(ctx, m * sizeof(int32_t));
}

// The best of each frontier node: d->id and d->logp.
static void choose(backbone_drafter *d, pl_ctx *ctx, const pl_head_rows *r, int n) {
    const int32_t *d2t = d->model->head.d2t;
    int            k = d->base.policy.k;
    float         *lse = d->base.policy.needs_logp ? d->lse : NULL;
    pl_head_topk(ctx, &d->model->head, r, k, d->id, d->value, lse);
    if (!pl_ctx_wait(ctx)) return;
    for (int i = 0; i < n * k; i++) {
        d->logp[i] = lse ? d->value[i] - lse[i / k] : 0;
        if (d2t && d->id[i] >= 0) d->id[i] = d2t[d->id[i]];
    }
}

// For sessions that draw theirs: anew, from the logits.
static void draw(backbone_drafter *d, pl_ctx *ctx, const pl_head_rows *r, pl_draft_batch *b) {
    const pl_tree_policy *policy = &d->base.policy;
    pl_drafted            drafted = pl_head_drafted(&d->model->head);
    int                   k = policy->k;
    double                at = pl_now();
    pl_tensor             logits = pl_head_logits(ctx, &d->model->head, r);
    pl_draft_lap(&d->base.parts.head, &at);
    if (!logits.data) return;
    for (int i = 0, row = 0; i < b->n; row += d->n_frontier[i++])
        for (int j = 0; b->item[i].proposing && j < d->n_frontier[i]; j++) {
            pl_tree *t = b->item[i].tree;
            int      node = d->frontier[i * policy->width + j], wanted = pl_tree_wanted(policy, t, node);
            for (int i_k = wanted; i_k < k; i_k++)
                d->id[(row + j) * k + i_k] = -1;
            pl_propose_draw(b->item[i].proposing, t, node, pl_f32(&logits) + (row + j) * logits.dim[1], &drafted,
                            wanted, d->id + (row + j) * k, d->logp + (row + j) * k);
        }
    pl_draft_lap(&d->base.parts.draw, &at);
}

// What a head that routes reads beside the states: rows `index` of the step's inputs.
static void inputs_of(backbone_drafter *d, pl_ctx *ctx, pl_head_rows *r, pl_tensor hidden, const int32_t *index, int n,
                      pl_draft_batch *b) {
    r->hidden = pl_gather(ctx, hidden, index, n);
    r->embed = d->model->embed;
    r->token = d->head_token;
    r->group = d->group;
    if (ctx->measuring) return;
    for (int i = 0, row = 0; i < b->n; i++)
        for (int j = 0; j < d->n_frontier[i]; j++, row++) {
            d->head_token[row] = d->token[index[row]];
            d->group[row] = i;
        }
}

// Candidates of the frontier nodes, `level` deep: rows `index` of a step from `hidden` to the normed states y.
static void candidates(backbone_drafter *d, pl_ctx *ctx, pl_tensor hidden, pl_tensor y, const int32_t *index, int n,
                       int level, pl_draft_batch *b) {
    bool         draws = ctx->measuring, chooses = ctx->measuring;
    pl_head_rows r = {.x = pl_gather(ctx, y, index, n), .level = level};
    if (d->model->head.kind->reads_inputs || d->base.watch) inputs_of(d, ctx, &r, hidden, index, n, b);
    if (d->base.watch) d->base.watch->see(d->base.watch, ctx, &d->model->head, &r);
    for (int i = 0; i < b->n; i++)
        if (d->n_frontier[i]) *(b->item[i].proposing ? &draws : &chooses) = true;
    double at = pl_now();
    if (chooses) choose(d, ctx, &r, n);
    if (chooses) pl_draft_lap(&d->base.parts.head, &at);
    if (draws) draw(d, ctx, &r, b);
}

static pl_tensor step(backbone_drafter *d, pl_ctx *ctx, pl_tensor hidden, int m, pl_tensor *hidden_out) {
    pl_view view = {.pos = d->pos, .cos = d->model->cos, .sin = d->model->sin, .row = d->row, .m = m};
    return d->model->kind->step(ctx, d->model, d->token, hidden, &view, hidden_out, (pl_tensor){0});
}

// The rows that became final: fuse the target's features, run the layer, cache. Returns rows' normed outputs.
static pl_tensor take_in(backbone_drafter *d, pl_ctx *ctx, pl_draft_batch *b, pl_tensor *fused, pl_tensor *hidden) {
    int m = 0;
    for (int i = 0; i < b->n; i++)
        m += b->item[i].count;
    take_rows(d, ctx, m);
    m = 0;
    for (int i = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        for (int j = 0; j < it->count; j++, m++) {
            int32_t t = it->first + j;
            PL_CHECK(t + 1 < it->n_tokens, "row %d of %d tokens", t, it->n_tokens);
            d->token[m] = it->tokens[t + 1];
            d->pos[m] = t;
            d->index[m] = it->feature_row[j];
            pl_kv_row(&d->kv[it->slot], &d->row[m], 0, it->first, NULL, j + 1, t);
        }
    }
    pl_tensor f = pl_gather(ctx, b->features, d->index, m);
    *fused = d->model->kind->fuse(ctx, d->model, f);
    return step(d, ctx, *fused, m, hidden);
}

// Rows for the frontier nodes of all trees; their parents' outputs are gathered from the last level.
static int expand_rows(backbone_drafter *d, pl_ctx *ctx, pl_draft_batch *b) {
    int w = d->base.policy.width, m = 0;
    for (int i = 0; i < b->n; i++)
        m += d->n_frontier[i];
    if (m == 0) return 0;
    take_rows(d, ctx, m);
    m = 0;
    for (int i = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        for (int j = 0; j < d->n_frontier[i]; j++, m++) {
            int     node = d->frontier[i * w + j];
            int32_t base = it->n_tokens - 1; // committed rows 0..n-2; expanded nodes take slots from n-1
            int32_t nodes[PL_TREE_MAX], *path = d->path + (size_t)m * PL_TREE_MAX;
            int     n = pl_tree_path(it->tree, node, nodes) - 1; // without the root, whose row is committed
            d->slot[i * PL_TREE_GROWN + node] = base + d->expanded[i]++;
            for (int p = 0; p < n; p++)
                path[p] = d->slot[i * PL_TREE_GROWN + nodes[p + 1]];
            d->token[m] = it->tree->token[node];
            d->pos[m] = base + it->tree->depth[node] - 1;
            d->index[m] = d->hidden_row[i * PL_TREE_GROWN + it->tree->parent[node]];
            pl_kv_row(&d->kv[it->slot], &d->row[m], 0, base, path, n, path[n - 1]);
        }
    }
    return m;
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    backbone_drafter     *d = (backbone_drafter *)base;
    const pl_tree_policy *policy = &base->policy;
    double                at = pl_now();
    pl_tensor             from, hidden, y = take_in(d, ctx, b, &from, &hidden);
    int32_t              *index = take_candidates(d, ctx, b->n); // rows whose candidates are wanted
    int                   w = policy->width, rows = 0, m = 0;
    pl_draft_lap(&base->parts.take_in, &at);
    // Level 0: the last row of each session that wants a tree.
    for (int i = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        rows += it->count;
        d->n_frontier[i] = it->tree && it->depth > 0 ? 1 : 0;
        d->expanded[i] = 0;
        if (!d->n_frontier[i]) continue;
        d->frontier[i * w] = 0;
        d->hidden_row[i * PL_TREE_GROWN] = rows - 1;
        index[m++] = rows - 1;
    }
    for (int level = 0; m > 0 && ctx->err.status == PL_OK; level++) {
        candidates(d, ctx, from, y, index, m, level, b);
        if (ctx->err.status != PL_OK) return;
        int row = 0;
        for (int i = 0; i < b->n; i++) {
            if (!d->n_frontier[i]) continue;
            pl_draft_item *it = &b->item[i];
            int            n = policy->kind->grow(policy, it->tree, level, d->frontier + i * w, d->n_frontier[i],
                                                  d->id + (size_t)row * (size_t)policy->k,
                                                  d->logp + (size_t)row * (size_t)policy->k, d->next + i * w);
            row += d->n_frontier[i];
            // The deepest level is proposed but not expanded.
            int limit = it->depth < policy->depth ? it->depth : policy->depth;
            d->n_frontier[i] = level + 1 < limit ? n : 0;
            memcpy(d->frontier + i * w, d->next + i * w, (size_t)w * sizeof *d->next);
        }
        m = expand_rows(d, ctx, b);
        if (m == 0) return;
        at = pl_now();
        from = pl_gather(ctx, hidden, d->index, m);
        y = step(d, ctx, from, m, &hidden);
        pl_draft_lap(&base->parts.layer, &at);
        index = take_candidates(d, ctx, m);
        m = 0;
        for (int i = 0; i < b->n; i++)
            for (int j = 0; j < d->n_frontier[i]; j++, m++) {
                d->hidden_row[i * PL_TREE_GROWN + d->frontier[i * w + j]] = m;
                index[m] = m;
            }
    }
}

// The largest call: max_rows rows taken in, then every session drafting to full depth and width.
static void measure(backbone_drafter *d, pl_ctx *ctx, pl_draft_batch *b) {
    int       w = d->base.policy.width, s = d->base.max_sessions, m = d->base.max_rows;
    pl_tensor hidden;
    take_rows(d, ctx, m);
    pl_tensor f = pl_gather(ctx, b->features, d->index, m);
    pl_tensor from = d->model->kind->fuse(ctx, d->model, f);
    pl_tensor y = step(d, ctx, from, m, &hidden);
    candidates(d, ctx, from, y, take_candidates(d, ctx, s), s, 0, b);
    for (int level = 1; level < d->base.policy.depth_max; level++) {
        take_rows(d, ctx, s * w);
        from = pl_gather(ctx, hidden, d->index, s * w);
        y = step(d, ctx, from, s * w, &hidden);
        candidates(d, ctx, from, y, take_candidates(d, ctx, s * w), s * w, level, b);
    }
}

static void propose_or_measure(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    if (ctx->measuring)
        measure((backbone_drafter *)base, ctx, b);
    else
        propose(base, ctx, b);
}

static void reset(pl_drafter *base, int slot) {
    (void)base, (void)slot;
} // rows are overwritten in order
static double step_bytes(const pl_drafter *base) {
    return pl_backbone_step_bytes(((const backbone_drafter *)base)->model, base->policy.depth);
}

static void destroy(pl_drafter *base) {
    backbone_drafter *d = (backbone_drafter *)base;
    for (int i = 0; d->kv && i < base->max_sessions; i++)
        pl_kv_destroy(&d->kv[i]);
    void *owned[] = {d->kv, d->logp, d->frontier, d->next, d->n_frontier, d->hidden_row, d->expanded, d->slot};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    pl_backbone_destroy(d->owned);
    pl_free(d);
}

static const pl_drafter_kind kind = {
    .name = "backbone", .propose = propose_or_measure, .reset = reset, .step_bytes = step_bytes, .destroy = destroy};

pl_status pl_drafter_backbone_open(pl_drafter **out, const char *dir, const pl_llama *target, pl_dtype t,
                                   const pl_tree_policy *policy, int max_sessions, int max_rows, int slots,
                                   pl_err *err) {
    pl_backbone *model;
    *out = NULL;
    PL_TRY(pl_backbone_open(&model, dir, target, t, err));
    pl_status st = pl_drafter_backbone_create(out, model, dir, target, policy, max_sessions, max_rows, slots, err);
    if (st == PL_OK)
        ((backbone_drafter *)*out)->owned = model;
    else
        pl_backbone_destroy(model);
    return st;
}

pl_status pl_drafter_backbone_create(pl_drafter **out, const pl_backbone *model, const char *dir,
                                     const pl_llama *target, const pl_tree_policy *policy, int max_sessions,
                                     int max_rows, int slots, pl_err *err) {
    *out = NULL;
    backbone_drafter *d = pl_calloc(1, sizeof *d);
    if (!d) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    d->base = (pl_drafter){.kind = &kind, .policy = *policy, .max_sessions = max_sessions, .max_rows = max_rows};
    d->model = model;
    pl_status st;
    if (policy->k > d->model->head.vocab)
        PL_TRY_GOTO(st, fail,
                    pl_fail(err, PL_E_USAGE,
                            "tree \"%s\" wants %d candidates a node, the draft vocabulary of %s has %lld", policy->text,
                            policy->k, dir, (long long)d->model->head.vocab));
    d->kind = kind;
    d->kind.name = pl_backbone_name(d->model);
    d->base.kind = &d->kind;
    d->base.n_taps = d->model->n_taps;
    memcpy(d->base.tap, d->model->tap, sizeof d->base.tap);
    size_t k = (size_t)policy->k, s = (size_t)max_sessions, w = (size_t)policy->width;
    d->kv = pl_calloc(s, sizeof *d->kv);
    d->logp = pl_calloc(s * w * k, sizeof *d->logp);
    d->frontier = pl_calloc(s * w, sizeof *d->frontier);
    d->next = pl_calloc(s * w, sizeof *d->next);
    d->n_frontier = pl_calloc(s, sizeof *d->n_frontier);
    d->expanded = pl_calloc(s, sizeof *d->expanded);
    d->slot = pl_calloc(s * PL_TREE_GROWN, sizeof *d->slot);
    d->hidden_row = pl_calloc(s * PL_TREE_GROWN, sizeof *d->hidden_row);
    if (!d->kv || !d->logp || !d->frontier || !d->next || !d->n_frontier || !d->hidden_row || !d->expanded || !d->slot)
        PL_TRY_GOTO(st, fail, pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir));
    for (int i = 0; i < max_sessions; i++)
        PL_TRY_GOTO(
            st, fail,
            pl_kv_create(&d->kv[i], 1, slots + policy->width * policy->depth_max, &d->model->shape, target->be, err));
    *out = &d->base;
    return PL_OK;
fail:
    destroy(&d->base);
    return st;
}
