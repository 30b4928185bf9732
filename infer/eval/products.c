#include "infer/eval/products.h"

#include "infer/decode/trace.h"
#include "infer/eval/eval.h"
#include "infer/eval/results.h"
#include "infer/generate/generate.h"
#include "infer/report/report.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "recipes/folder.h"

#include <stdio.h>
#include <string.h>

#define RESULTS_MAX ((size_t)256 << 20) // bytes of results.json

void pl_eval_file(char *out, size_t size, const char *method, const char *tail) {
    snprintf(out, size, "%s%s", method, tail);
    for (char *c = out; *c; c++)
        if (*c == '/') *c = '-';
}

pl_status pl_eval_save(const char *dir, const char *name, const char *text, size_t n, pl_err *err) {
    char     *path = pl_path_join(dir, name);
    pl_status st =
        path ? pl_file_write_atomic(path, text, n, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    return st;
}

static bool begins(const char *front, size_t n, const char *text) {
    return n >= strlen(text) && memcmp(front, text, strlen(text)) == 0;
}

static bool is_results(const char *front, size_t n) {
    return begins(front, n, "{\n \"methods\": [");
}

static bool is_examples(const char *front, size_t n) {
    return begins(front, n, PL_EXAMPLES_HEAD);
}

static const struct {
    const char *name;
    pl_ours_fn  ours;
} files[] = {{"results.json", is_results},
             {"trace.jsonl", pl_trace_is},
             {"report.html", pl_report_is},
             {"examples.csv", is_examples}};

static const struct { const char *name, *tail; } folders[] = {{"samples", ".jsonl"}, {"ceilings", ".json"}};

enum { FILES = sizeof files / sizeof *files, FOLDERS = sizeof folders / sizeof *folders };

static pl_status fail_memory(const char *out_dir, pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
}

// Frees a list of names that ends with NULL.
static void free_names(char **names) {
    for (int i = 0; names && names[i]; i++)
        pl_free(names[i]);
    pl_free(names);
}

static char *pattern_of(const char *method, const char *tail) {
    char file[256], *out, *to;
    pl_eval_file(file, sizeof file, method, tail);
    out = to = pl_malloc(2 * strlen(file) + 1);
    for (const char *c = file; out && *c; c++) {
        if (strchr("\\*?[", *c)) *to++ = '\\';
        *to++ = *c;
    }
    if (out) *to = 0;
    return out;
}

// Lists a file name for each method of out_dir's results.json, none without results, as escaped patterns, which match
// nothing else. The caller frees *names, also on failure.
static pl_status list_names(char ***names, const char *out_dir, const char *tail, pl_err *err) {
    pl_json      j = {0};
    const cJSON *methods = NULL, *m;
    int          n = 0;
    char        *path = pl_path_join(out_dir, "results.json");
    *names = NULL;
    if (!path) return fail_memory(out_dir, err);
    // Damaged results give no names.
    pl_status st = pl_path_exists(path) ? pl_json_open(&j, path, RESULTS_MAX, 0, err) : PL_OK;
    if (st == PL_E_INPUT) st = PL_OK;
    pl_free(path);
    if (st == PL_OK && j.root) pl_json_get_array(&j, NULL, "methods", &methods, NULL);
    if (st == PL_OK) *names = pl_calloc((size_t)(methods ? cJSON_GetArraySize(methods) : 0) + 1, sizeof **names);
    if (st == PL_OK && !*names) st = fail_memory(out_dir, err);
    cJSON_ArrayForEach(m, methods) {
        const cJSON *name = cJSON_GetObjectItem(m, "name");
        if (st != PL_OK || !cJSON_IsString(name)) continue;
        (*names)[n] = pattern_of(name->valuestring, tail);
        if (!(*names)[n++]) st = fail_memory(out_dir, err);
    }
    pl_json_close(&j);
    return st;
}

static pl_status each_folder(const char *out_dir, int                                                            i,
                             pl_status (*fn)(const char *, const char *, const char *const *, pl_err *), pl_err *err) {
    char **names, *path = pl_path_join(out_dir, folders[i].name);
    if (!path) return fail_memory(out_dir, err);
    pl_status st = list_names(&names, out_dir, folders[i].tail, err);
    if (st == PL_OK) st = fn(path, NULL, (const char *const *)names, err);
    free_names(names);
    pl_free(path);
    return st;
}

// Checks a file; with `drop` removes it, unless it is results.json.
static pl_status each_file(const char *out_dir, int i, bool drop, pl_err *err) {
    char *path = pl_path_join(out_dir, files[i].name);
    if (!path) return fail_memory(out_dir, err);
    pl_status st = pl_file_spares(path, files[i].ours, "--out", err);
    if (st == PL_OK && drop && files[i].ours != is_results) st = pl_tree_remove(path, err);
    pl_free(path);
    return st;
}

static pl_status check_read(const pl_recipe *r, const char *out_dir, const char *name, pl_err *err) {
    char *path = pl_path_join(out_dir, name);
    if (!path) return fail_memory(out_dir, err);
    pl_status st = pl_recipe_spares_read(r, &pl_split_recipe_of(r)->eval.prompts, path, err);
    if (st == PL_OK) st = pl_recipe_spares_read(r, &pl_eval_recipe_of(r)->eval.benchmark, path, err);
    pl_free(path);
    return st;
}

pl_status pl_eval_spares(const pl_recipe *r, const char *out_dir, pl_err *err) {
    for (int i = 0; i < FILES; i++) {
        PL_TRY(each_file(out_dir, i, false, err));
        PL_TRY(check_read(r, out_dir, files[i].name, err));
    }
    for (int i = 0; i < FOLDERS; i++) {
        PL_TRY(each_folder(out_dir, i, pl_dir_spares, err));
        PL_TRY(check_read(r, out_dir, folders[i].name, err));
    }
    return PL_OK;
}

pl_status pl_eval_drop(const char *out_dir, pl_err *err) {
    for (int i = 0; i < FOLDERS; i++)
        PL_TRY(each_folder(out_dir, i, pl_dir_drop, err));
    for (int i = 0; i < FILES; i++)
        PL_TRY(each_file(out_dir, i, true, err));
    return PL_OK;
}
