#include "kernels/op/smoothl1.h"
#include "kernels/ref.h"
#include <tgmath.h>

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
