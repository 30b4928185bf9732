// Benches by kind, and the timing they share.
#ifndef PL_BENCH_PARTS_H
#define PL_BENCH_PARTS_H

#include "infer/machine.h"

#define PL_BENCH_TRIES 9

typedef struct pl_bench {
    const pl_env *env;
    double        max_bytes; // of one weight matrix: larger shapes are left out
    double        peak;      // flops per second
    // Read bandwidth, measured once per footprint (to a quarter of a power of two).
    struct {
        double footprint, rate;
    } known[32];
    int n_known;
} pl_bench;

double pl_bench_bandwidth(pl_bench *b, double footprint); // bytes per second on all threads
// max(bytes / bandwidth at that footprint, flops / peak)
double pl_bench_floor(pl_bench *b, double bytes, double flops, double footprint);

// One thing that is timed: a step on a context of its own.
typedef struct pl_bench_case {
    char name[64];
    void (*step)(pl_ctx *ctx, void *arg);
    void  *arg;
    double bytes, flops, footprint; // of one step; footprint: what it reads of memory that stays
    bool   ready;                   // ctx is sized; false: no memory for it, and no figures
    pl_ctx ctx;
    double seconds[PL_BENCH_TRIES];
} pl_bench_case;

void pl_bench_ready(pl_bench *b, pl_bench_case *c); // sizes the context
// Times all cases: rounds over all of them, each warmed up by a step right before it is timed.
void pl_bench_time(pl_bench *b, pl_bench_case *c, int n);
// Members of an open object: seconds (median), p10, p90, bytes, flops, floor_seconds, share_of_floor.
void pl_bench_write(pl_json_out *o, pl_bench *b, const pl_bench_case *c);
void pl_bench_done(pl_bench_case *c);

// Memory that has been written by the threads that will read it. NULL when there is none.
void *pl_bench_block(pl_bench *b, size_t bytes);

typedef struct pl_bench_heads {
    int64_t vocab, width;
    int64_t rank[16];
    int     n_ranks;
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
