// Benches by kind, and the timing and the memory that they share.
//
// A bench runs on any device: what its steps read lies in the backend's memory, and a timing ends when the device has
// done what was queued. Its floor is sampled beside it: on the host the bandwidth of reading the very memory that a
// step reads, and the peak of fma; on a device bytes read plus bytes written of large copies within its memory.
#ifndef PL_BENCH_PARTS_H
#define PL_BENCH_PARTS_H

#include "infer/bench/shapes.h"
#include "infer/cli/machine.h"

#define PL_BENCH_TRIES 9
#define PL_BENCH_MAX_PAIRS 1000
#define PL_BENCH_LEFT 16

typedef struct pl_bench {
    const pl_env *env;
    double        max_bytes;  // of one weight matrix or cache: larger ones are left out
    int           rounds;     // of pl_bench_time, 1 to PL_BENCH_TRIES
    double        peak;       // flops per second, before anything was timed; 0 on a device
    double        peak_bf16;  // the same of factors in bf16
    pl_ctx        ctx;        // fills and copies
    void         *copy[2];    // on a device: what its copy bandwidth is measured between, copy_bytes each
    size_t        copy_bytes; // 0 on the host
    double        copy_rate;  // the last sample
    int           n_left;     // cases that failed: no figures, but told
    struct {
        char name[64], why[160];
    } left[PL_BENCH_LEFT];
} pl_bench;

// Samples of something and of its floor, taken in pairs: limits of a shared machine move by the minute, so a share is
// the median over pairs of the floor that held then, not the ratio of two medians.
typedef struct pl_bench_pairs {
    const double *seconds, *floor; // [n]
    int           n;
} pl_bench_pairs;

// Members of an open object: floor_seconds (median), share_of_floor (median over pairs), share_p10, share_p90.
void pl_bench_write_pairs(pl_json_out *o, const pl_bench_pairs *p);
// Columns of a goal: what it is, what was reached, whether that is better (for people and machines alike; a run does
// not fail by it). NaN: there is none.
void pl_bench_write_goal(pl_json_out *o, const char *what, double reached, double goal, bool more);

// One thing that is timed: a step on a context of its own.
typedef struct pl_bench_case {
    char name[64];
    void (*step)(pl_ctx *ctx, void *arg);
    void       *arg;
    double      bytes, flops; // of one step
    pl_dtype    factors;      // of flops: F32, or BF16
    const void *memory;       // what it mostly reads: on the host its bandwidth is probed right there, round by round
    size_t      memory_bytes; // 0: the floor is that of flops alone, where it is known
    bool        ready;        // ctx is sized; false: no memory for it or it failed, and no figures
    pl_ctx      ctx;
    int         n; // samples
    double      seconds[PL_BENCH_TRIES], floor[PL_BENCH_TRIES];
} pl_bench_case;

pl_status pl_bench_open(pl_bench *b, const pl_env *env, double max_bytes, pl_err *err);
void      pl_bench_close(pl_bench *b);

// [n], zeroed, the caller's (pl_free): of some 100 KB each, they are none for the stack. NULL: out of memory.
pl_bench_case *pl_bench_cases(int n, pl_err *err);
void           pl_bench_ready(pl_bench *b, pl_bench_case *c); // sizes the context
// Times all cases: rounds over all of them, each warmed up by a step right before it is timed, and its floor
// max(bytes / bandwidth, flops / peak) sampled right before or, every other round, right after. Timing and floor are
// the best of several tries each; a slow step gets fewer tries, and no fourth round begins after a minute. A case
// that fails is told in "left_out".
void           pl_bench_time(pl_bench *b, pl_bench_case *c, int n);
double         pl_bench_seconds(const pl_bench_case *c); // median; NaN where there are no figures
// Members of an open object: seconds (median), p10, p90, bytes, flops, and those of pl_bench_write_pairs.
void           pl_bench_write(pl_json_out *o, const pl_bench_case *c);
void           pl_bench_done(pl_bench_case *c);
// A failure that a bench goes on after.
void           pl_bench_leave_out(pl_bench *b, const char *name, const pl_err *err);

// Bytes per second, one sample: of reading p (host), of copies of copy_bytes (device). 0: not known.
double pl_bench_rate(pl_bench *b, const void *p, size_t bytes);
// On a device: of copies of so many bytes, copy_bytes at most, each read and written.
double pl_bench_copy_rate(pl_bench *b, size_t bytes);

// Refuses what takes more bytes than the host can give, where the backend's blocks lie in its memory.
pl_status pl_bench_room(const pl_bench *b, double bytes, const char *what, const char *mend, pl_err *err);
// A block in the backend's memory whose values are finite and neither zero nor subnormal, as fp32 and as bf16; on the
// host written by the threads that will read it. NULL when there is none.
void     *pl_bench_block(pl_bench *b, size_t bytes);
void      pl_bench_fill(pl_bench *b, void *p, size_t bytes); // the same for a block that is there
void      pl_bench_drop(pl_bench *b, void *p, size_t bytes); // NULL is allowed
// Rows of activations: fp32.
bool      pl_bench_input(pl_bench *b, pl_tensor *x, size_t *bytes, int64_t m, int64_t k);
// Memory that host and device both see, zeroed: ids, rows of caches, results.
void     *pl_bench_shared(pl_bench *b, size_t bytes);
void      pl_bench_drop_shared(pl_bench *b, void *p, size_t bytes);
// How many copies of weights of so many bytes a step must take in turn so that it does not find them in the device's
// last cache; 1 on the host, where a footprint's own bandwidth is what it is held against.
#define PL_BENCH_COPIES 8
int pl_bench_copies(const pl_bench *b, size_t bytes);

typedef struct pl_bench_heads {
    int64_t vocab, width;
    int64_t rank[16]; // of low-rank heads; n_ranks 0: width / 2, / 4, / 8, / 16
    int     n_ranks;
    bool    dtype[2]; // bf16, fp32
} pl_bench_heads;

typedef struct pl_bench_decode {
    const char *target, *pre, *drafter, *tree; // pre: see data/tokenizer/tokenizer.h
    int         context, new_tokens, repeats;
    pl_dtype    kv; // pl_layer_shape
} pl_bench_decode;

typedef struct pl_bench_tokenize {
    const char *tokenizer, *pre, *file; // pre: see data/tokenizer/tokenizer.h
} pl_bench_tokenize;

// Each adds one array to an open object.
void      pl_bench_put_bandwidth(pl_json_out *o, pl_bench *b);
pl_status pl_bench_put_linear(pl_json_out *o, pl_bench *b, int64_t vocab, int64_t width, pl_err *err);
pl_status pl_bench_put_train(pl_json_out *o, pl_bench *b, int64_t rows, int64_t vocab, int64_t width, pl_err *err);
// One head is in memory at a time.
pl_status pl_bench_put_heads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h, pl_err *err);
void      pl_bench_put_reads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h);
pl_status pl_bench_put_attention(pl_json_out *o, pl_bench *b, int64_t width, pl_dtype kv, pl_err *err);
pl_status pl_bench_put_draw(pl_json_out *o, pl_bench *b, int64_t vocab, pl_err *err); // on a device
// One object: the text is cut at line ends into pieces of some 4 KiB, encoded with and without the memory of words, and
// decoded.
pl_status pl_bench_put_tokenize(pl_json_out *o, const pl_bench_tokenize *b, pl_err *err);
// Three: how the target was opened, its methods, and its forward by rows (infer/bench/rows.h).
pl_status pl_bench_put_decode(pl_json_out *o, pl_bench *b, const pl_bench_decode *d, pl_err *err);

#endif
