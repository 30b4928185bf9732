// `bench decode --shape S --device emulated --predict`: what steps would take on a GPU that is not here
// (kernels/cuda/predict/predict.h). Weights are mapped and never made.
//   plain    the target's forward of one row, head and argmax
//   verify   the same over 60 rows of a tree
//   cycle    seven levels of a drafter by one row, and the target over the chain of 8 rows, for each head
// Each with kernels[]: op, launches, blocks, seconds of all its launches, bytes, limiter, counts; their sum is the
// step's. What the loop does besides (drawing, moving rows of caches, waits of the host) is not in it.
#ifndef PL_BENCH_PREDICT_H
#define PL_BENCH_PREDICT_H

#include "infer/bench/shapes.h"
#include "kernels/base/json.h"
#include "kernels/cuda/predict/predict.h"

typedef struct pl_bench_predicted { // launches that come so many times
    const pl_prediction *p;
    double               times;
} pl_bench_predicted;

// env with the counted device, and a warning; refused where this build has none.
pl_status pl_bench_counted(pl_env *counted, const pl_env *env, pl_err *err);
// Ends a recording of what came out as st.
pl_status pl_bench_prediction_done(pl_prediction *p, pl_status st, const char *name, pl_err *err);
// One object: a step that must read `least` bytes, or, flops > 0, is measured by its operations.
void pl_bench_put_prediction(pl_json_out *o, const char *name, const pl_bench_predicted *parts, int n, double least,
                             double flops);
// "published" figures beside the model's, and its "constants".
void pl_bench_put_constants(pl_json_out *o);
// Adds "predicted", "published" and "constants" to an open object.
pl_status pl_bench_put_predicted(pl_json_out *o, const pl_env *env, const pl_bench_shape *s, pl_err *err);

#endif
