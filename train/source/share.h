// Endless documents, each answered by one rank and sent to the ranks that learn from them.
//
// Units of jobs (infer/generate/generator.h: a document, or a block of conversations) are dealt out in turn, so that
// every generator continues with its own. The lengths of documents decide which of them a rank's slots take; so all
// ranks receive the lengths, then documents go from their makers to their learners, over the ranks' comm. Nothing is
// stored.
//
// The functions are those of a pl_feature_source (train/source/source.h), with begin and gather.
#ifndef PL_TRAIN_SOURCE_SHARE_H
#define PL_TRAIN_SOURCE_SHARE_H

#include "infer/generate/generator.h"
#include "train/source/source.h"

typedef struct pl_doc_share pl_doc_share;

// Borrows everything except the options, whose jobs have no end.
pl_status pl_doc_share_create(pl_doc_share **out, const pl_env *env, const pl_llama *target, const pl_tokenizer *tok,
                              const pl_prompts *prompts, const pl_generator_options *o, pl_err *err);
void      pl_doc_share_destroy(pl_doc_share *s);

pl_status pl_doc_share_begin(pl_doc_share *s, int64_t at, pl_err *err);
pl_status pl_doc_share_rows(pl_doc_share *s, int64_t at, int64_t *n, pl_err *err);
pl_status pl_doc_share_gather(pl_doc_share *s, const pl_doc_span *rank, pl_err *err);
pl_status pl_doc_share_get(pl_doc_share *s, int64_t at, pl_columns *doc, pl_err *err);

#endif
