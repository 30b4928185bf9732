// Running measurements of decoding: seconds by rows, the acceptance of a drafter's candidates by depth and rank, and
// the acceptance of drafted paths by the drafter's own probability.
//
// Costs are running averages for each row count, divided by one speed factor that all of them share. Every measurement
// moves the factor, so that old averages follow the machine's present speed and the growing context and stay comparable
// with new ones. A measurement can be too high (new memory, a busy machine) but not too low: an
// average far above a new measurement is replaced, and a row count that took much longer than a larger one is charged
// as the larger one. Averages are pooled so that they do not fall with the rows, interpolated between measured
// row counts and continued beyond them with the mean slope.
#ifndef PL_COST_H
#define PL_COST_H

#include "infer/tree/best.h"
#include <stdbool.h>

#define PL_AUTOTUNER_BUCKETS 96

// Row counts below 64 have a bucket each; above, a bucket spans an eighth of an octave.
typedef struct pl_autotuner_cost {
    double visits[PL_AUTOTUNER_BUCKETS], rows[PL_AUTOTUNER_BUCKETS],
        seconds[PL_AUTOTUNER_BUCKETS]; // means, divided by `drift`
    double drift;
} pl_autotuner_cost;

void pl_autotuner_cost_add(pl_autotuner_cost *c, int rows, double seconds);
// Writes the seconds of i * step rows to at[i], i in 1..n; zeros where nothing was measured.
void pl_autotuner_cost_read(const pl_autotuner_cost *c, int step, int n, double *at);

// seen[l][r]: nodes at depth l of accepted paths that had a candidate of rank r; hit[l][r]: nodes among them where that
// candidate was the target's token.
typedef struct pl_autotuner_counts {
    double seen[PL_SHAPE_LEVELS][PL_SHAPE_RANKS], hit[PL_SHAPE_LEVELS][PL_SHAPE_RANKS];
} pl_autotuner_counts;
// The assumed acceptance by rank, before any observation.
extern const double pl_autotuner_guess[PL_SHAPE_RANKS];
// Fills c->accept for c->levels levels and c->ranks ranks, not rising with the rank. Each level is smoothed towards the
// level above by 4 pseudo-observations, the first level towards pl_autotuner_guess.
void                pl_autotuner_acceptance(const pl_autotuner_counts *n, pl_shape_costs *c);

// Decayed counts of drafted paths and of accepted ones, by depth (depths from PL_CALIBRATION_DEPTHS on share a cell)
// and by half octaves of the drafter's own probability; begins as {0}. The expected acceptance of a path of own
// probability x is the share of its cell, smoothed towards x by 4 pseudo-observations, which corrects an overconfident
// drafter.
#define PL_CALIBRATION_DEPTHS 8
#define PL_CALIBRATION_BUCKETS 12
typedef struct pl_calibration {
    double seen[PL_CALIBRATION_DEPTHS][PL_CALIBRATION_BUCKETS], hit[PL_CALIBRATION_DEPTHS][PL_CALIBRATION_BUCKETS];
} pl_calibration;
// Returns the expected acceptance; depth: 1 and up; own: 0..1.
double pl_calibration_expected(const pl_calibration *c, int depth, double own);
void   pl_calibration_observe(pl_calibration *c, int depth, double own, bool right);

#endif
