#include "kernels/best.h"
#include "kernels/op/experts.h"
#include "kernels/ref.h"
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

// Writes the row's experts to chosen [k], and their weights to its row.
static bool choose(const pl_experts_args *a, int64_t m, int32_t *chosen) {
    int64_t        n = a->score.dim[1], k = a->weight.dim[1];
    const pl_real *z = (const pl_real *)a->score.data + m * n;
    pl_real       *weight = (pl_real *)a->weight.data + m * k, most = 0, sum = 0;
    if (!pl_best_of(&a->score, m * n, n, k, chosen)) return false;
    qsort(chosen, (size_t)k, sizeof *chosen, ascending);
    for (int64_t j = 0; j < k; j++)
        if (j == 0 || z[chosen[j]] > most) most = z[chosen[j]];
    for (int64_t j = 0; j < k; j++) {
        weight[j] = exp(z[chosen[j]] - most);
        if (a->renormalised) sum += weight[j];
    }
    for (int64_t e = 0; e < n && !a->renormalised; e++)
        sum += exp(z[e] - most);
    for (int64_t j = 0; j < k; j++)
        weight[j] /= sum;
    return true;
}

void PL_REF(experts_fwd)(pl_ctx *ctx, const void *args) {
    const pl_experts_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t rows = a->score.dim[0], n = a->score.dim[1], k = a->weight.dim[1];
    memset(a->first, 0, (size_t)(n + 1) * sizeof *a->first);
    for (int64_t m = 0; m < rows; m++) {
        int32_t *chosen = a->slot + m * k; // until the pairs are known
        if (!choose(a, m, chosen)) {
            pl_ctx_fail(ctx, PL_E_INPUT, "router: NaN at row %lld; check the model's weights", (long long)m);
            return;
        }
        for (int64_t j = 0; j < k; j++)
            a->first[chosen[j]]++;
    }
    // Turns counts into the starts of experts' pairs; inserting rows in order then moves each start to the next one's.
    int32_t at = 0;
    for (int64_t e = 0; e <= n; e++) {
        int32_t count = a->first[e];
        a->first[e] = at;
        at += count;
    }
    for (int64_t m = 0; m < rows; m++)
        for (int64_t j = 0; j < k; j++) {
            int32_t pair = a->first[a->slot[m * k + j]]++;
            a->slot[m * k + j] = pair;
            a->row[pair] = (int32_t)m;
        }
    memmove(a->first + 1, a->first, (size_t)n * sizeof *a->first);
    a->first[0] = 0;
}

void PL_REF(grouped_fwd)(pl_ctx *ctx, const void *args) {
    const pl_grouped_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        K = a->x.dim[1], N = a->y.dim[1];
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t e = 0; e < a->n; e++)
        for (int64_t p = a->first[e]; p < a->first[e + 1]; p++)
            for (int64_t i = 0; i < N; i++)
                y[p * N + i] =
                    pl_ref_dot(&a->w[e], i, x + p * K) + (a->b ? pl_ref_load(a->b[e].data, PL_F32, i) : (pl_real)0);
}
