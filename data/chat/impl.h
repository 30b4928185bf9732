// Private to the files of chat templates: the template, a record's conversation, and its conversion to variables.
#ifndef PL_CHAT_IMPL_H
#define PL_CHAT_IMPL_H

#include "data/chat/eval.h"
#include "data/chat/template.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

struct pl_chat_template {
    pl_jinja *usual, *with_tools; // the latter NULL if one template serves both
    char     *special;            // a JSON object of the special tokens; owned
    pl_strbuf source;             // of all templates
    uint64_t  sum;
    char      hash[17];
};

// ---- turns.c: a conversation's structure, from its roles

bool         pl_chat_asks(const pl_json *j, const cJSON *list, const cJSON *e); // the assistant must answer after e
bool         pl_chat_begins_exchange(const pl_json *j, const cJSON *list, const cJSON *e);
// Returns true if an answer must stay the record's, since a tool's result follows it. answer: its first message;
// consecutive messages of the assistant are one answer.
bool         pl_chat_stays(const pl_json *j, const cJSON *answer);
bool         pl_chat_answers(const pl_json *j, const cJSON *e); // a message of the assistant; NULL: false
const cJSON *pl_chat_before(const cJSON *list, const cJSON *e); // NULL: e is the first

// ---- record.c: a record's members as the template's variables

// Alternative readings of a record, each used if the template refuses or drops the written form. PROBE detects dropped
// text: a message with an unusual role contains pl_chat_probe alone.
typedef enum pl_chat_reading {
    PL_CHAT_JOIN_PARTS = 1,           // content in parts of text as one string
    PL_CHAT_PLAIN_ROLES = 2,          // roles as user, assistant, tool, system
    PL_CHAT_ARGUMENTS_AS_WRITTEN = 4, // arguments of calls unchanged, as JSON strings
    PL_CHAT_PROBE = 8,
} pl_chat_reading;

typedef struct pl_chat_conversation {
    const pl_chat_template *t;
    const pl_chat_options  *o;
    const pl_json          *j; // the record, checked
    const char             *text;
    size_t                  n;
    unsigned                reading; // union of pl_chat_reading
    unsigned                seen;    // set by the filling: possible other readings
    unsigned                notes;   // likewise: PL_CHAT_NOTE_*
    uint8_t                *odd;     // [messages] set by the filling: 1: written with an unusual role
} pl_chat_conversation;

// Content for message i that templates do not change and other texts do not contain.
#define PL_CHAT_PROBE_SIZE 32
void pl_chat_probe(char *text, int64_t i);

// Refuses, with one line, records that the filling cannot read.
pl_status pl_chat_record_check(const pl_chat_template *t, const pl_json *j, const pl_chat_options *o, pl_err *err);
// A pl_chat_fill; arg: a pl_chat_conversation.
void      pl_chat_record_fill(pl_region *r, pl_chat_value vars, const void *arg);

#endif
