#include "kernels/tape.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/flops.h"
#include "kernels/profile.h"
#include <limits.h>
#include <string.h>

enum { ARGS_ALIGN = 16, ARGS_COMMON = 512 }; // bytes
enum { STRETCH = PL_OP_COUNT };              // an entry that is no op: a recomputed stretch

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
    pl_free(t->fresh);
    *t = (pl_tape){0};
}

void pl_tape_clear(pl_tape *t) {
    t->count = 0;
    t->n_fresh = 0;
    t->used = 0;
    for (int i = 0; t->ready && i < t->ready->n; i++)
        t->ready->part[i] = (struct pl_tape_part){.first = INT_MAX};
}

// ---- gradients that are complete

// Returns the index of the gradient that contains an address; -1: none.
static int part_of(const pl_tape_ready *r, uintptr_t address) {
    uintptr_t offset = address - (uintptr_t)r->grad; // wraps to a huge number below grad
    int       lo = 0, hi = r->n;
    if (r->n == 0 || offset < r->at[0] || offset >= r->at[r->n]) return -1;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        *(offset >= r->at[mid] ? &lo : &hi) = mid;
    }
    return lo;
}

// Notes gradients in args that are about to be recorded. A number that only looks like an address delays completion.
static void look_for_gradients(const pl_tape *t, const uint8_t *args, size_t size) {
    for (size_t i = 0; i + sizeof(uintptr_t) <= size; i += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, args + i, sizeof word);
        int part = part_of(t->ready, word);
        if (part >= 0 && t->ready->part[part].first > t->count) t->ready->part[part].first = t->count;
    }
}

static void report_bytes(pl_tape_ready *r, int i, size_t to) {
    size_t from = r->at[i] + r->part[i].told;
    if (to <= from) return;
    r->part[i].told = to - r->at[i];
    r->done(r->arg, from, to);
}

void pl_tape_done_to(pl_ctx *ctx, const void *grad, size_t bytes) {
    pl_tape_ready *r = ctx->tape ? ctx->tape->ready : NULL;
    int            i = r && !ctx->measuring && grad ? part_of(r, (uintptr_t)grad) : -1;
    if (i < 0 || r->part[i].first != ctx->tape->at || (const uint8_t *)grad != r->grad + r->at[i]) return;
    report_bytes(r, i, bytes < r->at[i + 1] - r->at[i] ? r->at[i] + bytes : r->at[i + 1]);
}

// Reports gradients whose oldest entry is `at` or newer: backward has run all of those.
static void tell_complete(pl_ctx *ctx, int at) {
    pl_tape_ready *r = ctx->tape->ready;
    for (int i = 0; r && !ctx->measuring && ctx->err.status == PL_OK && i < r->n; i++)
        if (r->part[i].first == at) report_bytes(r, i, r->at[i + 1]);
}

// Grows only while measuring: a steady step must not allocate.
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

static void push_entry(pl_ctx *ctx, int op, const void *args, size_t args_size) {
    pl_tape *t = ctx->tape;
    size_t   bytes = (args_size + ARGS_ALIGN - 1) / ARGS_ALIGN * ARGS_ALIGN;
    if (!make_room(ctx, bytes)) return;
    if (t->ready && op != STRETCH) look_for_gradients(t, args, args_size);
    memcpy(t->args + t->used, args, args_size);
    t->entry[t->count++] = (struct pl_tape_entry){.op = op, .at = t->used};
    t->used += bytes;
}

void pl_tape_push(pl_ctx *ctx, pl_op op, const void *args, size_t args_size) {
    push_entry(ctx, (int)op, args, args_size);
}

// ---- zeros that are not written yet

// Ops whose backward on a device calls pl_tape_settle and pl_tape_first itself.
static const bool writes_first[PL_OP_COUNT] = {
    [PL_OP_LINEAR] = true, [PL_OP_RMSNORM] = true,    [PL_OP_SWIGLU] = true,
    [PL_OP_CONCAT] = true, [PL_OP_DIVERGENCE] = true,
};

void pl_tape_leave(pl_ctx *ctx, void *grad, size_t bytes) {
    pl_tape *t = ctx->tape;
    if (bytes == 0) return;
    if (t->n_fresh == t->fresh_room && ctx->measuring) { // a steady step must not allocate
        int                   room = t->fresh_room ? 2 * t->fresh_room : 64;
        struct pl_tape_fresh *p = pl_realloc(t->fresh, pl_size_mul((size_t)room, sizeof *p, 1));
        if (p) t->fresh = p, t->fresh_room = room;
    }
    if (t->n_fresh < t->fresh_room)
        t->fresh[t->n_fresh++] = (struct pl_tape_fresh){grad, (uint8_t *)grad + bytes};
    else
        pl_ctx_zero(ctx, grad, bytes);
}

// Takes [from, to) out of range i; what is left before and behind it stays.
static void take_out(pl_ctx *ctx, int i, uint8_t *from, uint8_t *to) {
    pl_tape                   *t = ctx->tape;
    const struct pl_tape_fresh whole = t->fresh[i];
    t->fresh[i] = t->fresh[--t->n_fresh];
    if (whole.from < from) pl_tape_leave(ctx, whole.from, (size_t)(from - whole.from));
    if (to < whole.to) pl_tape_leave(ctx, to, (size_t)(whole.to - to));
}

void pl_tape_settle(pl_ctx *ctx, const void *grad, size_t bytes) {
    pl_tape *t = ctx->tape;
    uint8_t *from = (uint8_t *)(uintptr_t)grad, *to = from + bytes;
    for (int i = t && !ctx->measuring ? t->n_fresh - 1 : -1; i >= 0; i--) {
        uint8_t *lo = t->fresh[i].from > from ? t->fresh[i].from : from,
                *hi = t->fresh[i].to < to ? t->fresh[i].to : to;
        if (lo >= hi) continue;
        take_out(ctx, i, lo, hi);
        pl_ctx_zero(ctx, lo, (size_t)(hi - lo));
    }
}

bool pl_tape_first(pl_ctx *ctx, void *grad, size_t bytes) {
    pl_tape *t = ctx->tape;
    uint8_t *from = grad, *to = from + bytes;
    for (int i = 0; t && !ctx->measuring && grad && i < t->n_fresh; i++)
        if (from >= t->fresh[i].from && to <= t->fresh[i].to) {
            take_out(ctx, i, from, to);
            return true;
        }
    pl_tape_settle(ctx, grad, bytes);
    return false;
}

// Writes the zeros of every gradient to which a word of args points.
static void settle_args(pl_ctx *ctx, const uint8_t *args, size_t size) {
    const pl_tape *t = ctx->tape;
    for (size_t at = 0; at + sizeof(uintptr_t) <= size && t->n_fresh > 0; at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, args + at, sizeof word);
        for (int i = t->n_fresh - 1; i >= 0; i--) {
            struct pl_tape_fresh f = t->fresh[i];
            if (word >= (uintptr_t)f.from && word < (uintptr_t)f.to)
                pl_tape_settle(ctx, f.from, (size_t)(f.to - f.from));
        }
    }
}

// Forgets zeros of memory from `from` on, which is released.
static void forget_fresh(pl_tape *t, const uint8_t *from) {
    for (int i = t->n_fresh - 1; i >= 0; i--)
        if (t->fresh[i].from >= from) t->fresh[i] = t->fresh[--t->n_fresh];
}

// ---- stretchs

typedef struct stretch {
    pl_stretch_fn fn;
    int           n;
    pl_tensor     out[PL_STRETCH_OUT];
    _Alignas(16) uint8_t arg[PL_STRETCH_ARG];
} stretch;

static size_t bytes_of(const pl_tensor *t) {
    return (size_t)pl_tensor_count(t) * pl_dtype_size(t->dtype);
}

// Drops entries from `count` on.
static void cut_entries(pl_tape *t, int count) {
    if (t->count > count) t->used = t->entry[count].at;
    t->count = count;
    for (int i = 0; t->ready && i < t->ready->n; i++) // a rerun stretch uses the gradients of the entries it replaces
        if (t->ready->part[i].first > count && t->ready->part[i].first < INT_MAX) t->ready->part[i].first = count;
}

void pl_tape_stretch(pl_ctx *ctx, pl_stretch_fn fn, const void *arg, size_t arg_size, pl_tensor *out, int n) {
    PL_CHECK(n >= 0 && n <= PL_STRETCH_OUT && arg_size <= PL_STRETCH_ARG, "%d results, %zu bytes", n, arg_size);
    if (!pl_ctx_recording(ctx)) {
        fn(ctx, arg, out);
        return;
    }
    stretch s = {.fn = fn, .n = n};
    memcpy(s.arg, arg, arg_size);
    for (int i = 0; i < n; i++)
        s.out[i] = pl_ctx_tensor(ctx, out[i].dim[0], out[i].dim[1]);
    size_t   mark = pl_arena_mark(&ctx->frame);
    uint8_t *inside = pl_arena_alloc(&ctx->frame, 0);
    int      count = ctx->tape->count;
    fn(ctx, s.arg, out); // records, so that results get gradients if needed
    uint8_t *end = pl_arena_alloc(&ctx->frame, 0);
    for (int i = 0; i < n; i++) {
        uint8_t *at = out[i].data;
        if (at < inside || at >= end) {
            s.out[i] = out[i];
            continue;
        }
        PL_CHECK(out[i].dim[0] == s.out[i].dim[0] && out[i].dim[1] == s.out[i].dim[1], "result %d: [%lld, %lld]", i,
                 (long long)out[i].dim[0], (long long)out[i].dim[1]);
        pl_ctx_copy(ctx, s.out[i].data, out[i].data, bytes_of(&out[i]));
        if (!out[i].grad) s.out[i].grad = NULL;
    }
    cut_entries(ctx->tape, count);
    forget_fresh(ctx->tape, inside);
    pl_arena_release(&ctx->frame, mark);
    memcpy(out, s.out, (size_t)n * sizeof *out);
    if (ctx->err.status == PL_OK) push_entry(ctx, STRETCH, &s, sizeof s);
}

static void replay_entries(pl_ctx *ctx, int first);

// Runs a stretch's forward again, appended to the tape, and then its backward.
static void rerun_stretch(pl_ctx *ctx, int at) {
    stretch   s; // a copy: the tape may move while measuring
    pl_tensor out[PL_STRETCH_OUT];
    int       count = ctx->tape->count;
    size_t    mark = pl_arena_mark(&ctx->frame);
    uint8_t  *inside = pl_arena_alloc(&ctx->frame, 0);
    memcpy(&s, ctx->tape->args + ctx->tape->entry[at].at, sizeof s);
    memcpy(out, s.out, sizeof out);
    s.fn(ctx, s.arg, out);
    for (int i = 0; i < s.n; i++)
        if (out[i].grad && out[i].data != s.out[i].data) {
            pl_tape_settle(ctx, s.out[i].grad, bytes_of(&out[i]));
            pl_tape_first(ctx, out[i].grad, bytes_of(&out[i]));
            pl_ctx_copy(ctx, out[i].grad, s.out[i].grad, bytes_of(&out[i]));
        }
    replay_entries(ctx, count);
    cut_entries(ctx->tape, count);
    forget_fresh(ctx->tape, inside);
    pl_arena_release(&ctx->frame, mark);
}

static void run_backward(pl_ctx *ctx, pl_op op, const void *args, size_t size) {
    if (!writes_first[op] && !ctx->measuring) settle_args(ctx, args, size);
    if (!ctx->be->device && !ctx->measuring && pl_profile_current())
        pl_profile_run(ctx->be->bwd[op], ctx, op, args, true);
    else
        ctx->be->bwd[op](ctx, args);
    if (!ctx->measuring && ctx->err.status == PL_OK) pl_flops_count(op, args, true);
}

// Runs the backwards of entries from the newest down to `first`.
static void replay_entries(pl_ctx *ctx, int first) {
    pl_tape *t = ctx->tape;
    for (int i = t->count - 1; i >= first && ctx->err.status == PL_OK; i--) {
        t->at = i;
        if (t->entry[i].op == STRETCH)
            rerun_stretch(ctx, i);
        else
            run_backward(ctx, (pl_op)t->entry[i].op, t->args + t->entry[i].at,
                         (i + 1 < t->count ? t->entry[i + 1].at : t->used) - t->entry[i].at);
        t->at = i; // a stretch has changed it
        tell_complete(ctx, i);
    }
}

void pl_tape_backward(pl_ctx *ctx) {
    PL_CHECK(ctx->tape, "backward without a tape");
    pl_tape_ready *r = ctx->measuring ? NULL : ctx->tape->ready;
    PL_CHECK(!r || !r->ran, "a second backward over gradients that were told to be complete");
    if (r) r->ran = true;
    pl_profile_phase("backward");
    replay_entries(ctx, 0);
}
