// DFlash 2's candidate selector (inco.ai, "DFlash 2", 2026; its code is in z-lab/dflash and in speculators' dflash2) as
// a part of any head: it rescores the head's short list of candidates by the previous token.
//
//   C_t   the K best draft ids of the head at row t, U_t the head's logits
//   S_t(a, b) = U_t(b) + sum_r A[a, r] (P h_t)[r] B[b, r]        a: the previous token (target id), b in C_t
//   candidate_selector.predecessor_codebook A [V, r], .successor_codebook B [Vd, r], .hidden_projection.weight P [r, d]
// Drafts are drawn by drafter.selector.law; h the head's own law, softmax of U_t over all ids:
//   full  q = h(C_t) softmax(S_t(a, .)) on the list, q = h elsewhere: logits U_t, on the list
//         S_t + lse(U_t over C_t) - lse(S_t over C_t). Drawing needs U_t of all ids, as it does without a selector
//   list  q = softmax(S_t(a, .)) over C_t, as DFlash 2 draws; other ids come from the target alone
// at temperature 1; at others q is the softmax of the same logits, and the list's mass is not quite the head's. By the
// full law the best of S_t has at least h(C_t) / K, and no other id has more: both laws have the same best id. Greedy
// trees take their candidates from the list.
// B starts as zeros: S is U on the list, so greedy drafts, and by the full law drawn ones, are the head's own. Equal
// scores: the head's order.
//
// It belongs to a head (pl_head.selector) and not to a kind: every kind of head gets it by recipe key drafter.selector,
// in its best tokens and its logits alike. C, U and P h do not depend on the previous token: a block drafter computes
// them for all slots at once (pl_head_rows.list) and goes from slot to slot by K r products alone.
#ifndef PL_SELECTOR_H
#define PL_SELECTOR_H

#include "checkpoints/hf_head.h"
#include "infer/model/params.h"

typedef struct pl_selector {
    int       rank, candidates; // r, K; 0: none
    pl_hf_law law;
    pl_tensor before, after; // A, B: row-major
    pl_tensor hidden;        // P
} pl_selector;

// The part that does not depend on the previous token, for M rows.
typedef struct pl_selector_list {
    const int32_t *id;     // [M, K] draft ids in the order of their logits, -1 past the last
    const float   *value;  // [M, K] their logits
    pl_tensor      hidden; // [M, r] P h
    // The head's logits of all ids, row i's at own_row[i] (NULL: i), in host memory, for drawing by the full law; NULL:
    // not read yet, then the list is found again together with them.
    const float   *own; // [.., Vd]
    const int32_t *own_row;
} pl_selector_list;

// Returns the published rank, 256 at Qwen3's 151,936 tokens, scaled by the root of the vocabulary: a power of two, 8 at
// least.
int       pl_selector_rank(int64_t vocab);
// Refuses, with one line, more candidates than tokens or than trees have, and a rank beyond the width.
pl_status pl_selector_init(pl_selector *s, const pl_hf_selector *spec, int64_t d, int64_t draft_vocab, pl_err *err);
void      pl_selector_params(pl_selector *s, pl_params *ps, int64_t d, int64_t vocab, int64_t draft_vocab);
// Returns its addition to the logits of the listed ids: [M, K].
pl_tensor pl_selector_adds(pl_ctx *ctx, const pl_selector *s, pl_tensor hidden, const int32_t *before,
                           const int32_t *id);
double    pl_selector_bytes(const pl_selector *s); // bytes read per row

#endif
