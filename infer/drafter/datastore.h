// What a drafter keeps of answers that ended, in a file that a later process opens: token ids.
//
// The file is a state (checkpoints/state.h: sums over every byte, written atomically) of
//   datastore  U8   whose it is: "answers" (one after the other, -1 behind each) or "recycling" ([V][8], -1: none)
//   tokenizer  U8   the target's fingerprint (pl_tokenizer_fingerprint); empty where it was not known
//   vocab      I64  [1] the target's V
//   ids        I32  each in -1..V-1
// A file of another kind, V or tokenizer is refused, as is one that does not agree with its sums. It holds what was
// said, so its owner alone may read it (0600). Of two processes that write the same file the last one's stays.
#ifndef PL_DATASTORE_H
#define PL_DATASTORE_H

#include "infer/drafter/drafter.h"

#define PL_DATASTORE_ANSWERS "answers"
#define PL_DATASTORE_RECYCLING "recycling"

typedef struct pl_datastore {
    const char         *kind;
    const pl_tokenizer *tok; // NULL: not known, then it is not compared
    int64_t             vocab;
} pl_datastore;

pl_status pl_datastore_write(const char *path, const pl_datastore *d, const int32_t *ids, int64_t n, pl_err *err);
// *ids is the caller's. A file that is not there is empty: *ids NULL, *n 0; its folder must be there.
pl_status pl_datastore_read(const char *path, const pl_datastore *d, int32_t **ids, int64_t *n, pl_err *err);

#endif
