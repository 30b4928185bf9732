#include "kernels/op/topk.h"
#include "kernels/ref.h"
#include <tgmath.h>

void PL_REF(topk_fwd)(pl_ctx *ctx, const void *args) {
    const pl_topk_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t rows = a->x.dim[0], V = a->x.dim[1];
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *x = (const pl_real *)a->x.data + m * V;
        int32_t       *id = a->id + m * a->k;
        int            held = 0; // the best so far, in order; of equal values the earlier one stays in front
        for (int64_t v = 0; v < V; v++) {
            if (isnan(x[v])) {
                pl_ctx_fail(ctx, PL_E_INPUT, "logits: NaN at row %lld, id %lld; check the weights", (long long)m,
                            (long long)(a->name ? a->name[m * V + v] : v));
                return;
            }
            int at = held;
            while (at > 0 && x[v] > x[id[at - 1]])
                at--;
            if (at == a->k) continue;
            if (held < a->k) held++;
            for (int i = held - 1; i > at; i--)
                id[i] = id[i - 1];
            id[at] = (int32_t)v;
        }
        pl_real max = x[id[0]], sum = 0;
        for (int i = 0; i < a->k; i++) {
            if (a->value) a->value[m * a->k + i] = i < held ? (float)x[id[i]] : -INFINITY;
            id[i] = i >= held ? -1 : a->name ? a->name[m * V + id[i]] : id[i];
        }
        if (!a->lse) continue;
        for (int64_t v = 0; v < V; v++)
            sum += exp(x[v] - max);
        a->lse[m] = (float)(isinf(max) ? max : max + log(sum));
    }
}
