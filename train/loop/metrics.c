#include "train/loop/metrics.h"

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define METRICS_MAX ((size_t)1 << 30) // bytes of a file that is read back

// Whether this line is whole and stays: JSON of a step that the resumed run does not do again.
static bool stays(const pl_metrics *m, const char *line, size_t n, int64_t keep_step) {
    pl_json     j;
    int64_t     step;
    const char *stage;
    if (pl_json_parse(&j, m->path, 1, line, n, 0, NULL) != PL_OK) return false;
    bool ok = pl_json_get_int(&j, NULL, "step", 0, PL_JSON_INT_MAX, &step, NULL) == PL_OK &&
              pl_json_get_str(&j, NULL, "stage", &stage, NULL) == PL_OK &&
              (strcmp(stage, m->stage) != 0 || step <= keep_step);
    pl_json_close(&j);
    return ok;
}

static pl_status cut(pl_metrics *m, int64_t keep_step, pl_err *err) {
    if (!pl_path_exists(m->path)) return PL_OK;
    uint8_t *data;
    size_t   n, at = 0;
    PL_TRY(pl_file_read(m->path, &data, &n, METRICS_MAX, err));
    while (at < n) {
        const uint8_t *end = memchr(data + at, '\n', n - at);
        if (!end || !stays(m, (const char *)data + at, (size_t)(end - data) - at, keep_step)) break;
        at = (size_t)(end - data) + 1;
    }
    pl_free(data);
    if (at < n && ftruncate(m->fd, (off_t)at) != 0) return pl_fail_errno(err, "%s: cutting back", m->path);
    return PL_OK;
}

pl_status pl_metrics_open(pl_metrics *m, const char *path, const char *stage, int64_t keep_step, pl_err *err) {
    *m = (pl_metrics){.stage = stage, .fd = -1, .path = pl_strdup(path), .events = {.fd = -1}};
    pl_status st = m->path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (st == PL_OK) m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (st == PL_OK && m->fd < 0) st = pl_fail_errno(err, "%s", path);
    if (st == PL_OK) st = cut(m, keep_step, err);
    if (st != PL_OK) pl_metrics_close(m);
    return st;
}

void pl_metrics_close(pl_metrics *m) {
    if (m->open) pl_free(m->line.text); // a failure came in the middle of a line
    if (m->path && m->fd >= 0) close(m->fd);
    pl_free(m->path);
    pl_events_close(&m->events);
    *m = (pl_metrics){.fd = -1};
}

void pl_metrics_watch(pl_metrics *m) {
    m->watched = true;
}

void pl_metrics_begin(pl_metrics *m, int64_t step) {
    pl_json_out_begin(&m->line, 0);
    pl_json_out_object(&m->line);
    m->open = true;
    pl_json_out_key(&m->line, "stage");
    pl_json_out_str(&m->line, m->stage);
    pl_metrics_int(m, "step", step);
    if (m->watched) pl_metrics_num(m, "time", pl_unix_time());
}

void pl_metrics_num(pl_metrics *m, const char *key, double v) {
    pl_json_out_key(&m->line, key);
    pl_json_out_num(&m->line, v);
}

void pl_metrics_int(pl_metrics *m, const char *key, int64_t v) {
    pl_json_out_key(&m->line, key);
    pl_json_out_int(&m->line, v);
}

void pl_metrics_nums(pl_metrics *m, const char *key, const double *v, int n) {
    pl_json_out_key(&m->line, key);
    pl_json_out_array(&m->line);
    for (int i = 0; i < n; i++)
        pl_json_out_num(&m->line, v[i]);
    pl_json_out_close(&m->line, ']');
}

// The file's folder begins TensorBoard's with all lines that stand here.
static pl_status begin_events(pl_metrics *m, pl_err *err) {
    uint8_t *data = NULL;
    size_t   n = 0;
    char    *dir = pl_strdup(m->path), *slash = dir ? strrchr(dir, '/') : NULL;
    if (slash) *slash = 0;
    pl_status st = dir ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", m->path);
    if (st == PL_OK) st = pl_file_read(m->path, &data, &n, METRICS_MAX, err);
    if (st == PL_OK) st = pl_events_open(&m->events, slash ? dir : ".", (const char *)data, n, err);
    pl_free(data);
    pl_free(dir);
    return st;
}

// One write per line, so that a kill leaves at most the last line unfinished.
pl_status pl_metrics_end(pl_metrics *m, pl_err *err) {
    pl_json_out_close(&m->line, '}');
    m->open = false;
    PL_TRY(pl_json_out_end(&m->line, err));
    char  *text = m->line.text;
    size_t n = m->line.len;
    text[n] = '\n'; // in place of the 0 that ends it
    pl_status st = pl_fd_write(m->fd, m->path, text, n + 1, err);
    if (st == PL_OK && m->watched) st = m->events.path ? pl_events_add(&m->events, text, n, err) : begin_events(m, err);
    pl_free(text);
    return st;
}
