#include "kernels/op/kvstore.h"
#include "kernels/base/check.h"

void pl_kvstore(pl_ctx *ctx, pl_tensor qkv, const pl_kvrow *row, int nh, int nkv, int hd) {
    PL_CHECK(qkv.rank == 2 && qkv.dim[1] == (int64_t)(nh + 2 * nkv) * hd && row, "kvstore: %d/%d heads of %d in %lld",
             nh, nkv, hd, (long long)qkv.dim[1]);
    PL_CHECK(qkv.dtype == ctx->be->real, "kvstore: qkv %s", pl_dtype_name(qkv.dtype));
    pl_kvstore_args a = {.qkv = qkv, .row = row, .nh = nh, .nkv = nkv, .hd = hd};
    pl_run(ctx, PL_OP_KVSTORE, &a, sizeof a);
}
