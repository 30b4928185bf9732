// The questions of an evaluation (a file of prompts, the prompts that a recipe holds back, or a benchmark), and their
// scores.
#ifndef PL_QUESTIONS_H
#define PL_QUESTIONS_H

#include "data/benchmarks/benchmark.h"
#include "infer/eval/eval.h"

typedef struct pl_questions {
    pl_prompts *prompts; // owned
    const char *name;    // of where they come from, for messages and results.json; borrowed from the recipe
    int         max_new; // tokens of an answer at most
} pl_questions;

// Refuses with one line a recipe that names no prompts, or a benchmark that is none or whose files are not there.
pl_status pl_questions_check(const pl_recipe *r, pl_err *err);
// Closed in any case.
pl_status pl_questions_read(pl_questions *q, const pl_recipe *r, const pl_prompt_form *form, pl_err *err);
void      pl_questions_close(pl_questions *q);

// Scores the tokens of an answer against the prompt's reference, in the prompt's way (data/benchmarks/score.h): right
// or wrong in *x, or a line for HumanEval's own tool in a->samples. chat: the answer is a chat model's.
pl_status pl_question_score(const pl_prompt *p, const pl_tokenizer *tok, bool chat, const int32_t *tokens, int64_t n,
                            pl_method *a, pl_answer *x, pl_err *err);

#endif
