#include "kernels/op/attention_ref.h"
#include "kernels/op/blockattention.h"

// Returns the i-th visible key of row m: the context's, then the block's own.
static key key_at(const attending *r, int64_t i) {
    const pl_blockattention_args *a = r->args;
    int64_t                       head = r->h / (a->nh / a->nkv) * (int64_t)a->hd, width = (int64_t)a->nkv * a->hd;
    int64_t                       g = r->m / a->block, first = pl_block_first(a, g, r->m % a->block);
    int64_t                       context = a->hi[g] - first;
    if (i < context) return key_in(&a->kv, (first + i) * a->kv.dim[1] + head, width);
    return key_in(&a->qkv, (g * a->block + i - context) * a->qkv.dim[1] + (int64_t)a->nh * a->hd + head, width);
}

// Block by block, within one head by head: the order in which gradients of shared keys add up.
static void each(const pl_blockattention_args *a, void (*fn)(const attending *)) {
    attending r = {.args = a,
                   .key_at = key_at,
                   .nh = a->nh,
                   .hd = a->hd,
                   .scale = (pl_real)a->scale,
                   .q = &a->qkv,
                   .o = &a->o,
                   .lse = &a->lse};
    int64_t   blocks = a->qkv.dim[0] / a->block;
    for (int64_t g = 0; g < blocks; g++)
        for (r.h = 0; r.h < a->nh; r.h++)
            for (r.m = g * a->block; r.m < (g + 1) * a->block; r.m++) {
                r.n = pl_block_keys(a, g, r.m % a->block);
                fn(&r);
            }
}

void PL_REF(blockattention_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    each(args, attend_fwd);
}

void PL_REF(blockattention_bwd)(pl_ctx *ctx, const void *args) {
    const pl_blockattention_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->o.grad) each(a, attend_bwd);
}
