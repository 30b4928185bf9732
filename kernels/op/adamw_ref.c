#include "kernels/op/adamw.h"
#include "kernels/ref.h"
#include <tgmath.h>

void PL_REF(adamw_fwd)(pl_ctx *ctx, const void *args) {
    const pl_adamw_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    const pl_real *grad = a->grad;
    pl_real       *w = a->w, *m = a->m, *v = a->v, *work = a->work;
    pl_real        b1 = (pl_real)a->beta1, b2 = (pl_real)a->beta2, lr = (pl_real)a->lr, eps = (pl_real)a->eps;
    pl_real        decay = (pl_real)a->decay, scale = (pl_real)a->grad_scale;
    // 1 - beta in double: in float it would lose the digits of beta2 = 0.999.
    pl_real        a1 = (pl_real)(1 - a->beta1), a2 = (pl_real)(1 - a->beta2);
    pl_real c1 = (pl_real)(1 - pow(a->beta1, (double)a->step)), c2 = (pl_real)(1 - pow(a->beta2, (double)a->step));
    for (int64_t i = 0; i < a->n; i++) {
        pl_real g = grad[i] * scale;
        m[i] = b1 * m[i] + a1 * g;
        v[i] = b2 * v[i] + a2 * g * g;
        w[i] -= lr * (m[i] / c1 / (sqrt(v[i] / c2) + eps) + decay * w[i]);
        work[i] = a->round_to == PL_BF16 ? (pl_real)pl_round_bf16((float)w[i]) : w[i];
        if (a->work16) a->work16[i] = pl_f32_to_bf16((float)w[i]);
    }
}

// The binary tree over chunks, as a binary counter: level[b] holds the sum of 2^b neighbouring chunks while bit b of
// the number of chunks so far is set.
void PL_REF(sumsq_fwd)(pl_ctx *ctx, const void *args) {
    const pl_sumsq_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    const pl_real *x = a->x;
    double         level[64] = {0}, total = 0;
    int64_t        chunks = 0;
    for (int64_t from = 0; from < a->n; from += PL_SUMSQ_CHUNK, chunks++) {
        int64_t to = a->n - from < PL_SUMSQ_CHUNK ? a->n : from + PL_SUMSQ_CHUNK;
        double  sum = 0;
        for (int64_t i = from; i < to; i++)
            sum += (double)x[i] * (double)x[i];
        if (a->chunks) a->chunks[chunks] = sum;
        int b = 0;
        for (; chunks >> b & 1; b++)
            sum = level[b] + sum;
        level[b] = sum;
    }
    for (int b = 0; b < 63; b++)
        if (chunks >> b & 1) total = level[b] + total;
    if (!a->chunks) *a->out = total;
}
