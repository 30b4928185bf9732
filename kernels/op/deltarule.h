// The gated delta rule (Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464, equation 10) and the short causal convolution
// before it, over the states of sessions. Value head h < nv reads key head h / (nv / nk). No gradients.
//
//   shortconv  y[m, c] = silu(sum_t w[c taps + t] x[p, c]), t ascending; p: the row taps - 1 - t positions before m on
//              its path; before the text's first row x is 0.   x [M, C], C = 2 nk dk + nv dv: queries, keys, values
//   deltarule  a = exp(-exp(a_log[h]) softplus(alpha + dt[h])), b = sigmoid(beta), gates [M, nv beta | nv alpha],
//              q = l2(q) / sqrt(dk), k = l2(k), l2(u) = u / sqrt(sum_i u_i^2 + 1e-6):
//              S := a S;  u = b (v - S^T k);  S := S + k u^T;  o = S^T q               S [dk, dv] of each value head
//
// Rows are taken one after another; there is no form for several at once, so a row's bits depend on its path alone.
//
// The view: of row[m], k is a session's state in this layer and v its kept rows (in be->real); rows of a session stand
// together. n_ctx 0: the state begins as zeros.
//   path NULL  a chain n_path = 1, 2, ...: the state becomes that after its last row
//   else       a tree, its root (n_path 1) first, nodes behind their parents. The state becomes that after the root,
//              which every verdict accepts; x, k, v, a and b of the others are kept, at slot - n_ctx, for replay
// replay applies kept rows in order and reads no weight: the bits are those of a chain of these rows.
// A tree is walked depth first, the largest subtree last and in place: n nodes need at most 1 + log2(n) more states.
#ifndef PL_OP_DELTARULE_H
#define PL_OP_DELTARULE_H
#include "kernels/op/attention.h"

#define PL_GDN_TAPS 8    // most taps of the convolution
#define PL_GDN_NODES 256 // most nodes of a tree
#define PL_GDN_STATES 8  // states that a walk of such a tree takes beside the session's
#define PL_GDN_L2_EPS 1e-6

typedef struct pl_gdn_shape {
    int nk, nv, dk, dv, taps; // nv a multiple of nk; nv 0: none
} pl_gdn_shape;

static inline int64_t pl_gdn_channels(const pl_gdn_shape *s) {
    return 2 * (int64_t)s->nk * s->dk + (int64_t)s->nv * s->dv;
}
// Elements of a state: S of each head, then the convolution's last taps - 1 inputs, oldest first.
static inline int64_t pl_gdn_state(const pl_gdn_shape *s) {
    return (int64_t)s->nv * s->dk * s->dv + (s->taps - 1) * pl_gdn_channels(s);
}
// Elements of a kept row: x [C], k [nk dk], v [nv dv], a [nv], b [nv].
static inline int64_t pl_gdn_kept(const pl_gdn_shape *s) {
    return pl_gdn_channels(s) + (int64_t)s->nk * s->dk + (int64_t)s->nv * s->dv + 2 * s->nv;
}

typedef struct pl_shortconv_args {
    pl_tensor       y, x; // [M, C]
    pl_tensor       w;    // [C taps] in be->real
    const pl_kvrow *row;  // [M]
    pl_gdn_shape    shape;
} pl_shortconv_args;

typedef struct pl_deltarule_args {
    pl_tensor       o;         // [M, nv dv]
    pl_tensor       x, gates;  // [M, C], [M, 2 nv]
    pl_tensor       a_log, dt; // [nv] in be->real
    const pl_kvrow *row;       // [M]
    pl_gdn_shape    shape;
} pl_deltarule_args;

// Layers of one session: their states lie pl_gdn_state elements apart, their kept rows `pitch`.
typedef struct pl_replay_args {
    void          *state;
    const void    *kept;
    int64_t        layers, pitch;
    int            most; // room in rows
    const int32_t *rows; // [1 + most] the number of rows, then their indices among the kept ones, in order
    pl_gdn_shape   shape;
} pl_replay_args;

pl_tensor pl_shortconv(pl_ctx *ctx, pl_tensor x, pl_tensor w, const pl_kvrow *row, const pl_gdn_shape *s);
pl_tensor pl_deltarule(pl_ctx *ctx, pl_tensor x, pl_tensor gates, pl_tensor a_log, pl_tensor dt, const pl_kvrow *row,
                       const pl_gdn_shape *s);
void      pl_replay(pl_ctx *ctx, const pl_replay_args *a);

// ---- for the backends' implementations

// A row to compute, from one state to another: a scratch state's number, or PL_GDN_OWN, the session's.
typedef struct pl_gdn_step {
    int32_t row, from, to;
} pl_gdn_step;
enum { PL_GDN_OWN = -1, PL_GDN_WORK = 4 };
// Writes the row before each row on its path (-1: none of this forward). A path that breaks the contract aborts.
void               pl_gdn_parents(const pl_kvrow *row, int64_t rows, int32_t *parent);
// Writes the order of the rows; work: [PL_GDN_WORK rows].
void               pl_gdn_order(const pl_kvrow *row, int64_t rows, pl_gdn_step *step, int32_t *work);
// True for the first row of a text, whose state begins as zeros.
static inline bool pl_gdn_begins(const pl_kvrow *row) {
    return row->n_ctx == 0 && row->n_path == 1;
}
// True for a tree's row that is kept.
static inline bool pl_gdn_keeps(const pl_kvrow *row) {
    return row->path && row->n_path > 1;
}
// Appends a row of `bytes` to a window of `rows`, whose oldest leaves.
void pl_gdn_push(void *window, int64_t rows, const void *x, size_t bytes);
#endif
