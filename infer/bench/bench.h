// The driver of `paceline bench`: it times cases together with their floors and holds the memory that they read.
//
// A bench runs on any device: a step reads the backend's memory, and a timing ends when the device is synchronised. The
// limits of its floor are sampled next to it: on the host, the bandwidth of reading the memory that the step reads, and
// the peak of fma; on a device, bytes read plus bytes written by large copies within its memory.
//
// A bench adds cases (pl_bench_add), each with its step, bytes, flops and members of description, times them and frees
// their memory (pl_bench_run), and writes the cases with samples (pl_bench_put).
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

// A member that describes a case: `text`; where it is NULL, `value`, written as a boolean where `flag`.
typedef struct pl_bench_member {
    const char *key, *text;
    int64_t     value;
    bool        flag;
} pl_bench_member;

// A timed step, on a context of its own.
typedef struct pl_bench_case {
    char            name[64];
    pl_bench_member member[PL_BENCH_MEMBERS];
    int             n_members;
    void (*step)(pl_ctx *ctx, void *arg);
    void (*drop)(void *arg); // frees memory outside the bench's; NULL: none
    void                       *arg;
    struct pl_tape             *tape;         // of a step with gradients; NULL: none
    double                      bytes, flops; // of one step
    pl_dtype                    factors;      // dtype of the factors of `flops`: F32 or BF16
    const void                 *memory;       // where most of its reads are; a host's bandwidth is probed there
    size_t                      memory_bytes; // 0: the floor counts flops alone, where the peak is known
    bool                        rated;        // write flops_per_second
    const struct pl_bench_case *full;         // write speedup_over_full against this case; NULL: no
    bool                        ready;        // ctx is sized; false: out of memory or failed, without figures
    pl_ctx                      ctx;
    int                         n; // samples
    double                      seconds[PL_BENCH_TRIES], floor[PL_BENCH_TRIES];
} pl_bench_case;

typedef struct pl_bench {
    const pl_env  *env;
    double         max_bytes;  // largest weight matrix or cache; larger ones are left out
    int            rounds;     // of pl_bench_run, 1 to PL_BENCH_TRIES
    double         peak;       // flops per second, measured at opening; 0 on a device
    double         peak_bf16;  // likewise with bf16 factors
    pl_ctx         ctx;        // fills and copies
    void          *copy[2];    // on a device: blocks of copy_bytes each, to measure its copy bandwidth
    size_t         copy_bytes; // 0 on the host
    double         copy_rate;  // the last sample
    pl_bench_case *c[PL_BENCH_CASES];
    int            n, timed; // cases; the first `timed` have been run
    struct pl_bench_held {
        struct pl_bench_held *next;
        void                 *p;
        size_t                bytes;
        int                   where; // a pl_memory kind, or the host's
    } * held;
    int n_left; // failed cases, one line each instead of figures
    struct {
        char name[64], why[160];
    } left[PL_BENCH_LEFT];
} pl_bench;

pl_status pl_bench_open(pl_bench *b, const pl_env *env, double max_bytes, pl_err *err);
void      pl_bench_close(pl_bench *b);

// ---- memory, until the next pl_bench_run ----

// Returns a block in the backend's memory, of values that are finite and neither zero nor subnormal as fp32 and as
// bf16. On the host each part is first written by the thread that reads it. NULL: out of memory.
void     *pl_bench_block(pl_bench *b, size_t bytes);
void     *pl_bench_shared(pl_bench *b, size_t bytes); // a block that host and device can access, zeroed
void     *pl_bench_alloc(pl_bench *b, size_t bytes);  // host memory, zeroed
// Makes m rows of fp32 activations of width k; false: out of memory.
bool      pl_bench_input(pl_bench *b, pl_tensor *x, int64_t m, int64_t k);
// Fails if the backend uses the host's memory and the host has fewer free bytes.
pl_status pl_bench_room(const pl_bench *b, double bytes, const char *what, const char *mend, pl_err *err);
// Returns the number of copies of weights of `bytes` bytes that steps must read in turn, so that a device's last-level
// cache does not serve them; 1 on the host, whose floor is the bandwidth at the same footprint.
#define PL_BENCH_COPIES 8
int    pl_bench_copies(const pl_bench *b, size_t bytes);
// Returns the bytes of these copies; 0 above max_bytes, where the case is left out.
double pl_bench_copied(const pl_bench *b, size_t bytes);

// ---- cases ----

// Adds an empty case of this name.
pl_bench_case *pl_bench_add(pl_bench *b, const char *name, ...) __attribute__((format(printf, 2, 3)));
void           pl_bench_text(pl_bench_case *c, const char *key, const char *text);
void           pl_bench_int(pl_bench_case *c, const char *key, int64_t value);
void           pl_bench_flag(pl_bench_case *c, const char *key, bool value);
// Sizes the context; on failure the case is left out.
void           pl_bench_ready(pl_bench *b, pl_bench_case *c);
// Times the cases added since the last run, then frees the memory. Each round runs all cases: one step to warm up, then
// the timing, with the floor max(bytes / bandwidth, flops / peak) sampled right before it or, every other round, right
// after. Timing and floor are the best of several tries each. A slow step gets fewer tries, and no fourth round begins
// after a minute. A case that fails goes to "left_out".
void           pl_bench_run(pl_bench *b);
double         pl_bench_seconds(const pl_bench_case *c); // median; NaN: no samples
// Runs the cases that are not timed yet, writes the array of all cases and removes them: name, members, seconds
// (median), p10, p90, bytes, flops, and the members of pl_bench_write_pairs.
void           pl_bench_put(pl_json_out *o, pl_bench *b, const char *key);
void           pl_bench_forget(pl_bench *b);
// Records a failure that does not end the bench.
void           pl_bench_leave_out(pl_bench *b, const char *name, const pl_err *err);

// ---- limits ----

// Samples the bandwidth once, in bytes per second: of reading p (host), of copies of copy_bytes (device). 0: unknown.
double pl_bench_rate(pl_bench *b, const void *p, size_t bytes);
// Returns the least seconds of a step, max(bytes / rate, flops / peak), without an unknown limit (0). Over weights in
// bf16 a row's flops are the bytes read: a product and a sum for each value of two bytes.
double pl_bench_floor(double bytes, double rate, double flops, double peak);

// Pairs of a timing and its floor, sampled together. The limits of a shared machine change from minute to minute, so a
// share of the floor is the median over pairs, not the ratio of two medians.
typedef struct pl_bench_pairs {
    const double *seconds, *floor; // [n]
    int           n;
} pl_bench_pairs;

// Writes members of an open object: floor_seconds (median), share_of_floor (median over pairs), share_p10, share_p90.
void pl_bench_write_pairs(pl_json_out *o, const pl_bench_pairs *p);

// ---- benches; each writes one array into an open object, except as said ----

typedef struct pl_bench_heads {
    int64_t vocab, width;
    int64_t rank[16]; // of low-rank heads; n_ranks 0: width / 2, / 4, / 8, / 16
    int     n_ranks;
    bool    dtype[2]; // bf16, fp32
} pl_bench_heads;

typedef struct pl_bench_decode {
    const char *target, *pre, *drafter, *tree; // pre: see data/tokenizer/tokenizer.h
    bool        dtype[2]; // bf16, fp32: how the target is held, each timed plain; the first of them
                          // drafts and verifies too
    int         context, new_tokens, repeats;
    pl_dtype    kv; // pl_layer_shape
} pl_bench_decode;

typedef struct pl_bench_tokenize {
    const char *tokenizer, *pre, *file; // pre: see data/tokenizer/tokenizer.h
} pl_bench_tokenize;

void        pl_bench_put_bandwidth(pl_json_out *o, pl_bench *b);
pl_status   pl_bench_put_linear(pl_json_out *o, pl_bench *b, int64_t vocab, int64_t width, pl_err *err);
pl_status   pl_bench_put_train(pl_json_out *o, pl_bench *b, int64_t rows, int64_t vocab, int64_t width, pl_err *err);
// Writes "heads", with one head in memory at a time, and "routed_reads".
pl_status   pl_bench_put_heads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h, pl_err *err);
pl_status   pl_bench_put_attention(pl_json_out *o, pl_bench *b, int64_t width, pl_dtype kv, pl_err *err);
void        pl_bench_put_draw(pl_json_out *o, pl_bench *b, int64_t vocab); // on a device
// Writes one object. The text is cut at line ends into pieces of about 4 KiB, encoded with and without the cache of
// words, and decoded.
pl_status   pl_bench_put_tokenize(pl_json_out *o, const pl_bench_tokenize *b, pl_err *err);
// Writes the opening of the target, its methods, and its forward by rows.
pl_status   pl_bench_put_decode(pl_json_out *o, pl_bench *b, const pl_bench_decode *d, pl_err *err);
// Writes several arrays, of a model of random weights (decode.c).
pl_status   pl_bench_put_shape(pl_json_out *o, pl_bench *b, const pl_bench_shape *s, pl_err *err);
const char *pl_bench_block_name(int i); // "dflash", "dspark", "dflash2"; NULL past the last

#endif
