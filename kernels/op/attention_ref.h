// Reference loops over a row's list of keys, shared by attention and blockattention.
#ifndef PL_OP_ATTENTION_REF_H
#define PL_OP_ATTENTION_REF_H

#include "kernels/ref.h"
#include <tgmath.h>

// A key and its value for one query head.
typedef struct key {
    const pl_real *k, *v;
    pl_real       *dk, *dv; // NULL: constants
} key;

// Returns the key at elements at, at + 1, ... of t; its value is `width` further.
static inline key key_in(const pl_tensor *t, int64_t at, int64_t width) {
    key out = {(const pl_real *)t->data + at, (const pl_real *)t->data + at + width, NULL, NULL};
    if (t->grad) {
        out.dk = (pl_real *)t->grad + at;
        out.dv = out.dk + width;
    }
    return out;
}

// A row and head, and its n visible keys in order of position.
typedef struct attending attending;
struct attending {
    const void *args;
    key (*key_at)(const attending *r, int64_t i);
    int64_t          m, n;
    int              h, nh, hd;
    pl_real          scale, cap;
    const float     *sink;    // NULL: none
    const pl_tensor *q;       // rows that begin with the queries
    const pl_tensor *o, *lse; // results of the forward op
    pl_real         *room;    // [2 hd] for a key and a value that are converted from another type
};

static inline pl_real dot(const pl_real *x, const pl_real *y, int n) {
    pl_real sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static inline pl_real score(const attending *r, const pl_real *q, const pl_real *k) {
    pl_real s = r->scale * dot(q, k, r->hd);
    return r->cap > 0 ? r->cap * tanh(s / r->cap) : s;
}

static inline int64_t query_at(const attending *r) {
    return r->m * r->q->dim[1] + (int64_t)r->h * r->hd;
}

// Two passes: the maximum of the scores, then exponentials and value sums in order of position.
static inline void attend_fwd(const attending *r) {
    const pl_real *q = (const pl_real *)r->q->data + query_at(r);
    pl_real       *o = (pl_real *)r->o->data + (r->m * r->nh + r->h) * r->hd, max = -INFINITY, sum = 0;
    if (r->sink) max = (pl_real)r->sink[r->h];
    for (int64_t i = 0; i < r->n; i++) {
        pl_real s = score(r, q, r->key_at(r, i).k);
        if (s > max) max = s;
    }
    for (int d = 0; d < r->hd; d++)
        o[d] = 0;
    if (r->sink) sum = exp((pl_real)r->sink[r->h] - max);
    for (int64_t i = 0; i < r->n; i++) {
        key     at = r->key_at(r, i);
        pl_real p = exp(score(r, q, at.k) - max);
        sum += p;
        for (int d = 0; d < r->hd; d++)
            o[d] += p * at.v[d];
    }
    for (int d = 0; d < r->hd && r->n > 0; d++)
        o[d] /= sum;
    if (r->lse->data) ((pl_real *)r->lse->data)[r->m * r->nh + r->h] = r->n > 0 ? max + log(sum) : 0;
}

// With p = exp(s - lse): dv += p do;  ds = p (do . v - do . o);  dq += scale ds k;  dk += scale ds q. No cap, no sink.
static inline void attend_bwd(const attending *r) {
    int64_t        at_o = (r->m * r->nh + r->h) * r->hd;
    const pl_real *q = (const pl_real *)r->q->data + query_at(r);
    const pl_real *o = (const pl_real *)r->o->data + at_o, *d_o = (const pl_real *)r->o->grad + at_o;
    pl_real       *dq = r->q->grad ? (pl_real *)r->q->grad + query_at(r) : NULL;
    pl_real        lse = ((const pl_real *)r->lse->data)[r->m * r->nh + r->h], mean = dot(d_o, o, r->hd);
    for (int64_t i = 0; i < r->n; i++) {
        key     at = r->key_at(r, i);
        pl_real p = exp(r->scale * dot(q, at.k, r->hd) - lse);
        pl_real ds = r->scale * p * (dot(d_o, at.v, r->hd) - mean);
        for (int d = 0; d < r->hd; d++) {
            if (dq) dq[d] += ds * at.k[d];
            if (at.dk) at.dk[d] += ds * q[d];
            if (at.dv) at.dv[d] += p * d_o[d];
        }
    }
}

#endif
