// Traces: rows that the head of a trained full-head drafter read while drafting; routers learn from them (DynaSpec
// A.2).
//
// The drafter drafts trees along the target's answers as in decoding: its cache holds the target's features of the
// committed text, at position n it grows a tree, and it continues after the longest path that agrees with the answer
// and one more token, n += matched + 1. Every input row of its head becomes a row of the dataset
// (data/dataset/dataset.h): the hidden and the token that the step consumed, the head's input, depth and place in the
// beam, and the head's L best target ids with their probabilities. A document of the dataset is one of the source; its
// rows come in the order in which they were drafted. Documents of both sides come mixed, each side in its own order,
// training documents in that of the seed's first epoch; rows of held-out documents are marked. Traces do not depend on
// clusters: other clusters need no new traces.
//
// The rows do not depend on the number of threads, nor on how often the capture was stopped and resumed.
#ifndef PL_TRAIN_TRACES_H
#define PL_TRAIN_TRACES_H

#include "infer/cli/env.h"

enum { PL_TRACES_LONGEST = 4096 }; // the most rows of a document that are read

// Captures traces into the folder `to`, resuming a capture that was stopped; returns at once if it is complete. Reads
// the keys traces.*, the drafter drafter.start, and the text by target.* and data.* (train/source/sources.h).
// dataset_dir: the folder of the dataset if the recipe names none. Refused with one line: a folder of traces by another
// tree, of another number of ids or begun with another traces.rows, a tree that adapts (its shape depends on time), a
// drafter whose head is not full, more ids than its head has rows.
pl_status pl_traces_capture(const pl_recipe *r, const char *dataset_dir, const char *to, const pl_env *env,
                            pl_err *err);
// Refuses with one line traces that were captured with another traces.rows. Accepts traces of older builds, which do
// not record it.
pl_status pl_traces_check_rows(const char *dir, int64_t rows, pl_err *err);

#endif
