// SlimSpec's low-rank head (arXiv 2605.10453): z = W_up (W_down h), no bias, no non-linearity. Tensor names are
// EAGLE-4's: efficient_lm_head.weight [V, r], efficient_lm_head_down_proj.weight [r, d].
#include "infer/head/head.h"

#include "kernels/op/linear.h"

#include <math.h>
#include <stdio.h>

typedef struct lowrank {
    int rank;
} lowrank;

static const pl_key keys[] = {{PL_KEY_AS_INT("drafter.head.rank", lowrank, rank), .each = true, .deflt = "0", .min = 0,
                               .max = 65536, .help = "of a low-rank head, or of specvocab's scorer",
                               .stages = PL_STAGE_DRAFTER},
                              PL_KEYS_END(lowrank)};

// Shared by kinds whose settings begin with a rank.
static pl_status init(pl_head *h, pl_err *err) {
    const lowrank *own = h->own;
    if (own->rank < 1 || own->rank > h->d)
        return pl_fail(err, PL_E_INPUT,
                       "head of kind \"%s\": rank %d must lie in 1..%lld, the drafter's width (drafter.head.rank)",
                       h->kind->name, own->rank, (long long)h->d);
    h->rank = own->rank;
    return PL_OK;
}

static void params(pl_head *h, pl_params *ps) {
    pl_params_weight(ps, &h->down, PL_PARAM_MATRIX, "efficient_lm_head_down_proj.weight", h->rank, h->d,
                     1 / sqrt((double)h->d))
        ->start = PL_START_DOWN;
    pl_params_weight(ps, &h->out, PL_PARAM_MATRIX, "efficient_lm_head.weight", h->vocab, h->rank, 0.02)->start =
        PL_START_UP;
}

static pl_tensor project(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y) {
    if (!y.data) return pl_linear(ctx, x, h->down);
    pl_linear_into(ctx, y, x, h->down);
    return y;
}

// Examples: the requested ranks, else a half to a sixteenth of the width.
static bool example(pl_head_example *e, int i, const pl_head_shape *s) {
    int part = 2 << i;
    if (i >= (s->n_ranks ? s->n_ranks : 4)) return false;
    int64_t rank = s->n_ranks ? s->rank[i] : s->d / part;
    e->in = PL_EXAMPLE_HEADS | (s->n_ranks ? 0 : PL_EXAMPLE_PLAN) | (!s->n_ranks && part == 8 ? PL_EXAMPLE_CYCLE : 0);
    if (s->n_ranks)
        snprintf(e->name, sizeof e->name, "lowrank-%lld", (long long)rank);
    else
        snprintf(e->name, sizeof e->name, "lowrank-d/%d", part);
    if (rank < 1) e->rows = 0;
    if (rank >= 1) e->spec = pl_hf_head_make("lowrank", (int)rank);
    return true;
}

const pl_head_kind pl_head_lowrank = {.name = "lowrank",
                                      .keys = keys,
                                      .listed = true,
                                      .factored = true,
                                      .init = init,
                                      .params = params,
                                      .project = project,
                                      .example = example};
