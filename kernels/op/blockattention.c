#include "kernels/op/blockattention.h"
#include "kernels/base/check.h"
#include <math.h>

pl_tensor pl_blockattention(pl_ctx *ctx, pl_tensor qkv, pl_tensor kv, const int32_t *lo, const int32_t *hi, int block,
                            int nh, int nkv, int hd) {
    return pl_blockattention_ruled(ctx, qkv, kv, lo, hi, block, (pl_block_rule){0}, nh, nkv, hd);
}

pl_tensor pl_blockattention_ruled(pl_ctx *ctx, pl_tensor qkv, pl_tensor kv, const int32_t *lo, const int32_t *hi,
                                  int block, pl_block_rule rule, int nh, int nkv, int hd) {
    PL_CHECK(hd > 0 && nkv > 0 && nh > 0 && nh % nkv == 0 && block > 0 && lo && hi,
             "block attention: %d query heads on %d of %d, blocks of %d", nh, nkv, hd, block);
    PL_CHECK(rule.window == 0 || rule.window >= block, "block attention: a window of %d in blocks of %d", rule.window,
             block);
    PL_CHECK(qkv.rank == 2 && kv.rank == 2 && qkv.dim[1] == (int64_t)(nh + 2 * nkv) * hd &&
                 kv.dim[1] == (int64_t)2 * nkv * hd && qkv.dim[0] % block == 0,
             "block attention: %d/%d heads of %d in rows of %lld and %lld, %lld rows in blocks of %d", nh, nkv, hd,
             (long long)qkv.dim[1], (long long)kv.dim[1], (long long)qkv.dim[0], block);
    PL_CHECK(qkv.dtype == ctx->be->real && kv.dtype == ctx->be->real, "block attention: rows %s, context %s",
             pl_dtype_name(qkv.dtype), pl_dtype_name(kv.dtype));
    pl_blockattention_args a = {.qkv = qkv,
                                .kv = kv,
                                .lo = lo,
                                .hi = hi,
                                .block = block,
                                .nh = nh,
                                .nkv = nkv,
                                .hd = hd,
                                .scale = 1 / sqrt(hd),
                                .rule = rule};
    a.o = pl_ctx_out(ctx, qkv.dim[0], (int64_t)nh * hd, qkv.grad || kv.grad);
    a.lse = pl_ctx_const(ctx, qkv.dim[0], nh);
    pl_run(ctx, PL_OP_BLOCKATTENTION, &a, sizeof a);
    return a.o;
}
