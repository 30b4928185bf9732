#include "kernels/op/kvstore.h"
#include "kernels/ref.h"
#include <string.h>

void PL_REF(kvstore_fwd)(pl_ctx *ctx, const void *args) {
    const pl_kvstore_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t rows = a->qkv.dim[0], width = a->qkv.dim[1], q = (int64_t)a->nh * a->hd, kv = (int64_t)a->nkv * a->hd;
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *from = (const pl_real *)a->qkv.data + m * width + q;
        pl_real       *k = (pl_real *)a->row[m].k + a->row[m].slot * kv;
        pl_real       *v = (pl_real *)a->row[m].v + a->row[m].slot * kv;
        memcpy(k, from, (size_t)kv * sizeof *k);
        memcpy(v, from + kv, (size_t)kv * sizeof *v);
    }
}
