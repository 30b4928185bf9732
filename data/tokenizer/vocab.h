// Pieces of a vocabulary: id to bytes, bytes to id. Ids may come in any order and leave holes.
#ifndef PL_VOCAB_H
#define PL_VOCAB_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_VOCAB_MAX (1 << 22) // ids; far above any real vocabulary, so that a broken id cannot allocate gigabytes

typedef struct pl_vocab {
    int32_t  n; // largest id set + 1
    char    *bytes;
    size_t   used, cap;
    size_t  *off; // [n]; piece id is bytes[off .. off+len), followed by a 0 byte
    int32_t *len; // [n]; -1 for a hole
    int32_t  cap_n;
    int32_t *table; // open addressing, -1 empty; NULL until indexed
    size_t   mask;
} pl_vocab;

// A zeroed pl_vocab is an empty one.
void        pl_vocab_fini(pl_vocab *v);
// Copies s[0..len). PL_E_INPUT for an id outside [0, PL_VOCAB_MAX) or already set; not after index.
pl_status   pl_vocab_set(pl_vocab *v, int64_t id, const char *s, size_t len, pl_err *err);
// Builds bytes to id; of equal pieces the lowest id is found.
pl_status   pl_vocab_index(pl_vocab *v, pl_err *err);
int32_t     pl_vocab_find(const pl_vocab *v, const char *s, size_t len); // -1 if there is none
// Makes id the result of finding its bytes, among pieces with equal bytes.
void        pl_vocab_point(pl_vocab *v, int32_t id);
// Returns the id of a's bytes followed by b's, without concatenating them.
int32_t     pl_vocab_find_joined(const pl_vocab *v, int32_t a, int32_t b);
const char *pl_vocab_piece(const pl_vocab *v, int32_t id, size_t *len); // "" for a hole; len may be NULL
// Hashes ids and bytes of all pieces.
uint64_t    pl_vocab_hash(const pl_vocab *v, uint64_t h);

#endif
