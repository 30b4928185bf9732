// Targets against transformers' models of the same family: hidden states, logits, gradients; packed and decoding as well.
#include "tests/golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/drafter/backbone.h"
#include "infer/model/kv.h"
#include "kernels/base/arena.h"
#include "kernels/op/linear.h"
#include "kernels/op/rope.h"
#include "train/task/lm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, ROWS = 32 };
static const int taps[LAYERS] = {1, 2, 3}; // the first layer's input is the embedding's rows

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

static const int32_t *window(golden *g, int i, int64_t *n) {
    golden_entry *e = golden_at(g, "window/%d", i);
    assert_int_equal(e->dtype, PL_I32);
    *n = e->count - 1; // the last id is a label only
    return e->data;
}

// ---- under training ----

typedef struct forward {
    const pl_llama *m;
    pl_lm          *lm; // its rows
    int64_t         rows;
    pl_llama_out    out;
    pl_tensor       logits, features;
} forward;

static void run_forward(pl_ctx *ctx, void *arg) {
    forward *f = arg;
    pl_view  view = {.pos = f->lm->pos, .cos = f->m->cos, .sin = f->m->sin, .lo = f->lm->lo};
    pl_llama_forward(ctx, f->m, f->lm->id, f->rows, &view, taps, LAYERS, &f->out);
    f->logits = pl_linear(ctx, f->out.hidden, f->m->head);
    f->features = pl_features(ctx, &f->out, LAYERS);
}

// The stored features: the taps side by side in their order, each value rounded to the nearest bf16.
static void check_features(golden *g, const pl_tensor *f, int64_t d, double grain) {
    for (int64_t row = 0; row < f->dim[0]; row++)
        for (int k = 0; k < LAYERS; k++) {
            const double *want = golden_reals(g, f->dim[0] * d, "hidden/%d", taps[k]);
            for (int64_t i = 0; i < d; i++) {
                int64_t at = row * f->dim[1] + k * d + i;
                double  w = want[row * d + i], x = f->dtype == PL_F64 ? pl_f64(f)[at] : (double)pl_f32(f)[at];
                assert_true(pl_round_bf16((float)x) == (float)x);
                assert_true(fabs(x - w) <= (1.0 / 256 + 1e-5) * fabs(w) + grain);
            }
        }
}

static void learn_on(golden *g, int windows, const pl_backend *be) {
    pl_err        err;
    pl_hf_config  c;
    pl_lm         lm;
    pl_lm_sums    sums;
    pl_ctx        ctx;
    pl_lm_options o = {.backend = be, .capacity = ROWS, .round_to = golden_held(be)};
    golden_begin(g);
    golden_config(g, &c);
    assert_int_equal(c.num_hidden_layers, LAYERS);
    must(pl_lm_create(&lm, &c, &o, &err), &err);
    golden_weights_set(&lm.block, GOLDEN_COARSE, "llama");
    for (int i = 0; i < windows; i++) {
        int64_t        n;
        const int32_t *ids = window(g, i, &n);
        pl_lm_add(&lm, ids, NULL, n);
    }

    forward f = {.m = &lm.model, .lm = &lm, .rows = lm.rows};
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_forward, &f, &err), &err);
    pl_ctx_begin(&ctx);
    run_forward(&ctx, &f);
    must(pl_ctx_sync(&ctx, &err), &err);
    for (int i = 0; i < LAYERS; i++)
        golden_expect(g, be, f.out.tap[i], "hidden/%d", taps[i]);
    golden_expect(g, be, f.out.hidden, "hidden/final");
    golden_expect(g, be, f.logits, "logits");
    check_features(g, &f.features, c.hidden_size, golden_on_device(be) ? 1e-4 : 1e-6);
    pl_ctx_fini(&ctx);

    must(pl_lm_learn(&lm, &sums, &err), &err);
    assert_int_equal(sums.count, f.rows);
    golden_expect(g, be, pl_tensor_1d(&sums.loss, PL_F64, 1), "total");
    golden_expect_block(g, be, &lm.block, lm.block.grad, 0, "grad/");
    pl_lm_destroy(&lm);
    golden_all_asked(g, "config.json");
    golden_all_asked(g, "window/");
    golden_all_asked(g, "hidden/");
    golden_all_asked(g, "grad/");
}

static void learn(const char *name, int windows) {
    golden            g;
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    golden_open(&g, name);
    for (int i = 0; i < n; i++)
        learn_on(&g, windows, be[i]);
    golden_close(&g);
}

static void learn_default(void **state) {
    (void)state;
    learn("llama_default", 2);
}

static void learn_yarn(void **state) {
    (void)state;
    learn("llama_yarn", 1);
}

static void learn_llama3(void **state) {
    (void)state;
    learn("llama_llama3", 1);
}

// ---- packed, over a cache: a prefill, then row by row ----

typedef struct decode {
    const pl_llama *m;
    pl_kv           kv;
    int32_t         id[ROWS], first, rows;
    int32_t         pos[ROWS];
    pl_kvrow        row[LAYERS * ROWS];
    pl_llama_out    out;
    pl_tensor       logits;
} decode;

static void run_decode(pl_ctx *ctx, void *arg) {
    decode *d = arg;
    for (int32_t i = 0; i < d->rows; i++) {
        d->pos[i] = d->first + i;
        pl_kv_row(&d->kv, &d->row[i], d->rows, d->first, NULL, i + 1, d->first + i);
    }
    pl_view view = {.pos = d->pos, .cos = d->m->cos, .sin = d->m->sin, .row = d->row, .m = d->rows};
    pl_llama_forward(ctx, d->m, d->id + d->first, d->rows, &view, taps, LAYERS, &d->out);
    d->logits = pl_linear(ctx, d->out.hidden, d->m->head);
}

static void decode_on(golden *g, int windows, const char *dir, pl_dtype t, const pl_backend *be) {
    pl_err   err;
    pl_ctx   ctx;
    pl_llama m;
    decode  *d = golden_room(be, sizeof *d);
    int64_t  row0 = 0, n;
    must(pl_llama_open(&m, dir, t, be, &err), &err);
    d->m = &m;
    must(pl_kv_create(&d->kv, LAYERS, ROWS, &m.shape, be, &err), &err);
    must(pl_ctx_init(&ctx, be, NULL), &err);
    d->rows = 5;
    must(pl_ctx_measure(&ctx, run_decode, d, &err), &err);
    for (int w = 0; w < windows; w++, row0 += n) {
        const int32_t *id = window(g, w, &n);
        assert_true(n <= ROWS);
        memcpy(d->id, id, (size_t)n * sizeof *id);
        for (d->first = 0; d->first < n; d->first += d->rows) {
            d->rows = d->first == 0 ? 5 : 1;
            pl_ctx_begin(&ctx);
            run_decode(&ctx, d);
            must(pl_ctx_sync(&ctx, &err), &err);
            for (int i = 0; i < LAYERS; i++)
                golden_expect_rows(g, be, d->out.tap[i], row0 + d->first, "hidden/%d", taps[i]);
            golden_expect_rows(g, be, d->logits, row0 + d->first, "logits");
        }
    }
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d->kv);
    pl_llama_fini(&m);
    golden_release();
}

static void decode_file(const char *name, int windows) {
    golden            g;
    pl_err            err;
    char              dir[64], path[96];
    pl_hf_config      c;
    pl_llama          m;
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    golden_open(&g, name);
    golden_mkdir(&g, dir);
    golden_config(&g, &c);
    must(pl_llama_init(&m, &c, pl_backend_cpu(), false, &err), &err); // tied: one matrix in the file
    float **data = golden_weights(&m.params, "llama");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(pl_params_write(&m.params, path, (const float *const *)data, PL_BF16, NULL, 0, &err), &err);
    golden_weights_free(data, m.params.n);
    pl_llama_fini(&m);
    for (int i = 1; i < n; i++) { // models for inference are fp32
        decode_on(&g, windows, dir, PL_F32, be[i]);
        g.slack = GOLDEN_BF16; // the weights are the same numbers, but x is rounded
        if (!golden_on_device(be[i])) decode_on(&g, windows, dir, PL_BF16, be[i]);
        g.slack = 0;
    }
    golden_rmdir(dir);
    golden_close(&g);
}

static void learn_qwen2(void **state) {
    (void)state;
    learn("qwen2", 2);
}

static void learn_qwen3(void **state) {
    (void)state;
    learn("qwen3", 2);
}

static void decode_qwen2(void **state) {
    (void)state;
    decode_file("qwen2", 2);
}

static void decode_qwen3(void **state) {
    (void)state;
    decode_file("qwen3", 2);
}

static void decode_default(void **state) {
    (void)state;
    decode_file("llama_default", 2);
}

static void decode_yarn(void **state) {
    (void)state;
    decode_file("llama_yarn", 1);
}

static void decode_llama3(void **state) {
    (void)state;
    decode_file("llama_llama3", 1);
}

// Llama 3.1's own rotary table, in double and rounded once.
static void rope_llama31(void **state) {
    (void)state;
    enum { HALF = 64, POSITIONS = 4096 };
    golden       g;
    pl_rope_spec spec = {.theta = 500000,
                         .hd = 2 * HALF,
                         .scaling = PL_ROPE_LLAMA3,
                         .factor = 8,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4,
                         .original_positions = 8192};
    golden_open(&g, "llama_llama3");
    const int32_t *at = golden_ints(&g, 3, "rope31/positions");
    const double  *want[2] = {golden_reals(&g, 3 * HALF, "rope31/cos"), golden_reals(&g, 3 * HALF, "rope31/sin")};
    double        *real[2];
    float         *single[2];
    for (int k = 0; k < 2; k++) {
        real[k] = calloc((size_t)POSITIONS * HALF, sizeof(double));
        single[k] = calloc((size_t)POSITIONS * HALF, sizeof(float));
        assert_true(real[k] && single[k]);
    }
    pl_rope_table(real[0], real[1], PL_F64, &spec, POSITIONS);
    pl_rope_table(single[0], single[1], PL_F32, &spec, POSITIONS);
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < 3; p++)
            for (int i = 0; i < HALF; i++) {
                double x = want[k][p * HALF + i];
                int    j = at[p] * HALF + i;
                assert_true(fabs(real[k][j] - x) <= 1e-11);
                assert_true(fabs((double)single[k][j] - x) <= ldexp(fabs(x), -24) + 1e-11);
            }
    for (int k = 0; k < 2; k++) {
        free(real[k]);
        free(single[k]);
    }
    golden_all_asked(&g, "rope31/");
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learn_default), cmocka_unit_test(learn_llama3),   cmocka_unit_test(learn_yarn),
        cmocka_unit_test(decode_yarn),   cmocka_unit_test(decode_default), cmocka_unit_test(decode_llama3),
        cmocka_unit_test(rope_llama31),  cmocka_unit_test(learn_qwen2),    cmocka_unit_test(learn_qwen3),
        cmocka_unit_test(decode_qwen2),  cmocka_unit_test(decode_qwen3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
