// cuBLASLt for training's products (gemm.cuh): loaded at the first product, with our own kernels as the fallback.
// Decoding does not use it: its rows' bits must not depend on their number, which a library that picks its kernel by
// shape cannot promise. Training may: a step's shapes are fixed, and products with packed weights have the same
// roundings (bf16 factors, sums in fp32), so training and decoding differ only in the order of sums.
//
// It takes products in bf16 with M, N and K of at least PL_LT_LEAST each; the choice depends on the shape and on the
// library's presence. PACELINE_GEMM=own in the environment disables it. The algorithm is the first of the library's
// heuristic for the shape, within PL_LT_WORKSPACE bytes of workspace and without reductions in varying order; kept by
// shape. The same run on the same machine gives the same bits. Workspace lies in the context's scratch; nothing is
// allocated for a known shape.
#ifndef PL_CUDA_LT_H
#define PL_CUDA_LT_H

#include "kernels/cuda/state.h"

#define PL_LT_LEAST 128
#define PL_LT_WORKSPACE ((size_t)32 << 20)

// C[i, j] = or += sum_k A(i, k) B(j, k), C [M, N] fp32 with rows c_row apart. A and B in bf16; contiguous lines (a row,
// or with `columns` the elements of one k) are `line` elements apart, a multiple of 8, at addresses that are multiples
// of 16.
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

// Returns true if products of this shape go to the library, on this context; the same on measuring contexts.
bool PL_CUDA(lt_takes)(pl_ctx *ctx, int64_t M, int64_t N, int64_t K);
// Queues one (takes scratch; on measuring contexts nothing else). Returns false if the library has no algorithm for it.
bool PL_CUDA(lt_product)(pl_ctx *ctx, const char *op, const pl_lt_product *p);

#endif
