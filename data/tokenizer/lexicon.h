// A vocabulary by the bytes that its tokens stand for: what two vocabularies share, the longest token that a string
// begins with, how many ways there are to write a string, and the tokens that a tokenizer itself would write.
//
// Special tokens and holes stand for nothing and are left out. Where several tokens stand for the same bytes (a piece
// and SentencePiece's "<0x41>"), the piece speaks for them, of pieces the lowest id.
#ifndef PL_LEXICON_H
#define PL_LEXICON_H

#include "data/tokenizer/tokenizer.h"
#include <stddef.h>

typedef struct pl_lexicon {
    const pl_tokenizer *tok;        // borrowed
    int32_t             n;          // different strings
    int32_t            *id;         // [n] in the order of the bytes
    const uint8_t     **s;          // [n] borrowed from tok
    int32_t            *len;        // [n]
    int32_t             first[257]; // where the strings that begin with a byte begin
} pl_lexicon;

pl_status   pl_lexicon_init(pl_lexicon *x, const pl_tokenizer *tok, pl_err *err);
void        pl_lexicon_fini(pl_lexicon *x); // zeroed is fine
// The bytes of an id; *len 0 for what stands for nothing.
const char *pl_lexicon_bytes(const pl_lexicon *x, int32_t id, size_t *len);
int32_t     pl_lexicon_find(const pl_lexicon *x, const char *s, size_t n); // -1: no token

// Walks into the vocabulary byte by byte.
typedef struct pl_lexicon_at {
    int32_t lo, hi;  // strings that begin with what was read
    int32_t depth;   // bytes read
    int32_t longest; // the longest token among the beginnings of what was read, -1: none
    int32_t length;  // its bytes
} pl_lexicon_at;
void pl_lexicon_start(const pl_lexicon *x, pl_lexicon_at *at);
void pl_lexicon_read(const pl_lexicon *x, pl_lexicon_at *at, const char *s, size_t n);
// More bytes may make `longest` longer: what was read is a proper beginning of a token.
bool pl_lexicon_open(const pl_lexicon *x, const pl_lexicon_at *at);

// to[i], i below a's pl_tokenizer_vocab_size: the token of b with the same bytes, -1: none, or token i is not the one
// that speaks for its bytes. So no token of b is named twice. *to is the caller's.
pl_status pl_lexicon_map(int32_t **to, const pl_lexicon *a, const pl_lexicon *b, pl_err *err);
// The bytes of every token lie in whole tokens of b, one after the other: how many of a's strings do not; -1:
// out of memory.
int64_t   pl_lexicon_inexpressible(const pl_lexicon *a, const pl_lexicon *b);

// In how many ways tokens can be laid end to end to make a string: by its beginnings, ways(0) = 1 and ways(i) = the sum
// of ways(j) where bytes j..i-1 are a token. *steps, where it is not NULL: how many of the lists of tokens that begin
// one of the ways go on, the empty one included: the forwards of a drafter that the string's probability would take
// (arXiv 2502.05202, Appendix C). -1: out of memory.
double pl_lexicon_ways(const pl_lexicon *x, const char *s, size_t n, double *steps);

// How many different pieces, special ones included, both files have: as they spell them, and with U+2581 and U+0120,
// which stand for a space in one kind of file and the other, taken for one another.
typedef struct pl_spelled_alike {
    int64_t as_they_are, with_spaces;
} pl_spelled_alike;
pl_status pl_lexicon_spelled_alike(pl_spelled_alike *n, const pl_tokenizer *a, const pl_tokenizer *b, pl_err *err);

// Tokens of x->tok that spell text[0..n): what its tokenizer makes of them, where that stands for exactly these bytes
// (a tokenizer that normalises may say something else, and none takes bytes that are no UTF-8); else the longest token
// again and again, and bytes that no token begins with are left out. starts: as a text, in front of which some
// tokenizers put a space; it is no byte of text. ids: [room], filled with so many at most; end[i]: bytes of text up to
// the end of ids[i]. *n: how many.
pl_status pl_lexicon_spell(const pl_lexicon *x, const char *text, size_t n_text, bool starts, int32_t *ids, size_t *end,
                           int room, int *n, pl_err *err);
// Tokens that spell more[0..n_more) behind a text that ends with tail and is not to be told otherwise (SLEM's way back:
// arXiv 2502.05202, Algorithm 2 line 7 with its look-behind, section 3.2). They are those that the tokenizer has for
// tail and more together, from the first one that begins in `more` on; of a token that reaches over the border the part
// behind it is spelled by the longest tokens. What they stand for is exactly a beginning of `more`, all of it where the
// vocabulary can say it.
pl_status pl_lexicon_continue(const pl_lexicon *x, const char *tail, size_t n_tail, const char *more, size_t n_more,
                              int32_t *ids, int room, int *n, pl_err *err);

#endif
