// An answer's text as it grows: whole characters, ended by the first stop string, which may span tokens. What could
// still become a stop string is held back.
#ifndef PL_DELTA_H
#define PL_DELTA_H

#include "data/tokenizer/tokenizer.h"
#include "kernels/base/strbuf.h"

typedef struct pl_delta {
    pl_detok           detok;
    pl_strbuf          text;  // all so far, without a stop string
    size_t             taken; // bytes of it that were given out
    const char *const *stop;  // borrowed
    const int32_t *mark; // [n_marks] special tokens that are text here, as they are spelt; borrowed, set by the owner
    int            n_marks;
    int            n_stop;
    size_t         longest; // bytes of a stop string
    int            found;   // which of them ended the text, where it is stopped
    bool           stopped, ended;
} pl_delta;

// at_start: as pl_detok_init's. stop[0..n_stop) are not empty.
pl_status   pl_delta_init(pl_delta *d, const pl_tokenizer *tok, bool at_start, const char *const *stop, int n_stop,
                          pl_err *err);
void        pl_delta_fini(pl_delta *d); // zeroed is fine
// Appends a token; returns false once a stop string has ended the text.
bool        pl_delta_push(pl_delta *d, int32_t token);
void        pl_delta_end(pl_delta *d); // no token follows: nothing is held back any more
// Returns the text that may be given out and has not been: *n bytes, borrowed until the next push.
const char *pl_delta_take(pl_delta *d, size_t *n);

#endif
