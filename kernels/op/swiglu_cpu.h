// Gates of a gated linear unit on rows (kernels/op/swiglu.h has the equations), for ops that compute its sums.
#ifndef PL_OP_SWIGLU_CPU_H
#define PL_OP_SWIGLU_CPU_H

#include "kernels/cpu/simd.h"
#include "kernels/op/swiglu.h"

#define pl_gate_rows PL_CPU(gate_rows)

// y[r * ldy + i] = a(g[r * ld + i]) g[r * ld + up + i], i < n; y may be g. In the thread's mode for denormals.
void pl_gate_rows(pl_gate gate, float *y, int64_t ldy, const float *g, int64_t ld, int64_t up, int64_t rows, int64_t n);

#endif
