// Served conversations as training data: a file of JSON lines, which data.prompts of a recipe reads
// (data/text/prompts.h) and whose answers a drafter learns from as they are.
//
//   {"prompt_ids":[...],"answer_ids":[...],"target":"16 hex digits","finish":"stop"}
// The ids are exact, so the target that reads them again has the features that it had when it answered, bit for bit.
// Only the ids that the target committed are written, once an answer has ended; aborted answers are not.
#ifndef PL_RECORD_H
#define PL_RECORD_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct pl_record pl_record;

typedef struct pl_record_options {
    const char *path;      // is appended to; created readable by its owner alone
    const char *target;    // fingerprint
    double      share;     // of answers that are written, drawn for each
    int64_t     max_bytes; // of the file; a warning says when it is full, and nothing more is written
} pl_record_options;

// Opens the file and cuts a line that a stopped server left unfinished. PL_E_INPUT if it begins with something else
// than such a line.
pl_status pl_record_open(pl_record **out, const pl_record_options *o, pl_err *err);
void      pl_record_close(pl_record *r); // NULL is allowed

// Writes an answer, or leaves it out by the share. A failed write ends the recording with a warning, not the server.
void    pl_record_answer(pl_record *r, const int32_t *prompt, int64_t n_prompt, const int32_t *answer, int64_t n,
                         bool stopped);
int64_t pl_record_written(const pl_record *r); // answers

#endif
