#include "kernels/base/ahead.h"

#include <stdatomic.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>

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

// known: the answer, asked once.
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
