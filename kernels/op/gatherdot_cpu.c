// Products with listed rows. Row-major: a vector's lanes are as many listed rows; blocks of one cache line of each row
// are transposed in registers, so that every lane sums its own row over k in order. Meanwhile the next rows' lines are
// fetched: they lie anywhere. Panels: the panel of a listed row is computed whole, and kept while the list stays in it.
#include "kernels/base/check.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/rows.h"
#include "kernels/op/gatherdot.h"
#include "kernels/segments.h"
#include <math.h>

void PL_CPU(gatherdot_fwd)(pl_ctx *ctx, const void *args);
void pl_gatherdot_fwd_ref32(pl_ctx *ctx, const void *args);

enum { LANES = PL_VN_LANES };

typedef struct job {
    const pl_gatherdot_args *a;
    int64_t                  n, k, groups; // groups of LANES outputs in a row of y
    size_t                   row_bytes;
} job;

// Where the listed rows of a group start. Lanes without a row (past the end, id -1) read row 0 for nothing.
static void find_rows(const job *j, int64_t group, const char *row[LANES]) {
    const int32_t *id = j->a->id + group / j->groups * j->n;
    int64_t        at = group % j->groups * LANES;
    for (int r = 0; r < LANES; r++) {
        int32_t v = at + r < j->n ? id[at + r] : -1;
        PL_CHECK(v >= -1 && v < j->a->w.dim[0], "gatherdot: row %d of %lld", v, (long long)j->a->w.dim[0]);
        row[r] = (const char *)j->a->w.data + (size_t)(v < 0 ? 0 : v) * j->row_bytes;
    }
}

PL_INLINE float weight_at(const bool bf16, const char *row, int64_t k) {
    uint16_t h;
    float    f;
    if (!bf16) {
        memcpy(&f, row + k * 4, 4);
        return f;
    }
    memcpy(&h, row + k * 2, 2);
    return pl_bf16_to_f32(h);
}

// LANES sums. A block is LANES floats of each row, or LANES pairs of bf16.
PL_INLINE pl_vn dots(const bool bf16, const job *j, const float *x, const char *const row[LANES],
                     const char *const next[LANES]) {
    const int64_t block = bf16 ? 2 * LANES : LANES;
    pl_vn         sum = pl_vn_set1(0.0f);
    int64_t       k = 0;
    for (; k + block <= j->k; k += block) {
        const size_t at = (size_t)k * (bf16 ? 2 : 4);
        pl_vn        t[LANES];
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++)
            t[r] = pl_vn_loadu((const float *)(const void *)(row[r] + at));
        if (at % 64 == 0)
            for (int r = 0; r < LANES; r++)
                __builtin_prefetch(next[r] + at);
        pl_vn_transpose(t);
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++) {
            if (bf16) {
                sum = pl_vn_fma(pl_vn_set1(x[k + 2 * r]), (pl_vn)((pl_vnu)t[r] << 16), sum);
                sum = pl_vn_fma(pl_vn_set1(x[k + 2 * r + 1]), (pl_vn)((pl_vnu)t[r] & 0xffff0000u), sum);
            } else {
                sum = pl_vn_fma(pl_vn_set1(x[k + r]), t[r], sum);
            }
        }
    }
    for (; k < j->k; k++) {
        float column[LANES];
        for (int r = 0; r < LANES; r++)
            column[r] = weight_at(bf16, row[r], k);
        sum = pl_vn_fma(pl_vn_set1(x[k]), pl_vn_loadu(column), sum);
    }
    return sum;
}

static void rowmajor_part(void *arg, int part, int parts) {
    const job  *j = arg;
    bool        bf16 = j->a->w.dtype == PL_BF16;
    const char *row[2][LANES];
    long        lo, hi;
    pl_range(j->a->x.dim[0] * j->groups, 1, part, parts, &lo, &hi);
    if (lo < hi) find_rows(j, lo, row[lo % 2]);
    for (int64_t g = lo; g < hi; g++) {
        int64_t      m = g / j->groups, at = g % j->groups * LANES, count = j->n - at < LANES ? j->n - at : LANES;
        const float *x = pl_f32(&j->a->x) + m * j->k;
        float        y[LANES];
        find_rows(j, g + 1 < hi ? g + 1 : g, row[(g + 1) % 2]);
        const char *const *now = row[g % 2], *const *next = row[(g + 1) % 2];
        pl_vn_storeu(y, bf16 ? dots(true, j, x, now, next) : dots(false, j, x, now, next));
        for (int64_t i = 0; i < count; i++)
            pl_f32(&j->a->y)[m * j->n + at + i] = j->a->id[m * j->n + at + i] < 0 ? -INFINITY : y[i];
    }
}

static void panels_part(void *arg, int part, int parts) {
    const job *j = arg;
    bool       bf16 = j->a->w.dtype == PL_BF16;
    long       lo, hi;
    pl_range(j->a->x.dim[0] * j->n, 1, part, parts, &lo, &hi);
    float    z[PL_PANEL];
    int64_t  row = -1, segment = 0;
    pl_panel panel = {0}; // what z holds, of `row`
    for (int64_t i = lo; i < hi; i++) {
        int32_t v = j->a->id[i];
        PL_CHECK(v >= -1 && v < j->a->w.dim[0], "gatherdot: row %d of %lld", v, (long long)j->a->w.dim[0]);
        bool have = row == i / j->n && v >= panel.first && v < panel.first + panel.rows;
        if (v >= 0 && !have) {
            row = i / j->n;
            panel = pl_panel_of(&j->a->w, v, &segment);
            pl_pass p = {.kc = j->k,
                         .x = pl_f32(&j->a->x) + row * j->k,
                         .w = (const char *)j->a->w.data + panel.at * (bf16 ? 2 : 4),
                         .y = z,
                         .ldy = PL_PANEL,
                         .cols = panel.width,
                         .far = true};
            if (panel.width == PL_HALF_PANEL)
                pl_panels_half_pass(bf16, 1, &p);
            else
                pl_panels_pass(bf16, 1, 1, &p);
        }
        pl_f32(&j->a->y)[i] = v < 0 ? -INFINITY : z[v - panel.first];
    }
}

void PL_CPU(gatherdot_fwd)(pl_ctx *ctx, const void *args) {
    const pl_gatherdot_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->w.dtype != PL_F32 && a->w.dtype != PL_BF16) {
        pl_gatherdot_fwd_ref32(ctx, args);
        return;
    }
    job j = {.a = a, .n = a->y.dim[1], .k = a->w.dim[1]};
    if (a->x.dim[0] == 0 || j.n == 0) return;
    j.groups = (j.n + LANES - 1) / LANES;
    j.row_bytes = (size_t)j.k * pl_dtype_size(a->w.dtype);
    bool    panels = a->w.layout != PL_ROWMAJOR;
    int64_t items = a->x.dim[0] * (panels ? j.n : j.groups);
    double  work = 2.0 * (double)a->x.dim[0] * (double)j.n * (double)j.k;
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, items, work), panels ? panels_part : rowmajor_part, &j);
}
