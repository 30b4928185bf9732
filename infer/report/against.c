// Two evaluations side by side.
#include "infer/report/parts.h"
#include "infer/report/svg.h"
#include "kernels/base/arena.h"
#include "kernels/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RESAMPLES 1000

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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

// Numbers of two arrays of equal length, prompt by prompt; 0 where they have none, or too few to resample.
static int pairs(const pl_json *j, const cJSON *m, const pl_json *other, const cJSON *o, const char *key, double *x,
                 double *y, int most) {
    enum { LEAST = 4 };
    const cJSON *a = NULL, *b = NULL, *p, *q;
    int          n = 0;
    if (pl_json_opt_array(j, m, key, &a, NULL) != PL_OK || pl_json_opt_array(other, o, key, &b, NULL) != PL_OK)
        return 0;
    if (!a || !b || cJSON_GetArraySize(a) != cJSON_GetArraySize(b)) return 0;
    for (p = a->child, q = b->child; p && q && n < most; p = p->next, q = q->next, n++) {
        if (!cJSON_IsNumber(p) || !cJSON_IsNumber(q)) return 0;
        x[n] = p->valuedouble;
        y[n] = q->valuedouble;
    }
    return n < LEAST ? 0 : n;
}

// 95 % of the ratios of speeds when prompts are drawn with replacement, the same ones for both runs.
static bool resample(const double *seconds, const double *other_seconds, const double *tokens,
                     const double *other_tokens, int n, double *low, double *high) {
    double ratio[RESAMPLES];
    for (int k = 0; k < RESAMPLES; k++) {
        pl_rng rng = pl_rng_make(1, PL_STREAM_NOISE, (uint64_t)k);
        double s = 0, os = 0, t = 0, ot = 0;
        for (int i = 0; i < n; i++) {
            int64_t p = (int64_t)pl_rng_below(rng, (uint64_t)i, (uint64_t)n);
            s += seconds[p];
            os += other_seconds[p];
            t += tokens[p];
            ot += other_tokens[p];
        }
        if (!(s > 0) || !(os > 0) || !(ot > 0)) return false;
        ratio[k] = t / s / (ot / os);
    }
    qsort(ratio, RESAMPLES, sizeof *ratio, by_value);
    *low = ratio[RESAMPLES * 25 / 1000];
    *high = ratio[RESAMPLES - 1 - RESAMPLES * 25 / 1000];
    return true;
}

static void ratio_cell(pl_strbuf *b, const pl_json *j, const cJSON *m, const pl_json *other, const cJSON *o) {
    enum { MOST = 1 << 16 };
    double speed = pl_report_num(j, m, "tokens_per_second"), was = pl_report_num(other, o, "tokens_per_second");
    double low, high, *x = pl_malloc(sizeof(double[4]) * MOST);
    bool   asked = x && strcmp(setting(j, "prompts"), setting(other, "prompts")) == 0;
    int    n = asked ? pairs(j, m, other, o, "seconds_by_prompt", x, x + MOST, MOST) : 0;
    bool   paired = n > 0 && pairs(j, m, other, o, "tokens_by_prompt", x + 2 * MOST, x + 3 * MOST, MOST) == n;
    pl_html_addf(b, "<td class=\"n\">");
    if (was > 0 && isfinite(speed))
        pl_html_addf(b, "%.2f", speed / was);
    else
        pl_html_addf(b, "–");
    if (paired && resample(x, x + MOST, x + 2 * MOST, x + 3 * MOST, n, &low, &high) && high > low)
        pl_html_addf(b, " <small>%.2f–%.2f</small>", low, high);
    pl_html_addf(b, "</td>");
    pl_free(x);
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
