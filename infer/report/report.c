#include "infer/report/report.h"

#include "infer/report/svg.h"
#include "kernels/base/files.h"
#include "recipes/folder.h"

#include <math.h>
#include <string.h>

#define RESULTS_MAX ((size_t)64 << 20) // bytes; a thousand methods and prompts have about 10 MB
#define TITLE "paceline report"
#define MAX_LINES 64

typedef struct run {
    char   *path;    // as on the command line, without trailing slashes
    pl_json results; // its root is NULL without results
} run;

// ---- reading ----

static pl_status check_results(const run *r, pl_err *err) {
    const cJSON *methods, *m;
    const char  *name;
    int          n = 0;
    PL_TRY(pl_json_get_array(&r->results, NULL, "methods", &methods, err));
    cJSON_ArrayForEach(m, methods) {
        if (!cJSON_IsObject(m) || ++n > PL_REPORT_METHODS)
            return pl_fail(err, PL_E_INPUT, "%s: methods: expected at most %d objects", r->results.where,
                           PL_REPORT_METHODS);
        PL_TRY(pl_json_get_str(&r->results, m, "name", &name, err));
    }
    return PL_OK;
}

static pl_status read_run(run *r, pl_curves *c, const char *path, pl_err *err) {
    r->path = pl_strdup(path);
    if (!r->path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    for (size_t n = strlen(r->path); n > 1 && r->path[n - 1] == '/'; n--)
        r->path[n - 1] = 0;
    int  before = c->n;
    bool folder = pl_path_is_dir(path);
    if (!folder && !pl_path_exists(path)) return pl_fail(err, PL_E_INPUT, "%s: no such run", path);
    char *file = folder ? pl_path_join(r->path, "results.json") : pl_strdup(r->path);
    if (!file) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = PL_OK;
    if (pl_path_exists(file)) {
        st = pl_json_open(&r->results, file, RESULTS_MAX, 0, err);
        if (st == PL_OK) st = check_results(r, err);
    }
    pl_free(file);
    if (folder && st == PL_OK) st = pl_report_curves(c, r->path, err);
    if (st == PL_OK && !r->results.root && c->n == before)
        st = pl_fail(err, PL_E_INPUT, "%s: has neither results.json nor metrics.jsonl; is it a run's folder?", path);
    return st;
}

// ---- training ----

// Returns the length of the common prefix of all series, up to a slash.
static size_t measure_folder(const pl_curves *c) {
    size_t common = 0;
    for (size_t k = 0; c->n > 1; k++) {
        char x = c->curve[0].series[k];
        for (int i = 1; i < c->n; i++)
            if (c->curve[i].series[k] != x) return common;
        if (!x) return common;
        if (x == '/') common = k + 1;
    }
    return common;
}

// Returns the stage of a curve's series, "" if it has none.
static const char *find_stage(const pl_curve *x) {
    const char *at = strstr(x->series, " / ");
    return at ? at + 3 : "";
}

// Puts the chart of one figure in one stage; a single point is left out.
static void put_chart(pl_page *p, cJSON *charts, const pl_curves *c, const char *key, const char *stage, size_t skip) {
    pl_line   line[MAX_LINES];
    pl_strbuf b = {0};
    int       n = 0;
    for (int i = 0; i < c->n && n < MAX_LINES; i++) {
        const pl_curve *x = &c->curve[i];
        if (strcmp(x->key, key) != 0 || strcmp(find_stage(x), stage) != 0 || x->n < 2) continue;
        line[n] = (pl_line){.label = x->series + skip, .x = x->x, .y = x->y, .n = x->n, .colour = n};
        n++;
    }
    pl_svg_lines(&b, line, n, false);
    cJSON *chart = pl_page_put(p, charts, NULL, cJSON_CreateObject());
    pl_page_put_str(p, chart, "stage", stage);
    pl_page_put_svg(p, chart, "svg", &b);
}

// Puts a chart of one figure for each stage.
static void put_curves(pl_page *p, cJSON *training, const pl_curves *c, const char *key, size_t skip) {
    cJSON *charts = pl_page_put(p, training, key, cJSON_CreateArray()), *chart;
    for (int i = 0; i < c->n; i++) {
        const char *stage = find_stage(&c->curve[i]);
        cJSON_ArrayForEach(chart, charts) if (strcmp(pl_page_str(chart, "stage"), stage) == 0) break;
        if (!chart && strcmp(c->curve[i].key, key) == 0) put_chart(p, charts, c, key, stage, skip);
    }
}

// Puts the charts of three figures and, by series, the last value of every figure.
static void put_training(pl_page *p, const pl_curves *c) {
    size_t skip = measure_folder(c);
    cJSON *training = pl_page_put(p, p->tree.root, "training", cJSON_CreateObject()), *row = NULL;
    put_curves(p, training, c, "loss", skip);
    put_curves(p, training, c, "eval_loss", skip);
    put_curves(p, training, c, "eval_acceptance_length", skip);
    cJSON *rows = pl_page_put(p, training, "rows", cJSON_CreateArray());
    for (int i = 0; i < c->n; i++) {
        const pl_curve *x = &c->curve[i];
        cJSON_ArrayForEach(row, rows) if (strcmp(pl_page_str(row, "series"), x->series + skip) == 0) break;
        if (!row) {
            row = pl_page_put(p, rows, NULL, cJSON_CreateObject());
            pl_page_put_str(p, row, "series", x->series + skip);
            double step = 0; // greatest step of the series' figures
            for (int k = i; k < c->n; k++)
                if (strcmp(c->curve[k].series, x->series) == 0) step = fmax(step, c->curve[k].x[c->curve[k].n - 1]);
            pl_page_put_num(p, row, "step", step);
        }
        pl_page_put_num(p, row, x->key, x->y[x->n - 1]);
    }
}

// ---- the page ----

static pl_status put_runs(pl_page *p, const run *r, int n, const run *other, const pl_curves *c, pl_err *err) {
    cJSON *runs = pl_page_put(p, p->tree.root, "runs", cJSON_CreateArray());
    for (int i = 0; i < n; i++) {
        cJSON *section = pl_page_put(p, runs, NULL, cJSON_CreateObject());
        bool   folder = pl_path_is_dir(r[i].path);
        pl_page_put_str(p, section, "path", r[i].path);
        if (folder) pl_page_put_str(p, section, "folder", "yes");
        if (folder) PL_TRY(pl_report_folder(p, section, r[i].path, err));
        if (r[i].results.root) pl_report_evaluation(p, section, r[i].results.root);
        if (r[i].results.root && other)
            pl_report_against(p, section, r[i].results.root, other->results.root, other->path);
    }
    if (c->n) put_training(p, c);
    return PL_OK;
}

// Writes the page. against: a run to compare the others with, without a section of its own; NULL: none.
static pl_status write_page(const char *path, const char *const *runs, int n, const char *against, pl_err *err) {
    pl_curves curves = {0};
    pl_page   page;
    run      *r = pl_calloc((size_t)n + 1, sizeof *r), *other = against ? r + n : NULL;
    if (!r) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = pl_page_begin(&page, TITLE, err);
    for (int i = 0; i < n && st == PL_OK; i++)
        st = read_run(&r[i], &curves, runs[i], err);
    if (st == PL_OK && other) st = read_run(other, &curves, against, err);
    if (st == PL_OK && other && !other->results.root)
        st = pl_fail(err, PL_E_INPUT, "%s: has no results.json to compare with", against);
    if (st == PL_OK) st = put_runs(&page, r, n, other, &curves, err);
    if (st == PL_OK) st = pl_page_write(&page, path, err);
    pl_page_end(&page);
    for (int i = 0; i <= n; i++) {
        pl_json_close(&r[i].results);
        pl_free(r[i].path);
    }
    pl_free(r);
    pl_curves_fini(&curves);
    return st;
}

bool pl_report_is(const char *front, size_t n) {
    return pl_page_is(front, n, TITLE);
}

pl_status pl_report_write(const char *path, const char *const *runs, int n_runs, pl_err *err) {
    return write_page(path, runs, n_runs, NULL, err);
}

// ---- the command ----

#define OUT "folder for report.html [the first run's]"
#define AGAINST "another run: speeds and acceptance of methods that both have"
static const pl_key options[] = {
    {PL_OPTION_TEXT("out", "DIR"), .letter = 'o', .help = OUT},
    {PL_OPTION_TEXT("against", "RUN"), .help = AGAINST},
    {0},
};

static pl_status command(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    const char *out = pl_cli_text(a, "out"), *first = a->positional[0];
    int         beside = (int)(pl_path_name(first) - first); // length of the folder of a results.json
    char       *dir = out || pl_path_is_dir(first) ? pl_strdup(out ? out : first) : pl_sprintf("%.*s", beside, first);
    char       *path = dir ? pl_path_join(dir, "report.html") : NULL;
    pl_status   st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", first);
    if (st == PL_OK) st = pl_file_spares(path, pl_report_is, "--out", err);
    if (st == PL_OK && out) st = pl_dir_make(out, err);
    if (st == PL_OK) {
        pl_folder_sweep(dir);
        st = write_page(path, a->positional, a->n_positional, pl_cli_text(a, "against"), err);
    }
    if (st == PL_OK && env->json) {
        pl_put_str(env->result, "report", path);
    } else if (st == PL_OK) {
        fprintf(env->text, "%s\n", path);
    }
    pl_free(dir);
    pl_free(path);
    return st;
}

const pl_command pl_command_report = {
    .name = "report",
    .summary = "results and training curves of runs as one page, report.html",
    .positional = "RUN...",
    .min_positional = 1,
    .max_positional = 4096,
    .options = options,
    .about = "RUN is a run's folder or a results.json. The page needs nothing else: no scripts, no network.",
    .example = "paceline report runs/first runs/second --out runs",
    .run = command,
};
