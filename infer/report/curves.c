#include "infer/report/curves.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

#include <stdio.h>
#include <string.h>

#define METRICS_MAX ((size_t)1 << 30)

void pl_curves_fini(pl_curves *c) {
    for (int i = 0; i < c->n; i++) {
        pl_free(c->curve[i].series);
        pl_free(c->curve[i].x);
        pl_free(c->curve[i].y);
    }
    pl_free(c->curve);
    *c = (pl_curves){0};
}

static pl_curve *find(pl_curves *c, const char *series, const char *key) {
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->curve[i].series, series) == 0 && strcmp(c->curve[i].key, key) == 0) return &c->curve[i];
    if (c->n == c->capacity) {
        int       capacity = c->capacity ? 2 * c->capacity : 16;
        pl_curve *more = pl_realloc(c->curve, (size_t)capacity * sizeof *more);
        if (!more) return NULL;
        c->curve = more;
        c->capacity = capacity;
    }
    pl_curve *k = &c->curve[c->n];
    *k = (pl_curve){.series = pl_strdup(series)};
    if (!k->series) return NULL;
    snprintf(k->key, sizeof k->key, "%s", key);
    c->n++;
    return k;
}

static bool add(pl_curves *c, const char *series, const char *key, double x, double y) {
    pl_curve *k = find(c, series, key);
    if (!k) return false;
    if (k->n == k->capacity) {
        int     capacity = k->capacity ? 2 * k->capacity : 64;
        double *xs = pl_realloc(k->x, (size_t)capacity * sizeof *xs);
        if (xs) k->x = xs;
        double *ys = pl_realloc(k->y, (size_t)capacity * sizeof *ys);
        if (ys) k->y = ys;
        if (!xs || !ys) return false;
        k->capacity = capacity;
    }
    k->x[k->n] = x;
    k->y[k->n++] = y;
    return true;
}

static pl_status read_line(pl_curves *c, const char *series, const char *path, const char *line, size_t n,
                           int64_t number, pl_err *err) {
    pl_json     j;
    double      step;
    const char *stage;
    char        name[256];
    PL_TRY(pl_json_parse(&j, path, number, line, n, 0, err));
    pl_status st = pl_json_get_num(&j, NULL, "step", 0, 9e15, &step, err);
    if (st == PL_OK) st = pl_json_opt_str(&j, NULL, "stage", "", &stage, err);
    if (st == PL_OK) {
        snprintf(name, sizeof name, "%s%s%s", series, *stage ? " / " : "", stage);
        const cJSON *item;
        cJSON_ArrayForEach(item, j.root) {
            bool when = strcmp(item->string, "step") == 0 || strcmp(item->string, "time") == 0;
            if (!cJSON_IsNumber(item) || when || st != PL_OK) continue;
            if (!add(c, name, item->string, step, item->valuedouble))
                st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        }
    }
    pl_json_close(&j);
    return st;
}

pl_status pl_curves_read(pl_curves *c, const char *series, const char *path, pl_err *err) {
    uint8_t *data;
    size_t   n;
    PL_TRY(pl_file_read(path, &data, &n, METRICS_MAX, err));
    pl_status st = PL_OK;
    int64_t   number = 1;
    for (size_t at = 0; at < n && st == PL_OK; number++) {
        const uint8_t *end = memchr(data + at, '\n', n - at);
        if (!end) break; // an incomplete last line
        size_t len = (size_t)(end - data) - at;
        if (len) st = read_line(c, series, path, (const char *)data + at, len, number, err);
        at += len + 1;
    }
    pl_free(data);
    return st;
}
