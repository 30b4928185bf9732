// Features in 8 bits: the bound on their error over all values, and that decoding is exact.
#include "data/dataset/mxint8.h"
#include "kernels/base/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

// Each finite value as the largest of a block, beside values from as large to nothing.
static void bound(void **state) {
    (void)state;
    double worst = 0;
    for (uint32_t bits = 0; bits < 0x7F80; bits++) {
        uint16_t x[PL_MXINT8_BLOCK], y[PL_MXINT8_BLOCK];
        uint8_t  at[PL_MXINT8_BLOCK + 1], again[PL_MXINT8_BLOCK + 1];
        double   most = pl_bf16_to_f32((uint16_t)bits);
        for (uint32_t i = 0; i < PL_MXINT8_BLOCK; i++) {
            uint32_t less = bits - bits / 7 * i / 3 - i;
            x[i] = (uint16_t)((less > bits ? i : less) | (i & 1) << 15);
            if (fabs(pl_bf16_to_f32(x[i])) > most) x[i] = 0;
        }
        pl_mxint8_encode(at, x, PL_MXINT8_BLOCK);
        pl_mxint8_decode(y, at, PL_MXINT8_BLOCK);
        for (int i = 0; i < PL_MXINT8_BLOCK; i++) {
            double error = fabs((double)pl_bf16_to_f32(x[i]) - (double)pl_bf16_to_f32(y[i]));
            if (!(error <= most / 128)) fail_msg("%04x of %04x: %04x", x[i], bits, y[i]);
            if (most > 0 && error / most > worst) worst = error / most;
        }
        pl_mxint8_encode(again, y, PL_MXINT8_BLOCK);
        pl_mxint8_decode(x, again, PL_MXINT8_BLOCK);
        assert_memory_equal(x, y, sizeof y);
    }
    print_message("largest error: %.5f of the block's largest (bound %.5f)\n", worst, 1.0 / 128);
    assert_true(worst > 0.9 / 128);
}

// By hand, with a block that is not full.
static void by_hand(void **state) {
    (void)state;
    uint16_t x[40] = {0}, y[40];
    uint8_t  at[66];
    assert_int_equal(pl_mxint8_bytes(40), 66);
    assert_int_equal(pl_mxint8_bytes(32), 33);
    x[0] = pl_f32_to_bf16(1.5f), x[1] = pl_f32_to_bf16(-1 / 64.f), x[2] = pl_f32_to_bf16(1 / 128.f);
    x[3] = pl_f32_to_bf16(3 / 128.f), x[31] = pl_f32_to_bf16(-1.9921875f);
    x[32] = 0x0001, x[39] = 0x807F; // subnormal
    pl_mxint8_encode(at, x, 40);
    const uint8_t want[] = {127, 96, 0xFF, 0, 2};
    assert_memory_equal(at, want, sizeof want); // ties to even
    assert_int_equal(at[32], 0x81);             // -127: what does not fit is cut
    assert_int_equal(at[33], 0);
    assert_int_equal(at[34], 1);
    assert_int_equal(at[41], 0x81);
    assert_int_equal(at[65], 0);
    pl_mxint8_decode(y, at, 40);
    assert_int_equal(y[0], x[0]);
    assert_int_equal(y[32], x[32]);
    assert_int_equal(y[39], x[39]);
    x[5] = 0x7F80; // infinity
    pl_mxint8_encode(at, x, 40);
    pl_mxint8_decode(y, at, 40);
    for (int i = 0; i < 32; i++)
        assert_true(isnan(pl_bf16_to_f32(y[i])));
    assert_int_equal(y[32], x[32]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bound), cmocka_unit_test(by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
