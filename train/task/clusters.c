#include "train/task/clusters.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/rng.h"
#include "kernels/op/linear.h"
#include "train/start/nearest.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 2048, MOVED = 1000, PARTS = 64 };

typedef struct work {
    pl_ctx           ctx;
    const pl_tensor *w;
    const int32_t   *id;
    int64_t          n, d, m;
    float           *block;     // [CHUNK, d] normed rows
    float           *scores;    // [CHUNK, m]
    float           *centre;    // [m, d]
    double          *sum;       // [m, d]
    int32_t         *cluster;   // [n]
    float           *near;      // [n] u . c of its cluster
    int64_t         *size;      // [m]
    int64_t          at, count; // the current block
    int64_t          bad;       // index of a row that is not finite, -1: none
    int32_t         *next;      // [CHUNK] clusters found for the block
} work;

static void work_fini(work *k) {
    pl_ctx_fini(&k->ctx);
    pl_free(k->block);
    pl_free(k->scores);
    pl_free(k->centre);
    pl_free(k->sum);
    pl_free(k->cluster);
    pl_free(k->near);
    pl_free(k->size);
    pl_free(k->next);
}

static pl_status work_init(work *k, const pl_backend *be, pl_pool *pool, pl_err *err) {
    size_t n = (size_t)k->n, d = (size_t)k->d, m = (size_t)k->m;
    PL_TRY(pl_ctx_init(&k->ctx, be, pool));
    k->block = pl_calloc(CHUNK * d, sizeof *k->block);
    k->scores = pl_calloc(CHUNK * m, sizeof *k->scores);
    k->centre = pl_calloc(pl_size_mul(m, d, 1), sizeof *k->centre);
    k->sum = pl_calloc(pl_size_mul(m, d, 1), sizeof *k->sum);
    k->cluster = pl_calloc(n, sizeof *k->cluster);
    k->near = pl_calloc(n, sizeof *k->near);
    k->size = pl_calloc(m, sizeof *k->size);
    k->next = pl_calloc(CHUNK, sizeof *k->next);
    if (k->block && k->scores && k->centre && k->sum && k->cluster && k->near && k->size && k->next) return PL_OK;
    return pl_fail(err, PL_E_MEMORY, "clusters of %lld rows: out of memory", (long long)k->n);
}

// ---- rows

static bool normed_row(const work *k, int64_t v, float *to) {
    return pl_normed_row(to, k->w, k->id ? k->id[v] : v);
}

static void load_part(void *arg, int part, int parts) {
    work *k = arg;
    long  lo, hi;
    pl_range((long)k->count, 1, part, parts, &lo, &hi);
    for (long i = lo; i < hi; i++)
        if (!normed_row(k, k->at + i, k->block + i * k->d)) k->next[i] = -1;
}

// Loads rows [at, at + count) into k->block; returns false if row k->bad is not finite.
static bool load_block(work *k, int64_t at) {
    k->at = at;
    k->count = k->n - at < CHUNK ? k->n - at : CHUNK;
    memset(k->next, 0, (size_t)k->count * sizeof *k->next);
    pl_parallel(k->ctx.pool, PARTS, load_part, k);
    for (int64_t i = 0; i < k->count; i++)
        if (k->next[i] < 0) {
            k->bad = at + i;
            return false;
        }
    return true;
}

// ---- a round

static void product(pl_ctx *ctx, float *y, float *x, float *w, int64_t m, int64_t n, int64_t d) {
    pl_linear_into(ctx, pl_tensor_2d(y, PL_F32, m, n), pl_tensor_2d(x, PL_F32, m, d), pl_tensor_2d(w, PL_F32, n, d));
}

static void measure(pl_ctx *ctx, void *arg) {
    work *k = arg;
    product(ctx, k->scores, k->block, k->centre, CHUNK, k->m, k->d);
    product(ctx, k->scores, k->centre, k->centre, 1, k->m, k->d);
}

static void nearest_part(void *arg, int part, int parts) {
    work *k = arg;
    long  lo, hi;
    pl_range((long)k->count, 1, part, parts, &lo, &hi);
    for (long i = lo; i < hi; i++) {
        const float *s = k->scores + i * k->m;
        int32_t      best = 0;
        for (int64_t c = 1; c < k->m; c++)
            if (s[c] > s[best]) best = (int32_t)c;
        k->next[i] = best;
        k->near[k->at + i] = s[best];
    }
}

// Adds rows to their clusters' sums. Threads split columns and add rows in order: the bits do not depend on their
// number.
static void sum_part(void *arg, int part, int parts) {
    work *k = arg;
    long  lo, hi;
    pl_range((long)k->d, 16, part, parts, &lo, &hi);
    for (int64_t i = 0; i < k->count && lo < hi; i++) {
        const float *row = k->block + i * k->d;
        double      *sum = k->sum + k->cluster[k->at + i] * k->d;
        for (long j = lo; j < hi; j++)
            sum[j] += (double)row[j];
    }
}

// Returns the row farthest from its centre among the rows that are not alone in their cluster.
static int64_t farthest(const work *k) {
    int64_t at = -1;
    for (int64_t v = 0; v < k->n; v++)
        if (k->size[k->cluster[v]] > 1 && (at < 0 || k->near[v] < k->near[at])) at = v;
    PL_CHECK(at >= 0, "%lld clusters of %lld rows", (long long)k->m, (long long)k->n);
    return at;
}

// Moves a row into every empty cluster; that row becomes its centre. With `sums`, updates the clusters' sums; row:
// scratch.
static void fill_empty(work *k, bool sums, float *row) {
    for (int64_t c = 0; c < k->m; c++) {
        if (k->size[c] > 0) continue;
        int64_t v = farthest(k);
        int64_t old = k->cluster[v];
        if (sums) {
            normed_row(k, v, row);
            for (int64_t j = 0; j < k->d; j++) {
                k->sum[old * k->d + j] -= (double)row[j];
                k->sum[c * k->d + j] = (double)row[j];
            }
        }
        k->size[old]--;
        k->size[c] = 1;
        k->cluster[v] = (int32_t)c;
        k->near[v] = 1;
    }
}

// Assigns all rows to their nearest centres; *moved counts the changes. sums: also sums the clusters' rows.
static pl_status assign(work *k, bool sums, int64_t *moved, pl_err *err) {
    *moved = 0;
    memset(k->size, 0, (size_t)k->m * sizeof *k->size);
    if (sums) memset(k->sum, 0, (size_t)(k->m * k->d) * sizeof *k->sum);
    for (int64_t at = 0; at < k->n; at += CHUNK) {
        if (!load_block(k, at))
            return pl_fail(err, PL_E_INPUT, "clusters: row %lld of the head is not finite; check the drafter's head",
                           (long long)k->bad);
        product(&k->ctx, k->scores, k->block, k->centre, k->count, k->m, k->d);
        PL_TRY(pl_ctx_sync(&k->ctx, err));
        pl_parallel(k->ctx.pool, PARTS, nearest_part, k);
        for (int64_t i = 0; i < k->count; i++) {
            *moved += k->cluster[at + i] != k->next[i];
            k->cluster[at + i] = k->next[i];
            k->size[k->next[i]]++;
        }
        if (sums) pl_parallel(k->ctx.pool, PARTS, sum_part, k);
    }
    return PL_OK;
}

// Sets each centre to the normed sum of its rows; keeps the old centre if the sum is zero.
static void move_centres(work *k) {
    for (int64_t c = 0; c < k->m; c++) {
        const double *sum = k->sum + c * k->d;
        double        norm = 0;
        for (int64_t j = 0; j < k->d; j++)
            norm += sum[j] * sum[j];
        for (int64_t j = 0; j < k->d && norm > 0; j++)
            k->centre[c * k->d + j] = (float)(sum[j] / sqrt(norm));
    }
}

// Draws M distinct row indices as centres. Equal rows leave clusters empty, which fill_empty fills.
static pl_status start(work *k, uint64_t seed, pl_err *err) {
    int64_t *p = pl_malloc(pl_size_mul((size_t)k->n, sizeof *p, 1));
    if (!p) return pl_fail(err, PL_E_MEMORY, "clusters of %lld rows: out of memory", (long long)k->n);
    for (int64_t i = 0; i < k->n; i++)
        p[i] = i;
    pl_rng_permute(pl_rng_make(seed, PL_STREAM_INIT, UINT32_MAX - 1), p, k->n);
    for (int64_t c = 0; c < k->m; c++)
        normed_row(k, p[c], k->centre + c * k->d);
    pl_free(p);
    for (int64_t v = 0; v < k->n; v++)
        k->cluster[v] = -1;
    return PL_OK;
}

static pl_status run(work *k, pl_clusters *out, pl_err *err) {
    for (bool last = false; !last; out->rounds++) {
        int64_t moved;
        PL_TRY(assign(k, true, &moved, err));
        last = moved <= k->n / MOVED || out->rounds + 1 == PL_CLUSTERS_ROUNDS;
        fill_empty(k, !last, k->block);
        if (!last) move_centres(k);
    }
    for (int64_t v = 0; v < k->n; v++)
        out->cosine += (double)k->near[v] / (double)k->n;
    return PL_OK;
}

// ---- the result

// Writes to number[c] the place of cluster c in the chain.
static void chain(work *k, int32_t *number) {
    int64_t at = 0;
    for (int64_t c = 0; c < k->m; c++) {
        number[c] = -1;
        if (k->size[c] > k->size[at]) at = c;
    }
    for (int32_t i = 0; i < k->m; i++) {
        number[at] = i;
        product(&k->ctx, k->scores, k->centre + at * k->d, k->centre, 1, k->m, k->d);
        int64_t next = -1;
        for (int64_t c = 0; c < k->m; c++)
            if (number[c] < 0 && (next < 0 || k->scores[c] > k->scores[next])) next = c;
        at = next;
    }
}

static pl_status list(work *k, pl_clusters *c, pl_err *err) {
    int32_t *number = pl_calloc((size_t)k->m, sizeof *number);
    int64_t *at = pl_calloc((size_t)k->m, sizeof *at);
    c->order = pl_calloc((size_t)k->n, sizeof *c->order);
    c->offset = pl_calloc((size_t)k->m + 1, sizeof *c->offset);
    pl_status st = PL_OK;
    if (!number || !at || !c->order || !c->offset)
        st = pl_fail(err, PL_E_MEMORY, "clusters of %lld rows: out of memory", (long long)k->n);
    if (st == PL_OK) {
        chain(k, number);
        st = pl_ctx_sync(&k->ctx, err);
    }
    if (st == PL_OK) {
        for (int64_t i = 0; i < k->m; i++)
            c->offset[number[i] + 1] = k->size[i];
        for (int64_t i = 0; i < k->m; i++) {
            c->offset[i + 1] += c->offset[i];
            at[i] = c->offset[i];
        }
        for (int64_t v = 0; v < k->n; v++)
            c->order[at[number[k->cluster[v]]]++] = (int32_t)v;
    }
    pl_free(number);
    pl_free(at);
    return st;
}

pl_status pl_clusters_make(pl_clusters *c, const pl_tensor *w, const int32_t *id, int64_t n, int64_t m, uint64_t seed,
                           const pl_backend *be, pl_pool *pool, pl_err *err) {
    PL_CHECK(be->real == PL_F32 && w->layout == PL_ROWMAJOR && n >= 1 && n <= INT32_MAX, "clusters of [%lld, %lld]",
             (long long)n, (long long)w->dim[1]);
    *c = (pl_clusters){.n = n, .m = m};
    if (m < 1 || m > n)
        return pl_fail(err, PL_E_INPUT, "clusters: %lld of %lld rows; choose 1 to %lld", (long long)m, (long long)n,
                       (long long)n);
    work      k = {.w = w, .id = id, .n = n, .d = w->dim[1], .m = m, .bad = -1};
    pl_status st = work_init(&k, be, pool, err);
    if (st == PL_OK) st = pl_ctx_measure(&k.ctx, measure, &k, err);
    if (st == PL_OK) st = start(&k, seed, err);
    if (st == PL_OK) st = run(&k, c, err);
    if (st == PL_OK) st = list(&k, c, err);
    work_fini(&k);
    if (st != PL_OK) pl_clusters_fini(c);
    return st;
}

void pl_clusters_fini(pl_clusters *c) {
    pl_free(c->order);
    pl_free(c->offset);
    *c = (pl_clusters){0};
}
