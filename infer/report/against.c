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

// What a method took for each prompt, and gave; here and there.
typedef struct pairs {
    double *seconds[2], *tokens[2];
} pairs;

// 95 % of the ratios of speeds when prompts are drawn with replacement, the same ones for both runs.
static bool resample(const pairs *p, int n, pl_interval *of) {
    double ratio[RESAMPLES];
    for (int k = 0; k < RESAMPLES; k++) {
        pl_rng rng = pl_rng_make(1, PL_STREAM_NOISE, (uint64_t)k);
        double seconds[2] = {0}, tokens[2] = {0};
        for (int i = 0; i < n; i++) {
            int64_t at = (int64_t)pl_rng_below(rng, (uint64_t)i, (uint64_t)n);
            for (int run = 0; run < 2; run++) {
                seconds[run] += p->seconds[run][at];
                tokens[run] += p->tokens[run][at];
            }
        }
        ratio[k] = tokens[0] / seconds[0] / (tokens[1] / seconds[1]);
        if (!isfinite(ratio[k])) return false;
    }
    *of = pl_interval_95(ratio, RESAMPLES);
    return true;
}

// false: the runs asked other prompts, too few of them, or do not say enough.
static bool ratio_interval(const pl_json *j, const cJSON *m, const pl_json *other, const cJSON *o, pl_interval *of) {
    enum { LEAST = 4 };
    const cJSON *list = NULL;
    if (strcmp(setting(j, "prompts"), setting(other, "prompts")) != 0) return false;
    if (pl_json_opt_array(j, m, "seconds_by_prompt", &list, NULL) != PL_OK || !list) return false;
    int n = cJSON_GetArraySize(list);
    if (n < LEAST) return false;
    pairs p = {.seconds = {numbers(j, m, "seconds_by_prompt", n), numbers(other, o, "seconds_by_prompt", n)},
               .tokens = {numbers(j, m, "tokens_by_prompt", n), numbers(other, o, "tokens_by_prompt", n)}};
    bool  all = p.seconds[0] && p.seconds[1] && p.tokens[0] && p.tokens[1], known = all && resample(&p, n, of);
    for (int run = 0; run < 2; run++) {
        pl_free(p.seconds[run]);
        pl_free(p.tokens[run]);
    }
    return known;
}

static void ratio_cell(pl_strbuf *b, const pl_json *j, const cJSON *m, const pl_json *other, const cJSON *o) {
    double      speed = pl_report_num(j, m, "tokens_per_second"), was = pl_report_num(other, o, "tokens_per_second");
    pl_interval of;
    pl_html_addf(b, "<td class=\"n\">");
    if (was > 0 && isfinite(speed))
        pl_html_addf(b, "%.2f", speed / was);
    else
        pl_html_addf(b, "–");
    if (ratio_interval(j, m, other, o, &of) && of.high > of.low)
        pl_html_addf(b, " <small>%.2f–%.2f</small>", of.low, of.high);
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
                         "</th><th>answers</th></tr></thead><tbody>\n");
        }
        pl_html_addf(b, "<tr><td class=\"name\">");
        pl_html_text(b, pl_report_str(j, m, "name"));
        pl_html_addf(b, "</td>");
        pl_report_cell(b, "%.1f", pl_report_num(j, m, "tokens_per_second"), 1);
        pl_report_cell(b, "%.1f", pl_report_num(other, o, "tokens_per_second"), 1);
        ratio_cell(b, j, m, other, o);
        pl_report_cell(b, "%.2f", pl_report_num(j, m, "speedup"), 1);
        pl_report_cell(b, "%.2f", pl_report_num(other, o, "speedup"), 1);
        pl_report_cell(b, "%.2f", pl_report_num(j, m, "acceptance_length"), 1);
        pl_report_cell(b, "%.2f", pl_report_num(other, o, "acceptance_length"), 1);
        const char *hash = pl_report_str(j, m, "answers_hash");
        bool        same = *hash && strcmp(hash, pl_report_str(other, o, "answers_hash")) == 0;
        pl_html_addf(b, "<td>%s</td></tr>\n", same ? "the same" : "others");
    }
    if (n > 0)
        pl_html_addf(b, "</tbody></table></div>\n");
    else
        pl_html_addf(b, "<p>No method of that run has the name of one here.</p>\n");
}
