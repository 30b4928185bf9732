#include "kernels/op/elementwise.h"
#include "kernels/op/rope.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { POSITIONS = 300 };

typedef struct shape {
    int rows, n_rot, n_rest, hd, offset, part; // part: elements of a head that are rotated, 0: all
} shape;

static pl_dtype held; // of the caches of what is built next

static int turned_of(const shape *s) {
    return s->part ? s->part : s->hd;
}

static const shape shapes[] = {
    {1, 1, 0, 2, 0, 0},   {3, 2, 1, 6, 5, 0}, {33, 5, 2, 62, 0, 0},   {31, 3, 1, 64, 7, 0}, {65, 9, 3, 64, 1, 0},
    {7, 6, 2, 128, 3, 0}, {5, 2, 1, 6, 1, 2}, {33, 3, 2, 128, 0, 96}, {31, 3, 1, 64, 7, 2},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static pl_rope_args make(op_run *r, const shape *s, pl_tensor qkv) {
    pl_rope_args a = {.qkv = qkv, .n_rot = s->n_rot, .hd = s->hd, .offset = s->offset};
    pl_rope_spec spec = {.theta = 10000, .hd = turned_of(s)};
    a.cos = op_place(r, POSITIONS, turned_of(s) / 2);
    a.sin = op_place(r, POSITIONS, turned_of(s) / 2);
    pl_rope_table(a.cos.data, a.sin.data, a.cos.dtype, &spec, POSITIONS);
    a.pos = op_ids(r, s->rows, 0, POSITIONS - s->offset);
    return a;
}

// The producer of qkv is a gather, as a linear layer is in a model.
static void build(op_run *r, const void *arg) {
    const shape   *s = arg;
    pl_tensor      x = op_leaf(r, s->rows, (s->n_rot + s->n_rest) * s->hd, 0, 1);
    const int32_t *same = op_ids(r, s->rows, 0, s->rows);
    pl_rope_args   a = make(r, s, pl_gather(op_ctx(r), x, same, s->rows));
    pl_rope(op_ctx(r), &a);
    op_out(r, a.qkv);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        op_check(build, s, 0, "rope %d rows, %d+%d heads of %d, %d of them, offset %d", s->rows, s->n_rot, s->n_rest,
                 s->hd, turned_of(s), s->offset);
    }
}

static void before_and_after(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_rope_args a = make(r, s, op_constant(r, s->rows, (s->n_rot + s->n_rest) * s->hd, 1));
    op_out(r, a.qkv);
    pl_rope(op_ctx(r), &a);
    op_out(r, a.qkv);
    op_out_i32(r, a.pos, s->rows);
}

// Each pair (i, i + hd/2) turns by (pos + offset) * theta^(-2i/hd); what follows the rotated heads stays.
static void values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b / 2)); b++) {
        const shape s = {5, 3, 2, 8, 11, b % 2 ? 6 : 0};
        op_run     *r = op_run_once(before_and_after, &s, be, 1, OP_NO_TAPE);
        int         width = (s.n_rot + s.n_rest) * s.hd, part = turned_of(&s), half = part / 2;
        double      tol = be->real == PL_F64 ? 1e-13 : 1e-6;
        for (int m = 0; m < s.rows; m++)
            for (int k = 0; k < width; k++) {
                int i = k % s.hd, pair = i % half, low = m * width + k - i + pair, high = i < part ? low + half : low;
                double angle = (op_value(r, 2, m) + s.offset) * pow(10000, -2.0 * pair / part);
                double x = op_value(r, 0, low), y = op_value(r, 0, high);
                double turned = i < half ? x * cos(angle) - y * sin(angle) : y * cos(angle) + x * sin(angle);
                bool   turns = k < s.n_rot * s.hd && i < part;
                double expected = turns ? turned : op_value(r, 0, m * width + k);
                assert_true(fabs(op_value(r, 1, m * width + k) - expected) <= tol);
            }
        op_run_free(r);
    }
}

// Rows alternate between two sessions' caches, at slots in no order; the last of a row's vectors are values.
enum { SLOTS = 50 };

static void kept(op_run *r, const void *arg) {
    const shape *s = arg;
    const int    kv = s->n_rest * s->hd;
    pl_rope_args a = make(r, s, op_constant(r, s->rows, (s->n_rot + s->n_rest) * s->hd, 1));
    pl_tensor    cache[4];
    for (int i = 0; i < 4; i++)
        cache[i] = op_cache(r, SLOTS, kv, held);
    pl_kvrow *row = op_bytes(r, (size_t)s->rows * sizeof *row);
    for (int m = 0; m < s->rows; m++)
        row[m] =
            (pl_kvrow){cache[m % 2 * 2].data, cache[m % 2 * 2 + 1].data, NULL, 0, 1, (m / 2 * 7 + 2) % SLOTS, held};
    a.row = row;
    pl_rope(op_ctx(r), &a);
    op_out(r, a.qkv);
    for (int i = 0; i < 4; i++)
        op_out_cache(r, cache[i]);
}

static double as_held(double x, pl_dtype t) {
    return t == PL_BF16 ? (double)pl_round_bf16((float)x) : x;
}

static void rows_are_kept(void **state) {
    (void)state;
    const pl_backend *be;
    held = PL_F32;
    for (int i = 0; i < SHAPES; i++)
        if (shapes[i].n_rest > 0)
            op_check(kept, &shapes[i], OP_NO_TAPE, "rope, kept: %d rows, %d+%d heads of %d, %d of them", shapes[i].rows,
                     shapes[i].n_rot, shapes[i].n_rest, shapes[i].hd, turned_of(&shapes[i]));
    for (int b = 0; (be = op_backend(b / 4)); b++) {
        const shape s = {5, 3, 2, 8, 11, b % 2 ? 6 : 0};
        const int   width = (s.n_rot + s.n_rest) * s.hd, kv = s.n_rest * s.hd;
        held = b % 4 / 2 ? PL_BF16 : PL_F32;
        op_run *r = op_run_once(kept, &s, be, 1, OP_NO_TAPE),
               *bare = op_run_once(before_and_after, &s, be, 1, OP_NO_TAPE);
        for (int m = 0; m < s.rows; m++)
            for (int i = 0; i < kv; i++) {
                const int at = (m / 2 * 7 + 2) % SLOTS * kv + i, k = (m + 1) * width - 2 * kv + i;
                assert_true(op_value(r, 1 + m % 2 * 2, at) == as_held(op_value(r, 0, k), held));
                assert_true(op_value(r, 2 + m % 2 * 2, at) == as_held(op_value(r, 0, k + kv), held));
            }
        for (int k = 0; k < s.rows * width; k++) // and rotated as without
            assert_true(op_value(r, 0, k) == op_value(bare, 1, k));
        for (int i = 0; i < kv; i++) // slot 0 was nobody's
            for (int m = 0; m < s.rows; m++)
                assert_true(op_value(r, 1, i) != as_held(op_value(r, 0, (m + 1) * width - 2 * kv + i), held));
        op_run_free(r);
        op_run_free(bare);
    }
}

// What caches in bf16 hold is the nearest to what was put there, whatever it is, on every backend.
static const float put_there[] = {1.0f,        0x1.01p0f,    0x1.03p0f, -0x1.03p0f, 0x1.00ffp0f, 0x1.0101p0f,
                                  0x1p-126f,   0x1.01p-127f, 0x1p-149f, -0x1p-140f, 0.0f,        -0.0f,
                                  0x1.fep127f, 0x1.ffp127f,  -INFINITY, NAN};
enum { PUT = sizeof put_there / sizeof *put_there };

static void rounded(op_run *r, const void *arg) {
    (void)arg;
    pl_tensor qkv = op_place(r, 1, 3 * PUT), cache[2] = {op_cache(r, 1, PUT, PL_BF16), op_cache(r, 1, PUT, PL_BF16)};
    pl_kvrow *row = op_bytes(r, sizeof *row);
    *row = (pl_kvrow){cache[0].data, cache[1].data, NULL, 0, 1, 0, PL_BF16};
    for (int i = 0; i < 3 * PUT; i++)
        if (qkv.dtype == PL_F64)
            pl_f64(&qkv)[i] = (double)put_there[i % PUT];
        else
            pl_f32(&qkv)[i] = put_there[i % PUT];
    op_keep(r, qkv, row, 1, 1, PUT);
    op_out_cache(r, cache[0]);
    op_out_cache(r, cache[1]);
}

static void rounded_to_nearest_even(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        op_run *r = op_run_once(rounded, NULL, be, 1, OP_NO_TAPE);
        for (int i = 0; i < 2 * PUT; i++) {
            double expected = (double)pl_round_bf16(put_there[i % PUT]), got = op_value(r, i / PUT, i % PUT);
            bool   same = isnan(expected) ? isnan(got) : got == expected && !signbit(got) == !signbit(expected);
            if (!same) fail_msg("%s holds %a as %a", be->name, (double)put_there[i % PUT], got);
        }
        op_run_free(r);
    }
}

static double frequency(const pl_rope_spec *spec, int i) { // from the table at position 1
    static double c[2 * 64], s[2 * 64];
    pl_rope_table(c, s, PL_F64, spec, 2);
    return atan2(s[spec->hd / 2 + i], c[spec->hd / 2 + i]);
}

static void close_to(double x, double expected) {
    assert_true(fabs(x - expected) <= 1e-12 * expected + 1e-17);
}

static void scalings(void **state) {
    (void)state;
    pl_rope_spec plain = {.theta = 10000, .hd = 64};
    close_to(frequency(&plain, 0), 1);
    close_to(frequency(&plain, 16), 0.01);
    const double divisor[] = {1, 2.5, 4};
    pl_rope_spec long_rope = {.theta = 10000, .hd = 6, .scaling = PL_ROPE_LONG, .divisor = divisor, .attention = 1.25};
    double       c[6], d[6];
    pl_rope_table(c, d, PL_F64, &long_rope, 2);
    for (int i = 0; i < 3; i++) {
        double angle = pow(10000, -2.0 * i / 6) / divisor[i];
        assert_true(c[i] == 1.25 && d[i] == 0);
        assert_true(fabs(c[3 + i] - 1.25 * cos(angle)) < 1e-15 && fabs(d[3 + i] - 1.25 * sin(angle)) < 1e-15);
    }
    pl_rope_spec linear = {.theta = 10000, .hd = 64, .scaling = PL_ROPE_LINEAR, .factor = 4};
    close_to(frequency(&linear, 16), 0.0025);
    // Llama 3.1's parameters on 64-wide heads (Llama 3.2 1B has factor 32): short wavelengths kept, long ones divided
    // by the factor, those between blended. Values from the published formula.
    pl_rope_spec llama = {.theta = 500000,
                          .hd = 64,
                          .scaling = PL_ROPE_LLAMA3,
                          .factor = 8,
                          .low_freq_factor = 1,
                          .high_freq_factor = 4,
                          .original_positions = 8192};
    close_to(frequency(&llama, 0), 1);
    close_to(frequency(&llama, 14), 0.0032114459947525913);
    close_to(frequency(&llama, 15), 0.0013718935677611381);
    close_to(frequency(&llama, 16), 0.0005248461609929547);
    close_to(frequency(&llama, 17), 0.00017850781276799638);
    close_to(frequency(&llama, 18), 7.78465527393245e-05);
    close_to(frequency(&llama, 31), 3.7673226901739635e-07);
}

// YaRN's frequencies and scale as transformers computes them, in float32.
static void yarn(void **state) {
    (void)state;
    static const struct {
        pl_rope_spec spec;
        double       at[11];
    } cases[] = {
        {{.theta = 1e6,
          .hd = 64,
          .scaling = PL_ROPE_YARN,
          .factor = 4,
          .original_positions = 32768,
          .beta_fast = 32,
          .beta_slow = 1,
          .attention = 1.138629436111989,
          .truncate = true},
         {1.0, 0.11547820270061493, 0.03162277862429619, 0.005154795479029417, 0.0017785303061828017,
          0.0005833333707414567, 0.0001757068675942719, 4.4456985051510856e-05, 1.8747356079984456e-05,
          5.133812464919174e-06, 3.8498163235090033e-07}},
        {{.theta = 150000,
          .hd = 64,
          .scaling = PL_ROPE_YARN,
          .factor = 32,
          .original_positions = 4096,
          .beta_fast = 32,
          .beta_slow = 1,
          .attention = 1.3465735902799727},
         {1.0, 0.15532298386096954, 0.05081327259540558, 0.006794959306716919, 0.002093792660161853,
          0.0004564839182421565, 3.830881178146228e-05, 1.818833698052913e-05, 8.635495760245249e-06,
          2.8250667583051836e-06, 3.023511396804679e-07}},
        {{.theta = 10000,
          .hd = 64,
          .scaling = PL_ROPE_YARN,
          .factor = 40,
          .original_positions = 4096,
          .beta_fast = 32,
          .beta_slow = 1,
          .attention = 0.9210423553163399,
          .truncate = true},
         {1.0, 0.23713736236095428, 0.10000000149011612, 0.026879360899329185, 0.012447956018149853,
          0.005500000435858965, 0.002249365206807852, 0.0007905694073997438, 0.00017782794020604342,
          1.8747354260995053e-05, 3.3338035336782923e-06}},
    };
    static const int pair[] = {0, 5, 8, 12, 14, 16, 18, 20, 22, 25, 31};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double table[2][64];
        for (int i = 0; i < 11; i++) {
            double f = frequency(&cases[c].spec, pair[i]);
            assert_true(fabs(f - cases[c].at[i]) <= 3e-6 * cases[c].at[i]);
        }
        pl_rope_table(table[0], table[1], PL_F64, &cases[c].spec, 2);
        for (int i = 0; i < 32; i++) // at position 0 the cosine is the scale
            assert_true(table[0][i] == cases[c].spec.attention && table[1][i] == 0);
    }
}

// Angles are made in double: at a far position the float table is the rounded double table, not float arithmetic.
static void far_positions(void **state) {
    (void)state;
    enum { FAR = 100001 };
    pl_rope_spec spec = {.theta = 500000, .hd = 4};
    float       *cf = malloc(FAR * 2 * sizeof *cf), *sf = malloc(FAR * 2 * sizeof *sf);
    assert_non_null(cf);
    assert_non_null(sf);
    pl_rope_table(cf, sf, PL_F32, &spec, FAR);
    for (int pos = 0; pos < FAR; pos += 4999)
        assert_true(cf[pos * 2] == (float)cos((double)pos) && sf[pos * 2] == (float)sin((double)pos));
    free(cf);
    free(sf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),  cmocka_unit_test(values),
        cmocka_unit_test(rows_are_kept), cmocka_unit_test(rounded_to_nearest_even),
        cmocka_unit_test(scalings),      cmocka_unit_test(yarn),
        cmocka_unit_test(far_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
