#include "train/plan/law.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { POINTS_MAX = 4096 };
#define METRICS_MAX ((size_t)1 << 28) // bytes of metrics.jsonl

typedef struct points {
    double step[POINTS_MAX], length[POINTS_MAX];
    double rows; // of all logged steps
    int    n, logged;
    char   stage[32]; // of the last line; a run's last stage counts
} points;

// Begins anew where another stage begins, whose steps are counted anew.
static void take_stage(points *p, const char *stage) {
    if (strncmp(p->stage, stage, sizeof p->stage - 1) == 0) return;
    *p = (points){0};
    snprintf(p->stage, sizeof p->stage, "%s", stage);
}

static pl_status take_line(points *p, const char *path, int64_t line, const uint8_t *text, size_t n, pl_err *err) {
    pl_json     j;
    double      step, length, rows;
    const char *stage;
    PL_TRY(pl_json_parse(&j, path, line, text, n, 0, err));
    pl_status st = pl_json_get_num(&j, NULL, "step", 0, 1e15, &step, err);
    if (st == PL_OK) st = pl_json_opt_str(&j, NULL, "stage", "", &stage, err);
    if (st == PL_OK) take_stage(p, stage);
    if (st == PL_OK) st = pl_json_opt_num(&j, NULL, "eval_acceptance_length", 0, 1e6, -1, &length, err);
    if (st == PL_OK) st = pl_json_opt_num(&j, NULL, "tokens", 0, 1e15, -1, &rows, err);
    if (st == PL_OK && rows >= 0) {
        p->rows += rows;
        p->logged++;
    }
    if (st == PL_OK && length >= 0 && step > 0 && p->n == POINTS_MAX)
        st = pl_fail(err, PL_E_INPUT, "%s: has more than %d evaluations", path, POINTS_MAX);
    if (st == PL_OK && length >= 0 && step > 0) {
        p->step[p->n] = step;
        p->length[p->n++] = length;
    }
    pl_json_close(&j);
    return st;
}

static pl_status read_points(points *p, const char *path, pl_err *err) {
    uint8_t  *text;
    size_t    n;
    int64_t   line = 1;
    pl_status st = PL_OK;
    PL_TRY(pl_file_read(path, &text, &n, METRICS_MAX, err));
    // A kill may have cut the last line.
    for (const uint8_t *at = text, *end; st == PL_OK && (end = memchr(at, '\n', n - (size_t)(at - text))); at = end + 1)
        st = take_line(p, path, line++, at, (size_t)(end - at), err);
    pl_free(text);
    return st;
}

static void fit(pl_law *law, const points *p, int n) {
    double x = 0, y = 0, xx = 0, xy = 0, rows = p->rows / p->logged;
    for (int i = 0; i < n; i++) {
        x += log(p->step[i] * rows) / n;
        y += p->length[i] / n;
    }
    for (int i = 0; i < n; i++) {
        double dx = log(p->step[i] * rows) - x;
        xx += dx * dx;
        xy += dx * (p->length[i] - y);
    }
    law->slope = xx > 0 ? xy / xx : 0;
    law->offset = y - law->slope * x;
}

pl_status pl_law_of_run(pl_law *law, const char *dir, pl_err *err) {
    points *p = pl_calloc(1, sizeof *p);
    char    path[4096];
    double  squares = 0;
    if (!p) return pl_fail(err, PL_E_MEMORY, "a run's evaluations: out of memory");
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    pl_status st = read_points(p, path, err);
    if (st == PL_OK && (p->n < PL_LAW_POINTS || p->rows <= 0))
        st = pl_fail(err, PL_E_INPUT,
                     "%s: has %d evaluations after steps, at least %d are needed; lower train.eval_every", path, p->n,
                     PL_LAW_POINTS);
    for (int i = PL_LAW_POINTS - 1; i < p->n && st == PL_OK; i++) {
        fit(law, p, i);
        squares += pow(p->length[i] - pl_law_length(law, p->step[i] * p->rows / p->logged), 2);
    }
    if (st == PL_OK) {
        fit(law, p, p->n);
        law->points = p->n;
        law->error = sqrt(squares / (p->n - PL_LAW_POINTS + 1));
        law->rows = p->step[p->n - 1] * p->rows / p->logged;
        law->length = p->length[p->n - 1];
    }
    pl_free(p);
    return st;
}

double pl_law_length(const pl_law *law, double rows) {
    return law->slope * log(rows) + law->offset;
}
