// `paceline bench step`: whole training steps, timed as the trainer runs them (train/loop/trainer.h), against the peak
// of fma.
//
// Two cases for a target: pretraining a model of its shape, and training an EAGLE-3 drafter for it, with the given
// head; for a --shape the drafter alone. A device reports flops per second and no floor.
// Each case runs with weights and teacher in bf16, in fp32 throughout, or both (`dtype`).
// The data are pseudo-random tokens and features: a step's cost does not depend on them.
#ifndef PL_TRAIN_BENCH_STEP_H
#define PL_TRAIN_BENCH_STEP_H

#include "infer/cli/env.h"

typedef struct pl_bench_step {
    const char *target; // the model: a folder or a file; NULL: `shape`
    const char *shape;  // a shape's name (infer/bench/shapes.h), whose embedding and output matrix are random
    int         layers; // of the shape; 0: the model's
    const char *head;   // of the drafter: "full", "trimmed:ROWS", "lowrank:RANK"
    int64_t     batch, seq_len;
    int         unroll;     // of the drafter
    bool        dtype[2];   // [bf16, fp32] true: this type is timed
    int         repeats;    // timed steps, 1 to 1000
    double      supervised; // share of a sequence's rows, at its end, that the drafter learns from; 0 < share <= 1
    bool        launches;   // profiles as many steps after the timed ones (kernels/profile.h)
    const char *trials;     // of the drafter: pl_backend_cuda_try's, separated by commas; NULL: none
} pl_bench_step;

// Adds the array "step" to an open object; with launches, "launches"; with trials, "trials". PL_E_INPUT if the target
// cannot be read or its context is too short for the sequences; PL_E_MEMORY if a case does not fit; PL_E_USAGE for
// trials on a device that has none.
pl_status pl_bench_put_step(pl_json_out *o, const pl_env *env, const pl_bench_step *s, pl_err *err);

#endif
