// A Llama-family model under training: packed rows in, hard cross-entropy or a divergence from a target's distribution
// out, gradients into its parameter block.
//
// A row is one token of one window; windows stand side by side. Rows of different documents never see each other: a row
// attends to its own document within its window, and its position counts from where that document starts there.
#ifndef PL_TRAIN_LM_H
#define PL_TRAIN_LM_H

#include "infer/model/llama.h"
#include "kernels/op/divergence.h"
#include "kernels/tape.h"
#include "train/loop/block.h"

// Whom a model learns from that has a target's distribution instead of labels: row i's loss is D(p, q_i), p of the
// target's hidden at that row. Its own vocabulary is the target's, or the first ids of it.
typedef struct pl_lm_teacher {
    pl_tensor    head; // [V, d'] the target's output matrix, row-major; borrowed; .data NULL: nobody
    double       cap;  // of its logits (pl_hf_config.final_softcap); 0: none
    pl_objective objective;
    double       js_beta, lk_decay; // of the objectives that have them
} pl_lm_teacher;

typedef struct pl_lm {
    pl_llama       model; // bound to block
    pl_param_block block;
    pl_ctx         ctx;
    pl_tape        tape;
    bool           recompute;
    int64_t        capacity, rows;
    pl_arena       arrays;                         // of the rows below
    int32_t       *id, *pos, *lo, *label, *argmax; // [capacity]; label -1: nothing to learn
    int32_t       *lo_window;                      // [capacity] as pl_view.lo_window; lo itself where there are none
    float         *weight;                         // [capacity]: 1 where there is a label, but for pl_lm_add_weighted
    double        *loss;                           // [capacity] of the last run; 0 where nothing counts
    pl_lm_teacher  teacher;
    // With a teacher: its hidden states, [capacity, d'] reals of the host; a row's own number, -1 where it does not
    // count; [capacity] its choice, and how likely it accepts this model's draft: of the last scoring.
    void          *hidden;
    int32_t       *teacher_row, *choice;
    float         *accept;
} pl_lm;

// Sums over the rows of one run that weigh more than 0.
typedef struct pl_lm_sums {
    double  loss;           // nats
    int64_t count, correct; // rows with a label; of them, those where the label is the most probable token (scoring)
    // With a teacher: rows that count; of them, those where its choice is; acceptances added up (scoring).
    double  accept;
} pl_lm_sums;

typedef struct pl_lm_options {
    const pl_backend *backend;
    pl_pool          *pool;
    int64_t           capacity; // rows
    pl_dtype          round_to; // PL_BF16 or PL_F32
    pl_shard          shard;    // of masters and moments
    bool              decay_embed;
    bool              recompute; // layers are run again in backward instead of kept: less memory, the same bits
    pl_lm_teacher     teacher;
} pl_lm_options;

// Memory for the model, the block and the activations of `capacity` rows with their gradients. Weights are zero: see
// pl_param_block_init and _read. The lm must stay where it is.
pl_status pl_lm_create(pl_lm *lm, const pl_hf_config *config, const pl_lm_options *o, pl_err *err);
void      pl_lm_destroy(pl_lm *lm);

void pl_lm_clear(pl_lm *lm);
// One window of n inputs: ids [n+1], the label of input i is ids[i+1]. doc [n+1] numbers the document of each id
// (NULL: all of one); where input and label are of two documents nothing is learned.
void pl_lm_add(pl_lm *lm, const int32_t *ids, const int32_t *doc, int64_t n);
// One window of one document whose labels weigh weight[i] [n] in the gradient; 0: nothing is learned. A negative one
// makes the label less likely (train/task/repetition.h).
void pl_lm_add_weighted(pl_lm *lm, const int32_t *ids, const float *weight, int64_t n);
// With a teacher, alone: one document of n inputs. weight [n] of each row in the gradient, 0: it does not count;
// hidden [n, d'] bf16, the target's last hidden after its final norm. Where labels are the objective the last row has
// none and does not count.
void pl_lm_add_taught(pl_lm *lm, const int32_t *ids, const float *weight, const uint16_t *hidden, int64_t n);

// Forward and backward over the rows that were added: gradients of the summed loss are added to the block's.
pl_status pl_lm_learn(pl_lm *lm, pl_lm_sums *sums, pl_err *err);
// Forward alone. Of a model whose objective is labels a teacher is asked by KL.
pl_status pl_lm_score(pl_lm *lm, pl_lm_sums *sums, pl_err *err);

#endif
