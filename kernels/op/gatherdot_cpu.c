// Products with listed rows. Row-major: a vector's lanes are as many listed rows; blocks of one cache line of each row
// are transposed in registers, so that every lane sums its own row, in the order of a pass over panels
// (kernels/cpu/panels.h). Meanwhile the next rows' lines, which may be anywhere, are prefetched. Panels: the panel of a
// listed row is computed whole, and kept while the list stays in it.
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
    pl_rows                  x;            // one row a tile
    int64_t                  n, k, groups; // groups of LANES outputs in a row of y
    size_t                   row_bytes;
} job;

// Finds the starts of a group's listed rows. Lanes without a row (past the end, id -1) read row 0, unused.
static void find_rows(const job *j, int64_t group, const char *row[LANES]) {
    const int32_t *id = j->a->id + group / j->groups * j->n;
    int64_t        at = group % j->groups * LANES;
    for (int r = 0; r < LANES; r++) {
        int32_t v = at + r < j->n ? id[at + r] : -1;
        PL_CHECK(v >= -1 && v < j->a->w.dim[0], "gatherdot: row %d of %lld", v, (long long)j->a->w.dim[0]);
        row[r] = (const char *)j->a->w.data + (size_t)(v < 0 ? 0 : v) * j->row_bytes;
    }
}

// LANES lines of LANES words each, one of every row.
PL_INLINE void take_words(pl_vn t[LANES], const char *const row[LANES], const char *const next[LANES], size_t at) {
#pragma GCC    unroll 16
    for (int r = 0; r < LANES; r++)
        t[r] = pl_vn_loadu((const float *)(const void *)(row[r] + at));
    if (at % 64 == 0)
        for (int r = 0; r < LANES; r++)
            __builtin_prefetch(next[r] + at);
    pl_vn_transpose(t);
}

// LANES sums over k in order.
static pl_vn dots_f32(const job *j, const float *x, const char *const row[LANES], const char *const next[LANES]) {
    pl_vn   sum = pl_vn_set1(0.0f);
    int64_t k = 0;
    for (; k + LANES <= j->k; k += LANES) {
        pl_vn t[LANES];
        take_words(t, row, next, (size_t)k * sizeof(float));
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++)
            sum = pl_vn_fma(pl_vn_set1(x[k + r]), t[r], sum);
    }
    for (; k < j->k; k++) {
        float column[LANES];
        for (int r = 0; r < LANES; r++)
            memcpy(&column[r], row[r] + (size_t)k * sizeof(float), sizeof(float));
        sum = pl_vn_fma(pl_vn_set1(x[k]), pl_vn_loadu(column), sum);
    }
    return sum;
}

// Four k of a row of x (kernels/cpu/rows_cpu.c).
#ifdef PL_DOTS
typedef uint32_t factor;
enum { FACTORS = 2 };
#else
typedef float factor;
enum { FACTORS = 4 };
#endif

// Adds the products of four k: words of k and k + 1, and of k + 2 and k + 3, of LANES rows.
PL_INLINE void add_four(const factor x[FACTORS], pl_vnu a, pl_vnu b, pl_vn *even, pl_vn *odd) {
#ifdef PL_DOTS
    const pl_vnu none = {0};
    pl_vnu       e, o;
    pl_vn_chain_words(a, b, &e, &o);
    *even = pl_vn_dot(*even, none + x[0], e);
    *odd = pl_vn_dot(*odd, none + x[1], o);
#else
    *even = pl_vn_fma_bf16(pl_vn_set1(x[0]), (pl_vn)(a << 16), *even);
    *odd = pl_vn_fma_bf16(pl_vn_set1(x[1]), (pl_vn)(a & 0xffff0000u), *odd);
    *even = pl_vn_fma_bf16(pl_vn_set1(x[2]), (pl_vn)(b << 16), *even);
    *odd = pl_vn_fma_bf16(pl_vn_set1(x[3]), (pl_vn)(b & 0xffff0000u), *odd);
#endif
}

// LANES rows' words of k and k + 1, zeros from K on.
static pl_vnu last_words(const job *j, const char *const row[LANES], int64_t k) {
    pl_vnu words = {0};
    for (int r = 0; r < LANES && k < j->k; r++) {
        uint16_t pair[2] = {0, 0};
        memcpy(pair, row[r] + (size_t)k * sizeof *pair, (k + 1 < j->k ? 2 : 1) * sizeof *pair);
        words[r] = pair[0] | (uint32_t)pair[1] << 16;
    }
    return words;
}

// LANES sums of pairs, those of PL_PANEL_BLOCK k apart. x is rounded and has a zero after an odd K.
static pl_vn dots_bf16(const job *j, const factor *x, const char *const row[LANES], const char *const next[LANES]) {
    const pl_vn zero = pl_vn_set1(0.0f);
    pl_vn       sum = zero, even = zero, odd = zero;
    int64_t     k = 0;
    for (; k + 2 * LANES <= j->k; k += 2 * LANES, x += LANES / 2 * FACTORS) {
        pl_vn t[LANES];
        take_words(t, row, next, (size_t)k * sizeof(uint16_t));
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r += 2)
            add_four(x + r / 2 * FACTORS, (pl_vnu)t[r], (pl_vnu)t[r + 1], &even, &odd);
        if ((k + 2 * LANES) % PL_PANEL_BLOCK == 0) {
            sum += even + odd;
            even = odd = zero;
        }
    }
    if (k % PL_PANEL_BLOCK == 0 && k == j->k) return sum;
    for (int64_t end = (k / PL_PANEL_BLOCK + 1) * PL_PANEL_BLOCK; k < end; k += 4, x += FACTORS) { // with padding
        factor  last[FACTORS] = {0};
        int64_t pairs = (j->k + 1 - k) / 2; // remaining pairs of x
        if (pairs > 0) memcpy(last, x, (pairs == 1 ? 2 : FACTORS) * sizeof *x);
        add_four(last, last_words(j, row, k), last_words(j, row, k + 2), &even, &odd);
        if (k + 4 == end) sum += even + odd;
    }
    return sum;
}

static void rowmajor_part(void *arg, int part, int parts) {
    const job  *j = arg;
    bool        bf16 = j->a->w.dtype == PL_BF16;
    const char *row[2][LANES];
    long        lo, hi;
    pl_range(j->a->x.dim[0] * j->groups, 1, part, parts, &lo, &hi);
    uint64_t mode = pl_panels_begin(bf16);
    if (lo < hi) find_rows(j, lo, row[lo % 2]);
    for (int64_t g = lo; g < hi; g++) {
        int64_t     m = g / j->groups, at = g % j->groups * LANES, count = j->n - at < LANES ? j->n - at : LANES;
        const void *x = pl_rows_at(&j->x, m, 0);
        float       y[LANES];
        find_rows(j, g + 1 < hi ? g + 1 : g, row[(g + 1) % 2]);
        const char *const *now = row[g % 2], *const *next = row[(g + 1) % 2];
        pl_vn_storeu(y, bf16 ? dots_bf16(j, x, now, next) : dots_f32(j, x, now, next));
        for (int64_t i = 0; i < count; i++)
            pl_f32(&j->a->y)[m * j->n + at + i] = j->a->id[m * j->n + at + i] < 0 ? -INFINITY : y[i];
    }
    pl_panels_end(bf16, mode);
}

static void panels_part(void *arg, int part, int parts) {
    const job *j = arg;
    bool       bf16 = j->a->w.dtype == PL_BF16;
    long       lo, hi;
    pl_range(j->a->x.dim[0] * j->n, 1, part, parts, &lo, &hi);
    float    z[PL_PANEL];
    int64_t  row = -1, segment = 0;
    pl_panel panel = {0}; // the panel and row of z
    uint64_t mode = pl_panels_begin(bf16);
    for (int64_t i = lo; i < hi; i++) {
        int32_t v = j->a->id[i];
        PL_CHECK(v >= -1 && v < j->a->w.dim[0], "gatherdot: row %d of %lld", v, (long long)j->a->w.dim[0]);
        bool have = row == i / j->n && v >= panel.first && v < panel.first + panel.rows;
        if (v >= 0 && !have) {
            row = i / j->n;
            panel = pl_panel_of(&j->a->w, v, &segment);
            pl_pass p = {.kc = j->k,
                         .x = pl_rows_at(&j->x, row, 0),
                         .w = (const char *)j->a->w.data + panel.at,
                         .y = z,
                         .ldy = PL_PANEL,
                         .cols = panel.width,
                         .far = true,
                         .code = j->a->w.code};
            if (panel.width == PL_HALF_PANEL)
                pl_panels_half_pass(bf16, 1, &p);
            else
                pl_panels_pass(bf16, 1, 1, &p);
        }
        pl_f32(&j->a->y)[i] = v < 0 ? -INFINITY : z[v - panel.first];
    }
    pl_panels_end(bf16, mode);
}

void PL_CPU(gatherdot_fwd)(pl_ctx *ctx, const void *args) {
    const pl_gatherdot_args *a = args;
    if (a->w.dtype != PL_F32 && a->w.dtype != PL_BF16) {
        pl_gatherdot_fwd_ref32(ctx, args);
        return;
    }
    job j = {.a = a, .n = a->y.dim[1], .k = a->w.dim[1]};
    if (a->x.dim[0] == 0 || j.n == 0) return;
    size_t mark = pl_arena_mark(&ctx->scratch);
    void  *packed = pl_arena_alloc(&ctx->scratch, pl_rows_apart_bytes(a->w.dtype == PL_BF16, a->x.dim[0], j.k));
    pl_rows_apart(&j.x, a->w.dtype == PL_BF16, pl_f32(&a->x), a->x.dim[0], j.k, packed);
    j.groups = (j.n + LANES - 1) / LANES;
    j.row_bytes = (size_t)j.k * pl_dtype_size(a->w.dtype);
    bool    panels = a->w.layout != PL_ROWMAJOR;
    int64_t items = a->x.dim[0] * (panels ? j.n : j.groups);
    double  work = 2.0 * (double)a->x.dim[0] * (double)j.n * (double)j.k;
    for (int64_t m = 0; m < a->x.dim[0] && !ctx->measuring; m++)
        pl_rows_pack(&j.x, m);
    if (!ctx->measuring)
        pl_parallel(ctx->pool, pl_cpu_parts(ctx, items, work), panels ? panels_part : rowmajor_part, &j);
    pl_arena_release(&ctx->scratch, mark);
}
