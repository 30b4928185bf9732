#include "kernels/op/softcap.h"
#include "kernels/ref.h"
#include <tgmath.h>

void PL_REF(softcap_fwd)(pl_ctx *ctx, const void *args) {
    const pl_softcap_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t  n = pl_tensor_count(&a->x);
    pl_real *x = a->x.data, cap = (pl_real)a->cap;
    for (int64_t i = 0; i < n; i++)
        x[i] = cap * tanh(x[i] / cap);
}
