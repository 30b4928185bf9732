// Panels held as codes: their values, and every op that reads them, at every level and for any number of rows, to the
// bit as over plain panels of the same values.
#include "kernels/base/arena.h"
#include "kernels/base/rng.h"
#include "kernels/codes.h"
#include "kernels/op/experts.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/headtopk.h"
#include "kernels/op/linear.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const pl_code forms[] = {PL_CODE_4, PL_CODE_4_MINIMA, PL_CODE_4_WIDE, PL_CODE_8, PL_CODE_8_WIDE};
enum { FORMS = sizeof forms / sizeof *forms };

static void fill(float *p, int64_t n, uint64_t stream) {
    pl_rng r = pl_rng_make(7, PL_STREAM_TEST, stream);
    for (int64_t i = 0; i < n; i++)
        p[i] = pl_rng_normal(r, (uint64_t)i);
}

static float half_of(float x) {
    uint16_t h;
    pl_from_f32(&h, PL_F16, &x, 1);
    return pl_f16_to_f32(h);
}

// Random codes; scales of few bits among them, whose values lie between two of bf16, and zero, and the least of fp16.
static void draw_row(pl_code_row *row, pl_code code, uint64_t at) {
    pl_code_form f = pl_code_form_of(code);
    pl_rng       r = pl_rng_make(11, PL_STREAM_TEST, (uint64_t)code);
    float        x[4];
    for (int i = 0; i < 4; i++)
        x[i] = pl_rng_normal(r, at * 64 + (uint64_t)i) / 16;
    if (at % 5 == 0) x[0] = x[1] = 0.0078125f * (float)(1 + at % 3 * 32);
    if (at % 7 == 0) x[0] = 0;
    if (at % 11 == 0) x[0] = 0x1p-24f;
    for (int i = 0; i < 3; i++)
        x[i] = f.scale == PL_F16 ? half_of(x[i]) : half_of(x[i]) * (float)(3 + at % 60);
    *row = (pl_code_row){.scale = {x[0], x[1]}, .minimum = x[2]};
    for (int i = 0; i < PL_CODE_BLOCK; i++)
        row->u[i] = (uint8_t)(fabsf(pl_rng_normal(r, at * 64 + 8 + (uint64_t)i)) * 1000) & ((1 << f.bits) - 1);
}

// A matrix as codes and as plain panels of the same values, which are computed from the definition here.
typedef struct both {
    pl_tensor codes, plain;
} both;

static both make(pl_code code, pl_layout layout, int64_t n, int64_t k, uint64_t seed) {
    pl_code_form f = pl_code_form_of(code);
    both         b = {.codes = pl_tensor_2d(NULL, PL_BF16, n, k)};
    float       *values = pl_malloc((size_t)(n * k) * sizeof *values);
    b.codes.layout = layout;
    b.plain = b.codes;
    b.codes.code = code;
    b.codes.data = pl_block_create(pl_packed_bytes(&b.codes), NULL);
    b.plain.data = pl_block_create(pl_packed_bytes(&b.plain), NULL);
    assert_non_null(values);
    assert_true(b.codes.data && b.plain.data);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < k / PL_CODE_BLOCK; i++) {
            pl_code_row row;
            draw_row(&row, code, seed + (uint64_t)(r * k + i));
            pl_codes_put(b.codes.data, code, layout == PL_GATED ? pl_gated_place(r, n) : r, i, k, &row);
            for (int c = 0; c < PL_CODE_BLOCK; c++) {
                double scale = row.scale[c / f.group];
                double least = f.minima ? (double)row.minimum : -scale * (1 << (f.bits - 1));
                values[r * k + i * PL_CODE_BLOCK + c] = (float)(scale * row.u[c] + least); // exact in double
            }
        }
    pl_panels_pack_as(layout, b.plain.data, PL_BF16, 0, n, n, k, values);
    pl_free(values);
    return b;
}

static void drop(both *b) {
    pl_block_destroy(b->codes.data, pl_packed_bytes(&b->codes));
    pl_block_destroy(b->plain.data, pl_packed_bytes(&b->plain));
}

static void values_are_the_definition(void **state) {
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        both b = make(forms[i], PL_PANELS, 70, 96, 0);
        for (int64_t n = 0; n < 70; n++)
            for (int64_t k = 0; k < 96; k++)
                assert_true(pl_codes_at(b.codes.data, forms[i], n, k, 96) ==
                            pl_panels_at(b.plain.data, PL_BF16, n, k, 96));
        assert_true(pl_packed_bytes(&b.codes) < pl_packed_bytes(&b.plain));
        drop(&b);
    }
}

// The kernels' way to round, of all numbers between two powers of two and of either sign; others are these, scaled.
static void split_rounds_to_even(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 1u << 24; i++) {
        uint32_t bits = (i & 1) << 31 | (0x3f800000u + (i >> 1));
        float    v;
        memcpy(&v, &bits, sizeof v);
        volatile float c = 65537 * v, less = c - v;
        if (c - less != pl_round_bf16(v)) fail_msg("%a becomes %a", (double)v, (double)(c - less));
    }
}

// ---- the ops: y over either ----

typedef struct work {
    int     op;
    int64_t m;
    both    w, down;
    float  *x;
} work;

enum { LINEAR, GATED, MLP, HEADTOPK, GATHERDOT, GROUPED, OPS, TOP = 5 };

static int64_t width_of(const work *w) {
    const int64_t n = w->w.codes.dim[0];
    return w->op == GATED ? n / 2 : w->op == MLP ? w->down.codes.dim[0] : w->op == HEADTOPK ? 2 * TOP : n;
}

static void run_op(pl_ctx *ctx, const work *w, bool codes, float *y) {
    pl_tensor of = codes ? w->w.codes : w->w.plain, down = codes ? w->down.codes : w->down.plain;
    pl_tensor x = pl_tensor_2d(w->x, PL_F32, w->m, of.dim[1]), z = pl_tensor_2d(y, PL_F32, w->m, width_of(w));
    int32_t   id[64 * 200], first[3] = {0, (int32_t)(w->m / 3), (int32_t)w->m};
    float     value[64 * TOP];
    pl_tensor two[2] = {of, of};
    for (int i = 0; i < w->m * of.dim[0] && w->op == GATHERDOT; i++)
        id[i] = (int32_t)((i * 37) % of.dim[0]);
    if (w->op == LINEAR) ctx->be->fwd[PL_OP_LINEAR](ctx, &(pl_linear_args){.x = x, .w = of, .y = z});
    if (w->op == GATED || w->op == MLP) {
        pl_gatedlinear_args a = {.x = x, .w = of, .y = z};
        if (w->op == MLP) a.down = down;
        ctx->be->fwd[PL_OP_GATEDLINEAR](ctx, &a);
    }
    if (w->op == GATHERDOT) ctx->be->fwd[PL_OP_GATHERDOT](ctx, &(pl_gatherdot_args){.x = x, .w = of, .y = z, .id = id});
    if (w->op == GROUPED)
        ctx->be->fwd[PL_OP_GROUPED](ctx, &(pl_grouped_args){.x = x, .w = two, .y = z, .first = first, .n = 2});
    if (w->op != HEADTOPK) return;
    pl_headtopk_args a = {.x = x, .w = of, .k = TOP, .id = id, .value = value};
    ctx->be->fwd[PL_OP_HEADTOPK](ctx, &a);
    for (int64_t i = 0; i < w->m * TOP && !ctx->measuring; i++) {
        y[i] = value[i];
        y[w->m * TOP + i] = (float)id[i];
    }
}

typedef struct call {
    const work *w;
    bool        codes;
    float      *y;
} call;

static void run_call(pl_ctx *ctx, void *arg) {
    call *c = arg;
    run_op(ctx, c->w, c->codes, c->y);
}

static void product(const pl_backend *be, pl_pool *pool, const work *w, bool codes, float *y) {
    pl_ctx ctx;
    work   most = *w; // a step has no more rows than were measured
    call   c = {&most, codes, y};
    most.m = 64;
    assert_int_equal(pl_ctx_init(&ctx, be, pool), PL_OK);
    ctx.scratch.guard = true;
    assert_int_equal(pl_ctx_measure(&ctx, run_call, &c, NULL), PL_OK);
    c.w = w;
    for (int far = 0; far < 2; far++) {
        if (far) ctx.trail.cache = 0;
        run_call(&ctx, &c);
    }
    assert_int_equal(ctx.scratch.used, 0);
    ctx.scratch.used = ctx.scratch.peak;
    assert_true(pl_arena_check(&ctx.scratch));
    pl_ctx_fini(&ctx);
}

static void check(const work *w, const pl_backend *be, const char *level, int threads) {
    size_t   bytes = (size_t)(w->m * width_of(w)) * sizeof(float);
    float   *want = pl_block_create(bytes, NULL), *y = pl_block_create(bytes, NULL);
    pl_pool *pool = NULL;
    assert_true(want && y);
    if (threads > 1) assert_int_equal(pl_pool_create(&pool, threads, NULL), PL_OK);
    memset(y, 0xff, bytes);
    product(be, pool, w, false, want);
    product(be, pool, w, true, y);
    for (int64_t i = 0; i < w->m * width_of(w); i++)
        if (memcmp(y + i, want + i, sizeof *y) != 0)
            fail_msg("op %d, code %d, %s, %lld rows, %lld columns: element %lld is %a, not %a", w->op,
                     (int)w->w.codes.code, level, (long long)w->m, (long long)w->w.codes.dim[1], (long long)i,
                     (double)y[i], (double)want[i]);
    pl_pool_destroy(pool);
    pl_block_destroy(want, bytes);
    pl_block_destroy(y, bytes);
}

static void check_op(int op, int64_t n, int64_t k, const int *rows, int count) {
    const char *level;
    for (int i = 0; i < FORMS; i++) {
        work w = {.op = op, .w = make(forms[i], op == GATED || op == MLP ? PL_GATED : PL_PANELS, n, k, 0)};
        if (op == MLP) w.down = make(forms[(i + 1) % FORMS], PL_PANELS, 40, n / 2, 99);
        w.x = pl_malloc((size_t)(64 * k) * sizeof(float));
        assert_non_null(w.x);
        fill(w.x, 64 * k, 5);
        for (int l = -1; l < 0 || (level = pl_backend_cpu_level(l)); l++) {
            const pl_backend *be = l < 0 ? pl_backend_ref() : pl_backend_cpu_isa(level);
            for (int r = 0; be && r < count && (l >= 0 || r < 2); r++) {
                w.m = rows[r];
                check(&w, be, l < 0 ? "ref" : level, 1 + r % 3);
            }
        }
        drop(&w.w);
        if (op == MLP) drop(&w.down);
        pl_free(w.x);
    }
}

static void any_rows(void **state) {
    (void)state;
    int rows[64];
    for (int i = 0; i < 64; i++)
        rows[i] = i + 1;
    check_op(LINEAR, 100, 160, rows, 64);
}

static void any_columns(void **state) {
    (void)state;
    static const int rows[] = {1, 3, 7, 40};
    static const int columns[] = {32, 64, 96, 544, 1120};
    for (int i = 0; i < 5; i++)
        check_op(LINEAR, 130, columns[i], rows, 4);
}

static void every_op(void **state) {
    (void)state;
    static const int rows[] = {1, 2, 3, 5, 8, 17, 40, 64};
    for (int op = LINEAR + 1; op < OPS; op++)
        check_op(op, op == MLP ? 192 : 200, op == MLP ? 576 : 96, rows, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_definition),
        cmocka_unit_test(split_rounds_to_even),
        cmocka_unit_test(any_rows),
        cmocka_unit_test(any_columns),
        cmocka_unit_test(every_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
