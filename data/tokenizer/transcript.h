// A text that grows token by token in one vocabulary, and its tokens in another: the text read by a drafter with its
// own vocabulary (arXiv 2502.05202, Algorithm 2, line 4, kept from step to step).
//
// The other tokens are those of its tokenizer for the text, as far as they are settled: a few tokens before the end are
// re-encoded as text arrives, from the beginning of a word on, so that a token which merges with later text ("hel",
// then "lo") is found. The text itself never changes. Special tokens have no text: BOS and EOS become the other's BOS
// and EOS, others the token with the same spelling, or nothing.
#ifndef PL_TRANSCRIPT_H
#define PL_TRANSCRIPT_H

#include "data/tokenizer/lexicon.h"
#include "kernels/base/strbuf.h"

typedef struct pl_transcript {
    const pl_lexicon *from, *to; // borrowed
    int               room;      // most tokens of `to`
    // The tokens of the text in `from`, and the bytes up to each token's end.
    int32_t          *said;
    size_t           *said_end;
    int               n_said, said_room;
    pl_strbuf         text;
    // Its tokens in `to`. of: index of the token that a special one replaces, else -1.
    int32_t          *ids, *of;
    size_t           *end;
    int               n;
    bool              full; // it did not fit: ids are a part
} pl_transcript;

pl_status   pl_transcript_init(pl_transcript *t, const pl_lexicon *from, const pl_lexicon *to, int said_room, int room,
                               pl_err *err);
void        pl_transcript_fini(pl_transcript *t);  // zeroed is fine
void        pl_transcript_clear(pl_transcript *t); // for another text
// Sets the text to tokens[0..n), n <= said_room: keeps its common prefix with the previous text.
pl_status   pl_transcript_tell(pl_transcript *t, const int32_t *tokens, int n, pl_err *err);
// Appends one token; there must be room.
pl_status   pl_transcript_add(pl_transcript *t, int32_t token, pl_err *err);
// Returns the end of the text, from the beginning of a word some tokens back, for pl_lexicon_continue: *n bytes,
// borrowed.
const char *pl_transcript_tail(const pl_transcript *t, size_t *n);

#endif
