#include "infer/model/params.h"

#include "kernels/base/check.h"
#include "kernels/base/room.h"
#include "kernels/codes.h"
#include "kernels/panels.h"
#include "kernels/segments.h"

#include <math.h>
#include <stdio.h>

pl_status pl_params_init(pl_params *ps, int capacity, pl_err *err) {
    *ps = (pl_params){.capacity = capacity};
    ps->p = pl_calloc((size_t)capacity, sizeof *ps->p);
    return ps->p ? PL_OK : pl_fail(err, PL_E_MEMORY, "parameter list of %d entries: out of memory", capacity);
}

void pl_params_fini(pl_params *ps) {
    if (ps->block) pl_memory_destroy(ps->memory, PL_LOCAL, ps->block, ps->block_bytes);
    if (ps->src) pl_weight_source_close(ps->src);
    pl_free(ps->p);
    *ps = (pl_params){0};
}

void pl_params_add(pl_params *ps, const pl_param_args *a) {
    PL_CHECK(ps->n < ps->capacity, "parameter %d of %d", ps->n, ps->capacity);
    pl_param *p = &ps->p[ps->n++];
    *p = (pl_param){
        .tensor = a->tensor,
        .kind = a->kind,
        .init_std = a->init_std,
        .segments = a->segments,
        .start = a->start,
        .fixed = a->fixed,
        .neutral = a->neutral,
        .fp32 = a->fp32,
        .gated = a->gated,
        .offset = a->offset,
        .spec = {.cols = a->cols, .inner = {a->inner[0], a->inner[1]}, .alias = a->alias, .optional = a->optional}};
    for (int i = 0; i < PL_WEIGHT_PARTS && a->part[i].name; i++) {
        snprintf(p->name[i], sizeof p->name[i], "%s", a->part[i].name);
        p->spec.part[i] = a->part[i];
        p->spec.part[i].name = p->name[i];
        p->spec.n_parts = i + 1;
        p->spec.rows += a->part[i].rows;
    }
}

pl_param *pl_params_weight(pl_params *ps, pl_tensor *t, pl_param_kind kind, const char *name, int64_t rows,
                           int64_t cols, double init_std) {
    pl_params_add(
        ps, &(pl_param_args){.tensor = t, .kind = kind, .part = {{name, rows}}, .cols = cols, .init_std = init_std});
    return &ps->p[ps->n - 1];
}

pl_param *pl_params_norm(pl_params *ps, pl_tensor *t, const char *prefix, const char *name, int64_t n) {
    char whole[96];
    snprintf(whole, sizeof whole, "%s%s.weight", prefix, name);
    return pl_params_weight(ps, t, PL_PARAM_NORM, whole, n, 0, 0);
}

int pl_params_find(const pl_params *ps, const pl_tensor *tensor) {
    int i = 0;
    while (i < ps->n && ps->p[i].tensor != tensor)
        i++;
    PL_CHECK(i < ps->n, "a tensor that is none of %d parameters", ps->n);
    return i;
}

pl_weight_spec pl_param_spec(const pl_param *p) {
    pl_weight_spec s = p->spec;
    for (int i = 0; i < s.n_parts; i++)
        s.part[i].name = p->name[i];
    return s;
}

static pl_status specs_of(const pl_params *ps, pl_weight_spec **out, pl_err *err) {
    *out = pl_calloc((size_t)ps->n, sizeof **out);
    if (!*out) return pl_fail(err, PL_E_MEMORY, "list of %d weights: out of memory", ps->n);
    for (int i = 0; i < ps->n; i++)
        (*out)[i] = pl_param_spec(&ps->p[i]);
    return PL_OK;
}

// ---- memory ----

enum { PAGE = 4096 }; // every parameter starts on a page

static bool is_vector(const pl_param *p) {
    return p->kind == PL_PARAM_NORM || p->kind == PL_PARAM_BIAS || p->kind == PL_PARAM_TAPS;
}

double pl_param_begins(const pl_param *p, int64_t j) {
    if (p->kind == PL_PARAM_TAPS) return j / p->spec.inner[1] % p->spec.inner[0] == 0;
    if (p->start == PL_START_IDENTITY) return j / p->spec.cols == j % p->spec.cols;
    return p->kind == PL_PARAM_NORM;
}

// Packing by segments, or with the gate beside up, is for the host alone: a device's ops take panels.
static const pl_segments *segments_of(const pl_params *ps, const pl_param *p) {
    return ps->memory ? NULL : p->segments;
}

static pl_dtype held_type(const pl_param *p, pl_dtype t) {
    return p->fp32 ? PL_F32 : t;
}

static size_t held_bytes(const pl_params *ps, const pl_param *p, pl_dtype t) {
    const pl_weight_spec *s = &p->spec;
    const pl_segments    *g = segments_of(ps, p);
    t = held_type(p, t);
    if (p->code) return pl_codes_bytes(s->rows, s->cols, p->code);
    if (is_vector(p)) return pl_size_mul((size_t)s->rows, sizeof(float), 1);
    if (p->kind != PL_PARAM_MATRIX) return pl_size_mul((size_t)s->rows, (size_t)s->cols, pl_dtype_size(t));
    return g ? pl_segments_bytes(g, s->cols, t) : pl_panels_bytes(s->rows, s->cols, t);
}

static pl_tensor held_tensor(const pl_params *ps, const pl_param *p, pl_dtype t) {
    if (is_vector(p)) return pl_tensor_1d(p->owned, PL_F32, p->spec.rows);
    pl_tensor w = pl_tensor_2d(p->owned, held_type(p, t), p->spec.rows, p->spec.cols);
    if (p->kind != PL_PARAM_MATRIX) return w;
    w.code = p->code;
    w.segments = segments_of(ps, p);
    w.layout = w.segments ? PL_SEGMENTS : p->gated && !ps->memory ? PL_GATED : PL_PANELS;
    return w;
}

// Allocates one block for all parameters whose `held` is set, and places each in it.
static pl_status own_all(pl_params *ps, const bool *held, pl_dtype t, pl_err *err) {
    size_t total = 0;
    for (int i = 0; i < ps->n; i++) {
        size_t bytes = held[i] ? held_bytes(ps, &ps->p[i], t) : 0;
        if (__builtin_add_overflow(total, bytes, &total) || __builtin_add_overflow(total, PAGE - 1, &total))
            return pl_fail(err, PL_E_MEMORY, "%s: out of memory", ps->p[i].name[0]);
        total = total / PAGE * PAGE;
    }
    if (total == 0) return PL_OK;
    if (!ps->memory)
        PL_TRY(pl_memory_room((double)total, "a model's weights",
                              "hold them in bf16, or divide the target over processes by --tensor-parallel", err));
    ps->block = pl_memory_create(ps->memory, PL_LOCAL, total, err);
    if (!ps->block) return PL_E_MEMORY;
    ps->block_bytes = total;
    size_t at = 0;
    for (int i = 0; i < ps->n; i++) {
        if (!held[i]) continue;
        pl_param *p = &ps->p[i];
        p->owned = ps->block + at;
        p->owned_bytes = held_bytes(ps, p, t);
        at += (p->owned_bytes + PAGE - 1) / PAGE * PAGE;
        *p->tensor = held_tensor(ps, p, t);
    }
    return PL_OK;
}

// Returns memory in which the host fills a held parameter; put_stage writes it to its place (pl_memory_stage). st: the
// status of filling.
static pl_status stage_of(const pl_params *ps, const pl_param *p, void **stage, pl_err *err) {
    *stage = pl_memory_stage(ps->memory, p->owned, p->owned_bytes);
    return *stage ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", p->name[0]);
}

static pl_status put_stage(const pl_params *ps, const pl_param *p, void *stage, pl_status st, pl_err *err) {
    return pl_memory_put(ps->memory, p->owned, stage, p->owned_bytes, st, err);
}

// Writes rows r .. r + n - 1 of a held matrix into its stage.
static void put_rows(const pl_param *p, void *stage, int64_t r, int64_t n, const float *rows) {
    const pl_tensor *w = p->tensor;
    if (w->layout == PL_SEGMENTS)
        pl_segments_pack(stage, w->dtype, w->segments, r, n, w->dim[1], rows);
    else if (w->layout != PL_ROWMAJOR)
        pl_panels_pack_as(w->layout, stage, w->dtype, r, n, w->dim[0], w->dim[1], rows);
    else
        pl_from_f32((uint8_t *)stage + (size_t)(r * w->dim[1]) * pl_dtype_size(w->dtype), w->dtype, rows,
                    (size_t)(n * w->dim[1]));
}

// ---- loading ----

enum {
    LOAD_SMALL = 1 << 20, // elements below which threads do not pay off
    DROP = 4 << 20        // bytes of the file that a thread reads before it drops the pages
};

static pl_status load_vector(const pl_params *ps, const pl_param *p, const pl_weight_spec *spec, pl_err *err) {
    void *stage;
    PL_TRY(stage_of(ps, p, &stage, err));
    pl_status st = pl_weight_read_f32(ps->src, spec, stage, err);
    for (int64_t i = 0; i < spec->rows && st == PL_OK && p->offset != 0; i++)
        ((float *)stage)[i] += p->offset;
    return put_stage(ps, p, stage, st, err);
}

// A matrix of this list that is held as the codes of its file.
static pl_code code_of(const pl_params *ps, const pl_param *p, const pl_weight_spec *spec, pl_dtype t) {
    bool panels = p->kind == PL_PARAM_MATRIX && held_type(p, t) == PL_BF16 && !ps->memory && !p->segments;
    return panels && spec->cols % PL_CODE_BLOCK == 0 ? pl_weight_form(ps->src, spec) : PL_CODE_NONE;
}

typedef struct loading {
    const pl_weight_source *src;
    const pl_param         *p;
    const pl_weight_spec   *spec;
    void                   *stage;
    float                  *rows; // [parts][PL_PANEL][cols]
} loading;

// Packs rows whose stored form needs no conversion, without a copy. Returns their number.
static int64_t pack_mapped(const loading *l, int64_t r, int64_t end) {
    const pl_tensor *w = l->p->tensor;
    const void      *mapped;
    if (w->dtype != PL_BF16 || (w->layout != PL_PANELS && w->layout != PL_GATED)) return 0;
    int64_t n = pl_weight_rows_view(l->src, l->spec, r, PL_BF16, &mapped);
    if (n > end - r) n = end - r;
    if (n > 0) pl_panels_pack_bf16(w->layout, l->stage, r, n, w->dim[0], w->dim[1], mapped);
    return n;
}

// Puts rows [r, end) as the file's codes. Returns their number.
static int64_t pack_codes(const loading *l, int64_t r, int64_t end, pl_code_row *row) {
    const pl_tensor *w = l->p->tensor;
    for (int64_t i = r; i < end; i++) {
        int64_t place = w->layout == PL_GATED ? pl_gated_place(i, w->dim[0]) : i;
        pl_weight_read_codes(l->src, l->spec, i, row);
        for (int64_t b = 0; b < w->dim[1] / PL_CODE_BLOCK; b++)
            pl_codes_put(l->stage, w->code, place, b, w->dim[1], &row[b]);
    }
    return end - r;
}

// Packs panel by panel, so that a matrix is never held twice; mapped pages are dropped once read.
static void load_part(void *arg, int part, int parts) {
    loading              *l = arg;
    const pl_weight_spec *spec = l->spec;
    float                *rows = l->rows + (size_t)part * PL_PANEL * (size_t)spec->cols;
    int64_t               dropped, step = DROP / ((spec->cols > 0 ? spec->cols : 1) * 2);
    long                  lo, hi;
    pl_range((long)spec->rows, PL_PANEL, part, parts, &lo, &hi);
    dropped = lo;
    for (int64_t r = lo, n; r < hi; r += n) {
        int64_t end = r / PL_PANEL * PL_PANEL + PL_PANEL < hi ? r / PL_PANEL * PL_PANEL + PL_PANEL : hi;
        n = l->p->code ? pack_codes(l, r, end, (pl_code_row *)(void *)rows) : pack_mapped(l, r, end);
        if (n == 0) {
            n = end - r;
            pl_status st = pl_weight_read_rows(l->src, spec, r, n, rows, NULL);
            PL_CHECK(st == PL_OK, "%s: not read after a good check", l->p->name[0]);
            put_rows(l->p, l->stage, r, n, rows);
        }
        if (r + n - dropped < step && r + n < hi) continue;
        pl_weight_drop_rows(l->src, spec, dropped, r + n - dropped);
        dropped = r + n;
    }
}

static pl_status load_matrix(const pl_params *ps, const pl_param *p, const pl_weight_spec *spec, pl_pool *pool,
                             pl_err *err) {
    loading l = {.src = ps->src, .p = p, .spec = spec};
    PL_TRY(stage_of(ps, p, &l.stage, err));
    int parts = (double)spec->rows * (double)spec->cols < LOAD_SMALL ? 1 : pl_pool_threads(pool);
    l.rows = pl_malloc(pl_size_mul((size_t)parts * PL_PANEL, (size_t)spec->cols, sizeof *l.rows));
    pl_status st = l.rows ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", p->name[0]);
    if (st == PL_OK) pl_parallel(parts > 1 ? pool : NULL, parts, load_part, &l);
    pl_free(l.rows);
    return put_stage(ps, p, l.stage, st, err);
}

static pl_status fill_all(pl_params *ps, const pl_weight_spec *specs, const bool *held, pl_pool *pool, pl_err *err) {
    for (int i = 0; i < ps->n; i++) {
        if (!held[i]) continue;
        if (is_vector(&ps->p[i]))
            PL_TRY(load_vector(ps, &ps->p[i], &specs[i], err));
        else
            PL_TRY(load_matrix(ps, &ps->p[i], &specs[i], pool, err));
        pl_weight_drop(ps->src, &specs[i]);
    }
    return PL_OK;
}

static pl_status load_all(pl_params *ps, const pl_weight_spec *specs, bool *held, pl_dtype t, pl_err *err) {
    PL_TRY(pl_weight_source_check(ps->src, specs, ps->n, err));
    for (int i = 0; i < ps->n; i++) {
        pl_param   *p = &ps->p[i];
        const void *mapped;
        pl_dtype    stored;
        held[i] = !p->spec.optional || pl_weight_has(ps->src, &specs[i]);
        p->code = held[i] ? code_of(ps, p, &specs[i], t) : PL_CODE_NONE;
        if (!held[i] || p->kind != PL_PARAM_EMBED || ps->memory) continue;
        if (!pl_weight_view(ps->src, &specs[i], &mapped, &stored) || stored != t) continue;
        held[i] = false;
        *p->tensor = pl_tensor_2d((void *)(uintptr_t)mapped, t, p->spec.rows, p->spec.cols);
    }
    PL_TRY(own_all(ps, held, t, err));
    // Threads for the time of loading; if none can be created, this thread loads.
    pl_pool *pool = NULL;
    if (ps->block_bytes > LOAD_SMALL && pl_pool_create(&pool, 0, NULL) != PL_OK) pool = NULL;
    pl_status st = fill_all(ps, specs, held, pool, err);
    pl_pool_destroy(pool);
    return st;
}

pl_status pl_params_load(pl_params *ps, pl_weight_source *src, pl_dtype t, pl_err *err) {
    ps->src = src;
    pl_weight_spec *specs = NULL;
    bool           *held = NULL, views = false;
    pl_status       st = specs_of(ps, &specs, err);
    if (st == PL_OK && !(held = pl_calloc((size_t)ps->n, sizeof *held)))
        st = pl_fail(err, PL_E_MEMORY, "list of %d weights: out of memory", ps->n);
    if (st == PL_OK) st = load_all(ps, specs, held, t, err);
    for (int i = 0; i < ps->n && st == PL_OK; i++)
        views |= !held[i] && ps->p[i].tensor->data;
    pl_free(held);
    pl_free(specs);
    if (!views) {
        pl_weight_source_close(ps->src);
        ps->src = NULL;
    }
    return st;
}

// ---- random weights ----

typedef struct drawing {
    const pl_param *p;
    void           *stage;
    uint64_t        seed;
    float          *rows; // [parts][PL_PANEL][cols] scratch
} drawing;

// Vigna's splitmix64: a mixed counter.
static uint64_t mix_bits(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Draws n values of a matrix of `cols` columns.
static void draw_values(float *x, int64_t n, int64_t cols, uint64_t seed) {
    float scale = sqrtf(3 / (float)cols) / 8388608.0F;
    for (int64_t i = 0; i < n; i++)
        x[i] = scale * (float)((int64_t)(mix_bits(seed + (uint64_t)i) >> 40) - 8388608);
}

static void draw_part(void *arg, int part, int parts) {
    drawing              *d = arg;
    const pl_weight_spec *s = &d->p->spec;
    float                *rows = d->rows + (size_t)part * PL_PANEL * (size_t)s->cols;
    long                  lo, hi;
    pl_range((long)s->rows, PL_PANEL, part, parts, &lo, &hi);
    for (int64_t r = lo; r < hi; r += PL_PANEL) {
        int64_t n = hi - r < PL_PANEL ? hi - r : PL_PANEL;
        draw_values(rows, n * s->cols, s->cols, d->seed + (uint64_t)(r * s->cols));
        put_rows(d->p, d->stage, r, n, rows);
    }
}

static pl_status draw_matrix(const pl_params *ps, const pl_param *p, uint64_t seed, pl_pool *pool, pl_err *err) {
    int     parts = pl_pool_threads(pool);
    drawing d = {.p = p, .seed = seed};
    PL_TRY(stage_of(ps, p, &d.stage, err));
    d.rows = pl_malloc(pl_size_mul((size_t)parts * PL_PANEL, (size_t)p->spec.cols, sizeof *d.rows));
    pl_status st = d.rows ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", p->name[0]);
    if (st == PL_OK) pl_parallel(pool, parts, draw_part, &d);
    pl_free(d.rows);
    return put_stage(ps, p, d.stage, st, err);
}

static pl_status draw_vector(const pl_params *ps, const pl_param *p, pl_err *err) {
    void *stage;
    PL_TRY(stage_of(ps, p, &stage, err));
    for (int64_t k = 0; k < p->spec.rows; k++)
        ((float *)stage)[k] = (float)pl_param_begins(p, k);
    return put_stage(ps, p, stage, PL_OK, err);
}

pl_status pl_params_hold(pl_params *ps, pl_dtype t, pl_err *err) {
    bool *held = pl_calloc((size_t)ps->n, sizeof *held);
    if (!held) return pl_fail(err, PL_E_MEMORY, "list of %d weights: out of memory", ps->n);
    for (int i = 0; i < ps->n; i++)
        held[i] = true;
    pl_status st = own_all(ps, held, t, err);
    pl_free(held);
    return st;
}

// ---- random weights by the gigabyte ----

enum { TILE = (1 << 20) + 4160 }; // bytes drawn per matrix; does not divide the size of a panel or a row

// Draws the last panel of a matrix that does not fill it: rows past the end must be zero.
static pl_status draw_tail(const pl_params *ps, const pl_param *p, uint64_t seed, pl_err *err) {
    const pl_tensor *w = p->tensor;
    int64_t          rows = p->spec.rows, cols = p->spec.cols, n = rows % PL_PANEL;
    if (n == 0 || w->layout == PL_ROWMAJOR) return PL_OK;
    size_t    bytes = pl_panels_bytes(n, cols, w->dtype), at = pl_panels_bytes(rows, cols, w->dtype) - bytes;
    float    *x = pl_malloc(pl_size_mul((size_t)n, (size_t)cols, sizeof *x));
    void     *panel = pl_calloc(bytes, 1);
    pl_status st = x && panel ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", p->name[0]);
    if (st == PL_OK) {
        draw_values(x, n * cols, cols, seed);
        pl_panels_pack_as(w->layout, panel, w->dtype, 0, n, n, cols, x);
        st = pl_memory_write(ps->memory, (uint8_t *)p->owned + at, panel, bytes, err);
    }
    pl_free(x);
    pl_free(panel);
    return st;
}

static pl_status tile_matrix(pl_ctx *ctx, const pl_params *ps, const pl_param *p, uint64_t seed, float *values,
                             void *tile, pl_err *err) {
    pl_dtype t = p->tensor->dtype;
    size_t   n = TILE < p->owned_bytes ? TILE : p->owned_bytes;
    int64_t  count = (int64_t)(n / pl_dtype_size(t));
    draw_values(values, count, p->spec.cols, seed);
    pl_from_f32(tile, t, values, (size_t)count);
    pl_ctx_upload(ctx, p->owned, tile, n);
    pl_ctx_repeat(ctx, p->owned, n, p->owned_bytes);
    PL_TRY(pl_ctx_sync(ctx, err));
    return draw_tail(ps, p, mix_bits(seed), err);
}

pl_status pl_params_tile(pl_params *ps, pl_dtype t, uint64_t seed, pl_ctx *ctx, pl_err *err) {
    PL_TRY(pl_params_hold(ps, t, err));
    float    *values = pl_malloc(TILE / pl_dtype_size(t) * sizeof *values);
    void     *tile = pl_malloc(TILE);
    pl_status st = values && tile ? PL_OK : pl_fail(err, PL_E_MEMORY, "weights: out of memory");
    for (int i = 0; i < ps->n && st == PL_OK; i++) {
        pl_param *p = &ps->p[i];
        uint64_t  own = mix_bits(seed + (uint64_t)i);
        if (is_vector(p))
            st = draw_vector(ps, p, err);
        else if (p->tensor->layout == PL_SEGMENTS)
            st = draw_matrix(ps, p, own, ctx->pool, err); // a segment's padding is zero
        else
            st = tile_matrix(ctx, ps, p, own, values, tile, err);
    }
    pl_free(values);
    pl_free(tile);
    return st;
}

pl_status pl_params_draw(pl_params *ps, pl_dtype t, uint64_t seed, pl_pool *pool, pl_err *err) {
    pl_status st = pl_params_hold(ps, t, err);
    for (int i = 0; i < ps->n && st == PL_OK; i++) {
        pl_param *p = &ps->p[i];
        st = is_vector(p) ? draw_vector(ps, p, err) : draw_matrix(ps, p, mix_bits(seed + (uint64_t)i), pool, err);
    }
    return st;
}

pl_status pl_params_check(const pl_params *ps, const pl_weight_source *src, pl_err *err) {
    pl_weight_spec *specs = NULL;
    PL_TRY(specs_of(ps, &specs, err));
    pl_status st = pl_weight_source_check(src, specs, ps->n, err);
    pl_free(specs);
    return st;
}

pl_status pl_params_unclaimed(const pl_params *ps, const pl_weight_source *src, const char **names, int64_t cap,
                              int64_t *count, pl_err *err) {
    pl_weight_spec *specs = NULL;
    PL_TRY(specs_of(ps, &specs, err));
    pl_status st = pl_weight_source_unclaimed(src, specs, ps->n, names, cap, count, err);
    pl_free(specs);
    return st;
}

int64_t pl_params_count(const pl_params *ps) {
    int64_t n = 0;
    for (int i = 0; i < ps->n; i++)
        n += ps->p[i].spec.rows * (ps->p[i].spec.cols > 0 ? ps->p[i].spec.cols : 1);
    return n;
}

size_t pl_params_bytes(const pl_params *ps) {
    size_t n = 0;
    for (int i = 0; i < ps->n; i++)
        n += ps->p[i].owned_bytes;
    return n;
}

pl_status pl_params_write(const pl_params *ps, const char *path, const float *const *data, pl_dtype t,
                          const pl_st_source *extra, int n_extra, pl_err *err) {
    pl_weight_spec *specs = NULL;
    PL_TRY(specs_of(ps, &specs, err));
    pl_st_pair meta = {.key = "format", .value = "pt"};
    pl_status  st = pl_weights_write(path, specs, ps->n, data, t, extra, n_extra, &meta, 1, err);
    pl_free(specs);
    return st;
}
