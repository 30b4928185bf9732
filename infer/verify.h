// Verification: which drafted tokens the target would have emitted itself. Lossless by construction: the emitted tokens
// follow the target's law, whatever the drafter proposed.
#ifndef PL_VERIFY_H
#define PL_VERIFY_H

#include "infer/sample.h"
#include "infer/tree.h"

// What one verification found.
typedef struct pl_verdict {
    int     n;                 // accepted drafted tokens
    int32_t path[PL_TREE_MAX]; // root, then the accepted nodes: n + 1 entries
    int32_t bonus;             // the target's own next token, emitted after the accepted ones; -1: NaN logits
} pl_verdict;

typedef struct pl_verify_in {
    const pl_tree     *tree;
    const float       *logits; // [tree->n, v]: the target's, row i after node i
    const int32_t     *argmax; // [tree->n] or NULL: of each row, when already known (temperature 0)
    int64_t            v;
    const pl_sampling *sampling;
    uint64_t           key;      // of the session
    int64_t            position; // of the root in the session's text; the token after a node of depth i is position+i+1
    pl_sample_work    *work;     // [v]
} pl_verify_in;

typedef struct pl_verifier {
    const char *name;
    void (*verify)(const pl_verify_in *in, pl_verdict *out);
} pl_verifier;

// Sample-then-match: at each node draw the target's token as plain decoding would, keyed by (seed, position); if it is
// among the children go there, else emit it and stop. Accepts with probability p(children), the best any verifier can
// do with deterministic children (facts: inference §3.3), and equals plain decoding token for token at every
// temperature. At temperature 0 this is greedy verification.
extern const pl_verifier pl_verify_match;

#endif
