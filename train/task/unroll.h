// Training-time test (EAGLE-3, Li et al. 2025, arXiv 2503.01840, section 3; the same for EAGLE-1, which is HASS's,
// with its top-K loss): the drafter runs K steps over all rows in parallel, as it will when it drafts
// ahead.
//
//   step 0   hidden = fuse(features of position t), causal within the document
//   step k   hidden = the row's own output of step k-1; tokens shifted by k; rope positions t + k; keys and values: the
//            causal block of step 0 and the row's own entries of steps 1..k
//   loss     sum over counted rows of step_decay^k ( token_weight D(p(. | x_0..x_{t+1+k}), q_k(. | row t))
//                                                  + feature_weight SmoothL1(hidden_{k+1}, f_{t+1+k}) )
// D: an objective of kernels/op/divergence.h, KL(p || q) unless another is chosen; with a trimmed head p is restricted
// to the draft ids and rows count whose choice is one, or (unmasked) p is the target's own distribution and all rows
// count. f: the target's last hidden after its final norm; only for backbones that predict it. EAGLE-1's own training
// is K = 1 with weights 0.1 and 1 (its cross-entropy with the teacher's distribution is KL plus a constant). Gradients
// flow through all steps and all stored keys and values. The K outputs stand in one [K*T, r] tensor and one call of the
// divergence engine takes them all, so each tile of the teacher is computed once and no [T, V] ever exists.
//
// HASS's top-K distillation may stand beside the divergence (train/task/topk_loss.h), with the weights of the token's
// loss; losses have it in them.
//
// A head's selector learns beside the divergence, of the same rows with the same weights (train/task/selected.h).
//
// Which rows run at which depth is a schedule's (train/task/rows.h): results stand at [k][row of the pack] by any of
// them, and rows that did not run do not count.
#ifndef PL_TRAIN_UNROLL_H
#define PL_TRAIN_UNROLL_H

#include "infer/drafter/backbone.h"
#include "kernels/op/divergence.h"
#include "kernels/tape.h"
#include "train/task/pack.h"
#include "train/task/rescored.h"
#include "train/task/rows.h"
#include "train/task/selected.h"
#include "train/task/topk_loss.h"

typedef struct pl_unroll_options {
    int64_t      capacity;     // rows
    int          steps;        // K
    int          learn_steps;  // how many of them are learned from; 0: all. Scoring always looks K steps ahead
    double       step_decay;   // weight of step k is step_decay^k
    double       token_weight; // of the divergence
    // Of the regression, where the backbone predicts features; of the confidence that a block drafter's head has: its
    // cross-entropy with the acceptance, in the regression's place; of what a selector learns, likewise. 0: none.
    double       feature_weight;
    // The divergence; js_beta and lk_decay: of the objectives that have them.
    pl_objective objective;
    bool         unmasked;
    double       js_beta, lk_decay;
    pl_objective selector_objective; // what a selector learns by (train/task/selected.h; 0: kl), with the same two
    double       teacher_cap;        // of the target's logits (pl_hf_config.final_softcap); 0: none
    // Block drafters: blocks of a run, at most; the seed by which they are drawn; D-PACE's alpha, 0: step_decay weighs.
    int64_t      anchors;
    uint64_t     seed;
    double       pace;
    int          top_k;                    // of HASS's distillation; 0: none
    double       top_weight;               // of it beside the divergence
    double       depth_ratio, depth_floor; // P-EAGLE: shares of rows that learn at depth k (train/task/rows_masks.c)
    bool         recompute; // steps are run again in backward instead of kept: less memory, the same bits
} pl_unroll_options;

typedef struct pl_unroll {
    pl_backbone      *model; // borrowed, bound to a block
    pl_tensor         wt;    // the target's output matrix, row-major; borrowed
    pl_unroll_options opt;
    pl_pack           pack;
    pl_rows           rows; // of it, those that run
    pl_ctx            ctx;
    pl_tape           tape;
    pl_rescored       own;            // where the head's own distribution is scored
    int               ran;            // steps of the last run
    pl_arena          arrays;         // of what ops read beside tensors: weight, d2t
    int32_t          *d2t;            // the head's, where the ops see it; NULL: draft id = target id
    int32_t          *t2d;            // [V] the other way, -1: none; of heads with a selector and a d2t
    int32_t          *choice;         // [cells] what the selector is to choose, see pl_selected
    bool             *listed;         // [K * rows] whether the head's own list has it
    float            *weight[2];      // [cells] of the divergence, of the regression
    int32_t          *student_argmax; // [K * rows] draft ids, -1 where a row does not count; filled by both runs
    float            *accept;         // [K * rows] probability that verification accepts; filled by score
    double           *loss;           // [K * rows] the divergence
    double           *feature_loss;   // [K * rows] the regression; 0 without
} pl_unroll;

// Sizes the memory of a step of `capacity` rows: activations, gradients, tape.
pl_status pl_unroll_create(pl_unroll *u, pl_backbone *model, pl_tensor wt, const pl_unroll_options *o,
                           const pl_backend *be, pl_pool *pool, pl_err *err);
void      pl_unroll_destroy(pl_unroll *u);

// Forward and backward over the rows of the pack; gradients of the weighted sum of losses are added to the parameters'.
pl_status pl_unroll_learn(pl_unroll *u, pl_err *err);
// Forward alone, with acceptance. Of a head whose own distribution is another than the one it learns
// (train/task/rescored.h), acceptance and choices are its own distribution's; the loss is that of learning.
pl_status pl_unroll_score(pl_unroll *u, pl_err *err);
// The same for all rows, also of a block drafter, in as many runs as it takes.
pl_status pl_unroll_score_all(pl_unroll *u, pl_err *err);

// What a run says about its rows, added up over runs.
typedef struct pl_unroll_sums {
    double loss, weight;         // weighted
    double count[PL_MAX_UNROLL]; // counted rows of each step
    double step_loss[PL_MAX_UNROLL], feature_loss[PL_MAX_UNROLL], agree[PL_MAX_UNROLL], accept[PL_MAX_UNROLL];
    double listed[PL_MAX_UNROLL]; // rows whose choice the selector could choose
    // Rows that count at every step up to this one, and of them: all agreed so far; product of acceptances so far.
    double chain[PL_MAX_UNROLL], chain_agree[PL_MAX_UNROLL], chain_accept[PL_MAX_UNROLL];
} pl_unroll_sums;

// scored: the last run was pl_unroll_score (else acceptances stay 0).
void   pl_unroll_add(const pl_unroll *u, bool scored, pl_unroll_sums *s);
// Tokens that one verification is expected to give, the bonus token included: 1 + sum over steps of the share of rows
// whose drafts were right so far (greedy), or of the expected product of acceptance probabilities (sampling).
double pl_unroll_greedy_length(const pl_unroll_sums *s, int steps);
double pl_unroll_sampled_length(const pl_unroll_sums *s, int steps);

#endif
