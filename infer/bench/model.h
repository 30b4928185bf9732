// bench: a target and drafters of random weights, and their forwards timed by themselves (infer/bench/shape.h).
#ifndef PL_BENCH_MODEL_H
#define PL_BENCH_MODEL_H

#include "infer/bench/rows.h"
#include "infer/drafter/backbone.h"

#define PL_BENCH_HEADS 4
#define PL_BENCH_WIDTHS 2 // one row, and a level of a wide tree

enum { PL_BENCH_LEVEL, PL_BENCH_LAYER, PL_BENCH_HEAD, PL_BENCH_PRODUCT, PL_BENCH_PARTS }; // of a drafter's level
#define PL_BENCH_CASES (PL_BENCH_VERIFY + PL_BENCH_HEADS * PL_BENCH_WIDTHS * PL_BENCH_PARTS)

// One level of a drafter and its parts, for so many rows of one session.
typedef struct pl_bench_level {
    const struct pl_bench_head *head;
    int                         rows, k;
    pl_bench_view              *view;
    pl_tensor                   x; // [rows, d] hidden states
    size_t                      x_bytes;
    pl_bench_case              *part[PL_BENCH_PARTS]; // of the model's; no product: NULL
} pl_bench_level;

typedef struct pl_bench_head {
    char           name[48];
    pl_backbone   *backbone;
    pl_kv          kv;
    pl_bench_level level[PL_BENCH_WIDTHS];
} pl_bench_head;

typedef struct pl_bench_model {
    pl_llama        target;
    int             context, max_len; // tokens of the prompt; positions
    size_t          read_bytes;       // of the weights' block, which a step reads about
    int32_t        *prompt;           // [context]
    int32_t        *ids;              // [vocab] 0, 1, 2, ...
    const char     *deep_tree;        // EAGLE-2's, as --tree has it
    pl_backbone    *block;            // a block drafter; NULL: none
    pl_bench_head   head[PL_BENCH_HEADS];
    int             n_heads;
    pl_bench_verify verify;
    pl_bench_case   c[PL_BENCH_CASES]; // all that is timed, together, so that the machine's drift hits all alike
    int             n_cases;
} pl_bench_model;

// Makes all of it; *m is zero. Refused with one line where the machine's memory does not hold it. To be dropped in any
// case.
pl_status pl_bench_model_make(pl_bench_model *m, pl_bench *b, const pl_bench_shape *s, pl_err *err);
void      pl_bench_model_drop(pl_bench_model *m, pl_bench *b);

#endif
