#include "infer/report/report.h"

#include "infer/report/curves.h"
#include "infer/report/parts.h"
#include "infer/report/svg.h"
#include "infer/tree/tree.h"
#include "kernels/base/files.h"
#include "recipes/folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RESULTS_MAX ((size_t)64 << 20) // a thousand methods and prompts have some 10 MB
#define TITLE "paceline report"
#define DEPTH 2 // folders below a run that are searched for metrics
#define MAX_METHODS PL_REPORT_METHODS
#define MAX_LINES 64
#define MAX_KEYS 64
#define MAX_POSITIONS 16 // columns of a table by position
#define MAX_GROUPS 8     // temperatures with charts of their own

typedef struct run {
    char   *path; // as given, without trailing slashes
    pl_json results;
    bool    has_results;
} run;

// ---- reading ----

static int visible(const struct dirent *d) {
    return d->d_name[0] != '.';
}

static pl_status read_curves(pl_curves *c, const char *dir, const char *series, int depth, pl_err *err) {
    pl_status       st = PL_OK;
    char           *file = pl_path_join(dir, "metrics.jsonl");
    struct dirent **entry = NULL;
    int             n = 0;
    if (!file) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (pl_path_exists(file)) st = pl_curves_read(c, series, file, err);
    pl_free(file);
    if (depth > 0 && st == PL_OK) n = scandir(dir, &entry, visible, pl_report_by_name);
    if (n < 0) st = pl_fail_errno(err, "%s: cannot read the folder", dir);
    for (int i = 0; i < n; i++) {
        char *inner = st == PL_OK ? pl_path_join(dir, entry[i]->d_name) : NULL;
        char *name = st == PL_OK ? pl_sprintf("%s/%s", series, entry[i]->d_name) : NULL;
        if (st == PL_OK && (!inner || !name)) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
        bool folder = false;
        if (st == PL_OK) st = pl_path_look_dir(inner, &folder, err);
        if (st == PL_OK && folder) st = read_curves(c, inner, name, depth - 1, err);
        pl_free(inner);
        pl_free(name);
        free(entry[i]);
    }
    free(entry);
    return st;
}

static pl_status check_results(const run *r, pl_err *err) {
    const cJSON *methods, *m;
    const char  *name;
    int          n = 0;
    PL_TRY(pl_json_get_array(&r->results, NULL, "methods", &methods, err));
    cJSON_ArrayForEach(m, methods) {
        if (!cJSON_IsObject(m) || ++n > MAX_METHODS)
            return pl_fail(err, PL_E_INPUT, "%s: methods: expected at most %d objects", r->results.where, MAX_METHODS);
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
        r->has_results = st == PL_OK;
        if (st == PL_OK) st = check_results(r, err);
    }
    pl_free(file);
    if (folder && st == PL_OK) st = read_curves(c, r->path, r->path, DEPTH, err);
    if (st == PL_OK && !r->has_results && c->n == before)
        st = pl_fail(err, PL_E_INPUT, "%s: has neither results.json nor metrics.jsonl; is it a run's folder?", path);
    return st;
}

// ---- one run's results ----

static double number(const run *r, const cJSON *obj, const char *key) {
    return pl_report_num(&r->results, obj, key);
}

static const char *string(const run *r, const cJSON *obj, const char *key) {
    return pl_report_str(&r->results, obj, key);
}

// Methods of one temperature; `suffix` goes behind a chart's title where there are several.
typedef struct group {
    double      temperature;
    const char *suffix;
} group;

static bool in_group(const run *r, const cJSON *m, const group *g) {
    double t = number(r, m, "temperature");
    return t == g->temperature || (isnan(t) && isnan(g->temperature));
}

static void speed_chart(pl_strbuf *b, const run *r, const cJSON *methods, const group *g) {
    pl_bar       bar[MAX_METHODS];
    char         title[96];
    int          n = 0;
    const cJSON *m;
    cJSON_ArrayForEach(m, methods) {
        if (!in_group(r, m, g)) continue;
        bar[n++] = (pl_bar){.label = string(r, m, "name"),
                            .value = number(r, m, "tokens_per_second"),
                            .low = NAN,
                            .high = NAN,
                            .mark = number(r, m, "floor_tokens_per_second")};
        if (!isfinite(bar[n - 1].value)) n--;
    }
    snprintf(title, sizeof title, "Decoding speed%s", g->suffix);
    if (n)
        pl_svg_bars(b, title, "tokens per second; the line is what reading each cycle's bytes alone would allow", bar,
                    n);
    n = 0;
    cJSON_ArrayForEach(m, methods) {
        if (!in_group(r, m, g)) continue;
        bar[n++] = (pl_bar){.label = string(r, m, "name"),
                            .value = number(r, m, "speedup"),
                            .low = number(r, m, "speedup_low"),
                            .high = number(r, m, "speedup_high"),
                            .mark = NAN};
        if (!isfinite(bar[n - 1].value)) n--;
    }
    snprintf(title, sizeof title, "Speed-up over plain decoding%s", g->suffix);
    if (n > 1) pl_svg_bars(b, title, "times; the whiskers hold 95 % of resampled prompts and seeds", bar, n);
}

// Lines where they can be told apart, else a table.
static void put_positions(pl_strbuf *b, const char *title, const pl_line *line, int n) {
    int deepest = 0;
    if (n <= PL_SVG_COLOURS) {
        if (n) pl_svg_lines(b, title, "position in the draft", line, n, true);
        return;
    }
    for (int i = 0; i < n; i++)
        if (line[i].n > deepest) deepest = line[i].n < MAX_POSITIONS ? line[i].n : MAX_POSITIONS;
    pl_html_addf(b, "<h3>");
    pl_html_text(b, title);
    pl_html_addf(b, "</h3><div class=\"wide\"><table><thead><tr><th>method</th>");
    for (int k = 1; k <= deepest; k++)
        pl_html_addf(b, "<th class=\"n\">%d</th>", k);
    pl_html_addf(b, "</tr></thead><tbody>\n");
    for (int i = 0; i < n; i++) {
        pl_html_addf(b, "<tr><td>");
        pl_html_text(b, line[i].label);
        pl_html_addf(b, "</td>");
        for (int k = 0; k < deepest; k++)
            pl_report_cell(b, "%.1f %%", k < line[i].n ? line[i].y[k] : NAN, 100);
        pl_html_addf(b, "</tr>\n");
    }
    pl_html_addf(b, "</tbody></table></div>\n");
}

static bool positions(pl_strbuf *b, const run *r, const cJSON *methods, const group *g) {
    pl_line line[MAX_METHODS];
    int     n = 0, method = -1;
    char    title[96];
    double *block = pl_malloc(sizeof(double[2]) * MAX_METHODS * PL_TREE_MAX), *next = block;
    if (!block) return false;
    const cJSON *m, *rates, *rate;
    cJSON_ArrayForEach(m, methods) {
        method++;
        if (!in_group(r, m, g)) continue;
        if (pl_json_opt_array(&r->results, m, "acceptance_by_position", &rates, NULL) != PL_OK || !rates) continue;
        if (cJSON_GetArraySize(rates) == 0) continue;
        double *x = next, *y = next + PL_TREE_MAX;
        int     k = 0;
        cJSON_ArrayForEach(rate, rates) {
            if (k == PL_TREE_MAX) break;
            x[k] = k + 1;
            y[k++] = cJSON_IsNumber(rate) ? rate->valuedouble : NAN;
        }
        line[n++] = (pl_line){.label = string(r, m, "name"), .x = x, .y = y, .n = k, .colour = method};
        next += 2 * PL_TREE_MAX;
    }
    snprintf(title, sizeof title, "Share of drafts accepted up to a position%s", g->suffix);
    put_positions(b, title, line, n);
    pl_free(block);
    return true;
}

static void describe(pl_strbuf *b, const run *r) {
    const cJSON *machine = pl_json_find(&r->results, NULL, "machine"),
                *set = pl_json_find(&r->results, NULL, "settings");
    if (!cJSON_IsObject(machine) || !cJSON_IsObject(set)) return;
    pl_html_addf(b, "<p>%.0f prompts (", number(r, set, "n_prompts"));
    pl_html_text(b, string(r, set, "prompts"));
    pl_html_addf(b, "), %.0f new tokens at most, batch 1, target ", number(r, set, "max_new_tokens"));
    pl_html_text(b, string(r, set, "target"));
    pl_html_addf(b, ". Measured on ");
    pl_html_text(b, string(r, machine, "cpu"));
    pl_html_addf(b, ", %.0f threads, backend ", number(r, machine, "threads"));
    pl_html_text(b, string(r, machine, "backend"));
    pl_html_addf(b, ", commit ");
    pl_html_text(b, string(r, NULL, "commit"));
    pl_html_addf(
        b, ". Tokens per second and acceptance length leave out prefill and the token it emits; acceptance length "
           "counts the bonus token, so plain decoding has 1. A method is compared with plain decoding at its own "
           "temperature; intervals are over prompts and decoding seeds.</p>\n");
}

// Temperatures, in order of appearance.
static int list_groups(const run *r, const cJSON *methods, double seen[MAX_GROUPS]) {
    int          n = 0;
    const cJSON *m;
    cJSON_ArrayForEach(m, methods) {
        bool known = n == MAX_GROUPS;
        for (int i = 0; i < n && !known; i++)
            known = in_group(r, m, &(group){.temperature = seen[i]});
        if (!known) seen[n++] = number(r, m, "temperature");
    }
    return n;
}

static bool group_charts(pl_strbuf *b, const run *r, const cJSON *methods) {
    double seen[MAX_GROUPS];
    int    n = list_groups(r, methods, seen);
    for (int i = 0; i < n; i++) {
        char  suffix[48] = "";
        group g = {.temperature = seen[i], .suffix = suffix};
        if (n > 1 && isfinite(seen[i])) snprintf(suffix, sizeof suffix, ", temperature %.4g", seen[i]);
        speed_chart(b, r, methods, &g);
        pl_report_tasks(b, &r->results, methods, seen[i], suffix);
        if (!positions(b, r, methods, &g)) return false;
        pl_report_times(b, &r->results, methods, seen[i], suffix);
    }
    return true;
}

// other: what it is set against, or NULL.
static bool run_section(pl_strbuf *b, const run *r, const run *other) {
    const cJSON *methods = pl_json_find(&r->results, NULL, "methods");
    pl_html_addf(b, "<section><h2>");
    pl_html_text(b, r->path);
    pl_html_addf(b, "</h2>\n");
    double seen[MAX_GROUPS];
    int    n = list_groups(r, methods, seen);
    for (int i = 0; i < n; i++)
        pl_report_headline(b, &r->results, methods, seen[i]);
    describe(b, r);
    pl_report_methods(b, &r->results, methods);
    pl_report_harness(b, &r->results, methods);
    bool ok = group_charts(b, r, methods);
    pl_report_planes(b, &r->results, methods);
    pl_report_categories(b, &r->results, methods);
    if (other && other->has_results) pl_report_against(b, &r->results, &other->results, other->path);
    pl_report_provenance(b, &r->results, methods, r->path);
    pl_html_addf(b, "</section>\n");
    return ok;
}

// ---- training curves ----

// What is worth a chart, in order; NULL: not.
static const char *curve_title(const char *key) {
    static const char *const known[][2] = {
        {"loss", "Training loss"},
        {"eval_loss", "Held-out loss"},
        {"eval_bits_per_byte", "Held-out bits per byte"},
        {"eval_accuracy", "Held-out accuracy"},
        {"documents_decoded_length", "Acceptance length of held-out documents, decoded"},
        {"served_decoded_length", "Acceptance length of held-out prompts, as served"},
        {"eval_acceptance_length", "Held-out acceptance length, greedy"},
        {"eval_acceptance_length_sampled", "Held-out acceptance length, sampled"},
        {"eval_mean_shortlist", "Held-out mean of tokens in shortlists"},
        {"tokens_per_second", "Training speed, tokens per second"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key, known[i][0]) == 0) return known[i][1];
    return strstr(key, "acceptance") ? key : NULL;
}

// Length of what all series begin with, up to a slash.
static size_t common_folder(const pl_curves *c) {
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

static const pl_curve *find_curve(const pl_curves *c, const char *series, const char *key) {
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->curve[i].series, series) == 0 && strcmp(c->curve[i].key, key) == 0) return &c->curve[i];
    return NULL;
}

// The last figures of every series, where there are several: what a chart of single points would not show.
static void last_figures(pl_strbuf *b, const pl_curves *c, const char *const *key, int n_keys, size_t skip) {
    pl_html_addf(b, "<div class=\"wide\"><table><thead><tr><th>run</th><th class=\"n\">step</th>");
    for (int k = 0; k < n_keys; k++) {
        pl_html_addf(b, "<th class=\"n\">");
        pl_html_text(b, curve_title(key[k]));
        pl_html_addf(b, "</th>");
    }
    pl_html_addf(b, "</tr></thead><tbody>\n");
    for (int i = 0; i < c->n; i++) {
        const char *series = c->curve[i].series;
        bool        first = true;
        double      step = NAN;
        for (int k = 0; k < i && first; k++)
            first = strcmp(c->curve[k].series, series) != 0;
        if (!first) continue;
        for (int k = 0; k < n_keys; k++) {
            const pl_curve *x = find_curve(c, series, key[k]);
            if (x && x->n) step = fmax(step, x->x[x->n - 1]);
        }
        if (isnan(step)) continue;
        pl_html_addf(b, "<tr><td>");
        pl_html_text(b, series + skip);
        pl_html_addf(b, "</td>");
        pl_report_cell(b, "%.0f", step, 1);
        for (int k = 0; k < n_keys; k++) {
            const pl_curve *x = find_curve(c, series, key[k]);
            pl_report_cell(b, "%.4g", x && x->n ? x->y[x->n - 1] : NAN, 1);
        }
        pl_html_addf(b, "</tr>\n");
    }
    pl_html_addf(b, "</tbody></table></div>\n");
}

// " / eagle3" of a series; "".
static const char *stage_of(const pl_curve *c) {
    const char *at = strstr(c->series, " / ");
    return at ? at : "";
}

static bool same_chart(const pl_curve *a, const pl_curve *b) {
    return strcmp(a->key, b->key) == 0 && strcmp(stage_of(a), stage_of(b)) == 0;
}

// What stands beside curve i, from there on; a series of a single point has no course.
static void curve_chart(pl_strbuf *b, const pl_curves *c, int i, size_t skip) {
    pl_line     line[MAX_LINES];
    int         n = 0;
    char        title[160];
    const char *stage = stage_of(&c->curve[i]);
    for (int k = i; k < c->n && n < MAX_LINES; k++) {
        const pl_curve *x = &c->curve[k];
        if (!same_chart(x, &c->curve[i]) || x->n < 2) continue;
        line[n] = (pl_line){.label = x->series + skip, .x = x->x, .y = x->y, .n = x->n, .colour = n};
        n++;
    }
    snprintf(title, sizeof title, "%.80s%s%.64s", curve_title(c->curve[i].key), *stage ? ", " : "",
             *stage ? stage + 3 : "");
    pl_svg_lines(b, title, "step", line, n, false);
}

static void curve_section(pl_strbuf *b, const pl_curves *c) {
    const char *key[MAX_KEYS];
    int         n_keys = 0;
    size_t      skip = common_folder(c);
    for (int i = 0; i < c->n; i++) {
        bool known = !curve_title(c->curve[i].key), drawn = known;
        for (int k = 0; k < n_keys && !known; k++)
            known = strcmp(key[k], c->curve[i].key) == 0;
        for (int k = 0; k < i && !drawn; k++)
            drawn = same_chart(&c->curve[k], &c->curve[i]);
        if (!known && n_keys == MAX_KEYS) continue;
        if (!known && n_keys == 0) pl_html_addf(b, "<section><h2>Training</h2>\n");
        if (!known) key[n_keys++] = c->curve[i].key;
        if (!drawn) curve_chart(b, c, i, skip);
    }
    if (n_keys) {
        enum { COLUMNS = 7 }; // of a table, so that it fits a page
        pl_html_addf(b, "<h3>At the end</h3>\n");
        for (int k = 0; k < n_keys; k += COLUMNS)
            last_figures(b, c, key + k, n_keys - k < COLUMNS ? n_keys - k : COLUMNS, skip);
        pl_html_addf(b, "</section>\n");
    }
}

// ---- the page ----

// against: the last of them is what the others are compared with, and has no section of its own.
static pl_status put_page(pl_strbuf *b, const run *r, int n, bool against, const pl_curves *c, pl_err *err) {
    const run *other = against ? &r[--n] : NULL;
    pl_html_page_begin(b, TITLE);
    for (int i = 0; i < n; i++)
        if (r[i].has_results && !run_section(b, &r[i], other))
            return pl_fail(err, PL_E_MEMORY, "report: out of memory");
    for (int i = 0; i < n; i++)
        if (pl_path_is_dir(r[i].path)) PL_TRY(pl_report_folder(b, r[i].path, err));
    curve_section(b, c);
    pl_html_page_end(b);
    return PL_OK;
}

static pl_status write_page(const char *path, const char *const *runs, int n_runs, bool against, pl_err *err) {
    pl_curves curves = {0};
    pl_strbuf b = {0};
    char     *text = NULL;
    pl_status st = PL_OK;
    run      *r = pl_calloc((size_t)n_runs + 1, sizeof *r);
    if (!r) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    for (int i = 0; i < n_runs; i++)
        PL_TRY_GOTO(st, done, read_run(&r[i], &curves, runs[i], err));
    if (against && !r[n_runs - 1].has_results)
        PL_TRY_GOTO(st, done, pl_fail(err, PL_E_INPUT, "%s: has no results.json to compare with", runs[n_runs - 1]));
    PL_TRY_GOTO(st, done, put_page(&b, r, n_runs, against, &curves, err));
    size_t bytes = b.n;
    text = pl_strbuf_take(&b);
    if (!text) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", path));
    st = pl_file_write_atomic(path, text, bytes, err);
done:
    for (int i = 0; i < n_runs; i++) {
        pl_json_close(&r[i].results);
        pl_free(r[i].path);
    }
    pl_free(r);
    pl_free(text);
    pl_strbuf_fini(&b);
    pl_curves_fini(&curves);
    return st;
}

bool pl_report_is(const char *front, size_t n) {
    return pl_html_is_page(front, n, TITLE);
}

pl_status pl_report_write(const char *path, const char *const *runs, int n_runs, pl_err *err) {
    return write_page(path, runs, n_runs, false, err);
}

// ---- the command ----

static const pl_cli_option options[] = {{.name = "out",
                                         .letter = 'o',
                                         .type = PL_CLI_TEXT,
                                         .arg = "DIR",
                                         .help = "folder for report.html [the first run's]"},
                                        {.name = "against",
                                         .type = PL_CLI_TEXT,
                                         .arg = "RUN",
                                         .help = "another run: speeds and acceptance of methods that both have"},
                                        {0}};

static pl_status command(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    const char  *out = pl_cli_text(a, "out"), *first = a->positional[0], *against = pl_cli_text(a, "against");
    char        *folder = NULL, *path = NULL;
    const char **runs = NULL;
    int          n = a->n_positional;
    pl_status    st = PL_OK;
    if (!out && !pl_path_is_dir(first)) { // beside a results.json
        folder = pl_sprintf("%.*s", (int)(pl_path_name(first) - first), first);
        if (!folder) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", first);
    }
    const char *dir = out ? out : folder ? folder : first;
    path = pl_path_join(dir, "report.html");
    if (!path) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", first));
    PL_TRY_GOTO(st, done, pl_file_spares(path, pl_report_is, "--out", err));
    if (out) PL_TRY_GOTO(st, done, pl_dir_make(out, err));
    pl_folder_sweep(dir);
    runs = pl_malloc((size_t)(n + 1) * sizeof *runs);
    if (!runs) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", first));
    memcpy(runs, a->positional, (size_t)n * sizeof *runs);
    if (against) runs[n++] = against;
    PL_TRY_GOTO(st, done, write_page(path, runs, n, against != NULL, err));
    if (env->json) {
        pl_json_out_key(env->result, "report");
        pl_json_out_str(env->result, path);
    } else {
        fprintf(env->text, "%s\n", path);
    }
done:
    pl_free(folder);
    pl_free(path);
    pl_free(runs);
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
