// The chat template of a model's folder, and conversations written by it.
//
// A template is, in this order: the file that the caller names; chat_template.jinja; "chat_template" of
// tokenizer_config.json, a string or a list of {"name", "template"}, of which "tool_use" is for conversations with
// tools and "default" for all others; additional_chat_templates/tool_use.jinja is the former too. The special tokens of
// tokenizer_config.json (else of special_tokens_map.json) are its variables: bos_token, eos_token, ... A .gguf file
// that is named as the tokenizer brings both itself (tokenizer.chat_template, tokenizer.chat_template.tool_use, the
// tokens of its ids), as does a folder's tokenizer.gguf where the folder has no template.
//
// The rendered text holds every token that the model is to see: it is encoded without a second BOS (no
// PL_TOK_ADD_BOS).
#ifndef PL_CHAT_TEMPLATE_H
#define PL_CHAT_TEMPLATE_H

#include "data/chat/jinja.h"
#include <stdbool.h>

typedef struct pl_chat_template pl_chat_template; // rendered by one thread at a time, as JSON is read by one

// dir: a model's folder, or a tokenizer's file in it. file: a template instead of the folder's own, NULL for that.
// PL_E_INPUT where there is none, naming what was looked for.
pl_status   pl_chat_template_open(pl_chat_template **out, const char *dir, const char *file, pl_err *err);
void        pl_chat_template_close(pl_chat_template *t); // NULL is allowed
// 16 hex digits over the templates and the special tokens.
const char *pl_chat_template_hash(const pl_chat_template *t);

// What stands before an answer of the assistant. An exchange begins with what a user says; an answer that a tool's
// result follows stays the record's in any case, since the result belongs to it.
typedef struct pl_chat_turn {
    int                number; // of the record's turns that the assistant answers, from 0
    // [number] its own answers as messages (pl_chat_answer_message) in place of the record's; NULL, or an item NULL:
    // the record's.
    const char *const *answer;
    int                skip; // the earliest exchanges left out; messages before the first exchange all stay
} pl_chat_turn;

// How a record was read where the template could not take it as it is written, or did not show all of it.
enum {
    PL_CHAT_NOTE_ARGUMENTS = 1,   // arguments of calls, JSON strings, were decoded
    PL_CHAT_NOTE_PARTS = 2,       // content in parts was joined
    PL_CHAT_NOTE_ROLES = 4,       // roles were written as user, assistant, tool or system
    PL_CHAT_NOTE_CALL = 8,        // function_call became tool_calls
    PL_CHAT_NOTE_SYSTEM = 16,     // a system message beside a conversation that has its own was not used
    PL_CHAT_NOTE_CONTEXT = 32,    // "context" was not used
    PL_CHAT_NOTE_HISTORY = 64,    // nor "history"
    PL_CHAT_NOTE_FUNCTIONS = 128, // nor "functions"
    PL_CHAT_NOTE_MEDIA = 256,     // nor "images", "videos", ...
    PL_CHAT_NOTE_LEFT = 512,      // nor "tools" or other variables of a template beside a prompt that is text
};
// Warns of each note once. where: the file.
void pl_chat_warn_notes(unsigned notes, const char *where);

typedef struct pl_chat_options {
    bool                add_generation_prompt; // the beginning of the assistant's next turn
    const char         *kwargs;                // a JSON object of more variables ({"enable_thinking": false}), or NULL
    const char         *date;                  // see pl_jinja_render
    const char         *system;                // a system message before conversations that begin without one, or NULL
    const pl_chat_turn *turn;                  // what comes before it, of the messages; NULL: all
    unsigned           *notes;                 // PL_CHAT_NOTE_* are added to it; NULL: nowhere
} pl_chat_options;

// record[0..n): a JSON object with one of
//   "messages"       as chat templates take them: objects with "role", "content", ...
//   "conversations"  ShareGPT's: objects with "from" (human, gpt, system, tool, or a role) and "value", or messages
//   "turns", "prompt", "text"  the same, where they are lists of objects
// and perhaps "tools", "documents" (lists of objects, or such a list as JSON text), "chat_template_kwargs" (variables,
// over those of the options), and "system" or "system_prompt" for a conversation that begins without a system message.
// Messages come to the template as transformers' apply_chat_template hands them on (5.24): members that are null are
// left out, reasoning ("reasoning_content", "thinking", "reasoning") stands under the first two names. Beyond that they
// are read as servers do: arguments of tool calls that are JSON strings are decoded; content in parts of text is joined
// by "\n" where the template prints or refuses the list; a role that the template leaves out or refuses is written as
// user, assistant, tool or system; function_call becomes tool_calls where the template does not name it. Refused with
// one line: unknown roles that the template does not name, parts that are no text, lists that are none.
// where, line: of the record, for messages (pl_json_parse).
pl_status pl_chat_template_render(const pl_chat_template *t, const char *where, int64_t line, const char *record,
                                  size_t n, const pl_chat_options *o, pl_jinja_out *out, pl_err *err);

// The list of a record's messages, whichever member it is (data/text/messages.h); NULL: none.
typedef struct pl_json pl_json;
struct cJSON;
const struct cJSON *pl_chat_messages(const pl_json *j);

// Turns that an assistant answers: those of a user or tool with an answer, or nothing, behind them. A system message
// between question and answer belongs to the question; messages of the assistant's in a row are one answer.
int  pl_chat_turns(const pl_json *j);
// True if a turn's history holds what earlier builds handed to the template as it is written: null members, reasoning,
// parts, arguments as strings, function_call, other names of roles, several messages as one answer.
bool pl_chat_reads_anew(const pl_json *j);
// Exchanges up to turn `number`: one more than pl_chat_turn's skip can be.
int  pl_chat_exchanges(const pl_json *j, int number);
// Whether the record says what was answered before turn `number`.
bool pl_chat_answered(const pl_json *j, int number);

#endif
