#include "infer/head/outside.h"

#include "kernels/base/arena.h"

#include <string.h>

pl_status pl_outside_init(pl_outside *o, int thousandths, const int32_t *on, int64_t v, const int32_t *d2t, int64_t vd,
                          const char *where, pl_err *err) {
    *o = (pl_outside){.share = (double)thousandths / PL_OUTSIDE_WHOLE, .v = v, .vd = vd};
    o->on = pl_malloc(pl_size_mul((size_t)v, sizeof *o->on, 1));
    o->n = pl_calloc((size_t)vd, sizeof *o->n);
    pl_status st = o->on && o->n ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", where);
    for (int64_t y = 0; y < v && st == PL_OK; y++) {
        o->on[y] = on[y];
        if (on[y] < 0 || on[y] >= vd)
            st = pl_fail(err, PL_E_INPUT, "%s: " PL_OUTSIDE_TENSOR "[%lld] is %d, the draft vocabulary has %lld", where,
                         (long long)y, on[y], (long long)vd);
        else
            o->n[on[y]]++;
    }
    for (int64_t x = 0; x < vd && st == PL_OK; x++) {
        if (o->on[d2t[x]] != x)
            st = pl_fail(err, PL_E_INPUT, "%s: " PL_OUTSIDE_TENSOR "[%d] is %d, but draft id %lld stands for it", where,
                         d2t[x], o->on[d2t[x]], (long long)x);
        o->n[x]--; // not counting itself
    }
    if (st != PL_OK) pl_outside_fini(o);
    return st;
}

void pl_outside_fini(pl_outside *o) {
    pl_free(o->on);
    pl_free(o->n);
    *o = (pl_outside){0};
}

pl_status pl_outside_read(pl_outside *o, int thousandths, const pl_weight_source *src, int64_t v, const int32_t *d2t,
                          int64_t vd, pl_err *err) {
    const char            *where = pl_weight_source_path(src);
    const pl_weight_entry *e = pl_weight_source_find(src, PL_OUTSIDE_TENSOR);
    if (!e)
        return pl_fail(err, PL_E_INPUT,
                       "%s: no tensor \"" PL_OUTSIDE_TENSOR "\", which a head that redistributes needs", where);
    if (e->dtype != PL_I32 || e->rank != 1 || e->shape[0] != v)
        return pl_fail(err, PL_E_INPUT, "%s: tensor \"" PL_OUTSIDE_TENSOR "\": expected int32 [%lld]", where,
                       (long long)v);
    int32_t *on = pl_malloc(pl_size_mul((size_t)v, sizeof *on, 1)); // views may be unaligned
    if (!on) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", where);
    memcpy(on, e->data, (size_t)v * sizeof *on);
    pl_status st = pl_outside_init(o, thousandths, on, v, d2t, vd, where, err);
    pl_free(on);
    return st;
}

pl_st_source pl_outside_tensor(const pl_outside *o) {
    return (pl_st_source){.name = PL_OUTSIDE_TENSOR, .dtype = PL_I32, .rank = 1, .shape = {o->v}, .data = o->on};
}

static void spread_mass(const pl_outside *o, double *q, const double *q_list, const int32_t *d2t) {
    for (int64_t y = 0; y < o->v; y++) {
        int32_t x = o->on[y];
        q[y] = o->n[x] ? o->share * q_list[x] / o->n[x] : 0;
    }
    for (int64_t x = 0; x < o->vd; x++)
        q[d2t[x]] = o->n[x] ? (1 - o->share) * q_list[x] : q_list[x];
}

void pl_drafted_distribution(const pl_drafted *d, double *q, int64_t v, const double *q_list) {
    if (d->outside) {
        spread_mass(d->outside, q, q_list, d->d2t);
        return;
    }
    memset(q, 0, (size_t)v * sizeof *q);
    for (int64_t i = 0; i < d->n; i++)
        q[d->d2t ? d->d2t[i] : i] = q_list[i];
}
