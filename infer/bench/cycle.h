// Times steps of the decode loop part by part at one context, for `plan` and `bench decode`.
//
// A step verifies the draft of the step before it and drafts anew (infer/decode/decode.h). The engine is the same as in
// decoding; only the verdict accepts a given number of tokens. Before each step the sessions are rewound to the
// context. Both commands time runs of steps by pl_cycles_run.
#ifndef PL_BENCH_CYCLE_H
#define PL_BENCH_CYCLE_H

#include "infer/decode/decode.h"
#include "infer/drafter/backbone.h"

#define PL_CYCLE_SPARE (2 * PL_SHAPE_LEVELS + PL_SHAPE_NODES) // positions that cycles need beyond the context

typedef struct pl_cycle_options {
    const pl_llama       *target;
    const pl_tree_policy *policy;   // NULL: plain decoding; at most PL_SHAPE_NODES nodes
    const pl_backbone    *backbone; // drafts the trees, with weights; NULL: arbitrary tokens at no cost
    int                   batch;    // sessions
    int                   context;  // committed tokens of each session before a step
    double                temperature;
    struct pl_cycles *caches; // NULL, or cycles of plain decoding whose caches are shared; steps of the two alternate
} pl_cycle_options;

typedef struct pl_cycle_sample {
    int    rows, emitted; // rows of the target's forward; tokens of all sessions, equal to the rows that became final
    double seconds;       // whole step: target + verify + draft
    double draft;         // all of drafting
    pl_step_parts parts;
} pl_cycle_sample;

typedef struct pl_cycles {
    pl_engine     *engine;
    pl_drafter    *drafter;
    pl_verifier    verifier;
    int            accepts; // nodes that a step accepts, at most the tree's depth
    int            batch, context;
    bool           device;
    pl_draft_parts level[PL_TREE_MAX]; // for pl_drafter.by_level
} pl_cycles;

// Opens the engine and prefills the sessions. PL_E_INPUT where the target has too few positions.
pl_status pl_cycles_open(pl_cycles **out, const pl_backend *be, pl_pool *pool, const pl_cycle_options *o, pl_err *err);
void      pl_cycles_close(pl_cycles *c); // NULL is allowed
pl_status pl_cycles_step(pl_cycles *c, pl_cycle_sample *s, pl_err *err);
// Runs steps with the policy's tree, each of which accepts half of its depth: first some that are not counted, since
// they verify another tree, fill caches and record a device's graphs; then `steps`, each passed to `add`. c->level is
// filled on the host, and on a device where `apart`, which synchronises after each part.
pl_status pl_cycles_run(pl_cycles *c, int steps, bool apart, void (*add)(void *arg, const pl_cycle_sample *s),
                        void *arg, pl_err *err);

// Sets a policy within these bounds, whose shape the caller sets before a step (pl_tree_shape_set on drafter->policy).
void pl_cycle_policy(pl_tree_policy *p, int nodes, int k, int width, int depth);

#endif
