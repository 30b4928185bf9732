// Attention for training: the causal block in tiles of TQ queries x TK keys with an online softmax (FlashAttention, Dao
// et al. 2022: no [M, M] matrix, lse kept, probabilities recomputed backward), and the diagonals of the later blocks in
// closed form, merged by log-sum-exp.
//
// All products run through one small register-blocked kernel whose left factor is read by broadcast, so only right
// factors need their columns contiguous. Keys, values, queries and output gradients are therefore copied once per call
// into tiles: "t" arrays are [tile][channel][row], the others [row][channel], channels padded to whole vectors.
//
// Backward order, the same in either plan below: dq of a query tile adds key tiles in ascending order; dk, dv of a key
// tile add query heads in order, within a head query tiles in order. So the plan and the threads change no bit.
#include "kernels/op/attention_cpu.h"
#include <math.h>

enum { TQ = 32, TK = 64 };

typedef struct tiles_job {
    const pl_attention_args *a;
    int64_t                  rows, padded_rows;       // of block 0
    int64_t                  queries, padded_queries; // padded to whole key tiles, both
    int64_t                  hp;                      // padded head width
    int32_t                 *tile_lo, *tile_hi;       // of each query tile: least and greatest lo of its real rows
    float                   *kt, *vt, *k, *v;         // per key head
    float                   *qt, *q, *dot, *d_o, *dq; // per query head; q is scaled
    float                   *lse, *mean;              // per query head; mean = do . o
    uint8_t                 *part;                    // per part: working tiles
    size_t                   part_bytes;
    bool                     backward;
    bool                     want_dq, want_dkv;
} tiles_job;

// ---- the product of a tile ----

// C[mr, nv vectors] (+)= sum_k A(i, k) B[k, :], A(i, k) = a[i * ar + k * ak].
PL_INLINE void micro(const int mr, const int nv, const float *a, const int64_t ar, const int64_t ak, const float *b,
                     int64_t ldb, float *c, int64_t ldc, int64_t k, bool add) {
    pl_vf acc[8][4];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            acc[i][j] = add ? pl_vf_load(c + i * ldc + j * PL_VL) : pl_vf_zero();
    for (int64_t p = 0; p < k; p++, a += ak, b += ldb) {
        pl_vf bv[4];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            bv[j] = pl_vf_load(b + j * PL_VL);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            pl_vf x = pl_vf_set1(a[i * ar]);
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                acc[i][j] = pl_vf_fma(x, bv[j], acc[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            pl_vf_store(c + i * ldc + j * PL_VL, acc[i][j]);
}

// Register blocks that fit each register file: with 16 lanes in one register up to 16 accumulators, else 8 registers.
#define NV_MOST (PL_VF_PARTS == 1 ? 4 : 1)
#define MR_FOR(nv) (PL_VF_PARTS == 1 ? ((nv) > 2 ? 4 : 8) : 8 / PL_VF_PARTS)

#define COLUMNS(nv, ar, ak)                                                                                            \
    for (int64_t i = 0; i < m; i += MR_FOR(nv))                                                                        \
    micro(MR_FOR(nv), nv, a + i * (ar), ar, ak, b + j, ldb, c + i * ldc + j, ldc, k, add)

// m a multiple of 8, n of 16; rows of B and C are 64-byte aligned.
#define PRODUCT(ar, ak)                                                                                                \
    do {                                                                                                               \
        int64_t j = 0;                                                                                                 \
        for (; j + NV_MOST * PL_VL <= n; j += NV_MOST * PL_VL)                                                         \
            COLUMNS(NV_MOST, ar, ak);                                                                                  \
        switch ((n - j) / PL_VL) {                                                                                     \
        case 1: COLUMNS(1, ar, ak); break;                                                                             \
        case 2: COLUMNS((NV_MOST > 2 ? 2 : 1), ar, ak); break;                                                         \
        case 3: COLUMNS((NV_MOST > 3 ? 3 : 1), ar, ak); break;                                                         \
        default: break;                                                                                                \
        }                                                                                                              \
    } while (0)

// A's rows are the fast index (a transposed tile): A(i, k) = a[i + k * ak].
static __attribute__((noinline)) void mul_t(int64_t m, int64_t n, int64_t k, const float *a, int64_t ak, const float *b,
                                            int64_t ldb, float *c, int64_t ldc, bool add) {
    PRODUCT(1, ak);
}

// A is a tile of scores: A(i, k) = a[i * TK + k].
static __attribute__((noinline)) void mul_s(int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                                            int64_t ldb, float *c, int64_t ldc, bool add) {
    PRODUCT(TK, 1);
}

// ---- copies ----

// dst[c * tile + r] = src[r * ld + c] * scale for r < have, c < hd; zeros for the other r < tile.
static void pack_transposed(float *dst, int64_t tile, const float *src, int64_t ld, int64_t have, int hd, float scale) {
    const pl_vn s = pl_vn_set1(scale);
    for (int64_t r0 = 0; r0 < tile; r0 += PL_VN_LANES) {
        int64_t rows = have - r0 < PL_VN_LANES ? have - r0 : PL_VN_LANES;
        int     c = 0;
        for (; rows == PL_VN_LANES && c + PL_VN_LANES <= hd; c += PL_VN_LANES) {
            pl_vn t[PL_VN_LANES];
#pragma GCC unroll 16
            for (int r = 0; r < PL_VN_LANES; r++)
                t[r] = pl_vn_loadu(src + (r0 + r) * ld + c) * s;
            pl_vn_transpose(t);
#pragma GCC unroll 16
            for (int r = 0; r < PL_VN_LANES; r++)
                pl_vn_storeu(dst + (c + r) * tile + r0, t[r]);
        }
        for (; c < hd; c++)
            for (int r = 0; r < PL_VN_LANES; r++)
                dst[c * tile + r0 + r] = r < rows ? src[(r0 + r) * ld + c] * scale : 0.0f;
    }
}

// dst[r * hp + c] likewise; zeros for the other r < tile, c < hp.
static void pack_rows(float *dst, int64_t tile, const float *src, int64_t ld, int64_t have, int hd, int64_t hp,
                      float scale) {
    const pl_vf s = pl_vf_set1(scale);
    for (int64_t r = 0; r < tile; r++, dst += hp, src += ld)
        for (int64_t c = 0; c < hp; c += PL_VL)
            pl_vf_store(dst + c, r < have ? pl_vf_mul(pl_vf_get(src + c, pl_vf_lanes(c, hd)), s) : pl_vf_zero());
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static const float *query_at(const pl_attention_args *a, int64_t m, int h) {
    return pl_f32(&a->qkv) + m * pl_tensor_cols(&a->qkv) + (int64_t)h * a->hd;
}

static void pack_queries(const tiles_job *j, int64_t r0) {
    const pl_attention_args *a = j->a;
    int64_t width = pl_tensor_cols(&a->qkv), have = min64(TQ, j->queries - r0), o_width = (int64_t)a->nh * a->hd;
    if (have < 0) have = 0;
    for (int h = 0; h < a->nh; h++) {
        int64_t      at = (int64_t)h * j->padded_queries + r0;
        const float *d_o = (const float *)a->o.grad + r0 * o_width + (int64_t)h * a->hd;
        const float *o = pl_f32(&a->o) + r0 * o_width + (int64_t)h * a->hd;
        const float *qh = query_at(a, r0, h);
        pack_rows(j->q + at * j->hp, TQ, qh, width, have, a->hd, j->hp, (float)a->scale);
        pack_transposed(j->qt + at * a->hd, TQ, qh, width, have, a->hd, (float)a->scale);
        pack_rows(j->d_o + at * j->hp, TQ, d_o, o_width, have, a->hd, j->hp, 1.0f);
        pack_transposed(j->dot + at * a->hd, TQ, d_o, o_width, have, a->hd, 1.0f);
        memset(j->dq + at * j->hp, 0, TQ * (size_t)j->hp * sizeof(float));
        for (int64_t r = 0; r < TQ; r++) {
            bool  real = r < have && a->lo[r0 + r] >= 0;
            pl_vf sum = pl_vf_zero();
            for (int c = 0; c < a->hd && real; c += PL_VL) {
                int64_t n = pl_vf_lanes(c, a->hd);
                sum = pl_vf_fma(pl_vf_get(d_o + r * o_width + c, n), pl_vf_get(o + r * o_width + c, n), sum);
            }
            // An infinite lse makes every probability of a padding row zero.
            j->lse[at + r] = real ? pl_f32(&a->lse)[(r0 + r) * a->nh + h] : INFINITY;
            j->mean[at + r] = pl_vf_hsum(sum);
        }
    }
}

// One part: tiles of TK rows of block 0, and of queries.
static void pack_part(void *arg, int part, int parts) {
    const tiles_job         *j = arg;
    const pl_attention_args *a = j->a;
    int64_t                  width = pl_tensor_cols(&a->block[0]);
    long                     lo, hi;
    pl_range(j->padded_rows, TK, part, parts, &lo, &hi);
    for (int64_t r0 = lo; r0 < hi; r0 += TK) {
        int64_t have = min64(TK, j->rows - r0);
        for (int g = 0; g < a->nkv; g++) {
            int64_t      at = (int64_t)g * j->padded_rows + r0;
            const float *k = pl_f32(&a->block[0]) + r0 * width + pl_attention_column(a, &a->block[0], g);
            const float *v = k + (int64_t)a->nkv * a->hd;
            pack_transposed(j->kt + at * a->hd, TK, k, width, have, a->hd, 1.0f);
            if (j->backward) {
                pack_rows(j->k + at * j->hp, TK, k, width, have, a->hd, j->hp, 1.0f);
                pack_transposed(j->vt + at * a->hd, TK, v, width, have, a->hd, 1.0f);
            } else {
                pack_rows(j->v + at * j->hp, TK, v, width, have, a->hd, j->hp, 1.0f);
            }
        }
    }
    pl_range(j->padded_queries, TK, part, parts, &lo, &hi);
    for (int64_t q0 = lo; q0 < hi; q0 += TQ) {
        int32_t least = INT32_MAX, most = -1;
        for (int64_t m = q0; m < min64(q0 + TQ, j->queries); m++) {
            if (a->lo[m] < 0) continue;
            least = a->lo[m] < least ? a->lo[m] : least;
            most = a->lo[m] > most ? a->lo[m] : most;
        }
        j->tile_lo[q0 / TQ] = least;
        j->tile_hi[q0 / TQ] = most;
        if (j->backward) pack_queries(j, q0);
    }
}

// ---- masks ----

// Returns the last row of block 0 that a query tile sees.
static int64_t last_key(const tiles_job *j, int64_t q0) {
    return pl_attention_row(j->a, 0, min64(q0 + TQ, j->queries) - 1);
}

// Returns true if every real row of the query tile sees every key of [k0, k0 + n).
static bool all_visible(const tiles_job *j, int64_t q0, int64_t k0, int64_t n) {
    return j->tile_hi[q0 / TQ] <= k0 && k0 + n - 1 <= pl_attention_row(j->a, 0, q0);
}

// Sets the scores of keys that row m does not see to -inf; n scores, keys from k0 on.
static void mask_row(const tiles_job *j, int64_t m, int64_t k0, float *s, int64_t n) {
    static const float lane[PL_VL] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int64_t            lo = m < j->queries ? j->a->lo[m] : -1;
    pl_vf              none = pl_vf_set1(-INFINITY), first = pl_vf_set1((float)(lo - k0));
    pl_vf              last = pl_vf_set1((float)(lo < 0 ? -1 : pl_attention_row(j->a, 0, m) - k0));
    for (int64_t i = 0; i < n; i += PL_VL) {
        pl_vf col = pl_vf_add(pl_vf_loadu(lane), pl_vf_set1((float)i)), x = pl_vf_load(s + i);
        x = pl_vf_select_gt(first, col, none, x);
        pl_vf_store(s + i, pl_vf_select_gt(col, last, none, x));
    }
}

// Returns the number of keys of tile k0 that a query tile needs, rounded up to whole vectors.
static int64_t tile_keys(const tiles_job *j, int64_t q0, int64_t k0) {
    return min64(TK, (last_key(j, q0) + 1 - k0 + PL_VL - 1) / PL_VL * PL_VL);
}

PL_INLINE float dot_head(const float *x, const float *y, int hd) {
    pl_vf sum = pl_vf_zero();
    for (int c = 0; c < hd; c += PL_VL) {
        int64_t n = pl_vf_lanes(c, hd);
        sum = pl_vf_fma(pl_vf_get(x + c, n), pl_vf_get(y + c, n), sum);
    }
    return pl_vf_hsum(sum);
}

// ---- forward ----

typedef struct softmax_state {
    float max[TQ], sum[TQ];
} softmax_state;

// Turns a tile's scores into probabilities relative to the running maximum, and rescales earlier sums.
static void softmax_tile(softmax_state *st, float *s, float *o, int64_t hp, int64_t n) {
    for (int r = 0; r < TQ; r++, s += TK, o += hp) {
        pl_vf most = pl_vf_load(s);
        for (int64_t i = PL_VL; i < n; i += PL_VL)
            most = pl_vf_max(most, pl_vf_load(s + i));
        float top = pl_vf_hmax(most);
        if (top > st->max[r]) {
            pl_vf fade = pl_attention_exp(pl_vf_set1(st->max[r] - top));
            for (int64_t c = 0; c < hp; c += PL_VL)
                pl_vf_store(o + c, pl_vf_mul(pl_vf_load(o + c), fade));
            st->sum[r] *= fade.p[0][0];
            st->max[r] = top;
        }
        if (st->max[r] == -INFINITY) { // no visible key so far
            for (int64_t i = 0; i < n; i += PL_VL)
                pl_vf_store(s + i, pl_vf_zero());
            continue;
        }
        pl_vf base = pl_vf_set1(st->max[r]), sum = pl_vf_zero();
        for (int64_t i = 0; i < n; i += PL_VL) {
            pl_vf p = pl_attention_exp(pl_vf_sub(pl_vf_load(s + i), base));
            sum = pl_vf_add(sum, p);
            pl_vf_store(s + i, p);
        }
        st->sum[r] += pl_vf_hsum(sum);
    }
}

// Returns the element of a block at which the keys of query m's row for query head h begin.
static int64_t diagonal_at(const pl_attention_args *a, int b, int64_t m, int h) {
    return pl_attention_row(a, b, m) * pl_tensor_cols(&a->block[b]) +
           pl_attention_column(a, &a->block[b], h / (a->nh / a->nkv));
}

// Adds the keys of blocks 1, 2, ... in query m's row, one each.
static void fwd_diagonals(const pl_attention_args *a, int64_t m, int h, float *max, float *sum, float *o) {
    const float *q = query_at(a, m, h);
    float        s[PL_MAX_UNROLL], top = *max;
    for (int b = 1; b < a->n_blocks; b++) {
        s[b] = dot_head(q, pl_f32(&a->block[b]) + diagonal_at(a, b, m, h), a->hd) * (float)a->scale;
        top = s[b] > top ? s[b] : top;
    }
    pl_vf fade = pl_attention_exp(pl_vf_set1(*max - top));
    *sum *= fade.p[0][0];
    *max = top;
    for (int c = 0; c < a->hd; c += PL_VL)
        pl_vf_store(o + c, pl_vf_mul(pl_vf_load(o + c), fade));
    for (int b = 1; b < a->n_blocks; b++) {
        const float *v = pl_f32(&a->block[b]) + diagonal_at(a, b, m, h) + (int64_t)a->nkv * a->hd;
        pl_vf        p = pl_attention_exp(pl_vf_set1(s[b] - top));
        *sum += p.p[0][0];
        for (int c = 0; c < a->hd; c += PL_VL)
            pl_vf_store(o + c, pl_vf_fma(p, pl_vf_get(v + c, pl_vf_lanes(c, a->hd)), pl_vf_load(o + c)));
    }
}

static void fwd_tile(const tiles_job *j, uint8_t *scratch, int h, int64_t q0) {
    const pl_attention_args *a = j->a;
    float                   *s = (float *)scratch, *o = s + TQ * TK, *qt = o + TQ * j->hp;
    int64_t                  head = (int64_t)(h / (a->nh / a->nkv)) * j->padded_rows, have = min64(TQ, j->queries - q0);
    softmax_state            st;
    for (int r = 0; r < TQ; r++) {
        st.max[r] = -INFINITY;
        st.sum[r] = 0.0f;
    }
    memset(o, 0, TQ * (size_t)j->hp * sizeof(float));
    pack_transposed(qt, TQ, query_at(a, q0, h), pl_tensor_cols(&a->qkv), have, a->hd, (float)a->scale);
    for (int64_t k0 = j->tile_lo[q0 / TQ] / TK * TK; k0 <= last_key(j, q0); k0 += TK) {
        int64_t n = tile_keys(j, q0, k0), at = head + k0;
        mul_t(TQ, n, a->hd, qt, TQ, j->kt + at * a->hd, TK, s, TK, false);
        if (!all_visible(j, q0, k0, n))
            for (int r = 0; r < TQ; r++)
                mask_row(j, q0 + r, k0, s + r * TK, n);
        softmax_tile(&st, s, o, j->hp, n);
        mul_s(TQ, j->hp, n, s, j->v + at * j->hp, j->hp, o, j->hp, true);
    }
    for (int64_t r = 0; r < have; r++) {
        int64_t m = q0 + r;
        bool    real = a->lo[m] >= 0;
        float  *out = pl_f32(&a->o) + (m * a->nh + h) * a->hd;
        if (real && a->n_blocks > 1) fwd_diagonals(a, m, h, &st.max[r], &st.sum[r], o + r * j->hp);
        pl_vf sum = pl_vf_set1(real ? st.sum[r] : 1.0f);
        for (int c = 0; c < a->hd; c += PL_VL) {
            pl_vf x = real ? pl_vf_div(pl_vf_load(o + r * j->hp + c), sum) : pl_vf_zero();
            pl_vf_put(out + c, x, pl_vf_lanes(c, a->hd));
        }
        if (a->lse.data) pl_f32(&a->lse)[m * a->nh + h] = real ? st.max[r] + logf(st.sum[r]) : 0.0f;
    }
}

// Items are (query tile, head), dealt round robin: later tiles of a document see more keys.
static void fwd_part(void *arg, int part, int parts) {
    const tiles_job *j = arg;
    int64_t          items = (j->queries + TQ - 1) / TQ * j->a->nh;
    for (int64_t i = part; i < items; i += parts) {
        int64_t q0 = i / j->a->nh * TQ;
        fwd_tile(j, j->part + (size_t)part * j->part_bytes, (int)(i % j->a->nh), q0);
    }
}

static tiles_job start(const pl_attention_args *a) {
    tiles_job j = {.a = a, .rows = pl_tensor_rows(&a->block[0]), .queries = pl_tensor_rows(&a->qkv)};
    j.padded_rows = (j.rows + TK - 1) / TK * TK;
    j.padded_queries = (j.queries + TK - 1) / TK * TK;
    j.hp = (a->hd + PL_VL - 1) / PL_VL * PL_VL;
    return j;
}

static float *floats(pl_ctx *ctx, int64_t a, int64_t b, int64_t c) {
    return pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)a, (size_t)b, (size_t)c * sizeof(float)));
}

// Work of a call with documents of unknown length; only whether it is small matters.
static int parts_for(const pl_ctx *ctx, const tiles_job *j, int64_t items) {
    return pl_cpu_parts(ctx, items, 64.0 * (double)j->queries * (double)(j->a->nh + 2 * j->a->nkv) * j->a->hd);
}

void PL_CPU(attention_blocks_fwd)(pl_ctx *ctx, const pl_attention_args *a) {
    tiles_job j = start(a);
    int       threads = pl_pool_threads(ctx->pool);
    size_t    mark = pl_arena_mark(&ctx->scratch);
    j.tile_lo = (int32_t *)floats(ctx, j.padded_queries, 1, 1);
    j.tile_hi = (int32_t *)floats(ctx, j.padded_queries, 1, 1);
    j.kt = floats(ctx, a->nkv, j.padded_rows, a->hd);
    j.v = floats(ctx, a->nkv, j.padded_rows, j.hp);
    j.part_bytes = (size_t)(TQ * TK + 2 * TQ * j.hp) * sizeof(float);
    j.part = pl_arena_alloc(&ctx->scratch, (size_t)threads * j.part_bytes);
    if (!ctx->measuring) {
        pl_parallel(ctx->pool, parts_for(ctx, &j, j.padded_rows / TK), pack_part, &j);
        pl_parallel(ctx->pool, parts_for(ctx, &j, (j.queries + TQ - 1) / TQ * a->nh), fwd_part, &j);
    }
    pl_arena_release(&ctx->scratch, mark);
}

// ---- backward ----

// Adds one pair of tiles to dq of the query tile and to dk, dv of the key tile, if not NULL.
static void bwd_tile(const tiles_job *j, float *s, int h, int64_t q0, int64_t k0, float *dq, float *dk, float *dv) {
    const pl_attention_args *a = j->a;
    int64_t                  at_k = (int64_t)(h / (a->nh / a->nkv)) * j->padded_rows + k0, n = tile_keys(j, q0, k0);
    int64_t                  at_q = (int64_t)h * j->padded_queries + q0;
    float                   *ds = s + TQ * TK;
    mul_t(TQ, n, a->hd, j->qt + at_q * a->hd, TQ, j->kt + at_k * a->hd, TK, s, TK, false);
    mul_t(TQ, n, a->hd, j->dot + at_q * a->hd, TQ, j->vt + at_k * a->hd, TK, ds, TK, false);
    bool masked = !all_visible(j, q0, k0, n);
    for (int r = 0; r < TQ; r++) {
        float *sr = s + r * TK, *dr = ds + r * TK;
        if (masked) mask_row(j, q0 + r, k0, sr, n);
        pl_vf lse = pl_vf_set1(j->lse[at_q + r]), mean = pl_vf_set1(j->mean[at_q + r]);
        for (int64_t i = 0; i < n; i += PL_VL) {
            pl_vf p = pl_attention_exp(pl_vf_sub(pl_vf_load(sr + i), lse));
            pl_vf_store(sr + i, p);
            pl_vf_store(dr + i, pl_vf_mul(p, pl_vf_sub(pl_vf_load(dr + i), mean)));
        }
    }
    if (dk) {
        mul_t(n, j->hp, TQ, s, TK, j->d_o + at_q * j->hp, j->hp, dv, j->hp, true);
        mul_t(n, j->hp, TQ, ds, TK, j->q + at_q * j->hp, j->hp, dk, j->hp, true);
    }
    if (dq) mul_s(TQ, j->hp, n, ds, j->k + at_k * j->hp, j->hp, dq, j->hp, true);
}

// Returns true if a real row of the query tile sees a key of the key tile.
static bool tiles_meet(const tiles_job *j, int64_t q0, int64_t k0) {
    return q0 < j->queries && j->tile_lo[q0 / TQ] < k0 + TK && last_key(j, q0) >= k0;
}

static float *dq_of(const tiles_job *j, int h, int64_t q0) {
    return j->dq + ((int64_t)h * j->padded_queries + q0) * j->hp;
}

// Computes dk and dv of one key tile, and, with_dq, dq of the query tiles that see it.
static void bwd_key_tile(const tiles_job *j, uint8_t *scratch, int g, int64_t k0, bool with_dq) {
    const pl_attention_args *a = j->a;
    float                   *s = (float *)scratch, *dk = s + 2 * TQ * TK, *dv = dk + TK * j->hp;
    int                      share = a->nh / a->nkv;
    memset(dk, 0, 2 * TK * (size_t)j->hp * sizeof(float));
    for (int h = g * share; h < (g + 1) * share; h++)
        for (int64_t q0 = a->at ? 0 : k0; q0 < j->queries; q0 += TQ)
            if (tiles_meet(j, q0, k0))
                bwd_tile(j, s, h, q0, k0, with_dq ? dq_of(j, h, q0) : NULL, j->want_dkv ? dk : NULL, dv);
    if (!j->want_dkv) return;
    for (int64_t m = k0; m < min64(k0 + TK, j->rows); m++, dk += j->hp, dv += j->hp) {
        float *gk =
            (float *)a->block[0].grad + m * pl_tensor_cols(&a->block[0]) + pl_attention_column(a, &a->block[0], g);
        float *gv = gk + (int64_t)a->nkv * a->hd;
        for (int c = 0; c < a->hd; c++) {
            gk[c] += dk[c];
            gv[c] += dv[c];
        }
    }
}

// Plan 1: a key head is an item, each pair of tiles is computed once (5 products).
static void bwd_heads_part(void *arg, int part, int parts) {
    const tiles_job *j = arg;
    for (int g = part; g < j->a->nkv; g += parts)
        for (int64_t k0 = 0; k0 < j->padded_rows; k0 += TK)
            bwd_key_tile(j, j->part + (size_t)part * j->part_bytes, g, k0, j->want_dq);
}

// Plan 2, for more threads than key heads: key tiles, then query tiles (7 products).
static void bwd_keys_part(void *arg, int part, int parts) {
    const tiles_job *j = arg;
    int64_t          items = j->padded_rows / TK * j->a->nkv;
    for (int64_t i = part; i < items; i += parts)
        bwd_key_tile(j, j->part + (size_t)part * j->part_bytes, (int)(i % j->a->nkv), i / j->a->nkv * TK, false);
}

static void bwd_queries_part(void *arg, int part, int parts) {
    const tiles_job *j = arg;
    int64_t          items = j->padded_queries / TQ * j->a->nh;
    for (int64_t i = part; i < items; i += parts) {
        int     h = (int)(i % j->a->nh);
        int64_t q0 = i / j->a->nh * TQ;
        float  *s = (float *)(j->part + (size_t)part * j->part_bytes);
        for (int64_t k0 = 0; k0 < j->rows; k0 += TK)
            if (tiles_meet(j, q0, k0)) bwd_tile(j, s, h, q0, k0, dq_of(j, h, q0), NULL, NULL);
    }
}

// Query m: adds dq to its gradient (times the scale), and the diagonals' share of all gradients.
static void bwd_row(const tiles_job *j, int64_t m, int h) {
    const pl_attention_args *a = j->a;
    int                      hd = a->hd;
    int64_t                  at = (int64_t)h * j->padded_queries + m;
    const float             *q = j->q + at * j->hp, *d_o = j->d_o + at * j->hp;
    float                   *dq = j->dq + at * j->hp, *grad = a->qkv.grad;
    for (int b = 1; b < a->n_blocks; b++) {
        int64_t      key = diagonal_at(a, b, m, h);
        const float *k = pl_f32(&a->block[b]) + key, *v = k + (int64_t)a->nkv * hd;
        float       *dk = a->block[b].grad ? (float *)a->block[b].grad + key : NULL;
        pl_vf        p = pl_attention_exp(pl_vf_set1(dot_head(q, k, hd) - j->lse[at]));
        pl_vf        ds = pl_vf_mul(p, pl_vf_set1(dot_head(d_o, v, hd) - j->mean[at]));
        for (int c = 0; c < hd; c += PL_VL) {
            int64_t n = pl_vf_lanes(c, hd);
            pl_vf_store(dq + c, pl_vf_fma(ds, pl_vf_get(k + c, n), pl_vf_load(dq + c)));
            if (!dk) continue;
            float *dv = dk + (int64_t)a->nkv * hd;
            pl_vf_put(dk + c, pl_vf_fma(ds, pl_vf_load(q + c), pl_vf_get(dk + c, n)), n);
            pl_vf_put(dv + c, pl_vf_fma(p, pl_vf_load(d_o + c), pl_vf_get(dv + c, n)), n);
        }
    }
    if (!grad) return;
    grad += m * pl_tensor_cols(&a->qkv) + (int64_t)h * hd;
    for (int c = 0; c < hd; c++)
        grad[c] += dq[c] * (float)a->scale;
}

static void bwd_rows_part(void *arg, int part, int parts) {
    const tiles_job *j = arg;
    long             lo, hi;
    pl_range(j->queries, 1, part, parts, &lo, &hi);
    for (int64_t m = lo; m < hi; m++)
        for (int h = 0; h < j->a->nh && j->a->lo[m] >= 0; h++)
            bwd_row(j, m, h);
}

void PL_CPU(attention_blocks_bwd)(pl_ctx *ctx, const pl_attention_args *a) {
    tiles_job j = start(a);
    int       threads = pl_pool_threads(ctx->pool);
    size_t    mark = pl_arena_mark(&ctx->scratch);
    if (!a->o.grad) return;
    j.backward = true;
    j.want_dkv = a->block[0].grad != NULL;
    j.want_dq = a->qkv.grad != NULL;
    j.tile_lo = (int32_t *)floats(ctx, j.padded_queries, 1, 1);
    j.tile_hi = (int32_t *)floats(ctx, j.padded_queries, 1, 1);
    j.kt = floats(ctx, a->nkv, j.padded_rows, a->hd);
    j.vt = floats(ctx, a->nkv, j.padded_rows, a->hd);
    j.k = floats(ctx, a->nkv, j.padded_rows, j.hp);
    j.qt = floats(ctx, a->nh, j.padded_queries, a->hd);
    j.q = floats(ctx, a->nh, j.padded_queries, j.hp);
    j.dot = floats(ctx, a->nh, j.padded_queries, a->hd);
    j.d_o = floats(ctx, a->nh, j.padded_queries, j.hp);
    j.dq = floats(ctx, a->nh, j.padded_queries, j.hp);
    j.lse = floats(ctx, a->nh, j.padded_queries, 1);
    j.mean = floats(ctx, a->nh, j.padded_queries, 1);
    j.part_bytes = (size_t)(2 * TQ * TK + 2 * TK * j.hp) * sizeof(float);
    j.part = pl_arena_alloc(&ctx->scratch, (size_t)threads * j.part_bytes);
    if (!ctx->measuring) {
        int64_t tiles = j.padded_rows / TK, rounds = (a->nkv + threads - 1) / threads;
        pl_parallel(ctx->pool, parts_for(ctx, &j, tiles), pack_part, &j);
        if (5 * rounds * threads <= 7 * a->nkv) {
            pl_parallel(ctx->pool, parts_for(ctx, &j, a->nkv), bwd_heads_part, &j);
        } else {
            if (j.want_dkv) pl_parallel(ctx->pool, parts_for(ctx, &j, tiles * a->nkv), bwd_keys_part, &j);
            if (j.want_dq)
                pl_parallel(ctx->pool, parts_for(ctx, &j, j.padded_queries / TQ * a->nh), bwd_queries_part, &j);
        }
        pl_parallel(ctx->pool, parts_for(ctx, &j, j.queries), bwd_rows_part, &j);
    }
    pl_arena_release(&ctx->scratch, mark);
}
