// What to draft, from measurements: the shape of the tree and its depth, chosen anew every few cycles.
//
// A autotuner belongs to an engine whose policy adapts (`auto`, `chain:auto`). It learns while decoding:
//   acceptance  At every node of the accepted path that the drafter expanded, where the target's token stood among all
//               of the drafter's candidates there, also those that were not verified (children that are drawn: among
//               the draws). accept[l][r] is the share of rank r at depth l, by running counts; few observations lean
//               on the share one level higher (4 pseudo-observations), so the deepest known level stands for deeper
//               ones.
//   verify      Seconds of a step before drafting, by rows of the target's forward.
//   draft       Seconds of one level of drafting, by rows (expanded nodes of all sessions), for levels 1 and deeper.
//   first       Seconds of drafting without those: taking in what became final, and level 0; by sessions.
//   idle        Seconds of taking in where nothing is drafted; by sessions.
// So a tree of n > 1 nodes costs verify(n) + first + its deeper levels, no tree costs verify(1) + idle.
// Costs are those of cost.h; steps with prompt rows are left out. With s sessions in flight a tree of n nodes is
// charged as s n rows and a level of w nodes as s w.
// infer/tree/best.h turns these into the best tree; no tree at all (plain decoding) is a choice among them.
//
// Where the policy's drafts may end early (chain:confidence), `own` learns how often paths come true by the drafter's
// own probability of them (calibration.h), and a chain goes on behind a node of depth l while
//   f(its path) a(l) >= (draft + row) E / C   of the tree in use,
// f the calibrated probability, a(l) the share of level l's drafts accepted behind accepted ones: what one more token
// brings against what it costs at the pace of the whole. It becomes a least own log-probability by depth
// (pl_tree_policy.least), set with the shape, before anything is drafted by it. Acceptances count a draft that ended
// before a level as wrong there, and its cost by how often it is drafted (best.h). What is drafted besides does not end
// early: calibration, trials and what is explored.
//
// Order: PL_AUTOTUNER_CALIBRATION cycles of given shapes, then a choice every PL_AUTOTUNER_REVIEW cycles, or at larger
// multiples where choosing (some 50 microseconds with `auto`) would take more than PL_AUTOTUNER_SHARE of the time. One
// cycle in PL_AUTOTUNER_EXPLORE drafts something else: in turn nothing, so that what plain decoding costs is known as
// it is, one level deeper, and the best chain where a tree is chosen or the best tree where a chain is, where that one
// is not hopeless. Decoding is lossless, so with verifier "match" the tokens do not depend on any of it; with verifiers
// that draw, timing decides what is drawn, not its distribution. Nothing is allocated.
//
// Where nothing is drafted, a trial looks from time to time whether drafting has begun to pay: PL_AUTOTUNER_PROBE
// cycles of a short chain, the first one's costs uncounted since no cache holds the drafter's weights then, with what
// was learnt before counting no more than some observations; more where these paid. A trial loses the seconds that it
// takes beyond what its tokens are worth at the pace of cycles that try nothing. It begins only where all trials'
// losses and one more like the last stay within PL_AUTOTUNER_REGRET of all seconds, and PL_AUTOTUNER_PAUSE cycles
// after the last one, twice as many after each that changed nothing, up to PL_AUTOTUNER_REST. So where drafting never
// pays, calibration, one trial and that share bound what asking costs, however dear a trial is.
#ifndef PL_AUTOTUNER_H
#define PL_AUTOTUNER_H

#include "infer/decode/calibration.h"
#include "infer/decode/cost.h"
#include "infer/drafter/drafter.h"
#include "infer/verify/verify.h"

#define PL_AUTOTUNER_CALIBRATION 12
#define PL_AUTOTUNER_REVIEW 16
#define PL_AUTOTUNER_EXPLORE 64
#define PL_AUTOTUNER_PROBE 4
#define PL_AUTOTUNER_PAUSE 64
#define PL_AUTOTUNER_REST 1024
#define PL_AUTOTUNER_REGRET 0.0025
#define PL_AUTOTUNER_SHARE 0.005

// What trials took beyond what they gave, beside all that was decoded.
typedef struct pl_autotuner_trials {
    bool   on;                          // one is under way: drafted, or not all verified yet
    bool   drafted;                     // something in it
    int    cycles;                      // of it so far
    long   begun, pause, idle;          // how many; cycles without a draft before the next; those that there were
    double seconds, loss, last, before; // of all steps; of trials; of the last one, and the one before
    double usual_seconds, usual_tokens; // running sums over steps that try nothing
} pl_autotuner_trials;

typedef struct pl_autotuner {
    bool                adapt, observed; // some tree was judged since the last step
    long                cycles, choices, explored;
    int                 detour; // cycles that still draft something else than what was chosen
    pl_autotuner_trials trials;
    pl_autotuner_counts counts; // decayed
    pl_autotuner_cost   verify, draft, first, idle;
    pl_shape            chosen;      // what the last choice settled on
    double              seconds;     // spent on choosing
    double              last, since; // of that the last choice; decoding since then
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
    bool          late; // rows that had waited were taken in: what drafting took tells nothing
    // Of the trees it drafted, by pl_autotuner_drafted:
    int           sessions, levels, level_rows[PL_SHAPE_LEVELS];
    double        level_at[PL_SHAPE_LEVELS]; // when the first session's candidates were known
} pl_autotuner_cycle;
void pl_autotuner_drafted(pl_autotuner_cycle *c, const pl_tree *t);

void pl_autotuner_init(pl_autotuner *p, const pl_tree_policy *policy); // NULL: no drafter
// A tree's verdict, before the tree is grown anew.
void pl_autotuner_accepted(pl_autotuner *p, const pl_tree *t, const pl_verdict *v);
// A trial or the calibration drafts next: one session of several is enough.
bool pl_autotuner_tries(const pl_autotuner *p);
// After a step: sets the policy's shape for the next one.
void pl_autotuner_step(pl_autotuner *p, pl_tree_policy *policy, const pl_autotuner_cycle *c);
// A step in which it was not asked: others drafted, or nobody did.
void pl_autotuner_rest(pl_autotuner *p, const pl_draft_pace *c);
// A trial may begin: where nothing is drafted, and was not for long enough.
bool pl_autotuner_may_try(const pl_autotuner *p);
// What the measurements say now, for `sessions` sessions within the policy's limits.
void pl_autotuner_costs(const pl_autotuner *p, const pl_tree_policy *policy, int sessions, pl_shape_costs *c);

#endif
