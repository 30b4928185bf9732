// The planner: what a draft head, its size, a chain's length or a tree will bring on this machine, from the measured
// seconds of each part of a cycle and from acceptance. Prediction alone; infer/plan/rig.h measures.
//
// One cycle of B sessions, each with a tree T of n nodes (root included) and w_l expanded nodes at depth l, emits
//   tau = E(T) = 1 + sum over the drafted nodes of the product of accept[l][rank] along their paths (infer/tree/best.h)
// tokens a session, which for a chain of gamma tokens with the same alpha at every depth is
//   Omega(alpha, gamma) = (1 - alpha^(gamma+1)) / (1 - alpha)               (DynaSpec eq. 1; Leviathan et al. 2023)
// and takes
//   T = target(B n) + B tau verify + take_in(B tau) + first(B) + sum_{l >= 1} [layer(B w_l) + head(B w_l)] + other
// target: forward, output matrix, argmax or, on a device, draws. verify: a verdict (where a host draws, the target's
// distribution), per token. take_in: fuse and layer for the rows that became final. first, head: the head at level 0,
// when other weights have been read since it ran last, and at deeper levels. other: tokens, caches, trees. Speed: B tau
// / T; plain decoding: B / (target(B) + B verify + other).
//
// A routed head's router is charged as decoding runs it (pl_head_begin). A router that reads the step's inputs alone
// runs beside the layer on a device that has branches, which makes a draft step that of DynaSpec's model (§4.3),
//   T_D = T_emb + max(T_core, T_meta) + T_index+gemm
// with T_core the layer, T_meta the router, T_index+gemm the head over its shortlist. Elsewhere, on a CPU or with a
// router that reads the layer's output (CORAL), they run one after the other: the sum instead of the maximum. `layer`
// is T_emb and T_core together, `router` embeds its tokens itself (T_emb and T_meta), and `head` is T_index+gemm; so
// the step is max(layer, router) + head or layer + router + head. Of a cycle's seconds, `layer` is the layer's and
// `head` the rest: what of the router the layer does not hide belongs to the head. At level 0 the layer that hides it
// is take_in's without `fuse`, which has to end first.
//
// A block drafter (infer/drafter/block.c) computes all of its slots in the forward that takes in what became final, and
// its head runs over the slots that are wanted; a tree deeper than the block ends with it. Its cycle of depth D is
//   T = target(B n) + B tau verify + take_in(B tau) + first(B D) + other
// with the block's forward in take_in and, in `first`, all that the head does for D slots, slot by slot where its law
// depends on the token before. That is measured on chains; what a wider level adds to it is left out.
//
// SlimSpec (arXiv 2605.10453, §3.2, eq. 4), a head against the full one with everything else equal (same tree, same
// batch):
//   rho = tau / tau_full,  lambda = H / H_full,  kappa = H_full / (T_full - H_full)     H: the head's seconds a cycle
//   speed-up over the full head = rho (1 + kappa) / (1 + lambda kappa)
//   a gain iff rho > (1 + lambda kappa) / (1 + kappa)
// It takes the rest of the cycle as independent of the head. Here take_in and verify grow with tau and each head's
// cycle is measured with its own weights in the caches, so the direct ratio differs a little; both are told.
#ifndef PL_PLAN_H
#define PL_PLAN_H

#include "infer/decode/autotuner.h"

#define PL_PLAN_CHAIN 15 // longest chain that is planned

typedef struct pl_plan_costs {
    int               batch;
    int               drafts; // of a block drafter's blocks; 0: it drafts token after token
    pl_autotuner_cost target, take_in, layer, first, head; // seconds by rows of all sessions
    pl_autotuner_cost router_first, router;                // at level 0 and deeper; nothing in them: no router
    pl_autotuner_cost fuse;                                // part of take_in, before a router that can overlap
    bool              overlaps;                            // the router runs beside the layer
    // Of `head` at depth l: heads whose shortlist shrinks with the depth; 0: 1.
    double            level_share[PL_SHAPE_LEVELS];
    double            verify; // seconds per emitted token
    double            other;  // seconds of a cycle
    // Told, not charged. Of one row, part of `layer`: embedding. Part of `head`, at `batch` rows: choosing the k best
    // instead of the best one. Beside it: log-sum-exp, for trees that compare scores.
    double            embed, top_k, log_sum_exp;
} pl_plan_costs;

// How often drafts are right.
typedef struct pl_plan_acceptance {
    int    ranks;                                   // candidates of a node whose acceptance is known, from 1
    double accept[PL_SHAPE_LEVELS][PL_SHAPE_RANKS]; // 0..1, not rising with the rank; all levels are filled
} pl_plan_acceptance;

// Seconds of one cycle by part, and what it emits for each session.
typedef struct pl_plan_cycle {
    int    nodes, depth; // nodes with the root; 1: plain decoding
    double emitted;
    double target, verify, take_in, layer, head, other, seconds; // seconds: the sum of the six
    double speed;                                                // tokens per second of all sessions
} pl_plan_cycle;

// From rates of rank 0 by level, each given that all before were accepted; levels beyond n take the last one. n >= 1.
void pl_plan_acceptance_rates(pl_plan_acceptance *a, const double *rate, int n);
// From counts; ranks offered fewer than 16 times at the root are left out.
void pl_plan_acceptance_counts(pl_plan_acceptance *a, const pl_autotuner_counts *n);

// The cycle of a tree: parents before children, siblings in order of rank, parent[0] not read, 1 <= n <= 64 nodes, at
// most PL_SHAPE_LEVELS levels. n = 1: plain decoding, without a drafter.
void   pl_plan_predict(const pl_plan_costs *c, const pl_plan_acceptance *a, const int32_t *parent, int n,
                       pl_plan_cycle *out);
// The fastest tree of at most `nodes` nodes, a chain where `chain`; at least one token is drafted.
void   pl_plan_best(const pl_plan_costs *c, const pl_plan_acceptance *a, int nodes, bool chain, pl_shape *best);
// Seconds of `rows` rows, which need not be whole.
double pl_plan_seconds(const pl_autotuner_cost *c, double rows);
// A draft step at level 1 or deeper, of `rows` rows: layer, router and head. Of a block: what a slot more costs.
double pl_plan_step(const pl_plan_costs *c, double rows);

typedef struct pl_plan_slimspec {
    double rho, lambda, kappa;
    double speedup;   // rho (1 + kappa) / (1 + lambda kappa)
    double threshold; // (1 + lambda kappa) / (1 + kappa): the least rho that pays
} pl_plan_slimspec;
// full: of the same tree and batch.
pl_plan_slimspec pl_plan_compare(const pl_plan_cycle *full, const pl_plan_cycle *head);
double           pl_plan_slimspec_speedup(double rho, double lambda, double kappa);

double pl_plan_omega(double alpha, int gamma);
// alpha of a chain of gamma tokens: of the tokens that were judged, the share that was accepted.
double pl_plan_alpha(const pl_plan_acceptance *a, int gamma);

#endif
