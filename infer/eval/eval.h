// Evaluation: how fast each method decodes the same prompts, and whether it says what plain decoding says.
//
// Method 0 is "plain" (bf16 weights), then "plain-fp32" where wanted, then each drafter; then the same again at each
// further temperature, named "NAME@T=1". Every method decodes the same prompts at batch 1 with the same settings and
// seeds; for each prompt and seed all methods of a temperature run before the next, in an order that rotates, so that
// drift of the machine hits all alike. A drafter's weights and its target's are bf16: its answers are compared with
// plain's of the same temperature and seed.
#ifndef PL_EVAL_H
#define PL_EVAL_H

#include "data/text/prompts.h"
#include "infer/eval/results.h"

#define PL_EVAL_STAGE (1u << 16) // stage bit of keys that change the results alone

extern const pl_recipe_key pl_eval_keys[];

typedef struct pl_eval_drafter {
    const char *name; // NULL or "": the drafter's kind and head, "eagle3-lowrank"; tree and verifier where they differ
    const char *drafter; // as pl_drafter_open takes it
    const char *tree;    // NULL: the drafter's own
    const char *verify;  // NULL: match
} pl_eval_drafter;

typedef struct pl_eval_options {
    const pl_target       *target;                 // held in bf16, with a tokenizer; borrowed
    const char            *path, *tokenizer, *pre; // it was opened with, for plain-fp32 and results.json
    const pl_eval_drafter *drafter;
    int                    n_drafters;
    bool                   plain_fp32;
    const pl_prompts      *prompts;
    const char            *prompts_name; // for results.json
    int                    max_new_tokens, repeats;
    const double          *temperature; // [n_temperatures], the first one's methods have plain names
    int                    n_temperatures;
    int                    seeds; // decodings of each prompt where the temperature is above 0
    uint64_t               seed;
    const char            *recipe_hash; // NULL: none
} pl_eval_options;

// *out is the caller's (pl_results_destroy). A prompt that leaves no room for max_new_tokens loses its beginning.
pl_status pl_eval(pl_results **out, const pl_env *env, const pl_eval_options *o, pl_err *err);

// What a recipe says: these drafters (NULL: the run's own, trained in out_dir or, with a list `drafters`, in
// out_dir/drafters/NAME), then those of eval.drafters. A recipe that pretrains a target has its new target timed.
// Writes out_dir/results.json as soon as it is measured, then ceilings/ (emptied first: it is of this evaluation), then
// report.html; prints the table or, with --json, adds the results' members. Where ceilings fail, what was measured is
// kept, and reported.
pl_status   pl_eval_drafters(const pl_recipe *r, const char *out_dir, const pl_env *env, const pl_eval_drafter *drafter,
                             int n_drafters, pl_err *err);
// The tree of the run's own drafter, i of the list `drafters` or (i < 0) its only one: eval.tree; EAGLE-2's where the
// recipe names none and drafter.kind (or the item's) is eagle2, which is EAGLE-1's model with that tree.
const char *pl_eval_own_tree(const pl_recipe *r, int i);
// The stage: pl_eval_drafters without drafters of its own.
pl_status   pl_eval_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);

#endif
