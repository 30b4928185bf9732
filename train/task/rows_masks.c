// P-EAGLE's conditional drop of tokens (arXiv 2602.01469). Of the n rows that count at some depth above 0, the
// following number learns at depth k, if they have a weight there:
//
//   at most ceil(n max(ratio^k, floor))
//
// The rows are the first ones of one random order, so that the learners of a depth are a subset of the candidates of
// all depths before it. Only the row itself attends to its masks, so dropping a row does not change the others: a row
// runs at depth k if it learns there or deeper. All rows run at depth 0, since masks attend to them.
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
    return r->pack->capacity * r->pack->steps; // scoring runs all rows at all depths
}

static void take_lists(pl_rows *r) {
    size_t each = (size_t)r->pack->capacity * sizeof(int32_t), cells = 0;
    r->masks.token = pl_arena_alloc(&r->arrays, each);
    r->masks.thin = fmax(r->opt.depth_ratio, r->opt.depth_floor) < 1;
    if (!r->masks.thin) return;
    for (int k = 0; k < r->opt.learn_steps; k++) {
        cells += (size_t)count_learners(r, r->pack->capacity, k);
        r->masks.taken[k] = pl_arena_alloc(&r->arrays, each);
        r->masks.spread[k] = pl_arena_alloc(&r->arrays, each);
        r->masks.lo[k] = pl_arena_alloc(&r->arrays, each);
        r->masks.pos[k] = pl_arena_alloc(&r->arrays, each);
    }
    r->own.before = pl_arena_alloc(&r->arrays, cells * sizeof *r->own.before);
    r->own.teacher_row = pl_arena_alloc(&r->arrays, cells * sizeof *r->own.teacher_row);
    r->own.weight = pl_arena_alloc(&r->arrays, cells * sizeof *r->own.weight);
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

static bool draws(const pl_rows *r) {
    return r->masks.thin && r->use == PL_ROWS_LEARN;
}

static void draw_learners(pl_rows *r) {
    for (int64_t i = 0; i < r->rows; i++)
        r->masks.token[i] = r->model->config.block.mask_token;
    if (!draws(r)) return;
    int64_t n = draw_order(r);
    for (int k = 1; k < r->depths; k++)
        for (int64_t i = count_learners(r, n, k); i < n; i++)
            r->pack->weight[k * r->rows + r->masks.order[i]] = 0;
}

static bool learns_from(const pl_rows *r, int64_t row, int depth) {
    for (int k = depth; k < r->depths; k++)
        if (r->pack->weight[k * r->rows + row] > 0) return true;
    return false;
}

// Sets the lists of a depth and appends its cells from r->cells on. The lists of depth 0, where all rows run, are not
// used.
static void set_depth(pl_rows *r, int k) {
    const pl_pack *p = r->pack;
    int32_t       *taken = r->masks.taken[k], *spread = r->masks.spread[k], *lo = r->masks.lo[k];
    int64_t        n = 0;
    for (int64_t row = 0; row < r->rows; row++) {
        bool runs = k == 0 || learns_from(r, row, k);
        spread[row] = runs ? (int32_t)n : -1;
        lo[row] = runs ? p->lo[row] : -1;
        if (!runs) continue;
        taken[n] = (int32_t)row;
        r->masks.pos[k][n++] = p->pos[row];
        r->own.before[r->cells] = p->token[k * r->rows + row];
        r->own.teacher_row[r->cells] = p->teacher_row[k * r->rows + row];
        r->own.weight[r->cells++] = p->weight[k * r->rows + row];
    }
    r->depth[k].n = n;
}

static void set_thin(pl_rows *r, bool measuring) {
    r->cells = 0;
    for (int k = 0; k < r->depths; k++) {
        pl_depth_rows *d = &r->depth[k];
        if (measuring)
            r->cells += d->n = count_learners(r, r->rows, k);
        else
            set_depth(r, k);
        if (k == 0) continue;
        d->keyed = d->n;
        d->pos = r->masks.pos[k];
        d->lo = r->masks.lo[k];
        d->taken = r->masks.taken[k];
        d->spread = r->masks.spread[k];
    }
    r->before = r->own.before;
    r->teacher_row = r->own.teacher_row;
    r->weight = r->own.weight;
}

static bool next_rows(pl_rows *r, bool measuring) {
    if (r->begun == r->rows) return false;
    pl_rows_all(r);
    for (int k = 1; k < r->depths; k++)
        r->depth[k].token = r->masks.token;
    if (draws(r)) set_thin(r, measuring);
    return true;
}

const pl_rows_kind pl_rows_masks = {.take = take_lists, .most = most_cells, .begin = draw_learners, .next = next_rows};
