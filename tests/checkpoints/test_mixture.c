// A mixture's tensors as a source has them: names, stacks of experts, MXFP4.
#include "checkpoints/fingerprint.h"
#include "checkpoints/weights.h"
#include "scratch.h"
#include <math.h>

#define LAYER "model.layers.3."

static pl_weight_spec matrix(const char *name, int64_t rows, int64_t cols) {
    return (pl_weight_spec){.part = {{name, rows}}, .n_parts = 1, .rows = rows, .cols = cols};
}

static pl_weight_source *opened(const pl_st_source *all, int n) {
    pl_err            err;
    pl_weight_source *src;
    assert_ok(pl_st_write(at("m.safetensors"), all, n, NULL, 0, &err));
    assert_ok(pl_weight_source_open(&src, at("m.safetensors"), &err));
    return src;
}

static void test_mixtral_names(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {LAYER "block_sparse_moe.gate.weight", LAYER "mlp.gate.weight"},
        {LAYER "block_sparse_moe.experts.12.w1.weight", LAYER "mlp.experts.12.gate_proj.weight"},
        {LAYER "block_sparse_moe.experts.12.w2.weight", LAYER "mlp.experts.12.down_proj.weight"},
        {LAYER "block_sparse_moe.experts.0.w3.weight", LAYER "mlp.experts.0.up_proj.weight"},
        {LAYER "mlp.router.weight", LAYER "mlp.gate.weight.not"},
        {LAYER "block_sparse_moe.experts.x.w1.weight", LAYER "block_sparse_moe.experts.x.w1.weight"},
        {LAYER "block_sparse_moe.experts.1.w4.weight", LAYER "block_sparse_moe.experts.1.w4.weight"},
        {"other.block_sparse_moe.gate.weight", "other.block_sparse_moe.gate.weight"},
    };
    enum { N = sizeof names / sizeof *names };
    pl_st_source all[N];
    float        v[N];
    int          n = 0;
    for (int i = 0; i < N; i++) {
        v[i] = (float)i;
        if (i != 4)
            all[n++] = (pl_st_source){.name = names[i][0], .dtype = PL_F32, .rank = 2, .shape = {1, 1}, .data = &v[i]};
    }
    pl_weight_source *src = opened(all, n);
    for (int i = 0; i < N; i++) {
        const pl_weight_entry *e = pl_weight_source_find(src, names[i][1]);
        assert_true(i == 4 ? !e : e && *(const float *)e->data == v[i]);
    }
    pl_weight_source_close(src);
}

// ---- GPT-OSS ----

enum { EXPERTS = 3, D = 64, WIDTH = 5 };

static void test_stacks(void **state) {
    (void)state;
    static uint16_t gu[EXPERTS][D][2 * WIDTH], down[EXPERTS][WIDTH][D], gu_bias[EXPERTS][2 * WIDTH];
    static float    down_bias[EXPERTS][D];
    uint16_t       *flat = &gu[0][0][0];
    for (int i = 0; i < EXPERTS * D * 2 * WIDTH; i++)
        flat[i] = pl_f32_to_bf16((float)(i % 251));
    flat = &down[0][0][0];
    for (int i = 0; i < EXPERTS * D * WIDTH; i++)
        flat[i] = pl_f32_to_bf16((float)(i % 241));
    for (int e = 0; e < EXPERTS; e++) {
        for (int i = 0; i < 2 * WIDTH; i++)
            gu_bias[e][i] = pl_f32_to_bf16((float)(100 * e + i));
        for (int i = 0; i < D; i++)
            down_bias[e][i] = (float)(100 * e + i);
    }
    const pl_st_source all[] = {
        {.name = LAYER "mlp.experts.gate_up_proj",
         .dtype = PL_BF16,
         .rank = 3,
         .shape = {EXPERTS, D, 2 * WIDTH},
         .data = gu},
        {.name = LAYER "mlp.experts.gate_up_proj_bias",
         .dtype = PL_BF16,
         .rank = 2,
         .shape = {EXPERTS, 2 * WIDTH},
         .data = gu_bias},
        {.name = LAYER "mlp.experts.down_proj",
         .dtype = PL_BF16,
         .rank = 3,
         .shape = {EXPERTS, WIDTH, D},
         .data = down},
        {.name = LAYER "mlp.experts.down_proj_bias",
         .dtype = PL_F32,
         .rank = 2,
         .shape = {EXPERTS, D},
         .data = down_bias},
        {.name = LAYER "mlp.router.weight", .dtype = PL_F32, .rank = 2, .shape = {EXPERTS, D}, .data = down_bias},
    };
    pl_err            err;
    pl_weight_source *src = opened(all, 5);
    float             v[2 * WIDTH * D];
    char              name[6][96];
    assert_int_equal(pl_weight_source_count(src), 6 * EXPERTS + 1);
    assert_non_null(pl_weight_source_find(src, LAYER "mlp.gate.weight"));
    for (int e = 0; e < EXPERTS; e++) {
        static const char *const part[] = {"gate_proj.weight", "up_proj.weight", "down_proj.weight",
                                           "gate_proj.bias",   "up_proj.bias",   "down_proj.bias"};
        for (int i = 0; i < 6; i++)
            snprintf(name[i], sizeof name[i], LAYER "mlp.experts.%d.%s", e, part[i]);
        pl_weight_spec two = {.part = {{name[0], WIDTH}, {name[1], WIDTH}}, .n_parts = 2, .rows = 2 * WIDTH, .cols = D};
        assert_int_equal(pl_weight_source_find(src, name[0])->bytes, WIDTH * D * 2);
        assert_int_equal(pl_weight_source_find(src, name[2])->bytes, WIDTH * D * 2);
        assert_ok(pl_weight_read_f32(src, &two, v, &err));
        for (int r = 0; r < 2 * WIDTH; r++)
            for (int c = 0; c < D; c++)
                assert_true(v[r * D + c] == pl_bf16_to_f32(gu[e][c][r % WIDTH * 2 + r / WIDTH]));
        // Across the seam; what is no run of rows is not viewed, and dropping it drops nothing of others.
        const void *data;
        pl_dtype    dtype;
        assert_ok(pl_weight_read_rows(src, &two, WIDTH - 1, 2, v, &err));
        assert_true(v[D + 1] == pl_bf16_to_f32(gu[e][1][1]) && v[1] == pl_bf16_to_f32(gu[e][1][2 * WIDTH - 2]));
        pl_weight_spec w = matrix(name[2], D, WIDTH);
        assert_false(pl_weight_view(src, &w, &data, &dtype));
        assert_int_equal(pl_weight_rows_view(src, &w, 0, PL_BF16, &data), 0);
        pl_weight_drop(src, &w);
        assert_ok(pl_weight_read_f32(src, &w, v, &err));
        for (int r = 0; r < D; r++)
            for (int c = 0; c < WIDTH; c++)
                assert_true(v[r * WIDTH + c] == pl_bf16_to_f32(down[e][c][r]));
        pl_weight_spec b = {.part = {{name[3], WIDTH}, {name[4], WIDTH}}, .n_parts = 2, .rows = 2 * WIDTH};
        assert_ok(pl_weight_read_f32(src, &b, v, &err));
        for (int r = 0; r < 2 * WIDTH; r++)
            assert_true(v[r] == (float)(100 * e + r % WIDTH * 2 + r / WIDTH));
        b = matrix(name[5], D, 0);
        assert_ok(pl_weight_read_f32(src, &b, v, &err));
        assert_true(v[0] == down_bias[e][0] && v[D - 1] == down_bias[e][D - 1]);
    }
    pl_weight_source_close(src);
}

static uint8_t blocks[EXPERTS][2 * WIDTH][D / 32][16], scales[EXPERTS][2 * WIDTH][D / 32];

static void test_mxfp4(void **state) {
    (void)state;
    static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    uint8_t            *flat = &blocks[0][0][0][0];
    for (int i = 0; i < (int)sizeof blocks; i++)
        flat[i] = (uint8_t)(i * 37);
    for (int i = 0; i < (int)sizeof scales; i++)
        (&scales[0][0][0])[i] = (uint8_t)(i == 0 ? 0 : i == 1 ? 255 : i == 2 ? 252 : 100 + i);
    const pl_st_source all[] = {
        {.name = LAYER "mlp.experts.gate_up_proj_blocks",
         .dtype = PL_U8,
         .rank = 4,
         .shape = {EXPERTS, 2 * WIDTH, D / 32, 16},
         .data = blocks},
        {.name = LAYER "mlp.experts.gate_up_proj_scales",
         .dtype = PL_U8,
         .rank = 3,
         .shape = {EXPERTS, 2 * WIDTH, D / 32},
         .data = scales},
        {.name = LAYER "mlp.experts.down_proj_blocks",
         .dtype = PL_U8,
         .rank = 4,
         .shape = {EXPERTS, 2 * WIDTH, D / 32, 16},
         .data = blocks},
        {.name = LAYER "mlp.experts.down_proj_scales",
         .dtype = PL_U8,
         .rank = 3,
         .shape = {EXPERTS, 2 * WIDTH, D / 32},
         .data = scales},
    };
    pl_err            err;
    pl_weight_source *src = opened(all, 4);
    float             v[2 * WIDTH * D];
    for (int e = 0; e < EXPERTS; e++)
        for (int turns = 1; turns <= 2; turns++) {
            char one[96], other[96];
            snprintf(one, sizeof one, LAYER "mlp.experts.%d.%s.weight", e, turns == 2 ? "gate_proj" : "down_proj");
            snprintf(other, sizeof other, LAYER "mlp.experts.%d.up_proj.weight", e);
            pl_weight_spec w = matrix(one, 2 * WIDTH, D);
            if (turns == 2)
                w = (pl_weight_spec){
                    .part = {{one, WIDTH}, {other, WIDTH}}, .n_parts = 2, .rows = 2 * WIDTH, .cols = D};
            assert_int_equal(pl_weight_source_stored_dtype(src, &w, 1), PL_BF16);
            assert_int_equal(pl_weight_source_find(src, one)->bytes, 2 * WIDTH / turns * (D / 2 + D / 32));
            assert_ok(pl_weight_read_f32(src, &w, v, &err));
            for (int r = 0; r < 2 * WIDTH; r++)
                for (int c = 0; c < D; c++) {
                    int     at = turns == 2 ? r % WIDTH * 2 + r / WIDTH : r;
                    uint8_t scale = scales[e][at][c / 32], pair = blocks[e][at][c / 32][c % 32 / 2];
                    uint8_t bits = c % 2 ? pair >> 4 : pair & 15;
                    double  want = (bits & 8 ? -1 : 1) * ldexp(e2m1[bits & 7], scale - 127);
                    float   got = v[r * D + c];
                    assert_true(scale == 255 ? isnan(got) : got == want && pl_round_bf16(got) == got);
                }
        }
    pl_weight_source_close(src);
}

// Any byte of a stack, the last one too, tells two files apart.
static void test_fingerprints(void **state) {
    (void)state;
    char         print[5][17];
    pl_st_source all[] = {
        {.name = LAYER "mlp.experts.down_proj_blocks", .dtype = PL_U8, .rank = 4, .shape = {3, 10, 2, 16}},
        {.name = LAYER "mlp.experts.down_proj_scales", .dtype = PL_U8, .rank = 3, .shape = {3, 10, 2}},
        {.name = LAYER "mlp.experts.gate_up_proj", .dtype = PL_U8, .rank = 3, .shape = {3, 8, 10}}};
    static uint8_t packed[960], scale[60], plain[960];
    all[2].dtype = PL_BF16;
    all[2].shape[1] = 16;
    all[0].data = packed;
    all[1].data = scale;
    all[2].data = plain;
    for (int i = 0; i < 5; i++) {
        pl_err   err;
        uint8_t *changed[] = {NULL, &packed[959], &scale[59], &plain[959], &plain[0]};
        if (i > 0) *changed[i] ^= 1;
        pl_weight_source *src = opened(all, 3);
        assert_ok(pl_fingerprint(print[i], src, NULL, true, &err));
        pl_weight_source_close(src);
        if (i > 0) *changed[i] ^= 1;
        for (int j = 0; j < i; j++)
            assert_string_not_equal(print[i], print[j]);
    }
}

// What is not as its name promises is no expert's.
static void test_malformed(void **state) {
    (void)state;
    static const struct {
        pl_st_source at[2];
        int          n;
    } bad[] = {
        {{{.name = LAYER "mlp.experts.gate_up_proj_blocks", .dtype = PL_U8, .rank = 4, .shape = {3, 10, 2, 16}}}, 1},
        {{{.name = LAYER "mlp.experts.gate_up_proj_blocks", .dtype = PL_U8, .rank = 4, .shape = {3, 10, 2, 16}},
          {.name = LAYER "mlp.experts.gate_up_proj_scales", .dtype = PL_U8, .rank = 3, .shape = {3, 9, 2}}},
         2},
        {{{.name = LAYER "mlp.experts.gate_up_proj_blocks", .dtype = PL_U8, .rank = 4, .shape = {3, 10, 2, 16}},
          {.name = LAYER "mlp.experts.gate_up_proj_scales", .dtype = PL_BF16, .rank = 3, .shape = {3, 10, 2}}},
         2},
        {{{.name = LAYER "mlp.experts.gate_up_proj_blocks", .dtype = PL_U8, .rank = 4, .shape = {3, 10, 2, 8}},
          {.name = LAYER "mlp.experts.gate_up_proj_scales", .dtype = PL_U8, .rank = 3, .shape = {3, 10, 2}}},
         2},
        {{{.name = LAYER "mlp.experts.gate_up_proj_blocks", .dtype = PL_BF16, .rank = 4, .shape = {3, 10, 2, 8}},
          {.name = LAYER "mlp.experts.gate_up_proj_scales", .dtype = PL_U8, .rank = 3, .shape = {3, 10, 2}}},
         2},
        {{{.name = LAYER "mlp.experts.gate_up_proj", .dtype = PL_BF16, .rank = 3, .shape = {3, 7, 9}}}, 1},
        {{{.name = LAYER "mlp.experts.gate_up_proj", .dtype = PL_BF16, .rank = 2, .shape = {3, 10}}}, 1},
        {{{.name = LAYER "mlp.experts.gate_up_proj", .dtype = PL_BF16, .rank = 3, .shape = {0, 8, 10}}}, 1},
        {{{.name = LAYER "mlp.experts.gate_up_proj", .dtype = PL_BF16, .rank = 3, .shape = {1025, 1, 2}}}, 1},
        {{{.name = LAYER "mlp.experts.gate_up_proj", .dtype = PL_BF16, .rank = 3, .shape = {3, 0, 10}}}, 1},
    };
    static uint8_t bytes[8192];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err       err;
        pl_st_source all[2];
        for (int k = 0; k < bad[i].n; k++) {
            all[k] = bad[i].at[k];
            all[k].data = bytes;
        }
        pl_weight_source *src = opened(all, bad[i].n);
        pl_weight_spec    w = matrix(LAYER "mlp.experts.0.gate_proj.weight", 5, 64);
        assert_refused(pl_weight_source_check(src, &w, 1, &err), &err,
                       LAYER "mlp.experts.0.gate_proj.weight: missing; expected a tensor of shape [5, 64]");
        assert_int_equal(pl_weight_source_count(src), bad[i].n);
        pl_weight_source_close(src);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixtral_names), cmocka_unit_test(test_stacks),    cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_fingerprints),  cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
