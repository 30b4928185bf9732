#include "kernels/op/rowloss.h"
#include "kernels/ref.h"

static bool takes_part(const pl_smoothl1_args *a, int64_t i) {
    return a->weight[i] != 0 && a->row[i] >= 0;
}

void PL_REF(smoothl1_fwd)(pl_ctx *ctx, const void *args) {
    const pl_smoothl1_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = a->x.dim[0], d = a->x.dim[1];
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        if (takes_part(a, i)) {
            PL_CHECK(a->row[i] < a->t.dim[0], "smoothl1: row %d of %lld", a->row[i], (long long)a->t.dim[0]);
            const pl_real *x = (const pl_real *)a->x.data + i * d, *t = (const pl_real *)a->t.data + a->row[i] * d;
            for (int64_t j = 0; j < d; j++) {
                double u = fabs((double)x[j] - (double)t[j]);
                sum += u < a->beta ? u * u / (2 * a->beta) : u - a->beta / 2;
            }
        }
        ((pl_real *)a->loss.data)[i] = (pl_real)(sum / (double)d);
    }
}

void PL_REF(smoothl1_bwd)(pl_ctx *ctx, const void *args) {
    const pl_smoothl1_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->x.grad) return;
    int64_t n = a->x.dim[0], d = a->x.dim[1];
    for (int64_t i = 0; i < n; i++) {
        if (!takes_part(a, i)) continue;
        const pl_real *x = (const pl_real *)a->x.data + i * d, *t = (const pl_real *)a->t.data + a->row[i] * d;
        pl_real       *dx = (pl_real *)a->x.grad + i * d;
        double         scale = (double)a->weight[i] / (double)d;
        for (int64_t j = 0; j < d; j++) {
            double u = ((double)x[j] - (double)t[j]) / a->beta;
            dx[j] += (pl_real)(scale * fmax(-1.0, fmin(1.0, u)));
        }
    }
}

static double lse_of(const pl_real *z, int64_t n) {
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < n; c++)
        max = fmax(max, (double)z[c]);
    for (int64_t c = 0; c < n; c++)
        sum += exp((double)z[c] - max);
    return max + log(sum);
}

static double bce(const pl_real *z, const float *y, int64_t n) {
    double sum = 0;
    for (int64_t c = 0; c < n; c++) {
        double x = (double)z[c];
        sum += fmax(x, 0.0) - x * (double)y[c] + log1p(exp(-fabs(x)));
    }
    return sum;
}

static double soft(const pl_real *z, const float *y, int64_t n) {
    double lse = lse_of(z, n), sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += (double)y[c] * (lse - (double)z[c]);
    return sum;
}

void PL_REF(classify_fwd)(pl_ctx *ctx, const void *args) {
    const pl_classify_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = a->z.dim[0], c = a->z.dim[1];
    for (int64_t i = 0; i < n; i++) {
        const pl_real *z = (const pl_real *)a->z.data + i * c;
        const float   *y = a->y + i * c;
        double         loss = 0;
        if (a->weight[i] != 0) loss = a->kind == PL_CLASSIFY_BCE ? bce(z, y, c) : soft(z, y, c);
        ((pl_real *)a->loss.data)[i] = (pl_real)loss;
    }
}

void PL_REF(classify_bwd)(pl_ctx *ctx, const void *args) {
    const pl_classify_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->z.grad) return;
    int64_t n = a->z.dim[0], c = a->z.dim[1];
    for (int64_t i = 0; i < n; i++) {
        if (a->weight[i] == 0) continue;
        const pl_real *z = (const pl_real *)a->z.data + i * c;
        pl_real       *dz = (pl_real *)a->z.grad + i * c;
        const float   *y = a->y + i * c;
        double         w = (double)a->weight[i], lse = 0, mass = 0;
        bool           softmax = a->kind == PL_CLASSIFY_SOFTMAX;
        if (softmax) lse = lse_of(z, c);
        for (int64_t k = 0; k < c && softmax; k++)
            mass += (double)y[k];
        for (int64_t k = 0; k < c; k++) {
            double x = (double)z[k], p = softmax ? mass * exp(x - lse) : 1 / (1 + exp(-x));
            dz[k] += (pl_real)(w * (p - (double)y[k]));
        }
    }
}
