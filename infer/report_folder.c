// report.html: token lists and ceilings that lie in a run's folder.
#include "data/counts.h"
#include "infer/report_parts.h"
#include "infer/svg.h"
#include "kernels/base/files.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTS 8
#define POINTS 100
#define DEPTHS 32
#define FILE_MAX ((size_t)16 << 20)

static int is_json(const struct dirent *d) {
    size_t n = strlen(d->d_name);
    return d->d_name[0] != '.' && n > 5 && strcmp(d->d_name + n - 5, ".json") == 0;
}
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

// The *.json of a folder, by name, at most `most`; paths are the caller's. No folder: none.
static pl_status list_files(char **path, int *n, int most, const char *dir, const char *inner, pl_err *err) {
    char           *folder = pl_path_join(dir, inner);
    struct dirent **entry = NULL;
    pl_status       st = PL_OK;
    int             found = 0;
    *n = 0;
    if (!folder) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    bool there = false;
    if (pl_path_exists(folder)) st = pl_path_look_dir(folder, &there, err);
    if (st == PL_OK && there) found = scandir(folder, &entry, is_json, by_name);
    if (found < 0) st = pl_fail_errno(err, "%s: cannot read the folder", folder);
    for (int i = 0; i < found; i++) {
        if (st == PL_OK && *n < most) {
            path[*n] = pl_path_join(folder, entry[i]->d_name);
            if (path[*n])
                ++*n;
            else
                st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", folder);
        }
        free(entry[i]);
    }
    free(entry);
    pl_free(folder);
    return st;
}

static void drop_files(char **path, int n) {
    for (int i = 0; i < n; i++)
        pl_free(path[i]);
}

// ---- coverage ----

typedef struct vocab_list {
    pl_counts c;
    int32_t  *rank; // [vocab]
    int32_t   n;    // that occurred
    char      name[64];
} vocab_list;

static pl_status read_list(vocab_list *l, const char *path, pl_err *err) {
    const char *name = pl_path_name(path);
    PL_TRY(pl_counts_read(&l->c, path, err));
    snprintf(l->name, sizeof l->name, "%.*s", (int)(strlen(name) - 5), name);
    l->rank = pl_malloc((size_t)l->c.vocab * sizeof *l->rank);
    if (!l->rank) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    l->n = pl_counts_rank(&l->c, l->rank);
    return PL_OK;
}

// How much of one corpus each list of the same vocabulary covers, by size.
static pl_status put_coverage(pl_strbuf *b, const vocab_list *l, int n, int corpus, pl_err *err) {
    pl_line line[LISTS];
    char    title[160], label[LISTS][96];
    int     lines = 0;
    double *xy = pl_calloc((size_t)n * 2 * POINTS, sizeof *xy);
    if (!xy) return pl_fail(err, PL_E_MEMORY, "report: out of memory");
    for (int i = 0; i < n; i++) {
        double *x = xy + (size_t)i * 2 * POINTS, *y = x + POINTS;
        if (l[i].c.vocab != l[corpus].c.vocab || strcmp(l[i].c.tokenizer, l[corpus].c.tokenizer) != 0) continue;
        for (int k = 0; k < POINTS; k++) {
            int64_t size = 1 + (int64_t)((double)(l[i].c.vocab - 1) * k / (POINTS - 1));
            x[k] = 100 * (double)size / l[i].c.vocab;
            y[k] = 100 * pl_counts_coverage(&l[corpus].c, l[i].rank, size);
        }
        snprintf(label[i], sizeof label[i], "%s%s", l[i].name, i == corpus ? " (counted here)" : "");
        line[lines++] = (pl_line){.label = label[i], .x = x, .y = y, .n = POINTS, .colour = i};
    }
    snprintf(title, sizeof title, "Tokens of %s that a list covers, %%", l[corpus].name);
    pl_svg_lines(b, title, "% of the vocabulary, by frequency", line, lines, true);
    pl_free(xy);
    return PL_OK;
}

static pl_status coverage_section(pl_strbuf *b, const char *dir, pl_err *err) {
    char      *path[LISTS];
    vocab_list l[LISTS] = {0};
    int        n;
    pl_status  st = list_files(path, &n, LISTS, dir, "vocab", err);
    for (int i = 0; i < n && st == PL_OK; i++)
        st = read_list(&l[i], path[i], err);
    if (n && st == PL_OK) {
        pl_html_addf(b, "<section><h2>Token lists of ");
        pl_html_text(b, dir);
        pl_html_addf(b, "</h2>\n");
        for (int i = 0; i < n && st == PL_OK; i++)
            st = put_coverage(b, l, n, i, err);
        pl_html_addf(b, "</section>\n");
    }
    for (int i = 0; i < LISTS; i++) {
        pl_counts_fini(&l[i].c);
        pl_free(l[i].rank);
    }
    drop_files(path, n);
    return st;
}

// ---- ceilings ----

static pl_status put_ceilings(pl_strbuf *b, const char *path, pl_err *err) {
    static const char *const keys[] = {"oracle", "ceiling", "achieved"};
    static const char *const says[] = {"oracle: the target's own best tokens, as many",
                                       "ceiling: p of the head's tokens", "achieved: sum of min(p, q)"};
    enum { KEYS = sizeof keys / sizeof *keys };
    pl_json      j;
    const cJSON *list, *at;
    double       x[DEPTHS], y[KEYS][DEPTHS];
    pl_line      line[KEYS];
    int          n = 0;
    char         title[160];
    PL_TRY(pl_json_open(&j, path, FILE_MAX, 0, err));
    pl_status st = pl_json_get_array(&j, NULL, "ceilings", &list, err);
    if (st != PL_OK) list = NULL;
    cJSON_ArrayForEach(at, list) {
        if (n == DEPTHS || !cJSON_IsObject(at)) break;
        x[n] = pl_report_num(&j, at, "depth");
        for (int k = 0; k < KEYS; k++)
            y[k][n] = pl_report_num(&j, at, keys[k]);
        n++;
    }
    const char *name = pl_path_name(path);
    for (int k = 0; k < KEYS; k++)
        line[k] = (pl_line){.label = says[k], .x = x, .y = y[k], .n = n, .colour = k + 1};
    snprintf(title, sizeof title, "%.*s, temperature %.4g", (int)(strlen(name) - 5), name,
             pl_report_num(&j, NULL, "temperature"));
    if (n) pl_svg_lines(b, title, "draft depth", line, KEYS, true);
    pl_json_close(&j);
    return st;
}

static pl_status ceilings_section(pl_strbuf *b, const char *dir, pl_err *err) {
    char     *path[PL_REPORT_METHODS];
    int       n;
    pl_status st = list_files(path, &n, PL_REPORT_METHODS, dir, "ceilings", err);
    if (n && st == PL_OK) pl_html_addf(b, "<section><h2>Ceilings</h2>\n");
    for (int i = 0; i < n && st == PL_OK; i++)
        st = put_ceilings(b, path[i], err);
    if (n && st == PL_OK) pl_html_addf(b, "</section>\n");
    drop_files(path, n);
    return st;
}

pl_status pl_report_folder(pl_strbuf *b, const char *dir, pl_err *err) {
    PL_TRY(coverage_section(b, dir, err));
    return ceilings_section(b, dir, err);
}
