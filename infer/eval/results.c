#include "infer/eval/results.h"

#include "infer/eval/products.h"

#include "infer/eval/batch.h"
#include "infer/eval/harness.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/rng.h"
#include "kernels/base/room.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define RESAMPLES 1000

static void close_method(pl_method *a) {
    pl_free(a->drafter);
    pl_free(a->checkpoint);
    pl_free(a->tree);
    pl_free(a->answer);
    pl_strbuf_fini(&a->samples);
}

void pl_results_destroy(pl_results *r) {
    if (!r) return;
    for (int i = 0; i < r->n_methods; i++)
        close_method(&r->method[i]);
    pl_free(r->batched);
    for (int64_t i = 0; r->category && i < r->n_prompts; i++)
        pl_free(r->category[i]);
    pl_free(r->method);
    pl_free(r->category);
    pl_free(r->record);
    pl_free(r->picked);
    pl_free(r->target);
    pl_free(r->prompts);
    pl_free(r->form);
    pl_free(r);
}

// Keeps the first `rounds` rounds of a method's answers.
static void cut_rounds(pl_method *a, int64_t prompts, int rounds) {
    int seeds = a->seeds < rounds ? a->seeds : rounds;
    for (int64_t i = 0; i < prompts; i++) // answers move only towards the front
        for (int s = 0; s < seeds; s++)
            a->answer[i * seeds + s] = a->answer[i * a->seeds + s];
    a->seeds = seeds;
}

void pl_results_cut(pl_results *r, const pl_results_part *whole) {
    int full = whole->rounds / r->method[0].seeds; // complete repeats of all seeds
    for (int m = 0; m < r->n_methods; m++)
        if (m < whole->methods)
            cut_rounds(&r->method[m], whole->prompts, whole->rounds);
        else
            close_method(&r->method[m]);
    for (int64_t i = whole->prompts; i < r->n_prompts; i++)
        pl_free(r->category[i]);
    r->n_prompts = whole->prompts;
    r->n_methods = whole->methods;
    r->n_batched = whole->batched;
    if (full < r->repeats) r->repeats = full > 0 ? full : 1;
}

void pl_results_hash(const pl_results *r, pl_method *a) {
    a->hash = pl_hash(NULL, 0);
    for (int64_t k = 0; k < a->seeds; k++)
        for (int64_t i = 0; i < r->n_prompts; i++)
            a->hash = pl_hash_more(a->hash, &a->answer[i * a->seeds + k].hash, sizeof a->hash);
}

// ---- figures ----

// A method's and its base's answers to some prompts.
typedef struct picked {
    const pl_answer *a, *base;
    const int64_t   *prompt; // [n]
    int64_t          n;
    int              seeds;
} picked;

typedef struct sums {
    double emitted, seconds, steps, base_emitted, base_seconds, base_steps;
} sums;

static void add(sums *s, const pl_answer *a, const pl_answer *base) {
    s->emitted += (double)a->emitted;
    s->seconds += a->seconds;
    s->steps += (double)a->steps;
    s->base_emitted += (double)base->emitted;
    s->base_seconds += base->seconds;
    s->base_steps += (double)base->steps;
}

static double speedup_of(const sums *s) {
    return pl_ratio(pl_ratio(s->emitted, s->seconds), pl_ratio(s->base_emitted, s->base_seconds));
}

static double acceptance_of(const sums *s) {
    return pl_ratio(s->emitted, s->steps);
}

static double gain_of(const sums *s) {
    return pl_ratio(acceptance_of(s), pl_ratio(s->base_emitted, s->base_steps));
}

// Bootstraps the 95 % intervals of the speed-up and of `of` (acceptance_of or gain_of).
static void bootstrap(uint64_t seed, const picked *p, double (*of)(const sums *), pl_interval *speedup,
                      pl_interval *acceptance) {
    double x[RESAMPLES], y[RESAMPLES];
    for (int k = 0; k < RESAMPLES; k++) {
        pl_rng   rng = pl_rng_make(seed, PL_STREAM_NOISE, (uint64_t)k);
        uint64_t draw = 0;
        sums     s = {0};
        for (int64_t i = 0; i < p->n; i++) {
            int64_t prompt = p->prompt[pl_rng_below(rng, draw++, (uint64_t)p->n)];
            for (int j = 0; j < p->seeds; j++) {
                int64_t at = prompt * p->seeds;
                if (p->seeds > 1) at += (int64_t)pl_rng_below(rng, draw++, (uint64_t)p->seeds);
                add(&s, &p->a[at], &p->base[at]);
            }
        }
        x[k] = speedup_of(&s);
        y[k] = of(&s);
    }
    *speedup = pl_interval_95(x, RESAMPLES);
    *acceptance = pl_interval_95(y, RESAMPLES);
}

void pl_results_share(const pl_results *r, int m, const char *category, pl_share *f) {
    const pl_method *a = &r->method[m], *base = &r->method[a->base];
    picked           p = {.a = a->answer, .base = base->answer, .prompt = r->picked, .seeds = a->seeds};
    sums             s = {0};
    *f = (pl_share){.speedup_95 = {NAN, NAN, 0}, .acceptance_95 = {NAN, NAN, 0}};
    for (int64_t i = 0; i < r->n_prompts; i++) {
        if (category && strcmp(r->category[i], category) != 0) continue;
        for (int j = 0; j < a->seeds; j++)
            add(&s, &a->answer[i * a->seeds + j], &base->answer[i * a->seeds + j]);
        r->picked[p.n++] = i;
    }
    f->prompts = p.n;
    f->emitted = (int64_t)s.emitted;
    f->speed = pl_ratio(s.emitted, s.seconds);
    f->speedup = m == a->base ? 1 : speedup_of(&s);
    f->acceptance = acceptance_of(&s);
    if (p.n > 0) bootstrap(r->seed, &p, acceptance_of, &f->speedup_95, &f->acceptance_95);
}

bool pl_results_pair(const pl_results *r, int m, pl_pair *f) {
    const pl_method *a = &r->method[m];
    sums             s = {0};
    int              first = a->base;
    while (first < m && (r->method[first].base != a->base || !r->method[first].drafter))
        first++;
    if (!a->drafter || first == m || r->n_prompts == 0) return false;
    picked p = {
        .a = a->answer, .base = r->method[first].answer, .prompt = r->picked, .n = r->n_prompts, .seeds = a->seeds};
    for (int64_t i = 0; i < r->n_prompts * a->seeds; i++)
        add(&s, &p.a[i], &p.base[i]);
    for (int64_t i = 0; i < r->n_prompts; i++)
        r->picked[i] = i;
    *f = (pl_pair){.first = first, .speed = speedup_of(&s), .acceptance = gain_of(&s)};
    bootstrap(r->seed, &p, gain_of, &f->speed_95, &f->acceptance_95);
    return true;
}

const char *pl_results_category(const pl_results *r, int i) {
    for (int64_t k = 0; k < r->n_prompts; k++) {
        bool seen = !*r->category[k];
        for (int64_t j = 0; j < k && !seen; j++)
            seen = strcmp(r->category[j], r->category[k]) == 0;
        if (!seen && i-- == 0) return r->category[k];
    }
    return NULL;
}

static double cycle_bytes(const pl_method *m) {
    double depth = pl_mean_depth(&m->stats);
    return m->step_bytes + (isnan(depth) ? 0 : depth * m->draft_step_bytes);
}

void pl_results_figures(const pl_results *r, int m, pl_figures *f) {
    const pl_method *a = &r->method[m];
    int64_t          tokens = 0, repeated = 0;
    *f = (pl_figures){0};
    pl_results_share(r, m, NULL, &f->all);
    f->floor = pl_ratio(pl_stats_acceptance(&a->stats) * a->bandwidth, cycle_bytes(a));
    for (int64_t i = 0; i < r->n_prompts * a->seeds; i++) {
        tokens += a->answer[i].tokens;
        repeated += a->answer[i].repeated;
        f->different += !a->answer[i].identical;
    }
    f->identical = f->different == 0;
    f->repeated = pl_ratio((double)repeated, (double)tokens);
}

int64_t pl_results_correct(const pl_results *r, int m, int64_t *scored) {
    const pl_method *a = &r->method[m];
    int64_t          correct = 0;
    *scored = 0;
    for (int64_t i = 0; i < r->n_prompts * a->seeds; i++) {
        *scored += a->answer[i].scored;
        correct += a->answer[i].correct;
    }
    return correct;
}

// ---- results.json ----

// Writes a figure as `key`, and its interval as key_low and key_high.
static void write_figure(pl_json_out *o, const char *key, double v, const pl_interval *i) {
    char low[40], high[40];
    snprintf(low, sizeof low, "%s_low", key);
    snprintf(high, sizeof high, "%s_high", key);
    pl_put_num(o, key, v);
    pl_put_num(o, low, i->low);
    pl_put_num(o, high, i->high);
}

static void write_share(pl_json_out *o, const pl_share *f) {
    pl_put_num(o, "tokens_per_second", f->speed);
    write_figure(o, "speedup", f->speedup, &f->speedup_95);
    write_figure(o, "acceptance_length", f->acceptance, &f->acceptance_95);
    if (f->speedup_95.left_out) pl_put_int(o, "speedup_resamples_left_out", f->speedup_95.left_out);
    if (f->acceptance_95.left_out) pl_put_int(o, "acceptance_length_resamples_left_out", f->acceptance_95.left_out);
}

static void write_categories(pl_json_out *o, const pl_results *r, int m) {
    const char *name;
    pl_put_array(o, "categories");
    for (int i = 0; (name = pl_results_category(r, i)) != NULL; i++) {
        pl_share f;
        pl_results_share(r, m, name, &f);
        pl_json_out_object(o);
        pl_put_str(o, "name", name);
        pl_put_int(o, "prompts", f.prompts);
        pl_put_int(o, "tokens", f.emitted);
        write_share(o, &f);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// Writes identical_outputs: a boolean where the method promises identity, else null with the reason.
static void write_promise(pl_json_out *o, const pl_method *a, const pl_figures *f) {
    static const char *const names[] = {"identical", "distribution", "none"};
    static const char *const reasons[] = {
        NULL, "the verifier promises plain decoding's distribution, not its tokens: answers differ by chance",
        "the verifier is lossy: it promises neither plain decoding's tokens nor its distribution"};
    bool promised = a->promise == PL_PROMISE_IDENTICAL;
    pl_json_out_key(o, "identical_outputs");
    if (promised)
        pl_json_out_bool(o, f->identical);
    else
        pl_json_out_null(o);
    pl_put_str(o, "identical_outputs_reason", reasons[a->promise]);
    pl_put_str(o, "promise", names[a->promise]);
    pl_put_int(o, "different_outputs", f->different);
}

// Writes a count of answers, int64_t at `offset`, summed by prompt over all seeds and repeats.
static void write_by_prompt(pl_json_out *o, const char *key, const pl_results *r, const pl_method *a, size_t offset) {
    pl_put_array(o, key);
    for (int64_t i = 0; i < r->n_prompts; i++) {
        int64_t sum = 0;
        for (int k = 0; k < a->seeds; k++)
            sum += *(const int64_t *)(const void *)((const char *)&a->answer[i * a->seeds + k] + offset);
        pl_json_out_int(o, sum);
    }
    pl_json_out_close(o, ']');
}

static void write_seconds(pl_json_out *o, const pl_results *r, const pl_method *a) {
    pl_put_array(o, "seconds_by_prompt");
    for (int64_t i = 0; i < r->n_prompts; i++) {
        double seconds = 0;
        for (int k = 0; k < a->seeds; k++)
            seconds += a->answer[i * a->seeds + k].seconds;
        pl_json_out_num(o, seconds);
    }
    pl_json_out_close(o, ']');
}

// Writes over_first; null for plain decoding and the first drafter itself.
static void write_pair(pl_json_out *o, const pl_results *r, int m) {
    pl_pair p;
    pl_json_out_key(o, "over_first");
    if (!pl_results_pair(r, m, &p)) {
        pl_json_out_null(o);
        return;
    }
    pl_json_out_object(o);
    pl_put_str(o, "first", r->method[p.first].name);
    write_figure(o, "acceptance", p.acceptance, &p.acceptance_95);
    write_figure(o, "speed", p.speed, &p.speed_95);
    pl_json_out_close(o, '}');
}

static void write_batched(pl_json_out *o, const pl_results *r, const pl_batched *b) {
    const pl_method  *a = &r->method[b->method];
    const pl_batched *base = pl_batch_base(r, b);
    double            speed = pl_batch_speed(b);
    pl_json_out_object(o);
    pl_put_int(o, "batch", b->sessions);
    pl_put_str(o, "name", a->name);
    pl_put_num(o, "temperature", a->temperature);
    pl_put_num(o, "tokens_per_second", speed);
    pl_put_num(o, "speedup", base ? pl_ratio(speed, pl_batch_speed(base)) : 1);
    pl_put_num(o, "acceptance_length", pl_stats_acceptance(&b->stats));
    pl_put_int(o, "tokens", b->stats.emitted + b->answers);
    pl_put_num(o, "seconds", b->seconds);
    pl_json_out_key(o, "identical_outputs"); // to the method's answers at batch 1
    if (a->promise == PL_PROMISE_IDENTICAL)
        pl_json_out_bool(o, b->different == 0);
    else
        pl_json_out_null(o);
    pl_put_int(o, "different_outputs", b->different);
    pl_latency_write(o, "ttft_seconds", &b->ttft);
    pl_latency_write(o, "tpot_seconds", &b->tpot);
    pl_json_out_close(o, '}');
}

static void write_method(pl_json_out *o, const pl_results *r, int m) {
    const pl_method        *a = &r->method[m];
    const pl_session_stats *s = &a->stats;
    pl_figures              f;
    char                    hash[17];
    int64_t                 scored, correct = pl_results_correct(r, m, &scored);
    pl_results_figures(r, m, &f);
    pl_hash_hex(hash, a->hash);
    pl_json_out_object(o);
    pl_put_str(o, "name", a->name);
    write_share(o, &f.all);
    write_promise(o, a, &f);
    pl_put_int(o, "prompts", r->n_prompts);
    pl_put_num(o, "temperature", a->temperature);
    pl_put_int(o, "seeds", a->seeds);
    pl_put_str(o, "kind", a->kind);
    pl_put_str(o, "weights", a->weights);
    pl_put_str(o, "kv", a->kv);
    pl_put_str(o, "drafter", a->drafter);
    pl_put_str(o, "checkpoint", a->checkpoint);
    pl_put_str(o, "tree", a->tree);
    pl_put_str(o, "tree_used", a->tree ? a->tree_used : NULL);
    pl_put_str(o, "verify", a->drafter ? a->verify : NULL);
    pl_put_int(o, "tokens", s->emitted);
    pl_put_num(o, "seconds", s->seconds);
    pl_put_int(o, "steps", s->steps);
    pl_put_int(o, "drafted", s->drafted);
    pl_put_int(o, "accepted", s->accepted);
    pl_put_num(o, "accepted_over_drafted", pl_stats_accepted(s));
    pl_put_num(o, "mean_draft_depth", pl_mean_depth(s));
    pl_stats_write_acceptance(o, s);
    pl_harness_write(o, r, m);
    pl_stats_write_parts(o, s);
    pl_put_num(o, "prefill_seconds", s->prefill_seconds);
    pl_put_num(o, "prefill_tokens_per_second",
               pl_ratio((double)(r->prompt_tokens * r->repeats * a->seeds), s->prefill_seconds));
    pl_put_num(o, "repeated_4gram_share", f.repeated);
    pl_put_int(o, "scored", scored);
    pl_put_int(o, "correct", correct);
    pl_put_num(o, "accuracy", pl_ratio((double)correct, (double)scored));
    pl_put_num(o, "cycle_bytes", cycle_bytes(a));
    pl_put_num(o, "bandwidth_bytes_per_second", a->bandwidth);
    pl_put_num(o, "floor_tokens_per_second", f.floor);
    pl_put_num(o, "share_of_floor", pl_ratio(pl_stats_speed(s), f.floor));
    pl_put_num(o, "weight_bytes", a->weight_bytes);
    pl_put_str(o, "answers_hash", hash);
    write_pair(o, r, m);
    write_by_prompt(o, "tokens_by_prompt", r, a, offsetof(pl_answer, emitted));
    write_by_prompt(o, "steps_by_prompt", r, a, offsetof(pl_answer, steps));
    write_seconds(o, r, a);
    write_categories(o, r, m);
    pl_json_out_close(o, '}');
}

void pl_results_write(pl_json_out *o, const pl_results *r) {
    int fastest = 0;
    pl_put_array(o, "methods");
    for (int m = 0; m < r->n_methods; m++) {
        write_method(o, r, m);
        if (!r->method[m].drafter && r->method[m].base == 0 &&
            pl_stats_speed(&r->method[m].stats) > pl_stats_speed(&r->method[fastest].stats))
            fastest = m;
    }
    pl_json_out_close(o, ']');
    pl_put_array(o, "batched");
    for (int i = 0; i < r->n_batched; i++)
        write_batched(o, r, &r->batched[i]);
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
    pl_put_str(o, "prompt_form", r->form);
    pl_put_int(o, "n_prompts", r->n_prompts);
    pl_put_int(o, "prompt_tokens", r->prompt_tokens);
    pl_put_int(o, "truncated_prompts", r->truncated);
    pl_put_num(o, "mean_context", r->mean_context);
    pl_put_int(o, "max_new_tokens", r->max_new_tokens);
    pl_put_array(o, "temperatures");
    for (int m = 0; m < r->n_methods; m++)
        if (r->method[m].base == m) pl_json_out_num(o, r->method[m].temperature);
    pl_json_out_close(o, ']');
    pl_put_int(o, "repeats", r->repeats);
    pl_put_int(o, "batch", 1);
    if (r->ranks > 1) pl_put_int(o, "ranks", r->ranks);
    pl_put_int(o, "seed", (int64_t)r->seed);
    pl_json_out_close(o, '}');
    pl_put_num(o, "peak_memory_bytes", pl_memory_peak());
}

// ---- files ----

pl_status pl_results_save(const pl_results *r, const char *dir, pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 1);
    pl_json_out_object(&o);
    pl_results_write(&o, r);
    pl_json_out_close(&o, '}');
    PL_TRY(pl_json_out_end(&o, err));
    pl_status st = pl_eval_save(dir, "results.json", o.text, o.len, err);
    pl_free(o.text);
    return st;
}

static void add_field(pl_strbuf *b, const char *s) {
    bool quoted = strpbrk(s, ",\"\n") != NULL;
    if (quoted) pl_strbuf_add(b, "\"", 1);
    for (; *s; s++) {
        if (*s == '"') pl_strbuf_add(b, "\"", 1);
        pl_strbuf_add(b, s, 1);
    }
    pl_strbuf_add(b, quoted ? "\"," : ",", quoted ? 2 : 1);
}

static void add_example(pl_strbuf *b, const pl_results *r, const pl_method *a, int64_t i, int seed) {
    const pl_answer *x = &a->answer[i * a->seeds + seed];
    const char      *name = strrchr(r->prompts, '/');
    char             line[256];
    double           tpot = pl_ratio(x->seconds, (double)x->emitted);
    add_field(b, r->target);
    add_field(b, r->prompts);
    add_field(b, name ? name + 1 : r->prompts);
    add_field(b, r->category[i]);
    snprintf(line, sizeof line, "%lld,", (long long)r->n_prompts);
    pl_strbuf_add(b, line, strlen(line));
    add_field(b, a->drafter ? a->name : "None");
    snprintf(line, sizeof line, "%g,%lld,%lld,%.4f,", a->temperature, (long long)(i * a->seeds + seed),
             (long long)(x->emitted / r->repeats + 1), 1e3 * x->prefill_seconds / r->repeats);
    pl_strbuf_add(b, line, strlen(line));
    snprintf(line, sizeof line, ",\n"); // an answer of one token has no later one to time
    if (x->emitted > 0) snprintf(line, sizeof line, "%.4f,%.2f\n", 1e3 * tpot, 1 / tpot);
    pl_strbuf_add(b, line, strlen(line));
}

pl_status pl_results_save_examples(const pl_results *r, const char *dir, pl_err *err) {
    pl_strbuf b = {0};
    pl_strbuf_add(&b, PL_EXAMPLES_HEAD, strlen(PL_EXAMPLES_HEAD));
    for (int m = 0; m < r->n_methods; m++)
        for (int64_t i = 0; i < r->n_prompts; i++)
            for (int seed = 0; seed < r->method[m].seeds; seed++)
                add_example(&b, r, &r->method[m], i, seed);
    size_t n = b.n;
    char  *text = pl_strbuf_take(&b);
    if (!text) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_status st = pl_eval_save(dir, "examples.csv", text, n, err);
    pl_free(text);
    return st;
}

pl_status pl_results_save_samples(const pl_results *r, const char *dir, pl_err *err) {
    char     *folder = pl_path_join(dir, "samples");
    pl_status st = folder ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    for (int m = 0; m < r->n_methods && st == PL_OK; m++) {
        const pl_strbuf *s = &r->method[m].samples;
        char             name[128];
        if (s->n == 0) continue;
        pl_eval_file(name, sizeof name, r->method[m].name, ".jsonl");
        st = pl_dir_make(folder, err);
        if (st == PL_OK) st = pl_eval_save(folder, name, s->s, s->n, err);
    }
    pl_free(folder);
    return st;
}
