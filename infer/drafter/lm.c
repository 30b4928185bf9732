// A language model as a drafter, token by token (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv
// 2302.01318): any target of ours, with its own cache.
//
//   "lm:PATH[:TOKENIZER]"     a model with the target's vocabulary (padding aside), any tree
//   "tli:PATH[:TOKENIZER]"    one with another: only tokens that are in both are drafted, from q'(x) = q(x) / q(T and
//                             D) (token-level intersection, arXiv 2502.05202, Algorithm 4); any tree, any verifier. It
//                             is what a head over a list of tokens drafts: the list is the intersection, and
//                             temperature, top-k, ... act on what is left of the logits. Where nothing is left (no
//                             token in both, or none that q may say), nothing is drafted: a plain step.
//   "union:PATH[:TOKENIZER]"  the baseline of the same paper (Algorithm 1): a token is drawn from all of q and the
//                             draft breaks off where the target lacks it, which counts as a rejected draw: the target's
//                             token comes from max(p - q, 0). Of one q it never accepts more than tli does (Theorem
//                             4.1). Chains alone.
//
// Context of the last two: the session's text in the drafter's own tokens (data/tokenizer/transcript.h).
#include "infer/drafter/translation.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/best.h"

#include <math.h>
#include <string.h>

typedef struct lm {
    pl_standalone        own;
    bool                 breaks_off; // union
    pl_drafted           drafted;    // what candidates are chosen from
    const int32_t       *shared;     // [drafted.n] the drafter's ids of them; NULL: the same
    float               *compact;    // [drafted.n]
    pl_distribution_work work;       // union: over the drafter's vocabulary
    double              *dist;
    // Trees, by item of the call.
    int                 *frontier, *n_frontier, *next; // [sessions][width], [sessions], [width]
    int                 *row;                          // [sessions][PL_TREE_GROWN] the drafted row of a node, root: -1
    int32_t             *id;                           // [width][k]
    float               *logp;
} lm;

// ---- candidates -----------------------------------------------------------------------------------------------------

static const float *listed(lm *d, const float *logits) {
    if (!d->shared) return logits;
    for (int64_t i = 0; i < d->drafted.n; i++)
        d->compact[i] = logits[d->shared[i]];
    return d->compact;
}

static double log_sum_exp(const float *x, int64_t n, float top) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)top);
    return (double)top + log(sum);
}

// The best k, best first, equal ones in the order of the list.
static void best(const lm *d, const float *x, int64_t n, int k, int32_t *id, float *logp) {
    pl_tensor row = pl_tensor_2d((void *)(uintptr_t)x, PL_F32, 1, n);
    int       m = n < k ? (int)n : k;
    if (!pl_best_of(&row, 0, n, m, id)) m = 0;
    for (int i = 1; i < m; i++)
        for (int j = i; j > 0 && (x[id[j]] > x[id[j - 1]] || (x[id[j]] == x[id[j - 1]] && id[j] < id[j - 1])); j--) {
            int32_t swap = id[j];
            id[j] = id[j - 1];
            id[j - 1] = swap;
        }
    double lse = m > 0 && d->own.base.policy.needs_logp ? log_sum_exp(x, n, x[id[0]]) : 0;
    for (int i = 0; i < k; i++) {
        bool there = i < m && x[id[i]] > -INFINITY;
        logp[i] = there ? (float)((double)x[id[i]] - lse) : -INFINITY;
        if (!there) id[i] = -1;
    }
}

// One draw from all of the drafter's tokens; q is what it gives to those that the target has.
static void draw_or_break_off(lm *d, pl_draft_item *it, int node, const float *logits, int32_t *id, float *logp) {
    pl_proposing         *o = it->proposing;
    const pl_translation *tr = &d->own.tr;
    pl_sampling           s = *o->sampling;
    double               *q = pl_propose_row(o);
    s.repetition_penalty = 1;
    id[0] = -1;
    logp[0] = -INFINITY;
    if (!pl_distribution(d->dist, logits, tr->vd, &s, &(pl_history){0}, &d->work)) return;
    memset(q, 0, (size_t)o->vocab * sizeof *q);
    for (int64_t i = 0; i < tr->n_shared; i++)
        q[tr->shared_as[i]] = d->dist[tr->shared[i]];
    it->tree->kind[node] = PL_PROPOSE_IID;
    it->tree->q[node] = q;
    int64_t x = o->coin->draw(o->coin, d->dist, tr->vd, -1);
    id[0] = tr->to_target[x];
    logp[0] = (float)log(d->dist[x]);
    if (id[0] < 0) pl_tree_miss(it->tree, node);
}

static void candidates(lm *d, pl_draft_item *it, int node, const float *logits, int32_t *id, float *logp) {
    const pl_tree_policy *policy = &d->own.base.policy;
    int                   k = policy->k;
    if (d->breaks_off && it->proposing) {
        draw_or_break_off(d, it, node, logits, id, logp);
    } else if (d->breaks_off) {
        best(d, logits, d->own.tr.vd, k, id, logp);
        if (id[0] >= 0) id[0] = d->own.tr.to_target[id[0]];
    } else if (it->proposing) {
        int wanted = pl_tree_wanted(policy, it->tree, node);
        for (int i = wanted; i < k; i++)
            id[i] = -1;
        if (d->drafted.n > 0 && wanted > 0)
            pl_propose_draw(it->proposing, it->tree, node, listed(d, logits), &d->drafted, wanted, id, logp);
        else if (wanted > 0)
            id[0] = -1;
    } else {
        best(d, listed(d, logits), d->drafted.n, k, id, logp);
        for (int i = 0; i < k; i++)
            if (id[i] >= 0 && d->drafted.d2t) id[i] = d->drafted.d2t[id[i]];
    }
}

// ---- trees ----------------------------------------------------------------------------------------------------------

// Grows the trees by one level, whose rows of logits come in the order of items and frontiers, and asks for the next
// level's. False: there is none.
static bool grow(lm *d, pl_draft_batch *b, int level, const float *logits) {
    const pl_tree_policy *policy = &d->own.base.policy;
    pl_draft_model       *m = &d->own.model;
    int                   w = policy->width;
    double                at = pl_now();
    for (int i = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        int           *frontier = d->frontier + i * w, *row = d->row + i * PL_TREE_GROWN, n = d->n_frontier[i];
        if (n == 0) continue;
        for (int f = 0; f < n; f++, logits += m->target.model.vocab)
            candidates(d, it, frontier[f], logits, d->id + f * policy->k, d->logp + f * policy->k);
        pl_draft_lap(it->proposing ? &d->own.base.parts.draw : &d->own.base.parts.head, &at);
        n = policy->kind->grow(policy, it->tree, level, frontier, n, d->id, d->logp, d->next);
        d->n_frontier[i] = 0;
        if (level + 1 >= policy->depth || level + 1 >= it->depth) continue;
        for (int f = 0; f < n; f++) {
            int     node = d->next[f];
            int32_t token = it->tree->token[node];
            row[node] = pl_draft_model_row(m, it->slot, d->own.tr.text ? d->own.tr.to_draft[token] : token,
                                           row[it->tree->parent[node]]);
            if (row[node] >= 0) frontier[d->n_frontier[i]++] = node;
        }
    }
    return m->n > 0;
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    lm          *d = (lm *)base;
    double       at = pl_now();
    const float *logits;
    if (ctx->measuring) return; // its model computes in steps of its own
    for (int i = 0; i < b->n; i++) {
        d->n_frontier[i] = pl_standalone_take_in(&d->own, ctx, &b->item[i]);
        d->frontier[i * base->policy.width] = 0;
        d->row[i * PL_TREE_GROWN] = -1;
    }
    logits = pl_draft_model_run(&d->own.model);
    pl_draft_lap(&base->parts.take_in, &at);
    for (int level = 0; logits && grow(d, b, level, logits); level++) {
        at = pl_now();
        logits = pl_draft_model_run(&d->own.model);
        pl_draft_lap(&base->parts.layer, &at);
    }
    pl_draft_model_check(&d->own.model, ctx);
}

// ---- opening --------------------------------------------------------------------------------------------------------

static void destroy(pl_drafter *base) {
    lm *d = (lm *)base;
    pl_standalone_close(&d->own);
    pl_distribution_work_fini(&d->work);
    void *owned[] = {d->compact, d->dist, d->frontier, d->n_frontier, d->next, d->row, d->id, d->logp};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    pl_free(d);
}

static pl_status allocate(lm *d, const pl_drafter_options *o, pl_err *err) {
    const pl_tree_policy *p = &d->own.base.policy;
    size_t                s = (size_t)o->max_sessions, w = (size_t)p->width, k = (size_t)p->k;
    const pl_translation *tr = &d->own.tr;
    int64_t               vd = d->own.model.target.model.vocab;
    d->drafted.n = vd < o->target->vocab ? vd : o->target->vocab;
    if (tr->text) {
        d->drafted = (pl_drafted){.n = tr->n_shared, .d2t = tr->shared_as};
        d->shared = tr->shared;
    }
    d->compact = pl_calloc((size_t)d->drafted.n + 1, sizeof *d->compact);
    d->frontier = pl_calloc(s * w, sizeof *d->frontier);
    d->n_frontier = pl_calloc(s, sizeof *d->n_frontier);
    d->next = pl_calloc(w, sizeof *d->next);
    d->row = pl_calloc(s * PL_TREE_GROWN, sizeof *d->row);
    d->id = pl_calloc(w * k, sizeof *d->id);
    d->logp = pl_calloc(w * k, sizeof *d->logp);
    if (!d->compact || !d->frontier || !d->n_frontier || !d->next || !d->row || !d->id || !d->logp)
        return pl_fail(err, PL_E_MEMORY, "drafter \"%s\": out of memory", d->own.base.kind->name);
    if (!d->breaks_off) return PL_OK;
    d->dist = pl_calloc((size_t)vd, sizeof *d->dist);
    if (!d->dist) return pl_fail(err, PL_E_MEMORY, "drafter \"union\": out of memory");
    d->own.base.proposals = 1u << PL_PROPOSE_TOP | 1u << PL_PROPOSE_IID;
    return pl_distribution_work_init(&d->work, vd, err);
}

#define KIND(kind_name)                                                                                                \
    {                                                                                                                  \
        .name = kind_name, .propose = propose, .reset = pl_standalone_reset, .step_bytes = pl_standalone_step_bytes,   \
        .destroy = destroy                                                                                             \
    }
static const pl_drafter_kind lm_kind = KIND("lm"), tli_kind = KIND("tli"), union_kind = KIND("union");

static pl_status open(pl_drafter **out, const pl_drafter_kind *kind, const char *args, const pl_tree_policy *policy,
                      const pl_drafter_options *o, pl_err *err) {
    *out = NULL;
    lm *d = pl_calloc(1, sizeof *d);
    if (!d) return pl_fail(err, PL_E_MEMORY, "drafter \"%s\": out of memory", kind->name);
    d->breaks_off = kind == &union_kind;
    pl_status st = pl_standalone_open(&d->own, kind, args, policy, policy->width, policy->width * policy->depth_max,
                                      kind != &lm_kind, o, err);
    if (st == PL_OK) st = allocate(d, o, err);
    if (st == PL_OK)
        *out = &d->own.base;
    else
        destroy(&d->own.base);
    return st;
}

static pl_status open_lm(pl_drafter **out, const char *args, const pl_tree_policy *policy, const pl_drafter_options *o,
                         pl_err *err) {
    return open(out, &lm_kind, args, policy, o, err);
}

static pl_status open_tli(pl_drafter **out, const char *args, const pl_tree_policy *policy, const pl_drafter_options *o,
                          pl_err *err) {
    return open(out, &tli_kind, args, policy, o, err);
}

static pl_status open_union(pl_drafter **out, const char *args, const pl_tree_policy *policy,
                            const pl_drafter_options *o, pl_err *err) {
    return open(out, &union_kind, args, policy, o, err);
}

static pl_status any_tree(pl_tree_policy *p, char name[PL_DRAFTER_TREE], const char *args, const char *tree,
                          pl_err *err) {
    (void)args;
    return pl_standalone_tree(p, name, tree, err);
}

static pl_status chains(pl_tree_policy *p, char name[PL_DRAFTER_TREE], const char *args, const char *tree,
                        pl_err *err) {
    (void)args;
    return pl_standalone_chain(p, name, "union", tree, err);
}

const pl_drafter_source pl_drafter_lm = {.name = "lm",
                                         .syntax = "lm:PATH[:TOKENIZER]",
                                         .help = "another model, of the same vocabulary",
                                         .shape = any_tree,
                                         .open = open_lm};
const pl_drafter_source pl_drafter_tli = {.name = "tli",
                                          .syntax = "tli:PATH[:TOKENIZER]",
                                          .help = "a model of another vocabulary: tokens that are in both (TLI)",
                                          .shape = any_tree,
                                          .open = open_tli};
const pl_drafter_source pl_drafter_union = {.name = "union",
                                            .syntax = "union:PATH[:TOKENIZER]",
                                            .help =
                                                "the same, but breaks off at tokens that the target lacks: a baseline",
                                            .shape = chains,
                                            .open = open_union};
