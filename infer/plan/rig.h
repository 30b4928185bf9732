// Measuring for the planner: cycles of decoding with given trees, built from the modules that decode, part by part.
//
// A part that is timed alone finds its weights in caches that the parts between empty while decoding, and would look
// cheaper than it is. So every subject (a drafter with its head) runs whole cycles in the order of
// infer/decode/decode.h (the target's forward over root and tree, rows that became final taken in, head, layer, head,
// layer, ...; a routed head's router where decoding begins it) with the clock read between parts; only what is accepted
// is made up. Trees of several row counts and widths tell what a row costs. Rounds go over all subjects and trees, with
// steps of plain decoding (the engine itself) in between, so that drift of the machine hits all alike; a figure is the
// median over rounds. The first round warms up and is not counted. On a device each part is waited for, also where
// decoding goes on queueing: parts are dearer there by a wait of some microseconds, all alike. A router is a part of
// its own, also where decoding runs it beside the layer: plan.h takes the longer of the two, which leaves out that both
// then share the device's bandwidth.
//
// A block drafter is the decode loop's own (infer/drafter/block.c), asked for chains as deep as the trees.
#ifndef PL_PLAN_RIG_H
#define PL_PLAN_RIG_H

#include "infer/drafter/backbone.h"
#include "infer/plan/plan.h"

typedef struct pl_plan_subject {
    const pl_backbone *backbone; // borrowed, with weights
    int                k;        // candidates of a node
    pl_plan_costs      costs;    // out
} pl_plan_subject;

typedef struct pl_plan_rig_options {
    const pl_llama *target;
    int             batch, context; // sessions; committed tokens of each
    double          temperature;
    double          seconds; // of measuring, about; at least three rounds whatever they take
    const pl_shape *tree;    // measured beside the rig's own trees; NULL: none
} pl_plan_rig_options;

typedef struct pl_plan_plain {
    pl_plan_costs costs; // target at `batch` rows, verify, other
    double        step;  // seconds, median
    int           rounds;
} pl_plan_plain;

#define PL_PLAN_BATCH 64 // sessions at most
// Largest tree that is measured and can be planned without continuing a line.
#define PL_PLAN_NODES 17

// Fills subject[i].costs and *plain. PL_E_INPUT where the target's context is too short; PL_E_INTERRUPTED when the
// process was asked to stop.
pl_status pl_plan_measure(pl_plan_subject *subject, int n, pl_plan_plain *plain, const pl_backend *be, pl_pool *pool,
                          const pl_plan_rig_options *o, pl_err *err);

#endif
