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
static bool runs_avx512_bf16(void) {
    enum { BF16 = 1 << 5 };
    unsigned a, b, c, d;
    return runs_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BF16);
}
// The unit is there, and the kernel gives this process its 8 KB a thread (Linux 5.16 and later are to be asked).
static bool runs_amx(void) {
    enum { BF16 = 1 << 22, TILE = 1 << 24, OSXSAVE = 1 << 27, TILES_SAVED = 3 << 17, REQUEST = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d, low, high;
    if (!runs_avx512_bf16() || !__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (BF16 | TILE)) != (BF16 | TILE)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILES_SAVED) == TILES_SAVED && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#endif
static bool runs_portable(void) {
    return true;
}
static bool always(void) {
    return true;
}
#if defined(__x86_64__)
#ifndef PL_UNITS_NOT_EMULATED
static bool never(void) {
    return false;
}
#endif
// AMD's VDPBF16PS does twice what its fma does, Intel's half of it.
static bool on_amd(void) {
    return __builtin_cpu_is("amd");
}
#endif

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

#define PL_LEVEL_UNITS portable
#define PL_LEVEL_VECTORS portable
#define PL_LEVEL_NAME "portable"
#define PL_LEVEL_ARITHMETIC ARITHMETIC_PORTABLE
#include "kernels/level.h"
#if defined(__x86_64__)
#define PL_LEVEL_UNITS avx2
#define PL_LEVEL_VECTORS avx2
#define PL_LEVEL_NAME "avx2"
#define PL_LEVEL_ARITHMETIC ARITHMETIC
#include "kernels/level.h"
#define PL_LEVEL_UNITS avx512
#define PL_LEVEL_VECTORS avx512
#define PL_LEVEL_NAME "avx512"
#define PL_LEVEL_ARITHMETIC ARITHMETIC
#include "kernels/level.h"
#define PL_LEVEL_UNITS avx512_bf16
#define PL_LEVEL_VECTORS avx512
#define PL_LEVEL_NAME "avx512-bf16"
#define PL_LEVEL_ARITHMETIC ARITHMETIC
#include "kernels/level.h"
#define PL_LEVEL_UNITS amx
#define PL_LEVEL_VECTORS avx512
#define PL_LEVEL_NAME "amx"
#define PL_LEVEL_ARITHMETIC ARITHMETIC
#include "kernels/level.h"
#ifndef PL_UNITS_NOT_EMULATED // a build without tests
#define PL_LEVEL_UNITS units_emulated
#define PL_LEVEL_VECTORS avx2
#define PL_LEVEL_NAME "units-emulated"
#define PL_LEVEL_ARITHMETIC ARITHMETIC
#include "kernels/level.h"
#endif
#endif

typedef double unit_fn(int times); // pl_unit_run (kernels/cpu/panels.h)

// Best first.
static const struct {
    const char       *isa;
    const pl_backend *be;
    const pl_softmax *softmax;
    unit_fn          *unit;
    bool (*runs)(void);
    bool (*suits)(void); // it is taken without being named
} variants[] = {
#define VARIANT(name, level, vectors, runs, suits)                                                                     \
    { name, &backend_##level, &pl_softmax_##vectors, pl_unit_run_##level, runs, suits }
#if defined(__x86_64__)
    VARIANT("amx", amx, avx512, runs_amx, always),
    VARIANT("avx512-bf16", avx512_bf16, avx512, runs_avx512_bf16, on_amd),
    VARIANT("avx512", avx512, avx512, runs_avx512, always),
    VARIANT("avx2", avx2, avx2, runs_avx2, always),
#endif
    VARIANT("portable", portable, portable, runs_portable, always),
#if defined(__x86_64__) && !defined(PL_UNITS_NOT_EMULATED)
    VARIANT("units-emulated", units_emulated, avx2, runs_avx2, never),
#endif
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

const char *pl_backend_cpu_level(int i) {
    return i < VARIANTS ? variants[i].isa : NULL;
}

typedef struct unit_job {
    unit_fn *run;
    int      times;
} unit_job;

static void unit_part(void *arg, int part, int parts) {
    (void)part, (void)parts;
    const unit_job *j = arg;
    j->run(j->times);
}

// Some 0.3 ms, of which waking the threads is little.
static double unit_flops_once(unit_fn *run, pl_pool *pool) {
    unit_job job = {run, 1000};
    int      threads = pl_pool_threads(pool);
    double   t0 = pl_now(), flops = run(job.times);
    if (flops <= 0) return 0;
    job.times = (int)(3e-4 / (pl_now() - t0) * job.times) + 1;
    flops = flops / 1000 * job.times;
    t0 = pl_now();
    pl_parallel(pool, threads, unit_part, &job);
    return flops * threads / (pl_now() - t0);
}

double pl_backend_peak_once(const pl_backend *be, pl_dtype factors, pl_pool *pool) {
    if (be->memory) return 0;
    double unit = 0;
    for (int i = 0; i < VARIANTS && factors == PL_BF16; i++)
        if (variants[i].be == be) unit = unit_flops_once(variants[i].unit, pool);
    return unit > 0 ? unit : pl_probe_flops_once(pool);
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
    const char *name = getenv("PACELINE_ISA");
    int         asked = -1, i = 0;
    if (name && *name) {
        while (i < VARIANTS && strcmp(variants[i].isa, name) != 0)
            i++;
        if (i == VARIANTS) {
            pl_log_warn("PACELINE_ISA=%s: no such level; `paceline doctor` lists them; using the best", name);
            i = 0;
        } else {
            asked = i;
        }
    }
    while (!variants[i].runs() || (i != asked && !variants[i].suits())) // portable always does
        i = i + 1 < VARIANTS ? i + 1 : 0;
    return i;
}

const pl_backend *pl_backend_cpu(void) {
    return variants[chosen()].be;
}

const pl_softmax *pl_softmax_cpu(void) {
    return variants[chosen()].softmax;
}
