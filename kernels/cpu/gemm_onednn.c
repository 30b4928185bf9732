// oneDNN behind gemm.h. Each call is one product on one thread: the project's own pool makes the parallelism, so
// OpenMP is told to use one thread and never spawns any. dnnl_sgemm is plain in the v2 and v3 C APIs alike.
#include "kernels/cpu/gemm.h"
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

bool pl_gemm_onednn_wanted(void) {
    const char *s = getenv("PACELINE_GEMM");
    return s && strcmp(s, "onednn") == 0;
}

const char *pl_gemm_onednn_version(void) {
    static _Thread_local char text[64];
    const dnnl_version_t     *v = dnnl_version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

bool pl_gemm_onednn(pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                    int64_t ldb, bool accumulate, float *c, int64_t ldc) {
    omp_set_num_threads(1); // per thread: each pool thread has its own OpenMP settings
    return dnnl_sgemm(kind == PL_GEMM_TN ? 'T' : 'N', kind == PL_GEMM_NT ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb,
                      accumulate ? 1.0f : 0.0f, c, ldc) == dnnl_success;
}
