// Sums and draws over a vocabulary beside the plain loops that they stand for.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/sample/coin.h"
#include "infer/sample/distribution.h"
#include "infer/verify/verify.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/device.h"
#include <math.h>
#include <string.h>

enum { MOST = 3000 };

static double w[MOST], q[MOST];

// Weights of which some, most or all but one are zero.
static void fill(double *x, int64_t n, pl_rng r, int kind) {
    for (int64_t i = 0; i < n; i++) {
        double u = pl_rng_uniform(r, (uint64_t)(2 * i));
        x[i] = kind == 0 ? u : kind == 1 ? (u < 0.98 ? 0 : u) : exp(-20 * u);
    }
    if (kind == 1) x[pl_rng_below(r, (uint64_t)(2 * n), (uint64_t)n)] = 0.5;
}

static void draws(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 3, 8, 255, 256, 257, 700, MOST};
    for (int c = 0; c < 8; c++)
        for (int kind = 0; kind < 3; kind++) {
            int64_t n = sizes[c], last = -1, first = -1;
            double  sum = 0;
            fill(w, n, pl_rng_make(3, PL_STREAM_TEST, (uint64_t)(c * 3 + kind)), kind);
            for (int64_t i = 0; i < n; i++) {
                sum += w[i];
                if (w[i] > 0) last = i;
                if (w[i] > 0 && first < 0) first = i;
            }
            assert_true(fabs(pl_sum(w, n) - sum) <= 1e-13 * sum);
            assert_int_equal(pl_draw_at(w, n, 0), first);
            assert_int_equal(pl_draw_at(w, n, 1), last); // past what a uniform can be: rounding's way out
            // In the middle of a token's share it is that token; the shares of all of them are tried.
            double before = 0;
            for (int64_t i = 0; i < n; before += w[i++])
                if (w[i] > 1e-9 * sum) assert_int_equal(pl_draw_at(w, n, (before + w[i] / 2) / sum), i);
        }
}

static void residuals(void **state) {
    (void)state;
    for (int64_t n = 1; n < 40; n++) {
        double want = 0, sum = 0, p[40];
        fill(w, n, pl_rng_make(4, PL_STREAM_TEST, (uint64_t)n), 0);
        fill(q, n, pl_rng_make(5, PL_STREAM_TEST, (uint64_t)n), 0);
        for (int64_t i = 0; i < n; i++)
            want += fmax(0.7 * w[i] - q[i], 0);
        assert_true(fabs(pl_surplus(w, q, n, 0.7) - want) <= 1e-13);
        memcpy(p, w, (size_t)n * sizeof *p);
        bool some = pl_residual(p, q, n);
        assert_int_equal(some, pl_surplus(w, q, n, 1) > 0);
        for (int64_t i = 0; i < n; i++) {
            assert_true(some ? (p[i] > 0) == (w[i] > q[i]) : p[i] == w[i]);
            sum += p[i];
        }
        if (some) assert_true(fabs(sum - 1) <= 1e-13);
    }
}

// The distribution without filters is the softmax; with temperature 0 the lowest of the best.
static void dists(void **state) {
    (void)state;
    enum { V = 1037 };
    static float         x[V];
    static double        p[V];
    pl_distribution_work k;
    pl_rng               r = pl_rng_make(6, PL_STREAM_TEST, 0);
    assert_int_equal(pl_distribution_work_init(&k, V, NULL), PL_OK);
    for (int i = 0; i < V; i++)
        x[i] = (float)(3 * pl_rng_normal(r, (uint64_t)i));
    x[800] = x[30] = 20;
    for (int t = 0; t < 3; t++) {
        pl_sampling s = {.temperature = t == 0 ? 0 : t == 1 ? 1 : 0.6, .top_p = 1};
        double      sum = 0, total = 0;
        assert_true(pl_distribution(p, x, V, &s, &(pl_history){0}, &k));
        for (int i = 0; i < V; i++) {
            sum += exp(((double)x[i] - 20) / (t == 0 ? 1 : s.temperature));
            total += p[i];
        }
        assert_true(fabs(total - 1) <= 1e-12);
        for (int i = 0; i < V; i++) {
            double want = exp(((double)x[i] - 20) / (t == 0 ? 1 : s.temperature)) / sum;
            if (t == 0)
                assert_true(p[i] == (i == 30));
            else
                assert_true(fabs(p[i] - want) <= 1e-5 * want);
        }
    }
    pl_distribution_work_fini(&k);
}

// The op draw, which devices have, gives the token that a host finds from the whole distribution: under every
// processor, with tokens that occurred in the text and on the way through a tree.
static void op_draws_from_the_dist(void **state) {
    (void)state;
    enum { V = 203, N = 24, ROUNDS = 12, WORDS = (V + 31) / 32 };
    static const pl_backend *(*const backends[])(void) = {pl_backend_ref, pl_backend_cuda_emulated};
    static double        p[V];
    pl_distribution_work k;
    int                  checked = 0, others = 0;
    assert_int_equal(pl_distribution_work_init(&k, V, NULL), PL_OK);
    for (int b = 0; b < 2; b++) {
        const pl_backend *be = backends[b]();
        float            *x = pl_memory_create(be->memory, PL_SHARED, N * V * sizeof *x, NULL);
        pl_draw_row      *row = pl_memory_create(be->memory, PL_SHARED, N * sizeof *row, NULL);
        uint32_t         *said = pl_memory_create(be->memory, PL_SHARED, WORDS * sizeof *said, NULL);
        int32_t          *id = pl_memory_create(be->memory, PL_SHARED, N * sizeof *id, NULL), path[N];
        pl_ctx            ctx;
        assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
        assert_int_equal(pl_arena_reserve(&ctx.scratch, 1 << 16, NULL), PL_OK);
        for (int c = 0; c < ROUNDS; c++) {
            pl_rng      r = pl_rng_make(7, PL_STREAM_TEST, (uint64_t)c);
            pl_sampling s = {.temperature = c % 5 == 4 ? 0 : 0.4 + 0.3 * c,
                             .top_k = c % 3 == 1 ? 30 : 0,
                             .top_p = c % 2 ? 0.9 : 1,
                             .min_p = c % 4 == 3 ? 0.03 : 0,
                             .repetition_penalty = c % 4 == 0   ? 1
                                                   : c % 4 == 1 ? 0.7
                                                                : 1.4};
            for (int i = 0; i < N * V; i++)
                x[i] = 3 * pl_rng_normal(r, (uint64_t)i);
            for (int i = 0; i < V / 4; i++)
                pl_said_add(said, (int32_t)pl_rng_below(r, (uint64_t)(N * V + i), V));
            for (int i = 0; i < N; i++)
                row[i] = (pl_draw_row){.u = pl_rng_uniform(r, (uint64_t)(2 * N * V + i)),
                                       .temperature = s.temperature,
                                       .top_p = s.top_p,
                                       .min_p = s.min_p,
                                       .penalty = (float)s.repetition_penalty,
                                       .top_k = s.top_k,
                                       .at = i,
                                       .token = (7 * i + c) % V,
                                       .parent = (i + 1) / 2 - 1};
            pl_draw(&ctx,
                    &(pl_draw_args){
                        .x = pl_tensor_2d(x, PL_F32, N, V), .row = row, .n = N, .said = said, .texts = 1, .id = id});
            assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
            for (int i = 0; i < N; i++) {
                pl_history h = {.said = said, .path = path};
                for (int at = i; row[at].parent >= 0; at = row[at].parent)
                    path[h.n_path++] = row[at].token;
                assert_true(pl_distribution(p, x + i * V, V, &s, &h, &k));
                int64_t want = pl_draw_at(p, V, row[i].u);
                if (id[i] != want)
                    fail_msg("%s, distribution %d, row %d: %d, not %d", be->name, c, i, id[i], (int)want);
                checked++;
                h = (pl_history){0};
                assert_true(pl_distribution(p, x + i * V, V, &s, &h, &k));
                others += pl_draw_at(p, V, row[i].u) != want; // what came before counts
            }
            memset(said, 0, WORDS * sizeof *said);
        }
        pl_ctx_fini(&ctx);
        pl_memory_destroy(be->memory, PL_SHARED, x, N * V * sizeof *x);
        pl_memory_destroy(be->memory, PL_SHARED, row, N * sizeof *row);
        pl_memory_destroy(be->memory, PL_SHARED, said, WORDS * sizeof *said);
        pl_memory_destroy(be->memory, PL_SHARED, id, N * sizeof *id);
    }
    assert_true(checked == 2 * N * ROUNDS && others > 50);
    pl_distribution_work_fini(&k);
}

// ---- kernels/op/draw.h and infer/sample/distribution.h say the same distribution ----

enum { PATH = 3, WIDEST = 4099, PROBES = 256, ROWS = PATH + PROBES };

typedef struct sampled {
    const char *what;
    pl_sampling s;
    bool        all; // leaves the distribution as temperature 1 alone has it
} sampled;

static const sampled samplings[] = {
    {"as it is", {.temperature = 1, .top_p = 1}, true},
    {"greedy", {.temperature = 0, .top_p = 1}, false},
    {"greedy, with filters", {.temperature = 0, .top_k = 3, .top_p = 0.2, .min_p = 0.5}, false},
    {"the coldest", {.temperature = PL_COLDEST, .top_p = 1}, false},
    {"cold", {.temperature = 0.4, .top_p = 1}, false},
    {"the hottest", {.temperature = 1000, .top_p = 1}, false},
    {"top-k 1", {.temperature = 1, .top_k = 1, .top_p = 1}, false},
    {"top-k 2", {.temperature = 1, .top_k = 2, .top_p = 1}, false},
    {"top-k 30", {.temperature = 1.3, .top_k = 30, .top_p = 1}, false},
    {"top-k of more than all", {.temperature = 1, .top_k = WIDEST + 1, .top_p = 1}, true},
    {"top-p 0.5", {.temperature = 1, .top_p = 0.5}, false},
    {"top-p 0.95", {.temperature = 0.8, .top_p = 0.95}, false},
    {"the least top-p", {.temperature = 1, .top_p = 1e-300}, false},
    {"min-p 1", {.temperature = 1, .top_p = 1, .min_p = 1}, false},
    {"min-p 0.05", {.temperature = 1, .top_p = 1, .min_p = 0.05}, false},
    {"penalty 1", {.temperature = 1, .top_p = 1, .repetition_penalty = 1}, true},
    {"penalty 1.4", {.temperature = 1, .top_p = 1, .repetition_penalty = 1.4}, false},
    {"penalty 0.7", {.temperature = 1, .top_p = 1, .repetition_penalty = 0.7}, false},
    {"penalty 100", {.temperature = 1, .top_p = 1, .repetition_penalty = 100}, false},
    {"top-p of top-k", {.temperature = 1, .top_k = 30, .top_p = 0.8}, false},
    {"min-p of top-k", {.temperature = 1, .top_k = 30, .top_p = 1, .min_p = 0.2}, false},
    {"min-p of top-p", {.temperature = 1.5, .top_p = 0.9, .min_p = 0.1}, false},
    {"all of them", {.temperature = 0.7, .top_k = 40, .top_p = 0.9, .min_p = 0.02, .repetition_penalty = 1.3}, false}};

// One row of logits, its text and drafted tokens, and a device's memory for draws from it.
typedef struct sampler {
    const pl_backend    *be;
    pl_ctx               ctx;
    pl_distribution_work work;
    int64_t              v;
    float               *x;    // [v]
    pl_draw_row         *row;  // [ROWS]
    uint32_t            *said; // [pl_said_words(WIDEST)]
    int32_t             *id;   // [ROWS]
    pl_history           h;
} sampler;

static double plain[WIDEST], host[WIDEST];

static void *shared(const sampler *s, size_t n) {
    void *p = pl_memory_create(s->be->memory, PL_SHARED, n, NULL);
    assert_non_null(p);
    return p;
}

static void sampler_open(sampler *s, const pl_backend *be) {
    *s = (sampler){.be = be};
    s->x = shared(s, WIDEST * sizeof *s->x);
    s->row = shared(s, ROWS * sizeof *s->row);
    s->said = shared(s, (size_t)pl_said_words(WIDEST) * sizeof *s->said);
    s->id = shared(s, ROWS * sizeof *s->id);
    assert_int_equal(pl_distribution_work_init(&s->work, WIDEST, NULL), PL_OK);
    assert_int_equal(pl_ctx_init(&s->ctx, be, NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&s->ctx.scratch, 1 << 20, NULL), PL_OK);
}

static void sampler_close(sampler *s) {
    pl_ctx_fini(&s->ctx);
    pl_distribution_work_fini(&s->work);
    pl_memory_destroy(s->be->memory, PL_SHARED, s->x, WIDEST * sizeof *s->x);
    pl_memory_destroy(s->be->memory, PL_SHARED, s->row, ROWS * sizeof *s->row);
    pl_memory_destroy(s->be->memory, PL_SHARED, s->said, (size_t)pl_said_words(WIDEST) * sizeof *s->said);
    pl_memory_destroy(s->be->memory, PL_SHARED, s->id, ROWS * sizeof *s->id);
}

// levels: 0: continuous logits of both signs; else whole numbers below it, so that filters cut among equals. A quarter
// of the tokens occurred in the text; of the drafted ones the first did, too, and the others are one that did not.
static void logits_of(sampler *s, int64_t v, int levels, int32_t path[PATH]) {
    pl_rng r = pl_rng_make(8, PL_STREAM_TEST, (uint64_t)(v + levels));
    s->v = v;
    for (int64_t i = 0; i < v; i++)
        s->x[i] =
            levels ? (float)pl_rng_below(r, (uint64_t)i, (uint64_t)levels) - 1 : 3 * pl_rng_normal(r, (uint64_t)i);
    memset(s->said, 0, (size_t)pl_said_words(v) * sizeof *s->said);
    for (int64_t i = 0; i < v / 4; i++)
        pl_said_add(s->said, (int32_t)pl_rng_below(r, (uint64_t)(WIDEST + i), (uint64_t)v));
    for (int32_t t = 0; t < v; t++)
        path[pl_said_has(s->said, t) ? 0 : 1] = t;
    path[2] = path[1];
    s->h = (pl_history){.said = s->said, .path = path, .n_path = PATH};
}

// Where the device's draws go over from one token to the next is where the host's distribution does: draws at u on
// either side of each boundary between two tokens' shares, no further from it than a draw may be wrong on either side.
// Returns how many boundaries were looked at.
static int probe(sampler *s, const pl_sampling *l, const char *what) {
    const double off = 2.02 * PL_DRAW_SHARE;
    double       u[PROBES], upto = 0;
    int          n = 0, left = 0, at = 0;
    assert_true(pl_distribution(host, s->x, s->v, l, &s->h, &s->work));
    for (int64_t i = 0; i < s->v; i++)
        left += host[i] > 4 * off;
    for (int64_t i = 0; i < s->v; i++) {
        double before = upto;
        upto += host[i];
        if (host[i] <= 4 * off || at++ % (left / 120 + 1)) continue;
        if (n + 2 > PROBES) break;
        u[n++] = before + off; // its own share begins and ends
        u[n++] = fmin(upto - off, 1 - 0x1p-53);
    }
    for (int i = 0; i < PATH + n; i++) { // a root, the path, and draws that have all of it before them
        int before = i < PATH ? i - 1 : PATH - 1;
        s->row[i] = (pl_draw_row){.u = i < PATH ? 0.5 : u[i - PATH],
                                  .temperature = l->temperature,
                                  .top_p = l->top_p,
                                  .min_p = l->min_p,
                                  .penalty = pl_sampling_has_history(l) ? (float)l->repetition_penalty : 1,
                                  .top_k = l->top_k,
                                  .token = before < 0 ? 0 : s->h.path[before],
                                  .parent = before};
    }
    pl_draw(&s->ctx, &(pl_draw_args){.x = pl_tensor_2d(s->x, PL_F32, 1, s->v),
                                     .row = s->row,
                                     .n = PATH + n,
                                     .said = s->said,
                                     .texts = 1,
                                     .id = s->id});
    assert_int_equal(pl_ctx_sync(&s->ctx, NULL), PL_OK);
    for (int i = 0; i < n; i++) {
        int64_t want = pl_draw_at(host, s->v, u[i]);
        if (s->id[PATH + i] != want)
            fail_msg("%s over %d tokens on %s: u %.17g draws %d, the host's distribution %d", what, (int)s->v,
                     s->be->name, u[i], s->id[PATH + i], (int)want);
    }
    return n;
}

// A filter's cut on either side of a token: top-p where the best tokens hold just less and just more than it, min-p
// where the token's weight does.
static int probe_cuts(sampler *s) {
    const double off = 2.02 * PL_DRAW_SHARE;
    double       order[WIDEST], upto = 0;
    int          n = 0, probes = 0;
    pl_sampling  l = {.temperature = 1, .top_p = 1};
    assert_true(pl_distribution(plain, s->x, s->v, &l, &s->h, &s->work));
    memcpy(order, plain, (size_t)s->v * sizeof *order);
    for (int64_t i = 1; i < s->v; i++) // best first
        for (int64_t k = i; k > 0 && order[k] > order[k - 1]; k--) {
            double swap = order[k];
            order[k] = order[k - 1];
            order[k - 1] = swap;
        }
    for (int64_t i = 0; i + 1 < s->v && n < 12; i++) {
        upto += order[i];
        if (order[i] <= 8 * off || order[i + 1] <= 8 * off || upto + off >= 1) continue;
        n++;
        for (int side = -1; side <= 1; side += 2) {
            probes += probe(s, &(pl_sampling){.temperature = 1, .top_p = upto + side * off}, "a cut of top-p");
            double min_p = order[i] / order[0] * (1 + side * 1e-5);
            if (min_p <= 1)
                probes += probe(s, &(pl_sampling){.temperature = 1, .top_p = 1, .min_p = min_p}, "a cut of min-p");
        }
    }
    return probes;
}

// Under every processor, alone and together, with tokens that occurred: the ref of the op, the emulated device and,
// where PACELINE_TEST_GPU names one, the GPU.
static void device_and_host_sample_the_same_distribution(void **state) {
    (void)state;
    const pl_backend    *be[3] = {pl_backend_ref(), pl_backend_cuda_emulated(), test_gpu()};
    static const int64_t sizes[] = {5, 97, WIDEST};
    for (int b = 0; b < 3 && be[b]; b++) {
        sampler s;
        int     probes = 0, cuts = 0;
        sampler_open(&s, be[b]);
        for (int c = 0; c < 3; c++)
            for (int levels = 0; levels <= 9; levels += 9) {
                int32_t path[PATH];
                logits_of(&s, sizes[c], levels, path);
                for (size_t k = 0; k < sizeof samplings / sizeof *samplings; k++) {
                    const sampled *a = &samplings[k];
                    probes += probe(&s, &a->s, a->what);
                    pl_sampling alone = {.temperature = 1, .top_p = 1};
                    assert_true(pl_distribution(plain, s.x, s.v, &alone, &s.h, &s.work));
                    bool same = true;
                    for (int64_t i = 0; i < s.v; i++)
                        same &= fabs(host[i] - plain[i]) <= 1e-9;
                    if (a->all ? !same : same && s.v > 5)
                        fail_msg("%s over %d tokens: no such case", a->what, (int)s.v);
                }
                if (!levels) cuts += probe_cuts(&s);
            }
        assert_true(probes > 4000 && cuts > 1000);
        sampler_close(&s);
    }
}

// What is taken gives a distribution: the coldest and the hottest.
static void ranges(void **state) {
    (void)state;
    static const double  given[] = {0, PL_COLDEST, 1000}, refused[] = {-1, PL_COLDEST / 2, 3e-39, 1001, NAN};
    static const float   x[] = {-1e4f, 3, 20, -INFINITY, 20};
    pl_distribution_work work;
    pl_err               err = {0};
    assert_int_equal(pl_distribution_work_init(&work, 5, &err), PL_OK);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        pl_sampling s = {.temperature = given[i], .top_p = 1};
        double      p[5];
        assert_int_equal(pl_sampling_check(&s, &err), PL_OK);
        assert_true(pl_distribution(p, x, 5, &s, &(pl_history){0}, &work));
        assert_true(fabs(p[0] + p[1] + p[2] + p[3] + p[4] - 1) < 1e-12 && p[2] >= p[4] && p[3] == 0);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        pl_sampling s = {.temperature = refused[i], .top_p = 1};
        assert_int_equal(pl_sampling_check(&s, &err), PL_E_USAGE);
        assert_non_null(strstr(err.msg, "--temperature: must be 0 (greedy) or lie in 1e-06..1000"));
    }
    pl_distribution_work_fini(&work);
}

// Bias, repetition and counts by hand, in this order, of an answer and of drafted tokens on a path.
static void processors_by_hand(void **state) {
    (void)state;
    enum { V = 6 };
    static const float         x[V] = {2, 1.5F, -1, 3, 0.5F, 2.5F};
    static const int32_t       answer[] = {3, 1, 3, 3, 2}, path[] = {5, 1};
    static const pl_logit_bias bias[] = {{0, 1}, {2, 2}, {4, -100}, {0, 0.5F}};
    const uint32_t             said[1] = {1u << 0 | 1u << 1 | 1u << 2 | 1u << 3}; // 0: of the prompt alone
    const pl_history           h = {.said = said, .answer = answer, .n_answer = 5, .path = path, .n_path = 2};
    static const struct {
        pl_sampling s;
        double      z[V];
        bool        history, on_host;
    } cases[] = {
        {{.presence_penalty = 0.5}, {2, 1, -1.5, 2.5, 0.5, 2}, true, true},
        {{.frequency_penalty = 0.25}, {2, 1, -1.25, 2.25, 0.5, 2.25}, true, true},
        {{.presence_penalty = -2, .frequency_penalty = 2}, {2, -0.5, -1, -1, 0.5, 2.5}, true, true},
        {{.bias = bias, .n_bias = 4}, {3.5, 1.5, 1, 3, -99.5, 2.5}, false, true},
        {{.repetition_penalty = 2}, {1, 0.75, -2, 1.5, 0.5, 1.25}, true, false},
        {{.bias = bias, .n_bias = 4, .repetition_penalty = 2}, {1.75, 0.75, 0.5, 1.5, -99.5, 1.25}, true, true},
        {{.bias = bias, .n_bias = 4, .repetition_penalty = 2, .presence_penalty = 1, .frequency_penalty = 0.5},
         {1.75, -1.25, -1, -1, -99.5, -0.25},
         true,
         true}};
    pl_distribution_work k;
    double               p[V];
    assert_int_equal(pl_distribution_work_init(&k, V, NULL), PL_OK);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int t = 0; t < 2; t++) {
            pl_sampling s = cases[c].s;
            double      sum = 0;
            int         best = 0;
            s.temperature = t;
            s.top_p = 1;
            assert_int_equal(pl_sampling_check(&s, NULL), PL_OK);
            assert_int_equal(pl_sampling_has_history(&s), cases[c].history);
            assert_int_equal(pl_sampling_on_host(&s), cases[c].on_host);
            assert_true(pl_sampling_changes_logits(&s));
            assert_true(pl_distribution(p, x, V, &s, &h, &k));
            for (int i = 0; i < V; i++) {
                sum += exp(cases[c].z[i]);
                if (cases[c].z[i] > cases[c].z[best]) best = i;
            }
            for (int i = 0; i < V; i++)
                if (fabs(p[i] - (t ? exp(cases[c].z[i]) / sum : i == best)) > 1e-6)
                    fail_msg("case %zu at temperature %d: %g for token %d", c, t, p[i], i);
            pl_sampling bare = pl_sampling_bare(&s);
            assert_true(!pl_sampling_changes_logits(&bare) && bare.temperature == t && bare.top_p == 1);
        }
    pl_distribution_work_fini(&k);
}

static void processors_have_ranges(void **state) {
    (void)state;
    static const double        bad[] = {-2.1, 2.1, NAN};
    static const pl_logit_bias wrong[] = {{1, 100.5F}, {1, -101}, {1, NAN}};
    pl_err                     err = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pl_sampling_check(&(pl_sampling){.top_p = 1, .presence_penalty = bad[i]}, &err), PL_E_USAGE);
        assert_non_null(strstr(err.msg, "presence_penalty: must lie in -2..2"));
        assert_int_equal(pl_sampling_check(&(pl_sampling){.top_p = 1, .frequency_penalty = bad[i]}, &err), PL_E_USAGE);
        assert_non_null(strstr(err.msg, "frequency_penalty: must lie in -2..2"));
        assert_int_equal(pl_sampling_check(&(pl_sampling){.top_p = 1, .bias = &wrong[i], .n_bias = 1}, &err),
                         PL_E_USAGE);
        assert_non_null(strstr(err.msg, "must lie in -100..100"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(draws),
        cmocka_unit_test(residuals),
        cmocka_unit_test(dists),
        cmocka_unit_test(processors_by_hand),
        cmocka_unit_test(processors_have_ranges),
        cmocka_unit_test(op_draws_from_the_dist),
        cmocka_unit_test(device_and_host_sample_the_same_distribution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
