#include "train/task/rows.h"

void pl_rows_all(pl_rows *r) {
    pl_pack *p = r->pack;
    r->cells = r->depths * r->rows;
    r->before = p->token;
    r->teacher_row = p->teacher_row;
    r->weight = p->weight;
    for (int k = 0; k < r->depths; k++)
        r->depth[k] = (pl_depth_rows){
            .n = r->rows, .keyed = r->rows, .token = p->token + k * r->rows, .pos = p->pos, .lo = p->lo};
}

int64_t pl_rows_at_once(const pl_rows *r, int64_t n) {
    return r->opt.most > 0 && r->opt.most < n ? r->opt.most : n;
}

void pl_rows_advance(pl_rows *r, bool measuring) {
    int64_t left = pl_rows_at_once(r, r->rows);
    r->first = r->begun;
    if (!r->lean || measuring) r->begun = r->rows;
    for (; r->begun < r->rows; r->begun++)
        if (pl_rows_learn_from(r, r->begun, 0) && left-- == 0) break;
}

void pl_rows_take_some(pl_rows *r, const int64_t *n) {
    size_t cells = 0, each = (size_t)r->pack->capacity * sizeof(int32_t);
    for (int k = 0; k < r->pack->steps; k++) {
        int32_t **lists[] = {r->some.taken, r->some.token, r->some.pos, r->some.lo, r->some.place};
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
            lists[i][k] = pl_arena_alloc(&r->arrays, each);
        cells += (size_t)n[k];
    }
    r->own.before = pl_arena_alloc(&r->arrays, cells * sizeof *r->own.before);
    r->own.teacher_row = pl_arena_alloc(&r->arrays, cells * sizeof *r->own.teacher_row);
    r->own.weight = pl_arena_alloc(&r->arrays, cells * sizeof *r->own.weight);
}

bool pl_rows_learn_from(const pl_rows *r, int64_t row, int depth) {
    for (int k = depth; k < r->depths; k++)
        if (r->pack->weight[k * r->rows + row] > 0) return true;
    return false;
}

// Appends a row to the lists of depth k, as its n-th, and its cell.
static void append_row(pl_rows *r, int k, int64_t row, int64_t n) {
    const pl_pack *p = r->pack;
    int64_t        from = k * r->rows + row;
    r->some.taken[k][n] = (int32_t)row;
    r->some.place[k][row] = (int32_t)n;
    r->some.token[k][n] = p->token[from];
    r->some.pos[k][n] = p->pos[row];
    r->some.lo[k][n] = p->lo[row];
    r->own.before[r->cells] = p->token[from];
    r->own.teacher_row[r->cells] = p->teacher_row[from];
    r->own.weight[r->cells++] = p->weight[from];
}

void pl_rows_some(pl_rows *r, bool (*runs)(const pl_rows *r, int64_t row, int k), const int64_t *n, bool measuring) {
    r->cells = 0;
    for (int k = 0; k < r->depths; k++) {
        pl_depth_rows *d = &r->depth[k];
        d->n = 0;
        for (int64_t row = r->first; row < r->begun && !measuring; row++)
            if (runs(r, row, k)) append_row(r, k, row, d->n++);
        if (measuring) r->cells += d->n = n[k];
        d->taken = r->some.taken[k];
        d->place = r->some.place[k];
        d->run_pos = r->some.pos[k];
        d->run_lo = r->some.lo[k];
        if (k == 0) continue;
        d->keyed = d->n;
        d->token = r->some.token[k];
        d->pos = d->run_pos;
        d->lo = d->run_lo;
    }
    r->before = r->own.before;
    r->teacher_row = r->own.teacher_row;
    r->weight = r->own.weight;
}

static void take_arrays(void *arg) {
    pl_rows *r = arg;
    size_t   cells = (size_t)r->kind->most(r);
    r->argmax = pl_arena_alloc(&r->arrays, cells * sizeof *r->argmax);
    r->accepted = pl_arena_alloc(&r->arrays, cells * sizeof *r->accepted);
    if (r->kind->take) r->kind->take(r);
}

pl_status pl_rows_init(pl_rows *r, const pl_backbone *b, pl_pack *p, const pl_rows_options *o, const pl_backend *be,
                       pl_err *err) {
    *r = (pl_rows){.kind = pl_backbone_in_blocks(b->kind) ? &pl_rows_blocks
                           : b->kind->ahead               ? &pl_rows_masks
                                                          : &pl_rows_unroll,
                   .model = b,
                   .pack = p,
                   .opt = *o};
    return pl_arena_init_shared(&r->arrays, "training rows", be->memory, take_arrays, r, err);
}

void pl_rows_fini(pl_rows *r) {
    pl_arena_fini(&r->arrays);
    *r = (pl_rows){0};
}

static void set_use(pl_rows *r, pl_rows_use use, int64_t rows) {
    r->use = use;
    r->rows = rows;
    r->first = r->begun = r->cells = r->learners = 0;
    r->lean = false;
    r->depths = use == PL_ROWS_LEARN ? r->opt.learn_steps : r->pack->steps;
}

void pl_rows_begin(pl_rows *r, pl_rows_use use) {
    set_use(r, use, r->pack->rows);
    if (r->kind->begin) r->kind->begin(r);
    for (int64_t row = 0; row < r->rows; row++)
        r->learners += pl_rows_learn_from(r, row, 0);
    bool worth = r->opt.most > 0 || PL_ROWS_LEAN * (r->rows - r->learners) >= r->rows;
    r->lean = r->opt.supervised && worth;
}

bool pl_rows_next(pl_rows *r) {
    return r->kind->next(r, false);
}

void pl_rows_largest(pl_rows *r, pl_rows_use use) {
    set_use(r, use, r->pack->capacity);
    r->lean = r->opt.supervised; // the lists take memory
    r->kind->next(r, true);
}
