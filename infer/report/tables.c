// What an evaluation has measured, as tables: of the page's width, the rest folded away.
#include "infer/report/parts.h"
#include "infer/report/svg.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_BARS 64

static void begin_table(pl_strbuf *b, const char *first, const char *const *head, int n) {
    pl_html_addf(b, "<div class=\"wide\"><table><thead><tr><th>%s</th>", first);
    for (int i = 0; i < n; i++)
        pl_html_addf(b, "<th class=\"n\">%s</th>", head[i]);
    pl_html_addf(b, "</tr></thead><tbody>\n");
}

static void end_table(pl_strbuf *b) {
    pl_html_addf(b, "</tbody></table></div>\n");
}

static void begin_row(pl_strbuf *b, const char *name) {
    pl_html_addf(b, "<tr><td class=\"name\">");
    pl_html_text(b, name);
    pl_html_addf(b, "</td>");
}

// "1.63 (1.55–1.72)"
static void cell_between(pl_strbuf *b, double v, double low, double high) {
    if (!isfinite(v)) {
        pl_report_cell(b, "", NAN, 1);
        return;
    }
    pl_html_addf(b, "<td class=\"n\">%.2f", v);
    if (high > low) pl_html_addf(b, " <small>%.2f–%.2f</small>", low, high);
    pl_html_addf(b, "</td>");
}

// ---- the headline ----

static bool lossy(const pl_json *j, const cJSON *m) {
    return strcmp(pl_report_str(j, m, "promise"), "none") == 0;
}

// Whether a promise of identical outputs was found broken.
static bool broken(const pl_json *j, const cJSON *m) {
    bool same = true;
    return pl_json_opt_bool(j, m, "identical_outputs", true, &same, NULL) == PL_OK && !same;
}

static const cJSON *fastest(const pl_json *j, const cJSON *methods, double temperature) {
    const cJSON *m, *best = NULL;
    double       most = 0;
    cJSON_ArrayForEach(m, methods) {
        double t = pl_report_num(j, m, "temperature"), x = pl_report_num(j, m, "speedup");
        bool   there = t == temperature || (isnan(t) && isnan(temperature));
        if (!there || !*pl_report_str(j, m, "drafter") || lossy(j, m) || broken(j, m) || !(x > most)) continue;
        best = m;
        most = x;
    }
    return best;
}

void pl_report_headline(pl_strbuf *b, const pl_json *j, const cJSON *methods, double temperature) {
    const cJSON *m = fastest(j, methods, temperature);
    if (!m) return;
    double low = pl_report_num(j, m, "speedup_low"), high = pl_report_num(j, m, "speedup_high");
    bool   pays = pl_report_num(j, m, "speedup") > 1;
    pl_html_addf(b, "<p class=\"headline\">%s<b>%.2f×</b> ",
                 pays ? "" : "No drafter pays; the best: ", pl_report_num(j, m, "speedup"));
    pl_html_text(b, pl_report_str(j, m, "name"));
    pl_html_addf(b, " over plain decoding");
    if (isfinite(temperature)) pl_html_addf(b, " at temperature %.4g", temperature);
    if (high > low) pl_html_addf(b, " (95 %%: %.2f–%.2f)", low, high);
    pl_html_addf(b, "; %.2f tokens a step; ", pl_report_num(j, m, "acceptance_length"));
    bool identical = pl_json_find(j, m, "identical_outputs") != NULL;
    pl_html_addf(b, identical ? "the same output, token for token</p>\n" : "the same distribution of outputs</p>\n");
}

// ---- methods ----

// What was found where equality is promised; what is promised where it is not.
static void identical_cell(pl_strbuf *b, const pl_json *j, const cJSON *m) {
    if (pl_json_find(j, m, "identical_outputs")) {
        bool same = !broken(j, m);
        pl_html_addf(b, "<td class=\"%s\">%s</td>", same ? "yes" : "no", same ? "yes" : "no");
        return;
    }
    pl_html_addf(b, "<td title=\"");
    pl_html_text(b, pl_report_str(j, m, "identical_outputs_reason"));
    pl_html_addf(b, "\">%s</td>", lossy(j, m) ? "lossy" : "in distribution");
}

// Texts of a method; what all methods that have one share is told once, above the table.
static const char *const texts[] = {"weights", "kv", "tree", "verify"};
static const char *const text_names[] = {"weights", "KV", "tree", "verifier"};
enum { TEXTS = sizeof texts / sizeof *texts };

static const char *shared_text(const pl_json *j, const cJSON *methods, const char *key) {
    const char  *shared = "";
    const cJSON *m;
    cJSON_ArrayForEach(m, methods) {
        const char *s = pl_report_str(j, m, key);
        if (*s && *shared && strcmp(s, shared) != 0) return NULL;
        if (*s) shared = s;
    }
    return shared;
}

static void method_row(pl_strbuf *b, const pl_json *j, const cJSON *m, const char *const *shared) {
    int told = 0;
    pl_html_addf(b, "<tr><td class=\"name\">");
    pl_html_text(b, pl_report_str(j, m, "name"));
    for (int i = 0; i < TEXTS; i++) {
        const char *s = pl_report_str(j, m, texts[i]);
        if (shared[i] || !*s) continue;
        pl_html_addf(b, told++ ? ", " : " <small>");
        pl_html_text(b, s);
    }
    pl_html_addf(b, told ? "</small></td>" : "</td>");
    pl_report_cell(b, "%g", pl_report_num(j, m, "temperature"), 1);
    pl_report_cell(b, "%.1f", pl_report_num(j, m, "tokens_per_second"), 1);
    cell_between(b, pl_report_num(j, m, "speedup"), pl_report_num(j, m, "speedup_low"),
                 pl_report_num(j, m, "speedup_high"));
    cell_between(b, pl_report_num(j, m, "acceptance_length"), pl_report_num(j, m, "acceptance_length_low"),
                 pl_report_num(j, m, "acceptance_length_high"));
    identical_cell(b, j, m);
    pl_report_cell(b, "%.0f %%", pl_report_num(j, m, "share_of_floor"), 100);
    pl_html_addf(b, "</tr>\n");
}

static void more_row(pl_strbuf *b, const pl_json *j, const cJSON *m) {
    begin_row(b, pl_report_str(j, m, "name"));
    pl_report_cell(b, "%.1f %%", pl_report_num(j, m, "accepted_over_drafted"), 100);
    pl_report_cell(b, "%.2f", pl_report_num(j, m, "memory_bound_speedup"), 1);
    pl_report_cell(b, "%.1f", pl_report_num(j, m, "floor_tokens_per_second"), 1);
    pl_report_cell(b, "%.1f", pl_report_num(j, m, "tokens_per_second_with_prefill"), 1);
    pl_report_cell(b, "%.1f", pl_report_num(j, m, "prefill_tokens_per_second"), 1);
    pl_report_cell(b, "%.2f", pl_report_num(j, m, "ttft_seconds.p50"), 1e3);
    pl_report_cell(b, "%.3f", pl_report_num(j, m, "tpot_seconds.p50"), 1e3);
    pl_report_cell(b, "%.3f", pl_report_num(j, m, "tpot_seconds.p99"), 1e3);
    pl_report_cell(b, "%.0f %%", pl_report_num(j, m, "repeated_4gram_share"), 100);
    pl_html_addf(b, "</tr>\n");
}

void pl_report_methods(pl_strbuf *b, const pl_json *j, const cJSON *methods) {
    static const char *const heads[] = {
        "temperature", "tokens/s", "speed-up, 95 %", "acceptance length, 95 %", "identical to plain", "of the floor"};
    static const char *const more[] = {"accepted / drafted",    "memory-bound speed-up", "floor, tokens/s",
                                       "tokens/s with prefill", "prefill, tokens/s",     "TTFT p50, ms",
                                       "TPOT p50, ms",          "TPOT p99, ms",          "in repeated 4-grams"};
    const char              *shared[TEXTS];
    int                      told = 0;
    const cJSON             *m;
    for (int i = 0; i < TEXTS; i++) {
        shared[i] = shared_text(j, methods, texts[i]);
        if (!shared[i] || !*shared[i]) continue;
        pl_html_addf(b, "%s %s ", told++ ? "," : "<p>All drafters:", text_names[i]);
        pl_html_text(b, shared[i]);
    }
    if (told) pl_html_addf(b, ".</p>\n");
    begin_table(b, "method", heads, sizeof heads / sizeof *heads);
    cJSON_ArrayForEach(m, methods) method_row(b, j, m, shared);
    end_table(b);
    pl_html_addf(b, "<details><summary>Latency, floors and shares</summary>\n");
    begin_table(b, "method", more, sizeof more / sizeof *more);
    cJSON_ArrayForEach(m, methods) more_row(b, j, m);
    end_table(b);
    pl_html_addf(b, "</details>\n");
}

// ---- by task ----

// Of the fastest drafter at a temperature: a bar a category.
void pl_report_tasks(pl_strbuf *b, const pl_json *j, const cJSON *methods, double temperature, const char *suffix) {
    const cJSON *m = fastest(j, methods, temperature), *list = NULL, *c;
    pl_bar       bar[MAX_BARS];
    char         title[160];
    int          n = 0;
    if (!m || pl_json_opt_array(j, m, "categories", &list, NULL) != PL_OK || !list) return;
    cJSON_ArrayForEach(c, list) {
        if (n == MAX_BARS || !cJSON_IsObject(c) || !isfinite(pl_report_num(j, c, "speedup"))) continue;
        bar[n++] = (pl_bar){.label = pl_report_str(j, c, "name"),
                            .value = pl_report_num(j, c, "speedup"),
                            .low = pl_report_num(j, c, "speedup_low"),
                            .high = pl_report_num(j, c, "speedup_high"),
                            .mark = NAN};
    }
    snprintf(title, sizeof title, "Speed-up by task of %.60s%.48s", pl_report_str(j, m, "name"), suffix);
    if (n > 1) pl_svg_bars(b, title, "times; the whiskers hold 95 % of resampled prompts and seeds", bar, n);
}

void pl_report_categories(pl_strbuf *b, const pl_json *j, const cJSON *methods) {
    static const char *const heads[] = {"prompts", "tokens/s", "speed-up, 95 %", "acceptance length, 95 %"};
    const cJSON             *m, *list, *c;
    bool                     any = false;
    cJSON_ArrayForEach(m, methods) {
        if (pl_json_opt_array(j, m, "categories", &list, NULL) != PL_OK || !list) continue;
        cJSON_ArrayForEach(c, list) {
            if (!cJSON_IsObject(c)) continue;
            if (!any) pl_html_addf(b, "<details><summary>By category</summary>\n");
            if (!any) begin_table(b, "method, category", heads, sizeof heads / sizeof *heads);
            any = true;
            pl_html_addf(b, "<tr><td class=\"name\">");
            pl_html_text(b, pl_report_str(j, m, "name"));
            pl_html_addf(b, ", ");
            pl_html_text(b, pl_report_str(j, c, "name"));
            pl_html_addf(b, "</td>");
            pl_report_cell(b, "%.0f", pl_report_num(j, c, "prompts"), 1);
            pl_report_cell(b, "%.1f", pl_report_num(j, c, "tokens_per_second"), 1);
            cell_between(b, pl_report_num(j, c, "speedup"), pl_report_num(j, c, "speedup_low"),
                         pl_report_num(j, c, "speedup_high"));
            cell_between(b, pl_report_num(j, c, "acceptance_length"), pl_report_num(j, c, "acceptance_length_low"),
                         pl_report_num(j, c, "acceptance_length_high"));
            pl_html_addf(b, "</tr>\n");
        }
    }
    if (!any) return;
    end_table(b);
    pl_html_addf(b, "</details>\n");
}

// ---- lengths, scores, batches ----

static void lengths(pl_strbuf *b, const pl_json *j, const cJSON *methods) {
    static const char *const heads[] = {"total",         "with first token", "mean of steps",     "mean of prompts",
                                        "mean of turns", "accepted only",    "steps that drafted"};
    static const char *const keys[] = {"total",         "with_first",    "mean_of_steps", "mean_of_prompts",
                                       "mean_of_turns", "accepted_only", "drafting"};
    enum { KEYS = sizeof keys / sizeof *keys };
    const cJSON *m;
    bool         any = false;
    cJSON_ArrayForEach(m, methods) {
        const cJSON *l = pl_json_find(j, m, "acceptance_lengths");
        if (!cJSON_IsObject(l) || !*pl_report_str(j, m, "drafter")) continue;
        if (!any)
            pl_html_addf(b, "<h3>Acceptance length, as others count it</h3><p>SGLang: total; SpecForge: with the first "
                            "token; Spec-Bench: mean of steps; dflash: mean of prompts; ModelOpt: mean of turns; "
                            "llama.cpp: accepted only; vLLM: steps that drafted.</p>\n");
        if (!any) begin_table(b, "method", heads, KEYS);
        any = true;
        begin_row(b, pl_report_str(j, m, "name"));
        for (int i = 0; i < KEYS; i++)
            pl_report_cell(b, "%.3f", pl_report_num(j, l, keys[i]), 1);
        pl_html_addf(b, "</tr>\n");
    }
    if (any) end_table(b);
}

static void pairs(pl_strbuf *b, const pl_json *j, const cJSON *methods) {
    static const char *const heads[] = {"over", "acceptance length, 95 %", "speed, 95 %"};
    const cJSON             *m;
    bool                     any = false;
    cJSON_ArrayForEach(m, methods) {
        const cJSON *p = pl_json_find(j, m, "over_first");
        if (!cJSON_IsObject(p)) continue;
        if (!any)
            pl_html_addf(b, "<h3>Over the first drafter</h3><p>Ratios on the same prompts and seeds, with intervals of "
                            "the pairs.</p>\n");
        if (!any) begin_table(b, "method", heads, sizeof heads / sizeof *heads);
        any = true;
        begin_row(b, pl_report_str(j, m, "name"));
        pl_html_addf(b, "<td class=\"n\">");
        pl_html_text(b, pl_report_str(j, p, "first"));
        pl_html_addf(b, "</td>");
        cell_between(b, pl_report_num(j, p, "acceptance"), pl_report_num(j, p, "acceptance_low"),
                     pl_report_num(j, p, "acceptance_high"));
        cell_between(b, pl_report_num(j, p, "speed"), pl_report_num(j, p, "speed_low"),
                     pl_report_num(j, p, "speed_high"));
        pl_html_addf(b, "</tr>\n");
    }
    if (any) end_table(b);
}

static void scores(pl_strbuf *b, const pl_json *j, const cJSON *methods) {
    static const char *const heads[] = {"scored", "right", "accuracy"};
    const cJSON             *m;
    bool                     any = false;
    cJSON_ArrayForEach(m, methods) {
        if (!(pl_report_num(j, m, "scored") > 0)) continue;
        if (!any) pl_html_addf(b, "<h3>Answers</h3>\n");
        if (!any) begin_table(b, "method", heads, sizeof heads / sizeof *heads);
        any = true;
        begin_row(b, pl_report_str(j, m, "name"));
        pl_report_cell(b, "%.0f", pl_report_num(j, m, "scored"), 1);
        pl_report_cell(b, "%.0f", pl_report_num(j, m, "correct"), 1);
        pl_report_cell(b, "%.2f %%", pl_report_num(j, m, "accuracy"), 100);
        pl_html_addf(b, "</tr>\n");
    }
    if (any) end_table(b);
}

static void batches(pl_strbuf *b, const pl_json *j) {
    static const char *const heads[] = {"batch",     "temperature",  "tokens/s",     "speed-up",    "acceptance length",
                                        "identical", "TTFT p50, ms", "TPOT p50, ms", "TPOT p99, ms"};
    const cJSON             *list = NULL, *x;
    bool                     any = false;
    if (pl_json_opt_array(j, NULL, "batched", &list, NULL) != PL_OK || !list) return;
    cJSON_ArrayForEach(x, list) {
        if (!cJSON_IsObject(x)) continue;
        if (!any)
            pl_html_addf(b, "<h3>Many prompts at a time</h3><p>Tokens of all answers over the time that all took, "
                            "prefill included; speed-up over plain decoding of as many at a time.</p>\n");
        if (!any) begin_table(b, "method", heads, sizeof heads / sizeof *heads);
        any = true;
        begin_row(b, pl_report_str(j, x, "name"));
        pl_report_cell(b, "%.0f", pl_report_num(j, x, "batch"), 1);
        pl_report_cell(b, "%g", pl_report_num(j, x, "temperature"), 1);
        pl_report_cell(b, "%.1f", pl_report_num(j, x, "tokens_per_second"), 1);
        pl_report_cell(b, "%.2f", pl_report_num(j, x, "speedup"), 1);
        pl_report_cell(b, "%.2f", pl_report_num(j, x, "acceptance_length"), 1);
        identical_cell(b, j, x);
        pl_report_cell(b, "%.2f", pl_report_num(j, x, "ttft_seconds.p50"), 1e3);
        pl_report_cell(b, "%.3f", pl_report_num(j, x, "tpot_seconds.p50"), 1e3);
        pl_report_cell(b, "%.3f", pl_report_num(j, x, "tpot_seconds.p99"), 1e3);
        pl_html_addf(b, "</tr>\n");
    }
    if (any) end_table(b);
}

void pl_report_harness(pl_strbuf *b, const pl_json *j, const cJSON *methods) {
    pairs(b, j, methods);
    batches(b, j);
    scores(b, j, methods);
    lengths(b, j, methods);
}

// ---- provenance ----

static void fact(pl_strbuf *b, const char *name, const char *value) {
    if (!*value) return;
    pl_html_addf(b, "<tr><th scope=\"row\">%s</th><td class=\"name\">", name);
    pl_html_text(b, value);
    pl_html_addf(b, "</td></tr>\n");
}

static void number_fact(pl_strbuf *b, const char *name, const char *fmt, double v) {
    char text[64];
    if (!isfinite(v)) return;
    snprintf(text, sizeof text, fmt, v);
    fact(b, name, text);
}

// Whether a method before m has the checkpoint too.
static bool seen(const pl_json *j, const cJSON *methods, const cJSON *m, const char *path) {
    const cJSON *k;
    for (k = methods->child; k && k != m; k = k->next)
        if (strcmp(pl_report_str(j, k, "checkpoint"), path) == 0) return true;
    return false;
}

void pl_report_provenance(pl_strbuf *b, const pl_json *j, const cJSON *methods, const char *run) {
    static const char *const cpu[][2] = {{"processor", "cpu"},
                                         {"system", "os"},
                                         {"backend", "backend"},
                                         {"instruction sets", "isa"},
                                         {"device", "device"}};
    const cJSON             *machine = pl_json_find(j, NULL, "machine"), *set = pl_json_find(j, NULL, "settings"), *m;
    if (!cJSON_IsObject(machine) || !cJSON_IsObject(set)) return;
    pl_html_addf(b, "<h3>Where this comes from</h3><div class=\"wide\"><table class=\"facts\"><tbody>\n");
    fact(b, "target", pl_report_str(j, set, "target"));
    fact(b, "its fingerprint", pl_report_str(j, set, "target_fingerprint"));
    cJSON_ArrayForEach(m, methods) {
        const char *path = pl_report_str(j, m, "checkpoint");
        if (!*path || seen(j, methods, m, path)) continue;
        char *text = pl_sprintf("%s: %s", pl_report_str(j, m, "name"), path);
        fact(b, "drafter", text ? text : path);
        pl_free(text);
    }
    fact(b, "prompts", pl_report_str(j, set, "prompts"));
    fact(b, "their form", pl_report_str(j, set, "prompt_form"));
    number_fact(b, "number of prompts", "%.0f", pl_report_num(j, set, "n_prompts"));
    number_fact(b, "cut to fit", "%.0f", pl_report_num(j, set, "truncated_prompts"));
    number_fact(b, "new tokens at most", "%.0f", pl_report_num(j, set, "max_new_tokens"));
    number_fact(b, "seed", "%.0f", pl_report_num(j, set, "seed"));
    for (size_t i = 0; i < sizeof cpu / sizeof *cpu; i++)
        fact(b, cpu[i][0], pl_report_str(j, machine, cpu[i][1]));
    number_fact(b, "threads", "%.0f", pl_report_num(j, machine, "threads"));
    number_fact(b, "memory, GB", "%.1f", pl_report_num(j, machine, "memory_bytes") / 1e9);
    number_fact(b, "read bandwidth, GB/s", "%.0f", pl_report_num(j, machine, "bandwidth_bytes_per_second") / 1e9);
    fact(b, "commit", pl_report_str(j, NULL, "commit"));
    fact(b, "recipe's hash", pl_report_str(j, NULL, "recipe_hash"));
    // Into the folder where the run's own drafters are.
    char *again = pl_path_is_dir(run) ? pl_sprintf("paceline eval %s/recipe.yaml --out %s", run, run) : NULL;
    fact(b, "measured again by", again ? again : "");
    pl_free(again);
    pl_html_addf(b, "</tbody></table></div>\n");
}
