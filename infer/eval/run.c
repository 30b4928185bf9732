// `eval`: evaluates a recipe's drafters and writes results.json.
#include "infer/cli/show.h"
#include "infer/eval/eval.h"
#include "infer/eval/gather.h"
#include "infer/eval/products.h"
#include "infer/eval/questions.h"
#include "infer/generate/generate.h"
#include "infer/inspect/ceilings.h"
#include "infer/report/report.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/key.h"
#include "kernels/base/log.h"
#include "recipes/folder.h"

#include <string.h>

#define MAX_DRAFTERS 64

static const pl_key drafter_keys[] = {
    {PL_KEY_FIELD_STRING(pl_eval_drafter_recipe, name), .help = "name in tables; absent: the drafter's kind"},
    {PL_KEY_FIELD_PATH(pl_eval_drafter_recipe, path), .help = "a checkpoint's folder"},
    {PL_KEY_FIELD_STRING(pl_eval_drafter_recipe, kind),
     .help = "instead of path: a drafter without a checkpoint, as lookup or recycle:60; decode --help lists them"},
    {PL_KEY_FIELD_STRING(pl_eval_drafter_recipe, drafter),
     .help = "instead of path: one of this recipe's `drafters`, by name; where it has no list, `drafter`"},
    {PL_KEY_FIELD_STRING(pl_eval_drafter_recipe, tree),
     .help = "shape of its drafts; absent: eval.tree for checkpoints, its own shape for others"},
    {PL_KEY_FIELD_STRING(pl_eval_drafter_recipe, verify),
     .help = "verifier, how drafts are accepted; absent: eval.verify for checkpoints, match for others"},
    PL_KEYS_END(pl_eval_drafter_recipe)};

const pl_key pl_eval_keys[] = {
    {PL_KEY_FIELD_STRING(pl_eval_recipe, eval.benchmark),
     .help =
         "instead of prompts: spec-bench, mt-bench, humaneval, gsm8k, alpaca, math500, qa, specforge or speed-bench, "
         "asked as who publishes it asks; or a file of prompts",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_PATH(pl_eval_recipe, eval.benchmark_data),
     .help = "the folder that holds benchmarks' files (gsm8k/test.jsonl, ...); absent: what PACELINE_BENCHMARKS names",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_INT(pl_eval_recipe, eval.max_new_tokens), .deflt = "0", .min = 0, .max = 1 << 20,
     .help = "length of an answer at most; 0: a benchmark's own, without one 128", .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_REALS(pl_eval_recipe, eval.temperatures), .deflt = "[0]", .min = 0, .max = 1000,
     .help = "every method at each of them; 0: greedy", .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_INT(pl_eval_recipe, eval.seeds), .deflt = "5", .min = 1, .max = 1000,
     .help = "decodings of each prompt, with seeds of their own, at temperatures above 0", .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_INT(pl_eval_recipe, eval.repeats), .deflt = "1", .min = 1, .max = 1000,
     .help = "times that every method answers every prompt", .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_INTS(pl_eval_recipe, eval.batches), .deflt = "[]", .min = 2, .max = 1024,
     .help = "all prompts again, so many at a time, to measure throughput, but for plain-fp32: [8, 32]",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_INT(pl_eval_recipe, eval.limit), .deflt = "0", .min = 0, .max = 1e9,
     .help = "prompts at most, evenly chosen; 0: all", .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_STRING(pl_eval_recipe, eval.tree), .deflt = "auto",
     .help = "shape of the drafts of drafters with a checkpoint: a name that decode --help lists",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_STRING(pl_eval_recipe, eval.verify), .deflt = "match",
     .help = "how drafts of drafters with a checkpoint are accepted: a verifier that decode --help lists",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_BOOL(pl_eval_recipe, eval.plain_fp32), .deflt = "true",
     .help = "also time plain decoding with fp32 weights", .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_BOOL(pl_eval_recipe, eval.trace), .deflt = "true",
     .help = "write what every cycle drafted, accepted and took to trace.jsonl", .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_INT(pl_eval_recipe, eval.ceilings), .deflt = "0", .min = 0, .max = 1e9,
     .help = "of each checkpoint, so many drafts are compared with the most that the tokens its head may propose "
             "would allow; in ceilings/; 0: none",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_ITEMS(pl_eval_recipe, eval.drafters, pl_eval_drafter_recipe), .deflt = "[]", .item = drafter_keys,
     .help = "further methods to time beside the run's own drafters", .stages = PL_STAGE_EVAL},
    PL_KEYS_END(pl_eval_recipe)};

// The methods to evaluate besides plain decoding.
typedef struct chosen {
    pl_eval_drafter d[MAX_DRAFTERS];
    char           *owned[MAX_DRAFTERS]; // folders found in the run
    int             n, own;              // the first `own` are the run's
} chosen;

static pl_status add(chosen *c, const pl_eval_drafter *d, const char *tree, pl_err *err) {
    if (c->n == MAX_DRAFTERS) return pl_fail(err, PL_E_INPUT, "more than %d drafters in one evaluation", MAX_DRAFTERS);
    c->d[c->n] = *d;
    if (!d->tree || !*d->tree) c->d[c->n].tree = tree;
    c->n++;
    return PL_OK;
}

// Finds a run's checkpoint: best where it exists, else last; *dir NULL: none.
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

pl_status pl_eval_pretrained(char **path, const char *out_dir, pl_err *err) {
    return find_checkpoint(path, out_dir, err);
}

// Returns the tree of a checkpoint without one: eval.tree; NULL, the drafter's own chain, where the verifier takes
// chains alone and the recipe does not change eval.tree.
static const char *tree_of(const pl_recipe *r, const char *verify) {
    const pl_eval_recipe *ev = pl_eval_recipe_of(r);
    const pl_verifier    *v = pl_verifier_find(verify, NULL);
    return v && v->chain && !pl_recipe_differs(r, &ev->eval.tree) ? NULL : ev->eval.tree;
}

// Adds a drafter of the run: the one in out_dir, or one of a list in out_dir/drafters/NAME.
static pl_status choose_own(chosen *c, const pl_recipe *r, const char *out_dir, const pl_eval_own *own, pl_err *err) {
    const pl_eval_recipe *ev = pl_eval_recipe_of(r);
    bool                  given = pl_recipe_given(r, &ev->eval.tree);
    char                 *dir, *run = own->name ? pl_sprintf("%s/drafters/%s", out_dir, own->name) : pl_strdup(out_dir);
    pl_status st = run ? find_checkpoint(&dir, run, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_free(run);
    if (st != PL_OK || !dir) return st;
    if (own->source) {
        char *folder = dir;
        dir = pl_sprintf("%s:%s", own->source, folder);
        pl_free(folder);
        if (!dir) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    }
    st = add(c, &(pl_eval_drafter){.name = own->name, .drafter = dir, .verify = ev->eval.verify},
             !given && own->tree ? own->tree : tree_of(r, ev->eval.verify), err);
    if (st == PL_OK)
        c->owned[c->n - 1] = dir;
    else
        pl_free(dir);
    return st;
}

// Finds the folder of the run's drafter of the name eval.drafters[...].drafter.
static pl_status find_own(const chosen *c, const pl_recipe *r, const pl_eval_drafter_recipe *item, const char **dir,
                          pl_err *err) {
    for (int i = 0; i < c->own; i++) {
        const char *name = c->d[i].name ? c->d[i].name : "drafter";
        if (strcmp(name, item->drafter) != 0) continue;
        *dir = c->d[i].drafter;
        return PL_OK;
    }
    return pl_recipe_fail(r, &item->drafter, err,
                          "\"%s\" has no checkpoint in this folder; name one of the recipe's `drafters` (`drafter` "
                          "where it has no list), trained before by `paceline train` or `run`",
                          item->drafter);
}

// Finds the one key of path, kind and drafter that an item of eval.drafters has.
static pl_status way_of(const pl_recipe *r, const pl_eval_drafter_recipe *item, const char *const **way, pl_err *err) {
    const char *const *const ways[] = {&item->path, &item->kind, &item->drafter};
    *way = NULL;
    for (int k = 0; k < 3; k++) {
        if (!*ways[k]) continue;
        if (*way)
            return pl_recipe_fail(r, ways[k], err, "stands beside `%s`; give one of them", pl_recipe_path(r, *way));
        *way = ways[k];
    }
    return *way ? PL_OK : pl_recipe_require(r, &item->path, err);
}

// Returns an item's verifier; without one, eval.verify for a checkpoint, else "match".
static const char *verify_of(const pl_recipe *r, const pl_eval_drafter_recipe *item, bool trained) {
    if (item->verify && *item->verify) return item->verify;
    return trained ? pl_eval_recipe_of(r)->eval.verify : "match";
}

// Fails unless the verifier exists and takes the tree and the drafter's way of drawing. without: a drafter without a
// checkpoint, NULL for checkpoints, which can draw in every way.
static pl_status check_verifier(const pl_recipe *r, const void *key, const char *verify, const char *tree,
                                const char *without, pl_err *err) {
    pl_tree_policy     policy;
    pl_err             why = {0};
    const pl_verifier *v = pl_verifier_find(verify, err);
    if (!v) return PL_E_INPUT;
    tree = pl_runner_tree(tree, v);
    PL_TRY(without ? pl_drafter_shape(&policy, without, tree, err) : pl_tree_policy_parse(&policy, tree, err));
    pl_status st = pl_verifier_takes(v, &policy, &why);
    if (st == PL_OK && without) st = pl_verifier_takes_draws(v, without, pl_drafter_proposals(without), &why);
    return st == PL_OK ? PL_OK : pl_recipe_fail(r, key, err, "%s", why.msg);
}

// Checks that a method's kind is a drafter without a checkpoint, and its path a folder. Runs before training.
static pl_status check_way(const pl_recipe *r, const pl_eval_drafter_recipe *item, const char *const *way,
                           pl_err *err) {
    bool folder = pl_drafter_is_folder(*way);
    if (way == &item->kind && folder)
        return pl_recipe_fail(r, way, err,
                              "\"%s\" is no drafter without a checkpoint (decode --help lists them); take `path` for "
                              "folders",
                              *way);
    if (way == &item->path && !folder)
        return pl_recipe_fail(r, way, err, "\"%s\" names a drafter without a checkpoint; take `kind`, or ./%s", *way,
                              *way);
    return PL_OK;
}

static pl_status check_other(const pl_recipe *r, const pl_eval_drafter_recipe *item, const char *out_dir, pl_err *err) {
    const char *const *way;
    PL_TRY(way_of(r, item, &way, err));
    PL_TRY(check_way(r, item, way, err));
    // The run may still make a folder within out_dir.
    if (way == &item->path && !pl_path_within(*way, out_dir) && !pl_path_exists(*way))
        return pl_recipe_fail(r, way, err, "\"%s\": no such folder", *way);
    bool        trained = way == &item->drafter || pl_drafter_is_folder(*way);
    const char *verify = verify_of(r, item, trained);
    const char *tree = item->tree ? item->tree : trained ? tree_of(r, verify) : NULL;
    return check_verifier(r, &item->verify, verify, tree, trained ? NULL : *way, err);
}

static pl_status choose_other(chosen *c, const pl_recipe *r, const pl_eval_drafter_recipe *item, pl_err *err) {
    const char *const *way;
    pl_eval_drafter    d = {.name = item->name, .tree = item->tree, .verify = item->verify};
    PL_TRY(way_of(r, item, &way, err));
    PL_CHECK(way, "a method of eval.drafters that nothing names");
    d.drafter = *way;
    if (way == &item->drafter) PL_TRY(find_own(c, r, item, &d.drafter, err));
    bool folder = pl_drafter_is_folder(d.drafter);
    PL_TRY(check_way(r, item, way, err));
    d.verify = verify_of(r, item, folder);
    return add(c, &d, folder ? tree_of(r, d.verify) : NULL, err);
}

// ---- ceilings ----

#define CEILINGS_DEPTH 4
#define CEILINGS_BEST 4

// True if an earlier method has the same checkpoint, with another tree or temperature.
static bool seen_before(const pl_results *r, int m) {
    for (int k = 0; k < m; k++)
        if (r->method[k].checkpoint && strcmp(r->method[k].checkpoint, r->method[m].checkpoint) == 0) return true;
    return false;
}

// Writes the ceilings of temperature 0 as "greedy", if that temperature is evaluated.
static pl_status put_greedy(pl_json_out *out, const pl_env *env, const pl_eval_options *o,
                            const pl_inspect_ceilings_options *opt, pl_err *err) {
    pl_inspect_ceilings_options cold = *opt;
    bool                        asked = false;
    cold.temperature = 0;
    cold.sampled = false;
    const pl_reals *t = &pl_eval_recipe_of(o->recipe)->eval.temperatures;
    for (int i = 0; i < t->n; i++)
        if (t->at[i] == 0) asked = true;
    if (!asked) return PL_OK;
    pl_put_object(out, "greedy");
    PL_TRY(pl_inspect_ceilings(out, env, o->target, o->path, &cold, err));
    pl_json_out_close(out, '}');
    return PL_OK;
}

static pl_status write_ceilings(const pl_env *env, const pl_eval_options *o, const pl_method *m, const char *dir,
                                pl_inspect_ceilings_options *opt, pl_err *err) {
    pl_json_out out;
    pl_json_out_begin(&out, 1);
    pl_json_out_object(&out);
    pl_put_str(&out, "name", m->name);
    opt->drafter = m->checkpoint;
    pl_status st = pl_inspect_ceilings(&out, env, o->target, o->path, opt, err);
    if (st == PL_OK) st = put_greedy(&out, env, o, opt, err);
    if (st != PL_OK) {
        pl_show_abort(&out);
        return st;
    }
    pl_json_out_close(&out, '}');
    PL_TRY(pl_json_out_end(&out, err));
    char name[128];
    pl_eval_file(name, sizeof name, m->name, ".json");
    st = pl_eval_save(dir, name, out.text, out.len, err);
    pl_free(out.text);
    return st;
}

// Writes dir/METHOD.json (infer/inspect/ceilings.h) for each checkpoint. Distributions and answers are at the first
// temperature above 0; without one, distributions are at 1 along greedy answers. "greedy" has those of temperature 0,
// if evaluated.
static pl_status put_ceilings(const pl_env *env, const pl_eval_options *o, const pl_results *r, const char *dir,
                              int64_t positions, pl_err *err) {
    pl_inspect_ceilings_options opt = {.prompts = o->prompts_name,
                                       .texts = o->prompts,
                                       .seed = r->seed,
                                       .positions = positions,
                                       .depth = CEILINGS_DEPTH,
                                       .n_best = CEILINGS_BEST,
                                       .temperature = 1};
    pl_progress                 p;
    pl_status                   st = PL_OK;
    const pl_reals             *t = &pl_eval_recipe_of(o->recipe)->eval.temperatures;
    for (int i = 0; i < t->n && !opt.sampled; i++) {
        opt.sampled = t->at[i] > 0;
        if (opt.sampled) opt.temperature = t->at[i];
    }
    pl_progress_begin(&p, "ceilings", 0, r->n_methods);
    for (int m = 0; m < r->n_methods && st == PL_OK; m++) {
        if (r->method[m].checkpoint && !seen_before(r, m)) st = write_ceilings(env, o, &r->method[m], dir, &opt, err);
        pl_progress_update(&p, m + 1, "methods");
    }
    pl_progress_end(&p);
    return st;
}

// Writes the ceilings folder; positions 0: none.
static pl_status add_ceilings(const pl_env *env, const pl_eval_options *o, const pl_results *r, const char *out_dir,
                              int64_t positions, pl_err *err) {
    if (positions == 0) return PL_OK;
    char     *dir = pl_path_join(out_dir, "ceilings");
    pl_status st = dir ? pl_dir_make(dir, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK) st = put_ceilings(env, o, r, dir, positions, err);
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

// Writes all files of the evaluation. Earlier files are removed first, so that the files next to results.json always
// belong to it, even if the process ends early. results.json, the product of long measurements, is written before the
// rest: it stays if a later file fails or a signal ends the process, and the report shows the files that exist.
static pl_status keep_results(const pl_env *env, const pl_eval_options *o, const pl_results *r, const char *out_dir,
                              int64_t positions, pl_err *err) {
    pl_folder_sweep(out_dir);
    pl_status st = pl_eval_drop(out_dir, err); // files that would be read as parts of these results
    PL_TRY(pl_results_save(r, out_dir, st == PL_OK ? err : NULL));
    if (st == PL_OK) st = pl_results_save_examples(r, out_dir, err);
    if (st == PL_OK) st = pl_results_save_samples(r, out_dir, err);
    if (st == PL_OK && o->trace) st = pl_trace_commit(o->trace, err);
    if (st == PL_OK) st = add_ceilings(env, o, r, out_dir, positions, err);
    if (st == PL_OK) return write_report(out_dir, err);
    pl_fail_at(err, st, "results are kept in %s; what stands beside them", out_dir);
    write_report(out_dir, NULL); // the first failure is the one to report
    return st;
}

// Selects at most eval.limit prompts at even distances; the texts belong to `all`.
static pl_status limit_prompts(pl_prompts *view, const pl_prompts *all, int64_t limit, pl_err *err) {
    view->n = limit > 0 && limit < all->n ? limit : all->n;
    view->p = pl_malloc((size_t)view->n * sizeof *view->p);
    if (!view->p) return pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
    for (int64_t i = 0; i < view->n; i++)
        view->p[i] = all->p[i * all->n / view->n];
    return PL_OK;
}

static pl_status open_target(pl_target *t, const char *path, const pl_generate_recipe *gen, const pl_env *env,
                             pl_err *err) {
    PL_TRY(pl_target_open_over(t, path, gen->target.tokenizer, gen->target.pre, PL_WEIGHTS_BF16, env->backend, env->tp,
                               err));
    t->model.shape.kv = pl_target_kv(gen);
    if (t->tok) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: brings no tokenizer; give target.tokenizer", path);
}

static pl_status begin_trace(pl_trace *t, const char *out_dir, pl_err *err) {
    char     *path = pl_path_join(out_dir, "trace.jsonl");
    pl_status st = path ? pl_trace_begin(t, path, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_free(path);
    return st;
}

static pl_status evaluate(const pl_recipe *r, const char *out_dir, const pl_env *env, const char *path, const chosen *c,
                          pl_err *err) {
    const pl_eval_recipe *ev = pl_eval_recipe_of(r);
    pl_questions          q = {0};
    pl_prompts            prompts = {0};
    pl_target             target = {0};
    pl_results           *results = NULL;
    pl_trace              trace = {0};
    pl_prompt_form        form;
    pl_eval_options       o = {.recipe = r,
                               .target = &target,
                               .path = path,
                               .drafter = c->d,
                               .n_drafters = c->n,
                               .prompts = &prompts,
                               .form = &form};
    pl_status             st;
    PL_TRY_GOTO(st, done, pl_recipe_served_form(&form, r, err));
    PL_TRY_GOTO(st, done, pl_questions_read(&q, r, &form, err));
    o.prompts_name = q.name;
    o.max_new_tokens = q.max_new;
    PL_TRY_GOTO(st, done, limit_prompts(&prompts, q.prompts, ev->eval.limit, err));
    PL_TRY_GOTO(st, done, open_target(&target, path, pl_generate_recipe_of(r), env, err));
    if (ev->eval.trace) {
        PL_TRY_GOTO(st, done, begin_trace(&trace, out_dir, err));
        o.trace = &trace;
    }
    pl_status whole = pl_eval(&results, env, &o, err);
    if (!results) PL_TRY_GOTO(st, done, whole);
    if (o.trace) PL_TRY_GOTO(st, done, pl_eval_gather_trace(env->comm, o.trace, err));
    if (pl_comm_rank(env->comm) > 0) goto done; // rank 0 writes
    PL_TRY_GOTO(st, done, keep_results(env, &o, results, out_dir, whole == PL_OK ? ev->eval.ceilings : 0, err));
    if (whole != PL_OK) PL_TRY_GOTO(st, done, pl_fail_at(err, whole, "%s has the results so far", out_dir));
    if (env->json)
        pl_results_write(env->result, results);
    else
        pl_results_table(env->text, results);
done:
    pl_trace_abort(&trace);
    pl_results_destroy(results);
    pl_target_close(&target);
    pl_free(prompts.p);
    pl_questions_close(&q);
    pl_prompt_form_close(&form);
    return st;
}

static pl_status check_temperatures(const pl_recipe *r, pl_err *err) {
    const pl_reals *t = &pl_eval_recipe_of(r)->eval.temperatures;
    if (t->n == 0) return pl_recipe_fail(r, t, err, "is empty; 0 is greedy decoding");
    for (int i = 0; i < t->n; i++) {
        if (t->at[i] != 0 && t->at[i] < PL_COLDEST)
            return pl_recipe_fail(r, t, err, "%g is too cold; take 0 (greedy), or at least %g", t->at[i], PL_COLDEST);
        for (int k = 0; k < i; k++)
            if (t->at[k] == t->at[i]) return pl_recipe_fail(r, t, err, "%g stands twice", t->at[i]);
    }
    return PL_OK;
}

pl_status pl_eval_check(const pl_recipe *r, bool pretrained, const char *out_dir, pl_err *err) {
    const pl_eval_recipe *ev = pl_eval_recipe_of(r);
    if (!pretrained) PL_TRY(pl_recipe_require(r, &pl_generate_recipe_of(r)->target.path, err));
    PL_TRY(pl_questions_check(r, err));
    PL_TRY(check_temperatures(r, err));
    PL_TRY(check_verifier(r, &ev->eval.verify, ev->eval.verify, tree_of(r, ev->eval.verify), NULL, err));
    for (int i = 0; i < ev->eval.drafters.n; i++)
        PL_TRY(check_other(r, &ev->eval.drafters.at[i], out_dir, err));
    return PL_OK;
}

pl_status pl_eval_check_ranks(const pl_recipe *r, const pl_comm *comm, pl_err *err) {
    const pl_eval_recipe *ev = pl_eval_recipe_of(r);
    if (ev->eval.batches.n == 0 || pl_comm_ranks(comm) == 1) return PL_OK;
    return pl_recipe_fail(r, &ev->eval.batches, err,
                          "many prompts at a time are timed in one process; leave it, or --ranks, out");
}

pl_status pl_eval_run(const pl_recipe *r, const char *out_dir, const pl_env *env, const pl_eval_subject *s,
                      pl_err *err) {
    const pl_eval_recipe *ev = pl_eval_recipe_of(r);
    chosen                c = {.n = 0};
    const char           *target = pl_generate_recipe_of(r)->target.path;
    char                 *made = NULL; // checkpoint of the target that the recipe pretrains
    pl_status             st = PL_OK;
    if (s->pretrained) PL_TRY_GOTO(st, done, pl_eval_pretrained(&made, out_dir, err));
    for (int i = 0; i < s->n && !s->pretrained; i++)
        PL_TRY_GOTO(st, done, choose_own(&c, r, out_dir, &s->own[i], err));
    c.own = c.n;
    for (int i = 0; i < ev->eval.drafters.n; i++)
        PL_TRY_GOTO(st, done, choose_other(&c, r, &ev->eval.drafters.at[i], err));
    if (made) target = made;
    if (!target) PL_TRY_GOTO(st, done, pl_recipe_require(r, &pl_generate_recipe_of(r)->target.path, err));
    if (c.n == 0 && !s->pretrained) pl_log("eval: no drafter in %s; plain decoding alone", out_dir);
    st = evaluate(r, out_dir, env, target, &c, err);
done:
    for (int i = 0; i < MAX_DRAFTERS; i++)
        pl_free(c.owned[i]);
    pl_free(made);
    return st;
}
