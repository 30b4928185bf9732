#include "infer/decode/calibration.h"

#include <math.h>

#define PRIOR 4.0 // observations that the own probability is worth
#define DECAY 0.998

static int bucket(double p) {
    int b = p > 0 ? (int)(-2 * log2(p)) : PL_CALIBRATION_BUCKETS - 1;
    return b < 0 ? 0 : b < PL_CALIBRATION_BUCKETS ? b : PL_CALIBRATION_BUCKETS - 1;
}

static int level(int depth) {
    return depth < PL_CALIBRATION_DEPTHS ? depth - 1 : PL_CALIBRATION_DEPTHS - 1;
}

double pl_calibration_expected(const pl_calibration *c, int depth, double own) {
    int l = level(depth), b = bucket(own);
    return (c->hit[l][b] + PRIOR * own) / (c->seen[l][b] + PRIOR);
}

void pl_calibration_observe(pl_calibration *c, int depth, double own, bool right) {
    int l = level(depth), b = bucket(own);
    c->seen[l][b] = DECAY * c->seen[l][b] + 1;
    c->hit[l][b] = DECAY * c->hit[l][b] + right;
}
