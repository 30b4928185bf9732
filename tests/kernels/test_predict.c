// Counts of kernels and the model of their time (kernels/cuda/predict), on cases that can be worked out by hand.
#include "kernels/cuda/predict/predict.h"
#include "kernels/cuda/predict/published.h"
#include "kernels/op/linear.h"
#include "kernels/op/rmsnorm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 3, WIDTH = 4096, THREADS = 1024 };

static double gpu(int name) {
    return pl_gpu(name, PL_CENTRAL);
}

static void near_to(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-9 * fabs(expected))) fail_msg("%.9g, expected %.9g", got, expected);
}

// 265 MB, of which one was written: as much of what was read goes at a copy's rate.
static void bytes_take_their_time(void **state) {
    (void)state;
    pl_predicted_kernel k = {.blocks = 264, .threads = 256};
    k.c = (pl_counted){.far = 265e6, .written = 1e6, .lead = {1e-6, 1e-6}, .trail = {2e-6, 2e-6}};
    pl_predict_kernel(&k);
    near_to(k.bytes, 265e6);
    near_to(k.seconds[PL_CENTRAL],
            gpu(PL_GPU_GAP) + 3e-6 + gpu(PL_GPU_RAMP) + 263e6 / gpu(PL_GPU_READ) + 2e6 / gpu(PL_GPU_COPY));
    assert_string_equal(k.limiter, "memory");
    assert_true(k.seconds[PL_PESSIMISTIC] > k.seconds[PL_CENTRAL]);
}

// Of a launch that waits for a small one, its first bytes and as many more as memory has time for are hidden.
static void early_launches_hide_their_first_bytes(void **state) {
    (void)state;
    static pl_prediction p;
    p = (pl_prediction){.n = 2, .launched = 2, .order = {0, 1}};
    p.k[0] = (pl_predicted_kernel){.blocks = 1, .threads = 256, .launches = 1, .early = true};
    p.k[0].c.most_path[PL_CENTRAL] = 3e-6;
    p.k[1] = (pl_predicted_kernel){.blocks = 264, .threads = 256, .launches = 1, .early = true};
    p.k[1].c = (pl_counted){.far = 100e6, .ahead = 17e6};
    for (int i = 0; i < 2; i++)
        pl_predict_kernel(&p.k[i]);
    pl_predict_sequence(&p);
    const double stream = 100e6 / gpu(PL_GPU_READ), first = gpu(PL_GPU_FAR) / gpu(PL_GPU_CLOCK);
    near_to(p.seconds[PL_CENTRAL], 2 * gpu(PL_GPU_GAP) + 3e-6 + gpu(PL_GPU_RAMP) + stream);
    near_to(p.early_seconds[PL_CENTRAL], gpu(PL_GPU_GAP) + 3e-6 + gpu(PL_GPU_EARLY_GAP) + gpu(PL_GPU_RAMP) + stream -
                                             fmin(3e-6 + gpu(PL_GPU_EARLY_GAP), first + 17e6 / gpu(PL_GPU_READ)));
    p.k[0].room = p.k[1].room = 200 << 10; // no room beside it but on the other multiprocessors
    p.k[0].blocks = 132;
    pl_predict_sequence(&p);
    near_to(p.early_seconds[PL_CENTRAL], gpu(PL_GPU_GAP) + 3e-6 + gpu(PL_GPU_EARLY_GAP) + gpu(PL_GPU_RAMP) + stream);
}

// A branch of two launches beside four: what runs while the others leave room adds its bytes' time alone.
static void branches_run_where_there_is_room(void **state) {
    (void)state;
    enum { SMALL, PRODUCT, FULL };
    static pl_prediction p;
    const double         gap = gpu(PL_GPU_GAP), early = gpu(PL_GPU_EARLY_GAP);
    p = (pl_prediction){.n = 3, .launched = 7};
    for (int i = 0; i < 3; i++) {
        p.k[i] = (pl_predicted_kernel){.blocks = i == FULL ? 264 : 8, .threads = 256, .room = 97 << 10, .early = true};
        p.k[i].c.most_path[PL_CENTRAL] = i == FULL ? 50e-6 : 3e-6;
        if (i == PRODUCT) p.k[i].c.far = 1e6;
        pl_predict_kernel(&p.k[i]);
    }
    // The branch first, as it is queued; the small launch before the full one has its room taken.
    const uint16_t order[] = {PRODUCT, PRODUCT, SMALL, SMALL, FULL, SMALL, SMALL};
    const uint8_t  way[] = {PL_ASIDE, PL_ASIDE, PL_MAIN, PL_MAIN, PL_MAIN, PL_MAIN, PL_MEETS};
    memcpy(p.order, order, sizeof order);
    memcpy(p.way, way, sizeof way);
    pl_predict_sequence(&p);
    const double bytes = 1e6 / gpu(PL_GPU_READ), small = 3e-6, main = 5 * small + 47e-6 + 2 * gap + 3 * early;
    const double room = gap + small + early + small, branch = gap + small + early + small;
    assert_true(room >= branch - 1e-12);
    near_to(p.early_seconds[PL_CENTRAL], main + 2 * bytes);
    near_to(p.seconds[PL_CENTRAL], 7 * gap + 6 * small + 50e-6);
    p.way[5] = PL_MEETS; // one window of two: what is left of the branch comes before
    p.way[6] = PL_MAIN;
    pl_predict_sequence(&p);
    near_to(p.early_seconds[PL_CENTRAL], main + branch - (gap + small) + bytes);
}

// A block of 200 KB of shared memory has its multiprocessor alone: three times as many blocks take three times as long.
static void blocks_wait_for_room(void **state) {
    (void)state;
    double              t[2];
    pl_predicted_kernel k = {.threads = 256, .room = 200 << 10};
    for (int i = 0; i < 2; i++) {
        k.blocks = i ? 396 : 132;
        k.c = (pl_counted){.path = {1e-5 * (double)k.blocks, 0}, .most_path = {1e-5, 1e-5}};
        pl_predict_kernel(&k);
        t[i] = k.seconds[PL_CENTRAL] - gpu(PL_GPU_GAP);
    }
    near_to(t[0], 1e-5);
    near_to(t[1], 3e-5);
    assert_string_equal(k.limiter, "rounds");
}

static size_t bytes_of(const pl_tensor *t) {
    return (size_t)pl_tensor_count(t) * pl_dtype_size(t->dtype);
}

// A step over two tensors that nobody fills, run so many times and counted. It stands until the next one is counted.
static const pl_prediction *counted(const pl_backend *be, void (*step)(pl_ctx *ctx, void *arg), pl_tensor in[2],
                                    int times) {
    static pl_prediction p;
    pl_ctx               ctx;
    pl_err               err = {0};
    for (int i = 0; i < 2; i++) {
        in[i].data = pl_memory_create(be->memory, PL_LOCAL, bytes_of(&in[i]), &err);
        assert_non_null(in[i].data);
    }
    assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&ctx, step, in, &err), PL_OK);
    pl_predict_begin(&p);
    for (int i = 0; i < times; i++) {
        pl_ctx_begin(&ctx);
        step(&ctx, in);
    }
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
    pl_predict_end(&p);
    pl_ctx_fini(&ctx);
    for (int i = 0; i < 2; i++)
        pl_memory_destroy(be->memory, PL_LOCAL, in[i].data, bytes_of(&in[i]));
    return &p;
}

static void norm(pl_ctx *ctx, void *arg) {
    const pl_tensor *in = arg;
    pl_rmsnorm(ctx, in[0], in[1], 1e-5);
}

// A block a row, four values a thread: one load of x and one of g, waited for together; all of them whole sectors.
static void a_norm_is_counted(void **state) {
    (void)state;
    const pl_backend *be = pl_backend_counted();
    if (!be) skip();
    pl_tensor            in[2] = {pl_tensor_2d(NULL, PL_F32, ROWS, WIDTH), pl_tensor_1d(NULL, PL_F32, WIDTH)};
    const pl_prediction *p = counted(be, norm, in, 2);
    assert_int_equal(p->n, 1);
    assert_int_equal(p->k[0].launches, 2);
    assert_int_equal(p->k[0].blocks, ROWS);
    assert_int_equal(p->k[0].threads, THREADS);
    assert_string_equal(p->k[0].op, "rmsnorm");
    assert_int_equal(p->k[0].c.seen, ROWS);
    assert_int_equal(p->k[0].c.sampled, 1); // the others do as much
    near_to(p->k[0].c.most_rounds, 1);
    // x, g and y by 32 warps, each 512 bytes at a time; one word of rstd.
    near_to(p->k[0].c.requests, ROWS * (32 * 3 + 1));
    near_to(p->k[0].c.sectors, ROWS * (32 * 3 * 16 + 1));
    near_to(p->k[0].bytes, 0); // all of it fits the L2
    near_to(p->seconds[PL_CENTRAL], 2 * p->k[0].seconds[PL_CENTRAL]);
    assert_string_equal(p->k[0].limiter, "launch");
}

static void product(pl_ctx *ctx, void *arg) {
    const pl_tensor *in = arg;
    pl_linear(ctx, in[0], in[1]);
}

// Of M rows with a packed weight [N, K] in bf16.
static const pl_prediction *counted_product(const pl_backend *be, int64_t M, int64_t N, int64_t K) {
    pl_tensor in[2] = {pl_tensor_2d(NULL, PL_F32, M, K), pl_tensor_2d(NULL, PL_BF16, N, K)};
    in[1].layout = PL_PANELS;
    return counted(be, product, in, 1);
}

// 72 units of 128 rows by 1024 columns of bf16 over 60 blocks: twelve have two. Every byte of the weight counts, once.
static void uneven_blocks_are_counted_whole(void **state) {
    (void)state;
    const pl_backend *be = pl_backend_counted();
    if (!be) skip();
    enum { N = 9216, K = 4096 };
    const pl_prediction *p = counted_product(be, 1, N, K);
    assert_int_equal(p->n, 2); // a launch behind it adds the slices
    assert_int_equal(p->k[0].blocks, 264);
    assert_int_equal(p->k[0].c.seen, 264);
    assert_in_range(p->k[0].c.sampled, 2, 64);
    near_to(p->k[0].bytes, (double)N * K * 2);
    assert_string_equal(p->k[0].limiter, "memory");
    // Each m16n8k16 takes 512 bytes of weights; its 16 rows of 16 columns.
    near_to(p->k[0].c.products, (double)N * K / 256);
}

// 1,002 pairs of panels over 132 blocks, 7 or 8 each: too much to be looked at whole, and the first block, which has 7,
// is not like all.
static void some_blocks_stand_for_all(void **state) {
    (void)state;
    const pl_backend *be = pl_backend_counted();
    if (!be) skip();
    enum { N = 128256, K = 4096 };
    const pl_predicted_kernel *k = counted_product(be, 40, N, K)->k;
    print_message("%lld of %lld blocks, %.4f of the weight\n", (long long)k->c.seen, (long long)k->blocks,
                  k->bytes / ((double)N * K * 2));
    assert_true(k->c.seen < k->blocks);
    assert_true(fabs(k->bytes / ((double)N * K * 2) - 1) < 0.02);
}

// Compares the model with figures that others measured on Hopper, five of which share a source with constants: prints
// the errors and bounds them. Kernels that wait for arithmetic outside the tensor cores are its worst.
static void published_figures(void **state) {
    (void)state;
    double sum = 0;
    int    within = 0;
    for (int i = 0; i < pl_published_n; i++) {
        const pl_published p = pl_published_at(i);
        const double       e = pl_published_error(&p);
        print_message("%-72s %9.2f us, predicted %9.2f (%9.2f): %+.0f %%\n", p.name, 1e6 * p.seconds,
                      1e6 * p.predicted[PL_CENTRAL], 1e6 * p.predicted[PL_PESSIMISTIC], 100 * e);
        assert_true(p.predicted[PL_CENTRAL] <= p.predicted[PL_PESSIMISTIC]);
        assert_true(fabs(e) < 0.3);
        sum += fabs(e);
        within += fabs(e) < 0.1;
    }
    print_message("%d figures, %d within 10 %%, mean %.0f %%\n", pl_published_n, within, 100 * sum / pl_published_n);
    assert_true(pl_published_n >= 6 && 2 * within >= pl_published_n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_take_their_time),
                                       cmocka_unit_test(early_launches_hide_their_first_bytes),
                                       cmocka_unit_test(branches_run_where_there_is_room),
                                       cmocka_unit_test(blocks_wait_for_room),
                                       cmocka_unit_test(a_norm_is_counted),
                                       cmocka_unit_test(uneven_blocks_are_counted_whole),
                                       cmocka_unit_test(some_blocks_stand_for_all),
                                       cmocka_unit_test(published_figures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
