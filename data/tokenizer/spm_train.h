// Trains a SentencePiece model on documents. Ids: 0 <unk>, 1 <s>, 2 </s>, then (byte_fallback) the 256 bytes; "\n" has
// a piece of its own. Text round-trips exactly: no normalisation, spaces kept, digits split.
#ifndef PL_SPM_TRAIN_H
#define PL_SPM_TRAIN_H

#include "data/text/text.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct pl_spm_train_options {
    int         vocab_size;         // exact
    const char *model_type;         // "bpe" (default, also for NULL) or "unigram"
    bool        byte_fallback;      // false: characters not covered become <unk> and do not round-trip
    double      character_coverage; // (0, 1]; 0 means 0.9995
    int64_t     max_lines;          // 0: every line; else about this many lines, drawn by seed
    uint64_t    seed;
    bool        quiet; // no progress of the library on stderr
} pl_spm_train_options;

// The sentences are the documents' lines. Writes path (say "tok4096.model") atomically. The same documents and options
// give the same bytes. PL_E_INPUT when the library refuses (for example: vocabulary too large for the text).
pl_status pl_spm_train(const char *path, const pl_corpus *texts, const pl_spm_train_options *o, pl_err *err);

#endif
