// The convolution on vectors of a group's channels: forward by rows; backward by groups, whose gradients of base,
// weights and x one thread adds up over all rows, so that bits do not depend on the number of threads.
#include "kernels/cpu/rows.h"
#include "kernels/op/blockconv.h"

// Row m's inputs of a side: its slot's taps, and the dynamic weights of all of the side's taps.
typedef struct conv_row {
    int64_t      taps;
    const float *x, *kernel;
} conv_row;

static conv_row row_of(const pl_blockconv_args *a, int64_t m) {
    int64_t H = a->x.dim[1], first = (int64_t)a->side * a->taps * (H / a->group), slot = m % a->block;
    return (conv_row){.taps = slot + 1 < a->taps ? slot + 1 : a->taps,
                      .x = pl_f32(&a->x) + m * H,
                      .kernel = pl_f32(&a->kernel) + m * a->kernel.dim[1] + first};
}

static void fwd_part(void *arg, int part, int parts) {
    const pl_blockconv_args *a = arg;
    int64_t                  H = a->x.dim[1], G = H / a->group;
    const float             *base = pl_f32(&a->base) + (int64_t)a->side * a->taps * H;
    long                     lo, hi;
    pl_range((long)a->x.dim[0], 1, part, parts, &lo, &hi);
    for (int64_t m = lo; m < hi; m++) {
        conv_row r = row_of(a, m);
        float   *y = pl_f32(&a->y) + m * H;
        for (int64_t g = 0; g < G; g++)
            for (int64_t c = g * a->group, end = c + a->group; c < end; c += PL_VL) {
                int64_t n = pl_vf_lanes(c, end);
                pl_vf   w = pl_vf_add(pl_vf_get(base + c, n), pl_vf_set1(r.kernel[g]));
                pl_vf   sum = pl_vf_mul(w, pl_vf_get(r.x + c, n));
                for (int64_t o = 1; o < r.taps; o++) {
                    w = pl_vf_add(pl_vf_get(base + o * H + c, n), pl_vf_set1(r.kernel[o * G + g]));
                    sum = pl_vf_fma(w, pl_vf_get(r.x - o * H + c, n), sum);
                }
                pl_vf_put(y + c, sum, n);
            }
    }
}

static double flops(const pl_blockconv_args *a) {
    return 2.0 * (double)pl_tensor_count(&a->x) * (a->taps + 1);
}

void PL_CPU(blockconv_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_blockconv_args a = *(const pl_blockconv_args *)args;
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, a.x.dim[0], flops(&a)), fwd_part, &a);
}

static void add_product(float *to, pl_vf a, pl_vf b, int64_t n) {
    pl_vf_put(to, pl_vf_fma(a, b, pl_vf_get(to, n)), n);
}

// Backward of row m, tap o, group g. Pointers of unneeded gradients are NULL.
static void bwd_group(const pl_blockconv_args *a, int64_t m, int64_t o, int64_t g, float weight, float *dkernel) {
    int64_t      H = a->x.dim[1], tap = ((int64_t)a->side * a->taps + o) * H, from = (m - o) * H;
    const float *base = pl_f32(&a->base) + tap, *x = pl_f32(&a->x) + from, *dy = (const float *)a->y.grad + m * H;
    float       *dx = a->x.grad, *dbase = a->base.grad;
    pl_vf        sum = pl_vf_zero();
    for (int64_t c = g * a->group, end = c + a->group; c < end; c += PL_VL) {
        int64_t n = pl_vf_lanes(c, end);
        pl_vf   d = pl_vf_get(dy + c, n), v = pl_vf_get(x + c, n);
        if (dx) add_product(dx + from + c, d, pl_vf_add(pl_vf_get(base + c, n), pl_vf_set1(weight)), n);
        if (dbase) add_product(dbase + tap + c, d, v, n);
        sum = pl_vf_fma(d, v, sum);
    }
    if (dkernel) *dkernel += pl_vf_hsum(sum);
}

static void bwd_part(void *arg, int part, int parts) {
    const pl_blockconv_args *a = arg;
    int64_t                  G = a->x.dim[1] / a->group, width = a->kernel.dim[1];
    float                   *dkernel = a->kernel.grad;
    long                     lo, hi;
    pl_range((long)G, 1, part, parts, &lo, &hi);
    for (int64_t m = 0; m < a->x.dim[0]; m++) {
        conv_row r = row_of(a, m);
        int64_t  first = m * width + (int64_t)a->side * a->taps * G;
        for (int64_t o = 0; o < r.taps; o++)
            for (int64_t g = lo; g < hi; g++)
                bwd_group(a, m, o, g, r.kernel[o * G + g], dkernel ? dkernel + first + o * G + g : NULL);
    }
}

void PL_CPU(blockconv_bwd)(pl_ctx *ctx, const void *args) {
    pl_blockconv_args a = *(const pl_blockconv_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a.y.grad) return;
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, a.x.dim[1] / a.group, 3 * flops(&a)), bwd_part, &a);
}
