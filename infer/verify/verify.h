// Verification: chooses the drafted tokens that the target would have emitted itself.
//
// It is a coupling problem. At a node with the target's distribution p and children proposed in a known way, choose Y ~
// p jointly with the children so that Y is among them as often as possible; emit Y; if it is a child continue there,
// else stop. Whatever the coupling, emitted tokens follow the target's distribution: verifiers differ in how often Y is
// a child, and are one file each, infer/verify/<name>.c. A verifier that does not keep the distribution sets lossless =
// false and is called lossy wherever it is named.
//
// At temperature 0 all of them are greedy verification: the distribution is one token.
#ifndef PL_VERIFY_H
#define PL_VERIFY_H

#include "infer/sample/coin.h"
#include "infer/sample/distribution.h"
#include "infer/tree/tree.h"

// Result of one verification.
typedef struct pl_verdict {
    int     n;                 // accepted drafted tokens
    int32_t path[PL_TREE_MAX]; // root, then the accepted nodes: n + 1 entries
    int32_t bonus;             // the target's own next token, emitted after the accepted ones; -1: NaN logits
} pl_verdict;

// The children of one node in the order in which they were offered.
typedef struct pl_children {
    pl_proposal    kind;
    int            n;
    const int32_t *token; // [n]; PL_PROPOSE_IID may repeat; -1: no token of the target (pl_tree_miss)
    const double  *q;     // [v], sums to 1 (less where a draw may be -1); NULL for PL_PROPOSE_TOP
} pl_children;

typedef struct pl_verify_in {
    const pl_tree *tree;
    // Computes the target's distribution of the token after `node` into p[v] (sums to 1); false: its logits are not
    // numbers.
    bool (*dist)(void *arg, int node, double *p);
    void          *arg;
    // [tree->n] or NULL: the target's own token after each node, if already known (-1: logits are not numbers). At
    // temperature 0 the distribution is this token; otherwise it is the token that `coin` would draw, for verifiers
    // that only match.
    const int32_t *own;
    int64_t        v;
    int64_t        position; // of the root in the session's text; the token after a node of depth i is position+i+1
    pl_coin       *coin;
    double        *p, *q, *r; // [v] scratch each
} pl_verify_in;

typedef struct pl_verifier pl_verifier;
struct pl_verifier {
    const char *name, *help;
    pl_proposal proposal; // how children must be drawn; children drawn otherwise are only matched
    bool        lossless;
    bool        chain; // takes chains alone
    // To measure cycles, NULL else: the number of nodes that the walk accepts, each the first child of the one before,
    // whatever the target's tokens are.
    const int  *accepts;
    // Couples one node: Y ~ p, p = in->p (overwritten), with children drawn as `proposal` states; other children are
    // matched and do not come here. in->q and in->r are scratch. NULL: all are matched.
    int32_t (*couple)(const pl_verify_in *in, const pl_children *c, int64_t position);
    // For verifiers that judge whole paths: replaces the walk; NULL: pl_verify_walk. v: the verifier itself.
    void (*verify)(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out);
    // Returns in closed form the probability that one node's n children, made by infer/sample/propose.h from q, contain
    // Y (for a lossy verifier: that one of them is accepted); NULL or NaN: no closed form (infer/inspect/acceptance.h
    // then measures). w: [v] scratch.
    double (*acceptance)(const double *p, const double *q, int64_t v, int n, double *w);
};

// Runs a verifier. If the target's own tokens are given they are matched: greedy verification at temperature 0.
void pl_verify(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out);
// Continues from the last node of out->path, one node at a time, each by v->couple.
void pl_verify_walk(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out);

// Computes the residual distribution of a rejected draw from q: p := max(p - q, 0) / its sum; returns false with p
// unchanged if nothing is left (p equals q up to rounding: a rejection of probability 0).
bool    pl_residual(double *p, const double *q, int64_t v);
// sum max(scale p - q, 0)
double  pl_surplus(const double *p, const double *q, int64_t v, double scale);
// sum min(p, q): the largest probability with which draws from both can agree.
double  pl_overlap(const double *p, const double *q, int64_t v);
// Tests x, drawn from q: returns true with probability min(1, p(x) / q(x)); never for -1.
bool    pl_ratio_test(pl_coin *coin, const double *p, const double *q, int32_t x);
// Speculative sampling at one node (Leviathan et al. 2023, arXiv 2211.17192, §2.3): returns x if it passes the ratio
// test, else a draw from the residual. Y ~ p whenever x ~ q. p is overwritten.
int32_t pl_verify_drawn(const pl_verify_in *in, const double *q, int32_t x);

// Returns true if every node is matched: the verifier then needs no distributions, only the target's own tokens.
bool pl_verifier_matches(const pl_verifier *v);

// Finds a verifier by name; otherwise NULL, and one line with the known ones.
const pl_verifier *pl_verifier_find(const char *name, pl_err *err);
// Checks the tree: sampled children and verifiers of chains restrict it. PL_E_USAGE suggests a tree that it takes.
pl_status          pl_verifier_takes(const pl_verifier *v, const pl_tree_policy *p, pl_err *err);
// Checks that a drafter which can draw so (pl_drafter_proposals) draws as v requires; otherwise its children would
// silently be matched. PL_E_USAGE suggests verifiers that take it.
pl_status          pl_verifier_takes_draws(const pl_verifier *v, const char *drafter, unsigned proposals, pl_err *err);
const pl_verifier *pl_verifier_at(int i); // NULL past the last

// Sample-then-match, the default: draws the target's token as plain decoding would, keyed by (seed, position); if it is
// among the children continues there. Accepts with probability p(children), the best any verifier can do with
// deterministic children, and equals plain decoding token for token at every temperature.
extern const pl_verifier pl_verify_match;
// Speculative sampling (Leviathan et al. 2023, Chen et al. 2023) along a sampled chain.
extern const pl_verifier pl_verify_rejection;
// Recursive rejection among several sampled children: with replacement (SpecInfer), without (RSD, Sequoia).
extern const pl_verifier pl_verify_recursive_iid, pl_verify_recursive_wor;
// k-SEQ (SpecTr, Sun et al. 2023).
extern const pl_verifier pl_verify_kseq;
// Block verification (Sun et al. 2024): a sampled chain judged as a whole.
extern const pl_verifier pl_verify_block;
// The drafter's best n-1 tokens and one sampled from the rest: attains the optimal-transport bound of its draft.
extern const pl_verifier pl_verify_transport;
// Medusa's typical acceptance: LOSSY.
extern const pl_verifier pl_verify_typical;

#endif
