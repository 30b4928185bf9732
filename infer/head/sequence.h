// Heads whose logits depend on the tokens before: one contract over the hidden states of a block's slots and the tokens
// drafted so far.
//
//   z_j = W h_j + W2 m_j,   m_j [r] from the block's hidden states, the tokens up to slot j and a state that goes from
//                           slot to slot
// W h of all slots is one product (pl_head_rows.base); what the tokens change is m and W2 m. A kind of head gives `mix`
// and `carry`, the same function for all slots at once (training, refinement) and for nodes of one level of a tree;
// logits, candidates and the matrices of training follow from them here. markov.c: m of the token before; xpress.c: m
// of all tokens before. A selector (selector.h) does the same for a list of candidates.
#ifndef PL_HEAD_SEQUENCE_H
#define PL_HEAD_SEQUENCE_H

#include "kernels/backend.h"

struct pl_head;
struct pl_head_rows;

// The blocks that rows are slots of.
typedef struct pl_head_blocks {
    pl_tensor      y;            // [n slots, d] the backbone's outputs, block after block
    int            slots, first; // slots of a block; the first one that drafts
    const int32_t *before;       // [n] the token before each anchor; the anchor if there is none
    pl_tensor      context;      // [n, d] the context's state before each anchor, for selectors; data NULL: not read
    pl_tensor      kept;         // set by `prepare`
} pl_head_blocks;

typedef struct pl_head_sequence {
    // Sets blocks->kept, what depends on hidden states alone: once for all uses of the blocks. NULL: nothing.
    void (*prepare)(pl_ctx *ctx, const struct pl_head *h, pl_head_blocks *blocks);
    // Returns m [M, r] of the rows of r->levels drafts, draft after draft.
    pl_tensor (*mix)(pl_ctx *ctx, const struct pl_head *h, const struct pl_head_rows *r);
    // Sets r->mixed to m [M, r] of rows of one level, and r->after to the state of their next slots.
    void (*carry)(pl_ctx *ctx, const struct pl_head *h, struct pl_head_rows *r);
    // Returns W2 [Vd, r].
    const pl_tensor *(*readout)(const struct pl_head *h);
    // Returns the logit of each row's acceptance probability [M, 1], which depends on earlier tokens alone; .data NULL:
    // this head predicts none. NULL: so do all of the kind.
    pl_tensor (*confidence)(pl_ctx *ctx, const struct pl_head *h, const struct pl_head_rows *r);
    // Returns the confidence below which drafting ends; 0: it never ends early. NULL: 0.
    double (*least_confidence)(const struct pl_head *h);
    // Returns the passes by which a chain of best tokens is refined, all slots at once (Jacobi's iteration): after n
    // passes the first n tokens are those of the walk from slot to slot. 0: chains are walked. NULL: 0.
    int (*passes)(const struct pl_head *h);
} pl_head_sequence;

double pl_sequence_least_confidence(const struct pl_head *h); // 0 for heads without a sequence
int    pl_sequence_passes(const struct pl_head *h);           // likewise
void   pl_sequence_prepare(pl_ctx *ctx, const struct pl_head *h, pl_head_blocks *blocks);

// Training: returns rows [M, n] and a matrix [Vd, n] whose products are the logits.
void pl_sequence_teach(pl_ctx *ctx, const struct pl_head *h, const struct pl_head_rows *r, pl_tensor *x, pl_tensor *w);
// pl_head_kind.topk and .logits of such a kind.
void pl_sequence_topk(pl_ctx *ctx, const struct pl_head *h, const struct pl_head_rows *r, int k, int32_t *id,
                      float *value, float *lse);
pl_tensor pl_sequence_logits(pl_ctx *ctx, const struct pl_head *h, const struct pl_head_rows *r);

#endif
