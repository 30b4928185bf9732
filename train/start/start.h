// The weights of a drafter before training. Of a new one they are random (train/loop/block.h), except that
//   the head starts as the target's output matrix or its best low-rank factors (drafter.head.init); specvocab's exact
//   rows, which are never trained, are always the target's
//   EAGLE-3's final norm starts as the target's, whose output its head is made for, where it is as wide
//   embeddings of a drafter's own start as the target's, or as a random projection of them (train/start/embed.h)
//   fc starts at the scale of what it reads, measured on the first training document
//
// A drafter that starts from a trained one (drafter.start) has the same backbone, whose weights are copied. Its head is
// made from the checkpoint's, by target id:
//   full       the rows of the tokens that it drafts, from a full head (trimming after training: FR-Spec, VocabTrim)
//   dynaspec   likewise, in the order of its clusters
//   lowrank    the same rank: its rows and its projection; from a full head: the best factors of its rows (lowrank.h)
//   specvocab  the scorer as lowrank, the exact rows from a full head or another specvocab
//   markov     from the same kind, weight by weight where the sizes are the same; else anew
// A drafter of another backbone, width or taps is refused with one line, and so is a head that lacks a row.
#ifndef PL_TRAIN_START_H
#define PL_TRAIN_START_H

#include "infer/cli/env.h"
#include "infer/drafter/backbone.h"
#include "train/loop/block.h"
#include "train/source/source.h"
#include "train/source/teacher.h"

typedef struct pl_start {
    const pl_recipe   *r;
    pl_backbone       *model;
    pl_param_block    *block; // of the model
    const pl_teacher  *teacher;
    pl_feature_source *source; // training documents
} pl_start;

// Writes the fingerprint of the checkpoint that drafter.start names, "" without one.
pl_status pl_start_identity(char out[17], const pl_recipe *r, pl_err *err);

// Sets all parameters of s->model, from the checkpoint if the recipe names one.
pl_status pl_start_weights(pl_start *s, const pl_env *env, pl_err *err);
// Sets all parameters of s->model from the checkpoint in `dir`.
pl_status pl_start_from(pl_start *s, const char *dir, const pl_env *env, pl_err *err);
// Rows of the full head of a checkpoint (which may be the target's own): n of them, for target ids id[i] (NULL: i).
pl_status pl_start_head_rows(float *rows, const pl_start *s, const char *dir, const int32_t *id, int64_t n, int64_t d,
                             pl_err *err);
// Returns the backend that multiplies matrices before training: the CPU, whatever device trains.
const pl_backend *pl_start_backend(const pl_env *env);

#endif
