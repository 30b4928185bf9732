// The products of a training step alone, on a GPU by cuBLASLt: each shape of an EAGLE-3 step for Llama-3-8B over 2,048
// rows (7 steps, head of 32,000), with C assigned and added to, C in fp32 and in bf16, by the library's first algorithm
// and by the best of its first eight. One CSV line each.
//   bench_products N [REPEATS]      on GPU N, the median of REPEATS [5] runs
#include "kernels/cuda/lib/lt_table.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALGORITHMS = 8, MOST = 64 };

typedef struct shape {
    const char *name;
    int64_t     M, N, K;
    bool        a_columns, b_columns; // forward: neither; dx: B; dW: both
} shape;

static const shape shapes[] = {{"qkv", 2048, 6144, 8192, false, false},
                               {"o", 2048, 4096, 4096, false, false},
                               {"gate-up", 2048, 28672, 4096, false, false},
                               {"down", 2048, 4096, 14336, false, false},
                               {"fc", 2048, 4096, 12288, false, false},
                               {"teacher", 2048, 32000, 4096, false, false},
                               {"logits of a tile", 14336, 2048, 4096, false, false},
                               {"logits of a chunk", 2048, 32000, 4096, false, false},
                               {"qkv dx", 2048, 8192, 6144, false, true},
                               {"o dx", 2048, 4096, 4096, false, true},
                               {"gate-up dx", 2048, 4096, 28672, false, true},
                               {"down dx", 2048, 14336, 4096, false, true},
                               {"head dx of a tile", 14336, 4096, 2048, false, true},
                               {"head dx of a chunk", 2048, 4096, 32000, false, true},
                               {"qkv dW", 6144, 8192, 2048, true, true},
                               {"qkv dW of 7 steps", 6144, 8192, 14336, true, true},
                               {"o dW", 4096, 4096, 2048, true, true},
                               {"o dW of 7 steps", 4096, 4096, 14336, true, true},
                               {"gate-up dW", 28672, 4096, 2048, true, true},
                               {"gate-up dW of 7 steps", 28672, 4096, 14336, true, true},
                               {"down dW", 4096, 14336, 2048, true, true},
                               {"down dW of 7 steps", 4096, 14336, 14336, true, true},
                               {"head dW", 32000, 4096, 14336, true, true}};

typedef struct bench {
    const pl_lt_table *t;
    cublasLtHandle_t   handle;
    cudaStream_t       stream;
    cudaEvent_t        event[2];
    void              *a, *b, *c, *workspace;
    int                repeats;
} bench;

static void stop(const char *what, const char *why) {
    fprintf(stderr, "bench_products: %s: %s\n", what, why);
    exit(1);
}

static void expect(cudaError_t e, const char *what) {
    if (e != cudaSuccess) stop(what, cudaGetErrorString(e));
}

static int by_value(const void *x, const void *y) {
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

// Seconds of one call, the median; negative where the library refuses.
static double time_product(bench *b, const pl_lt_plan *x, cublasLtMatrixLayout_t out, const cublasLtMatmulAlgo_t *algo,
                           bool add) {
    const float one = 1, before = add ? 1 : 0;
    double      seconds[MOST];
    for (int k = -1; k < b->repeats; k++) { // the first warms up
        float ms = 0;
        expect(cudaEventRecord(b->event[0], b->stream), "event");
        cublasStatus_t e = b->t->Matmul(b->handle, x->op, &one, b->b, x->left, b->a, x->right, &before, b->c, out, b->c,
                                        out, algo, b->workspace, PL_LT_WORKSPACE, b->stream);
        if (e != CUBLAS_STATUS_SUCCESS) return -1;
        expect(cudaEventRecord(b->event[1], b->stream), "event");
        expect(cudaEventSynchronize(b->event[1]), "product");
        expect(cudaEventElapsedTime(&ms, b->event[0], b->event[1]), "time");
        if (k >= 0) seconds[k] = ms * 1e-3;
    }
    qsort(seconds, (size_t)b->repeats, sizeof *seconds, by_value);
    return seconds[b->repeats / 2];
}

static void bench_shape(bench *b, const shape *s, bool add, bool narrow) {
    pl_err        err = {0};
    pl_lt_plan    x;
    pl_lt_product p = {.c = b->c, .c_row = s->N, .M = s->M, .N = s->N, .K = s->K, .add = add};
    p.a = (pl_lt_factor){b->a, s->a_columns ? s->M : s->K, s->a_columns};
    p.b = (pl_lt_factor){b->b, s->b_columns ? s->N : s->K, s->b_columns};
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    cublasLtMatrixLayout_t          out = NULL;
    int                             n = 0, best = -1;
    double                          first = -1, least = -1;
    if (pl_lt_plan_create(b->t, &p, &x, &err) != PL_OK) stop(s->name, err.msg);
    if (b->t->MatrixLayoutCreate(&out, narrow ? CUDA_R_16BF : CUDA_R_32F, (uint64_t)s->N, (uint64_t)s->M, s->N) !=
        CUBLAS_STATUS_SUCCESS)
        stop(s->name, "layout");
    if (b->t->MatmulAlgoGetHeuristic(b->handle, x.op, x.left, x.right, out, out, x.wish, ALGORITHMS, found, &n)) n = 0;
    for (int i = 0; i < n; i++) {
        double t = found[i].state == CUBLAS_STATUS_SUCCESS ? time_product(b, &x, out, &found[i].algo, add) : -1;
        if (i == 0) first = t;
        if (t > 0 && (best < 0 || t < least)) best = i, least = t;
    }
    double flops = 2 * (double)s->M * (double)s->N * (double)s->K;
    printf("%s,%lld,%lld,%lld,%s,%s,%.4e,%.1f,%d,%.4e,%.1f\n", s->name, (long long)s->M, (long long)s->N,
           (long long)s->K, add ? "+=" : "=", narrow ? "bf16" : "fp32", first, flops / first * 1e-12, best, least,
           flops / least * 1e-12);
    fflush(stdout);
    b->t->MatrixLayoutDestroy(out);
    pl_lt_plan_destroy(b->t, &x);
}

// Finite numbers whose bits differ: a GPU's clock depends on what it multiplies.
static void *take(size_t bytes) {
    enum { PIECE = 64 << 20 };
    static uint16_t noise[PIECE / 2];
    char           *p = NULL;
    for (size_t i = 0; noise[0] == 0 && i < PIECE / 2; i++)
        noise[i] = (uint16_t)(((unsigned)rand() & 0x80ffu) | 0x3c00u);
    expect(cudaMalloc((void **)&p, bytes), "memory");
    for (size_t at = 0; at < bytes; at += PIECE)
        expect(cudaMemcpy(p + at, noise, bytes - at < PIECE ? bytes - at : PIECE, cudaMemcpyHostToDevice), "memory");
    return p;
}

int main(int argc, char **argv) {
    static bench b = {.repeats = 5};
    pl_err       err = {0};
    size_t       a = 0, w = 0, c = 0;
    if (argc < 2 || argc > 3) stop("arguments", "expected a GPU's number");
    if (argc == 3) b.repeats = atoi(argv[2]);
    if (b.repeats < 1 || b.repeats > MOST) stop(argv[2], "expected 1 to 64 repeats");
    expect(cudaSetDevice(atoi(argv[1])), "device");
    b.t = pl_lt_installed(&err);
    if (!b.t) stop("cuBLASLt", err.msg);
    if (b.t->Create(&b.handle)) stop("cuBLASLt", "no handle");
    expect(cudaStreamCreate(&b.stream), "stream");
    for (int i = 0; i < 2; i++)
        expect(cudaEventCreate(&b.event[i]), "event");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        size_t of_a = (size_t)(s->M * s->K) * 2, of_b = (size_t)(s->N * s->K) * 2, of_c = (size_t)(s->M * s->N) * 4;
        if (of_a > a) a = of_a;
        if (of_b > w) w = of_b;
        if (of_c > c) c = of_c;
    }
    b.a = take(a), b.b = take(w), b.c = take(c), b.workspace = take(PL_LT_WORKSPACE);
    printf("what,M,N,K,C,type,first_seconds,first_tflops,best_algorithm,best_seconds,best_tflops\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int how = 0; how < 3; how++)
            bench_shape(&b, &shapes[i], how == 1, how == 2);
    return 0;
}
