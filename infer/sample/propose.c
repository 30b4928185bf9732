#include "infer/sample/propose.h"

#include "kernels/base/check.h"

#include <math.h>
#include <string.h>

int64_t pl_propose_best(const double *w, int64_t n) {
    int64_t b = 0;
    for (int64_t i = 1; i < n; i++)
        if (w[i] > w[b]) b = i;
    return b;
}

// Takes q's best k-1 tokens out of q and offers them after one draw from the rest. If nothing is left to draw from, the
// node is deterministic.
static int draw_top_one(pl_proposing *o, pl_tree *t, int node, double *q, int k, int32_t *id, float *logp) {
    int n = 1;
    for (; n < k; n++) {
        int64_t b = pl_propose_best(q, o->vocab);
        if (!(q[b] > 0)) break;
        id[n] = (int32_t)b;
        logp[n] = (float)log(q[b]);
        q[b] = 0;
    }
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

static int draw_all(pl_proposing *o, const double *q, int k, int32_t *id, float *logp) {
    double *w = o->dist;
    double  left = 1;
    int     n = 0;
    if (o->kind == PL_PROPOSE_WOR) memcpy(w, q, (size_t)o->vocab * sizeof *w);
    for (; n < k && left > 0; n++) {
        int64_t x = o->coin->draw(o->coin, o->kind == PL_PROPOSE_WOR ? w : q, o->vocab, -1);
        id[n] = (int32_t)x;
        logp[n] = (float)log(q[x]);
        if (o->kind != PL_PROPOSE_WOR) continue;
        w[x] = 0;
        left = pl_sum(w, o->vocab);
    }
    return n;
}

double *pl_propose_row(pl_proposing *o) {
    PL_CHECK(o->q_used < o->q_rows, "distributions of more than %d nodes", o->q_rows);
    return o->q + (int64_t)o->q_used++ * o->vocab;
}

void pl_propose_from(pl_proposing *o, pl_tree *t, int node, double *q, int k, int32_t *id, float *logp) {
    PL_CHECK(o->kind != PL_PROPOSE_TOP && k >= 1, "proposal %d, %d candidates", (int)o->kind, k);
    int n = 0;
    if (q) {
        t->kind[node] = o->kind;
        t->q[node] = q;
        n = o->kind == PL_PROPOSE_TOP_ONE ? draw_top_one(o, t, node, q, k, id, logp) : draw_all(o, q, k, id, logp);
    }
    for (; n < k; n++) {
        id[n] = -1;
        logp[n] = -INFINITY;
    }
}

void pl_propose_draw(pl_proposing *o, pl_tree *t, int node, const float *logits, const pl_drafted *drafted, int k,
                     int32_t *id, float *logp) {
    pl_sampling s = pl_sampling_bare(o->sampling);
    double     *q = pl_propose_row(o);
    bool        all = drafted->n == o->vocab && !drafted->d2t;
    bool        good = pl_distribution(all ? q : o->dist, logits, drafted->n, &s, &(pl_history){0}, o->work);
    if (good && !all) pl_drafted_distribution(drafted, q, o->vocab, o->dist);
    pl_propose_from(o, t, node, good ? q : NULL, k, id, logp);
}
