// `bench decode --shape S --device emulated --predict`: what steps would take on a GPU that is not here
// (kernels/cuda/predict/predict.h). Weights are mapped and never made.
//   plain    the target's forward of one row, head and argmax
//   verify   the same over 60 rows of a tree
//   cycle    seven levels of a drafter by one row, and the target over 8 rows, for each head
// Each with kernels[]: op, launches, blocks, seconds of all its launches, bytes, limiter, counts; their sum is the
// step's. What the loop does besides (drawing, moving rows of caches, waits of the host) is not in it.
#ifndef PL_BENCH_PREDICT_H
#define PL_BENCH_PREDICT_H

#include "infer/bench/shapes.h"

// Adds "predicted" and "constants" to an open object.
pl_status pl_bench_put_predicted(pl_json_out *o, const pl_env *env, const pl_bench_shape *s, pl_err *err);

#endif
