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
    pl_proposing  *proposing;   // how to draw candidates; NULL: take the best
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

// Looks on while a drafter with a backbone drafts: called with what its head reads, before candidates are chosen,
// within the step's frame, r->group the items' numbers, it and r->token the host's to read; on a measuring context too,
// where it may only size memory. Level 0 begins a new draft. On a device a draft that is looked at is waited for level
// by level.
typedef struct pl_draft_watch pl_draft_watch;
struct pl_draft_watch {
    void (*see)(pl_draft_watch *w, pl_ctx *ctx, const struct pl_head *h, const struct pl_head_rows *r);
};

typedef struct pl_drafter_kind {
    const char *name;
    // Runs on ctx within the current step's frame. On a measuring context it must walk its largest step.
    void (*propose)(pl_drafter *d, pl_ctx *ctx, pl_draft_batch *b);
    void (*reset)(pl_drafter *d, int slot);    // a new session takes the slot
    double (*step_bytes)(const pl_drafter *d); // what one level of drafting must read
    void (*destroy)(pl_drafter *d);
    // A session leaves its slot with these tokens emitted, a stop token included; NULL: nothing is learnt from them.
    void (*ended)(pl_drafter *d, int slot, const int32_t *answer, int n);
    // For those that keep something beyond a session; NULL: they do not.
    //   forget  what is kept becomes what it was when the drafter was opened, between sessions
    //   save    it goes to the file that the drafter was told to keep it in, if any
    pl_status (*forget)(pl_drafter *d, pl_err *err);
    pl_status (*save)(pl_drafter *d, pl_err *err);
} pl_drafter_kind;

// Where the seconds of drafting go; the rest of a call is gathering rows and growing trees. A backend that computes
// behind the caller's back is timed at what it hands back: where a draft is waited for once, `head` holds that wait,
// all that the device does meanwhile, and the other parts the time to queue it.
typedef struct pl_draft_parts {
    double take_in; // rows that became final: fuse and layer
    double layer;   // embedding and layer of drafted rows
    double head;    // candidates, or logits where children are drawn
    double router;  // the share of `head` before a layer: a routed head's choice of rows
    double draw;    // drawing children from them
} pl_draft_parts;

// *part gets the seconds since *at, which becomes now.
static inline void pl_draft_lap(double *part, double *at) {
    double now = pl_now();
    *part += now - *at;
    *at = now;
}

struct pl_drafter {
    const pl_drafter_kind *kind;
    pl_tree_policy         policy;
    char                   tree[PL_TREE_TEXT];       // what it drafts, in words: --tree's, or its own shape's name
    int                    n_taps, tap[PL_MAX_TAPS]; // features wanted from the target; 0: none
    // Of "hybrid:FREE[+MODEL]", which has no `propose`: the drafters that the engine chooses among
    // (infer/decode/choose.h). NULL: none.
    pl_drafter            *free, *model;
    unsigned               proposals; // see pl_drafter_proposals
    pl_draft_watch        *watch;     // NULL: nobody. Set before the first measure
    // Largest call the decode loop makes: rows taken in at once and sessions. Set before the first measure.
    int                    max_sessions, max_rows;
    pl_draft_parts         parts; // of the call in progress: the caller zeroes, `propose` adds; zeros where it is free
    // To measure, NULL else: [policy.depth_max] receives `parts` as of the end of each level that a backbone drafts. A
    // device is then synchronised at the end of each part, which makes the parts true and the draft slower.
    pl_draft_parts        *by_level;
};

// pl_draft_lap behind the synchronisation that pl_drafter.by_level asks of a device.
static inline void pl_draft_part(const pl_drafter *d, pl_ctx *ctx, double *part, double *at) {
    if (d->by_level) pl_ctx_wait(ctx);
    pl_draft_lap(part, at);
}

typedef struct pl_drafter_options {
    const pl_llama     *target;                 // outlives the drafter
    pl_dtype            dtype;                  // how its own weights are held: PL_F32 or PL_BF16
    const char         *tree;                   // as --tree has it; NULL or "": the drafter's own default
    int                 max_sessions, max_rows; // of a call: see pl_drafter
    int                 slots;                  // positions per session
    // For drafters that are models of their own: NULL, one thread; NULL, where the target's is not known.
    pl_pool            *pool;
    const pl_tokenizer *tok;
} pl_drafter_options;

// A way to come by a drafter. `from`: the checkpoint's folder or, for drafters that need none, what follows "NAME:"
// ("" where nothing does).
typedef struct pl_drafter_source {
    const char *name;                        // "lookup"
    const char *syntax;                      // "lookup[:N[,MAX]]"; NULL: it comes from a checkpoint's folder
    const char *help;                        // one line, where there is a syntax
    bool (*declared)(const pl_hf_config *c); // checkpoints: whether the folder holds this kind
    // The tree for --tree's text (NULL or "": the drafter's own shape, named in `name`), refused where it does not fit.
    // NULL: any tree, auto by default.
    pl_status (*shape)(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *from, const char *tree, pl_err *err);
    // How it can draw, see pl_drafter_proposals; of a drafter that is made of others: a function of them.
    unsigned proposals;
    bool     free; // it needs no model and reads the text alone, or rows of which it may miss any: FREE of a hybrid
    unsigned (*proposals_of)(const char *from);
    // policy: what `shape` made of o->tree, which is not read again.
    pl_status (*open)(pl_drafter **out, const char *from, const pl_tree_policy *policy, const pl_drafter_options *o,
                      pl_err *err);
} pl_drafter_source;

// `what` names a drafter: NAME or NAME:ARGUMENTS of one that needs no checkpoint, else a checkpoint's folder, opened as
// the drafter it declares itself to be. So that a command means the same in every working directory, a name wins over a
// folder; a folder of that name is written ./NAME.
pl_status                pl_drafter_open(pl_drafter **out, const char *what, const pl_drafter_options *o, pl_err *err);
void                     pl_drafter_destroy(pl_drafter *d);
// The tree that it would draft, before it is opened.
pl_status                pl_drafter_shape(pl_tree_policy *p, const char *what, const char *tree, pl_err *err);
// How it can draw, before it is opened. Bit k: it can make pl_proposal k; 0: any, or what verifiers make nothing of.
unsigned                 pl_drafter_proposals(const char *what);
// Those that need no checkpoint, for help; NULL past the last.
const pl_drafter_source *pl_drafter_without_checkpoint(int i);
// `what` is a checkpoint's folder (which need not exist), not a name.
bool                     pl_drafter_is_folder(const char *what);
bool                     pl_drafter_is_free(const char *what); // see pl_drafter_source.free
pl_status                pl_drafter_forget(pl_drafter *d, pl_err *err);
pl_status                pl_drafter_save(pl_drafter *d, pl_err *err);
// "[NODES][,keep[=FILE]]", the arguments of drafters that draft so many nodes and may learn from answers that ended;
// `def` nodes where none are named. *keep: NULL, "" (in this process) or the rest of args, FILE.
pl_status pl_drafter_nodes(const char *who, int def, const char *args, int *nodes, const char **keep, pl_err *err);

// Drafters with a backbone (infer/drafter/backbone.h): a trained checkpoint. The tree is policy's, o->tree is not read.
pl_status pl_drafter_backbone_open(pl_drafter **out, const char *dir, const pl_tree_policy *policy,
                                   const pl_drafter_options *o, pl_err *err);

// The same for a backbone that is there already, with weights in the target's memory, however they are held; borrowed.
// name: for messages.
struct pl_backbone;
pl_status pl_drafter_backbone_create(pl_drafter **out, const struct pl_backbone *model, const char *name,
                                     const pl_tree_policy *policy, const pl_drafter_options *o, pl_err *err);
// Both of a backbone that drafts blocks.
pl_status pl_drafter_block_open(pl_drafter **out, const char *dir, const pl_tree_policy *policy,
                                const pl_drafter_options *o, pl_err *err);
pl_status pl_drafter_block_create(pl_drafter **out, const struct pl_backbone *model, const char *name,
                                  const pl_tree_policy *policy, const pl_drafter_options *o, pl_err *err);

#endif
