// A document's columns, one struct from the generation of answers to training. A document is a prompt and the target's
// answer to it (features), or what a drafter's head did along one (traces).
//
//   column       element  shape      features: row t holds token t and what the target computed when it read it
//   tokens       int32    [n]        token t
//   loss_mask    uint8    [n]        1: the token belongs to the answer, worth predicting; 0: to the prompt
//   argmax       int32    [n]        the target's most probable next token
//   features     bf16     [n, A*d]   the inputs of A of the target's layers (taps) side by side; A 0: no such column
//   last_hidden  bf16     [n, d]     the target's last hidden after its final norm
//
//                                    traces: a row for each row of a draft step
//   tokens       int32    [n]        what the step consumed
//   hidden       bf16     [n, d]     the hidden that it consumed
//   output       bf16     [n, d]     what the head read
//   depth        uint8    [n]        level of the draft, from 0
//   beam         uint8    [n]        row of its level
//   held_out     uint8    [n]        1: the document is no training document
//   top_id       int32    [n, L]     the full head's L best target ids, best first
//   top_prob     float32  [n, L]     their probabilities
// Beside the columns, for each document of features: what it is, pl_doc_about.
// The names are those of the shards on disk (data/dataset/dataset.h). Nothing is shifted.
#ifndef PL_DATASET_COLUMNS_H
#define PL_DATASET_COLUMNS_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Why an answer ended.
typedef enum pl_answer_end { PL_ANSWER_UNKNOWN, PL_ANSWER_STOP, PL_ANSWER_LENGTH, PL_ANSWER_CONTEXT } pl_answer_end;

// What a document of features is; on disk each member is a list int32 [D] of the shard. All of {.end = -1}: nobody
// says, as in shards of older builds.
typedef struct pl_doc_about {
    int32_t end;    // doc_ends: the token that the target emitted behind the last row, which has no row since the
                    // target never read it; -1: none, or nobody says
    int32_t turn;   // doc_turns: which of its conversation's answers it is, from 0
    int32_t back;   // doc_backs: how many documents before it that conversation's first stands; 0: it is the first
    int32_t finish; // doc_finishes: a pl_answer_end
    int32_t cut;    // doc_cuts: 1: the beginning of its prompt, or of the conversation, was left out for want of room
} pl_doc_about;

// Columns that a holder has no use for, or that the kind lacks, are NULL. Whoever lends a document says until when;
// room 0: its columns are another's.
typedef struct pl_columns {
    int64_t             n, room; // rows; rows that its own columns have room for
    int32_t            *tokens;
    uint8_t            *loss_mask;
    int32_t            *argmax;
    uint16_t           *features, *last_hidden;
    uint8_t            *depth, *beam, *held_out;
    uint16_t           *hidden, *output;
    int32_t            *top_id;
    float              *top_prob;
    // [1], another's in any case. NULL: nobody says. Reading does not fill it (pl_dataset_doc_about).
    const pl_doc_about *about;
} pl_columns;

// In the order in which shards hold them.
typedef enum pl_column {
    PL_COLUMN_TOKENS,
    PL_COLUMN_LOSS_MASK,
    PL_COLUMN_ARGMAX,
    PL_COLUMN_FEATURES,
    PL_COLUMN_LAST_HIDDEN,
    PL_COLUMN_DEPTH,
    PL_COLUMN_BEAM,
    PL_COLUMN_HELD_OUT,
    PL_COLUMN_HIDDEN,
    PL_COLUMN_OUTPUT,
    PL_COLUMN_TOP_ID,
    PL_COLUMN_TOP_PROB,
    PL_COLUMNS
} pl_column;

typedef enum pl_element { PL_ELEMENT_U8, PL_ELEMENT_I32, PL_ELEMENT_BF16, PL_ELEMENT_F32 } pl_element;

// What the columns' shapes follow from. top 0: features; else traces (taps is 0).
typedef struct pl_columns_shape {
    int64_t d;    // width of one hidden
    int64_t taps; // A
    int64_t top;  // L
} pl_columns_shape;

const char *pl_column_name(pl_column c);
pl_element  pl_column_element(pl_column c);
size_t      pl_element_size(pl_element e);
bool        pl_column_wide(pl_column c); // [n, width], however small the width; else [n]
// Elements of a row; 0: documents of this shape lack the column.
size_t      pl_column_width(pl_column c, const pl_columns_shape *s);

void     *pl_columns_at(const pl_columns *doc, pl_column c);
// Bytes of a row of all columns that the shape has.
size_t    pl_columns_row_bytes(const pl_columns_shape *s);
// Room for `rows` rows of every column that the shape has; what is there stays. A column that was NULL becomes the
// document's own, so that only documents that own their columns (or have none) may grow.
pl_status pl_columns_reserve(pl_columns *doc, const pl_columns_shape *s, int64_t rows, pl_err *err);
// The first `rows` rows of the columns that `from` has become *to's own; *to was empty.
pl_status pl_columns_copy(pl_columns *to, const pl_columns *from, const pl_columns_shape *s, int64_t rows, pl_err *err);
// The first of rows [first, first + n) whose values other tables are indexed with, or that are no marks: its name, such
// as "a token", or NULL where every value of the columns that are there lies in its range.
const char *pl_columns_broken(const pl_columns *doc, const pl_columns_shape *s, int64_t first, int64_t n,
                              int32_t vocab);
// Frees what the document owns; it is empty afterwards. Not for one whose columns are another's.
void        pl_columns_free(pl_columns *doc);

#endif
