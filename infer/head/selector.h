// DFlash 2's candidate selector (inco.ai, "DFlash 2", 2026; its code is in z-lab/dflash and in speculators' dflash2) as
// a part of any head: what the head gives is a short list, and the token before says which of it.
//
//   C_t   the K best draft ids of the head at row t, U_t their logits
//   S_t(a, b) = U_t(b) + sum_r A[a, r] (P h_t)[r] B[b, r]        a: the token before (the target's id), b in C_t
//   q = softmax of S_t(a, .) over C_t                            ids outside come from the target alone
//   candidate_selector.predecessor_codebook A [V, r], .successor_codebook B [Vd, r], .hidden_projection.weight P [r, d]
// B starts as zeros: S is U, and greedy drafts are the head's own. Equal scores: the one that the head likes better.
//
// It belongs to a head (pl_head.selector) and not to a kind of head: it asks for candidates as a tree does, so a head
// that trims, factors, lists or routes has it with the same recipe key, drafter.selector, and whoever asks a head for
// its best tokens or for its logits gets the selector's. C, U and P h do not depend on the token before: a block
// drafter has them of all slots at once (pl_head_rows.list) and walks from slot to slot by K r products alone.
#ifndef PL_SELECTOR_H
#define PL_SELECTOR_H

#include "checkpoints/hf_head.h"
#include "infer/model/params.h"

typedef struct pl_selector {
    int       rank, candidates; // r, K; 0: none
    pl_tensor before, after;    // A, B: row-major
    pl_tensor hidden;           // P
} pl_selector;

// What of it does not depend on the token before, for M rows.
typedef struct pl_selector_list {
    const int32_t *id;     // [M, K] draft ids in the order of their logits, -1 past the last
    const float   *value;  // [M, K] their logits
    pl_tensor      hidden; // [M, r] P h
} pl_selector_list;

// The published rank, 256 at Qwen3's 151,936 tokens, scaled by the root of the vocabulary: a power of two, 8 at least.
int       pl_selector_rank(int64_t vocab);
// PL_E_INPUT with one line: more candidates than tokens or than trees have, a rank beyond the width.
pl_status pl_selector_init(pl_selector *s, const pl_hf_selector *spec, int64_t d, int64_t draft_vocab, pl_err *err);
void      pl_selector_params(pl_selector *s, pl_params *ps, int64_t d, int64_t vocab, int64_t draft_vocab);
// What it adds to the logits of the listed ids: [M, K].
pl_tensor pl_selector_adds(pl_ctx *ctx, const pl_selector *s, pl_tensor hidden, const int32_t *before,
                           const int32_t *id);
double    pl_selector_bytes(const pl_selector *s); // that one row must read

#endif
