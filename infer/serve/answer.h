// Answers as OpenAI's API writes them: chat.completion and chat.completion.chunk, text_completion, errors.
#ifndef PL_ANSWER_H
#define PL_ANSWER_H

#include "data/tokenizer/tokenizer.h"
#include "infer/decode/decode.h"
#include "infer/serve/http.h"
#include "infer/serve/logprobs.h"
#include "infer/serve/parts.h"
#include "kernels/base/json.h"

// Returns the body of an error, NULL when out of memory (pl_free). param, code: NULL: none.
char *pl_error_text(int status, const char *message, const char *param, const char *code);
// Answers with it.
void  pl_exchange_fail(pl_exchange *x, int status, const char *message, const char *param, const char *code);
// Returns the HTTP status of a failure: 400 for bad input, else 500.
int   pl_status_http(pl_status st);

// Returns the characters of UTF-8 text.
size_t pl_count_characters(const char *text, size_t n);

// The members that all objects of one answer share; borrowed.
typedef struct pl_answer {
    const pl_tokenizer *tok;
    const char         *id, *model;
    int64_t             created; // seconds since 1970
    bool                chat, chunk;
    bool                ids; // tokens have their ids (pl_answer_put_tokens)
} pl_answer;

// A choice, or a part of one.
typedef struct pl_answer_choice {
    int                 index;
    const char         *text; // [bytes]
    size_t              bytes;
    const char         *reasoning; // [reasoning_bytes] of a chat
    size_t              reasoning_bytes;
    const pl_tool_call *call; // [call_to] of a chat, of which call_from.. are written
    int                 call_from, call_to;
    bool                first;    // the chunk that begins the choice; it names the role
    const char         *finish;   // "stop", "length", "tool_calls"; NULL: it goes on
    const pl_logprobs  *logprobs; // NULL: not asked for; of them tokens from..to-1
    int                 from, to;
    const int32_t      *lead;   // a completion's: the first token of an echoed prompt, which has none; NULL: none
    size_t              offset; // of the text in the choice's, for text_offset
} pl_answer_choice;

typedef struct pl_answer_usage {
    int64_t                 prompt, completion, cached; // tokens; cached: of the prompts
    const pl_session_stats *stats;                      // of all choices; NULL: no drafter
} pl_answer_usage;

// Writes an object in parts: begin opens it with its array of choices, of which each is one call; end closes it.
// usage NULL: none. nulls: a stream with usage, whose other chunks have "usage": null.
void pl_answer_begin(pl_json_out *o, const pl_answer *a);
void pl_answer_put_choice(pl_json_out *o, const pl_answer *a, const pl_answer_choice *c);
// Writes tokens from..to-1 with their log-probabilities as a member, as chats have them.
void pl_answer_put_tokens(pl_json_out *o, const pl_answer *a, const char *name, const pl_logprobs *l, int from, int to);
void pl_answer_end(pl_json_out *o, const pl_answer_usage *usage, bool nulls);

#endif
