// inspect: datasets, token files, recipes, prompts, results and whole runs.
#include "data/dataset/dataset.h"
#include "data/dataset/tokens.h"
#include "data/text/prompts.h"
#include "infer/inspect/parts.h"
#include "infer/report/curves.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RESULTS_MAX ((size_t)64 << 20) // a thousand methods and prompts have some 10 MB

static pl_status put_folder_bytes(pl_json_out *o, const char *path, pl_err *err) {
    double sum = 0;
    DIR   *d = opendir(path);
    bool   ok = d != NULL;
    while (ok) {
        struct stat s;
        errno = 0;
        struct dirent *e = readdir(d);
        ok = e ? fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 : errno == 0;
        if (!ok || !e) break;
        if (S_ISREG(s.st_mode)) sum += (double)s.st_size;
    }
    pl_status st = ok ? PL_OK : pl_fail_errno(err, "%s: cannot read the folder", path);
    if (d) closedir(d);
    pl_put_num(o, "bytes", sum);
    return st;
}

static void put_dataset(pl_json_out *o, pl_dataset *ds) {
    const pl_dataset_attrs *a = pl_dataset_get_attrs(ds);
    pl_put_int(o, "documents", pl_dataset_docs(ds));
    pl_put_int(o, "rows", pl_dataset_rows(ds));
    pl_put_bool(o, "complete", pl_dataset_complete(ds));
    pl_put_str(o, "fingerprint", pl_dataset_fingerprint(ds));
    pl_put_str(o, "target_fingerprint", a->target_fingerprint);
    pl_put_str(o, "tokenizer_fingerprint", a->tokenizer_fingerprint);
    pl_put_str(o, "template", a->template_name);
    pl_put_str(o, "generation", a->generation);
    pl_put_int(o, "vocab", a->vocab_size);
    pl_put_int(o, "hidden_size", a->d);
    pl_put_ids(o, "taps", a->tap_layer_ids, a->A);
    pl_put_str(o, "tap_numbering", "layer inputs");
}

// Writes how many rows are answers, which a drafter learns from.
static pl_status put_answers(pl_json_out *o, pl_dataset *ds, pl_err *err) {
    enum { AT_ONCE = 1 << 16 };
    static uint8_t mask[AT_ONCE];
    int64_t        rows = pl_dataset_rows(ds), answers = 0;
    for (int64_t at = 0; at < rows; at += AT_ONCE) {
        int64_t n = rows - at < AT_ONCE ? rows - at : AT_ONCE;
        PL_TRY(pl_dataset_read(ds, at, n, &(pl_columns){.loss_mask = mask}, err));
        for (int64_t i = 0; i < n; i++)
            answers += mask[i];
    }
    pl_put_int(o, "answer_rows", answers);
    return PL_OK;
}

pl_status pl_inspect_dataset(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    if (!pl_path_is_dir(path)) return pl_fail(err, PL_E_INPUT, "%s: one shard of a dataset; inspect its folder", path);
    pl_dataset             *ds;
    pl_dataset_open_options oo = {.lazy = !opt->full_hash, .incomplete = true};
    PL_TRY(pl_dataset_open(&ds, path, &oo, err));
    pl_put_str(o, "kind", "dataset");
    put_dataset(o, ds);
    pl_status st = put_folder_bytes(o, path, err);
    pl_put_bool(o, "checksums_verified", opt->full_hash);
    if (st == PL_OK && opt->full_hash) st = put_answers(o, ds, err);
    pl_dataset_close(ds);
    return st;
}

pl_status pl_inspect_tokens(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    (void)opt;
    pl_tokens *t;
    PL_TRY(pl_tokens_open(&t, path, NULL, err));
    pl_put_str(o, "kind", "token file");
    pl_put_int(o, "documents", t->n_docs);
    pl_put_int(o, "tokens", t->n);
    pl_put_int(o, "vocab", t->vocab_size);
    pl_put_str(o, "tokenizer_fingerprint", t->fingerprint);
    pl_put_int(o, "bits_per_id", 8 * t->id_bytes);
    pl_put_num(o, "bytes", (double)t->map_bytes);
    pl_tokens_close(t);
    return PL_OK;
}

static pl_status put_recipe(pl_json_out *o, const pl_recipe *r, pl_err *err) {
    char hash[17], *text;
    PL_TRY(pl_recipe_hash(r, 0, hash, err));
    PL_TRY(pl_recipe_dump(r, &text, err));
    pl_put_str(o, "hash", hash);
    pl_put_str(o, "effective", text);
    pl_free(text);
    return PL_OK;
}

pl_status pl_inspect_recipe(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    const pl_env *env = opt->env;
    pl_recipe    *r;
    PL_TRY(pl_recipe_open(&r, path, env->keys, env->n_keys, NULL, 0, err));
    pl_put_str(o, "kind", "recipe");
    pl_status st = put_recipe(o, r, err);
    pl_recipe_close(r);
    return st;
}

pl_status pl_inspect_prompts(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    (void)opt;
    pl_prompts *p;
    PL_TRY(pl_prompts_read(&p, path, err));
    int64_t bytes = 0, longest = 0, categories = 0;
    for (int64_t i = 0; i < p->n; i++) {
        int64_t n = (int64_t)strlen(p->p[i].text);
        bytes += n;
        if (n > longest) longest = n;
        bool seen = !*p->p[i].category;
        for (int64_t k = i; k > 0 && !seen; k--)
            seen = strcmp(p->p[k - 1].category, p->p[i].category) == 0;
        categories += !seen;
    }
    pl_put_str(o, "kind", "prompts");
    pl_put_int(o, "prompts", p->n);
    pl_put_int(o, "categories", categories);
    pl_put_num(o, "mean_bytes", (double)bytes / (double)p->n);
    pl_put_int(o, "longest_bytes", longest);
    pl_prompts_destroy(p);
    return PL_OK;
}

// ---- runs ----

static double number(const pl_json *j, const cJSON *m, const char *key) {
    double v;
    return pl_json_opt_num(j, m, key, -HUGE_VAL, HUGE_VAL, NAN, &v, NULL) == PL_OK ? v : NAN;
}

static pl_status put_methods(pl_json_out *o, const char *path, pl_err *err) {
    pl_json      j;
    const cJSON *methods, *m;
    PL_TRY(pl_json_open(&j, path, RESULTS_MAX, 0, err));
    pl_status st = pl_json_get_array(&j, NULL, "methods", &methods, err);
    if (st == PL_OK) {
        pl_put_array(o, "methods");
        cJSON_ArrayForEach(m, methods) {
            const char *name = "";
            bool        same = false;
            if (!cJSON_IsObject(m)) continue;
            pl_json_opt_str(&j, m, "name", "", &name, NULL);
            bool known = pl_json_find(&j, m, "identical_outputs") != NULL;
            pl_json_opt_bool(&j, m, "identical_outputs", false, &same, NULL);
            pl_json_out_object(o);
            pl_put_str(o, "name", name);
            pl_put_num(o, "tokens_per_second", number(&j, m, "tokens_per_second"));
            pl_put_num(o, "speedup", number(&j, m, "speedup"));
            pl_put_num(o, "acceptance_length", number(&j, m, "acceptance_length"));
            pl_json_out_key(o, "identical_outputs");
            if (known)
                pl_json_out_bool(o, same);
            else
                pl_json_out_null(o); // results of a verifier that does not promise identical outputs
            pl_json_out_close(o, '}');
        }
        pl_json_out_close(o, ']');
    }
    pl_json_close(&j);
    return st;
}

pl_status pl_inspect_results(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    (void)opt;
    pl_put_str(o, "kind", "results");
    return put_methods(o, path, err);
}

// Writes the last value of every curve of metrics.jsonl.
static pl_status put_metrics(pl_json_out *o, const char *path, pl_err *err) {
    pl_curves c = {0};
    pl_status st = pl_curves_read(&c, "metrics", path, err);
    if (st == PL_OK) {
        pl_put_array(o, "metrics");
        for (int i = 0; i < c.n; i++) {
            const pl_curve *k = &c.curve[i];
            pl_json_out_object(o);
            pl_put_str(o, "series", k->series);
            pl_put_str(o, "key", k->key);
            pl_put_num(o, "step", k->x[k->n - 1]);
            pl_put_num(o, "last", k->y[k->n - 1]);
            pl_json_out_close(o, '}');
        }
        pl_json_out_close(o, ']');
    }
    pl_curves_fini(&c);
    return st;
}

static int visible(const struct dirent *d) {
    return d->d_name[0] != '.';
}

static pl_status put_checkpoints(pl_json_out *o, const char *path, pl_err *err) {
    struct dirent **entry = NULL;
    int             n = scandir(path, &entry, visible, alphasort);
    pl_status       st = n < 0 ? pl_fail_errno(err, "%s: cannot read the folder", path) : PL_OK;
    pl_put_array(o, "checkpoints");
    for (int i = 0; i < n; i++) {
        char *folder = st == PL_OK ? pl_path_join(path, entry[i]->d_name) : NULL;
        bool  drafter, is_dir = false;
        if (st == PL_OK && !folder) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        if (st == PL_OK) st = pl_path_look_dir(folder, &is_dir, err);
        if (st == PL_OK && is_dir) {
            st = pl_inspect_is_drafter(folder, &drafter, err);
            pl_json_out_object(o);
            pl_put_str(o, "name", entry[i]->d_name);
            pl_put_str(o, "kind", drafter ? "drafter" : "model");
            if (st == PL_OK) st = put_folder_bytes(o, folder, err);
            pl_json_out_close(o, '}');
        }
        pl_free(folder);
        free(entry[i]);
    }
    free(entry);
    pl_json_out_close(o, ']');
    return st;
}

static pl_status put_run_dataset(pl_json_out *o, const char *path, pl_err *err) {
    pl_dataset *ds;
    PL_TRY(pl_dataset_open(&ds, path, &(pl_dataset_open_options){.lazy = true, .incomplete = true}, err));
    pl_put_object(o, "dataset");
    put_dataset(o, ds);
    pl_json_out_close(o, '}');
    pl_dataset_close(ds);
    return PL_OK;
}

pl_status pl_inspect_run(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    (void)opt;
    static const struct {
        const char *name;
        pl_status (*put)(pl_json_out *o, const char *path, pl_err *err);
    } parts[] = {{"dataset", put_run_dataset},
                 {"checkpoints", put_checkpoints},
                 {"metrics.jsonl", put_metrics},
                 {"results.json", put_methods}};
    pl_put_str(o, "kind", "run");
    pl_status st = PL_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && st == PL_OK; i++) {
        char *part = pl_path_join(path, parts[i].name);
        if (!part) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        if (pl_path_exists(part)) st = parts[i].put(o, part, err);
        pl_free(part);
    }
    return st;
}
