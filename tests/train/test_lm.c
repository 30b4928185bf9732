// A target under training: its loss's gradient against central differences in double, and what rows may see.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "tests/ref64.h"
#include "train/task/lm.h"
#include <math.h>
#include <string.h>

static pl_hf_config micro(bool tie) {
    pl_hf_config c;
    pl_hf_config_init(&c);
    c.hidden_size = 8;
    c.intermediate_size = 12;
    c.num_hidden_layers = 2;
    c.num_attention_heads = 2;
    c.num_key_value_heads = 1;
    c.head_dim = 4;
    c.vocab_size = 19;
    c.max_position_embeddings = 16;
    c.tie_word_embeddings = tie;
    c.rms_norm_eps = 1e-5;
    return c;
}

static void make(pl_lm *lm, const pl_backend *be, pl_pool *pool, bool tie, pl_dtype round_to) {
    pl_hf_config  c = micro(tie);
    pl_err        err = {0};
    pl_lm_options o = {.backend = be, .pool = pool, .capacity = 24, .round_to = round_to, .decay_embed = true};
    if (pl_lm_create(lm, &c, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_param_block_init(&lm->block, 7, NULL), PL_OK);
}

// Weights far from their small initial values, so that no gradient is lost in the noise of differences.
static void widen(pl_lm *lm) {
    double *w = lm->block.w;
    for (int64_t i = 0; i < lm->block.n; i++)
        w[i] *= 6;
    assert_int_equal(pl_param_block_put(&lm->block, PL_BLOCK_W, 0, lm->block.n, lm->block.w, NULL), PL_OK);
}

static const int32_t ids_a[] = {1, 5, 7, 2, 1, 9, 3, 18, 4};
static const int32_t doc_a[] = {0, 0, 0, 0, 1, 1, 1, 1, 1};
static const int32_t ids_b[] = {3, 3, 11, 0, 6, 17};

static void load_rows(pl_lm *lm) {
    pl_lm_clear(lm);
    pl_lm_add(lm, ids_a, doc_a, 8);
    pl_lm_add(lm, ids_b, NULL, 5);
}

static double loss_of(pl_lm *lm) {
    pl_lm_sums s;
    pl_err     err = {0};
    if (pl_lm_score(lm, &s, &err) != PL_OK) fail_msg("%s", err.msg);
    return s.loss;
}

// Central differences of fourth order.
static double difference(pl_lm *lm, double *x) {
    double x0 = *x, h = 1e-4, f[4], at[4] = {-2, -1, 1, 2};
    for (int i = 0; i < 4; i++) {
        *x = x0 + at[i] * h;
        f[i] = loss_of(lm);
    }
    *x = x0;
    return (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h);
}

static void gradient(bool tie) {
    pl_lm      lm;
    pl_lm_sums s;
    pl_err     err = {0};
    make(&lm, pl_backend_ref64(), NULL, tie, PL_F32);
    widen(&lm);
    load_rows(&lm);
    assert_int_equal(pl_lm_learn(&lm, &s, &err), PL_OK);
    assert_int_equal(s.count, 12); // 13 rows, one of which ends a document inside its window
    double *work = lm.block.work, *grad = lm.block.grad, worst = 0;
    for (int p = 0; p < lm.model.params.n; p++) {
        int64_t n = pl_param_block_count(&lm.block, p);
        for (int64_t j = 0; j < n; j += 1 + n / 40) { // some of each parameter
            double want = difference(&lm, &work[lm.block.at[p] + j]), got = grad[lm.block.at[p] + j];
            double e = fabs(got - want) / (fabs(want) + 1e-2);
            if (e > worst) worst = e;
            if (e > 1e-7)
                fail_msg("parameter %d element %lld: %.12g, differences say %.12g", p, (long long)j, got, want);
        }
    }
    assert_true(worst > 0);
    pl_lm_destroy(&lm);
}

static void gradient_tied(void **state) {
    (void)state;
    gradient(true);
}

static void gradient_untied(void **state) {
    (void)state;
    gradient(false);
}

// -log(1 - p) of some labels beside others' cross-entropy: what rows of negative weight stand for.
static double unlikely_loss(pl_lm *lm, const bool *unlikely) {
    double sum = 0;
    loss_of(lm);
    for (int64_t i = 0; i < lm->rows; i++)
        if (lm->label[i] >= 0) sum += unlikely[i] ? -log1p(-exp(-lm->loss[i])) : lm->loss[i];
    return sum;
}

static void negative_weights_make_labels_unlikely(void **state) {
    (void)state;
    static const bool unlikely[] = {false, true, true, false, false, true};
    float             weight[5] = {1, 1, 1, 0, 1};
    pl_lm             lm;
    pl_lm_sums        s;
    pl_err            err = {0};
    make(&lm, pl_backend_ref64(), NULL, true, PL_F32);
    widen(&lm);
    pl_lm_clear(&lm);
    pl_lm_add_weighted(&lm, ids_b, weight, 5);
    loss_of(&lm);
    assert_true(lm.loss[3] == 0 && lm.loss[4] > 0);
    for (int i = 0; i < 5; i++)
        if (unlikely[i]) weight[i] = (float)(-1 / expm1(lm.loss[i])); // -p / (1 - p)
    pl_lm_clear(&lm);
    pl_lm_add_weighted(&lm, ids_b, weight, 5);
    assert_int_equal(pl_lm_learn(&lm, &s, &err), PL_OK);
    assert_int_equal(s.count, 2); // rows 0 and 4
    double *work = lm.block.work, *grad = lm.block.grad;
    for (int p = 0; p < lm.model.params.n; p++) {
        int64_t n = pl_param_block_count(&lm.block, p);
        for (int64_t j = 0; j < n; j += 1 + n / 10) {
            double *x = &work[lm.block.at[p] + j], x0 = *x, h = 1e-5, got = grad[lm.block.at[p] + j];
            *x = x0 + h;
            double up = unlikely_loss(&lm, unlikely);
            *x = x0 - h;
            double down = unlikely_loss(&lm, unlikely), want = (up - down) / (2 * h);
            *x = x0;
            if (fabs(got - want) > 1e-6 * (fabs(want) + 1e-1)) // the weights are floats
                fail_msg("parameter %d element %lld: %.12g, differences say %.12g", p, (long long)j, got, want);
        }
    }
    pl_lm_destroy(&lm);
}

// The loss over two documents in one window is the sum of their losses alone.
static void documents_are_apart(void **state) {
    (void)state;
    pl_lm lm;
    make(&lm, pl_backend_ref64(), NULL, true, PL_F32);
    widen(&lm);
    pl_lm_clear(&lm);
    pl_lm_add(&lm, ids_a, doc_a, 8);
    double both = loss_of(&lm);
    pl_lm_clear(&lm);
    pl_lm_add(&lm, ids_a, NULL, 3);
    double first = loss_of(&lm);
    pl_lm_clear(&lm);
    pl_lm_add(&lm, ids_a + 4, NULL, 4);
    double second = loss_of(&lm);
    assert_true(fabs(both - first - second) < 1e-12 * both);
    pl_lm_clear(&lm);
    pl_lm_add(&lm, ids_a, NULL, 8); // as one document it is something else
    assert_true(fabs(loss_of(&lm) - both) > 1e-3);
    pl_lm_destroy(&lm);
}

// The same bits for one thread and two, in the loss and in every gradient.
static void threads_do_not_matter(void **state) {
    (void)state;
    pl_lm      one, two;
    pl_pool   *pool;
    pl_lm_sums a, b;
    pl_err     err = {0};
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    make(&one, pl_backend_cpu(), NULL, true, PL_BF16);
    make(&two, pl_backend_cpu(), pool, true, PL_BF16);
    load_rows(&one);
    load_rows(&two);
    assert_int_equal(pl_lm_learn(&one, &a, &err), PL_OK);
    assert_int_equal(pl_lm_learn(&two, &b, &err), PL_OK);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_memory_equal(one.block.grad, two.block.grad, (size_t)one.block.n * sizeof(float));
    uint64_t before = pl_alloc_count();
    assert_int_equal(pl_lm_learn(&two, &b, &err), PL_OK);
    assert_int_equal(pl_alloc_count(), before);
    pl_lm_destroy(&one);
    pl_lm_destroy(&two);
    pl_pool_destroy(pool);
}

// The block: norms and (if so wished) embeddings lie behind what decays; working values are bf16.
static void block_layout(void **state) {
    (void)state;
    pl_lm lm;
    make(&lm, pl_backend_ref(), NULL, true, PL_BF16);
    const float *w = lm.block.w, *work = lm.block.work;
    int64_t      differ = 0;
    for (int64_t i = 0; i < lm.block.n; i++) {
        assert_true(work[i] == pl_round_bf16(w[i]));
        differ += work[i] != w[i];
    }
    assert_true(differ > lm.block.n / 2);
    for (int p = 0; p < lm.model.params.n; p++) {
        bool norm = lm.model.params.p[p].kind == PL_PARAM_NORM;
        assert_true(norm == (lm.block.at[p] >= lm.block.n_decayed));
        if (norm) assert_true(w[lm.block.at[p]] == 1);
    }
    assert_ptr_equal(lm.model.head.grad, lm.model.embed.grad);
    pl_lm_destroy(&lm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_tied),       cmocka_unit_test(gradient_untied),
        cmocka_unit_test(documents_are_apart), cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(block_layout),        cmocka_unit_test(negative_weights_make_labels_unlikely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
