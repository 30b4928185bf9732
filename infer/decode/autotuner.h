// Chooses the shape of an adapting drafter's trees (`auto`, `chain:auto`) from costs and acceptances measured while
// decoding:
//   acceptance  At every node of the accepted path that the drafter expanded, the rank of the target's token among all
//               of the drafter's candidates there, verified or not (among the draws, where children are drawn).
//               accept[l][r] is the share of rank r at depth l, by running counts.
//   verify      Seconds of a step before drafting, by rows of the target's forward.
//   draft       Seconds of one level of drafting, by rows (expanded nodes of all sessions), for levels 1 and deeper.
//   first       Seconds of drafting without the deeper levels: taking in final rows, and level 0; by sessions.
//   idle        Seconds of taking in final rows in a cycle without a draft; by sessions.
// So a tree of n > 1 nodes costs verify(n) + first + its deeper levels. cost.h keeps the costs; steps with prompt
// rows are left out. With s sessions in flight a tree of n nodes is charged as s n rows and a level of w nodes as s w.
// infer/tree/best.h finds the best tree by these figures. choose.h decides whether to draft at all.
//
// If the policy's drafts may end early (chain:confidence), `own` calibrates the drafter's own probability of a path
// against the path's acceptance, and a chain continues after a node of depth l while
//   f(its path) a(l) >= (draft + row) E / C   of the tree in use,
// where f is the calibrated probability and a(l) the share of level l's drafts accepted behind accepted ones. The rule
// compares the expected tokens of one more draft with its cost at the throughput of the tree in use. It is applied as a
// threshold of the drafter's log-probability by depth (pl_tree_policy.least), set together with the shape. A draft that
// ended before a level counts as wrong at that level, and a level's cost is weighted by the share of cycles that draft
// it (best.h). Drafts of given shapes do not end early.
//
// The first PL_AUTOTUNER_CALIBRATION cycles that draft have given shapes. After them the best tree is chosen every
// PL_AUTOTUNER_REVIEW cycles, or less often where choosing takes too large a share of the time. One cycle in
// PL_AUTOTUNER_EXPLORE has a given shape, which keeps the costs of other row counts and the acceptance of deeper levels
// up to date. Nothing is allocated.
#ifndef PL_AUTOTUNER_H
#define PL_AUTOTUNER_H

#include "infer/decode/cost.h"
#include "infer/verify/verify.h"

#define PL_AUTOTUNER_CALIBRATION 12 // two rounds of six shapes: each cost's first sample is often slow
#define PL_AUTOTUNER_REVIEW 16      // cycles between choices; one takes about 50 microseconds with `auto`
#define PL_AUTOTUNER_SHARE 0.005    // greatest share of the time that choosing may take
#define PL_AUTOTUNER_EXPLORE 64     // cycles between given shapes, which cost about 1 % of the speed

// Seconds and rows of a step without prompt rows.
typedef struct pl_draft_pace {
    int    sessions, plain;     // sessions; those of them that are plain (pl_session_options)
    int    rows, emitted;       // rows of the target's forward; tokens of its verdicts
    double verifying, drafting; // seconds before drafting; seconds of drafting
} pl_draft_pace;

typedef struct pl_autotuner {
    bool                adapt, observed; // observed: acceptance was counted since the last cycle
    long                cycles, choices;
    pl_autotuner_counts counts; // decayed
    pl_autotuner_cost   verify, draft, first, idle;
    pl_shape            chosen;      // at least two nodes; n is 0 before the first choice
    double              last, since; // seconds of the last choice; seconds of decoding since then
    pl_shape_costs      costs;       // of the last choice
    // Used where drafts may end early. Decayed counts by level l: `asked`, drafts that could reach l; `went`, drafts
    // that reached l; `left`, wholly accepted drafts that ended before l.
    bool                stops;
    pl_calibration      own;
    double              asked[PL_SHAPE_LEVELS], went[PL_SHAPE_LEVELS], left[PL_SHAPE_LEVELS];
    float               least[PL_TREE_MAX]; // of the last choice
} pl_autotuner;

// One engine step without prompt rows; begins as {0}.
typedef struct pl_autotuner_cycle {
    pl_draft_pace pace;
    int           taken; // sessions whose final rows the drafter took in, in a step without drafts
    double        free;  // seconds of pace.drafting that FREE and the plan took (choose.h)
    // Set by pl_autotuner_drafted, over all drafted trees:
    int           sessions, levels, level_rows[PL_SHAPE_LEVELS];
    double        level_at[PL_SHAPE_LEVELS]; // earliest time at which a session's candidates were known
} pl_autotuner_cycle;
// Adds a drafted tree to the step.
void pl_autotuner_drafted(pl_autotuner_cycle *c, const pl_tree *t);

void pl_autotuner_init(pl_autotuner *p, const pl_tree_policy *policy); // NULL: no drafter
// Updates the acceptance from a tree's verdict, before the tree is grown anew.
void pl_autotuner_accepted(pl_autotuner *p, const pl_tree *t, const pl_verdict *v);
// Updates the costs from one step.
void pl_autotuner_learn(pl_autotuner *p, const pl_autotuner_cycle *c);
// Sets the policy's shape for the next cycle that drafts.
void pl_autotuner_next(pl_autotuner *p, pl_tree_policy *policy, int sessions);
// Computes present costs and acceptances for `sessions` sessions within the policy's limits.
void pl_autotuner_costs(const pl_autotuner *p, const pl_tree_policy *policy, int sessions, pl_shape_costs *c);

#endif
