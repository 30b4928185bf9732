// A drafter with its own vocabulary: maps between two vocabularies, and each session's text in the drafter's tokens.
// Timor et al. 2025, "Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous
// vocabularies" (arXiv 2502.05202); T the target's vocabulary, D the drafter's.
//
// Tokens are the same if they stand for the same bytes; tokens that end an answer are the same. Its users:
//   tli, union   lm.c     tokens, Algorithms 4 and 1
//   slem         slem.c   strings, Algorithm 2
//   slrs         slrs.c   strings, Algorithm 3
#ifndef PL_TRANSLATION_H
#define PL_TRANSLATION_H

#include "data/tokenizer/transcript.h"
#include "infer/drafter/draft_model.h"

typedef struct pl_translation {
    pl_lexicon     target, draft;
    int64_t        vt, vd;               // rows of the models' heads; ids beyond the tokenizers stand for nothing
    int32_t       *to_target, *to_draft; // [vd], [vt]; -1: none
    int32_t       *shared, *shared_as;   // [n_shared] draft ids by the target's, which are shared_as
    int64_t        n_shared;
    int            sessions;
    pl_transcript *text;         // [sessions]
    int64_t        cannot_draft; // number of target tokens that no draft tokens spell
    int64_t        cannot_say;   // number of draft tokens that no target tokens spell
    bool           told;         // the summary has been logged
} pl_translation;

// o->tok: the target's, required. m: opened, with a tokenizer. The tokenizers outlive t.
pl_status pl_translation_open(pl_translation *t, const pl_draft_model *m, const char *name, const pl_drafter_options *o,
                              pl_err *err);
void      pl_translation_close(pl_translation *t);
// Returns tokens[0..n) of a session in the drafter's tokens; false: it does not fit, or memory ran out (then ctx has
// failed). The first call logs the shared tokens.
bool      pl_translation_tell(pl_translation *t, pl_ctx *ctx, int slot, const int32_t *tokens, int n,
                              const pl_transcript **text);

// Returns true if every token of both stands for the same in both: one vocabulary, perhaps padded.
bool pl_translation_same(const pl_tokenizer *a, const pl_tokenizer *b);

// ---- drafters with a model of their own -----------------------------------------------------------------------------

typedef struct pl_standalone {
    pl_drafter     base;
    pl_draft_model model;
    pl_translation tr; // zeros if the vocabulary is the target's
} pl_standalone;

// Opens the model. args: "PATH[:TOKENIZER]". For per_level and drafted see pl_draft_model_open. translated: opens tr;
// else the vocabulary must be the target's. Close it even on failure.
pl_status pl_standalone_open(pl_standalone *d, const char *args, int per_level, int drafted, bool translated,
                             const pl_drafter_options *o, pl_err *err);
void      pl_standalone_close(pl_standalone *d);
// Warns that this drafter does not read the prediction of acceptance in the model's folder, if there is one.
void      pl_standalone_warn_stops(const pl_standalone *d);
// Functions of pl_drafter_kind that all of them share.
void      pl_standalone_reset(pl_drafter *d, int slot);
int       pl_standalone_keep(pl_drafter *d, int slot, int n);
double    pl_standalone_step_bytes(const pl_drafter *d);
// Queues a session's text as the drafter's context, for the next pl_draft_model_run, which returns its logits if there
// is a tree to grow. Returns false if nothing can be drafted for it.
bool      pl_standalone_take_in(pl_standalone *d, pl_ctx *ctx, const pl_draft_item *it);
// Functions of pl_drafter_source, chain:auto by default: any tree; chains alone, with or without the drafter's own
// probabilities.
pl_status pl_standalone_tree(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args,
                             const char *tree, pl_err *err);
pl_status pl_standalone_scored_chain(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args,
                                     const char *tree, pl_err *err);
pl_status pl_standalone_chain(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args,
                              const char *tree, pl_err *err);

#endif
