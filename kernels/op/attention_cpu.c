// Attention over cached keys: decoding, trees, prefill.
//
// Every (row, query head) is its own chain of group steps: PL_ATTN_GROUP positions at a time, scores, maximum,
// exponentials, sum, values in order of position. A step depends only on its query, its state and the group's keys and
// values, and there is one compiled copy of it per head width, so the chain's bits depend on the path alone. Chains may
// be combined freely: up to ROW_BLOCK rows and all query heads of a key head take each group together, while its keys
// and values are in the first-level cache: all scores, then all weights, then all values.
#include "kernels/op/attention_cpu.h"
#include "kernels/base/check.h"
#include <math.h>

enum {
    GROUP = PL_ATTN_GROUP,
    ROW_BLOCK = 8,
    CROWD = 32,       // most chains that take a group's step together
    CROWDED = 256,    // floats: keys at multiples of 1 KiB share a quarter of the first-level cache's sets or less
    PACKING_PAYS = 3, // least uses of a group for which a copy pays
    MAX_UNROLLED = 8, // vectors of a head with its own compiled step: up to 128 channels
    VALUE_BLOCK = 8 / PL_VF_PARTS, // vectors of a value sum held in registers
    PAIR = 2,                      // chains whose values are summed alternately: a single one would wait for its own
                                   // sums
    VALUE_PAIR = PL_CHAINS >= 24 ? VALUE_BLOCK : VALUE_BLOCK / PAIR, // of each of two
};

// State of one (row, query head) between groups. It is followed by the scaled query and the accumulator, each padded
// with zeros to whole vectors.
typedef struct chain {
    float max, sum;
    float cap; // of the scores; 0: none
    float pad[PL_VL - 3];
} chain;

// Neighbouring chains with the same keys, such as a row's query heads. off[0..GROUP) are all readable; entries from
// count on repeat a key with weight 0.
typedef struct sharers {
    chain         *c;
    int            n, count;
    const float   *k, *v;
    const int64_t *off;
    float (*s)[GROUP]; // [n] scores, then weights
} sharers;

typedef void (*step_fn)(const sharers *a, int vectors);

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
    return pl_vn_lane_sums(t);
}

// acc[c][i] += sum_j p[c][j] v_j[i] over `vectors` vectors of each chain, j ascending.
PL_INLINE void add_values(float *const acc[PAIR], const float (*p)[GROUP], const float *v, const int64_t *off,
                          int count, const int chains, const int vectors) {
    pl_vn a[PAIR][MAX_UNROLLED];
#pragma GCC unroll 2
    for (int c = 0; c < chains; c++)
#pragma GCC unroll 8
        for (int i = 0; i < vectors * PL_VF_PARTS; i++)
            a[c][i] = pl_vn_loadu(acc[c] + i * PL_VN_LANES);
    for (int j = 0; j < count; j++) {
        const float *value = v + off[j];
#pragma GCC unroll 8
        for (int i = 0; i < vectors * PL_VF_PARTS; i++) {
            pl_vn vi = pl_vn_loadu(value + i * PL_VN_LANES);
#pragma GCC unroll 2
            for (int c = 0; c < chains; c++)
                a[c][i] = pl_vn_fma(pl_vn_set1(p[c][j]), vi, a[c][i]);
        }
    }
#pragma GCC unroll 2
    for (int c = 0; c < chains; c++)
#pragma GCC unroll 8
        for (int i = 0; i < vectors * PL_VF_PARTS; i++)
            pl_vn_storeu(acc[c] + i * PL_VN_LANES, a[c][i]);
}

// Caps scores; -inf stays -inf.
PL_INLINE pl_vf capped(pl_vf s, float cap) {
    pl_vf small = pl_vf_mul(pl_vf_set1(cap), pl_vf_tanh(pl_vf_div(s, pl_vf_set1(cap))));
    return pl_vf_select_gt(s, pl_vf_set1(-INFINITY), small, s);
}

// Turns scores into weights, and rescales the chain's earlier sums if one of them is a new maximum.
PL_INLINE void weigh(chain *c, float s[GROUP], int count, const int vectors) {
    float *acc = (float *)(c + 1) + vectors * PL_VL;
    for (int j = count; j < GROUP; j++)
        s[j] = -INFINITY;
    pl_vf s0 = pl_vf_load(s), s1 = pl_vf_load(s + PL_VL);
    if (c->cap > 0.0f) {
        s0 = capped(s0, c->cap);
        s1 = capped(s1, c->cap);
    }
    float top = pl_vf_hmax(pl_vf_max(s0, s1));
    if (top > c->max) {
        pl_vf fade = pl_attention_exp(pl_vf_set1(c->max - top)); // 0 before the first group
        for (int i = 0; i < vectors; i++)
            pl_vf_store(acc + i * PL_VL, pl_vf_mul(pl_vf_load(acc + i * PL_VL), fade));
        c->sum *= fade.p[0][0];
        c->max = top;
    }
    pl_vf m = pl_vf_set1(c->max);
    s0 = pl_attention_exp(pl_vf_sub(s0, m));
    s1 = pl_attention_exp(pl_vf_sub(s1, m));
    pl_vf_store(s, s0);
    pl_vf_store(s + PL_VL, s1);
    __asm__ volatile("" : "+m"(c->sum)); // rounded twice
    c->sum += pl_vf_hsum(pl_vf_add(s0, s1));
}

PL_INLINE chain *nth(chain *c, int i, const int vectors) {
    return (chain *)((float *)c + (int64_t)i * (int64_t)(sizeof *c / sizeof(float) + 2 * (size_t)vectors * PL_VL));
}

// The step of a group, in three parts, each for all chains that take it together, so that none waits for its own
// maximum and sum.
PL_INLINE void score_all(const sharers *a, const int vectors) {
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < a->count; j += PL_VN_LANES)
            pl_vn_storeu(a->s[i] + j, scores((const float *)(nth(a->c, i, vectors) + 1), a->k, a->off + j, vectors));
}

PL_INLINE void weigh_all(const sharers *a, const int vectors) {
    for (int i = 0; i < a->n; i++)
        weigh(nth(a->c, i, vectors), a->s[i], a->count, vectors);
}

// Adds the values of `chains` chains from the i-th on.
PL_INLINE void add_some(const sharers *a, int i, const int chains, const int vectors) {
    const int block = chains > 1 ? VALUE_PAIR : VALUE_BLOCK;
    const float(*p)[GROUP] = (const float(*)[GROUP])a->s + i;
    float *acc[PAIR];
    for (int n = 0; n < chains; n++)
        acc[n] = (float *)(nth(a->c, i + n, vectors) + 1) + vectors * PL_VL;
    int at = 0;
    for (; at + block <= vectors; at += block) {
        add_values(acc, p, a->v + at * PL_VL, a->off, a->count, chains, block);
        for (int n = 0; n < chains; n++)
            acc[n] += block * PL_VL;
    }
    switch (vectors - at) { // a constant except for wide heads
#define REST(N)                                                                                                        \
    case N: add_values(acc, p, a->v + at * PL_VL, a->off, a->count, chains, N <= block ? N : 1); break;
        REST(1) REST(2) REST(3) REST(4) REST(5) REST(6) REST(7)
#undef REST
    }
}

PL_INLINE void add_all(const sharers *a, const int vectors) {
    int i = 0;
    for (; i + PAIR <= a->n; i += PAIR)
        add_some(a, i, PAIR, vectors);
    for (; i < a->n; i++)
        add_some(a, i, 1, vectors);
}

// One compiled copy of each for a head's width: the compiler might fuse unfused products (a lone vector's scores) in
// one copy and not in another.
#define PART(WHAT, NAME, N)                                                                                            \
    static __attribute__((noinline)) void WHAT##_##NAME(const sharers *a, int vectors) {                               \
        (void)vectors;                                                                                                 \
        WHAT##_all(a, N);                                                                                              \
    }
#define STEP(NAME, N) PART(score, NAME, N) PART(weigh, NAME, N) PART(add, NAME, N)
STEP(1, 1)
STEP(2, 2)
STEP(3, 3)
STEP(4, 4)
STEP(5, 5)
STEP(6, 6)
STEP(7, 7)
STEP(8, 8)
STEP(wide, vectors)
#undef STEP
#undef PART

enum { STEPS = 3 };
static const step_fn *pick_steps(int vectors) {
#define OF(N)                                                                                                          \
    { score_##N, weigh_##N, add_##N }
    static const step_fn steps[MAX_UNROLLED + 1][STEPS] = {OF(wide), OF(1), OF(2), OF(3), OF(4),
                                                           OF(5),    OF(6), OF(7), OF(8)};
#undef OF
    return steps[vectors <= MAX_UNROLLED ? vectors : 0];
}

// ---- rows ----

typedef struct cached_job {
    const pl_attention_args *a;
    const step_fn           *steps;        // [STEPS]
    int64_t                  rows, padded; // floats of a head, to whole vectors
    int                      vectors;
    int                      kv_sets;   // number of items that the key heads are divided into
    int                      head_sets; // and, if they are fewer than threads, the query heads of each
    uint8_t                 *scratch;   // per part: chains, then a packed group
    size_t                   chain_bytes, part_bytes;
    pl_dtype                 held; // of the caches
} cached_job;

// One group of positions as visible to one row: all of them up to the row's own, or from the start of its window.
typedef struct group {
    const void *k, *v;
    int64_t     off[GROUP];
    int         count, first; // first: index in the group of the first visible position
    bool        straight;     // slot = position
} group;

static void find_group(group *to, const pl_kvrow *r, int64_t g, int64_t width, int window) {
    int32_t all = r->n_ctx + r->n_path;
    int64_t skip = pl_attention_first(r, window) - g * GROUP;
    to->first = skip > 0 ? skip < GROUP ? (int)skip : GROUP : 0;
    int64_t p0 = g * GROUP + to->first, left = all - p0, in_context = r->n_ctx - p0;
    int     n = left < GROUP - to->first ? (int)left : GROUP - to->first;
    to->k = r->k;
    to->v = r->v;
    to->count = n > 0 ? n : 0;
    if (n <= 0) return;
    to->straight = !r->path || in_context >= n;
    for (int j = 0; j < GROUP; j++)
        to->off[j] = (p0 + j) * width;
    for (int j = in_context > 0 ? (int)in_context : 0; j < n && !to->straight; j++)
        to->off[j] = r->path[j - in_context] * width;
    for (int j = n; j < GROUP; j++)
        to->off[j] = to->off[n - 1];
}

// Keys and values of a group, copied together as floats: bf16 is widened once for all rows and heads, heads that are
// not whole vectors are padded with zeros, and rows that are powers of two apart would otherwise share few cache sets.
typedef struct packed {
    float       *k, *v; // [GROUP, padded]
    int64_t      off[GROUP];
    const group *from; // a straight group: the rows of a session share it
} packed;

// Loads a vector of a row in a cache, from element `at` on; zeros past `lanes`.
PL_INLINE pl_vf held_at(const void *from, int64_t at, int64_t lanes, pl_dtype held) {
    return held == PL_BF16 ? pl_vf_widen((const uint16_t *)from + at, lanes)
                           : pl_vf_get((const float *)from + at, lanes);
}

// Returns true if the keys of `few` are the first of g's.
static bool begins_alike(const group *few, const group *g) {
    return few->straight && g->straight && few->k == g->k && few->v == g->v && few->first == g->first &&
           few->count <= g->count;
}
static bool same_keys(const group *a, const group *b) {
    return begins_alike(a, b) && a->count == b->count;
}
static void pack_group(packed *p, const group *g, int64_t at, int hd, int64_t padded, pl_dtype held) {
    for (int j = 0; j < g->count; j++)
        for (int i = 0; i < hd; i += PL_VL) {
            int64_t n = pl_vf_lanes(i, hd), off = g->off[j] + at + i;
            pl_vf_store(p->k + j * padded + i, held_at(g->k, off, n, held));
            pl_vf_store(p->v + j * padded + i, held_at(g->v, off, n, held));
        }
    p->from = g->straight ? g : NULL;
}

static void start_chain(chain *c, const cached_job *job, int64_t m, int h) {
    const pl_attention_args *a = job->a;
    const float             *from = pl_f32(&a->qkv) + m * pl_tensor_cols(&a->qkv) + (int64_t)h * a->hd;
    float                   *q = (float *)(c + 1);
    memset(c, 0, job->chain_bytes);
    c->max = a->sink ? a->sink[h] : -INFINITY;
    c->sum = a->sink ? 1.0f : 0.0f;
    c->cap = (float)a->cap;
    for (int i = 0; i < a->hd; i++)
        q[i] = from[i] * (float)a->scale;
}

static void end_chain(const chain *c, const cached_job *job, int64_t m, int h) {
    const pl_attention_args *a = job->a;
    const float             *acc = (const float *)(c + 1) + job->padded;
    float                   *o = pl_f32(&a->o) + (m * a->nh + h) * a->hd;
    pl_vf                    sum = pl_vf_set1(c->sum > 0.0f ? c->sum : 1.0f); // a row without keys: zeros
    for (int i = 0; i < a->hd; i += PL_VL)
        pl_vf_put(o + i, pl_vf_div(pl_vf_load(acc + i), sum), pl_vf_lanes(i, a->hd));
}

// Rows [m0, m1), key heads [kv0, kv1), query heads [lo, hi) of each.
typedef struct item {
    int64_t m0, m1;
    int     kv0, kv1, lo, hi;
} item;

// Returns a chain; those of a key head are adjacent.
static chain *chain_at(const cached_job *job, const item *it, uint8_t *scratch, int64_t m, int kv_head) {
    int64_t index = ((kv_head - it->kv0) * (it->m1 - it->m0) + m - it->m0) * (it->hi - it->lo);
    return (chain *)(scratch + (size_t)index * job->chain_bytes);
}

static chain *next_chain(const cached_job *job, chain *c) {
    return (chain *)((uint8_t *)c + job->chain_bytes);
}

// Chains that take a group's step together.
typedef struct crowd {
    sharers of[ROW_BLOCK];
    int     n, chains;
    _Alignas(64) float s[CROWD][GROUP];
} crowd;

static void step_crowd(const cached_job *job, crowd *all) {
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < all->n; i++)
            job->steps[step](&all->of[i], job->vectors);
    all->n = all->chains = 0;
}

// Adds n chains like those of `more`. same: they follow the last that joined, and have the same keys.
static void join_crowd(const cached_job *job, crowd *all, sharers more, int n, bool same) {
    if (same && all->n > 0 && all->chains + n <= CROWD) {
        all->of[all->n - 1].n += n;
        all->chains += n;
        return;
    }
    for (; n > 0; n -= more.n) {
        if (all->n == ROW_BLOCK || all->chains == CROWD) step_crowd(job, all);
        more.n = n < CROWD - all->chains ? n : CROWD - all->chains;
        more.s = all->s + all->chains;
        all->of[all->n++] = more;
        all->chains += more.n;
        more.c = (chain *)((uint8_t *)more.c + (size_t)more.n * job->chain_bytes);
    }
}

// Runs group after group; in a group key head after key head, so that a session's cache is read front to back.
static void run_item(const cached_job *job, const item *it, uint8_t *scratch) {
    const pl_attention_args *a = job->a;
    int                      share = a->nh / a->nkv;
    int64_t                  groups = 0, first = INT64_MAX, width = (int64_t)a->nkv * a->hd;
    group                    see[ROW_BLOCK];
    packed                   copy;
    crowd                    together;
    bool crowded = width % CROWDED == 0 && a->nkv > 1 && (it->m1 - it->m0) * (it->hi - it->lo) >= PACKING_PAYS;
    bool pack = a->hd % PL_VL != 0 || crowded || job->held == PL_BF16;
    copy.k = (float *)(scratch + ROW_BLOCK * (size_t)a->nh * job->chain_bytes);
    copy.v = copy.k + GROUP * job->padded;
    for (int j = 0; j < GROUP; j++)
        copy.off[j] = j * job->padded;

    for (int64_t m = it->m0; m < it->m1; m++) {
        int32_t all = a->row[m].n_ctx + a->row[m].n_path;
        int64_t n = ((int64_t)all + GROUP - 1) / GROUP, seen = pl_attention_first(&a->row[m], a->window) / GROUP;
        groups = n > groups ? n : groups;
        first = seen < first ? seen : first;
        for (int kv = it->kv0; kv < it->kv1; kv++) {
            chain *c = chain_at(job, it, scratch, m, kv);
            for (int h = it->lo; h < it->hi; h++, c = next_chain(job, c))
                start_chain(c, job, m, kv * share + h);
        }
    }
    together.n = together.chains = 0;
    for (int64_t g = first; g < groups; g++) {
        for (int64_t m = it->m0; m < it->m1; m++)
            find_group(&see[m - it->m0], &a->row[m], g, width, a->window);
        for (int kv = it->kv0; kv < it->kv1; kv++) {
            int64_t      at = (int64_t)kv * a->hd;
            const group *before = NULL;
            copy.from = NULL;
            for (int64_t m = it->m0; m < it->m1; m++) {
                const group *s = &see[m - it->m0];
                if (s->count == 0) {
                    before = NULL;
                    continue;
                }
                if (pack && !(copy.from && begins_alike(s, copy.from))) {
                    step_crowd(job, &together); // over the currently packed keys
                    pack_group(&copy, s, at, a->hd, job->padded, job->held);
                }
                sharers of = {.c = chain_at(job, it, scratch, m, kv),
                              .count = s->count,
                              .k = pack ? copy.k : (const float *)s->k + at,
                              .v = pack ? copy.v : (const float *)s->v + at,
                              .off = pack ? copy.off : s->off};
                join_crowd(job, &together, of, it->hi - it->lo, before && same_keys(s, before));
                before = s;
            }
            step_crowd(job, &together);
        }
    }
    for (int64_t m = it->m0; m < it->m1; m++)
        for (int kv = it->kv0; kv < it->kv1; kv++) {
            chain *c = chain_at(job, it, scratch, m, kv);
            for (int h = it->lo; h < it->hi; h++, c = next_chain(job, c))
                end_chain(c, job, m, kv * share + h);
        }
}

// Items are row blocks x sets of key heads x sets of query heads, dealt round robin (later rows of a prefill see more).
static void cached_part(void *arg, int part, int parts) {
    const cached_job        *job = arg;
    const pl_attention_args *a = job->a;
    int                      per_block = job->kv_sets * job->head_sets;
    uint8_t                 *scratch = job->scratch + (size_t)part * job->part_bytes;
    int64_t                  items = (job->rows + ROW_BLOCK - 1) / ROW_BLOCK * per_block;
    for (int64_t i = part; i < items; i += parts) {
        item it = {.m0 = i / per_block * ROW_BLOCK};
        long lo, hi;
        it.m1 = it.m0 + ROW_BLOCK < job->rows ? it.m0 + ROW_BLOCK : job->rows;
        pl_range(a->nkv, 1, (int)(i % per_block) / job->head_sets, job->kv_sets, &lo, &hi);
        it.kv0 = (int)lo;
        it.kv1 = (int)hi;
        pl_range(a->nh / a->nkv, 1, (int)(i % job->head_sets), job->head_sets, &lo, &hi);
        it.lo = (int)lo;
        it.hi = (int)hi;
        run_item(job, &it, scratch);
    }
}

static void cached_fwd(pl_ctx *ctx, const pl_attention_args *a) {
    int        share = a->nh / a->nkv, threads = pl_pool_threads(ctx->pool);
    cached_job job = {.a = a, .rows = pl_tensor_rows(&a->qkv), .vectors = (a->hd + PL_VL - 1) / PL_VL};
    int64_t    blocks = (job.rows + ROW_BLOCK - 1) / ROW_BLOCK;
    job.padded = (int64_t)job.vectors * PL_VL;
    job.steps = pick_steps(job.vectors);
    // One block: as few sets as threads, so that each reads long ranges. Several: enough to balance them.
    int64_t sets = blocks > 1 ? (4 * threads + blocks - 1) / blocks : threads;
    job.kv_sets = sets < a->nkv ? (int)sets : a->nkv;
    for (job.head_sets = 1; blocks * job.kv_sets * job.head_sets < threads && job.head_sets < share;)
        job.head_sets++;
    job.chain_bytes = sizeof(chain) + 2 * (size_t)job.padded * sizeof(float);
    job.part_bytes = ROW_BLOCK * (size_t)a->nh * job.chain_bytes + 2 * GROUP * (size_t)job.padded * sizeof(float);

    size_t mark = pl_arena_mark(&ctx->scratch);
    job.scratch = pl_arena_alloc(&ctx->scratch, (size_t)threads * job.part_bytes);
    if (!ctx->measuring) {
        // Counted four times: over few rows attention runs at a quarter of the rate for which the threshold was set.
        double work = 0;
        job.held = pl_kvrow_dtype(a->row, job.rows);
        for (int64_t m = 0; m < job.rows; m++) {
            int32_t all = a->row[m].n_ctx + a->row[m].n_path;
            work += 4 * 4.0 * a->nh * a->hd * (double)(all - pl_attention_first(&a->row[m], a->window));
        }
        pl_parallel(ctx->pool, pl_cpu_parts(ctx, blocks * job.kv_sets * job.head_sets, work), cached_part, &job);
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
