// Softmax of one row in double, by parts, for sampling: what stands between logits and a distribution
// (infer/sample/distribution.h). Plain functions rather than ops: verification calls them row by row from the pool's
// threads, where no context may be used.
//
//   top = max x;   w[i] = exp((x[i] - top) inv_t);   sum = sum_i w[i];   p[i] = w[i] scale
// Bits depend on the row and on the instruction set alone (AVX2 and AVX-512 agree): sums are PL_SUM_LANES partial sums
// in double over i mod PL_SUM_LANES, added in order of the lanes.
#ifndef PL_SOFTMAX_H
#define PL_SOFTMAX_H

#include <stdbool.h>
#include <stdint.h>

#define PL_SUM_LANES 16

typedef struct pl_softmax {
    // The largest of n >= 1 values in *top; false where one of them is NaN.
    bool (*top)(const float *x, int64_t n, float *top);
    // w and its sum; x <= top, inv_t >= 0. A weight's relative error is exp's, below 2^-22, and what rounding the
    // exponent to fp32 does: 2^-23 of its size. 0 where the exponent lies below -87.
    double (*weigh)(float *w, const float *x, int64_t n, float top, float inv_t);
    void (*scale)(double *p, const float *w, int64_t n, double scale);
} pl_softmax;

// Those of pl_backend_cpu's instruction set.
const pl_softmax *pl_softmax_cpu(void);

#endif
