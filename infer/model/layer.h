// The decoder layer's two halves, shared by the target and by the drafter's single layer: the one forward.
//
//   attention: qkv = x Wqkv^T (+ b); (norm each head of q, k;) rotate q, k; o = attention(view, rule); y = o Wo^T (+ b)
//   mlp:       y = (a(x Wg^T) * (x Wu^T)) Wd^T
//              or, of a mixture: y = sum_e weight_e(x R^T (+ b)) mlp_e(x), over the experts that the row chooses,
//              ascending (kernels/op/experts.h). For inference alone.
// x is already normed; residuals, and norms of y, belong to the caller, because the drafter wires them differently.
// What a layer has beside its widths (rule, gate, rotary tables of its own) is Llama's where it is zeroed.
#ifndef PL_LAYER_H
#define PL_LAYER_H

#include "kernels/backend.h"
#include "kernels/comm/comm.h"
#include "kernels/op/attention.h"
#include "kernels/op/swiglu.h"

typedef struct pl_layer_shape {
    int64_t  d;      // width of the residual stream
    int64_t  d_attn; // width of attention's input (d for a target, 2d for an EAGLE-3 drafter)
    int64_t  inter;  // MLP width
    int      nh, nkv, hd;
    double   eps;
    bool     fused; // in files qkv_proj and gate_up_proj are one tensor each
    // How caches hold its keys and values, PL_BF16, or PL_F32: the backend's reals. To be set before the first of them
    // is made; what drafts for a target does as the target.
    pl_dtype kv;
} pl_layer_shape;

// A mixture in the place of a layer's MLP; borrowed arrays of n.
typedef struct pl_mixture {
    pl_tensor  router; // [n, d], in fp32: which experts a row has should not hang on a rounding
    pl_tensor *wgu;    // [n] of [2 width, d]
    pl_tensor *wdown;  // [n] of [d, width]
    // Biases: [n]; [n] of [2 width]; [n] of [d]. router_bias.data NULL: there are none of these.
    pl_tensor  router_bias, *bgu, *bdown;
    int        n, k; // experts; of a row. n 0: there is none
    bool       normalised;
} pl_mixture;

typedef struct pl_layer {
    pl_tensor         norm_attn;      // [d]
    pl_tensor         wqkv;           // [(nh + 2 nkv) hd, d_attn]
    pl_tensor         bqkv;           // [(nh + 2 nkv) hd]; .data NULL: no biases
    pl_tensor         norm_q, norm_k; // [hd]; .data NULL: queries and keys are not normed
    pl_tensor         wo;             // [d, nh hd]
    pl_tensor         bo;             // [d]; .data NULL: no bias
    pl_tensor         norm_mlp;       // [d]
    pl_tensor         wgu;            // [2 inter, d]
    pl_tensor         wdown;          // [d, inter]
    pl_mixture        mixture;        // n > 0: in the place of these two
    // [d] of what attention and the MLP add to the stream, normed before it is added; .data NULL: added as it is
    pl_tensor         norm_attn_out, norm_mlp_out;
    pl_attention_rule rule;
    pl_gate           gate;
    pl_tensor         cos, sin; // rotary tables; .data NULL: the view's
    pl_comm          *comm;     // the ranks that the layer lies over (infer/model/tp.h); NULL: it is whole
} pl_layer;

// What the rows of a forward see and where they stand. Exactly one of row (inference) and lo (training) is set.
typedef struct pl_view {
    const int32_t  *pos;       // [M]
    pl_tensor       cos, sin;  // rope tables
    int             offset;    // added to pos: the unroll step
    const pl_kvrow *row;       // cached: [layers][M], layer-major
    int64_t         m;         // rows, the stride of `row`
    const int32_t  *lo;        // blocks: [M] first row of the document
    const int32_t  *lo_window; // blocks: the same in layers with a window: the first row that is seen
    // blocks: queries/keys/values of unroll steps [layers][PL_MAX_UNROLL], layer-major; NULL: there is one step alone.
    // n_blocks of them are of earlier steps, pl_layer_attention puts this one's behind them.
    pl_tensor      *block;
    int             n_blocks;
    // blocks: this forward's rows are `taken` [M] of `whole` rows that blocks and lo have, each at its place `spread`
    // [whole] of this forward, -1: it is none of them, and lo is -1 as well. NULL: they are all of them.
    const int32_t  *taken, *spread;
    int64_t         whole;
    // Rows [n_tap_rows] whose taps are asked for; NULL: all rows'.
    const int32_t  *tap_row;
    int64_t         n_tap_rows;
    bool            rerun; // under a tape: a target's layers are run again in backward instead of kept
} pl_view;

pl_tensor pl_layer_attention(pl_ctx *ctx, const pl_layer_shape *s, const pl_layer *w, pl_tensor x, pl_view *view,
                             int layer);
pl_tensor pl_layer_mlp(pl_ctx *ctx, const pl_layer *w, pl_tensor x);

#endif
