// Products of row-major matrices, for training: C[i, j] = or += sum_k A(i, k) B(j, k), deterministic. Either factor may
// be contiguous along its rows or along its columns, so that one function serves all three products of a linear layer:
//   y = x W^T     A = x,    B = W            dx += dy W    A = dy, B = W^T            dw += dy^T x  A = dy^T, B = x^T
//
// Numbers are those of the weight, as in inference (panel.cuh). If its values are bf16, both factors are rounded to
// bf16 on input and summed in fp32 on tensor cores: by cuBLASLt if it is present and takes the product (lt.h), else by
// our own kernel. Otherwise one fp32 fma chain per output. The choice between the two bf16 ways depends on shape and
// machine alone. Decoding uses neither: packed weights go through panel.cuh, whose sums do not depend on the number of
// rows.
#ifndef PL_CUDA_GEMM_CUH
#define PL_CUDA_GEMM_CUH

#include "kernels/cuda/launch.cuh"

struct pl_operand {
    const void    *data;
    int64_t        row, col; // strides in elements; one of them is 1
    bool           bf16;
    const int32_t *map; // row r is row map[r] (for a factor contiguous along its rows); NULL: r itself
};

static inline pl_operand pl_rows_of(const void *data, int64_t cols, pl_dtype t) {
    return pl_operand{data, cols, 1, t == PL_BF16, NULL};
}
static inline pl_operand pl_columns_of(const void *data, int64_t cols, pl_dtype t) {
    return pl_operand{data, 1, cols, t == PL_BF16, NULL};
}

enum pl_gemm_flags {
    PL_GEMM_ADD = 1,  // += instead of =
    PL_GEMM_BF16 = 2, // the weight's values are bf16
};

// C [M, N] with rows c_row apart; A [M, K], B [N, K]. Takes scratch: call it on measuring contexts as well, with the
// step's shapes; it does nothing else there.
void PL_CUDA(gemm)(pl_ctx *ctx, const char *op, float *c, int64_t c_row, const pl_operand &a, const pl_operand &b,
                   int64_t M, int64_t N, int64_t K, int flags);

// Returns a copy of a factor in bf16, its lines padded with zeros to multiples of 8, in scratch that the caller
// releases.
pl_operand PL_CUDA(narrowed)(pl_ctx *ctx, const char *op, const pl_operand &from, int64_t rows, int64_t K);

// Returns true if a bf16 product of this shape reads fp32 A [M, K] through such a copy.
bool PL_CUDA(narrows)(pl_ctx *ctx, int64_t M, int64_t N, int64_t K);

static inline int pl_gemm_kind(const pl_tensor *weight) {
    return weight->dtype == PL_BF16 || weight->bf16 ? PL_GEMM_BF16 : 0;
}
// Returns a weight [N, K] from row n on, as a factor along its rows or along its columns.
static inline pl_operand pl_weight_rows(const pl_tensor *w, int64_t n) {
    int64_t K = w->dim[1];
    if (w->bf16) return pl_rows_of(w->bf16 + n * K, K, PL_BF16);
    return pl_rows_of((const char *)w->data + n * K * (w->dtype == PL_BF16 ? 2 : 4), K, w->dtype);
}
static inline pl_operand pl_weight_columns(const pl_tensor *w, int64_t n) {
    pl_operand o = pl_weight_rows(w, n);
    return pl_operand{o.data, 1, o.row, o.bf16, NULL};
}

#endif
