// Calls within an answer's text, by form. Private to infer/serve/parts.c.
#ifndef PL_CALL_H
#define PL_CALL_H

#include "infer/serve/parts.h"

typedef enum pl_call { PL_CALL_OPEN, PL_CALL_MADE, PL_CALL_REFUSED } pl_call; // open: more text is needed

// Reads the call or calls behind the mark that begins them: s[0..n), all that is held. ended: no text follows.
// Made: they are added to p->call, and *used bytes are theirs.
pl_call pl_call_read(pl_parts *p, const char *s, size_t n, bool ended, size_t *used);

// Adds a call with s[0..n) as its arguments; false if they are not a JSON object.
bool pl_call_add(pl_parts *p, const char *name, const char *s, size_t n);

#endif
