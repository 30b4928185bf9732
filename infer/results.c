#include "infer/results.h"

#include "infer/put.h"
#include "infer/report.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/rng.h"

#include <math.h>
#include <string.h>

#define RESAMPLES 1000
#define GRAM 4

void pl_results_destroy(pl_results *r) {
    if (!r) return;
    for (int i = 0; i < r->n_methods; i++) {
        pl_free(r->method[i].checkpoint);
        pl_free(r->method[i].tree);
        pl_free(r->method[i].answer);
    }
    for (int64_t i = 0; r->category && i < r->n_prompts; i++)
        pl_free(r->category[i]);
    pl_free(r->method);
    pl_free(r->category);
    pl_free(r->target);
    pl_free(r->prompts);
    pl_free(r);
}

int64_t pl_repeated_tokens(const int32_t *tokens, int64_t n) {
    if (n <= GRAM) return 0;
    int64_t grams = n - GRAM + 1, slots = 4, inside = 0, counted = 0; // tokens below `counted` have been counted
    while (slots < 2 * grams)
        slots *= 2;
    int64_t *first = pl_malloc(pl_size_mul((size_t)slots, sizeof *first, 1)); // start of the first such gram, or -1
    if (!first) return -1;
    memset(first, 0xff, (size_t)slots * sizeof *first);
    for (int64_t i = 0; i < grams; i++) {
        int64_t at = (int64_t)(pl_hash(tokens + i, GRAM * sizeof *tokens) & (uint64_t)(slots - 1));
        while (first[at] >= 0 && memcmp(tokens + first[at], tokens + i, GRAM * sizeof *tokens) != 0)
            at = (at + 1) & (slots - 1);
        if (first[at] < 0) {
            first[at] = i;
            continue;
        }
        int64_t from = i > counted ? i : counted;
        inside += i + GRAM - from;
        counted = i + GRAM;
    }
    pl_free(first);
    return inside;
}

// ---- figures ----

static double ratio(double a, double b) {
    return b > 0 ? a / b : NAN;
}

// The bounds between which 95 % of the resampled speed-ups lie.
static void bootstrap(const pl_results *r, const pl_method *a, const pl_method *base, double *low, double *high) {
    double x[RESAMPLES];
    for (int k = 0; k < RESAMPLES; k++) {
        pl_rng rng = pl_rng_make(r->seed, PL_STREAM_NOISE, (uint64_t)k);
        double ta = 0, sa = 0, tb = 0, sb = 0;
        for (int64_t i = 0; i < r->n_prompts; i++) {
            uint64_t p = pl_rng_below(rng, (uint64_t)i, (uint64_t)r->n_prompts);
            ta += (double)a->answer[p].emitted;
            sa += a->answer[p].seconds;
            tb += (double)base->answer[p].emitted;
            sb += base->answer[p].seconds;
        }
        x[k] = ratio(ratio(ta, sa), ratio(tb, sb));
    }
    for (int i = 1; i < RESAMPLES; i++) // sorted by insertion
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            double t = x[j];
            x[j] = x[j - 1];
            x[j - 1] = t;
        }
    *low = x[RESAMPLES * 25 / 1000];
    *high = x[RESAMPLES - 1 - RESAMPLES * 25 / 1000];
}

// Levels drafted per step, on average.
static double mean_depth(const pl_session_stats *s) {
    double levels = 0;
    for (int i = 0; i < PL_TREE_MAX; i++)
        levels += (double)s->position_drafted[i];
    return ratio(levels, (double)s->steps);
}

static double cycle_bytes(const pl_method *m) {
    double depth = mean_depth(&m->stats);
    return m->step_bytes + (isnan(depth) ? 0 : depth * m->draft_step_bytes);
}

void pl_results_figures(const pl_results *r, int m, pl_figures *f) {
    const pl_method *a = &r->method[m], *base = &r->method[0];
    *f = (pl_figures){.speedup = 1, .low = 1, .high = 1};
    if (m > 0) {
        f->speedup = ratio(pl_stats_speed(&a->stats), pl_stats_speed(&base->stats));
        bootstrap(r, a, base, &f->low, &f->high);
    }
    f->floor = ratio(pl_stats_acceptance(&a->stats) * a->bandwidth, cycle_bytes(a));
    int64_t tokens = 0, repeated = 0;
    for (int64_t i = 0; i < r->n_prompts; i++) {
        tokens += a->answer[i].tokens;
        repeated += a->answer[i].repeated;
        f->different += !a->answer[i].identical;
    }
    f->identical = f->different == 0;
    f->repeated = ratio((double)repeated, (double)tokens);
}

// ---- results.json ----

static void write_categories(pl_json_out *o, const pl_results *r, const pl_method *a) {
    pl_put_array(o, "categories");
    for (int64_t i = 0; i < r->n_prompts; i++) {
        bool seen = false;
        for (int64_t k = 0; k < i && !seen; k++)
            seen = strcmp(r->category[k], r->category[i]) == 0;
        if (seen || !*r->category[i]) continue;
        int64_t n = 0, emitted = 0, steps = 0, base_emitted = 0;
        double  seconds = 0, base_seconds = 0;
        for (int64_t k = i; k < r->n_prompts; k++) {
            if (strcmp(r->category[k], r->category[i]) != 0) continue;
            n++;
            emitted += a->answer[k].emitted;
            steps += a->answer[k].steps;
            seconds += a->answer[k].seconds;
            base_emitted += r->method[0].answer[k].emitted;
            base_seconds += r->method[0].answer[k].seconds;
        }
        double speed = ratio((double)emitted, seconds);
        pl_json_out_object(o);
        pl_put_str(o, "name", r->category[i]);
        pl_put_int(o, "prompts", n);
        pl_put_int(o, "tokens", emitted);
        pl_put_num(o, "tokens_per_second", speed);
        pl_put_num(o, "speedup", ratio(speed, ratio((double)base_emitted, base_seconds)));
        pl_put_num(o, "acceptance_length", ratio((double)emitted, (double)steps));
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

static void write_method(pl_json_out *o, const pl_results *r, int m) {
    const pl_method        *a = &r->method[m];
    const pl_session_stats *s = &a->stats;
    pl_figures              f;
    char                    hash[17];
    pl_results_figures(r, m, &f);
    pl_hash_hex(hash, a->hash);
    pl_json_out_object(o);
    pl_put_str(o, "name", a->name);
    pl_put_num(o, "tokens_per_second", pl_stats_speed(s));
    pl_put_num(o, "speedup", f.speedup);
    pl_put_num(o, "speedup_low", f.low);
    pl_put_num(o, "speedup_high", f.high);
    pl_put_num(o, "acceptance_length", pl_stats_acceptance(s));
    pl_put_bool(o, "identical_outputs", f.identical);
    pl_put_int(o, "different_outputs", f.different);
    pl_put_int(o, "prompts", r->n_prompts);
    pl_put_str(o, "kind", a->kind);
    pl_put_str(o, "weights", a->weights);
    pl_put_str(o, "checkpoint", a->checkpoint);
    pl_put_str(o, "tree", a->tree);
    pl_put_str(o, "tree_used", a->tree ? a->tree_used : NULL);
    pl_put_int(o, "tokens", s->emitted);
    pl_put_num(o, "seconds", s->seconds);
    pl_put_int(o, "steps", s->steps);
    pl_put_int(o, "drafted", s->drafted);
    pl_put_int(o, "accepted", s->accepted);
    pl_put_num(o, "accepted_over_drafted", pl_stats_accepted(s));
    pl_put_num(o, "mean_draft_depth", mean_depth(s));
    pl_put_array(o, "acceptance_by_position");
    for (int i = 0, n = pl_stats_depth(s); i < n; i++)
        pl_json_out_num(o, pl_stats_position(s, i));
    pl_json_out_close(o, ']');
    pl_put_num(o, "prefill_seconds", s->prefill_seconds);
    pl_put_num(o, "prefill_tokens_per_second", ratio((double)(r->prompt_tokens * r->repeats), s->prefill_seconds));
    pl_put_num(o, "repeated_4gram_share", f.repeated);
    pl_put_num(o, "cycle_bytes", cycle_bytes(a));
    pl_put_num(o, "bandwidth_bytes_per_second", a->bandwidth);
    pl_put_num(o, "floor_tokens_per_second", f.floor);
    pl_put_num(o, "share_of_floor", ratio(pl_stats_speed(s), f.floor));
    pl_put_num(o, "weight_bytes", a->weight_bytes);
    pl_put_str(o, "answers_hash", hash);
    write_categories(o, r, a);
    pl_json_out_close(o, '}');
}

void pl_results_write(pl_json_out *o, const pl_results *r) {
    int fastest = 0;
    pl_put_array(o, "methods");
    for (int m = 0; m < r->n_methods; m++) {
        write_method(o, r, m);
        if (!r->method[m].checkpoint && pl_stats_speed(&r->method[m].stats) > pl_stats_speed(&r->method[fastest].stats))
            fastest = m;
    }
    pl_json_out_close(o, ']');
    pl_json_out_key(o, "machine");
    pl_machine_write(o, &r->machine);
    pl_put_str(o, "commit", pl_commit());
    pl_put_str(o, "recipe_hash", *r->recipe_hash ? r->recipe_hash : NULL);
    pl_put_str(o, "fastest_plain", r->n_methods ? r->method[fastest].name : NULL);
    pl_put_object(o, "settings");
    pl_put_str(o, "target", r->target);
    pl_put_str(o, "target_fingerprint", r->fingerprint);
    pl_put_str(o, "prompts", r->prompts);
    pl_put_int(o, "n_prompts", r->n_prompts);
    pl_put_int(o, "prompt_tokens", r->prompt_tokens);
    pl_put_int(o, "truncated_prompts", r->truncated);
    pl_put_num(o, "mean_context", r->mean_context);
    pl_put_int(o, "max_new_tokens", r->max_new_tokens);
    pl_put_num(o, "temperature", r->temperature);
    pl_put_int(o, "repeats", r->repeats);
    pl_put_int(o, "batch", 1);
    pl_put_int(o, "seed", (int64_t)r->seed);
    pl_json_out_close(o, '}');
    pl_put_num(o, "peak_memory_bytes", pl_peak_memory());
}

void pl_results_table(FILE *f, const pl_results *r) {
    fprintf(f, "%-24s %10s %8s %15s %7s %9s %10s %7s %8s\n", "method", "tokens/s", "speed-up", "95 %", "accept",
            "acc/draft", "identical", "floor", "repeated");
    for (int m = 0; m < r->n_methods; m++) {
        const pl_method *a = &r->method[m];
        pl_figures       g;
        char             interval[32] = "", share[32] = "-", accepted[32] = "-", same[32] = "yes";
        pl_results_figures(r, m, &g);
        if (m > 0) snprintf(interval, sizeof interval, "%.2f..%.2f", g.low, g.high);
        if (g.floor > 0) snprintf(share, sizeof share, "%.0f %%", 100 * pl_stats_speed(&a->stats) / g.floor);
        if (a->stats.drafted) snprintf(accepted, sizeof accepted, "%.2f", pl_stats_accepted(&a->stats));
        if (!g.identical) snprintf(same, sizeof same, "NO, %lld/%lld", (long long)g.different, (long long)r->n_prompts);
        fprintf(f, "%-24s %10.1f %8.2f %15s %7.2f %9s %10s %7s %6.0f %%\n", a->name, pl_stats_speed(&a->stats),
                g.speedup, interval, pl_stats_acceptance(&a->stats), accepted, same, share, 100 * g.repeated);
    }
    fprintf(
        f,
        "%lld prompts, %d new tokens at most, temperature %g, batch 1, %d threads on %s; floor: share of what reading "
        "each cycle's bytes alone would allow\n",
        (long long)r->n_prompts, r->max_new_tokens, r->temperature, r->machine.threads, r->machine.cpu);
}

pl_status pl_results_save(const pl_results *r, const char *dir, pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 1);
    pl_json_out_object(&o);
    pl_results_write(&o, r);
    pl_json_out_close(&o, '}');
    PL_TRY(pl_json_out_end(&o, err));
    char     *results = pl_path_join(dir, "results.json"), *report = pl_path_join(dir, "report.html");
    pl_status st = results && report ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK) st = pl_file_write_atomic(results, o.text, o.len, err);
    if (st == PL_OK) st = pl_report_write(report, &dir, 1, err);
    pl_free(o.text);
    pl_free(results);
    pl_free(report);
    return st;
}
