// A chat model's answer, divided as it grows into reasoning, content and tool calls (infer/grammar/calls.h). The parts
// do not depend on the pieces in which the text arrives. Calls that are not of their form stay content, marks too.
//
// Reasoning stands in <think>...</think> at the beginning, or in harmony's channel "analysis". White space between the
// parts belongs to none.
#ifndef PL_PARTS_H
#define PL_PARTS_H

#include "data/chat/template.h"
#include "infer/grammar/calls.h"
#include "kernels/base/strbuf.h"

enum { PL_CALL_ID = 40, PL_CALL_NAME = 128 }; // bytes

typedef struct pl_tool_call {
    char  id[PL_CALL_ID];
    char *name, *arguments; // owned; arguments: a JSON object as it was written
} pl_tool_call;

// A text, and white space behind it that belongs to it if more follows.
typedef struct pl_part {
    pl_strbuf text, space;
    bool      skips; // white space in front belongs to none
} pl_part;

// The position of a walk over a JSON value.
typedef struct pl_value_scan {
    size_t at, end; // end: behind the value, 0: not reached
    int    depth;
    bool   text, escaped;
} pl_value_scan;

typedef enum pl_parts_mode {
    PL_PARTS_BEGIN, // <think> or a channel may begin here
    PL_PARTS_THINK,
    PL_PARTS_CONTENT,
    PL_PARTS_CALL,    // behind the mark that begins one
    PL_PARTS_HEADER,  // of a channel
    PL_PARTS_MESSAGE, // in a channel
    PL_PARTS_REST,    // all that follows is content
} pl_parts_mode;

typedef struct pl_parts {
    pl_part       reasoning, content;
    pl_tool_call *call; // owned
    int           n_calls, cap_calls;
    bool          failed; // out of memory

    pl_call_form  form;
    pl_reasoning  thinks;
    bool          calls; // they are looked for
    uint64_t      id;    // from which the calls' ids are made
    pl_parts_mode mode;
    pl_strbuf     held; // text that may belong to any part, from `at` on
    size_t        at;
    bool          fresh;                   // llama: a call may begin without a mark
    const char   *opened;                  // the mark that began a call
    char          recipient[PL_CALL_NAME]; // harmony: the function that the message calls; "": none
    pl_part      *to;                      // harmony: where the message goes
    pl_value_scan scan;
} pl_parts;

// Returns the form of the calls that a template writes; none if its form is not known.
pl_call_form pl_parts_form(const pl_chat_template *t);

// form: of the model's answers; calls: false where the request offers no tools. Neither a form nor reasoning: all is
// content, at once.
void pl_parts_init(pl_parts *p, pl_call_form form, bool calls, pl_reasoning thinks, uint64_t id);
void pl_parts_fini(pl_parts *p); // zeroed is fine
void pl_parts_push(pl_parts *p, const char *text, size_t n);
void pl_parts_end(pl_parts *p); // no text follows

#endif
