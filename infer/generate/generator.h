// Makes training data with the target: answers to prompts, greedy and sampled, many sequences per forward, with the
// features that drafters learn from.
//
// Documents come in a fixed order that does not depend on batching: job j is place j % places of round j / places. Each
// turn of each conversation has a place (a prompt without turns is a conversation of one): of PL_GENERATE_BLOCK
// conversations at a time the first turns, then the second ones, and so on. With `greedy`, answers of round 0 are
// greedy; all others are sampled, each keyed by (seed, j). So a stopped run resumes with the next job, and online
// training (endless rounds) reads the same text as offline training.
//
// The chat template renders each turn with the earlier answers of the same round as messages (data/chat/prompts.h). A
// document is a whole prompt followed by one answer, and only the ids of the answer are supervised, as the target
// emitted them. A history that leaves no room for an answer of full length loses its oldest exchanges. A history that
// the template refuses ends its conversation; to keep the numbering of documents, each further turn of it becomes the
// conversation's opening prompt without an answer (PL_ANSWER_UNKNOWN).
//
// A conversation that was served (pl_prompt.ids) brings its answer, which stands in the round of greedy answers for the
// target's; sampled rounds answer its prompt anew.
//
// A document is a function of its number (a later turn also depends on the answers before it, which a generator that
// begins there computes again), so that any rank can make any part of the jobs, in any order, with the same bits.
#ifndef PL_GENERATOR_H
#define PL_GENERATOR_H

#include "data/chat/prompts.h"
#include "data/dataset/columns.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/cli/env.h"
#include "infer/model/llama.h"

enum { PL_GENERATE_BLOCK = 64 };

// The format of prompts. chat NULL: plain text.
#define PL_FORM_NAME 32
typedef struct pl_prompt_form {
    pl_chat_template *chat; // owned
    pl_chat_options   options;
    char              name[PL_FORM_NAME]; // stored in datasets: "plain", or "chat:" and a hash of template and options
    const char       *path;               // of the prompts, for error messages; NULL: data.prompts
} pl_prompt_form;

void pl_prompt_form_close(pl_prompt_form *form);

// Jobs [first, end); end < 0: endless.
typedef struct pl_jobs {
    int64_t first, end;
} pl_jobs;

// The source of a generator's jobs: ranges that do not overlap, requested one after the other. The generator looks
// ahead: it requests a range as soon as it has a free place. `next` returns false if there is no range now; the
// generator calls it again for the next document.
typedef struct pl_generator_work {
    bool (*next)(void *arg, pl_jobs *range);
    void *arg;
} pl_generator_work;

typedef struct pl_generator_options {
    const pl_prompt_form *form; // borrowed; NULL: plain text
    int                   n_taps, tap[PL_MAX_TAPS];
    int                   max_new;
    int                   max_len;     // the most tokens of a document; 0: the target's context
    bool                  greedy;      // round 0 is greedy
    int                   samples;     // sampled rounds; < 0: endless
    double                temperature; // of sampled rounds
    double                top_p;
    int                   sessions; // in flight
    bool                  cut;      // true: prompts that are too long lose their beginning; false: they are skipped
    bool              strict; // a record's turn that the template refuses is an error; else it ends the conversation
    uint64_t          seed;
    int64_t           first_job; // documents already made
    pl_generator_work work;      // next NULL: all jobs from first_job on
} pl_generator_options;

typedef struct pl_generator pl_generator;

// Borrows all arguments. Skips or cuts prompts that leave no room for an answer within max_len, with a warning that
// counts them; a conversation ends before such a turn.
pl_status   pl_generator_create(pl_generator **out, const pl_env *env, const pl_llama *target, const pl_tokenizer *tok,
                                const pl_prompts *prompts, const pl_generator_options *o, pl_err *err);
void        pl_generator_destroy(pl_generator *g);
int64_t     pl_generator_jobs(const pl_generator *g); // number of documents; -1: endless
// Returns the next document in order, with all columns of features and its description, borrowed until the next call;
// n = 0 if there are no more. The last emitted token has no row, since the target did not read it; it is stored as the
// document's end. After a failure only destroy is allowed.
pl_status   pl_generator_next(pl_generator *g, pl_columns *doc, pl_err *err);
// Drops all jobs whose documents were not returned, begun or not: the next document is the first of a newly requested
// range.
void        pl_generator_forget(pl_generator *g);
// Returns the prompt of the current document, *n bytes, uncut; borrowed until the next document.
const char *pl_generator_prompt(const pl_generator *g, size_t *n);
int64_t     pl_generator_number(const pl_generator *g); // job of the current document

// ---- of any job, also of jobs that other ranks answer

int64_t        pl_generator_rows(const pl_generator *g, int64_t job); // the most rows of its document
// Returns true if a generator can begin with the job without answering earlier jobs again.
bool           pl_generator_begins(const pl_generator *g, int64_t job);
// Returns the end of the range of jobs that one generator must answer together with this one, so that no answer is
// computed twice.
int64_t        pl_generator_unit_end(const pl_generator *g, int64_t job);
// Returns the ids of its conversation's opening prompt, borrowed; they alone determine whether the document is held out
// (data/dataset/dataset.h).
const int32_t *pl_generator_opening(const pl_generator *g, int64_t job, int64_t *n);

#endif
