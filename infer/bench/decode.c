// bench: decoding with a real model, plain in bf16 and fp32 and with a drafter, against the bytes each step must read.
#include "infer/bench/rows.h"
#include "infer/decode/runner.h"
#include "kernels/base/clock.h"
#include "kernels/base/json_put.h"
#include "kernels/base/room.h"

#include <math.h>

#define METHODS 3

typedef struct method {
    const char      *name;
    pl_runner        runner;
    pl_session_stats stats;
    double           weights; // bytes of one step's weights, the drafter's included
    double           per_token[PL_BENCH_MAX_PAIRS], floor[PL_BENCH_MAX_PAIRS], bandwidth[PL_BENCH_MAX_PAIRS];
    bool             open;
} method;

// How the bf16 target was opened.
typedef struct opening {
    double seconds, bytes, resident, floor;
} opening;

// Bytes per second at which what a method reads again and again is read: its target's own weights, so that no second
// copy of them is held. A device's is that of copies.
static double probe(pl_bench *b, const method *m) {
    const pl_params *ps = &m->runner.target->model.params;
    return pl_bench_rate(b, ps->block, m->weights < (double)ps->block_bytes ? (size_t)m->weights : ps->block_bytes);
}

// Each byte read out of the file's pages and written to its place.
static pl_status open_timed(opening *o, pl_target *t, pl_bench *b, const pl_bench_decode *d, pl_err *err) {
    double before = pl_memory_resident(), t0 = pl_now();
    PL_TRY(pl_target_open(t, d->target, NULL, d->pre, PL_WEIGHTS_BF16, b->env->backend, err));
    const pl_params *ps = &t->model.params;
    *o = (opening){.seconds = pl_now() - t0,
                   .bytes = (double)pl_params_bytes(ps),
                   .resident = pl_memory_resident() - before,
                   .floor = 2 * (double)ps->block_bytes / pl_bench_rate(b, ps->block, ps->block_bytes)};
    return PL_OK;
}

static void write_opening(pl_json_out *o, const opening *of) {
    pl_put_object(o, "opening");
    pl_put_num(o, "seconds", of->seconds);
    pl_put_num(o, "bytes", of->bytes);
    pl_put_num(o, "bytes_per_second", of->bytes / of->seconds);
    pl_put_num(o, "floor_seconds", of->floor);
    pl_put_num(o, "share_of_floor", of->floor / of->seconds);
    pl_put_num(o, "resident_bytes", of->resident);
    pl_json_out_close(o, '}');
}

static pl_status open_all(opening *o, pl_target target[2], method *m, pl_bench *b, const pl_bench_decode *d,
                          pl_err *err) {
    static const char *const names[METHODS] = {"plain", "plain-fp32", "drafter"};
    for (int i = 0; i < METHODS; i++) {
        if (i == 2 && !d->drafter) break;
        pl_target *t = &target[i == 1];
        if (i == 0) PL_TRY(open_timed(o, t, b, d, err));
        if (i == 1) PL_TRY(pl_target_open(t, d->target, NULL, d->pre, PL_WEIGHTS_FP32, b->env->backend, err));
        t->model.shape.kv = d->kv;
        if (i < 2) t->n_stop = 0; // every run has the same length
        int positions = t->model.config.max_position_embeddings;
        if (d->context + d->new_tokens + 1 > positions)
            return pl_fail(err, PL_E_INPUT, "%s: the context holds %d positions; lower --context or --new-tokens",
                           d->target, positions);
        pl_runner_options of = {
            .drafter = i == 2 ? d->drafter : NULL, .tree = d->tree, .max_len = d->context + d->new_tokens + 1};
        PL_TRY(pl_runner_open(&m[i].runner, b->env->backend, b->env->pool, t, &of, err));
        const pl_drafter *drafter = m[i].runner.drafter;
        m[i].name = names[i];
        m[i].open = true;
        m[i].weights = pl_llama_step_bytes(&t->model, d->context + d->new_tokens / 2) +
                       (drafter ? drafter->kind->step_bytes(drafter) : 0);
    }
    return PL_OK;
}

// Bytes that one cycle of drafting and verifying reads, averaged over the steps of a run.
static double cycle_bytes(const method *m, const pl_session_stats *s, const pl_bench_decode *d) {
    const pl_drafter *drafter = m->runner.drafter;
    double            levels = 0;
    for (int i = 0; i < PL_TREE_MAX; i++)
        levels += (double)s->position_drafted[i];
    double target = pl_llama_step_bytes(&m->runner.target->model, d->context + d->new_tokens / 2);
    return target + (drafter ? drafter->kind->step_bytes(drafter) : 0) * levels / (double)s->steps;
}

// Rounds over the methods; each run has its bandwidth sampled right before or, every other round, right after.
static pl_status run_all(method *m, pl_bench *b, const int32_t *prompt, const pl_bench_decode *d, pl_err *err) {
    pl_sampling greedy = {.top_p = 1};
    for (int k = -1; k < d->repeats; k++) // the first round warms up
        for (int i = 0; i < METHODS; i++) {
            if (!m[i].open) continue;
            double rate = k >= 0 && k % 2 == 0 ? probe(b, &m[i]) : 0;
            PL_TRY(pl_runner_run(&m[i].runner, prompt, d->context, &greedy, d->new_tokens, NULL, NULL, err));
            const pl_session_stats *s = pl_session_statistics(m[i].runner.session);
            if (k < 0) continue;
            if (k % 2 != 0) rate = probe(b, &m[i]);
            pl_stats_add(&m[i].stats, s);
            m[i].bandwidth[k] = rate;
            m[i].per_token[k] = s->seconds / (double)s->emitted;
            m[i].floor[k] = cycle_bytes(&m[i], s, d) / rate / pl_stats_acceptance(s);
        }
    return PL_OK;
}

static void write_method(pl_json_out *o, const method *m, const pl_bench_decode *d) {
    pl_sample_stats s = pl_stats(m->per_token, d->repeats);
    pl_json_out_object(o);
    pl_put_str(o, "name", m->name);
    pl_put_str(o, "weights", pl_weights_name(m->runner.target->dtype));
    pl_put_str(o, "kv", pl_weights_name(m->runner.target->model.shape.kv));
    pl_put_num(o, "tokens_per_second", 1 / s.median);
    pl_put_num(o, "seconds_per_token", s.median);
    pl_put_num(o, "p10", s.p10);
    pl_put_num(o, "p90", s.p90);
    pl_put_num(o, "acceptance_length", pl_stats_acceptance(&m->stats));
    pl_put_num(o, "cycle_bytes", cycle_bytes(m, &m->stats, d));
    pl_put_num(o, "bandwidth_gb_per_second", pl_stats(m->bandwidth, d->repeats).median / 1e9);
    pl_put_num(o, "floor_tokens_per_second", 1 / pl_stats(m->floor, d->repeats).median);
    pl_bench_write_pairs(o, &(pl_bench_pairs){m->per_token, m->floor, d->repeats});
    pl_put_num(o, "prefill_tokens_per_second", (double)d->context * d->repeats / m->stats.prefill_seconds);
    pl_json_out_close(o, '}');
}

// Its forward over the rows of a draft tree, behind d->context tokens.
static pl_status put_verify(pl_json_out *o, pl_bench *b, const pl_llama *target, const pl_bench_decode *d,
                            pl_err *err) {
    pl_bench_verify *v = pl_calloc(1, sizeof *v);
    pl_bench_case   *c = pl_calloc(PL_BENCH_VERIFY, sizeof *c);
    pl_status        st = v && c ? PL_OK : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    if (st == PL_OK) st = pl_bench_verify_make(v, b, target, d->context, c, err);
    if (st == PL_OK) {
        if (d->repeats < b->rounds) b->rounds = d->repeats;
        pl_bench_time(b, c, PL_BENCH_VERIFY);
        pl_bench_verify_write(o, v);
    }
    for (int i = 0; c && i < PL_BENCH_VERIFY; i++)
        pl_bench_done(&c[i]);
    if (v) pl_bench_verify_drop(v, b);
    pl_free(c);
    pl_free(v);
    return st;
}

pl_status pl_bench_put_decode(pl_json_out *o, pl_bench *b, const pl_bench_decode *d, pl_err *err) {
    pl_target target[2] = {0};
    method   *m = pl_calloc(METHODS, sizeof *m);
    opening   opened = {0};
    int32_t  *prompt = pl_malloc((size_t)d->context * sizeof *prompt);
    pl_status st = m && prompt ? PL_OK : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    if (st == PL_OK) st = open_all(&opened, target, m, b, d, err);
    for (int i = 0; st == PL_OK && i < d->context; i++)
        prompt[i] = (int32_t)((7 * i + 3) % target[0].model.vocab);
    if (st == PL_OK) st = run_all(m, b, prompt, d, err);
    if (st == PL_OK) {
        write_opening(o, &opened);
        pl_put_array(o, "decode");
        for (int i = 0; i < METHODS; i++)
            if (m[i].open) write_method(o, &m[i], d);
        pl_json_out_close(o, ']');
        if (d->context + PL_BENCH_DEEP <= target[0].model.config.max_position_embeddings)
            st = put_verify(o, b, &target[0].model, d, err);
    }
    for (int i = 0; m && i < METHODS; i++)
        pl_runner_close(&m[i].runner);
    pl_target_close(&target[0]);
    pl_target_close(&target[1]);
    pl_free(m);
    pl_free(prompt);
    return st;
}
