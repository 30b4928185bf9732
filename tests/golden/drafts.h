// A drafter whose weights follow from their names, reopened from its checkpoint and compared as it drafts.
#ifndef PL_TEST_GOLDEN_DRAFTS_H
#define PL_TEST_GOLDEN_DRAFTS_H

#include "infer/drafter/backbone.h"
#include "tests/golden/golden.h"

// Compares what the backbone drafts on one backend with the file.
typedef void (*golden_draft_fn)(golden *g, const pl_backbone *b, const pl_backend *be, const char *head);

// The file's target and a drafter of `kind` for it, its weights named after `model`, are written once and opened in
// fp32 and in bf16 on every backend that infers; `draft` runs on each.
void golden_drafts(const char *file, const pl_backbone_kind *kind, const pl_backbone_options *o, const char *model,
                   golden_draft_fn draft, const char *head);

#endif
