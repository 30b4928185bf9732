// The driver of `paceline bench`: cases that are timed together with their floors, and the memory that they read.
//
// A bench runs on any device: a step reads the backend's memory, and a timing ends when the device has finished
// all queued work. Its floor is sampled with it: on the host the bandwidth of reading the very memory that a
// step reads, and the peak of fma; on a device bytes read plus bytes written of large copies within its memory.
//
// A bench adds cases (pl_bench_add), each with its step, bytes and flops and the members that describe it, times them
// and frees their memory (pl_bench_run), and writes those that have figures (pl_bench_put).
#ifndef PL_BENCH_H
#define PL_BENCH_H

#include "infer/bench/shapes.h"
#include "infer/cli/machine.h"
#include "kernels/backend.h"

#define PL_BENCH_TRIES 9
#define PL_BENCH_MAX_PAIRS 1000
#define PL_BENCH_LEFT 16
#define PL_BENCH_CASES 64
#define PL_BENCH_MEMBERS 8

// A member that describes a case: text, or value where text is NULL, which may be a flag.
typedef struct pl_bench_member {
    const char *key, *text;
    int64_t     value;
    bool        flag;
} pl_bench_member;

// One thing that is timed: a step on a context of its own.
typedef struct pl_bench_case {
    char            name[64];
    pl_bench_member member[PL_BENCH_MEMBERS];
    int             n_members;
    void (*step)(pl_ctx *ctx, void *arg);
    void (*drop)(void *arg); // frees what the bench's memory does not hold; NULL: nothing
    void                       *arg;
    struct pl_tape             *tape;         // of a step with gradients; NULL: none
    double                      bytes, flops; // of one step
    pl_dtype                    factors;      // of flops: F32, or BF16
    const void                 *memory;       // most of its reads: on the host the bandwidth is probed right there
    size_t                      memory_bytes; // 0: the floor is that of flops alone, where it is known
    bool                        rated;        // it writes flops_per_second
    const struct pl_bench_case *full;         // it writes speedup_over_full, by this case; NULL: it does not
    bool                        ready;        // ctx is sized; false: no memory for it or it failed, and no figures
    pl_ctx                      ctx;
    int                         n; // samples
    double                      seconds[PL_BENCH_TRIES], floor[PL_BENCH_TRIES];
} pl_bench_case;

typedef struct pl_bench {
    const pl_env  *env;
    double         max_bytes;  // of one weight matrix or cache: larger ones are left out
    int            rounds;     // of pl_bench_run, 1 to PL_BENCH_TRIES
    double         peak;       // flops per second, before anything was timed; 0 on a device
    double         peak_bf16;  // the same of factors in bf16
    pl_ctx         ctx;        // fills and copies
    void          *copy[2];    // on a device: the blocks that measure its copy bandwidth, copy_bytes each
    size_t         copy_bytes; // 0 on the host
    double         copy_rate;  // the last sample
    pl_bench_case *c[PL_BENCH_CASES];
    int            n, timed; // cases; those before `timed` have been run
    struct pl_bench_held {
        struct pl_bench_held *next;
        void                 *p;
        size_t                bytes;
        int                   where; // a pl_memory kind, or the host's
    } * held;
    int n_left; // cases that failed: no figures, but a line each
    struct {
        char name[64], why[160];
    } left[PL_BENCH_LEFT];
} pl_bench;

pl_status pl_bench_open(pl_bench *b, const pl_env *env, double max_bytes, pl_err *err);
void      pl_bench_close(pl_bench *b);

// ---- memory, until the next pl_bench_run ----

// A block in the backend's memory whose values are finite and neither zero nor subnormal, as fp32 and as bf16; on the
// host written by the threads that will read it. NULL when there is none.
void     *pl_bench_block(pl_bench *b, size_t bytes);
void     *pl_bench_shared(pl_bench *b, size_t bytes); // visible to host and device, zeroed
void     *pl_bench_alloc(pl_bench *b, size_t bytes);  // the host's, zeroed
// Rows of activations: fp32.
bool      pl_bench_input(pl_bench *b, pl_tensor *x, int64_t m, int64_t k);
// Refuses more bytes than the host can give, where the backend's blocks lie in its memory.
pl_status pl_bench_room(const pl_bench *b, double bytes, const char *what, const char *mend, pl_err *err);
// How many copies of weights of so many bytes a step must take in turn so that it does not find them in the device's
// last cache; 1 on the host, where a step is compared with its footprint's own bandwidth.
#define PL_BENCH_COPIES 8
int    pl_bench_copies(const pl_bench *b, size_t bytes);
// Bytes of these copies; 0 above max_bytes, where the case is left out.
double pl_bench_copied(const pl_bench *b, size_t bytes);

// ---- cases ----

// A case of this name, empty.
pl_bench_case *pl_bench_add(pl_bench *b, const char *name, ...) __attribute__((format(printf, 2, 3)));
void           pl_bench_text(pl_bench_case *c, const char *key, const char *text);
void           pl_bench_int(pl_bench_case *c, const char *key, int64_t value);
void           pl_bench_flag(pl_bench_case *c, const char *key, bool value);
// Sizes the context; a case that cannot be is left out.
void           pl_bench_ready(pl_bench *b, pl_bench_case *c);
// Times the cases since the last run: rounds over all of them, each warmed up by a step right before it is timed, and
// its floor max(bytes / bandwidth, flops / peak) sampled right before or, every other round, right after. Timing and
// floor are the best of several tries each; a slow step gets fewer tries, and no fourth round begins after a minute. A
// case that fails goes to "left_out". Frees the memory then.
void           pl_bench_run(pl_bench *b);
double         pl_bench_seconds(const pl_bench_case *c); // median; NaN where there are no figures
// Adds the array of all cases, after a run of those that have not been, and forgets them: name, members, seconds
// (median), p10, p90, bytes, flops, and those of pl_bench_write_pairs.
void           pl_bench_put(pl_json_out *o, pl_bench *b, const char *key);
void           pl_bench_forget(pl_bench *b);
// A failure that a bench goes on after.
void           pl_bench_leave_out(pl_bench *b, const char *name, const pl_err *err);

// ---- limits ----

// Bytes per second, one sample: of reading p (host), of copies of copy_bytes (device). 0: not known.
double pl_bench_rate(pl_bench *b, const void *p, size_t bytes);

// Samples of something and of its floor, taken in pairs: limits of a shared machine move by the minute, so a share is
// the median over pairs of the floor that held then, not the ratio of two medians.
typedef struct pl_bench_pairs {
    const double *seconds, *floor; // [n]
    int           n;
} pl_bench_pairs;

// Members of an open object: floor_seconds (median), share_of_floor (median over pairs), share_p10, share_p90.
void pl_bench_write_pairs(pl_json_out *o, const pl_bench_pairs *p);

// ---- benches; each adds one array to an open object ----

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

void        pl_bench_put_bandwidth(pl_json_out *o, pl_bench *b);
pl_status   pl_bench_put_linear(pl_json_out *o, pl_bench *b, int64_t vocab, int64_t width, pl_err *err);
pl_status   pl_bench_put_train(pl_json_out *o, pl_bench *b, int64_t rows, int64_t vocab, int64_t width, pl_err *err);
// "heads", one in memory at a time, and "routed_reads".
pl_status   pl_bench_put_heads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h, pl_err *err);
pl_status   pl_bench_put_attention(pl_json_out *o, pl_bench *b, int64_t width, pl_dtype kv, pl_err *err);
void        pl_bench_put_draw(pl_json_out *o, pl_bench *b, int64_t vocab); // on a device
// One object: the text is cut at line ends into pieces of some 4 KiB, encoded with and without the memory of words, and
// decoded.
pl_status   pl_bench_put_tokenize(pl_json_out *o, const pl_bench_tokenize *b, pl_err *err);
// Three: how the target was opened, its methods, and its forward by rows.
pl_status   pl_bench_put_decode(pl_json_out *o, pl_bench *b, const pl_bench_decode *d, pl_err *err);
// Several, of a model of random weights: see decode.c.
pl_status   pl_bench_put_shape(pl_json_out *o, pl_bench *b, const pl_bench_shape *s, pl_err *err);
const char *pl_bench_block_name(int i); // "dflash", "dspark", "dflash2"; NULL past the last

#endif
