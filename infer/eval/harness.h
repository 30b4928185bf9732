// Acceptance lengths and latencies by the formulas of other projects, to compare with published figures. All follow
// from trace.jsonl. Step t of an answer accepts k_t drafts and emits e_t <= k_t + 1 tokens (a stop token or the limit
// may cut the last step). For a method:
//
//   total            sum e_t / steps                       this program's acceptance length; SGLang's, block efficiency
//   with_first       (sum e_t + answers) / steps           SpecForge: completion tokens, prefill's token among them
//   mean_of_steps    mean over steps of k_t + 1            Spec-Bench's mean accepted tokens
//   mean_of_turns    mean over answers of their own total  ModelOpt's Average_AL
//   mean_of_prompts  mean over records of the mean of their steps' k_t + 1      z-lab's dflash
//   accepted_only    mean over steps of k_t                llama.cpp, mlx
//   drafting         1 + sum k_t / steps that drafted      vLLM's mean acceptance length
//
//   memory-bound speed-up   total x B / (B + L b), if steps took only the time to read their bytes: B bytes of a plain
//                           step, b bytes of a level, L levels drafted a step (Jeon et al. 2024, arXiv
//                           2402.14160, MBSU)
//   TTFT   seconds to an answer's first token: prefill of target and drafter
//   TPOT   seconds per later token of an answer; SGLang's, hf-bench's (total - TTFT) / (n - 1)
#ifndef PL_HARNESS_H
#define PL_HARNESS_H

#include "infer/eval/results.h"

typedef struct pl_lengths {
    double total, with_first, mean_of_steps, mean_of_turns, mean_of_prompts, accepted_only, drafting;
} pl_lengths;

// Computes the lengths of method m; NaN where undefined.
void pl_lengths_of(const pl_results *r, int m, pl_lengths *l);

// Returns the figures of n values without the NaN ones. Sorts x.
pl_latency pl_latency_of(double *x, int64_t n);
// Fills the method's ttft and tpot from its answers.
pl_status  pl_latencies_measure(const pl_results *r, pl_method *m, pl_err *err);

void pl_latency_write(pl_json_out *o, const char *key, const pl_latency *l);

// Returns the mean number of levels drafted in a step; NaN: no steps.
double pl_mean_depth(const pl_session_stats *s);

// Writes members of an open object.
void pl_harness_write(pl_json_out *o, const pl_results *r, int m);

#endif
