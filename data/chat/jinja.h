// Chat templates of models: programs in Jinja that write a conversation in the form that the model was trained on. They
// render byte for byte as transformers' apply_chat_template does (jinja2 3.1 in an immutable sandbox; trim_blocks,
// lstrip_blocks, break and continue, {% generation %}; raise_exception, strftime_now; its own tojson), or are refused
// by the name of an unsupported construct: a silent difference would train a drafter on another text than it is served
// with.
#ifndef PL_JINJA_H
#define PL_JINJA_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pl_jinja pl_jinja; // a compiled template; rendered by one thread at a time

// text[0..n): UTF-8. name: for messages ("NAME:LINE: ..."). PL_E_INPUT for an invalid template, PL_E_UNSUPPORTED for
// constructs that are not built.
pl_status pl_jinja_compile(pl_jinja **out, const char *name, const char *text, size_t n, pl_err *err);
void      pl_jinja_free(pl_jinja *t); // NULL is allowed

typedef struct pl_jinja_span {
    size_t from, to; // bytes of the text
} pl_jinja_span;

typedef struct pl_jinja_out {
    char          *text; // owned, 0-terminated
    size_t         n;
    pl_jinja_span *spans; // owned: text inside {% generation %}, in order; NULL if the template has none
    int64_t        n_spans;
    bool           parts_printed; // content in parts was printed as a list (data/chat/record.c)
} pl_jinja_out;

// vars: a JSON object, its members the template's variables (messages, tools, bos_token, add_generation_prompt, ...);
// numbers are integers or floats as written. date: "YYYY-MM-DD" or "YYYY-MM-DD HH:MM:SS", for strftime_now; NULL: a
// template that calls it is refused. PL_E_INPUT for one that holds more than 256 MB or takes more steps than
// conversations need, PL_E_INTERRUPTED for a long one after a stop request (pl_stop_requested).
pl_status pl_jinja_render(const pl_jinja *t, const char *vars, size_t n_vars, const char *date, pl_jinja_out *out,
                          pl_err *err);
void      pl_jinja_out_fini(pl_jinja_out *out);

#endif
