// Tensor cores as the emulated device has them (tests/cuda/emulate/mma.h): what is cut off, where, on which GPU.
#include "kernels/base/dtype.h"
#include "kernels/base/rng.h"
#include "tests/cuda/emulate/mma.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

// A product of one row and one column, the same in all 128 places: c + sum a[k] b[k].
static float product(const float *a, const float *b, float c, int sm) {
    pl_emu_fragments lane[32] = {0};
    for (int i = 0; i < 32; i++)
        for (int w = 0; w < 6; w++) {
            const float *from = w < 4 ? a : b;
            int          k = 2 * (i % 4) + (w < 4 ? w / 2 : w - 4) * 8;
            lane[i].factor[w] = pl_f32_to_bf16(from[k]) | (uint32_t)pl_f32_to_bf16(from[k + 1]) << 16;
        }
    for (int i = 0; i < 32; i++)
        for (int d = 0; d < 4; d++)
            lane[i].d[d] = c;
    pl_emu_multiply(lane, sm);
    for (int i = 0; i < 32; i++)
        for (int d = 0; d < 4; d++)
            assert_memory_equal(&lane[i].d[d], &lane[0].d[0], sizeof(float));
    return lane[0].d[0];
}

// c plus n products of value v from k on, also with everything 2^70 times as large, which takes the slow way.
static float many(float c, float v, int n, int first, int sm) {
    float a[16] = {0}, b[16], far[16];
    for (int k = 0; k < 16; k++)
        b[k] = 1;
    for (int k = first; k < first + n; k++)
        a[k] = v;
    for (int k = 0; k < 16; k++)
        far[k] = ldexpf(a[k], 70);
    float near = product(a, b, c, sm);
    assert_true(ldexpf(near, 70) == product(far, b, ldexpf(c, 70), sm));
    return near;
}

static void addends_are_cut_off(void **state) {
    (void)state;
    for (int sm = 80; sm <= 90; sm += 10) {
        assert_true(many(0, 3, 16, 0, sm) == 48);
        assert_true(many(1, 0x1p-23f, 1, 0, sm) == 1 + 0x1p-23f);
        assert_true(many(1, 0x1p-24f, 2, 0, sm) == 1 + 0x1p-23f); // each is kept, their sum is whole
        assert_true(many(1, 0x1p-24f, 3, 0, sm) == 1 + 0x1p-23f); // toward zero, where fp32 would round up
        assert_true(many(1, 0x1p-26f, 8, 0, sm) == 1);            // nothing is kept, where 2^-23 is due
        assert_true(many(-1, -0x1p-24f, 3, 0, sm) == -1 - 0x1p-23f);
    }
    assert_true(many(1, 0x1p-25f, 4, 0, 80) == 1); // 24 bits
    assert_true(many(1, 0x1p-25f, 4, 0, 90) == 1 + 0x1p-23f);
    assert_true(many(1, -0x1p-25f, 1, 0, 80) == 1);
    assert_true(many(1, -0x1p-25f, 1, 0, 90) == 1 - 0x1p-24f);
}

// sm_80 takes 8 products, then 8; sm_90 all of them.
static void halves(void **state) {
    (void)state;
    assert_true(many(1, 0x1p-24f, 2, 7, 80) == 1); // one in each half: cut off twice
    assert_true(many(1, 0x1p-24f, 2, 7, 90) == 1 + 0x1p-23f);
    assert_true(many(1, 0x1p-24f, 2, 8, 80) == 1 + 0x1p-23f);
}

static void ends_of_the_range(void **state) {
    (void)state;
    float a[16] = {0}, b[16] = {0};
    for (int sm = 80; sm <= 90; sm += 10) {
        assert_true(product(a, b, 0.3f, sm) == 0.3f);
        a[3] = INFINITY, b[3] = 1;
        assert_true(isinf(product(a, b, 1, sm)));
        b[3] = 0;
        assert_true(isnan(product(a, b, 1, sm)));
        a[3] = 1, b[3] = NAN;
        assert_true(isnan(product(a, b, 1, sm)));
        a[3] = 0x1p-100f, b[3] = 0x1p-20f;
        assert_true(product(a, b, 0, sm) == 0x1p-120f);
        a[3] = b[3] = 0x1p-100f;
        assert_true(product(a, b, 0x1p-140f, sm) == 0x1p-140f);
        a[3] = b[3] = 0;
    }
}

// A chain of products of values of one sign: the error is as large as it can be, within what mma.h says, and one-sided.
static void errors_are_within_their_bound(void **state) {
    (void)state;
    enum { CHAIN = 64 };
    for (int sm = 80; sm <= 90; sm += 10) {
        double worst = 0;
        for (uint64_t turn = 0; turn < 20; turn++) {
            pl_rng rng = pl_rng_make(turn, PL_STREAM_TEST, 5);
            double truth = 0;
            float  c = 0;
            for (uint64_t n = 0; n < CHAIN; n++) {
                float a[16], b[16];
                for (uint64_t k = 0; k < 16; k++) {
                    a[k] = pl_round_bf16(fabsf(pl_rng_normal(rng, n * 32 + k)));
                    b[k] = pl_round_bf16(fabsf(pl_rng_normal(rng, n * 32 + 16 + k)));
                    truth += (double)a[k] * (double)b[k];
                }
                c = product(a, b, c, sm);
            }
            assert_true((double)c <= truth);
            worst = fmax(worst, (truth - (double)c) / truth);
        }
        double bound = pl_emu_multiply_error(sm, CHAIN);
        print_message("sm_%d: %d products in a chain: off by %.2g at most, the bound is %.2g\n", sm, CHAIN, worst,
                      bound);
        assert_true(worst <= bound);
        assert_true(worst > bound / 40); // the bound says something
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addends_are_cut_off),
        cmocka_unit_test(halves),
        cmocka_unit_test(ends_of_the_range),
        cmocka_unit_test(errors_are_within_their_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
