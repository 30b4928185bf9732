// Private to the files of chat templates: the template, a record's conversation, and how it becomes variables.
#ifndef PL_CHAT_IMPL_H
#define PL_CHAT_IMPL_H

#include "data/chat/eval.h"
#include "data/chat/template.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

struct pl_chat_template {
    pl_jinja *usual, *with_tools; // the latter NULL where one serves for both
    char     *special;            // a JSON object of the special tokens; owned
    pl_strbuf source;             // of all templates
    uint64_t  sum;
    char      hash[17];
};

// True if a template's source holds the word; quoted: as a string literal.
bool pl_chat_template_has(const pl_chat_template *t, const char *word, bool quoted);

// ---- turns.c: a conversation's structure, from its roles

bool         pl_chat_asks(const pl_json *j, const cJSON *list, const cJSON *e); // the assistant is to answer behind e
bool         pl_chat_begins_exchange(const pl_json *j, const cJSON *list, const cJSON *e);
// True if an answer stays the record's, since a tool's result follows it. answer: the first message behind one that
// asks; messages of the assistant's in a row are one answer.
bool         pl_chat_stays(const pl_json *j, const cJSON *answer);
bool         pl_chat_answers(const pl_json *j, const cJSON *e); // a message of the assistant's; NULL: not
const cJSON *pl_chat_before(const cJSON *list, const cJSON *e); // NULL: e is the first

// ---- record.c: a record's members as the template's variables

// Other readings of a record, each taken where the template refuses or loses what is written.
// PROBE is for finding out what is lost: a message under a role of its own says pl_chat_probe alone.
typedef enum pl_chat_reading {
    PL_CHAT_JOIN_PARTS = 1,           // content in parts of text as one string
    PL_CHAT_PLAIN_ROLES = 2,          // roles as user, assistant, tool, system
    PL_CHAT_ARGUMENTS_AS_WRITTEN = 4, // arguments of calls as the JSON strings they are
    PL_CHAT_PROBE = 8,
} pl_chat_reading;

typedef struct pl_chat_conversation {
    const pl_chat_template *t;
    const pl_chat_options  *o;
    const pl_json          *j; // the record, checked
    const char             *text;
    size_t                  n;
    unsigned                reading; // pl_chat_reading, together
    unsigned                seen;    // set by the filling: of which readings there is another
    unsigned                notes;   // likewise: PL_CHAT_NOTE_*
    uint8_t                *odd;     // [messages] likewise: 1: written under a role that is not a template's usual one
} pl_chat_conversation;

// Content that no template changes and no other text has, of message i.
#define PL_CHAT_PROBE_SIZE 32
void pl_chat_probe(char *text, int64_t i);

// Refuses with one line what the filling cannot read.
pl_status pl_chat_record_check(const pl_chat_template *t, const pl_json *j, const pl_chat_options *o, pl_err *err);
// A pl_chat_fill; arg: a pl_chat_conversation.
void      pl_chat_record_fill(pl_region *r, pl_chat_value vars, const void *arg);

#endif
