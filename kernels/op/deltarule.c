#include "kernels/op/deltarule.h"
#include "kernels/base/check.h"
#include <string.h>

static void check_shape(const pl_gdn_shape *s) {
    PL_CHECK(s->nk > 0 && s->nv > 0 && s->nv % s->nk == 0 && s->dk > 0 && s->dv > 0 && s->taps >= 1 &&
                 s->taps <= PL_GDN_TAPS,
             "delta rule: %d value heads of %d on %d key heads of %d, %d taps", s->nv, s->dv, s->nk, s->dk, s->taps);
}

pl_tensor pl_shortconv(pl_ctx *ctx, pl_tensor x, pl_tensor w, const pl_kvrow *row, const pl_gdn_shape *s) {
    check_shape(s);
    PL_CHECK(row && !pl_ctx_recording(ctx), "a convolution over sessions has no gradient: row %p", (const void *)row);
    PL_CHECK(x.rank == 2 && x.dim[1] == pl_gdn_channels(s) && x.dtype == ctx->be->real && w.dtype == ctx->be->real &&
                 w.dim[0] == x.dim[1] * s->taps,
             "shortconv: x %s [%lld, %lld], w %s [%lld]", pl_dtype_name(x.dtype), (long long)x.dim[0],
             (long long)x.dim[1], pl_dtype_name(w.dtype), (long long)w.dim[0]);
    pl_shortconv_args a = {.x = x, .w = w, .row = row, .shape = *s, .y = pl_ctx_const(ctx, x.dim[0], x.dim[1])};
    pl_run(ctx, PL_OP_SHORTCONV, &a, sizeof a);
    return a.y;
}

pl_tensor pl_deltarule(pl_ctx *ctx, pl_tensor x, pl_tensor gates, pl_tensor a_log, pl_tensor dt, const pl_kvrow *row,
                       const pl_gdn_shape *s) {
    check_shape(s);
    pl_dtype real = ctx->be->real;
    PL_CHECK(row && !pl_ctx_recording(ctx), "a recurrence has no gradient: row %p", (const void *)row);
    PL_CHECK(x.rank == 2 && x.dim[1] == pl_gdn_channels(s) && gates.rank == 2 && gates.dim[0] == x.dim[0] &&
                 gates.dim[1] == 2 * s->nv && a_log.dim[0] == s->nv && dt.dim[0] == s->nv,
             "deltarule: x [%lld, %lld], gates [%lld, %lld]", (long long)x.dim[0], (long long)x.dim[1],
             (long long)gates.dim[0], (long long)gates.dim[1]);
    PL_CHECK(x.dtype == real && gates.dtype == real && a_log.dtype == real && dt.dtype == real,
             "deltarule: x %s, gates %s, a_log %s, dt %s", pl_dtype_name(x.dtype), pl_dtype_name(gates.dtype),
             pl_dtype_name(a_log.dtype), pl_dtype_name(dt.dtype));
    pl_deltarule_args a = {.x = x, .gates = gates, .a_log = a_log, .dt = dt, .row = row, .shape = *s};
    a.o = pl_ctx_const(ctx, x.dim[0], (int64_t)s->nv * s->dv);
    pl_run(ctx, PL_OP_DELTARULE, &a, sizeof a);
    return a.o;
}

void pl_replay(pl_ctx *ctx, const pl_replay_args *a) {
    check_shape(&a->shape);
    PL_CHECK(a->most >= 0 && a->most < PL_GDN_NODES && a->layers >= 0, "replay of up to %d rows", a->most);
    PL_CHECK(ctx->measuring || (a->rows[0] >= 0 && a->rows[0] <= a->most), "replay of %d rows of %d", a->rows[0],
             a->most);
    if (a->layers > 0) pl_run(ctx, PL_OP_REPLAY, a, sizeof *a);
}

void pl_gdn_push(void *window, int64_t rows, const void *x, size_t bytes) {
    if (rows == 0) return;
    memmove(window, (char *)window + bytes, (size_t)(rows - 1) * bytes);
    memcpy((char *)window + (size_t)(rows - 1) * bytes, x, bytes);
}

// ---- the order of rows ----------------------------------------------------------------------------------------------

// Returns the end of the rows that stand together with row `first`: those of its session.
static int64_t end_of_session(const pl_kvrow *row, int64_t rows, int64_t first) {
    int64_t end = first + 1;
    while (end < rows && row[end].k == row[first].k)
        end++;
    return end;
}

static int64_t find_parent(const pl_kvrow *row, int64_t first, int64_t m) {
    const pl_kvrow *r = &row[m];
    if (!r->path || r->n_path == 1) {
        PL_CHECK(r->n_path == m - first + 1 && !r->path == !row[first].path, "row %lld of a session has a path of %d",
                 (long long)(m - first), r->n_path);
        return m == first ? -1 : m - 1;
    }
    int64_t p = m - 1;
    while (p >= first && row[p].slot != r->path[r->n_path - 2])
        p--;
    PL_CHECK(p >= first && row[p].n_path == r->n_path - 1, "row %lld of a session: no parent at slot %d",
             (long long)(m - first), r->path[r->n_path - 2]);
    return p;
}

void pl_gdn_parents(const pl_kvrow *row, int64_t rows, int32_t *parent) {
    for (int64_t first = 0, end; first < rows; first = end) {
        end = end_of_session(row, rows, first);
        PL_CHECK(!row[first].path || end - first <= PL_GDN_NODES, "a tree of %lld nodes", (long long)(end - first));
        for (int64_t m = first; m < end; m++)
            parent[m] = (int32_t)find_parent(row, first, m);
    }
}

// A tree's rows from `first` to `end`, by parent; lists of children, ascending.
typedef struct walk {
    int32_t first, end, *parent, *size, *child, *next;
} walk;

static void link_children(const walk *w) {
    for (int32_t m = w->first; m < w->end; m++) {
        w->size[m] = 1;
        w->child[m] = -1;
    }
    for (int32_t m = w->end - 1; m > w->first; m--) {
        int32_t p = w->parent[m];
        w->size[p] += w->size[m];
        w->next[m] = w->child[p];
        w->child[p] = m;
    }
}

// Returns the child with the most nodes, which may overwrite its parent's state once the others are done. The root's
// state is the session's and stays.
static int32_t heaviest_child(const walk *w, const pl_gdn_step *s) {
    int32_t heavy = -1;
    for (int32_t c = w->child[s->row]; c >= 0 && s->to != PL_GDN_OWN; c = w->next[c])
        if (heavy < 0 || w->size[c] > w->size[heavy]) heavy = c;
    return heavy;
}

// Writes the steps of one tree; returns the end of them.
static pl_gdn_step *walk_tree(const walk *w, pl_gdn_step *step) {
    pl_gdn_step stack[PL_GDN_NODES];
    int         waiting = 0;
    stack[waiting++] = (pl_gdn_step){w->first, PL_GDN_OWN, PL_GDN_OWN};
    while (waiting > 0) {
        pl_gdn_step s = stack[--waiting];
        int32_t     heavy = heaviest_child(w, &s);
        *step++ = s;
        PL_CHECK(s.to < PL_GDN_STATES, "a tree takes %d states", s.to + 1);
        if (heavy >= 0) stack[waiting++] = (pl_gdn_step){heavy, s.to, s.to};
        for (int32_t c = w->child[s.row]; c >= 0; c = w->next[c])
            if (c != heavy) stack[waiting++] = (pl_gdn_step){c, s.to, s.to + 1};
    }
    return step;
}

void pl_gdn_order(const pl_kvrow *row, int64_t rows, pl_gdn_step *step, int32_t *work) {
    walk w = {.parent = work, .size = work + rows, .child = work + 2 * rows, .next = work + 3 * rows};
    pl_gdn_parents(row, rows, w.parent);
    for (int64_t first = 0, end; first < rows; first = end) {
        end = end_of_session(row, rows, first);
        w.first = (int32_t)first;
        w.end = (int32_t)end;
        if (row[first].path) {
            link_children(&w);
            step = walk_tree(&w, step);
        } else {
            for (int64_t m = first; m < end; m++)
                *step++ = (pl_gdn_step){(int32_t)m, PL_GDN_OWN, PL_GDN_OWN};
        }
    }
}
