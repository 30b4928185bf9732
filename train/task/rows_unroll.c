#include "train/task/rows.h"

static int64_t most_cells(const pl_rows *r) {
    return pl_rows_at_once(r, r->pack->capacity) * r->pack->steps;
}

// Sets the most rows of each depth.
static void count_rows(const pl_rows *r, int64_t n[PL_MAX_UNROLL], int64_t rows) {
    for (int k = 0; k < r->pack->steps; k++)
        n[k] = pl_rows_at_once(r, rows);
}

static void take_lists(pl_rows *r) {
    int64_t n[PL_MAX_UNROLL];
    count_rows(r, n, r->pack->capacity);
    if (r->opt.supervised) pl_rows_take_some(r, n);
}

// One set for all depths.
static bool row_runs(const pl_rows *r, int64_t row, int k) {
    (void)k;
    return pl_rows_learn_from(r, row, 0);
}

static bool next_rows(pl_rows *r, bool measuring) {
    int64_t n[PL_MAX_UNROLL];
    if (r->begun == r->rows) return false;
    pl_rows_all(r);
    pl_rows_advance(r, measuring);
    if (!r->lean) return true;
    count_rows(r, n, r->rows);
    pl_rows_some(r, row_runs, n, measuring);
    for (int k = 0; k < r->depths; k++)
        r->depth[k].place = NULL;
    return r->cells > 0;
}

const pl_rows_kind pl_rows_unroll = {.take = take_lists, .most = most_cells, .next = next_rows};
