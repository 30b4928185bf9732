// The features of a step: which of the target's layers are tapped, for whom, and of which rows. The options' features
// are of all rows; a drafter that says which sessions' it reads (pl_drafter_kind.reads) gets those rows' alone, so that
// no forward copies what nobody takes.
#ifndef PL_TAPPED_H
#define PL_TAPPED_H

#include "infer/drafter/drafter.h"
#include "infer/model/llama.h"

typedef struct pl_tapped {
    int      layer[PL_MAX_TAPS], n, n_layers_own; // the options' layers come first
    int      own[PL_MAX_TAPS], n_own;             // where the options' are among them
    int      drafter[PL_MAX_TAPS], n_drafter;     // and the drafter's
    int32_t *row;   // [max_rows]: rows whose features are taken, where they are not all; ops read it
    int32_t *at;    // [max_rows]: by row of the forward, where it is among those; -1: it is not
    int32_t *final; // [max_rows]: what pl_tapped_rows gives
    int      n_rows;
    bool     all; // of all rows: there is nothing to look up
} pl_tapped;

void           pl_tapped_init(pl_tapped *t, const int *tap, int n, const pl_drafter *d);
// A step's rows: d: who drafts, NULL: nobody. True: each session's rows are to be added.
bool           pl_tapped_begin(pl_tapped *t, const pl_drafter *d);
void           pl_tapped_add(pl_tapped *t, const pl_drafter *d, int slot, int row0, int rows);
// For measuring: the features of n rows by a list, and of all.
void           pl_tapped_some(pl_tapped *t, int n);
void           pl_tapped_all(pl_tapped *t);
// What the forward is to tap: the number of layers; in the view, which rows.
int            pl_tapped_view(const pl_tapped *t, pl_view *view);
pl_tensor      pl_tapped_own(const pl_tapped *t, pl_ctx *ctx, const pl_llama_out *out);
pl_tensor      pl_tapped_drafters(const pl_tapped *t, pl_ctx *ctx, const pl_llama_out *out);
// Of a part's final rows [first, first + n), where their features are; in t->final.
const int32_t *pl_tapped_rows(const pl_tapped *t, const int32_t *final_row, int first, int n);

#endif
