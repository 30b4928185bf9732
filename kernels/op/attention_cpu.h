// Shared by attention's two views, which are in two files, each compiled once per ISA.
#ifndef PL_OP_ATTENTION_CPU_H
#define PL_OP_ATTENTION_CPU_H

#include "kernels/cpu/rows.h"
#include "kernels/op/attention.h"

// e^x for x <= 0, exactly 0 for x <= -87: masked scores count for nothing, and no subnormal numbers arise, which are
// slow on many processors.
PL_INLINE pl_vf pl_attention_exp(pl_vf x) {
    const pl_vf least = pl_vf_set1(-87.0f);
    return pl_vf_select_gt(least, x, pl_vf_zero(), pl_vf_exp(pl_vf_max(least, x))); // NaN passes
}

void PL_CPU(attention_blocks_fwd)(pl_ctx *ctx, const pl_attention_args *a);
void PL_CPU(attention_blocks_bwd)(pl_ctx *ctx, const pl_attention_args *a);

#endif
