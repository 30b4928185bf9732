// report.html: token lists and ceilings of a run's folder.
#include "data/counts/counts.h"
#include "infer/report/report.h"
#include "infer/report/svg.h"
#include "kernels/base/files.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTS 8
#define POINTS 100
#define FILE_MAX ((size_t)16 << 20)

static int is_visible(const struct dirent *d) {
    return d->d_name[0] != '.';
}

static int compare_names(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name); // byte order, independent of the locale
}

typedef pl_status (*visit_fn)(void *to, const char *path, pl_err *err);

// Visits the entries of dir/name in order until one fails; a missing folder has none.
static pl_status visit_entries(const char *dir, const char *name, visit_fn visit, void *to, pl_err *err) {
    struct dirent **entry = NULL;
    bool            there = false;
    int             n = 0;
    pl_status       st = PL_OK;
    char           *folder = pl_path_join(dir, name);
    if (!folder) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (pl_path_exists(folder)) st = pl_path_look_dir(folder, &there, err);
    if (st == PL_OK && there) n = scandir(folder, &entry, is_visible, compare_names);
    if (n < 0) st = pl_fail_errno(err, "%s: cannot read the folder", folder);
    for (int i = 0; i < n; i++) {
        char *path = st == PL_OK ? pl_path_join(folder, entry[i]->d_name) : NULL;
        if (path)
            st = visit(to, path, err);
        else if (st == PL_OK)
            st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", folder);
        pl_free(path);
        free(entry[i]);
    }
    free(entry);
    pl_free(folder);
    return st;
}

// Returns the name of a .json file without the suffix, owned by the caller; NULL if out of memory.
static char *make_name(const char *path) {
    const char *name = pl_path_name(path);
    return pl_sprintf("%.*s", (int)(strlen(name) - strlen(".json")), name);
}

// ---- metrics ----

typedef struct metrics {
    pl_curves  *curves;
    const char *series;
    int         depth; // levels of folders below to search
} metrics;

static pl_status read_metrics(void *to, const char *path, pl_err *err) {
    const metrics *of = to;
    bool           folder;
    if (strcmp(pl_path_name(path), "metrics.jsonl") == 0) return pl_curves_read(of->curves, of->series, path, err);
    PL_TRY(pl_path_look_dir(path, &folder, err));
    if (!folder || of->depth == 0) return PL_OK;
    char *series = pl_sprintf("%s/%s", of->series, pl_path_name(path));
    if (!series) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = visit_entries("", path, read_metrics, &(metrics){of->curves, series, of->depth - 1}, err);
    pl_free(series);
    return st;
}

pl_status pl_report_curves(pl_curves *c, const char *dir, pl_err *err) {
    return visit_entries("", dir, read_metrics, &(metrics){c, dir, 2}, err);
}

// ---- coverage ----

typedef struct lists {
    int       n;
    pl_counts counts[LISTS];
    int32_t  *rank[LISTS];
    char     *name[LISTS];
} lists;

static pl_status read_list(void *to, const char *path, pl_err *err) {
    lists *l = to;
    if (l->n == LISTS || !pl_path_ends(path, ".json")) return PL_OK;
    PL_TRY(pl_counts_read(&l->counts[l->n], path, err));
    const pl_counts *c = &l->counts[l->n];
    l->name[l->n] = make_name(path);
    l->rank[l->n] = pl_malloc((size_t)c->vocab * sizeof **l->rank);
    if (!l->name[l->n] || !l->rank[l->n++]) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_counts_rank(c, l->rank[l->n - 1]);
    return PL_OK;
}

// Puts the coverage of one corpus by each list of the same vocabulary, over the list's size.
static void put_coverage(pl_page *p, cJSON *list, const lists *l, int corpus) {
    const pl_counts *of = &l->counts[corpus];
    pl_line          line[LISTS];
    pl_strbuf        b = {0};
    int              lines = 0;
    double           x[POINTS], y[LISTS][POINTS];
    char            *own = pl_sprintf("%s (counted here)", l->name[corpus]);
    for (int i = 0; i < l->n; i++) {
        if (l->counts[i].vocab != of->vocab || strcmp(l->counts[i].tokenizer, of->tokenizer) != 0) continue;
        for (int k = 0; k < POINTS; k++) {
            int64_t size = 1 + (int64_t)((double)(of->vocab - 1) * k / (POINTS - 1));
            x[k] = 100 * (double)size / of->vocab;
            y[i][k] = 100 * pl_counts_coverage(of, l->rank[i], size);
        }
        line[lines++] =
            (pl_line){.label = i == corpus && own ? own : l->name[i], .x = x, .y = y[i], .n = POINTS, .colour = i};
    }
    pl_svg_lines(&b, line, lines, true);
    p->failed |= !own;
    pl_free(own);
    pl_page_put_str(p, list, "name", l->name[corpus]);
    pl_page_put_svg(p, list, "svg", &b);
}

static pl_status put_lists(pl_page *p, cJSON *run, const char *dir, pl_err *err) {
    lists     l = {0};
    pl_status st = visit_entries(dir, "vocab", read_list, &l, err);
    cJSON    *to = pl_page_put(p, run, "lists", cJSON_CreateArray());
    for (int i = 0; i < l.n && st == PL_OK; i++)
        put_coverage(p, pl_page_put(p, to, NULL, cJSON_CreateObject()), &l, i);
    for (int i = 0; i < LISTS; i++) {
        pl_counts_fini(&l.counts[i]);
        pl_free(l.rank[i]);
        pl_free(l.name[i]);
    }
    return st;
}

// ---- ceilings ----

// Puts a list of ceilings by depth, and each figure's mean over all rows of all depths.
static pl_status put_depths(pl_page *p, cJSON *to, const pl_json *j, const cJSON *of, pl_err *err) {
    static const char *const figures[] = {"achieved",           "ceiling",          "oracle",          "support",
                                          "recall_target_best", "recall_head_best", "recall_head_top", "retained"};
    const cJSON             *list, *at;
    PL_TRY(pl_json_get_array(j, of, "ceilings", &list, err));
    pl_page_put(p, to, "depths", cJSON_Duplicate(list, true));
    cJSON_ArrayForEach(at, list) {
        double achieved = pl_page_num(at, "achieved"), most = pl_page_num(at, "ceiling"),
               oracle = pl_page_num(at, "oracle");
        if (achieved > most + 1e-6 || most > oracle + 1e-6) // figures are written with six digits
            return pl_json_fail(j, at, err, "achieved %g, ceiling %g, oracle %g: they must not fall in this order",
                                achieved, most, oracle);
    }
    for (size_t k = 0; k < sizeof figures / sizeof *figures; k++) {
        double sum = 0, rows = 0;
        cJSON_ArrayForEach(at, list) {
            double v = pl_page_num(at, figures[k]), n = pl_page_num(at, "rows");
            sum += isfinite(v) && n > 0 ? v * n : 0;
            rows += isfinite(v) && n > 0 ? n : 0;
        }
        pl_page_put_num(p, to, figures[k], sum / rows);
    }
    pl_page_put_num(p, to, "logits", pl_page_num(to, "ceiling") - pl_page_num(to, "achieved"));
    pl_page_put_num(p, to, "choice", pl_page_num(to, "oracle") - pl_page_num(to, "ceiling"));
    return PL_OK;
}

typedef struct heads {
    pl_page *page;
    cJSON   *list;
} heads;

static pl_status put_ceilings(void *to, const char *path, pl_err *err) {
    pl_page *p = ((heads *)to)->page;
    pl_json  j;
    if (!pl_path_ends(path, ".json")) return PL_OK;
    PL_TRY(pl_json_open(&j, path, FILE_MAX, 0, err));
    cJSON       *head = pl_page_put(p, ((heads *)to)->list, NULL, cJSON_CreateObject());
    const cJSON *greedy = pl_json_find(&j, NULL, "greedy");
    const char  *name = pl_page_str(j.root, "name");
    char        *file = make_name(path);
    pl_page_put_str(p, head, "name", *name || !file ? name : file);
    p->failed |= !file;
    pl_free(file);
    pl_page_put_num(p, head, "temperature", pl_page_num(j.root, "temperature"));
    pl_status st = put_depths(p, head, &j, NULL, err);
    if (st == PL_OK && greedy)
        st = put_depths(p, pl_page_put(p, head, "greedy", cJSON_CreateObject()), &j, greedy, err);
    pl_json_close(&j);
    return st;
}

pl_status pl_report_folder(pl_page *p, cJSON *run, const char *dir, pl_err *err) {
    PL_TRY(put_lists(p, run, dir, err));
    heads to = {p, pl_page_put(p, run, "ceilings", cJSON_CreateArray())};
    return visit_entries(dir, "ceilings", put_ceilings, &to, err);
}
