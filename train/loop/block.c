#include "train/loop/block.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/rng.h"
#include "kernels/base/room.h"
#include "kernels/op/adamw.h"

#include <stdio.h>
#include <string.h>

static size_t bytes_of(const pl_param_block *b, int64_t n) {
    return pl_size_mul((size_t)n, pl_dtype_size(b->real), 1);
}

static size_t half_bytes(int64_t n) {
    return pl_size_mul((size_t)n, sizeof(uint16_t), 1);
}

static void *element_at(const pl_param_block *b, void *block, int64_t at) {
    return (uint8_t *)block + (size_t)at * pl_dtype_size(b->real);
}

static double round_master(const pl_param_block *b, double x) {
    return b->round_to == PL_BF16 ? (double)pl_round_bf16((float)x) : x;
}

static void put_real(const pl_param_block *b, void *block, int64_t i, double x) {
    if (b->real == PL_F64)
        ((double *)block)[i] = x;
    else
        ((float *)block)[i] = (float)x;
}

static double get_real(const pl_param_block *b, const void *block, int64_t i) {
    return b->real == PL_F64 ? ((const double *)block)[i] : (double)((const float *)block)[i];
}

int64_t pl_param_block_count(const pl_param_block *b, int i) {
    const pl_weight_spec *s = &b->params->p[i].spec;
    return s->rows * (s->cols > 0 ? s->cols : 1);
}

// Returns the region of a parameter: 0 decayed, 1 undecayed, 2 frozen.
static int region_of(const pl_param_block *b, int i, bool decay_embed) {
    pl_param_kind kind = b->params->p[i].kind;
    if (b->frozen[i]) return 2;
    return kind == PL_PARAM_MATRIX || (kind == PL_PARAM_EMBED && decay_embed) ? 0 : 1;
}

static void lay_out(pl_param_block *b, bool decay_embed) {
    int64_t at = 0;
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < b->params->n; i++) {
            if (region_of(b, i, decay_embed) != s) continue;
            b->at[i] = at;
            at += (pl_param_block_count(b, i) + PL_BLOCK_GRAIN - 1) / PL_BLOCK_GRAIN * PL_BLOCK_GRAIN;
        }
        if (s == 0) b->n_decayed = at;
        if (s == 1) b->n = at;
    }
    b->n_work = at;
}

static void cut_piece(pl_param_block *b, pl_shard s) {
    b->shard = s;
    b->piece = b->n;
    if (s.ranks > 1) b->piece = (pl_sumsq_chunks(b->n) + s.ranks - 1) / s.ranks * PL_SUMSQ_CHUNK;
    b->first = s.rank * b->piece < b->n ? s.rank * b->piece : b->n;
    b->held = b->n - b->first < b->piece ? b->n - b->first : b->piece;
}

static void bind_tensors(pl_param_block *b) {
    for (int i = 0; i < b->params->n; i++) {
        const pl_param *p = &b->params->p[i];
        void           *data = element_at(b, b->work, b->at[i]);
        *p->tensor = p->spec.cols > 0 ? pl_tensor_2d(data, b->real, p->spec.rows, p->spec.cols)
                                      : pl_tensor_1d(data, b->real, p->spec.rows);
        if (b->work16) p->tensor->bf16 = b->work16 + b->at[i];
        if (!b->frozen[i]) p->tensor->grad = element_at(b, b->grad, b->at[i]);
    }
}

// Checks that memory suffices for master, two moments and gradient of trained parameters, and the working copy of all.
static pl_status room_for(const pl_param_block *b, const pl_backend *be, pl_err *err) {
    double each = (double)pl_dtype_size(b->real), work = (double)b->n_work * each;
    char   what[96], mend[128];
    double bytes = work + (double)(b->n + 3 * b->held) * each, have = 0;
    bool   lacks;
    if (b->round_to == PL_BF16) bytes += (double)b->n_work * 2;
    if (!pl_backend_on_host(be)) return PL_OK;
    PL_TRY(pl_memory_lacks(bytes, &lacks, &have, err));
    if (!lacks) return PL_OK;
    snprintf(what, sizeof what, "training %.1f million parameters", (double)b->n_work / 1e6);
    snprintf(mend, sizeof mend, "a model of %.1f million would fit, its activations apart",
             (double)b->n_work / 1e6 * have / bytes);
    return pl_memory_room(bytes, what, mend, err);
}

pl_status pl_param_block_create(pl_param_block *b, pl_params *params, const pl_param_block_options *o, pl_err *err) {
    pl_dtype real = o->backend->real;
    PL_CHECK(real == PL_F32 || real == PL_F64, "blocks of %s", pl_dtype_name(real));
    PL_CHECK(o->round_to == PL_F32 || o->round_to == PL_BF16, "rounding to %s", pl_dtype_name(o->round_to));
    *b = (pl_param_block){.params = params, .real = real, .round_to = o->round_to, .memory = o->backend->memory};
    b->at = pl_calloc((size_t)params->n, sizeof *b->at);
    b->frozen = pl_calloc((size_t)params->n, sizeof *b->frozen);
    if (!b->at || !b->frozen) {
        pl_param_block_destroy(b);
        return pl_fail(err, PL_E_MEMORY, "training: out of memory for a list of %d parameters", params->n);
    }
    if (o->frozen) memcpy(b->frozen, o->frozen, (size_t)params->n * sizeof *b->frozen);
    lay_out(b, o->decay_embed);
    cut_piece(b, o->shard);
    pl_status room = room_for(b, o->backend, err);
    if (room != PL_OK) {
        pl_param_block_destroy(b);
        return room;
    }
    void  **block[4] = {&b->w, &b->m, &b->v, &b->grad};
    int64_t size[4] = {b->held, b->held, b->held, b->n};
    bool    ok = (b->work = pl_memory_create(b->memory, PL_LOCAL, bytes_of(b, b->n_work), err)) != NULL;
    if (b->round_to == PL_BF16 && ok)
        ok = (b->work16 = pl_memory_create(b->memory, PL_LOCAL, half_bytes(b->n_work), err)) != NULL;
    for (int i = 0; i < 4 && ok; i++)
        ok = (*block[i] = pl_memory_create(b->memory, PL_LOCAL, bytes_of(b, size[i]), err)) != NULL;
    if (!ok) {
        pl_param_block_destroy(b);
        return PL_E_MEMORY;
    }
    bind_tensors(b);
    return PL_OK;
}

void pl_param_block_destroy(pl_param_block *b) {
    void   *block[4] = {b->w, b->m, b->v, b->grad};
    int64_t size[4] = {b->held, b->held, b->held, b->n};
    for (int i = 0; i < 4; i++)
        if (block[i]) pl_memory_destroy(b->memory, PL_LOCAL, block[i], bytes_of(b, size[i]));
    if (b->work) pl_memory_destroy(b->memory, PL_LOCAL, b->work, bytes_of(b, b->n_work));
    if (b->work16) pl_memory_destroy(b->memory, PL_LOCAL, b->work16, half_bytes(b->n_work));
    pl_free(b->at);
    pl_free(b->frozen);
    *b = (pl_param_block){0};
}

// Writes the working copy's elements from `at` on to the bf16 copy as well; from: their values on the host.
static pl_status put_halves(const pl_param_block *b, int64_t at, const float *from, int64_t n, pl_err *err) {
    if (!b->work16 || n == 0) return PL_OK;
    uint16_t *h = pl_memory_stage(b->memory, b->work16 + at, half_bytes(n));
    if (h) pl_from_f32(h, PL_BF16, from, (size_t)n);
    pl_status st = h ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory for the weights");
    return pl_memory_put(b->memory, b->work16 + at, h, half_bytes(n), st, err);
}

// A parameter while the host fills it: the held part of its master (unless frozen), and its working copy.
typedef struct filling {
    void   *w, *work;
    int64_t from, to; // held part of the parameter
    size_t  bytes;    // bytes of the working copy
} filling;

static int64_t clamp_to(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

static pl_status fill_begin(const pl_param_block *b, int i, filling *f, pl_err *err) {
    int64_t n = pl_param_block_count(b, i), first = b->first - b->at[i];
    *f = (filling){.bytes = bytes_of(b, n)};
    if (!b->frozen[i]) {
        f->from = clamp_to(first, 0, n);
        f->to = clamp_to(first + b->held, 0, n);
    }
    f->work = pl_memory_stage(b->memory, element_at(b, b->work, b->at[i]), f->bytes);
    if (f->work && f->to > f->from)
        f->w = pl_memory_stage(b->memory, element_at(b, b->w, f->from - first), bytes_of(b, f->to - f->from));
    if (f->work && (f->w || f->to == f->from)) return PL_OK;
    if (b->memory) pl_free(f->work);
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", b->params->p[i].name[0]);
}

static void store_element(const pl_param_block *b, const filling *f, int64_t j, double x) {
    if (j >= f->from && j < f->to) put_real(b, f->w, j - f->from, x);
    put_real(b, f->work, j, round_master(b, x));
}

static pl_status fill_end(const pl_param_block *b, int i, const filling *f, pl_err *err) {
    pl_status st = put_halves(b, b->at[i], f->work, pl_param_block_count(b, i), err);
    void     *master = f->w ? element_at(b, b->w, b->at[i] + f->from - b->first) : NULL;
    if (f->w) st = pl_memory_put(b->memory, master, f->w, bytes_of(b, f->to - f->from), st, err);
    return pl_memory_put(b->memory, element_at(b, b->work, b->at[i]), f->work, f->bytes, st, err);
}

// Returns element j of parameter i before training.
static double drawn_value(const pl_param *p, pl_rng rng, int64_t j) {
    double x = p->init_std > 0 ? p->init_std * (double)pl_rng_normal(rng, (uint64_t)j) : pl_param_begins(p, j);
    return (double)(float)x;
}

void pl_param_block_draw(const pl_param_block *b, int i, uint64_t seed, float *values) {
    pl_rng rng = pl_rng_make(seed, PL_STREAM_INIT, (uint64_t)i);
    for (int64_t j = 0; j < pl_param_block_count(b, i); j++)
        values[j] = (float)drawn_value(&b->params->p[i], rng, j);
}

pl_status pl_param_block_init(pl_param_block *b, uint64_t seed, pl_err *err) {
    for (int i = 0; i < b->params->n; i++) {
        const pl_param *p = &b->params->p[i];
        pl_rng          rng = pl_rng_make(seed, PL_STREAM_INIT, (uint64_t)i);
        int64_t         n = pl_param_block_count(b, i);
        filling         f;
        PL_TRY(fill_begin(b, i, &f, err));
        for (int64_t j = 0; j < n; j++)
            store_element(b, &f, j, drawn_value(p, rng, j));
        PL_TRY(fill_end(b, i, &f, err));
    }
    return PL_OK;
}

pl_status pl_param_block_set(pl_param_block *b, int i, const float *values, pl_err *err) {
    int64_t n = pl_param_block_count(b, i);
    filling f;
    PL_TRY(fill_begin(b, i, &f, err));
    for (int64_t j = 0; j < n; j++)
        store_element(b, &f, j, (double)values[j]);
    return fill_end(b, i, &f, err);
}

pl_status pl_param_block_read_some(pl_param_block *b, int first, int n, const pl_weight_source *src, pl_err *err) {
    for (int i = first; i < first + n; i++) {
        pl_weight_spec spec = b->params->p[i].spec;
        for (int k = 0; k < spec.n_parts; k++)
            spec.part[k].name = b->params->p[i].name[k];
        float *values = pl_malloc(pl_size_mul((size_t)pl_param_block_count(b, i), sizeof *values, 1));
        if (!values) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", b->params->p[i].name[0]);
        pl_status st = pl_weight_read_f32(src, &spec, values, err);
        if (st == PL_OK) st = pl_param_block_set(b, i, values, err);
        pl_free(values);
        pl_weight_drop(src, &spec);
        if (st != PL_OK) return st;
    }
    return PL_OK;
}

pl_status pl_param_block_read(pl_param_block *b, const pl_weight_source *src, pl_err *err) {
    return pl_param_block_read_some(b, 0, b->params->n, src, err);
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

void pl_param_block_zero_grad(pl_param_block *b, pl_ctx *ctx) {
    zero_job z = {b->grad, bytes_of(b, b->n)};
    if (b->memory)
        pl_ctx_zero(ctx, b->grad, z.bytes);
    else
        pl_parallel(ctx ? ctx->pool : NULL, z.bytes < (1 << 16) ? 1 : ZERO_PARTS, zero_part, &z);
}

pl_status pl_param_view_init(pl_param_view *v, const pl_param_block *b, pl_err *err) {
    bool      own = b->real == PL_F32 && !b->memory;
    pl_status st = PL_OK;
    *v = (pl_param_view){.data = pl_calloc((size_t)b->params->n, sizeof *v->data)};
    if (v->data && !own) v->copy = pl_malloc(pl_size_mul((size_t)b->n_work, sizeof *v->copy, 1));
    if (!v->data || (!own && !v->copy))
        st = pl_fail(err, PL_E_MEMORY, "training: out of memory for a copy of the weights");
    else if (b->memory)
        st = pl_memory_read(b->memory, v->copy, b->work, bytes_of(b, b->n_work), err);
    for (int64_t j = 0; st == PL_OK && b->real != PL_F32 && j < b->n_work; j++)
        v->copy[j] = (float)get_real(b, b->work, j);
    const float *base = own ? b->work : v->copy;
    for (int i = 0; i < b->params->n && st == PL_OK; i++)
        v->data[i] = base + b->at[i];
    if (st != PL_OK) pl_param_view_fini(v);
    return st;
}

void pl_param_view_fini(pl_param_view *v) {
    pl_free(v->data);
    pl_free(v->copy);
    *v = (pl_param_view){0};
}

static void *part_of(const pl_param_block *b, int part) {
    return part == PL_BLOCK_W ? b->w : part == PL_BLOCK_M ? b->m : b->v;
}

// Sets the working copy from masters that the host has.
static pl_status put_work(pl_param_block *b, int64_t at, int64_t n, const void *masters, pl_err *err) {
    size_t    bytes = bytes_of(b, n);
    void     *to = element_at(b, b->work, at), *work = pl_memory_stage(b->memory, to, bytes);
    pl_status st = work ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory for the weights");
    for (int64_t j = 0; j < n && st == PL_OK; j++)
        put_real(b, work, j, round_master(b, get_real(b, masters, j)));
    if (st == PL_OK) st = put_halves(b, at, work, n, err);
    return pl_memory_put(b->memory, to, work, bytes, st, err);
}

pl_status pl_param_block_put(pl_param_block *b, int part, int64_t at, int64_t n, const void *values, pl_err *err) {
    int64_t lo = clamp_to(b->first, at, at + n), hi = clamp_to(b->first + b->held, at, at + n);
    PL_CHECK(at >= 0 && n >= 0 && at + n <= b->n, "elements %lld to %lld of %lld", (long long)at, (long long)(at + n),
             (long long)b->n);
    if (hi > lo)
        PL_TRY(pl_memory_write(b->memory, element_at(b, part_of(b, part), lo - b->first),
                               (const uint8_t *)values + bytes_of(b, lo - at), bytes_of(b, hi - lo), err));
    return part == PL_BLOCK_W && n > 0 ? put_work(b, at, n, values, err) : PL_OK;
}

pl_status pl_param_block_take(const pl_param_block *b, int part, int64_t at, int64_t n, void *values, pl_err *err) {
    PL_CHECK(at >= b->first && at + n <= b->first + b->held, "elements %lld to %lld, held are %lld from %lld on",
             (long long)at, (long long)(at + n), (long long)b->held, (long long)b->first);
    return pl_memory_read(b->memory, values, element_at(b, part_of(b, part), at - b->first), bytes_of(b, n), err);
}
