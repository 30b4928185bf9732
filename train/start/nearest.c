#include "train/start/nearest.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/op/linear.h"
#include "kernels/op/topk.h"

#include <math.h>

enum { CHUNK = 256 };

bool pl_normed_row(float *to, const pl_tensor *w, int64_t row) {
    int64_t d = w->dim[1];
    double  sum = 0;
    pl_to_f32(to, (const uint8_t *)w->data + (size_t)(row * d) * pl_dtype_size(w->dtype), w->dtype, (size_t)d);
    for (int64_t j = 0; j < d; j++)
        sum += (double)to[j] * (double)to[j];
    double gain = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int64_t j = 0; j < d; j++)
        to[j] = (float)((double)to[j] * gain);
    return isfinite(sum);
}

typedef struct work {
    pl_ctx  ctx;
    int64_t n, d;
    float  *list;   // [n, d] normed rows of the list
    float  *block;  // [CHUNK, d] and of tokens outside
    float  *scores; // [CHUNK, n]
    int32_t best[CHUNK], token[CHUNK];
} work;

static void step(pl_ctx *ctx, void *arg) {
    work     *k = arg;
    pl_tensor y = pl_tensor_2d(k->scores, PL_F32, CHUNK, k->n);
    pl_linear_into(ctx, y, pl_tensor_2d(k->block, PL_F32, CHUNK, k->d), pl_tensor_2d(k->list, PL_F32, k->n, k->d));
    pl_topk(ctx, &(pl_topk_args){.x = y, .id = k->best, .k = 1});
}

static pl_status not_finite(int64_t row, pl_err *err) {
    return pl_fail(err, PL_E_INPUT, "row %lld of the target's output matrix is not finite", (long long)row);
}

static pl_status find(work *k, int32_t *on, const pl_tensor *w, const int32_t *id, pl_err *err) {
    int64_t v = w->dim[0], count = 0;
    for (int64_t y = 0; y < v; y++)
        on[y] = -1;
    for (int64_t j = 0; j < k->n; j++) {
        on[id[j]] = (int32_t)j;
        if (!pl_normed_row(k->list + j * k->d, w, id[j])) return not_finite(id[j], err);
    }
    PL_TRY(pl_ctx_measure(&k->ctx, step, k, err));
    for (int64_t y = 0; y < v || count; y++) {
        if (y < v && on[y] < 0) {
            if (!pl_normed_row(k->block + count * k->d, w, y)) return not_finite(y, err);
            k->token[count++] = (int32_t)y;
        }
        if (count < CHUNK && y < v) continue;
        pl_ctx_begin(&k->ctx);
        step(&k->ctx, k); // a chunk that is not full ends with rows of the one before
        PL_TRY(pl_ctx_sync(&k->ctx, err));
        while (count > 0)
            count--, on[k->token[count]] = k->best[count];
    }
    return PL_OK;
}

pl_status pl_nearest_rows(int32_t *on, const pl_tensor *w, const int32_t *id, int64_t n, const pl_backend *be,
                          pl_pool *pool, pl_err *err) {
    PL_CHECK(be->real == PL_F32 && w->rank == 2 && w->layout == PL_ROWMAJOR && n > 0, "nearest of %lld rows",
             (long long)n);
    work *k = pl_calloc(1, sizeof *k);
    if (!k) return pl_fail(err, PL_E_MEMORY, "nearest rows: out of memory");
    k->n = n;
    k->d = w->dim[1];
    pl_status st = pl_ctx_init(&k->ctx, be, pool);
    if (st == PL_OK) {
        k->list = pl_malloc(pl_size_mul((size_t)n, (size_t)k->d, sizeof *k->list));
        k->block = pl_calloc(CHUNK * (size_t)k->d, sizeof *k->block);
        k->scores = pl_malloc(pl_size_mul(CHUNK, (size_t)n, sizeof *k->scores));
        if (!k->list || !k->block || !k->scores)
            st = pl_fail(err, PL_E_MEMORY, "nearest of %lld rows: out of memory", (long long)n);
    }
    if (st == PL_OK) st = find(k, on, w, id, err);
    pl_ctx_fini(&k->ctx);
    pl_free(k->list);
    pl_free(k->block);
    pl_free(k->scores);
    pl_free(k);
    return st;
}
