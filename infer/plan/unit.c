#include "infer/plan/unit.h"

#include "kernels/base/check.h"

#include <math.h>

double pl_plan_unit_floor(const pl_plan_unit *u, double flops, double bytes, double rows) {
    PL_CHECK(flops > 0 && u->bandwidth > 0 && u->element > 0, "a unit without its figures");
    return fmax(bytes / u->bandwidth, 2 * bytes / u->element * rows / flops);
}

double pl_plan_unit_seconds(const pl_plan_unit *u, pl_plan_bound b, double bytes, double rows, double seconds) {
    double before = pl_plan_unit_floor(u, u->now, bytes, rows), after = pl_plan_unit_floor(u, u->flops, bytes, rows);
    if (bytes <= 0 || seconds <= 0) return seconds;
    double scaled = seconds * after / before;
    // A timing below its floor says that the floor is not known that well: no more is gained than all of it.
    return b == PL_PLAN_LEAST ? scaled : fmax(seconds - (before - after), scaled);
}

static void convert(const pl_plan_unit *u, pl_plan_bound b, double bytes, const pl_autotuner_cost *c,
                    pl_autotuner_cost *out) {
    *out = (pl_autotuner_cost){0};
    for (int i = 0; i < PL_AUTOTUNER_BUCKETS; i++) {
        if (c->visits[i] == 0) continue;
        int rows = (int)lround(c->rows[i]);
        pl_autotuner_cost_add(out, rows, pl_plan_unit_seconds(u, b, bytes, rows, pl_plan_seconds(c, rows)));
    }
}

void pl_plan_unit_costs(const pl_plan_unit *u, pl_plan_bound b, const pl_plan_weights *w, const pl_plan_costs *c,
                        pl_plan_costs *out) {
    *out = *c;
    convert(u, b, w->target, &c->target, &out->target);
    convert(u, b, w->layer, &c->take_in, &out->take_in);
    convert(u, b, w->layer, &c->layer, &out->layer);
    convert(u, b, w->head, &c->first, &out->first);
    convert(u, b, w->head, &c->head, &out->head);
}
