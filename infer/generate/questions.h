// The prompts of a generator: encoded, measured, and left out or cut where they leave no room for an answer.
#ifndef PL_QUESTIONS_H
#define PL_QUESTIONS_H

#include "infer/generate/generator.h"

typedef struct pl_question {
    const pl_prompt *prompt; // borrowed
    int32_t         *ids;    // of the first turn; owned
    int64_t          n;
    int              turns;   // that can be answered
    bool             cut;     // the beginning of its first turn is dropped
    int64_t          n_given; // ids of the answer that the prompt brings (pl_prompt.ids); 0: the target answers
} pl_question;

typedef struct pl_questions {
    const pl_llama             *target; // borrowed, as the two below
    const pl_tokenizer         *tok;
    const pl_generator_options *opt;
    pl_question                *q; // [n]
    int64_t                     n;
    // Upper bound of the tokens in front of an answer; a given answer counts here what it has beyond opt->max_new.
    int64_t                     longest;
} pl_questions;

// Lists the prompts; warnings count those that are left out or cut. Call pl_questions_fini even on failure.
pl_status pl_questions_list(pl_questions *w, const pl_prompts *prompts, pl_err *err);
void      pl_questions_fini(pl_questions *w);

const char *pl_questions_path(const pl_questions *w);      // of the prompts, for messages
int         pl_questions_positions(const pl_questions *w); // the most tokens of a document
pl_status   pl_questions_check_ids(const pl_questions *w, const int32_t *ids, int64_t n, pl_err *err);
// Returns by how many tokens a given answer is longer than the target's may be.
int64_t     pl_question_longer(const pl_questions *w, const pl_question *a);
// Renders and encodes a turn; *text, with *bytes, and *ids are owned by the caller. text NULL: it is dropped.
pl_status   pl_question_render(const pl_questions *w, const pl_question *a, const pl_chat_turn *turn, char **text,
                               size_t *bytes, int32_t **ids, int64_t *n, pl_err *err);

#endif
