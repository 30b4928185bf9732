#include "train/start/lowrank.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/rng.h"
#include "kernels/op/linear.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 1024, ITERATIONS = 40 };

typedef struct work {
    pl_ctx           ctx;
    const pl_tensor *w;
    const int32_t   *id;
    int64_t          n, d, r;
    float           *row, *mean;  // [CHUNK, d], [d]
    float           *columns;     // [d, CHUNK] a chunk of centred rows, transposed
    float           *gram, *part; // [d, d]
    float           *basis;       // [r, d] orthonormal rows
    float           *next;        // [r, d]
} work;

static void work_fini(work *k) {
    pl_ctx_fini(&k->ctx);
    pl_free(k->row);
    pl_free(k->mean);
    pl_free(k->columns);
    pl_free(k->gram);
    pl_free(k->part);
    pl_free(k->basis);
    pl_free(k->next);
}

static float *floats(int64_t rows, int64_t cols) {
    return pl_calloc(pl_size_mul((size_t)rows, (size_t)cols, 1), sizeof(float));
}

// Rows [at, at + count) to k->row; centred once the mean is known.
static void load_rows(work *k, int64_t at, int64_t count, bool centred) {
    for (int64_t i = 0; i < count; i++) {
        int64_t id = k->id ? k->id[at + i] : at + i;
        float  *row = k->row + i * k->d;
        pl_to_f32(row, (const uint8_t *)k->w->data + (size_t)(id * k->d) * pl_dtype_size(k->w->dtype), k->w->dtype,
                  (size_t)k->d);
        for (int64_t j = 0; j < k->d && centred; j++)
            row[j] -= k->mean[j];
    }
}

static int64_t chunk_at(const work *k, int64_t at) {
    return k->n - at < CHUNK ? k->n - at : CHUNK;
}

static pl_status find_mean(work *k, pl_err *err) {
    double *sum = pl_calloc((size_t)k->d, sizeof *sum);
    if (!sum) return pl_fail(err, PL_E_MEMORY, "low-rank start: out of memory");
    for (int64_t at = 0; at < k->n; at += CHUNK) {
        load_rows(k, at, chunk_at(k, at), false);
        for (int64_t i = 0; i < chunk_at(k, at); i++)
            for (int64_t j = 0; j < k->d; j++)
                sum[j] += (double)k->row[i * k->d + j];
    }
    for (int64_t j = 0; j < k->d; j++)
        k->mean[j] = (float)(sum[j] / (double)k->n);
    pl_free(sum);
    return PL_OK;
}

// y [m, n] = x [m, c] w [n, c]^T on the backend.
static void product(pl_ctx *ctx, float *y, float *x, float *w, int64_t m, int64_t n, int64_t c) {
    pl_linear_into(ctx, pl_tensor_2d(y, PL_F32, m, n), pl_tensor_2d(x, PL_F32, m, c), pl_tensor_2d(w, PL_F32, n, c));
}

static void measure(pl_ctx *ctx, void *arg) {
    work *k = arg;
    product(ctx, k->part, k->columns, k->columns, k->d, k->d, CHUNK);
    product(ctx, k->next, k->basis, k->gram, k->r, k->d, k->d);
    product(ctx, k->part, k->row, k->basis, CHUNK, k->r, k->d);
}

static void find_gram(work *k) {
    for (int64_t at = 0; at < k->n; at += CHUNK) {
        int64_t count = chunk_at(k, at);
        load_rows(k, at, count, true);
        for (int64_t j = 0; j < k->d; j++)
            for (int64_t i = 0; i < count; i++)
                k->columns[j * count + i] = k->row[i * k->d + j];
        product(&k->ctx, k->part, k->columns, k->columns, k->d, k->d, count);
        for (int64_t j = 0; j < k->d * k->d; j++)
            k->gram[j] += k->part[j];
    }
}

static double dot(const float *a, const float *b, int64_t n) {
    double s = 0;
    for (int64_t j = 0; j < n; j++)
        s += (double)a[j] * (double)b[j];
    return s;
}

// Gram-Schmidt, each row against those before it, twice: once leaves rounding errors of nearly dependent rows. A row in
// the span of the others becomes a fresh random one.
static void orthonormalize(float *q, int64_t r, int64_t d, pl_rng rng) {
    for (int64_t i = 0, fresh = 0; i < r; i++) {
        float *row = q + i * d;
        double before = sqrt(dot(row, row, d));
        for (int pass = 0; pass < 2; pass++)
            for (int64_t p = 0; p < i; p++) {
                double c = dot(row, q + p * d, d);
                for (int64_t j = 0; j < d; j++)
                    row[j] -= (float)(c * (double)q[p * d + j]);
            }
        double size = sqrt(dot(row, row, d));
        if (!(size > 1e-5 * before) && fresh < 4 * r) {
            for (int64_t j = 0; j < d; j++)
                row[j] = pl_rng_normal(rng, (uint64_t)((r + fresh) * d + j));
            fresh++;
            i--;
            continue;
        }
        for (int64_t j = 0; j < d; j++)
            row[j] = (float)((double)row[j] / size);
    }
}

static void find_basis(work *k, uint64_t seed) {
    pl_rng rng = pl_rng_make(seed, PL_STREAM_INIT, UINT32_MAX);
    for (int64_t j = 0; j < k->r * k->d; j++)
        k->basis[j] = pl_rng_normal(rng, (uint64_t)j);
    orthonormalize(k->basis, k->r, k->d, rng);
    for (int i = 0; i < ITERATIONS; i++) {
        product(&k->ctx, k->next, k->basis, k->gram, k->r, k->d, k->d);
        memcpy(k->basis, k->next, (size_t)(k->r * k->d) * sizeof *k->basis);
        orthonormalize(k->basis, k->r, k->d, rng);
    }
}

pl_status pl_lowrank_factors(float *up, float *down, const pl_tensor *w, const int32_t *id, int64_t n, int64_t r,
                             uint64_t seed, const pl_backend *be, pl_pool *pool, pl_err *err) {
    int64_t d = w->dim[1];
    PL_CHECK(be->real == PL_F32 && w->layout == PL_ROWMAJOR && r >= 1 && r <= d && n >= 1, "rank %lld of [%lld, %lld]",
             (long long)r, (long long)n, (long long)d);
    work      k = {.w = w, .id = id, .n = n, .d = d, .r = r};
    pl_status st;
    PL_TRY_GOTO(st, done, pl_ctx_init(&k.ctx, be, pool));
    k.row = floats(CHUNK, d);
    k.mean = floats(1, d);
    k.columns = floats(d, CHUNK);
    k.gram = floats(d, d);
    k.part = floats(d, d);
    k.basis = floats(r, d);
    k.next = floats(r, d);
    if (!k.row || !k.mean || !k.columns || !k.gram || !k.part || !k.basis || !k.next)
        PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "low-rank start: out of memory for width %lld", (long long)d));
    PL_TRY_GOTO(st, done, pl_ctx_measure(&k.ctx, measure, &k, err));
    PL_TRY_GOTO(st, done, find_mean(&k, err));
    find_gram(&k);
    find_basis(&k, seed);
    memcpy(down, k.basis, (size_t)(r * d) * sizeof *down);
    for (int64_t at = 0; at < n; at += CHUNK) {
        load_rows(&k, at, chunk_at(&k, at), true);
        product(&k.ctx, up + at * r, k.row, down, chunk_at(&k, at), r, d);
    }
    st = pl_ctx_sync(&k.ctx, err);
done:
    work_fini(&k);
    return st;
}
