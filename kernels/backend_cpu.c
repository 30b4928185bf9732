// The cpu backends: the table of ref, overridden by what cpu.def lists, once per ISA. Which of them this machine can
// run is asked of the processor at run time.
#include "kernels/backend.h"
#include "kernels/base/log.h"
#include "kernels/softmax.h"
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

typedef void declare_op(pl_ctx *ctx, const void *args);
#define DECLARE_BWD_0(name)
#define DECLARE_BWD_1(name) declare_op pl_##name##_bwd_ref32;
#define X(NAME, name, backward)                                                                                        \
    declare_op pl_##name##_fwd_ref32;                                                                                  \
    DECLARE_BWD_##backward(name)
#include "kernels/ops.def"
#undef X

// X86(x): only where the x86 variants are compiled.
#if defined(__x86_64__)
#define X86(...) __VA_ARGS__
static bool runs_f16c(void) { // clang does not know it by name
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
static bool runs_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && runs_f16c();
}
static bool runs_avx512(void) {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
#define X86(...)
#endif
static bool runs_portable(void) {
    return true;
}

#define X_FWD(NAME, name)                                                                                              \
    declare_op pl_##name##_fwd_portable;                                                                               \
    X86(declare_op pl_##name##_fwd_avx2, pl_##name##_fwd_avx512;)
#define X_BWD(NAME, name)                                                                                              \
    declare_op pl_##name##_bwd_portable;                                                                               \
    X86(declare_op pl_##name##_bwd_avx2, pl_##name##_bwd_avx512;)
#include "kernels/cpu.def"
#undef X_FWD
#undef X_BWD

// An override is a second initializer of the same element, on purpose.
#pragma GCC diagnostic ignored "-Woverride-init"
#define BWD_0(NAME, name)
#define BWD_1(NAME, name) .bwd[PL_OP_##NAME] = pl_##name##_bwd_ref32,
#define X(NAME, name, backward) .fwd[PL_OP_##NAME] = pl_##name##_fwd_ref32, BWD_##backward(NAME, name)

static const pl_backend portable = {
    .name = "cpu-portable",
    .real = PL_F32,
#include "kernels/ops.def"
#define X_FWD(NAME, name) .fwd[PL_OP_##NAME] = pl_##name##_fwd_portable,
#define X_BWD(NAME, name) .bwd[PL_OP_##NAME] = pl_##name##_bwd_portable,
#include "kernels/cpu.def"
#undef X_FWD
#undef X_BWD
};

#if defined(__x86_64__)
static const pl_backend avx2 = {
    .name = "cpu-avx2",
    .real = PL_F32,
#include "kernels/ops.def"
#define X_FWD(NAME, name) .fwd[PL_OP_##NAME] = pl_##name##_fwd_avx2,
#define X_BWD(NAME, name) .bwd[PL_OP_##NAME] = pl_##name##_bwd_avx2,
#include "kernels/cpu.def"
#undef X_FWD
#undef X_BWD
};

static const pl_backend avx512 = {
    .name = "cpu-avx512",
    .real = PL_F32,
#include "kernels/ops.def"
#define X_FWD(NAME, name) .fwd[PL_OP_##NAME] = pl_##name##_fwd_avx512,
#define X_BWD(NAME, name) .bwd[PL_OP_##NAME] = pl_##name##_bwd_avx512,
#include "kernels/cpu.def"
#undef X_FWD
#undef X_BWD
};
#endif

extern const pl_softmax pl_softmax_portable;
X86(extern const pl_softmax pl_softmax_avx2, pl_softmax_avx512;)

// Best first.
static const struct {
    const char       *isa;
    const pl_backend *be;
    const pl_softmax *softmax;
    bool (*runs)(void);
} variants[] = {
    X86({"avx512", &avx512, &pl_softmax_avx512, runs_avx512},
        {"avx2", &avx2, &pl_softmax_avx2, runs_avx2}, ){"portable", &portable, &pl_softmax_portable, runs_portable},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

const pl_backend *pl_backend_cpu_isa(const char *isa) {
    for (int i = 0; i < VARIANTS; i++)
        if (strcmp(variants[i].isa, isa) == 0) return variants[i].runs() ? variants[i].be : NULL;
    return NULL;
}

static int chosen(void) {
    const char *most = getenv("PACELINE_ISA");
    int         i = 0;
    if (most && *most) {
        while (i < VARIANTS && strcmp(variants[i].isa, most) != 0)
            i++;
        if (i == VARIANTS) {
            pl_log_warn("PACELINE_ISA=%s: no such ISA (portable, avx2, avx512); using the best", most);
            i = 0;
        }
    }
    while (!variants[i].runs()) // portable, the last one, always runs
        i++;
    return i;
}

const pl_backend *pl_backend_cpu(void) {
    return variants[chosen()].be;
}

const pl_softmax *pl_softmax_cpu(void) {
    return variants[chosen()].softmax;
}
