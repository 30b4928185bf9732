#include "train/run/pipeline.h"

#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "train/keys.h"
#include "train/run/run.h"
#include "train/source/stamp.h"
#include "train/source/vocabularies.h"
#include "train/start/start.h"
#include "train/task/routed.h"
#include "train/task/traces.h"

#include <stdio.h>
#include <string.h>

#define STAGE_GENERATE (1u << 8) // keys of `generate` name no stage: they matter to all

// What an item of `drafters` may say, and what it stands for: each is checked as the key it replaces.
static const pl_recipe_key drafter_keys[] = {
    {.path = "name", .type = PL_RECIPE_STRING, .help = "of the drafter's folder and its line in the results"},
    {.path = "kind", .type = PL_RECIPE_STRING, .help = "instead of drafter.kind"},
    {.path = "start", .type = PL_RECIPE_STRING, .help = "instead of drafter.start; a name is a drafter further up"},
    {.path = "freeze", .type = PL_RECIPE_STRING, .help = "instead of drafter.freeze"},
    {.path = "head.kind", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.kind"},
    {.path = "head.rank", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.rank"},
    {.path = "head.candidates", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.candidates"},
    {.path = "head.position_aware", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.position_aware"},
    {.path = "head.redistribute", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.redistribute"},
    {.path = "head.vocab", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.vocab"},
    {.path = "head.vocab_size", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.vocab_size"},
    {.path = "head.init", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.init"},
    {.path = "head.frozen", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.frozen"},
    {.path = "head.clusters", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.clusters"},
    {.path = "head.router", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.router"},
    {.path = "head.width", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.width"},
    {.path = "head.k0", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.k0"},
    {.path = "head.k1", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.k1"},
    {.path = "head.kmin", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.kmin"},
    {.path = "head.fixed", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.fixed"},
    {.path = "head.floored", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.floored"},
    {.path = "head.top", .type = PL_RECIPE_STRING, .help = "instead of drafter.head.top"},
    {.path = "unroll", .type = PL_RECIPE_STRING, .help = "instead of train.unroll"},
    {.path = "lr", .type = PL_RECIPE_STRING, .help = "instead of train.lr"},
    {.path = "noise", .type = PL_RECIPE_STRING, .help = "instead of train.noise"},
    {.path = "objective", .type = PL_RECIPE_STRING, .help = "instead of train.objective"},
    {.path = "masked_teacher", .type = PL_RECIPE_STRING, .help = "instead of train.masked_teacher"},
    {.path = "warmup", .type = PL_RECIPE_STRING, .help = "instead of train.warmup"},
    {.path = "steps", .type = PL_RECIPE_STRING, .help = "instead of train.steps"},
    {.path = "seed", .type = PL_RECIPE_STRING, .help = "instead of seed, in training"},
    {0}};

static const char *const replaces[][2] = {{"kind", "drafter.kind"},
                                          {"freeze", "drafter.freeze"},
                                          {"head.kind", "drafter.head.kind"},
                                          {"head.rank", "drafter.head.rank"},
                                          {"head.candidates", "drafter.head.candidates"},
                                          {"head.position_aware", "drafter.head.position_aware"},
                                          {"head.redistribute", "drafter.head.redistribute"},
                                          {"head.vocab", "drafter.head.vocab"},
                                          {"head.vocab_size", "drafter.head.vocab_size"},
                                          {"head.init", "drafter.head.init"},
                                          {"head.frozen", "drafter.head.frozen"},
                                          {"head.clusters", "drafter.head.clusters"},
                                          {"head.router", "drafter.head.router"},
                                          {"head.width", "drafter.head.width"},
                                          {"head.k0", "drafter.head.k0"},
                                          {"head.k1", "drafter.head.k1"},
                                          {"head.kmin", "drafter.head.kmin"},
                                          {"head.fixed", "drafter.head.fixed"},
                                          {"head.floored", "drafter.head.floored"},
                                          {"head.top", "drafter.head.top"},
                                          {"unroll", "train.unroll"},
                                          {"lr", "train.lr"},
                                          {"noise", "train.noise"},
                                          {"objective", "train.objective"},
                                          {"masked_teacher", "train.masked_teacher"},
                                          {"warmup", "train.warmup"},
                                          {"steps", "train.steps"},
                                          {"seed", "seed"}};
enum { REPLACES = sizeof replaces / sizeof *replaces };

const pl_recipe_key pl_pipeline_keys[] = {
    {.path = "drafters",
     .type = PL_RECIPE_LIST_OF_MAPS,
     .item = drafter_keys,
     .stages = PL_EVAL_STAGE,
     .help = "several drafters from one dataset, each with what differs from `drafter`"},
    {.path = "vocabularies",
     .type = PL_RECIPE_LIST_OF_MAPS,
     .item = pl_vocabulary_keys,
     .stages = PL_RECIPE_NO_STAGE,
     .help =
         "token lists for trimmed heads, counted in text or in the target's answers; drafter.head.vocab names them"},
    {0}};

// ---- stages ---------------------------------------------------------------------------------------------------------

// What the dataset depends on: its keys, the target, the prompts to be answered.
static pl_status generate_hash(const pl_recipe *r, char out[17], pl_err *err) {
    char        keys[17];
    pl_prompts *train = NULL, *held = NULL;
    PL_TRY(pl_recipe_require(r, "target.path", err));
    PL_TRY(pl_recipe_hash(r, STAGE_GENERATE, keys, err));
    PL_TRY(pl_recipe_prompts(r, &train, &held, err));
    uint64_t h = pl_hash(keys, 16);
    for (int64_t i = 0; i < train->n; i++)
        h = pl_hash_more(h, train->p[i].text, strlen(train->p[i].text) + 1);
    pl_prompts_destroy(train);
    pl_prompts_destroy(held);
    char target[17];
    PL_TRY(pl_llama_fingerprint(target, pl_recipe_str(r, "target.path"), err));
    h = pl_hash_more(h, target, 16);
    pl_hash_hex(out, h);
    return PL_OK;
}

static pl_status generate(const pl_recipe *r, const char *out_dir, const pl_env *env, const char *hash, pl_err *err) {
    bool  whole;
    char *dataset = pl_path_join(out_dir, "dataset");
    if (!dataset) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_stage_begin(out_dir, "dataset", hash, "dataset", err);
    if (st == PL_OK && pl_stage_stamped(out_dir, "dataset.done", hash)) {
        pl_log("%s: up to date", dataset);
    } else if (st == PL_OK) {
        st = pl_stage_dataset(dataset, NULL, &whole, err);
        if (st == PL_OK && !whole) st = pl_generate_run(r, out_dir, env, err);
        if (st == PL_OK) st = pl_stage_stamp(out_dir, "dataset.done", hash, err);
    }
    pl_free(dataset);
    return st;
}

static pl_status append_set(char **sets, int *n, char *text, pl_err *err) {
    if (!text) return pl_fail(err, PL_E_MEMORY, "recipe: out of memory");
    sets[(*n)++] = text;
    return PL_OK;
}

// Where drafter i starts: the checkpoint of a drafter further up the list, or what is no name of one, as it stands.
static pl_status start_of(const pl_recipe *r, int i, const char *out_dir, char **path, pl_err *err) {
    const pl_recipe *item = pl_recipe_item(r, "drafters", i);
    const char      *start = pl_recipe_str(item, "start"), *name = NULL;
    int              k = 0, n = pl_recipe_list_count(r, "drafters");
    *path = NULL;
    for (; k < n; k++) {
        name = pl_recipe_str(pl_recipe_item(r, "drafters", k), "name");
        if (name && strcmp(name, start) == 0) break;
    }
    if (k < n && k >= i)
        return pl_recipe_fail(item, "start", err, "\"%s\" does not stand before it in the list", start);
    if (k == n && !pl_path_exists(start))
        return pl_recipe_fail(item, "start", err, "\"%s\" is neither a drafter of the list nor a checkpoint", start);
    *path = k < n ? pl_sprintf("%s/drafters/%s/checkpoints/best", out_dir, name) : pl_strdup(start);
    return *path ? PL_OK : pl_fail(err, PL_E_MEMORY, "recipe: out of memory");
}

// Where the drafter that item i starts from is traced: one place for all that start there with the same seed, named by
// the drafter further up the list or, of another checkpoint, by a hash of where it lies.
static char *traces_of(const pl_recipe *r, int i, const char *out_dir) {
    const pl_recipe *item = pl_recipe_item(r, "drafters", i);
    bool             own = pl_recipe_has(item, "start"), seeded = pl_recipe_has(item, "seed");
    const char      *start = own ? pl_recipe_str(item, "start") : pl_recipe_str(r, "drafter.start");
    char             name[64], hash[17], seed[32];
    pl_hash_hex(hash, start ? pl_hash(start, strlen(start)) : 0);
    snprintf(name, sizeof name, "start-%s", hash);
    for (int k = 0; k < i && own; k++)
        if (strcmp(pl_recipe_str(pl_recipe_item(r, "drafters", k), "name"), start) == 0) name[0] = 0;
    snprintf(seed, sizeof seed, "%lld", (long long)pl_recipe_int(r, "seed"));
    return pl_sprintf("%s/traces/%s.%s", out_dir, *name ? name : start, seeded ? pl_recipe_str(item, "seed") : seed);
}

static const char *head_of(const pl_recipe *r, const pl_recipe *item) {
    return pl_recipe_has(item, "head.kind") ? pl_recipe_str(item, "head.kind") : pl_recipe_str(r, "drafter.head.kind");
}

static bool item_says(const pl_recipe *item, const char *path) {
    for (int k = 0; k < REPLACES; k++)
        if (strcmp(replaces[k][1], path) == 0) return pl_recipe_has(item, replaces[k][0]);
    return false;
}

// What the drafters share and means nothing to a routed one among them is not in its recipe; what its own item says
// stays, to be refused.
static pl_status leave_out_unread(char **sets, int *n, const pl_recipe *r, const pl_recipe *item, pl_err *err) {
    for (int k = 0; k < PL_ROUTER_UNREAD; k++) {
        const char *path = pl_router_unread_keys[k].path;
        if (!pl_recipe_differs(r, path) || item_says(item, path)) continue;
        PL_TRY(append_set(sets, n, pl_sprintf("%s=%s", path, pl_recipe_default(r, path)), err));
    }
    return PL_OK;
}

// The file of drafter i's token list, NULL: all tokens. A list of this recipe lies in its folder, not in the drafter's.
static pl_status vocabulary_of(const pl_recipe *r, int i, const char *out_dir, char **list, pl_err *err) {
    const pl_recipe *item = pl_recipe_item(r, "drafters", i);
    bool             own = pl_recipe_has(item, "head.vocab");
    const char      *name = own ? pl_recipe_str(item, "head.vocab") : pl_recipe_str(r, "drafter.head.vocab");
    return pl_vocabulary_path(list, r, name, out_dir, err);
}

// The recipe of drafter i alone: the whole recipe with the item's values in `drafter`; list: the file of its token
// list, or NULL where that is named as it stands.
static pl_status drafter_recipe(const pl_recipe *r, int i, const pl_env *env, const char *out_dir, const char *list,
                                pl_recipe **out, pl_err *err) {
    const pl_recipe *item = pl_recipe_item(r, "drafters", i);
    char            *text = NULL, *sets[REPLACES + PL_ROUTER_UNREAD + 5], *dataset = pl_path_join(out_dir, "dataset"),
         *start = NULL;
    int       n = 0;
    pl_status st = dataset ? pl_recipe_dump(r, &text, err) : pl_fail(err, PL_E_MEMORY, "recipe: out of memory");
    if (st == PL_OK) st = append_set(sets, &n, pl_strdup("drafters=[]"), err);
    if (st == PL_OK && !pl_recipe_has(r, "data.dataset"))
        st = append_set(sets, &n, pl_sprintf("data.dataset=%s", dataset), err);
    if (st == PL_OK && !pl_recipe_has(r, "traces.path")) {
        char *traces = traces_of(r, i, out_dir);
        st = append_set(sets, &n, traces ? pl_sprintf("traces.path=%s", traces) : NULL, err);
        pl_free(traces);
    }
    if (st == PL_OK && pl_recipe_has(item, "start")) st = start_of(r, i, out_dir, &start, err);
    if (st == PL_OK && start) st = append_set(sets, &n, pl_sprintf("drafter.start=%s", start), err);
    for (int k = 0; k < REPLACES && st == PL_OK; k++)
        if (pl_recipe_has(item, replaces[k][0]))
            st = append_set(sets, &n, pl_sprintf("%s=%s", replaces[k][1], pl_recipe_str(item, replaces[k][0])), err);
    if (st == PL_OK && strcmp(head_of(r, item), "dynaspec") == 0) st = leave_out_unread(sets, &n, r, item, err);
    if (st == PL_OK && list) st = append_set(sets, &n, pl_sprintf("drafter.head.vocab=%s", list), err);
    char *name = pl_sprintf("drafter \"%s\"", pl_recipe_str(item, "name"));
    if (st == PL_OK)
        st = pl_recipe_parse(out, text, strlen(text), name, env->keys, env->n_keys, (const char *const *)sets, n, err);
    if (st == PL_OK) pl_recipe_composed(*out);
    pl_free(name);
    for (int k = 0; k < n; k++)
        pl_free(sets[k]);
    pl_free(text);
    pl_free(dataset);
    pl_free(start);
    return st;
}

// What the list that drafter.head.vocab names holds: a drafter is trained anew when that changes.
static pl_status hash_vocabulary(uint64_t *h, const pl_recipe *r, const char *dir, pl_err *err) {
    char  *path;
    pl_map list;
    PL_TRY(pl_vocabulary_path(&path, r, pl_recipe_str(r, "drafter.head.vocab"), dir, err));
    if (!path) return PL_OK;
    pl_status st = pl_map_open(&list, path, err);
    if (st == PL_OK) {
        *h = pl_hash_more(*h, list.data, list.size);
        pl_map_close(&list);
    }
    pl_free(path);
    return st;
}

// The traces that a router learns from, in parent/name; hash: their stamp, which what is trained on them depends on.
static pl_status trace(const pl_recipe *r, const char *out_dir, const char *parent, const char *name, const pl_env *env,
                       const char *generated, char hash[17], pl_err *err) {
    char keys[17], start[17], done[256];
    snprintf(done, sizeof done, "%.200s.done", name);
    PL_TRY(pl_recipe_require(r, "drafter.start", err));
    PL_TRY(pl_recipe_hash(r, PL_STAGE_TRACES, keys, err));
    PL_TRY(pl_start_identity(start, r, err));
    pl_hash_hex(hash, pl_hash_more(pl_hash_more(pl_hash(keys, 16), generated, 16), start, strlen(start)));
    char     *to = pl_path_join(parent, name);
    pl_status st = to ? pl_dir_make(parent, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", parent);
    if (st == PL_OK) st = pl_stage_begin(parent, name, hash, name, err);
    if (st == PL_OK && pl_stage_stamped(parent, done, hash)) {
        pl_log("%s: up to date", to);
    } else if (st == PL_OK) {
        st = pl_traces_capture(r, out_dir, to, env, err);
        if (st == PL_OK) st = pl_stage_stamp(parent, done, hash, err);
    }
    pl_free(to);
    return st;
}

static bool routed(const pl_recipe *r) {
    return strcmp(pl_recipe_str(r, "drafter.head.kind"), "dynaspec") == 0;
}

static pl_status train(const pl_recipe *r, const char *dir, const pl_env *env, const char *generated, pl_err *err) {
    char keys[17], hash[17];
    char start[17];
    PL_TRY(pl_recipe_hash(r, PL_STAGE_DRAFTER, keys, err));
    PL_TRY(pl_start_identity(start, r, err));
    uint64_t h = pl_hash_more(pl_hash_more(pl_hash(keys, 16), generated, 16), start, strlen(start));
    PL_TRY(hash_vocabulary(&h, r, dir, err));
    pl_hash_hex(hash, h);
    PL_TRY(pl_dir_make(dir, err));
    PL_TRY(pl_stage_begin(dir, "checkpoints", hash, "checkpoints", err));
    if (pl_stage_stamped(dir, "checkpoints.done", hash)) {
        pl_log("%s/checkpoints: up to date", dir);
        return PL_OK;
    }
    PL_TRY(pl_train_run(r, dir, env, err));
    return pl_stage_stamp(dir, "checkpoints.done", hash, err);
}

enum { MAX_DRAFTERS = 64 };

// What can be said of the drafters' recipes before anything is made: token lists may not be there yet.
static pl_status check_drafters(const pl_recipe *r, const char *out_dir, const pl_env *env, int n, pl_err *err) {
    PL_TRY(pl_stage_names(r, "drafters", err));
    for (int i = 0; i < n; i++) {
        pl_recipe *one;
        PL_TRY(drafter_recipe(r, i, env, out_dir, NULL, &one, err));
        pl_status st = routed(one) ? pl_router_check(one, err) : PL_OK;
        pl_recipe_close(one);
        PL_TRY(st);
    }
    return PL_OK;
}

static pl_status run_drafters(const pl_recipe *r, const char *out_dir, const pl_env *env, const char *generated, int n,
                              pl_err *err) {
    pl_eval_drafter list[MAX_DRAFTERS] = {{0}};
    char           *best[MAX_DRAFTERS] = {0};
    pl_status       st = PL_OK;
    for (int i = 0; i < n && st == PL_OK; i++) {
        const char *name = pl_recipe_str(pl_recipe_item(r, "drafters", i), "name");
        pl_recipe  *one = NULL;
        char       *dir = pl_sprintf("%s/drafters/%s", out_dir, name), *vocabulary = NULL;
        best[i] = pl_sprintf("%s/drafters/%s/checkpoints/best", out_dir, name);
        if (!dir || !best[i]) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
        if (st == PL_OK) st = vocabulary_of(r, i, out_dir, &vocabulary, err);
        if (st == PL_OK) st = drafter_recipe(r, i, env, out_dir, vocabulary, &one, err);
        pl_log("drafter %d of %d: %s", i + 1, n, name);
        char hash[17];
        memcpy(hash, generated, sizeof hash);
        if (st == PL_OK && routed(one) && !pl_recipe_has(r, "traces.path")) {
            const char *path = pl_recipe_str(one, "traces.path");
            char       *parent = pl_path_join(out_dir, "traces");
            st = parent ? trace(one, out_dir, parent, strrchr(path, '/') + 1, env, generated, hash, err)
                        : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
            pl_free(parent);
        }
        if (st == PL_OK) st = train(one, dir, env, hash, err);
        list[i] = (pl_eval_drafter){.name = name, .drafter = best[i], .tree = pl_eval_own_tree(r, i)};
        pl_recipe_close(one);
        pl_free(vocabulary);
        pl_free(dir);
    }
    if (st == PL_OK) st = pl_eval_drafters(r, out_dir, env, list, n, err);
    for (int i = 0; i < n; i++)
        pl_free(best[i]);
    return st;
}

pl_status pl_pipeline_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    PL_TRY(pl_dir_make(out_dir, err));
    if (strcmp(pl_recipe_str(r, "kind"), "target") == 0) {
        if (pl_recipe_list_count(r, "vocabularies") > 0)
            return pl_recipe_fail(r, "vocabularies", err, "kind: target has no draft head that would use them");
        return pl_train_run(r, out_dir, env, err);
    }
    char generated[17];
    int  n = pl_recipe_list_count(r, "drafters");
    if (n > MAX_DRAFTERS)
        return pl_recipe_fail(r, "drafters", err, "%d drafters, at most %d in one run", n, MAX_DRAFTERS);
    if (n == 0 && routed(r)) PL_TRY(pl_router_check(r, err));
    PL_TRY(check_drafters(r, out_dir, env, n, err));
    PL_TRY(generate_hash(r, generated, err));
    if (strcmp(pl_recipe_str(r, "data.mode"), "offline") == 0) PL_TRY(generate(r, out_dir, env, generated, err));
    PL_TRY(pl_vocabularies_run(r, out_dir, err));
    if (n > 0) return run_drafters(r, out_dir, env, generated, n, err);
    if (routed(r) && !pl_recipe_has(r, "traces.path"))
        PL_TRY(trace(r, out_dir, out_dir, "traces", env, generated, generated, err));
    PL_TRY(train(r, out_dir, env, generated, err));
    return pl_eval_run(r, out_dir, env, err);
}
