#include "kernels/op/blockattention.h"
#include "kernels/ref.h"
#include <tgmath.h>

// Key number i of what block g, head h sees.
typedef struct key {
    const pl_real *k, *v;
    pl_real       *dk, *dv; // NULL: constants
} key;

static int64_t n_keys(const pl_blockattention_args *a, int64_t g) {
    return a->lo[g] < 0 ? 0 : a->hi[g] - a->lo[g] + a->block;
}

static key key_at(const pl_blockattention_args *a, int64_t g, int h, int64_t i) {
    int64_t          head = h / (a->nh / a->nkv) * (int64_t)a->hd, width = (int64_t)a->nkv * a->hd;
    int64_t          context = a->hi[g] - a->lo[g];
    const pl_tensor *of = i < context ? &a->kv : &a->qkv;
    int64_t          row = i < context ? a->lo[g] + i : g * a->block + i - context;
    int64_t          at = row * of->dim[1] + (i < context ? 0 : (int64_t)a->nh * a->hd) + head;
    key              out = {(const pl_real *)of->data + at, (const pl_real *)of->data + at + width, NULL, NULL};
    if (of->grad) {
        out.dk = (pl_real *)of->grad + at;
        out.dv = out.dk + width;
    }
    return out;
}

static pl_real dot(const pl_real *x, const pl_real *y, int n) {
    pl_real sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static int64_t query_at(const pl_blockattention_args *a, int64_t m, int h) {
    return m * a->qkv.dim[1] + (int64_t)h * a->hd;
}

static void forward_row(const pl_blockattention_args *a, int64_t m, int h) {
    const pl_real *q = (const pl_real *)a->qkv.data + query_at(a, m, h);
    pl_real       *o = (pl_real *)a->o.data + (m * a->nh + h) * a->hd, max = -INFINITY, sum = 0;
    int64_t        g = m / a->block, n = n_keys(a, g);
    for (int64_t i = 0; i < n; i++) {
        pl_real s = (pl_real)a->scale * dot(q, key_at(a, g, h, i).k, a->hd);
        if (s > max) max = s;
    }
    for (int d = 0; d < a->hd; d++)
        o[d] = 0;
    for (int64_t i = 0; i < n; i++) {
        key     at = key_at(a, g, h, i);
        pl_real p = exp((pl_real)a->scale * dot(q, at.k, a->hd) - max);
        sum += p;
        for (int d = 0; d < a->hd; d++)
            o[d] += p * at.v[d];
    }
    for (int d = 0; d < a->hd && n > 0; d++)
        o[d] /= sum;
    ((pl_real *)a->lse.data)[m * a->nh + h] = n > 0 ? max + log(sum) : 0;
}

void PL_REF(blockattention_fwd)(pl_ctx *ctx, const void *args) {
    const pl_blockattention_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    for (int64_t m = 0; m < a->qkv.dim[0]; m++)
        for (int h = 0; h < a->nh; h++)
            forward_row(a, m, h);
}

static void backward_row(const pl_blockattention_args *a, int64_t m, int h) {
    const pl_real *q = (const pl_real *)a->qkv.data + query_at(a, m, h);
    int64_t        at_o = (m * a->nh + h) * a->hd, g = m / a->block;
    const pl_real *d_o = (const pl_real *)a->o.grad + at_o;
    pl_real       *dq = a->qkv.grad ? (pl_real *)a->qkv.grad + query_at(a, m, h) : NULL;
    pl_real        scale = (pl_real)a->scale, lse = ((const pl_real *)a->lse.data)[m * a->nh + h];
    pl_real        mean = dot(d_o, (const pl_real *)a->o.data + at_o, a->hd);
    for (int64_t i = 0; i < n_keys(a, g); i++) {
        key     at = key_at(a, g, h, i);
        pl_real p = exp(scale * dot(q, at.k, a->hd) - lse);
        pl_real ds = scale * p * (dot(d_o, at.v, a->hd) - mean);
        for (int d = 0; d < a->hd; d++) {
            if (dq) dq[d] += ds * at.k[d];
            if (at.dk) at.dk[d] += ds * q[d];
            if (at.dv) at.dv[d] += p * d_o[d];
        }
    }
}

void PL_REF(blockattention_bwd)(pl_ctx *ctx, const void *args) {
    const pl_blockattention_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->o.grad) return;
    int64_t blocks = a->qkv.dim[0] / a->block;
    for (int64_t g = 0; g < blocks; g++)
        for (int h = 0; h < a->nh; h++)
            for (int r = 0; r < a->block; r++)
                backward_row(a, g * a->block + r, h);
}
