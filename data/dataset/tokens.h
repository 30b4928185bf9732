// Token files: documents tokenised once, mapped read-only, served as windows in a fixed random order.
//
// File, little-endian: 128-byte header, doc_offsets int64 [D+1], then the ids, uint16 where the vocabulary fits, else
// int32. Header: "PLTOKENS", u32 version, u32 bytes per id, char[16] tokenizer fingerprint, i64 tokens N, i64
// documents D, i32 vocabulary, 4 zero bytes, u64 hash of everything behind the header, zeroes, u64 hash of the header
// before it. Written aside and renamed.
#ifndef PL_TOKENS_H
#define PL_TOKENS_H

#include "data/text/text.h"
#include "data/tokenizer/tokenizer.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// True for the beginning of a token file.
bool      pl_tokens_is(const char *front, size_t n);
// Tokenises each document (BOS in front as the tokenizer is configured; EOS behind with add_eos) and writes path.
pl_status pl_tokens_write(const char *path, const pl_corpus *texts, const pl_tokenizer *tok, bool add_eos, pl_err *err);

typedef struct pl_tokens {
    int64_t        n, n_docs;
    int32_t        vocab_size;
    char           fingerprint[17];
    const int64_t *doc_offsets; // [n_docs + 1], into the mapping
    const void    *ids;         // into the mapping
    int            id_bytes;    // 2 or 4
    const void    *map;
    size_t         map_bytes;
} pl_tokens;

// Checks magic, version, sizes, both hashes, and that every offset and id is in range. fingerprint: refuse a file of
// another tokenizer (NULL: any).
pl_status pl_tokens_open(pl_tokens **out, const char *path, const char *fingerprint, pl_err *err);
void      pl_tokens_close(pl_tokens *t);
void      pl_tokens_copy(const pl_tokens *t, int64_t start, int64_t n, int32_t *ids); // ids [start, start + n)

// Windows of T+1 ids (T inputs and their T targets) cut from the packed stream, each epoch in another order and from
// another starting offset. A pure function of (seed, position): `position` counts windows over all epochs and is all
// that a resumed run must know. Windows of one epoch do not overlap except for the one shared id at their ends.
int64_t pl_tokens_windows(const pl_tokens *t, int64_t T); // per epoch; 0 when the file is shorter than T+1

typedef struct pl_token_window {
    int64_t epoch, start; // start: of the window in the stream
} pl_token_window;
// ids [T+1]; doc [T+1], may be NULL: 0 for the window's first document, counted up at every document's first token
// (a target in another document than its input is not worth learning; attention need not cross). position >= 0.
pl_token_window pl_tokens_window(const pl_tokens *t, int64_t T, uint64_t seed, int64_t position, int32_t *ids,
                                 int32_t *doc);

#endif
