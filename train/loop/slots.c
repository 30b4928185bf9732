#include "train/loop/slots.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/op/elementwise.h"

#include <string.h>

static size_t plane_bytes(const pl_slots *s) {
    return pl_size_mul((size_t)s->n, pl_dtype_size(s->real), 1);
}

pl_status pl_slots_init(pl_slots *s, int n_slots, int64_t n, const pl_backend *be, pl_err *err) {
    PL_CHECK(n_slots >= 1 && n_slots <= PL_SLOTS_MAX && n >= 0, "%d slots of %lld", n_slots, (long long)n);
    *s = (pl_slots){.n_slots = n_slots, .n = n, .real = be->real, .memory = be->memory};
    while ((n_slots - 1) >> s->levels)
        s->levels++;
    if (s->levels == 0) return PL_OK;
    s->stack = pl_memory_create(s->memory, PL_LOCAL, pl_size_mul(plane_bytes(s), (size_t)s->levels, 1), err);
    return s->stack ? PL_OK : PL_E_MEMORY;
}

void pl_slots_share(int n_slots, int rank, int ranks, int *first, int *n) {
    int block = 1;
    while ((n_slots + block - 1) / block > ranks)
        block *= 2;
    int64_t from = (int64_t)rank * block;
    *first = from < n_slots ? (int)from : n_slots;
    *n = n_slots - *first < block ? n_slots - *first : block;
}

void pl_slots_fini(pl_slots *s) {
    if (s->stack) pl_memory_destroy(s->memory, PL_LOCAL, s->stack, pl_size_mul(plane_bytes(s), (size_t)s->levels, 1));
    *s = (pl_slots){0};
}

void pl_slots_begin(pl_slots *s) {
    s->next = 0;
    memset(s->held, 0, sizeof s->held);
}

enum { PARTS = 64 };

typedef struct add_job {
    pl_dtype    real;
    void       *to;
    const void *left; // NULL: copies `to` into `out` instead
    void       *out;
    int64_t     n;
} add_job;

static void add_part(void *arg, int part, int parts) {
    const add_job *a = arg;
    long           lo, hi;
    pl_range((long)a->n, 1024, part, parts, &lo, &hi);
    if (hi <= lo) return;
    if (!a->left) {
        size_t e = pl_dtype_size(a->real);
        memcpy((uint8_t *)a->out + (size_t)lo * e, (const uint8_t *)a->to + (size_t)lo * e, (size_t)(hi - lo) * e);
    } else if (a->real == PL_F64) {
        double *restrict y = a->to;
        const double *restrict x = a->left;
        for (long i = lo; i < hi; i++)
            y[i] = x[i] + y[i];
    } else {
        float *restrict y = a->to;
        const float *restrict x = a->left;
        for (long i = lo; i < hi; i++)
            y[i] = x[i] + y[i];
    }
}

static void *level_at(const pl_slots *s, int l) {
    return (uint8_t *)s->stack + (size_t)l * plane_bytes(s);
}

// Adds the level's partial sum to elements [from, from + n) of grad (keep: copies grad to the level instead).
static void combine_level(const pl_slots *s, pl_ctx *ctx, int l, void *grad, int64_t from, int64_t n, bool keep) {
    size_t   at = (size_t)from * pl_dtype_size(s->real), bytes = (size_t)n * pl_dtype_size(s->real);
    uint8_t *g = (uint8_t *)grad + at, *held = (uint8_t *)level_at(s, l) + at;
    if (s->memory) {
        pl_tensor to = pl_tensor_2d(g, s->real, 1, n);
        if (keep)
            pl_ctx_copy(ctx, held, g, bytes);
        else
            pl_add(ctx, pl_tensor_2d(held, s->real, 1, n), to, to);
        return;
    }
    add_job a = {.real = s->real, .to = g, .n = n};
    if (keep)
        a.out = held;
    else
        a.left = held;
    pl_parallel(ctx->pool, n < (1 << 14) ? 1 : PARTS, add_part, &a);
}

// Adds the counter's remaining partial sums to the last slot, small subtrees first.
void pl_slots_finish(const pl_slots *s, pl_ctx *ctx, void *grad, int64_t from, int64_t n) {
    for (int l = 0; l < s->levels; l++)
        if (s->held[l]) combine_level(s, ctx, l, grad, from, n, false);
}

static void fold_sums(const pl_slots *s, int l, double *sums) {
    for (int i = 0; i < PL_SLOT_SUMS; i++)
        sums[i] = s->sums[l][i] + sums[i];
}

void pl_slots_finish_sums(pl_slots *s, double *sums) {
    PL_CHECK(s->next == s->n_slots - 1, "slot %d of %d is not the last", s->next, s->n_slots);
    s->next++;
    for (int l = 0; l < s->levels; l++)
        if (s->held[l]) fold_sums(s, l, sums);
}

void pl_slots_add(pl_slots *s, pl_ctx *ctx, void *grad, double *sums) {
    PL_CHECK(s->next < s->n_slots, "slot %d of %d", s->next, s->n_slots);
    if (s->next == s->n_slots - 1) {
        pl_slots_finish(s, ctx, grad, 0, s->n);
        pl_slots_finish_sums(s, sums);
        return;
    }
    int slot = s->next++, l = 0;
    for (; (slot >> l) & 1; l++) {
        combine_level(s, ctx, l, grad, 0, s->n, false);
        fold_sums(s, l, sums);
        s->held[l] = false;
    }
    combine_level(s, ctx, l, grad, 0, s->n, true);
    memcpy(s->sums[l], sums, sizeof s->sums[l]);
    s->held[l] = true;
}
