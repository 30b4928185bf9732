#include "infer/decode/cost.h"

#include <math.h>

#define PSEUDO 4.0   // weight of a prior (the level above, or the drafter's own probability) in observations
#define FADE 0.998   // decay of a cell's counts at each of its observations: a memory of about 500
#define WINDOW 128   // visits over which a row count's average runs
#define DRIFT 8      // visits of any row count over which the shared speed factor adapts
#define OUTLIER 1.5  // a measurement's ratio to its expected value is clamped to 1 / OUTLIER .. OUTLIER
#define REFUTED 1.25 // a row count this many times slower than a larger one is charged as the larger one
#define SETTLED 8    // an average of fewer visits is replaced by a far lower measurement
#define EXACT 64     // row counts below have a bucket each

static int bucket_of(int rows) {
    if (rows < EXACT) return rows;
    int b = EXACT + (int)(8 * log2((double)rows / EXACT));
    return b < PL_AUTOTUNER_BUCKETS ? b : PL_AUTOTUNER_BUCKETS - 1;
}

void pl_autotuner_cost_add(pl_autotuner_cost *c, int rows, double seconds) {
    int b = bucket_of(rows);
    if (c->drift == 0) c->drift = 1;
    if (c->visits[b] == 0) {
        c->visits[b] = 1;
        c->rows[b] = rows;
        c->seconds[b] = seconds / c->drift;
        return;
    }
    if (c->visits[b] < WINDOW) c->visits[b]++;
    double expected = c->drift * c->seconds[b], r;
    if (b >= EXACT) expected *= rows / c->rows[b]; // a shared bucket: cost in proportion to rows
    r = expected > 0 ? seconds / expected : 1;
    // A first visit is often slow (cold caches, new pages), so a far lower one replaces it without a change of the
    // factor.
    bool low = r < 1 / OUTLIER, cold = (c->visits[b] == 2 && r < 1) || (c->visits[b] < SETTLED && low);
    if (low && c->visits[b] > 2) c->visits[b] /= 2; // halves the weight of an old average
    if (cold) {
        c->seconds[b] *= r;
        return;
    }
    r = fmin(fmax(r, 1 / OUTLIER), OUTLIER);
    double drift = c->drift * (1 + (r - 1) / DRIFT);
    c->seconds[b] *= 1 + (r * c->drift / drift - 1) / c->visits[b];
    c->drift = drift;
}

void pl_autotuner_cost_read(const pl_autotuner_cost *c, int step, int n, double *at) {
    double x[PL_AUTOTUNER_BUCKETS], y[PL_AUTOTUNER_BUCKETS], w[PL_AUTOTUNER_BUCKETS];
    int    m = 0, k = 0;
    for (int b = 0; b < PL_AUTOTUNER_BUCKETS; b++) {
        if (c->visits[b] == 0) continue;
        x[m] = c->rows[b];
        y[m] = c->seconds[b] * c->drift;
        w[m++] = c->visits[b];
    }
    // A row count much slower than a larger one was measured on a busy machine or on new memory. Smaller differences
    // are noise and are pooled.
    for (int i = m - 2; i >= 0; i--)
        if (y[i] > REFUTED * y[i + 1]) {
            y[i] = y[i + 1];
            w[i] = 1;
        }
    pl_shape_rising(y, w, m);
    double slope = m > 1 ? (y[m - 1] - y[0]) / (x[m - 1] - x[0]) : 0;
    for (int i = 1; i <= n; i++) {
        double rows = (double)i * step;
        while (k < m && x[k] < rows)
            k++;
        if (m == 0)
            at[i] = 0;
        else if (k == m)
            at[i] = y[m - 1] + slope * (rows - x[m - 1]);
        else if (k == 0 || x[k] == rows)
            at[i] = y[k];
        else
            at[i] = y[k - 1] + (y[k] - y[k - 1]) * (rows - x[k - 1]) / (x[k] - x[k - 1]);
    }
}

const double pl_autotuner_guess[PL_SHAPE_RANKS] = {0.5, 0.12, 0.06, 0.04, 0.03, 0.02, 0.015, 0.01};

void pl_autotuner_acceptance(const pl_autotuner_counts *n, pl_shape_costs *c) {
    for (int l = 0; l < c->levels; l++) {
        double falling[PL_SHAPE_RANKS], weight[PL_SHAPE_RANKS]; // in order of falling rank, so that values rise
        for (int r = 0; r < c->ranks; r++) {
            double above = l ? c->accept[l - 1][r] : pl_autotuner_guess[r];
            weight[c->ranks - 1 - r] = n->seen[l][r] + PSEUDO;
            falling[c->ranks - 1 - r] = (n->hit[l][r] + PSEUDO * above) / (n->seen[l][r] + PSEUDO);
        }
        pl_shape_rising(falling, weight, c->ranks);
        for (int r = 0; r < c->ranks; r++)
            c->accept[l][r] = falling[c->ranks - 1 - r];
    }
}

static int cell_of(double p) {
    int b = p > 0 ? (int)(-2 * log2(p)) : PL_CALIBRATION_BUCKETS - 1;
    return b < 0 ? 0 : b < PL_CALIBRATION_BUCKETS ? b : PL_CALIBRATION_BUCKETS - 1;
}

static int level_of(int depth) {
    return depth < PL_CALIBRATION_DEPTHS ? depth - 1 : PL_CALIBRATION_DEPTHS - 1;
}

double pl_calibration_expected(const pl_calibration *c, int depth, double own) {
    int l = level_of(depth), b = cell_of(own);
    return (c->hit[l][b] + PSEUDO * own) / (c->seen[l][b] + PSEUDO);
}

void pl_calibration_observe(pl_calibration *c, int depth, double own, bool right) {
    int l = level_of(depth), b = cell_of(own);
    c->seen[l][b] = FADE * c->seen[l][b] + 1;
    c->hit[l][b] = FADE * c->hit[l][b] + right;
}
