// `bench decode --shape`: a model of a known shape with random weights (infer/bench/shapes.h). It reports, each beside
// what must be read at the bandwidth measured in the same run:
//   plain    the decode loop without a drafter
//   verify   the target's forward, head and argmax over 1 to 60 rows of a tree ten wide (infer/bench/rows.h)
//   draft    one level of an EAGLE-3 drafter, layer and head, with the full head, FR-Spec's trimmed to 32k rows (to a
//            quarter where the vocabulary is no larger), SlimSpec's of rank d/8, DynaSpec's reading clusters of 27k
//            rows (27/128 of the vocabulary); by one row and by ten
//   cycle    the decode loop with each of them: a chain of 7, EAGLE-2's tree of 60 nodes, ten wide, six deep. Nothing
//            is accepted (drafter and target are strangers), so the speed is told at acceptance lengths of the field:
//            3.91 for the chain (SGLang's EAGLE-3 on Llama-3.1-8B), 3.89 for the tree (FR-Spec's EAGLE-2, Llama-3-8B);
//            where it is asked for, a block drafter of 5 layers and 7 drafts too, DFlash, DSpark or DFlash 2
//   parts    of the tree's drafting: layer, head's product, softmax and top-k, rest, as shares; FR-Spec's measurement
//            of EAGLE-2 is 33, 49, 13 and 5 % (arXiv 2502.14856, figure 6)
#ifndef PL_BENCH_SHAPE_H
#define PL_BENCH_SHAPE_H

#include "infer/bench/parts.h"

// "dflash", "dspark", "dflash2"; NULL past the last.
const char *pl_bench_block_name(int i);
// Adds several arrays to an open object.
pl_status   pl_bench_put_shape(pl_json_out *o, pl_bench *b, const pl_bench_shape *s, pl_err *err);

#endif
