// `paceline plan train`: what training a drafter will take (train/plan/plan.h), for numbers of ranks and ways of
// getting data.
#include "infer/bench/shapes.h"
#include "infer/cli/cli.h"
#include "infer/cli/show.h"
#include "infer/model/llama.h"
#include "kernels/base/json.h"
#include "kernels/comm/comm.h"
#include "train/loop/slots.h"
#include "train/plan/law.h"
#include "train/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_LISTED = 32 };

// TCP payload of an Ethernet frame: 1,500 bytes less headers and a time stamp, of 1,500 plus the frame's overhead.
#define CARRIED (1448.0 / 1538.0)

// Datasheet values: bf16 flop/s without sparsity, bandwidth and size of memory.
static const struct unit {
    const char *name, *source;
    double      flops, bandwidth, memory;
} units[] = {
    {"h100", "NVIDIA's datasheet of the H100 SXM5 80GB", 989.4e12, 3.35e12, 80e9},
    {"h200", "NVIDIA's datasheet of the H200 SXM 141GB", 989.4e12, 4.8e12, 141e9},
    {"a100", "NVIDIA's datasheet of the A100 SXM4 80GB", 312e12, 2.039e12, 80e9},
};

static const pl_key options[] = {
    {PL_OPTION_TEXT("target", "DIR"), .help = "the model: a folder that has config.json"},
    {PL_OPTION_TEXT("shape", "NAME"), .help = "instead of --target, a known shape: " PL_SHAPE_NAMES PL_SHAPE_PLANNED},
    PL_OPTION_LAYERS(""),
    {PL_OPTION_REAL("samples", "M"), .deflt = "500000", .min = 1, .max = 1e12, .help = "documents"},
    {PL_OPTION_REAL("tokens", "L"), .deflt = "1024", .min = 1, .max = 1e6, .help = "of each"},
    {PL_OPTION_REAL("epochs", "E"), .deflt = "1", .min = 0, .max = 1e4, .help = "of training"},
    {PL_OPTION_REAL("window", "M"), .deflt = "10000", .min = 1, .max = 1e12,
     .help = "bounded: documents that lie on disk at once"},
    {PL_OPTION_INT("slots", "S"), .deflt = "512", .min = 1, .max = PL_SLOTS_MAX, .help = "of a step (train.slots)"},
    {PL_OPTION_INT("slot-rows", "B"), .deflt = "2048", .min = 8, .max = 1 << 20,
     .help = "tokens of a slot (train.slot_rows)"},
    {PL_OPTION_INT("unroll", "K"), .deflt = "5", .min = 1, .max = 16, .help = "train.unroll"},
    {PL_OPTION_REAL("supervised", "SHARE"), .deflt = "1", .min = 0.001, .max = 1,
     .help = "share of rows that steps learn from: those of answers"},
    {PL_OPTION_INT("sessions", "P"), .deflt = "64", .min = 1, .max = 65536,
     .help = "answers that a device makes at once"},
    {PL_OPTION_TEXT("ranks", "R,..."), .deflt = "1,8,64", .help = "processes, one to a device"},
    {PL_OPTION_FLAG("sharded"), .help = "masters and moments lie over the ranks (train.shard: optimizer)"},
    {PL_OPTION_CHOICE("mode", "all", "offline", "bounded", "online"), .deflt = "all",
     .help = "where data come from: a whole dataset, one that is used up as it is made, the target while training"},
    {PL_OPTION_CHOICE("feature-format", "bf16", "int8"), .deflt = "bf16",
     .help = "how a dataset stores features (data.feature_format)"},
    {PL_OPTION_CHOICE("unit", "h100", "h200", "a100"), .deflt = "h100", .help = "the device's datasheet"},
    {PL_OPTION_REAL("share", "X"), .deflt = "0.4", .min = 1e-6, .max = 1,
     .help = "of the datasheet's products that steps reach, where nothing is measured: an assumption"},
    {PL_OPTION_TEXT("step", "FILE"),
     .help = "what `bench step --json` wrote on the device: its drafter's step says how many flop/s are reached"},
    {PL_OPTION_REAL("flops", "TFLOPS"), .min = 1e-6, .max = 1e6,
     .help = "that steps reach, instead of --step or --share"},
    {PL_OPTION_REAL("bandwidth", "GB/S"), .min = 1e-3, .max = 1e6, .help = "of memory [--unit's]"},
    {PL_OPTION_REAL("memory", "GB"), .min = 1e-3, .max = 1e6, .help = "of a device [--unit's]"},
    {PL_OPTION_REAL("network", "GBIT/S"), .deflt = "400", .min = 1e-6, .max = 1e6, .help = "of each rank"},
    {PL_OPTION_CHOICE("transport", "nccl", "host"), .deflt = "nccl",
     .help = "how gradients are summed: after backward, or over TCP (host) by CPUs beside the last slot's, which a "
             "rate of --step or --flops is taken for"},
    {PL_OPTION_TEXT("from", "RUN"),
     .help = "a run's folder, with metrics.jsonl: its acceptance, continued to the rows planned (train/plan/law.h)"},
    {PL_OPTION_REAL("latency", "US"), .deflt = "20", .min = 0, .max = 1e7, .help = "of an exchange between all ranks"},
    {0}};

typedef struct plan {
    const pl_env      *env;
    const pl_cli_args *args;
    pl_hf_config       target;
    const char        *name, *rate_from, *memory_from;
    pl_train_sizes     sizes;
    pl_train_setup     setup;
    int                ranks[RANKS_LISTED], n_ranks;
    pl_law             law; // of --from
} plan;

// ---- input ----

static pl_status read_target(plan *p, pl_err *err) {
    const char *shape;
    int         layers;
    PL_TRY(pl_bench_shape_planned(p->args, &shape, &layers, err));
    p->name = shape ? shape : pl_cli_text(p->args, "target");
    if (!p->name) return pl_fail(err, PL_E_USAGE, "--target: is missing; give a model's folder, or --shape");
    if (shape) return pl_bench_shape_find(&p->target, shape, layers, 64, err);
    return pl_llama_config(&p->target, p->name, err);
}

static pl_status read_ranks(plan *p, pl_err *err) {
    const char *text = pl_cli_text(p->args, "ranks");
    for (const char *s = text;; s++) {
        char *end;
        long  n = strtol(s, &end, 10);
        if (end == s || (*end && *end != ',') || n < 1 || n > PL_SLOTS_MAX || p->n_ranks == RANKS_LISTED)
            return pl_fail(err, PL_E_USAGE, "--ranks %s: expected at most %d numbers from 1 to %d, such as 8,64,512",
                           text, RANKS_LISTED, PL_SLOTS_MAX);
        p->ranks[p->n_ranks++] = (int)n;
        s = end;
        if (!*s) return PL_OK;
    }
}

// Reads flop/s of the first drafter's step that bench timed.
static pl_status read_step(const char *path, double *flops, pl_err *err) {
    pl_json      j;
    const cJSON *item;
    PL_TRY(pl_json_open(&j, path, (size_t)1 << 24, 0, err));
    pl_status st =
        pl_fail(err, PL_E_INPUT, "%s: has no step of a drafter; `paceline bench step --json` writes it", path);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(j.root, "step")) {
        const cJSON *head = cJSON_GetObjectItemCaseSensitive(item, "head");
        if (!head || st == PL_OK) continue;
        st = pl_json_get_num(&j, item, "flops_per_second", 1, 1e18, flops, err);
        if (st != PL_OK) break;
    }
    pl_json_close(&j);
    return st;
}

static pl_status read_unit(plan *p, pl_err *err) {
    const pl_cli_args *a = p->args;
    const struct unit *u = &units[pl_cli_choice(a, "unit")];
    pl_train_setup    *s = &p->setup;
    s->flops = u->flops * pl_cli_real(a, "share");
    s->memory_bandwidth = pl_cli_has(a, "bandwidth") ? 1e9 * pl_cli_real(a, "bandwidth") : u->bandwidth;
    s->memory = pl_cli_has(a, "memory") ? 1e9 * pl_cli_real(a, "memory") : u->memory;
    p->memory_from = pl_cli_has(a, "bandwidth") && pl_cli_has(a, "memory") ? "given" : u->source;
    p->rate_from = "assumed share of the datasheet";
    if (pl_cli_has(a, "flops")) {
        s->flops = 1e12 * pl_cli_real(a, "flops");
        p->rate_from = "given";
    } else if (pl_cli_has(a, "step")) {
        PL_TRY(read_step(pl_cli_text(a, "step"), &s->flops, err));
        p->rate_from = "measured by bench step";
    } else {
        s->beside = false; // sums on GPUs do not overlap; datasheets are of GPUs
    }
    return PL_OK;
}

static pl_status read_setup(plan *p, pl_err *err) {
    const pl_cli_args *a = p->args;
    bool               host = pl_cli_choice(a, "transport") == 1;
    p->setup = (pl_train_setup){.samples = pl_cli_real(a, "samples"),
                                .tokens = pl_cli_real(a, "tokens"),
                                .epochs = pl_cli_real(a, "epochs"),
                                .supervised = pl_cli_real(a, "supervised"),
                                .window = pl_cli_real(a, "window"),
                                .slots = (int)pl_cli_int(a, "slots"),
                                .slot_rows = (int)pl_cli_int(a, "slot-rows"),
                                .unroll = (int)pl_cli_int(a, "unroll"),
                                .sharded = pl_cli_has(a, "sharded"),
                                .sessions = (int)pl_cli_int(a, "sessions"),
                                .beside = host,
                                .network = (host ? CARRIED : 1) * 1e9 / 8 * pl_cli_real(a, "network"),
                                .latency = 1e-6 * pl_cli_real(a, "latency"),
                                .round = (double)(host ? PL_COMM_ROUND : PL_COMM_ROUND_NCCL)};
    PL_TRY(read_ranks(p, err));
    return read_unit(p, err);
}

// ---- output ----

// Rounds to three digits; a prediction is less precise.
static double rounded(const plan *p, double v) {
    if (p->env->json || !(v > 0) || !isfinite(v)) return v;
    double unit = pow(10, floor(log10(v)) - 2);
    return round(v / unit) * unit;
}

static void put(pl_json_out *o, const plan *p, const char *key, double v) {
    pl_put_num(o, key, rounded(p, v));
}

static void put_head(pl_json_out *o, const plan *p) {
    const pl_train_sizes *z = &p->sizes;
    pl_put_str(o, "target", p->name);
    put(o, p, "target_parameters", z->target);
    put(o, p, "target_parameters_of_a_token", z->dense + z->per_token);
    put(o, p, "drafter_parameters", z->trained);
    put(o, p, "samples", p->setup.samples);
    put(o, p, "tokens", p->setup.tokens);
    put(o, p, "rows_of_a_step", (double)p->setup.slots * p->setup.slot_rows);
    if (p->setup.supervised < 1) put(o, p, "supervised", p->setup.supervised);
    put(o, p, "flops_per_second", p->setup.flops);
    pl_put_str(o, "flops_from", p->rate_from);
    put(o, p, "memory_bytes_per_second", p->setup.memory_bandwidth);
    pl_put_str(o, "memory_from", p->memory_from);
    put(o, p, "network_bytes_per_second", p->setup.network);
    pl_put_int(o, "dataset_row_bytes", z->row_bytes);
}

static void put_step(pl_json_out *o, const plan *p, int ranks, const pl_train_plan *t) {
    pl_json_out_object(o);
    pl_put_int(o, "ranks", ranks);
    put(o, p, "steps", t->steps);
    put(o, p, "compute_seconds", t->compute);
    put(o, p, "network_seconds", t->network);
    put(o, p, "hidden_seconds", t->hidden);
    put(o, p, "step_seconds", t->step);
    put(o, p, "efficiency", t->efficiency);
    put(o, p, "sent_bytes", t->sent);
    put(o, p, "sent_all_bytes", t->sent_all);
    put(o, p, "training_hours", t->training / 3600);
    pl_json_out_close(o, '}');
}

static void put_mode(pl_json_out *o, const plan *p, int ranks, const char *mode, const pl_train_plan *t) {
    pl_json_out_object(o);
    pl_put_str(o, "mode", mode);
    pl_put_int(o, "ranks", ranks);
    put(o, p, "disk_bytes", t->disk);
    put(o, p, "device_bytes", t->memory);
    put(o, p, "answers_hours", t->making / 3600);
    put(o, p, "hours", (t->training + t->making) / 3600);
    put(o, p, "device_hours", ranks * (t->training + t->making) / 3600);
    pl_put_int(o, "devices_of_target", t->target_devices);
    pl_put_str(o, "limit", t->limit);
    pl_json_out_close(o, '}');
}

static void put_law(pl_json_out *o, const plan *p) {
    const pl_law *l = &p->law;
    double        rows = p->setup.epochs * p->setup.samples * p->setup.tokens;
    if (l->points == 0) return;
    pl_put_object(o, "acceptance");
    pl_put_int(o, "evaluations", l->points);
    put(o, p, "rows_so_far", l->rows);
    put(o, p, "length_so_far", l->length);
    put(o, p, "length_gained_by_ten_times_the_rows", l->slope * log(10));
    put(o, p, "error_of_predictions", l->error);
    put(o, p, "rows_planned", rows);
    put(o, p, "length_planned", pl_law_length(l, rows));
    pl_json_out_close(o, '}');
}

static pl_status put_plans(pl_json_out *o, const plan *p, pl_err *err) {
    int           only = pl_cli_choice(p->args, "mode") - 1; // -1: all
    pl_train_plan t;
    pl_put_array(o, "steps");
    for (int i = 0; i < p->n_ranks; i++) {
        PL_TRY(pl_train_predict(&t, &p->sizes, &p->setup, PL_TRAIN_OFFLINE, p->ranks[i], err));
        put_step(o, p, p->ranks[i], &t);
    }
    pl_json_out_close(o, ']');
    pl_put_array(o, "modes");
    for (int m = 0; m < PL_TRAIN_MODES; m++)
        for (int i = 0; i < p->n_ranks && (only < 0 || only == m); i++) {
            PL_TRY(pl_train_predict(&t, &p->sizes, &p->setup, (pl_train_mode)m, p->ranks[i], err));
            put_mode(o, p, p->ranks[i], pl_train_mode_names[m], &t);
        }
    pl_json_out_close(o, ']');
    return PL_OK;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    plan          p = {.env = env, .args = a};
    pl_train_plan tried;
    pl_json_out   local, *o;
    PL_TRY(read_target(&p, err));
    PL_TRY(read_setup(&p, err));
    pl_feature_format format = pl_cli_choice(a, "feature-format") == 1 ? PL_FEATURES_INT8 : PL_FEATURES_BF16;
    PL_TRY(pl_train_sizes_of(&p.sizes, &p.target, format, env->backend, err));
    for (int i = 0; i < p.n_ranks; i++) // checks all numbers of ranks before any output
        PL_TRY(pl_train_predict(&tried, &p.sizes, &p.setup, PL_TRAIN_OFFLINE, p.ranks[i], err));
    if (pl_cli_has(a, "from")) PL_TRY(pl_law_of_run(&p.law, pl_cli_text(a, "from"), err));
    o = pl_show_begin(env, &local);
    put_head(o, &p);
    put_law(o, &p);
    PL_TRY(put_plans(o, &p, err));
    return pl_show_end(env, &local, err);
}

const pl_command pl_command_plan_train = {
    .name = "plan train",
    .summary = "predicts time, memory, disk and network of training a drafter, and what limits it",
    .options = options,
    .about = "For an EAGLE-3 drafter with a full head. Nothing is run: sizes are those of the drafter's own parameter\n"
             "list, rates are a datasheet's (of which a share is assumed to be reached) or measured (--step). The\n"
             "formulas are in train/plan/plan.h, tables for targets of 8 to 70 billion parameters in\n"
             "train/SCALING.md.",
    .example = "paceline plan train --shape llama3-8b --ranks 8,64,512",
    .run = run,
};
