// Products of groups of rows: the panels of all weights that have rows are one list, which threads share, so that a
// single row's few small experts occupy as many threads as one large weight. A panel is taken for all rows of its group
// before the next one.
#include "kernels/codes.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/rows.h"
#include "kernels/op/experts.h"
#include "kernels/panels.h"

void PL_CPU(grouped_fwd)(pl_ctx *ctx, const void *args);

typedef struct group {
    pl_rows x;
    int64_t e; // its weight
} group;

typedef struct job {
    const pl_grouped_args *a;
    group                 *group; // groups that have rows
    int64_t                groups, panels, n, k;
    bool                   bf16;
} job;

// Scratch for so many rows in any groups: the most bytes per row in tiles of up to twice the highest.
static size_t rows_bytes(bool bf16, int64_t rows, int64_t k) {
    size_t most = 0;
    for (int64_t r = 1; r <= rows && r <= 2 * PL_PASS_ROWS; r++) {
        size_t each = (pl_rows_bytes(bf16, r, k) + (size_t)r - 1) / (size_t)r;
        if (each > most) most = each;
    }
    return pl_size_mul((size_t)rows, most, 1);
}

static void pack_part(void *arg, int part, int parts) {
    const job *j = arg;
    long       lo, hi;
    pl_range((long)j->groups, 1, part, parts, &lo, &hi);
    for (long g = lo; g < hi; g++)
        for (int64_t t = 0; t < j->group[g].x.tiles; t++)
            pl_rows_pack(&j->group[g].x, t);
}

static void add_bias(float *y, int64_t ldy, int64_t rows, int64_t cols, const float *b) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols; i++)
            y[r * ldy + i] += b[i];
}

static void panels_part(void *arg, int part, int parts) {
    const job *j = arg;
    size_t     panel_bytes = pl_packed_panel(j->a->w);
    long       lo, hi;
    pl_range((long)(j->groups * j->panels), 1, part, parts, &lo, &hi);
    uint64_t mode = pl_panels_begin(j->bf16);
    for (long i = lo; i < hi; i++) {
        const group *g = &j->group[i / j->panels];
        int64_t      p = i % j->panels, at = j->a->first[g->e];
        for (int64_t t = 0; t < g->x.tiles; t++) {
            int64_t r0 = pl_rows_first(&g->x, t), rows = pl_rows_first(&g->x, t + 1) - r0;
            pl_pass a = {.kc = j->k,
                         .x = pl_rows_at(&g->x, t, 0),
                         .among = g->x.tiles > 1,
                         .w = (const char *)j->a->w[g->e].data + (size_t)p * panel_bytes,
                         .panel_bytes = panel_bytes,
                         .y = pl_f32(&j->a->y) + (at + r0) * j->n + p * PL_PANEL,
                         .ldy = j->n,
                         .cols = j->n - p * PL_PANEL < PL_PANEL ? j->n - p * PL_PANEL : PL_PANEL,
                         .far = t == 0,
                         .code = j->a->w->code};
            pl_panels_pass(j->bf16, (int)rows, 1, &a);
            if (j->a->b) add_bias(a.y, a.ldy, rows, a.cols, pl_f32(&j->a->b[g->e]) + p * PL_PANEL);
        }
    }
    pl_panels_end(j->bf16, mode);
}

void PL_CPU(grouped_fwd)(pl_ctx *ctx, const void *args) {
    const pl_grouped_args *a = args;
    int64_t                rows = a->x.dim[0];
    job                    j = {.a = a, .n = a->y.dim[1], .k = a->x.dim[1], .bf16 = a->w->dtype == PL_BF16};
    if (rows == 0) return;
    int64_t most = rows < a->n ? rows : a->n;
    size_t  mark = pl_arena_mark(&ctx->scratch);
    j.group = pl_arena_alloc(&ctx->scratch, (size_t)most * sizeof *j.group);
    char *packed = pl_arena_alloc(&ctx->scratch, rows_bytes(j.bf16, rows, j.k));
    j.panels = (j.n + PL_PANEL - 1) / PL_PANEL;
    for (int64_t e = 0; e < a->n && !ctx->measuring; e++) {
        int64_t first = a->first[e], count = a->first[e + 1] - first;
        if (count == 0) continue;
        group *g = &j.group[j.groups++];
        g->e = e;
        pl_rows_begin(&g->x, j.bf16, pl_f32(&a->x) + first * j.k, count, j.k, packed);
        packed += pl_rows_bytes(j.bf16, count, j.k);
    }
    double work = 2.0 * (double)rows * (double)j.n * (double)j.k;
    if (!ctx->measuring) {
        pl_parallel(ctx->pool, pl_cpu_parts(ctx, j.groups, (double)rows * (double)j.k), pack_part, &j);
        pl_parallel(ctx->pool, pl_cpu_parts(ctx, j.groups * j.panels, work), panels_part, &j);
    }
    pl_arena_release(&ctx->scratch, mark);
}
