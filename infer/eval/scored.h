// Answers held against their references (data/benchmarks/score.h).
#ifndef PL_SCORED_H
#define PL_SCORED_H

#include "data/chat/prompts.h"
#include "infer/eval/results.h"

// The tokens of an answer as its prompt's scoring has it: right or wrong in *x, or a line for HumanEval's own tool in
// a->samples. chat: the answer is a chat model's.
pl_status pl_scored_add(const pl_prompt *p, const pl_tokenizer *tok, bool chat, const int32_t *tokens, int64_t n,
                        pl_method *a, pl_answer *x, pl_err *err);
bool      pl_scored_is_code(const pl_prompt *p);

#endif
