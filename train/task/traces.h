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

#include "data/dataset/dataset.h"
#include "infer/cli/env.h"
#include "train/source/order.h"

enum { PL_TRACES_LONGEST = 4096 }; // the most rows of a document that are read

// Captures traces into the folder `to`, resuming a capture that was stopped; returns at once if it is complete. Reads
// the keys traces.*, the drafter drafter.start, and the text by target.* and data.* (train/source/sources.h).
// dataset_dir: the folder of the dataset if the recipe names none. Refused with one line: a folder of traces by another
// tree, of another number of ids or begun with another traces.rows, a tree that adapts (its shape depends on time), a
// drafter whose head is not full, more ids than its head has rows.
pl_status pl_traces_capture(const pl_recipe *r, const char *dataset_dir, const char *to, const pl_env *env,
                            pl_err *err);
// Refuses with one line traces that were captured with another traces.rows. Accepts traces of older builds, which do
// not record it, and a folder without traces.
pl_status pl_traces_check_rows(const char *dir, int64_t rows, pl_err *err);

// Rows of traces for a step of a router's training: documents in the order of the epoch's
// shuffle, cut at the end of a full step. The rows of a step are a pure function of (seed, cursor), so that a resumed
// run reads the same rows.
enum { PL_TRACE_TRAIN, PL_TRACE_HELD, PL_TRACE_SIDES };

typedef struct pl_trace_rows {
    pl_dataset  *ds;
    pl_doc_order order;                // training documents
    int64_t     *held;                 // [docs[PL_TRACE_HELD]] held-out ones
    int64_t      docs[PL_TRACE_SIDES]; // documents of each side
    int64_t      capacity, rows, d, top;
    pl_dtype     real;
    pl_arena     arrays;          // memory of the ops' inputs: tokens, hidden, output
    int32_t     *tokens;          // [rows]
    uint8_t     *depth;           // [rows]
    int32_t     *top_id;          // [rows, top] target ids
    float       *top_prob;        // [rows, top]
    void        *hidden, *output; // [rows, d] reals of the host
    uint16_t    *bf16;            // [rows, d] as stored, before conversion
} pl_trace_rows;

// Opens the traces in dir. want: as in pl_dataset_open_options. PL_E_INPUT if there is no row for training.
pl_status pl_trace_rows_open(pl_trace_rows *t, const char *dir, const pl_dataset_attrs *want, uint64_t seed,
                             int64_t capacity, const pl_backend *be, pl_err *err);
void      pl_trace_rows_close(pl_trace_rows *t);
// Fills up to capacity from cursor[0] (document, over all epochs) and cursor[1] (its row), and advances them. The
// held-out side ends with its last document (rows 0 then), the training side never.
pl_status pl_trace_rows_fill(pl_trace_rows *t, int side, int64_t cursor[2], pl_err *err);
// Advances the cursor of the training side as a fill would.
pl_status pl_trace_rows_skip(pl_trace_rows *t, int64_t cursor[2], pl_err *err);

#endif
