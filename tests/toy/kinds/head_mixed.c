// A draft head in one file: z = W A ... A x with the square matrix A applied `layers` times. Of no use but to show that
// this file and its line in heads.def are all that a head needs.
#include "infer/head/head.h"
#include "kernels/op/linear.h"

#include <math.h>
#include <stdio.h>

typedef struct mixed {
    int layers;
} mixed;

static const pl_key keys[] = {
    {PL_KEY_AS_INT("drafter.head.layers", mixed, layers), .each = true, .late = true, .deflt = "0", .min = 0, .max = 4,
     .help = "mixed: how often the square matrix is applied; 0: once", .stages = PL_STAGE_DRAFTER},
    PL_KEYS_END(mixed)};

static void settle(void *own) {
    mixed *m = own;
    if (m->layers == 0) m->layers = 1;
}

static int layers(const pl_head *h) {
    return ((const mixed *)h->own)->layers;
}

static pl_status init(pl_head *h, pl_err *err) {
    return layers(h) >= 1 ? PL_OK : pl_fail(err, PL_E_INPUT, "head of kind \"mixed\": layers 0");
}

static void params(pl_head *h, pl_params *ps) {
    pl_params_weight(ps, &h->down, PL_PARAM_MATRIX, "head_mix.weight", h->d, h->d, 1 / sqrt((double)h->d));
    pl_head_full.params(h, ps); // W starts as the target's rows, or another drafter's
}

static pl_tensor project(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y) {
    for (int i = 1; i < layers(h); i++)
        x = pl_linear(ctx, x, h->down);
    if (!y.data) return pl_linear(ctx, x, h->down);
    pl_linear_into(ctx, y, x, h->down);
    return y;
}

static bool example(pl_head_example *e, int i, const pl_head_shape *s) {
    (void)s;
    e->spec = pl_hf_head_of("mixed:layers=2");
    e->in = PL_EXAMPLE_HEADS | PL_EXAMPLE_PLAN | PL_EXAMPLE_CYCLE;
    snprintf(e->name, sizeof e->name, "mixed-2");
    return i == 0;
}

const pl_head_kind pl_head_mixed = {.name = "mixed",
                                    .keys = keys,
                                    .settle = settle,
                                    .listed = true,
                                    .dense = "lm_head.weight",
                                    .init = init,
                                    .params = params,
                                    .project = project,
                                    .example = example};
