// Running measurements of decoding: seconds by rows, how often a drafter's candidates are the target's token, and how
// often drafted paths come true by the drafter's own probability of them.
//
// Costs are running averages for each row count, divided by one speed factor that all of them share. Every measurement
// moves the factor, so that averages that are not refreshed follow the machine's present speed and the growing context,
// and stay comparable with fresh ones. A measurement can be too high (new memory, a busy machine) but not too low: an
// average that a measurement shows to be far too high is forgotten, and a row count that took much longer than a larger
// one is charged as that one. Averages are pooled so that they do not fall with the rows, interpolated between measured
// row counts and continued beyond them with the mean slope.
#ifndef PL_COST_H
#define PL_COST_H

#include "infer/tree/best.h"
#include <stdbool.h>

#define PL_AUTOTUNER_BUCKETS 96

// Counts up to 64 have a bucket each, larger ones share one with an eighth of an octave.
typedef struct pl_autotuner_cost {
    double visits[PL_AUTOTUNER_BUCKETS], rows[PL_AUTOTUNER_BUCKETS],
        seconds[PL_AUTOTUNER_BUCKETS]; // means, divided by `drift`
    double drift;
} pl_autotuner_cost;

void pl_autotuner_cost_add(pl_autotuner_cost *c, int rows, double seconds);
// at[i], i in 1..n: seconds of i * step rows. Zeros where nothing was measured.
void pl_autotuner_cost_read(const pl_autotuner_cost *c, int step, int n, double *at);

// Nodes at depth l of accepted paths whose candidate of rank r was looked at, and those where the target agreed.
typedef struct pl_autotuner_counts {
    double seen[PL_SHAPE_LEVELS][PL_SHAPE_RANKS], hit[PL_SHAPE_LEVELS][PL_SHAPE_RANKS];
} pl_autotuner_counts;
// The share of a candidate by rank, before anything was seen.
extern const double pl_autotuner_guess[PL_SHAPE_RANKS];
// c->accept of c->levels levels and c->ranks ranks, not rising with the rank; a level leans on the one above by 4
// pseudo-observations, the first one on a guess.
void                pl_autotuner_acceptance(const pl_autotuner_counts *n, pl_shape_costs *c);

// Drafted paths by depth (depths from PL_CALIBRATION_DEPTHS on are one) and by half octaves of the drafter's own
// probability, old counts fading; begins as {0}. A path of own probability x is expected to come true as often as those
// of its cell, which lean on x by 4 pseudo-observations: a drafter that is sure without reason counts for less.
#define PL_CALIBRATION_DEPTHS 8
#define PL_CALIBRATION_BUCKETS 12
typedef struct pl_calibration {
    double seen[PL_CALIBRATION_DEPTHS][PL_CALIBRATION_BUCKETS], hit[PL_CALIBRATION_DEPTHS][PL_CALIBRATION_BUCKETS];
} pl_calibration;
// depth: 1 and up; own: 0..1.
double pl_calibration_expected(const pl_calibration *c, int depth, double own);
void   pl_calibration_observe(pl_calibration *c, int depth, double own, bool right);

#endif
