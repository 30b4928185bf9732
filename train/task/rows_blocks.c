// Blocks of a block drafter in training (DFlash, arXiv 2602.06036). Row t of the pack is the anchor at position t + 1:
// its block's context is the rows of its document up to t; draft k predicts token t + 2 + k and has its teacher at
// row t + 1 + k, as at step k of an unroll. So the pack's weights and teachers (train/task/pack.h) hold for blocks
// unchanged; exp(-k / gamma) is step_decay^k. From the rows whose first draft counts, as many anchors are drawn as fit
// into a forward. One forward computes all drafts of a block; its cells are ordered by draft.
#include "kernels/base/check.h"
#include "kernels/base/rng.h"
#include "train/task/rows.h"

#include <math.h>
#include <string.h>

static int64_t most_cells(const pl_rows *r) {
    return r->opt.anchors * r->model->drafts;
}

static void take_lists(pl_rows *r) {
    size_t n = (size_t)r->opt.anchors, rows = n * (size_t)r->model->block, cells = (size_t)most_cells(r);
    PL_CHECK(r->opt.anchors >= 1 && r->opt.anchors * r->model->block <= INT32_MAX, "%lld blocks of %d",
             (long long)r->opt.anchors, r->model->block);
    PL_CHECK(r->pack->steps == r->model->drafts && r->opt.learn_steps == r->model->drafts,
             "%d steps of blocks with %d drafts", r->pack->steps, r->model->drafts);
    r->blocks.anchor = pl_arena_alloc(&r->arrays, (size_t)r->pack->capacity * sizeof *r->blocks.anchor);
    r->blocks.row = pl_arena_alloc(&r->arrays, n * sizeof *r->blocks.row);
    r->blocks.token = pl_arena_alloc(&r->arrays, rows * sizeof *r->blocks.token);
    r->blocks.pos = pl_arena_alloc(&r->arrays, rows * sizeof *r->blocks.pos);
    r->blocks.lo = pl_arena_alloc(&r->arrays, n * sizeof *r->blocks.lo);
    r->blocks.hi = pl_arena_alloc(&r->arrays, n * sizeof *r->blocks.hi);
    r->blocks.index = pl_arena_alloc(&r->arrays, cells * sizeof *r->blocks.index);
    r->blocks.before = pl_arena_alloc(&r->arrays, n * sizeof *r->blocks.before);
    r->own.before = pl_arena_alloc(&r->arrays, cells * sizeof *r->own.before);
    r->own.teacher_row = pl_arena_alloc(&r->arrays, cells * sizeof *r->own.teacher_row);
    r->own.weight = pl_arena_alloc(&r->arrays, cells * sizeof *r->own.weight);
}

// Draws `most` of n rows, a pure function of seed and key; they keep their order. Returns the number of drawn rows.
// Knuth, The Art of Computer Programming, volume 2, 3.4.2, algorithm S.
static int64_t draw_anchors(int32_t *row, int64_t n, int64_t most, uint64_t seed, uint64_t key) {
    pl_rng  rng = pl_rng_make(seed, PL_STREAM_ANCHOR, key);
    int64_t kept = 0;
    if (n <= most) return n;
    for (int64_t i = 0; i < n; i++)
        if (pl_rng_below(rng, (uint64_t)i, (uint64_t)(n - i)) < (uint64_t)(most - kept)) row[kept++] = row[i];
    return kept;
}

static void choose_anchors(pl_rows *r) {
    pl_pack *p = r->pack;
    int32_t *anchor = r->blocks.anchor;
    int64_t  n = 0;
    for (int64_t t = 0; t < r->rows; t++)
        if (p->weight[t] > 0) anchor[n++] = (int32_t)t;
    if (r->use != PL_ROWS_SCORE_ALL) n = draw_anchors(anchor, n, r->opt.anchors, r->opt.seed, p->key);
    r->blocks.n = n;
    for (int64_t row = 0, i = 0; row < r->rows; row++) {
        if (i < n && anchor[i] == row) {
            i++;
            continue;
        }
        for (int k = 0; k < r->depths; k++)
            p->weight[k * r->rows + row] = 0;
    }
}

// Sets the rows of the block after row t, the i-th of n blocks.
static void set_block(pl_rows *r, int32_t t, int64_t i, int64_t n) {
    const pl_pack     *p = r->pack;
    const pl_backbone *b = r->model;
    r->blocks.lo[i] = p->lo[t];
    r->blocks.hi[i] = t + 1;
    r->blocks.before[i] = p->own[t];
    for (int j = 0; j < b->block; j++) {
        int64_t at = p->pos[t] + 1 + j;
        r->blocks.token[i * b->block + j] = j == 0 ? p->token[t] : b->config.block.mask_token;
        r->blocks.pos[i * b->block + j] = (int32_t)(at < p->positions ? at : p->positions - 1);
    }
    for (int k = 0; k < r->depths; k++) {
        r->blocks.index[k * n + i] = (int32_t)(i * b->block + b->first + k);
        r->own.before[k * n + i] = p->token[k * r->rows + t];
        r->own.teacher_row[k * n + i] = p->teacher_row[k * r->rows + t];
        r->own.weight[k * n + i] = p->weight[k * r->rows + t];
    }
}

static bool next_rows(pl_rows *r, bool measuring) {
    int64_t left = r->blocks.n - r->begun, n = left < r->opt.anchors ? left : r->opt.anchors;
    if (measuring) n = r->opt.anchors;
    if (n <= 0) return false;
    r->cells = r->depths * n;
    for (int k = 0; k < r->depths; k++)
        r->depth[k] = (pl_depth_rows){.n = n, .keyed = r->rows, .taken = r->blocks.row};
    r->before = r->own.before;
    r->teacher_row = r->own.teacher_row;
    r->weight = r->own.weight;
    if (measuring) return true;
    memcpy(r->blocks.row, r->blocks.anchor + r->begun, (size_t)n * sizeof *r->blocks.row);
    for (int64_t i = 0; i < n; i++)
        set_block(r, r->blocks.row[i], i, n);
    r->begun += n;
    return true;
}

void pl_rows_pace(const pl_rows *r, float *weight, const double *loss, double alpha) {
    int64_t n = r->depth[0].n;
    for (int64_t i = 0; i < n; i++) {
        double prefix[PL_MAX_UNROLL], product = 1, sum = 0;
        for (int k = 0; k < r->depths; k++) {
            bool counts = weight[k * n + i] > 0;
            if (counts) product *= (1 - alpha) * exp(-loss[k * n + i]) + alpha;
            prefix[k] = counts ? product : 0;
        }
        for (int k = r->depths - 1; k >= 0; k--) {
            sum += prefix[k];
            if (weight[k * n + i] > 0) weight[k * n + i] = (float)sum;
        }
    }
}

const pl_rows_kind pl_rows_blocks = {
    .take = take_lists, .most = most_cells, .begin = choose_anchors, .next = next_rows};
