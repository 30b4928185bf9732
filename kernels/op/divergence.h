// Divergence of a teacher's and a drafter's distribution over the vocabulary, as a loss. Needs no [rows, V] matrix, and
// keeps one as far as `keep` has room for it. The CPU walks the vocabulary in tiles of PL_DIV_TILE ids, a GPU the rows
// in chunks; each of the teacher's logits is computed once per pass and serves all unroll steps.
//
// Student row i of n, the rows that run, depth after depth: logits z_i = W x_i over Vd draft ids; q = softmax(z_i).
// Teacher row r = teacher_row[i]: logits z'_r = W' x'_r over V ids, softly capped if teacher_cap is set
// (pl_softcap); p^full = softmax(z'_r). d2t[j] (or j itself when NULL) is the target id of draft id j. The effect of a
// trimmed list on the teacher is part of the objective:
//   masked    p = p^full restricted to the draft ids and renormalised (EAGLE-3's training, SlimSpec's eq. for
//             truncated vocabularies); its mass m = sum_j p_j = 1
//   unmasked  p = p^full on the draft ids, not renormalised, m <= 1: the mass outside is lost
// Sums run over draft ids. r_j = [p_j > q_j], R = sum_j r_j q_j, alpha = sum_j min(p_j, q_j).
//
//   kl          sum_j p_j (log p_j - log q_j)                  dz_k = m q_k - p_k
//               (unmasked: the terms of the lost mass, which are infinite, are left out; a row's gradient is m times
//               the masked one)
//   ce          - sum_j p_j log q_j                            dz_k = m q_k - p_k
//               soft cross-entropy; kl plus the teacher's entropy
//   hard-ce     - log q_c, c the teacher's choice              dz_k = q_k - [k = c]
//               masked: the best of the draft ids; unmasked: the best of all; a row whose choice is outside the draft
//               ids has loss 0 and no gradient. Ties: the lowest id
//   tv          1 - alpha = sum_j max(q_j - p_j, 0)            dz_k = q_k (R - r_k)
//               total variation of p and q as distributions over all V ids (unmasked: the acceptance probability's
//               complement; Leviathan et al. 2023, arXiv 2211.17192, corollary 3.6)
//   tvd++       the value of tv                                dz_k = q_k (R - r_k) / sqrt(R (1 - R))
//               Goel et al. 2024, arXiv 2403.00858: grad tv = -E_{x~q}[r(x) grad log q(x)] with the reward replaced by
//               the advantage (r - mean) / deviation. The tokens over which the paper estimates mean and deviation
//               could not be established; here they are the row's own and exact, R and sqrt(R (1 - R)) under q. No
//               row's value has this gradient: between changes of r it is that of -2 asin(sqrt(R)).
//   reverse-kl  sum_j q_j (log q_j - log p_j)                  dz_k = q_k (log q_k - log p_k - loss)
//               DistillSpec (Zhou et al. 2023, arXiv 2310.08461); unmasked: more by the constant -log m of the masked
//   js          b KL(p || M) + (1 - b) KL(q || M), M = b p + (1 - b) q, with b = js_beta
//                                                              dz_k = q_k (g_k - sum_j q_j g_j),
//                                                              g_j = (1 - b) log(q_j / M_j)
//               DistillSpec's and GKD's (arXiv 2306.13649) generalised Jensen-Shannon divergence; unmasked: with the
//               lost mass's constant b (1 - m) log(1/b), so that it is the divergence of distributions over all V ids
//   lk-alpha    - log alpha                                    dz_k = q_k (R - r_k) / alpha
//   lk-lambda   l kl + (1 - l) tv, l = exp(-lk_decay alpha)    dz_k = l (m q_k - p_k) + (1 - l) q_k (R - r_k)
//               LK losses (Samarin et al. 2026, arXiv 2602.23881); l is held constant in the gradient. l is the row's
//               own, as in vLLM's speculators; SpecForge takes alpha's mean over the batch, and for trimmed lists a
//               masked kl with an unmasked alpha. Here one choice holds for both.
//   label       - log q[label[i]], stored labels in draft ids  dz_k = q_k - [k = label]     (no teacher)
//
// total = sum_i weight[i] * loss_i; weight includes mask, step weight and normaliser; rows with weight[i] == 0,
// teacher_row[i] < 0 or (label) label[i] < 0 are skipped. The op is the root of the tape: its backward needs no
// incoming gradient.
//
// Outputs (all in be->real or int32; NULL pointers are skipped), for rows with weight != 0, else 0 / -1:
//   loss[i]; accept[i] = sum_j min(p^full_j, q_j), the probability that lossless verification accepts this row's
//   proposal, with p^full the teacher's *unrestricted* softmax (mass outside the draft ids can never be accepted);
//   (label: q_i[label_i], the same against a teacher with all mass on the label);
//   student_argmax[i] (draft id); teacher_argmax[r], for rows r that a row with weight refers to, else -1, over the
//   full vocabulary (target id); teacher_lse[r] full, teacher_lse_draft[r] over the draft ids.
// Softmax and divergence in fp32 (double on ref64), never less. Results do not depend on the number of threads.
//
// backward: dx_i += weight_i dz_i W;  dW += sum_i weight_i dz_i x_i^T. Teacher tensors never get a gradient. Cost:
// forward 2 (K T Vd d + T V d') flops; 2 (K T Vd d + T Vd d') more if sums need both softmaxes (accept; tv, tvd++, js,
// lk-*); backward 2 (3 K T Vd d + T Vd d'). For tiles whose logits are kept (`keep`) the second walk does no product
// and backward takes 2 (2 K T Vd d); the bits are the same. A GPU multiplies once a pass, and once for both passes if
// `settled`.
#ifndef PL_OP_DIVERGENCE_H
#define PL_OP_DIVERGENCE_H
#include "kernels/backend.h"

#define PL_DIV_TILE 512
// `keep` of training that does not save memory: all of 16,384 ids for 16,384 rows (students and teachers).
#define PL_DIV_KEEP ((size_t)1 << 30)

typedef enum pl_objective {
    PL_OBJ_KL,
    PL_OBJ_SOFT_CE,
    PL_OBJ_HARD_CE,
    PL_OBJ_TV,
    PL_OBJ_TVDPP,
    PL_OBJ_REVERSE_KL,
    PL_OBJ_JS,
    PL_OBJ_LK_ALPHA,
    PL_OBJ_LK_LAMBDA,
    PL_OBJ_LABEL,
    PL_OBJECTIVES
} pl_objective;

// Floors that keep a quotient finite when its numerator is of the same size: for R (1 - R), and for alpha.
#define PL_DIV_MIN_VARIANCE 1e-12
#define PL_DIV_MIN_OVERLAP 1e-30

typedef struct pl_divergence_args {
    pl_objective   objective;
    bool           unmasked; // p is p^full on the draft ids, not renormalised
    // Set if the caller reads teacher_stat of all ids. pl_divergence sets it where the op itself needs p^full: accept,
    // teacher_argmax, unmasked, objectives with an overlap. If false the teacher is computed at the draft ids alone.
    bool           whole;
    double         js_beta;     // js: in (0, 1)
    double         lk_decay;    // lk-lambda: > 0
    pl_tensor      x;           // [n, d] student rows, n = K*T
    pl_tensor      w;           // [Vd, d] row-major
    pl_tensor      xt, wt;      // [T', d'], [V, d'] teacher; wt row-major F32/BF16/F64, no gradient (not for label)
    double         teacher_cap; // of the teacher's logits; 0: none
    const int32_t *teacher_row; // [n] (not for label)
    const int32_t *label;       // [n] draft ids (label)
    const float   *weight;      // [n]
    const int32_t *d2t;         // [Vd] absolute target ids or NULL
    // Set if the weights will not change between forward and backward, and forward is not run again: it may then leave
    // the gradient as well. pl_divergence clears it where nothing is recorded.
    bool           settled;
    size_t         keep;           // most bytes of logits: on a tape from forward to backward, of a GPU's chunk of rows
    pl_tensor      loss;           // [n] be->real
    pl_tensor      accept;         // [n] be->real or .data NULL
    int32_t       *student_argmax; // [n] or NULL
    int32_t       *teacher_argmax; // [T'] or NULL
    pl_tensor      stat;           // [n, 4] be->real, op-private: kept from forward for backward
    // Op-private: the logits of the first tiles, each [n + T', PL_DIV_TILE] be->real, as many as `keep` allows.
    pl_tensor      kept;
    // [T', 4] be->real, kept for backward: max; lse over V; lse over draft ids; 1 + the best draft id, negative if the
    // best of all ids is another (0: no row refers to this one). Without `whole` V is the draft ids.
    pl_tensor      teacher_stat;
} pl_divergence_args;

// Allocates loss, stat, teacher_stat (frame) if .data is NULL, and runs. Returns loss.
pl_tensor pl_divergence(pl_ctx *ctx, pl_divergence_args *args);

// Names in recipes: "kl"...; NULL past the last.
const char *pl_objective_name(int objective); // NULL past the last
#endif
