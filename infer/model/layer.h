// The decoder layer's two halves, shared by the target and by the drafters' layers: the one forward.
//
//   attention: qkv = x Wqkv^T (+ b); (norm each head of q, k;) rotate q, k; o = attention(view, rule);
//              (o := o sigmoid(x Wgate^T);) y = o Wo^T (+ b);  or, for inference alone, a gated delta net (gdn.h)
//   mlp:       y = (a(x Wg^T) * (x Wu^T)) Wd^T
//              or, for a mixture: y = sum_e weight_e(x R^T (+ b)) mlp_e(x), over the experts that the row chooses,
//              ascending (kernels/op/experts.h), (+ sigmoid(x s^T) mlp_shared(x)). For inference alone.
// x is already normed; residuals, and norms of y, belong to the caller, because drafters connect them differently. The
// fields besides widths (rule, gate, own rotary tables) are Llama's when zeroed.
#ifndef PL_LAYER_H
#define PL_LAYER_H

#include "infer/model/gdn.h"
#include "kernels/backend.h"
#include "kernels/comm/comm.h"
#include "kernels/op/attention.h"
#include "kernels/op/swiglu.h"

typedef struct pl_layer_shape {
    int64_t      d;      // width of the residual stream
    int64_t      d_attn; // width of attention's input (d for a target, 2d for an EAGLE-3 drafter)
    int64_t      inter;  // MLP width
    int          nh, nkv, hd;
    double       eps;
    bool         fused; // files hold qkv_proj and gate_up_proj as one tensor each
    // Dtype of cached keys and values, PL_BF16, or PL_F32: the backend's reals. Set it before the first cache is
    // created; a drafter's equals its target's.
    pl_dtype     kv;
    // Layers with a gated delta net in place of attention, and its widths; borrowed, NULL: no layer.
    const bool  *recurrent;
    pl_gdn_shape delta;
} pl_layer_shape;

// A mixture of experts in place of a layer's MLP; borrowed arrays of n.
typedef struct pl_mixture {
    pl_tensor  router; // [n, d], in fp32: the choice of experts should not depend on a rounding
    pl_tensor *wgu;    // [n] of [2 width, d]
    pl_tensor *wdown;  // [n] of [d, width]
    // Biases: [n]; [n] of [2 width]; [n] of [d]. router_bias.data NULL: no biases.
    pl_tensor  router_bias, *bgu, *bdown;
    // The expert of all rows: [2 shared width, d]; [d, shared width]; [1, d] s, its gate. .data NULL: none
    pl_tensor  shared_wgu, shared_wdown, shared_gate;
    int        n, k; // number of experts; experts per row. n 0: no mixture
    bool       normalised;
} pl_mixture;

typedef struct pl_layer {
    pl_tensor         norm_attn;      // [d]
    pl_tensor         wqkv;           // [(nh + 2 nkv) hd, d_attn]
    pl_tensor         bqkv;           // [(nh + 2 nkv) hd]; .data NULL: no biases
    pl_tensor         norm_q, norm_k; // [hd]; .data NULL: queries and keys are not normed
    pl_tensor         wgate;          // [nh hd, d_attn]; .data NULL: attention's output has no gate
    pl_tensor         wo;             // [d, nh hd]
    pl_tensor         bo;             // [d]; .data NULL: no bias
    pl_tensor         norm_mlp;       // [d]
    pl_tensor         wgu;            // [2 inter, d]
    pl_tensor         wdown;          // [d, inter]
    pl_mixture        mixture;        // n > 0: replaces wgu and wdown
    // [d] norms of the outputs of attention and of the MLP before they are added; .data NULL: no norm
    pl_tensor         norm_attn_out, norm_mlp_out;
    pl_gdn            delta; // shape.nv > 0: replaces attention
    pl_attention_rule rule;
    pl_gate           gate;
    pl_tensor         cos, sin; // rotary tables; .data NULL: the view's
    pl_comm          *comm;     // the ranks that share the layer (infer/model/tp.h); NULL: it is whole
} pl_layer;

// Rows that run, if those are not all rows of block 0: keys and values are needed of all rows, queries and all that
// follows only of those that run. The forward of block 0 has all rows up to the last layer's attention, which returns
// the rows that run (pl_layer_running gives the caller's other values of these); later forwards have only those.
typedef struct pl_running {
    int64_t               n;
    const int32_t        *at;       // [n] their rows in block 0, ascending
    const int32_t        *pos, *lo; // [n] as pl_view has them
    const int32_t *const *place;    // [n_blocks + 1] as pl_attention_part has them
    int                   last;     // the last layer
} pl_running;

// Positions and visibility of a forward's rows. Exactly one of row (inference) and lo (training) is set.
typedef struct pl_view {
    const int32_t    *pos;       // [M]
    pl_tensor         cos, sin;  // rope tables
    int               offset;    // added to pos: the unroll step
    const pl_kvrow   *row;       // cached: [layers][M], layer-major
    int64_t           m;         // rows, the stride of `row`
    const int32_t    *lo;        // blocks: [M] first row of the document
    const int32_t    *lo_window; // a single step: the same in layers with a window, the first visible row
    // blocks: queries/keys/values of unroll steps [layers][PL_MAX_UNROLL], layer-major; NULL: a single step. n_blocks
    // of them belong to earlier steps, pl_layer_attention appends the current one.
    pl_tensor        *block;
    int               n_blocks;
    const pl_running *run;   // blocks: NULL: all rows run
    bool              rerun; // under a tape: backward recomputes a target's layers instead of keeping them
} pl_view;

pl_tensor pl_layer_attention(pl_ctx *ctx, const pl_layer_shape *s, const pl_layer *w, pl_tensor x, pl_view *view,
                             int layer);
// Returns h's rows that continue after this layer's attention: those that run in the last layer of block 0's forward,
// else h. To be called after pl_layer_attention.
pl_tensor pl_layer_running(pl_ctx *ctx, const pl_view *view, int layer, pl_tensor h);
pl_tensor pl_layer_mlp(pl_ctx *ctx, const pl_layer *w, pl_tensor x);

#endif
