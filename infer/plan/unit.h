// What a plan becomes on another unit of products: costs that were measured here, predicted for a processor whose
// matrix unit does more multiply-adds a second and which reads its memory as fast.
//
// A part of a cycle (the target's forward, a layer, a head) of r rows reads W bytes of weights and multiplies with each
// of their n = W / (bytes of one) values r times. On a unit of F operations a second, two of them a multiply-add, it
// takes no less than
//   floor(r, F) = max(W / bandwidth, 2 n r / F),
// and took t(r) here, whose unit does F0. Of that, what no unit hastens (attention, normalisation, waiting) is not
// known; so the prediction is an interval:
//   t(r) floor(r, F) / floor(r, F0)         all of it goes with the floor: the least
//   t(r) - (floor(r, F0) - floor(r, F))     only the floor's difference is gained: the most
// Where the weights are what limits both, as for one row, nothing changes.
#ifndef PL_PLAN_UNIT_H
#define PL_PLAN_UNIT_H

#include "infer/plan/plan.h"

typedef struct pl_plan_unit {
    double flops, now; // operations a second: the other unit's, the one's that costs were measured with
    double bandwidth;  // bytes a second of weights
    int    element;    // bytes of a weight
} pl_plan_unit;

// Weights, in bytes, that the parts read.
typedef struct pl_plan_weights {
    double target, layer, head;
} pl_plan_weights;

typedef enum pl_plan_bound { PL_PLAN_LEAST, PL_PLAN_MOST } pl_plan_bound;

double pl_plan_unit_floor(const pl_plan_unit *u, double flops, double bytes, double rows);
// Seconds of one part of so many rows, of which `seconds` were measured.
double pl_plan_unit_seconds(const pl_plan_unit *u, pl_plan_bound b, double bytes, double rows, double seconds);
// All parts that have products: target, take_in (whose layer's weights count, not those of `fuse`), layer, first and
// head. What is not products alone, routers, verdicts and the rest of a cycle, stays.
void   pl_plan_unit_costs(const pl_plan_unit *u, pl_plan_bound b, const pl_plan_weights *w, const pl_plan_costs *c,
                          pl_plan_costs *out);

#endif
