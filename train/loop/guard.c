#include "train/loop/guard.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/comm/reader.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED, IN_A_ROW, COUNTED, RINGS };

pl_status pl_guard_init(pl_guard *g, const pl_guard_options *o, int n_slots, int n_cursor, pl_err *err) {
    PL_CHECK(o->spike == 0 || (o->window >= 1 && o->window <= PL_GUARD_WINDOW_MAX), "a median of %lld steps",
             (long long)o->window);
    *g = (pl_guard){.o = *o, .n = RINGS, .n_slots = n_slots, .n_cursor = n_cursor};
    if (o->spike > 0) g->n += 2 * o->window;
    g->state = pl_calloc((size_t)g->n, sizeof *g->state);
    g->loss = pl_calloc(2 * (size_t)n_slots, sizeof *g->loss);
    g->cursor = pl_calloc((size_t)(n_slots + 1) * (size_t)n_cursor + 1, sizeof *g->cursor);
    if (!g->state || !g->loss || !g->cursor) {
        pl_guard_fini(g);
        return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    }
    g->weight = g->loss + n_slots;
    return PL_OK;
}

void pl_guard_fini(pl_guard *g) {
    pl_free(g->state);
    pl_free(g->loss);
    pl_free(g->cursor);
    *g = (pl_guard){0};
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *x, int64_t n) {
    double sorted[PL_GUARD_WINDOW_MAX];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

static bool is_spike(const pl_guard *g, const char *what, double x, const double *ring, char why[160]) {
    double m = median_of(ring, g->o.window);
    if (!(m > 0) || x <= g->o.spike * m) return false;
    snprintf(why, 160, "%s of %.4g is more than %g times %.4g, the median of %lld steps", what, x, g->o.spike, m,
             (long long)g->o.window);
    return true;
}

static bool is_bad(const pl_guard *g, double loss, double norm, char why[160]) {
    const double *ring = g->state + RINGS;
    if (!isfinite(loss) || !isfinite(norm)) {
        snprintf(why, 160, "the %s is not finite", isfinite(loss) ? "gradient" : "loss");
        return true;
    }
    if (g->o.spike == 0 || g->state[COUNTED] < (double)g->o.window) return false;
    return is_spike(g, "a loss", loss, ring, why) || is_spike(g, "a gradient norm", norm, ring + g->o.window, why);
}

pl_status pl_guard_check(const pl_guard *g, pl_err *err) {
    pl_reader in = pl_reader_of(0, "what its guard remembers", g->state, (size_t)g->n * sizeof *g->state, err);
    for (int i = 0; i < RINGS; i++)
        pl_reader_real(&in, "a number of steps", 0, (double)((int64_t)1 << 53));
    for (int64_t i = RINGS; i < g->n; i++)
        pl_reader_real(&in, "a loss or a norm", -DBL_MAX, DBL_MAX);
    return pl_reader_end(&in);
}

bool pl_guard_counts(pl_guard *g, double loss, double norm, double weight, char why[160]) {
    double *ring = g->state + RINGS;
    if (is_bad(g, loss, norm, why)) {
        g->state[SKIPPED]++;
        g->state[IN_A_ROW]++;
        return false;
    }
    g->state[IN_A_ROW] = 0;
    if (g->o.spike == 0 || weight <= 0) return true;
    int64_t at = (int64_t)g->state[COUNTED]++ % g->o.window;
    ring[at] = loss;
    ring[g->o.window + at] = norm;
    return true;
}

int64_t pl_guard_skipped(const pl_guard *g) {
    return (int64_t)g->state[SKIPPED];
}

int64_t pl_guard_in_a_row(const pl_guard *g) {
    return (int64_t)g->state[IN_A_ROW];
}
