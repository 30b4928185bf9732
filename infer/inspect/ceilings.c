#include "infer/inspect/ceilings.h"

#include "infer/head/head.h"
#include "infer/inspect/parts.h"
#include "infer/sample/propose.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDING 1e-9 // tolerance for sums of the same numbers in another order

pl_status pl_ceilings_init(pl_ceilings *c, int64_t v, double temperature, int n_best, pl_err *err) {
    PL_CHECK(v > 0 && temperature >= 0 && n_best > 0, "%lld tokens, temperature %g, %d best", (long long)v, temperature,
             n_best);
    *c = (pl_ceilings){.v = v, .temperature = temperature, .n_best = n_best};
    c->sorted = pl_calloc((size_t)v, sizeof *c->sorted);
    c->q = pl_calloc((size_t)v, sizeof *c->q);
    if (c->sorted && c->q) return PL_OK;
    pl_ceilings_fini(c);
    return pl_fail(err, PL_E_MEMORY, "ceilings over %lld tokens: out of memory", (long long)v);
}

void pl_ceilings_fini(pl_ceilings *c) {
    pl_free(c->sorted);
    pl_free(c->q);
    *c = (pl_ceilings){0};
}

// Writes the softmax of z / T into q; at temperature 0 all mass is on the best token, the first among equals. Returns
// false if there is none.
static bool fill_softmax(const pl_ceilings *c, const float *z, int64_t n, double *q) {
    float   max = -INFINITY;
    double  sum = 0;
    int64_t best = 0;
    for (int64_t j = 0; j < n; j++) {
        if (!(z[j] < INFINITY)) return false;
        if (z[j] > max) max = z[j], best = j;
    }
    if (max == -INFINITY) return false;
    for (int64_t j = 0; j < n && c->temperature == 0; j++)
        q[j] = j == best;
    if (c->temperature == 0) return true;
    for (int64_t j = 0; j < n; j++)
        sum += q[j] = exp(((double)z[j] - (double)max) / c->temperature);
    for (int64_t j = 0; j < n; j++)
        q[j] /= sum;
    return true;
}

static int compare_falling(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

// Returns p of a token at the temperature of q.
static double get_mass(const pl_ceilings *c, const double *p, int64_t v) {
    return c->temperature > 0 ? p[v] : v == c->target_best;
}

// Returns H_k(p).
static double sum_best(pl_ceilings *c, const double *p, int64_t k) {
    double sum = 0;
    if (c->temperature == 0) return k > 0;
    memcpy(c->sorted, p, (size_t)c->v * sizeof *p);
    if (k < c->v) qsort(c->sorted, (size_t)c->v, sizeof *p, compare_falling);
    for (int64_t i = 0; i < k && i < c->v; i++)
        sum += c->sorted[i];
    return sum;
}

// Adds the whole head's mass on the support, and whether its best tokens are in the support. Overwrites c->q.
static bool add_routed(pl_ceilings *c, const pl_ceiling_row *r, pl_ceiling_sums *s) {
    if (!fill_softmax(c, r->whole, r->vd, c->q)) return false;
    for (int64_t j = 0; j < r->vd; j++)
        if (r->logits[j] > -INFINITY) s->retained += c->q[j];
    bool all = true;
    for (int64_t j = 0; j < r->vd; j++)
        c->q[j] = (double)r->whole[j];
    for (int i = 0; i < c->n_best && i < r->vd; i++) {
        int64_t best = 0;
        for (int64_t j = 1; j < r->vd; j++)
            if (c->q[j] > c->q[best]) best = j;
        all = all && r->logits[best] > -INFINITY;
        if (i == 0) s->best += all;
        c->q[best] = -INFINITY;
    }
    s->bests += all;
    s->routed++;
    return true;
}

// Adds token y of S, which the drafter proposes with probability q.
static void add_token(const pl_ceilings *c, pl_ceiling_sums *s, const double *p, int64_t y, double q) {
    double mass = get_mass(c, p, y);
    s->achieved += fmin(mass, q);
    s->ceiling += mass;
    s->support++;
    if (y == c->target_best) s->target = 1;
}

// Adds the row's tokens one by one. Overwrites c->q, and c->sorted if the head has an outside.
static bool add_tokens(pl_ceilings *c, const pl_ceiling_row *r, pl_ceiling_sums *s) {
    if (!fill_softmax(c, r->logits, r->vd, c->q)) return false;
    if (r->outside && c->temperature > 0) { // the best is never outside
        pl_drafted list = {.n = r->vd, .d2t = r->d2t, .outside = r->outside};
        pl_drafted_distribution(&list, c->sorted, c->v, c->q);
        for (int64_t y = 0; y < c->v; y++)
            if (c->sorted[y] > 0) add_token(c, s, r->p, y, c->sorted[y]);
    } else { // adds each list entry, so that a map that names a token twice breaks the order
        for (int64_t j = 0; j < r->vd; j++)
            if (r->logits[j] > -INFINITY) add_token(c, s, r->p, r->d2t ? r->d2t[j] : j, c->q[j]);
    }
    return true;
}

pl_status pl_ceilings_add(pl_ceilings *c, const pl_ceiling_row *r, pl_err *err) {
    PL_CHECK(r->depth >= 0 && r->depth < PL_CEILINGS_DEPTH && r->vd > 0 && r->vd <= c->v, "depth %d, %lld of %lld ids",
             r->depth, (long long)r->vd, (long long)c->v);
    pl_ceiling_sums *s = &c->at[r->depth], row = {.rows = 1};
    c->target_best = (int64_t)pl_propose_best(r->p, c->v);
    if (!add_tokens(c, r, &row) || (r->whole && !add_routed(c, r, &row)))
        return pl_fail(err, PL_E_INPUT, "the drafter's logits at depth %d are not numbers", r->depth);
    row.oracle = sum_best(c, r->p, (int64_t)row.support);
    if (!(row.achieved <= row.ceiling + ROUNDING && row.ceiling <= row.oracle + ROUNDING))
        return pl_fail(
            err, PL_E_INTERNAL,
            "internal error: acceptance %.12g of at most %.12g of at most %.12g at depth %d with %.0f tokens",
            row.achieved, row.ceiling, row.oracle, r->depth, row.support);
    s->rows += row.rows;
    s->routed += row.routed;
    s->support += row.support;
    s->achieved += row.achieved;
    s->ceiling += row.ceiling;
    s->oracle += row.oracle;
    s->target += row.target;
    s->best += row.best;
    s->bests += row.bests;
    s->retained += row.retained;
    return PL_OK;
}

static void put_mean(pl_json_out *o, const char *key, double sum, int64_t n) {
    pl_put_num(o, key, n > 0 ? round(sum / (double)n * 1e6) / 1e6 : NAN);
}

void pl_ceilings_write(const pl_ceilings *c, pl_json_out *o) {
    pl_put_array(o, "ceilings");
    for (int d = 0; d < PL_CEILINGS_DEPTH; d++) {
        const pl_ceiling_sums *s = &c->at[d];
        if (s->rows == 0) continue;
        pl_json_out_object(o);
        pl_put_int(o, "depth", d);
        pl_put_int(o, "rows", s->rows);
        put_mean(o, "support", s->support, s->rows);
        put_mean(o, "achieved", s->achieved, s->rows);
        put_mean(o, "ceiling", s->ceiling, s->rows);
        put_mean(o, "oracle", s->oracle, s->rows);
        put_mean(o, "recall_target_best", s->target, s->rows);
        put_mean(o, "recall_head_best", s->best, s->routed);
        put_mean(o, "recall_head_top", s->bests, s->routed);
        put_mean(o, "retained", s->retained, s->routed);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// ---- inspect --ceilings ----

// Observes the head's logits while the drafter drafts, and the target's distributions at verification, where it also
// chooses the text.
typedef struct looker {
    pl_draft_watch watch;
    pl_verifier    verifier;
    pl_ceilings    ceilings;
    bool           greedy;
    int64_t        positions, most;
    pl_err         err; // of the first refused row
    // The current draft.
    int            levels;
    const pl_head *head;
    bool           routed;
    float         *logits, *whole; // [PL_CEILINGS_DEPTH, v]
} looker;

static looker *get_looker(pl_draft_watch *w) {
    return (looker *)w; // the observer is its first member
}

static void keep_logits(pl_draft_watch *w, pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    looker *l = get_looker(w);
    bool    routed = h->kind->support || h->position_aware || h->exact.data;
    pl_head greedy = *h;
    greedy.selector.law = PL_HF_LAW_LIST; // a token outside the list is never the best
    pl_tensor part = pl_head_logits(ctx, l->ceilings.temperature > 0 ? h : &greedy, r), whole = part;
    if (routed) whole = pl_head_all_logits(ctx, h, r);
    if (!part.data || !whole.data || r->level >= PL_CEILINGS_DEPTH) return;
    size_t at = (size_t)r->level * (size_t)l->ceilings.v, n = (size_t)h->vocab * sizeof(float);
    memcpy(l->logits + at, pl_f32(&part), n);
    memcpy(l->whole + at, pl_f32(&whole), n);
    l->head = h;
    l->routed = routed;
    l->levels = r->level + 1;
}

static void add_node(looker *l, const pl_verify_in *in, int node) {
    int            depth = in->tree->depth[node];
    size_t         at = (size_t)depth * (size_t)l->ceilings.v;
    pl_ceiling_row row = {.depth = depth, .p = in->p, .logits = l->logits + at};
    if (depth >= l->levels || l->err.status != PL_OK || !in->dist(in->arg, node, in->p)) return;
    row.whole = l->routed ? l->whole + at : NULL;
    row.d2t = l->head->d2t;
    row.vd = l->head->vocab;
    row.outside = pl_head_drafted(l->head).outside;
    pl_ceilings_add(&l->ceilings, &row, &l->err);
}

// Accepts drafts while they are the target's best tokens.
static void follow_best(const pl_verify_in *in, pl_verdict *out) {
    int node = 0;
    for (out->n = 0, out->path[0] = 0;; out->path[++out->n] = node) {
        if (!in->dist(in->arg, node, in->p)) {
            out->bonus = -1;
            return;
        }
        out->bonus = (int32_t)pl_propose_best(in->p, in->v);
        node = pl_tree_child(in->tree, node, out->bonus);
        if (node < 0) return;
    }
}

static void verify_watched(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    looker *l = (looker *)(uintptr_t)((const char *)v - offsetof(looker, verifier));
    if (l->greedy)
        follow_best(in, out);
    else
        pl_verify_walk(v, in, out);
    if (l->levels > 0 && l->positions < l->most) {
        for (int i = 0; i <= out->n; i++)
            add_node(l, in, out->path[i]);
        l->positions++;
    }
    l->levels = 0;
}

pl_status pl_inspect_ceilings(pl_json_out *o, const pl_env *env, const pl_target *target, const char *path,
                              const pl_inspect_ceilings_options *opt, pl_err *err) {
    pl_runner   runner = {0};
    pl_sampling sampling = {.temperature = opt->temperature > 0 ? opt->temperature : 1, .top_p = 1, .seed = opt->seed};
    pl_status   st = PL_OK;
    char        tree[32];
    if (!pl_drafter_is_folder(opt->drafter))
        return pl_fail(err, PL_E_USAGE, "--ceilings: %s has no head; name a drafter's checkpoint", opt->drafter);
    size_t  room = (size_t)PL_CEILINGS_DEPTH * (size_t)target->model.vocab;
    looker *l = pl_calloc(1, sizeof *l);
    if (!l) return pl_fail(err, PL_E_MEMORY, "ceilings: out of memory");
    l->watch.see = keep_logits;
    l->verifier =
        (pl_verifier){.name = "look on", .proposal = PL_PROPOSE_TOP, .lossless = true, .verify = verify_watched};
    l->greedy = !opt->sampled;
    l->most = opt->positions;
    PL_TRY_GOTO(st, done, pl_ceilings_init(&l->ceilings, target->model.vocab, opt->temperature, opt->n_best, err));
    l->logits = pl_calloc(room, sizeof *l->logits);
    l->whole = pl_calloc(room, sizeof *l->whole);
    if (!l->logits || !l->whole) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "ceilings: out of memory"));
    snprintf(tree, sizeof tree, "chain:%d", opt->depth);
    pl_runner_options ro = {.drafter = opt->drafter, .tree = tree, .verifier = &l->verifier, .watch = &l->watch};
    pl_inspect_texts  texts = {.target = path,
                               .prompts = opt->prompts,
                               .texts = opt->texts,
                               .most = l->most,
                               .tokens = opt->depth + 1,
                               .positions = &l->positions};
    PL_TRY_GOTO(st, done, pl_runner_open(&runner, env->backend, env->pool, target, &ro, err));
    PL_TRY_GOTO(st, done, pl_inspect_decode(&texts, &runner, &sampling, err));
    if (l->err.status != PL_OK) PL_TRY_GOTO(st, done, pl_fail(err, l->err.status, "%s: %s", opt->drafter, l->err.msg));
    pl_put_str(o, "kind", "ceilings");
    pl_put_str(o, "drafter", opt->drafter);
    pl_put_str(o, "head", l->head->kind->name);
    pl_put_str(o, "weights", pl_weights_name(target->dtype));
    pl_put_str(o, "kv", pl_weights_name(target->model.shape.kv));
    pl_put_str(o, "prompts", opt->prompts);
    pl_put_num(o, "temperature", opt->temperature);
    pl_put_str(o, "answers", opt->sampled ? "drawn" : "greedy");
    pl_put_int(o, "positions", l->positions);
    pl_put_int(o, "top", opt->n_best);
    pl_ceilings_write(&l->ceilings, o);
done:
    pl_runner_close(&runner);
    pl_ceilings_fini(&l->ceilings);
    pl_free(l->logits);
    pl_free(l->whole);
    pl_free(l);
    return st;
}
