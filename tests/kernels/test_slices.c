// What a product leaves in slices (kernels/cuda/slices.cuh): whatever comes next, and whether it adds them
// or has them added, the bits are those of a device that is waited for after each op. PACELINE_TEST_DEVICE names a GPU.
#define PL_CUDA_SUFFIX emulated
#include "kernels/base/rng.h"
#include "kernels/cuda/state.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"
#include "kernels/op/rope.h"
#include "kernels/op/swiglu.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

enum { HD = 64, NARROW = 3 * HD, WIDE = 8384, SLOTS = 60, OUT = 3 }; // NARROW: queries, keys and values

typedef struct shape {
    int n, k, most; // columns, what they are sums of, and rows at most
} shape;

static const shape three_slices = {NARROW, 2100, SLOTS};
static const shape eight_slices = {NARROW, 7300, 9}; // more than a launch asks for at a time
static const shape wide_rows = {WIDE, 1088, 9};      // a norm goes twice over them, the second time in part

enum { LARGEST = 9 * WIDE }; // a result

// What comes after y = x W^T.
enum {
    DOWNLOAD,
    NORM,
    NORM_RESIDUAL,
    NORM_OF_FIRST, // y is the stream, not what is added to it
    NORM_OF_FEWER,
    ROPE,
    ROPE_ALONE, // rows that are not kept
    GATED,
    ADD,
    COPY,
    ZERO,
    WAIT,
    PRODUCT, // of the same x, whose rounded copy is used again
    BRANCH,
    USES
};

typedef struct world {
    pl_ctx    ctx;
    shape     of;
    float    *x, *h, *gain, *table, *cache; // on the device
    uint16_t *w[2];
    int32_t  *pos;
    pl_kvrow *row;
    int       m, use;
    bool      waits;    // after each op
    bool      left;     // y was left in slices
    int       n;        // results, with what they hold
    pl_tensor out[OUT]; // y first
    float     value[OUT][LARGEST], kept[2][SLOTS * HD];
} world;

static void op_done(pl_ctx *ctx, const world *t) {
    if (t->waits) pl_ctx_wait(ctx);
}

static pl_tensor product(pl_ctx *ctx, world *t, int which) {
    pl_tensor w = pl_tensor_2d(t->w[which], PL_BF16, t->of.n, t->of.k);
    w.layout = PL_PANELS;
    pl_tensor y = pl_linear(ctx, pl_tensor_2d(t->x, PL_F32, t->m, t->of.k), w);
    op_done(ctx, t);
    return y;
}

static void use(pl_ctx *ctx, world *t, pl_tensor y) {
    const int       n = t->of.n;
    const pl_tensor g = pl_tensor_1d(t->gain, PL_F32, n);
    pl_tensor       h = pl_tensor_2d(t->h, PL_F32, t->m, n), few = y, z;
    pl_rope_args    turn = {.qkv = y, .pos = t->pos, .n_rot = 2, .hd = HD, .row = t->use == ROPE ? t->row : NULL};
    turn.cos = turn.sin = pl_tensor_2d(t->table, PL_F32, SLOTS, HD / 2);
    few.dim[0] = t->m - 1;
    switch (t->use) {
    case NORM: t->out[t->n++] = pl_rmsnorm(ctx, y, g, 1e-5); break;
    case NORM_RESIDUAL:
        t->out[t->n++] = pl_rmsnorm_residual(ctx, &h, y, g, 1e-5);
        t->out[t->n++] = h;
        break;
    case NORM_OF_FIRST:
        z = h, h = y;
        t->out[t->n++] = pl_rmsnorm_residual(ctx, &h, z, g, 1e-5);
        t->out[t->n++] = h;
        break;
    case NORM_OF_FEWER: t->out[t->n++] = pl_rmsnorm(ctx, few, g, 1e-5); break;
    case ROPE:
    case ROPE_ALONE: pl_rope(ctx, &turn); break;
    case GATED: t->out[t->n++] = pl_gated(ctx, y, PL_GATE_SILU); break;
    case ADD: t->out[t->n++] = pl_add(ctx, y, h, (pl_tensor){0}); break;
    case COPY:
        t->out[t->n++] = z = pl_ctx_tensor(ctx, t->m, n);
        if (!ctx->measuring) pl_ctx_copy(ctx, z.data, y.data, (size_t)(t->m * n) * sizeof(float));
        break;
    case ZERO:
        if (!ctx->measuring) pl_ctx_zero(ctx, y.data, (size_t)(t->m * n) * sizeof(float) / 2);
        break;
    case WAIT:
        pl_ctx_wait(ctx);
        t->out[t->n++] = pl_gated(ctx, y, PL_GATE_SILU);
        break;
    case PRODUCT:
        t->out[t->n++] = z = product(ctx, t, 1);
        t->out[t->n++] = pl_rmsnorm(ctx, z, g, 1e-5);
        break;
    case BRANCH:
        if (!t->waits) pl_ctx_fork(ctx);
        z = product(ctx, t, 1);
        if (!t->waits) pl_ctx_back(ctx);
        t->out[t->n++] = pl_rmsnorm(ctx, y, g, 1e-5);
        if (!t->waits) pl_ctx_join(ctx);
        t->out[t->n++] = z;
        break;
    default: break;
    }
    op_done(ctx, t);
}

static void step(pl_ctx *ctx, void *arg) {
    world *t = arg;
    t->n = 0;
    t->out[t->n++] = product(ctx, t, 0);
    if (!ctx->measuring) t->left = ((const pl_cuda_state *)ctx->state)->slices.y == t->out[0].data;
    use(ctx, t, t->out[0]);
}

static void *put(const pl_backend *be, const void *from, size_t bytes, pl_place place) {
    void *p = pl_memory_create(be->memory, place, bytes, NULL);
    assert_non_null(p);
    assert_int_equal(pl_memory_write(be->memory, p, from, bytes, NULL), PL_OK);
    return p;
}

static float *noise(const pl_backend *be, int n, uint64_t which) {
    float *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int i = 0; i < n; i++)
        v[i] = pl_rng_normal(pl_rng_make(5, PL_STREAM_TEST, which), (uint64_t)i);
    float *there = put(be, v, (size_t)n * sizeof *v, PL_LOCAL);
    free(v);
    return there;
}

static size_t panel_bytes(shape s) {
    return (size_t)pl_panels_bytes(s.n, s.k, PL_BF16);
}

static const size_t row_bytes = SLOTS * sizeof(pl_kvrow), cache_bytes = 2 * SLOTS * HD * sizeof(float);

static uint16_t *weight(const pl_backend *be, shape s, uint64_t which) {
    float   *w = malloc((size_t)(s.n * s.k) * sizeof *w);
    uint8_t *panels = malloc(panel_bytes(s));
    assert_true(w && panels);
    for (int i = 0; i < s.n * s.k; i++)
        w[i] = pl_rng_normal(pl_rng_make(5, PL_STREAM_TEST, which), (uint64_t)i) / 32;
    pl_panels_pack(panels, PL_BF16, 0, s.n, s.n, s.k, w);
    uint16_t *there = put(be, panels, panel_bytes(s), PL_LOCAL);
    free(w);
    free(panels);
    return there;
}

static void open_world(world *t, const pl_backend *be, shape s) {
    static const uint8_t zero[2 * SLOTS * HD * sizeof(float)];
    static pl_kvrow      row[SLOTS];
    static int32_t       pos[SLOTS];
    *t = (world){.of = s,
                 .x = noise(be, s.most * s.k, 1),
                 .h = noise(be, s.most * s.n, 2),
                 .gain = noise(be, s.n, 3),
                 .table = noise(be, SLOTS * HD / 2, 4),
                 .w = {weight(be, s, 5), weight(be, s, 6)},
                 .cache = put(be, zero, cache_bytes, PL_LOCAL)};
    for (int i = 0; i < SLOTS; i++) {
        pos[i] = SLOTS - 1 - i;
        row[i] = (pl_kvrow){.k = t->cache, .v = t->cache + SLOTS * HD, .slot = pos[i]};
    }
    t->pos = put(be, pos, sizeof pos, PL_SHARED);
    t->row = put(be, row, sizeof row, PL_SHARED);
    assert_int_equal(pl_ctx_init(&t->ctx, be, NULL), PL_OK);
    // Columns that have a block to themselves are left whole: so many multiprocessors that these have not.
    pl_cuda_state *of = t->ctx.state;
    if (of->sms < s.n / 256) of->sms = s.n / 256;
}

static void close_world(world *t) {
    const pl_memory *m = t->ctx.be->memory;
    const shape      s = t->of;
    pl_ctx_fini(&t->ctx);
    pl_memory_destroy(m, PL_LOCAL, t->x, (size_t)(s.most * s.k) * sizeof *t->x);
    pl_memory_destroy(m, PL_LOCAL, t->h, (size_t)(s.most * s.n) * sizeof *t->h);
    pl_memory_destroy(m, PL_LOCAL, t->gain, (size_t)s.n * sizeof *t->gain);
    pl_memory_destroy(m, PL_LOCAL, t->table, SLOTS * HD / 2 * sizeof *t->table);
    pl_memory_destroy(m, PL_LOCAL, t->cache, cache_bytes);
    pl_memory_destroy(m, PL_LOCAL, t->w[0], panel_bytes(s));
    pl_memory_destroy(m, PL_LOCAL, t->w[1], panel_bytes(s));
    pl_memory_destroy(m, PL_SHARED, t->pos, SLOTS * sizeof *t->pos);
    pl_memory_destroy(m, PL_SHARED, t->row, row_bytes);
}

static void run(world *t, int m, int which, bool waits, bool repeats) {
    t->m = m, t->use = which, t->waits = waits;
    t->ctx.repeats = repeats;
    assert_int_equal(pl_ctx_measure(&t->ctx, step, t, NULL), PL_OK);
    pl_ctx_begin(&t->ctx);
    pl_ctx_zero(&t->ctx, t->cache, cache_bytes);
    step(&t->ctx, t);
    memset(t->value, 0, sizeof t->value);
    for (int i = 0; i < t->n; i++)
        pl_ctx_download(&t->ctx, t->value[i], t->out[i].data,
                        (size_t)t->out[i].dim[0] * (size_t)t->out[i].dim[1] * sizeof(float));
    pl_ctx_download(&t->ctx, t->kept, t->cache, cache_bytes);
    assert_int_equal(pl_ctx_sync(&t->ctx, NULL), PL_OK);
}

static void check(world *t, world *plain, int m, int which) {
    run(plain, m, which, true, false); // without a branch: nobody waits in one
    for (int repeats = 0; repeats < 2; repeats++) {
        run(t, m, which, false, repeats);
        assert_true(t->left);
        assert_int_equal(t->n, plain->n);
        for (int i = 0; i < t->n; i++)
            if (memcmp(t->value[i], plain->value[i], sizeof t->value[i]) != 0)
                fail_msg("use %d of %d rows of %d: result %d", which, m, t->of.n, i);
        assert_memory_equal(t->kept, plain->kept, sizeof t->kept);
        assert_true(isfinite(t->value[0][0]) && (t->value[0][0] != 0 || which == ZERO));
    }
}

static void same_bits(void **state) {
    static const int rows[] = {8, 9, 24, SLOTS};
    static world     plain, t;
    (void)state;
    open_world(&plain, test_device(), three_slices);
    open_world(&t, test_device(), three_slices);
    for (int r = 0; r < (int)(sizeof rows / sizeof *rows); r++)
        for (int which = 0; which < USES; which++)
            if (which != ZERO || rows[r] == SLOTS) check(&t, &plain, rows[r], which);
    close_world(&plain);
    close_world(&t);
}

static void same_bits_of(shape s, int uses, const int *use) {
    static world plain, t;
    open_world(&plain, test_device(), s);
    open_world(&t, test_device(), s);
    for (int i = 0; i < uses; i++)
        check(&t, &plain, s.most, use[i]);
    close_world(&plain);
    close_world(&t);
}

static void same_bits_of_many_slices(void **state) {
    (void)state;
    same_bits_of(eight_slices, 3, (const int[]){NORM, ROPE, GATED});
}

static void same_bits_of_wide_rows(void **state) {
    (void)state;
    same_bits_of(wide_rows, 3, (const int[]){NORM, NORM_RESIDUAL, NORM_OF_FIRST});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(same_bits_of_many_slices),
                                       cmocka_unit_test(same_bits_of_wide_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
