// The k largest logits: rows are cut into chunks of CHUNK ids, each chunk keeps its own best k in order, chunks merge
// in order. Most of a chunk is only compared with the least of the best so far, BLOCK ids at a time.
#include "kernels/cpu/rows.h"
#include "kernels/op/best_cpu.h"
#include "kernels/op/topk.h"
#include <math.h>

enum { CHUNK = 16384, BLOCK = 128 };

typedef struct chunk {
    pl_best best;
    int64_t nan;      // id of a NaN, -1
    float   max, sum; // sum of exp(x - max)
} chunk;

typedef struct topk_job {
    const pl_topk_args *a;
    int64_t             rows, cols, chunks; // chunks of a row
    chunk              *chunk;
} topk_job;

// Scans the vectors of a block that may have entries for the list.
static void scan_block(chunk *b, int k, const float *x, int64_t from, int64_t id0) {
    for (int64_t i = from; i < from + BLOCK; i += PL_VL) {
        if (b->best.held == k && !(pl_vf_hmax(pl_vf_loadu(x + i)) > b->best.value[k - 1])) continue;
        for (int64_t c = i; c < i + PL_VL; c++)
            pl_best_insert(&b->best, k, x[c], (int32_t)(id0 + c));
    }
}

static void scan_slowly(chunk *b, int k, const float *x, int64_t from, int64_t to, int64_t id0) {
    for (int64_t i = from; i < to; i++) {
        if (isnan(x[i]) && b->nan < 0) b->nan = id0 + i;
        pl_best_insert(&b->best, k, x[i], (int32_t)(id0 + i));
    }
}

// Sets *top to the largest of BLOCK values; false if one of them is NaN.
PL_INLINE bool block_top(const float *x, float *top) {
    pl_vf m0 = pl_vf_loadu(x), m1 = m0, odd = pl_vf_zero();
    for (int c = 0; c < BLOCK; c += 2 * PL_VL) {
        pl_vf v0 = pl_vf_loadu(x + c), v1 = pl_vf_loadu(x + c + PL_VL);
        m0 = pl_vf_max(m0, v0);
        m1 = pl_vf_max(m1, v1);
        // The comparison sets all bits of NaN lanes, which as a float is NaN again.
        for (int p = 0; p < PL_VF_PARTS; p++)
            odd.p[p] = (pl_vn)((pl_vni)odd.p[p] | (pl_vni)(v0.p[p] != v0.p[p]) | (pl_vni)(v1.p[p] != v1.p[p]));
    }
    *top = pl_vf_hmax(pl_vf_max(m0, m1));
    return !isnan(pl_vf_hsum(odd));
}

static void scan(chunk *b, int k, const float *x, int64_t n, int64_t id0) {
    int64_t i = 0;
    b->best.held = 0;
    b->nan = -1;
    for (; i + BLOCK <= n; i += BLOCK) {
        float top;
        bool  clean = block_top(x + i, &top);
        if (clean && b->best.held == k && !(top > b->best.value[k - 1])) continue;
        if (clean && k == 1) {
            int64_t at = i;
            while (x[at] != top)
                at++;
            b->best.held = 1;
            b->best.value[0] = top;
            b->best.id[0] = (int32_t)(id0 + at);
        } else if (clean) {
            scan_block(b, k, x, i, id0);
        } else {
            scan_slowly(b, k, x, i, i + BLOCK, id0);
        }
    }
    scan_slowly(b, k, x, i, n, id0);
}

static void sum_exp(chunk *b, const float *x, int64_t n) {
    float m = b->best.value[0];
    b->max = m;
    b->sum = 1.0f;
    if (isinf(m)) return; // +inf: the sum is; -inf: nothing to add
    pl_vf   max = pl_vf_set1(m), s0 = pl_vf_zero(), s1 = s0;
    int64_t i = 0;
    for (; i + 2 * PL_VL <= n; i += 2 * PL_VL) {
        s0 = pl_vf_add(s0, pl_vf_exp(pl_vf_sub(pl_vf_loadu(x + i), max)));
        s1 = pl_vf_add(s1, pl_vf_exp(pl_vf_sub(pl_vf_loadu(x + i + PL_VL), max)));
    }
    for (; i < n; i += PL_VL)
        s0 = pl_vf_add(s0, pl_vf_exp(pl_vf_sub(pl_vf_load_n(x + i, pl_vf_lanes(i, n), -INFINITY), max)));
    b->sum = pl_vf_hsum(pl_vf_add(s0, s1));
}

static void chunk_part(void *arg, int part, int parts) {
    const topk_job *j = arg;
    long            lo, hi;
    pl_range(j->rows * j->chunks, 1, part, parts, &lo, &hi);
    for (int64_t c = lo; c < hi; c++) {
        int64_t      from = c % j->chunks * CHUNK, n = j->cols - from < CHUNK ? j->cols - from : CHUNK;
        const float *x = pl_f32(&j->a->x) + c / j->chunks * j->cols + from;
        scan(&j->chunk[c], j->a->k, x, n, from);
        if (j->a->lse && j->chunk[c].nan < 0) sum_exp(&j->chunk[c], x, n);
    }
}

static void merge_row(pl_ctx *ctx, const topk_job *j, int64_t m) {
    const pl_topk_args *a = j->a;
    chunk              *to = &j->chunk[m * j->chunks];
    for (int64_t c = 0; c < j->chunks; c++) {
        const chunk *b = to + c;
        if (b->nan >= 0) {
            pl_ctx_fail(ctx, PL_E_INPUT, "logits: NaN at row %lld, id %lld; check the weights", (long long)m,
                        (long long)(a->name ? a->name[m * j->cols + b->nan] : b->nan));
            return;
        }
        for (int i = 0; i < b->best.held && c > 0; i++)
            pl_best_insert(&to->best, a->k, b->best.value[i], b->best.id[i]);
    }
    for (int i = 0; i < a->k; i++) {
        int32_t id = i < to->best.held ? to->best.id[i] : -1;
        a->id[m * a->k + i] = id >= 0 && a->name ? a->name[m * j->cols + id] : id;
        if (a->value) a->value[m * a->k + i] = i < to->best.held ? to->best.value[i] : -INFINITY;
    }
    if (!a->lse) return;
    double max = (double)to->best.value[0], sum = 0.0;
    for (int64_t c = 0; c < j->chunks; c++)
        sum += (double)to[c].sum * exp((double)to[c].max - max);
    a->lse[m] = isinf(max) ? to->best.value[0] : (float)(max + log(sum));
}

void PL_CPU(topk_fwd)(pl_ctx *ctx, const void *args) {
    const pl_topk_args *a = args;
    topk_job            j = {.a = a, .rows = a->x.dim[0], .cols = a->x.dim[1]};
    size_t              mark = pl_arena_mark(&ctx->scratch);
    j.chunks = (j.cols + CHUNK - 1) / CHUNK;
    j.chunk = pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)j.rows, (size_t)j.chunks, sizeof(chunk)));
    if (!ctx->measuring) {
        double work = (a->lse ? 20.0 : 2.0) * (double)(j.rows * j.cols);
        pl_parallel(ctx->pool, pl_cpu_parts(ctx, j.rows * j.chunks, work), chunk_part, &j);
        for (int64_t m = 0; m < j.rows && ctx->err.status == PL_OK; m++)
            merge_row(ctx, &j, m);
    }
    pl_arena_release(&ctx->scratch, mark);
}
