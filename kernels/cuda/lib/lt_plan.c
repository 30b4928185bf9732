// The library and a product's descriptors: the part that needs no device.
#include "kernels/cuda/lib/library.h"
#include "kernels/cuda/lib/lt_table.h"
#include <stdio.h>

#define TEXT_2(x) #x
#define TEXT(x) TEXT_2(x)

pl_status pl_lt_open(const char *name, const char *folder, pl_lt_table *t, pl_err *err) {
    static const char *const symbol[] = {
#define X(name) "cublasLt" #name,
        PL_LT_FUNCTIONS(X)
#undef X
    };
    enum { N = sizeof symbol / sizeof *symbol };
    _Static_assert(sizeof *t == N * sizeof(void *), "a table of pointers alone");
    return pl_library_open(name, folder, symbol, N, t, err);
}

static pl_lt_table     installed;
static pl_library_once once = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pl_status open_installed(pl_err *err) {
    return pl_lt_open("libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), PL_CUDA_LIBRARIES, &installed, err);
}

const pl_lt_table *pl_lt_installed(pl_err *err) {
    return pl_library_is_there(&once, "PACELINE_GEMM", open_installed, err) ? &installed : NULL;
}

const pl_lt_table *pl_lt_none(pl_err *err) {
    (void)err;
    return NULL;
}

void pl_backend_cuda_libraries(char *out, size_t room) {
    pl_err             err = {0};
    const pl_lt_table *t = pl_lt_installed(&err);
    size_t             v = t ? t->GetVersion() : 0;
    if (t)
        snprintf(out, room, "cuBLASLt %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    else
        snprintf(out, room, "own kernels (%s)", err.msg);
}

// ---- plans ----------------------------------------------------------------------------------------------------------

// The library's matrices are column-major. Ours, row-major, are theirs transposed, so it computes
//   C^T [N, M] = B' [N, K] A'^T [K, M]
// with C^T as it lies in memory (ld c_row). Lines of B are rows of B (K long): a [K, N] matrix of theirs, transposed;
// or its columns (N long): a [N, K] matrix as it is. Lines of A are rows (K long): a [K, M] matrix as it is; or columns
// (M long): a [M, K] matrix, transposed.
static cublasStatus_t describe(const pl_lt_table *t, const pl_lt_product *p, pl_lt_plan *plan) {
    const int32_t  of_b = p->b.columns ? CUBLAS_OP_N : CUBLAS_OP_T, of_a = p->a.columns ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint64_t workspace = PL_LT_WORKSPACE, M = (uint64_t)p->M, N = (uint64_t)p->N, K = (uint64_t)p->K;
    const uint32_t factor = 16, out = plan->c_aligned ? 16 : 4;
    const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void                          *value;
        size_t                               bytes;
    } wish[] = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
                {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &factor, sizeof factor},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &factor, sizeof factor},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out}};
    cublasStatus_t e = t->MatmulDescCreate(&plan->op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!e) e = t->MatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof of_b);
    if (!e) e = t->MatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof of_a);
    if (!e) e = t->MatrixLayoutCreate(&plan->left, CUDA_R_16BF, p->b.columns ? N : K, p->b.columns ? K : N, p->b.line);
    if (!e) e = t->MatrixLayoutCreate(&plan->right, CUDA_R_16BF, p->a.columns ? M : K, p->a.columns ? K : M, p->a.line);
    if (!e) e = t->MatrixLayoutCreate(&plan->out, CUDA_R_32F, N, M, p->c_row);
    if (!e) e = t->MatmulPreferenceCreate(&plan->wish);
    for (size_t i = 0; i < sizeof wish / sizeof *wish && !e; i++)
        e = t->MatmulPreferenceSetAttribute(plan->wish, wish[i].name, wish[i].value, wish[i].bytes);
    return e;
}

pl_status pl_lt_plan_create(const pl_lt_table *t, const pl_lt_product *p, pl_lt_plan *plan, pl_err *err) {
    *plan = (pl_lt_plan){.M = p->M,
                         .N = p->N,
                         .K = p->K,
                         .c_row = p->c_row,
                         .a_line = p->a.line,
                         .b_line = p->b.line,
                         .a_columns = p->a.columns,
                         .b_columns = p->b.columns,
                         .add = p->add,
                         .c_aligned = (uintptr_t)p->c % 16 == 0 && p->c_row % 4 == 0,
                         .used = true};
    cublasStatus_t e = describe(t, p, plan);
    if (!e) return PL_OK;
    pl_lt_plan_destroy(t, plan);
    return pl_fail(err, PL_E_DEVICE, "cuBLASLt: a product of %lld x %lld x %lld: %s", (long long)p->M, (long long)p->N,
                   (long long)p->K, t->GetStatusString(e));
}

void pl_lt_plan_destroy(const pl_lt_table *t, pl_lt_plan *plan) {
    if (plan->wish) t->MatmulPreferenceDestroy(plan->wish);
    if (plan->out) t->MatrixLayoutDestroy(plan->out);
    if (plan->right) t->MatrixLayoutDestroy(plan->right);
    if (plan->left) t->MatrixLayoutDestroy(plan->left);
    if (plan->op) t->MatmulDescDestroy(plan->op);
    *plan = (pl_lt_plan){0};
}
