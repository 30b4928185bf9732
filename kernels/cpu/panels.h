// One pass over packed weights: a few rows times a few panels, outputs in registers. What `linear` and the fused head
// are made of; compiled once per ISA like every cpu source.
//
//   y[r, j] (+)= sum_k x[k][r] W[j, k]     r < rows, j < cols, k = 0 .. kc - 1 strictly in order, one fma each
#ifndef PL_CPU_PANELS_H
#define PL_CPU_PANELS_H

#include "kernels/backend.h"
#include "kernels/cpu/simd.h"

#define PL_PANELS_AHEAD 24576 // bytes of what comes after, where it is known, that a pass has prefetched at its end
#define PL_PASS_PANELS 2      // panels of one pass at most; rows * panels <= PL_MR_PANEL, or 1 row and 1 panel

typedef struct pl_pass {
    int64_t      kc;
    const float *x;           // [kc][R]
    const char  *w;           // the first panel at this k
    size_t       panel_bytes; // from a panel to the next
    float       *y;
    int64_t      ldy;
    int64_t      cols;   // outputs that exist, of PL_PANEL * G
    bool         resume; // accumulators start from y rather than zero
    const char  *after;  // what this thread reads after these panels, if that lies elsewhere; NULL: what follows them
    bool         far;    // they come from memory rather than out of a cache: prefetched otherwise
} pl_pass;

#define pl_panels_pass PL_CPU(panels_pass)
#define pl_panels_half_pass PL_CPU(panels_half_pass)

void pl_panels_pass(bool bf16, int rows, int panels, const pl_pass *p);
// One half panel (kernels/tensor.h): cols is PL_HALF_PANEL.
void pl_panels_half_pass(bool bf16, int rows, const pl_pass *p);

#endif
