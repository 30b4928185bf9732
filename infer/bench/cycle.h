// Steps of the decode loop, timed part by part at one context, for `plan` and `bench decode`.
//
// A step verifies the draft of the step before it and drafts anew (infer/decode/decode.h). The engine is the one that
// decodes; only the verdict is made up, so that a cycle emits as many tokens as it is asked to. Before each step the
// sessions are taken back to the context.
#ifndef PL_BENCH_CYCLE_H
#define PL_BENCH_CYCLE_H

#include "infer/decode/decode.h"
#include "infer/drafter/backbone.h"

typedef struct pl_cycle_options {
    const pl_llama       *target;
    const pl_tree_policy *policy; // NULL: plain decoding
    const pl_backbone
          *backbone; // drafts the trees, with weights; NULL: the trees have arbitrary tokens and cost nothing
    int    batch;    // sessions
    int    context;  // committed tokens of each before a step
    double temperature;
    struct pl_cycles *caches; // NULL; else cycles of plain decoding whose caches are used: the two take turns
} pl_cycle_options;

typedef struct pl_cycle_sample {
    int    rows, emitted; // of the target's forward; tokens of all sessions, which is also the rows that became final
    double seconds;       // of the step: target + verify + draft
    double draft;         // of drafting as a whole
    pl_step_parts parts;
} pl_cycle_sample;

typedef struct pl_cycles {
    pl_engine     *engine;
    pl_drafter    *drafter;
    pl_verifier    verifier;
    int            accepts; // nodes accepted by a step; fewer where the tree is less deep
    int            batch, context;
    pl_draft_parts level[PL_TREE_MAX]; // for pl_drafter.by_level
} pl_cycles;

// Reads the prompts. PL_E_INPUT where the target has too few positions.
pl_status pl_cycles_open(pl_cycles **out, const pl_backend *be, pl_pool *pool, const pl_cycle_options *o, pl_err *err);
void      pl_cycles_close(pl_cycles *c); // NULL is allowed
pl_status pl_cycles_step(pl_cycles *c, pl_cycle_sample *s, pl_err *err);

// A policy whose shape is set from step to step (pl_tree_shape_set on drafter->policy), within these bounds.
void pl_cycle_policy(pl_tree_policy *p, int nodes, int k, int width, int depth);

#endif
