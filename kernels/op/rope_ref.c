#include "kernels/op/rope.h"
#include "kernels/ref.h"

// Rotates the first n_rot vectors of each row by sign * angle.
static void rotate(const pl_rope_args *a, pl_real *rows, pl_real sign) {
    int64_t M = a->qkv.dim[0], width = a->qkv.dim[1], half = a->cos.dim[1];
    for (int64_t m = 0; m < M; m++) {
        int64_t pos = (int64_t)a->pos[m] + a->offset;
        PL_CHECK(pos >= 0 && pos < a->cos.dim[0], "rope: position %lld of %lld", (long long)pos,
                 (long long)a->cos.dim[0]);
        const pl_real *c = (const pl_real *)a->cos.data + pos * half;
        const pl_real *s = (const pl_real *)a->sin.data + pos * half;
        for (int head = 0; head < a->n_rot; head++) {
            pl_real *v = rows + m * width + (int64_t)head * a->hd;
            for (int64_t i = 0; i < half; i++) {
                pl_real lo = v[i], hi = v[i + half];
                v[i] = lo * c[i] - sign * hi * s[i];
                v[i + half] = hi * c[i] + sign * lo * s[i];
            }
        }
    }
}

void PL_REF(rope_fwd)(pl_ctx *ctx, const void *args) {
    const pl_rope_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    rotate(a, a->qkv.data, 1);
    int64_t width = a->qkv.dim[1], kv = width - (int64_t)a->n_rot * a->hd;
    for (int64_t m = 0; a->row && m < a->qkv.dim[0]; m++)
        pl_rope_keep(&a->row[m], (const pl_real *)a->qkv.data + (m + 1) * width - 2 * kv, kv, PL_REAL_DTYPE);
}

void PL_REF(rope_bwd)(pl_ctx *ctx, const void *args) {
    const pl_rope_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->qkv.grad) rotate(a, a->qkv.grad, -1);
}
