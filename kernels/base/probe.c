#include "kernels/base/probe.h"

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define SAMPLE_SECONDS 0.004 // of one try: far above the cost of a parallel region
#define TRIES 9
#define SAMPLE_PAIRS 4 // of a sample: a single try is short of the limit by half where the machine is shared
#define FLOP_PASSES 200000
#define PREFETCH_AHEAD 16384 // bytes

typedef uint64_t (*read_fn)(const uint8_t *p, size_t n, int passes, size_t ahead);
typedef float (*flops_fn)(int passes);

// One pair of loops per instruction set; W is the width of a machine vector in bytes, A the accumulators that hide the
// latency of a multiply-add and still fit the register file. p is aligned to 64 and n a multiple of 8 W.
#define PROBE(isa, W, A, target)                                                                                       \
    target static uint64_t read_##isa(const uint8_t *p, size_t n, int passes, size_t ahead) {                          \
        typedef uint64_t vec __attribute__((vector_size(W)));                                                          \
        vec              s[8] = {{0}};                                                                                 \
        for (int pass = 0; pass < passes; pass++) {                                                                    \
            for (size_t i = 0; i < n; i += 8 * W) {                                                                    \
                if (ahead)                                                                                             \
                    for (size_t line = 0; line < 8 * W; line += 64)                                                    \
                        __builtin_prefetch(p + i + ahead + line);                                                      \
                _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) s[j] += *(const vec *)(p + i + j * W);             \
            }                                                                                                          \
            __asm__ volatile("" ::: "memory"); /* every pass reads anew */                                             \
        }                                                                                                              \
        uint64_t sum = 0;                                                                                              \
        for (int j = 0; j < 8; j++)                                                                                    \
            sum += s[j][0];                                                                                            \
        return sum;                                                                                                    \
    }                                                                                                                  \
    target static float flops_##isa(int passes) {                                                                      \
        typedef float vec __attribute__((vector_size(W)));                                                             \
        vec           s[A], a = {0}, b = {0};                                                                          \
        a += 1.0f - 1e-7f;                                                                                             \
        b += 1e-7f;                                                                                                    \
        __asm__ volatile("" : "+m"(a), "+m"(b)); /* not known at compile time */                                       \
        vec x = a, y = b;                                                                                              \
        _Pragma("GCC unroll 16") for (int j = 0; j < A; j++) s[j] = x * (float)j;                                      \
        for (int pass = 0; pass < passes; pass++)                                                                      \
            _Pragma("GCC unroll 16") for (int j = 0; j < A; j++) s[j] = s[j] * x + y;                                  \
        float sum = 0;                                                                                                 \
        for (int j = 0; j < A; j++)                                                                                    \
            sum += s[j][0];                                                                                            \
        return sum;                                                                                                    \
    }

typedef struct probe {
    read_fn  read;
    flops_fn flops;
    double   flops_per_pass;
} probe;

#define PROBE_OF(isa, W, A)                                                                                            \
    (probe) {                                                                                                          \
        read_##isa, flops_##isa, 2.0 * (A) * (W) / 4                                                                   \
    }

PROBE(plain, 16, 10, )
#if defined(__x86_64__)
PROBE(avx2, 32, 10, __attribute__((target("avx2,fma"))))
PROBE(avx512, 64, 14, __attribute__((target("avx512f"))))

static probe best_probe(void) {
    if (__builtin_cpu_supports("avx512f")) return PROBE_OF(avx512, 64, 14);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return PROBE_OF(avx2, 32, 10);
    return PROBE_OF(plain, 16, 10);
}
#else
static probe best_probe(void) {
    return PROBE_OF(plain, 16, 10);
}
#endif

#define GRAIN 512 // bytes: 8 vectors of the widest kind

typedef struct job {
    probe          p;
    const uint8_t *buffer;
    size_t         bytes; // of the buffer
    int            passes;
    size_t         ahead; // bytes of software prefetch; 0: the hardware's own
    uint64_t       sink[256];
} job;

static void read_part(void *arg, int part, int parts) {
    job *j = arg;
    long lo, hi;
    pl_range((long)(j->bytes / GRAIN), 1, part, parts, &lo, &hi);
    j->sink[part % 256] += j->p.read(j->buffer + lo * GRAIN, (size_t)(hi - lo) * GRAIN, j->passes, j->ahead);
}

typedef struct touch {
    uint8_t *buffer;
    size_t   bytes;
} touch;

// Where the pages come to lie is decided by who writes first.
static void touch_part(void *arg, int part, int parts) {
    const touch *t = arg;
    long         lo, hi;
    pl_range((long)(t->bytes / GRAIN), 1, part, parts, &lo, &hi);
    if (hi > lo) memset(t->buffer + lo * GRAIN, part + 1, (size_t)(hi - lo) * GRAIN);
}

static void flops_part(void *arg, int part, int parts) {
    (void)parts;
    job *j = arg;
    j->sink[part % 256] += j->p.flops(j->passes) > 0;
}

static double timed(job *j, pl_pool *pool, pl_part_fn fn) {
    double t0 = pl_now();
    pl_parallel(pool, pl_pool_threads(pool), fn, j);
    return pl_now() - t0;
}

// Reads once, which warms the caches, and sets how many passes a try takes.
static void calibrate(job *j, pl_pool *pool) {
    j->passes = 1;
    double once = timed(j, pool, read_part);
    if (once < SAMPLE_SECONDS) j->passes = (int)(SAMPLE_SECONDS / (once > 1e-7 ? once : 1e-7)) + 1;
}

// Which way to prefetch is faster depends on the processor and on the cache: the limit is what either reaches.
static double best_of_pairs(job *j, pl_pool *pool, int pairs) {
    double best = 0;
    for (int i = 0; i < 2 * pairs; i++) {
        j->ahead = i % 2 ? PREFETCH_AHEAD : 0;
        double rate = (double)j->bytes * j->passes / timed(j, pool, read_part);
        if (rate > best) best = rate;
    }
    return best;
}

double pl_probe_bandwidth(pl_pool *pool, size_t bytes) {
    bytes = bytes < 64 * GRAIN ? 64 * GRAIN : bytes / GRAIN * GRAIN;
    touch t = {.buffer = pl_block_create(bytes, NULL), .bytes = bytes};
    if (!t.buffer) return 0;
    pl_parallel(pool, pl_pool_threads(pool), touch_part, &t);
    job j = {.p = best_probe(), .buffer = t.buffer, .bytes = bytes};
    calibrate(&j, pool);
    double best = best_of_pairs(&j, pool, TRIES);
    pl_block_destroy(t.buffer, bytes);
    return best;
}

double pl_probe_read(pl_pool *pool, const void *p, size_t bytes) {
    job j = {.p = best_probe(), .buffer = p, .bytes = bytes / GRAIN * GRAIN};
    if (j.bytes == 0) return 0;
    calibrate(&j, pool);
    timed(&j, pool, read_part); // one pass does not fill a cache that others have used
    return best_of_pairs(&j, pool, SAMPLE_PAIRS);
}

double pl_probe_flops_once(pl_pool *pool) {
    job j = {.p = best_probe(), .passes = FLOP_PASSES};
    return j.p.flops_per_pass * j.passes * pl_pool_threads(pool) / timed(&j, pool, flops_part);
}

// ---- prefetching

#if defined(__x86_64__)
// Family 25 is Zen 3 and Zen 4; those with AVX-512 are Zen 4.
static bool is_zen4(void) {
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (!__builtin_cpu_is("amd") || !__builtin_cpu_supports("avx512f") || !__get_cpuid(1, &a, &b, &c, &d)) return false;
    return (a >> 8 & 15) + (a >> 20 & 255) == 25;
}

static bool is_intel(void) {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
}
#else
static bool is_zen4(void) {
    return false;
}
static bool is_intel(void) {
    return false;
}
#endif

// known: the result of the first call.
static bool answer(_Atomic int *known, bool (*better_without)(void)) {
    enum { UNKNOWN, NO, YES };
    int is = atomic_load_explicit(known, memory_order_relaxed);
    if (is == UNKNOWN) {
        const char *say = getenv("PACELINE_FETCH_AHEAD");
        is = say && *say ? (*say == '0' ? NO : YES) : better_without() ? NO : YES;
        atomic_store_explicit(known, is, memory_order_relaxed);
    }
    return is == YES;
}

bool pl_fetch_ahead(void) {
    static _Atomic int known;
    return answer(&known, is_zen4);
}

static bool is_zen4_or_intel(void) {
    return is_zen4() || is_intel();
}

bool pl_fetch_ahead_far(void) {
    static _Atomic int known;
    return answer(&known, is_zen4_or_intel);
}
