#include "kernels/op/draw.h"
#include "kernels/ref.h"
#include <string.h>
#include <tgmath.h>

static void penalise(pl_real *z, const pl_draw_args *a, int i) {
    const pl_draw_row *r = &a->row[i];
    int64_t            V = a->x.dim[1], words = pl_said_words(V);
    if (r->penalty == 1) return;
    for (int64_t v = 0; v < V; v++) {
        bool occurred = pl_said_has(a->said + r->text * words, (int32_t)v);
        for (int at = i; a->row[at].parent >= 0; at = a->row[at].parent)
            occurred |= a->row[at].token == v;
        if (occurred) z[v] = z[v] > 0 ? z[v] / (pl_real)r->penalty : z[v] * (pl_real)r->penalty;
    }
}

// Returns the best token that is not in yet; -1: all are.
static int64_t next_best(const pl_real *z, const uint8_t *in, int64_t V) {
    int64_t best = -1;
    for (int64_t v = 0; v < V; v++)
        if (!in[v] && (best < 0 || z[v] > z[best])) best = v;
    return best;
}

static double sum_of(const pl_real *w, int64_t V) {
    double sum = 0;
    for (int64_t v = 0; v < V; v++)
        sum += (double)w[v];
    return sum;
}

// Marks the n best tokens in in[V], or fewer if those hold `mass`; w by token.
static void best_run(uint8_t *in, const pl_real *z, const pl_real *w, int64_t V, int64_t n, double mass) {
    double kept = 0;
    for (int64_t v = 0; v < V; v++)
        in[v] = 0;
    for (int64_t i = 0; i < n && kept < mass; i++) {
        int64_t v = next_best(z, in, V);
        in[v] = 1;
        kept += (double)w[v];
    }
}

// Sets the weights of filtered tokens to 0. in: [V] scratch.
static void filter(pl_real *w, const pl_real *z, uint8_t *in, const pl_draw_row *r, int64_t V) {
    int64_t most = r->top_k > 0 && r->top_k < V ? r->top_k : V;
    if (most < V) best_run(in, z, w, V, most, INFINITY);
    for (int64_t v = 0; v < V && most < V; v++)
        if (!in[v]) w[v] = 0;
    if (r->top_p < 1) best_run(in, z, w, V, most, r->top_p * sum_of(w, V));
    for (int64_t v = 0; v < V; v++)
        if ((r->top_p < 1 && !in[v]) || (double)w[v] < r->min_p) w[v] = 0;
}

static int32_t drawn(const pl_real *w, int64_t V, double u) {
    double  bound = u * sum_of(w, V), upto = 0;
    int32_t last = -1;
    for (int64_t v = 0; v < V; v++) {
        if (!(w[v] > 0)) continue;
        last = (int32_t)v;
        upto += (double)w[v];
        if (upto > bound) break;
    }
    return last;
}

static int32_t token_of(pl_real *z, pl_real *w, uint8_t *in, const pl_draw_args *a, int i) {
    const pl_draw_row *r = &a->row[i];
    int64_t            V = a->x.dim[1], best = 0;
    memcpy(z, (const pl_real *)a->x.data + r->at * V, (size_t)V * sizeof *z);
    penalise(z, a, i);
    for (int64_t v = 0; v < V; v++) {
        if (isnan(z[v])) return -1;
        if (z[v] > z[best]) best = v;
    }
    if (isinf(z[best])) return -1;
    if (r->temperature == 0) return (int32_t)best;
    for (int64_t v = 0; v < V; v++)
        w[v] = z[v] == z[best] ? 1 : exp((z[v] - z[best]) / (pl_real)r->temperature);
    filter(w, z, in, r, V);
    return drawn(w, V, r->u);
}

void PL_REF(draw_fwd)(pl_ctx *ctx, const void *args) {
    const pl_draw_args *a = args;
    size_t              mark = pl_arena_mark(&ctx->scratch), V = (size_t)a->x.dim[1];
    pl_real            *z = pl_arena_alloc(&ctx->scratch, V * sizeof *z), *w;
    w = pl_arena_alloc(&ctx->scratch, V * sizeof *w);
    uint8_t *in = pl_arena_alloc(&ctx->scratch, V);
    for (int i = 0; i < a->n && !ctx->measuring; i++)
        a->id[i] = token_of(z, w, in, a, i);
    pl_arena_release(&ctx->scratch, mark);
}
