// The drafter interface: what sits between "these tokens are committed" and "here is a tree to verify".
//
// State per session lies in slots 0..max_sessions-1. After each target forward the decode loop hands over all rows that
// became final; the drafter takes them in (recomputing its own cache from the target's true features, which is worth
// 8-15 % of acceptance length over keeping its guesses) and, where asked, proposes the next tree. A new drafter is one
// file with one pl_drafter_kind.
#ifndef PL_DRAFTER_H
#define PL_DRAFTER_H

#include "data/tokenizer/tokenizer.h"
#include "infer/model/llama.h"
#include "infer/sample/propose.h"
#include "infer/tree/tree.h"
#include "kernels/base/clock.h"

typedef struct pl_drafter pl_drafter;
struct pl_head;
struct pl_head_rows;

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
    pl_proposing  *proposing;   // how to draw candidates, or to choose allowed ones; NULL: take the best
    pl_proposing  *writing;     // sampling and coin of a text that is matched afterwards; NULL: write the best tokens
} pl_draft_item;

typedef struct pl_draft_batch {
    pl_draft_item *item;
    int            n;
    // Of the target's forward, by row:
    pl_tensor      features;   // [rows, taps * d]; .data NULL when it wants none
    const int32_t *token;      // [rows] what was read
    pl_tensor      logits;     // [rows with logits, V]
    const int32_t *logits_row; // [rows] row of logits, -1: none
} pl_draft_batch;

// Observer of a drafter with a backbone, called once per level, within the step's frame and before candidates are
// chosen. `r` holds the head's inputs; r->group (item index) and r->token are readable on the host. Level 0 begins a
// new draft. Also called on a measuring context, where it may only size memory. A device synchronises after every level
// of an observed draft.
typedef struct pl_draft_watch pl_draft_watch;
struct pl_draft_watch {
    void (*see)(pl_draft_watch *w, pl_ctx *ctx, const struct pl_head *h, const struct pl_head_rows *r);
};

typedef struct pl_drafter_kind {
    const char *name;
    // Runs on ctx within the current step's frame. On a measuring context it must walk its largest step.
    void (*propose)(pl_drafter *d, pl_ctx *ctx, pl_draft_batch *b);
    void (*reset)(pl_drafter *d, int slot); // a new session takes the slot; NULL: nothing depends on it
    // In place of reset: a new session takes the slot, whose first n > 0 tokens are those of the last one. Returns how
    // many rows that were handed over, from position 0 on, stay valid: n if row t depends on tokens 0..t, n - 1 if it
    // reads token t+1 too. The decode loop hands over the others. NULL: all are handed over again.
    int (*keep)(pl_drafter *d, int slot, int n);
    // After keep: the row, n at most, from which the decode loop must hand rows over again if the first n stay and the
    // prompt has n_prompt tokens: n unless a window's cache no longer holds what row n sees. NULL: n.
    int (*from)(const pl_drafter *d, int slot, int n, int n_prompt);
    double (*step_bytes)(const pl_drafter *d); // bytes that one level of drafting reads
    void (*destroy)(pl_drafter *d);            // frees what the drafter owns, not itself; NULL: nothing
    // Called when a session leaves its slot, with its emitted tokens, a stop token included. NULL: nothing is learned.
    void (*ended)(pl_drafter *d, int slot, const int32_t *answer, int n);
    // Replaces the weights by those of another checkpoint (pl_drafter_retake). NULL: it has none.
    pl_status (*retake)(pl_drafter *d, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err);
    // For drafters that keep tokens beyond a session; NULL: nothing is kept.
    //   forget  restores the state in which the drafter was opened; between sessions
    //   save    writes the state to the drafter's keep=FILE, if any
    pl_status (*forget)(pl_drafter *d, pl_err *err);
    pl_status (*save)(pl_drafter *d, pl_err *err);
} pl_drafter_kind;

// Seconds of drafting by part; the rest of a call gathers rows and grows trees. On an asynchronous backend that is
// synchronised once per draft, `head` holds that wait, hence all of the device's work, and the other parts hold the
// time to queue it.
typedef struct pl_draft_parts {
    double take_in; // rows that became final: fuse and layer
    double layer;   // embedding and layer of drafted rows
    double head;    // candidates, or logits if children are drawn
    double router;  // the share of `head` before a layer: a routed head's choice of rows
    double draw;    // drawing children from them
} pl_draft_parts;

// Adds the seconds since *at to *part and sets *at to now.
static inline void pl_draft_lap(double *part, double *at) {
    double now = pl_now();
    *part += now - *at;
    *at = now;
}

struct pl_drafter {
    const pl_drafter_kind *kind;
    pl_tree_policy         policy;
    char                   tree[PL_TREE_TEXT];       // name of the drafted shape: --tree's text, or the drafter's own
    int                    n_taps, tap[PL_MAX_TAPS]; // features wanted from the target; 0: none
    // The drafters among which the engine chooses (infer/decode/choose.h), if this is "hybrid:FREE[+MODEL]", which has
    // no `propose`. NULL: none.
    pl_drafter            *free, *model;
    unsigned               proposals; // see pl_drafter_proposals
    pl_draft_watch        *watch;     // NULL: no observer. Set before the first measure
    // Largest call the decode loop makes: rows taken in at once and sessions. Set before the first measure.
    int                    max_sessions, max_rows;
    double                 cache_bytes; // of keys and values of all sessions
    pl_draft_parts         parts; // of the call in progress: the caller zeroes, `propose` adds; zeros where it is free
    // To measure, NULL else: [policy.depth_max] receives `parts` as of the end of each level that a backbone drafts. A
    // device is then synchronised at the end of each part, which makes the parts true and the draft slower.
    pl_draft_parts        *by_level;
};

// pl_draft_lap, after a synchronisation if pl_drafter.by_level is set.
static inline void pl_draft_part(const pl_drafter *d, pl_ctx *ctx, double *part, double *at) {
    if (d->by_level) pl_ctx_wait(ctx);
    pl_draft_lap(part, at);
}

typedef struct pl_drafter_options {
    const pl_llama           *target;                 // outlives the drafter
    pl_dtype                  dtype;                  // how its own weights are held: PL_F32 or PL_BF16
    const char               *tree;                   // as --tree has it; NULL or "": the drafter's own default
    int                       max_sessions, max_rows; // of a call: see pl_drafter
    int                       chunk;                  // most rows of one session in a call; 0: max_rows
    int                       slots;                  // positions per session
    const struct pl_backbone *model; // see pl_drafter_over; NULL: a drafter with a backbone opens its own
    // For drafters that are language models. pool NULL: one thread; tok NULL: the target's tokenizer is not known.
    pl_pool                  *pool;
    const pl_tokenizer       *tok;
} pl_drafter_options;

static inline int pl_drafter_chunk(const pl_drafter_options *o) {
    return o->chunk > 0 && o->chunk < o->max_rows ? o->chunk : o->max_rows;
}

// A source of drafters. `from`: the checkpoint's folder or, for drafters without one, the text after "NAME:" ("" if
// there is none).
typedef struct pl_drafter_source {
    const char *name;                        // "lookup"
    const char *syntax;                      // "lookup[:N[,MAX]]"; NULL: opened from a checkpoint's folder
    const char *help;                        // one line; with a syntax
    bool (*declared)(const pl_hf_config *c); // true if the checkpoint is of this kind
    // Sets the tree for --tree's text (NULL or "": the drafter's own shape, named in `name`) or refuses it. who: the
    // source's name. NULL: any tree, auto by default.
    pl_status (*shape)(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *from, const char *tree,
                       pl_err *err);
    // Laws by which it can draw (pl_drafter_proposals); proposals_of: of a drafter that is made of others.
    unsigned proposals;
    bool     free; // needs no model and reads the text alone, or rows of which it may miss any: FREE of a hybrid
    unsigned (*proposals_of)(const char *from);
    const pl_drafter_kind *kind;
    size_t                 size; // of the drafter's own struct, which begins with a pl_drafter
    // Prepares a zeroed drafter whose kind, policy (by `shape` from o->tree, which is not read again) and limits are
    // set. On failure it is destroyed. NULL: nothing is to be prepared.
    pl_status (*init)(pl_drafter *d, const char *from, const pl_drafter_options *o, pl_err *err);
} pl_drafter_source;

// Opens a drafter. `what`: NAME or NAME:ARGUMENTS of a drafter without a checkpoint, else a checkpoint's folder, whose
// config.json declares the kind. A name takes precedence over a folder, so that a command means the same in every
// working directory; a folder of that name is written ./NAME.
pl_status                pl_drafter_open(pl_drafter **out, const char *what, const pl_drafter_options *o, pl_err *err);
void                     pl_drafter_destroy(pl_drafter *d);
void                     pl_drafter_reset(pl_drafter *d, int slot); // see pl_drafter_kind.reset
// Calls `keep`, or `reset` where there is none or n is 0.
int                      pl_drafter_keep(pl_drafter *d, int slot, int n);
// Calls `from`.
int                      pl_drafter_from(const pl_drafter *d, int slot, int n, int n_prompt);
// `keep` of drafters that read a session's text alone: resets the slot and returns n.
int                      pl_drafter_keep_text(pl_drafter *d, int slot, int n);
// Sets the tree that the drafter would draft, without opening it.
pl_status                pl_drafter_shape(pl_tree_policy *p, const char *what, const char *tree, pl_err *err);
// Returns the laws by which the drafter can draw, without opening it. Bit k: pl_proposal k; 0: any, or none that a
// verifier uses.
unsigned                 pl_drafter_proposals(const char *what);
// Returns the i-th drafter without a checkpoint, for help; NULL past the last.
const pl_drafter_source *pl_drafter_without_checkpoint(int i);
// Returns true if `what` is a checkpoint's folder (which need not exist), not a name.
bool                     pl_drafter_is_folder(const char *what);
bool                     pl_drafter_is_free(const char *what); // see pl_drafter_source.free
pl_status                pl_drafter_forget(pl_drafter *d, pl_err *err);
pl_status                pl_drafter_save(pl_drafter *d, pl_err *err);
// Replaces the weights of a drafter by those of a checkpoint of the same shape, between two steps. What it remembers of
// running sessions stays, so that their next drafts may be worse; their texts do not change. t: dtype of the weights in
// memory, as at opening. PL_E_INPUT if the checkpoint is another drafter's, PL_E_UNSUPPORTED if this one has no weights
// of its own; nothing has changed then.
pl_status pl_drafter_retake(pl_drafter *d, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err);
// Parses "[NODES][,keep[=FILE]]", the arguments of drafters that draft NODES nodes (def if left out) and may learn from
// ended answers. *keep: NULL, "" (in this process) or the rest of args, FILE.
pl_status pl_drafter_nodes(const char *who, int def, const char *args, int *nodes, const char **keep, pl_err *err);

// Opens a drafter over a borrowed backbone (infer/drafter/backbone.h) with weights in the target's memory, of any
// dtype. policy sets the tree; o->tree is not read.
pl_status pl_drafter_over(pl_drafter **out, const struct pl_backbone *model, const pl_tree_policy *policy,
                          const pl_drafter_options *o, pl_err *err);

#endif
