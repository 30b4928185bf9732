#include "kernels/op/elementwise.h"
#include "kernels/base/check.h"

// Checks that an operand is a matrix of activations.
static void check_matrix(const pl_ctx *ctx, pl_op op, const pl_tensor *t) {
    PL_CHECK(t->rank == 2 && t->dtype == ctx->be->real, "%s: [%lld, %lld] %s of rank %d", pl_op_name(op),
             (long long)t->dim[0], (long long)t->dim[1], pl_dtype_name(t->dtype), t->rank);
}

// Checks that b is a matrix of so many rows and columns.
static void check_shape(const pl_ctx *ctx, pl_op op, const pl_tensor *b, int64_t rows, int64_t cols) {
    check_matrix(ctx, op, b);
    PL_CHECK(b->dim[0] == rows && b->dim[1] == cols, "%s: [%lld, %lld] beside [%lld, %lld]", pl_op_name(op),
             (long long)b->dim[0], (long long)b->dim[1], (long long)rows, (long long)cols);
}

static pl_tensor run_unary(pl_ctx *ctx, pl_op op, pl_tensor x) {
    check_matrix(ctx, op, &x);
    pl_unary_args a = {.x = x, .y = pl_ctx_out(ctx, x.dim[0], x.dim[1], x.grad)};
    pl_run(ctx, op, &a, sizeof a);
    return a.y;
}

pl_tensor pl_silu(pl_ctx *ctx, pl_tensor x) {
    return run_unary(ctx, PL_OP_SILU, x);
}

pl_tensor pl_round(pl_ctx *ctx, pl_tensor x) {
    return run_unary(ctx, PL_OP_ROUND, x);
}

pl_tensor pl_squash(pl_ctx *ctx, pl_squash_kind kind, pl_tensor x, int64_t from, int64_t n, pl_tensor y) {
    check_matrix(ctx, PL_OP_SQUASH, &x);
    PL_CHECK(from >= 0 && n >= 1 && from + n <= x.dim[1], "squash: columns %lld and %lld behind it of %lld",
             (long long)from, (long long)n, (long long)x.dim[1]);
    if (!y.data) y = pl_ctx_out(ctx, x.dim[0], n, x.grad);
    check_shape(ctx, PL_OP_SQUASH, &y, x.dim[0], n);
    pl_squash_args a = {.y = y, .x = x, .from = from, .kind = kind};
    pl_run(ctx, PL_OP_SQUASH, &a, sizeof a);
    return y;
}

void pl_softcap(pl_ctx *ctx, pl_tensor x, double cap) {
    check_matrix(ctx, PL_OP_SOFTCAP, &x);
    PL_CHECK(!x.grad && cap > 0, "softcap: %g%s", cap, x.grad ? ", with a gradient" : "");
    pl_softcap_args a = {.x = x, .cap = cap};
    pl_run(ctx, PL_OP_SOFTCAP, &a, sizeof a);
}

static pl_tensor run_binary(pl_ctx *ctx, pl_op op, pl_tensor a, pl_tensor b, pl_tensor y) {
    pl_binary_args args = {.y = y, .a = a, .b = b};
    pl_run(ctx, op, &args, sizeof args);
    return y;
}

static pl_tensor run_alike(pl_ctx *ctx, pl_op op, pl_tensor a, pl_tensor b, pl_tensor y) {
    check_matrix(ctx, op, &a);
    check_shape(ctx, op, &b, a.dim[0], a.dim[1]);
    if (!y.data) y = pl_ctx_out(ctx, a.dim[0], a.dim[1], a.grad || b.grad);
    check_shape(ctx, op, &y, a.dim[0], a.dim[1]);
    return run_binary(ctx, op, a, b, y);
}

pl_tensor pl_add(pl_ctx *ctx, pl_tensor a, pl_tensor b, pl_tensor y) {
    return run_alike(ctx, PL_OP_ADD, a, b, y);
}

pl_tensor pl_mul(pl_ctx *ctx, pl_tensor a, pl_tensor b) {
    return run_alike(ctx, PL_OP_MUL, a, b, (pl_tensor){0});
}

pl_tensor pl_bias(pl_ctx *ctx, pl_tensor a, pl_tensor b) {
    check_matrix(ctx, PL_OP_BIAS, &a);
    PL_CHECK(b.rank == 1 && b.dim[0] == a.dim[1] && b.dtype == ctx->be->real, "bias: [%lld] %s of rank %d for %lld",
             (long long)b.dim[0], pl_dtype_name(b.dtype), b.rank, (long long)a.dim[1]);
    return run_binary(ctx, PL_OP_BIAS, a, b, pl_ctx_out(ctx, a.dim[0], a.dim[1], a.grad || b.grad));
}

pl_tensor pl_concat(pl_ctx *ctx, pl_tensor a, pl_tensor b) {
    check_matrix(ctx, PL_OP_CONCAT, &b);
    PL_CHECK(a.rank == 2 && a.dim[0] == b.dim[0] && a.layout == PL_ROWMAJOR, "concat: %lld and %lld rows",
             (long long)a.dim[0], (long long)b.dim[0]);
    PL_CHECK(a.dtype == ctx->be->real || ((a.dtype == PL_BF16 || a.dtype == PL_F32) && !a.grad), "concat: %s and %s",
             pl_dtype_name(a.dtype), pl_dtype_name(b.dtype));
    return run_binary(ctx, PL_OP_CONCAT, a, b, pl_ctx_out(ctx, a.dim[0], a.dim[1] + b.dim[1], a.grad || b.grad));
}

static pl_tensor run_rows(pl_ctx *ctx, pl_op op, pl_tensor x, const int32_t *index, int64_t n, double scale) {
    pl_rows_args a = {.x = x, .index = index, .scale = scale, .y = pl_ctx_out(ctx, n, x.dim[1], x.grad)};
    pl_run(ctx, op, &a, sizeof a);
    return a.y;
}

pl_tensor pl_gather(pl_ctx *ctx, pl_tensor x, const int32_t *index, int64_t n) {
    check_matrix(ctx, PL_OP_GATHER, &x);
    return run_rows(ctx, PL_OP_GATHER, x, index, n, 1);
}

pl_tensor pl_embed(pl_ctx *ctx, pl_tensor w, const int32_t *id, int64_t rows) {
    return pl_embed_scaled(ctx, w, id, rows, 1);
}

pl_tensor pl_embed_scaled(pl_ctx *ctx, pl_tensor w, const int32_t *id, int64_t rows, double scale) {
    PL_CHECK(w.rank == 2 && w.layout == PL_ROWMAJOR, "embed: weight of rank %d, layout %d", w.rank, (int)w.layout);
    PL_CHECK(!w.grad || w.dtype == ctx->be->real, "embed: a gradient needs a weight in %s, not %s",
             pl_dtype_name(ctx->be->real), pl_dtype_name(w.dtype));
    return run_rows(ctx, PL_OP_EMBED, w, id, rows, scale);
}

pl_tensor pl_combine(pl_ctx *ctx, pl_tensor x, pl_tensor weight, const int32_t *slot) {
    check_matrix(ctx, PL_OP_COMBINE, &x);
    check_matrix(ctx, PL_OP_COMBINE, &weight);
    pl_combine_args a = {.x = x, .weight = weight, .slot = slot, .y = pl_ctx_const(ctx, weight.dim[0], x.dim[1])};
    pl_run(ctx, PL_OP_COMBINE, &a, sizeof a);
    return a.y;
}
