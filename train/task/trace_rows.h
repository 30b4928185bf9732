// Rows of traces (train/task/traces.h) for a step of a router's training: documents in the order of the epoch's
// shuffle, cut at the end of a full step. The rows of a step are a pure function of (seed, cursor), so that a resumed
// run reads the same rows.
#ifndef PL_TRAIN_TRACE_ROWS_H
#define PL_TRAIN_TRACE_ROWS_H

#include "data/dataset/dataset.h"
#include "kernels/backend.h"

enum { PL_TRACE_TRAIN, PL_TRACE_HELD, PL_TRACE_SIDES };

typedef struct pl_trace_rows {
    pl_dataset *ds;
    int64_t    *member[PL_TRACE_SIDES], docs[PL_TRACE_SIDES]; // documents of each side
    int64_t    *order, epoch;                                 // of the training side
    uint64_t    seed;
    int64_t     capacity, rows, d, top;
    pl_dtype    real;
    pl_arena    arrays;          // memory of the ops' inputs: tokens, hidden, output
    int32_t    *tokens;          // [rows]
    uint8_t    *depth;           // [rows]
    int32_t    *top_id;          // [rows, top] target ids
    float      *top_prob;        // [rows, top]
    void       *hidden, *output; // [rows, d] reals of the host
    uint16_t   *bf16;            // [rows, d] as stored, before conversion
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
