// Counting the tokens of texts, records and datasets, whole and by halves: what lists of draft vocabularies are made
// of, and judged on (a list flatters itself on what it was counted in).
#ifndef PL_TALLY_H
#define PL_TALLY_H

#include "data/counts/counts.h"
#include "data/tokenizer/tokenizer.h"

enum { PL_TALLY_STOPS = 64 };

// A zeroed one is empty; the first input sets vocabulary and fingerprint. all.corpus names the inputs in order.
//
// The token that ends a document is counted with it, once: what is emitted at the end of every answer ranks by how many
// it ended. A document of text ends with each of the target's stop tokens where these are given (only one of them was
// meant, but any may be drafted), else with the tokenizer's EOS where it has one.
typedef struct pl_tally {
    pl_counts all, half[2]; // of all documents; of the even and the odd ones
    int32_t   stop[PL_TALLY_STOPS];
    int       n_stop; // before the first text; 0: the tokenizer's EOS
} pl_tally;

void pl_tally_fini(pl_tally *t);

// A file, a folder of *.txt or a glob pattern (data/text/text.h), cut into documents of about 4 KiB, so that halves of
// one book can be compared; Project Gutenberg's licence is left out. What ends is the file, not the cut.
pl_status pl_tally_text(pl_tally *t, const pl_tokenizer *tok, const char *path, pl_err *err);
// JSON or JSONL records: of each its member `field` (data/text/prompts.h), NULL: its prompt.
pl_status pl_tally_records(pl_tally *t, const pl_tokenizer *tok, const char *path, const char *field, pl_err *err);
// The documents that training holds out (pl_dataset_held_out), with any of some seeds: a list must not know them.
typedef struct pl_tally_held {
    int64_t         every; // 0: none
    const uint64_t *seed;
    int             n_seeds; // 0: the seed that a dataset was generated with
} pl_tally_held;

// Of a dataset the target's own tokens count: the rows that the loss mask marks and what each answer ended with. A
// dataset of an older build does not say the latter: a warning says so. tok NULL: whatever it was made with. held NULL:
// all documents.
pl_status pl_tally_dataset(pl_tally *t, const pl_tokenizer *tok, const char *path, const pl_tally_held *held,
                           pl_err *err);
// Whichever of them the path is: a dataset's folder, *.json or *.jsonl, text. tok may be NULL for datasets alone.
pl_status pl_tally_input(pl_tally *t, const pl_tokenizer *tok, const char *path, const char *field,
                         const pl_tally_held *held, pl_err *err);

#endif
