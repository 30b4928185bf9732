#include "infer/router.h"

#include "kernels/op/add.h"
#include "kernels/op/bias.h"
#include "kernels/op/concat.h"
#include "kernels/op/linear.h"
#include "kernels/op/rmsnorm.h"
#include "kernels/op/silu.h"

#include <math.h>
#include <string.h>

#define EPS 1e-6

bool pl_router_find(pl_router_kind *kind, const char *name) {
    *kind = strcmp(name, "coral") == 0 ? PL_ROUTER_CORAL : PL_ROUTER_MLP;
    return !*name || strcmp(name, "mlp") == 0 || strcmp(name, "coral") == 0;
}

void pl_router_params(pl_router *r, pl_params *ps) {
    bool    mlp = r->kind == PL_ROUTER_MLP;
    int64_t in = mlp ? 2 * r->d : r->d;
    pl_params_add(ps, &r->w1, PL_PARAM_MATRIX, in, "router.fc1.weight", r->width, NULL, 0, NULL, 0)->init_std =
        1 / sqrt((double)in);
    pl_params_add(ps, &r->w2, PL_PARAM_MATRIX, r->width, "router.fc2.weight", r->clusters, NULL, 0, NULL, 0)->init_std =
        1 / sqrt((double)r->width);
    if (!mlp) return;
    pl_params_add(ps, &r->norm_embed, PL_PARAM_NORM, 0, "router.embed_norm.weight", r->d, NULL, 0, NULL, 0);
    pl_params_add(ps, &r->norm_hidden, PL_PARAM_NORM, 0, "router.hidden_norm.weight", r->d, NULL, 0, NULL, 0);
    pl_params_add(ps, &r->b1, PL_PARAM_BIAS, 0, "router.fc1.bias", r->width, NULL, 0, NULL, 0);
    pl_params_add(ps, &r->b2, PL_PARAM_BIAS, 0, "router.fc2.bias", r->clusters, NULL, 0, NULL, 0);
}

pl_tensor pl_router_scores(pl_ctx *ctx, const pl_router *r, pl_tensor embed, pl_tensor hidden, pl_tensor output) {
    if (r->kind == PL_ROUTER_CORAL) {
        pl_tensor h = pl_silu(ctx, pl_linear(ctx, output, r->w1));
        return pl_linear(ctx, pl_add(ctx, h, output, (pl_tensor){0}), r->w2);
    }
    pl_tensor x =
        pl_concat(ctx, pl_rmsnorm(ctx, embed, r->norm_embed, EPS), pl_rmsnorm(ctx, hidden, r->norm_hidden, EPS));
    pl_tensor h = pl_silu(ctx, pl_bias(ctx, pl_linear(ctx, x, r->w1), r->b1));
    return pl_bias(ctx, pl_linear(ctx, h, r->w2), r->b2);
}

double pl_router_bytes(const pl_router *r, pl_dtype t) {
    double in = (double)(r->kind == PL_ROUTER_MLP ? 2 * r->d : r->d);
    return (double)r->width * (in + (double)r->clusters) * (double)pl_dtype_size(t);
}

// A heap of the best so far, the worst of them at its root: lower score, and of equal ones the higher cluster.
static bool worse(const float *score, int32_t a, int32_t b) {
    return score[a] < score[b] || (score[a] == score[b] && a > b);
}

static void sift(const float *score, int32_t *heap, int64_t n, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && worse(score, heap[child + 1], heap[child])) child++;
        if (!worse(score, heap[child], heap[at])) return;
        int32_t t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
    }
}

bool pl_router_choose(const float *score, int64_t clusters, int64_t k, int32_t *best, uint8_t *chosen) {
    if (k > clusters) k = clusters;
    for (int64_t c = 0; c < clusters; c++)
        if (isnan(score[c])) return false;
    for (int64_t c = 0; c < k; c++)
        best[c] = (int32_t)c;
    for (int64_t c = k / 2 - 1; c >= 0; c--)
        sift(score, best, k, c);
    for (int64_t c = k; c < clusters && k > 0; c++)
        if (worse(score, best[0], (int32_t)c)) {
            best[0] = (int32_t)c;
            sift(score, best, k, 0);
        }
    for (int64_t c = 0; c < k; c++)
        chosen[best[c]] = 1;
    return true;
}
