// What an evaluation has measured, what follows from it, and results.json.
//
// Conventions: acceptance length = emitted tokens / steps over all prompts, the bonus token included (plain decoding is
// 1); tokens_per_second = emitted tokens / seconds over all prompts; both leave out prefill and the token it emits.
// acceptance_by_position[i]: of the steps that drafted at least i + 1 tokens deep, the share that accepted the token at
// that depth and all before it; seconds_by_prompt: without prefill, of all seeds and repeats. A method is judged
// against plain decoding with the same weights at the same temperature and seeds. Intervals hold 95 % of 1,000
// bootstrap samples: prompts are drawn with replacement, and for each its decoding seeds (Davison and Hinkley
// 1997, 3.8: two levels), the same ones for the method and for plain decoding.
#ifndef PL_RESULTS_H
#define PL_RESULTS_H

#include "infer/cli/machine.h"
#include "infer/decode/runner.h"
#include "kernels/base/interval.h"
#include "kernels/base/strbuf.h"

// One method's answer to one prompt with one seed; all repeats added up, but the tokens, which are the first repeat's.
typedef struct pl_answer {
    double   seconds, prefill_seconds;
    int64_t  emitted, steps;
    int64_t  accepted, drafting; // drafts that verification accepted, cut off or not; steps that drafted any
    int64_t  tokens, repeated;   // of the answer; of them, inside a 4-gram that the answer had before
    uint64_t hash;               // of its tokens
    bool     identical;
    bool     scored, correct; // against the prompt's reference (data/benchmarks/score.h)
} pl_answer;

// Seconds over the answers of a method, each answer's the mean of its repeats (infer/eval/harness.h).
typedef struct pl_latency {
    double mean, p50, p90, p99;
} pl_latency;

// What a method says of its answers.
typedef enum pl_promise {
    PL_PROMISE_IDENTICAL,    // plain decoding's own tokens
    PL_PROMISE_DISTRIBUTION, // other tokens of the same distribution
    PL_PROMISE_NONE,         // a lossy verifier
} pl_promise;

typedef struct pl_method {
    char             name[64], kind[32];
    const char      *weights, *kv;            // "bf16" or "fp32"
    char            *drafter;                 // as it was named; NULL: plain
    char            *checkpoint;              // NULL: plain, or a drafter without one
    char            *tree;                    // as asked for
    char             tree_used[PL_TREE_TEXT]; // at the end: what `auto` settled on
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
    pl_latency       ttft, tpot;       // to the first token; of each later one
    pl_strbuf        samples;          // JSON lines as HumanEval's tool reads them: a task's id, and its completion
} pl_method;

// All prompts again, so many at a time (infer/eval/batch.h), with the first seed.
typedef struct pl_batched {
    int              sessions, method;
    double           seconds;   // from the first prompt's start to the last one's end, of all repeats; prefill included
    int64_t          answers;   // of all repeats
    int64_t          different; // of the first repeat's, from the method's own answers one at a time
    pl_session_stats stats;
    pl_latency       ttft, tpot; // the first repeat's; TTFT from when a prompt is taken up
} pl_batched;

typedef struct pl_results {
    pl_method  *method; // temperature by temperature, each beginning with "plain"
    int         n_methods;
    int64_t     n_prompts, prompt_tokens, truncated;
    char      **category; // [n_prompts]; "" when it has none
    int64_t    *record;   // [n_prompts] of the prompts' file: the turns of a conversation have the same
    int64_t    *picked;   // [n_prompts] scratch of pl_results_share
    pl_batched *batched;  // by temperature, sessions and method
    int         n_batched;
    pl_machine  machine;
    char        recipe_hash[17];
    char       *target, *prompts; // paths; prompts may be a benchmark's name
    char       *form;             // of the prompts: "plain", or "chat:" and the template's hash
    char        fingerprint[17];
    int         max_new_tokens, repeats;
    int         ranks; // that answered (infer/eval/gather.h)
    double      mean_context;
    uint64_t    seed;
} pl_results;

void pl_results_destroy(pl_results *r);

// The part of a stopped evaluation's results that is whole: the first so many of each. A round answers every prompt
// with one seed, repeat after repeat.
typedef struct pl_results_part {
    int64_t prompts; // 0: nothing
    int     methods, rounds, batched;
} pl_results_part;
void pl_results_cut(pl_results *r, const pl_results_part *whole);
// Fills a->hash: of all answers, seed by seed in the order of the prompts.
void pl_results_hash(const pl_results *r, pl_method *a);

// Figures of a method over some prompts.
typedef struct pl_share {
    int64_t     prompts, emitted;
    double      speed, speedup, acceptance; // speed-up against its base
    pl_interval speedup_95, acceptance_95;
} pl_share;
// category: NULL for all prompts.
void pl_results_share(const pl_results *r, int m, const char *category, pl_share *f);

// Method m over the first drafter of its temperature and weights, on the same prompts and seeds: ratios of acceptance
// lengths and of speeds, with intervals of the pairs, which are narrower than either one's own. false: m is that
// drafter, or plain decoding.
typedef struct pl_pair {
    int         first; // its method
    double      acceptance, speed;
    pl_interval acceptance_95, speed_95;
} pl_pair;
bool pl_results_pair(const pl_results *r, int m, pl_pair *f);

// Figures of method m that need more than its own stats.
typedef struct pl_figures {
    pl_share all;
    double   floor;     // tokens/s if every cycle only read its bytes, at the measured bandwidth
    double   repeated;  // share of the answers' tokens inside repeated 4-grams
    bool     identical; // every answer equals plain decoding's
    int64_t  different; // answers that do not
} pl_figures;
void pl_results_figures(const pl_results *r, int m, pl_figures *f);

// Right answers of method m, of those that were scored.
int64_t pl_results_correct(const pl_results *r, int m, int64_t *scored);

// Prompts' categories in order of appearance, without "": the i-th, or NULL past the last.
const char *pl_results_category(const pl_results *r, int i);

void pl_results_write(pl_json_out *o, const pl_results *r); // members of an open object
void pl_results_table(FILE *f, const pl_results *r);        // infer/eval/table.c
// The line that examples.csv begins with.
#define PL_EXAMPLES_HEAD                                                                                               \
    "target,dataset_path,dataset_name,dataset_split,num_of_examples,drafter,temperature,example_id,new_toks,ttft_ms,"  \
    "tpot_ms,out_toks_per_sec\n"
// Files in dir, each whole or not at all: results.json; examples.csv, an answer a line, in the columns of hf-bench;
// samples/METHOD.jsonl, what HumanEval's tool reads (evaluate_functional_correctness), where there is any.
pl_status pl_results_save(const pl_results *r, const char *dir, pl_err *err);
pl_status pl_results_save_examples(const pl_results *r, const char *dir, pl_err *err);
pl_status pl_results_save_samples(const pl_results *r, const char *dir, pl_err *err);

#endif
