// Matrix products of row-major floats: what training spends its time in. Compiled once per ISA like every cpu source;
// the names below are macros for this ISA's functions.
//
//   PL_GEMM_NT   C[m, n] (+)= sum_k A[m, k] B[n, k]     A [M, K], B [N, K]    y = x W^T
//   PL_GEMM_NN   C[m, n] (+)= sum_k A[m, k] B[k, n]     A [M, K], B [K, N]    dx += dy W
//   PL_GEMM_TN   C[m, n] (+)= sum_k A[k, m] B[k, n]     A [K, M], B [K, N]    dW += dy^T x
//
// lda, ldb, ldc: floats from one row to the next. accumulate false: C is written, never read (it may be
// uninitialised). C must not overlap A or B. Any size from 0 up; K = 0 means a sum of nothing.
//
// Determinism: an element's value is a function of its row of A, its column of B and K alone: K is cut into blocks by
// its length only, within a block one accumulator takes fma(a, b) in order, blocks are added in order. So the bits are
// the same for any number of threads, any split, whatever M and N are, and on AVX2 and AVX-512 alike. They are not
// those of the panel product of linear.h, which does not cut K.
//
// pl_gemm_bf16: the same products of numbers rounded to bf16, as kernels/cpu/panels.h sums them: the bits of packed
// weights, so that a forward in training is that of decoding, at every level and for any number of threads. A C that is
// accumulated on is what its sums start from.
#ifndef PL_CPU_GEMM_H
#define PL_CPU_GEMM_H

#include "kernels/backend.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/simd.h"

typedef enum pl_gemm_kind { PL_GEMM_NT, PL_GEMM_NN, PL_GEMM_TN } pl_gemm_kind;

#define pl_gemm PL_CPU(gemm)
#define pl_gemm_bf16 PL_CPU(gemm_bf16)
#define pl_gemm_b_bytes PL_CPU(gemm_b_bytes)
#define pl_gemm_b_pack PL_CPU(gemm_b_pack)
#define pl_gemm_panels PL_CPU(gemm_panels)
#define pl_gemm_rows_bytes PL_CPU(gemm_rows_bytes)
#define pl_gemm_rows_begin PL_CPU(gemm_rows_begin)
#define pl_gemm_rows PL_CPU(gemm_rows)
#define pl_gemm_serial PL_CPU(gemm_serial)
#define pl_gemm_scratch_bytes PL_CPU(gemm_scratch_bytes)

// Parallel inside (ctx->pool), packs into ctx->scratch. While ctx is measuring it only reserves that scratch, so a
// measuring op calls it with the same shapes and NULL pointers.
void pl_gemm(pl_ctx *ctx, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
             const float *b, int64_t ldb, bool accumulate, float *c, int64_t ldc);

// A factor that may lie in bf16; ld in elements.
typedef struct pl_factor {
    const void *data;
    int64_t     ld;
    bool        bf16;
} pl_factor;
// A row-major weight whose values are those of bf16: products with it are pl_gemm_bf16's.
static inline bool pl_weight_in_bf16(const pl_tensor *w) {
    return w->dtype == PL_BF16 || w->bf16;
}
// Its rows from n on.
static inline pl_factor pl_weight_halves(const pl_tensor *w, int64_t n) {
    const uint8_t *data = w->bf16 ? (const uint8_t *)w->bf16 : w->data;
    return (pl_factor){.data = data + n * w->dim[1] * 2, .ld = w->dim[1], .bf16 = true};
}
void pl_gemm_bf16(pl_ctx *ctx, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                  pl_factor b, bool accumulate, float *c, int64_t ldc);

// What pl_gemm_bf16 is made of, for who multiplies by the same factor more than once, or goes on with a part of C while
// it is in a cache. All of it is done on the calling thread, in parts of a parallel region; the bits are pl_gemm_bf16's
// however C is cut.
//
// B, packed: B[n, k] where it lies along k (NT), else B[k, n]. panels: 64-byte aligned, pl_gemm_b_bytes, which grow
// with n and k.
typedef struct pl_gemm_b {
    bool      along;
    int64_t   n, k;
    pl_factor from;
    uint32_t *panels;
} pl_gemm_b;
size_t  pl_gemm_b_bytes(int64_t n, int64_t k);
void    pl_gemm_b_pack(const pl_gemm_b *b, int part, int parts); // one part's share of it
int64_t pl_gemm_panels(const pl_gemm_b *b);                      // of how many C's columns are
// A, packed by pl_rows_pack and pl_rows_pack_some: A[rows, k], or across A[k, rows]. room: 64-byte aligned,
// pl_gemm_rows_bytes, which grow with rows and k.
size_t  pl_gemm_rows_bytes(int64_t rows, int64_t k);
void    pl_gemm_rows_begin(pl_rows *x, const float *a, int64_t lda, bool across, int64_t rows, int64_t k, void *room);
// Tiles [t0, t1) of A times panels [p0, p1) of B; c: the row of C that is the first of tile t0. Between pl_panels_begin
// and pl_panels_end.
void    pl_gemm_rows(const pl_rows *x, int64_t t0, int64_t t1, const pl_gemm_b *b, int64_t p0, int64_t p1, bool resume,
                     float *c, int64_t ldc);

// The same product as pl_gemm's, same bits, on the calling thread: for use inside a part of a parallel region. scratch:
// 64-byte aligned, pl_gemm_scratch_bytes(m, n, k) bytes, one per concurrent call. Sizes grow with m, n and k, so that
// the bytes for the largest shape serve all smaller ones.
size_t pl_gemm_scratch_bytes(int64_t m, int64_t n, int64_t k);
void   pl_gemm_serial(void *scratch, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                      const float *b, int64_t ldb, bool accumulate, float *c, int64_t ldc);

#endif
