// How an answer is held against what a benchmark says of it.
#ifndef PL_SCORE_H
#define PL_SCORE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum pl_scoring {
    PL_SCORE_NONE,
    PL_SCORE_NUMBER, // its final number: what the last \boxed{...} holds, else the last number that it writes
    PL_SCORE_BOXED,  // what the last \boxed{...} holds, blanks aside, else its last number
    PL_SCORE_CODE, // by running it, which is the business of the benchmark's own tool: pl_code_of writes what it takes
} pl_scoring;

// NUMBER and BOXED; two numbers are equal where their values are: 1,000 is 1000.0.
bool pl_score(pl_scoring how, const char *answer, const char *reference);

// The part of an answer that HumanEval's tool runs behind the prompt. Of a chat: its last fenced block (where there is
// none, all of it), since a model there writes the function whole. Of a text that is continued: up to what ends a
// function, the paper's five strings (Chen et al. 2021, arXiv 2107.03374, section 2.1). From *at on, so many bytes.
size_t pl_code_of(const char *answer, bool chat, size_t *at);

#endif
