// How far the built-in target's log-probabilities lie from those that double arithmetic gives of the same weights: with
// products in bf16, as weights in bf16 are computed with, and in fp32; and, decoded, over caches in either.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/tokenizer/tokenizer.h"
#include "infer/model/kv.h"
#include "infer/model/llama.h"
#include "kernels/base/arena.h"
#include "tests/ref64.h"
#include "train/task/lm.h"
#include <math.h>
#include <string.h>

#define TARGET PACELINE_SOURCE_DIR "/checkpoints/tiny"
#define ROWS 48

static const char text[] =
    "It was a dark evening, and the old man sat by the fire with a book upon his knee, when somebody knocked three "
    "times at the door. \"Come in,\" he said, without looking up; \"it is never locked, as everybody in the village "
    "knows.\"";

// -log p of each next token of the text.
static void losses(double *out, const pl_backend *be, pl_dtype round_to, const int32_t *ids) {
    pl_lm             lm;
    pl_hf_config      c;
    pl_weight_source *src;
    pl_lm_sums        sums;
    pl_err            err = {0};
    pl_lm_options     o = {.backend = be, .capacity = ROWS, .round_to = round_to};
    if (pl_hf_config_read(&c, TARGET, PL_HF_TARGET, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_lm_create(&lm, &c, &o, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&src, TARGET, &err), PL_OK);
    assert_int_equal(pl_param_block_read(&lm.block, src, &err), PL_OK);
    pl_weight_source_close(src);
    pl_lm_clear(&lm);
    pl_lm_add(&lm, ids, NULL, ROWS);
    assert_int_equal(pl_lm_score(&lm, &sums, &err), PL_OK);
    assert_int_equal(sums.count, ROWS);
    memcpy(out, lm.loss, ROWS * sizeof *out);
    pl_lm_destroy(&lm);
}

// The text's tokens, ROWS of them and one more at least, for the caller to free; and their losses in double.
static int32_t *text_in_double(double *truth) {
    pl_tokenizer *tok;
    int32_t      *ids;
    int64_t       n;
    pl_err        err = {0};
    assert_int_equal(pl_tokenizer_open(&tok, TARGET, &err), PL_OK);
    assert_int_equal(pl_tokenizer_encode(tok, text, strlen(text), PL_TOK_ADD_BOS, &ids, &n, &err), PL_OK);
    assert_true(n > ROWS);
    pl_tokenizer_close(tok);
    losses(truth, pl_backend_ref64(), PL_F32, ids);
    return ids;
}

typedef struct distance {
    double worst, mean;
} distance;

static distance told(const char *what, const double *got, const double *truth) {
    distance d = {0};
    for (int i = 0; i < ROWS; i++) {
        const double e = fabs(got[i] - truth[i]);
        d.worst = fmax(d.worst, e);
        d.mean += e / ROWS;
    }
    print_message("log p of %d tokens, %s: off by %.2g at most, %.2g on average\n", ROWS, what, d.worst, d.mean);
    return d;
}

static void log_probabilities_beside_double(void **state) {
    (void)state;
    double   truth[ROWS], got[ROWS];
    int32_t *ids = text_in_double(truth);
    losses(got, pl_backend_cpu(), PL_BF16, ids);
    const distance bf16 = told("products in bf16", got, truth);
    losses(got, pl_backend_cpu(), PL_F32, ids);
    const distance fp32 = told("products in fp32", got, truth);
    assert_true(bf16.worst < 0.03 && bf16.mean < 0.008);
    assert_true(fp32.worst < 1e-3 && fp32.mean < 1e-4);
    assert_true(bf16.worst > fp32.worst); // x was rounded
    pl_free(ids);
}

// ---- decoded ----

typedef struct decoded {
    pl_llama       m;
    pl_kv          kv;
    const int32_t *ids;
    pl_tensor      logits;
} decoded;

static void forward(pl_ctx *ctx, void *arg) {
    decoded     *d = arg;
    int32_t     *pos = pl_ctx_bytes(ctx, ROWS * sizeof *pos);
    pl_kvrow    *row = pl_ctx_bytes(ctx, ROWS * (size_t)d->m.n_layers * sizeof *row);
    pl_llama_out out;
    for (int32_t i = 0; i < ROWS && !ctx->measuring; i++) {
        pos[i] = i;
        pl_kv_row(&d->kv, &row[i], ROWS, 0, NULL, i + 1, i);
    }
    pl_view view = {.pos = pos, .cos = d->m.cos, .sin = d->m.sin, .row = row, .m = ROWS};
    pl_llama_forward(ctx, &d->m, d->ids, ROWS, &view, NULL, 0, &out);
    d->logits = pl_llama_logits(ctx, &d->m, out.hidden);
}

static void decoded_losses(double *out, pl_dtype weights, pl_dtype kv, const int32_t *ids) {
    decoded d = {.ids = ids};
    pl_err  err = {0};
    pl_ctx  ctx;
    assert_int_equal(pl_llama_open(&d.m, TARGET, weights, pl_backend_cpu(), &err), PL_OK);
    d.m.shape.kv = kv;
    assert_int_equal(pl_kv_create(&d.kv, d.m.n_layers, ROWS, &d.m.shape, d.m.be, &err), PL_OK);
    assert_int_equal(pl_ctx_init(&ctx, d.m.be, NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&ctx, forward, &d, &err), PL_OK);
    pl_ctx_begin(&ctx);
    forward(&ctx, &d);
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
    for (int i = 0; i < ROWS; i++) {
        const float *z = pl_f32(&d.logits) + i * d.m.vocab;
        double       max = -INFINITY, sum = 0;
        for (int64_t v = 0; v < d.m.vocab; v++)
            max = fmax(max, (double)z[v]);
        for (int64_t v = 0; v < d.m.vocab; v++)
            sum += exp((double)z[v] - max);
        out[i] = max + log(sum) - (double)z[ids[i + 1]];
    }
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d.kv);
    pl_llama_fini(&d.m);
}

static void caches_beside_double(void **state) {
    (void)state;
    static const struct {
        const char *what;
        pl_dtype    weights, kv;
        distance    bound;
    } of[4] = {{"weights in fp32 over caches in fp32", PL_F32, PL_F32, {1e-3, 1e-4}},
               {"weights in fp32 over caches in bf16", PL_F32, PL_BF16, {0.02, 0.005}},
               {"weights in bf16 over caches in fp32", PL_BF16, PL_F32, {0.03, 0.008}},
               {"weights in bf16 over caches in bf16", PL_BF16, PL_BF16, {0.03, 0.008}}};
    double   truth[ROWS], got[4][ROWS];
    distance d[4];
    int32_t *ids = text_in_double(truth);
    for (int k = 0; k < 4; k++) {
        decoded_losses(got[k], of[k].weights, of[k].kv, ids);
        d[k] = told(of[k].what, got[k], truth);
        assert_true(d[k].worst < of[k].bound.worst && d[k].mean < of[k].bound.mean);
    }
    assert_true(d[1].mean > 2 * d[0].mean); // keys and values were rounded
    assert_true(memcmp(got[2], got[3], sizeof got[2]) != 0);
    pl_free(ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(log_probabilities_beside_double),
                                       cmocka_unit_test(caches_beside_double)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
