// report.html: what draft heads cost and what they keep.
#include "infer/report/parts.h"
#include "infer/report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GROUPS 6 // planes of one page
#define CURVES 16

// ---- the (rho, lambda) plane ----

typedef struct plane {
    const pl_json *j;
    const cJSON   *full;
    double         tau, head, rest; // of the full head: seconds of the head in a level, of all else in a cycle
} plane;

static bool same(const pl_json *j, const cJSON *a, const cJSON *b, const char *key) {
    return strcmp(pl_report_str(j, a, key), pl_report_str(j, b, key)) == 0;
}

// "eagle3" of "eagle3-lowrank".
static bool same_backbone(const pl_json *j, const cJSON *a, const cJSON *b) {
    const char *x = pl_report_str(j, a, "kind"), *y = pl_report_str(j, b, "kind");
    size_t      n = strcspn(x, "-");
    return n == strcspn(y, "-") && strncmp(x, y, n) == 0;
}

static bool comparable(const pl_json *j, const cJSON *a, const cJSON *b) {
    return *pl_report_str(j, b, "checkpoint") && same_backbone(j, a, b) && same(j, a, b, "tree") &&
           same(j, a, b, "verify") && pl_report_num(j, a, "temperature") == pl_report_num(j, b, "temperature");
}

// Seconds of the head in one level drafted.
static double head_seconds(const pl_json *j, const cJSON *m) {
    double levels = pl_report_num(j, m, "mean_draft_depth") * pl_report_num(j, m, "steps");
    double head = pl_report_num(j, m, "seconds_by_part.head");
    return levels > 0 && head > 0 ? head / levels : NAN;
}

static bool is_full(const pl_json *j, const cJSON *m) {
    const char *kind = pl_report_str(j, m, "kind"), *head = strrchr(kind, '-');
    return *pl_report_str(j, m, "checkpoint") && head && strcmp(head, "-full") == 0 && isfinite(head_seconds(j, m));
}

// The full head that others are compared with: of comparable ones that with the largest draft vocabulary, the first.
static bool is_reference(const pl_json *j, const cJSON *methods, const cJSON *m) {
    const cJSON *x;
    if (!is_full(j, m)) return false;
    double rows = pl_report_num(j, m, "draft_vocabulary");
    bool   before = true;
    cJSON_ArrayForEach(x, methods) {
        if (x == m)
            before = false;
        else if (is_full(j, x) && comparable(j, m, x)) {
            double other = pl_report_num(j, x, "draft_vocabulary");
            if (other > rows || (before && !(other < rows))) return false;
        }
    }
    return true;
}

// rho = S (1 + lambda kappa) / (1 + kappa): a line in lambda for each speed-up S.
static void level_curve(pl_line *line, double xy[4], char label[16], double speedup, double kappa, bool measured) {
    for (int i = 0; i < 2; i++) {
        xy[i] = 2.0 * i;
        xy[2 + i] = speedup * (1 + xy[i] * kappa) / (1 + kappa);
    }
    snprintf(label, 16, "%.1fx", speedup);
    *line = (pl_line){.label = label, .x = xy, .y = xy + 2, .n = 2, .colour = measured ? 0 : -1};
}

static void put_plane(pl_strbuf *b, const plane *p, const cJSON *methods) {
    pl_point     point[PL_REPORT_METHODS];
    pl_line      line[CURVES];
    double       xy[CURVES][4];
    char         label[CURVES][16], title[200];
    int          n = 0, lines = 0, method = -1;
    const cJSON *m;
    cJSON_ArrayForEach(m, methods) {
        method++;
        if (!comparable(p->j, p->full, m) || n == PL_REPORT_METHODS) continue;
        double x = head_seconds(p->j, m) / p->head, y = pl_report_num(p->j, m, "acceptance_length") / p->tau;
        if (!isfinite(x) || !isfinite(y)) continue;
        point[n] = (pl_point){.label = pl_report_str(p->j, m, "name"), .x = x, .y = y, .colour = method};
        n++;
    }
    if (n < 2) return;
    double levels = pl_report_num(p->j, p->full, "mean_draft_depth"), kappa = p->head * levels / p->rest;
    for (int measured = 1; measured >= 0; measured--)
        for (int i = 0; i < CURVES / 2; i++, lines++)
            level_curve(&line[lines], xy[lines], label[lines], 0.8 + 0.1 * i, measured ? kappa : 0.25, measured);
    snprintf(title, sizeof title, "Heads against the full one, temperature %.4g, tree %.40s: kappa = %.2f",
             pl_report_num(p->j, p->full, "temperature"), pl_report_str(p->j, p->full, "tree"), kappa);
    pl_svg_points(b, title, "lambda: head's seconds a level over the full head's",
                  "rho: acceptance length over the full head's", point, n, line, lines);
    pl_html_addf(
        b, "<p>Lines: equal speed-up over the full head, rho (1 + kappa) / (1 + lambda kappa), for the measured "
           "kappa (the full head's seconds over the rest of its cycle) and, dashed, for kappa = 0.25; a head above "
           "the line of 1.0 pays. Trees that adapt differ from head to head, and so do then the rest of the cycle "
           "and rho.</p>\n");
}

void pl_report_planes(pl_strbuf *b, const pl_json *j, const cJSON *methods) {
    const cJSON *m;
    int          planes = 0;
    cJSON_ArrayForEach(m, methods) {
        if (planes == GROUPS || !is_reference(j, methods, m)) continue;
        double steps = pl_report_num(j, m, "steps");
        plane  p = {.j = j, .full = m, .tau = pl_report_num(j, m, "acceptance_length"), .head = head_seconds(j, m)};
        p.rest = (pl_report_num(j, m, "seconds") - pl_report_num(j, m, "seconds_by_part.head")) / steps;
        if (!(p.tau > 0) || !(p.rest > 0)) continue;
        put_plane(b, &p, methods);
        planes++;
    }
}

// ---- times ----

static const char *const parts[] = {"target", "verify", "take_in", "layer", "head", "draw", "other"};
static const char *const names[] = {"target's forward", "verdict", "drafter takes in", "draft layer", "draft head",
                                    "drawing",          "other"};
enum { PARTS = sizeof parts / sizeof *parts, FIRST_DRAFT = 2, LAST_DRAFT = 5 };

static bool read_parts(const pl_json *j, const cJSON *m, double *v) {
    bool any = false;
    for (int k = 0; k < PARTS; k++) {
        char key[48];
        snprintf(key, sizeof key, "seconds_by_part.%s", parts[k]);
        v[k] = pl_report_num(j, m, key);
        any |= isfinite(v[k]);
    }
    return any;
}

void pl_report_times(pl_strbuf *b, const pl_json *j, const cJSON *methods, double temperature, const char *suffix) {
    char         title[96];
    const char  *label[PL_REPORT_METHODS], *drafter[PL_REPORT_METHODS];
    double       value[PL_REPORT_METHODS * PARTS], share[PL_REPORT_METHODS * (LAST_DRAFT - FIRST_DRAFT + 1)];
    int          n = 0, drafters = 0;
    const int    width = LAST_DRAFT - FIRST_DRAFT + 1;
    const cJSON *m;
    cJSON_ArrayForEach(m, methods) {
        double *v = value + n * PARTS, tokens = pl_report_num(j, m, "tokens"), sum = 0;
        double  t = pl_report_num(j, m, "temperature");
        if (t != temperature && !(isnan(t) && isnan(temperature))) continue;
        if (n == PL_REPORT_METHODS || !read_parts(j, m, v) || !(tokens > 0)) continue;
        label[n++] = pl_report_str(j, m, "name");
        for (int k = FIRST_DRAFT; k <= LAST_DRAFT; k++)
            if (v[k] > 0) sum += v[k];
        for (int k = 0; k < width && sum > 0; k++)
            share[drafters * width + k] = 100 * v[FIRST_DRAFT + k] / sum;
        if (sum > 0) drafter[drafters++] = label[n - 1];
        for (int k = 0; k < PARTS; k++)
            v[k] *= 1e6 / tokens;
    }
    snprintf(title, sizeof title, "Where a token's time goes%s", suffix);
    if (n) pl_svg_stacks(b, title, "µs a token", names, PARTS, 0, label, value, n);
    snprintf(title, sizeof title, "Where drafting's time goes%s", suffix);
    if (drafters) pl_svg_stacks(b, title, "%", names + FIRST_DRAFT, width, FIRST_DRAFT, drafter, share, drafters);
}
