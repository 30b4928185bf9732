// Traces: what a trained drafter with a full head met while it drafted, from which routers learn (DynaSpec A.2).
//
// The drafter drafts trees along the target's answers as it would in decoding: its cache holds the target's features of
// the committed text, at position n it grows a tree, and goes on after the longest path that agrees with the answer and
// one token more, n += matched + 1. Every row that its head read becomes a row of the dataset (data/dataset/dataset.h):
// the hidden and the token that the step consumed, what the head read, depth and place in the beam, and the head's L
// best target ids with their probabilities. A document of the dataset is one of the source; its rows come in the order
// in which they were drafted. Documents of both sides come mixed, each side in its own order, training documents in
// that of the seed's first epoch; rows of held-out documents are marked. Clusters play no part: other clusters need no
// new traces.
//
// The rows are the same for any number of threads and however often the capture was stopped.
#ifndef PL_TRAIN_TRACES_H
#define PL_TRAIN_TRACES_H

#include "infer/cli/env.h"

enum { PL_TRACES_LONGEST = 4096 }; // rows of a document that are looked at, at most

// Keys traces.*; drafter.start is the drafter, target.* and data.* the text (train/source/sources.h). dataset_dir:
// holds the dataset where the recipe names none. Writes the folder `to`, going on with one that was stopped; returns at
// once when it is complete. Refused with one line: a folder of traces by another tree, of another number of ids or
// begun with another traces.rows, a tree that adapts (its shape depends on time), a drafter whose head is not full,
// more ids than its head has rows.
pl_status pl_traces_capture(const pl_recipe *r, const char *dataset_dir, const char *to, const pl_env *env,
                            pl_err *err);
// Refuses with one line traces that were captured with another traces.rows. Traces from before that was written down
// are taken as they are.
pl_status pl_traces_check_rows(const char *dir, int64_t rows, pl_err *err);

#endif
