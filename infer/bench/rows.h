// bench: the target's forward over several rows of one session, as verifying a draft tree runs it.
#ifndef PL_BENCH_ROWS_H
#define PL_BENCH_ROWS_H

#include "infer/bench/parts.h"
#include "infer/model/kv.h"
#include "infer/model/llama.h"
#include "kernels/base/json.h"

#define PL_BENCH_ROWS 60                                  // of a forward, at most
#define PL_BENCH_WIDE 10                                  // of the trees that are verified, and of a level
#define PL_BENCH_DEEP (PL_BENCH_ROWS / PL_BENCH_WIDE + 2) // nodes of a path, at most
#define PL_BENCH_VERIFY 7                                 // numbers of rows that are timed

// What the rows are, where host and device both see it.
typedef struct pl_bench_view {
    int32_t  id[PL_BENCH_ROWS], pos[PL_BENCH_ROWS], group[PL_BENCH_ROWS], path[PL_BENCH_ROWS][PL_BENCH_DEEP];
    int32_t  choice[PL_BENCH_ROWS * PL_BENCH_WIDE];
    float    value[PL_BENCH_ROWS * PL_BENCH_WIDE], lse[PL_BENCH_ROWS];
    pl_kvrow row[]; // [layers][rows]
} pl_bench_view;

// Behind `context` cached positions. wide > 0: node 0 is the root, so many nodes stand below it, and each other one
// below the one so many before it (1: a chain, of PL_BENCH_DEEP rows at most); 0: a level of siblings. NULL: no memory.
pl_bench_view *pl_bench_view_make(pl_bench *b, const pl_kv *kv, int rows, int wide, int context, int64_t vocab);
void           pl_bench_view_drop(pl_bench *b, pl_bench_view *v, const pl_kv *kv, int rows); // v NULL is allowed

// A cache with room for a context and the rows behind it, filled.
pl_status pl_bench_cache_make(pl_kv *kv, pl_bench *b, int layers, int context, const pl_layer_shape *s, pl_err *err);

// Of the weights' block, what a step reads about.
size_t pl_bench_read_bytes(const pl_llama *target);

// Forwards over 1 to PL_BENCH_ROWS rows, each a case.
typedef struct pl_bench_verify {
    const pl_llama *target; // borrowed
    pl_kv           kv;
    struct pl_bench_forward {
        const struct pl_bench_verify *of;
        int                           rows;
        pl_bench_view                *view;
        pl_bench_case                *c; // borrowed
    } forward[PL_BENCH_VERIFY];
} pl_bench_verify;

// Fills c[PL_BENCH_VERIFY], for pl_bench_time. *v is zero, stays where it is, and is to be dropped in any case.
pl_status pl_bench_verify_make(pl_bench_verify *v, pl_bench *b, const pl_llama *target, int context, pl_bench_case *c,
                               pl_err *err);
void      pl_bench_verify_drop(pl_bench_verify *v, pl_bench *b);
// The array "verify": each number of rows that has figures, and how it compares with one row.
void      pl_bench_verify_write(pl_json_out *o, const pl_bench_verify *v);

#endif
