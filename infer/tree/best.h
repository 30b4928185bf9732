// The tree with the highest expected throughput, from measured acceptances and costs: Sequoia's problem (Chen et al.
// 2024, arXiv 2402.12374, §3) with a draft cost that grows with a level's width.
//
// accept[l][r] is the probability that the target's token after a node of depth l on the accepted path is the drafter's
// r-th candidate there. It depends on depth and rank alone, so a node x at the end of ranks r_1 ... r_j is accepted
// with probability f(x) = accept[0][r_1] ... accept[j-1][r_j], and one cycle with the tree T (root left out)
//   emits  E(T) = 1 + sum_{x in T} f(x)  tokens  in  C(T) = verify[|T| + 1] + sum_{l >= 1} draft[w_l]  seconds,
// w_l being the number of nodes of depth l that have children in T (level 0 is in `verify`: its row always runs). The
// result maximises E / C among trees of at most D levels, W expanded nodes a level and N nodes, for every D, W, N
// within the limits; a chain is W = 1 with one rank, no tree is N = 1.
//
// For given D, W, N the largest E is exact: since f falls along a path and with the rank, (1) trees below two nodes can
// be exchanged, so that the W expanded nodes of a level are those with the largest f; (2) among the children of the
// expanded nodes the N - 1 with the largest f are closed under ancestors, and no other choice has a larger sum. So one
// pass over the levels for each W, a merged list in descending f, and one walk down the list for each D gives E for
// every N: O(W D (W K + N)) with K ranks. C is then charged with the tree's actual widths. For drafts that may end
// early (pl_tree_policy.stops) level l is expanded in the share 1 - ended[l] of the cycles: accept[l] counts the others
// as wrong, and rows and levels are charged by that share. With draft[w] equal for all w (Sequoia's model) the result
// is the best of all trees. Otherwise a tree that is narrower at some levels than its widest, although a wider one has
// a larger E for the same N, is not considered (tests/infer/test_shape.c compares with all trees).
#ifndef PL_SHAPE_H
#define PL_SHAPE_H

#include "infer/tree/tree.h"

#define PL_SHAPE_LEVELS 16
#define PL_SHAPE_RANKS 8
#define PL_SHAPE_WIDTH 8
#define PL_SHAPE_NODES 64

typedef struct pl_shape_costs {
    int    levels, ranks, width, nodes;             // upper limits of D, K, W, N, within the constants above; N
                                                    // includes the root
    bool   drafts;                                  // trees of two nodes at least; else no tree is a choice, too
    double accept[PL_SHAPE_LEVELS][PL_SHAPE_RANKS]; // 0..1, not increasing with the rank
    double verify[PL_SHAPE_NODES + 1];              // seconds by nodes, [1..nodes]
    double ended[PL_SHAPE_LEVELS];                  // share of the drafts that may be this deep and ended before;
                                                    // non-decreasing
    double draft[PL_SHAPE_WIDTH + 1];               // seconds by expanded nodes of a level, [1..width]; [0] is 0
} pl_shape_costs;

typedef struct pl_shape {
    int     n; // 1: drafting does not pay; 0: a draft is required (drafts) and no node can be accepted
    int32_t parent[PL_SHAPE_NODES];
    double  emitted, seconds; // E and C
    double  rows;             // expected, the root included
} pl_shape;

void pl_shape_best(const pl_shape_costs *c, pl_shape *best);

// Replaces x[n] by the nearest non-decreasing values (least squares, weights w > 0): pool adjacent violators (Ayer et
// al. 1955).
void pl_shape_rising(double *x, const double *w, int n);

#endif
