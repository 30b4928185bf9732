// A selector under training (infer/head/selector.h), beside the divergence that the head learns by, the token before
// being the text's. C_i: the K best draft ids of row i; q_i = softmax(S_i) over them; p the target's distribution.
//
//   hard-ce   loss_i = -log softmax(S_i)[choice]; where the target's choice is not in C_i it takes the last one's place
//             (speculators' dflash2)
//   any other objective of kernels/op/divergence.h (not label): D(p, q_i) over C_i, p as it stands there (unmasked):
//             what it holds beside the list is lost, as it is to `rejection`, which accepts such a draft with
//             probability sum over C_i of min(p, q) = 1 - tv
// Sampled, a list cannot have more than p's mass on it, m, and every q that is nowhere below p has that: p / m does,
// which kl and ce ask for. The q that hard-ce asks for is sure of the choice, and accepted with its probability alone.
//
// Gradients reach the head's rows and what they are multiplied with as well. Held out, acceptance and choices are those
// of what is drafted: q_i. (A specvocab head's list is taken from its exact rows; while decoding, from those of them
// that its scorer lists.)
#ifndef PL_TRAIN_SELECTED_H
#define PL_TRAIN_SELECTED_H

#include "infer/head/head.h"
#include "kernels/op/divergence.h"

typedef struct pl_selected {
    const pl_head *head;
    pl_tensor      x, rows; // [n, d] what the head reads; [n, width] what its rows are multiplied with
    const int32_t *before;  // [n] tokens
    const int32_t *choice;  // [n] the draft id of the target's choice; < 0: the row does not count
    // The target: its rows, of which teacher_row [n] names each row's (< 0: none), its output matrix, the soft cap of
    // its logits (0: none), and what the divergence of the head found (teacher_stat).
    pl_tensor      last_hidden, wt, stat;
    const int32_t *teacher_row;
    double         cap;
    // What pl_selected_list finds, [n, K].
    int32_t       *own, *id; // the head's best; with the choice among them
    float         *label;    // 1 at the choice
    // What pl_selected_teach finds: [n, K + 1] reals of the host, log p on the head's own list and of all that is not
    // on it.
    pl_tensor      law;
} pl_selected;

// Fills own, id and label; waits. False on a measuring and on a failed context.
bool      pl_selected_list(pl_ctx *ctx, pl_selected *s);
// Of one of the lists: [n, K].
pl_tensor pl_selected_scores(pl_ctx *ctx, const pl_selected *s, const int32_t *id);
// Whether row i's choice is on the head's own list.
bool      pl_selected_has(const pl_selected *s, int64_t i);
// Fills law; waits. False as pl_selected_list.
bool      pl_selected_teach(pl_ctx *ctx, pl_selected *s);
// loss_i [n] of rows with weight[i] != 0: a root of the tape. d: objective, js_beta, lk_decay; law has been found where
// the objective is not hard-ce.
pl_tensor pl_selected_loss(pl_ctx *ctx, const pl_selected *s, const pl_divergence_args *d, const float *weight);
// Row i's best of its own list, and its overlap with the target: sum over the list of min(p, q). score: of that list.
double    pl_selected_accept(const pl_selected *s, const pl_tensor *score, int64_t i, int32_t *best);

#endif
