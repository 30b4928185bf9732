// Tool calls as chat models write them, and grammars of answers that make one.
//
//   hermes   <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>, one or several (Hermes, Qwen 2.5 and 3)
//   llama    {"name": "f", "parameters": {}}, perhaps behind <|python_tag|> (Llama 3.1)
//   mistral  [TOOL_CALLS][{"name": "f", "arguments": {}}, ...]; newer ones: [TOOL_CALLS]f[ARGS]{}, one or several
//   harmony  <|channel|>commentary to=functions.f <|constrain|>json<|message|>{} (GPT-OSS)
//
// A mark like [TOOL_CALLS] is a special token, or text where the vocabulary has no such token. In a grammar over bytes
// (infer/grammar/nodes.h) the token stands as the byte PL_MARK_BYTE + mark, which no UTF-8 has.
#ifndef PL_CALLS_H
#define PL_CALLS_H

#include "kernels/base/json.h"

typedef enum pl_call_form {
    PL_CALLS_NONE,
    PL_CALLS_HERMES,
    PL_CALLS_LLAMA,
    PL_CALLS_MISTRAL,
    PL_CALLS_MISTRAL_ARGS,
    PL_CALLS_HARMONY,
} pl_call_form;

typedef enum pl_mark {
    PL_MARK_OPEN,
    PL_MARK_CLOSE,
    PL_MARK_PYTHON,
    PL_MARK_CALLS,
    PL_MARK_ARGS,
    PL_MARK_CALL_ID,
    PL_MARK_START,
    PL_MARK_CHANNEL,
    PL_MARK_CONSTRAIN,
    PL_MARK_MESSAGE,
    PL_MARK_END,
    PL_MARKS
} pl_mark;
#define PL_MARK_BYTE 0xF5
extern const char *const pl_mark_text[PL_MARKS];

typedef enum pl_reasoning {
    PL_REASONING_NONE,
    PL_REASONING_MAY,   // <think>...</think> may stand in front
    PL_REASONING_BEGUN, // the prompt ends with <think>
} pl_reasoning;

// The answers that a request allows.
typedef struct pl_calls {
    pl_call_form        form; // not none
    pl_reasoning        reasoning;
    bool                many;      // several calls, where the form has them
    const cJSON *const *functions; // [n] with "name" and perhaps "parameters", a JSON schema of an object
    int                 n;
} pl_calls;

// Writes them as the text of a PL_GRAMMAR_CALLS; NULL: out of memory. The caller's (pl_free).
char *pl_calls_write(const pl_calls *c);

#endif
