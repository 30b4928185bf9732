// `eval`: from a recipe to results.json.
#include "infer/cli/show.h"
#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "infer/inspect/parts.h"
#include "infer/report/report.h"
#include "kernels/base/files.h"
#include "kernels/base/json_put.h"
#include "kernels/base/log.h"

#include <string.h>

#define MAX_DRAFTERS 64

static const pl_recipe_key drafter_keys[] = {
    {.path = "name", .type = PL_RECIPE_STRING, .help = "in tables; the drafter's kind where absent"},
    {.path = "path", .type = PL_RECIPE_PATH, .help = "a checkpoint's folder"},
    {.path = "kind",
     .type = PL_RECIPE_STRING,
     .help = "instead of path: a drafter without a checkpoint, lookup[:N[,MAX]] or recycle[:NODES[,keep]]"},
    {.path = "drafter", .type = PL_RECIPE_STRING, .help = "instead of path: one of this recipe's `drafters`, by name"},
    {.path = "tree",
     .type = PL_RECIPE_STRING,
     .help = "how it drafts; where absent, its own shape, for checkpoints eval.tree"},
    {.path = "verify", .type = PL_RECIPE_STRING, .help = "how drafts are accepted; match where absent"},
    {0}};

const pl_recipe_key pl_eval_keys[] = {
    {.path = "eval.prompts",
     .type = PL_RECIPE_PATH,
     .help = "prompts to evaluate on; without it, what eval.holdout keeps back of data.prompts"},
    {.path = "eval.holdout",
     .type = PL_RECIPE_INT,
     .deflt = "50",
     .min = 1,
     .max = 1e9,
     .help = "prompts of data.prompts kept back for evaluation, where eval.prompts is absent"},
    {.path = "eval.max_new_tokens",
     .type = PL_RECIPE_INT,
     .deflt = "128",
     .min = 2,
     .max = 1 << 20,
     .help = "length of an answer at most",
     .stages = PL_EVAL_STAGE},
    {.path = "eval.temperatures",
     .type = PL_RECIPE_REAL_LIST,
     .deflt = "[0]",
     .min = 0,
     .max = 1000,
     .help = "every method at each of them; 0: greedy",
     .stages = PL_EVAL_STAGE},
    {.path = "eval.seeds",
     .type = PL_RECIPE_INT,
     .deflt = "5",
     .min = 1,
     .max = 1000,
     .help = "decodings of each prompt, with seeds of their own, at temperatures above 0",
     .stages = PL_EVAL_STAGE},
    {.path = "eval.repeats",
     .type = PL_RECIPE_INT,
     .deflt = "1",
     .min = 1,
     .max = 1000,
     .help = "times that every method answers every prompt",
     .stages = PL_EVAL_STAGE},
    {.path = "eval.limit",
     .type = PL_RECIPE_INT,
     .deflt = "0",
     .min = 0,
     .max = 1e9,
     .help = "prompts at most, evenly chosen; 0: all",
     .stages = PL_EVAL_STAGE},
    {.path = "eval.tree",
     .type = PL_RECIPE_STRING,
     .deflt = "auto",
     .help = "checkpoints': " PL_TREE_HELP,
     .stages = PL_EVAL_STAGE},
    {.path = "eval.plain_fp32",
     .type = PL_RECIPE_BOOL,
     .deflt = "true",
     .help = "also time plain decoding with fp32 weights",
     .stages = PL_EVAL_STAGE},
    {.path = "eval.ceilings",
     .type = PL_RECIPE_INT,
     .deflt = "0",
     .min = 0,
     .max = 1e9,
     .help = "drafts of each checkpoint's head held against what its support allows, in ceilings/; 0: none",
     .stages = PL_EVAL_STAGE},
    {.path = "eval.drafters",
     .type = PL_RECIPE_LIST_OF_MAPS,
     .deflt = "[]",
     .item = drafter_keys,
     .help = "further methods to time beside the run's own drafters",
     .stages = PL_EVAL_STAGE},
    {0}};

static const char *known(const pl_recipe *r, const char *path) {
    return pl_recipe_knows(r, path) ? pl_recipe_str(r, path) : NULL;
}

static pl_status read_prompts(const pl_recipe *r, pl_prompts **held, const char **name, pl_err *err) {
    *held = NULL;
    *name = pl_recipe_str(r, "eval.prompts");
    if (*name) return pl_prompts_read(held, *name, err);
    *name = known(r, "data.prompts");
    if (!*name)
        return pl_fail(err, PL_E_INPUT, "eval.prompts: is missing, and so is data.prompts; name a file of prompts");
    pl_prompts *train;
    PL_TRY(pl_recipe_prompts(r, &train, held, err));
    pl_prompts_destroy(train);
    return PL_OK;
}

// What will be evaluated beside plain decoding.
typedef struct chosen {
    pl_eval_drafter d[MAX_DRAFTERS];
    char           *owned[MAX_DRAFTERS]; // folders found here
    int             n, own;              // the first `own` are the run's
} chosen;

static pl_status add(chosen *c, const pl_eval_drafter *d, const char *tree, pl_err *err) {
    if (c->n == MAX_DRAFTERS) return pl_fail(err, PL_E_INPUT, "more than %d drafters in one evaluation", MAX_DRAFTERS);
    c->d[c->n] = *d;
    if (!d->tree || !*d->tree) c->d[c->n].tree = tree;
    c->n++;
    return PL_OK;
}

// A run's checkpoint: best where an evaluation chose one, else last; *dir NULL where it has trained none.
static pl_status find_checkpoint(char **dir, const char *run, pl_err *err) {
    static const char *const names[] = {"best", "last"};
    *dir = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !*dir; i++) {
        char *folder = pl_sprintf("%s/checkpoints/%s", run, names[i]), *config = pl_path_join(folder, "config.json");
        bool  memory = folder && config, there = memory && pl_path_exists(config);
        pl_free(config);
        if (there)
            *dir = folder;
        else
            pl_free(folder);
        if (!memory) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", run);
    }
    return PL_OK;
}

const char *pl_eval_own_tree(const pl_recipe *r, int i) {
    const pl_recipe *item = i >= 0 ? pl_recipe_item(r, "drafters", i) : NULL;
    bool             own = item && pl_recipe_knows(item, "kind") && pl_recipe_has(item, "kind");
    const char      *kind = own ? pl_recipe_str(item, "kind") : known(r, "drafter.kind");
    if (!pl_recipe_has(r, "eval.tree") && kind && strcmp(kind, "eagle2") == 0) return "eagle2:60,10,6";
    return pl_recipe_str(r, "eval.tree");
}

// The run's own: the one trained in out_dir, and those of the list `drafters` in out_dir/drafters/NAME.
static pl_status choose_own(chosen *c, const pl_recipe *r, const char *out_dir, pl_err *err) {
    char *dir;
    PL_TRY(find_checkpoint(&dir, out_dir, err));
    if (dir) {
        c->owned[c->n] = dir;
        PL_TRY(add(c, &(pl_eval_drafter){.drafter = dir}, pl_eval_own_tree(r, -1), err));
    }
    int n = pl_recipe_knows(r, "drafters") ? pl_recipe_list_count(r, "drafters") : 0;
    for (int i = 0; i < n; i++) {
        const char *name = pl_recipe_str(pl_recipe_item(r, "drafters", i), "name");
        char       *run = pl_sprintf("%s/drafters/%s", out_dir, name ? name : "");
        pl_status st = run ? find_checkpoint(&dir, run, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
        pl_free(run);
        if (st != PL_OK || !dir) {
            PL_TRY(st);
            continue;
        }
        st = add(c, &(pl_eval_drafter){.name = name, .drafter = dir}, pl_eval_own_tree(r, i), err);
        if (st != PL_OK) {
            pl_free(dir);
            return st;
        }
        c->owned[c->n - 1] = dir;
    }
    return PL_OK;
}

// The folder of the run's drafter that eval.drafters[...].drafter names.
static pl_status find_own(const chosen *c, const pl_recipe *item, const char *name, const char **dir, pl_err *err) {
    for (int i = 0; i < c->own; i++)
        if (c->d[i].name && strcmp(c->d[i].name, name) == 0) {
            *dir = c->d[i].drafter;
            return PL_OK;
        }
    return pl_recipe_fail(item, "drafter", err, "\"%s\" is none of the recipe's `drafters` that has been trained",
                          name);
}

static pl_status choose_others(chosen *c, const pl_recipe *r, const char *tree, pl_err *err) {
    static const char *const ways[] = {"path", "kind", "drafter"};
    c->own = c->n;
    for (int i = 0; i < pl_recipe_list_count(r, "eval.drafters"); i++) {
        const pl_recipe *item = pl_recipe_item(r, "eval.drafters", i);
        const char      *way = NULL;
        pl_eval_drafter  d = {.name = pl_recipe_str(item, "name"),
                              .tree = pl_recipe_str(item, "tree"),
                              .verify = pl_recipe_str(item, "verify")};
        for (int k = 0; k < 3; k++) {
            if (!pl_recipe_has(item, ways[k])) continue;
            if (way) return pl_recipe_fail(item, ways[k], err, "stands beside `%s`; give one of them", way);
            way = ways[k];
        }
        if (!way) PL_TRY(pl_recipe_require(item, "path", err));
        d.drafter = pl_recipe_str(item, way);
        if (strcmp(way, "drafter") == 0) PL_TRY(find_own(c, item, d.drafter, &d.drafter, err));
        bool folder = pl_drafter_is_folder(d.drafter);
        if (strcmp(way, "kind") == 0 && folder)
            return pl_recipe_fail(item, "kind", err,
                                  "\"%s\" is no drafter without a checkpoint; take `path` for folders", d.drafter);
        if (strcmp(way, "path") == 0 && !folder)
            return pl_recipe_fail(item, "path", err,
                                  "\"%s\" names a drafter without a checkpoint; take `kind`, or ./%s", d.drafter,
                                  d.drafter);
        PL_TRY(add(c, &d, folder ? tree : NULL, err));
    }
    return PL_OK;
}

static bool trains_target(const pl_recipe *r) {
    return pl_recipe_knows(r, "kind") && strcmp(pl_recipe_str(r, "kind"), "target") == 0;
}

// ---- ceilings ----

#define CEILINGS_DEPTH 4
#define CEILINGS_BEST 4

// Once for each checkpoint, whatever trees and temperatures it was evaluated with.
static bool seen_before(const pl_results *r, int m) {
    for (int k = 0; k < m; k++)
        if (r->method[k].checkpoint && strcmp(r->method[k].checkpoint, r->method[m].checkpoint) == 0) return true;
    return false;
}

static pl_status write_ceilings(const pl_env *env, const pl_eval_options *o, const pl_method *m, const char *dir,
                                pl_inspect_ceilings_options *opt, pl_err *err) {
    pl_json_out out;
    pl_json_out_begin(&out, 1);
    pl_json_out_object(&out);
    pl_put_str(&out, "name", m->name);
    opt->drafter = m->checkpoint;
    pl_status st = pl_inspect_ceilings(&out, env, o->target, o->path, opt, err);
    if (st != PL_OK) {
        pl_show_abort(&out);
        return st;
    }
    pl_json_out_close(&out, '}');
    PL_TRY(pl_json_out_end(&out, err));
    char *path = pl_sprintf("%s/%s.json", dir, m->name);
    for (char *c = path ? path + strlen(dir) + 1 : NULL; c && *c; c++)
        if (*c == '/') *c = '-';
    st =
        path ? pl_file_write_atomic(path, out.text, out.len, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    pl_free(out.text);
    return st;
}

// dir/METHOD.json (infer/inspect/ceilings.h), with distributions at the first temperature above 0, at which answers are
// drawn then; where there is none, at 1, along greedy answers.
static pl_status put_ceilings(const pl_env *env, const pl_eval_options *o, const pl_results *r, const char *dir,
                              int64_t positions, pl_err *err) {
    pl_inspect_ceilings_options opt = {.prompts = o->prompts_name,
                                       .texts = o->prompts,
                                       .seed = o->seed,
                                       .positions = positions,
                                       .depth = CEILINGS_DEPTH,
                                       .n_best = CEILINGS_BEST,
                                       .temperature = 1};
    pl_progress                 p;
    pl_status                   st = PL_OK;
    for (int i = 0; i < o->n_temperatures && !opt.sampled; i++) {
        opt.sampled = o->temperature[i] > 0;
        if (opt.sampled) opt.temperature = o->temperature[i];
    }
    pl_progress_begin(&p, "ceilings", 0, r->n_methods);
    for (int m = 0; m < r->n_methods && st == PL_OK; m++) {
        if (r->method[m].checkpoint && !seen_before(r, m)) st = write_ceilings(env, o, &r->method[m], dir, &opt, err);
        pl_progress_update(&p, m + 1, "methods");
    }
    pl_progress_end(&p);
    return st;
}

// Those of an earlier evaluation go, for the report would show them beside these results; positions 0: no new ones.
static pl_status renew_ceilings(const pl_env *env, const pl_eval_options *o, const pl_results *r, const char *out_dir,
                                int64_t positions, pl_err *err) {
    char     *dir = pl_path_join(out_dir, "ceilings");
    pl_status st = dir ? pl_tree_remove(dir, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK && positions > 0) st = pl_dir_make(dir, err);
    if (st == PL_OK && positions > 0) st = put_ceilings(env, o, r, dir, positions, err);
    pl_free(dir);
    return st;
}

static pl_status write_report(const char *out_dir, pl_err *err) {
    char     *path = pl_path_join(out_dir, "report.html");
    pl_status st =
        path ? pl_report_write(path, &out_dir, 1, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_free(path);
    return st;
}

// Hours of measuring are on the disk before anything else is asked for: whatever becomes of the ceilings, by a signal
// too, results.json stays, and the report says what there is.
static pl_status keep_results(const pl_env *env, const pl_eval_options *o, const pl_results *r, const char *out_dir,
                              int64_t positions, pl_err *err) {
    PL_TRY(pl_results_save(r, out_dir, err));
    pl_status st = renew_ceilings(env, o, r, out_dir, positions, err);
    if (st == PL_OK) return write_report(out_dir, err);
    pl_fail_at(err, st, "results are kept in %s; ceilings", out_dir);
    write_report(out_dir, NULL); // the first failure is the one to tell
    return st;
}

// What eval.limit leaves, evenly chosen: the texts are those of `all`.
static pl_status limit_prompts(pl_prompts *view, const pl_prompts *all, int64_t limit, pl_err *err) {
    view->n = limit > 0 && limit < all->n ? limit : all->n;
    view->p = pl_malloc((size_t)view->n * sizeof *view->p);
    if (!view->p) return pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
    for (int64_t i = 0; i < view->n; i++)
        view->p[i] = all->p[i * all->n / view->n];
    return PL_OK;
}

static pl_status open_target(pl_target *t, const pl_eval_options *o, const pl_env *env, pl_err *err) {
    PL_TRY(pl_target_open(t, o->path, o->tokenizer, o->pre, PL_WEIGHTS_BF16, env->backend, err));
    if (t->tok) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: brings no tokenizer; give target.tokenizer", o->path);
}

static pl_status evaluate(const pl_recipe *r, const char *out_dir, const pl_env *env, const char *path, const chosen *c,
                          pl_err *err) {
    pl_prompts *held = NULL, prompts = {0};
    pl_target   target = {0};
    pl_results *results = NULL;
    const char *name;
    char        hash[17];
    pl_status   st = PL_OK;
    PL_TRY(pl_recipe_hash(r, 0, hash, err));
    PL_TRY(read_prompts(r, &held, &name, err));
    pl_eval_options o = {.target = &target,
                         .path = path,
                         .tokenizer = known(r, "target.tokenizer"),
                         .pre = known(r, "target.pre"),
                         .drafter = c->d,
                         .n_drafters = c->n,
                         .plain_fp32 = pl_recipe_bool(r, "eval.plain_fp32"),
                         .prompts = &prompts,
                         .prompts_name = name,
                         .max_new_tokens = (int)pl_recipe_int(r, "eval.max_new_tokens"),
                         .repeats = (int)pl_recipe_int(r, "eval.repeats"),
                         .seeds = (int)pl_recipe_int(r, "eval.seeds"),
                         .seed = (uint64_t)pl_recipe_int(r, "seed"),
                         .recipe_hash = hash};
    o.temperature = pl_recipe_reals(r, "eval.temperatures", &o.n_temperatures);
    if (o.n_temperatures == 0)
        PL_TRY_GOTO(st, done, pl_recipe_fail(r, "eval.temperatures", err, "is empty; 0 is greedy decoding"));
    for (int i = 0; i < o.n_temperatures; i++)
        for (int k = 0; k < i; k++)
            if (o.temperature[k] == o.temperature[i])
                PL_TRY_GOTO(st, done, pl_recipe_fail(r, "eval.temperatures", err, "%g stands twice", o.temperature[i]));
    PL_TRY_GOTO(st, done, limit_prompts(&prompts, held, pl_recipe_int(r, "eval.limit"), err));
    PL_TRY_GOTO(st, done, open_target(&target, &o, env, err));
    PL_TRY_GOTO(st, done, pl_eval(&results, env, &o, err));
    PL_TRY_GOTO(st, done, keep_results(env, &o, results, out_dir, pl_recipe_int(r, "eval.ceilings"), err));
    if (env->json)
        pl_results_write(env->result, results);
    else
        pl_results_table(env->text, results);
done:
    pl_results_destroy(results);
    pl_target_close(&target);
    pl_free(prompts.p);
    pl_prompts_destroy(held);
    return st;
}

pl_status pl_eval_drafters(const pl_recipe *r, const char *out_dir, const pl_env *env, const pl_eval_drafter *drafter,
                           int n_drafters, pl_err *err) {
    chosen      c = {.n = 0};
    const char *tree = pl_recipe_str(r, "eval.tree"), *target = known(r, "target.path");
    char       *made = NULL; // the target that the recipe pretrains, timed as it is
    pl_status   st = PL_OK;
    if (trains_target(r))
        PL_TRY_GOTO(st, done, find_checkpoint(&made, out_dir, err));
    else if (!drafter)
        PL_TRY_GOTO(st, done, choose_own(&c, r, out_dir, err));
    for (int i = 0; drafter && i < n_drafters; i++)
        PL_TRY_GOTO(st, done, add(&c, &drafter[i], tree, err));
    PL_TRY_GOTO(st, done, choose_others(&c, r, tree, err));
    if (made) target = made;
    if (!target) PL_TRY_GOTO(st, done, pl_recipe_require(r, "target.path", err));
    if (c.n == 0 && !trains_target(r)) pl_log("eval: no drafter in %s; plain decoding alone", out_dir);
    st = evaluate(r, out_dir, env, target, &c, err);
done:
    for (int i = 0; i < MAX_DRAFTERS; i++)
        pl_free(c.owned[i]);
    pl_free(made);
    return st;
}

pl_status pl_eval_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    return pl_eval_drafters(r, out_dir, env, NULL, 0, err);
}
