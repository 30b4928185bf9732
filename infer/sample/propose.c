#include "infer/sample/propose.h"

#include "kernels/base/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

int64_t pl_propose_best(const double *w, int64_t n) {
    int64_t b = 0;
    for (int64_t i = 1; i < n; i++)
        if (w[i] > w[b]) b = i;
    return b;
}

// Takes the best tokens out of q.
static int choose_best(const pl_proposing *o, double *q, int k, int32_t *id, float *logp) {
    int n = 0;
    for (; n < k; n++) {
        int64_t b = pl_propose_best(q, o->vocab);
        if (!(q[b] > 0)) break;
        id[n] = (int32_t)b;
        logp[n] = (float)log(q[b]);
        q[b] = 0;
    }
    return n;
}

// Takes q's best k-1 tokens out of q and offers them after one draw from the rest. If nothing is left to draw from, the
// node is deterministic.
static int draw_top_one(pl_proposing *o, pl_tree *t, int node, double *q, int k, int32_t *id, float *logp) {
    int    n = 1 + choose_best(o, q, k - 1, id + 1, logp + 1);
    double rest = pl_sum(q, o->vocab);
    if (!(rest > 0)) {
        t->kind[node] = PL_PROPOSE_TOP;
        t->q[node] = NULL;
        memmove(id, id + 1, (size_t)(n - 1) * sizeof *id);
        memmove(logp, logp + 1, (size_t)(n - 1) * sizeof *logp);
        return n - 1;
    }
    for (int64_t i = 0; i < o->vocab; i++)
        q[i] /= rest;
    int64_t x = o->coin->draw(o->coin, q, o->vocab, -1);
    id[0] = (int32_t)x;
    logp[0] = (float)log(q[x] * rest);
    return n;
}

static int draw_with_replacement(pl_proposing *o, const double *q, int k, int32_t *id, float *logp) {
    for (int n = 0; n < k; n++) {
        int64_t x = o->coin->draw(o->coin, q, o->vocab, -1);
        id[n] = (int32_t)x;
        logp[n] = (float)log(q[x]);
    }
    return k;
}

// rate: of the node's clocks, if they race.
static int draw_without_replacement(pl_proposing *o, double rate, const double *q, int k, int32_t *id, float *logp) {
    double *w = memcpy(o->dist, q, (size_t)o->vocab * sizeof *w);
    double  left = 1, time = 0;
    int     n = 0;
    for (; n < k && left > 0; n++) {
        if (o->races && n > 0) time -= log1p(-o->coin->uniform(o->coin)) / fmax(rate * left, DBL_MIN);
        int64_t x = o->coin->draw(o->coin, w, o->vocab, -1);
        id[n] = (int32_t)x;
        logp[n] = o->races ? (float)-time : (float)log(q[x]);
        w[x] = 0;
        left = pl_sum(w, o->vocab);
    }
    return n;
}

// Draws k candidates by o->kind; q belongs to the node.
static int draw_candidates(pl_proposing *o, pl_tree *t, int node, double *q, int k, int32_t *id, float *logp) {
    t->kind[node] = o->kind;
    t->q[node] = q;
    if (o->kind == PL_PROPOSE_TOP_ONE) return draw_top_one(o, t, node, q, k, id, logp);
    if (o->kind == PL_PROPOSE_IID) return draw_with_replacement(o, q, k, id, logp);
    return draw_without_replacement(o, o->races ? pl_tree_probability(t, node) : 1, q, k, id, logp);
}

static void offer(pl_proposing *o, pl_tree *t, int node, double *q, int k, int32_t *id, float *logp) {
    int n = 0;
    PL_CHECK(k >= 1, "%d candidates", k);
    if (q && o->kind == PL_PROPOSE_TOP)
        n = choose_best(o, q, k, id, logp);
    else if (q)
        n = draw_candidates(o, t, node, q, k, id, logp);
    for (; n < k; n++) {
        id[n] = -1;
        logp[n] = -INFINITY;
    }
}

// ---- constraints ----------------------------------------------------------------------------------------------------

// Returns the text before the children of a node. path: [PL_TREE_MAX].
static pl_history text_before(const pl_proposing *o, const pl_tree *t, int node, int32_t *path) {
    int n = pl_tree_path(t, node, path) - 1; // without the root, which is part of the answer
    for (int i = 0; i < n; i++)
        path[i] = t->token[path[i + 1]];
    return (pl_history){.answer = o->answer, .n_answer = o->n_answer, .path = path, .n_path = n};
}

static bool is_allowed(const uint32_t *may, int64_t token) {
    return may[token / 32] >> token % 32 & 1;
}

// Sets q to that of the tokens that may follow; returns false if it has none.
static bool keep_allowed(const pl_proposing *o, const pl_tree *t, int node, double *q) {
    int32_t         path[PL_TREE_MAX];
    pl_constraint  *c = o->sampling->constraint;
    pl_history      h = text_before(o, t, node, path);
    const uint32_t *may = c->allowed(c, h.answer, h.n_answer, h.path, h.n_path);
    for (int64_t i = 0; i < o->vocab; i++)
        if (!is_allowed(may, i)) q[i] = 0;
    double sum = pl_sum(q, o->vocab);
    for (int64_t i = 0; i < o->vocab && sum > 0; i++)
        q[i] /= sum;
    return sum > 0;
}

// A constraint over the tokens of a draft vocabulary.
typedef struct listed {
    pl_constraint     base, *of;
    const pl_drafted *drafted;
    uint32_t         *mask;
} listed;

static const uint32_t *allow_listed(pl_constraint *base, const int32_t *answer, int64_t n_answer, const int32_t *path,
                                    int64_t n_path) {
    const listed   *l = (const listed *)base;
    const uint32_t *may = l->of->allowed(l->of, answer, n_answer, path, n_path);
    memset(l->mask, 0, (size_t)((l->drafted->n + 31) / 32) * sizeof *l->mask);
    for (int64_t i = 0; i < l->drafted->n; i++)
        if (is_allowed(may, l->drafted->d2t[i])) l->mask[i / 32] |= 1U << i % 32;
    return l->mask;
}

// ---- proposals ------------------------------------------------------------------------------------------------------

double *pl_propose_row(pl_proposing *o) {
    if (o->kind == PL_PROPOSE_TOP) return o->q; // no node keeps it
    PL_CHECK(o->q_used < o->q_rows, "distributions of more than %d nodes", o->q_rows);
    return o->q + (int64_t)o->q_used++ * o->vocab;
}

void pl_propose_from(pl_proposing *o, pl_tree *t, int node, double *q, int k, int32_t *id, float *logp) {
    if (q && o->sampling->constraint && !keep_allowed(o, t, node, q)) q = NULL;
    offer(o, t, node, q, k, id, logp);
}

void pl_propose_draw(pl_proposing *o, pl_tree *t, int node, const float *logits, const pl_drafted *drafted, int k,
                     int32_t *id, float *logp) {
    pl_drafted  as = *drafted;
    listed      l = {.base = {allow_listed}, .of = o->sampling->constraint, .drafted = drafted, .mask = o->mask};
    int32_t     path[PL_TREE_MAX];
    pl_history  h = {0};
    pl_sampling s = pl_sampling_bare(o->sampling);
    if (o->kind == PL_PROPOSE_TOP) {
        s = (pl_sampling){.temperature = 1, .top_p = 1};
        as.outside = NULL;
    }
    if (l.of) {
        h = text_before(o, t, node, path);
        s.constraint = drafted->d2t ? &l.base : l.of;
    }
    double *q = pl_propose_row(o);
    bool    all = drafted->n == o->vocab && !drafted->d2t;
    bool    good = pl_distribution(all ? q : o->dist, logits, drafted->n, &s, &h, o->work);
    if (good && !all) pl_drafted_distribution(&as, q, o->vocab, o->dist);
    offer(o, t, node, good ? q : NULL, k, id, logp);
}
