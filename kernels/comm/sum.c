// Sums over ranks, in the fixed order of kernels/comm/comm.h, in rounds that fit the transport.
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/comm/impl.h"
#include "kernels/op/elementwise.h"

enum { GRAIN = 64 }; // bytes: alignment of pieces

// The tree over n values: value i adds the subtrees to its left that are as large as its own, and the last one all that
// are left. The last value then is the sum.
static void add_by_tree(int n, void (*add)(void *arg, int left, int into), void *arg) {
    for (int i = 0; i < n; i++)
        for (int first = i; first > 0;) { // of the subtree that ends with i
            int left = first & -first;    // size of the one before it
            if (left > i - first + 1 && i < n - 1) break;
            add(arg, first - 1, i);
            first -= left;
        }
}

typedef struct pieces {
    pl_ctx   *ctx;
    pl_tensor rank[PL_RANKS_MAX]; // each rank's addend
} pieces;

static void add_piece(void *arg, int left, int into) {
    const pieces *p = arg;
    pl_add(p->ctx, p->rank[left], p->rank[into], p->rank[into]);
}

// Collects all ranks' values of this rank's part in `room` and writes their sum to the part.
pl_status pl_comm_sum_round(pl_comm *c, pl_ctx *ctx, const pl_comm_round *r, pl_err *err) {
    pl_comm_swap bring = {0};
    pieces       p = {.ctx = ctx};
    pl_dtype     real = ctx->be->real;
    size_t       mine = r->bytes[c->rank];
    uint8_t     *own = r->part[c->rank], *room = c->room;
    for (int i = 0; i < c->ranks; i++) {
        void *at = i == c->rank ? own : room + (size_t)i * mine;
        p.rank[i] = pl_tensor_2d(at, real, 1, (int64_t)(mine / pl_dtype_size(real)));
        if (i == c->rank) continue;
        bring.out[i] = r->part[i];
        bring.out_bytes[i] = r->bytes[i];
        bring.in[i] = at;
        bring.in_bytes[i] = mine;
    }
    PL_TRY(pl_comm_travel(c, ctx, &bring, err));
    if (mine == 0) return PL_OK;
    add_by_tree(c->ranks, add_piece, &p);
    if (c->rank < c->ranks - 1) pl_ctx_copy(ctx, own, p.rank[c->ranks - 1].data, mine);
    return PL_OK;
}

// Sends this rank's part to all, and receives theirs.
pl_status pl_comm_give_round(pl_comm *c, pl_ctx *ctx, const pl_comm_round *r, pl_err *err) {
    pl_comm_swap take = {0};
    for (int i = 0; i < c->ranks; i++) {
        if (i == c->rank) continue;
        take.out[i] = r->part[c->rank];
        take.out_bytes[i] = r->bytes[c->rank];
        take.in[i] = r->part[i];
        take.in_bytes[i] = r->bytes[i];
    }
    return pl_comm_travel(c, ctx, &take, err);
}

pl_status pl_comm_make_room(pl_comm *c, pl_ctx *ctx, pl_err *err) {
    PL_CHECK(c->transport && !pl_ctx_recording(ctx), "a sum over %d ranks without a transport, or on a tape", c->ranks);
    if (!c->room) {
        c->memory = ctx->be->memory;
        c->room = pl_memory_create(c->memory, PL_LOCAL, c->transport->room, err);
        if (!c->room) return PL_E_MEMORY;
    }
    PL_CHECK(c->memory == ctx->be->memory, "sums in two memories (%s)", ctx->be->name);
    return PL_OK;
}

static size_t limit = SIZE_MAX;

void pl_comm_limit_rounds(size_t bytes) {
    limit = bytes;
}

// Returns the most bytes of a rank's part in one round.
static size_t most_of(const pl_comm *c) {
    size_t room = c->transport->room < limit ? c->transport->room : limit, each = room / (size_t)c->ranks;
    return each < GRAIN ? GRAIN : each / GRAIN * GRAIN;
}

size_t pl_comm_rounds(const pl_comm *c, size_t bytes, size_t piece) {
    size_t each = piece > 0 ? most_of(c) : most_of(c) * (size_t)c->ranks, all = piece > 0 ? piece : bytes;
    return (all + each - 1) / each;
}

// Round k of x whole: the next bytes, divided among the ranks.
static void round_of_all(const pl_comm *c, void *x, size_t all, size_t k, pl_comm_round *r) {
    size_t ranks = (size_t)c->ranks, at = k * most_of(c) * ranks, bytes = pl_comm_cut(at, all, most_of(c) * ranks);
    size_t piece = (bytes / ranks + GRAIN - 1) / GRAIN * GRAIN;
    if (piece * ranks < bytes) piece += GRAIN;
    for (size_t i = 0; i < ranks; i++) {
        r->part[i] = (uint8_t *)x + at + i * piece;
        r->bytes[i] = pl_comm_cut(i * piece, bytes, piece);
    }
}

void pl_comm_round_at(const pl_comm *c, void *x, size_t bytes, size_t piece, size_t k, pl_comm_round *r) {
    size_t done = k * most_of(c);
    if (piece == 0) {
        round_of_all(c, x, bytes, k, r);
        return;
    }
    for (size_t i = 0; i < (size_t)c->ranks; i++) {
        size_t end = (i + 1) * piece < bytes ? (i + 1) * piece : bytes;
        r->part[i] = (uint8_t *)x + (i * piece + done < bytes ? i * piece + done : bytes);
        r->bytes[i] = pl_comm_cut(i * piece + done, end, most_of(c));
    }
}

// Runs all rounds, with the requested halves.
static pl_status by_rounds(pl_comm *c, pl_ctx *ctx, void *x, size_t bytes, size_t piece, bool sum, bool give,
                           pl_err *err) {
    PL_TRY(pl_comm_make_room(c, ctx, err));
    PL_CHECK(piece == 0 || piece * (size_t)c->ranks >= bytes, "%d pieces of %zu bytes for %zu", c->ranks, piece, bytes);
    for (size_t k = 0; k < pl_comm_rounds(c, bytes, piece); k++) {
        pl_comm_round r;
        pl_comm_round_at(c, x, bytes, piece, k, &r);
        if (sum) PL_TRY(pl_comm_sum_round(c, ctx, &r, err));
        if (give) PL_TRY(pl_comm_give_round(c, ctx, &r, err));
    }
    return c->transport->settle ? pl_comm_settle(c, ctx, err) : pl_ctx_sync(ctx, err);
}

pl_status pl_comm_sum(pl_comm *c, pl_ctx *ctx, void *x, int64_t n, pl_err *err) {
    if (!c) return PL_OK;
    return by_rounds(c, ctx, x, pl_size_mul((size_t)n, pl_dtype_size(ctx->be->real), 1), 0, true, true, err);
}

pl_status pl_comm_sum_pieces(pl_comm *c, pl_ctx *ctx, void *x, int64_t n, int64_t piece, pl_err *err) {
    if (!c || n == 0) return PL_OK;
    size_t each = pl_dtype_size(ctx->be->real);
    return by_rounds(c, ctx, x, (size_t)n * each, (size_t)piece * each, true, false, err);
}

pl_status pl_comm_gather_pieces(pl_comm *c, pl_ctx *ctx, void *x, size_t bytes, size_t piece, pl_err *err) {
    return c && bytes > 0 ? by_rounds(c, ctx, x, bytes, piece, false, true, err) : PL_OK;
}

static void add_doubles(void *arg, int left, int into) {
    double *x = arg;
    x[into] = x[left] + x[into];
}

pl_status pl_comm_sum_doubles(pl_comm *c, double *x, int n, pl_err *err) {
    double one[PL_RANKS_MAX];
    if (!c) return PL_OK;
    PL_CHECK(n >= 0 && n <= 4096, "%d doubles", n);
    size_t  bytes = (size_t)n * sizeof *x;
    double *all = pl_malloc((size_t)c->ranks * bytes + sizeof *all);
    if (!all) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    pl_status st = pl_comm_show(c, PL_MEET_DOUBLES, x, (uint8_t *)all, bytes, err);
    for (int i = 0; i < n && st == PL_OK; i++) {
        for (int r = 0; r < c->ranks; r++)
            one[r] = r == c->rank ? x[i] : all[(size_t)r * (size_t)n + (size_t)i];
        add_by_tree(c->ranks, add_doubles, one);
        x[i] = one[c->ranks - 1];
    }
    pl_free(all);
    return st;
}
