// The questions of an evaluation (a file of prompts, a recipe's held-out prompts, or a benchmark) and their scores.
#ifndef PL_QUESTIONS_H
#define PL_QUESTIONS_H

#include "data/benchmarks/benchmark.h"
#include "infer/eval/eval.h"

typedef struct pl_questions {
    pl_prompts *prompts; // owned
    const char *name;    // of their source, for messages and results.json; borrowed from the recipe
    int         max_new; // most tokens of an answer
} pl_questions;

// Fails with one line if the recipe has no prompts, or its benchmark is unknown or lacks files.
pl_status pl_questions_check(const pl_recipe *r, pl_err *err);
// Reads the questions; call close also on failure.
pl_status pl_questions_read(pl_questions *q, const pl_recipe *r, const pl_prompt_form *form, pl_err *err);
void      pl_questions_close(pl_questions *q);

// Scores the tokens of an answer against the prompt's reference by the prompt's scoring (data/benchmarks/score.h):
// right or wrong in *x, or a line for HumanEval's own tool in a->samples. chat: the answer is a chat model's.
pl_status pl_question_score(const pl_prompt *p, const pl_tokenizer *tok, bool chat, const int32_t *tokens, int64_t n,
                            pl_method *a, pl_answer *x, pl_err *err);

#endif
