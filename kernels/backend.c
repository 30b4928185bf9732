#include "kernels/backend.h"
#include "kernels/base/check.h"
#include "kernels/base/room.h"
#include "kernels/flops.h"
#include "kernels/profile.h"
#include "kernels/tape.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const op_names[PL_OP_COUNT] = {
#define X(NAME, name, backward) #name,
#include "kernels/ops.def"
#undef X
};

static const bool op_has_backward[PL_OP_COUNT] = {
#define X(NAME, name, backward) backward,
#include "kernels/ops.def"
#undef X
};

const char *pl_op_name(pl_op op) {
    PL_CHECK((unsigned)op < PL_OP_COUNT, "op %d", (int)op);
    return op_names[op];
}

// Half as much again as the cache holds: of what passes in a circle a part stays even then. Where the system does not
// say, what most have.
static uint64_t cache_bytes(void) {
    long bytes = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return (uint64_t)(bytes > 0 ? bytes : 32 << 20) * 3 / 2;
}

pl_status pl_ctx_init(pl_ctx *ctx, const pl_backend *be, pl_pool *pool) {
    PL_CHECK(be, "context without a backend");
    *ctx = (pl_ctx){.be = be, .pool = pool, .trail.cache = cache_bytes()};
    pl_arena_init(&ctx->frame, "frame");
    pl_arena_init(&ctx->scratch, "scratch");
    pl_arena_init(&ctx->aside, "scratch of a branch");
    pl_arena_init(&ctx->shared, "shared");
    ctx->frame.memory = ctx->scratch.memory = ctx->aside.memory = ctx->shared.memory = be->memory;
    ctx->shared.place = PL_SHARED;
    if (be->device) be->device->open(ctx, &ctx->err); // a failure sticks
    return PL_OK;
}

static void drop_arenas(pl_ctx *ctx) {
    pl_arena_fini(&ctx->frame);
    pl_arena_fini(&ctx->scratch);
    pl_arena_fini(&ctx->aside);
    pl_arena_fini(&ctx->shared);
}

void pl_ctx_fini(pl_ctx *ctx) {
    if (ctx->be && ctx->be->device && ctx->state) ctx->be->device->wait(ctx);
    drop_arenas(ctx);
    if (ctx->be && ctx->be->device && ctx->state) ctx->be->device->close(ctx);
}

bool pl_backend_on_host(const pl_backend *be) {
    return !be->memory || be->memory->host;
}

// What a training step fills, all of it, is asked for before it is taken: the rest may never be touched.
static pl_status room_to_train(const pl_ctx *ctx, pl_err *err) {
    double bytes = (double)ctx->frame.peak + (double)ctx->scratch.peak + (double)ctx->aside.peak;
    if (!ctx->tape || !pl_backend_on_host(ctx->be)) return PL_OK;
    return pl_memory_room(bytes, "a training step's activations",
                          "give it fewer rows (train.slot_rows, train.batch over train.slots, train.seq_len; of a "
                          "bench --batch, --seq-len), or set train.recompute",
                          err);
}

pl_status pl_ctx_measure(pl_ctx *ctx, void (*fn)(pl_ctx *ctx, void *arg), void *arg, pl_err *err) {
    if (ctx->be->device && !ctx->state) PL_TRY(ctx->be->device->open(ctx, err));
    pl_arena_begin_measure(&ctx->frame);
    pl_arena_begin_measure(&ctx->scratch);
    pl_arena_begin_measure(&ctx->aside);
    pl_arena_begin_measure(&ctx->shared);
    ctx->err = (pl_err){0};
    ctx->measuring = true;
    pl_ctx_begin(ctx);
    fn(ctx, arg);
    pl_ctx_join(ctx);
    ctx->measuring = false;
    if (ctx->tape) pl_tape_clear(ctx->tape);

    pl_status st = pl_ctx_sync(ctx, err);
    if (st == PL_OK) st = room_to_train(ctx, err);
    if (st == PL_OK) st = pl_arena_commit(&ctx->frame, err);
    if (st == PL_OK) st = pl_arena_commit(&ctx->scratch, err);
    if (st == PL_OK) st = pl_arena_commit(&ctx->aside, err);
    if (st == PL_OK) st = pl_arena_commit(&ctx->shared, err);
    if (st != PL_OK) drop_arenas(ctx);
    return st;
}

void pl_ctx_begin(pl_ctx *ctx) {
    pl_arena_reset(&ctx->frame);
    pl_arena_reset(&ctx->scratch);
    pl_arena_reset(&ctx->aside);
    pl_arena_reset(&ctx->shared);
    if (ctx->tape) pl_tape_clear(ctx->tape);
}

// A step may have failed before its join.
static void rejoined(pl_ctx *ctx) {
    PL_CHECK(ctx->branch == PL_BRANCH_NONE || ctx->err.status != PL_OK, "a branch is waited for before it is joined");
    if (ctx->branch == PL_BRANCH_INSIDE) pl_ctx_back(ctx);
    pl_ctx_join(ctx);
}

pl_status pl_ctx_sync(pl_ctx *ctx, pl_err *err) {
    rejoined(ctx);
    if (ctx->be->device && !ctx->measuring && ctx->state) ctx->be->device->wait(ctx);
    pl_status st = ctx->err.status;
    if (st != PL_OK && err) *err = ctx->err;
    if (st != PL_OK) ctx->err = (pl_err){0};
    return st;
}

bool pl_ctx_wait(pl_ctx *ctx) {
    if (ctx->measuring) return false;
    rejoined(ctx);
    if (ctx->be->device && ctx->state && ctx->err.status == PL_OK) ctx->be->device->wait(ctx);
    return ctx->err.status == PL_OK;
}

static bool branches(const pl_ctx *ctx) {
    return ctx->be->device && ctx->be->device->fork;
}

static void swap_scratch(pl_ctx *ctx) {
    pl_arena other = ctx->aside;
    ctx->aside = ctx->scratch;
    ctx->scratch = other;
}

void pl_ctx_fork(pl_ctx *ctx) {
    PL_CHECK(ctx->branch == PL_BRANCH_NONE && !ctx->tape, "a branch within a branch, or with a tape");
    ctx->branch = PL_BRANCH_INSIDE;
    if (!branches(ctx)) return;
    swap_scratch(ctx);
    if (!ctx->measuring && ctx->state) ctx->be->device->fork(ctx);
}

void pl_ctx_back(pl_ctx *ctx) {
    PL_CHECK(ctx->branch == PL_BRANCH_INSIDE, "back from no branch");
    ctx->branch = PL_BRANCH_BESIDE;
    if (!branches(ctx)) return;
    swap_scratch(ctx);
    if (!ctx->measuring && ctx->state) ctx->be->device->back(ctx);
}

void pl_ctx_join(pl_ctx *ctx) {
    PL_CHECK(ctx->branch != PL_BRANCH_INSIDE, "a branch is joined before its end");
    if (ctx->branch == PL_BRANCH_NONE) return;
    ctx->branch = PL_BRANCH_NONE;
    if (branches(ctx) && !ctx->measuring && ctx->state) ctx->be->device->join(ctx);
}

void pl_ctx_fail(pl_ctx *ctx, pl_status status, const char *fmt, ...) {
    if (ctx->err.status != PL_OK) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(ctx->err.msg, sizeof ctx->err.msg, fmt, ap);
    va_end(ap);
    ctx->err.status = status;
}

void *pl_ctx_bytes(pl_ctx *ctx, size_t bytes) {
    return pl_arena_alloc(ctx->be->memory ? &ctx->shared : &ctx->frame, bytes);
}

// What a copy may do nothing about: a measuring context has no memory, a failed one has lost the thread.
static bool idle(const pl_ctx *ctx, size_t bytes) {
    PL_CHECK(ctx->branch == PL_BRANCH_NONE || ctx->err.status != PL_OK, "a copy beside a branch");
    return ctx->measuring || ctx->err.status != PL_OK || bytes == 0;
}

void pl_ctx_upload(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    if (idle(ctx, bytes)) return;
    if (ctx->be->device)
        ctx->be->device->upload(ctx, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

void pl_ctx_download(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    if (idle(ctx, bytes)) return;
    if (ctx->be->device)
        ctx->be->device->download(ctx, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

void pl_ctx_copy_pieces(pl_ctx *ctx, void *to, const void *from, size_t bytes, size_t pitch, size_t n) {
    if (idle(ctx, bytes) || n == 0) return;
    if (ctx->be->device) {
        ctx->be->device->copy(ctx, to, from, bytes, pitch, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        memcpy((uint8_t *)to + i * pitch, (const uint8_t *)from + i * pitch, bytes);
}

void pl_ctx_copy(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    pl_ctx_copy_pieces(ctx, to, from, bytes, bytes, 1);
}

void pl_ctx_repeat(pl_ctx *ctx, void *to, size_t n, size_t bytes) {
    for (size_t have = n, more; have < bytes; have += more) {
        more = bytes - have < have ? bytes - have : have;
        pl_ctx_copy(ctx, (uint8_t *)to + have, to, more);
    }
}

void pl_ctx_zero(pl_ctx *ctx, void *to, size_t bytes) {
    if (idle(ctx, bytes)) return;
    if (ctx->be->device)
        ctx->be->device->zero(ctx, to, bytes);
    else
        memset(to, 0, bytes);
}

static size_t bytes_of(const pl_tensor *t) {
    return (size_t)pl_tensor_count(t) * pl_dtype_size(t->dtype);
}

void *pl_ctx_read(pl_ctx *ctx, const pl_tensor *t) {
    void *to = t->data;
    if (ctx->be->memory) {
        to = pl_ctx_bytes(ctx, bytes_of(t));
        pl_ctx_download(ctx, to, t->data, bytes_of(t));
    }
    return pl_ctx_wait(ctx) ? to : NULL;
}

pl_tensor pl_ctx_write(pl_ctx *ctx, const void *from, int64_t rows, int64_t cols) {
    pl_tensor t = pl_tensor_2d((void *)(uintptr_t)from, ctx->be->real, rows, cols);
    if (ctx->be->memory) {
        t = pl_ctx_const(ctx, rows, cols);
        pl_ctx_upload(ctx, t.data, from, bytes_of(&t));
    }
    return t;
}

static void *reals(pl_ctx *ctx, int64_t rows, int64_t cols) {
    PL_CHECK(rows >= 0 && cols >= 0, "rows %lld cols %lld", (long long)rows, (long long)cols);
    return pl_arena_alloc(&ctx->frame, pl_size_mul((size_t)rows, (size_t)cols, pl_dtype_size(ctx->be->real)));
}

static void *zeroed_grad(pl_ctx *ctx, int64_t rows, int64_t cols) {
    if (!pl_ctx_recording(ctx)) return NULL;
    void  *g = reals(ctx, rows, cols);
    size_t bytes = (size_t)rows * (size_t)cols * pl_dtype_size(ctx->be->real);
    if (ctx->be->device)
        pl_tape_leave(ctx, g, bytes);
    else
        pl_ctx_zero(ctx, g, bytes);
    return g;
}

pl_tensor pl_ctx_const(pl_ctx *ctx, int64_t rows, int64_t cols) {
    return pl_tensor_2d(reals(ctx, rows, cols), ctx->be->real, rows, cols);
}

pl_tensor pl_ctx_const_1d(pl_ctx *ctx, int64_t n) {
    return pl_tensor_1d(reals(ctx, n, 1), ctx->be->real, n);
}

pl_tensor pl_ctx_tensor(pl_ctx *ctx, int64_t rows, int64_t cols) {
    pl_tensor t = pl_ctx_const(ctx, rows, cols);
    t.grad = zeroed_grad(ctx, rows, cols);
    return t;
}

pl_tensor pl_ctx_out(pl_ctx *ctx, int64_t rows, int64_t cols, bool grad) {
    return grad ? pl_ctx_tensor(ctx, rows, cols) : pl_ctx_const(ctx, rows, cols);
}

void pl_run(pl_ctx *ctx, pl_op op, const void *args, size_t args_size) {
    const pl_backend *be = ctx->be;
    if (ctx->err.status != PL_OK) return;
    if (!be->fwd[op]) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op %s is not available on backend %s", pl_op_name(op), be->name);
        return;
    }
    bool record = op_has_backward[op] && pl_ctx_recording(ctx);
    if (record && !be->bwd[op]) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op %s has no backward on backend %s", pl_op_name(op), be->name);
        return;
    }
    if (!be->device && !ctx->measuring && pl_profile_current())
        pl_profile_run(be->fwd[op], ctx, op, args, false);
    else
        be->fwd[op](ctx, args);
    if (ctx->tape && !ctx->measuring && ctx->err.status == PL_OK) pl_flops_count(op, args, false);
    if (record && ctx->err.status == PL_OK) pl_tape_push(ctx, op, args, args_size);
}
