// A selector rescores the head's short list of candidates by the token before them, as a part of any head: what
// sequence.h is for the logits of all tokens.
//
//   C_t   the K best draft ids of the head at row t, U_t the head's logits, a the previous token
//   S_t(a, b) = u_t(b) + m_t(a) . W_t[b],  b in C_t         u, m and W are the kind's:
//   codebook  DFlash 2's candidate selector: U_t, and vectors of the tokens a and b               selector_codebook.c
//   lattice   LiLiCorr: 0, and vectors that a small network gives to the candidates of a block    selector_lattice.c
// Drafts are drawn by drafter.selector.law; h the head's own law, softmax of U_t over all ids:
//   full  q = h(C_t) softmax(S_t(a, .)) on the list, q = h elsewhere: logits U_t, on the list
//         S_t + lse(U_t over C_t) - lse(S_t over C_t). Drawing needs U_t of all ids, as it does without a selector
//   list  q = softmax(S_t(a, .)) over C_t; other ids come from the target alone
// at temperature 1; at others q is the softmax of the same logits, and the list's mass is not quite the head's. Greedy
// trees take their candidates from the list. Equal scores: the head's order.
//
// It belongs to a head (pl_head.selector) and not to a kind of heads: recipe keys drafter.selector. What no token
// changes is computed for all rows at once (pl_head_rows.list); a block drafter then goes from slot to slot by K r
// products alone.
#ifndef PL_SELECTOR_H
#define PL_SELECTOR_H

#include "checkpoints/hf_head.h"
#include "infer/model/params.h"

struct pl_head;
struct pl_head_rows;
struct pl_selector;

// The part that does not depend on the previous token, for M rows.
typedef struct pl_selector_list {
    const int32_t *id;      // [M, K] draft ids in the order of their logits, -1 past the last
    const float   *value;   // [M, K] their logits
    const float   *lse;     // [M] the log-sum-exp of all logits, for kinds with `blocks`; else NULL
    pl_tensor      kept[3]; // set by `prepare`
    // Rows that are some of a list's: its ids, and each row's place in it (NULL: these are all rows).
    const int32_t *all, *row;
    // The head's logits of all ids, row i's at row[i], in host memory, for drawing by the full law; NULL: not read yet.
    const float   *own; // [.., Vd]
} pl_selector_list;

// Returns true if the list was found; also on a measuring context, which has no ids.
static inline bool pl_selector_listed(const pl_selector_list *l) {
    return l->kept[0].rank > 0;
}

// A request for scores: ids [M, K], of the rows' lists or others, and the head's logits of them.
typedef struct pl_selector_ask {
    const pl_selector_list *list;
    const int32_t          *before; // [M] previous tokens, target ids
    const int32_t          *id;
    pl_tensor               own;
} pl_selector_ask;

typedef struct pl_selector_kind {
    const char *name; // recipe key drafter.selector.kind
    // Scores the candidates of whole blocks: for block drafters; the host must have the list before `prepare`, and a
    // list in training holds the head's best alone.
    bool        blocks;
    // Completes s, of a drafter of width d and so many drafts a block, and refuses an invalid spec with one line. NULL:
    // nothing to do.
    pl_status (*init)(struct pl_selector *s, const pl_hf_selector *spec, int64_t d, int drafts, pl_err *err);
    void (*fini)(struct pl_selector *s); // NULL: nothing to free
    void (*params)(struct pl_selector *s, pl_params *ps, int64_t d, int64_t vocab, int64_t draft_vocab);
    // Sets l->kept for rows that are all rows of the list.
    void (*prepare)(pl_ctx *ctx, const struct pl_head *h, const struct pl_head_rows *r, pl_selector_list *l);
    pl_tensor (*score)(pl_ctx *ctx, const struct pl_head *h, const pl_selector_ask *a); // S [M, K]
    double (*bytes)(const struct pl_selector *s);                                       // bytes read per row
} pl_selector_kind;

#define PL_SELECTOR_PARAMS 96 // weights of a selector, at most

typedef struct pl_selector {
    const pl_selector_kind *kind;
    int                     rank, candidates; // r, K; 0: none
    pl_hf_law               law;
    pl_tensor               before, after, hidden; // a codebook's
    void                   *state;                 // of other kinds, owned by their init and fini
    double                  norm_eps;              // of a lattice's norms: the drafter's
} pl_selector;

const char *pl_selector_name(int i); // of the i-th kind, codebook first; NULL past the last
// Returns the published rank, 256 at Qwen3's 151,936 tokens, scaled by the root of the vocabulary: a power of two, 8 at
// least.
int         pl_selector_rank(int64_t vocab);
// Fills in what a spec leaves open, for a drafter of width d.
void        pl_selector_settle(pl_hf_selector *spec, int64_t d, int64_t vocab);
// Refuses, with one line, an unknown kind, more candidates than tokens or than trees have, and a rank beyond the width.
// drafts: of a block; 0: the drafter drafts token by token.
pl_status   pl_selector_init(pl_selector *s, const pl_hf_selector *spec, int64_t d, int64_t draft_vocab, int drafts,
                             pl_err *err);
void        pl_selector_fini(pl_selector *s);
void        pl_selector_params(pl_selector *s, pl_params *ps, int64_t d, int64_t vocab, int64_t draft_vocab);
double      pl_selector_bytes(const pl_selector *s); // bytes read per row

#endif
