// The source of randomness of drafting and verification: three decisions, so that the same code runs on random numbers
// and under exact enumeration (tests walk every outcome with its probability).
#ifndef PL_COIN_H
#define PL_COIN_H

#include "kernels/base/rng.h"
#include <stdbool.h>

typedef struct pl_coin pl_coin;
struct pl_coin {
    // Returns true with probability p (never for p <= 0, always for p >= 1).
    bool (*flip)(pl_coin *c, double p);
    // Returns i with probability w[i] / sum of w; w[i] >= 0, one of them above 0. position >= 0: the target's own draw
    // of the token at that position of the session's text, the one that plain decoding makes; -1: any other draw.
    int64_t (*draw)(pl_coin *c, const double *w, int64_t n, int64_t position);
    // Returns a uniform number in [0, 1), for choices whose law losslessness does not depend on: an enumeration may
    // walk a few numbers in place of all.
    double (*uniform)(pl_coin *c);
};

// Counter-based: a cycle's decisions are a function of (seed, stream, session key, position of the root) and their
// order; the target's own draws of (seed, session key, position) alone. No number is used twice.
typedef struct pl_rng_coin {
    pl_coin  base;
    pl_rng   own, sample;
    uint64_t next;
} pl_rng_coin;
// stream: PL_STREAM_DRAFT or PL_STREAM_ACCEPT. root: position of the tree's root in the session's text.
void   pl_rng_coin_init(pl_rng_coin *c, uint64_t seed, pl_stream stream, uint64_t key, int64_t root);
// Returns the uniform number of the target's own draw of the token at a position >= 0.
double pl_rng_coin_own(const pl_rng_coin *c, int64_t position);

// Returns the sum of n numbers; its order depends on n alone.
double  pl_sum(const double *w, int64_t n);
// Returns the draw for a uniform u in [0, 1): the inverse of the cumulative distribution in index order.
int64_t pl_draw_at(const double *w, int64_t n, double u);

#endif
