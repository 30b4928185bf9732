// The fused head: panels of the weight stream past the rows once; of each panel's 64 logits per row stay only those
// that enter the row's list of the k best, and the panel's maximum and sum of exponentials.
//   up to PL_MR_PANEL rows  one pass a panel
//   more rows               a panel is read again for each tile of rows, from L2, where a panel of K rows of 64 lies
// Which thread takes a panel changes nothing: lists are merged by (value, row of W), sums panel by panel in order.
#include "kernels/cpu/pack.h"
#include "kernels/cpu/panels.h"
#include "kernels/op/headtopk.h"
#include "kernels/op/linear.h"
#include <math.h>
#include <string.h>

void PL_CPU(headtopk_fwd)(pl_ctx *ctx, const void *args);
void pl_headtopk_fwd_ref32(pl_ctx *ctx, const void *args);

enum { ROWS_MAX = 96 }; // rows whose packed x is held at once

// A panel that the support touches; bit j of mask: row 64 panel + j of W is in it.
typedef struct item {
    int32_t  panel;
    uint64_t mask;
} item;
_Static_assert(PL_PANEL == 64, "a bit for each row of a panel");

typedef struct sum {
    float max, sum; // sum of exp(z - max) over a panel; max -infinity: nothing in it
} sum;

typedef struct best {
    int     held;
    int64_t nan; // row of W with a NaN, -1
    int32_t id[PL_TOPK_MAX];
    float   value[PL_TOPK_MAX];
} best;

typedef struct job {
    const pl_headtopk_args *a;
    const item             *items;
    int64_t                 n_items, k; // k: of the product
    const float            *x;          // [rows][K], this block of rows
    float                  *xp;         // its tiles, k-slow; x itself for one row
    int64_t                 rows, tiles, tile_floats;
    best                   *best; // [parts][rows]
    sum                    *sum;  // [rows][n_items]; NULL: not wanted
} job;

static int64_t tile_row(const job *j, int64_t t) {
    return j->rows * t / j->tiles;
}

// Puts v behind all that are at least as large: rows of W come in ascending order.
static void insert(best *b, int k, float v, int32_t id) {
    int at = b->held;
    while (at > 0 && v > b->value[at - 1])
        at--;
    if (at == k) return;
    if (b->held < k) b->held++;
    size_t behind = (size_t)(b->held - 1 - at);
    memmove(b->value + at + 1, b->value + at, behind * sizeof(float));
    memmove(b->id + at + 1, b->id + at, behind * sizeof(int32_t));
    b->value[at] = v;
    b->id[at] = id;
}

// One row's logits of one panel; what lies outside the support is taken out first.
static void take(best *b, sum *s, int k, float *z, const item *it) {
    pl_vf max = pl_vf_set1(-INFINITY), odd = pl_vf_zero();
    if (~it->mask)
        for (int v = 0; v < PL_PANEL; v++)
            if (!(it->mask >> v & 1)) z[v] = -INFINITY;
    for (int v = 0; v < PL_PANEL; v += PL_VL) {
        pl_vf x = pl_vf_loadu(z + v);
        max = pl_vf_max(max, x);
        // Where a lane is NaN the comparison sets all its bits, which as a float is NaN again.
        for (int p = 0; p < PL_VF_PARTS; p++)
            odd.p[p] = (pl_vn)((pl_vni)odd.p[p] | (pl_vni)(x.p[p] != x.p[p]));
    }
    float top = pl_vf_hmax(max);
    int   first = it->panel * PL_PANEL;
    if (isnan(pl_vf_hsum(odd))) {
        for (int v = 0; v < PL_PANEL && b->nan < 0; v++)
            if (isnan(z[v])) b->nan = first + v;
        return;
    }
    if (b->held < k || top > b->value[k - 1])
        for (int v = 0; v < PL_PANEL; v++)
            if (it->mask >> v & 1 && (b->held < k || z[v] > b->value[k - 1])) insert(b, k, z[v], first + v);
    if (!s) return;
    pl_vf m = pl_vf_set1(top), total = pl_vf_zero();
    for (int v = 0; v < PL_PANEL && !isinf(top); v += PL_VL)
        total = pl_vf_add(total, pl_vf_exp(pl_vf_sub(pl_vf_loadu(z + v), m)));
    *s = (sum){.max = top, .sum = isinf(top) ? 1.0f : pl_vf_hsum(total)};
}

static void pack_part(void *arg, int part, int parts) {
    const job *j = arg;
    long       lo, hi;
    pl_range((long)j->tiles, 1, part, parts, &lo, &hi);
    for (long t = lo; t < hi; t++) {
        int64_t r0 = tile_row(j, t), rows = tile_row(j, t + 1) - r0;
        pl_pack_transposed(j->xp + t * j->tile_floats, rows, j->x + r0 * j->k, j->k, rows, j->k);
    }
}

static void items_part(void *arg, int part, int parts) {
    const job *j = arg;
    bool       bf16 = j->a->w.dtype == PL_BF16;
    size_t     panel_bytes = (size_t)j->k * PL_PANEL * (bf16 ? 2 : 4);
    int64_t    width = j->a->w.dim[0];
    best      *b = j->best + part * j->rows;
    float      z[PL_MR_PANEL * PL_PANEL];
    long       lo, hi;
    for (int64_t r = 0; r < j->rows; r++) {
        b[r].held = 0;
        b[r].nan = -1;
    }
    pl_range((long)j->n_items, 1, part, parts, &lo, &hi);
    for (long i = lo; i < hi; i++) {
        const item *it = &j->items[i];
        int64_t     cols = width - (int64_t)it->panel * PL_PANEL;
        const char *w = (const char *)j->a->w.data + (size_t)it->panel * panel_bytes;
        // What is prefetched behind a panel's end is the next one, wherever it lies.
        const char *after = i + 1 < hi ? (const char *)j->a->w.data + (size_t)it[1].panel * panel_bytes : NULL;
        for (int64_t t = 0; t < j->tiles; t++) {
            int64_t r0 = tile_row(j, t), rows = tile_row(j, t + 1) - r0;
            pl_pass p = {.kc = j->k,
                         .x = j->xp + t * j->tile_floats,
                         .w = w,
                         .panel_bytes = panel_bytes,
                         .y = z,
                         .ldy = PL_PANEL,
                         .cols = cols < PL_PANEL ? cols : PL_PANEL,
                         .after = t + 1 < j->tiles ? w : after};
            pl_panels_pass(bf16, (int)rows, 1, &p);
            for (int64_t r = 0; r < rows; r++)
                take(&b[r0 + r], j->sum ? &j->sum[(r0 + r) * j->n_items + i] : NULL, j->a->k, z + r * PL_PANEL, it);
        }
    }
}

static void finish_row(pl_ctx *ctx, const job *j, int parts, int64_t r, int64_t m) {
    const pl_headtopk_args *a = j->a;
    best                   *to = &j->best[r];
    for (int p = 0; p < parts; p++) {
        const best *b = &j->best[p * j->rows + r];
        if (b->nan >= 0) {
            pl_ctx_fail(ctx, PL_E_INPUT, "logits: NaN at row %lld, id %lld; check the weights", (long long)m,
                        (long long)b->nan);
            return;
        }
        for (int i = 0; i < b->held && p > 0; i++)
            insert(to, a->k, b->value[i], b->id[i]);
    }
    for (int i = 0; i < a->k; i++) {
        a->id[m * a->k + i] = i < to->held ? to->id[i] : -1;
        if (a->value) a->value[m * a->k + i] = i < to->held ? to->value[i] : -INFINITY;
    }
    if (!a->lse) return;
    float  max = -INFINITY;
    double total = 0;
    sum   *s = j->sum + r * j->n_items;
    for (int64_t i = 0; i < j->n_items; i++)
        if (s[i].max > max) max = s[i].max;
    for (int64_t i = 0; i < j->n_items && !isinf(max); i++)
        if (!isinf(s[i].max)) total += (double)s[i].sum * exp((double)s[i].max - (double)max);
    a->lse[m] = isinf(max) ? max : (float)((double)max + log(total));
}

// The panels of the support, in order.
static int64_t list_items(item *to, const pl_headtopk_args *a) {
    pl_span        all = {.first = 0, .count = (int32_t)a->w.dim[0]};
    const pl_span *span = a->span ? a->span : &all;
    int64_t        n = 0;
    for (int i = 0; i < (a->span ? a->n_spans : 1); i++) {
        int32_t end = span[i].first + span[i].count;
        for (int32_t v = span[i].first; v < end;) {
            int32_t  panel = v / PL_PANEL, low = v % PL_PANEL, next = (panel + 1) * PL_PANEL;
            int32_t  high = (next < end ? next : end) - panel * PL_PANEL; // rows low..high-1 of the panel
            uint64_t mask = (high == PL_PANEL ? ~(uint64_t)0 : ((uint64_t)1 << high) - 1) & ~(((uint64_t)1 << low) - 1);
            if (n > 0 && to[n - 1].panel == panel)
                to[n - 1].mask |= mask;
            else
                to[n++] = (item){.panel = panel, .mask = mask};
            v = next;
        }
    }
    return n;
}

void PL_CPU(headtopk_fwd)(pl_ctx *ctx, const void *args) {
    const pl_headtopk_args *a = args;
    int64_t                 m = a->x.dim[0], k = a->w.dim[1];
    int64_t                 panels = (a->w.dim[0] + PL_PANEL - 1) / PL_PANEL, block = m < ROWS_MAX ? m : ROWS_MAX;
    if (a->w.layout != PL_PANELS) {
        pl_headtopk_fwd_ref32(ctx, args);
        return;
    }
    if (m == 0) return;
    // Scratch for the largest support and, of fewer rows than were measured, never more than for all of them.
    int     parts = pl_pool_threads(ctx->pool);
    int64_t tiles = (block + PL_MR_PANEL - 1) / PL_MR_PANEL;
    job     j = {.a = a, .k = k};
    j.tile_floats = ((block < PL_MR_PANEL ? block : PL_MR_PANEL) * k + PL_PACK_SLACK + PL_VL - 1) / PL_VL * PL_VL;
    size_t mark = pl_arena_mark(&ctx->scratch);
    item  *items = pl_arena_alloc(&ctx->scratch, (size_t)panels * sizeof *items);
    j.best = pl_arena_alloc(&ctx->scratch, (size_t)(parts * block) * sizeof *j.best);
    if (a->lse) j.sum = pl_arena_alloc(&ctx->scratch, (size_t)(block * panels) * sizeof *j.sum);
    float *packed = m == 1 ? NULL : pl_arena_alloc(&ctx->scratch, (size_t)(tiles * j.tile_floats) * sizeof(float));
    j.items = items;
    j.n_items = ctx->measuring ? 0 : list_items(items, a);
    for (int64_t r0 = 0; r0 < m && !ctx->measuring; r0 += block) {
        j.rows = m - r0 < block ? m - r0 : block;
        j.tiles = (j.rows + PL_MR_PANEL - 1) / PL_MR_PANEL;
        j.x = pl_f32(&a->x) + r0 * k;
        j.xp = packed ? packed : pl_f32(&a->x);
        if (packed) pack_part(&j, 0, 1);
        pl_parallel(ctx->pool, parts, items_part, &j);
        for (int64_t r = 0; r < j.rows && ctx->err.status == PL_OK; r++)
            finish_row(ctx, &j, parts, r, r0 + r);
    }
    pl_arena_release(&ctx->scratch, mark);
}
