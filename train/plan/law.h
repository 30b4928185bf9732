// How acceptance grows with training. Scylla ("Scaling laws for speculative decoding") finds it log-linear in the
// tokens that were trained on; this is our own fit of one run,
//
//   length(rows) = slope ln(rows) + offset                         by least squares over the run's evaluations
//
// length: tokens a step on held-out documents in a chain of the unroll's depth (eval_acceptance_length of
// metrics.jsonl), rows: those of the steps before the evaluation, at the mean number of a step. A run whose rate falls
// ends above its own law, so that a longer run does better than is predicted from a shorter one's end.
#ifndef PL_LAW_H
#define PL_LAW_H

#include "kernels/base/status.h"

typedef struct pl_law {
    double slope, offset;
    // Root mean square of what each evaluation from the fourth on differs from the law of those before it.
    double error;
    double rows, length; // of the last evaluation
    int    points;       // evaluations
} pl_law;

enum { PL_LAW_POINTS = 4 }; // at least

// Reads DIR/metrics.jsonl. PL_E_INPUT: it has fewer evaluations after the first step than PL_LAW_POINTS, or lines that
// are no metrics.
pl_status pl_law_of_run(pl_law *law, const char *dir, pl_err *err);
double    pl_law_length(const pl_law *law, double rows);

#endif
