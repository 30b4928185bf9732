// What a product of many rows leaves in slices (kernels/cuda/slices.cuh): whatever comes next, and whether it adds them
// or has them added, the bits are those of a device that is waited for after each op. PACELINE_TEST_DEVICE names a GPU.
#define PL_CUDA_SUFFIX emulated
#include "kernels/base/rng.h"
#include "kernels/cuda/state.h"
#include "kernels/op/add.h"
#include "kernels/op/linear.h"
#include "kernels/op/rmsnorm.h"
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

enum { MOST = 60, K = 2100, HD = 64, N = 3 * HD, SLOTS = MOST, OUT = 3 }; // three slices; queries, keys and values

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
    float    *x, *h, *gain, *table, *cache; // on the device
    uint16_t *w[2];
    int32_t  *pos;
    pl_kvrow *row;
    int       m, use;
    bool      waits;    // after each op
    bool      left;     // y was left in slices
    int       n;        // results, with what they hold
    pl_tensor out[OUT]; // y first
    float     value[OUT][MOST * N], kept[2][SLOTS * HD];
} world;

static void op_done(pl_ctx *ctx, const world *t) {
    if (t->waits) pl_ctx_wait(ctx);
}

static pl_tensor product(pl_ctx *ctx, world *t, int which) {
    pl_tensor w = pl_tensor_2d(t->w[which], PL_BF16, N, K);
    w.layout = PL_PANELS;
    pl_tensor y = pl_linear(ctx, pl_tensor_2d(t->x, PL_F32, t->m, K), w);
    op_done(ctx, t);
    return y;
}

static void use(pl_ctx *ctx, world *t, pl_tensor y) {
    const pl_tensor g = pl_tensor_1d(t->gain, PL_F32, N);
    pl_tensor       h = pl_tensor_2d(t->h, PL_F32, t->m, N), few = y, z;
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
        t->out[t->n++] = z = pl_ctx_tensor(ctx, t->m, N);
        if (!ctx->measuring) pl_ctx_copy(ctx, z.data, y.data, (size_t)t->m * N * sizeof(float));
        break;
    case ZERO:
        if (!ctx->measuring) pl_ctx_zero(ctx, y.data, (size_t)t->m * N * sizeof(float) / 2);
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

static float *noise(const pl_backend *be, int n, float scale, uint64_t which) {
    static float v[MOST * K];
    for (int i = 0; i < n; i++)
        v[i] = scale * pl_rng_normal(pl_rng_make(5, PL_STREAM_TEST, which), (uint64_t)i);
    return put(be, v, (size_t)n * sizeof *v, PL_LOCAL);
}

static const size_t panel_bytes = (size_t)N * K * sizeof(uint16_t), row_bytes = MOST * sizeof(pl_kvrow),
                    cache_bytes = 2 * SLOTS * HD * sizeof(float);

static uint16_t *weight(const pl_backend *be, uint64_t which) {
    static float   w[N * K];
    static uint8_t panels[N * K * sizeof(uint16_t)];
    assert_int_equal(pl_panels_bytes(N, K, PL_BF16), panel_bytes);
    for (int i = 0; i < N * K; i++)
        w[i] = pl_rng_normal(pl_rng_make(5, PL_STREAM_TEST, which), (uint64_t)i) / 32;
    pl_panels_pack(panels, PL_BF16, 0, N, N, K, w);
    return put(be, panels, panel_bytes, PL_LOCAL);
}

static void open_world(world *t, const pl_backend *be) {
    static const uint8_t zero[2 * SLOTS * HD * sizeof(float)];
    static pl_kvrow      row[MOST];
    static int32_t       pos[MOST];
    *t = (world){.x = noise(be, MOST * K, 1, 1), .h = noise(be, MOST * N, 1, 2), .gain = noise(be, N, 1, 3)};
    t->table = noise(be, SLOTS * HD / 2, 1, 4);
    t->w[0] = weight(be, 5);
    t->w[1] = weight(be, 6);
    t->cache = put(be, zero, cache_bytes, PL_LOCAL);
    for (int i = 0; i < MOST; i++) {
        pos[i] = MOST - 1 - i;
        row[i] = (pl_kvrow){.k = t->cache, .v = t->cache + SLOTS * HD, .slot = pos[i]};
    }
    t->pos = put(be, pos, sizeof pos, PL_SHARED);
    t->row = put(be, row, sizeof row, PL_SHARED);
    assert_int_equal(pl_ctx_init(&t->ctx, be, NULL), PL_OK);
}

static void close_world(world *t) {
    const pl_memory *m = t->ctx.be->memory;
    pl_ctx_fini(&t->ctx);
    pl_memory_destroy(m, PL_LOCAL, t->x, MOST * K * sizeof *t->x);
    pl_memory_destroy(m, PL_LOCAL, t->h, MOST * N * sizeof *t->h);
    pl_memory_destroy(m, PL_LOCAL, t->gain, N * sizeof *t->gain);
    pl_memory_destroy(m, PL_LOCAL, t->table, SLOTS * HD / 2 * sizeof *t->table);
    pl_memory_destroy(m, PL_LOCAL, t->cache, cache_bytes);
    pl_memory_destroy(m, PL_LOCAL, t->w[0], panel_bytes);
    pl_memory_destroy(m, PL_LOCAL, t->w[1], panel_bytes);
    pl_memory_destroy(m, PL_SHARED, t->pos, MOST * sizeof *t->pos);
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

static void same_bits(void **state) {
    static const int  rows[] = {8, 9, 24, MOST};
    static world      plain, t;
    const pl_backend *be = test_device();
    (void)state;
    open_world(&plain, be);
    open_world(&t, be);
    for (int r = 0; r < (int)(sizeof rows / sizeof *rows); r++)
        for (int which = 0; which < USES; which++) {
            if (which == ZERO && rows[r] < MOST) continue;
            run(&plain, rows[r], which, true, false); // without a branch: nobody waits in one
            for (int repeats = 0; repeats < 2; repeats++) {
                run(&t, rows[r], which, false, repeats);
                assert_int_equal(t.left, rows[r] > 8);
                assert_int_equal(t.n, plain.n);
                for (int i = 0; i < t.n; i++)
                    if (memcmp(t.value[i], plain.value[i], sizeof t.value[i]) != 0)
                        fail_msg("use %d of %d rows: result %d", which, rows[r], i);
                assert_memory_equal(t.kept, plain.kept, sizeof t.kept);
                assert_true(isfinite(t.value[0][0]) && (t.value[0][0] != 0 || which == ZERO));
            }
        }
    close_world(&plain);
    close_world(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
