// Sampling of each row's token from the distribution of the next token, on the device that has the logits.
//   z = the row's logits, those of tokens that occurred divided by the repetition penalty where positive, else
//       multiplied by it (Keskar et al. 2019, CTRL);
//   temperature 0: id = the lowest id of the largest z.  Else w_v = exp((z_v - max z) / temperature), of which
//   top-k, top-p and min-p keep some tokens, in this order (infer/sample/distribution.h), and
//   id = the lowest v for which the sum of w over the kept tokens, up to v, exceeds u times the sum over all of them.
// A row's token is a function of its logits, its distribution, its history and its u, which the caller takes from
// (seed, position) (infer/sample/coin.h), independent of other rows. -1: a logit is not a number, or the largest is
// infinite.
//
// Order, where tokens are left out: larger z first, ties: the lower id. Bits: ref's weights are in the backend's type,
// sums in double in order. CUDA's weights are in fp32 and summed as integers, of 62 - ceil(log2 V) bits to the best
// one's 1: exact, in any order; a token below the last bit is never drawn. Against the distribution in double a token
// differs only if u, or the share at which a filter cuts, lies within PL_DRAW_SHARE of a boundary between two tokens'
// shares: a weight is off by 2^-22 of itself and by three roundings of its exponent, 2^-24 of it each, and the mean of
// exponents over a distribution is at most log V. Cost: 4 M V bytes of logits, read once from memory and a few times
// more from cache (kernels/cuda).
//
// Hosts have only ref's plain loops for this op: decoding on a host draws node by node as it walks a tree, with
// infer/sample/distribution.h's functions, and skips nodes that the walk does not reach. On a device the rows of a tree
// are drawn together, which costs less than copying logits to the host. The two implementations of the distribution are
// compared by device_and_host_sample_the_same_distribution (tests/infer/test_distribution.c).
#ifndef PL_OP_DRAW_H
#define PL_OP_DRAW_H
#include "kernels/backend.h"

#define PL_DRAW_PATH 128 // most drafted tokens before a row
#define PL_DRAW_SHARE 0x1p-18

// Inputs of a row's token. Rows of a tree name their parents: the tokens on a row's path count as occurred too.
typedef struct pl_draw_row {
    double  u;           // uniform in [0, 1)
    double  temperature; // >= 0
    double  top_p;       // (0, 1]; 1: all
    double  min_p;       // 0: all
    float   penalty;     // > 0; 1: none, and text, token and parent are not read
    int32_t top_k;       // 0: all
    int32_t at;          // the row of x
    int32_t text;        // index in `said` of the session's text
    int32_t token;       // the drafted token of this row
    int32_t parent;      // the parent among these rows; -1: none, its token is part of the text
} pl_draw_row;

typedef struct pl_draw_args {
    pl_tensor          x;    // [M, V] in be->real
    const pl_draw_row *row;  // [n], parents before their children
    int                n;    // draws
    const uint32_t    *said; // [texts, pl_said_words(V)] ids that occurred, as sets; NULL if no row has a penalty
    int                texts;
    int32_t           *id; // [n]
} pl_draw_args;

void pl_draw(pl_ctx *ctx, const pl_draw_args *args);

// A set of ids below v: id t is bit t % 32 of word t / 32.
static inline int64_t pl_said_words(int64_t v) {
    return (v + 31) / 32;
}
static inline void pl_said_add(uint32_t *said, int32_t t) {
    said[t / 32] |= 1u << t % 32;
}
static inline bool pl_said_has(const uint32_t *said, int32_t t) {
    return said[t / 32] >> t % 32 & 1;
}
#endif
