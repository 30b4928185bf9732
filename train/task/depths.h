// Which rows run at which depth of a drafter that learns from masks (P-EAGLE's conditional drop of tokens, arXiv
// 2602.01469; infer/drafter/peagle.c). Of n rows that could learn at some depth behind 0, at depth k learn, where they
// weigh there,
//
//   ceil(n max(ratio^k, floor))                          at most, the fewer the deeper:
//
// those that a draw puts first: who learns at one depth has learned, or could have, at those before it. A row's masks
// are seen by that row alone, so that the others are not changed by leaving it out; a row runs at depth k where it
// learns there or deeper, and no other does. Depth 0 runs whole: its rows are what masks see.
#ifndef PL_TRAIN_DEPTHS_H
#define PL_TRAIN_DEPTHS_H

#include "train/task/pack.h"

typedef struct pl_depths {
    bool      on; // false: all rows run at all depths
    int       steps;
    int64_t   capacity;
    double    ratio, floor;
    int64_t   n[PL_MAX_UNROLL], cells; // rows that run at each depth; of all depths
    int32_t  *taken[PL_MAX_UNROLL];    // [n[k]] the pack's rows that run, ascending
    int32_t  *spread[PL_MAX_UNROLL];   // [rows] where each is among them, -1: nowhere
    int32_t  *lo[PL_MAX_UNROLL];       // [rows] the pack's, -1 of rows that do not run
    int32_t  *pos[PL_MAX_UNROLL];      // [n[k]] the pack's
    int32_t  *teacher_row, *argmax;    // [cells] the pack's; what the drafter chose
    int32_t  *order;                   // [capacity] rows as they are drawn
    uint64_t *drawn;                   // [capacity]
    pl_arena  arrays;                  // of what ops read
} pl_depths;

pl_status pl_depths_init(pl_depths *d, int steps, int64_t capacity, double ratio, double floor, const pl_backend *be,
                         pl_err *err);
void      pl_depths_fini(pl_depths *d);
// As many as ever run of a pack of `rows`.
void      pl_depths_most(pl_depths *d, int64_t rows);
// Draws who learns, a pure function of seed and the pack's key: the others' weights become 0.
void      pl_depths_draw(pl_depths *d, pl_pack *p, uint64_t seed);
// Of the c-th row that runs, counted over depths: its place in [steps][rows].
int64_t   pl_depths_place(const pl_depths *d, int64_t rows, int64_t c);

#endif
