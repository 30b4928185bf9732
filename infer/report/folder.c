// report.html: token lists and ceilings that lie in a run's folder.
#include "data/counts/counts.h"
#include "infer/report/parts.h"
#include "infer/report/svg.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTS 8
#define POINTS 100
#define DEPTHS 32
#define CHARTS 4 // of ceilings by depth that stand open
#define FILE_MAX ((size_t)16 << 20)

static int is_json(const struct dirent *d) {
    size_t n = strlen(d->d_name);
    return d->d_name[0] != '.' && n > 5 && strcmp(d->d_name + n - 5, ".json") == 0;
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
    if (st == PL_OK && there) found = scandir(folder, &entry, is_json, pl_report_by_name);
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

enum { ACHIEVED, CEILING, ORACLE, SUPPORT, TARGET_BEST, HEAD_BEST, HEAD_TOP, RETAINED, ROWS, FIGURES };
static const char *const figures[] = {
    "achieved",         "ceiling",         "oracle",   "support", "recall_target_best",
    "recall_head_best", "recall_head_top", "retained", "rows"};

typedef struct depths {
    int    n;
    double depth[DEPTHS], v[FIGURES][DEPTHS];
} depths;

typedef struct ceilings {
    char   name[96];
    double temperature;
    depths now, greedy; // at the temperature told, and of greedy decoding where that was asked for
} ceilings;

// The list of an object of the file.
static pl_status read_depths(depths *c, const pl_json *j, const cJSON *of, pl_err *err) {
    const cJSON *list, *at;
    PL_TRY(pl_json_get_array(j, of, "ceilings", &list, err));
    cJSON_ArrayForEach(at, list) {
        if (c->n == DEPTHS || !cJSON_IsObject(at)) break;
        c->depth[c->n] = pl_report_num(j, at, "depth");
        for (int k = 0; k < FIGURES; k++)
            c->v[k][c->n] = pl_report_num(j, at, figures[k]);
        // Written with six digits.
        if (c->v[ACHIEVED][c->n] > c->v[CEILING][c->n] + 1e-6 || c->v[CEILING][c->n] > c->v[ORACLE][c->n] + 1e-6)
            return pl_json_fail(j, at, err, "achieved %g, ceiling %g, oracle %g: they must not fall in this order",
                                c->v[ACHIEVED][c->n], c->v[CEILING][c->n], c->v[ORACLE][c->n]);
        c->n++;
    }
    return PL_OK;
}

static pl_status read_ceilings(ceilings *c, const char *path, pl_err *err) {
    pl_json     j;
    const char *name = pl_path_name(path), *given;
    PL_TRY(pl_json_open(&j, path, FILE_MAX, 0, err));
    const cJSON *greedy = pl_json_find(&j, NULL, "greedy");
    given = pl_report_str(&j, NULL, "name");
    if (*given)
        snprintf(c->name, sizeof c->name, "%s", given);
    else
        snprintf(c->name, sizeof c->name, "%.*s", (int)(strlen(name) - 5), name);
    c->temperature = pl_report_num(&j, NULL, "temperature");
    pl_status st = read_depths(&c->now, &j, NULL, err);
    if (st == PL_OK && greedy) st = read_depths(&c->greedy, &j, greedy, err);
    pl_json_close(&j);
    return st;
}

// Mean over all rows, of all depths.
static double mean_of(const depths *c, int figure) {
    double sum = 0, rows = 0;
    for (int i = 0; i < c->n; i++) {
        if (!isfinite(c->v[figure][i]) || !(c->v[ROWS][i] > 0)) continue;
        sum += c->v[figure][i] * c->v[ROWS][i];
        rows += c->v[ROWS][i];
    }
    return rows > 0 ? sum / rows : NAN;
}

static void put_share(pl_strbuf *b, double v) {
    pl_report_cell(b, "%.1f %%", v, 100);
}

static void ceilings_table(pl_strbuf *b, const ceilings *c, int n) {
    static const char *const heads[] = {"achieved",
                                        "ceiling",
                                        "oracle",
                                        "lost to logits",
                                        "lost to the choice of rows",
                                        "target's best in support",
                                        "head's best in support",
                                        "head's best few in support",
                                        "head's distribution retained",
                                        "greedy: right",
                                        "greedy: ceiling"};
    pl_html_addf(
        b, "<p>Means over all draft depths, at the temperature told. Achieved: the sum of min(p, q). Ceiling: p of the "
           "tokens in the head's support, which no logits over it can exceed. Oracle: p of as many of the target's own "
           "best "
           "tokens, which no choice of so many can exceed. The target's best in support: how often its most probable "
           "token is one of the head's. For heads that leave rows unread, against the head read whole: how often its "
           "best token and all of its best few are among those read, and how much of its distribution is. Greedy, at "
           "temperature 0: how often the head's best token is the target's best, and how often the "
           "target's best is among the head's tokens at all.</p>\n"
           "<div class=\"wide\"><table><thead><tr><th>head</th><th class=\"n\">temperature</th>"
           "<th class=\"n\">tokens in support</th>");
    for (size_t k = 0; k < sizeof heads / sizeof *heads; k++)
        pl_html_addf(b, "<th class=\"n\">%s</th>", heads[k]);
    pl_html_addf(b, "</tr></thead><tbody>\n");
    for (int i = 0; i < n; i++) {
        const depths *d = &c[i].now;
        double        achieved = mean_of(d, ACHIEVED), ceiling = mean_of(d, CEILING), oracle = mean_of(d, ORACLE);
        pl_html_addf(b, "<tr><td>");
        pl_html_text(b, c[i].name);
        pl_html_addf(b, "</td>");
        pl_report_cell(b, "%.4g", c[i].temperature, 1);
        pl_report_cell(b, "%.0f", mean_of(d, SUPPORT), 1);
        put_share(b, achieved);
        put_share(b, ceiling);
        put_share(b, oracle);
        put_share(b, ceiling - achieved);
        put_share(b, oracle - ceiling);
        for (int k = TARGET_BEST; k <= RETAINED; k++)
            put_share(b, mean_of(d, k));
        put_share(b, mean_of(&c[i].greedy, ACHIEVED));
        put_share(b, mean_of(&c[i].greedy, CEILING));
        pl_html_addf(b, "</tr>\n");
    }
    pl_html_addf(b, "</tbody></table></div>\n");
}

static void ceilings_chart(pl_strbuf *b, const ceilings *c) {
    static const char *const says[] = {"achieved: sum of min(p, q)", "ceiling: p of the head's tokens",
                                       "oracle: the target's own best tokens, as many",
                                       "greedy: the head's best is the target's best",
                                       "greedy: the target's best is among the head's tokens"};
    pl_line                  line[sizeof says / sizeof *says];
    char                     title[160];
    int                      n = 0;
    for (int k = ACHIEVED; k <= ORACLE; k++, n++)
        line[n] = (pl_line){.label = says[n], .x = c->now.depth, .y = c->now.v[k], .n = c->now.n, .colour = n + 1};
    for (int k = ACHIEVED; k <= CEILING && c->greedy.n; k++, n++)
        line[n] =
            (pl_line){.label = says[n], .x = c->greedy.depth, .y = c->greedy.v[k], .n = c->greedy.n, .colour = n + 1};
    snprintf(title, sizeof title, "%s", c->name);
    if (isfinite(c->temperature)) snprintf(title, sizeof title, "%s, temperature %.4g", c->name, c->temperature);
    if (c->now.n) pl_svg_lines(b, title, "draft depth", line, n, true);
}

static pl_status ceilings_section(pl_strbuf *b, const char *dir, pl_err *err) {
    char     *path[PL_REPORT_METHODS];
    ceilings *c = NULL;
    int       n;
    pl_status st = list_files(path, &n, PL_REPORT_METHODS, dir, "ceilings", err);
    if (n && st == PL_OK) {
        c = pl_calloc((size_t)n, sizeof *c);
        if (!c) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    }
    for (int i = 0; i < n && st == PL_OK; i++)
        st = read_ceilings(&c[i], path[i], err);
    if (n && st == PL_OK) {
        pl_html_addf(b, "<section><h2>Ceilings of ");
        pl_html_text(b, dir);
        pl_html_addf(b, "</h2>\n");
        ceilings_table(b, c, n);
        if (n > CHARTS) pl_html_addf(b, "<details><summary>By draft depth</summary>\n");
        for (int i = 0; i < n; i++)
            ceilings_chart(b, &c[i]);
        if (n > CHARTS) pl_html_addf(b, "</details>\n");
        pl_html_addf(b, "</section>\n");
    }
    pl_free(c);
    drop_files(path, n);
    return st;
}

pl_status pl_report_folder(pl_strbuf *b, const char *dir, pl_err *err) {
    PL_TRY(coverage_section(b, dir, err));
    return ceilings_section(b, dir, err);
}
