#include "infer/head/stopping.h"

#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"

pl_status pl_stopping_check(const pl_head *h, pl_err *err) {
    if (h->max_rejection > 0 && !h->acceptance)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": max_rejection needs acceptance: true", h->kind->name);
    if (h->acceptance && h->kind->sequence)
        return pl_fail(err, PL_E_INPUT,
                       "head of kind \"%s\": acceptance is for drafters that go token after token; markov has "
                       "confidence: true",
                       h->kind->name);
    if (h->acceptance && h->kind->routed)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": its router alone is trained, and no acceptance",
                       h->kind->name);
    return PL_OK;
}

void pl_stopping_params(pl_head *h, pl_params *ps) {
    if (!h->acceptance) return;
    // Begins at 0: one half everywhere.
    pl_params_weight(ps, &h->sure, PL_PARAM_MATRIX, "acceptance_head.weight", 1, h->d, 0);
    pl_params_weight(ps, &h->sure_bias, PL_PARAM_BIAS, "acceptance_head.bias", 1, 0, 0);
}

pl_tensor pl_stopping_logits(pl_ctx *ctx, const pl_head *h, pl_tensor x) {
    return pl_bias(ctx, pl_linear(ctx, x, h->sure), h->sure_bias);
}

double pl_stopping_least(const pl_head *h) {
    return h->max_rejection > 0 ? 1 - h->max_rejection / 1000.0 : 0;
}
