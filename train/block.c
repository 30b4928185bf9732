#include "train/block.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/rng.h"

#include <string.h>

static size_t bytes_of(const pl_param_block *b, int64_t n) {
    return pl_size_mul((size_t)n, pl_dtype_size(b->real), 1);
}

static void *element(const pl_param_block *b, void *block, int64_t at) {
    return (uint8_t *)block + (size_t)at * pl_dtype_size(b->real);
}

static double rounded(const pl_param_block *b, double x) {
    return b->round_to == PL_BF16 ? (double)pl_round_bf16((float)x) : x;
}

static void put(const pl_param_block *b, void *block, int64_t i, double x) {
    if (b->real == PL_F64)
        ((double *)block)[i] = x;
    else
        ((float *)block)[i] = (float)x;
}

static double get(const pl_param_block *b, const void *block, int64_t i) {
    return b->real == PL_F64 ? ((const double *)block)[i] : (double)((const float *)block)[i];
}

int64_t pl_param_block_count(const pl_param_block *b, int i) {
    const pl_weight_spec *s = &b->params->p[i].spec;
    return s->rows * (s->cols > 0 ? s->cols : 1);
}

// Which of the three stretches a parameter lies in: 0 decayed, 1 undecayed, 2 frozen.
static int stretch(const pl_param_block *b, int i, bool decay_embed) {
    pl_param_kind kind = b->params->p[i].kind;
    if (b->frozen[i]) return 2;
    return kind == PL_PARAM_MATRIX || (kind == PL_PARAM_EMBED && decay_embed) ? 0 : 1;
}

static void lay_out(pl_param_block *b, bool decay_embed) {
    int64_t at = 0;
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < b->params->n; i++) {
            if (stretch(b, i, decay_embed) != s) continue;
            b->at[i] = at;
            at += (pl_param_block_count(b, i) + PL_BLOCK_GRAIN - 1) / PL_BLOCK_GRAIN * PL_BLOCK_GRAIN;
        }
        if (s == 0) b->n_decayed = at;
        if (s == 1) b->n = at;
    }
    b->n_work = at;
}

static void bind(pl_param_block *b) {
    for (int i = 0; i < b->params->n; i++) {
        const pl_param *p = &b->params->p[i];
        void           *data = element(b, b->work, b->at[i]);
        *p->tensor = p->spec.cols > 0 ? pl_tensor_2d(data, b->real, p->spec.rows, p->spec.cols)
                                      : pl_tensor_1d(data, b->real, p->spec.rows);
        if (!b->frozen[i]) p->tensor->grad = element(b, b->grad, b->at[i]);
    }
}

pl_status pl_param_block_create(pl_param_block *b, pl_params *params, const pl_param_block_options *o, pl_err *err) {
    PL_CHECK(o->real == PL_F32 || o->real == PL_F64, "blocks of %s", pl_dtype_name(o->real));
    PL_CHECK(o->round_to == PL_F32 || o->round_to == PL_BF16, "rounding to %s", pl_dtype_name(o->round_to));
    *b = (pl_param_block){.params = params, .real = o->real, .round_to = o->round_to};
    b->at = pl_calloc((size_t)params->n, sizeof *b->at);
    b->frozen = pl_calloc((size_t)params->n, sizeof *b->frozen);
    if (!b->at || !b->frozen) {
        pl_param_block_destroy(b);
        return pl_fail(err, PL_E_MEMORY, "training: out of memory for a list of %d parameters", params->n);
    }
    if (o->frozen) memcpy(b->frozen, o->frozen, (size_t)params->n * sizeof *b->frozen);
    lay_out(b, o->decay_embed);
    void **block[4] = {&b->w, &b->m, &b->v, &b->grad};
    bool   ok = (b->work = pl_block_create(bytes_of(b, b->n_work), err)) != NULL;
    for (int i = 0; i < 4 && ok; i++)
        ok = (*block[i] = pl_block_create(bytes_of(b, b->n), err)) != NULL;
    if (!ok) {
        pl_param_block_destroy(b);
        return PL_E_MEMORY;
    }
    bind(b);
    return PL_OK;
}

void pl_param_block_destroy(pl_param_block *b) {
    void *block[4] = {b->w, b->m, b->v, b->grad};
    for (int i = 0; i < 4; i++)
        if (block[i]) pl_block_destroy(block[i], bytes_of(b, b->n));
    if (b->work) pl_block_destroy(b->work, bytes_of(b, b->n_work));
    pl_free(b->at);
    pl_free(b->frozen);
    *b = (pl_param_block){0};
}

// One element of parameter i: the master (unless frozen) and the working value.
static void store(pl_param_block *b, int i, int64_t j, double x) {
    int64_t at = b->at[i] + j;
    if (!b->frozen[i]) put(b, b->w, at, x);
    put(b, b->work, at, rounded(b, x));
}

void pl_param_block_init(pl_param_block *b, uint64_t seed) {
    for (int i = 0; i < b->params->n; i++) {
        const pl_param *p = &b->params->p[i];
        pl_rng          rng = pl_rng_make(seed, PL_STREAM_INIT, (uint64_t)i);
        int64_t         n = pl_param_block_count(b, i);
        for (int64_t j = 0; j < n; j++) {
            double x = p->kind == PL_PARAM_NORM ? 1
                       : p->init_std > 0        ? p->init_std * (double)pl_rng_normal(rng, (uint64_t)j)
                                                : 0;
            store(b, i, j, (double)(float)x);
        }
    }
}

void pl_param_block_set(pl_param_block *b, int i, const float *values) {
    int64_t n = pl_param_block_count(b, i);
    for (int64_t j = 0; j < n; j++)
        store(b, i, j, (double)values[j]);
}

pl_status pl_param_block_read(pl_param_block *b, const pl_weight_source *src, pl_err *err) {
    for (int i = 0; i < b->params->n; i++) {
        pl_weight_spec spec = b->params->p[i].spec;
        for (int k = 0; k < spec.n_parts; k++)
            spec.part[k].name = b->params->p[i].name[k];
        float *values = pl_malloc(pl_size_mul((size_t)pl_param_block_count(b, i), sizeof *values, 1));
        if (!values) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", b->params->p[i].name[0]);
        pl_status st = pl_weight_read_f32(src, &spec, values, err);
        if (st == PL_OK) pl_param_block_set(b, i, values);
        pl_free(values);
        pl_weight_drop(src, &spec);
        if (st != PL_OK) return st;
    }
    return PL_OK;
}

void pl_param_block_refresh(pl_param_block *b) {
    for (int64_t j = 0; j < b->n; j++)
        put(b, b->work, j, rounded(b, get(b, b->w, j)));
}

enum { ZERO_PARTS = 64 };

typedef struct zero_job {
    uint8_t *p;
    size_t   bytes;
} zero_job;

static void zero_part(void *arg, int part, int parts) {
    const zero_job *z = arg;
    long            lo, hi;
    pl_range((long)z->bytes, 4096, part, parts, &lo, &hi);
    if (hi > lo) memset(z->p + lo, 0, (size_t)(hi - lo));
}

void pl_param_block_zero_grad(pl_param_block *b, pl_pool *pool) {
    zero_job z = {b->grad, bytes_of(b, b->n)};
    pl_parallel(pool, z.bytes < (1 << 16) ? 1 : ZERO_PARTS, zero_part, &z);
}

pl_status pl_param_view_init(pl_param_view *v, const pl_param_block *b, pl_err *err) {
    *v = (pl_param_view){.data = pl_calloc((size_t)b->params->n, sizeof *v->data)};
    bool ok = v->data != NULL;
    if (ok && b->real != PL_F32) {
        v->copy = pl_malloc(pl_size_mul((size_t)b->n_work, sizeof *v->copy, 1));
        ok = v->copy != NULL;
        for (int64_t j = 0; ok && j < b->n_work; j++)
            v->copy[j] = (float)get(b, b->work, j);
    }
    if (!ok) {
        pl_param_view_fini(v);
        return pl_fail(err, PL_E_MEMORY, "training: out of memory for a copy of the weights");
    }
    const float *base = v->copy ? v->copy : b->work;
    for (int i = 0; i < b->params->n; i++)
        v->data[i] = base + b->at[i];
    return PL_OK;
}

void pl_param_view_fini(pl_param_view *v) {
    pl_free(v->data);
    pl_free(v->copy);
    *v = (pl_param_view){0};
}
