// A gated delta net in place of a layer's attention (Qwen3-Next's and Qwen3.5's), over sessions' states (recurrent.h):
//
//   o = deltarule(shortconv(x Wqkv^T), x Wgates^T)           kernels/op/deltarule.h
//   y = (silu(x Wz^T) * norm(o)) Wo^T          norm: RMSNorm of each value head, its gain as files have it
//
// x is already normed. For inference alone.
#ifndef PL_GDN_H
#define PL_GDN_H

#include "kernels/comm/comm.h"
#include "kernels/op/deltarule.h"

typedef struct pl_gdn {
    pl_gdn_shape shape;     // nv 0: the layer has attention
    pl_tensor    wqkv;      // [2 nk dk + nv dv, d]
    pl_tensor    wz;        // [nv dv, d]
    pl_tensor    wgates;    // [nv beta | nv alpha, d]
    pl_tensor    conv;      // [(2 nk dk + nv dv) taps]
    pl_tensor    a_log, dt; // [nv]
    pl_tensor    norm;      // [dv]
    pl_tensor    wo;        // [d, nv dv]
} pl_gdn;

// comm: the ranks that share the layer by heads (tp.h), of which w has this one's; NULL: it is whole.
pl_tensor pl_gdn_mix(pl_ctx *ctx, const pl_gdn *w, pl_comm *comm, pl_tensor x, const pl_kvrow *row, double eps);

#endif
