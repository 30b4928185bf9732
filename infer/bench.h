// `paceline bench`: kernels and decode steps against what this machine can do at most, all taken in one run.
#ifndef PL_BENCH_H
#define PL_BENCH_H

#include "infer/cli.h"

extern const pl_command pl_command_bench;

#endif
