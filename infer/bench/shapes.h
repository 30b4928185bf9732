// Models by shape: known sizes with random weights, made on the device that reads them. A step's cost does not depend
// on the values of weights.
#ifndef PL_BENCH_SHAPES_H
#define PL_BENCH_SHAPES_H

#include "checkpoints/hf.h"
#include "infer/cli/cli.h"

#define PL_SHAPE_NAMES "llama3-8b, llama2-7b, llama3.2-1b, qwen2-7b, tiny (for tests)"
#define PL_SHAPE_PLANNED ", llama3-70b, qwen3-30b-a3b" // without weights: for `plan train` alone
#define PL_SHAPE_CONTEXT 128                           // default of --context

typedef struct pl_bench_shape {
    const char *name;
    int         layers; // 0: the model's
    int         context, steps, repeats;
    pl_dtype    kv;    // pl_layer_shape
    const char *block; // an additional block drafter, of pl_bench_block_name; NULL: none
} pl_bench_shape;

// Fills the config of a shape with this many layers (0: its own) and positions.
pl_status pl_bench_shape_find(pl_hf_config *c, const char *name, int layers, int positions, pl_err *err);
// Reads and checks --shape and --layers of a command with --target. *name NULL: not given; *layers 0: the shape's own.
pl_status pl_bench_shape_options(const pl_cli_args *a, const char **name, int *layers, pl_err *err);
// Likewise for commands that make no weights: any shape is allowed.
pl_status pl_bench_shape_planned(const pl_cli_args *a, const char **name, int *layers, pl_err *err);
// Fails if random weights and caches of `bytes` bytes would lie in the host's memory and exceed its free memory, which
// malloc would not report. A GPU's own allocation fails.
pl_status pl_bench_shape_room(double bytes, const pl_backend *be, pl_err *err);

#endif
