#include "kernels/op/attention.h"
#include "kernels/base/check.h"
#include <math.h>

static pl_attention_args start(const pl_ctx *ctx, const pl_tensor *qkv, int nh, int nkv, int hd, double scale) {
    PL_CHECK(hd > 0 && nkv > 0 && nh > 0 && nh % nkv == 0, "attention: %d query heads on %d of %d", nh, nkv, hd);
    PL_CHECK(qkv->rank == 2 && qkv->dim[1] >= (int64_t)nh * hd && qkv->dtype == ctx->be->real,
             "attention: %d/%d heads of %d in a row of %lld %s", nh, nkv, hd, (long long)qkv->dim[1],
             pl_dtype_name(qkv->dtype));
    return (pl_attention_args){.nh = nh, .nkv = nkv, .hd = hd, .scale = scale > 0 ? scale : 1 / sqrt(hd), .qkv = *qkv};
}

pl_tensor pl_attention_cached(pl_ctx *ctx, pl_tensor qkv, const pl_kvrow *row, int nh, int nkv, int hd) {
    return pl_attention_ruled(ctx, qkv, row, nh, nkv, hd, &(pl_attention_rule){0});
}

pl_tensor pl_attention_ruled(pl_ctx *ctx, pl_tensor qkv, const pl_kvrow *row, int nh, int nkv, int hd,
                             const pl_attention_rule *rule) {
    PL_CHECK(row && !pl_ctx_recording(ctx), "attention over a cache has no gradient: row %p", (const void *)row);
    PL_CHECK(qkv.dim[1] == (int64_t)(nh + 2 * nkv) * hd, "attention: %d/%d heads of %d in a row of %lld", nh, nkv, hd,
             (long long)qkv.dim[1]);
    PL_CHECK(rule->cap >= 0 && rule->window >= 0, "attention: cap %g, window %d", rule->cap, rule->window);
    pl_attention_args a = start(ctx, &qkv, nh, nkv, hd, rule->scale);
    a.cap = rule->cap;
    a.window = rule->window;
    if (rule->sink.data) {
        PL_CHECK(rule->sink.dtype == PL_F32 && rule->sink.dim[0] == nh, "attention: sinks %s [%lld] of %d heads",
                 pl_dtype_name(rule->sink.dtype), (long long)rule->sink.dim[0], nh);
        if (ctx->be->memory) pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "attention sinks on backend %s", ctx->be->name);
        a.sink = pl_f32(&rule->sink);
    }
    a.row = row;
    a.o = pl_ctx_const(ctx, qkv.dim[0], (int64_t)nh * hd);
    pl_run(ctx, PL_OP_ATTENTION, &a, sizeof a);
    return a.o;
}

pl_tensor pl_attention_some(pl_ctx *ctx, pl_dtype numbers, double scale, const pl_attention_part *part,
                            const pl_tensor *block, int n_blocks, const int32_t *lo, int nh, int nkv, int hd) {
    PL_CHECK(n_blocks >= 1 && n_blocks <= PL_MAX_UNROLL && lo && (!part || part->at), "attention: %d blocks", n_blocks);
    PL_CHECK(numbers == PL_F32 || numbers == PL_BF16, "attention in %s", pl_dtype_name(numbers));
    pl_attention_args a = start(ctx, part ? &part->q : &block[n_blocks - 1], nh, nkv, hd, scale);
    int64_t           rows = a.qkv.dim[0];
    bool              grad = a.qkv.grad != NULL;
    for (int j = 0; j < n_blocks; j++) {
        PL_CHECK((part && (j == 0 || part->place[j]) ? block[j].dim[0] >= rows : block[j].dim[0] == rows) &&
                     block[j].dim[1] >= 2 * (int64_t)nkv * hd && block[j].dtype == a.qkv.dtype,
                 "attention: block %d is [%lld, %lld], %lld queries", j, (long long)block[j].dim[0],
                 (long long)block[j].dim[1], (long long)rows);
        a.block[j] = block[j];
        if (part) a.place[j] = part->place[j];
        grad |= block[j].grad != NULL;
    }
    a.n_blocks = n_blocks;
    a.lo = lo;
    a.at = part ? part->at : NULL;
    a.numbers = numbers;
    a.o = pl_ctx_out(ctx, rows, (int64_t)nh * hd, grad);
    a.lse = pl_ctx_const(ctx, rows, nh);
    pl_run(ctx, PL_OP_ATTENTION, &a, sizeof a);
    return a.o;
}

pl_tensor pl_attention_blocks_in(pl_ctx *ctx, pl_dtype numbers, double scale, const pl_tensor *block, int n_blocks,
                                 const int32_t *lo, int nh, int nkv, int hd) {
    return pl_attention_some(ctx, numbers, scale, NULL, block, n_blocks, lo, nh, nkv, hd);
}

pl_tensor pl_attention_blocks(pl_ctx *ctx, const pl_tensor *block, int n_blocks, const int32_t *lo, int nh, int nkv,
                              int hd) {
    return pl_attention_blocks_in(ctx, PL_F32, 0, block, n_blocks, lo, nh, nkv, hd);
}
