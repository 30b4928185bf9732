// Training of a selector (infer/head/selector.h), in addition to the head's divergence. The previous token is the
// text's. C_i: the K best draft ids of row i; q_i = softmax(S_i) over them; p: the target's distribution.
//
//   hard-ce   loss_i = -log softmax(S_i)[choice]; a choice outside C_i replaces the last candidate
//             (speculators' dflash2)
//   any other objective of kernels/op/divergence.h (not label): D(p, q_i) over C_i, p not renormalised (unmasked):
//             its mass outside the list is lost, as it is to `rejection`, which accepts a draft from q_i with
//             probability sum over C_i of min(p, q) = 1 - tv
// A draft from q_i is accepted with probability at most m, p's mass on the list. Every q >= p on the list reaches it,
// for example p / m, the optimum of kl and ce. The optimum of hard-ce puts all mass on the choice, and is accepted with
// the choice's probability p alone.
//
// The full law h(C_i) q_i, h the head's distribution, changes the draws and not the gradients of kl, ce and hard-ce in
// S, since log h(C_i) does not depend on S. The other objectives compare p with q_i itself, which is the list law.
//
// Gradients also reach the head's matrix and its inputs. Held-out acceptance and choices are those of the drafts, by
// the selector's law. (A specvocab head's list and law are computed from its exact rows here; while decoding, from the
// exact rows that its scorer lists.)
#ifndef PL_TRAIN_SELECTED_H
#define PL_TRAIN_SELECTED_H

#include "infer/head/head.h"
#include "kernels/op/divergence.h"

typedef struct pl_selected {
    const pl_head   *head;
    pl_head_rows     read;   // [n] inputs of the head and previous tokens, as decoding has them
    pl_tensor        rows;   // [n, width] factors of the head's matrix
    const int32_t   *choice; // [n] the draft id of the target's choice; < 0: the row does not count
    // The target: last hidden states, of which teacher_row [n] indexes each row's (< 0: none), the output matrix, the
    // soft cap of its logits (0: none), and teacher_stat of the head's divergence.
    pl_tensor        last_hidden, wt, stat;
    const int32_t   *teacher_row;
    double           cap;
    bool             scored; // acceptance is computed
    pl_selector_list list;   // set by pl_selected_list, of the head's best
    // Outputs of pl_selected_list, [n, K].
    int32_t         *own, *id; // the head's best; the same list with the choice in it
    float           *label;    // 1 at the choice
    float           *value;    // if scored: the head's logits of its best
    float           *lse;      // if scored, or the kind has `blocks`: [n] the log-sum-exp of all logits; value likewise
    // Output of pl_selected_teach: [n, K + 1] reals of the host, log p on the head's own list and, last, log of the
    // mass outside it.
    pl_tensor        law;
} pl_selected;

// Fills own, id and label; synchronises. Returns false on a measuring or failed context.
bool      pl_selected_list(pl_ctx *ctx, pl_selected *s);
// Returns the selector's scores of one of the lists, [n, K].
pl_tensor pl_selected_scores(pl_ctx *ctx, const pl_selected *s, const int32_t *id);
// Returns true if row i counts: always, but for kinds with `blocks`, which learn from rows whose choice is on the list
// and whose previous token is on the list before (LiLiCorr's forced prefix).
bool      pl_selected_counts(const pl_selected *s, int64_t i);
// Returns true if row i's choice is on the head's own list.
bool      pl_selected_has(const pl_selected *s, int64_t i);
// Fills law; synchronises. Returns false as pl_selected_list does.
bool      pl_selected_teach(pl_ctx *ctx, pl_selected *s);
// Returns loss_i [n] of rows with weight[i] != 0, a root of the tape. d: objective, js_beta, lk_decay; an objective
// other than hard-ce needs law.
pl_tensor pl_selected_loss(pl_ctx *ctx, const pl_selected *s, const pl_divergence_args *d, const float *weight);
// Writes row i's best token of its own list, and returns the overlap of the drafts with the target: the sum of min(p,
// q), q the list's law or the full one. score: scores of that list; whole: the overlap of the head's own law.
double    pl_selected_accept(const pl_selected *s, const pl_tensor *score, int64_t i, double whole, int32_t *best);

#endif
