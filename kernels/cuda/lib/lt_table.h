// Table of the cuBLASLt functions in use; and a product as its descriptors.
#ifndef PL_CUDA_LT_TABLE_H
#define PL_CUDA_LT_TABLE_H

#include "kernels/cuda/lib/lt.h"
#include <cublasLt.h>

#define PL_LT_FUNCTIONS(X)                                                                                             \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(GetVersion)                                                                                                      \
    X(GetStatusString)                                                                                                 \
    X(MatmulDescCreate)                                                                                                \
    X(MatmulDescDestroy)                                                                                               \
    X(MatmulDescSetAttribute)                                                                                          \
    X(MatrixLayoutCreate)                                                                                              \
    X(MatrixLayoutDestroy)                                                                                             \
    X(MatmulPreferenceCreate)                                                                                          \
    X(MatmulPreferenceDestroy)                                                                                         \
    X(MatmulPreferenceSetAttribute)                                                                                    \
    X(MatmulAlgoGetHeuristic)                                                                                          \
    X(Matmul)

typedef struct pl_lt_table {
#define X(name) __typeof__(cublasLt##name) *name;
    PL_LT_FUNCTIONS(X)
#undef X
} pl_lt_table;

// Opens it by name and folder, as pl_library_open does.
pl_status          pl_lt_open(const char *name, const char *folder, pl_lt_table *t, pl_err *err);
// Returns the installed one, opened at the first call and kept; NULL and one line if none is usable.
const pl_lt_table *pl_lt_installed(pl_err *err);
// Returns none, for the emulated device.
const pl_lt_table *pl_lt_none(pl_err *err);
// Tests: replaces the table of this build's device.
void               PL_CUDA(lt_use)(const pl_lt_table *t);

// A product's shape and operand layouts, and the library's plan for it.
typedef struct pl_lt_plan {
    int64_t                    M, N, K, c_row, a_line, b_line;
    bool                       a_columns, b_columns, add, c_aligned;
    bool                       used, fits; // the entry is used; there is an algorithm
    cublasLtMatmulDesc_t       op;
    cublasLtMatrixLayout_t     left, right, out; // of the transposed product: see lt.c
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulAlgo_t       algo;
} pl_lt_plan;

// Descriptors; needs no device. PL_E_DEVICE, one line and nothing held on failure.
pl_status pl_lt_plan_create(const pl_lt_table *t, const pl_lt_product *p, pl_lt_plan *plan, pl_err *err);
void      pl_lt_plan_destroy(const pl_lt_table *t, pl_lt_plan *plan);

#endif
