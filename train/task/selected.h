// A selector under training (infer/head/selector.h), beside the divergence that the head learns by: cross-entropy over
// its list with the target's choice, the token before being the text's, as speculators' dflash2 has it.
//
//   C_i = the K best draft ids of row i;  where the target's choice is not among them it takes the last one's place
//   loss_i = -log softmax(S_i)[choice]
// Gradients reach the head's rows and what they are multiplied with as well. Held out, acceptance and choices are those
// of what is drafted: softmax(S) over the head's own list. (A specvocab head's list is taken from its exact rows; while
// decoding, from those of them that its scorer lists.)
#ifndef PL_TRAIN_SELECTED_H
#define PL_TRAIN_SELECTED_H

#include "infer/head/head.h"

typedef struct pl_selected {
    const pl_head *head;
    pl_tensor      x, rows; // [n, d] what the head reads; [n, width] what its rows are multiplied with
    const int32_t *before;  // [n] tokens
    const int32_t *choice;  // [n] the draft id of the target's choice; < 0: the row does not count
    // What pl_selected_list finds, [n, K].
    int32_t       *own, *id; // the head's best; with the choice among them
    float         *label;    // 1 at the choice
} pl_selected;

// Fills own, id and label; waits. False on a measuring and on a failed context.
bool      pl_selected_list(pl_ctx *ctx, pl_selected *s);
// Of one of the lists: [n, K].
pl_tensor pl_selected_scores(pl_ctx *ctx, const pl_selected *s, const int32_t *id);
// Whether row i's choice is on the head's own list.
bool      pl_selected_has(const pl_selected *s, int64_t i);
// Row i's best of its own list, and its overlap with a teacher whose logits of that list are t [n, K] and whose
// log-sum-exp is lse: sum over the list of min(p, q).
double    pl_selected_accept(const pl_selected *s, const pl_tensor *score, const pl_tensor *t, int64_t i, double lse,
                             double cap, int32_t *best);

#endif
