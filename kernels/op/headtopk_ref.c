#include "kernels/op/headtopk.h"
#include "kernels/ref.h"

typedef struct best {
    int32_t *id;
    pl_real  value[PL_HEADTOPK_MAX];
    int      held, k;
} best;

static void offer(best *b, int32_t v, pl_real z) {
    int at = b->held;
    while (at > 0 && z > b->value[at - 1])
        at--;
    if (at == b->k) return;
    if (b->held < b->k) b->held++;
    for (int i = b->held - 1; i > at; i--) {
        b->id[i] = b->id[i - 1];
        b->value[i] = b->value[i - 1];
    }
    b->id[at] = v;
    b->value[at] = z;
}

static void sort_by_id(best *b) {
    for (int i = 1; i < b->held; i++) {
        int32_t v = b->id[i];
        pl_real z = b->value[i];
        int     at = i;
        for (; at > 0 && b->id[at - 1] > v; at--) {
            b->id[at] = b->id[at - 1];
            b->value[at] = b->value[at - 1];
        }
        b->id[at] = v;
        b->value[at] = z;
    }
}

void PL_REF(headtopk_fwd)(pl_ctx *ctx, const void *args) {
    const pl_headtopk_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t rows = a->x.dim[0], width = a->x.dim[1];
    int     spans = pl_headtopk_spans(a);
    pl_span all = {.first = 0, .count = (int32_t)a->w.dim[0]};
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *x = (const pl_real *)a->x.data + m * width;
        best           b = {.id = a->id + m * a->k, .k = a->k};
        pl_real        max = -(pl_real)INFINITY, sum = 0; // of exp(z - max)
        for (int i = 0; i < spans; i++) {
            pl_span s = a->span ? a->span[i] : all;
            for (int32_t v = s.first; v < s.first + s.count; v++) {
                pl_real z = pl_ref_dot(&a->w, v, x);
                if (isnan(z)) {
                    pl_ctx_fail(ctx, PL_E_INPUT, "logits: NaN at row %lld, id %d; check the weights", (long long)m, v);
                    return;
                }
                offer(&b, v, z);
                if (z > max) {
                    sum = isinf(max) ? 0 : sum * exp(max - z);
                    max = z;
                }
                if (!isinf(max)) sum += exp(z - max);
            }
        }
        if (a->by_id) sort_by_id(&b);
        for (int i = 0; i < a->k; i++) {
            if (i >= b.held) b.id[i] = -1;
            if (a->value) a->value[m * a->k + i] = i < b.held ? (float)b.value[i] : -INFINITY;
        }
        if (a->lse) a->lse[m] = (float)(isinf(max) ? max : max + log(sum));
    }
}
