// Evaluation: measures the speed of each method on the same prompts and compares its answers with plain decoding's.
//
// Method 0 is "plain" (bf16 weights), then "plain-fp32" where requested, then each drafter; the same methods follow at
// each further temperature, named "NAME@T=1". Every method decodes the same prompts at batch 1 with the same settings
// and seeds. For each prompt and seed all methods of a temperature run before the next prompt, in rotating order, so
// that drift of the machine affects all alike. A later turn of a conversation follows the answers of "plain" at this
// temperature and seed, for all methods, so that their prompts are the same. Drafters and their target have bf16
// weights; their answers are compared with those of "plain" at the same temperature and seed. The tokens that a drafter
// keeps of ended answers (keep) last for one round over the prompts, and its FILE is read but never written. With
// batches, every method but "plain-fp32" then decodes all prompts again at each batch size (infer/eval/batch.h).
#ifndef PL_EVAL_H
#define PL_EVAL_H

#include "data/chat/prompts.h"
#include "infer/decode/trace.h"
#include "infer/eval/results.h"
#include "infer/generate/generate.h"

// The recipe's keys eval.*
typedef struct pl_eval_drafter_recipe {
    const char *name, *path, *kind, *drafter, *tree, *verify;
} pl_eval_drafter_recipe;

typedef struct pl_eval_recipe {
    struct {
        const char *benchmark, *benchmark_data;
        int64_t     max_new_tokens; // 0: the benchmark's
        pl_reals    temperatures;
        pl_ints     batches;
        int64_t     seeds, repeats, limit;
        const char *tree, *verify;
        bool        plain_fp32, trace;
        int64_t     ceilings;
        PL_KEY_ITEMS(pl_eval_drafter_recipe) drafters;
    } eval;
} pl_eval_recipe;
extern const pl_key                 pl_eval_keys[];
static inline const pl_eval_recipe *pl_eval_recipe_of(const pl_recipe *r) {
    return pl_recipe_struct(r, pl_eval_keys);
}

typedef struct pl_eval_drafter {
    const char *name; // NULL or "": the drafter's kind and head, "eagle3-lowrank"; tree and verifier where they differ
    const char *drafter; // for pl_drafter_open
    const char *tree;    // NULL: the drafter's own
    const char *verify;  // NULL: match
} pl_eval_drafter;

typedef struct pl_eval_options {
    const pl_recipe       *recipe; // its keys eval.*, target.* and seed
    const pl_target       *target; // bf16, with a tokenizer; borrowed
    const char            *path;   // of its opening
    const pl_eval_drafter *drafter;
    int                    n_drafters;
    const pl_prompts      *prompts;      // conversations run turn by turn if the form has a template
    const char            *prompts_name; // for results.json
    const pl_prompt_form  *form;         // form of the prompts
    int                    max_new_tokens;
    pl_trace              *trace; // receives every prompt and answer; NULL: none
} pl_eval_options;

// Runs the evaluation; the caller frees *out (pl_results_destroy). A prompt that leaves no room for max_new_tokens is
// cut at its beginning; so is a later turn when the answers before it take far more tokens encoded again than decoded.
// An interrupt (kernels/base/log.h) ends the evaluation after the current prompt with PL_E_INTERRUPTED, and *out has
// the prompts that all methods have answered; NULL: none, or several ranks share the prompts. Collective: the ranks of
// env share the prompts (infer/eval/gather.h), and ranks above 0 return their own part. Several ranks run no batches.
pl_status pl_eval(pl_results **out, const pl_env *env, const pl_eval_options *o, pl_err *err);

// A drafter trained by the recipe itself, in out_dir (name NULL) or in out_dir/drafters/NAME; left out without a
// checkpoint.
typedef struct pl_eval_own {
    const char *name;
    const char *source; // the drafter's name before its folder, "lm"; NULL: the folder's config has it
    const char *tree;   // without eval.tree in the recipe; NULL: eval.tree's default
} pl_eval_own;

typedef struct pl_eval_subject {
    bool               pretrained; // the target was trained in out_dir; the recipe trains no drafters
    const pl_eval_own *own;
    int                n;
} pl_eval_subject;

// Fails with one line if the recipe lacks a key that the stage needs, or has a value that it does not support.
// pretrained: see pl_eval_subject.
pl_status pl_eval_check(const pl_recipe *r, bool pretrained, const char *out_dir, pl_err *err);
// Finds the checkpoint of the target trained in out_dir by a recipe of kind: target. The caller frees *path; NULL:
// there is none.
pl_status pl_eval_pretrained(char **path, const char *out_dir, pl_err *err);
// Fails if the recipe has batches and there are several ranks, before any work. Not collective.
pl_status pl_eval_check_ranks(const pl_recipe *r, const pl_comm *comm, pl_err *err);
// Runs the stage on the recipe's own drafters, then those of eval.drafters. After measuring, it removes the files of an
// earlier evaluation and writes out_dir/results.json, and after it trace.jsonl (infer/decode/trace.h), ceilings/ and
// report.html. Prints the table or, with --json, adds the results' members. If trace or ceilings fail, the results stay
// and are reported.
pl_status pl_eval_run(const pl_recipe *r, const char *out_dir, const pl_env *env, const pl_eval_subject *s,
                      pl_err *err);

#endif
