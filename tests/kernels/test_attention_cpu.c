// Attention of the cpu backends where its tiles, groups, blocks of rows and plans begin and end.
#include "kernels/op/attention.h"
#include "tests/kernels/op_harness.h"
#include "tests/ref64.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { G = PL_ATTN_GROUP };

typedef struct heads {
    int nh, nkv, hd;
} heads;

static int width(heads h) {
    return (h.nh + 2 * h.nkv) * h.hd;
}

// ---- cached: every way to a position gives the same bits ----

// The last of n positions is asked for; its keys get into the cache in different ways.
typedef enum way { PLAIN, PREFILL, TREE, CHAIN, WAYS } way;

enum { SLOTS = 3 * G + 40, DEPTH = 11, MOST_ROWS = 24 };

typedef struct question {
    heads h;
    int   n; // positions
    way   way;
} question;

// What position p holds, whatever its slot.
static float content(int p, int i, int what) {
    return sinf((float)(p * 131 + i * 17 + what * 7 + (p * i) % 23));
}

static void ask(op_run *r, const void *arg) {
    const question *w = arg;
    heads           h = w->h;
    int             kv = h.nkv * h.hd;
    float          *k = op_bytes(r, (size_t)SLOTS * kv * sizeof *k), *v = op_bytes(r, (size_t)SLOTS * kv * sizeof *v);
    float          *q = op_bytes(r, (size_t)MOST_ROWS * width(h) * sizeof *q);
    int32_t        *path = op_bytes(r, (size_t)2 * DEPTH * sizeof *path);
    pl_kvrow       *row = op_bytes(r, MOST_ROWS * sizeof *row);
    int             fresh = w->way == PLAIN ? 1 : w->n < DEPTH ? w->n : DEPTH, before = w->n - fresh, rows = 0, asked;

    // Slots of the fresh positions; in a tree they are scattered and every other slot belongs to a sibling.
    for (int i = 0; i < fresh; i++)
        path[i] = before + (w->way == TREE ? 2 * ((i * 5 + 3) % DEPTH) : i);
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < kv; i++) {
            k[s * kv + i] = s < before ? content(s, i, 0) : 100.0f; // what nobody may see is loud
            v[s * kv + i] = s < before ? content(s, i, 1) : -100.0f;
        }
    for (int p = 0; p < fresh; p++)
        for (int i = 0; i < kv; i++) {
            k[path[p] * kv + i] = content(before + p, i, 0);
            v[path[p] * kv + i] = content(before + p, i, 1);
        }
    pl_kvrow last = {.k = k, .v = v, .n_ctx = before, .path = w->way == TREE ? path : NULL};
    if (w->way == PLAIN || w->way == CHAIN) {
        last.n_path = fresh;
        row[rows++] = last;
    } else {
        // Rows of every depth, as a prefill has them; a tree also has a sibling of each and rows of another context.
        for (int i = 0; i < fresh; i++) {
            last.n_path = i + 1;
            row[rows++] = last;
            if (w->way == PREFILL) continue;
            path[DEPTH + i] = before + 1;
            row[rows] = last;
            row[rows].path = path + DEPTH + i;
            row[rows++].n_path = 1;
        }
    }
    asked = w->way == TREE ? rows - 2 : rows - 1;
    for (int m = 0; m < rows; m++)
        for (int i = 0; i < width(h); i++)
            q[m * width(h) + i] = m == asked ? content(w->n, i, 2) : content(m, i, 3);
    pl_tensor o = pl_attention_cached(op_ctx(r), pl_tensor_2d(q, PL_F32, rows, width(h)), row, h.nh, h.nkv, h.hd);
    op_out_f32(r, op_ctx(r)->measuring ? NULL : pl_f32(&o) + (int64_t)asked * h.nh * h.hd, (int64_t)h.nh * h.hd);
}

static void every_offset_every_way(void **state) {
    (void)state;
    const heads       shapes[] = {{2, 2, 8}, {4, 1, 16}, {3, 3, 48}, {8, 4, 64}, {4, 2, 128}, {4, 2, 20}};
    const pl_backend *be;
    for (int b = 2; (be = op_backend(b)) && !be->device; b++)
        for (int s = 0; s < 6; s++)
            for (int n = 1; n <= 2 * G + DEPTH + 1; n++) {
                question q = {shapes[s], n, PLAIN};
                op_run  *plain = op_run_once(ask, &q, be, 1, OP_NO_TAPE);
                for (int other = PREFILL; other < WAYS; other++) {
                    q.way = (way)other;
                    op_run *r = op_run_once(ask, &q, be, 1 + n % 2, OP_NO_TAPE);
                    for (int i = 0; i < q.h.nh * q.h.hd; i++)
                        if (op_value(r, 0, i) != op_value(plain, 0, i))
                            fail_msg(
                                "%s, %d/%d heads of %d, %d positions: way %d gives %.9g, plain decoding %.9g at %d",
                                be->name, q.h.nh, q.h.nkv, q.h.hd, n, other, op_value(r, 0, i), op_value(plain, 0, i),
                                i);
                    op_run_free(r);
                }
                op_run_free(plain);
            }
}

// ---- cached: widths and row counts against ref ----

typedef struct cached_shape {
    heads h;
    int   rows, n_ctx;
} cached_shape;

static pl_dtype held; // of the cache of what is built next

static void chain(op_run *r, const void *arg) {
    const cached_shape *s = arg;
    int                 slots = s->n_ctx + s->rows;
    pl_tensor           qkv = op_constant(r, s->rows, width(s->h), 1);
    pl_tensor k = op_cache(r, slots, s->h.nkv * s->h.hd, held), v = op_cache(r, slots, s->h.nkv * s->h.hd, held);
    pl_kvrow *row = op_bytes(r, (size_t)s->rows * sizeof *row);
    for (int m = 0; m < s->rows; m++)
        row[m] = (pl_kvrow){k.data, v.data, NULL, s->n_ctx, m + 1, s->n_ctx + m, held};
    op_out(r, pl_attention_cached(op_ctx(r), qkv, row, s->h.nh, s->h.nkv, s->h.hd));
}

static void cached_widths(void **state) {
    (void)state;
    const cached_shape s[] = {
        {{2, 1, 1}, 1, 0},    {{2, 1, 7}, 9, 30},   {{8, 4, 8}, 17, 20},   {{2, 1, 16}, 8, G},   {{6, 2, 24}, 3, 64},
        {{3, 3, 40}, 20, 7},  {{5, 1, 80}, 9, 33},  {{4, 4, 96}, 16, 15},  {{4, 2, 112}, 1, G},  {{2, 2, 128}, 33, 31},
        {{2, 1, 130}, 2, 50}, {{2, 1, 144}, 3, 10}, {{4, 2, 256}, 10, 40}, {{16, 1, 32}, 1, 90},
    };
    for (int i = 0; i < 28; i++) {
        const cached_shape of = s[i / 2];
        held = i % 2 ? PL_BF16 : PL_F32;
        op_check(chain, &of, OP_NO_TAPE | OP_NO_DEVICE,
                 "cached chain of %d rows after %d keys in %s, %d/%d heads of %d", of.rows, of.n_ctx,
                 pl_dtype_name(held), of.h.nh, of.h.nkv, of.h.hd);
    }
}

// ---- blocks ----

typedef struct block_shape {
    heads      h;
    int        n_blocks;
    const int *document; // lengths; negative: that many rows of padding; 0 ends
} block_shape;

static int documents(const int *length, int32_t *lo) {
    int rows = 0;
    for (int d = 0; length[d]; d++)
        for (int i = 0, start = rows; i < abs(length[d]); i++, rows++)
            if (lo) lo[rows] = length[d] > 0 ? start : -1;
    return rows;
}

static void blocks(op_run *r, const void *arg) {
    const block_shape *s = arg;
    pl_tensor          block[PL_MAX_UNROLL];
    int                rows = documents(s->document, NULL);
    int32_t           *lo = op_bytes(r, (size_t)rows * sizeof *lo);
    documents(s->document, lo);
    for (int j = 0; j < s->n_blocks; j++)
        block[j] = op_leaf(r, rows, width(s->h), 0, 1);
    op_out(r, pl_attention_blocks(op_ctx(r), block, s->n_blocks, lo, s->h.nh, s->h.nkv, s->h.hd));
}

// One key head, so that one thread and two take different plans backward; two and five, so that they take the same.
static void blocks_across_tiles(void **state) {
    (void)state;
    static const int  one[] = {200, 0}, tiles[] = {64, 32, 32, 64, 0}, odd[] = {1, 62, 1, 65, 33, -3, 31, 0};
    static const int  holes[] = {-40, 50, -70, 5, -1, 90, -2, 0}, single[] = {1, 1, 1, 1, 0}, nothing[] = {-70, 0};
    const block_shape s[] = {
        {{1, 1, 8}, 1, one},     {{2, 1, 64}, 3, one},  {{4, 2, 16}, 2, tiles},  {{2, 1, 24}, 1, tiles},
        {{4, 2, 48}, 4, odd},    {{3, 1, 16}, 2, odd},  {{5, 5, 33}, 3, odd},    {{2, 2, 80}, 2, holes},
        {{4, 1, 8}, 3, holes},   {{2, 1, 128}, 2, odd}, {{2, 2, 16}, 4, single}, {{2, 1, 16}, 3, nothing},
        {{4, 2, 112}, 1, tiles},
    };
    for (int i = 0; i < 13; i++)
        op_check(blocks, &s[i], OP_NO_DIFFERENCES | OP_NO_DEVICE,
                 "block attention, shape %d: %d rows, %d blocks, %d/%d heads of %d", i, documents(s[i].document, NULL),
                 s[i].n_blocks, s[i].h.nh, s[i].h.nkv, s[i].h.hd);
}

// Large scores: one key takes everything, the others vanish without a trace of subnormal numbers or NaN.
static void sharp(op_run *r, const void *arg) {
    const block_shape *s = arg;
    int                rows = documents(s->document, NULL);
    int32_t           *lo = op_bytes(r, (size_t)rows * sizeof *lo);
    documents(s->document, lo);
    pl_tensor block = op_constant(r, rows, width(s->h), 12);
    op_out(r, pl_attention_blocks(op_ctx(r), &block, 1, lo, s->h.nh, s->h.nkv, s->h.hd));
}

static void sharp_scores(void **state) {
    (void)state;
    static const int  one[] = {130, 0};
    const block_shape s = {{2, 1, 16}, 1, one};
    const pl_backend *be;
    op_run           *truth = op_run_once(sharp, &s, pl_backend_ref64(), 1, OP_NO_TAPE);
    for (int b = 2; (be = op_backend(b)) && !be->device; b++) {
        op_run *r = op_run_once(sharp, &s, be, 1, OP_NO_TAPE);
        for (int i = 0; i < 130 * 32; i++)
            assert_true(fabs(op_value(r, 0, i) - op_value(truth, 0, i)) < 2e-3);
        op_run_free(r);
    }
    op_run_free(truth);
}

// ---- NaN is passed on, to those who see it and to nobody else ----

enum { POISON_ROWS = 70, POISONED = 40 };

static void poisoned_blocks(op_run *r, const void *arg) {
    const heads *h = arg;
    pl_tensor    block = op_constant(r, POISON_ROWS, width(*h), 1);
    int32_t     *lo = op_bytes(r, POISON_ROWS * sizeof *lo);
    for (int m = 0; m < POISON_ROWS; m++)
        lo[m] = m < 60 ? 0 : 60;
    pl_f32(&block)[POISONED * width(*h) + h->nh * h->hd] = NAN; // its first key channel
    op_out(r, pl_attention_blocks(op_ctx(r), &block, 1, lo, h->nh, h->nkv, h->hd));
}

static void poisoned_cache(op_run *r, const void *arg) {
    const heads *h = arg;
    int          kv = h->nkv * h->hd;
    pl_tensor    qkv = op_constant(r, POISON_ROWS, width(*h), 1);
    pl_tensor    k = op_constant(r, POISON_ROWS, kv, 1), v = op_constant(r, POISON_ROWS, kv, 1);
    pl_kvrow    *row = op_bytes(r, POISON_ROWS * sizeof *row);
    for (int m = 0; m < POISON_ROWS; m++)
        row[m] = (pl_kvrow){k.data, v.data, NULL, 0, m < 60 ? m + 1 : 10, m, PL_F32};
    pl_f32(&k)[POISONED * kv] = NAN;
    op_out(r, pl_attention_cached(op_ctx(r), qkv, row, h->nh, h->nkv, h->hd));
}

static void nan_is_passed_on(void **state) {
    (void)state;
    const heads       h = {2, 1, 16};
    const pl_backend *be;
    for (int b = 2; (be = op_backend(b)) && !be->device; b++) {
        op_run *r[2] = {op_run_once(poisoned_blocks, &h, be, 1, OP_NO_TAPE),
                        op_run_once(poisoned_cache, &h, be, 1, OP_NO_TAPE)};
        for (int w = 0; w < 2; w++) {
            for (int m = 0; m < POISON_ROWS; m++)
                for (int i = 0; i < h.nh * h.hd; i++)
                    if (isnan(op_value(r[w], 0, m * h.nh * h.hd + i)) != (m >= POISONED && m < 60))
                        fail_msg("%s: row %d[%d] is %g", be->name, m, i, op_value(r[w], 0, m * h.nh * h.hd + i));
            op_run_free(r[w]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_offset_every_way), cmocka_unit_test(cached_widths),
        cmocka_unit_test(blocks_across_tiles),    cmocka_unit_test(sharp_scores),
        cmocka_unit_test(nan_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
