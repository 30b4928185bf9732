// Training-time test (EAGLE-3, Li et al. 2025, arXiv 2503.01840, section 3; the same for EAGLE-1, which is HASS's): the
// drafter runs K steps over rows in parallel, as it will when it drafts ahead.
//
//   step 0   hidden = fuse(features of position t), causal within the document
//   step k   hidden = the row's own output of step k-1; tokens shifted by k; rope positions t + k; keys and values: the
//            causal block of step 0 and the row's own entries of steps 1..k
//   loss     sum over counted rows of step_decay^k (sum of losses, each with its weight); D-PACE replaces step_decay^k
//
// Row t of step k predicts token t + 2 + k and learns from the teacher's row t + 1 + k. These are the steps of
// rows_unroll.c; rows.h has the differences of P-EAGLE and block drafters.
//
// A schedule (train/task/rows.h) sets which rows run at which depth, what they consume and what they predict; a list of
// losses (train/task/loss.h) defines the objective. A forward runs the rows, builds every loss over their cells and,
// when learning, goes backward through all steps and all stored keys and values. Depth k of a block drafter is the k-th
// draft of a block. Results are at [k][row of the pack]; rows that did not run do not count.
//
// EAGLE-1's own training is K = 1 with token_weight 0.1 and feature_weight 1 (its cross-entropy with the teacher's
// distribution is KL plus a constant).
#ifndef PL_TRAIN_UNROLL_H
#define PL_TRAIN_UNROLL_H

#include "infer/drafter/backbone.h"
#include "kernels/op/divergence.h"
#include "kernels/tape.h"
#include "train/task/loss.h"
#include "train/task/pack.h"
#include "train/task/rescored.h"
#include "train/task/rows.h"

#define PL_FIGURES 6 // named figures of the losses of one drafter, at most

typedef struct pl_unroll_options {
    int64_t      capacity;    // rows
    int          steps;       // K
    int          learn_steps; // how many of them are learned from; 0: all. Scoring always looks K steps ahead
    double       step_decay;  // weight of step k is step_decay^k
    bool         supervised;  // rows that no step has a weight for are left out
    int64_t      learn_rows;  // with `supervised`: rows that run at a time, at most; 0: all
    bool         recompute;   // steps are run again in backward instead of kept: less memory, the same bits
    // Weights of losses, as far as the drafter has them: the divergence (> 0), the regression of features, a head's
    // confidence, a selector.
    double       token_weight, feature_weight, confidence_weight, selector_weight;
    // The divergence; js_beta and lk_decay: of the objectives that have them.
    pl_objective objective;
    bool         unmasked;
    bool         all_rows; // a masked teacher's rows count whose choice is outside the draft ids too
    double       js_beta, lk_decay;
    pl_objective selector_objective; // what a selector learns by (train/task/selected.h; 0: kl), with the same two
    double       teacher_cap;        // of the target's logits (pl_hf_config.final_softcap); 0: none
    int          top_k;              // tokens of HASS's distillation; 0: none
    double       top_weight;         // weight of that loss beside the divergence
    const void  *own[PL_LOSSES_MAX]; // structs of the losses' own keys, by their place in losses.def; borrowed.
                                     // NULL: no such loss
    // Schedules. Block drafters: blocks of a forward, at most; the seed by which they are drawn; D-PACE's alpha, 0:
    // step_decay weighs. P-EAGLE: shares of rows that learn at depth k.
    int64_t      anchors;
    uint64_t     seed;
    double       pace;
    double       depth_ratio, depth_floor;
} pl_unroll_options;

// A metric of every row and depth: the loss without weights, or 0 or 1, whose mean is a share of rows.
typedef struct pl_figure {
    const char    *name;  // "selector_loss"
    const pl_loss *loss;  // whose factor weights it in the sum; NULL: it is a share
    double        *value; // [K * rows] of the last run; 0 where a row does not count
} pl_figure;

typedef struct pl_unroll {
    pl_backbone      *model; // borrowed, bound to a block
    pl_tensor         wt;    // the target's output matrix, row-major; borrowed
    pl_unroll_options opt;
    pl_pack           pack;
    pl_rows           rows; // the schedule over the pack
    pl_ctx            ctx;
    pl_tape           tape;
    pl_rescored       own;                   // where the head's own distribution is scored
    int               ran;                   // steps of the last run
    pl_arena          arrays;                // of what ops read beside tensors: weights, d2t
    int32_t          *d2t;                   // the head's, where the ops see it; NULL: draft id = target id
    pl_loss          *losses[PL_LOSSES_MAX]; // the divergence first
    int               n_losses;
    pl_figure         figure[PL_FIGURES]; // [0]: the divergence and all losses without a name
    int               n_figures;
    double           *loss;           // figure[0].value
    int32_t          *student_argmax; // [K * rows] draft ids, -1 where a row does not count
    float            *accept;         // [K * rows] probability that verification accepts; by scoring only
} pl_unroll;

// Creates the training state and sizes its memory for `capacity` rows: activations, gradients, tape.
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

// Returns true if a loss reads this of a pass (PL_LOSS_READS_...).
bool             pl_unroll_reads(const pl_unroll *u, unsigned what);
// NULL: the drafter has no such figure.
const pl_figure *pl_unroll_figure(const pl_unroll *u, const char *name);

// Sums over the counted rows of several runs.
typedef struct pl_unroll_sums {
    double loss, weight;         // the weighted sum of losses; the sum of weights
    double count[PL_MAX_UNROLL]; // counted rows of each step
    double figure[PL_FIGURES][PL_MAX_UNROLL], agree[PL_MAX_UNROLL], accept[PL_MAX_UNROLL];
    // Rows that count at every step up to this one, and of them: all agreed so far; product of acceptances so far.
    double chain[PL_MAX_UNROLL], chain_agree[PL_MAX_UNROLL], chain_accept[PL_MAX_UNROLL];
} pl_unroll_sums;

// scored: the last run scored (else acceptances stay 0).
void   pl_unroll_add(const pl_unroll *u, bool scored, pl_unroll_sums *s);
// Returns the expected tokens of a verification, the bonus token included: 1 + sum over steps of the share of rows
// whose drafts were right so far (greedy), or of the expected product of acceptance probabilities (sampling).
double pl_unroll_greedy_length(const pl_unroll_sums *s, int steps);
double pl_unroll_sampled_length(const pl_unroll_sums *s, int steps);

#endif
