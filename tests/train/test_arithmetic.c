// How far the built-in target's log-probabilities lie from those that double arithmetic gives of the same weights: with
// products in bf16, as weights in bf16 are computed with, and in fp32.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/tokenizer/tokenizer.h"
#include "kernels/base/arena.h"
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

static void log_probabilities_beside_double(void **state) {
    (void)state;
    double        truth[ROWS], bf16[ROWS], fp32[ROWS], worst[2] = {0}, mean[2] = {0};
    pl_tokenizer *tok;
    int32_t      *ids;
    int64_t       n;
    pl_err        err = {0};
    assert_int_equal(pl_tokenizer_open(&tok, TARGET, &err), PL_OK);
    assert_int_equal(pl_tokenizer_encode(tok, text, strlen(text), PL_TOK_ADD_BOS, &ids, &n, &err), PL_OK);
    assert_true(n > ROWS);
    losses(truth, pl_backend_ref64(), PL_F32, ids);
    losses(bf16, pl_backend_cpu(), PL_BF16, ids);
    losses(fp32, pl_backend_cpu(), PL_F32, ids);
    for (int i = 0; i < ROWS; i++) {
        double e[2] = {fabs(bf16[i] - truth[i]), fabs(fp32[i] - truth[i])};
        for (int k = 0; k < 2; k++) {
            worst[k] = fmax(worst[k], e[k]);
            mean[k] += e[k] / ROWS;
        }
    }
    print_message(
        "log p of %d tokens: products in bf16 off by %.2g at most, %.2g on average; in fp32 by %.2g and %.2g\n", ROWS,
        worst[0], mean[0], worst[1], mean[1]);
    assert_true(worst[0] < 0.03 && mean[0] < 0.008);
    assert_true(worst[1] < 1e-3 && mean[1] < 1e-4);
    assert_true(worst[0] > worst[1]); // x was rounded
    pl_free(ids);
    pl_tokenizer_close(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(log_probabilities_beside_double)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
