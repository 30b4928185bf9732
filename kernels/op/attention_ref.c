#include "kernels/op/attention.h"
#include "kernels/ref.h"
#include <tgmath.h>

// Key number i of what row m, head h sees, in order of position; n_keys of them.
typedef struct key {
    const pl_real *k, *v;
    pl_real       *dk, *dv; // NULL: constants
} key;

static int64_t n_keys(const pl_attention_args *a, int64_t m) {
    if (a->row) {
        int32_t all = a->row[m].n_ctx + a->row[m].n_path;
        return all - pl_attention_first(all, a->window);
    }
    return a->lo[m] < 0 ? 0 : m - a->lo[m] + 1 + a->n_blocks - 1;
}

static key key_at(const pl_attention_args *a, int64_t m, int h, int64_t i) {
    int64_t head = h / (a->nh / a->nkv) * (int64_t)a->hd, kv = (int64_t)a->nkv * a->hd;
    if (a->row) {
        const pl_kvrow *r = &a->row[m];
        i += pl_attention_first(r->n_ctx + r->n_path, a->window);
        int64_t slot = i < r->n_ctx || !r->path ? i : r->path[i - r->n_ctx];
        return (key){(const pl_real *)r->k + slot * kv + head, (const pl_real *)r->v + slot * kv + head, NULL, NULL};
    }
    int64_t          own = m - a->lo[m] + 1; // keys of the causal block; the diagonals follow
    const pl_tensor *b = &a->block[i < own ? 0 : i - own + 1];
    int64_t          at = (i < own ? a->lo[m] + i : m) * b->dim[1] + (int64_t)a->nh * a->hd + head;
    key              out = {(const pl_real *)b->data + at, (const pl_real *)b->data + at + kv, NULL, NULL};
    if (b->grad) {
        out.dk = (pl_real *)b->grad + at;
        out.dv = out.dk + kv;
    }
    return out;
}

static pl_real dot(const pl_real *x, const pl_real *y, int n) {
    pl_real sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static pl_real score(const pl_attention_args *a, const pl_real *q, const pl_real *k) {
    pl_real s = (pl_real)a->scale * dot(q, k, a->hd), cap = (pl_real)a->cap;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

static const pl_tensor *queries(const pl_attention_args *a) {
    return a->row ? &a->qkv : &a->block[a->n_blocks - 1];
}

// Two passes: the maximum of the scores, then exponentials and value sums in order of position.
void PL_REF(attention_fwd)(pl_ctx *ctx, const void *args) {
    const pl_attention_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    const pl_tensor *q = queries(a);
    for (int64_t m = 0; m < q->dim[0]; m++)
        for (int h = 0; h < a->nh; h++) {
            const pl_real *query = (const pl_real *)q->data + m * q->dim[1] + (int64_t)h * a->hd;
            pl_real       *o = (pl_real *)a->o.data + (m * a->nh + h) * a->hd, max = -INFINITY, sum = 0;
            int64_t        n = n_keys(a, m);
            if (a->sink) max = (pl_real)a->sink[h];
            for (int64_t i = 0; i < n; i++) {
                pl_real s = score(a, query, key_at(a, m, h, i).k);
                if (s > max) max = s;
            }
            for (int d = 0; d < a->hd; d++)
                o[d] = 0;
            if (a->sink) sum = exp((pl_real)a->sink[h] - max);
            for (int64_t i = 0; i < n; i++) {
                key     at = key_at(a, m, h, i);
                pl_real p = exp(score(a, query, at.k) - max);
                sum += p;
                for (int d = 0; d < a->hd; d++)
                    o[d] += p * at.v[d];
            }
            for (int d = 0; d < a->hd && n > 0; d++)
                o[d] /= sum;
            if (a->lse.data) ((pl_real *)a->lse.data)[m * a->nh + h] = n > 0 ? max + log(sum) : 0;
        }
}

// With p = exp(s - lse): dv += p do;  ds = p (do . v - do . o);  dq += scale ds k;  dk += scale ds q.
void PL_REF(attention_bwd)(pl_ctx *ctx, const void *args) {
    const pl_attention_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->o.grad) return;
    const pl_tensor *q = queries(a);
    pl_real          scale = (pl_real)a->scale;
    for (int64_t m = 0; m < q->dim[0]; m++)
        for (int h = 0; h < a->nh; h++) {
            int64_t        at_q = m * q->dim[1] + (int64_t)h * a->hd, at_o = (m * a->nh + h) * a->hd;
            const pl_real *query = (const pl_real *)q->data + at_q;
            const pl_real *o = (const pl_real *)a->o.data + at_o, *d_o = (const pl_real *)a->o.grad + at_o;
            pl_real       *dq = q->grad ? (pl_real *)q->grad + at_q : NULL;
            pl_real        lse = ((const pl_real *)a->lse.data)[m * a->nh + h], mean = dot(d_o, o, a->hd);
            for (int64_t i = 0; i < n_keys(a, m); i++) {
                key     at = key_at(a, m, h, i);
                pl_real p = exp(scale * dot(query, at.k, a->hd) - lse);
                pl_real ds = scale * p * (dot(d_o, at.v, a->hd) - mean);
                for (int d = 0; d < a->hd; d++) {
                    if (dq) dq[d] += ds * at.k[d];
                    if (at.dk) at.dk[d] += ds * query[d];
                    if (at.dv) at.dv[d] += p * d_o[d];
                }
            }
        }
}
