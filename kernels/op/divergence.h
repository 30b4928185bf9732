// The divergence engine: loss between a teacher's and a drafter's distribution over the vocabulary, without ever
// holding a [rows, V] matrix. Walks the vocabulary in tiles of PL_DIV_TILE ids; each teacher tile is computed once per
// pass and serves all unroll steps.
//
// Student row i (K*T of them, [K, T] flattened): logits z_i = W x_i over Vd draft ids. Teacher row r = teacher_row[i]:
// logits z'_r = W' x'_r over V ids. d2t[j] (or j itself when NULL) is the target id of draft id j.
//   p_i = softmax of z'_r restricted to the draft ids;  q_i = softmax(z_i)
//   objective PL_OBJ_KL    loss_i = sum_j p_ij (log p_ij - log q_ij)         dz_i = q_i - p_i       (forward KL)
//             PL_OBJ_CE    loss_i = -log q_i[label_i]  (hard labels, draft ids) dz_i = q_i - onehot  (no teacher)
// total = sum_i weight[i] * loss_i; weight already holds mask, step weight and normaliser; weight[i] == 0 skips the
// row, teacher_row[i] < 0 (KL) and label[i] < 0 (CE) likewise. The op is the root of the tape: its backward needs no
// incoming gradient.
//
// Outputs (all in be->real or int32; NULL pointers are skipped), for rows with weight != 0, else 0 / -1:
//   loss[i]; accept[i] = sum_j min(p^full_j, q_j), the probability that lossless verification accepts this row's
//   proposal, with p^full the teacher's *unrestricted* softmax (mass outside the draft ids can never be accepted);
//   (CE: q_i[label_i], the same against a teacher that is sure of its label);
//   student_argmax[i] (draft id); teacher_argmax[r], for rows r that some row with weight refers to, else -1, over the
//   full vocabulary (target id); teacher_lse[r] full, teacher_lse_draft[r] over the draft ids.
// Softmax and divergence in fp32 (double on ref64), never less. Results do not depend on the number of threads.
//
// backward: dx_i += weight_i dz_i W;  dW += sum_i weight_i dz_i x_i^T. Teacher tensors never get a gradient.
// Cost (KL): forward 2 (K T Vd d + T V d') flops, again in backward plus 4 K T Vd d; tiles are recomputed, not stored.
#ifndef PL_OP_DIVERGENCE_H
#define PL_OP_DIVERGENCE_H
#include "kernels/backend.h"

#define PL_DIV_TILE 512

typedef enum pl_objective { PL_OBJ_KL, PL_OBJ_CE } pl_objective;

typedef struct pl_divergence_args {
    pl_objective   objective;
    pl_tensor      x;              // [n, d] student rows, n = K*T
    pl_tensor      w;              // [Vd, d] row-major
    pl_tensor      xt, wt;         // [T', d'], [V, d'] teacher (KL); wt row-major F32/BF16/F64, no gradient
    const int32_t *teacher_row;    // [n] (KL)
    const int32_t *label;          // [n] draft ids (CE)
    const float   *weight;         // [n]
    const int32_t *d2t;            // [Vd] absolute target ids or NULL
    pl_tensor      loss;           // [n] be->real
    pl_tensor      accept;         // [n] be->real or .data NULL
    int32_t       *student_argmax; // [n] or NULL
    int32_t       *teacher_argmax; // [T'] or NULL
    pl_tensor      stat;           // [n, 4] be->real, op-private: kept from forward for backward
    pl_tensor      teacher_stat;   // [T', 4] be->real: max, lse over V, lse over draft ids, spare; kept for backward
} pl_divergence_args;

// Allocates loss, stat, teacher_stat (frame) where .data is NULL, and runs. Returns loss.
pl_tensor pl_divergence(pl_ctx *ctx, pl_divergence_args *args);
#endif
