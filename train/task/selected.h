// A selector under training (infer/head/selector.h), beside the divergence that the head learns by, the token before
// being the text's. C_i: the K best draft ids of row i; q_i = softmax(S_i) over them; p the target's distribution.
//
//   hard-ce   loss_i = -log softmax(S_i)[choice]; where the target's choice is not in C_i it takes the last one's place
//             (speculators' dflash2)
//   any other objective of kernels/op/divergence.h (not label): D(p, q_i) over C_i, p as it stands there (unmasked):
//             what it holds beside the list is lost, as it is to `rejection`, which accepts a draft of the list's law
//             with probability sum over C_i of min(p, q) = 1 - tv
// Sampled by that law, a list cannot have more than p's mass on it, m, and every q that is nowhere below p has that:
// p / m does, which kl and ce ask for. The q that hard-ce asks for is sure of the choice, and accepted with its
// probability alone.
//
// The full law h(C_i) q_i, h the head's law, changes what is drawn and not what is learned: log h(C_i) does not depend
// on S, so the gradients of kl, ce and hard-ce in S are the same for both laws. The other objectives compare p with q_i
// itself, and so are the list law's.
//
// Gradients reach the head's rows and what they are multiplied with as well. Held out, acceptance and choices are those
// of what is drafted, by the law that the selector has. (A specvocab head's list and law are those of its exact rows;
// while decoding, of those of them that its scorer lists.)
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
    bool           scored; // acceptance is wanted
    // What pl_selected_list finds, [n, K].
    int32_t       *own, *id; // the head's best; with the choice among them
    float         *label;    // 1 at the choice
    float         *value;    // where acceptance is wanted: the head's logits of its best,
    float         *lse;      // [n] and the log-sum-exp of all
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
// Row i's best of its own list, and how much of what is drafted overlaps with the target: the sum of min(p, q), q the
// list's law or the full one. score: of that list; whole: the overlap of the head's own law.
double    pl_selected_accept(const pl_selected *s, const pl_tensor *score, int64_t i, double whole, int32_t *best);

#endif
