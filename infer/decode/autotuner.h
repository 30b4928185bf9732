// The shape of an adapting drafter's trees (`auto`, `chain:auto`), from measured costs and acceptances.
//
// It learns while decoding:
//   acceptance  At every node of the accepted path that the drafter expanded, the place of the target's token among all
//               of the drafter's candidates there, also those that were not verified (children that are drawn: among
//               the draws). accept[l][r] is the share of place r at depth l, by running counts.
//   verify      Seconds of a step before drafting, by rows of the target's forward.
//   draft       Seconds of one level of drafting, by rows (expanded nodes of all sessions), for levels 1 and deeper.
//   first       Seconds of drafting without those: taking in final rows, and level 0; by sessions.
//   idle        Seconds of taking in without a draft; by sessions.
// So a tree of n > 1 nodes costs verify(n) + first + its deeper levels. Costs are those of cost.h; steps with prompt
// rows are left out. With s sessions in flight a tree of n nodes is charged as s n rows and a level of w nodes as s w.
// infer/tree/best.h turns these into the best tree. Whether to draft at all is choose.h's question.
//
// Where the policy's drafts may end early (chain:confidence), `own` learns how often paths come true by the drafter's
// own probability of them, and a chain goes on behind a node of depth l while
//   f(its path) a(l) >= (draft + row) E / C   of the tree in use,
// f the calibrated probability, a(l) the share of level l's drafts accepted behind accepted ones: the gain of one more
// token against its cost at the pace of the whole. It becomes a least own log-probability by depth
// (pl_tree_policy.least), set with the shape, before anything is drafted by it. Acceptances count a draft that ended
// before a level as wrong there, and its cost by how often it is drafted (best.h). Drafts of given shapes do not end
// early.
//
// Order, in cycles that draft: PL_AUTOTUNER_CALIBRATION of given shapes, then a choice every PL_AUTOTUNER_REVIEW, or
// later where choosing would take too much of the time, and one of the given shapes every PL_AUTOTUNER_EXPLORE, which
// keeps the costs of other row counts and the acceptance of deeper levels fresh. Nothing is allocated.
#ifndef PL_AUTOTUNER_H
#define PL_AUTOTUNER_H

#include "infer/decode/cost.h"
#include "infer/verify/verify.h"

#define PL_AUTOTUNER_CALIBRATION 12 // two rounds of six shapes: each cost's first sample is often slow
#define PL_AUTOTUNER_REVIEW 16      // cycles; a choice takes some 50 microseconds with `auto`,
#define PL_AUTOTUNER_SHARE 0.005    // and no more than this share of the time
#define PL_AUTOTUNER_EXPLORE 64     // cycles, so that exploring costs about a hundredth

// Seconds and rows of a step in which all sessions decoded.
typedef struct pl_draft_pace {
    int    sessions, rows, emitted; // rows of the target's forward; tokens of its verdicts
    double verifying, drafting;     // seconds before drafting, and of drafting
} pl_draft_pace;

typedef struct pl_autotuner {
    bool                adapt, observed; // some tree was judged since the last step
    long                cycles, choices;
    pl_autotuner_counts counts; // decayed
    pl_autotuner_cost   verify, draft, first, idle;
    pl_shape            chosen;      // of two nodes at least; n is 0 before the first choice
    double              last, since; // seconds: of the last choice, of decoding since then
    pl_shape_costs      costs;       // of the last choice
    // Where drafts may end early; decayed, by level: drafts that might have been as deep and that were; accepted paths
    // that ended before it.
    bool                stops;
    pl_calibration      own;
    double              asked[PL_SHAPE_LEVELS], went[PL_SHAPE_LEVELS], left[PL_SHAPE_LEVELS];
    float               least[PL_TREE_MAX]; // of the last choice
} pl_autotuner;

// One engine step of decoding rows alone; begins as {0}.
typedef struct pl_autotuner_cycle {
    pl_draft_pace pace;
    int           taken; // sessions whose rows were taken in, where none was drafted for
    // Of the drafted trees, by pl_autotuner_drafted:
    int           sessions, levels, level_rows[PL_SHAPE_LEVELS];
    double        level_at[PL_SHAPE_LEVELS]; // when the first session's candidates were known
} pl_autotuner_cycle;
void pl_autotuner_drafted(pl_autotuner_cycle *c, const pl_tree *t);

void pl_autotuner_init(pl_autotuner *p, const pl_tree_policy *policy); // NULL: no drafter
// Learns from a tree's verdict, before the tree is grown anew.
void pl_autotuner_accepted(pl_autotuner *p, const pl_tree *t, const pl_verdict *v);
void pl_autotuner_learn(pl_autotuner *p, const pl_autotuner_cycle *c);
// Sets the policy's shape for the next cycle that drafts.
void pl_autotuner_next(pl_autotuner *p, pl_tree_policy *policy, int sessions);
// Returns present costs and acceptances for `sessions` sessions within the policy's limits.
void pl_autotuner_costs(const pl_autotuner *p, const pl_tree_policy *policy, int sessions, pl_shape_costs *c);

#endif
