// Prompts that the target writes itself, so that a drafter needs a model and no prompts (Magpie, arXiv 2406.08464). A
// chat model's template is rendered up to a user's message, which the model then samples; a base model continues from
// BOS. Prompts differ, end by themselves (a base model's are cut) and hold no special tokens.
//
// The file grows by whole lines {"prompt": ..., "id": ...}, and a line's id is the number of its sample: another call
// with the same settings goes on behind the last line, with the lines of a run that was not stopped. The settings lie
// beside it, PATH.settings; a file of other settings, or of another origin, is refused.
#ifndef PL_OWN_PROMPTS_H
#define PL_OWN_PROMPTS_H

#include "infer/cli/env.h"
#include "infer/model/target.h"

#define PL_OWN_PROMPTS "self:" // data.prompts: self:20000
#define PL_OWN_PROMPTS_MOST 100000000

typedef enum pl_own_form {
    PL_OWN_ANY,  // as a chat model if there is a template, else from BOS
    PL_OWN_CHAT, // a missing template is an error
    PL_OWN_BASE
} pl_own_form;

// Strings are borrowed; NULL: the model's own, or none.
typedef struct pl_own_prompts {
    const char *target, *tokenizer, *pre; // as pl_target_open_over
    pl_weights  weights;
    pl_own_form form;
    const char *template, *kwargs, *date, *system; // of chats: pl_chat_template_open, pl_chat_options
    const char *path;                              // the file
    int64_t     count;                             // prompts in it
    double      temperature, top_p;                // of the samples
    int64_t     min_tokens, max_tokens;            // others are left out; a base model's are cut at max_tokens
    int         sessions;                          // sampled at a time
    uint64_t    seed;
} pl_own_prompts;

typedef struct pl_own_prompts_result {
    int64_t prompts, sampled;                        // in the file
    int64_t repeated, open_ended, too_short, marked; // samples of this call that were left out
} pl_own_prompts_result;

// Writes the file, or the rest of it. A target that repeats itself gives fewer than o->count prompts, with a warning.
pl_status pl_own_prompts_write(pl_own_prompts_result *r, const pl_own_prompts *o, const pl_env *env, pl_err *err);

// Returns true if data.prompts is self:N instead of a path. Warns of settings in data.own that a path leaves unread.
bool      pl_own_prompts_wanted(const pl_recipe *r);
// Reads N of such a recipe; PL_E_INPUT if it is no number from 1 to PL_OWN_PROMPTS_MOST.
pl_status pl_own_prompts_count(int64_t *count, const pl_recipe *r, pl_err *err);
// Writes `count` prompts to the path data.prompts of a recipe, with its target and data.own's settings. PL_E_INPUT if
// the target repeats itself before.
pl_status pl_own_prompts_of_recipe(const pl_recipe *r, int64_t count, const pl_env *env, pl_err *err);

#endif
