#include "train/task/rows.h"

#include <math.h>

void pl_rows_all(pl_rows *r) {
    pl_pack *p = r->pack;
    r->cells = r->depths * r->rows;
    r->begun = r->rows;
    r->before = p->token;
    r->teacher_row = p->teacher_row;
    r->weight = p->weight;
    for (int k = 0; k < r->depths; k++)
        r->depth[k] = (pl_depth_rows){
            .n = r->rows, .keyed = r->rows, .token = p->token + k * r->rows, .pos = p->pos, .lo = p->lo};
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
    r->begun = r->cells = 0;
    r->depths = use == PL_ROWS_LEARN ? r->opt.learn_steps : r->pack->steps;
}

void pl_rows_begin(pl_rows *r, pl_rows_use use) {
    set_use(r, use, r->pack->rows);
    if (r->kind->begin) r->kind->begin(r);
}

bool pl_rows_next(pl_rows *r) {
    return r->kind->next(r, false);
}

void pl_rows_largest(pl_rows *r, pl_rows_use use) {
    set_use(r, use, r->pack->capacity);
    r->kind->next(r, true);
}
