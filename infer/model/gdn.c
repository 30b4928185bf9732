#include "infer/model/gdn.h"

#include "infer/model/tp.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"

pl_tensor pl_gdn_mix(pl_ctx *ctx, const pl_gdn *w, pl_comm *comm, pl_tensor x, const pl_kvrow *row, double eps) {
    const pl_gdn_shape *s = &w->shape;
    pl_tensor           qkv = pl_shortconv(ctx, pl_linear(ctx, x, w->wqkv), w->conv, row, s);
    pl_tensor           o = pl_deltarule(ctx, qkv, pl_linear(ctx, x, w->wgates), w->a_log, w->dt, row, s);
    pl_tensor           z = pl_silu(ctx, pl_linear(ctx, x, w->wz));
    o = pl_mul(ctx, z, pl_headnorm(ctx, o, w->norm, w->norm, s->nv, 0, eps));
    return pl_tp_all(ctx, comm, pl_linear(ctx, pl_tp_all(ctx, comm, o, w->wo.dim[1]), w->wo), x.dim[1]);
}
