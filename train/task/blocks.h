// Blocks of a block drafter in training (DFlash, arXiv 2602.06036), as an unroll sees them (train/task/unroll.h).
//
// Row t of the pack is the anchor at position t + 1: its block's context are the rows of its document up to t, its
// draft k is for token t + 2 + k and its teacher stands at row t + 1 + k, as at step k of an unroll. So the pack's
// weights and teachers (train/task/pack.h) hold for blocks as they are; exp(-k / gamma) is step_decay^k. Not every row
// is an anchor: of those whose first draft counts so many are drawn as a run has room for.
//
// Weights by what the drafter already knows instead (D-PACE, arXiv 2605.18810), of a block's counted drafts:
//   q_k = exp(-loss_k), for losses that are cross-entropies;  s_k = (1 - alpha) q_k + alpha, of others 1
//   weight_k = sum over counted m >= k of prod_{i <= m} s_i,  a constant to the gradient
#ifndef PL_TRAIN_BLOCKS_H
#define PL_TRAIN_BLOCKS_H

#include "infer/drafter/backbone.h"
#include "train/task/pack.h"

typedef struct pl_blocks {
    int64_t  most, n;     // anchors of a run, at most and now
    int      drafts;      // of a block
    int32_t *row;         // [most] the pack's, ascending
    int32_t *token, *pos; // [n, B] of the blocks' rows
    int32_t *before;      // [drafts, n] the token before each draft, -1 past the text's end
    float   *accepted;    // [drafts, n] how likely verification accepts it: what confidence learns
    int32_t *lo, *hi;     // [n]
    int32_t *index;       // [drafts, n] of the blocks' rows those that the head reads
    int32_t *teacher_row; // [drafts, n]
    float   *weight;      // [drafts, n]
    int32_t *argmax;      // [drafts, n] what the drafter chose
    pl_arena arrays;      // of all these: what ops read
} pl_blocks;

pl_status pl_blocks_init(pl_blocks *s, const pl_backbone *b, int64_t most, const pl_backend *be, pl_err *err);
void      pl_blocks_fini(pl_blocks *s);
// Rows that can be anchors: [p->rows] room in `row`; returns how many.
int64_t   pl_blocks_eligible(const pl_pack *p, int32_t *row);
// Draws `most` of n rows, a pure function of seed and key; they keep their order. Returns how many are left.
int64_t   pl_blocks_draw(int32_t *row, int64_t n, int64_t most, uint64_t seed, uint64_t key);
// The blocks of these rows, at most `most`.
void      pl_blocks_set(pl_blocks *s, const pl_backbone *b, const pl_pack *p, const int32_t *row, int64_t n);
// D-PACE's weights from the losses [drafts, n] of this run, in place of weight's [drafts, n], which says what counts.
void      pl_blocks_pace(const pl_blocks *s, float *weight, const pl_tensor *loss, double alpha);

#endif
