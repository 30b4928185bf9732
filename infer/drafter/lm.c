// A language model as a drafter, token by token (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv
// 2302.01318): any supported target, with its own cache.
//
//   "lm:PATH[:TOKENIZER]"     a model with the target's vocabulary (padding aside), any tree
//   "tli:PATH[:TOKENIZER]"    a model with another one: drafts only tokens that are in both, from q'(x) = q(x) / q(T
//                             and D) (token-level intersection, arXiv 2502.05202, Algorithm 4); any tree, any verifier.
//                             This is a head over a token list: the list is the intersection, and temperature, top-k,
//                             ... act on the remaining logits. If none remains (no token in both, or none with
//                             probability), the step is plain.
//   "union:PATH[:TOKENIZER]"  the baseline of the same paper (Algorithm 1): draws a token from all of q and ends the
//                             draft where the target lacks it, which counts as a rejected draw: the target's token
//                             comes from max(p - q, 0). For one q it never accepts more than tli does (Theorem 4.1).
//                             Chains alone.
//
// Drafts of each end by the model's prediction of acceptance, if its folder has one (infer/head/stopping.h).
// Context of the last two: the session's text in the drafter's own tokens (data/tokenizer/transcript.h).
#include "infer/drafter/translation.h"
#include "kernels/base/arena.h"

#include <math.h>
#include <string.h>

typedef struct lm {
    pl_standalone        own;
    bool                 breaks_off; // union: a token that the target lacks ends the draft
    pl_drafted           drafted;    // tokens that may be drafted
    const int32_t       *shared;     // [drafted.n] the drafter's ids of them; NULL: the same ids
    float               *compact;    // [drafted.n]
    pl_distribution_work work;       // union: over the drafter's vocabulary
    double              *dist;
    // Trees, by item of the batch.
    int                 *frontier, *n_frontier, *next; // [sessions][width], [sessions], [width]
    int                 *row;                          // [sessions][PL_TREE_GROWN] the drafted row of a node, root: -1
    int32_t             *id;                           // [width][k]
    float               *logp;
    float               *kept; // [sessions][PL_TREE_GROWN] predicted acceptance of a node's path and a draft behind it
} lm;

// ---- candidates -----------------------------------------------------------------------------------------------------

static const float *pick_listed(lm *d, const float *logits) {
    if (!d->shared) return logits;
    for (int64_t i = 0; i < d->drafted.n; i++)
        d->compact[i] = logits[d->shared[i]];
    return d->compact;
}

// Copies the model's best tokens of a row, as the target's ids.
static void copy_best(const lm *d, const pl_draft_best *b, int row, int32_t *id, float *logp) {
    int            k = d->own.base.policy.k;
    const int32_t *as = d->own.tr.to_target;
    for (int i = 0; i < k; i++) {
        int32_t x = b->id[row * k + i];
        float   value = b->value[row * k + i];
        bool    there = x >= 0 && value > -INFINITY;
        id[i] = !there ? -1 : as ? as[x] : x;
        logp[i] = there ? value - (b->lse ? b->lse[row] : 0) : -INFINITY;
    }
}

// Draws one token from all of the drafter's tokens; q covers those that the target has.
static void draw_or_break_off(lm *d, pl_draft_item *it, int node, const float *logits, int32_t *id, float *logp) {
    pl_proposing         *o = it->proposing;
    const pl_translation *tr = &d->own.tr;
    pl_sampling           s = pl_sampling_bare(o->sampling);
    double               *q = pl_propose_row(o);
    id[0] = -1;
    logp[0] = -INFINITY;
    if (!pl_distribution(d->dist, logits, tr->vd, &s, &(pl_history){0}, &d->work)) return;
    memset(q, 0, (size_t)o->vocab * sizeof *q);
    for (int64_t i = 0; i < tr->n_shared; i++)
        q[tr->shared_as[i]] = d->dist[tr->shared[i]];
    if (o->kind == PL_PROPOSE_TOP) { // of a constrained session
        pl_propose_from(o, it->tree, node, q, 1, id, logp);
        return;
    }
    it->tree->kind[node] = PL_PROPOSE_IID;
    it->tree->q[node] = q;
    int64_t x = o->coin->draw(o->coin, d->dist, tr->vd, -1);
    id[0] = tr->to_target[x];
    logp[0] = (float)log(d->dist[x]);
    if (id[0] < 0) pl_tree_miss(it->tree, node);
}

static void draw_children(lm *d, pl_draft_item *it, int node, const float *logits, int32_t *id, float *logp) {
    const pl_tree_policy *policy = &d->own.base.policy;
    int                   wanted = pl_tree_wanted(policy, it->tree, node);
    if (d->breaks_off) {
        draw_or_break_off(d, it, node, logits, id, logp);
        return;
    }
    for (int i = d->drafted.n > 0 ? wanted : 0; i < policy->k; i++)
        id[i] = -1;
    if (d->drafted.n > 0 && wanted > 0)
        pl_propose_draw(it->proposing, it->tree, node, pick_listed(d, logits), &d->drafted, wanted, id, logp);
}

// Returns true, with no candidates, where a token behind the node would be rejected too likely. sure: of its row.
static bool end_path(const lm *d, const pl_draft_item *it, int item, int node, const float *sure, int32_t *id) {
    float *kept = d->kept + item * PL_TREE_GROWN;
    if (!sure || !pl_stopping_ends(&d->own.model.stops, kept, it->tree->parent[node], node, *sure)) return false;
    for (int i = 0; i < d->own.base.policy.k; i++)
        id[i] = -1;
    return true; // what is drawn or chosen has no part in it
}

// ---- trees ----------------------------------------------------------------------------------------------------------

// Grows the trees by one level, whose rows come in the order of items and frontiers, and queues the next level's rows.
// Returns false if there is no next level.
static bool grow_level(lm *d, pl_draft_batch *b, int level, const pl_draft_best *rows) {
    const pl_tree_policy *policy = &d->own.base.policy;
    pl_draft_model       *m = &d->own.model;
    int                   w = policy->width, at_row = 0;
    double                at = pl_now();
    for (int i = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        int           *frontier = d->frontier + i * w, *row = d->row + i * PL_TREE_GROWN, n = d->n_frontier[i];
        if (n == 0) continue;
        for (int f = 0; f < n; f++, at_row++) {
            int32_t *id = d->id + f * policy->k;
            float   *logp = d->logp + f * policy->k;
            if (end_path(d, it, i, frontier[f], rows->sure ? rows->sure + at_row : NULL, id)) continue;
            if (it->proposing)
                draw_children(d, it, frontier[f], rows->logits + at_row * m->target.model.vocab, id, logp);
            else
                copy_best(d, rows, at_row, id, logp);
        }
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
    lm           *d = (lm *)base;
    double        at = pl_now();
    pl_draft_best rows = {0};
    bool          draws = false, chooses = false, more;
    if (ctx->measuring) return; // its model runs its own steps
    for (int i = 0; i < b->n; i++) {
        d->n_frontier[i] = pl_standalone_take_in(&d->own, ctx, &b->item[i]);
        d->frontier[i * base->policy.width] = 0;
        d->row[i * PL_TREE_GROWN] = -1;
        if (b->item[i].tree) *(b->item[i].proposing ? &draws : &chooses) = true;
    }
    more = pl_draft_model_results(&d->own.model, chooses, draws, &rows);
    pl_draft_lap(&base->parts.take_in, &at);
    for (int level = 0; more && grow_level(d, b, level, &rows); level++) {
        at = pl_now();
        more = pl_draft_model_results(&d->own.model, chooses, draws, &rows);
        pl_draft_lap(&base->parts.layer, &at);
    }
    pl_draft_model_check(&d->own.model, ctx);
}

// ---- opening --------------------------------------------------------------------------------------------------------

static void destroy(pl_drafter *base) {
    lm *d = (lm *)base;
    pl_standalone_close(&d->own);
    pl_distribution_work_fini(&d->work);
    void *owned[] = {d->compact, d->dist, d->frontier, d->n_frontier, d->next, d->row, d->id, d->logp, d->kept};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
}

static pl_status allocate_trees(lm *d, const pl_drafter_options *o, pl_err *err) {
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
    d->kept = pl_calloc(s * PL_TREE_GROWN, sizeof *d->kept);
    if (!d->compact || !d->frontier || !d->n_frontier || !d->next || !d->row || !d->id || !d->logp || !d->kept)
        return pl_fail(err, PL_E_MEMORY, "drafter \"%s\": out of memory", d->own.base.kind->name);
    bool shared = tr->text && !d->breaks_off;
    PL_TRY(pl_draft_model_stops(&d->own.model, o->dtype, err));
    PL_TRY(pl_draft_model_chooses(&d->own.model, p->k, p->needs_logp, shared ? tr->shared : NULL,
                                  d->breaks_off ? vd : d->drafted.n, err));
    if (!d->breaks_off) return PL_OK;
    d->dist = pl_calloc((size_t)vd, sizeof *d->dist);
    if (!d->dist) return pl_fail(err, PL_E_MEMORY, "drafter \"union\": out of memory");
    return pl_distribution_work_init(&d->work, vd, err);
}

#define KIND(kind_name)                                                                                                \
    {                                                                                                                  \
        .name = kind_name, .propose = propose, .reset = pl_standalone_reset, .keep = pl_standalone_keep,               \
        .step_bytes = pl_standalone_step_bytes, .destroy = destroy                                                     \
    }
static const pl_drafter_kind lm_kind = KIND("lm"), tli_kind = KIND("tli"), union_kind = KIND("union");

static pl_status init(pl_drafter *base, const char *args, const pl_drafter_options *o, pl_err *err) {
    lm                   *d = (lm *)base;
    const pl_tree_policy *p = &base->policy;
    d->breaks_off = base->kind == &union_kind;
    PL_TRY(pl_standalone_open(&d->own, args, p->width, p->width * p->depth_max, base->kind != &lm_kind, o, err));
    return allocate_trees(d, o, err);
}

const pl_drafter_source pl_drafter_lm = {.name = "lm",
                                         .syntax = "lm:PATH[:TOKENIZER]",
                                         .help = "another model, of the same vocabulary",
                                         .shape = pl_standalone_tree,
                                         .kind = &lm_kind,
                                         .size = sizeof(lm),
                                         .init = init};
const pl_drafter_source pl_drafter_tli = {.name = "tli",
                                          .syntax = "tli:PATH[:TOKENIZER]",
                                          .help = "a model of another vocabulary: tokens that are in both (TLI)",
                                          .shape = pl_standalone_tree,
                                          .kind = &tli_kind,
                                          .size = sizeof(lm),
                                          .init = init};
const pl_drafter_source pl_drafter_union = {.name = "union",
                                            .syntax = "union:PATH[:TOKENIZER]",
                                            .help =
                                                "the same, but breaks off at tokens that the target lacks: a baseline",
                                            .shape = pl_standalone_scored_chain,
                                            .proposals = 1u << PL_PROPOSE_TOP | 1u << PL_PROPOSE_IID,
                                            .kind = &union_kind,
                                            .size = sizeof(lm),
                                            .init = init};
