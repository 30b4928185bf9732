// SpecVocab's head against PyTorch: which rows are candidates, the distribution over them, and the best of it.
#include "infer/head/head.h"
#include "kernels/base/arena.h"
#include "kernels/op/linear.h"
#include "tests/golden/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 7, WIDTH = 24, RANK = 6, V = 97, CANDIDATES = 13, BEST = 5 };

typedef struct run {
    pl_head      h;
    pl_head_rows rows;
    pl_tensor    logits;
    int32_t      id[N * BEST];
    float        value[N * BEST], lse[N], x[N * WIDTH];
} run;

static void step(pl_ctx *ctx, void *arg) {
    run *r = arg;
    r->logits = pl_head_logits(ctx, &r->h, &r->rows);
    pl_head_topk(ctx, &r->h, &r->rows, BEST, r->id, r->value, r->lse);
}

// A matrix as inference holds it; the numbers are exact in bf16, so both types give the same.
static pl_tensor matrix(const pl_backend *be, const char *name, int64_t n, int64_t k, pl_dtype t, pl_layout layout) {
    static float v[V * WIDTH];
    size_t       bytes = layout == PL_PANELS ? pl_panels_bytes(n, k, t) : (size_t)(n * k) * pl_dtype_size(t);
    pl_tensor    w = pl_tensor_2d(golden_room(be, bytes), t, n, k);
    golden_coarse(v, n * k, 9, name);
    w.layout = layout;
    if (layout == PL_PANELS)
        pl_panels_pack(w.data, t, 0, n, n, k, v);
    else
        pl_from_f32(w.data, t, v, (size_t)(n * k));
    return w;
}

static void check(golden *g, const pl_backend *be, pl_dtype t) {
    run           *r = golden_room(be, sizeof *r);
    const int32_t *candidate = golden_ints(g, N * CANDIDATES, "candidates");
    float          dist[N * CANDIDATES];
    pl_err         err = {0};
    pl_ctx         ctx;
    pl_hf_head     spec = pl_hf_head_make("specvocab", RANK);
    pl_hf_head_set(&spec, "candidates", CANDIDATES);
    assert_int_equal(pl_head_init(&r->h, &spec, WIDTH, V, &err), PL_OK);
    r->h.out = matrix(be, "specvocab/up", V, RANK, t, PL_PANELS);
    r->h.down = matrix(be, "specvocab/down", RANK, WIDTH, t, PL_PANELS);
    r->h.exact = matrix(be, "specvocab/exact", V, WIDTH, t, PL_ROWMAJOR);
    golden_coarse(r->x, N * WIDTH, 9, "specvocab/x");
    r->rows.x = pl_tensor_2d(r->x, PL_F32, N, WIDTH);
    assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&ctx, step, r, &err), PL_OK);
    pl_ctx_begin(&ctx);
    step(&ctx, r);
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
    for (int i = 0; i < N; i++) {
        const float *z = pl_f32(&r->logits) + i * V;
        int          n = 0;
        double       sum = 0;
        for (int v = 0; v < V; v++) {
            bool listed = n < CANDIDATES && candidate[i * CANDIDATES + n] == v;
            n += listed;
            assert_true(listed == (z[v] > -INFINITY));
            sum += exp((double)z[v]);
        }
        assert_int_equal(n, CANDIDATES);
        for (int k = 0; k < CANDIDATES; k++)
            dist[i * CANDIDATES + k] = (float)((double)z[candidate[i * CANDIDATES + k]] - log(sum));
        // The best are the logits' best, and their sum is over the candidates.
        for (int k = 0; k < BEST; k++) {
            int32_t v = r->id[i * BEST + k];
            int     above = 0;
            for (int o = 0; o < V; o++)
                above += z[o] > z[v];
            assert_int_equal(above, k);
            assert_true(r->value[i * BEST + k] == z[v]);
        }
        assert_true(fabs((double)r->lse[i] - log(sum)) < 1e-6);
    }
    golden_expect(g, be, pl_tensor_2d(dist, PL_F32, N, CANDIDATES), "law");
    pl_ctx_fini(&ctx);
    pl_head_fini(&r->h);
    golden_release();
}

static void candidates_and_dist(void **state) {
    (void)state;
    golden            g;
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    golden_open(&g, "specvocab");
    for (int i = 1; i < n; i++) // models for inference are fp32
        for (int t = 0; t < 2; t++) {
            golden_begin(&g);
            check(&g, be[i], t ? PL_BF16 : PL_F32);
            golden_all_asked(&g, "");
        }
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_and_dist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
