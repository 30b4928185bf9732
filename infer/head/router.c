#include "infer/head/router.h"

#include "kernels/best.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"

#include <math.h>

#define EPS 1e-6

const char *pl_router_name(int kind) {
    static const char *const names[] = {[PL_ROUTER_MLP] = "mlp", [PL_ROUTER_CORAL] = "coral"};
    return kind < (int)(sizeof names / sizeof *names) ? names[kind] : NULL;
}

void pl_router_params(pl_router *r, pl_params *ps) {
    bool    mlp = r->kind == PL_ROUTER_MLP;
    int64_t in = mlp ? 2 * r->d : r->d;
    pl_params_weight(ps, &r->w1, PL_PARAM_MATRIX, "router.fc1.weight", r->width, in, 1 / sqrt((double)in));
    pl_params_weight(ps, &r->w2, PL_PARAM_MATRIX, "router.fc2.weight", r->clusters, r->width,
                     1 / sqrt((double)r->width));
    if (!mlp) return;
    pl_params_norm(ps, &r->norm_embed, "router.", "embed_norm", r->d);
    pl_params_norm(ps, &r->norm_hidden, "router.", "hidden_norm", r->d);
    pl_params_weight(ps, &r->b1, PL_PARAM_BIAS, "router.fc1.bias", r->width, 0, 0);
    pl_params_weight(ps, &r->b2, PL_PARAM_BIAS, "router.fc2.bias", r->clusters, 0, 0);
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

bool pl_router_choose(const float *score, int64_t clusters, int64_t k, int32_t *best, uint8_t *chosen) {
    pl_tensor z = pl_tensor_1d((void *)score, PL_F32, clusters);
    if (!pl_best_of(&z, 0, clusters, k, best)) return false;
    for (int64_t c = 0; c < k && c < clusters; c++)
        chosen[best[c]] = 1;
    return true;
}
