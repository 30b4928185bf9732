// Attention over cached keys: decoding, trees, prefill.
//
// Every (row, query head) is its own chain of group steps: PL_ATTN_GROUP positions at a time, scores, maximum,
// exponentials, sum, values in order of position. A step sees nothing but its query, its state and the group's keys and
// values, and there is one compiled copy of it per head width, so the chain's bits depend on the path alone. What
// varies freely is who walks beside it: up to ROW_BLOCK rows and all query heads of a key head take each group
// together, while its keys and values are in the first-level cache.
#include "kernels/op/attention_cpu.h"
#include "kernels/base/check.h"
#include <math.h>

enum {
    GROUP = PL_ATTN_GROUP,
    ROW_BLOCK = 8,
    MAX_UNROLLED = 8,              // vectors of a head with a step of its own: up to 128 channels
    VALUE_BLOCK = 8 / PL_VF_PARTS, // vectors of a value sum held in registers
};

// State of one (row, query head) between groups. Behind it follow the scaled query and the accumulator, each padded
// with zeros to whole vectors.
typedef struct chain {
    float max, sum;
    float pad[PL_VL - 2];
} chain;

typedef void (*step_fn)(chain *c, const float *k, const float *v, const int64_t *off, int count, int vectors);

// ---- one group ----

// Scores of PL_VN_LANES keys. Lanes are summed as hsum does: j with j + 8, then + 4, + 2, + 1.
PL_INLINE pl_vn scores(const float *q, const float *k, const int64_t *off, const int vectors) {
    pl_vn t[PL_VN_LANES];
#pragma GCC unroll 16
    for (int r = 0; r < PL_VN_LANES; r++) {
        const float *key = k + off[r];
        pl_vf        acc = pl_vf_mul(pl_vf_load(q), pl_vf_loadu(key));
#pragma GCC unroll 8
        for (int i = 1; i < vectors; i++)
            acc = pl_vf_fma(pl_vf_load(q + i * PL_VL), pl_vf_loadu(key + i * PL_VL), acc);
#pragma GCC unroll 4
        for (int step = PL_VF_PARTS / 2; step > 0; step /= 2)
#pragma GCC unroll 4
            for (int i = 0; i < step; i++)
                acc.p[i] += acc.p[i + step];
        t[r] = acc.p[0];
    }
    pl_vn_transpose(t);
#pragma GCC unroll 8
    for (int step = PL_VN_LANES / 2; step > 0; step /= 2)
#pragma GCC unroll 16
        for (int i = 0; i < step; i++)
            t[i] += t[i + step];
    return t[0];
}

// acc[i] += sum_j p[j] v_j[i] over `vectors` vectors, j ascending.
PL_INLINE void add_values(float *acc, const float *p, const float *v, const int64_t *off, int count,
                          const int vectors) {
    pl_vf a[VALUE_BLOCK];
#pragma GCC unroll 8
    for (int i = 0; i < vectors; i++)
        a[i] = pl_vf_load(acc + i * PL_VL);
    for (int j = 0; j < count; j++) {
        pl_vf        pj = pl_vf_set1(p[j]);
        const float *value = v + off[j];
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++)
            a[i] = pl_vf_fma(pj, pl_vf_loadu(value + i * PL_VL), a[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < vectors; i++)
        pl_vf_store(acc + i * PL_VL, a[i]);
}

// off[0..GROUP) are all readable; entries from count on repeat a key that counts for nothing.
PL_INLINE void group_step(chain *c, const float *k, const float *v, const int64_t *off, int count, const int vectors) {
    float             *q = (float *)(c + 1), *acc = q + vectors * PL_VL;
    _Alignas(64) float s[GROUP];
    int                j = 0;
    for (; j < count; j += PL_VN_LANES)
        pl_vn_storeu(s + j, scores(q, k, off + j, vectors));
    for (j = count; j < GROUP; j++)
        s[j] = -INFINITY;
    pl_vf s0 = pl_vf_load(s), s1 = pl_vf_load(s + PL_VL);
    float top = pl_vf_hmax(pl_vf_max(s0, s1));
    if (top > c->max) {
        pl_vf fade = pl_vf_exp(pl_vf_set1(c->max - top)); // 0 before the first group
        for (int i = 0; i < vectors; i++)
            pl_vf_store(acc + i * PL_VL, pl_vf_mul(pl_vf_load(acc + i * PL_VL), fade));
        c->sum *= fade.p[0][0];
        c->max = top;
    }
    pl_vf m = pl_vf_set1(c->max);
    s0 = pl_vf_exp(pl_vf_sub(s0, m));
    s1 = pl_vf_exp(pl_vf_sub(s1, m));
    pl_vf_store(s, s0);
    pl_vf_store(s + PL_VL, s1);
    c->sum += pl_vf_hsum(pl_vf_add(s0, s1));
    int i = 0;
    for (; i + VALUE_BLOCK <= vectors; i += VALUE_BLOCK)
        add_values(acc + i * PL_VL, s, v + i * PL_VL, off, count, VALUE_BLOCK);
    switch (vectors - i) { // a constant but in step_wide
#define REST(N)                                                                                                        \
    case N: add_values(acc + i * PL_VL, s, v + i * PL_VL, off, count, N <= VALUE_BLOCK ? N : 1); break;
        REST(1) REST(2) REST(3) REST(4) REST(5) REST(6) REST(7)
#undef REST
    }
}

#define STEP(N)                                                                                                        \
    static __attribute__((noinline)) void step_##N(chain *c, const float *k, const float *v, const int64_t *off,       \
                                                   int count, int vectors) {                                           \
        (void)vectors;                                                                                                 \
        group_step(c, k, v, off, count, N);                                                                            \
    }
STEP(1)
STEP(2)
STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8)
#undef STEP
    static __attribute__((noinline)) void step_wide(chain *c, const float *k, const float *v, const int64_t *off,
                                                    int count, int vectors) {
    group_step(c, k, v, off, count, vectors);
}

static step_fn pick_step(int vectors) {
    static const step_fn steps[] = {NULL, step_1, step_2, step_3, step_4, step_5, step_6, step_7, step_8};
    return vectors <= MAX_UNROLLED ? steps[vectors] : step_wide;
}

// ---- rows ----

typedef struct cached_job {
    const pl_attention_args *a;
    step_fn                  step;
    int64_t                  rows;
    int                      vectors;   // of a head, the last one padded
    int                      head_sets; // a key head's query heads are cut into this many items
    uint8_t                 *scratch;   // per part: chains, then a packed group when heads are not whole vectors
    size_t                   chain_bytes, part_bytes;
} cached_job;

// The slot of each position of group g, as an offset into k and v. Returns how many positions the group has.
static int group_offsets(int64_t *off, const pl_kvrow *r, int64_t g, int64_t width, int64_t at) {
    int64_t p0 = g * GROUP, left = (int64_t)r->n_ctx + r->n_path - p0;
    int     count = left < GROUP ? (int)left : GROUP;
    for (int j = 0; j < count; j++) {
        int64_t p = p0 + j, slot = p < r->n_ctx || !r->path ? p : r->path[p - r->n_ctx];
        off[j] = slot * width + at;
    }
    for (int j = count; j < GROUP; j++)
        off[j] = off[count - 1];
    return count;
}

// Heads whose width is not a multiple of 16: the group's keys and values, padded with the zeros already there.
static void pack_group(float *dst, const float *src, int64_t *off, int count, int hd, int64_t padded) {
    for (int j = 0; j < count; j++)
        for (int i = 0; i < hd; i++)
            dst[j * padded + i] = src[off[j] + i];
}

static void run_item(const cached_job *job, uint8_t *scratch, int64_t m0, int64_t m1, int kv_head, int h0, int h1) {
    const pl_attention_args *a = job->a;
    int                      hd = a->hd, heads = h1 - h0;
    int64_t                  padded = (int64_t)job->vectors * PL_VL, q_width = pl_tensor_cols(&a->qkv), groups = 0;
    int64_t                  width = (int64_t)a->nkv * hd, at = (int64_t)kv_head * hd;
    float                   *packed_k = (float *)(scratch + ROW_BLOCK * (size_t)heads * job->chain_bytes);
    float                   *packed_v = packed_k + GROUP * padded;
    int64_t                  off[GROUP], packed_off[GROUP];
    bool                     pack = hd % PL_VL != 0;
    if (pack) {
        memset(packed_k, 0, 2 * GROUP * (size_t)padded * sizeof(float));
        for (int j = 0; j < GROUP; j++)
            packed_off[j] = j * padded;
    }
    for (int64_t m = m0; m < m1; m++) {
        int64_t n = ((int64_t)a->row[m].n_ctx + a->row[m].n_path + GROUP - 1) / GROUP;
        groups = n > groups ? n : groups;
        for (int h = h0; h < h1; h++) {
            chain       *c = (chain *)(scratch + (size_t)((m - m0) * heads + h - h0) * job->chain_bytes);
            const float *from = pl_f32(&a->qkv) + m * q_width + (int64_t)h * hd;
            float       *q = (float *)(c + 1);
            memset(c, 0, job->chain_bytes);
            c->max = -INFINITY;
            for (int i = 0; i < hd; i++)
                q[i] = from[i] * (float)a->scale;
        }
    }
    for (int64_t g = 0; g < groups; g++)
        for (int64_t m = m0; m < m1; m++) {
            const pl_kvrow *r = &a->row[m];
            if (g * GROUP >= (int64_t)r->n_ctx + r->n_path) continue;
            int          count = group_offsets(off, r, g, width, at);
            const float *k = r->k, *v = r->v;
            if (pack) {
                pack_group(packed_k, k, off, count, hd, padded);
                pack_group(packed_v, v, off, count, hd, padded);
                k = packed_k;
                v = packed_v;
            }
            uint8_t *c = scratch + (size_t)((m - m0) * heads) * job->chain_bytes;
            for (int h = 0; h < heads; h++, c += job->chain_bytes)
                job->step((chain *)c, k, v, pack ? packed_off : off, count, job->vectors);
        }
    for (int64_t m = m0; m < m1; m++)
        for (int h = h0; h < h1; h++) {
            const chain *c = (const chain *)(scratch + (size_t)((m - m0) * heads + h - h0) * job->chain_bytes);
            const float *acc = (const float *)(c + 1) + padded;
            float       *o = pl_f32(&a->o) + (m * a->nh + h) * hd;
            pl_vf        sum = pl_vf_set1(c->sum > 0.0f ? c->sum : 1.0f);
            for (int i = 0; i < hd; i += PL_VL)
                pl_vf_put(o + i, pl_vf_div(pl_vf_load(acc + i), sum), pl_vf_lanes(i, hd));
        }
}

// Items: row blocks x key heads x head sets, dealt round robin (later rows of a prefill see more keys).
static void cached_part(void *arg, int part, int parts) {
    const cached_job        *job = arg;
    const pl_attention_args *a = job->a;
    int                      share = a->nh / a->nkv, per_block = a->nkv * job->head_sets;
    int64_t                  items = (job->rows + ROW_BLOCK - 1) / ROW_BLOCK * per_block;
    for (int64_t i = part; i < items; i += parts) {
        int64_t m0 = i / per_block * ROW_BLOCK, m1 = m0 + ROW_BLOCK < job->rows ? m0 + ROW_BLOCK : job->rows;
        int     kv_head = (int)(i % per_block) / job->head_sets;
        long    lo, hi;
        pl_range(share, 1, (int)(i % job->head_sets), job->head_sets, &lo, &hi);
        run_item(job, job->scratch + (size_t)part * job->part_bytes, m0, m1, kv_head, kv_head * share + (int)lo,
                 kv_head * share + (int)hi);
    }
}

static void cached_fwd(pl_ctx *ctx, const pl_attention_args *a) {
    int        share = a->nh / a->nkv, threads = pl_pool_threads(ctx->pool);
    cached_job job = {.a = a, .rows = pl_tensor_rows(&a->qkv), .vectors = (a->hd + PL_VL - 1) / PL_VL};
    job.step = pick_step(job.vectors);
    int64_t blocks = (job.rows + ROW_BLOCK - 1) / ROW_BLOCK;
    for (job.head_sets = 1; blocks * a->nkv * job.head_sets < threads && job.head_sets < share;)
        job.head_sets++;
    job.chain_bytes = sizeof(chain) + 2 * (size_t)job.vectors * PL_VL * sizeof(float);
    job.part_bytes = ROW_BLOCK * (size_t)share * job.chain_bytes;
    job.part_bytes += 2 * GROUP * (size_t)job.vectors * PL_VL * sizeof(float);

    size_t mark = pl_arena_mark(&ctx->scratch);
    job.scratch = pl_arena_alloc(&ctx->scratch, (size_t)threads * job.part_bytes);
    if (!ctx->measuring) {
        double work = 0;
        for (int64_t m = 0; m < job.rows; m++)
            work += 4.0 * a->nh * a->hd * ((double)a->row[m].n_ctx + a->row[m].n_path);
        pl_parallel(ctx->pool, pl_cpu_parts(ctx, blocks * a->nkv * job.head_sets, work), cached_part, &job);
    }
    pl_arena_release(&ctx->scratch, mark);
}

void PL_CPU(attention_fwd)(pl_ctx *ctx, const void *args) {
    const pl_attention_args *a = args;
    PL_CHECK(a->nkv > 0 && a->nh % a->nkv == 0, "nh %d nkv %d", a->nh, a->nkv);
    if (a->n_blocks > 0)
        PL_CPU(attention_blocks_fwd)(ctx, a);
    else
        cached_fwd(ctx, a);
}

void PL_CPU(attention_bwd)(pl_ctx *ctx, const void *args) {
    const pl_attention_args *a = args;
    PL_CHECK(a->n_blocks > 0, "cached attention has no gradient (n_blocks %d)", a->n_blocks);
    PL_CPU(attention_blocks_bwd)(ctx, a);
}
