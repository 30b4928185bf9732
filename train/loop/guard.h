// Guard against bad steps: a step whose loss or gradient is not finite, or is far from those before it, changes no
// weight.
//
// A step is skipped when its loss or its gradient's norm is not finite, or (spike k > 0) when either is more than k
// times the median of the last `window` counted steps, once there are so many (a median that is not positive guards
// nothing). Both are values of the whole step, the same on all ranks, so that all decide alike. A guard's state is part
// of the training state: a resumed run continues the counts.
#ifndef PL_TRAIN_GUARD_H
#define PL_TRAIN_GUARD_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_GUARD_WINDOW_MAX 4096

typedef struct pl_guard_options {
    bool    nonfinite; // skip a step that is not finite; false: it ends the run
    double  spike;     // 0: no spike is skipped
    int64_t window;    // steps of the medians; 1..PL_GUARD_WINDOW_MAX
    int64_t in_a_row;  // this many skipped steps in a row end the run; 0: never
} pl_guard_options;

typedef struct pl_guard {
    pl_guard_options o;
    int64_t          n;     // elements of state
    double          *state; // [n] skipped, skipped in a row, counted, losses [window], norms [window]
    // The current step: each slot's loss and weight, and the cursor before the first slot and after each.
    int              n_slots, n_cursor;
    double          *loss, *weight; // [n_slots]
    int64_t         *cursor;        // [n_slots + 1][n_cursor]
} pl_guard;

pl_status pl_guard_init(pl_guard *g, const pl_guard_options *o, int n_slots, int n_cursor, pl_err *err);
void      pl_guard_fini(pl_guard *g);

// Checks a state that rank 0 sent: counts of steps, then finite losses and norms. PL_E_IO.
pl_status pl_guard_check(const pl_guard *g, pl_err *err);
// Returns true if a step counts, and records it; `why` gets the reason otherwise. weight: weight that the step learned
// from; a step without is not recorded.
bool      pl_guard_counts(pl_guard *g, double loss, double norm, double weight, char why[160]);
int64_t   pl_guard_skipped(const pl_guard *g);  // so far
int64_t   pl_guard_in_a_row(const pl_guard *g); // skipped since the last counted step

#endif
