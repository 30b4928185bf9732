#include "train/task/depths.h"

#include "kernels/base/arena.h"
#include "kernels/base/rng.h"

#include <math.h>
#include <stdlib.h>

// Of n rows; depth 0 has all.
static int64_t learners(const pl_depths *d, int64_t n, int k) {
    double share = fmax(pow(d->ratio, k), d->floor);
    return share >= 1 ? n : (int64_t)ceil((double)n * share);
}

void pl_depths_most(pl_depths *d, int64_t rows) {
    d->cells = 0;
    for (int k = 0; k < d->steps; k++)
        d->cells += d->n[k] = learners(d, rows, k);
}

static void take_arrays(void *arg) {
    pl_depths *d = arg;
    size_t     each = (size_t)d->capacity * sizeof(int32_t), cells = (size_t)d->cells * sizeof(int32_t);
    for (int k = 0; k < d->steps; k++) {
        d->taken[k] = pl_arena_alloc(&d->arrays, each);
        d->spread[k] = pl_arena_alloc(&d->arrays, each);
        d->lo[k] = pl_arena_alloc(&d->arrays, each);
        d->pos[k] = pl_arena_alloc(&d->arrays, each);
    }
    d->teacher_row = pl_arena_alloc(&d->arrays, cells);
    d->argmax = pl_arena_alloc(&d->arrays, cells);
}

pl_status pl_depths_init(pl_depths *d, int steps, int64_t capacity, double ratio, double floor, const pl_backend *be,
                         pl_err *err) {
    *d =
        (pl_depths){.on = fmax(ratio, floor) < 1, .steps = steps, .capacity = capacity, .ratio = ratio, .floor = floor};
    if (!d->on) return PL_OK;
    pl_depths_most(d, capacity);
    d->order = pl_malloc((size_t)capacity * sizeof *d->order);
    d->drawn = pl_malloc((size_t)capacity * sizeof *d->drawn);
    if (!d->order || !d->drawn) return pl_fail(err, PL_E_MEMORY, "training depths: out of memory");
    return pl_arena_init_shared(&d->arrays, "training depths", be->memory, take_arrays, d, err);
}

void pl_depths_fini(pl_depths *d) {
    pl_arena_fini(&d->arrays);
    pl_free(d->order);
    pl_free(d->drawn);
    *d = (pl_depths){0};
}

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// Rows that could learn behind depth 0, in the order in which they are drawn.
static int64_t draw_order(pl_depths *d, const pl_pack *p, uint64_t seed) {
    pl_rng  r = pl_rng_make(seed, PL_STREAM_ANCHOR, p->key);
    int64_t n = 0;
    for (int64_t row = 0; row < p->rows; row++) {
        bool could = false;
        for (int k = 1; k < d->steps; k++)
            could |= p->weight[k * p->rows + row] > 0;
        if (could) d->drawn[n++] = pl_rng_u64(r, (uint64_t)row) >> 32 << 32 | (uint64_t)row;
    }
    qsort(d->drawn, (size_t)n, sizeof *d->drawn, by_number);
    for (int64_t i = 0; i < n; i++)
        d->order[i] = (int32_t)(uint32_t)d->drawn[i];
    return n;
}

static bool learns_from(const pl_depths *d, const pl_pack *p, int64_t row, int depth) {
    for (int k = depth; k < d->steps; k++)
        if (p->weight[k * p->rows + row] > 0) return true;
    return depth == 0;
}

void pl_depths_draw(pl_depths *d, pl_pack *p, uint64_t seed) {
    int64_t n = draw_order(d, p, seed);
    for (int k = 1; k < d->steps; k++)
        for (int64_t i = learners(d, n, k); i < n; i++)
            p->weight[k * p->rows + d->order[i]] = 0;
    d->cells = 0;
    for (int k = 0; k < d->steps; k++) {
        d->n[k] = 0;
        for (int64_t row = 0; row < p->rows; row++) {
            bool runs = learns_from(d, p, row, k);
            d->spread[k][row] = runs ? (int32_t)d->n[k] : -1;
            d->lo[k][row] = runs ? p->lo[row] : -1;
            if (!runs) continue;
            d->taken[k][d->n[k]] = (int32_t)row;
            d->pos[k][d->n[k]++] = p->pos[row];
            d->teacher_row[d->cells++] = p->teacher_row[k * p->rows + row];
        }
    }
}

int64_t pl_depths_place(const pl_depths *d, int64_t rows, int64_t c) {
    int k = 0;
    for (; c >= d->n[k]; k++)
        c -= d->n[k];
    return k * rows + d->taken[k][c];
}
