// Verification: which drafted tokens the target would have emitted itself.
//
// It is a coupling problem (facts: inference §3.0). At a node with the target's law p and children proposed in a known
// way, choose Y ~ p jointly with the children so that Y is among them as often as possible; emit Y; where it is a child
// go on there, else stop. Whatever the coupling, emitted tokens follow the target's law: verifiers differ in how often
// Y is a child, and are one file each, infer/verify_<name>.c. A verifier that does not keep the law says so
// (lossless = false) and is called lossy wherever it is named.
//
// At temperature 0 all of them are greedy verification: the law is one token.
#ifndef PL_VERIFY_H
#define PL_VERIFY_H

#include "infer/coin.h"
#include "infer/law.h"
#include "infer/tree.h"

// What one verification found.
typedef struct pl_verdict {
    int     n;                 // accepted drafted tokens
    int32_t path[PL_TREE_MAX]; // root, then the accepted nodes: n + 1 entries
    int32_t bonus;             // the target's own next token, emitted after the accepted ones; -1: NaN logits
} pl_verdict;

// The children of one node in the order in which they were offered.
typedef struct pl_children {
    pl_proposal    kind;
    int            n;
    const int32_t *token; // [n]; PL_PROPOSE_IID may repeat
    const double  *q;     // [v], sums to 1; NULL for PL_PROPOSE_TOP
} pl_children;

typedef struct pl_verify_in {
    const pl_tree *tree;
    // The target's law of the token after `node`, into p[v] (a sum of 1); false: its logits are not numbers.
    bool (*law)(void *arg, int node, double *p);
    void          *arg;
    const int32_t *argmax; // [tree->n] or NULL: temperature 0, the law is this token
    int64_t        v;
    int64_t        position; // of the root in the session's text; the token after a node of depth i is position+i+1
    pl_coin       *coin;
    double        *p, *q, *r; // [v] scratch each
} pl_verify_in;

typedef struct pl_verifier {
    const char *name, *help;
    pl_proposal proposal; // how children must be drawn for it to do more than matching
    bool        lossless;
    bool        chain; // needs a chain
    // One node: Y ~ p, p = in->p (overwritten), coupled with children that have a q (c->kind is this verifier's, or
    // PL_PROPOSE_TOP never comes here: those are matched). in->q and in->r are scratch.
    int32_t (*couple)(const pl_verify_in *in, const pl_children *c, int64_t position);
    // Verifiers that judge whole paths replace the walk; NULL: pl_verify_walk.
    void (*verify)(const pl_verify_in *in, pl_verdict *out);
} pl_verifier;

// Runs a verifier. At temperature 0 (argmax given) it is greedy verification.
void pl_verify(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out);
// From the root down, one node at a time, each by v->couple.
void pl_verify_walk(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out);

// p := the residual max(p - q, 0) / its sum, of a rejected draw from q; false, and p as it was, where nothing is left
// (p equals q up to rounding: a rejection of probability 0).
bool pl_residual(double *p, const double *q, int64_t v);

// By name; NULL and one line naming the known ones.
const pl_verifier *pl_verifier_find(const char *name, pl_err *err);
const pl_verifier *pl_verifier_at(int i); // NULL past the last: for help and for tests that walk all

// Sample-then-match, the default: draw the target's token as plain decoding would, keyed by (seed, position); if it is
// among the children go there. Accepts with probability p(children), the best any verifier can do with deterministic
// children (facts: inference §3.3), and equals plain decoding token for token at every temperature.
extern const pl_verifier pl_verify_match;

#endif
