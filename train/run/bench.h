// `paceline bench`: kernels, decode steps (infer/bench/bench.h) and training steps against what this machine can do at
// most, all taken in one run.
#ifndef PL_TRAIN_BENCH_H
#define PL_TRAIN_BENCH_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_bench;

#endif
