#include "train/start/embed.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/rng.h"
#include "kernels/op/linear.h"

#include <math.h>

enum { CHUNK = 1024 };

typedef struct work {
    const float *x, *r; // [CHUNK, d], [width, d]
    float       *y;     // [CHUNK, width]
    int64_t      n, d, width;
} work;

static void multiply(pl_ctx *ctx, void *arg) {
    const work *k = arg;
    pl_linear_into(ctx, pl_tensor_2d(k->y, PL_F32, k->n, k->width), pl_tensor_2d((void *)k->x, PL_F32, k->n, k->d),
                   pl_tensor_2d((void *)k->r, PL_F32, k->width, k->d));
}

static void read_rows(float *to, const pl_tensor *from, int64_t at, int64_t n) {
    int64_t d = from->dim[1];
    pl_to_f32(to, (const uint8_t *)from->data + (size_t)(at * d) * pl_dtype_size(from->dtype), from->dtype,
              (size_t)(n * d));
}

pl_status pl_start_embed(float *rows, const pl_tensor *from, int64_t width, uint64_t seed, const pl_backend *be,
                         pl_pool *pool, pl_err *err) {
    int64_t n = from->dim[0], d = from->dim[1];
    PL_CHECK(be->real == PL_F32 && from->layout == PL_ROWMAJOR, "embeddings [%lld, %lld]", (long long)n, (long long)d);
    if (width == d) {
        read_rows(rows, from, 0, n);
        return PL_OK;
    }
    float    *x = pl_malloc(pl_size_mul(CHUNK, (size_t)d, sizeof *x));
    float    *r = pl_malloc(pl_size_mul((size_t)width, (size_t)d, sizeof *r));
    pl_ctx    ctx = {0};
    pl_rng    rng = pl_rng_make(seed, PL_STREAM_INIT, UINT32_MAX - 2);
    work      k = {.x = x, .r = r, .y = rows, .n = n < CHUNK ? n : CHUNK, .d = d, .width = width};
    pl_status st = x && r ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory for embeddings");
    for (int64_t i = 0; st == PL_OK && i < width * d; i++)
        r[i] = pl_rng_normal(rng, (uint64_t)i) / sqrtf((float)d);
    if (st == PL_OK) st = pl_ctx_init(&ctx, be, pool);
    if (st == PL_OK) st = pl_ctx_measure(&ctx, multiply, &k, err);
    for (int64_t at = 0; st == PL_OK && at < n; at += CHUNK) {
        k.n = n - at < CHUNK ? n - at : CHUNK;
        k.y = rows + at * width;
        read_rows(x, from, at, k.n);
        pl_ctx_begin(&ctx);
        multiply(&ctx, &k);
        st = pl_ctx_sync(&ctx, err);
    }
    pl_ctx_fini(&ctx);
    pl_free(x);
    pl_free(r);
    return st;
}
