#include "kernels/op/attention_ref.h"
#include "kernels/op/attention.h"

static int64_t n_keys(const pl_attention_args *a, int64_t m) {
    if (a->row) {
        int32_t all = a->row[m].n_ctx + a->row[m].n_path;
        return all - pl_attention_first(all, a->window);
    }
    return a->lo[m] < 0 ? 0 : m - a->lo[m] + 1 + a->n_blocks - 1;
}

static key key_at(const void *args, int64_t m, int h, int64_t i) {
    const pl_attention_args *a = args;
    int64_t                  head = h / (a->nh / a->nkv) * (int64_t)a->hd, kv = (int64_t)a->nkv * a->hd;
    if (a->row) {
        const pl_kvrow *r = &a->row[m];
        i += pl_attention_first(r->n_ctx + r->n_path, a->window);
        int64_t slot = i < r->n_ctx || !r->path ? i : r->path[i - r->n_ctx];
        return (key){(const pl_real *)r->k + slot * kv + head, (const pl_real *)r->v + slot * kv + head, NULL, NULL};
    }
    int64_t          own = m - a->lo[m] + 1; // keys of the causal block; the diagonals follow
    const pl_tensor *b = &a->block[i < own ? 0 : i - own + 1];
    return key_in(b, (i < own ? a->lo[m] + i : m) * b->dim[1] + (int64_t)a->nh * a->hd + head, kv);
}

static void each(const pl_attention_args *a, void (*fn)(const attending *)) {
    attending r = {.args = a,
                   .key_at = key_at,
                   .nh = a->nh,
                   .hd = a->hd,
                   .scale = (pl_real)a->scale,
                   .cap = (pl_real)a->cap,
                   .sink = a->sink,
                   .q = a->row ? &a->qkv : &a->block[a->n_blocks - 1],
                   .o = &a->o,
                   .lse = &a->lse};
    for (r.m = 0; r.m < r.q->dim[0]; r.m++) {
        r.n = n_keys(a, r.m);
        for (r.h = 0; r.h < a->nh; r.h++)
            fn(&r);
    }
}

void PL_REF(attention_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    each(args, attend_fwd);
}

void PL_REF(attention_bwd)(pl_ctx *ctx, const void *args) {
    const pl_attention_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->o.grad) each(a, attend_bwd);
}
