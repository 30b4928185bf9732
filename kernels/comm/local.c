// Pieces through the group's shared memory: each rank shows what it has in its window and takes what is its own out of
// the others'. Downloads and uploads where tensors do not lie in the host's memory.
#include "kernels/base/check.h"
#include "kernels/comm/impl.h"

#include <string.h>

static pl_status open_local(pl_comm *c, const pl_backend *be, pl_err *err) {
    (void)c, (void)be, (void)err;
    return PL_OK;
}

// Where a rank's piece for rank `to` stands in its window: one behind the other, what goes to all once.
static size_t place(const pl_comm_swap *s, const pl_comm *c, int to, bool *shown) {
    size_t      at = 0;
    const void *last = NULL;
    *shown = false;
    for (int i = 0; i < c->ranks; i++) {
        if (s->out_bytes[i] == 0) continue;
        *shown = last == s->out[i];
        if (i == to) return *shown ? at - s->out_bytes[i] : at;
        if (!*shown) at += s->out_bytes[i];
        last = s->out[i];
    }
    return at;
}

typedef struct front {
    size_t at[PL_RANKS_MAX]; // behind this, the pieces
} front;

static pl_status swap(pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s, pl_err *err) {
    front   *mine = pl_comm_window(c, c->rank);
    uint8_t *data = (uint8_t *)(mine + 1);
    for (int i = 0; i < c->ranks; i++) {
        bool shown;
        if (s->out_bytes[i] == 0) continue;
        mine->at[i] = place(s, c, i, &shown);
        if (!shown) pl_ctx_download(ctx, data + mine->at[i], s->out[i], s->out_bytes[i]);
    }
    if (!pl_ctx_wait(ctx)) return pl_ctx_sync(ctx, err);
    PL_TRY(pl_comm_meet(c, PL_MEET_SWAP, err));
    for (int i = 0; i < c->ranks; i++) {
        const front *theirs = pl_comm_window_seen(c, i);
        if (s->in_bytes[i])
            pl_ctx_upload(ctx, s->in[i], (const uint8_t *)(theirs + 1) + theirs->at[c->rank], s->in_bytes[i]);
    }
    return PL_OK;
}

const pl_transport pl_transport_local = {.name = "local", .open = open_local, .swap = swap};
