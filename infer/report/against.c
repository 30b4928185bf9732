// Two evaluations side by side.
#include "infer/report/parts.h"
#include "infer/report/svg.h"
#include "kernels/base/arena.h"
#include "kernels/base/interval.h"
#include "kernels/base/rng.h"

#include <math.h>
#include <string.h>

#define RESAMPLES 1000

static const cJSON *method_called(const pl_json *j, const char *name) {
    const cJSON *m;
    cJSON_ArrayForEach(m, pl_json_find(j, NULL, "methods")) {
        if (strcmp(pl_report_str(j, m, "name"), name) == 0) return m;
    }
    return NULL;
}

static const char *setting(const pl_json *j, const char *key) {
    const cJSON *set = pl_json_find(j, NULL, "settings");
    return cJSON_IsObject(set) ? pl_report_str(j, set, key) : "";
}

// The numbers of an array; NULL: it is none of n numbers. The caller's.
static double *numbers(const pl_json *j, const cJSON *m, const char *key, int n) {
    const cJSON *list = NULL, *x;
    if (pl_json_opt_array(j, m, key, &list, NULL) != PL_OK || !list || cJSON_GetArraySize(list) != n) return NULL;
    double *v = pl_malloc((size_t)n * sizeof *v), *at = v;
    cJSON_ArrayForEach(x, list) {
        if (v) *at++ = cJSON_IsNumber(x) ? x->valuedouble : NAN;
    }
    return v;
}

// What a method gave for each prompt, and what that took; here and there.
typedef struct pairs {
    double *tokens[2], *took[2];
} pairs;

// 95 % of the ratios of tokens over what they took when prompts are drawn with replacement, the same ones for both.
static bool resample(const pairs *p, int n, pl_interval *of) {
    double ratio[RESAMPLES];
    for (int k = 0; k < RESAMPLES; k++) {
        pl_rng rng = pl_rng_make(1, PL_STREAM_NOISE, (uint64_t)k);
        double took[2] = {0}, tokens[2] = {0};
        for (int i = 0; i < n; i++) {
            int64_t at = (int64_t)pl_rng_below(rng, (uint64_t)i, (uint64_t)n);
            for (int run = 0; run < 2; run++) {
                took[run] += p->took[run][at];
                tokens[run] += p->tokens[run][at];
            }
        }
        ratio[k] = tokens[0] / took[0] / (tokens[1] / took[1]);
    }
    *of = pl_interval_95(ratio, RESAMPLES);
    return isfinite(of->low);
}

// One method here and there.
typedef struct both {
    const pl_json *j[2];
    const cJSON   *m[2];
} both;

// false: the runs asked other prompts, too few of them, or do not say enough.
static bool ratio_interval(const both *x, const char *took, pl_interval *of) {
    enum { LEAST = 4 };
    const cJSON *list = NULL;
    if (strcmp(setting(x->j[0], "prompts"), setting(x->j[1], "prompts")) != 0) return false;
    if (pl_json_opt_array(x->j[0], x->m[0], took, &list, NULL) != PL_OK || !list) return false;
    int n = cJSON_GetArraySize(list);
    if (n < LEAST) return false;
    pairs p;
    bool  all = true;
    for (int run = 0; run < 2; run++) {
        p.tokens[run] = numbers(x->j[run], x->m[run], "tokens_by_prompt", n);
        p.took[run] = numbers(x->j[run], x->m[run], took, n);
        all = all && p.tokens[run] && p.took[run];
    }
    bool known = all && resample(&p, n, of);
    for (int run = 0; run < 2; run++) {
        pl_free(p.tokens[run]);
        pl_free(p.took[run]);
    }
    return known;
}

// Three cells: a figure here, there, and its ratio; took: what the tokens of its quotient are divided by.
static void ratio_cells(pl_strbuf *b, const both *x, const char *figure, const char *form, const char *took) {
    double      here = pl_report_num(x->j[0], x->m[0], figure), there = pl_report_num(x->j[1], x->m[1], figure);
    pl_interval of;
    pl_report_cell(b, form, here, 1);
    pl_report_cell(b, form, there, 1);
    pl_html_addf(b, "<td class=\"n\">");
    if (there > 0 && isfinite(here))
        pl_html_addf(b, "%.2f", here / there);
    else
        pl_html_addf(b, "–");
    if (ratio_interval(x, took, &of) && of.high > of.low) pl_html_addf(b, " <small>%.2f–%.2f</small>", of.low, of.high);
    pl_html_addf(b, "</td>");
}

void pl_report_against(pl_strbuf *b, const pl_json *j, const pl_json *other, const char *name) {
    const cJSON *m;
    int          n = 0;
    cJSON_ArrayForEach(m, pl_json_find(j, NULL, "methods")) {
        const cJSON *o = method_called(other, pl_report_str(j, m, "name"));
        if (!o) continue;
        if (n++ == 0) {
            pl_html_addf(b, "<h3>Against ");
            pl_html_text(b, name);
            pl_html_addf(b, "</h3><p>That run: commit ");
            pl_html_text(b, pl_report_str(other, NULL, "commit"));
            pl_html_addf(b, ", prompts ");
            pl_html_text(b, setting(other, "prompts"));
            pl_html_addf(b,
                         ". Runs at other times or on other machines differ by these, too: plain's ratio says by how "
                         "much.</p>\n<div class=\"wide\"><table><thead><tr><th>method</th><th class=\"n\">tokens/s"
                         "</th><th class=\"n\">there</th><th class=\"n\">ratio, 95 %%</th><th class=\"n\">speed-up"
                         "</th><th class=\"n\">there</th><th class=\"n\">acceptance length</th><th class=\"n\">there"
                         "</th><th class=\"n\">ratio, 95 %%</th><th>answers</th></tr></thead><tbody>\n");
        }
        pl_html_addf(b, "<tr><td class=\"name\">");
        pl_html_text(b, pl_report_str(j, m, "name"));
        pl_html_addf(b, "</td>");
        both x = {{j, other}, {m, o}};
        ratio_cells(b, &x, "tokens_per_second", "%.1f", "seconds_by_prompt");
        pl_report_cell(b, "%.2f", pl_report_num(j, m, "speedup"), 1);
        pl_report_cell(b, "%.2f", pl_report_num(other, o, "speedup"), 1);
        ratio_cells(b, &x, "acceptance_length", "%.2f", "steps_by_prompt");
        const char *hash = pl_report_str(j, m, "answers_hash");
        bool        same = *hash && strcmp(hash, pl_report_str(other, o, "answers_hash")) == 0;
        pl_html_addf(b, "<td>%s</td></tr>\n", same ? "the same" : "others");
    }
    if (n > 0)
        pl_html_addf(b, "</tbody></table></div>\n");
    else
        pl_html_addf(b, "<p>No method of that run has the name of one here.</p>\n");
}
