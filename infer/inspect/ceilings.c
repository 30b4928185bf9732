#include "infer/inspect/ceilings.h"

#include "infer/sample/propose.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/json_put.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDING 1e-9 // of sums of the same numbers in another order

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

// softmax of z / T into q, at temperature 0 all of it on the best, the first among equals; false where it has none.
static bool softmax(const pl_ceilings *c, const float *z, int64_t n, double *q) {
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

static int descending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

// p at the temperature of q.
static double target_mass(const pl_ceilings *c, const double *p, int64_t v) {
    return c->temperature > 0 ? p[v] : v == c->target_best;
}

// H_k(p).
static double best_mass(pl_ceilings *c, const double *p, int64_t k) {
    double sum = 0;
    if (c->temperature == 0) return k > 0;
    memcpy(c->sorted, p, (size_t)c->v * sizeof *p);
    if (k < c->v) qsort(c->sorted, (size_t)c->v, sizeof *p, descending);
    for (int64_t i = 0; i < k && i < c->v; i++)
        sum += c->sorted[i];
    return sum;
}

// How much of the whole head's distribution and how many of its best lie in the support. Takes c->q.
static bool add_routed(pl_ceilings *c, const pl_ceiling_row *r, pl_ceiling_sums *s) {
    if (!softmax(c, r->whole, r->vd, c->q)) return false;
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

// Token y of S: what p and the distribution that is proposed from give it.
static void add_token(const pl_ceilings *c, pl_ceiling_sums *s, const double *p, int64_t y, double q) {
    double mass = target_mass(c, p, y);
    s->achieved += fmin(mass, q);
    s->ceiling += mass;
    s->support++;
    if (y == c->target_best) s->target = 1;
}

// The row's tokens, one by one. Takes c->q, and c->sorted where there is an outside.
static bool add_tokens(pl_ceilings *c, const pl_ceiling_row *r, pl_ceiling_sums *s) {
    if (!softmax(c, r->logits, r->vd, c->q)) return false;
    if (r->outside && c->temperature > 0) { // the best is never outside
        pl_drafted list = {.n = r->vd, .d2t = r->d2t, .outside = r->outside};
        pl_drafted_distribution(&list, c->sorted, c->v, c->q);
        for (int64_t y = 0; y < c->v; y++)
            if (c->sorted[y] > 0) add_token(c, s, r->p, y, c->sorted[y]);
    } else { // by the list, so that a map that names a token twice breaks the order
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
    row.oracle = best_mass(c, r->p, (int64_t)row.support);
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
