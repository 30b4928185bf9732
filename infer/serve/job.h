// A request that is being answered: its prompts as ids, its choices, and the text that each has so far. Private to
// infer/serve.
#ifndef PL_JOB_H
#define PL_JOB_H

#include "data/chat/template.h"
#include "infer/grammar/cache.h"
#include "infer/grammar/constraint.h"
#include "infer/serve/answer.h"
#include "infer/serve/delta.h"
#include "infer/serve/request.h"

typedef struct pl_job pl_job;

// Counts of a session that has ended.
typedef struct pl_session_counts {
    int32_t reused;
    int64_t drafted, accepted;
    double  prefill_seconds, seconds;
} pl_session_counts;

// One answer of a request.
typedef struct pl_choice {
    pl_job               *job;
    int                   prompt, index; // of the job's
    pl_session           *session;       // NULL: it waits, or has ended
    pl_grammar_constraint constraint;    // its grammar is NULL: none
    pl_delta              delta;
    pl_parts              parts;    // of delta's text
    size_t                given[2]; // bytes of reasoning and content that were sent
    int                   given_calls;
    pl_logprobs logprobs; // of the answer's tokens; where the prompt is echoed, of its tokens from the second on first
    pl_strbuf   ids;      // native: of its tokens
    int32_t     taken, sent;  // tokens taken into the text; those whose log-probabilities were sent
    int64_t     tokens;       // of the answer, a stop token included; set when it ends
    size_t      offset;       // characters of the tokens that were sent
    bool        begun;        // its first chunk was sent
    const char *finish;       // NULL: it has not ended
    pl_session_counts counts; // once its session has ended
    double            first;  // when its first token was there; 0: not yet
} pl_choice;

typedef struct pl_job_prompt {
    int32_t *ids;
    int64_t  n;
    char    *echo; // text in front of the answer; NULL: none, and its log-probabilities are not asked for
    uint64_t seed;
} pl_job_prompt;

struct pl_job {
    pl_exchange     *x;
    char             id[48];
    int64_t          created; // seconds since 1970
    double           arrived; // pl_now
    bool             chat, native, stream, include_usage;
    bool             return_tokens;
    int              logprobs;
    int64_t          max_tokens;
    bool             plain;
    int              draft_depth;
    bool             one_call; // an answer ends behind its first call
    pl_sampling      sampling; // its bias is `bias`
    pl_logit_bias   *bias;
    int              n_stop, n_stop_ids;
    char            *stop[PL_REQUEST_STOPS];
    int32_t          stop_id[PL_MAX_STOP];
    pl_job_prompt   *prompt;
    pl_choice       *choice;
    int              n_prompts, n, started, ended; // prompts; choices
    pl_session_stats stats;                        // of choices that ended
    int64_t          completion, cached;           // their tokens; those of prompts that a kept prefix had
    pl_job          *before, *after;
};

// The parts of the server that all jobs read; borrowed, but for the tokens' texts.
typedef struct pl_job_server {
    const pl_target        *target;
    pl_token_text          *tokens; // owned; NULL: no grammar has been asked for yet
    pl_grammar_cache        grammars;
    const pl_chat_template *chat;               // NULL: none
    const char             *no_chat;            // why
    pl_call_form            form;               // of calls in its answers
    bool                    thinks;             // they may begin with <think>
    int32_t                 mark[PL_MARKS + 2]; // [n_marks] special tokens that are text of such answers
    int                     n_marks;
    pl_chat_options         chat_options;
    bool                    dated; // the date of chat_options is kept; else each request takes the time of its arrival
    const char             *model; // name
    int                     max_len;
    bool                    drafts;
    uint64_t                seed; // of requests without one
    bool                    has_seed;
} pl_job_server;

// Encodes prompt i of a request, or its conversation: *ids is owned by the caller.
pl_status pl_request_encode(const pl_job_server *s, pl_request *r, const pl_strbuf *body, int i, int32_t **ids,
                            int64_t *n, pl_err *err);

// Sets what the chat template says of its answers.
void pl_job_server_look(pl_job_server *s);

// Makes the job of a request, whose fields it copies. On failure r->param names the field. PL_E_INPUT: a prompt is
// empty, too long or holds an unknown id.
pl_status          pl_job_create(pl_job **out, pl_job_server *s, pl_request *r, pl_exchange *x, pl_err *err);
void               pl_job_free(pl_job *j); // NULL is allowed; its sessions have ended
// Returns the options of a choice's session.
pl_session_options pl_choice_options(pl_choice *c, const pl_job_server *s);

// Takes in the tokens that a choice's session has emitted, and sets c->finish when it ends. Returns false when memory
// runs out.
bool pl_choice_take(pl_choice *c);
// Writes a choice's new text, and its end, to a stream; returns false if the client is lost.
bool pl_choice_send(pl_choice *c, const pl_job_server *s);
// Completes the answer after its last choice; false as above.
bool pl_job_finish(pl_job *j, const pl_job_server *s);
// Ends the answer with an error, in the stream where that has begun.
void pl_job_fail(pl_job *j, int status, const char *message);

#endif
