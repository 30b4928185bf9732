// The drafter interface: what sits between "these tokens are committed" and "here is a tree to verify".
//
// State per session lies in slots 0..max_sessions-1. After each target forward the decode loop hands over all rows that
// became final; the drafter takes them in (recomputing its own cache from the target's true features, which is worth
// 8-15 % of acceptance length over keeping its guesses) and, where asked, proposes the next tree. A new drafter is one
// file with one pl_drafter_kind.
#ifndef PL_DRAFTER_H
#define PL_DRAFTER_H

#include "infer/llama.h"
#include "infer/propose.h"
#include "infer/tree.h"

typedef struct pl_drafter pl_drafter;

// One session's share of a call.
typedef struct pl_draft_item {
    int            slot;
    const int32_t *tokens; // the session's text so far, prompt included
    int32_t        n_tokens;
    int32_t first, count;       // rows first..first+count-1 (positions) became final; row t's next token is tokens[t+1]
    const int32_t *feature_row; // [count] rows of `features`
    int32_t        row0, rows;  // this session's rows of the forward, in order, those not final included
    pl_tree       *tree;        // NULL: nothing to propose; else root is set, grow it
    int            depth;       // levels at most (context and answer end are near)
    pl_proposing  *proposing;   // how to draw candidates; NULL: take the best
} pl_draft_item;

typedef struct pl_draft_batch {
    pl_draft_item *item;
    int            n;
    // Of the target's forward, by row:
    pl_tensor      features;   // [rows, taps * d]; .data NULL when the drafter wants none
    const int32_t *token;      // [rows] what was read
    pl_tensor      logits;     // [rows with logits, V]
    const int32_t *logits_row; // [rows] row of logits, -1: none
} pl_draft_batch;

typedef struct pl_drafter_kind {
    const char *name;
    // Runs on ctx within the current step's frame. On a measuring context it must walk its largest step.
    void (*propose)(pl_drafter *d, pl_ctx *ctx, pl_draft_batch *b);
    void (*reset)(pl_drafter *d, int slot); // a new session takes the slot
    double (*step_bytes)(const pl_drafter *d);
    void (*destroy)(pl_drafter *d);
} pl_drafter_kind;

struct pl_drafter {
    const pl_drafter_kind *kind;
    pl_tree_policy         policy;
    int                    n_taps, tap[PL_MAX_TAPS]; // features wanted from the target; 0: none
    // Largest call the decode loop makes: rows taken in at once and sessions. Set before the first measure.
    int                    max_sessions, max_rows;
};

// Opens a checkpoint directory as the drafter it declares itself to be. t: weights held as PL_F32 or PL_BF16.
// slots: positions per session. tree: NULL or "" takes auto.
pl_status pl_drafter_open(pl_drafter **out, const char *dir, const pl_llama *target, pl_dtype t, const char *tree,
                          int max_sessions, int max_rows, int slots, pl_err *err);
void      pl_drafter_destroy(pl_drafter *d);

pl_status pl_drafter_eagle3_open(pl_drafter **out, const char *dir, const pl_llama *target, pl_dtype t,
                                 const pl_tree_policy *policy, int max_sessions, int max_rows, int slots, pl_err *err);

#endif
