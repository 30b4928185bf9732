// The planner: predicts the speed of draft heads, sizes, chains and trees on this machine, from the measured
// seconds of each part of the decode loop's cycle (measure.c) and from acceptance.
//
// One cycle of B sessions, each with a tree T of n nodes (root included) and w_l expanded nodes at depth l, emits
//   tau = E(T) = 1 + sum over the drafted nodes of the product of accept[l][rank] along their paths (infer/tree/best.h)
// tokens a session, which for a chain of gamma tokens with the same alpha at every depth is
//   Omega(alpha, gamma) = (1 - alpha^(gamma+1)) / (1 - alpha)               (DynaSpec eq. 1; Leviathan et al. 2023)
// and takes
//   T = target(B n) + verify(B tau) + take_in(B tau) + first(B) + sum_{l >= 1} [layer(B w_l) + head(B w_l)]
//       + other(B n)
// seconds. first, head: candidates at level 0 and deeper, with the router of a routed head; other: the rest of
// drafting. The speed is B tau / T; of plain decoding, B / (target(B) + verify(B) + other(B)).
//
// A block drafter (infer/drafter/block.c) computes all of its slots in the forward that takes in final rows, and a tree
// is cut at the block's depth. take_in includes that forward, first(B D) at depth D replaces first and head, and there
// is no layer. `first` is measured on chains, without the cost of wider levels.
//
// SlimSpec (arXiv 2605.10453, §3.2, eq. 4) compares a head with the full one, at the same tree and batch:
//   rho = tau / tau_full,  lambda = H / H_full,  kappa = H_full / (T_full - H_full)     H: the head's seconds a cycle
//   speed-up over the full head = rho (1 + kappa) / (1 + lambda kappa)
//   a gain iff rho > (1 + lambda kappa) / (1 + kappa)
// SlimSpec assumes that the rest of the cycle does not depend on the head. Here take_in and verify grow with tau, and
// each head is measured with its own weights in the caches, so the direct ratio differs a little; `plan` prints both.
#ifndef PL_PLAN_H
#define PL_PLAN_H

#include "infer/cli/cli.h"
#include "infer/decode/cost.h"
#include "infer/drafter/backbone.h"

#define PL_PLAN_CHAIN 15 // longest chain that is planned

typedef struct pl_plan_costs {
    int               batch;
    int               drafts;        // a block drafter's drafts a block; 0: drafts token after token
    pl_autotuner_cost target, other; // seconds by rows of the target's forward
    pl_autotuner_cost verify;        // seconds by tokens of all sessions
    pl_autotuner_cost take_in;       // seconds by rows that became final
    pl_autotuner_cost first;         // seconds by rows of level 0; of a block by rows of all levels
    pl_autotuner_cost layer, head;   // seconds by rows of a deeper level
    // Seconds of `head` at depth l over their mean, for heads whose shortlist shrinks with the depth; 0 means 1.
    double            level_share[PL_SHAPE_LEVELS];
    double router; // seconds of head(batch) in which a routed head chooses its rows, where that runs before the layer
} pl_plan_costs;

// The acceptance of a drafter by depth and rank.
typedef struct pl_plan_acceptance {
    int    ranks;                                   // candidates of a node with a measured acceptance, 1 and up
    double accept[PL_SHAPE_LEVELS][PL_SHAPE_RANKS]; // 0..1, not rising with the rank; all levels are filled
} pl_plan_acceptance;

// Seconds of one cycle by part, and the tokens that it emits for each session.
typedef struct pl_plan_cycle {
    int    nodes, depth; // nodes with the root; 1: plain decoding
    double emitted;
    double target, verify, take_in, layer, head, other, seconds; // seconds: the sum of the six
    double speed;                                                // tokens per second of all sessions
} pl_plan_cycle;

// Fills the acceptance from rates of rank 0 by level, each conditional on the levels before; levels beyond n take the
// last rate. n >= 1.
void pl_plan_acceptance_rates(pl_plan_acceptance *a, const double *rate, int n);
// Fills the acceptance from counts; ranks offered fewer than 16 times at the root are left out.
void pl_plan_acceptance_counts(pl_plan_acceptance *a, const pl_autotuner_counts *n);

// Predicts the cycle of a tree: parents before children, siblings in order of rank, parent[0] not read, 1 <= n <= 64
// nodes, at most PL_SHAPE_LEVELS levels. n = 1: plain decoding, without a drafter.
void   pl_plan_predict(const pl_plan_costs *c, const pl_plan_acceptance *a, const int32_t *parent, int n,
                       pl_plan_cycle *out);
// Finds the fastest tree of at most `nodes` nodes, among chains alone where `chain`; it drafts at least one token.
void   pl_plan_best(const pl_plan_costs *c, const pl_plan_acceptance *a, int nodes, bool chain, pl_shape *best);
// Returns the seconds of `rows` rows, interpolated between whole numbers.
double pl_plan_seconds(const pl_autotuner_cost *c, double rows);
// Returns the seconds of layer and head of `rows` rows at level 1 or deeper; of a block drafter, of one more slot.
double pl_plan_step(const pl_plan_costs *c, double rows);

typedef struct pl_plan_slimspec {
    double rho, lambda, kappa;
    double speedup;   // rho (1 + kappa) / (1 + lambda kappa)
    double threshold; // (1 + lambda kappa) / (1 + kappa): the least rho that pays
} pl_plan_slimspec;
// Compares the cycle of a head with that of the full head, at the same tree and batch.
pl_plan_slimspec pl_plan_compare(const pl_plan_cycle *full, const pl_plan_cycle *head);
double           pl_plan_slimspec_speedup(double rho, double lambda, double kappa);

// Returns Omega(alpha, gamma), see above.
double pl_plan_omega(double alpha, int gamma);
// Returns alpha of a chain of gamma tokens: accepted drafts over drafts that verification reaches.
double pl_plan_alpha(const pl_plan_acceptance *a, int gamma);

// ---- measuring: measure.c -------------------------------------------------------------------------------------------

#define PL_PLAN_BATCH 64 // sessions at most
#define PL_PLAN_NODES 17 // nodes of the largest tree measured by default; costs beyond it are extrapolated

typedef struct pl_plan_subject {
    const pl_backbone *backbone; // borrowed, with weights
    int                k;        // candidates of a node
    pl_plan_costs      costs;    // output
    double             step;     // output: median seconds of whole steps with the given tree; 0: not run
} pl_plan_subject;

typedef struct pl_plan_measuring {
    const pl_llama *target;
    int             batch, context; // sessions; committed tokens of each
    double          temperature;
    double          seconds; // time for measuring, about; at least three rounds run
    const pl_shape *tree;    // measured in addition to the planner's own trees; NULL: none
} pl_plan_measuring;

typedef struct pl_plan_plain {
    pl_plan_costs costs; // target, verify and other at `batch` rows
    int           rounds;
} pl_plan_plain;

// Fills the outputs of subject[i] and *plain. PL_E_INPUT where the target's context is too short.
pl_status pl_plan_measure(pl_plan_subject *subject, int n, pl_plan_plain *plain, const pl_backend *be, pl_pool *pool,
                          const pl_plan_measuring *o, pl_err *err);

// ---- acceptance of earlier runs -------------------------------------------------------------------------------------

#define PL_PLAN_MEASURED 64

// A drafter's entry in an evaluation's results.json.
typedef struct pl_plan_method {
    char               *name, *checkpoint; // owned; the folder's path from the working directory
    bool                ranked;            // counts are filled; else rate
    pl_autotuner_counts counts;
    double              rate[PL_SHAPE_LEVELS]; // by level, conditional on the levels before
    int                 n_rates;
    double              tau, speed, plain_speed; // measured with the fastest tree evaluated; NaN: unknown
} pl_plan_method;

typedef struct pl_plan_methods {
    pl_plan_method m[PL_PLAN_MEASURED];
    int            n;
} pl_plan_methods;

// Adds the methods with a checkpoint, verifier "match" and this temperature, one entry a checkpoint with the counts of
// all its trees. run: a run's folder or its results.json. A checkpoint whose path no longer exists is searched for
// inside that folder. Fails with one line where the file is not an evaluation's, or has no method at this temperature.
pl_status             pl_plan_methods_read(pl_plan_methods *l, const char *run, double temperature, pl_err *err);
void                  pl_plan_methods_fini(pl_plan_methods *l);
// Returns the entry of a checkpoint's folder, by any path to it; NULL: none.
const pl_plan_method *pl_plan_methods_find(const pl_plan_methods *l, const char *checkpoint);

// Reads the last evaluation in metrics.jsonl of the run that made a checkpoint (DIR/checkpoints/NAME): for temperature
// 0 eval_step_accuracy, else eval_step_acceptance, the sum over tokens of min(p, q). *n 0: there is none.
pl_status pl_plan_metrics_read(double rate[PL_SHAPE_LEVELS], int *n, const char *checkpoint, double temperature,
                               pl_err *err);

#endif
