// Models by shape: known sizes with random weights, which are made where they are read. A step's cost does not depend
// on the values of weights.
#ifndef PL_BENCH_SHAPES_H
#define PL_BENCH_SHAPES_H

#include "checkpoints/hf.h"
#include "infer/cli/cli.h"

#define PL_SHAPE_NAMES "llama3-8b, llama2-7b, llama3.2-1b, qwen2-7b, tiny (for tests)"
#define PL_SHAPE_PLANNED ", llama3-70b, qwen3-30b-a3b" // whose weights are not made: to be planned for

typedef struct pl_bench_shape {
    const char *name;
    int         layers; // 0: the model's
    int         context, steps, repeats;
    pl_dtype    kv;    // pl_layer_shape
    const char *block; // a block drafter in addition: one of pl_bench_block_name; NULL: none
} pl_bench_shape;

// The config of a shape with this many layers (0: its own) and positions.
pl_status pl_bench_shape_find(pl_hf_config *c, const char *name, int layers, int positions, pl_err *err);
// --shape and --layers of a command that has --target too, checked. *name NULL: not given; *layers 0: the shape's own.
pl_status pl_bench_shape_options(const pl_cli_args *a, const char **name, int *layers, pl_err *err);
// The same where weights are not made: any shape will do.
pl_status pl_bench_shape_planned(const pl_cli_args *a, const char **name, int *layers, pl_err *err);
// Whether the host's memory has room for random weights (and caches) of so many bytes, where they would lie in it: it
// would promise more than it has; a GPU refuses by itself.
pl_status pl_bench_shape_room(double bytes, const pl_backend *be, pl_err *err);

#endif
