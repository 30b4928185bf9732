#include "infer/bench.h"

#include "data/tokenizer.h"
#include "infer/bench_parts.h"
#include "infer/put.h"
#include "infer/show.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/op/attention.h"

#include <math.h>
#include <string.h>

#define TRY_SECONDS 0.002
#define TRIES 4 // of a sample

// ---- memory ----

typedef struct fill {
    uint8_t *p;
    size_t   bytes;
} fill;

static void fill_part(void *arg, int part, int parts) {
    fill *f = arg;
    long  lo, hi;
    pl_range((long)f->bytes, 4096, part, parts, &lo, &hi);
    if (hi > lo) memset(f->p + lo, 0x3c, (size_t)(hi - lo)); // 0.0115 as fp32 and as bf16: no zeros, no subnormals
}

void *pl_bench_block(pl_bench *b, size_t bytes) {
    fill f = {.p = pl_block_create(bytes, NULL), .bytes = bytes};
    if (f.p) pl_parallel(b->env->pool, pl_pool_threads(b->env->pool), fill_part, &f);
    return f.p;
}

// ---- timing ----

void pl_bench_ready(pl_bench *b, pl_bench_case *c) {
    pl_err err;
    c->ready = pl_ctx_init(&c->ctx, b->env->backend, b->env->pool) == PL_OK;
    if (!c->ready) return;
    if (pl_ctx_measure(&c->ctx, c->step, c->arg, &err) == PL_OK) return;
    pl_log_warn("bench: %s: %s", c->name, err.msg);
    pl_ctx_fini(&c->ctx);
    c->ready = false;
}

static double run_times(pl_bench_case *c, int times) {
    double t0 = pl_now();
    for (int i = 0; i < times; i++) {
        pl_ctx_begin(&c->ctx);
        c->step(&c->ctx, c->arg);
    }
    return (pl_now() - t0) / times;
}

static double floor_of(pl_bench *b, const pl_bench_case *c) {
    double rate = c->memory_bytes ? pl_probe_read(b->env->pool, c->memory, c->memory_bytes) : 0;
    double peak = pl_probe_flops_once(b->env->pool);
    return fmax(rate > 0 ? c->bytes / rate : 0, peak > 0 ? c->flops / peak : 0);
}

// A sample is the best of TRIES, as a floor is the best of the probe's: what interrupts one try must not count on one
// side only.
static double time_case(pl_bench_case *c) {
    double warm = run_times(c, 1), best = INFINITY;
    int    times = warm < TRY_SECONDS ? (int)(TRY_SECONDS / (warm > 1e-8 ? warm : 1e-8)) + 1 : 1;
    for (int i = 0; i < TRIES; i++)
        best = fmin(best, run_times(c, times));
    return best;
}

void pl_bench_time(pl_bench *b, pl_bench_case *c, int n) {
    for (int t = 0; t < PL_BENCH_TRIES; t++)
        for (int i = 0; i < n; i++) {
            if (!c[i].ready) continue;
            if (t % 2 == 0) c[i].floor[t] = floor_of(b, &c[i]);
            c[i].seconds[t] = time_case(&c[i]);
            if (t % 2 != 0) c[i].floor[t] = floor_of(b, &c[i]);
        }
}

void pl_bench_write_pairs(pl_json_out *o, const pl_bench_pairs *p) {
    double    share[PL_BENCH_MAX_PAIRS];
    const int n = p->n;
    PL_CHECK(n >= 1 && n <= PL_BENCH_MAX_PAIRS, "%d pairs", n);
    for (int i = 0; i < n; i++)
        share[i] = p->floor[i] / p->seconds[i];
    pl_sample_stats s = pl_stats(share, n);
    pl_put_num(o, "floor_seconds", pl_stats(p->floor, n).median);
    pl_put_num(o, "share_of_floor", s.median);
    pl_put_num(o, "share_p10", s.p10);
    pl_put_num(o, "share_p90", s.p90);
}

void pl_bench_write(pl_json_out *o, const pl_bench_case *c) {
    pl_sample_stats s = pl_stats(c->seconds, PL_BENCH_TRIES);
    pl_put_num(o, "seconds", s.median);
    pl_put_num(o, "p10", s.p10);
    pl_put_num(o, "p90", s.p90);
    pl_put_num(o, "bytes", c->bytes);
    pl_put_num(o, "flops", c->flops);
    pl_bench_write_pairs(o, &(pl_bench_pairs){c->seconds, c->floor, PL_BENCH_TRIES});
}

void pl_bench_done(pl_bench_case *c) {
    if (c->ready) pl_ctx_fini(&c->ctx);
    c->ready = false;
}

// ---- read bandwidth ----

void pl_bench_put_bandwidth(pl_json_out *o, pl_bench *b) {
    pl_put_array(o, "bandwidth");
    for (double mb = 1; mb <= 1024; mb *= 2) {
        if (mb * 1048576 > b->max_bytes) break;
        double one = pl_probe_bandwidth(NULL, (size_t)(mb * 1048576));
        double all = pl_probe_bandwidth(b->env->pool, (size_t)(mb * 1048576));
        pl_json_out_object(o);
        pl_put_num(o, "footprint_mb", mb);
        pl_put_num(o, "one_thread_gb_per_second", one > 0 ? one / 1e9 : NAN);
        pl_put_num(o, "all_threads_gb_per_second", all > 0 ? all / 1e9 : NAN);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// ---- the command ----

static const pl_cli_option options[] = {
    {.name = "target", .type = PL_CLI_TEXT, .arg = "DIR|FILE", .help = "decode, step: the model"},
    {.name = "drafter", .type = PL_CLI_TEXT, .arg = "DIR", .help = "decode: a draft head to time as well"},
    {.name = "tree", .type = PL_CLI_TEXT, .arg = "TREE", .deflt = "auto", .help = "decode: how it drafts"},
    {.name = "context",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "32",
     .min = 1,
     .max = 1 << 24,
     .help = "decode: tokens of the prompt"},
    {.name = "new-tokens",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "64",
     .min = 2,
     .max = 1 << 24,
     .help = "decode: tokens after it"},
    {.name = "repeats",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "5",
     .min = 1,
     .max = 1000,
     .help = "decode, step: runs of each"},
    {.name = "batch",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "4",
     .min = 1,
     .max = 65536,
     .help = "step: sequences of a training step"},
    {.name = "seq-len",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "512",
     .min = 8,
     .max = 1 << 20,
     .help = "step: tokens of a sequence"},
    {.name = "unroll",
     .type = PL_CLI_INT,
     .arg = "K",
     .deflt = "5",
     .min = 1,
     .max = PL_MAX_UNROLL,
     .help = "step: steps of the drafter's training-time test"},
    {.name = "vocab",
     .type = PL_CLI_INT,
     .arg = "V",
     .deflt = "128256",
     .min = 32,
     .max = 4194304,
     .help = "linear, heads: rows of the output matrix"},
    {.name = "hidden",
     .type = PL_CLI_INT,
     .arg = "D",
     .deflt = "2048",
     .min = 8,
     .max = 65536,
     .help = "linear, heads: width of the hidden state"},
    {.name = "ranks",
     .type = PL_CLI_TEXT,
     .arg = "R,...",
     .help = "heads: ranks of low-rank heads [D/2, D/4, D/8, D/16]"},
    {.name = "weights",
     .type = PL_CLI_CHOICE,
     .arg = "bf16|fp32|both",
     .deflt = "both",
     .help = "heads: how their weights are held"},
    {.name = "tokenizer", .type = PL_CLI_TEXT, .arg = "PATH", .help = "tokenize: the tokenizer"},
    {.name = "pre", .type = PL_CLI_TEXT, .arg = "NAME", .help = PL_TOK_PRE_HELP},
    {.name = "file", .letter = 'f', .type = PL_CLI_TEXT, .arg = "F", .help = "tokenize: a text"},
    {.name = "max-mb",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "2048",
     .min = 1,
     .max = 1 << 24,
     .help = "leaves out weight matrices above this size"},
    {0}};

enum { BANDWIDTH = 1, LINEAR = 2, TRAIN = 4, HEADS = 8, DECODE = 16, STEP = 32, TOKENIZE = 64 };
static const char *const kinds[] = {"bandwidth", "linear", "train", "heads", "decode", "step", "tokenize"};

static pl_status wanted(const pl_cli_args *a, unsigned *mask, pl_err *err) {
    int n = (int)(sizeof kinds / sizeof *kinds);
    *mask = 0;
    for (int i = 0; i < a->n_positional; i++) {
        int k = 0;
        while (k < n && strcmp(kinds[k], a->positional[i]) != 0)
            k++;
        if (k == n) {
            const char *near = pl_cli_nearest(a->positional[i], kinds, n);
            return pl_fail(err, PL_E_USAGE,
                           "%s: unknown bench%s%s; known are bandwidth, linear, train, heads, decode, step, tokenize",
                           a->positional[i], near ? "; did you mean " : "", near ? near : "");
        }
        *mask |= 1u << k;
    }
    if (*mask == 0) *mask = BANDWIDTH | LINEAR | TRAIN | HEADS | (pl_cli_has(a, "target") ? DECODE | STEP : 0);
    if (*mask & (DECODE | STEP) && !pl_cli_has(a, "target"))
        return pl_fail(err, PL_E_USAGE, "--target: is missing; bench %s needs a model",
                       *mask & DECODE ? "decode" : "step");
    if (*mask & TOKENIZE && !(pl_cli_has(a, "tokenizer") && pl_cli_has(a, "file")))
        return pl_fail(err, PL_E_USAGE, "--tokenizer, --file: bench tokenize needs both");
    return PL_OK;
}

static pl_status read_ranks(const pl_cli_args *a, pl_bench_heads *h, pl_err *err) {
    int32_t *ids;
    int64_t  n;
    if (!pl_cli_has(a, "ranks")) return PL_OK;
    pl_status st = pl_cli_ids(pl_cli_text(a, "ranks"), &ids, &n, err);
    if (st != PL_OK) return pl_fail_at(err, st, "--ranks");
    int most = (int)(sizeof h->rank / sizeof *h->rank);
    if (n > most) st = pl_fail(err, PL_E_USAGE, "--ranks: %lld of them, at most %d", (long long)n, most);
    for (int64_t i = 0; i < n && st == PL_OK; i++) {
        if (ids[i] < 1 || ids[i] > h->width)
            st = pl_fail(err, PL_E_USAGE, "--ranks: %d: must lie in 1..%lld, the width", ids[i], (long long)h->width);
        h->rank[h->n_ranks++] = ids[i];
    }
    pl_free(ids);
    return st;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    unsigned       mask;
    pl_bench_heads heads = {.vocab = pl_cli_int(a, "vocab"), .width = pl_cli_int(a, "hidden")};
    int            weights = pl_cli_choice(a, "weights");
    for (int t = 0; t < 2; t++)
        heads.dtype[t] = weights == 2 || weights == t;
    PL_TRY(wanted(a, &mask, err));
    PL_TRY(read_ranks(a, &heads, err));
    pl_bench_decode   decode = {.target = pl_cli_text(a, "target"),
                                .pre = pl_cli_text(a, "pre"),
                                .drafter = pl_cli_text(a, "drafter"),
                                .tree = pl_cli_text(a, "tree"),
                                .context = (int)pl_cli_int(a, "context"),
                                .new_tokens = (int)pl_cli_int(a, "new-tokens"),
                                .repeats = (int)pl_cli_int(a, "repeats")};
    pl_bench_step     step = {.target = decode.target,
                              .batch = pl_cli_int(a, "batch"),
                              .seq_len = pl_cli_int(a, "seq-len"),
                              .unroll = (int)pl_cli_int(a, "unroll"),
                              .repeats = decode.repeats};
    pl_bench_tokenize tokenize = {
        .tokenizer = pl_cli_text(a, "tokenizer"), .pre = pl_cli_text(a, "pre"), .file = pl_cli_text(a, "file")};
    pl_bench b = {
        .env = env, .max_bytes = (double)pl_cli_int(a, "max-mb") * 1048576, .peak = pl_probe_flops(env->pool)};
    pl_json_out local, *o = pl_show_begin(env, &local);
    pl_status   st = PL_OK;
    if (mask & BANDWIDTH) pl_bench_put_bandwidth(o, &b);
    if (mask & LINEAR) pl_bench_put_linear(o, &b, heads.vocab, heads.width);
    if (mask & TRAIN) pl_bench_put_train(o, &b);
    if (mask & HEADS) pl_bench_put_heads(o, &b, &heads);
    if (mask & DECODE) st = pl_bench_put_decode(o, &b, &decode, err);
    if (st == PL_OK && mask & STEP) st = env->bench_step(o, env, &step, err);
    if (st == PL_OK && mask & TOKENIZE) st = pl_bench_put_tokenize(o, &tokenize, err);
    if (st != PL_OK) {
        pl_show_abort(&local);
        return st;
    }
    pl_machine m;
    pl_machine_describe(&m, env);
    m.peak_flops = b.peak;
    pl_json_out_key(o, "machine");
    pl_machine_write(o, &m);
    pl_put_str(o, "commit", pl_commit());
    pl_put_num(o, "peak_memory_bytes", pl_peak_memory());
    return pl_show_end(env, &local, err);
}

const pl_command pl_command_bench = {
    .name = "bench",
    .summary = "kernels, decode steps and training steps against this machine's limits",
    .positional = "[bandwidth|linear|train|heads|decode|step|tokenize...]",
    .max_positional = 7,
    .options = options,
    .about =
        "Every time is the median of interleaved runs, with the 10th and 90th percentile, beside its floor: bytes "
        "over\n"
        "the bandwidth measured at that footprint, or operations over the measured peak. Floors are sampled in pairs\n"
        "with the timings, and share_of_floor is the median over pairs (share_p10, share_p90: its spread), so that a\n"
        "machine whose limits move does not move the share. Both are the best of several tries. A floor counts what\n"
        "must be read once, and no more: of a head its projection and rows, for specvocab the scorer and the exact\n"
        "rows of its candidates, for dynaspec the router and the rows of the clusters that it chose, without what\n"
        "packing adds.\n\n"
        "  bandwidth  reading memory, by footprint           train   products with gradients, one by one\n"
        "  linear     products with packed weights           step    whole training steps, the optimizer's update\n"
        "  heads      hidden state to most probable token            included: the target itself, and an EAGLE-3\n"
        "  decode     tokens of --target, per method                 drafter for it; floor: the model's flops (each\n"
        "                                                            product once forward, twice backward, nothing\n"
        "                                                            that is recomputed) at the peak of fma\n"
        "  tokenize   --tokenizer on --file, MB/s\n\n"
        "Without names: everything but tokenize (decode and step where there is a --target).",
    .example = "paceline bench heads --vocab 32000 --hidden 1024 --json",
    .run = run,
};
