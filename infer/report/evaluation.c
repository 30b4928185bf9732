// report.html: the figures of an evaluation, and their comparison with another evaluation.
#include "infer/report/report.h"
#include "infer/report/svg.h"
#include "kernels/base/clock.h"
#include "kernels/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_PLANES 6
#define RESAMPLES 1000

static bool is_same(const cJSON *a, const cJSON *b, const char *key) {
    return strcmp(pl_page_str(a, key), pl_page_str(b, key)) == 0;
}

static bool is_at(const cJSON *m, double temperature) {
    double t = pl_page_num(m, "temperature");
    return t == temperature || (isnan(t) && isnan(temperature));
}

// ---- methods ----

// Returns the fastest drafter of a temperature that keeps its promise and is lossless.
static const cJSON *find_fastest(const cJSON *methods, double temperature) {
    const cJSON *m, *best = NULL;
    cJSON_ArrayForEach(m, methods) {
        if (!is_at(m, temperature) || !*pl_page_str(m, "drafter") || strcmp(pl_page_str(m, "promise"), "none") == 0)
            continue;
        if (cJSON_IsFalse(pl_json_find(NULL, m, "identical_outputs"))) continue;
        if (pl_page_num(m, "speedup") > (best ? pl_page_num(best, "speedup") : 0)) best = m;
    }
    return best;
}

// Puts a member's text if it is the same in all methods that have it.
static void put_shared(pl_page *p, cJSON *shared, const cJSON *methods, const char *key) {
    const char  *first = "";
    const cJSON *m;
    cJSON_ArrayForEach(m, methods) {
        const char *s = pl_page_str(m, key);
        if (*s && *first && strcmp(s, first) != 0) return;
        if (*s) first = s;
    }
    if (*first) pl_page_put_str(p, shared, key, first);
}

// ---- against another run ----

static bool read_numbers(const cJSON *m, const char *key, int n, double *v) {
    const cJSON *list = pl_json_find(NULL, m, key), *x;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != n) return false;
    cJSON_ArrayForEach(x, list) *v++ = cJSON_IsNumber(x) ? x->valuedouble : NAN;
    return true;
}

// Puts the ratio of a figure of the two evaluations, tokens over `took`. Where both have these by prompt, for the same
// prompts, it adds the 95 % bootstrap interval over prompts.
static void put_ratio(pl_page *p, cJSON *row, const cJSON *m, const cJSON *there, const char *figure, const char *took,
                      bool paired) {
    enum { LEAST = 4 };
    double ratio[RESAMPLES], here = pl_page_num(m, figure), other = pl_page_num(there, figure);
    char   key[3][64];
    for (int i = 0; i < 3; i++)
        snprintf(key[i], sizeof key[i], "%s_ratio%s", figure, i == 0 ? "" : i == 1 ? "_low" : "_high");
    if (other > 0) pl_page_put_num(p, row, key[0], here / other);
    int n = cJSON_GetArraySize(pl_json_find(NULL, m, took));
    if (!paired || n < LEAST) return;
    double *v = pl_malloc((size_t)n * 4 * sizeof *v);
    p->failed |= !v;
    bool told = v && read_numbers(m, "tokens_by_prompt", n, v) && read_numbers(m, took, n, v + n) &&
                read_numbers(there, "tokens_by_prompt", n, v + 2 * n) && read_numbers(there, took, n, v + 3 * n);
    for (int k = 0; k < RESAMPLES && told; k++) {
        pl_rng rng = pl_rng_make(1, PL_STREAM_NOISE, (uint64_t)k);
        double sum[4] = {0};
        for (int i = 0; i < n; i++) {
            int64_t at = (int64_t)pl_rng_below(rng, (uint64_t)i, (uint64_t)n);
            for (int q = 0; q < 4; q++)
                sum[q] += v[q * (int64_t)n + at];
        }
        ratio[k] = sum[0] / sum[1] / (sum[2] / sum[3]);
    }
    pl_free(v);
    if (!told) return;
    pl_interval of = pl_interval_95(ratio, RESAMPLES);
    pl_page_put_num(p, row, key[1], of.low);
    pl_page_put_num(p, row, key[2], of.high);
}

void pl_report_against(pl_page *p, cJSON *run, const cJSON *results, const cJSON *other, const char *name) {
    const cJSON *set = pl_json_find(NULL, results, "settings"), *theirs = pl_json_find(NULL, other, "settings"), *m, *o;
    cJSON       *against = pl_page_put(p, run, "against", cJSON_CreateObject()), *rows, *row;
    pl_page_put_str(p, against, "path", name);
    pl_page_put_str(p, against, "commit", pl_page_str(other, "commit"));
    pl_page_put_str(p, against, "prompts", pl_page_str(theirs, "prompts"));
    rows = pl_page_put(p, against, "rows", cJSON_CreateArray());
    cJSON_ArrayForEach(m, pl_json_find(NULL, results, "methods")) {
        cJSON_ArrayForEach(o, pl_json_find(NULL, other, "methods")) if (is_same(m, o, "name")) break;
        if (!o) continue;
        row = pl_page_put_row(p, rows, m);
        pl_page_put_seen(p, row, "there", o);
        put_ratio(p, row, m, o, "tokens_per_second", "seconds_by_prompt", is_same(set, theirs, "prompts"));
        put_ratio(p, row, m, o, "acceptance_length", "steps_by_prompt", is_same(set, theirs, "prompts"));
        bool same = *pl_page_str(m, "answers_hash") && is_same(m, o, "answers_hash");
        pl_page_put_str(p, row, "answers", same ? "the same" : "others");
    }
}

// ---- the (rho, lambda) plane ----

static bool is_comparable(const cJSON *a, const cJSON *b) {
    const char *x = pl_page_str(a, "kind"), *y = pl_page_str(b, "kind");
    size_t      backbone = strcspn(x, "-"); // "eagle3" of "eagle3-lowrank"
    return *pl_page_str(b, "checkpoint") && backbone == strcspn(y, "-") && strncmp(x, y, backbone) == 0 &&
           is_same(a, b, "tree") && is_same(a, b, "verify") &&
           pl_page_num(a, "temperature") == pl_page_num(b, "temperature");
}

// Returns the seconds of the head in one level drafted.
static double find_head_seconds(const cJSON *m) {
    double levels = pl_page_num(m, "mean_draft_depth") * pl_page_num(m, "steps"),
           head = pl_page_num(m, "seconds_by_part.head");
    return levels > 0 && head > 0 ? head / levels : NAN;
}

static bool is_full(const cJSON *m) {
    const char *head = strrchr(pl_page_str(m, "kind"), '-');
    return *pl_page_str(m, "checkpoint") && head && strcmp(head, "-full") == 0 && isfinite(find_head_seconds(m));
}

// True if m is the reference of its plane: the first method with the largest draft vocabulary.
static bool is_reference(const cJSON *methods, const cJSON *m) {
    const cJSON *x;
    double       rows = pl_page_num(m, "draft_vocabulary");
    bool         before = true;
    if (!is_full(m)) return false;
    cJSON_ArrayForEach(x, methods) {
        double other = pl_page_num(x, "draft_vocabulary");
        if (x == m) before = false;
        if (x == m || !is_full(x) || !is_comparable(m, x)) continue;
        if (other > rows || (before && !(other < rows))) return false;
    }
    return true;
}

// Puts SlimSpec's (rho, lambda) plane (infer/plan/plan.h) of the heads that are comparable to a full one: rho = ratio
// of acceptance lengths, lambda = ratio of the head's seconds a level drafted; their speed-up over the full head,
// rho (1 + kappa) / (1 + lambda kappa), for its measured kappa and for 0.25; and a chart with the line of speed-up 1.
static void put_plane(pl_page *p, cJSON *planes, const cJSON *methods, const cJSON *full) {
    double       tau = pl_page_num(full, "acceptance_length"), head = pl_page_num(full, "seconds_by_part.head");
    double       rest = pl_page_num(full, "seconds") - head, kappa = head / rest;
    double       x[PL_REPORT_METHODS], y[PL_REPORT_METHODS], ends[2] = {0, 1}, even[2];
    pl_line      line[PL_REPORT_METHODS + 1];
    pl_strbuf    b = {0};
    int          n = 0;
    const cJSON *m;
    if (!(tau > 0) || !(rest > 0)) return;
    cJSON *plane = pl_page_put_row(p, planes, full), *rows = pl_page_put(p, plane, "rows", cJSON_CreateArray());
    pl_page_put_num(p, plane, "kappa", kappa);
    cJSON_ArrayForEach(m, methods) {
        x[n] = find_head_seconds(m) / find_head_seconds(full);
        y[n] = pl_page_num(m, "acceptance_length") / tau;
        if (!is_comparable(full, m) || !isfinite(x[n]) || !isfinite(y[n])) continue;
        cJSON *row = pl_page_put_row(p, rows, m);
        pl_page_put_num(p, row, "lambda", x[n]);
        pl_page_put_num(p, row, "rho", y[n]);
        pl_page_put_num(p, row, "speedup", y[n] * (1 + kappa) / (1 + x[n] * kappa));
        pl_page_put_num(p, row, "common", y[n] * 1.25 / (1 + x[n] * 0.25));
        line[n] = (pl_line){.label = pl_page_str(m, "name"), .x = &x[n], .y = &y[n], .n = 1, .colour = n + 1};
        ends[1] = fmax(ends[1], x[n++]);
    }
    for (int i = 0; i < 2; i++)
        even[i] = (1 + ends[i] * kappa) / (1 + kappa);
    line[n] = (pl_line){.label = "speed-up 1", .x = ends, .y = even, .n = 2, .colour = 0};
    if (n > 1) pl_svg_lines(&b, line, n + 1, false);
    pl_page_put_svg(p, plane, "svg", &b);
}

// ---- the section ----

// Puts a row for each method, with the microseconds of a token by part, and the greatest figures, which scale the bars.
static void put_methods(pl_page *p, cJSON *run, const cJSON *methods) {
    static const char *const parts[] = {"target", "verify", "take_in", "layer", "head", "draw", "other"};
    double                   speed = 0, speedup = 0, time = 0;
    const cJSON             *m;
    cJSON                   *rows = pl_page_put(p, run, "methods", cJSON_CreateArray());
    cJSON_ArrayForEach(m, methods) {
        const cJSON *seconds = pl_json_find(NULL, m, "seconds_by_part");
        cJSON       *row = pl_page_put_row(p, rows, m), *us = NULL;
        double       sum = 0;
        speed = fmax(speed, pl_page_num(m, "tokens_per_second"));
        speedup = fmax(speedup, fmax(pl_page_num(m, "speedup"), pl_page_num(m, "speedup_high")));
        if (seconds && pl_page_num(m, "tokens") > 0) us = pl_page_put(p, row, "us", cJSON_CreateObject());
        for (size_t i = 0; i < sizeof parts / sizeof *parts && us; i++) {
            double v = 1e6 * pl_page_num(seconds, parts[i]) / pl_page_num(m, "tokens");
            if (v >= 0 && v < 1e300) pl_page_put_num(p, us, parts[i], v);
            if (v >= 0 && v < 1e300) sum += v;
        }
        if (us) pl_page_put_num(p, us, "sum", sum);
        time = fmax(time, sum);
    }
    pl_page_put_num(p, run, "most_speed", speed);
    pl_page_put_num(p, run, "most_speedup", speedup);
    pl_page_put_num(p, run, "most_time", time);
}

// Puts the rows of several prompts at a time, with the promise of their method.
static void put_batched(pl_page *p, cJSON *run, const cJSON *results, const cJSON *methods) {
    const cJSON *b, *m;
    cJSON       *rows = pl_page_put(p, run, "batched", cJSON_CreateArray());
    cJSON_ArrayForEach(b, pl_json_find(NULL, results, "batched")) {
        cJSON *row = pl_page_put_row(p, rows, b);
        cJSON_ArrayForEach(m, methods) if (is_same(m, b, "name") && is_at(m, pl_page_num(b, "temperature"))) break;
        pl_page_put_str(p, row, "promise", pl_page_str(m, "promise"));
    }
}

void pl_report_evaluation(pl_page *p, cJSON *run, const cJSON *results) {
    static const char *const texts[] = {"weights", "kv", "tree", "verify"};
    const cJSON             *methods = pl_json_find(NULL, results, "methods"), *m, *k;
    pl_page_put_seen(p, run, "results", results);
    put_methods(p, run, methods);
    put_batched(p, run, results, methods);
    cJSON *shared = pl_page_put(p, run, "shared", cJSON_CreateObject());
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        put_shared(p, shared, methods, texts[i]);
    cJSON *best = pl_page_put(p, run, "best", cJSON_CreateArray());
    cJSON *planes = pl_page_put(p, run, "planes", cJSON_CreateArray());
    cJSON *drafters = pl_page_put(p, run, "drafters", cJSON_CreateArray());
    cJSON_ArrayForEach(m, methods) {
        double t = pl_page_num(m, "temperature");
        if (cJSON_GetArraySize(planes) < MAX_PLANES && is_reference(methods, m)) put_plane(p, planes, methods, m);
        cJSON_ArrayForEach(k, methods) if (k == m || is_same(k, m, "checkpoint")) break;
        if (k == m && *pl_page_str(m, "checkpoint")) pl_page_put_row(p, drafters, m); // each checkpoint once
        cJSON_ArrayForEach(k, methods) if (k == m || is_at(k, t)) break;
        const cJSON *fastest = k == m ? find_fastest(methods, t) : NULL;
        cJSON       *row = fastest ? pl_page_put_row(p, best, fastest) : NULL;
        if (row && pl_page_num(fastest, "speedup") > 1) pl_page_put_str(p, row, "pays", "yes");
    }
}
