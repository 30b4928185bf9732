// Internal to the tokenizer: shared by its kinds. Only data/tokenizer/ includes this.
#ifndef PL_TOKENIZER_IMPL_H
#define PL_TOKENIZER_IMPL_H

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocab.h"
#include "kernels/base/json.h"

typedef struct pl_tokenizer_vt {
    const char *kind;
    // text is valid UTF-8; the caller adds BOS. Adds nothing around the text.
    pl_status (*encode)(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                        int64_t *n, pl_err *err);
    void (*close)(pl_tokenizer *tok); // frees impl
} pl_tokenizer_vt;

struct pl_tokenizer {
    const pl_tokenizer_vt *vt;
    void                  *impl;
    pl_vocab               vocab;   // indexed; pieces as spelled in the file
    pl_vocab               surface; // decoded bytes of each id; never indexed; same n
    uint8_t               *special; // [n] 1: decodes to nothing
    int32_t                keep;    // id that keeps its leading space (SentencePiece's unknown), -1
    int                    strip;   // leading spaces dropped at the start of a text: 0 none, 1 one, 2 all
    int32_t                bos, eos;
    bool                   states_eos; // a file beside the vocabulary names the EOS
    bool                   add_bos;
    uint64_t               hash; // of everything that changes ids
    char                   fingerprint[17];
    bool                   maximal; // invalid UTF-8 becomes one U+FFFD per maximal part of a character, not per byte
    size_t                 max_surface;
};

// Appends from with all occurrences of a replaced by b.
struct pl_strbuf;
void pl_tokenizer_replace(struct pl_strbuf *to, const char *from, size_t n, const char *a, size_t na, const char *b,
                          size_t nb);
// Returns the byte of a piece spelled "<0xHH>", or -1.
int  pl_tokenizer_byte_piece(const char *s, size_t n);

// Most bytes of a normaliser's pattern or replacement: unlimited ones would turn a short text into gigabytes. The
// longest one of NFKC has 33.
#define PL_REPLACEMENT_MAX 1024

// JSON values of tokenizer.json: Gemma 3's has 1.9 million (a piece is one, a merge three, an added token eight).
#define PL_TOKENIZER_VALUES ((int64_t)6 << 20)

#define PL_SPACE_MARK "\xE2\x96\x81" // U+2581, SentencePiece's spelling of a space

// ---- bpe.c: byte-pair merging in O(n log n), by a linked list of symbols and a heap of candidate pairs

// Returns true if left and right merge, with the merged piece and its cost (never NaN).
typedef bool (*pl_bpe_pair)(const void *ctx, int32_t left, int32_t right, double *cost, int32_t *merged);

// Merges neighbours in ids[0..*n) in place, cheapest pair first, leftmost among equals, until none is left.
pl_status pl_bpe_merge(int32_t *ids, int64_t *n, pl_bpe_pair pair, const void *ctx, pl_err *err);

#endif
