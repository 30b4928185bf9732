#include "train/run/pipeline.h"

#include "infer/eval/eval.h"
#include "infer/eval/products.h"
#include "infer/generate/generate.h"
#include "infer/generate/hidden_states.h"
#include "infer/model/target.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "recipes/folder.h"
#include "train/keys.h"
#include "train/loop/checkpoint.h"
#include "train/run/run.h"
#include "train/run/taps.h"
#include "train/source/stamp.h"
#include "train/source/vocabularies.h"
#include "train/start/start.h"
#include "train/task/drafter.h"
#include "train/task/head_keys.h"
#include "train/task/loss.h"
#include "train/task/routed.h"
#include "train/task/traces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DRAFTERS = 64 };

// Products that are expensive to train are kept, together with training's logs.
static const char *const lines[] = {"metrics.jsonl", "skipped.jsonl", NULL};

static const pl_stage_product checkpoints = {"checkpoints", pl_checkpoint_kinds, "last", lines};
static const pl_stage_product dataset_product = {.path = "dataset", .holds = pl_dataset_files};
static const pl_stage_product bounded_product = {.path = "bounded", .holds = pl_dataset_files};

static const pl_key drafter_keys[] = {
    {PL_KEY_FIELD_STRING(pl_pipeline_drafter, name), .help = "name of the drafter's folder and of its line in the "
                                                             "results"},
    PL_KEYS_END(pl_pipeline_drafter)};

const pl_key pl_pipeline_keys[] = {{PL_KEY_FIELD_ITEMS(pl_pipeline_recipe, drafters, pl_pipeline_drafter),
                                    .item = drafter_keys, .overrides = true, .stages = PL_STAGE_EVAL,
                                    .help = "several drafters from one dataset, each with what differs from `drafter`"},
                                   PL_KEYS_END(pl_pipeline_recipe)};

const pl_key *const *pl_stage_tables(int *n) {
    enum { MOST = 64 };
    static const pl_key       *tables[MOST];
    static const pl_key *const before[] = {pl_generate_keys, pl_train_keys, pl_head_keys};
    static const pl_key *const after[] = {pl_pipeline_keys, pl_vocabularies_keys, pl_split_keys, pl_eval_keys};
    *n = 0;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        tables[(*n)++] = before[i];
    for (int i = 0; pl_head_at(i); i++)
        if (pl_head_at(i)->keys) tables[(*n)++] = pl_head_at(i)->keys;
    for (int i = 0; pl_loss_at(i); i++)
        if (pl_loss_at(i)->keys) tables[(*n)++] = pl_loss_at(i)->keys;
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        tables[(*n)++] = after[i];
    PL_CHECK(*n <= MOST, "%d tables of keys", *n);
    return tables;
}

// ---- stages ---------------------------------------------------------------------------------------------------------

// The drafters' requirements of a dataset, and the target's layers.
typedef struct plan {
    bool    trains;   // false: only makes a dataset
    bool    foreign;  // the target is not computed here: nothing is evaluated
    int     n_layers; // layers of the target
    pl_taps taps;     // taps to store
} plan;

// Hashes the inputs of the dataset: its keys, the target, the prompts to answer, and taps other than the default ones.
static pl_status generate_hash(const pl_recipe *r, const plan *p, char out[17], pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    pl_taps                   usual;
    char                      keys[17], taps[64];
    pl_prompts               *train = NULL, *held = NULL;
    pl_prompt_form            form;
    PL_TRY(pl_recipe_require(r, &gen->target.path, err));
    PL_TRY(pl_recipe_hash(r, PL_STAGE_GENERATE, keys, err));
    uint64_t  h = pl_hash(keys, 16);
    pl_status st = pl_recipe_form(&form, r, err);
    if (st == PL_OK && gen->data.hidden_states.path) {
        st = pl_hidden_states_hash(&h, r, err);
    } else if (st == PL_OK) {
        st = pl_recipe_prompts(r, &form, &train, &held, err);
        if (st == PL_OK) h = pl_prompts_hash(train, h);
    }
    if (st == PL_OK && form.chat) h = pl_hash_more(h, form.name, strlen(form.name));
    pl_prompts_destroy(train);
    pl_prompts_destroy(held);
    pl_prompt_form_close(&form);
    PL_TRY(st);
    char          target[17];
    pl_tokenizer *tok;
    pl_hf_config  config;
    PL_TRY(pl_llama_fingerprint(target, gen->target.path, err));
    PL_TRY(pl_llama_config(&config, gen->target.path, err));
    h = pl_hash_more(h, target, 16);
    PL_TRY(pl_target_tokenizer(&tok, gen->target.path, gen->target.tokenizer, gen->target.pre, err));
    if (tok) h = pl_hash_more(h, pl_tokenizer_fingerprint(tok), strlen(pl_tokenizer_fingerprint(tok)));
    if (tok) h = pl_hash_more(h, pl_tokenizer_adds_bos(tok) ? "bos" : "", pl_tokenizer_adds_bos(tok) ? 3 : 0);
    uint64_t stops = gen->data.hidden_states.path ? 0 : pl_target_stops_hash(&config, tok);
    if (stops) h = pl_hash_more(h, &stops, sizeof stops);
    pl_tokenizer_close(tok);
    pl_generate_taps(&usual, r, p->n_layers);
    pl_taps_text(taps, &p->taps);
    if (!pl_taps_same(&usual, &p->taps)) h = pl_hash_more(h, taps, strlen(taps) + 1);
    pl_hash_hex(out, h);
    return PL_OK;
}

// Hashes a dataset, or traces (top -1), that the recipe names.
static pl_status given_hash(const char *dir, int top, char out[17], pl_err *err) {
    pl_dataset      *ds;
    pl_dataset_attrs any = {.top = top, .A = -1};
    PL_TRY(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &any, .lazy = true, .incomplete = true}, err));
    snprintf(out, 17, "%s", pl_dataset_fingerprint(ds));
    pl_dataset_close(ds);
    return PL_OK;
}

static pl_status generate(const pl_recipe *r, const plan *p, const char *out_dir, const pl_env *env, const char *hash,
                          pl_err *err) {
    bool  whole;
    char *dataset = pl_path_join(out_dir, "dataset");
    if (!dataset) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_stage_begin(out_dir, "dataset", hash, &dataset_product, err);
    if (st == PL_OK && pl_stage_ended(out_dir, "dataset", hash, "dataset")) {
        pl_log("%s: up to date", dataset);
    } else if (st == PL_OK) {
        st = pl_stage_dataset(dataset, NULL, &whole, err);
        if (st == PL_OK && !whole) st = pl_ranks_generate(r, &p->taps, out_dir, env, err);
        if (st == PL_OK) st = pl_stage_end(out_dir, "dataset", hash, err);
    }
    pl_free(dataset);
    return st;
}

// ---- the recipe of one drafter of the list --------------------------------------------------------------------------

typedef struct sets {
    char *set[128];
    int   n;
} sets;

static pl_status append_set(sets *s, char *text, pl_err *err) {
    if (!text) return pl_fail(err, PL_E_MEMORY, "recipe: out of memory");
    PL_CHECK(s->n < (int)(sizeof s->set / sizeof *s->set), "%d settings", s->n);
    s->set[s->n++] = text;
    return PL_OK;
}

// Sets the start of drafter i: the checkpoint of an earlier drafter of the list by name, else `start` as a path.
static pl_status set_start(sets *s, const pl_recipe *r, int i, const char *start, const char *out_dir, pl_err *err) {
    const pl_pipeline_recipe *pipe = pl_pipeline_recipe_of(r);
    int                       k = 0, n = pipe->drafters.n;
    while (k < n && !(pipe->drafters.at[k].name && strcmp(pipe->drafters.at[k].name, start) == 0))
        k++;
    const void *item = &pipe->drafters.at[i], *field = &pl_train_recipe_of(r)->drafter.start;
    if (k < n && k >= i)
        return pl_recipe_fail_override(r, item, field, err, "\"%s\" comes after it in the list; put it before", start);
    if (k == n && !pl_path_exists(start))
        return pl_recipe_fail_override(r, item, field, err, "\"%s\" is neither a drafter of the list nor a checkpoint",
                                       start);
    return append_set(s,
                      k < n ? pl_sprintf("drafter.start=%s/drafters/%s/checkpoints/best", out_dir, start)
                            : pl_sprintf("drafter.start=%s", start),
                      err);
}

// Returns a key's value for drafter i: its item's, else the shared one.
static const char *said(const pl_recipe *r, int i, const char *const *field) {
    const pl_pipeline_drafter *item = &pl_pipeline_recipe_of(r)->drafters.at[i];
    const char                *own = pl_recipe_override(r, item, field);
    return own || pl_recipe_undone(r, item, field) ? own : *field;
}

// Sets the folder for traces of the drafter that item i starts from. All items with the same start and seed share it;
// it is named by the earlier drafter of the list or, for another checkpoint, by a hash of its path.
static pl_status set_traces(sets *s, const pl_recipe *r, int i, const char *out_dir, pl_err *err) {
    const pl_pipeline_recipe  *pipe = pl_pipeline_recipe_of(r);
    const pl_pipeline_drafter *item = &pipe->drafters.at[i];
    const char                *own = pl_recipe_override(r, item, &pl_train_recipe_of(r)->drafter.start);
    const char                *seed = pl_recipe_override(r, item, &pl_generate_recipe_of(r)->seed);
    const char                *start = said(r, i, &pl_train_recipe_of(r)->drafter.start);
    char                       name[64], hash[17], shared[32];
    pl_hash_hex(hash, start ? pl_hash(start, strlen(start)) : 0);
    snprintf(name, sizeof name, "start-%s", hash);
    for (int k = 0; k < i && own && start; k++)
        if (strcmp(pipe->drafters.at[k].name, start) == 0) name[0] = 0;
    snprintf(shared, sizeof shared, "%lld", (long long)pl_generate_recipe_of(r)->seed);
    return append_set(
        s, pl_sprintf("traces.path=%s/traces/%s.%s", out_dir, *name || !start ? name : start, seed ? seed : shared),
        err);
}

static bool item_routed(const pl_recipe *r, int i) {
    const void         *item = &pl_pipeline_recipe_of(r)->drafters.at[i];
    const char         *own = pl_recipe_override(r, item, &pl_head_recipe_of(r)->kind);
    const pl_head_kind *kind = own ? pl_head_find(own, NULL) : pl_train_head_kind(r);
    return kind && kind->routed;
}

// Leaves shared keys that a routed drafter does not read out of its recipe; its item's own keys stay, and are refused.
static pl_status leave_out_unread(sets *s, const pl_recipe *r, int i, pl_err *err) {
    const void *field;
    for (int k = 0; (field = pl_router_unread(r, k, NULL)); k++) {
        if (!pl_recipe_differs(r, field) || pl_recipe_overrides(r, &pl_pipeline_recipe_of(r)->drafters.at[i], field))
            continue;
        PL_TRY(append_set(s, pl_sprintf("%s=%s", pl_recipe_path(r, field), pl_recipe_default(r, field)), err));
    }
    return PL_OK;
}

static pl_status collect_sets(sets *s, const pl_recipe *r, int i, const char *out_dir, const char *list, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const char            *own = pl_recipe_override(r, &pl_pipeline_recipe_of(r)->drafters.at[i], &tr->drafter.start);
    if (!tr->data.dataset) PL_TRY(append_set(s, pl_sprintf("data.dataset=%s/dataset", out_dir), err));
    if (!tr->traces.path) PL_TRY(set_traces(s, r, i, out_dir, err));
    if (own) PL_TRY(set_start(s, r, i, own, out_dir, err));
    if (item_routed(r, i)) PL_TRY(leave_out_unread(s, r, i, err));
    return list ? append_set(s, pl_sprintf("drafter.head.vocab=%s", list), err) : PL_OK;
}

// Opens the recipe of drafter i alone: the whole recipe with the item's values in `drafter`. list: the file of its
// token list, or NULL to keep the recipe's name.
static pl_status drafter_recipe(const pl_recipe *r, int i, const char *out_dir, const char *list, pl_recipe **out,
                                pl_err *err) {
    const pl_pipeline_drafter *item = &pl_pipeline_recipe_of(r)->drafters.at[i];
    sets                       s = {.n = 0};
    char                      *name = pl_sprintf("drafter \"%s\"", item->name);
    *out = NULL;
    pl_status st =
        name ? collect_sets(&s, r, i, out_dir, list, err) : pl_fail(err, PL_E_MEMORY, "recipe: out of memory");
    if (st == PL_OK) st = pl_recipe_of_item(out, r, item, name, (const char *const *)s.set, s.n, err);
    for (int k = 0; k < s.n; k++)
        pl_free(s.set[k]);
    pl_free(name);
    return st;
}

// Hashes the contents of the list that drafter.head.vocab names: a drafter is trained again when they change.
static pl_status hash_vocabulary(uint64_t *h, const pl_recipe *r, const char *dir, pl_err *err) {
    char  *path;
    pl_map list;
    PL_TRY(pl_vocabulary_path(&path, r, pl_head_recipe_of(r)->vocab, dir, err));
    if (!path) return PL_OK;
    pl_status st = pl_map_open(&list, path, err);
    if (st == PL_OK) {
        *h = pl_hash_more(*h, list.data, list.size);
        pl_map_close(&list);
    }
    pl_free(path);
    return st;
}

// Prepares dir/bounded for documents that are made during training and then deleted: removes those of other prompts or
// settings.
static pl_status begin_bounded(const pl_recipe *r, const char *dir, const char *generated, pl_err *err) {
    if (!pl_generate_recipe_of(r)->data.disk_budget) return PL_OK;
    return pl_stage_begin(dir, "bounded", generated, &bounded_product, err);
}

// Captures the traces that a router learns from in parent/name. hash: their stamp, an input of the router's stamp.
static pl_status trace(const pl_recipe *r, const char *out_dir, const char *parent, const char *name, const pl_env *env,
                       const char *generated, char hash[17], pl_err *err) {
    char keys[17], start[17];
    PL_TRY(pl_recipe_require(r, &pl_train_recipe_of(r)->drafter.start, err));
    PL_TRY(pl_recipe_hash(r, PL_STAGE_TRACES, keys, err));
    PL_TRY(pl_start_identity(start, r, err));
    pl_hash_hex(hash, pl_hash_more(pl_hash_more(pl_hash(keys, 16), generated, 16), start, strlen(start)));
    char     *to = pl_path_join(parent, name);
    pl_status st = to ? pl_dir_make(parent, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", parent);
    if (st == PL_OK) st = begin_bounded(r, out_dir, generated, err);
    if (st == PL_OK)
        st = pl_stage_begin(parent, name, hash, &(pl_stage_product){.path = name, .holds = pl_dataset_files}, err);
    if (st == PL_OK && pl_stage_ended(parent, name, hash, name)) {
        pl_log("%s: up to date", to);
    } else if (st == PL_OK) {
        st = pl_traces_capture(r, out_dir, to, env, err);
        if (st == PL_OK) st = pl_stage_end(parent, name, hash, err);
    }
    pl_free(to);
    return st;
}

static pl_status train(const pl_recipe *r, const char *dir, const pl_env *env, const char *generated, pl_err *err) {
    char keys[17], hash[17], start[17];
    PL_TRY(pl_recipe_hash(r, PL_STAGE_DRAFTER, keys, err));
    PL_TRY(pl_start_identity(start, r, err));
    uint64_t h = pl_hash_more(pl_hash_more(pl_hash(keys, 16), generated, 16), start, strlen(start));
    PL_TRY(hash_vocabulary(&h, r, dir, err));
    pl_hash_hex(hash, h);
    PL_TRY(pl_dir_make(dir, err));
    if (!pl_train_routed(r)) PL_TRY(begin_bounded(r, dir, generated, err)); // a router learns from traces
    PL_TRY(pl_stage_begin(dir, "checkpoints", hash, &checkpoints, err));
    if (pl_stage_ended(dir, "checkpoints", hash, "checkpoints")) {
        pl_log("%s/checkpoints: up to date", dir);
        return PL_OK;
    }
    PL_TRY(pl_train_run(r, dir, env, err));
    return pl_stage_end(dir, "checkpoints", hash, err);
}

// Checks that a given dataset holds the features that the drafter reads.
static pl_status check_dataset(const char *dir, const pl_taps *t, pl_err *err) {
    pl_dataset      *ds;
    pl_dataset_attrs want = {.A = t->n};
    for (int i = 0; i < t->n; i++)
        want.tap_layer_ids[i] = t->layer[i];
    PL_TRY(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &want, .lazy = true, .incomplete = true}, err));
    pl_dataset_close(ds);
    return PL_OK;
}

// Adds the features that the drafter of recipe `one` (name NULL: the only one) reads to the plan; refuses features that
// this run's data will not have. given: data.dataset of the whole recipe.
static pl_status plan_taps(plan *p, const pl_recipe *one, const char *name, const char *given, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(one);
    pl_taps                   t;
    char                      list[64];
    PL_TRY(pl_drafter_taps(&t, one, p->n_layers, err));
    if (!p->trains) return pl_taps_add(&p->taps, &t, err);
    if (pl_data_made_meanwhile(gen)) return PL_OK;
    if (given) {
        pl_status st = check_dataset(given, &t, err);
        return st != PL_OK && name ? pl_fail_at(err, st, "drafter \"%s\"", name) : st;
    }
    pl_taps_text(list, &t);
    if (t.n > 0 && !gen->data.taps)
        return pl_recipe_fail(one, &gen->data.taps, err,
                              "false stores no layer's input, the %s drafter reads those of [%s]; leave data.taps out",
                              pl_train_drafter_choice(pl_train_recipe_of(one)->drafter.kind), list);
    return pl_taps_add(&p->taps, &t, err);
}

// Returns true if drafter i is a routed one that learns from given traces, or from traces of an earlier drafter: it
// needs no features of its own.
static bool reads_nothing_more(const pl_recipe *r, int i) {
    const pl_pipeline_recipe *pipe = pl_pipeline_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    const char               *own = pl_recipe_override(r, &pipe->drafters.at[i], &tr->drafter.start);
    if (!item_routed(r, i)) return false;
    if (tr->traces.path) return true;
    for (int k = 0; k < i && own; k++)
        if (strcmp(pipe->drafters.at[k].name, own) == 0) return true;
    return false;
}

// Checks the drafters' recipes before anything is made (token lists may not exist yet), and adds the features that they
// read to the plan.
static pl_status check_drafters(plan *p, const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_pipeline_recipe *pipe = pl_pipeline_recipe_of(r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    pl_hf_config              target;
    bool                      only = pipe->drafters.n == 0;
    if (only && p->trains) PL_TRY(pl_train_check(r, err));
    if (only && p->trains) PL_TRY(pl_train_check_alone(r, err));
    PL_TRY(pl_stage_names(r, pipe->drafters.at, pipe->drafters.n, sizeof *pipe->drafters.at, err));
    PL_TRY(pl_llama_config(&target, gen->target.path, err));
    p->n_layers = target.num_hidden_layers;
    p->foreign = target.foreign;
    if (only && !(pl_train_routed(r) && tr->traces.path)) PL_TRY(plan_taps(p, r, NULL, tr->data.dataset, err));
    for (int i = 0; i < pipe->drafters.n; i++) {
        pl_recipe *one;
        PL_TRY(drafter_recipe(r, i, out_dir, NULL, &one, err));
        pl_status st = p->trains ? pl_train_check(one, err) : PL_OK;
        if (st == PL_OK && p->trains) st = pl_head_keys_check_own(one, r, &pipe->drafters.at[i], err);
        if (st == PL_OK && !reads_nothing_more(r, i))
            st = plan_taps(p, one, pipe->drafters.at[i].name, tr->data.dataset, err);
        pl_recipe_close(one);
        PL_TRY(st);
    }
    if (p->taps.n == 0 || !gen->data.taps) pl_generate_taps(&p->taps, r, p->n_layers);
    return PL_OK;
}

pl_status pl_pipeline_drafters(int *n, const pl_recipe *r, pl_err *err) {
    const pl_pipeline_recipe *pipe = pl_pipeline_recipe_of(r);
    *n = pipe->drafters.n;
    return pl_stage_names(r, pipe->drafters.at, pipe->drafters.n, sizeof *pipe->drafters.at, err);
}

char *pl_pipeline_drafter_folder(const pl_recipe *r, int i, const char *out_dir) {
    return pl_sprintf("%s/drafters/%s", out_dir, pl_pipeline_recipe_of(r)->drafters.at[i].name);
}

pl_status pl_pipeline_drafter_recipe(pl_recipe **one, const pl_recipe *r, int i, const char *out_dir, pl_err *err) {
    char *vocabulary; // a list of this recipe is in the run's folder, not in the drafter's
    *one = NULL;
    PL_TRY(pl_vocabulary_path(&vocabulary, r, said(r, i, &pl_head_recipe_of(r)->vocab), out_dir, err));
    pl_status st = drafter_recipe(r, i, out_dir, vocabulary, one, err);
    pl_free(vocabulary);
    return st;
}

// Trains the drafter of a recipe in dir; a routed one after its traces, in parent/name. given: traces.path of the whole
// recipe.
static pl_status run_one(const pl_recipe *one, const char *given, const char *out_dir, const char *dir,
                         const char *parent, const char *name, const pl_env *env, const char *generated, pl_err *err) {
    char hash[17];
    memcpy(hash, generated, sizeof hash);
    if (pl_train_routed(one))
        PL_TRY(given ? given_hash(given, -1, hash, err) : trace(one, out_dir, parent, name, env, generated, hash, err));
    return train(one, dir, env, hash, err);
}

static pl_status run_drafter(const pl_recipe *r, int i, const char *out_dir, const pl_env *env, const char *generated,
                             pl_err *err) {
    const char *name = pl_pipeline_recipe_of(r)->drafters.at[i].name, *given = pl_train_recipe_of(r)->traces.path;
    pl_recipe  *one = NULL;
    char       *dir = pl_pipeline_drafter_folder(r, i, out_dir), *parent = pl_path_join(out_dir, "traces");
    pl_status   st = dir && parent ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK) st = pl_pipeline_drafter_recipe(&one, r, i, out_dir, err);
    pl_log("drafter %d of %d: %s", i + 1, pl_pipeline_recipe_of(r)->drafters.n, name);
    if (st == PL_OK)
        st = run_one(one, given, out_dir, dir, parent, pl_path_name(pl_train_recipe_of(one)->traces.path), env,
                     generated, err);
    pl_recipe_close(one);
    pl_free(parent);
    pl_free(dir);
    return st;
}

// Counts the lists without the documents that any drafter holds out by its seed.
static pl_status vocabularies(const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_pipeline_recipe *pipe = pl_pipeline_recipe_of(r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    uint64_t                  seed[MAX_DRAFTERS + 1] = {(uint64_t)gen->seed};
    int                       n = 1;
    for (int i = 0; i < pipe->drafters.n; i++) {
        const char *own = pl_recipe_override(r, &pipe->drafters.at[i], &gen->seed);
        if (own) seed[n++] = strtoull(own, NULL, 10);
    }
    return pl_vocabularies_run(r, seed, n, out_dir, err);
}

// ---- evaluation -----------------------------------------------------------------------------------------------------

// Returns drafter.kind of drafter i of the list.
static int kind_of(const pl_recipe *r, int i) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const char            *own = pl_recipe_override(r, &pl_pipeline_recipe_of(r)->drafters.at[i], &tr->drafter.kind);
    int                    k = 0;
    if (!own) return tr->drafter.kind;
    while (pl_train_drafter_choice(k) && strcmp(pl_train_drafter_choice(k), own) != 0)
        k++;
    return pl_train_drafter_choice(k) ? k : tr->drafter.kind;
}

pl_status pl_pipeline_target(char **path, const pl_recipe *r, const char *out_dir, bool evaluates, pl_err *err) {
    const char *given = pl_generate_recipe_of(r)->target.path;
    *path = NULL;
    if (evaluates && pl_train_recipe_of(r)->kind == PL_KIND_TARGET) PL_TRY(pl_eval_pretrained(path, out_dir, err));
    if (!*path && given) *path = pl_strdup(given);
    return *path || !given ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", given);
}

static pl_eval_own eval_own(const char *name, int kind) {
    return (pl_eval_own){
        .name = name, .source = pl_backbone_at(kind) ? NULL : PL_TRAIN_STANDALONE, .tree = pl_backbone_tree(kind)};
}

pl_status pl_pipeline_eval(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    const pl_pipeline_recipe *pipe = pl_pipeline_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    pl_eval_own               own[MAX_DRAFTERS + 1] = {{0}};
    pl_eval_subject           s = {.pretrained = tr->kind == PL_KIND_TARGET, .own = own};
    own[s.n++] = eval_own(NULL, tr->drafter.kind);
    for (int i = 0; i < pipe->drafters.n; i++)
        own[s.n++] = eval_own(pipe->drafters.at[i].name, kind_of(r, i));
    return pl_eval_run(r, out_dir, env, &s, err);
}

// ---- the whole ------------------------------------------------------------------------------------------------------

// Checks the number of drafters, and that eval.drafters names drafters of this recipe.
static pl_status check_names(const pl_recipe *r, pl_err *err) {
    const pl_pipeline_recipe *pipe = pl_pipeline_recipe_of(r);
    const pl_eval_recipe     *ev = pl_eval_recipe_of(r);
    if (pipe->drafters.n > MAX_DRAFTERS)
        return pl_recipe_fail(r, &pipe->drafters, err, "%d drafters, at most %d in one run", pipe->drafters.n,
                              MAX_DRAFTERS);
    for (int i = 0; i < ev->eval.drafters.n; i++) {
        const char *name = ev->eval.drafters.at[i].drafter;
        bool        known = !name || strcmp(name, "drafter") == 0;
        for (int k = 0; k < pipe->drafters.n && !known; k++)
            known = pipe->drafters.at[k].name && strcmp(pipe->drafters.at[k].name, name) == 0;
        if (!known && !pl_drafter_is_folder(name))
            return pl_recipe_fail(r, &ev->eval.drafters.at[i].drafter, err,
                                  "\"%s\" is none of the recipe's `drafters` but a drafter without a checkpoint; write "
                                  "`kind: %s`",
                                  name, name);
        if (!known)
            return pl_recipe_fail(r, &ev->eval.drafters.at[i].drafter, err, "\"%s\" is none of the recipe's `drafters`",
                                  name);
    }
    return PL_OK;
}

pl_status pl_pipeline_eval_check(const pl_recipe *r, const char *out_dir, pl_err *err) {
    PL_TRY(check_names(r, err));
    PL_TRY(pl_eval_check(r, pl_train_recipe_of(r)->kind == PL_KIND_TARGET, out_dir, err));
    return pl_eval_spares(r, out_dir, err);
}

// Checks that the run may write to a drafter's folder.
static pl_status check_run(const pl_recipe *r, const char *dir, pl_err *err) {
    PL_TRY(pl_stage_spares(dir, "checkpoints", &checkpoints, err));
    if (pl_generate_recipe_of(r)->data.disk_budget) PL_TRY(pl_stage_spares(dir, "bounded", &bounded_product, err));
    return pl_train_spares(r, dir, err);
}

static pl_status check_traces(const char *parent, const char *name, pl_err *err) {
    return pl_stage_spares(parent, name, &(pl_stage_product){.path = name, .holds = pl_dataset_files}, err);
}

// Checks that files in the run's folder with names of the stages' outputs are a run's products.
static pl_status check_folder(const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_pipeline_recipe *pipe = pl_pipeline_recipe_of(r);
    bool made = !pl_train_recipe_of(r)->data.dataset && !pl_data_made_meanwhile(pl_generate_recipe_of(r));
    if (made) PL_TRY(pl_stage_spares(out_dir, "dataset", &dataset_product, err));
    PL_TRY(pl_vocabularies_spare(r, out_dir, err));
    bool traced = !pl_train_recipe_of(r)->traces.path;
    if (pipe->drafters.n == 0) {
        if (pl_train_routed(r) && traced) PL_TRY(check_traces(out_dir, "traces", err));
        return check_run(r, out_dir, err);
    }
    for (int i = 0; i < pipe->drafters.n; i++) {
        pl_recipe *one = NULL;
        char      *dir = pl_sprintf("%s/drafters/%s", out_dir, pipe->drafters.at[i].name);
        char      *parent = pl_path_join(out_dir, "traces");
        pl_status  st = dir && parent ? drafter_recipe(r, i, out_dir, NULL, &one, err)
                                      : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
        if (st == PL_OK && traced && pl_train_routed(one))
            st = check_traces(parent, pl_path_name(pl_train_recipe_of(one)->traces.path), err);
        if (st == PL_OK) st = check_run(one, dir, err);
        pl_recipe_close(one);
        pl_free(parent);
        pl_free(dir);
        PL_TRY(st);
    }
    return PL_OK;
}

static pl_status check(plan *p, const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_vocabularies_recipe *voc = pl_vocabularies_recipe_of(r);
    if (pl_train_recipe_of(r)->kind == PL_KIND_TARGET) {
        if (voc->vocabularies.n > 0)
            return pl_recipe_fail(r, &voc->vocabularies, err, "kind: target has no draft head that would use them");
        PL_TRY(pl_train_check(r, err));
        return pl_train_spares(r, out_dir, err);
    }
    PL_TRY(pl_generate_check(r, err));
    PL_TRY(pl_stage_names(r, voc->vocabularies.at, voc->vocabularies.n, sizeof *voc->vocabularies.at, err));
    PL_TRY(check_drafters(p, r, out_dir, err));
    if (!p->foreign) PL_TRY(pl_pipeline_eval_check(r, out_dir, err));
    return check_folder(r, out_dir, err);
}

pl_status pl_pipeline_check(const pl_recipe *r, const char *out_dir, pl_err *err) {
    plan p = {.trains = true};
    return check(&p, r, out_dir, err);
}

// Checks that out_dir's training state can be resumed with the keys of r, by the recipe with which it was begun.
static pl_status check_begun(const pl_recipe *r, const char *out_dir, pl_err *err) {
    int                  n;
    char                 change[256] = "";
    const pl_key *const *tables = pl_stage_tables(&n);
    bool                 target = pl_train_recipe_of(r)->kind == PL_KIND_TARGET;
    char      *state = pl_path_join(out_dir, "checkpoints/last"), *path = pl_path_join(out_dir, PL_TRAIN_BEGUN);
    pl_recipe *was = NULL;
    pl_status  st = state && path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    // Without such a recipe, or with one of an older program, the trainer compares the state itself.
    if (st == PL_OK && pl_path_exists(state) && pl_recipe_open(&was, path, tables, n, NULL, 0, NULL) == PL_OK)
        st = pl_recipe_change(was, r, target ? PL_STAGE_TARGET : PL_STAGE_DRAFTER, change, sizeof change, err);
    if (st == PL_OK && *change)
        st = pl_fail(err, PL_E_INPUT,
                     "%s: a run begun with another %s; restore that, or give another --out (%s begins with this one's "
                     "weights)",
                     out_dir, change, target ? "target.start" : "drafter.start");
    pl_recipe_close(was);
    pl_free(path);
    pl_free(state);
    return st;
}

pl_status pl_pipeline_train_check(const pl_recipe *r, const char *out_dir, pl_err *err) {
    int listed = pl_pipeline_recipe_of(r)->drafters.n;
    PL_TRY(pl_train_check(r, err));
    if (!listed) PL_TRY(pl_train_check_alone(r, err));
    PL_TRY(pl_train_spares(r, out_dir, err));
    PL_TRY(check_begun(r, out_dir, err));
    if (listed) pl_log("train: the list of %d drafters is for `run`; this trains what `drafter` says", listed);
    return PL_OK;
}

static pl_status check_generate(plan *p, const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    if (gen->data.disk_budget)
        return pl_recipe_fail(r, &gen->data.disk_budget, err,
                              "generate stores all documents; leave it out, or train, which makes them meanwhile");
    PL_TRY(pl_generate_check(r, err));
    return check_drafters(p, r, out_dir, err);
}

pl_status pl_pipeline_generate_check(const pl_recipe *r, const char *out_dir, pl_err *err) {
    plan p = {.trains = false};
    PL_TRY(check_generate(&p, r, out_dir, err));
    char     *dir = pl_path_join(out_dir, "dataset");
    pl_status st = dir ? pl_dataset_spares(dir, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_free(dir);
    return st;
}

pl_status pl_pipeline_texts_check(const pl_recipe *r, const char *out_dir, pl_err *err) {
    plan p = {.trains = false};
    PL_TRY(check_generate(&p, r, out_dir, err));
    return pl_generate_texts_spare(r, out_dir, err);
}

pl_status pl_pipeline_generate(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    plan p = {.trains = false};
    PL_TRY(check_generate(&p, r, out_dir, err));
    return pl_ranks_generate(r, &p.taps, out_dir, env, err);
}

pl_status pl_pipeline_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    int                    n = pl_pipeline_recipe_of(r)->drafters.n;
    plan                   p = {.trains = true};
    char                   generated[17];
    PL_TRY(check(&p, r, out_dir, err));
    if (tr->kind != PL_KIND_TARGET && !p.foreign) PL_TRY(pl_eval_check_ranks(r, env->comm, err));
    PL_TRY(pl_dir_make(out_dir, err));
    if (tr->kind == PL_KIND_TARGET) return pl_train_run(r, out_dir, env, err);
    if (tr->data.dataset && !pl_data_made_meanwhile(pl_generate_recipe_of(r))) {
        PL_TRY(given_hash(tr->data.dataset, 0, generated, err));
    } else {
        PL_TRY(generate_hash(r, &p, generated, err));
        if (!pl_data_made_meanwhile(pl_generate_recipe_of(r))) PL_TRY(generate(r, &p, out_dir, env, generated, err));
    }
    PL_TRY(vocabularies(r, out_dir, err));
    for (int i = 0; i < n; i++)
        PL_TRY(run_drafter(r, i, out_dir, env, generated, err));
    if (n == 0) PL_TRY(run_one(r, tr->traces.path, out_dir, out_dir, out_dir, "traces", env, generated, err));
    if (!p.foreign) return pl_ranks_eval(r, out_dir, env, err);
    pl_log(
        "the target is not computed here: its drafters are not evaluated; `paceline export` writes them for engines");
    return PL_OK;
}
