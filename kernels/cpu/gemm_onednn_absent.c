// A build without oneDNN: every product is the own one.
#include "kernels/cpu/gemm.h"

bool pl_gemm_onednn_wanted(void) {
    return false;
}

const char *pl_gemm_onednn_version(void) {
    return NULL;
}

bool pl_gemm_onednn(pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                    int64_t ldb, bool accumulate, float *c, int64_t ldc) {
    (void)kind, (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)ldb, (void)accumulate, (void)c, (void)ldc;
    return false;
}
