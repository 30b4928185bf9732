// cuBLASLt behind training's products (gemm.cuh): loaded when the first product wants it, own kernels where it is not
// there. Decoding never comes here: its rows' bits must not depend on how many there are, which a library that picks
// its kernel by shape cannot promise. Training's may: a step's shapes are given, and products with packed weights meet
// the same roundings (bf16 factors, sums in fp32), so what was trained is what decodes but for the order of sums.
//
// Which products: those in bf16 with M, N and K of at least PL_LT_LEAST each; the choice depends on the shape and on
// whether the library is there. PACELINE_GEMM=own in the environment leaves all to the own kernels.
// Which algorithm: the first of the library's heuristic for the shape, within PL_LT_WORKSPACE bytes of workspace and
// without reductions whose order is not fixed; kept by shape. The same run on the same machine gives the same bits.
// Workspace lies in the context's scratch; nothing is allocated for a shape that was seen before.
#ifndef PL_CUDA_LT_H
#define PL_CUDA_LT_H

#include "kernels/cuda/state.h"

#define PL_LT_LEAST 128
#define PL_LT_WORKSPACE ((size_t)32 << 20)

// C[i, j] = or += sum_k A(i, k) B(j, k), C [M, N] fp32 with rows c_row apart. A and B in bf16; what is contiguous (a
// row, or with `columns` the elements of one k) are lines `line` elements apart, a multiple of 8, at addresses that are
// multiples of 16.
typedef struct pl_lt_factor {
    const void *data;
    int64_t     line;
    bool        columns;
} pl_lt_factor;
typedef struct pl_lt_product {
    float       *c;
    int64_t      c_row, M, N, K;
    pl_lt_factor a, b;
    bool         add;
} pl_lt_product;

// Whether products of this shape go to the library, on this context; the same on measuring contexts.
bool PL_CUDA(lt_takes)(pl_ctx *ctx, int64_t M, int64_t N, int64_t K);
// Queues one (takes scratch; on measuring contexts nothing else). False where the library has no algorithm for it.
bool PL_CUDA(lt_product)(pl_ctx *ctx, const char *op, const pl_lt_product *p);

#endif
