#include "kernels/op/attention_ref.h"
#include "kernels/op/attention.h"

static int64_t n_keys(const pl_attention_args *a, int64_t m) {
    if (a->row) {
        int32_t all = a->row[m].n_ctx + a->row[m].n_path;
        return all - pl_attention_first(&a->row[m], a->window);
    }
    return a->lo[m] < 0 ? 0 : pl_attention_row(a, 0, m) - a->lo[m] + 1 + a->n_blocks - 1;
}

// Returns a cached key, widened from bf16 if necessary.
static key cached_key(const attending *r, const pl_kvrow *row, int64_t at) {
    if (row->dtype != PL_BF16) return (key){(const pl_real *)row->k + at, (const pl_real *)row->v + at, NULL, NULL};
    for (int d = 0; d < r->hd; d++) {
        r->room[d] = pl_ref_load(row->k, PL_BF16, at + d);
        r->room[r->hd + d] = pl_ref_load(row->v, PL_BF16, at + d);
    }
    return (key){r->room, r->room + r->hd, NULL, NULL};
}

static key key_at(const attending *r, int64_t i) {
    const pl_attention_args *a = r->args;
    int64_t                  head = r->h / (a->nh / a->nkv) * (int64_t)a->hd, kv = (int64_t)a->nkv * a->hd, m = r->m;
    if (a->row) {
        const pl_kvrow *row = &a->row[m];
        i += pl_attention_first(row, a->window);
        return cached_key(r, row, (i < row->n_ctx || !row->path ? i : row->path[i - row->n_ctx]) * kv + head);
    }
    int64_t          own = pl_attention_row(a, 0, m) - a->lo[m] + 1; // keys of the causal block; the diagonals follow
    int              j = i < own ? 0 : (int)(i - own + 1);
    const pl_tensor *b = &a->block[j];
    return key_in(b, (i < own ? a->lo[m] + i : pl_attention_row(a, j, m)) * b->dim[1] + b->dim[1] - 2 * kv + head, kv);
}

static void each(const pl_attention_args *a, pl_real *room, void (*fn)(const attending *)) {
    attending r = {.args = a,
                   .key_at = key_at,
                   .nh = a->nh,
                   .hd = a->hd,
                   .scale = (pl_real)a->scale,
                   .cap = (pl_real)a->cap,
                   .sink = a->sink,
                   .q = &a->qkv,
                   .o = &a->o,
                   .lse = &a->lse,
                   .room = room};
    for (r.m = 0; r.m < r.q->dim[0]; r.m++) {
        r.n = n_keys(a, r.m);
        for (r.h = 0; r.h < a->nh; r.h++)
            fn(&r);
    }
}

void PL_REF(attention_fwd)(pl_ctx *ctx, const void *args) {
    const pl_attention_args *a = args;
    size_t                   mark = pl_arena_mark(&ctx->scratch);
    pl_real                 *room = pl_arena_alloc(&ctx->scratch, 2 * (size_t)a->hd * sizeof *room);
    if (!ctx->measuring) {
        if (a->row) pl_kvrow_dtype(a->row, a->qkv.dim[0]);
        each(a, room, attend_fwd);
    }
    pl_arena_release(&ctx->scratch, mark);
}

void PL_REF(attention_bwd)(pl_ctx *ctx, const void *args) {
    const pl_attention_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->o.grad) each(a, NULL, attend_bwd);
}
