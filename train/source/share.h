// Documents without end, of which each rank answers its share and gets those that it learns from.
//
// Units of jobs (infer/generate/generator.h: a document, or a block of conversations) are dealt out in turn, so that
// every generator goes on with its own. How long documents are decides which of them a rank's slots take; so lengths
// are told to all, and then documents go from who has them to who needs them, over the ranks' comm. Nothing is stored.
//
// Functions as those of a pl_feature_source (train/source/source.h), with begin and gather.
#ifndef PL_TRAIN_SOURCE_SHARE_H
#define PL_TRAIN_SOURCE_SHARE_H

#include "infer/generate/generator.h"
#include "train/source/source.h"

typedef struct pl_doc_share pl_doc_share;

// Borrows everything but the options, whose jobs have no end.
pl_status pl_doc_share_create(pl_doc_share **out, const pl_env *env, const pl_llama *target, const pl_tokenizer *tok,
                              const pl_prompts *prompts, const pl_generator_options *o, pl_err *err);
void      pl_doc_share_destroy(pl_doc_share *s);

pl_status pl_doc_share_begin(pl_doc_share *s, int64_t at, pl_err *err);
pl_status pl_doc_share_rows(pl_doc_share *s, int64_t at, int64_t *n, pl_err *err);
pl_status pl_doc_share_gather(pl_doc_share *s, const pl_doc_span *rank, pl_err *err);
pl_status pl_doc_share_get(pl_doc_share *s, int64_t at, pl_columns *doc, pl_err *err);

#endif
