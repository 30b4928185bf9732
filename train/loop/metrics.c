#include "train/loop/metrics.h"

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define METRICS_MAX ((size_t)1 << 30) // most bytes of a file that is read back

// The start of a line, as pl_metrics_begin writes it.
static const char begins[] = "{\"stage\":\"";

// Sets *yes if the line is whole and a training's, and *keeps if it stays (stage NULL: whatever its step): it does
// unless the resumed run does that step again.
static pl_status is_line(bool *yes, bool *keeps, const char *path, const char *stage, const char *line, size_t n,
                         int64_t keep_step, pl_err *err) {
    pl_json     j;
    int64_t     step;
    const char *of;
    pl_status   st = pl_json_parse(&j, path, 1, line, n, 0, err);
    *yes = *keeps = false;
    if (st != PL_OK) return st == PL_E_INPUT ? PL_OK : st;
    *yes = n >= sizeof begins - 1 && memcmp(line, begins, sizeof begins - 1) == 0 &&
           pl_json_get_int(&j, NULL, "step", 0, PL_JSON_INT_MAX, &step, NULL) == PL_OK &&
           pl_json_get_str(&j, NULL, "stage", &of, NULL) == PL_OK;
    *keeps = *yes && (!stage || strcmp(of, stage) != 0 || step <= keep_step);
    pl_json_close(&j);
    return PL_OK;
}

// A line cut by a kill; a file that grew without its bytes, as after a power cut, holds zeros.
static bool is_cut_line(const char *tail, size_t n) {
    return tail[0] == 0 || memcmp(tail, begins, n < sizeof begins - 1 ? n : sizeof begins - 1) == 0;
}

// *keep: bytes of the lines that stay.
static pl_status check_lines(const char *path, const char *stage, int64_t keep_step, const uint8_t *data, size_t n,
                             size_t *keep, pl_err *err) {
    bool stays = true;
    *keep = 0;
    for (size_t at = 0; at < n;) {
        const char    *line = (const char *)data + at;
        const uint8_t *end = memchr(data + at, '\n', n - at);
        size_t         bytes = end ? (size_t)(end - data) - at : n - at;
        bool           ours = !end && is_cut_line(line, bytes), keeps = false;
        if (end) PL_TRY(is_line(&ours, &keeps, path, stage, line, bytes, keep_step, err));
        if (!ours)
            return pl_fail(err, PL_E_INPUT,
                           "%s: holds what no training wrote (byte %zu), which would be lost; move it away, or give "
                           "another --out",
                           path, at);
        stays = stays && keeps;
        at += bytes + (end != NULL);
        if (stays) *keep = at;
    }
    return PL_OK;
}

// stage NULL: only checks the file.
static pl_status read_lines(const char *path, const char *stage, int64_t keep_step, size_t *keep, size_t *n,
                            pl_err *err) {
    uint8_t *data;
    *keep = *n = 0;
    PL_TRY(pl_file_spares(path, is_cut_line, "--out", err));
    if (!pl_path_exists(path)) return PL_OK;
    PL_TRY(pl_file_read(path, &data, n, METRICS_MAX, err));
    pl_status st = check_lines(path, stage, keep_step, data, *n, keep, err);
    pl_free(data);
    return st;
}

pl_status pl_metrics_spares(const char *path, pl_err *err) {
    size_t keep, n;
    return read_lines(path, NULL, 0, &keep, &n, err);
}

pl_status pl_metrics_open(pl_metrics *m, const char *path, const char *stage, int64_t keep_step, pl_err *err) {
    size_t keep, n;
    *m = (pl_metrics){.stage = stage, .fd = -1, .path = pl_strdup(path), .events = {.fd = -1}};
    pl_status st = m->path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (st == PL_OK) st = pl_file_open(path, O_WRONLY | O_CREAT | O_APPEND, &m->fd, err);
    if (st == PL_OK) st = read_lines(path, stage, keep_step, &keep, &n, err);
    if (st == PL_OK && keep < n && ftruncate(m->fd, (off_t)keep) != 0)
        st = pl_fail_errno(err, "%s: cutting back", path);
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

void pl_metrics_watch(pl_metrics *m, const char *dir) {
    m->watched = dir;
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

// Begins TensorBoard's file, with all lines of this one.
static pl_status begin_events(pl_metrics *m, pl_err *err) {
    uint8_t *data;
    size_t   n;
    PL_TRY(pl_file_read(m->path, &data, &n, METRICS_MAX, err));
    pl_status st = pl_events_open(&m->events, m->watched, (const char *)data, n, err);
    pl_free(data);
    return st;
}

// One write per line, so that a kill leaves at most the last line unfinished.
pl_status pl_metrics_end(pl_metrics *m, pl_err *err) {
    pl_json_out_close(&m->line, '}');
    m->open = false;
    PL_TRY(pl_json_out_end(&m->line, err));
    char  *text = m->line.text;
    size_t n = m->line.len;
    text[n] = '\n'; // replaces the terminating 0
    pl_status st = pl_fd_write(m->fd, m->path, text, n + 1, err);
    if (st == PL_OK && m->watched) st = m->events.path ? pl_events_add(&m->events, text, n, err) : begin_events(m, err);
    pl_free(text);
    return st;
}
