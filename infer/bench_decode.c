// bench: decoding with a real model, plain in bf16 and fp32 and with a drafter, against the bytes each step must read.
#include "infer/bench_parts.h"
#include "infer/put.h"
#include "infer/runner.h"
#include "kernels/base/clock.h"

#include <math.h>

#define METHODS 3
#define MAX_REPEATS 1000

typedef struct method {
    const char      *name;
    pl_runner        runner;
    pl_session_stats stats;
    double           per_token[MAX_REPEATS]; // seconds
    bool             open;
} method;

static pl_status open_all(pl_target target[2], method *m, pl_bench *b, const pl_bench_decode *d, pl_err *err) {
    static const char *const names[METHODS] = {"plain", "plain-fp32", "drafter"};
    for (int i = 0; i < METHODS; i++) {
        if (i == 2 && !d->drafter) break;
        pl_target *t = &target[i == 1];
        if (i < 2) {
            PL_TRY(pl_target_open(t, d->target, NULL, d->pre, i ? PL_WEIGHTS_FP32 : PL_WEIGHTS_BF16, err));
            t->n_stop = 0; // every run has the same length
        }
        int positions = t->model.config.max_position_embeddings;
        if (d->context + d->new_tokens + 1 > positions)
            return pl_fail(err, PL_E_INPUT, "%s: the context holds %d positions; lower --context or --new-tokens",
                           d->target, positions);
        pl_runner_options o = {
            .drafter = i == 2 ? d->drafter : NULL, .tree = d->tree, .max_len = d->context + d->new_tokens + 1};
        PL_TRY(pl_runner_open(&m[i].runner, b->env->backend, b->env->pool, t, &o, err));
        m[i].name = names[i];
        m[i].open = true;
    }
    return PL_OK;
}

static pl_status run_all(method *m, const int32_t *prompt, const pl_bench_decode *d, pl_err *err) {
    pl_sampling greedy = {.top_p = 1};
    for (int k = -1; k < d->repeats; k++) // the first round warms up
        for (int i = 0; i < METHODS; i++) {
            if (!m[i].open) continue;
            PL_TRY(pl_runner_run(&m[i].runner, prompt, d->context, &greedy, d->new_tokens, NULL, NULL, err));
            const pl_session_stats *s = &m[i].runner.session->stats;
            if (k < 0) continue;
            pl_stats_add(&m[i].stats, s);
            m[i].per_token[k] = s->seconds / (double)s->emitted;
        }
    return PL_OK;
}

static void write_method(pl_json_out *o, pl_bench *b, const method *m, const pl_bench_decode *d) {
    pl_sample_stats   s = pl_stats(m->per_token, d->repeats);
    const pl_target  *t = m->runner.target;
    const pl_drafter *drafter = m->runner.drafter;
    double            levels = 0, target_bytes = pl_llama_step_bytes(&t->model, d->context + d->new_tokens / 2);
    double            draft_bytes = drafter ? drafter->kind->step_bytes(drafter) : 0;
    for (int i = 0; i < PL_TREE_MAX; i++)
        levels += (double)m->stats.position_drafted[i];
    double cycle = target_bytes + draft_bytes * levels / (double)m->stats.steps;
    double rate = pl_bench_bandwidth(b, target_bytes + draft_bytes);
    double floor_seconds = cycle / rate / pl_stats_acceptance(&m->stats);
    pl_json_out_object(o);
    pl_put_str(o, "name", m->name);
    pl_put_str(o, "weights", pl_weights_name(t->dtype));
    pl_put_num(o, "tokens_per_second", 1 / s.median);
    pl_put_num(o, "seconds_per_token", s.median);
    pl_put_num(o, "p10", s.p10);
    pl_put_num(o, "p90", s.p90);
    pl_put_num(o, "acceptance_length", pl_stats_acceptance(&m->stats));
    pl_put_num(o, "cycle_bytes", cycle);
    pl_put_num(o, "bandwidth_gb_per_second", rate / 1e9);
    pl_put_num(o, "floor_tokens_per_second", 1 / floor_seconds);
    pl_put_num(o, "share_of_floor", floor_seconds / s.median);
    pl_put_num(o, "prefill_tokens_per_second", (double)d->context * d->repeats / m->stats.prefill_seconds);
    pl_json_out_close(o, '}');
}

pl_status pl_bench_put_decode(pl_json_out *o, pl_bench *b, const pl_bench_decode *d, pl_err *err) {
    pl_target target[2] = {0};
    method   *m = pl_calloc(METHODS, sizeof *m);
    int32_t  *prompt = pl_malloc((size_t)d->context * sizeof *prompt);
    pl_status st = m && prompt ? PL_OK : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    if (st == PL_OK) st = open_all(target, m, b, d, err);
    for (int i = 0; st == PL_OK && i < d->context; i++)
        prompt[i] = (int32_t)((7 * i + 3) % target[0].model.vocab);
    if (st == PL_OK) st = run_all(m, prompt, d, err);
    if (st == PL_OK) {
        pl_put_array(o, "decode");
        for (int i = 0; i < METHODS; i++)
            if (m[i].open) write_method(o, b, &m[i], d);
        pl_json_out_close(o, ']');
    }
    for (int i = 0; m && i < METHODS; i++)
        pl_runner_close(&m[i].runner);
    pl_target_close(&target[0]);
    pl_target_close(&target[1]);
    pl_free(m);
    pl_free(prompt);
    return st;
}
