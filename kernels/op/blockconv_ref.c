#include "kernels/op/blockconv.h"
#include "kernels/ref.h"

// Offsets for row m's tap o, group g.
typedef struct tap {
    int64_t x, base, kernel; // its first channel, the base's, the dynamic weight
} tap;

static tap tap_at(const pl_blockconv_args *a, int64_t m, int64_t o, int64_t g) {
    int64_t H = a->x.dim[1], G = H / a->group, at = a->side * (int64_t)a->taps + o;
    return (tap){(m - o) * H + g * a->group, at * H + g * a->group, m * a->kernel.dim[1] + at * G + g};
}

static int64_t taps_of(const pl_blockconv_args *a, int64_t m) {
    int64_t slot = m % a->block;
    return slot + 1 < a->taps ? slot + 1 : a->taps;
}

void PL_REF(blockconv_fwd)(pl_ctx *ctx, const void *args) {
    const pl_blockconv_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        M = a->x.dim[0], G = a->x.dim[1] / a->group;
    const pl_real *x = a->x.data, *base = a->base.data, *kernel = a->kernel.data;
    for (int64_t m = 0; m < M; m++)
        for (int64_t o = 0; o < taps_of(a, m); o++)
            for (int64_t g = 0; g < G; g++) {
                tap      t = tap_at(a, m, o, g);
                pl_real *y = (pl_real *)a->y.data + m * a->x.dim[1] + g * a->group;
                for (int64_t c = 0; c < a->group; c++) {
                    pl_real v = (base[t.base + c] + kernel[t.kernel]) * x[t.x + c];
                    y[c] = o == 0 ? v : y[c] + v;
                }
            }
}

void PL_REF(blockconv_bwd)(pl_ctx *ctx, const void *args) {
    const pl_blockconv_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad) return;
    int64_t        M = a->x.dim[0], G = a->x.dim[1] / a->group;
    const pl_real *x = a->x.data, *base = a->base.data, *kernel = a->kernel.data;
    pl_real       *dx = a->x.grad, *dbase = a->base.grad, *dkernel = a->kernel.grad;
    for (int64_t m = 0; m < M; m++)
        for (int64_t o = 0; o < taps_of(a, m); o++)
            for (int64_t g = 0; g < G; g++) {
                tap            t = tap_at(a, m, o, g);
                const pl_real *dy = (const pl_real *)a->y.grad + m * a->x.dim[1] + g * a->group;
                pl_real        sum = 0;
                for (int64_t c = 0; c < a->group; c++) {
                    if (dx) dx[t.x + c] += dy[c] * (base[t.base + c] + kernel[t.kernel]);
                    if (dbase) dbase[t.base + c] += dy[c] * x[t.x + c];
                    sum += dy[c] * x[t.x + c];
                }
                if (dkernel) dkernel[t.kernel] += sum;
            }
}
