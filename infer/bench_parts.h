// Benches by kind, and the timing they share.
#ifndef PL_BENCH_PARTS_H
#define PL_BENCH_PARTS_H

#include "infer/machine.h"

#define PL_BENCH_TRIES 9
#define PL_BENCH_MAX_PAIRS 1000

typedef struct pl_bench {
    const pl_env *env;
    double        max_bytes; // of one weight matrix: larger shapes are left out
    double        peak;      // flops per second, before anything was timed
} pl_bench;

// Samples of something and of its floor, taken in pairs: limits of a shared machine move by the minute, so a share is
// the median over pairs of the floor that held then, not the ratio of two medians.
typedef struct pl_bench_pairs {
    const double *seconds, *floor; // [n]
    int           n;
} pl_bench_pairs;

// Members of an open object: floor_seconds (median), share_of_floor (median over pairs), share_p10, share_p90.
void pl_bench_write_pairs(pl_json_out *o, const pl_bench_pairs *p);

// One thing that is timed: a step on a context of its own.
typedef struct pl_bench_case {
    char name[64];
    void (*step)(pl_ctx *ctx, void *arg);
    void       *arg;
    double      bytes, flops; // of one step
    const void *memory;       // what it mostly reads: its bandwidth is probed right there, round by round
    size_t      memory_bytes; // 0: the floor is that of flops alone
    bool        ready;        // ctx is sized; false: no memory for it, and no figures
    pl_ctx      ctx;
    double      seconds[PL_BENCH_TRIES], floor[PL_BENCH_TRIES];
} pl_bench_case;

void pl_bench_ready(pl_bench *b, pl_bench_case *c); // sizes the context
// Times all cases: rounds over all of them, each warmed up by a step right before it is timed, and its floor
// max(bytes / bandwidth, flops / peak) sampled right before or, every other round, right after. Timing and floor are
// the best of several tries each.
void pl_bench_time(pl_bench *b, pl_bench_case *c, int n);
// Members of an open object: seconds (median), p10, p90, bytes, flops, and those of pl_bench_write_pairs.
void pl_bench_write(pl_json_out *o, const pl_bench_case *c);
void pl_bench_done(pl_bench_case *c);

// Memory that has been written by the threads that will read it. NULL when there is none.
void *pl_bench_block(pl_bench *b, size_t bytes);

typedef struct pl_bench_heads {
    int64_t vocab, width;
    int64_t rank[16]; // of low-rank heads; n_ranks 0: width / 2, / 4, / 8, / 16
    int     n_ranks;
    bool    dtype[2]; // bf16, fp32
} pl_bench_heads;

typedef struct pl_bench_decode {
    const char *target, *pre, *drafter, *tree; // pre: see data/tokenizer.h
    int         context, new_tokens, repeats;
} pl_bench_decode;

typedef struct pl_bench_tokenize {
    const char *tokenizer, *pre, *file; // pre: see data/tokenizer.h
} pl_bench_tokenize;

// Each adds one array to an open object.
void      pl_bench_put_bandwidth(pl_json_out *o, pl_bench *b);
void      pl_bench_put_linear(pl_json_out *o, pl_bench *b, int64_t vocab, int64_t width);
void      pl_bench_put_train(pl_json_out *o, pl_bench *b);
void      pl_bench_put_heads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h);
// One object: the text is cut at line ends into pieces of some 4 KiB, encoded with and without the memory of words, and
// decoded.
pl_status pl_bench_put_tokenize(pl_json_out *o, const pl_bench_tokenize *b, pl_err *err);
pl_status pl_bench_put_decode(pl_json_out *o, pl_bench *b, const pl_bench_decode *d, pl_err *err);

#endif
