// `generate`: the stage that writes a dataset, and its functions that online training uses too.
#ifndef PL_GENERATE_H
#define PL_GENERATE_H

#include "data/dataset/dataset.h"
#include "infer/generate/generator.h"
#include "infer/model/kv.h"
#include "recipes/recipe.h"

// The recipe's keys of the target and of its data (data.*), and the seed of all random draws.
enum { PL_TARGET_BF16, PL_TARGET_FP32 };   // target.dtype
enum { PL_DATA_OFFLINE, PL_DATA_ONLINE };  // data.mode
enum { PL_FORM_TEXT, PL_FORM_CHAT };       // data.form
enum { PL_HISTORY_OWN, PL_HISTORY_GIVEN }; // data.chat.history
enum { PL_STORE_BF16, PL_STORE_INT8 };     // data.feature_format
enum { PL_LONG_SKIP, PL_LONG_CUT };        // data.long_prompts

// Keys of the form of conversations: the template (NULL: the model's own), its variables, and the answers before later
// turns (PL_HISTORY_*).
typedef struct pl_chat_recipe {
    const char *template, *kwargs, *date, *system;
    int history;
} pl_chat_recipe;

typedef struct pl_generate_recipe {
    struct {
        const char *path, *tokenizer, *pre;
        int         dtype, kv;
    } target;
    struct {
        const char *prompts;
        struct {
            double  temperature, top_p;
            int64_t min_tokens, max_tokens;
        } own; // prompts that the target writes
        bool           strict;
        int            form;
        pl_chat_recipe chat;
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

// The split of data.prompts into training and held-out prompts, and the form of the latter if it differs from
// data.chat's.
typedef struct pl_split_recipe {
    struct {
        const char    *prompts;
        int64_t        holdout;
        pl_chat_recipe chat;
    } eval;
} pl_split_recipe;
extern const pl_key                  pl_split_keys[];
static inline const pl_split_recipe *pl_split_recipe_of(const pl_recipe *r) {
    return pl_recipe_struct(r, pl_split_keys);
}

static inline pl_feature_format pl_data_format(const pl_generate_recipe *c) {
    return c->data.feature_format == PL_STORE_INT8 ? PL_FEATURES_INT8 : PL_FEATURES_BF16;
}

// Returns true if no data is made before training: the target answers during it.
static inline bool pl_data_made_meanwhile(const pl_generate_recipe *c) {
    return c->data.mode == PL_DATA_ONLINE || c->data.disk_budget;
}
// Parses data.disk_budget: "20GB", "500 MB" (1e9, 1e6), "20GiB" (2^30). Refuses other text with one line.
pl_status pl_data_budget(int64_t *bytes, const pl_recipe *r, pl_err *err);

static inline pl_dtype pl_target_dtype(const pl_generate_recipe *c) {
    return c->target.dtype == PL_TARGET_FP32 ? PL_F32 : PL_BF16;
}

static inline pl_dtype pl_target_kv(const pl_generate_recipe *c) {
    return pl_kv_chosen(c->target.kv);
}

// Reads the options of `generate` and online training from a recipe (data.*) for pl_generator_create. Borrows form.
void pl_generator_options_from(pl_generator_options *o, const pl_recipe *r, const pl_prompt_form *form, const int *taps,
                               int n_taps);

// Opens the recipe's form of prompts (data.form, data.chat.*). Close it even on failure.
pl_status pl_recipe_form(pl_prompt_form *form, const pl_recipe *r, pl_err *err);
// Opens the form in which a drafter is evaluated and served: the recipe's form with the settings of eval.chat.*. Equal
// forms have equal names.
pl_status pl_recipe_served_form(pl_prompt_form *form, const pl_recipe *r, pl_err *err);
// Fills in the attributes by which a dataset records its sources and settings (prompts: the answered ones, NULL for
// hidden states). The caller owns *settings and the strings that *a borrows.
pl_status pl_generate_describe(pl_dataset_attrs *a, char **settings, const pl_recipe *r, const pl_llama *target,
                               const pl_tokenizer *tok, const pl_prompts *prompts, const pl_generator_options *o,
                               const pl_backend *be, pl_err *err);
// Reads and splits the recipe's prompts: data.prompts with its held-out part (eval.holdout) removed, or two separate
// files. A prompt is a whole conversation or, with data.chat.history: given (eval.chat.history for the held-out ones),
// one turn of it.
pl_status pl_recipe_prompts(const pl_recipe *r, const pl_prompt_form *form, pl_prompts **train, pl_prompts **held,
                            pl_err *err);
// Reads a file of evaluation prompts in that form, as the held-out ones are read. w: rewrites its records; NULL: keeps
// them.
pl_status pl_prompts_to_evaluate(const pl_recipe *r, const pl_prompt_form *form, const char *path,
                                 const pl_prompts_rewrite *w, pl_prompts **out, pl_err *err);
// Writes the members of data.chat if the form is chat.
void      pl_put_chat(pl_json_out *o, const pl_recipe *r);

// Refuses with one line a recipe that lacks a key which the stage needs.
pl_status pl_generate_check(const pl_recipe *r, pl_err *err);
// Runs the stage: writes out_dir/dataset, of the target's answers or (data.hidden_states) of hidden states from another
// program (infer/generate/hidden_states.h), with the inputs of the layers `taps`; resumes a stopped one. taps NULL:
// those of pl_generate_taps. Collective: the ranks of env share the answers (infer/generate/shards.h) and all write to
// out_dir, which must be shared storage; rank 0 alone reads hidden states.
pl_status pl_generate_run(const pl_recipe *r, const pl_taps *taps, const char *out_dir, const pl_env *env, pl_err *err);
// Writes the answers as text instead of a dataset: out_dir/texts.jsonl, atomically, a record for each answer in the
// same order: prompt; answer; text, both together (as the tokenizer spells their tokens); finish, "stop" if the target
// ended the answer and "length" if it was cut; tokens, of the answer; turn, of conversations. A turn after an answer
// that the template refuses has no record.
// pl_generate_texts_spare, called first, checks that an existing file of that name is such a file and no input of the
// recipe.
pl_status pl_generate_texts_spare(const pl_recipe *r, const char *out_dir, pl_err *err);
pl_status pl_generate_texts(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);
// Sets the default taps: EAGLE-3's layers of a target of n_layers, or (data.taps: false) none.
void      pl_generate_taps(pl_taps *t, const pl_recipe *r, int n_layers);

#endif
