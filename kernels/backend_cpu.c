// The cpu backends: the table of ref, overridden by what cpu.def lists, once per ISA. Which of them this machine can
// run is asked of the processor at run time.
#include "kernels/backend.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/base/probe.h"
#include "kernels/softmax.h"
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

typedef void declare_op(pl_ctx *ctx, const void *args);
#define DECLARE_BWD_0(name)
#define DECLARE_BWD_1(name) declare_op pl_##name##_bwd_ref32;
#define X(NAME, name, backward)                                                                                        \
    declare_op pl_##name##_fwd_ref32;                                                                                  \
    DECLARE_BWD_##backward(name)
#include "kernels/ops.def"
#undef X

#if defined(__x86_64__)
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
// The unit is there, and the kernel gives this process its 8 KB a thread (Linux 5.16 and later are to be asked).
static bool runs_amx(void) {
    enum { BF16 = 1 << 22, TILE = 1 << 24, OSXSAVE = 1 << 27, TILES_SAVED = 3 << 17, REQUEST = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d, low, high;
    if (!runs_avx512() || !__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (BF16 | TILE)) != (BF16 | TILE)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILES_SAVED) == TILES_SAVED && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#endif
static bool runs_portable(void) {
    return true;
}

// An override is a second initializer of the same element, on purpose.
#pragma GCC diagnostic ignored "-Woverride-init"
#define BWD_0(NAME, name)
#define BWD_1(NAME, name) .bwd[PL_OP_##NAME] = pl_##name##_bwd_ref32,
#define X(NAME, name, backward) .fwd[PL_OP_##NAME] = pl_##name##_fwd_ref32, BWD_##backward(NAME, name)

// Levels with a fused multiply-add give the same bits, in fp32 and in bf16; without one fp32 differs.
#define ARITHMETIC "cpu-2"
#if defined(__FP_FAST_FMAF)
#define ARITHMETIC_PORTABLE ARITHMETIC
#else
#define ARITHMETIC_PORTABLE "cpu-2-unfused"
#endif

#define PL_LEVEL portable
#define PL_LEVEL_NAME "portable"
#define PL_LEVEL_ARITHMETIC ARITHMETIC_PORTABLE
#include "kernels/level.h"
#if defined(__x86_64__)
#define PL_LEVEL avx2
#define PL_LEVEL_NAME "avx2"
#define PL_LEVEL_ARITHMETIC ARITHMETIC
#include "kernels/level.h"
#define PL_LEVEL avx512
#define PL_LEVEL_NAME "avx512"
#define PL_LEVEL_ARITHMETIC ARITHMETIC
#include "kernels/level.h"
#define PL_LEVEL amx
#define PL_LEVEL_NAME "amx"
#define PL_LEVEL_ARITHMETIC ARITHMETIC
#include "kernels/level.h"
#define PL_LEVEL amx_emulated
#define PL_LEVEL_NAME "amx-emulated"
#define PL_LEVEL_ARITHMETIC ARITHMETIC
#include "kernels/level.h"
#endif

// Best first; what comes after portable is taken by name only.
static const struct {
    const char       *isa;
    const pl_backend *be;
    const pl_softmax *softmax;
    bool (*runs)(void);
} variants[] = {
#if defined(__x86_64__)
    {"amx", &backend_amx, &pl_softmax_amx, runs_amx},
    {"avx512", &backend_avx512, &pl_softmax_avx512, runs_avx512},
    {"avx2", &backend_avx2, &pl_softmax_avx2, runs_avx2},
#endif
    {"portable", &backend_portable, &pl_softmax_portable, runs_portable},
#if defined(__x86_64__)
    {"amx-emulated", &backend_amx_emulated, &pl_softmax_amx_emulated, runs_avx2},
#endif
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

const char *pl_backend_cpu_level(int i) {
    return i < VARIANTS ? variants[i].isa : NULL;
}

#if defined(__x86_64__)
void pl_unit_run_amx(int times); // kernels/cpu/panels.h

static void unit_part(void *arg, int part, int parts) {
    (void)part, (void)parts;
    pl_unit_run_amx(*(const int *)arg);
}

static double unit_flops_once(pl_pool *pool) {
    int    times = 20000, threads = pl_pool_threads(pool);
    double t0 = pl_now();
    pl_parallel(pool, threads, unit_part, &times);
    return 4 * 16384.0 * times * threads / (pl_now() - t0);
}
#endif

double pl_backend_peak_once(const pl_backend *be, pl_dtype factors, pl_pool *pool) {
    if (be->memory) return 0;
#if defined(__x86_64__)
    if (be == &backend_amx && factors == PL_BF16) return unit_flops_once(pool);
#endif
    return pl_probe_flops_once(pool);
}

double pl_backend_peak(const pl_backend *be, pl_dtype factors, pl_pool *pool) {
    double best = 0;
    for (int i = 0; i < 9; i++) {
        double rate = pl_backend_peak_once(be, factors, pool);
        if (rate > best) best = rate;
    }
    return best;
}

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
            pl_log_warn("PACELINE_ISA=%s: no such level (amx, avx512, avx2, portable, amx-emulated); using the best",
                        most);
            i = 0;
        }
    }
    while (!variants[i].runs()) // portable always does
        i = i + 1 < VARIANTS ? i + 1 : 0;
    return i;
}

const pl_backend *pl_backend_cpu(void) {
    return variants[chosen()].be;
}

const pl_softmax *pl_softmax_cpu(void) {
    return variants[chosen()].softmax;
}
