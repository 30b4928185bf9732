// A Llama-family model under training: packed rows in, hard cross-entropy or a divergence from a target's distribution
// out, gradients into its parameter block.
//
// A row is one token of one window; windows are concatenated. Rows of different documents never see each other: a row
// attends to its own document within its window, and its position counts from where that document starts there.
#ifndef PL_TRAIN_LM_H
#define PL_TRAIN_LM_H

#include "infer/head/head.h"
#include "infer/model/llama.h"
#include "kernels/op/divergence.h"
#include "kernels/tape.h"
#include "train/loop/block.h"

// The teacher of a model that learns from a target's distribution instead of labels: row i's loss is D(p, q_i), p
// computed from the target's hidden state of that row. The model's vocabulary is the target's, or a prefix of it.
typedef struct pl_lm_teacher {
    pl_tensor    head; // [V, d'] the target's output matrix, row-major; borrowed; .data NULL: no teacher
    double       cap;  // soft cap of the teacher's logits (pl_hf_config.final_softcap); 0: none
    pl_objective objective;
    double       js_beta, lk_decay; // parameters of objectives that have them
} pl_lm_teacher;

typedef struct pl_lm {
    pl_llama       model; // its weights are in `block`
    pl_param_block block;
    pl_ctx         ctx;
    pl_tape        tape;
    bool           recompute;
    int64_t        capacity, rows;
    pl_arena       arrays;                         // memory of the rows below
    int32_t       *id, *pos, *lo, *label, *argmax; // [capacity]; label -1: the row does not count
    int32_t       *lo_window; // [capacity] as pl_view.lo_window; equals lo in a model without windows
    float         *weight;    // [capacity] 1 if the row has a label, or the weights of pl_lm_add_weighted
    double        *loss;      // [capacity] of the last run; 0 if the row does not count
    pl_lm_teacher  teacher;
    pl_head        stops; // the prediction of acceptance beside the model; acceptance false: none
    // With a teacher. hidden: [capacity, d'] its hidden states, reals of the host. teacher_row: [capacity] the row's
    // own number, -1 if it does not count. choice, accept: [capacity] the teacher's most probable token and the
    // probability that it accepts this model's draft, from the last scoring.
    void          *hidden;
    int32_t       *teacher_row, *choice;
    float         *accept;
} pl_lm;

// Sums over the rows of one run that weigh more than 0.
typedef struct pl_lm_sums {
    double  loss;           // nats
    int64_t count, correct; // rows with a label; of these, rows that predict it as most probable (scoring)
    // With a teacher, count is the rows that count and correct those that predict its choice. Sum of acceptances
    // (scoring).
    double  accept;
    double  foreseen; // sum of the losses of predicted acceptances (train/task/acceptance.h), if there are any
} pl_lm_sums;

typedef struct pl_lm_options {
    const pl_backend *backend;
    pl_pool          *pool;
    int64_t           capacity; // rows
    pl_dtype          round_to; // PL_BF16 or PL_F32
    pl_shard          shard;    // this rank's part of masters and moments
    bool              decay_embed;
    bool          recompute; // runs layers again in backward instead of keeping activations: less memory, the same bits
    pl_lm_teacher teacher;
    // Learns to predict the acceptance of its drafts (infer/head/stopping.h), by a teacher's distribution; the last two
    // parameters of `model`, which start at 0. max_rejection: as of a pl_head.
    bool          acceptance;
    int           max_rejection;
} pl_lm_options;

// Allocates the model, the block and the activations of `capacity` rows with their gradients. Weights are zero: see
// pl_param_block_init and _read. The lm must not be moved in memory.
pl_status pl_lm_create(pl_lm *lm, const pl_hf_config *config, const pl_lm_options *o, pl_err *err);
void      pl_lm_destroy(pl_lm *lm);

void pl_lm_clear(pl_lm *lm);
// Adds one window of n inputs: ids [n+1], the label of input i is ids[i+1]. doc [n+1] numbers the document of each id
// (NULL: all of one). A row whose input and label belong to two documents has no label.
void pl_lm_add(pl_lm *lm, const int32_t *ids, const int32_t *doc, int64_t n);
// Adds one window of one document. weight [n] scales each label's gradient; 0: no label. A negative weight makes the
// label less likely (train/task/repetition.h).
void pl_lm_add_weighted(pl_lm *lm, const int32_t *ids, const float *weight, int64_t n);
// Adds one document of n inputs to a model with a teacher. weight [n]: each row's weight in the gradient, 0: it does
// not count. hidden [n, d']: bf16, the target's last hidden after its final norm. If labels are the objective, the last
// row has none and does not count.
void pl_lm_add_taught(pl_lm *lm, const int32_t *ids, const float *weight, const uint16_t *hidden, int64_t n);

// Runs forward and backward over the added rows; adds gradients of the summed loss to the block's.
pl_status pl_lm_learn(pl_lm *lm, pl_lm_sums *sums, pl_err *err);
// Runs forward alone. If the model's objective is labels, a teacher scores it by KL.
pl_status pl_lm_score(pl_lm *lm, pl_lm_sums *sums, pl_err *err);

#endif
