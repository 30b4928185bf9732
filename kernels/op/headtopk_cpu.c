// The fused head: panels of the weight stream past the rows once; of each panel's 64 logits per row only those are kept
// that enter the row's list of the k best, and the panel's maximum and sum of exponentials.
//   rows of one tile  one pass a panel
//   more rows         a panel is read again for each tile of rows, from L2, which holds a panel of K rows of 64
// A row's list is kept in order while k is small, else as a bag of keys (see below). Results do not depend on
// the thread that takes a panel: lists are merged by (value, row of W), sums panel by panel in order.
#include "kernels/codes.h"
#include "kernels/cpu/panels.h"
#include "kernels/op/best_cpu.h"
#include "kernels/op/headtopk.h"
#include "kernels/op/linear.h"
#include "kernels/segments.h"
#include <math.h>
#include <string.h>

// ---- keys

// The k best of a long stream of (value, id), for k too large for an ordered list: values and ids in 64-bit keys whose
// order is the tie rule (larger value first, then lower id), gathered in a buffer and cut back to about k when 2k are
// in it. Ids come in ascending order and stay in it, so only an order by value needs a sort.

#define KEYS_SPARE 64 // keys beyond 2k that a buffer has room for: as many as are added at once

typedef struct key_bag {
    uint64_t *key; // [2k + KEYS_SPARE]
    int       n, k;
    float     least; // at least k that are held reach it: only larger values can enter
    bool      full;
} key_bag;

// -0 counts as 0, as in comparisons.
static uint64_t key_of(float v, int32_t id) {
    uint32_t u;
    v += 0.0f;
    memcpy(&u, &v, sizeof u);
    u = u >> 31 ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (uint32_t)~id;
}

static int32_t id_of(uint64_t key) {
    return (int32_t) ~(uint32_t)key;
}

static float value_of(uint64_t key) {
    uint32_t u = (uint32_t)(key >> 32);
    float    v;
    u = u >> 31 ? u & 0x7fffffffu : ~u;
    memcpy(&v, &u, sizeof v);
    return v;
}

// A bound that at least k and at most k + slack of n > k distinct keys reach. Halving the range and counting anew each
// time is faster than to partition: counting runs in vectors, and a bound with some slack takes few counts.
static uint64_t keys_bound(const uint64_t *key, int n, int k, int slack) {
    uint64_t low = key[0], high = key[0]; // k or more reach low, fewer than k exceed high
    for (int i = 1; i < n; i++) {
        low = key[i] < low ? key[i] : low;
        high = key[i] > high ? key[i] : high;
    }
    for (int reach = n; reach > k + slack;) {
        uint64_t middle = low + (high - low) / 2 + 1, count = 0;
        for (int i = 0; i < n; i++)
            count += key[i] >= middle;
        if ((int)count < k) {
            high = middle - 1;
        } else {
            low = middle;
            reach = (int)count;
        }
    }
    return low;
}

// Cuts n > k keys to the k best and at most slack more, which keep their order. Returns how many are left.
static int keys_cut(uint64_t *key, int n, int k, int slack, uint64_t *bound) {
    int kept = 0;
    *bound = keys_bound(key, n, k, slack);
    for (int i = 0; i < n; i++) {
        uint64_t v = key[i];
        key[kept] = v;
        kept += v >= *bound;
    }
    return kept;
}

static void keys_begin(key_bag *s, uint64_t *key, int k) {
    *s = (key_bag){.key = key, .k = k, .least = -INFINITY};
}

// Takes the values z[j] of the bits j of `places`, id first + j; those at or below `least` the caller has left out.
static void keys_add(key_bag *s, const float *z, uint64_t places, int32_t first) {
    for (; places; places &= places - 1) {
        int j = __builtin_ctzll(places);
        s->key[s->n++] = key_of(z[j], first + j);
    }
    if (s->n < 2 * s->k) return;
    uint64_t bound;
    s->n = keys_cut(s->key, s->n, s->k, s->k / 4, &bound);
    s->least = value_of(bound);
    s->full = true;
}

// At most k are left, the best.
static void keys_end(key_bag *s) {
    uint64_t bound;
    if (s->n > s->k) s->n = keys_cut(s->key, s->n, s->k, 0, &bound);
}

// By value, largest first; equal values stay in order. tmp [n].
static void keys_sort(uint64_t *key, int n, uint64_t *tmp) {
    for (int shift = 32; shift < 64; shift += 8) {
        int at[256] = {0}, sum = 0;
        for (int i = 0; i < n; i++)
            at[key[i] >> shift & 255]++;
        for (int d = 255; d >= 0; d--) {
            int count = at[d];
            at[d] = sum;
            sum += count;
        }
        for (int i = 0; i < n; i++)
            tmp[at[key[i] >> shift & 255]++] = key[i];
        memcpy(key, tmp, (size_t)n * sizeof *key);
    }
}

// ---- the op

void PL_CPU(headtopk_fwd)(pl_ctx *ctx, const void *args);
void pl_headtopk_fwd_ref32(pl_ctx *ctx, const void *args);

enum {
    ROWS_MAX = 96,      // rows whose packed x is kept at once
    KEYS_MAX = 2 << 20, // keys over all threads
};

// A panel that the support touches; bit j of mask: row first + j of W is in it.
typedef struct item {
    const char *w;
    uint64_t    mask;
    int32_t     first;
    int32_t     before; // number of half panels read before it
    bool        half;
} item;
_Static_assert(PL_PANEL == 64, "a bit for each row of a panel");

typedef struct sum {
    float max, sum; // sum of exp(z - max) over a panel; max -infinity: empty
} sum;

// A thread's results for a row.
typedef struct list {
    int64_t  nan;  // row of W with a NaN, -1
    pl_best *best; // NULL: keys
    key_bag  keys;
} list;

typedef struct job {
    const pl_headtopk_args *a;
    const item             *items;
    int64_t                 n_items, k; // k: of the product
    int64_t                 halves;     // half panels of all items
    pl_rows                 x;          // this block of rows
    int64_t                 first_row, rows;
    int                     parts;
    bool                    far;  // more panels than the last-level cache holds
    list                   *list; // [parts][rows]
    pl_best                *best; // [parts][rows]; NULL: keys
    uint64_t               *key;  // [parts][rows][keys_room]
    uint64_t               *tmp;  // [parts][2 parts top]
    sum                    *sum;  // [rows][n_items]; NULL: not wanted
    char                   *open; // (codes, more rows than a tile) a thread's opened panel, open_bytes for each
    size_t                  open_bytes;
} job;

static int64_t keys_room(int64_t top) {
    return 2 * top + KEYS_SPARE;
}

// Returns the positions of a panel whose logit exceeds a bound.
PL_INLINE uint64_t above(const float *z, float bound) {
    uint64_t mask = 0;
    for (int v = 0; v < PL_PANEL; v += PL_VL)
        mask |= (uint64_t)pl_vf_above(pl_vf_loadu(z + v), pl_vf_set1(bound)) << v;
    return mask;
}

static void list_take(list *l, int k, const float *z, float top, const item *it) {
    pl_best *b = l->best;
    bool     full = b ? b->held == k : l->keys.full;
    float    least = b ? b->value[k - 1] : l->keys.least;
    uint64_t left = it->mask;
    if (full && !(top > least)) return;
    if (full) left &= above(z, least);
    if (!b) keys_add(&l->keys, z, left, it->first);
    for (; b && left; left &= left - 1) {
        int v = __builtin_ctzll(left);
        if (b->held < k || z[v] > b->value[k - 1]) pl_best_insert(b, k, z[v], it->first + v);
    }
}

// Takes one row's logits of one panel, after removing those outside the support.
static void take(list *l, sum *s, int k, float *z, const item *it) {
    pl_vf max = pl_vf_set1(-INFINITY), none = max, odd = pl_vf_zero();
    for (int v = 0; v < PL_PANEL; v += PL_VL) {
        pl_vf x = pl_vf_loadu(z + v);
        if (~it->mask) {
            x = pl_vf_pick((uint32_t)(it->mask >> v) & 0xffff, x, none);
            pl_vf_storeu(z + v, x);
        }
        max = pl_vf_max(max, x);
        // The comparison sets all bits of NaN lanes, which as a float is NaN again.
        for (int p = 0; p < PL_VF_PARTS; p++)
            odd.p[p] = (pl_vn)((pl_vni)odd.p[p] | (pl_vni)(x.p[p] != x.p[p]));
    }
    float top = pl_vf_hmax(max);
    if (isnan(pl_vf_hsum(odd))) {
        for (int v = 0; v < PL_PANEL && l->nan < 0; v++)
            if (isnan(z[v])) l->nan = it->first + v;
        return;
    }
    list_take(l, k, z, top, it);
    if (!s) return;
    pl_vf m = pl_vf_set1(top), total = pl_vf_zero();
    for (int v = 0; v < PL_PANEL && !isinf(top); v += PL_VL)
        total = pl_vf_add(total, pl_vf_exp(pl_vf_sub(pl_vf_loadu(z + v), m)));
    *s = (sum){.max = top, .sum = isinf(top) ? 1.0f : pl_vf_hsum(total)};
}

// Returns the first item of a part: parts read as equal numbers of bytes as whole panels allow.
static int64_t part_start(const job *j, int part, int parts) {
    int64_t from = j->halves * part / parts, low = 0, high = j->n_items;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (j->items[middle].before < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void items_part(void *arg, int part, int parts) {
    const job *j = arg;
    bool       bf16 = j->a->w.dtype == PL_BF16;
    int64_t    top = j->a->k, lo = part_start(j, part, parts), hi = part_start(j, part + 1, parts);
    list      *l = j->list + part * j->rows;
    float      z[PL_PASS_ROWS * PL_PANEL] = {0};
    for (int64_t r = 0; r < j->rows; r++) {
        int64_t at = part * j->rows + r;
        l[r] = (list){.nan = -1, .best = j->best ? &j->best[at] : NULL};
        if (j->best)
            j->best[at].held = 0;
        else
            keys_begin(&l[r].keys, j->key + at * keys_room(top), (int)top);
    }
    uint64_t mode = pl_panels_begin(bf16);
    for (int64_t i = lo; i < hi; i++) {
        const item *it = &j->items[i];
        // Prefetching past a panel's end fetches the next one, wherever it is.
        const char *after = i + 1 < hi ? it[1].w : NULL;
        const bool  open = j->open != NULL;
        char       *opened = open ? j->open + (size_t)part * j->open_bytes : NULL;
        if (open) pl_codes_open(j->a->w.code, it->w, j->k, opened);
        for (int64_t t = 0; t < j->x.tiles; t++) {
            int64_t r0 = pl_rows_first(&j->x, t), rows = pl_rows_first(&j->x, t + 1) - r0;
            pl_pass p = {.kc = j->k,
                         .x = pl_rows_at(&j->x, t, 0),
                         .among = j->x.tiles > 1,
                         .w = open ? opened : it->w,
                         .y = z,
                         .ldy = PL_PANEL,
                         .cols = it->half ? PL_HALF_PANEL : PL_PANEL, // padding rows are there too, as zeros
                         .after = open                 ? NULL
                                  : t + 1 < j->x.tiles ? it->w
                                                       : after,
                         .far = j->far && !open,
                         .here = open,
                         .code = open ? PL_CODE_NONE : j->a->w.code};
            if (it->half)
                pl_panels_half_pass(bf16, (int)rows, &p);
            else
                pl_panels_pass(bf16, (int)rows, 1, &p);
            for (int64_t r = 0; r < rows; r++)
                take(&l[r0 + r], j->sum ? &j->sum[(r0 + r) * j->n_items + i] : NULL, j->a->k, z + r * PL_PANEL, it);
        }
    }
    pl_panels_end(bf16, mode);
    // Here, where threads run in parallel, rather than in merging.
    for (int64_t r = 0; r < j->rows && !j->best; r++)
        keys_end(&l[r].keys);
}

static void write_best(const pl_headtopk_args *a, int64_t m, const pl_best *b) {
    for (int i = 0; i < a->k; i++) {
        a->id[m * a->k + i] = i < b->held ? b->id[i] : -1;
        if (a->value) a->value[m * a->k + i] = i < b->held ? b->value[i] : -INFINITY;
    }
}

static void write_keys(const pl_headtopk_args *a, int64_t m, const uint64_t *key, int held) {
    for (int i = 0; i < a->k; i++) {
        a->id[m * a->k + i] = i < held ? id_of(key[i]) : -1;
        if (a->value) a->value[m * a->k + i] = i < held ? value_of(key[i]) : -INFINITY;
    }
}

// Merges the threads' lists for rows of the block. Threads took ascending panels, so keys stay in order of id.
static void merge_part(void *arg, int part, int parts) {
    const job *j = arg;
    long       lo, hi;
    int        top = j->a->k;
    pl_range((long)j->rows, 1, part, parts, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        uint64_t *key = j->tmp + part * 2 * j->parts * top, *tmp = key + j->parts * top, bound;
        pl_best  *best = j->list[r].best; // NULL: lists are keys
        int       n = 0;
        for (int p = 0; p < j->parts; p++) {
            list *l = &j->list[p * j->rows + r];
            if (best) {
                for (int i = 0; i < l->best->held && p > 0; i++)
                    pl_best_insert(best, top, l->best->value[i], l->best->id[i]);
                continue;
            }
            memcpy(key + n, l->keys.key, (size_t)l->keys.n * sizeof *key);
            n += l->keys.n;
        }
        if (best) {
            write_best(j->a, j->first_row + r, best);
            continue;
        }
        if (n > top) n = keys_cut(key, n, top, 0, &bound);
        if (!j->a->by_id) keys_sort(key, n, tmp);
        write_keys(j->a, j->first_row + r, key, n);
    }
}

static void refuse_nan(pl_ctx *ctx, const job *j, int64_t r) {
    for (int p = 0; p < j->parts; p++) {
        int64_t nan = j->list[p * j->rows + r].nan;
        if (nan < 0 || ctx->err.status != PL_OK) continue;
        pl_ctx_fail(ctx, PL_E_INPUT, "logits: NaN at row %lld, id %lld; check the weights", (long long)j->first_row + r,
                    (long long)nan);
    }
}

static void finish_lse(const job *j, int64_t r) {
    float  max = -INFINITY;
    double total = 0;
    sum   *s = j->sum + r * j->n_items;
    for (int64_t i = 0; i < j->n_items; i++)
        if (s[i].max > max) max = s[i].max;
    for (int64_t i = 0; i < j->n_items && !isinf(max); i++)
        if (!isinf(s[i].max)) total += (double)s[i].sum * exp((double)s[i].max - (double)max);
    j->a->lse[j->first_row + r] = isinf(max) ? max : (float)((double)max + log(total));
}

// The panels of the support, in order.
static void list_items(job *j, item *to, const pl_headtopk_args *a) {
    pl_span        all = {.first = 0, .count = (int32_t)a->w.dim[0]};
    const pl_span *span = a->span ? a->span : &all;
    int64_t        n = 0, segment = 0, before = 0;
    int            spans = pl_headtopk_spans(a);
    for (int i = 0; i < spans; i++) { // one where a->span is NULL
        // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
        int64_t end = (int64_t)span[i].first + span[i].count;
        for (int64_t v = span[i].first; v < end;) {
            pl_panel p = pl_panel_of(&a->w, v, &segment);
            int64_t  low = v - p.first, high = (end < p.first + p.rows ? end : p.first + p.rows) - p.first;
            uint64_t mask = (high == PL_PANEL ? ~(uint64_t)0 : ((uint64_t)1 << high) - 1) & ~(((uint64_t)1 << low) - 1);
            v = p.first + high;
            if (n > 0 && to[n - 1].first == p.first) {
                to[n - 1].mask |= mask;
                continue;
            }
            to[n++] = (item){.w = (const char *)a->w.data + p.at,
                             .mask = mask,
                             .first = (int32_t)p.first,
                             .before = (int32_t)before,
                             .half = p.width == PL_HALF_PANEL};
            before += p.width / PL_HALF_PANEL;
        }
    }
    j->n_items = n;
    j->halves = before;
}

void PL_CPU(headtopk_fwd)(pl_ctx *ctx, const void *args) {
    const pl_headtopk_args *a = args;
    int64_t                 m = a->x.dim[0], k = a->w.dim[1], top = a->k;
    int64_t                 block = m < ROWS_MAX ? m : ROWS_MAX;
    if (a->w.layout == PL_ROWMAJOR) {
        pl_headtopk_fwd_ref32(ctx, args);
        return;
    }
    if (m == 0) return;
    int64_t panels = pl_panels_most(&a->w);
    int     parts = pl_pool_threads(ctx->pool);
    bool    keys = top > PL_TOPK_MAX || a->by_id;
    if (keys && block * parts * keys_room(top) > KEYS_MAX) block = KEYS_MAX / (parts * keys_room(top));
    if (block < 1) block = 1;
    // Scratch for the largest support and, of fewer rows than were measured, never more than for all of them.
    bool bf16 = a->w.dtype == PL_BF16;
    job  j = {.a = a, .k = k, .parts = parts};
    j.far = (size_t)panels * pl_packed_panel(&a->w) > ctx->trail.cache;
    size_t mark = pl_arena_mark(&ctx->scratch);
    item  *items = pl_arena_alloc(&ctx->scratch, (size_t)panels * sizeof *items);
    j.list = pl_arena_alloc(&ctx->scratch, (size_t)(parts * block) * sizeof *j.list);
    if (keys) {
        j.key = pl_arena_alloc(&ctx->scratch, (size_t)(parts * block * keys_room(top)) * sizeof *j.key);
        j.tmp = pl_arena_alloc(&ctx->scratch, (size_t)(2 * parts * parts * top) * sizeof *j.tmp);
    } else {
        j.best = pl_arena_alloc(&ctx->scratch, (size_t)(parts * block) * sizeof *j.best);
    }
    if (a->lse) j.sum = pl_arena_alloc(&ctx->scratch, (size_t)(block * panels) * sizeof *j.sum);
    void *packed = pl_arena_alloc(&ctx->scratch, pl_rows_bytes(bf16, block, k));
    if (a->w.code && block > PL_ROWS_TILE) {
        j.open_bytes = pl_panels_bytes(PL_PANEL, k, PL_BF16);
        j.open = pl_arena_alloc(&ctx->scratch, (size_t)parts * j.open_bytes);
    }
    j.items = items;
    if (!ctx->measuring) list_items(&j, items, a);
    for (int64_t r0 = 0; r0 < m && !ctx->measuring; r0 += block) {
        j.first_row = r0;
        j.rows = m - r0 < block ? m - r0 : block;
        pl_rows_begin(&j.x, bf16, pl_f32(&a->x) + r0 * k, j.rows, k, packed);
        for (int64_t t = 0; t < j.x.tiles; t++)
            pl_rows_pack(&j.x, t);
        pl_parallel(ctx->pool, parts, items_part, &j);
        for (int64_t r = 0; r < j.rows; r++)
            refuse_nan(ctx, &j, r);
        if (ctx->err.status != PL_OK) break;
        if (keys)
            pl_parallel(ctx->pool, parts, merge_part, &j);
        else
            merge_part(&j, 0, 1);
        for (int64_t r = 0; r < j.rows && a->lse; r++)
            finish_lse(&j, r);
    }
    pl_arena_release(&ctx->scratch, mark);
}
