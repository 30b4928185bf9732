// A text that grows token by token in one vocabulary, and its tokens in another: what a drafter with a vocabulary of
// its own has read (arXiv 2502.05202, Algorithm 2, line 4, kept from step to step).
//
// The other's tokens are those that its tokenizer has for the text, as far as they are settled: what stands within a
// few tokens of the end is told anew as text comes, from a word's beginning on, so that a token which grows together
// with what follows ("hel", then "lo") is found. The text itself is never told otherwise. Special tokens stand for no
// text: BOS and EOS become the other's BOS and EOS, others what the other vocabulary spells alike, or nothing.
#ifndef PL_TRANSCRIPT_H
#define PL_TRANSCRIPT_H

#include "data/tokenizer/lexicon.h"
#include "kernels/base/strbuf.h"

typedef struct pl_transcript {
    const pl_lexicon *from, *to; // borrowed
    int               room;      // tokens of `to` at most
    // What was said, in `from`, and the bytes up to each token's end.
    int32_t          *said;
    size_t           *said_end;
    int               n_said, said_room;
    pl_strbuf         text;
    // The same in `to`. of: which said token a special one stands for, else -1.
    int32_t          *ids, *of;
    size_t           *end;
    int               n;
    bool              full; // it did not fit: ids are a part
} pl_transcript;

pl_status   pl_transcript_init(pl_transcript *t, const pl_lexicon *from, const pl_lexicon *to, int said_room, int room,
                               pl_err *err);
void        pl_transcript_fini(pl_transcript *t);  // zeroed is fine
void        pl_transcript_clear(pl_transcript *t); // another text
// The text is tokens[0..n) now, n <= said_room: what it has in common with the text before stays.
pl_status   pl_transcript_tell(pl_transcript *t, const int32_t *tokens, int n, pl_err *err);
// One token more; there must be room.
pl_status   pl_transcript_add(pl_transcript *t, int32_t token, pl_err *err);
// The end of the text from a word's beginning some tokens ago, for pl_lexicon_continue: *n bytes, borrowed.
const char *pl_transcript_tail(const pl_transcript *t, size_t *n);
// The token of `to` for a special one of `from`, -1: none.
int32_t     pl_transcript_special(const pl_lexicon *from, const pl_lexicon *to, int32_t id);

#endif
