// Evaluation: how fast each method decodes the same prompts, and whether it says what plain decoding says.
//
// Method 0 is "plain" (bf16 weights), then "plain-fp32" where wanted, then each drafter; then the same again at each
// further temperature, named "NAME@T=1". Every method decodes the same prompts at batch 1 with the same settings and
// seeds; for each prompt and seed all methods of a temperature run before the next, in an order that rotates, so that
// drift of the machine hits all alike. Before a later turn of a conversation stand the answers that "plain" gave at
// this temperature and seed, for all methods: they see the same prompts. A drafter's weights and its target's are
// bf16: its answers are compared with plain's of the same temperature and seed. What a drafter keeps of ended answers
// (keep) counts within one round over the prompts alone, and a FILE that it keeps them in is read, never written.
// Where batches are asked for, every method but "plain-fp32" then answers all prompts again, so many at a time
// (infer/eval/batch.h).
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
        int64_t     max_new_tokens; // 0: as the benchmark has it
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
    const pl_prompts      *prompts;      // conversations are asked turn by turn, if the form has a template
    const char            *prompts_name; // for results.json
    const pl_prompt_form  *form;         // how they are written; NULL: plain text
    int                    max_new_tokens, repeats;
    const double          *temperature; // [n_temperatures], the first one's methods have plain names
    int                    n_temperatures;
    const int64_t         *batch; // [n_batches] prompts at a time, each above 1: everything again, see results.h
    int                    n_batches;
    int                    seeds; // decodings of each prompt where the temperature is above 0
    uint64_t               seed;
    const char            *recipe_hash; // NULL: none
    pl_trace              *trace;       // every prompt and answer is written to it; NULL: nowhere
} pl_eval_options;

// *out is the caller's (pl_results_destroy). A prompt that leaves no room for max_new_tokens loses its beginning; so
// does a later turn behind answers that need far more tokens where they are read again than they were said in.
// Where the process is asked to stop (kernels/base/log.h) it ends behind the prompt in hand with PL_E_INTERRUPTED, and
// *out, unless several ranks share the prompts, is what all methods have answered by then; NULL: nothing.
// Collective: the ranks of env share the prompts (infer/eval/gather.h); what ranks above 0 get is their own part. With
// several ranks there are no batches.
pl_status pl_eval(pl_results **out, const pl_env *env, const pl_eval_options *o, pl_err *err);

// A drafter that the recipe itself trains, in out_dir (name NULL) or in out_dir/drafters/NAME; left out where it has no
// checkpoint yet.
typedef struct pl_eval_own {
    const char *name;
    const char *source; // the drafter's name before its folder, "lm"; NULL: the folder says what it is
    const char *tree;   // where the recipe gives no eval.tree; NULL: eval.tree's default
} pl_eval_own;

typedef struct pl_eval_subject {
    bool               pretrained; // the target is the one that was trained in out_dir; no drafters of its own
    const pl_eval_own *own;
    int                n;
} pl_eval_subject;

// Refuses with one line a recipe that lacks a key which the stage needs, or says what it cannot do. pretrained: see
// pl_eval_subject.
pl_status pl_eval_check(const pl_recipe *r, bool pretrained, const char *out_dir, pl_err *err);
// The checkpoint of the target that a recipe of kind: target has trained in out_dir, which its evaluation decodes with:
// the caller's, NULL where there is none.
pl_status pl_eval_pretrained(char **path, const char *out_dir, pl_err *err);
// What several ranks cannot evaluate, before anything is made. Not collective.
pl_status pl_eval_check_ranks(const pl_recipe *r, const pl_comm *comm, pl_err *err);
// The stage: the recipe's own drafters, then those of eval.drafters. Writes out_dir/results.json as soon as it is
// measured, then trace.jsonl (infer/decode/trace.h), ceilings/ and report.html, those of an earlier evaluation being
// gone before the new results come; prints the table or, with --json, adds the results' members. Where trace or
// ceilings fail, what was measured is kept, and reported.
pl_status pl_eval_run(const pl_recipe *r, const char *out_dir, const pl_env *env, const pl_eval_subject *s,
                      pl_err *err);

#endif
