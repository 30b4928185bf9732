// Supervised rows only, on the CPU in bf16: where the rows that run come in whole blocks (kernels/cpu/panels.h:
// PL_PANEL_BLOCK), sums over rows are grouped as those of all rows, and EAGLE-3's gradients have the same bits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/rng.h"
#include "train/loop/block.h"
#include "train/task/unroll.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, TAPS = 2, VOCAB = 160, K = 3, BLOCK = 32, ROWS = 7 * BLOCK };

typedef struct setup {
    pl_llama       target;
    pl_backbone   *model;
    pl_param_block block;
    pl_unroll      u;
    float          embed[VOCAB * D], head[VOCAB * D];
    int32_t        tokens[ROWS], argmax[ROWS];
    uint8_t        loss_mask[ROWS];
    uint16_t       features[ROWS * TAPS * D], last_hidden[ROWS * D];
} setup;

static float noise(int what, int64_t i) {
    return pl_rng_normal(pl_rng_make(9, PL_STREAM_TEST, (uint64_t)what), (uint64_t)i);
}

// Tokens that the rows of three blocks predict.
static bool is_answer(int i) {
    static const int run[][2] = {{1, 2}, {4, 6}}; // blocks from .. to
    bool             is = false;
    for (size_t b = 0; b < sizeof run / sizeof *run; b++)
        is |= i >= run[b][0] * BLOCK + 2 + K - 1 && i < run[b][1] * BLOCK + 2;
    return is;
}

static void make(setup *s, const pl_backbone_kind *kind, bool supervised, pl_pool *pool) {
    pl_err            err = {0};
    pl_hf_config      c;
    const pl_backend *be = pl_backend_cpu();
    memset(s, 0, sizeof *s);
    pl_hf_config_init(&c);
    c.hidden_size = D;
    c.intermediate_size = 96;
    c.num_hidden_layers = 4;
    c.num_attention_heads = 4;
    c.num_key_value_heads = 2;
    c.head_dim = 16;
    c.vocab_size = VOCAB;
    c.max_position_embeddings = ROWS + 2 * K;
    assert_int_equal(pl_llama_init(&s->target, &c, be, false, &err), PL_OK);
    for (int i = 0; i < VOCAB * D; i++) {
        s->embed[i] = noise(1, i);
        s->head[i] = noise(2, i);
    }
    s->target.embed = pl_tensor_2d(s->embed, PL_F32, VOCAB, D);
    s->target.head = pl_tensor_2d(s->head, PL_F32, VOCAB, D);
    pl_backbone_options o = {.head = pl_hf_head_make("lowrank", 16), .n_taps = TAPS, .tap = {1, 3}, .bias = true};
    if (kind->ahead) o.block = K, o.mask_token = 2;
    if (pl_backbone_create(&s->model, kind, &s->target, &o, be, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_param_block_options bo = {.backend = be, .round_to = PL_BF16};
    assert_int_equal(pl_param_block_create(&s->block, &s->model->params, &bo, &err), PL_OK);
    assert_int_equal(pl_param_block_init(&s->block, 5, NULL), PL_OK);
    pl_unroll_options uo = {.capacity = ROWS, .steps = K, .step_decay = 0.8, .token_weight = 1};
    uo.depth_ratio = 1;
    uo.supervised = supervised;
    if (kind->predicts_features) uo.token_weight = 0.1, uo.feature_weight = 1;
    if (pl_unroll_create(&s->u, s->model, pl_tensor_2d(s->head, PL_F32, VOCAB, D), &uo, be, pool, &err) != PL_OK)
        fail_msg("%s", err.msg);
    for (int i = 0; i < ROWS; i++) {
        s->tokens[i] = (int32_t)((i * 7 + 3) % VOCAB);
        s->argmax[i] = (int32_t)((i * 5 + 1) % VOCAB);
        s->loss_mask[i] = is_answer(i);
    }
    for (int i = 0; i < ROWS * TAPS * D; i++)
        s->features[i] = pl_f32_to_bf16(noise(3, i));
    for (int i = 0; i < ROWS * D; i++)
        s->last_hidden[i] = pl_f32_to_bf16(noise(4, i));
    pl_columns doc = {.n = ROWS,
                      .tokens = s->tokens,
                      .loss_mask = s->loss_mask,
                      .argmax = s->argmax,
                      .features = s->features,
                      .last_hidden = s->last_hidden};
    pl_pack_clear(&s->u.pack);
    pl_pack_add(&s->u.pack, &doc, 0, ROWS);
    pl_pack_close(&s->u.pack);
    if (pl_unroll_learn(&s->u, &err) != PL_OK) fail_msg("%s", err.msg);
}

static void destroy(setup *s) {
    pl_unroll_destroy(&s->u);
    pl_param_block_destroy(&s->block);
    pl_backbone_destroy(s->model);
    pl_llama_fini(&s->target);
}

static void whole_blocks(void **state) {
    (void)state;
    static setup                         some, all;
    static const pl_backbone_kind *const kinds[] = {&pl_backbone_eagle3, &pl_backbone_eagle1, &pl_backbone_peagle};
    pl_pool                             *pool;
    pl_err                               err = {0};
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make(&some, kinds[i], true, pool);
        make(&all, kinds[i], false, NULL);
        assert_int_equal(some.u.rows.depth[0].n, 3 * BLOCK);
        assert_int_equal(all.u.rows.depth[0].n, ROWS);
        for (int64_t c = 0; c < (int64_t)K * ROWS; c++)
            assert_true(some.u.loss[c] == all.u.loss[c]);
        const float *a = some.block.grad, *b = all.block.grad;
        int64_t      other = 0;
        double       most = 0, apart = 0;
        for (int64_t k = 0; k < all.block.n; k++) {
            other += a[k] != b[k];
            most = fmax(most, fabs((double)b[k]));
            apart = fmax(apart, fabs((double)a[k] - (double)b[k]));
        }
        assert_true(most > 1e-3);
        // EAGLE-1's layer adds its residual's gradient between those of queries and keys; P-EAGLE runs fewer rows at
        // deeper depths, which are no whole blocks.
        double allowed = kinds[i] == &pl_backbone_eagle3 ? 0 : 1e-6 * most;
        if (apart > allowed)
            fail_msg("%s: %lld of %lld gradients differ, by %g at most", kinds[i]->name, (long long)other,
                     (long long)all.block.n, apart);
        destroy(&some);
        destroy(&all);
    }
    pl_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
