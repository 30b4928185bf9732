// Weights that attention asks for ahead of the product behind it (kernels/cuda/ahead.cuh).
#define PL_CUDA_SUFFIX emulated
#include "kernels/base/rng.h"
#include "kernels/cuda/emulate/queue.h"
#include "kernels/cuda/state.h"
#include "kernels/op/attention.h"
#include "kernels/op/linear.h"
#include "kernels/panels.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

enum { MOST = 70, HD = 64, NH = 4, NKV = 2, K = NH * HD, QKV = (NH + 2 * NKV) * HD, CONTEXT = 200 };
enum { SLOTS = CONTEXT + MOST };

typedef struct world {
    pl_ctx    ctx;
    float    *x, *cache;
    uint16_t *w[2];
    pl_kvrow *row;
    int       m, n; // rows; output columns
    pl_tensor out;
    float     value[MOST * QKV];
} world;

static void *put(const pl_backend *be, const void *from, size_t bytes, pl_place place) {
    void *p = pl_memory_create(be->memory, place, bytes, NULL);
    assert_non_null(p);
    assert_int_equal(pl_memory_write(be->memory, p, from, bytes, NULL), PL_OK);
    return p;
}

static float *noise(int n, uint64_t which) {
    float *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int i = 0; i < n; i++)
        v[i] = pl_rng_normal(pl_rng_make(9, PL_STREAM_TEST, which), (uint64_t)i) / 16;
    return v;
}

static void *put_noise(const pl_backend *be, int n, uint64_t which) {
    float *v = noise(n, which);
    void  *p = put(be, v, (size_t)n * sizeof *v, PL_LOCAL);
    free(v);
    return p;
}

static size_t weight_bytes(int n) {
    return pl_panels_bytes(n, K, PL_BF16);
}

static uint16_t *weight(const pl_backend *be, int n, uint64_t which) {
    float *w = noise(n * K, which);
    void  *panels = calloc(1, weight_bytes(n));
    assert_non_null(panels);
    pl_panels_pack(panels, PL_BF16, 0, n, n, K, w);
    uint16_t *p = put(be, panels, weight_bytes(n), PL_LOCAL);
    free(panels);
    free(w);
    return p;
}

static const size_t x_bytes = MOST * K * sizeof(float), cache_bytes = 2 * SLOTS * NKV * HD * sizeof(float);

static void open_world(world *t, int n) {
    const pl_backend *be = test_device();
    static pl_kvrow   row[MOST];
    *t = (world){.n = n, .x = put_noise(be, MOST * K, 1), .cache = put_noise(be, 2 * SLOTS * NKV * HD, 2)};
    t->w[0] = weight(be, QKV, 3);
    t->w[1] = weight(be, n, 4);
    for (int i = 0; i < MOST; i++)
        row[i] = (pl_kvrow){.k = t->cache, .v = t->cache + SLOTS * NKV * HD, .n_ctx = CONTEXT, .n_path = i % 8 + 1};
    t->row = put(be, row, sizeof row, PL_SHARED);
    assert_int_equal(pl_ctx_init(&t->ctx, be, NULL), PL_OK);
    t->ctx.repeats = true;
}

static void close_world(world *t) {
    const pl_memory *m = t->ctx.be->memory;
    pl_ctx_fini(&t->ctx);
    pl_memory_destroy(m, PL_LOCAL, t->x, x_bytes);
    pl_memory_destroy(m, PL_LOCAL, t->cache, cache_bytes);
    pl_memory_destroy(m, PL_LOCAL, t->w[0], weight_bytes(QKV));
    pl_memory_destroy(m, PL_LOCAL, t->w[1], weight_bytes(t->n));
    pl_memory_destroy(m, PL_SHARED, t->row, MOST * sizeof *t->row);
}

static pl_tensor product(pl_ctx *ctx, const world *t, pl_tensor x, int which) {
    pl_tensor w = pl_tensor_2d(t->w[which], PL_BF16, which ? t->n : QKV, K);
    w.layout = PL_PANELS;
    return pl_linear(ctx, x, w);
}

static void step(pl_ctx *ctx, void *arg) {
    world    *t = arg;
    pl_tensor qkv = product(ctx, t, pl_tensor_2d(t->x, PL_F32, t->m, K), 0);
    t->out = product(ctx, t, pl_attention_cached(ctx, qkv, t->row, NH, NKV, HD), 1);
}

// A step, and the bytes that it asked for.
static uint64_t run(world *t, float *value) {
    const uint64_t before = pl_emu_prefetched();
    pl_ctx_begin(&t->ctx);
    step(&t->ctx, t);
    pl_ctx_download(&t->ctx, value, t->out.data, (size_t)t->m * (size_t)t->n * sizeof *value);
    assert_int_equal(pl_ctx_sync(&t->ctx, NULL), PL_OK);
    return pl_emu_prefetched() - before;
}

// Every byte of the next weight that has room is asked for once a step, by few queries as by many, from the first step
// on; where nothing is known nothing is, and the bits are the same.
static void the_next_weight_is_asked_for(void **state) {
    static const int rows[] = {1, 3, 40, MOST}, columns[] = {64, QKV};
    static float     plain[MOST * QKV];
    static world     t;
    (void)state;
    if (getenv("PACELINE_TEST_DEVICE") && strcmp(getenv("PACELINE_TEST_DEVICE"), "emulated") != 0) skip();
    for (int c = 0; c < 2; c++)
        for (int r = 0; r < (int)(sizeof rows / sizeof *rows); r++) {
            open_world(&t, columns[c]);
            t.m = rows[r];
            assert_int_equal(pl_ctx_measure(&t.ctx, step, &t, NULL), PL_OK);
            const size_t room = ((const pl_cuda_state *)t.ctx.state)->ahead_bytes, all = weight_bytes(t.n);
            assert_true(c == 0 ? all < room : all > room);
            for (int i = 0; i < 2; i++)
                assert_int_equal(run(&t, t.value), (all < room ? all : room) / 16 * 16);
            memset(&t.ctx.trail, 0, sizeof t.ctx.trail);
            assert_int_equal(run(&t, plain), 0);
            assert_memory_equal(plain, t.value, (size_t)t.m * (size_t)t.n * sizeof *plain);
            close_world(&t);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_next_weight_is_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
