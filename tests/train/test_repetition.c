// Continuations by a model under training: they are greedy, and what they repeat is weighed as the equation says.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/eval/repeated.h"
#include "kernels/base/arena.h"
#include "tests/device.h"
#include "train/task/repetition.h"
#include <math.h>
#include <string.h>

enum { SEQUENCES = 3, PREFIX = 6, LENGTH = 48, ROOM = PREFIX + LENGTH };

static const int32_t text[SEQUENCES][PREFIX] = {{1, 5, 7, 2, 4, 9}, {3, 3, 11}, {17}};
static const int32_t prompt[SEQUENCES] = {6, 3, 1};

static void make(pl_lm *lm, pl_repetition *r, const pl_backend *be, pl_dtype round_to, pl_pool *pool) {
    pl_hf_config          c;
    pl_err                err = {0};
    pl_lm_options         o = {.backend = be, .pool = pool, .capacity = SEQUENCES * ROOM, .round_to = round_to};
    pl_repetition_options ro = {.sequences = SEQUENCES, .prefix = PREFIX, .length = LENGTH, .weight = 0.5};
    pl_hf_config_init(&c);
    c.hidden_size = 32;
    c.intermediate_size = 48;
    c.num_hidden_layers = 2;
    c.num_attention_heads = 2;
    c.num_key_value_heads = 1;
    c.head_dim = 16;
    c.vocab_size = 23;
    c.max_position_embeddings = ROOM;
    c.tie_word_embeddings = true;
    c.rms_norm_eps = 1e-5;
    if (pl_lm_create(lm, &c, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_param_block_init(&lm->block, 7, NULL), PL_OK);
    for (int i = 0; i < lm->model.params.n; i++) { // far from uniform, so that ties and noise decide nothing
        float w[4096];
        assert_true(pl_param_block_count(&lm->block, i) <= 4096);
        assert_int_equal(
            pl_param_block_take(&lm->block, PL_BLOCK_W, lm->block.at[i], pl_param_block_count(&lm->block, i), w, &err),
            PL_OK);
        for (int64_t k = 0; k < pl_param_block_count(&lm->block, i); k++)
            w[k] *= 4;
        assert_int_equal(pl_param_block_set(&lm->block, i, w, &err), PL_OK);
    }
    if (pl_repetition_init(r, &ro, lm, be, pool, &err) != PL_OK) fail_msg("%s", err.msg);
}

static void write(pl_repetition *r) {
    pl_err err = {0};
    for (int i = 0; i < SEQUENCES; i++) {
        memcpy(r->ids + (int64_t)i * ROOM, text[i], sizeof text[i]);
        r->text[i].prompt = prompt[i];
    }
    if (pl_repetition_write(r, &err) != PL_OK) fail_msg("%s", err.msg);
}

static void greedily(const pl_backend *be, pl_dtype round_to) {
    pl_lm         lm;
    pl_repetition r;
    pl_lm_sums    sums;
    int64_t       repeated = 0;
    make(&lm, &r, be, round_to, NULL);
    for (int round = 0; round < 2; round++) { // the second finds what the first has left behind
        write(&r);
        repeated = 0;
        for (int i = 0; i < SEQUENCES; i++) {
            const int32_t *ids = r.ids + (int64_t)i * ROOM;
            const float   *weight = r.weight + (int64_t)i * ROOM;
            bool           again[LENGTH];
            assert_int_equal(r.text[i].n, prompt[i] + LENGTH);
            assert_memory_equal(ids, text[i], (size_t)prompt[i] * sizeof *ids);
            pl_lm_clear(&lm);
            pl_lm_add(&lm, ids, NULL, r.text[i].n - 1);
            assert_int_equal(pl_lm_score(&lm, &sums, NULL), PL_OK);
            repeated += pl_repeated_tokens(ids + prompt[i], LENGTH, again);
            for (int t = 0; t < r.text[i].n - 1; t++) {
                int token = t + 1 - prompt[i];
                if (token >= 0) assert_int_equal(lm.argmax[t], ids[t + 1]);
                if (token < 0 || !again[token]) {
                    assert_true(weight[t] == 0);
                    continue;
                }
                double p = exp(-lm.loss[t]), want = -0.5 * p / fmax(1 - p, PL_UNLIKELY_MIN);
                assert_true(fabs(weight[t] - want) <= 1e-5 * -want);
            }
        }
        assert_int_equal(r.repeated, repeated);
        assert_int_equal(r.written, SEQUENCES * LENGTH);
    }
    assert_true(repeated > LENGTH); // a model that knows nothing goes round in circles
    pl_repetition_fini(&r);
    pl_lm_destroy(&lm);
}

static void goes_on_greedily(void **state) {
    (void)state;
    greedily(pl_backend_cpu(), PL_F32);
    greedily(pl_backend_cpu(), PL_BF16);
}

static void goes_on_on_a_device(void **state) {
    (void)state;
    greedily(test_device(), PL_BF16);
}

// - sum of log(1 - p) over what is repeated in the texts of r, with lm's weights as they are now.
static double unlikelihood(pl_lm *lm, const pl_repetition *r) {
    pl_lm_sums sums;
    double     sum = 0;
    pl_lm_clear(lm);
    pl_repetition_add(r);
    assert_int_equal(pl_lm_score(lm, &sums, NULL), PL_OK);
    assert_int_equal(sums.count, 0);
    for (int64_t i = 0; i < lm->rows; i++)
        if (lm->label[i] >= 0) sum -= log(-expm1(-lm->loss[i]));
    return sum;
}

// A small step down the gradient makes what was repeated less likely, by about what the gradient says.
static void repeated_tokens_become_less_likely(void **state) {
    (void)state;
    pl_lm         lm;
    pl_repetition r;
    pl_lm_sums    sums;
    double        before, norm = 0, step = 1e-5;
    make(&lm, &r, pl_backend_cpu(), PL_F32, NULL);
    write(&r);
    before = unlikelihood(&lm, &r);
    pl_param_block_zero_grad(&lm.block, NULL);
    assert_int_equal(pl_lm_learn(&lm, &sums, NULL), PL_OK);
    float *w = lm.block.w, *grad = lm.block.grad;
    for (int64_t i = 0; i < lm.block.n; i++) {
        norm += (double)grad[i] * (double)grad[i];
        w[i] -= (float)step * grad[i];
    }
    assert_int_equal(pl_param_block_put(&lm.block, PL_BLOCK_W, 0, lm.block.n, lm.block.w, NULL), PL_OK);
    double said = step * norm, fell = 0.5 * (before - unlikelihood(&lm, &r)); // 0.5: the weight
    if (!(fell > 0.8 * said && fell < 1.2 * said)) fail_msg("fell by %g, the gradient says %g", fell, said);
    pl_repetition_fini(&r);
    pl_lm_destroy(&lm);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    pl_lm         one, two;
    pl_repetition a, b;
    pl_pool      *pool;
    assert_int_equal(pl_pool_create(&pool, 2, NULL), PL_OK);
    make(&one, &a, pl_backend_cpu(), PL_BF16, NULL);
    make(&two, &b, pl_backend_cpu(), PL_BF16, pool);
    write(&a);
    write(&b);
    assert_memory_equal(a.ids, b.ids, SEQUENCES * ROOM * sizeof *a.ids);
    assert_memory_equal(a.weight, b.weight, SEQUENCES * ROOM * sizeof *a.weight);
    pl_repetition_fini(&a);
    pl_repetition_fini(&b);
    pl_lm_destroy(&one);
    pl_lm_destroy(&two);
    pl_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(goes_on_greedily), cmocka_unit_test(goes_on_on_a_device),
                                       cmocka_unit_test(repeated_tokens_become_less_likely),
                                       cmocka_unit_test(threads_do_not_matter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
