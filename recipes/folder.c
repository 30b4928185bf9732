#include "recipes/folder.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <string.h>

void pl_folder_sweep(const char *dir) {
    static const char *const written[] = {
        "recipe.yaml", "results.json",    "report.html",     "examples.csv",          "trace.jsonl",
        "texts.jsonl", "tokenizer.model", "tokenizer.stamp", "events.out.tfevents.*", NULL};
    pl_dir_sweep(dir, written);
}

// Returns true if a line has a comment; in dumps, texts with a '#' are quoted.
static bool has_comment(const char *line, size_t n) {
    const char *mark = memchr(line, '#', n), *quote = memchr(line, '"', n);
    return mark && (!quote || mark < quote);
}

// Returns true if some line has the last name of "train.lr" as its key.
static bool has_key(const char *text, const char *path) {
    const char *dot = strrchr(path, '.'), *name = dot ? dot + 1 : path;
    size_t      n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *key = line + strspn(line, " ");
        if (strncmp(key, name, n) == 0 && key[n] == ':') return true;
    }
    return false;
}

static bool is_dump(const char *text, const pl_key *const tables[], int n_tables) {
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        size_t n = strcspn(line, "\n");
        if (n == 0 || line[n] != '\n' || has_comment(line, n)) return false;
    }
    for (int t = 0; t < n_tables; t++)
        for (const pl_key *row = tables[t]; row->path; row++)
            if (row->deflt && !row->late && !has_key(text, row->path)) return false;
    return true;
}

pl_status pl_recipe_spares(const char *path, const pl_key *const tables[], int n_tables, pl_err *err) {
    uint8_t *text = NULL;
    size_t   n;
    PL_TRY(pl_file_look(path, err));
    if (!pl_path_exists(path)) return PL_OK;
    PL_TRY(pl_file_read(path, &text, &n, PL_RECIPE_MAX_BYTES, err));
    bool dump = memchr(text, 0, n) == NULL && is_dump((const char *)text, tables, n_tables);
    pl_free(text);
    return dump ? PL_OK : pl_file_spares(path, NULL, "--out", err);
}

pl_status pl_recipe_spares_read(const pl_recipe *r, const char *const *field, const char *product, pl_err *err) {
    if (!*field || (!pl_path_within(*field, product) && !pl_path_same(*field, product))) return PL_OK;
    return pl_recipe_fail(r, field, err, "\"%s\" would be written over; give another --out, or move it", *field);
}
