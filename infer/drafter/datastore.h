// File of token ids that a drafter keeps from answers that ended and reads in a later process.
//
// It is a state (checkpoints/state.h: checksums over every byte, written atomically) of
//   datastore  U8   kind: "answers" (concatenated, -1 after each) or "recycling" ([V][8], -1: none)
//   tokenizer  U8   the target's fingerprint (pl_tokenizer_fingerprint); empty if it was not known
//   vocab      I64  [1] the target's V
//   ids        I32  each in -1..V-1
// A file of another kind, V or tokenizer is refused, as is one with wrong checksums. It holds users' text, so only its
// owner may read it (0600). If two processes write the same file, the last write stays.
#ifndef PL_DATASTORE_H
#define PL_DATASTORE_H

#include "infer/drafter/drafter.h"

#define PL_DATASTORE_ANSWERS "answers"
#define PL_DATASTORE_RECYCLING "recycling"

typedef struct pl_datastore {
    const char         *kind;
    const pl_tokenizer *tok; // NULL: not known and not compared
    int64_t             vocab;
} pl_datastore;

pl_status pl_datastore_write(const char *path, const pl_datastore *d, const int32_t *ids, int64_t n, pl_err *err);
// *ids becomes the caller's. A missing file is empty (*ids NULL, *n 0), but its folder must exist.
pl_status pl_datastore_read(const char *path, const pl_datastore *d, int32_t **ids, int64_t *n, pl_err *err);

#endif
