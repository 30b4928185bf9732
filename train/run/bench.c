// `paceline bench`: kernels, decode steps (infer/bench/bench.h) and training steps against what this machine can do at
// most, all taken in one run.
#include "infer/bench/bench.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/cli/cli.h"
#include "infer/cli/show.h"
#include "infer/model/kv.h"
#include "kernels/base/json.h"
#include "kernels/base/room.h"
#include "kernels/op/attention.h"
#include "recipes/spell.h"
#include "train/run/bench_step.h"

#include <math.h>
#include <string.h>

static const pl_key options[] = {
    {PL_OPTION_TEXT("target", "DIR|FILE"), .help = "decode, step: the model"},
    {PL_OPTION_TEXT("shape", "NAME"),
     .help = "decode, step: instead of --target, a model of this shape with random weights: " PL_SHAPE_NAMES},
    PL_OPTION_LAYERS(", so that a large one fits a small machine"),
    {PL_OPTION_TEXT("head", "HEAD"), .deflt = "full",
     .help = "step: the drafter's head: full, trimmed:ROWS, KIND:NAME=VALUE,... (lowrank:rank=64)"},
    {PL_OPTION_TEXT("drafter", "DIR"),
     .help = "decode: a draft head to time as well; with --shape dflash, dspark or dflash2: a block drafter of random "
             "weights"},
    {PL_OPTION_TEXT("tree", "TREE"), .deflt = "auto", .help = "decode: how it drafts"},
    {PL_OPTION_INT("context", "N"), .min = 1, .max = 1 << 24,
     .help = "decode: tokens of the prompt [32, of a --shape 128]"},
    {PL_OPTION_INT("new-tokens", "N"), .deflt = "64", .min = 2, .max = 1 << 24,
     .help = "decode: tokens after it; of a --shape, steps of a run, each behind the prompt"},
    {PL_OPTION_INT("repeats", "N"), .deflt = "5", .min = 1, .max = 1000, .help = "decode, step: runs of each"},
    {PL_OPTION_INT("batch", "N"), .deflt = "4", .min = 1, .max = 65536, .help = "step: sequences of a training step"},
    {PL_OPTION_INT("seq-len", "N"), .deflt = "512", .min = 8, .max = 1 << 20,
     .help = "step: tokens of a sequence; train on a device: rows"},
    {PL_OPTION_INT("unroll", "K"), .deflt = "5", .min = 1, .max = PL_MAX_UNROLL,
     .help = "step: steps of the drafter's training-time test"},
    {PL_OPTION_REAL("supervised", "SHARE"), .deflt = "1", .min = 0.001, .max = 1,
     .help = "step: of a sequence's rows, those at its end that the drafter learns from"},
    {PL_OPTION_FLAG("launches"), .help = "step: where its time goes, launch by launch on a GPU, op by op on the CPU"},
    {PL_OPTION_TEXT("try", "NAME,..."),
     .help = "step on a GPU: what a change would bring, in turns: " PL_CUDA_TRIALS_SYNTAX},
    {PL_OPTION_INT("vocab", "V"), .deflt = "128256", .min = 32, .max = 4194304,
     .help = "linear, heads, on a device train: rows of the output matrix"},
    {PL_OPTION_INT("hidden", "D"), .deflt = "2048", .min = 8, .max = 65536,
     .help = "linear, heads, attention, on a device train: width of the hidden state"},
    {PL_OPTION_TEXT("ranks", "R,..."), .help = "heads: ranks of low-rank heads [D/2, D/4, D/8, D/16]"},
    {PL_OPTION_CHOICE("weights", "bf16", "fp32", "both"), .deflt = "both",
     .help = "heads, step, decode of a --target: how weights are held; step: bf16 where it is not given"},
    PL_OPTION_KV("decode, attention: "),
    {PL_OPTION_TEXT("tokenizer", "PATH"), .help = "tokenize: the tokenizer"},
    PL_OPTION_PRE,
    {PL_OPTION_TEXT("file", "F"), .letter = 'f', .help = "tokenize: a text"},
    {PL_OPTION_INT("max-mb", "N"), .deflt = "2048", .min = 1, .max = 1 << 24,
     .help = "leaves out weight matrices and caches above this size"},
    {0}};

enum {
    BANDWIDTH = 1,
    LINEAR = 2,
    TRAIN = 4,
    HEADS = 8,
    DECODE = 16,
    STEP = 32,
    TOKENIZE = 64,
    ATTENTION = 128,
    DRAW = 256
};
static const char *const kinds[] = {"bandwidth", "linear",   "train",     "heads", "decode",
                                    "step",      "tokenize", "attention", "draw"};

enum { MATRICES = BANDWIDTH | LINEAR | TRAIN | HEADS | ATTENTION };

// The benches that read an option: on the host, and on a device too.
static const struct {
    const char *option;
    unsigned    host, device;
} readers[] = {{"target", DECODE | STEP, 0},
               {"shape", DECODE | STEP, 0},
               {"layers", DECODE | STEP, 0},
               {"head", STEP, 0},
               {"drafter", DECODE, 0},
               {"tree", DECODE, 0},
               {"context", DECODE, 0},
               {"new-tokens", DECODE, 0},
               {"repeats", DECODE | STEP, 0},
               {"batch", STEP, 0},
               {"seq-len", STEP, TRAIN},
               {"unroll", STEP, 0},
               {"supervised", STEP, 0},
               {"launches", STEP, 0},
               {"try", STEP, 0},
               {"vocab", LINEAR | HEADS, TRAIN | DRAW},
               {"hidden", LINEAR | HEADS | ATTENTION, TRAIN},
               {"ranks", HEADS, 0},
               {"weights", HEADS | STEP | DECODE, 0},
               {"kv", DECODE | ATTENTION, 0},
               {"tokenizer", TOKENIZE, 0},
               {"pre", DECODE | TOKENIZE, 0},
               {"file", TOKENIZE, 0},
               {"max-mb", MATRICES, DECODE | STEP | TOKENIZE | DRAW}}; // a device's copies

static void list_kinds(char *text, size_t room, unsigned mask) {
    size_t n = 0;
    *text = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && n < room; i++)
        if (mask & 1u << i) n += (size_t)snprintf(text + n, room - n, "%s%s", n ? ", " : "", kinds[i]);
}

// Refuses an option that no bench of the mask reads.
static pl_status check_read(const pl_cli_args *a, unsigned mask, bool device, pl_err *err) {
    char host[160], there[160];
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        unsigned reading = readers[i].host | (device ? readers[i].device : 0);
        if (!pl_cli_has(a, readers[i].option) || mask & reading) continue;
        list_kinds(host, sizeof host, readers[i].host);
        list_kinds(there, sizeof there, readers[i].device);
        return pl_fail(err, PL_E_USAGE, "--%s: is for bench %s%s%s; leave it out", readers[i].option, host,
                       *there ? "; on a device also " : "", there);
    }
    return PL_OK;
}

static pl_status wanted(const pl_cli_args *a, unsigned *mask, bool device, pl_err *err) {
    int n = (int)(sizeof kinds / sizeof *kinds);
    *mask = 0;
    for (int i = 0; i < a->n_positional; i++) {
        int k = 0;
        while (k < n && strcmp(kinds[k], a->positional[i]) != 0)
            k++;
        if (k == n) {
            const char *near = pl_spell_nearest(a->positional[i], kinds, n);
            return pl_fail(err, PL_E_USAGE,
                           "%s: unknown bench%s%s; known are bandwidth, linear, train, heads, attention, draw, decode, "
                           "step, tokenize",
                           a->positional[i], near ? "; did you mean " : "", near ? near : "");
        }
        *mask |= 1u << k;
    }
    bool target = pl_cli_has(a, "target"), shape = pl_cli_has(a, "shape");
    if (*mask == 0) {
        *mask = BANDWIDTH | LINEAR | TRAIN | HEADS | ATTENTION | DRAW;
        if (target) *mask |= DECODE | STEP;
        if (shape) *mask |= DECODE;
    }
    if (*mask & (DECODE | STEP) && !target && !shape)
        return pl_fail(err, PL_E_USAGE, "--target: is missing; bench %s needs a model, or a --shape",
                       *mask & DECODE ? "decode" : "step");
    PL_TRY(check_read(a, *mask, device, err));
    const char *drafter = pl_cli_text(a, "drafter");
    int         block = 0;
    while (shape && drafter && pl_bench_block_name(block) && strcmp(drafter, pl_bench_block_name(block)) != 0)
        block++;
    if (shape && drafter && !pl_bench_block_name(block))
        return pl_fail(
            err, PL_E_USAGE,
            "--drafter %s: a --shape brings drafters of its own, and one of dflash, dspark, dflash2 if it is "
            "asked for",
            drafter);
    if (pl_cli_has(a, "tree") && (shape || !drafter))
        return pl_fail(err, PL_E_USAGE, "--tree: is for --drafter%s, which is not given",
                       shape ? " with --target" : "");
    if (pl_cli_has(a, "weights") && shape && !(*mask & (HEADS | STEP)))
        return pl_fail(err, PL_E_USAGE, "--weights: a --shape decodes with weights in bf16; leave it out");
    if (pl_cli_has(a, "pre") && !target && !pl_cli_has(a, "tokenizer"))
        return pl_fail(err, PL_E_USAGE, "--pre: is for --target, --tokenizer, neither of which is given");
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

static void write_rest(pl_json_out *o, const pl_bench *b) {
    pl_machine m;
    char       cuda[512];
    if (b->n_left) {
        pl_put_array(o, "left_out");
        for (int i = 0; i < b->n_left; i++) {
            pl_json_out_object(o);
            pl_put_str(o, "name", b->left[i].name);
            pl_put_str(o, "why", b->left[i].why);
            pl_json_out_close(o, '}');
        }
        pl_json_out_close(o, ']');
    }
    pl_machine_describe(&m, b->env);
    m.peak_flops = b->peak;
    m.peak_bf16_flops = b->peak_bf16;
    if (b->copy_bytes) {
        pl_backend_cuda_describe(cuda, sizeof cuda);
        pl_put_str(o, "cuda", cuda);
        pl_put_num(o, "copy_bytes_per_second", b->copy_rate > 0 ? b->copy_rate : NAN);
    }
    pl_json_out_key(o, "machine");
    pl_machine_write(o, &m);
    pl_put_str(o, "commit", pl_commit());
    pl_put_num(o, "peak_memory_bytes", pl_memory_peak());
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    unsigned       mask;
    pl_bench_heads heads = {.vocab = pl_cli_int(a, "vocab"), .width = pl_cli_int(a, "hidden")};
    int            weights = pl_cli_choice(a, "weights");
    PL_TRY(wanted(a, &mask, env->backend->memory != NULL, err));
    PL_TRY(read_ranks(a, &heads, err));
    if (mask & DRAW && a->n_positional > 0 && !env->backend->memory)
        return pl_fail(err, PL_E_USAGE,
                       "draw: times a GPU's draws; give --device (the CPU draws from distributions, "
                       "one tree node at a time)");
    int context = pl_cli_has(a, "shape") ? PL_SHAPE_CONTEXT : 32;
    if (pl_cli_has(a, "context")) context = (int)pl_cli_int(a, "context");
    pl_bench_decode   decode = {.target = pl_cli_text(a, "target"),
                                .pre = pl_cli_text(a, "pre"),
                                .drafter = pl_cli_text(a, "drafter"),
                                .tree = pl_cli_text(a, "tree"),
                                .context = context,
                                .new_tokens = (int)pl_cli_int(a, "new-tokens"),
                                .repeats = (int)pl_cli_int(a, "repeats"),
                                .kv = pl_kv_chosen(pl_cli_choice(a, "kv"))};
    pl_bench_step     step = {.target = decode.target,
                              .batch = pl_cli_int(a, "batch"),
                              .seq_len = pl_cli_int(a, "seq-len"),
                              .unroll = (int)pl_cli_int(a, "unroll"),
                              .head = pl_cli_text(a, "head"),
                              .repeats = decode.repeats,
                              .supervised = pl_cli_real(a, "supervised"),
                              .launches = pl_cli_has(a, "launches"),
                              .trials = pl_cli_text(a, "try")};
    pl_bench_tokenize tokenize = {
        .tokenizer = pl_cli_text(a, "tokenizer"), .pre = pl_cli_text(a, "pre"), .file = pl_cli_text(a, "file")};
    pl_bench_shape shape = {.context = decode.context,
                            .steps = decode.new_tokens,
                            .repeats = decode.repeats,
                            .kv = decode.kv,
                            .block = decode.drafter};
    PL_TRY(pl_bench_shape_options(a, &shape.name, &shape.layers, err));
    for (int t = 0; t < 2; t++) {
        heads.dtype[t] = weights == 2 || weights == t;
        decode.dtype[t] = heads.dtype[t];
        step.dtype[t] = pl_cli_has(a, "weights") ? heads.dtype[t] : t == 0;
    }
    step.shape = shape.name;
    step.layers = shape.layers;
    pl_bench b;
    PL_TRY(pl_bench_open(&b, env, (double)pl_cli_int(a, "max-mb") * 1048576, err));
    pl_json_out local, *o = pl_show_begin(env, &local);
    pl_status   st = PL_OK;
    if (mask & BANDWIDTH) pl_bench_put_bandwidth(o, &b);
    if (mask & LINEAR) st = pl_bench_put_linear(o, &b, heads.vocab, heads.width, err);
    if (st == PL_OK && (mask & TRAIN)) st = pl_bench_put_train(o, &b, step.seq_len, heads.vocab, heads.width, err);
    if (st == PL_OK && (mask & HEADS)) st = pl_bench_put_heads(o, &b, &heads, err);
    if (st == PL_OK && (mask & ATTENTION)) st = pl_bench_put_attention(o, &b, heads.width, decode.kv, err);
    if (st == PL_OK && env->backend->memory && (mask & DRAW)) pl_bench_put_draw(o, &b, heads.vocab);
    if (st == PL_OK && (mask & DECODE))
        st = shape.name ? pl_bench_put_shape(o, &b, &shape, err) : pl_bench_put_decode(o, &b, &decode, err);
    if (st == PL_OK && (mask & STEP)) st = pl_bench_put_step(o, env, &step, err);
    if (st == PL_OK && (mask & TOKENIZE)) st = pl_bench_put_tokenize(o, &tokenize, err);
    if (st == PL_OK) write_rest(o, &b);
    pl_bench_close(&b);
    if (st == PL_OK) return pl_show_end(env, &local, err);
    pl_show_abort(&local);
    return st;
}

static bool find_model(const pl_cli_args *a, const char **model, pl_dtype *weights) {
    (void)weights;
    *model = pl_cli_text(a, "target");
    return a->n_positional != 1 || strcmp(a->positional[0], "tokenize") != 0;
}

const pl_command pl_command_bench = {
    .name = "bench",
    .summary = "times kernels, decoding and training steps against this machine's limits",
    .positional = "[bandwidth|linear|train|heads|attention|draw|decode|step|tokenize...]",
    .max_positional = 9,
    .devices = true,
    .runs = find_model,
    .options = options,
    .about =
        "Every time is the median of interleaved runs, with the 10th and 90th percentile, beside its floor, the\n"
        "least time that this machine allows: bytes that must be read over the bandwidth measured for so much\n"
        "memory, or operations over the measured peak. Bandwidth and peak are the best of several tries, taken\n"
        "in pairs with the timings; share_of_floor is the median over the pairs (share_p10, share_p90: its\n"
        "spread), so that a machine whose speed moves does not move the share. A floor counts what must be read\n"
        "once, and no more: of a head its projection and rows, for specvocab the scorer and the exact rows of\n"
        "its candidates, for dynaspec the router and the rows of the clusters that it chose, without what\n"
        "packing adds. Beside the heads: the rows that a routed head reads of 27 clusters in 128, as runs of\n"
        "neighbouring rows and one by one.\n"
        "\n"
        "  bandwidth  reading memory, by its size            train   matrix products of training, one by one\n"
        "  linear     products with packed weights           step    whole training steps with the optimizer's\n"
        "  heads      hidden state to most probable token            update: the target itself, and an EAGLE-3\n"
        "  attention  rows over a cache of keys                      drafter for it; floor: the model's operations\n"
        "  decode     tokens of --target, per method, and            (each product once forward, twice backward,\n"
        "             its forward over 1 to 60 rows                  nothing recomputed) at the measured peak\n"
        "  tokenize   --tokenizer on --file, MB/s            draw    on a device: drawing tokens from the target's\n"
        "                                                            logits, which are read once\n"
        "\n"
        "decode --shape: plain decoding, verification by nodes, draft steps by head, whole cycles and where\n"
        "their time goes, beside goals for a GPU, which are shown and not enforced.\n"
        "On a device the floor is bytes over the bandwidth of copies within its memory (read and written\n"
        "counted); weights that would stay in its cache are replaced by others from run to run, and operations\n"
        "have no floor.\n"
        "\n"
        "Heads are in memory one at a time, and timed so. What would not fit is refused before it is "
        "made;\n" PL_MEMORY_HELP ".\n"
        "\n"
        "Without names: everything but tokenize (decode and step where there is a --target, decode for a\n"
        "--shape).",
    .example = "paceline bench heads --vocab 32000 --hidden 1024 --json",
    .run = run,
};
