// Losses of a drafter. A forward (train/task/unroll.h) minimises
//
//   sum over losses l and cells c of  weight_l weight_c l(c)
//
// over the cells of train/task/rows.h, which are any of the pack's rows at any depth. A loss is one file with one
// pl_loss_kind and one line in losses.def; nothing else names it, unless its keys are in
// train/keys.c (the losses of recipes that keep their hash). The divergence is the first line. Metrics have
// the mean of l(c) over the cells of each depth as step_NAME, of held-out rows as eval_step_NAME.
#ifndef PL_TRAIN_LOSS_H
#define PL_TRAIN_LOSS_H

#include "kernels/backend.h"
#include "kernels/base/key.h"
#include "kernels/op/divergence.h"
#include "recipes/recipe.h"
#include "train/task/rows.h"

#define PL_LOSSES_MAX 16 // lines of losses.def

typedef struct pl_unroll pl_unroll;

// A forward over u->rows.
typedef struct pl_pass {
    pl_unroll *u;
    bool       learn;       // else it is scored
    pl_tensor  x;           // [cells, d] what the head reads; where a loss reads it (PL_LOSS_READS_X)
    pl_tensor  out, w;      // [cells, width], [draft ids, width]: their products are the logits; w: of the first draft
                            // where each has a head of its own, which the divergence alone learns by
    pl_tensor  last_hidden; // [rows of the pack, d] of the teacher
    // Set by the divergence: [cells] the acceptance of the head's own distribution, where the host reads it (data NULL:
    // nothing reads it); pl_divergence_args.teacher_stat.
    pl_tensor  accept, teacher_stat;
    pl_tensor  step_x[PL_MAX_UNROLL]; // [rows that run, d] the head's input at each step, while scoring; not of blocks
    // Arguments of steps and layers, which may run again in backward: queries, keys and values of steps, by layer;
    // blocks.
    pl_tensor  block[PL_STEP_LAYERS * PL_MAX_UNROLL];
    pl_block_view  view;
    pl_head_blocks blocks;
} pl_pass;

typedef struct pl_loss {
    const struct pl_loss_kind *kind;
    double                     factor; // its weight beside the others
    float                     *weight; // [cells] factor * weight_c: what ops take
    // Results on the host, [cells]: l(c) without weights (of a loss without a name in the divergence's units); 0 or 1,
    // if its kind has a share.
    double                    *value, *share;
} pl_loss;

enum { PL_LOSS_READS_X = 1, PL_LOSS_READS_ACCEPT = 2 };

typedef struct pl_loss_kind {
    const char   *name;  // "feature_loss", which needs `scored`; NULL: its values are a part of the divergence's figure
    const char   *share; // of its second figure; NULL: none
    // Keys of recipes that it has beside those of train/keys.h, all late, which fill a struct of the kind's own. NULL:
    // none.
    const pl_key *keys;
    // Returns true for heads that it is for; `suits_what` names them where its keys are refused. NULL: all.
    bool (*suits)(const pl_head_kind *h);
    const char *suits_what;
    unsigned    reads;  // of a pass: the bits above
    bool        scored; // scoring computes it as well
    size_t      size;   // of its struct, which begins with a pl_loss; 0: it is one
    // Its factor for this drafter; 0: the drafter does not learn by it. own: the struct that its keys filled; NULL: it
    // has none. A loss with keys is left out where no recipe filled them.
    double (*factor)(const pl_unroll *u, const void *own);
    // Allocates and frees the rest of its struct; NULL: nothing. destroy must accept a struct that create did not
    // fill, or filled in part.
    pl_status (*create)(pl_loss *l, const pl_unroll *u, pl_err *err);
    void (*destroy)(pl_loss *l);
    // Adds the loss of step k's cells, which begin at `at`, to the tape, as soon as the step has run. hidden [rows that
    // run, d]: its output, which the next step consumes unless the backbone has `ahead`. Not called for blocks. NULL:
    // nothing.
    void (*step)(pl_ctx *ctx, pl_loss *l, pl_pass *p, int k, int64_t at, pl_tensor hidden);
    // Adds the loss of all cells to the tape. NULL: nothing.
    void (*build)(pl_ctx *ctx, pl_loss *l, pl_pass *p);
    // Sets l->value and l->share, after backward. NULL: build has.
    void (*read)(pl_ctx *ctx, pl_loss *l, const pl_pass *p);
} pl_loss_kind;

const pl_loss_kind *pl_loss_at(int i); // NULL past the last

// Sets l->weight from the cells' weights.
void               pl_loss_weigh(pl_loss *l, const pl_rows *r);
// Reads a tensor of the n cells from c on to l->value; nothing on a measuring or failed context. Waits.
void               pl_loss_read(pl_ctx *ctx, pl_loss *l, pl_tensor t, int64_t c, int64_t n);
// The divergence of the drafter's options, without rows.
pl_divergence_args pl_loss_objective(const pl_unroll *u);
// *t2d: [V] the draft id of each target id, -1: none; NULL: as they are.
pl_status          pl_loss_draft_ids(int32_t **t2d, const pl_unroll *u, pl_err *err);

#endif
