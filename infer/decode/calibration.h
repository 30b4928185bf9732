// How often drafted paths come true, by depth and by the drafter's own probability of the path: counted while decoding,
// old counts fading. Of a path of own probability x at depth l it expects the share of those alike (depths from
// PL_CALIBRATION_DEPTHS on are one, probabilities are told apart by half octaves), which leans on x by 4
// pseudo-observations. So a drafter that is sure without reason is believed less.
#ifndef PL_CALIBRATION_H
#define PL_CALIBRATION_H

#include <stdbool.h>

#define PL_CALIBRATION_DEPTHS 8
#define PL_CALIBRATION_BUCKETS 12

typedef struct pl_calibration { // begins as {0}
    double seen[PL_CALIBRATION_DEPTHS][PL_CALIBRATION_BUCKETS], hit[PL_CALIBRATION_DEPTHS][PL_CALIBRATION_BUCKETS];
} pl_calibration;

// depth: 1 and up; own: 0..1.
double pl_calibration_expected(const pl_calibration *c, int depth, double own);
void   pl_calibration_observe(pl_calibration *c, int depth, double own, bool right);

#endif
