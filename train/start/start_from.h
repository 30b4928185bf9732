// A drafter that starts from a trained one (drafter.start): the same backbone with another head.
//
// The backbone's weights are copied. The head is made from the checkpoint's, by target id:
//   full       the rows of the tokens that it drafts, from a full head (trimming after training: FR-Spec, VocabTrim)
//   dynaspec   likewise, in the order of its clusters
//   lowrank    the same rank: its rows and its projection; from a full head: the best factors of its rows (lowrank.h)
//   specvocab  the scorer as lowrank, the exact rows from a full head or another specvocab
//   markov     from the same kind, weight by weight where the sizes are the same; else anew
// A drafter of another backbone, width or taps, and a head that lacks a row which is wanted, are refused with one line.
#ifndef PL_TRAIN_START_FROM_H
#define PL_TRAIN_START_FROM_H

#include "train/start/start.h"

// Sets all parameters of s->model from the checkpoint in `dir`.
pl_status pl_start_from(pl_start *s, const char *dir, const pl_env *env, pl_err *err);

// Rows of the full head of a checkpoint (which may be the target's own): n of them, for target ids id[i] (NULL: i).
pl_status pl_start_head_rows(float *rows, const pl_start *s, const char *dir, const int32_t *id, int64_t n, int64_t d,
                             pl_err *err);

#endif
