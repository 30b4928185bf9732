// AdamW (Loshchilov & Hutter 2019) over one block of parameters, one pass, fp32 masters; and the squared gradient norm
// for clipping.
//   g = grad * grad_scale
//   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
//   w -= lr ( (m / c1) / (sqrt(v / c2) + eps) + decay w ),  c1 = 1 - b1^step, c2 = 1 - b2^step
//   work = round(w)  to the working dtype (PL_BF16: the value of the nearest bf16, held as be->real; PL_F32: w itself,
//                     then work may be w);  work16 = the same in BF16, if not NULL (round_to PL_BF16)
// n elements, all arrays in be->real. Element-wise, deterministic. Bytes: 7 n reals.
#ifndef PL_OP_ADAMW_H
#define PL_OP_ADAMW_H
#include "kernels/backend.h"

typedef struct pl_adamw_args {
    void       *w, *m, *v, *work; // masters, moments, working copy
    uint16_t   *work16;           // or NULL
    const void *grad;
    int64_t     n;
    double      lr, beta1, beta2, eps, decay, grad_scale;
    int64_t     step;     // counts from 1
    pl_dtype    round_to; // PL_BF16 or PL_F32
} pl_adamw_args;
void pl_adamw(pl_ctx *ctx, const pl_adamw_args *args);

// Sum of squares in double, in fixed chunks of PL_SUMSQ_CHUNK elements summed by a fixed binary tree: independent of
// threads, and of ranks when a rank owns whole chunks.
#define PL_SUMSQ_CHUNK 65536
typedef struct pl_sumsq_args {
    const void *x; // be->real
    int64_t     n;
    double     *out;
    double     *chunks; // [pl_sumsq_chunks(n)] receives the chunks' sums instead of `out`, or NULL
} pl_sumsq_args;
void                  pl_sumsq(pl_ctx *ctx, const pl_sumsq_args *args);
static inline int64_t pl_sumsq_chunks(int64_t n) {
    return (n + PL_SUMSQ_CHUNK - 1) / PL_SUMSQ_CHUNK;
}
// Sums chunks by the tree, on the host, to the value of `out`. Overwrites sum[].
double pl_sumsq_tree(double *sum, int64_t chunks);
#endif
