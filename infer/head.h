// Draft heads: from the drafter's hidden state to a distribution over (draft) tokens.
//
// Every head here is a projection followed by one dense matrix:  logits = out . project(x)
//   full      project = identity,          out = lm_head [Vd, d]                         head_full.c
//   lowrank   project = down [r, d],       out = up [V, r]      (SlimSpec: z = W_up W_down h)   head_lowrank.c
// Decoding applies both; training hands project(x) and out to the divergence engine, so that one definition serves
// both. A head adds one file: its kind's name, its weights, its projection.
#ifndef PL_HEAD_H
#define PL_HEAD_H

#include "checkpoints/hf.h"
#include "infer/params.h"

typedef struct pl_head pl_head;

typedef struct pl_head_kind {
    const char *name; // "full", "lowrank": recipe key drafter.head.kind and config paceline.head.kind
    // Adds the head's weights (names of facts: lm_head.weight; efficient_lm_head*.weight) to the drafter's list.
    void (*params)(pl_head *h, pl_params *ps);
    // [M, d] -> [M, width of out]; y.data NULL: a new tensor. Rows are independent.
    pl_tensor (*project)(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y);
} pl_head_kind;

struct pl_head {
    const pl_head_kind *kind;
    int64_t             d, vocab, rank; // vocab: draft vocabulary Vd; rank: width of out's rows (d for a full head)
    pl_tensor           out;            // [Vd, rank]
    pl_tensor           down;           // [rank, d] (lowrank)
    bool                shared;         // out is the target's own matrix: borrowed, frozen, not in the checkpoint
    int32_t            *d2t;            // [Vd] absolute target ids, NULL: draft id = target id; owned
};

// By name; NULL and one line naming the known kinds.
const pl_head_kind *pl_head_find(const char *name, pl_err *err);
// rank <= 0 for heads that have none. A rank above d, or a missing one, is refused with one line.
pl_status           pl_head_init(pl_head *h, const char *kind, int64_t d, int64_t vocab, int64_t rank, pl_err *err);
void                pl_head_fini(pl_head *h);
// Before params: a full head becomes the target's output matrix.
void                pl_head_share(pl_head *h, pl_tensor out);

// logits [M, Vd] of rows x [M, d] (already normed), in the frame.
pl_tensor pl_head_logits(pl_ctx *ctx, const pl_head *h, pl_tensor x);
// The k best draft ids of each row [M, k], their logits and, lse not NULL, each row's log-sum-exp: projection and
// choice in one pass, no logits written. The ids and values are those of topk over pl_head_logits, bit for bit.
void      pl_head_topk(pl_ctx *ctx, const pl_head *h, pl_tensor x, int k, int32_t *id, float *value, float *lse);
// Bytes that one draft step must read.
double    pl_head_step_bytes(const pl_head *h);

extern const pl_head_kind pl_head_full, pl_head_lowrank;

#endif
