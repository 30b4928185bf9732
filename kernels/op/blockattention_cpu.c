// Blocks on vectors. An item is a block and a key head: all its query heads' rows use each key while it is in cache.
// Scores of an item's rows are adjacent, so that softmax and the sums over keys run along them.
//
// Backward takes the blocks of a document (one lo) and a key head as one item, because they add to the same rows of
// context: in ascending order, for any number of threads.
#include "kernels/op/attention_cpu.h"
#include "kernels/op/blockattention.h"
#include <math.h>

enum { KEYS = 32 };

// Keys, or values, of one head: n rows `stride` apart, and their gradients likewise.
typedef struct stretch {
    const float *k, *v;
    float       *dk, *dv; // NULL: constants
    int64_t      stride, n;
} stretch;

typedef struct job {
    const pl_blockattention_args *a;
    int64_t                       blocks, hp, most; // hp: a head padded to vectors; most: keys of a block, to vectors
    uint8_t                      *scratch;
    size_t                        part_bytes;
    int32_t                      *first; // backward: [documents + 1] first block of each item
    int64_t                       documents;
} job;

// One item's rows: R = query heads of the key head times the block. Its keys are those that at least one of them sees.
typedef struct rows {
    int     n;
    stretch of[2];   // context, then the block itself
    int64_t keys;    // of both
    float  *q, *d_o; // [R, hp]
    float  *s, *ds;  // [R, most]
    float  *acc;     // [R, hp]
} rows;

static stretch stretch_of(const pl_tensor *t, int64_t row, int64_t n, int64_t at, int64_t width) {
    stretch s = {.stride = pl_tensor_cols(t), .n = n};
    s.k = pl_f32(t) + row * s.stride + at;
    s.v = s.k + width;
    if (t->grad) s.dk = (float *)t->grad + row * s.stride + at, s.dv = s.dk + width;
    return s;
}

static int64_t row_of(const job *j, int64_t g, int i) {
    return g * j->a->block + i % j->a->block;
}

static int head_of(const job *j, int kv_head, int i) {
    return kv_head * (j->a->nh / j->a->nkv) + i / j->a->block;
}

static void copy_head(float *to, const float *from, const job *j) {
    for (int64_t c = 0; c < j->hp; c += PL_VL)
        pl_vf_store(to + c, pl_vf_get(from + c, pl_vf_lanes(c, j->a->hd)));
}

static rows begin(const job *j, uint8_t *scratch, int64_t g, int kv_head) {
    const pl_blockattention_args *a = j->a;
    int64_t                       width = (int64_t)a->nkv * a->hd, head = (int64_t)kv_head * a->hd;
    rows                          r = {.n = a->nh / a->nkv * a->block};
    int64_t                       first = pl_block_first(a, g, 0);
    r.of[0] = stretch_of(&a->kv, first, a->hi[g] - first, head, width);
    r.of[1] = stretch_of(&a->qkv, g * a->block, a->block, (int64_t)a->nh * a->hd + head, width);
    r.keys = r.of[0].n + r.of[1].n;
    r.q = (float *)scratch;
    r.d_o = r.q + r.n * j->hp;
    r.acc = r.d_o + r.n * j->hp;
    r.s = r.acc + r.n * j->hp;
    r.ds = r.s + r.n * j->most;
    for (int i = 0; i < r.n; i++)
        copy_head(r.q + i * j->hp,
                  pl_f32(&a->qkv) + row_of(j, g, i) * pl_tensor_cols(&a->qkv) + (int64_t)head_of(j, kv_head, i) * a->hd,
                  j);
    return r;
}

// to[0 .. PL_VN_LANES) = x . rows of `from`; the last real one is repeated for missing ones.
static void products(float *to, const float *x, const float *from, int64_t stride, int64_t have, const job *j) {
    pl_vn t[PL_VN_LANES];
    for (int l = 0; l < PL_VN_LANES; l++) {
        const float *y = from + (l < have ? l : have - 1) * stride;
        pl_vf        sum = pl_vf_zero();
        for (int64_t c = 0; c < j->hp; c += PL_VL)
            sum = pl_vf_fma(pl_vf_load(x + c), pl_vf_get(y + c, pl_vf_lanes(c, j->a->hd)), sum);
        for (int step = PL_VF_PARTS / 2; step > 0; step /= 2)
            for (int i = 0; i < step; i++)
                sum.p[i] += sum.p[i + step];
        t[l] = sum.p[0];
    }
    pl_vn_storeu(to, pl_vn_lane_sums(t));
}

// s [R, most] of x [R, hp] with the keys or the values.
static void all_products(const job *j, const rows *r, float *s, const float *x, bool values) {
    int64_t at = 0;
    for (int o = 0; o < 2; at += r->of[o++].n) {
        const stretch *of = &r->of[o];
        const float   *from = values ? of->v : of->k;
        for (int64_t k = 0; k < of->n; k += PL_VN_LANES)
            for (int i = 0; i < r->n; i++)
                products(s + i * j->most + at + k, x + i * j->hp, from + k * of->stride, of->stride, of->n - k, j);
    }
}

// to [R, hp] += s [R, keys] times the values or the keys.
static void add_weighted(const job *j, const rows *r, float *to, const float *s, bool values) {
    int64_t at = 0;
    for (int o = 0; o < 2; at += r->of[o++].n) {
        const stretch *of = &r->of[o];
        const float   *from = values ? of->v : of->k;
        for (int64_t k0 = 0; k0 < of->n; k0 += KEYS)
            for (int i = 0; i < r->n; i++)
                for (int64_t c = 0; c < j->hp; c += PL_VL) {
                    pl_vf        sum = pl_vf_load(to + i * j->hp + c);
                    int64_t      lanes = pl_vf_lanes(c, j->a->hd);
                    const float *w = s + i * j->most + at;
                    for (int64_t k = k0; k < of->n && k < k0 + KEYS; k++)
                        sum = pl_vf_fma(pl_vf_set1(w[k]), pl_vf_get(from + k * of->stride + c, lanes), sum);
                    pl_vf_store(to + i * j->hp + c, sum);
                }
    }
}

// Keys' or values' gradients += s [R, keys] transposed times x [R, hp].
static void add_transposed(const job *j, const rows *r, const float *s, const float *x, bool values) {
    int64_t at = 0;
    for (int o = 0; o < 2; at += r->of[o++].n) {
        const stretch *of = &r->of[o];
        float         *to = values ? of->dv : of->dk;
        for (int64_t k = 0; to && k < of->n; k++)
            for (int64_t c = 0; c < j->hp; c += PL_VL) {
                int64_t lanes = pl_vf_lanes(c, j->a->hd);
                pl_vf   sum = pl_vf_get(to + k * of->stride + c, lanes);
                for (int i = 0; i < r->n; i++)
                    sum = pl_vf_fma(pl_vf_set1(s[i * j->most + at + k]), pl_vf_load(x + i * j->hp + c), sum);
                pl_vf_put(to + k * of->stride + c, sum, lanes);
            }
    }
}

// Fills the row past the keys, so that the padding has no effect.
static int64_t close_row(float *s, int64_t keys, float fill) {
    int64_t all = (keys + PL_VL - 1) / PL_VL * PL_VL;
    for (int64_t i = keys; i < all; i++)
        s[i] = fill;
    return all;
}

// Sets the scores of keys that the i-th row does not see so that their probabilities are 0.
static void hide_keys(const job *j, const rows *r, int64_t g, int i) {
    const pl_blockattention_args *a = j->a;
    int64_t                       slot = i % a->block, before = pl_block_first(a, g, slot) - pl_block_first(a, g, 0);
    float                        *s = r->s + i * j->most;
    for (int64_t k = 0; k < before; k++)
        s[k] = -INFINITY;
    for (int64_t k = r->of[0].n + pl_block_own(a, slot); k < r->keys; k++)
        s[k] = -INFINITY;
}

// Turns s into exponentials; returns their sum.
static float softmax(float *s, int64_t keys, float scale, float *max) {
    int64_t all = close_row(s, keys, -INFINITY);
    pl_vf   most = pl_vf_loadu(s), sum = pl_vf_zero();
    for (int64_t i = PL_VL; i < all; i += PL_VL)
        most = pl_vf_max(most, pl_vf_loadu(s + i));
    *max = scale * pl_vf_hmax(most);
    for (int64_t i = 0; i < all; i += PL_VL) {
        pl_vf p = pl_vf_sub(pl_vf_mul(pl_vf_set1(scale), pl_vf_loadu(s + i)), pl_vf_set1(*max));
        p = pl_attention_exp(p);
        sum = pl_vf_add(sum, p);
        pl_vf_storeu(s + i, p);
    }
    return pl_vf_hsum(sum);
}

static void clear_block(const job *j, int64_t g) {
    const pl_blockattention_args *a = j->a;
    int64_t                       n = (int64_t)a->nh * a->hd * a->block;
    memset(pl_f32(&a->o) + g * n, 0, (size_t)n * sizeof(float));
    memset(pl_f32(&a->lse) + g * a->block * a->nh, 0, (size_t)(a->block * a->nh) * sizeof(float));
}

static void forward_item(const job *j, uint8_t *scratch, int64_t g, int kv_head) {
    const pl_blockattention_args *a = j->a;
    if (a->lo[g] < 0) {
        if (kv_head == 0) clear_block(j, g);
        return;
    }
    rows r = begin(j, scratch, g, kv_head);
    all_products(j, &r, r.s, r.q, false);
    memset(r.acc, 0, (size_t)(r.n * j->hp) * sizeof *r.acc);
    for (int i = 0; i < r.n; i++) {
        float max;
        hide_keys(j, &r, g, i);
        r.ds[i] = softmax(r.s + i * j->most, r.keys, (float)a->scale, &max);
        pl_f32(&a->lse)[row_of(j, g, i) * a->nh + head_of(j, kv_head, i)] = max + logf(r.ds[i]);
    }
    add_weighted(j, &r, r.acc, r.s, true);
    for (int i = 0; i < r.n; i++) {
        float *o = pl_f32(&a->o) + (row_of(j, g, i) * a->nh + head_of(j, kv_head, i)) * a->hd;
        for (int64_t c = 0; c < j->hp; c += PL_VL)
            pl_vf_put(o + c, pl_vf_div(pl_vf_load(r.acc + i * j->hp + c), pl_vf_set1(r.ds[i])), pl_vf_lanes(c, a->hd));
    }
}

// Turns s into probabilities, and computes ds, the factors of keys and queries.
static void backward_row(const job *j, const rows *r, int64_t g, int kv_head, int i) {
    const pl_blockattention_args *a = j->a;
    int64_t                       at = row_of(j, g, i) * a->nh + head_of(j, kv_head, i);
    const float                  *o = pl_f32(&a->o) + at * a->hd;
    float                        *s = r->s + i * j->most, *ds = r->ds + i * j->most;
    pl_vf                         sum = pl_vf_zero(), lse = pl_vf_set1(pl_f32(&a->lse)[at]);
    for (int64_t c = 0; c < j->hp; c += PL_VL)
        sum = pl_vf_fma(pl_vf_load(r->d_o + i * j->hp + c), pl_vf_get(o + c, pl_vf_lanes(c, a->hd)), sum);
    pl_vf mean = pl_vf_set1(pl_vf_hsum(sum)), scale = pl_vf_set1((float)a->scale);
    hide_keys(j, r, g, i);
    int64_t all = close_row(s, r->keys, -INFINITY);
    close_row(ds, r->keys, 0.0f);
    for (int64_t k = 0; k < all; k += PL_VL) {
        pl_vf p = pl_attention_exp(pl_vf_sub(pl_vf_mul(scale, pl_vf_loadu(s + k)), lse));
        pl_vf_storeu(s + k, p);
        pl_vf_storeu(ds + k, pl_vf_mul(pl_vf_mul(scale, p), pl_vf_sub(pl_vf_loadu(ds + k), mean)));
    }
}

static void backward_block(const job *j, uint8_t *scratch, int64_t g, int kv_head) {
    const pl_blockattention_args *a = j->a;
    rows                          r = begin(j, scratch, g, kv_head);
    int64_t                       width = pl_tensor_cols(&a->qkv);
    for (int i = 0; i < r.n; i++)
        copy_head(r.d_o + i * j->hp, (float *)a->o.grad + (row_of(j, g, i) * a->nh + head_of(j, kv_head, i)) * a->hd,
                  j);
    all_products(j, &r, r.s, r.q, false);
    all_products(j, &r, r.ds, r.d_o, true);
    for (int i = 0; i < r.n; i++)
        backward_row(j, &r, g, kv_head, i);
    add_transposed(j, &r, r.s, r.d_o, true);
    add_transposed(j, &r, r.ds, r.q, false);
    if (!a->qkv.grad) return;
    memset(r.acc, 0, (size_t)(r.n * j->hp) * sizeof *r.acc);
    add_weighted(j, &r, r.acc, r.ds, false);
    for (int i = 0; i < r.n; i++) {
        float *dq = (float *)a->qkv.grad + row_of(j, g, i) * width + (int64_t)head_of(j, kv_head, i) * a->hd;
        for (int64_t c = 0; c < j->hp; c += PL_VL) {
            int64_t lanes = pl_vf_lanes(c, a->hd);
            pl_vf_put(dq + c, pl_vf_add(pl_vf_get(dq + c, lanes), pl_vf_load(r.acc + i * j->hp + c)), lanes);
        }
    }
}

// Items are dealt round robin: later blocks of a document see more keys.
static void forward_part(void *arg, int part, int parts) {
    const job *j = arg;
    uint8_t   *scratch = j->scratch + (size_t)part * j->part_bytes;
    for (int64_t i = part; i < j->blocks * j->a->nkv; i += parts)
        forward_item(j, scratch, i / j->a->nkv, (int)(i % j->a->nkv));
}

static void backward_part(void *arg, int part, int parts) {
    const job *j = arg;
    uint8_t   *scratch = j->scratch + (size_t)part * j->part_bytes;
    for (int64_t i = part; i < j->documents * j->a->nkv; i += parts) {
        int64_t d = i / j->a->nkv;
        for (int64_t g = j->first[d]; g < j->first[d + 1]; g++)
            if (j->a->lo[g] >= 0) backward_block(j, scratch, g, (int)(i % j->a->nkv));
    }
}

static job start(pl_ctx *ctx, const pl_blockattention_args *a) {
    job     j = {.a = a, .blocks = pl_tensor_rows(&a->qkv) / a->block};
    int64_t r = (int64_t)(a->nh / a->nkv) * a->block, keys = pl_tensor_rows(&a->kv) + a->block;
    j.hp = (a->hd + PL_VL - 1) / PL_VL * PL_VL;
    j.most = (keys + PL_VL - 1) / PL_VL * PL_VL + PL_VL; // products write whole vectors
    j.part_bytes = (size_t)(r * (3 * j.hp + 2 * j.most)) * sizeof(float);
    j.scratch = pl_arena_alloc(&ctx->scratch, (size_t)pl_pool_threads(ctx->pool) * j.part_bytes);
    return j;
}

static int parts_for(const pl_ctx *ctx, const job *j, int64_t items) {
    const pl_blockattention_args *a = j->a;
    double                        work = 0;
    for (int64_t g = 0; g < j->blocks; g++)
        work += 4.0 * a->nh * a->hd * a->block * (double)pl_block_keys(a, g, 0);
    return pl_cpu_parts(ctx, items, work);
}

void PL_CPU(blockattention_fwd)(pl_ctx *ctx, const void *args) {
    size_t mark = pl_arena_mark(&ctx->scratch);
    job    j = start(ctx, args);
    if (!ctx->measuring) pl_parallel(ctx->pool, parts_for(ctx, &j, j.blocks * j.a->nkv), forward_part, &j);
    pl_arena_release(&ctx->scratch, mark);
}

void PL_CPU(blockattention_bwd)(pl_ctx *ctx, const void *args) {
    size_t mark = pl_arena_mark(&ctx->scratch);
    job    j = start(ctx, args);
    j.first = pl_arena_alloc(&ctx->scratch, (size_t)(j.blocks + 1) * sizeof *j.first);
    if (!ctx->measuring && j.a->o.grad) {
        for (int64_t g = 0; g < j.blocks; g++)
            if (g == 0 || j.a->lo[g] != j.a->lo[g - 1]) j.first[j.documents++] = (int32_t)g;
        j.first[j.documents] = (int32_t)j.blocks;
        pl_parallel(ctx->pool, parts_for(ctx, &j, j.documents * j.a->nkv), backward_part, &j);
    }
    pl_arena_release(&ctx->scratch, mark);
}
