// The two views of attention live in two files; both are compiled once per ISA.
#ifndef PL_OP_ATTENTION_CPU_H
#define PL_OP_ATTENTION_CPU_H

#include "kernels/cpu/rows.h"
#include "kernels/op/attention.h"

void PL_CPU(attention_blocks_fwd)(pl_ctx *ctx, const pl_attention_args *a);
void PL_CPU(attention_blocks_bwd)(pl_ctx *ctx, const pl_attention_args *a);

#endif
