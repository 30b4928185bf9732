// What was measured of drafters before: acceptance from an evaluation's results.json or a training's metrics.jsonl.
#ifndef PL_PLAN_MEASURED_H
#define PL_PLAN_MEASURED_H

#include "infer/plan/plan.h"

#define PL_PLAN_MEASURED 64

typedef struct pl_plan_method {
    char               *name, *checkpoint; // owned; the folder as it is found from here
    bool                ranked;            // counts are filled; else rates
    pl_autotuner_counts counts;
    double              rate[PL_SHAPE_LEVELS]; // by level, given that all before were accepted
    int                 n_rates;
    double              tau, speed, plain_speed; // measured, of the fastest tree that was evaluated; NaN: not known
    char                tree[PL_TREE_TEXT];      // that tree, "" where it is not known
} pl_plan_method;

typedef struct pl_plan_methods {
    pl_plan_method m[PL_PLAN_MEASURED];
    int            n;
} pl_plan_methods;

// Methods with a checkpoint, verifier "match" and this temperature, one entry a checkpoint: counts of all its trees are
// added up. run: a run's folder or its results.json; a checkpoint that is not where the evaluation found it is looked
// for inside that folder. Entries are added; refused with one line where the file is not an evaluation's, or holds
// nothing at this temperature.
pl_status             pl_plan_methods_read(pl_plan_methods *l, const char *run, double temperature, pl_err *err);
void                  pl_plan_methods_fini(pl_plan_methods *l);
// The entry of a checkpoint's folder, however its path is written; NULL: none.
const pl_plan_method *pl_plan_methods_find(const pl_plan_methods *l, const char *checkpoint);

// The last evaluation in metrics.jsonl of the run that made a checkpoint (DIR/checkpoints/NAME): greedy decoding takes
// eval_step_accuracy, else eval_step_acceptance, which is sum over tokens of min(p, q). *n 0: there is none.
pl_status pl_plan_metrics_read(double rate[PL_SHAPE_LEVELS], int *n, const char *checkpoint, double temperature,
                               pl_err *err);

#endif
