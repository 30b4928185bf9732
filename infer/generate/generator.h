// Training data from the target itself: answers to prompts, greedy and sampled, many sequences per forward, with the
// features that drafters learn from.
//
// Documents come in a fixed order, whatever the batching: job j is place j % places of round j / places. Each turn of
// each conversation has a place (a prompt without turns is a conversation of one): of PL_GENERATE_BLOCK conversations
// at a time the first turns, then the second ones, and so on. In round 0 answers are greedy where greedy answers are
// wanted; in the others they are sampled, each keyed by (seed, j). So a producer that was stopped goes on with the next
// job, and online training (rounds without end) sees the same text as offline training.
//
// Turns are written by the chat template with the answers of the same round before them, as messages
// (data/chat/answer.h); so a document is one answer behind its whole prompt, and the ids of the answer alone are
// supervised, as the target emitted them. A history that leaves no room for an answer of full length loses its oldest
// exchanges. A history that the template refuses ends its conversation: so that documents keep their numbers, each of
// its further turns is the conversation's opening prompt with nothing to learn (no answer, PL_ANSWER_UNKNOWN).
//
// A document depends on its number alone (and, of a later turn, on the answers before it, which a generator that begins
// there answers again), so that any part of the jobs can be made by anybody, in any order, with the same bits.
#ifndef PL_GENERATOR_H
#define PL_GENERATOR_H

#include "data/chat/prompts.h"
#include "data/dataset/columns.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/cli/env.h"
#include "infer/model/llama.h"

enum { PL_GENERATE_BLOCK = 64 };

// How prompts are written. chat NULL: they are plain text, as they are.
#define PL_FORM_NAME 32
typedef struct pl_prompt_form {
    pl_chat_template *chat; // owned
    pl_chat_options   options;
    char              name[PL_FORM_NAME]; // what datasets store: "plain", or "chat:" and a hash of all this
    const char       *path;               // of the prompts, for messages; NULL: data.prompts
} pl_prompt_form;

void pl_prompt_form_close(pl_prompt_form *form);

// Jobs [first, end); end < 0: without end.
typedef struct pl_jobs {
    int64_t first, end;
} pl_jobs;

// Which jobs a generator answers: those of one range after the other, as they are asked for; ranges overlap nowhere. It
// looks ahead: a range is asked for as soon as there is a free place. false: there are no more now; asked again after
// that when the next document is.
typedef struct pl_generator_work {
    bool (*next)(void *arg, pl_jobs *range);
    void *arg;
} pl_generator_work;

typedef struct pl_generator_options {
    const pl_prompt_form *form; // borrowed; NULL: plain text
    int                   n_taps, tap[PL_MAX_TAPS];
    int                   max_new;
    int                   max_len;     // tokens of a document at most; 0: the target's context
    bool                  greedy;      // round 0 is greedy
    int                   samples;     // sampled rounds; < 0: without end
    double                temperature; // of sampled rounds
    double                top_p;
    int                   sessions; // in flight
    bool                  cut;      // prompts that are too long lose their beginning; false: they are left out
    bool                  strict;   // a record's turn that the template refuses ends the run, not the conversation
    uint64_t              seed;
    int64_t               first_job; // documents already made
    pl_generator_work     work;      // next NULL: all jobs from first_job on
} pl_generator_options;

typedef struct pl_generator pl_generator;

// Borrows everything. Prompts that leave no room for an answer within max_len are left out or cut, with a warning that
// counts them; a conversation ends before such a turn.
pl_status   pl_generator_create(pl_generator **out, const pl_env *env, const pl_llama *target, const pl_tokenizer *tok,
                                const pl_prompts *prompts, const pl_generator_options *o, pl_err *err);
void        pl_generator_destroy(pl_generator *g);
int64_t     pl_generator_jobs(const pl_generator *g); // documents in all; -1 without end
// The next document in order, with all columns of features and what it is, borrowed until the next call; n = 0 when
// there are no more. The last emitted token has no row, since the target never read it: it is the document's end. After
// a failure only destroy is allowed.
pl_status   pl_generator_next(pl_generator *g, pl_columns *doc, pl_err *err);
// Forgets what is known and was not given away, begun or not: the next document is the first of a range that is asked
// for then.
void        pl_generator_forget(pl_generator *g);
// The text that it answers, of *n bytes, uncut, borrowed likewise.
const char *pl_generator_prompt(const pl_generator *g, size_t *n);
int64_t     pl_generator_number(const pl_generator *g); // its job

// ---- of any job, whether or not it is answered here

int64_t        pl_generator_rows(const pl_generator *g, int64_t job); // of its document, at most
// Whether a generator that begins with it answers nothing before it again.
bool           pl_generator_begins(const pl_generator *g, int64_t job);
// The job behind the last that has to be answered by whoever answers this one, lest answers be made twice.
int64_t        pl_generator_unit_end(const pl_generator *g, int64_t job);
// The ids of the prompt that opens its conversation, which is all that decides whether it is held out
// (data/dataset/dataset.h); borrowed.
const int32_t *pl_generator_opening(const pl_generator *g, int64_t job, int64_t *n);

#endif
