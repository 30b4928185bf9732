#include "kernels/op/swiglu.h"
#include "kernels/ref.h"
#include <tgmath.h>

// s(g) of the contract, and its slope.
static pl_real factor(pl_gate gate, pl_real g, pl_real *slope) {
    pl_real twice = (pl_real)PL_GELU_TANH_TWICE, cube = (pl_real)PL_GELU_TANH_CUBE;
    bool    gelu = gate == PL_GATE_GELU_TANH;
    pl_real s = 1 / (1 + exp(gelu ? -twice * (g + cube * g * g * g) : -g));
    *slope = s * (1 - s) * (gelu ? twice * (1 + 3 * cube * g * g) : 1);
    return s;
}

static pl_real clamped(pl_real g, pl_real u) {
    pl_real most = (pl_real)PL_CLAMPED_LIMIT;
    g = g > most ? most : g;
    u = u > most ? most : u < -most ? -most : u;
    return g / (1 + exp(-(pl_real)PL_CLAMPED_ALPHA * g)) * (u + 1);
}

void PL_REF(swiglu_fwd)(pl_ctx *ctx, const void *args) {
    const pl_swiglu_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t rows = a->y.dim[0], n = a->y.dim[1];
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *g = (const pl_real *)a->gu.data + m * 2 * n, *u = g + n;
        pl_real       *y = (pl_real *)a->y.data + m * n;
        for (int64_t i = 0; i < n && a->gate == PL_GATE_SILU; i++)
            y[i] = g[i] / (1 + exp(-g[i])) * u[i];
        for (int64_t i = 0; i < n && a->gate == PL_GATE_CLAMPED; i++)
            y[i] = clamped(g[i], u[i]);
        for (int64_t i = 0; i < n && a->gate == PL_GATE_GELU_TANH; i++) {
            pl_real slope;
            y[i] = g[i] * factor(a->gate, g[i], &slope) * u[i];
        }
    }
}

void PL_REF(swiglu_bwd)(pl_ctx *ctx, const void *args) {
    const pl_swiglu_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->gu.grad) return;
    int64_t rows = a->y.dim[0], n = a->y.dim[1];
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *g = (const pl_real *)a->gu.data + m * 2 * n, *u = g + n;
        const pl_real *dy = (const pl_real *)a->y.grad + m * n;
        pl_real       *dg = (pl_real *)a->gu.grad + m * 2 * n, *du = dg + n;
        for (int64_t i = 0; i < n; i++) {
            pl_real slope, s = factor(a->gate, g[i], &slope);
            if (a->gate == PL_GATE_SILU)
                dg[i] += dy[i] * u[i] * s * (1 + g[i] * (1 - s));
            else
                dg[i] += dy[i] * u[i] * (s + g[i] * slope);
            du[i] += dy[i] * g[i] * s;
        }
    }
}
