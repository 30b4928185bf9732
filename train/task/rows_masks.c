// P-EAGLE's conditional drop of tokens (arXiv 2602.01469). Of the n rows that count at some depth above 0, the
// following number learns at depth k, if they have a weight there:
//
//   at most ceil(n max(ratio^k, floor))
//
// The rows are the first ones of one random order, so that the learners of a depth are a subset of the candidates of
// all depths before it. Only the row itself attends to its masks, so dropping a row does not change the others: a row
// runs at depth k if it learns there or deeper. Masks attend to all rows of depth 0.
#include "kernels/base/rng.h"
#include "train/task/rows.h"

#include <math.h>
#include <stdlib.h>

// Returns how many of n rows learn at depth k; all at depth 0.
static int64_t count_learners(const pl_rows *r, int64_t n, int k) {
    double share = fmax(pow(r->opt.depth_ratio, k), r->opt.depth_floor);
    return share >= 1 ? n : (int64_t)ceil((double)n * share);
}

static int64_t most_cells(const pl_rows *r) {
    return pl_rows_at_once(r, r->pack->capacity) * r->pack->steps; // scoring draws none
}

// Sets the most rows of each depth.
static void count_rows(const pl_rows *r, int64_t n[PL_MAX_UNROLL], int64_t rows, bool drawn) {
    for (int k = 0; k < r->pack->steps; k++)
        n[k] = pl_rows_at_once(r, drawn ? count_learners(r, rows, k) : rows);
}

static void take_lists(pl_rows *r) {
    size_t  each = (size_t)r->pack->capacity * sizeof(int32_t);
    int64_t n[PL_MAX_UNROLL];
    r->masks.token = pl_arena_alloc(&r->arrays, each);
    r->masks.thin = fmax(r->opt.depth_ratio, r->opt.depth_floor) < 1;
    count_rows(r, n, r->pack->capacity, !r->opt.supervised);
    if (r->masks.thin || r->opt.supervised) pl_rows_take_some(r, n);
    if (!r->masks.thin) return;
    r->masks.order = pl_arena_alloc(&r->arrays, each);
    r->masks.drawn = pl_arena_alloc(&r->arrays, 2 * each);
}

static int compare_numbers(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// Draws the order of the rows that count at some depth above 0, a pure function of seed and the pack's key.
static int64_t draw_order(pl_rows *r) {
    const pl_pack *p = r->pack;
    pl_rng         rng = pl_rng_make(r->opt.seed, PL_STREAM_ANCHOR, p->key);
    int64_t        n = 0;
    for (int64_t row = 0; row < r->rows; row++) {
        bool could = false;
        for (int k = 1; k < r->depths; k++)
            could |= p->weight[k * r->rows + row] > 0;
        if (could) r->masks.drawn[n++] = pl_rng_u64(rng, (uint64_t)row) >> 32 << 32 | (uint64_t)row;
    }
    qsort(r->masks.drawn, (size_t)n, sizeof *r->masks.drawn, compare_numbers);
    for (int64_t i = 0; i < n; i++)
        r->masks.order[i] = (int32_t)(uint32_t)r->masks.drawn[i];
    return n;
}

static void draw_learners(pl_rows *r) {
    for (int64_t i = 0; i < r->rows; i++)
        r->masks.token[i] = r->model->config.block.mask_token;
    if (!r->masks.thin || r->use != PL_ROWS_LEARN) return;
    int64_t n = draw_order(r);
    for (int k = 1; k < r->depths; k++)
        for (int64_t i = count_learners(r, n, k); i < n; i++)
            r->pack->weight[k * r->rows + r->masks.order[i]] = 0;
}

static bool row_runs(const pl_rows *r, int64_t row, int k) {
    return (k == 0 && !r->lean) || pl_rows_learn_from(r, row, k);
}

static bool next_rows(pl_rows *r, bool measuring) {
    int64_t n[PL_MAX_UNROLL];
    bool    drawn = r->use == PL_ROWS_LEARN;
    if (r->begun == r->rows) return false;
    pl_rows_all(r);
    pl_rows_advance(r, measuring);
    if (r->lean || (drawn && r->masks.thin)) {
        count_rows(r, n, r->rows, drawn);
        pl_rows_some(r, row_runs, n, measuring);
        if (!r->lean) r->depth[0].taken = NULL; // all
    }
    for (int k = 1; k < r->depths; k++)
        r->depth[k].token = r->masks.token;
    return r->cells > 0;
}

const pl_rows_kind pl_rows_masks = {.take = take_lists, .most = most_cells, .begin = draw_learners, .next = next_rows};
