#include "infer/head.h"

#include "kernels/base/check.h"
#include "kernels/op/headtopk.h"
#include "kernels/op/linear.h"

#include <string.h>

static const pl_head_kind *const kinds[] = {&pl_head_full, &pl_head_lowrank};
enum { KINDS = sizeof kinds / sizeof *kinds };

const pl_head_kind *pl_head_find(const char *name, pl_err *err) {
    char   known[256] = "";
    size_t used = 0;
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
        size_t n = strlen(kinds[i]->name);
        if (used + n + 3 < sizeof known) {
            if (used) memcpy(known + used, ", ", 2), used += 2;
            memcpy(known + used, kinds[i]->name, n + 1), used += n;
        }
    }
    pl_fail(err, PL_E_INPUT, "head kind \"%s\" is not known; known are: %s", name, known);
    return NULL;
}

pl_status pl_head_init(pl_head *h, const char *kind, int64_t d, int64_t vocab, int64_t rank, pl_err *err) {
    *h = (pl_head){.kind = pl_head_find(kind, err), .d = d, .vocab = vocab};
    if (!h->kind) return PL_E_INPUT;
    h->rank = h->kind == &pl_head_full ? d : rank;
    if (h->rank < 1 || h->rank > d)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": rank %lld must lie in 1..%lld, the drafter's width", kind,
                       (long long)rank, (long long)d);
    return PL_OK;
}

void pl_head_fini(pl_head *h) {
    pl_free(h->d2t);
    *h = (pl_head){0};
}

void pl_head_share(pl_head *h, pl_tensor out) {
    PL_CHECK(h->kind == &pl_head_full && !h->d2t, "a head of kind %s cannot be the target's", h->kind->name);
    h->shared = true;
    h->out = out;
    h->out.grad = NULL;
}

pl_tensor pl_head_logits(pl_ctx *ctx, const pl_head *h, pl_tensor x) {
    return pl_linear(ctx, h->kind->project(ctx, h, x, (pl_tensor){0}), h->out);
}

void pl_head_topk(pl_ctx *ctx, const pl_head *h, pl_tensor x, int k, int32_t *id, float *value, float *lse) {
    pl_headtopk(ctx, &(pl_headtopk_args){.x = h->kind->project(ctx, h, x, (pl_tensor){0}),
                                         .w = h->out,
                                         .k = k,
                                         .id = id,
                                         .value = value,
                                         .lse = lse});
}

double pl_head_step_bytes(const pl_head *h) {
    double n = (double)h->vocab * (double)h->rank * (double)pl_dtype_size(h->out.dtype);
    return h->kind == &pl_head_full ? n : n + (double)h->rank * (double)h->d * (double)pl_dtype_size(h->down.dtype);
}
