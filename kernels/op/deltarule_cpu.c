// The recurrence on vectors, over value heads; the convolution over channels. Products and sums are fused or not by the
// source alone (pl_vf_fma), so that a row gives a state the same bits whether it is computed or replayed.
#include "kernels/cpu/rows.h"
#include "kernels/op/deltarule.h"
#include <math.h>

// ---- convolution ----------------------------------------------------------------------------------------------------

typedef struct conv_job {
    const pl_shortconv_args *a;
    const int32_t           *parent;
} conv_job;

static float *window_of(const pl_kvrow *r, const pl_gdn_shape *s) {
    return (float *)r->k + (int64_t)s->nv * s->dk * s->dv;
}

// Returns the inputs `back` positions before row m.
static const float *input_at(const conv_job *j, int64_t m, int back) {
    const pl_gdn_shape *s = &j->a->shape;
    int64_t             C = pl_tensor_cols(&j->a->x);
    const float        *window = window_of(&j->a->row[m], s);
    for (; back > 0 && j->parent[m] >= 0; back--)
        m = j->parent[m];
    return back > 0 ? window + (s->taps - 1 - back) * C : pl_f32(&j->a->x) + m * C;
}

// y[i] = sum_t w[i taps + t] x[t][i]
PL_INLINE void sum_taps(float *y, const float *w, const float *const *x, int64_t n, const int taps) {
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int t = 0; t < taps; t++)
            sum += w[i * taps + t] * x[t][i];
        y[i] = sum;
    }
}

enum { CHANNELS = 64 }; // whose boundaries alone divide a row among threads

static void conv_part(void *arg, int part, int parts) {
    const conv_job          *j = arg;
    const pl_shortconv_args *a = j->a;
    const pl_vf              one = pl_vf_set1(1.0f);
    int64_t                  C = pl_tensor_cols(&a->x);
    int                      taps = a->shape.taps;
    long                     lo, hi;
    pl_range(C, CHANNELS, part, parts, &lo, &hi);
    for (int64_t m = 0; m < pl_tensor_rows(&a->x); m++) {
        const float *x[PL_GDN_TAPS], *w = pl_f32(&a->w) + lo * taps;
        float       *y = pl_f32(&a->y) + m * C;
        for (int t = 0; t < taps; t++)
            x[t] = input_at(j, m, taps - 1 - t) + lo;
        if (taps == 4)
            sum_taps(y + lo, w, x, hi - lo, 4);
        else
            sum_taps(y + lo, w, x, hi - lo, taps);
        for (int64_t i = lo; i < hi; i += PL_VL) {
            int64_t lanes = pl_vf_lanes(i, hi);
            pl_vf   z = pl_vf_get(y + i, lanes);
            pl_vf_put(y + i, pl_vf_div(z, pl_vf_add(one, pl_vf_exp(pl_vf_sub(pl_vf_zero(), z)))), lanes);
        }
    }
}

// Moves the sessions' windows on, and keeps the inputs of trees.
static void keep_inputs(const pl_shortconv_args *a) {
    const pl_gdn_shape *s = &a->shape;
    size_t              bytes = (size_t)pl_tensor_cols(&a->x) * sizeof(float);
    for (int64_t m = 0; m < pl_tensor_rows(&a->x); m++) {
        const pl_kvrow *r = &a->row[m];
        const float    *x = pl_f32(&a->x) + m * pl_tensor_cols(&a->x);
        if (pl_gdn_keeps(r))
            memcpy((float *)r->v + (r->slot - r->n_ctx) * pl_gdn_kept(s), x, bytes);
        else
            pl_gdn_push(window_of(r, s), s->taps - 1, x, bytes);
    }
}

void PL_CPU(shortconv_fwd)(pl_ctx *ctx, const void *args) {
    const pl_shortconv_args *a = args;
    int64_t                  rows = pl_tensor_rows(&a->x), C = pl_tensor_cols(&a->x);
    size_t                   mark = pl_arena_mark(&ctx->scratch);
    int32_t                 *parent = pl_arena_alloc(&ctx->scratch, (size_t)rows * sizeof *parent);
    if (!ctx->measuring) {
        conv_job j = {.a = a, .parent = parent};
        pl_gdn_parents(a->row, rows, parent);
        for (int64_t m = 0; m < rows; m++)
            if (pl_gdn_begins(&a->row[m]))
                memset(window_of(&a->row[m], &a->shape), 0, (size_t)((a->shape.taps - 1) * C) * sizeof(float));
        double work = (double)rows * (double)C * (2 * a->shape.taps + 20);
        pl_parallel(ctx->pool, pl_cpu_parts(ctx, (C + CHANNELS - 1) / CHANNELS, work), conv_part, &j);
        keep_inputs(a);
    }
    pl_arena_release(&ctx->scratch, mark);
}

// ---- recurrence -----------------------------------------------------------------------------------------------------

// A row's update of one head's state.
typedef struct update {
    const float *k, *q, *v; // q NULL: without an output
    float        a, b, *o;
} update;

// Columns j .. j + 16 n - 1 (n 4: all there; 1: `lanes` of them). A column's bits do not depend on the others.
#define COLUMNS(n)                                                                                                     \
    do {                                                                                                               \
        pl_vf sum[n], out[n];                                                                                          \
        _Pragma("GCC unroll 4") for (int c = 0; c < (n); c++) sum[c] = out[c] = pl_vf_zero();                          \
        for (int i = 0; i < s->dk; i++) {                                                                              \
            float      *at = S + (int64_t)i * s->dv + j;                                                               \
            const pl_vf key = pl_vf_set1(p->k[i]);                                                                     \
            _Pragma("GCC unroll 4") for (int c = 0; c < (n); c++) {                                                    \
                pl_vf x = pl_vf_mul(decay, pl_vf_get(at + c * PL_VL, lanes));                                          \
                pl_vf_put(at + c * PL_VL, x, lanes);                                                                   \
                sum[c] = pl_vf_fma(key, x, sum[c]);                                                                    \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("GCC unroll 4") for (int c = 0; c < (n); c++) sum[c] =                                                 \
            pl_vf_mul(rate, pl_vf_sub(pl_vf_get(p->v + j + c * PL_VL, lanes), sum[c]));                                \
        for (int i = 0; i < s->dk; i++) {                                                                              \
            float      *at = S + (int64_t)i * s->dv + j;                                                               \
            const pl_vf key = pl_vf_set1(p->k[i]), query = pl_vf_set1(p->q ? p->q[i] : 0);                             \
            _Pragma("GCC unroll 4") for (int c = 0; c < (n); c++) {                                                    \
                pl_vf x = pl_vf_fma(key, sum[c], pl_vf_get(at + c * PL_VL, lanes));                                    \
                pl_vf_put(at + c * PL_VL, x, lanes);                                                                   \
                out[c] = pl_vf_fma(query, x, out[c]);                                                                  \
            }                                                                                                          \
        }                                                                                                              \
        if (p->q)                                                                                                      \
            _Pragma("GCC unroll 4") for (int c = 0; c < (n); c++) pl_vf_put(p->o + j + c * PL_VL, out[c], lanes);      \
    } while (0)

static void apply(float *S, const pl_gdn_shape *s, const update *p) {
    const pl_vf decay = pl_vf_set1(p->a), rate = pl_vf_set1(p->b);
    int64_t     j = 0, lanes = PL_VL;
    for (; j + 4 * PL_VL <= s->dv; j += 4 * PL_VL)
        COLUMNS(4);
    for (; j < s->dv; j += PL_VL) {
        lanes = pl_vf_lanes(j, s->dv);
        COLUMNS(1);
    }
}

// to = x scale / sqrt(sum x^2 + eps)
static void scale_to_unit(float *to, const float *x, int n, float scale) {
    pl_vf square = pl_vf_zero();
    for (int i = 0; i < n; i += PL_VL) {
        pl_vf v = pl_vf_get(x + i, pl_vf_lanes(i, n));
        square = pl_vf_fma(v, v, square);
    }
    pl_vf by = pl_vf_set1(scale / sqrtf(pl_vf_hsum(square) + (float)PL_GDN_L2_EPS));
    for (int i = 0; i < n; i += PL_VL)
        pl_vf_put(to + i, pl_vf_mul(pl_vf_get(x + i, pl_vf_lanes(i, n)), by), pl_vf_lanes(i, n));
}

static float softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

typedef struct rule_job {
    const pl_deltarule_args *a;
    const pl_gdn_step       *step;
    float                   *states, *unit; // of each part
} rule_job;

static void keep_row(const pl_deltarule_args *a, const pl_kvrow *r, int h, const update *p) {
    const pl_gdn_shape *s = &a->shape;
    int                 group = s->nv / s->nk;
    float              *kept = (float *)r->v + (r->slot - r->n_ctx) * pl_gdn_kept(s) + pl_gdn_channels(s);
    if (h % group == 0) memcpy(kept + (int64_t)(h / group) * s->dk, p->k, (size_t)s->dk * sizeof *kept);
    kept += (int64_t)s->nk * s->dk;
    memcpy(kept + (int64_t)h * s->dv, p->v, (size_t)s->dv * sizeof *kept);
    kept += (int64_t)s->nv * s->dv;
    kept[h] = p->a;
    kept[s->nv + h] = p->b;
}

static void run_step(const rule_job *j, const pl_gdn_step *step, int h, float *states, float *unit) {
    const pl_deltarule_args *a = j->a;
    const pl_gdn_shape      *s = &a->shape;
    const pl_kvrow          *r = &a->row[step->row];
    int64_t                  area = (int64_t)s->dk * s->dv, key = h / (s->nv / s->nk) * (int64_t)s->dk;
    const float             *x = pl_f32(&a->x) + step->row * pl_tensor_cols(&a->x);
    const float             *gates = pl_f32(&a->gates) + step->row * (int64_t)(2 * s->nv);
    float                   *own = (float *)r->k + h * area;
    float                   *from = step->from == PL_GDN_OWN ? own : states + step->from * area;
    float                   *to = step->to == PL_GDN_OWN ? own : states + step->to * area;
    scale_to_unit(unit, x + key, s->dk, 1 / sqrtf((float)s->dk));
    scale_to_unit(unit + s->dk, x + (int64_t)s->nk * s->dk + key, s->dk, 1);
    update p = {.q = unit,
                .k = unit + s->dk,
                .v = x + 2 * (int64_t)s->nk * s->dk + (int64_t)h * s->dv,
                .a = expf(-expf(pl_f32(&a->a_log)[h]) * softplus(gates[s->nv + h] + pl_f32(&a->dt)[h])),
                .b = 1 / (1 + expf(-gates[h])),
                .o = pl_f32(&a->o) + step->row * pl_tensor_cols(&a->o) + (int64_t)h * s->dv};
    if (pl_gdn_begins(r)) memset(own, 0, (size_t)area * sizeof *own);
    if (from != to) memcpy(to, from, (size_t)area * sizeof *to);
    apply(to, s, &p);
    if (pl_gdn_keeps(r)) keep_row(a, r, h, &p);
}

static void rule_part(void *arg, int part, int parts) {
    const rule_job     *j = arg;
    const pl_gdn_shape *s = &j->a->shape;
    float              *states = j->states + part * PL_GDN_STATES * (int64_t)s->dk * s->dv;
    float              *unit = j->unit + part * 2 * (int64_t)s->dk;
    long                lo, hi;
    pl_range(s->nv, 1, part, parts, &lo, &hi);
    for (long h = lo; h < hi; h++)
        for (int64_t i = 0; i < pl_tensor_rows(&j->a->x); i++)
            run_step(j, &j->step[i], (int)h, states, unit);
}

void PL_CPU(deltarule_fwd)(pl_ctx *ctx, const void *args) {
    const pl_deltarule_args *a = args;
    const pl_gdn_shape      *s = &a->shape;
    int64_t                  rows = pl_tensor_rows(&a->x), area = (int64_t)s->dk * s->dv;
    int                      parts = pl_cpu_parts(ctx, s->nv, 4.0 * (double)rows * (double)s->nv * (double)area);
    size_t                   mark = pl_arena_mark(&ctx->scratch), most = (size_t)pl_pool_threads(ctx->pool);
    pl_gdn_step             *step = pl_arena_alloc(&ctx->scratch, (size_t)rows * sizeof *step);
    int32_t                 *work = pl_arena_alloc(&ctx->scratch, PL_GDN_WORK * (size_t)rows * sizeof *work);
    float *states = pl_arena_alloc(&ctx->scratch, most * PL_GDN_STATES * (size_t)area * sizeof *states);
    float *unit = pl_arena_alloc(&ctx->scratch, most * 2 * (size_t)s->dk * sizeof *unit);
    if (!ctx->measuring) {
        rule_job j = {.a = a, .step = step, .states = states, .unit = unit};
        pl_gdn_order(a->row, rows, step, work);
        pl_parallel(ctx->pool, parts, rule_part, &j);
    }
    pl_arena_release(&ctx->scratch, mark);
}

// ---- replay ---------------------------------------------------------------------------------------------------------

// Heads of all layers, one after another.
static void replay_part(void *arg, int part, int parts) {
    const pl_replay_args *a = arg;
    const pl_gdn_shape   *s = &a->shape;
    int64_t               area = (int64_t)s->dk * s->dv, C = pl_gdn_channels(s);
    long                  lo, hi;
    pl_range(a->layers * s->nv, 1, part, parts, &lo, &hi);
    for (long i = lo; i < hi; i++) {
        long   l = i / s->nv, h = i % s->nv;
        float *state = (float *)a->state + l * pl_gdn_state(s);
        for (int n = 1; n <= a->rows[0]; n++) {
            const float *x = (const float *)a->kept + l * a->pitch + a->rows[n] * pl_gdn_kept(s);
            const float *k = x + C, *v = k + (int64_t)s->nk * s->dk, *rate = v + (int64_t)s->nv * s->dv;
            update       p = {.k = k + h / (s->nv / s->nk) * (int64_t)s->dk, .v = v + h * s->dv};
            p.a = rate[h];
            p.b = rate[s->nv + h];
            apply(state + h * area, s, &p);
            if (h == 0) pl_gdn_push(state + s->nv * area, s->taps - 1, x, (size_t)C * sizeof *x);
        }
    }
}

void PL_CPU(replay_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_replay_args      a = *(const pl_replay_args *)args;
    const pl_gdn_shape *s = &a.shape;
    if (a.rows[0] == 0) return;
    double work = 4.0 * (double)a.layers * a.rows[0] * (double)s->nv * (double)s->dk * (double)s->dv;
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, a.layers * s->nv, work), replay_part, &a);
}
