// How far linear is from what the machine allows. For each shape and number of rows: the time of one product beside its
// floor, the larger of (weight bytes / read bandwidth over that many bytes) and (operations / fma peak), both measured
// here, in the same run, with the same threads. CSV on stdout.
//
//   bench_linear [--threads N] [--isa NAME] [--quick] [--gemm]
//
// --gemm: the training products instead, the own GEMM against the fma peak; PACELINE_GEMM=onednn switches the routine.
#include "kernels/backend.h"
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/op/linear.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Where the compiler must believe that a result is used.
static volatile uint64_t sink;

enum { FMA_STEPS = 100000, FMA_CHAINS = 12 };

// Two probes of the machine per ISA: read n bytes; FMA_STEPS fused multiply-adds on each of FMA_CHAINS vectors.
typedef struct probe {
    const char *isa;
    int         lanes;
    void (*read)(const char *p, size_t n);
    void (*fma)(void);
} probe;

#define PROBE(name, attribute, width)                                                                                  \
    typedef float         vec_##name __attribute__((vector_size(width)));                                              \
    typedef uint64_t      bits_##name __attribute__((vector_size(width)));                                             \
    attribute static void read_##name(const char *p, size_t n) {                                                       \
        bits_##name a = {0}, b = {0}, c = {0}, d = {0};                                                                \
        for (const char *end = p + n; p + 4 * (width) <= end; p += 4 * (width)) {                                      \
            const bits_##name *q = (const bits_##name *)(const void *)p;                                               \
            a |= q[0];                                                                                                 \
            b |= q[1];                                                                                                 \
            c |= q[2];                                                                                                 \
            d |= q[3];                                                                                                 \
        }                                                                                                              \
        a |= b | c | d;                                                                                                \
        for (size_t i = 0; i < (width) / sizeof(uint64_t); i++)                                                        \
            sink |= a[i];                                                                                              \
    }                                                                                                                  \
    attribute static void fma_##name(void) {                                                                           \
        vec_##name acc[FMA_CHAINS] = {{0}}, x = {1.0f}, y = {1e-9f};                                                   \
        __asm__ volatile("" : "+m"(x), "+m"(y));                                                                       \
        for (int i = 0; i < FMA_STEPS; i++)                                                                            \
            _Pragma("GCC unroll 12") for (int j = 0; j < FMA_CHAINS; j++) acc[j] = acc[j] * x + y;                     \
        for (int j = 0; j < FMA_CHAINS; j++)                                                                           \
            sink += (uint64_t)acc[j][0];                                                                               \
    }

PROBE(portable, , 16)
#if defined(__x86_64__)
PROBE(avx2, __attribute__((target("avx2,fma"))), 32)
PROBE(avx512, __attribute__((target("avx512f"))), 64)
#endif

static const probe probes[] = {
#if defined(__x86_64__)
    {"avx512", 16, read_avx512, fma_avx512},
    {"avx2", 8, read_avx2, fma_avx2},
#endif
    {"portable", 4, read_portable, fma_portable},
};

// The probe of the backend that is measured (its name ends in the ISA's).
static const probe *probe_of(const pl_backend *be) {
    const probe *p = probes;
    while (!strstr(be->name, p->isa))
        p++;
    return p;
}

typedef struct span {
    const char  *p;
    size_t       n;
    const probe *probe;
} span;

static void read_part(void *arg, int part, int parts) {
    const span *s = arg;
    long        lo, hi;
    pl_range((long)s->n, 4096, part, parts, &lo, &hi);
    s->probe->read(s->p + lo, (size_t)(hi - lo));
}

static void fma_part(void *arg, int part, int parts) {
    (void)part, (void)parts;
    ((const probe *)arg)->fma();
}

// The best of several runs of fn until `budget` seconds are spent, at least 3.
static double best_of(void (*fn)(void *), void *arg, double budget) {
    double best = 1e30, start = pl_now();
    for (int i = 0; i < 3 || pl_now() - start < budget; i++) {
        double t = pl_now();
        fn(arg);
        t = pl_now() - t;
        if (t < best) best = t;
    }
    return best;
}

typedef struct setup {
    pl_ctx         *ctx;
    pl_tensor       x, w, y;
    span            weights;
    pl_linear_args *args;
    bool            backward;
} setup;

static void do_read(void *arg) {
    setup *s = arg;
    pl_parallel(s->ctx->pool, pl_pool_threads(s->ctx->pool), read_part, &s->weights);
}
static void do_fma(void *arg) {
    setup *s = arg;
    pl_parallel(s->ctx->pool, pl_pool_threads(s->ctx->pool), fma_part, (void *)probe_of(s->ctx->be));
}
static void do_linear(void *arg) {
    setup *s = arg;
    s->ctx->be->fwd[PL_OP_LINEAR](s->ctx, s->args);
}
static void do_backward(void *arg) {
    setup *s = arg;
    s->ctx->be->bwd[PL_OP_LINEAR](s->ctx, s->args);
}

static void measure(pl_ctx *ctx, void *arg) {
    setup *s = arg;
    ctx->be->fwd[PL_OP_LINEAR](ctx, s->args);
    if (s->backward) ctx->be->bwd[PL_OP_LINEAR](ctx, s->args);
}

static void fill(float *p, size_t n) {
    uint32_t u = 12345;
    for (size_t i = 0; i < n; i++) {
        u = u * 1664525u + 1013904223u;
        p[i] = (float)(u >> 8) * 0x1p-24f - 0.5f;
    }
}

static void *block(size_t bytes) {
    pl_err err;
    void  *p = pl_block_create(bytes, &err);
    if (!p) {
        fprintf(stderr, "bench_linear: %s\n", err.msg);
        exit(1);
    }
    return p;
}

static void must(pl_status st, const pl_err *err) {
    if (st == PL_OK) return;
    fprintf(stderr, "bench_linear: %s\n", err->msg);
    exit(1);
}

static void bench_panels(pl_ctx *ctx, int64_t n, int64_t k, pl_dtype t, double peak, double budget) {
    static const int rows[] = {1, 2, 4, 8, 12, 16, 64};
    enum { MOST = 64 };
    pl_err err;
    size_t bytes = pl_panels_bytes(n, k, t), xb = (size_t)MOST * (size_t)k * 4, yb = (size_t)MOST * (size_t)n * 4;
    setup  s = {.ctx = ctx, .w = pl_tensor_2d(block(bytes), t, n, k)};
    float *x = block(xb), *y = block(yb), *row = block((size_t)k * 4);
    fill(x, (size_t)MOST * (size_t)k);
    fill(row, (size_t)k);
    for (int64_t i = 0; i < n; i++)
        pl_panels_pack(s.w.data, t, i, 1, n, k, row);
    s.w.layout = PL_PANELS;
    s.weights = (span){s.w.data, bytes, probe_of(ctx->be)};
    double bandwidth = (double)bytes / best_of(do_read, &s, budget);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t        m = rows[i];
        pl_linear_args a = {.x = pl_tensor_2d(x, PL_F32, m, k), .w = s.w, .y = pl_tensor_2d(y, PL_F32, m, n)};
        s.args = &a;
        must(pl_ctx_measure(ctx, measure, &s, &err), &err);
        double seconds = best_of(do_linear, &s, budget), flops = 2.0 * (double)(m * n) * (double)k;
        double by_bytes = (double)bytes / bandwidth, by_flops = flops / peak;
        double floor = by_bytes > by_flops ? by_bytes : by_flops;
        printf("panels,%s,%d,%lld,%lld,%d,%.6f,%.1f,%.1f,%.1f,%.0f\n", pl_dtype_name(t), (int)m, (long long)n,
               (long long)k, pl_pool_threads(ctx->pool), seconds * 1e3, (double)bytes / seconds * 1e-9,
               bandwidth * 1e-9, flops / seconds * 1e-9, 100 * floor / seconds);
        fflush(stdout);
    }
    pl_block_destroy(s.w.data, bytes);
    pl_block_destroy(x, xb);
    pl_block_destroy(y, yb);
    pl_block_destroy(row, (size_t)k * 4);
}

static void bench_gemm(pl_ctx *ctx, int64_t m, int64_t n, int64_t k, double peak, double budget) {
    pl_err err;
    size_t xb = (size_t)(m * k) * 4, wb = (size_t)(n * k) * 4, yb = (size_t)(m * n) * 4;
    float *x = block(xb), *w = block(wb), *y = block(yb), *dx = block(xb), *dw = block(wb);
    fill(x, (size_t)(m * k));
    fill(w, (size_t)(n * k));
    pl_linear_args a = {
        .x = pl_tensor_2d(x, PL_F32, m, k), .w = pl_tensor_2d(w, PL_F32, n, k), .y = pl_tensor_2d(y, PL_F32, m, n)};
    a.x.grad = dx;
    a.w.grad = dw;
    a.y.grad = y;
    setup s = {.ctx = ctx, .args = &a, .backward = true};
    must(pl_ctx_measure(ctx, measure, &s, &err), &err);
    double flops = 2.0 * (double)(m * n) * (double)k;
    double fwd = best_of(do_linear, &s, budget), bwd = best_of(do_backward, &s, budget);
    printf("rowmajor fwd,F32,%lld,%lld,%lld,%d,%.6f,,,%.1f,%.0f\n", (long long)m, (long long)n, (long long)k,
           pl_pool_threads(ctx->pool), fwd * 1e3, flops / fwd * 1e-9, 100 * flops / fwd / peak);
    printf("rowmajor bwd,F32,%lld,%lld,%lld,%d,%.6f,,,%.1f,%.0f\n", (long long)m, (long long)n, (long long)k,
           pl_pool_threads(ctx->pool), bwd * 1e3, 2 * flops / bwd * 1e-9, 200 * flops / bwd / peak);
    fflush(stdout);
    pl_block_destroy(x, xb);
    pl_block_destroy(w, wb);
    pl_block_destroy(y, yb);
    pl_block_destroy(dx, xb);
    pl_block_destroy(dw, wb);
}

int main(int argc, char **argv) {
    int               threads = 0;
    bool              quick = false, gemm = false;
    const pl_backend *be = pl_backend_cpu();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc)
            be = pl_backend_cpu_isa(argv[++i]);
        else if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--gemm") == 0)
            gemm = true;
        else
            be = NULL;
        if (!be) {
            fprintf(stderr, "usage: bench_linear [--threads N] [--isa portable|avx2|avx512] [--quick] [--gemm]\n");
            return 2;
        }
    }
    pl_err   err;
    pl_pool *pool;
    pl_ctx   ctx;
    must(pl_pool_create(&pool, threads, &err), &err);
    must(pl_ctx_init(&ctx, be, pool), &err);
    double budget = quick ? 0.05 : 0.3;
    setup  s = {.ctx = &ctx};
    double peak =
        2.0 * probe_of(be)->lanes * FMA_CHAINS * FMA_STEPS * pl_pool_threads(pool) / best_of(do_fma, &s, budget);
    printf("# %s, %d threads, fma peak %.1f GF/s\n", be->name, pl_pool_threads(pool), peak * 1e-9);
    printf("what,dtype,M,N,K,threads,ms,GB/s,read GB/s,GF/s,%% of floor\n");
    if (gemm) {
        static const int shapes[][3] = {{512, 256, 256},   {512, 704, 256},   {512, 256, 704},  {2048, 512, 512},
                                        {2048, 2048, 704}, {512, 16384, 256}, {4096, 512, 2048}};
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            bench_gemm(&ctx, shapes[i][0], shapes[i][1], shapes[i][2], peak, budget);
    } else {
        static const int shapes[][2] = {{512, 256}, {2048, 2048}, {4096, 4096}, {32000, 512}, {128256, 2048}};
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            if (quick && (shapes[i][0] > 100000 || shapes[i][0] == 512)) continue;
            bench_panels(&ctx, shapes[i][0], shapes[i][1], PL_F32, peak, budget);
            bench_panels(&ctx, shapes[i][0], shapes[i][1], PL_BF16, peak, budget);
        }
    }
    pl_ctx_fini(&ctx);
    pl_pool_destroy(pool);
    return 0;
}
