// `generate`: the stage that writes a dataset, and what it shares with online training.
#ifndef PL_GENERATE_H
#define PL_GENERATE_H

#include "data/dataset/dataset.h"
#include "infer/generate/generator.h"
#include "infer/model/kv.h"
#include "recipes/recipe.h"

// The recipe's keys of the target and of the data that it makes (data.*), and the seed of everything random.
enum { PL_TARGET_BF16, PL_TARGET_FP32 };   // target.dtype
enum { PL_DATA_OFFLINE, PL_DATA_ONLINE };  // data.mode
enum { PL_FORM_TEXT, PL_FORM_CHAT };       // data.form
enum { PL_HISTORY_OWN, PL_HISTORY_GIVEN }; // data.chat.history
enum { PL_STORE_BF16, PL_STORE_INT8 };     // data.feature_format
enum { PL_LONG_SKIP, PL_LONG_CUT };        // data.long_prompts
typedef struct pl_generate_recipe {
    struct {
        const char *path, *tokenizer, *pre;
        int         dtype, kv;
    } target;
    struct {
        const char *prompts;
        bool        strict;
        int         form;
        struct {
            const char *template, *kwargs, *date, *system;
            int history;
        } chat;
        struct {
            const char *path;
            pl_ints     layers;
            int         answers;
            const char *begin, *end;
        } hidden_states;
        int         mode;
        const char *disk_budget;
        bool        taps;
        int         feature_format;
        int         long_prompts;
        int64_t     max_new_tokens, max_length;
        bool        greedy;
        int64_t     samples;
        double      temperature, top_p;
        int64_t     sessions, rows_per_shard;
    } data;
    int64_t seed;
} pl_generate_recipe;
extern const pl_key                     pl_generate_keys[];
static inline const pl_generate_recipe *pl_generate_recipe_of(const pl_recipe *r) {
    return pl_recipe_struct(r, pl_generate_keys);
}

// How data.prompts are split into those to train on and those to evaluate on, and the form of the latter where it is
// another than data.chat's.
typedef struct pl_split_recipe {
    struct {
        const char *prompts;
        int64_t     holdout;
        struct {
            const char *template, *kwargs, *date, *system;
            int history;
        } chat;
    } eval;
} pl_split_recipe;
extern const pl_key                  pl_split_keys[];
static inline const pl_split_recipe *pl_split_recipe_of(const pl_recipe *r) {
    return pl_recipe_struct(r, pl_split_keys);
}

static inline pl_feature_format pl_data_format(const pl_generate_recipe *c) {
    return c->data.feature_format == PL_STORE_INT8 ? PL_FEATURES_INT8 : PL_FEATURES_BF16;
}

// Whether nothing is made before training: the target answers meanwhile.
static inline bool pl_data_made_meanwhile(const pl_generate_recipe *c) {
    return c->data.mode == PL_DATA_ONLINE || c->data.disk_budget;
}
// data.disk_budget in bytes; "20GB", "500 MB" (1e9, 1e6), "20GiB" (2^30). One line where it is no size.
pl_status pl_data_budget(int64_t *bytes, const pl_recipe *r, pl_err *err);

static inline pl_dtype pl_target_dtype(const pl_generate_recipe *c) {
    return c->target.dtype == PL_TARGET_FP32 ? PL_F32 : PL_BF16;
}

static inline pl_dtype pl_target_kv(const pl_generate_recipe *c) {
    return pl_kv_chosen(c->target.kv);
}

// What `generate` and online training take from a recipe (data.*), ready for pl_generator_create. form is borrowed.
void pl_generator_options_from(pl_generator_options *o, const pl_recipe *r, const pl_prompt_form *form, const int *taps,
                               int n_taps);

// The recipe's form of prompts (data.form, data.chat.*), opened. Closed in any case.
pl_status pl_recipe_form(pl_prompt_form *form, const pl_recipe *r, pl_err *err);
// The form in which a drafter will be served and is evaluated: the same, but for what eval.chat.* says. Of equal forms
// the names are equal.
pl_status pl_recipe_served_form(pl_prompt_form *form, const pl_recipe *r, pl_err *err);
// What a dataset stores of how its documents are made, and of what (prompts: those answered, NULL where it is hidden
// states); *settings is the caller's, like the strings that *a borrows.
pl_status pl_generate_describe(pl_dataset_attrs *a, char **settings, const pl_recipe *r, const pl_llama *target,
                               const pl_tokenizer *tok, const pl_prompts *prompts, const pl_generator_options *o,
                               const pl_backend *be, pl_err *err);
// Prompts of a recipe, split: data.prompts without its held-out part (eval.holdout), or both given apart. They are
// whole conversations, or with data.chat.history: given (of those held out: eval.chat.history) a prompt for each of
// their turns.
pl_status pl_recipe_prompts(const pl_recipe *r, const pl_prompt_form *form, pl_prompts **train, pl_prompts **held,
                            pl_err *err);
// A file of prompts to evaluate on, in that form: as those held out. w: what its records are taken for; NULL: as they
// stand.
pl_status pl_prompts_to_evaluate(const pl_recipe *r, const pl_prompt_form *form, const char *path,
                                 const pl_prompts_rewrite *w, pl_prompts **out, pl_err *err);
// The members of data.chat, where the form is chat.
void      pl_put_chat(pl_json_out *o, const pl_recipe *r);

// Refuses with one line a recipe that lacks a key which the stage needs.
pl_status pl_generate_check(const pl_recipe *r, pl_err *err);
// The stage: writes out_dir/dataset, of the target's answers or (data.hidden_states) of what another program took of it
// (infer/generate/hidden_states.h), resuming one that was stopped, with the inputs of these layers. taps NULL: those
// of pl_generate_taps. Collective: the ranks of env share the answers (infer/generate/shards.h), which all write into
// out_dir, seen by all; hidden states are read by rank 0 alone.
pl_status pl_generate_run(const pl_recipe *r, const pl_taps *taps, const char *out_dir, const pl_env *env, pl_err *err);
// Instead of a dataset, the answers as text: out_dir/texts.jsonl, whole or not at all, a record for each answer in the
// same order: prompt; answer; text, both together (as the tokenizer spells their tokens); finish, "stop" where the
// target ended it and "length" where it was cut; tokens, of the answer; turn, of conversations. A turn that was
// not asked, since the template refuses an answer before it, has no record.
// Before it: what stands there under that name is such a file, and none that the recipe reads.
pl_status pl_generate_texts_spare(const pl_recipe *r, const char *out_dir, pl_err *err);
pl_status pl_generate_texts(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);
// Where nothing is known of the drafters: EAGLE-3's layers of a target of n_layers, or (data.taps: false) none.
void      pl_generate_taps(pl_taps *t, const pl_recipe *r, int n_layers);

#endif
