#define _GNU_SOURCE 1 // clock_gettime
#include "kernels/base/clock.h"
#include "kernels/base/check.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double pl_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double pl_unix_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// An integer that orders as the double does (a NaN with the sign bit clear comes last).
static uint64_t key_of(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return u >> 63 ? ~u : u | UINT64_C(1) << 63;
}

static double from_key(uint64_t k) {
    uint64_t u = k >> 63 ? k ^ UINT64_C(1) << 63 : ~k;
    double   x;
    memcpy(&x, &u, 8);
    return x;
}

// The k-th smallest of x[n], by bisection over keys: 64 passes, no copy, so a bench may call it without allocating.
static double kth(const double *x, int n, int k) {
    uint64_t lo = 0, hi = UINT64_MAX;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int      upto = 0;
        for (int i = 0; i < n; i++)
            upto += key_of(x[i]) <= mid;
        if (upto > k)
            hi = mid;
        else
            lo = mid + 1;
    }
    return from_key(lo);
}

// Linear between neighbouring ranks.
static double quantile(const double *x, int n, double q) {
    double at = q * (n - 1);
    int    k = (int)at;
    double a = kth(x, n, k), part = at - k;
    return part > 0 ? a + part * (kth(x, n, k + 1) - a) : a;
}

pl_sample_stats pl_stats(const double *x, int n) {
    PL_CHECK(n >= 1, "statistics of %d samples", n);
    pl_sample_stats s = {.n = n};
    for (int i = 0; i < n; i++)
        s.mean += x[i] / n;
    s.min = kth(x, n, 0);
    s.median = quantile(x, n, 0.5);
    s.p10 = quantile(x, n, 0.1);
    s.p90 = quantile(x, n, 0.9);
    return s;
}

int pl_by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

pl_interval pl_interval_95(double *x, int n) {
    int finite = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(x[i])) x[finite++] = x[i];
    if (finite == 0) return (pl_interval){NAN, NAN, n};
    int cut = (int)((long long)finite * 25 / 1000);
    qsort(x, (size_t)finite, sizeof *x, pl_by_value);
    return (pl_interval){x[cut], x[finite - 1 - cut], n - finite};
}
