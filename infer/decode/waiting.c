#include "infer/decode/waiting.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <string.h>

pl_status pl_waiting_init(pl_waiting *w, int positions, size_t width, pl_err *err) {
    *w = (pl_waiting){.positions = positions, .width = width};
    if (width == 0) return PL_OK;
    w->features = pl_calloc(pl_size_mul((size_t)positions, width, 1), 1);
    return w->features ? PL_OK : pl_fail(err, PL_E_MEMORY, "rows of %d positions that wait: out of memory", positions);
}

void pl_waiting_fini(pl_waiting *w) {
    pl_free(w->features);
}

static void copy_own(const pl_waiting *w, char *to, const pl_draft_item *it, const pl_tensor *features) {
    const char *from = features->data;
    for (int j = 0; j < it->count; j++)
        memcpy(to + (size_t)j * w->width, from + (size_t)it->feature_row[j] * w->width, w->width);
}

void pl_waiting_add(pl_waiting *w, const pl_draft_item *it, const pl_tensor *features) {
    if (w->n == 0) w->first = it->first;
    PL_CHECK(w->first + w->n == it->first && w->n + it->count <= w->positions, "rows %d..%d come behind %d..%d",
             it->first, it->first + it->count - 1, w->first, w->first + w->n - 1);
    if (w->width) copy_own(w, w->features + (size_t)w->n * w->width, it, features);
    w->n += it->count;
}

void pl_waiting_catch_up(pl_waiting *w, pl_drafter *d, pl_ctx *ctx, const pl_draft_item *it, const pl_tensor *like) {
    int32_t index[PL_WAITING_MOST];
    int     from = 0;
    for (int j = 0; j < PL_WAITING_MOST; j++)
        index[j] = j;
    for (; w->n - from > PL_WAITING_MOST && ctx->err.status == PL_OK; from += PL_WAITING_MOST) {
        size_t        mark = pl_arena_mark(&ctx->frame);
        pl_draft_item some = *it;
        some.first = w->first + from;
        some.count = PL_WAITING_MOST;
        some.feature_row = index;
        some.tree = NULL;
        d->kind->propose(d, ctx,
                         &(pl_draft_batch){.item = &some,
                                           .n = 1,
                                           .features = pl_tensor_2d(w->features + (size_t)from * w->width, like->dtype,
                                                                    PL_WAITING_MOST, like->dim[1])});
        pl_arena_release(&ctx->frame, mark);
    }
    w->first += from;
    w->n -= from;
    if (from && w->width) memmove(w->features, w->features + (size_t)from * w->width, (size_t)w->n * w->width);
}

void pl_waiting_join(pl_draft_batch *b, pl_ctx *ctx, int rows, pl_waiting_fn waiting, void *arg) {
    const pl_tensor own = b->features;
    size_t          width = (size_t)own.dim[1] * pl_dtype_size(own.dtype);
    char           *all = pl_ctx_bytes(ctx, (size_t)rows * width);
    int32_t        *index = pl_ctx_bytes(ctx, (size_t)rows * sizeof *index);
    b->features = pl_tensor_2d(all, own.dtype, rows, own.dim[1]);
    for (int i = 0, at = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        pl_waiting    *w = waiting(arg, it);
        char          *to = all + (size_t)at * width;
        if (w->n) memcpy(to, w->features, (size_t)w->n * width);
        copy_own(w, to + (size_t)w->n * width, it, &own);
        if (w->n) it->first = w->first;
        it->count += w->n;
        it->feature_row = index + at;
        for (int j = 0; j < it->count; j++, at++)
            index[at] = at;
        w->n = 0;
    }
}
