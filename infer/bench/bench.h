// `paceline bench`: kernels and decode steps against what this machine can do at most, all taken in one run.
#ifndef PL_BENCH_H
#define PL_BENCH_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_bench;

// A whole training step is timed by the floor that has one, and handed down by the door (pl_env.bench_step).
typedef struct pl_bench_step {
    const char *target; // the model: a folder or a file; NULL: `shape`
    const char *shape;  // a shape's name (infer/bench/shapes.h), whose embedding and output matrix are random
    int         layers; // of it; 0: the model's
    const char *head;   // of the drafter: "full", "trimmed:ROWS", "lowrank:RANK"
    int64_t     batch, seq_len;
    int         unroll;  // of the drafter
    int         repeats; // timed steps, 1 to 1000
} pl_bench_step;

#endif
