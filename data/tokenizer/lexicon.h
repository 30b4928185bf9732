// A vocabulary by the bytes of its tokens: the common part of two vocabularies, the longest token at the start of a
// string, the number of ways to write a string, and the tokenizer's own tokens of a text.
//
// Special tokens and holes stand for nothing and are left out. If several tokens stand for the same bytes (a piece and
// SentencePiece's "<0x41>"), the piece represents them, of pieces the lowest id.
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
    int32_t             first[257]; // index of the first string that begins with a byte
} pl_lexicon;

pl_status   pl_lexicon_init(pl_lexicon *x, const pl_tokenizer *tok, pl_err *err);
void        pl_lexicon_fini(pl_lexicon *x); // zeroed is fine
// Returns the bytes of an id; *len 0 if it stands for nothing.
const char *pl_lexicon_bytes(const pl_lexicon *x, int32_t id, size_t *len);
int32_t     pl_lexicon_find(const pl_lexicon *x, const char *s, size_t n); // -1: no token

// Walks into the vocabulary byte by byte.
typedef struct pl_lexicon_at {
    int32_t lo, hi;  // strings that begin with the bytes read
    int32_t depth;   // bytes read
    int32_t longest; // the longest token that the bytes read begin with, -1: none
    int32_t length;  // its bytes
} pl_lexicon_at;
void pl_lexicon_start(const pl_lexicon *x, pl_lexicon_at *at);
void pl_lexicon_read(const pl_lexicon *x, pl_lexicon_at *at, const char *s, size_t n);
// Returns true if more bytes may lengthen `longest`: the bytes read are a proper prefix of a token.
bool pl_lexicon_open(const pl_lexicon *x, const pl_lexicon_at *at);

// Sets to[i], i below a's pl_tokenizer_vocab_size, to the token of b with the same bytes; -1: none, or token i does not
// represent its bytes. So each token of b occurs at most once. *to becomes the caller's.
pl_status pl_lexicon_map(int32_t **to, const pl_lexicon *a, const pl_lexicon *b, pl_err *err);
// Returns how many of a's strings are not a concatenation of whole tokens of b; -1: out of memory.
int64_t   pl_lexicon_inexpressible(const pl_lexicon *a, const pl_lexicon *b);

// Returns the number of ways to write a string in tokens: by its prefixes, ways(0) = 1 and ways(i) = the sum of ways(j)
// where bytes j..i-1 are a token. *steps, if not NULL: number of proper prefixes of these token lists, the empty one
// included, which is the number of forwards of a drafter that the string's probability would take (arXiv 2502.05202,
// Appendix C). -1: out of memory.
double pl_lexicon_ways(const pl_lexicon *x, const char *s, size_t n, double *steps);

// Numbers of different pieces, special ones included, that both files have: as spelled, and with U+2581 and U+0120, the
// two kinds' marks for a space, identified.
typedef struct pl_spelled_alike {
    int64_t as_they_are, with_spaces;
} pl_spelled_alike;
pl_status pl_lexicon_spelled_alike(pl_spelled_alike *n, const pl_tokenizer *a, const pl_tokenizer *b, pl_err *err);

// Spells text[0..n) in tokens of x->tok: the tokenizer's own, if they stand for exactly these bytes (a tokenizer that
// normalises may differ, and none takes bytes that are not UTF-8); else the longest token repeatedly, skipping bytes
// that begin no token. starts: the text begins here, so that some tokenizers add a space, which is no byte of text.
// ids: [room], the limit; end[i]: bytes of text up to the end of ids[i]. *n: number of tokens.
pl_status pl_lexicon_spell(const pl_lexicon *x, const char *text, size_t n_text, bool starts, int32_t *ids, size_t *end,
                           int room, int *n, pl_err *err);
// Spells more[0..n_more) after a text that ends with tail and keeps its tokens (SLEM's way back: arXiv 2502.05202,
// Algorithm 2 line 7 with its look-behind, section 3.2): encodes tail and more together and takes the tokens that begin
// in `more`; of a token across the border, the part in `more` is spelled by the longest tokens. The result stands for
// exactly a prefix of `more`, all of it if the vocabulary can spell it.
pl_status pl_lexicon_continue(const pl_lexicon *x, const char *tail, size_t n_tail, const char *more, size_t n_more,
                              int32_t *ids, int room, int *n, pl_err *err);

#endif
