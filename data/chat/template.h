// The chat template of a model's folder, and conversations written by it.
//
// Templates are searched in this order: the file that the caller names; chat_template.jinja; "chat_template" of
// tokenizer_config.json, a string or a list of {"name", "template"}, of which "tool_use" is for conversations with
// tools and "default" for all others; additional_chat_templates/tool_use.jinja serves as the former too. The special
// tokens of tokenizer_config.json (else of special_tokens_map.json) are its variables: bos_token, eos_token, ... A
// .gguf file named as the tokenizer has its own of both (tokenizer.chat_template, tokenizer.chat_template.tool_use, the
// tokens of its ids), as has a folder's tokenizer.gguf if the folder has no template.
//
// The rendered text contains every token of the model's input: it is encoded without a second BOS (no PL_TOK_ADD_BOS).
#ifndef PL_CHAT_TEMPLATE_H
#define PL_CHAT_TEMPLATE_H

#include "data/chat/jinja.h"
#include <stdbool.h>

typedef struct pl_chat_template pl_chat_template; // rendered by one thread at a time

// dir: a model's folder, or a tokenizer's file in it. file: a template instead of the folder's own, or NULL. PL_E_INPUT
// if there is none, with the names that were tried.
pl_status   pl_chat_template_open(pl_chat_template **out, const char *dir, const char *file, pl_err *err);
void        pl_chat_template_close(pl_chat_template *t); // NULL is allowed
// 16 hex digits over the templates and the special tokens.
const char *pl_chat_template_hash(const pl_chat_template *t);
// Returns true if a template's source contains the word; quoted: as a string literal.
bool        pl_chat_template_has(const pl_chat_template *t, const char *word, bool quoted);

// The conversation before an answer of the assistant. An exchange begins with a user's message; an answer that is
// followed by a tool's result always stays the record's, since the result belongs to it.
typedef struct pl_chat_turn {
    int                number; // index among the record's turns that the assistant answers, from 0
    // [number] the target's own answers as messages (pl_chat_answer_message) in place of the record's; NULL, or an item
    // NULL: the record's.
    const char *const *answer;
    int                skip; // number of earliest exchanges left out; messages before the first exchange stay
} pl_chat_turn;

// Differences between a record and its reading, if the template could not take it as written or drops a part of it.
enum {
    PL_CHAT_NOTE_ARGUMENTS = 1,   // arguments of calls, JSON strings, were decoded
    PL_CHAT_NOTE_PARTS = 2,       // content in parts was joined
    PL_CHAT_NOTE_ROLES = 4,       // roles were written as user, assistant, tool or system
    PL_CHAT_NOTE_CALL = 8,        // function_call became tool_calls
    PL_CHAT_NOTE_SYSTEM = 16,     // a system message besides the conversation's own was not used
    PL_CHAT_NOTE_CONTEXT = 32,    // "context" was not used
    PL_CHAT_NOTE_HISTORY = 64,    // nor "history"
    PL_CHAT_NOTE_FUNCTIONS = 128, // nor "functions"
    PL_CHAT_NOTE_MEDIA = 256,     // nor "images", "videos", ...
    PL_CHAT_NOTE_LEFT = 512,      // nor "tools" or other variables of a template besides a prompt that is text
};
// Warns of each note once. where: the file.
void pl_chat_warn_notes(unsigned notes, const char *where);

typedef struct pl_chat_options {
    bool                add_generation_prompt; // appends the beginning of the assistant's next turn
    const char         *kwargs;                // a JSON object of more variables ({"enable_thinking": false}), or NULL
    const char         *date;                  // see pl_jinja_render
    const char         *system;                // a system message before conversations that begin without one, or NULL
    const pl_chat_turn *turn;                  // the messages to render; NULL: all
    unsigned           *notes;                 // PL_CHAT_NOTE_* are added to it; NULL: not noted
    bool                developer_is_system;   // the role "developer" is "system" unless the template names it
    bool                no_tools;              // the record's "tools" are left out
} pl_chat_options;

// record[0..n): a JSON object with one of
//   "messages"       as for chat templates: objects with "role", "content", ...
//   "conversations"  ShareGPT's: objects with "from" (human, gpt, system, tool, or a role) and "value", or messages
//   "turns", "prompt", "text"  the same, if they are lists of objects
// and optionally "tools", "documents" (lists of objects, or such a list as JSON text), "chat_template_kwargs"
// (variables, over those of the options), and "system" or "system_prompt" for a conversation without a system message.
// Messages are passed to the template as transformers' apply_chat_template does (5.24): null members are left out,
// reasoning ("reasoning_content", "thinking", "reasoning") is under the first two names. Beyond that they are read as
// servers do: JSON strings as arguments of tool calls are decoded; content in parts of text is joined by line feeds if
// the template prints or refuses the list; a role that the template drops or refuses becomes user, assistant, tool or
// system; function_call becomes tool_calls if the template does not name it. Refused with one line: unknown roles that
// the template does not name, parts that are not text, invalid lists. where, line: of the record, for messages
// (pl_json_parse).
pl_status pl_chat_template_render(const pl_chat_template *t, const char *where, int64_t line, const char *record,
                                  size_t n, const pl_chat_options *o, pl_jinja_out *out, pl_err *err);

// Returns the list of a record's messages, under any of its names (data/text/messages.h); NULL: none.
typedef struct pl_json pl_json;
struct cJSON;
const struct cJSON *pl_chat_messages(const pl_json *j);

// Returns the number of turns that an assistant answers: those of a user or tool followed by an answer, or by nothing.
// A system message between question and answer belongs to the question; consecutive messages of the assistant are one
// answer.
int  pl_chat_turns(const pl_json *j);
// Returns true if a turn's history contains forms that earlier builds passed to the template unchanged: null members,
// reasoning, parts, arguments as strings, function_call, other names of roles, several messages as one answer.
bool pl_chat_reads_anew(const pl_json *j);
// Returns the exchanges up to turn `number`: one more than the largest pl_chat_turn.skip.
int  pl_chat_exchanges(const pl_json *j, int number);
// Returns true if the record has the answers before turn `number`.
bool pl_chat_answered(const pl_json *j, int number);

#endif
