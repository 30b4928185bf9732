// Draws beside a distribution in double that is written down here once more, by sorting: tokens, and how near to the
// boundary between two tokens' shares, or to a filter's cut, a backend may be wrong.
#include "kernels/base/rng.h"
#include "kernels/op/draw.h"
#include "kernels/op/elementwise.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_ROWS = 64, MOST = 70000, TEXTS = 3 };

typedef struct draws {
    int         rows, V, n;
    float       z[MOST];
    pl_draw_row row[MOST_ROWS];
    uint32_t    said[TEXTS * (MOST / 32 + 1)];
} draws;

static draws d, one;

static pl_rng rng_of(int which) {
    return pl_rng_make(21, PL_STREAM_TEST, (uint64_t)which);
}

// levels: 0: continuous logits; else integers below it, full of ties.
static void fill(draws *to, int rows, int V, int levels, double scale) {
    pl_rng rng = rng_of(rows * 7 + V);
    assert_true((int64_t)rows * V <= MOST && rows <= MOST_ROWS);
    to->rows = to->n = rows;
    to->V = V;
    for (int i = 0; i < rows * V; i++)
        to->z[i] = levels ? (float)pl_rng_below(rng, (uint64_t)i, (uint64_t)levels)
                          : pl_round_bf16((float)(scale * (double)pl_rng_normal(rng, (uint64_t)i)));
    memset(to->said, 0, sizeof to->said);
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < V / 3; i++)
            pl_said_add(to->said + t * pl_said_words(V),
                        (int32_t)pl_rng_below(rng, (uint64_t)(t * V + i) + 1000000, (uint64_t)V));
}

// Distributions of all kinds, over rows that stand in trees.
static void dists_of(draws *to, int which) {
    static const double temperature[] = {1, 0.7, 0, 2.5, 1, 0.05}, top_p[] = {1, 0.9, 0.5, 1, 0.999},
                        min_p[] = {0, 0, 0.05, 0, 0, 0, 0.4};
    pl_rng rng = rng_of(which);
    for (int i = 0; i < to->n; i++) {
        int k = which + i;
        to->row[i] = (pl_draw_row){.u = pl_rng_uniform(rng, (uint64_t)i),
                                   .temperature = temperature[k % 6],
                                   .top_p = top_p[k % 5],
                                   .min_p = min_p[k % 7],
                                   .penalty = k % 3 == 1    ? 1.3f
                                              : k % 11 == 0 ? 0.8f
                                                            : 1,
                                   .top_k = k % 4 == 3 ? 1 + k * k % to->V : 0,
                                   .at = to->rows - 1 - i % to->rows,
                                   .text = k % TEXTS,
                                   .token = (int32_t)pl_rng_below(rng, (uint64_t)i + 1000, (uint64_t)to->V),
                                   .parent = i % 5 == 0 ? -1 : i - 1 - i % 2};
        if (to->row[i].parent < -1) to->row[i].parent = -1;
    }
}

static void build(op_run *r, const void *arg) {
    const draws *s = arg;
    int32_t      id[MOST_ROWS];
    for (int i = 0; i < s->rows; i++)
        id[i] = i;
    // be->real copies of the floats: an embedding of all rows.
    pl_tensor    w = pl_tensor_2d((void *)op_floats_from(r, s->z, (int64_t)s->rows * s->V), PL_F32, s->rows, s->V);
    pl_draw_args a = {.x = pl_embed(op_ctx(r), w, op_ids_from(r, id, s->rows), s->rows), .n = s->n, .texts = TEXTS};
    _Static_assert(sizeof(pl_draw_row) % sizeof(int32_t) == 0, "rows as words");
    a.row = (const pl_draw_row *)(const void *)op_ids_from(r, (const int32_t *)(const void *)s->row,
                                                           s->n * (int64_t)(sizeof *s->row / sizeof(int32_t)));
    a.said = (const uint32_t *)op_ids_from(r, (const int32_t *)s->said, TEXTS * pl_said_words(s->V));
    a.id = op_bytes(r, (size_t)s->n * sizeof *a.id);
    pl_draw(op_ctx(r), &a);
    op_out_i32(r, a.id, s->n);
}

static void all_backends(void **state) {
    (void)state;
    static const struct {
        int    rows, V, levels;
        double scale;
    } shape[] = {{1, 1, 0, 3},     {3, 2, 2, 1},     {64, 31, 0, 2},  {17, 97, 5, 1},   {64, 97, 0, 4},
                 {33, 1000, 0, 3}, {8, 2049, 12, 1}, {7, 4099, 0, 5}, {2, 16411, 0, 6}, {1, 20000, 30, 1}};
    for (int i = 0; i < (int)(sizeof shape / sizeof *shape); i++)
        for (int k = 0; k < (shape[i].V > 4000 ? 1 : 3); k++) { // ref sorts by selection
            fill(&d, shape[i].rows, shape[i].V, shape[i].levels, shape[i].scale);
            dists_of(&d, 10 * i + k);
            op_check(build, &d, OP_NO_TAPE, "draw of %dx%d, distributions %d", d.rows, d.V, 10 * i + k);
        }
}

// ---- the distribution, once more
// ---------------------------------------------------------------------------------------------

typedef struct dist {
    int    n;           // tokens left
    int    order[MOST]; // of all tokens, best first; the first n are left
    double z[MOST], w[MOST], sum;
    bool   in[MOST];
} dist;

static dist truth;

static int by_logit_then_id(const void *x, const void *y) {
    int a = *(const int *)x, b = *(const int *)y;
    if (truth.z[a] != truth.z[b]) return truth.z[a] > truth.z[b] ? -1 : 1;
    return a - b;
}

static double mass_of_best(int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += truth.w[truth.order[i]];
    return sum;
}

static void find_dist(const draws *s, int i) {
    const pl_draw_row *r = &s->row[i];
    for (int v = 0; v < s->V; v++) {
        bool occurred = pl_said_has(s->said + r->text * pl_said_words(s->V), v);
        for (int at = i; s->row[at].parent >= 0; at = s->row[at].parent)
            occurred |= s->row[at].token == v;
        truth.z[v] = (double)s->z[r->at * s->V + v];
        if (occurred && r->penalty != 1) // in fp32, as the distribution has it: ties come of it
            truth.z[v] =
                (double)(truth.z[v] > 0 ? s->z[r->at * s->V + v] / r->penalty : s->z[r->at * s->V + v] * r->penalty);
        truth.order[v] = v;
    }
    qsort(truth.order, (size_t)s->V, sizeof *truth.order, by_logit_then_id);
    for (int v = 0; v < s->V; v++)
        truth.w[v] = exp((truth.z[v] - truth.z[truth.order[0]]) / r->temperature);
    truth.n = r->top_k > 0 && r->top_k < s->V ? r->top_k : s->V;
    if (r->top_p < 1) {
        double mass = r->top_p * mass_of_best(truth.n), kept = 0;
        int    n = 0;
        while (kept < mass)
            kept += truth.w[truth.order[n++]];
        truth.n = n;
    }
    while (truth.w[truth.order[truth.n - 1]] < r->min_p)
        truth.n--;
    truth.sum = mass_of_best(truth.n);
    memset(truth.in, 0, sizeof truth.in);
    for (int k = 0; k < truth.n; k++)
        truth.in[truth.order[k]] = true;
}

static int truth_at(int V, double u) {
    double upto = 0;
    int    last = -1;
    for (int v = 0; v < V; v++) {
        if (!truth.in[v]) continue;
        upto += truth.w[v];
        last = v;
        if (upto > u * truth.sum) break;
    }
    return last;
}

static void same_draws(const draws *s, const int *want, const char *what) {
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        op_run *r = op_run_once(build, s, be, 1, OP_NO_TAPE);
        for (int i = 0; i < s->n; i++)
            if (op_value(r, 0, i) != want[i])
                fail_msg("%s on %s: draw %d of %d tokens, u %.17g: %d, not %d", what, be->name, i, s->V, s->row[i].u,
                         (int)op_value(r, 0, i), want[i]);
        op_run_free(r);
    }
}

// u on either side of the boundaries between tokens, no further away than a draw may be wrong.
static void boundaries_between_tokens(void **state) {
    (void)state;
    static const int sizes[] = {5, 97, 1000, 16411};
    int              want[MOST_ROWS], told = 0;
    for (int c = 0; c < 4; c++)
        for (int k = 0; k < (c == 3 ? 1 : 10); k++) {
            fill(&d, 1, sizes[c], c == 1 && k % 2 ? 6 : 0, 3);
            d.n = 1;
            dists_of(&d, 31 * c + k);
            if (d.row[0].temperature == 0) d.row[0].temperature = 1.5;
            find_dist(&d, 0);
            int    n = 0, stride = truth.n / 20 + 1, seen = 0;
            double upto = 0;
            for (int v = 0; v < d.V && n + 2 <= MOST_ROWS; v++) {
                if (!truth.in[v]) continue;
                double share = truth.w[v] / truth.sum;
                upto += truth.w[v];
                if (++seen % stride || share <= 4 * PL_DRAW_SHARE) continue;
                for (int side = 0; side < 2; side++) {
                    double u = upto / truth.sum + (side ? 1 : -1) * 1.01 * PL_DRAW_SHARE;
                    if (u >= 1) continue;
                    d.row[n] = d.row[0];
                    d.row[n].u = u;
                    want[n++] = truth_at(d.V, u);
                }
            }
            d.n = n;
            if (n) same_draws(&d, want, "a boundary between tokens");
            told += n;
        }
    assert_true(told > 300);
}

// top-p on either side of what the best tokens hold: the last one of them is in, or not.
static void boundaries_of_top_p(void **state) {
    (void)state;
    static const int sizes[] = {5, 97, 1000, 16411}, top_k[] = {0, 48, 0, 1200}; // ref sorts by selection
    int              want[MOST_ROWS], told = 0;
    for (int c = 0; c < 4; c++) {
        const pl_draw_row all = {.temperature = 1, .top_p = 1, .penalty = 1, .parent = -1, .top_k = top_k[c]};
        pl_draw_row       row[MOST_ROWS];
        int               rows = 0;
        fill(&d, 1, sizes[c], 0, 2);
        for (int n = 1; n < d.V && rows + 2 <= MOST_ROWS && n < 1000; n += 1 + n / 2)
            for (int side = 0; side < 2; side++) {
                d.row[0] = all;
                find_dist(&d, 0);
                double p = mass_of_best(n) / truth.sum + (side ? 1 : -1) * 1.01 * PL_DRAW_SHARE;
                double share = truth.w[truth.order[n - 1]] / truth.sum, next = truth.w[truth.order[n]] / truth.sum;
                if (n >= truth.n || !(p < 1) || share <= 4 * PL_DRAW_SHARE || next <= 4 * PL_DRAW_SHARE) continue;
                d.row[0].top_p = p;
                find_dist(&d, 0);
                assert_int_equal(truth.n, n + side);
                // A u within the share of the last token: another's, if it is not in.
                int    last = truth.order[n];
                double before = 0;
                for (int v = 0; v < last; v++)
                    before += truth.in[v] ? truth.w[v] : 0;
                d.row[0].u = (before + truth.w[last] / 2) / (truth.sum + (side ? 0 : truth.w[last]));
                if (d.row[0].u >= 1) continue;
                want[rows] = truth_at(d.V, d.row[0].u);
                assert_true((want[rows] == last) == (side == 1));
                row[rows++] = d.row[0];
            }
        memcpy(d.row, row, (size_t)rows * sizeof *row);
        d.n = rows;
        same_draws(&d, want, "a boundary of top-p");
        told += rows;
    }
    assert_true(told > 40);
}

// ---- known ones -----------------------------------------------------------------------------------------------------

// One distribution, `n` uniforms, what they give.
static void known(const float *z, int V, pl_draw_row r, int n, const double *u, const int *want, const char *what) {
    memset(&d, 0, sizeof d);
    d.rows = 1;
    d.V = V;
    d.n = n;
    memcpy(d.z, z, (size_t)V * sizeof *z);
    if (r.penalty == 0) r.penalty = 1;
    if (r.top_p == 0) r.top_p = 1;
    for (int i = 0; i < n; i++) {
        d.row[i] = r;
        d.row[i].parent = -1;
        d.row[i].u = u[i];
    }
    same_draws(&d, want, what);
}

#define KNOWN(what, z, dist, u, ...)                                                                                   \
    known((const float[])z, (int)(sizeof((const float[])z) / sizeof(float)), (pl_draw_row)dist,                        \
          (int)(sizeof((const double[])u) / sizeof(double)), (const double[])u, (const int[])__VA_ARGS__, what)
#define OF(...)                                                                                                        \
    { __VA_ARGS__ }

static void ties_and_edges(void **state) {
    (void)state;
    double most = 1 - 0x1p-53;
    // Equal logits: sums are exact on every backend, and so is what lies on a boundary.
    KNOWN("equal", OF(3, 3, 3, 3), OF(.temperature = 0.7), OF(0, 0.25, 0.49, 0.5, 0.75, most), OF(0, 1, 1, 2, 3, 3));
    KNOWN("top-p of equal", OF(1, 1, 1, 1, 1, 1, 1, 1), OF(.temperature = 1, .top_p = 0.5),
          OF(0, 0.25, 0.5, 0.75, most), OF(0, 1, 2, 3, 3));
    KNOWN("a little more", OF(1, 1, 1, 1, 1, 1, 1, 1), OF(.temperature = 1, .top_p = 0.5 + 0x1p-50),
          OF(most, 0.79, 0.8), OF(4, 3, 4));
    KNOWN("top-k of equal", OF(5, 7, 7, 7, 7), OF(.temperature = 1, .top_k = 3), OF(0, 0.34, 0.67, most),
          OF(1, 2, 3, 3));
    KNOWN("top-p after top-k", OF(2, 1, 1, 1, 0), OF(.temperature = 1, .top_k = 3, .top_p = 0.999), OF(0, most, 0.7),
          OF(0, 2, 1));
    KNOWN("top-k 1", OF(1, 4, 4, 2), OF(.temperature = 30, .top_k = 1), OF(0, 0.5, most), OF(1, 1, 1));
    KNOWN("top-k of all", OF(1, 1, 1), OF(.temperature = 1, .top_k = 3), OF(0, 0.5, most), OF(0, 1, 2));
    KNOWN("tiny top-p", OF(1, 4, 4, 2), OF(.temperature = 30, .top_p = 1e-300), OF(0, most), OF(1, 1));
    KNOWN("min-p 1", OF(1, 4, 4, 2), OF(.temperature = 1, .min_p = 1), OF(0, 0.5, most), OF(1, 2, 2));
    KNOWN("min-p", OF(0, -1, 0, -3), OF(.temperature = 1, .min_p = 0.3), OF(0.42, 0.43, most), OF(0, 1, 2));
    KNOWN("zeros", OF(-1, -0.0f, 0, -2), OF(.temperature = 0), OF(0, most), OF(1, 1));
    KNOWN("greedy", OF(1, 3, 2, 3), OF(.temperature = 0, .top_k = 2, .top_p = 0.1), OF(0, most), OF(1, 1));
    KNOWN("cold", OF(1, 3, 2, 3), OF(.temperature = 1e-300), OF(0, most), OF(1, 3));
    KNOWN("far", OF(-1000, 0, -3.4e38f, -INFINITY), OF(.temperature = 1), OF(0, most), OF(1, 1));
    KNOWN("masked", OF(-INFINITY, 2, -INFINITY, 2), OF(.temperature = 1), OF(0, 0.49, 0.5, most), OF(1, 1, 3, 3));
    KNOWN("masked, greedy", OF(-INFINITY, 2, 2), OF(.temperature = 0), OF(0), OF(1));
    KNOWN("all masked", OF(-INFINITY, -INFINITY), OF(.temperature = 1), OF(0, most), OF(-1, -1));
    KNOWN("infinite", OF(1, INFINITY, 2), OF(.temperature = 0), OF(0.5), OF(-1));
    KNOWN("NaN", OF(1, 2, NAN), OF(.temperature = 1), OF(0.5), OF(-1));
    KNOWN("negative NaN", OF(1, -NAN, 2), OF(.temperature = 1, .top_k = 1), OF(0.5), OF(-1));
    KNOWN("NaN, greedy", OF(NAN, 2, 5), OF(.temperature = 0), OF(0.5), OF(-1));
}

// Penalties: above 0 divided, below multiplied, once for a token that occurred twice.
static void penalties(void **state) {
    (void)state;
    memset(&d, 0, sizeof d);
    d.rows = 1;
    d.V = 70;
    d.n = 5;
    for (int v = 0; v < d.V; v++)
        d.z[v] = -50;
    d.z[3] = 4;
    d.z[40] = 3;
    d.z[69] = 2.5f;
    pl_said_add(d.said + pl_said_words(70), 3); // text 1
    for (int i = 0; i < d.n; i++)
        d.row[i] = (pl_draw_row){.penalty = 1.5f, .top_p = 1, .parent = -1, .text = 1};
    d.row[0].text = 0;   // nothing occurred
    d.row[2].parent = 1; // 40 did, on the way
    d.row[2].token = 40; // 4 / 1.5 = 2.67 wins again
    d.row[3].parent = 2; // 3 did twice
    d.row[3].token = 3;
    d.row[4].parent = 3;
    d.row[4].token = 69;
    d.row[4].penalty = 2; // 2, 1.5, 1.25
    same_draws(&d, (const int[]){3, 40, 3, 3, 3}, "penalties");
    for (int v = 0; v < d.V; v++)
        d.z[v] = -8;
    d.z[3] = -4; // -6 then
    d.z[40] = -5;
    same_draws(&d, (const int[]){3, 40, 3, 3, 0}, "penalties of negative logits"); // -5 * 1.5 = -7.5; then -8 and -10
}

// A row's token among others is the one that it is alone, whatever stands beside it and wherever it stands.
static void rows_alone(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        fill(&d, 9, 611, 0, 3);
        d.n = 64;
        dists_of(&d, 5);
        op_run *all = op_run_once(build, &d, be, 2, OP_NO_TAPE);
        for (int i = 0; i < d.n; i++) {
            one = d;
            one.rows = 1;
            memcpy(one.z, d.z + d.row[i].at * d.V, (size_t)d.V * sizeof *d.z);
            int n = 0, chain[MOST_ROWS]; // the row and those before it
            for (int at = i; at >= 0; at = d.row[at].parent)
                chain[n++] = at;
            for (int k = 0; k < n; k++) {
                one.row[k] = d.row[chain[n - 1 - k]];
                one.row[k].at = 0;
                one.row[k].parent = k - 1;
            }
            one.n = n;
            op_run *alone = op_run_once(build, &one, be, 1, OP_NO_TAPE);
            assert_true(op_value(alone, 0, n - 1) == op_value(all, 0, i));
            op_run_free(alone);
        }
        op_run_free(all);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),        cmocka_unit_test(boundaries_between_tokens),
        cmocka_unit_test(boundaries_of_top_p), cmocka_unit_test(ties_and_edges),
        cmocka_unit_test(penalties),           cmocka_unit_test(rows_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
