#include "infer/report/parts.h"

#include "infer/report/svg.h"

#include <math.h>
#include <string.h>

double pl_report_num(const pl_json *j, const cJSON *obj, const char *key) {
    double v;
    return pl_json_opt_num(j, obj, key, -HUGE_VAL, HUGE_VAL, NAN, &v, NULL) == PL_OK ? v : NAN;
}

const char *pl_report_str(const pl_json *j, const cJSON *obj, const char *key) {
    const char *s;
    return pl_json_opt_str(j, obj, key, "", &s, NULL) == PL_OK ? s : "";
}

void pl_report_cell(pl_strbuf *b, const char *fmt, double v, double scale) {
    pl_html_addf(b, "<td class=\"n\">");
    if (isfinite(v))
        pl_html_addf(b, fmt, v * scale);
    else
        pl_html_addf(b, "–");
    pl_html_addf(b, "</td>");
}

int pl_report_by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}
