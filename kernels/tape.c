#include "kernels/tape.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include <string.h>

enum { ARGS_ALIGN = 16, ARGS_COMMON = 512 }; // bytes

static bool grow_entries(pl_tape *t, int capacity) {
    struct pl_tape_entry *p = pl_realloc(t->entry, pl_size_mul((size_t)capacity, sizeof *p, 1));
    if (!p) return false;
    t->entry = p;
    t->capacity = capacity;
    return true;
}

static bool grow_args(pl_tape *t, size_t size) {
    uint8_t *p = pl_realloc(t->args, size);
    if (!p) return false;
    t->args = p;
    t->size = size;
    return true;
}

pl_status pl_tape_init(pl_tape *t, int capacity, pl_err *err) {
    PL_CHECK(capacity >= 0, "capacity %d", capacity);
    *t = (pl_tape){0};
    if (capacity == 0) return PL_OK;
    if (grow_entries(t, capacity) && grow_args(t, pl_size_mul((size_t)capacity, ARGS_COMMON, 1))) return PL_OK;
    pl_tape_fini(t);
    return pl_fail(err, PL_E_MEMORY, "tape: no memory for %d entries; use a shorter unroll or fewer layers", capacity);
}

void pl_tape_fini(pl_tape *t) {
    pl_free(t->entry);
    pl_free(t->args);
    *t = (pl_tape){0};
}

void pl_tape_clear(pl_tape *t) {
    t->count = 0;
    t->used = 0;
}

// Only while measuring: a steady step must not allocate.
static bool make_room(pl_ctx *ctx, size_t bytes) {
    pl_tape *t = ctx->tape;
    bool     ok = true;
    if (t->count < t->capacity && bytes <= t->size - t->used) return true;
    if (!ctx->measuring) {
        pl_ctx_fail(ctx, PL_E_MEMORY, "tape: full at %d entries; measure the step before running it", t->count);
        return false;
    }
    if (t->count == t->capacity) ok = grow_entries(t, t->capacity ? 2 * t->capacity : 64);
    if (ok && bytes > t->size - t->used) ok = grow_args(t, 2 * t->size + bytes);
    if (!ok) pl_ctx_fail(ctx, PL_E_MEMORY, "tape: no memory for entry %d", t->count);
    return ok;
}

void pl_tape_push(pl_ctx *ctx, pl_op op, const void *args, size_t args_size) {
    pl_tape *t = ctx->tape;
    size_t   bytes = (args_size + ARGS_ALIGN - 1) / ARGS_ALIGN * ARGS_ALIGN;
    if (!make_room(ctx, bytes)) return;
    memcpy(t->args + t->used, args, args_size);
    t->entry[t->count++] = (struct pl_tape_entry){.op = op, .at = t->used};
    t->used += bytes;
}

void pl_tape_backward(pl_ctx *ctx) {
    PL_CHECK(ctx->tape, "backward without a tape");
    const pl_tape *t = ctx->tape;
    for (int i = t->count - 1; i >= 0 && ctx->err.status == PL_OK; i--)
        ctx->be->bwd[t->entry[i].op](ctx, t->args + t->entry[i].at);
}
