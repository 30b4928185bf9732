#include "infer/eval/harness.h"

#include "kernels/base/json.h"

#include <math.h>
#include <stdlib.h>

// A mean of the finite values.
typedef struct mean {
    double sum, n;
} mean;

static void add(mean *m, double x) {
    if (isnan(x)) return;
    m->sum += x;
    m->n++;
}

void pl_lengths_of(const pl_results *r, int m, pl_lengths *l) {
    const pl_method *a = &r->method[m];
    double           emitted = 0, accepted = 0, steps = 0, drafting = 0, answers = 0;
    mean             turns = {0}, prompts = {0};
    for (int64_t i = 0; i < r->n_prompts;) {
        double  whole = 0, all = 0;
        int64_t first = i;
        for (; i < r->n_prompts && r->record[i] == r->record[first]; i++)
            for (int s = 0; s < a->seeds; s++) {
                const pl_answer *x = &a->answer[i * a->seeds + s];
                emitted += (double)x->emitted;
                accepted += (double)x->accepted;
                drafting += (double)x->drafting;
                steps += (double)x->steps;
                answers += r->repeats;
                whole += (double)(x->accepted + x->steps);
                all += (double)x->steps;
                add(&turns, pl_ratio((double)x->emitted, (double)x->steps));
            }
        add(&prompts, pl_ratio(whole, all));
    }
    *l = (pl_lengths){.total = pl_ratio(emitted, steps),
                      .with_first = pl_ratio(emitted + answers, steps),
                      .mean_of_steps = pl_ratio(accepted + steps, steps),
                      .mean_of_turns = pl_ratio(turns.sum, turns.n),
                      .mean_of_prompts = pl_ratio(prompts.sum, prompts.n),
                      .accepted_only = pl_ratio(accepted, steps),
                      .drafting = 1 + pl_ratio(accepted, drafting)};
}

// Percentile p is the sorted values' element at index (n - 1) p / 100, rounded down.
pl_latency pl_latency_of(double *x, int64_t all) {
    double  sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < all; i++)
        if (!isnan(x[i])) x[n++] = x[i];
    if (n == 0) return (pl_latency){NAN, NAN, NAN, NAN};
    qsort(x, (size_t)n, sizeof *x, pl_by_value);
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return (pl_latency){sum / (double)n, x[(n - 1) * 50 / 100], x[(n - 1) * 90 / 100], x[(n - 1) * 99 / 100]};
}

pl_status pl_latencies_measure(const pl_results *r, pl_method *a, pl_err *err) {
    int64_t n = r->n_prompts * a->seeds;
    double *x = pl_malloc((size_t)(2 * n + 1) * sizeof *x);
    if (!x) return pl_fail(err, PL_E_MEMORY, "results: out of memory");
    for (int64_t i = 0; i < n; i++) {
        const pl_answer *b = &a->answer[i];
        x[i] = b->prefill_seconds / r->repeats;
        x[n + i] = pl_ratio(b->seconds, (double)b->emitted);
    }
    a->ttft = pl_latency_of(x, n);
    a->tpot = pl_latency_of(x + n, n);
    pl_free(x);
    return PL_OK;
}

double pl_mean_depth(const pl_session_stats *s) {
    double levels = 0;
    for (int i = 0; i < PL_TREE_MAX; i++)
        levels += (double)s->position_drafted[i];
    return pl_ratio(levels, (double)s->steps);
}

void pl_latency_write(pl_json_out *o, const char *key, const pl_latency *l) {
    pl_put_object(o, key);
    pl_put_num(o, "mean", l->mean);
    pl_put_num(o, "p50", l->p50);
    pl_put_num(o, "p90", l->p90);
    pl_put_num(o, "p99", l->p99);
    pl_json_out_close(o, '}');
}

// Writes, of the steps that drafted a token at depth i + 1 and accepted all before it, the share that accepted it.
static void write_conditional(pl_json_out *o, const pl_session_stats *s) {
    int depth = pl_stats_depth(s);
    pl_put_array(o, "acceptance_by_position_conditional");
    for (int i = 0; i < depth; i++)
        pl_json_out_num(o, pl_ratio((double)s->position_accepted[i], (double)s->position_reached[i]));
    pl_json_out_close(o, ']');
}

void pl_harness_write(pl_json_out *o, const pl_results *r, int m) {
    const pl_method *a = &r->method[m];
    pl_lengths       l;
    pl_lengths_of(r, m, &l);
    pl_put_object(o, "acceptance_lengths");
    pl_put_num(o, "total", l.total);
    pl_put_num(o, "with_first", l.with_first);
    pl_put_num(o, "mean_of_steps", l.mean_of_steps);
    pl_put_num(o, "mean_of_turns", l.mean_of_turns);
    pl_put_num(o, "mean_of_prompts", l.mean_of_prompts);
    pl_put_num(o, "accepted_only", l.accepted_only);
    pl_put_num(o, "drafting", l.drafting);
    pl_json_out_close(o, '}');
    write_conditional(o, &a->stats);
    double depth = pl_mean_depth(&a->stats), level = isnan(depth) ? 0 : depth * a->draft_step_bytes;
    pl_put_num(o, "memory_bound_speedup",
               pl_stats_acceptance(&a->stats) * pl_ratio(a->step_bytes, a->step_bytes + level));
    pl_latency_write(o, "ttft_seconds", &a->ttft);
    pl_latency_write(o, "tpot_seconds", &a->tpot);
    double answers = (double)(r->n_prompts * a->seeds * r->repeats);
    pl_put_num(o, "tokens_per_second_with_prefill",
               pl_ratio((double)a->stats.emitted + answers, a->stats.seconds + a->stats.prefill_seconds));
}
