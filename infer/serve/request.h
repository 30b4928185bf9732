// Bodies of requests, as OpenAI's API (2026-10), vLLM and llama.cpp name their fields.
//
// A field that would change the answer and is not supported is refused with its name; one that changes nothing here
// (user, metadata, ...) is accepted and listed in `ignored`. null means that a field is absent.
#ifndef PL_REQUEST_H
#define PL_REQUEST_H

#include "infer/grammar/calls.h"
#include "infer/grammar/grammar.h"
#include "infer/model/target.h"
#include "infer/sample/distribution.h"
#include "kernels/base/json.h"

enum {
    PL_REQUEST_STOPS = 16,        // stop strings
    PL_REQUEST_STOP_BYTES = 256,  // of one
    PL_REQUEST_CHOICES = 128,     // of one prompt
    PL_REQUEST_PROMPTS = 1024,    // of one request
    PL_REQUEST_TOP_LOGPROBS = 20, // tokens besides the one that was taken
    PL_REQUEST_BIASES = 1024,     // of logit_bias
    PL_REQUEST_TOOLS = 128,
};

typedef enum pl_tool_choice { PL_TOOLS_AUTO, PL_TOOLS_NONE, PL_TOOLS_REQUIRED, PL_TOOLS_NAMED } pl_tool_choice;

// native: llama.cpp's own /completion, whose fields have its names and defaults.
typedef enum pl_ask { PL_ASK_CHAT, PL_ASK_COMPLETION, PL_ASK_NATIVE, PL_ASK_TOKENIZE, PL_ASK_DETOKENIZE } pl_ask;

// A logit_bias for each token of a text (borrowed from the body).
typedef struct pl_text_bias {
    const char *text;
    float       value;
} pl_text_bias;

// A prompt as text (borrowed from the body) or as ids (owned).
typedef struct pl_request_prompt {
    const char *text; // NULL: ids
    int32_t    *ids;
    int64_t     n_ids;
} pl_request_prompt;

typedef struct pl_request {
    pl_ask             ask;
    pl_json            body;     // owned; strings below point into it
    const char        *model;    // NULL: not named
    bool               messages; // there is a conversation, "messages" of the body
    pl_request_prompt *prompt;   // owned
    int                n_prompts;
    int                n; // choices for each prompt
    bool               stream, include_usage, echo, ignore_eos;
    bool               add_special, add_generation_prompt, pieces;
    int64_t            max_tokens;  // -1: as many as the context leaves
    int                logprobs;    // -1: none; else how many of the best tokens besides the one that was taken
    bool               plain;       // no drafts
    int                draft_depth; // most levels of a draft; 0: as many as the tree has
    const char        *method, *tree, *verify; // that its drafts are to have; NULL: the server's
    pl_sampling        sampling;               // its bias is `bias`
    pl_logit_bias     *bias;                   // owned
    pl_text_bias      *text_bias;              // owned
    int                n_text_bias;
    bool               return_tokens;
    int                repeat_last_n; // native: tokens that repetition_penalty looks at; -1: all
    char              *grammar;       // text of the grammar that the answer is held to, owned; NULL: none
    pl_grammar_kind    grammar_kind;
    const char        *grammar_field; // that asks for it
    int                n_tools;
    const cJSON       *tool[PL_REQUEST_TOOLS]; // their "function", with a name
    pl_tool_choice     tool_choice;
    const char        *tool_name;      // of the named one
    bool               parallel_calls; // an answer may have several
    pl_reasoning       reasoning;      // how the prompt begins the answer; set by pl_request_encode
    bool               has_seed;
    int                n_stop, n_stop_ids;
    const char        *stop[PL_REQUEST_STOPS];
    int32_t            stop_id[PL_MAX_STOP];
    char               ignored[256]; // names of fields without effect, cut to fit
    char               param[64];    // after a failure: the field that is wrong; "": none
} pl_request;

// Reads body[0..n). On failure only r->param holds something. PL_E_INPUT, PL_E_UNSUPPORTED: one line names the field.
pl_status pl_request_read(pl_request *r, pl_ask ask, const char *body, size_t n, pl_err *err);
void      pl_request_fini(pl_request *r);

#endif
