// `eval`: from a recipe to results.json.
#include "infer/eval.h"
#include "infer/generate.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"

#define MAX_DRAFTERS 64

static const pl_recipe_key drafter_keys[] = {
    {.path = "name", .type = PL_RECIPE_STRING, .help = "in tables; the checkpoint's kind where absent"},
    {.path = "path", .type = PL_RECIPE_PATH, .help = "the checkpoint's folder"},
    {.path = "tree", .type = PL_RECIPE_STRING, .help = "eval.tree where absent"},
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
    {.path = "eval.temperature",
     .type = PL_RECIPE_REAL,
     .deflt = "0",
     .min = 0,
     .max = 1000,
     .help = "0: greedy",
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
     .deflt = "chain:auto",
     .help = "how drafters draft: chain:N, chain:auto",
     .stages = PL_EVAL_STAGE},
    {.path = "eval.plain_fp32",
     .type = PL_RECIPE_BOOL,
     .deflt = "true",
     .help = "also time plain decoding with fp32 weights",
     .stages = PL_EVAL_STAGE},
    {.path = "eval.drafters",
     .type = PL_RECIPE_LIST_OF_MAPS,
     .deflt = "[]",
     .item = drafter_keys,
     .help = "checkpoints to compare; empty: the run's own",
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

// The run's own checkpoint: best where an evaluation chose one, else last; *dir NULL where the run has trained none.
static pl_status own_checkpoint(char **dir, const char *out_dir, pl_err *err) {
    static const char *const names[] = {"checkpoints/best", "checkpoints/last"};
    *dir = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *folder = pl_path_join(out_dir, names[i]), *config = pl_path_join(folder, "config.json");
        if (!folder || !config) {
            pl_free(folder);
            pl_free(config);
            return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
        }
        bool there = pl_path_exists(config);
        pl_free(config);
        if (there) {
            *dir = folder;
            return PL_OK;
        }
        pl_free(folder);
    }
    return PL_OK;
}

static pl_status recipe_drafters(const pl_recipe *r, pl_eval_drafter *d, int *n, pl_err *err) {
    *n = pl_recipe_list_count(r, "eval.drafters");
    if (*n > MAX_DRAFTERS) return pl_recipe_fail(r, "eval.drafters", err, "%d drafters, at most %d", *n, MAX_DRAFTERS);
    for (int i = 0; i < *n; i++) {
        const pl_recipe *item = pl_recipe_item(r, "eval.drafters", i);
        PL_TRY(pl_recipe_require(item, "path", err));
        d[i] = (pl_eval_drafter){.name = pl_recipe_str(item, "name"),
                                 .dir = pl_recipe_str(item, "path"),
                                 .tree = pl_recipe_str(item, "tree")};
    }
    return PL_OK;
}

static bool trains_target(const pl_recipe *r) {
    return pl_recipe_knows(r, "kind") && pl_recipe_choice(r, "kind") == 1;
}

pl_status pl_eval_drafters(const pl_recipe *r, const char *out_dir, const pl_env *env, const pl_eval_drafter *drafter,
                           int n_drafters, pl_err *err) {
    pl_eval_drafter d[MAX_DRAFTERS];
    pl_prompts     *held = NULL;
    pl_results     *results = NULL;
    char           *own = NULL, hash[17];
    const char     *name;
    int             n = n_drafters;
    pl_status       st = PL_OK;
    if (!drafter) {
        PL_TRY(recipe_drafters(r, d, &n, err));
        if (n == 0) PL_TRY(own_checkpoint(&own, out_dir, err));
        if (own && !trains_target(r)) d[n++] = (pl_eval_drafter){.dir = own};
        drafter = d;
    }
    pl_eval_options o = {.target = known(r, "target.path"),
                         .tokenizer = known(r, "target.tokenizer"),
                         .drafter = drafter,
                         .n_drafters = n,
                         .plain_fp32 = pl_recipe_bool(r, "eval.plain_fp32"),
                         .limit = pl_recipe_int(r, "eval.limit"),
                         .max_new_tokens = (int)pl_recipe_int(r, "eval.max_new_tokens"),
                         .repeats = (int)pl_recipe_int(r, "eval.repeats"),
                         .temperature = pl_recipe_real(r, "eval.temperature"),
                         .seed = (uint64_t)pl_recipe_int(r, "seed"),
                         .recipe_hash = hash};
    if (!o.target && trains_target(r)) o.target = own; // a pretrained target is timed as it is
    if (!o.target) PL_TRY_GOTO(st, done, pl_recipe_require(r, "target.path", err));
    PL_TRY_GOTO(st, done, pl_recipe_hash(r, 0, hash, err));
    PL_TRY_GOTO(st, done, read_prompts(r, &held, &name, err));
    o.prompts = held;
    o.prompts_name = name;
    pl_eval_drafter filled[MAX_DRAFTERS];
    for (int i = 0; i < n && i < MAX_DRAFTERS; i++) {
        filled[i] = drafter[i];
        if (!filled[i].tree) filled[i].tree = pl_recipe_str(r, "eval.tree");
    }
    o.drafter = filled;
    if (n == 0 && !trains_target(r)) pl_log("eval: no drafter in %s; plain decoding alone", out_dir);
    PL_TRY_GOTO(st, done, pl_eval(&results, env, &o, err));
    PL_TRY_GOTO(st, done, pl_results_save(results, out_dir, err));
    if (env->json)
        pl_results_write(env->result, results);
    else
        pl_results_table(env->text, results);
done:
    pl_results_destroy(results);
    pl_prompts_destroy(held);
    pl_free(own);
    return st;
}

pl_status pl_eval_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    return pl_eval_drafters(r, out_dir, env, NULL, 0, err);
}
