#include "kernels/op/elementwise.h"
#include "kernels/ref.h"

// Adds s from[0 .. n - 1] to the elements of `to` that begin at `at`; does nothing if `to` is NULL.
static void accumulate(void *to, int64_t at, pl_real s, const pl_real *from, int64_t n) {
    if (!to) return;
    pl_real *y = (pl_real *)to + at;
    for (int64_t i = 0; i < n; i++)
        y[i] += s * from[i];
}

// ---- one input ------------------------------------------------------------------------------------------------------

void PL_REF(silu_fwd)(pl_ctx *ctx, const void *args) {
    const pl_unary_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        n = pl_tensor_count(&a->x);
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + exp(-x[i]));
}

void PL_REF(silu_bwd)(pl_ctx *ctx, const void *args) {
    const pl_unary_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->x.grad) return;
    int64_t        n = pl_tensor_count(&a->x);
    const pl_real *x = a->x.data, *dy = a->y.grad;
    pl_real       *dx = a->x.grad;
    for (int64_t i = 0; i < n; i++) {
        pl_real s = 1 / (1 + exp(-x[i]));
        dx[i] += dy[i] * s * (1 + x[i] * (1 - s));
    }
}

void PL_REF(round_fwd)(pl_ctx *ctx, const void *args) {
    const pl_unary_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        n = pl_tensor_count(&a->x);
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t i = 0; i < n; i++)
        y[i] = (pl_real)pl_round_bf16((float)x[i]);
}

void PL_REF(round_bwd)(pl_ctx *ctx, const void *args) {
    const pl_unary_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->y.grad) accumulate(a->x.grad, 0, 1, a->y.grad, pl_tensor_count(&a->x));
}

static pl_real squash(pl_squash_kind kind, pl_real x) {
    if (kind == PL_SQUASH_TANH) return tanh(x);
    return 1 / (1 + exp(kind == PL_SQUASH_SIGMOID ? -x : x));
}

void PL_REF(squash_fwd)(pl_ctx *ctx, const void *args) {
    const pl_squash_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = a->y.dim[0], n = a->y.dim[1], all = a->x.dim[1];
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t i = 0; i < rows * n; i++)
        y[i] = squash(a->kind, x[i / n * all + a->from + i % n]);
}

void PL_REF(squash_bwd)(pl_ctx *ctx, const void *args) {
    const pl_squash_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->x.grad) return;
    int64_t        rows = a->y.dim[0], n = a->y.dim[1], all = a->x.dim[1];
    const pl_real *y = a->y.data, *dy = a->y.grad;
    pl_real       *dx = a->x.grad;
    for (int64_t i = 0; i < rows * n; i++) {
        pl_real f = a->kind == PL_SQUASH_TANH ? 1 - y[i] * y[i] : y[i] * (1 - y[i]);
        dx[i / n * all + a->from + i % n] += a->kind == PL_SQUASH_REMAINDER ? -dy[i] * f : dy[i] * f;
    }
}

void PL_REF(softcap_fwd)(pl_ctx *ctx, const void *args) {
    const pl_softcap_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t  n = pl_tensor_count(&a->x);
    pl_real *x = a->x.data, cap = (pl_real)a->cap;
    for (int64_t i = 0; i < n; i++)
        x[i] = cap * tanh(x[i] / cap);
}

// ---- two inputs -----------------------------------------------------------------------------------------------------

void PL_REF(add_fwd)(pl_ctx *ctx, const void *args) {
    const pl_binary_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        n = pl_tensor_count(&s->y);
    const pl_real *a = s->a.data, *b = s->b.data;
    pl_real       *y = s->y.data;
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

void PL_REF(add_bwd)(pl_ctx *ctx, const void *args) {
    const pl_binary_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!s->y.grad) return;
    accumulate(s->a.grad, 0, 1, s->y.grad, pl_tensor_count(&s->y));
    accumulate(s->b.grad, 0, 1, s->y.grad, pl_tensor_count(&s->y));
}

void PL_REF(mul_fwd)(pl_ctx *ctx, const void *args) {
    const pl_binary_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        n = pl_tensor_count(&s->y);
    const pl_real *a = s->a.data, *b = s->b.data;
    pl_real       *y = s->y.data;
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

void PL_REF(mul_bwd)(pl_ctx *ctx, const void *args) {
    const pl_binary_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!s->y.grad) return;
    int64_t        n = pl_tensor_count(&s->y);
    const pl_real *a = s->a.data, *b = s->b.data, *dy = s->y.grad;
    pl_real       *da = s->a.grad, *db = s->b.grad;
    for (int64_t i = 0; i < n && da; i++)
        da[i] += dy[i] * b[i];
    for (int64_t i = 0; i < n && db; i++)
        db[i] += dy[i] * a[i];
}

void PL_REF(bias_fwd)(pl_ctx *ctx, const void *args) {
    const pl_binary_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = s->y.dim[0], n = s->y.dim[1];
    const pl_real *b = s->b.data;
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *a = (const pl_real *)s->a.data + m * n;
        pl_real       *y = (pl_real *)s->y.data + m * n;
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] + b[i];
    }
}

void PL_REF(bias_bwd)(pl_ctx *ctx, const void *args) {
    const pl_binary_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!s->y.grad) return;
    int64_t        rows = s->y.dim[0], n = s->y.dim[1];
    const pl_real *dy = s->y.grad;
    accumulate(s->a.grad, 0, 1, dy, rows * n);
    for (int64_t m = 0; m < rows; m++)
        accumulate(s->b.grad, 0, 1, dy + m * n, n);
}

void PL_REF(concat_fwd)(pl_ctx *ctx, const void *args) {
    const pl_binary_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = s->y.dim[0], ca = s->a.dim[1], cb = s->b.dim[1];
    const pl_real *a = s->a.data, *b = s->b.data;
    bool           narrow = s->a.dtype != ctx->be->real;
    pl_real       *y = s->y.data;
    for (int64_t m = 0; m < rows; m++) {
        for (int64_t i = 0; i < ca; i++)
            y[m * (ca + cb) + i] = narrow ? pl_ref_weight(&s->a, m, i) : a[m * ca + i];
        for (int64_t i = 0; i < cb; i++)
            y[m * (ca + cb) + ca + i] = b[m * cb + i];
    }
}

void PL_REF(concat_bwd)(pl_ctx *ctx, const void *args) {
    const pl_binary_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!s->y.grad) return;
    int64_t        rows = s->y.dim[0], ca = s->a.dim[1], cb = s->b.dim[1];
    const pl_real *dy = s->y.grad;
    for (int64_t m = 0; m < rows; m++, dy += ca + cb) {
        accumulate(s->a.grad, m * ca, 1, dy, ca);
        accumulate(s->b.grad, m * cb, 1, dy + ca, cb);
    }
}

// ---- rows by index --------------------------------------------------------------------------------------------------

static int64_t row_of(const pl_rows_args *a, const char *op, int64_t i) {
    int64_t row = a->index[i];
    PL_CHECK(row < a->x.dim[0], "%s: row %lld of %lld", op, (long long)row, (long long)a->x.dim[0]);
    return row;
}

static void scatter(const pl_rows_args *a) {
    if (!a->y.grad) return;
    int64_t        n = a->y.dim[0], d = a->y.dim[1];
    const pl_real *dy = a->y.grad;
    for (int64_t i = 0; i < n; i++)
        if (a->index[i] >= 0) accumulate(a->x.grad, a->index[i] * d, (pl_real)a->scale, dy + i * d, d);
}

void PL_REF(gather_fwd)(pl_ctx *ctx, const void *args) {
    const pl_rows_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        n = a->y.dim[0], d = a->y.dim[1];
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = row_of(a, "gather", i);
        for (int64_t j = 0; j < d; j++)
            y[i * d + j] = row < 0 ? 0 : x[row * d + j];
    }
}

void PL_REF(gather_bwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    scatter(args);
}

void PL_REF(embed_fwd)(pl_ctx *ctx, const void *args) {
    const pl_rows_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t  n = a->y.dim[0], d = a->y.dim[1];
    pl_real *y = a->y.data;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = row_of(a, "embed", i);
        for (int64_t j = 0; j < d; j++)
            y[i * d + j] = row < 0 ? 0 : (pl_real)a->scale * pl_ref_load(a->x.data, a->x.dtype, row * d + j);
    }
}

void PL_REF(embed_bwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    scatter(args);
}

void PL_REF(combine_fwd)(pl_ctx *ctx, const void *args) {
    const pl_combine_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = a->y.dim[0], d = a->y.dim[1], k = a->weight.dim[1];
    const pl_real *x = a->x.data, *weight = a->weight.data;
    memset(a->y.data, 0, (size_t)(rows * d) * sizeof *x);
    for (int64_t m = 0; m < rows; m++)
        for (int64_t j = m * k; j < (m + 1) * k; j++) {
            int64_t at = a->slot[j];
            PL_CHECK(at >= 0 && at < a->x.dim[0], "combine: row %lld of %lld", (long long)at, (long long)a->x.dim[0]);
            accumulate(a->y.data, m * d, weight[j], x + at * d, d);
        }
}
