// Moves pieces by the group, through the host's memory: in place if that is the backend's own, else by download and
// upload.
#include "kernels/base/arena.h"
#include "kernels/comm/impl.h"

// For a device's pieces: outgoing and incoming bytes. NULL for the host's own memory.
typedef struct stage {
    uint8_t *out, *in; // PL_COMM_ROUND each; `out` owned, both in one block
} stage;

static pl_status open_host(pl_comm *c, const pl_backend *be, pl_err *err) {
    if (!be->memory) return PL_OK;
    stage *s = pl_calloc(1, sizeof *s);
    if (s) s->out = pl_malloc(2 * PL_COMM_ROUND);
    if (!s || !s->out) {
        pl_free(s);
        return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    }
    s->in = s->out + PL_COMM_ROUND;
    c->own = s;
    return PL_OK;
}

static void close_host(pl_comm *c) {
    stage *s = c->own;
    if (s) pl_free(s->out);
    pl_free(s);
    c->own = NULL;
}

// Downloads outgoing pieces, once if several ranks get the same bytes, and sets the addresses for incoming ones.
static void download_pieces(const stage *st, pl_comm_swap *host, const pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s) {
    size_t      out = 0, in = 0, last_bytes = 0;
    const void *last = NULL;
    for (int i = 0; i < c->ranks; i++) {
        if (s->out_bytes[i] > 0) {
            bool again = last == s->out[i] && last_bytes == s->out_bytes[i];
            if (again) out -= s->out_bytes[i];
            host->out[i] = st->out + out;
            if (!again) pl_ctx_download(ctx, st->out + out, s->out[i], s->out_bytes[i]);
            out += s->out_bytes[i];
            last = s->out[i];
            last_bytes = s->out_bytes[i];
        }
        host->in[i] = st->in + in;
        in += s->in_bytes[i];
        host->out_bytes[i] = s->out_bytes[i];
        host->in_bytes[i] = s->in_bytes[i];
    }
}

static pl_status swap(pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s, pl_err *err) {
    pl_comm_swap host = {0};
    if (c->own) download_pieces(c->own, &host, c, ctx, s);
    if (!pl_ctx_wait(ctx)) return pl_ctx_sync(ctx, err); // also frees the sources of the last uploads
    PL_TRY(c->group->swap(c, PL_MEET_SWAP, c->own ? &host : s, err));
    for (int i = 0; i < c->ranks && c->own; i++)
        if (s->in_bytes[i]) pl_ctx_upload(ctx, s->in[i], host.in[i], s->in_bytes[i]);
    return PL_OK;
}

const pl_transport pl_transport_host = {
    .name = "host", .room = PL_COMM_ROUND, .open = open_host, .swap = swap, .close = close_host};
