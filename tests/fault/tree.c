#include "tree.h"

#include "checkpoints/safetensors.h"
#include "checkpoints/state.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool ends(const char *s, const char *with) {
    size_t n = strlen(s), k = strlen(with);
    return n >= k && strcmp(s + n - k, with) == 0;
}

static bool begins(const char *s, const char *with) {
    return strncmp(s, with, strlen(with)) == 0;
}

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "the test itself failed: %s\n", what);
    abort();
}

static uint8_t *slurp(const char *path, size_t *n) {
    uint8_t *data;
    pl_err   err = {0};
    must(pl_file_read(path, &data, n, (size_t)1 << 30, &err) == PL_OK, err.msg);
    return data;
}

// Whether text[i] is the value of a key that ends so.
static bool of_key(const char *text, size_t i, const char *key) {
    size_t n = strlen(key);
    return i > n && memcmp(text + i - n, key, n) == 0;
}

// Numbers with a point, or of a key that tells time or memory, are measured anew by every run.
uint64_t tree_sense(const char *name, const char *text, size_t n) {
    bool results = ends(name, "results.json") || ends(name, "stdout") || ends(name, ".csv"),
         lines = ends(name, ".jsonl");
    uint64_t h = pl_hash(name, strlen(name));
    if (ends(name, "report.html") || ends(name, ".lock")) return h;
    if (!results && !lines) return pl_hash_more(h, text, n);
    for (size_t i = 0; i < n;) {
        // The machine is described as far as it lets itself be looked at.
        if (results && n - i > 9 && memcmp(text + i, "\"machine\"", 9) == 0)
            while (i < n && text[i] != '}')
                i++;
        size_t k = i;
        while (k < n && strchr("-+.eE0123456789", text[k]))
            k++;
        bool number = k > i && i > 0 && strchr(":, [", text[i - 1]);
        bool rate = of_key(text, i, "_second\":") || of_key(text, i, "seconds\":") || of_key(text, i, "\"time\":") ||
                    of_key(text, i, "memory_bytes\":");
        bool real = number && (memchr(text + i, '.', k - i) || memchr(text + i, 'e', k - i));
        bool measured = number && (rate || (results && real));
        if (k == i) k = i + 1;
        if (!measured) h = pl_hash_more(h, text + i, k - i);
        i = k;
    }
    return h;
}

static void add(tree *t, const char *dir, const char *path) {
    char full[1024];
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->file = realloc(t->file, (size_t)t->cap * sizeof *t->file);
        must(t->file, "memory");
    }
    snprintf(full, sizeof full, "%.480s/%.500s", dir, path);
    size_t   n;
    uint8_t *data = slurp(full, &n);
    t->file[t->n++] =
        (tree_file){.path = strdup(path), .hash = pl_hash(data, n), .sense = tree_sense(path, (const char *)data, n)};
    free(data);
}

static void walk(tree *t, const char *dir, const char *below) {
    char full[1024], path[1024];
    snprintf(full, sizeof full, "%.480s/%.500s", dir, below);
    DIR *d = opendir(full);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        // metrics.jsonl says what these say; their names tell when and by which process (train/loop/events.h), and so
        // does the list of them.
        bool list = strcmp(e->d_name, "events") == 0 && ends(below, ".stamps");
        if (list || begins(e->d_name, "events.out.tfevents.")) continue;
        bool ours = strcmp(e->d_name, ".lock") == 0 || strcmp(e->d_name, ".stamps") == 0;
        snprintf(path, sizeof path, "%.480s%s%.300s", below, *below ? "/" : "", e->d_name);
        snprintf(full, sizeof full, "%.480s/%.500s", dir, path);
        if (e->d_name[0] == '.' && !ours)
            t->left_over++;
        else if (pl_path_is_dir(full))
            walk(t, dir, path);
        else
            add(t, dir, path);
    }
    closedir(d);
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const tree_file *)a)->path, ((const tree_file *)b)->path);
}

void tree_read(tree *t, const char *dir) {
    *t = (tree){0};
    walk(t, dir, "");
    if (t->n) qsort(t->file, (size_t)t->n, sizeof *t->file, by_path);
}

void tree_fini(tree *t) {
    for (int i = 0; i < t->n; i++)
        free(t->file[i].path);
    free(t->file);
    *t = (tree){0};
}

const tree_file *tree_find(const tree *t, const char *path) {
    tree_file key = {.path = (char *)path};
    return t->n ? bsearch(&key, t->file, (size_t)t->n, sizeof key, by_path) : NULL;
}

bool tree_same(const tree *a, const tree *b, char why[512]) {
    for (int i = 0; i < a->n; i++) {
        const tree_file *other = tree_find(b, a->file[i].path);
        if (other && other->sense == a->file[i].sense) continue;
        snprintf(why, 512, "%s %s", a->file[i].path, other ? "differs" : "is one too many");
        return false;
    }
    for (int i = 0; i < b->n; i++)
        if (!tree_find(a, b->file[i].path)) {
            snprintf(why, 512, "%s is missing", b->file[i].path);
            return false;
        }
    return true;
}

// Lines of JSON; what stands behind the last line end is a line that a failure cut, which the next run takes away.
static bool lines_whole(const char *path) {
    size_t   n, at = 0;
    uint8_t *data = slurp(path, &n);
    bool     ok = true;
    for (size_t end = 0; ok && end < n; end++) {
        pl_json j;
        if (data[end] != '\n') continue;
        ok = pl_json_parse(&j, path, 1, (const char *)data + at, end - at, 0, NULL) == PL_OK;
        if (ok) pl_json_close(&j);
        at = end + 1;
    }
    free(data);
    return ok;
}

// Files that a run replaces while it goes on: read as their readers do.
static bool opens(const char *path, char why[512]) {
    pl_err    err = {0};
    pl_status st = PL_OK;
    pl_st    *set = NULL;
    pl_state *state = NULL;
    pl_json   json;
    if (ends(path, ".safetensors")) {
        st = pl_st_open(&set, path, &err);
        pl_st_close(set);
    } else if (ends(path, "training_state")) {
        st = pl_state_open(&state, path, &err);
        pl_state_close(state);
    } else if (ends(path, ".json")) {
        st = pl_json_open(&json, path, (size_t)1 << 28, 0, &err);
        if (st == PL_OK) pl_json_close(&json);
    } else if (ends(path, ".jsonl")) {
        st = lines_whole(path) ? PL_OK : pl_fail(&err, PL_E_INPUT, "%s: a broken line", path);
    } else if (ends(path, ".csv")) {
        size_t   n;
        uint8_t *data = slurp(path, &n);
        st = n > 0 && data[n - 1] == '\n' ? PL_OK : pl_fail(&err, PL_E_INPUT, "%s: cut", path);
        free(data);
    } else if (ends(path, "report.html")) {
        size_t   n;
        uint8_t *data = slurp(path, &n);
        bool     ok = n > 8 && strstr((const char *)data + n - 9, "</html>");
        st = ok ? PL_OK : pl_fail(&err, PL_E_INPUT, "%s: cut", path);
        free(data);
    } else {
        st = pl_fail(&err, PL_E_INPUT, "%s: neither the old file nor the new one", path);
    }
    snprintf(why, 512, "%.500s", err.msg);
    return st == PL_OK;
}

// A checkpoint that waits beside `last` under its step's name is what `last` becomes.
static const tree_file *awaited(const tree *whole, const char *path) {
    const char *step = strstr(path, "/step-"), *rest = step ? strchr(step + 1, '/') : NULL;
    char        last[1024];
    if (!rest) return NULL;
    snprintf(last, sizeof last, "%.*s/last%.400s", (int)(step - path), path, rest);
    return tree_find(whole, last);
}

bool tree_whole(const char *dir, const tree *now, const tree *old, const tree *whole, char why[512]) {
    for (int i = 0; i < now->n; i++) {
        const tree_file *f = &now->file[i], *a = tree_find(old, f->path), *b = tree_find(whole, f->path);
        char             full[1024];
        if (!a && !b) b = awaited(whole, f->path);
        if ((a && a->hash == f->hash) || (b && b->hash == f->hash)) continue;
        snprintf(full, sizeof full, "%.480s/%.500s", dir, f->path);
        if (!opens(full, why)) return false;
    }
    return true;
}

void tree_copy(const char *from, const char *to) {
    tree t;
    must(pl_dir_make(to, NULL) == PL_OK, to);
    tree_read(&t, from);
    for (int i = 0; i < t.n; i++) {
        char a[1024], b[1024];
        snprintf(a, sizeof a, "%.480s/%.500s", from, t.file[i].path);
        snprintf(b, sizeof b, "%.480s/%.500s", to, t.file[i].path);
        *strrchr(b, '/') = 0;
        must(pl_dir_make(b, NULL) == PL_OK, b);
        b[strlen(b)] = '/';
        size_t   n;
        uint8_t *data = slurp(a, &n);
        FILE    *f = fopen(b, "wb");
        must(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, b);
        free(data);
    }
    tree_fini(&t);
}
