#include "kernels/op/kvstore.h"
#include "kernels/ref.h"

void PL_REF(kvstore_fwd)(pl_ctx *ctx, const void *args) {
    const pl_kvstore_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t rows = a->qkv.dim[0], width = a->qkv.dim[1], q = (int64_t)a->nh * a->hd, kv = (int64_t)a->nkv * a->hd;
    for (int64_t m = 0; m < rows; m++)
        pl_kvstore_row(&a->row[m], (const pl_real *)a->qkv.data + m * width + q, (size_t)kv * sizeof(pl_real));
}
