// Rows of a session that became final and that a drafter has not taken in yet: they wait with the target's features, as
// long as the session lasts, until it is drafted for. For drafters that wait (pl_drafter.waits) on host backends.
//
//   add             for a session that is not drafted for: its new rows wait too
//   catch_up, join  for those that are: of what waited all but the last PL_WAITING_MOST rows are taken in by calls of
//                   their own, so that no call is larger than what was measured; the rest comes before the items' own
#ifndef PL_WAITING_H
#define PL_WAITING_H

#include "infer/drafter/drafter.h"

#define PL_WAITING_MOST 64 // rows that are taken in at once

typedef struct pl_waiting {
    int    n, first;  // rows, and the first one's position
    int    positions; // of a session
    size_t width;     // bytes of a row of features; 0: the drafter reads the text alone, and rows are only counted
    char  *features;  // [positions]
} pl_waiting;

// Memory that no row waits in is never touched. fini: also of {0}.
pl_status pl_waiting_init(pl_waiting *w, int positions, size_t width, pl_err *err);
void      pl_waiting_fini(pl_waiting *w);
// The rows of an item, whose features are some of these; they come behind those that wait.
void      pl_waiting_add(pl_waiting *w, const pl_draft_item *it, const pl_tensor *features);
// `like`: the batch's features, for their type and dimension.
void pl_waiting_catch_up(pl_waiting *w, pl_drafter *d, pl_ctx *ctx, const pl_draft_item *it, const pl_tensor *like);
// Each item of b becomes the rows that wait for it, waiting(arg, item), and its own, `rows` together in all, and
// b->features theirs, in the step's frame. Nothing waits any more.
typedef pl_waiting *(*pl_waiting_fn)(void *arg, const pl_draft_item *it);
void pl_waiting_join(pl_draft_batch *b, pl_ctx *ctx, int rows, pl_waiting_fn waiting, void *arg);

#endif
