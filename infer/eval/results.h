// The measurements of an evaluation, figures computed from them, and results.json.
//
// Conventions: acceptance length = emitted tokens / steps over all prompts, the bonus token included (plain decoding is
// 1); tokens_per_second = emitted tokens / seconds over all prompts; both leave out prefill and the token it emits.
// acceptance_by_position[i]: of the steps that drafted at least i + 1 tokens deep, the share that accepted the token at
// that depth and all before it; seconds_by_prompt: without prefill, of all seeds and repeats. The base of a method is
// plain decoding with the same weights at the same temperature and seeds. Intervals hold 95 % of 1,000 bootstrap
// samples: prompts are drawn with replacement, and for each prompt its decoding seeds (Davison and Hinkley 1997, 3.8:
// two levels), the same draws for the method and for plain decoding.
#ifndef PL_RESULTS_H
#define PL_RESULTS_H

#include "infer/cli/machine.h"
#include "infer/decode/runner.h"
#include "kernels/base/clock.h"
#include "kernels/base/strbuf.h"

// One method's answer to one prompt with one seed: sums over all repeats; tokens, repeated and hash of the first
// repeat.
typedef struct pl_answer {
    double   seconds, prefill_seconds;
    int64_t  emitted, steps;
    int64_t  accepted, drafting; // accepted drafts, also beyond a cut; steps that drafted
    int64_t  tokens, repeated;   // of the answer; those inside a 4-gram that occurred earlier
    uint64_t hash;               // of the tokens
    bool     identical;
    bool     scored, correct; // against the prompt's reference (data/benchmarks/score.h)
} pl_answer;

// Seconds over the answers of a method; an answer counts with the mean of its repeats (infer/eval/harness.h).
typedef struct pl_latency {
    double mean, p50, p90, p99;
} pl_latency;

// The guarantee of a method about its answers.
typedef enum pl_promise {
    PL_PROMISE_IDENTICAL,    // plain decoding's own tokens
    PL_PROMISE_DISTRIBUTION, // other tokens of the same distribution
    PL_PROMISE_NONE,         // a lossy verifier
} pl_promise;

typedef struct pl_method {
    char             name[64], kind[32];
    const char      *weights, *kv;            // "bf16" or "fp32"
    char            *drafter;                 // as in the recipe or command; NULL: plain
    char            *checkpoint;              // NULL: plain, or a drafter without one
    char            *tree;                    // as requested
    char             tree_used[PL_TREE_TEXT]; // at the end, after `auto`'s choices
    const char      *verify;                  // the verifier's name
    pl_promise       promise;
    double           temperature;
    int              seeds, base;      // decoding seeds per prompt; the plain method at this temperature
    pl_session_stats stats;            // all prompts, seeds and repeats
    pl_answer       *answer;           // [prompts][seeds]
    double           step_bytes;       // one step of the target at the mean context
    double           draft_step_bytes; // one level of drafting
    double           weight_bytes;     // held in memory: target and drafter
    double           bandwidth;        // bytes/s measured at the footprint of one cycle
    uint64_t         hash;             // over all answers
    pl_latency       ttft, tpot;       // to the first token; per later token
    pl_strbuf        samples;          // JSON lines for HumanEval's tool: a task's id and its completion
} pl_method;

// All prompts decoded again in batches of `sessions` (infer/eval/batch.h), with the first seed.
typedef struct pl_batched {
    int              sessions, method;
    double           seconds;   // from the first prompt's start to the last one's end, of all repeats; prefill included
    int64_t          answers;   // of all repeats
    int64_t          different; // first repeat's answers that differ from the method's at batch 1
    pl_session_stats stats;
    pl_latency       ttft, tpot; // the first repeat's; TTFT from the start of its session
} pl_batched;

typedef struct pl_results {
    pl_method  *method; // ordered by temperature; the first of each is "plain"
    int         n_methods;
    int64_t     n_prompts, prompt_tokens, truncated;
    char      **category; // [n_prompts]; "": none
    int64_t    *record;   // [n_prompts] of the prompts' file; equal for the turns of a conversation
    int64_t    *picked;   // [n_prompts] scratch of pl_results_share
    pl_batched *batched;  // by temperature, sessions and method
    int         n_batched;
    pl_machine  machine;
    char        recipe_hash[17];
    char       *target, *prompts; // paths; prompts may be a benchmark's name
    char       *form;             // of the prompts: "plain", or "chat:" and the template's hash
    char        fingerprint[17];
    int         max_new_tokens, repeats;
    int         ranks; // ranks that shared the prompts (infer/eval/gather.h)
    double      mean_context;
    uint64_t    seed;
} pl_results;

void pl_results_destroy(pl_results *r);

// The complete part of an interrupted evaluation: the first prompts, methods, rounds and batches. A round is all
// prompts with one seed; the seeds follow each other within a repeat.
typedef struct pl_results_part {
    int64_t prompts; // 0: nothing
    int     methods, rounds, batched;
} pl_results_part;
// Drops all results outside `whole`.
void pl_results_cut(pl_results *r, const pl_results_part *whole);
// Fills a->hash from all answers, seed by seed in the order of the prompts.
void pl_results_hash(const pl_results *r, pl_method *a);

// Figures of a method over some prompts.
typedef struct pl_share {
    int64_t     prompts, emitted;
    double      speed, speedup, acceptance; // speed-up against its base
    pl_interval speedup_95, acceptance_95;
} pl_share;
// Computes the figures of method m over a category; NULL: all prompts.
void pl_results_share(const pl_results *r, int m, const char *category, pl_share *f);

// Ratios of method m to the first drafter of its temperature and weights, on the same prompts and seeds: acceptance
// lengths and speeds, with paired intervals, which are narrower than those of either method.
typedef struct pl_pair {
    int         first; // method index of the first drafter
    double      acceptance, speed;
    pl_interval acceptance_95, speed_95;
} pl_pair;
// Returns false where m is the first drafter or plain decoding.
bool pl_results_pair(const pl_results *r, int m, pl_pair *f);

// Figures of method m that need more than its own stats.
typedef struct pl_figures {
    pl_share all;
    double   floor;     // tokens/s if cycles took only the time to read their bytes at the measured bandwidth
    double   repeated;  // share of the answers' tokens inside repeated 4-grams
    bool     identical; // every answer equals plain decoding's
    int64_t  different; // answers that differ from it
} pl_figures;
void pl_results_figures(const pl_results *r, int m, pl_figures *f);

// Returns the number of right answers of method m; *scored: the number of scored answers.
int64_t pl_results_correct(const pl_results *r, int m, int64_t *scored);

// Returns the i-th of the prompts' categories in order of appearance, without ""; NULL past the last.
const char *pl_results_category(const pl_results *r, int i);

void pl_results_write(pl_json_out *o, const pl_results *r); // writes members of an open object
void pl_results_table(FILE *f, const pl_results *r);        // prints the table: infer/eval/table.c
// The first line of examples.csv.
#define PL_EXAMPLES_HEAD                                                                                               \
    "target,dataset_path,dataset_name,dataset_split,num_of_examples,drafter,temperature,example_id,new_toks,ttft_ms,"  \
    "tpot_ms,out_toks_per_sec\n"
// Write files in dir atomically: results.json; examples.csv, an answer a line, in the columns of hf-bench; and, where
// there are samples, samples/METHOD.jsonl for HumanEval's tool (evaluate_functional_correctness).
pl_status pl_results_save(const pl_results *r, const char *dir, pl_err *err);
pl_status pl_results_save_examples(const pl_results *r, const char *dir, pl_err *err);
pl_status pl_results_save_samples(const pl_results *r, const char *dir, pl_err *err);

#endif
