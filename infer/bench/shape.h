// Models by shape: known sizes with random weights, which are made where they are read. A step's cost does not depend
// on what the weights say.
//
// `bench decode --shape` reports, each beside what must be read at the bandwidth measured in the same run:
//   plain    the decode loop without a drafter
//   verify   the target's forward, head and argmax over 1, 8, 16, 32, 60 rows of a tree ten wide
//   draft    one level of an EAGLE-3 drafter, layer and head, with the full head, FR-Spec's trimmed to 32k rows (to a
//            quarter where the vocabulary is no larger), SlimSpec's of rank d/8, DynaSpec's reading clusters of 27k
//            rows (27/128 of the vocabulary); by one row and by ten
//   cycle    the decode loop with each of them: a chain of 7, EAGLE-2's tree of 60 nodes, ten wide, six deep. Nothing
//            is accepted (drafter and target are strangers), so the speed is told at acceptance lengths of the field:
//            3.91 for the chain (SGLang's EAGLE-3 on Llama-3.1-8B), 3.89 for the tree (FR-Spec's EAGLE-2, Llama-3-8B)
//   parts    of the tree's drafting: layer, head's product, softmax and top-k, rest, as shares; FR-Spec's measurement
//            of EAGLE-2 is 33, 49, 13 and 5 % (arXiv 2502.14856, figure 6)
#ifndef PL_BENCH_SHAPE_H
#define PL_BENCH_SHAPE_H

#include "checkpoints/hf.h"
#include "infer/cli/cli.h"

#define PL_SHAPE_NAMES "llama3-8b, llama2-7b, llama3.2-1b, qwen2-7b, tiny (for tests)"

typedef struct pl_bench_shape {
    const char *name;
    int         layers; // 0: the model's
    int         context, steps, repeats;
} pl_bench_shape;

// The config of a shape with this many layers (0: its own) and positions.
pl_status pl_bench_shape_find(pl_hf_config *c, const char *name, int layers, int positions, pl_err *err);
// --shape and --layers of a command that has --target too, checked. *name NULL: not given; *layers 0: the shape's own.
pl_status pl_bench_shape_options(const pl_cli_args *a, const char **name, int *layers, pl_err *err);
// Whether the host's memory has room for so many random weights in bf16, where they would lie in it: it would promise
// more than it has; a GPU refuses by itself.
pl_status pl_bench_shape_room(int64_t values, const pl_backend *be, pl_err *err);

#endif
