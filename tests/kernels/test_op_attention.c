#include "kernels/op/attention.h"
#include "kernels/op/elementwise.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static pl_dtype held; // of the caches of what is built next

typedef struct heads {
    int nh, nkv, hd;
} heads;

static int width(heads h) {
    return (h.nh + 2 * h.nkv) * h.hd;
}

// A rule of a case that has sinks says so by their rank.
static float sink_at(int head) {
    return 0.9f * (float)(head * 7 % 5) - 1.5f;
}

static pl_attention_rule with_sinks(op_run *r, pl_attention_rule rule, int nh) {
    float sink[64];
    for (int h = 0; h < nh; h++)
        sink[h] = sink_at(h);
    if (rule.sink.rank > 0) rule.sink = pl_tensor_1d((void *)op_floats_from(r, sink, nh), PL_F32, nh);
    return rule;
}

// One query against n keys, as the formula says. qkv rows and keys through accessors, so that any view can be checked.
typedef double (*key_fn)(const op_run *r, const void *view, int m, int i, int kv_head, int d, bool value);

// own: keys up to the row's own, which a window counts.
static void expect_attention(const op_run *r, int out, int m, heads h, const double *q, int n, int own, key_fn key,
                             const void *view, const pl_attention_rule *rule, double tol) {
    double *p = malloc((size_t)(n + 1) * sizeof *p), scale = rule->scale > 0 ? rule->scale : 1 / sqrt(h.hd);
    int     first = rule->window > 0 && own > rule->window ? own - rule->window : 0;
    assert_non_null(p);
    for (int head = 0; head < h.nh; head++) {
        int    kv = head / (h.nh / h.nkv);
        bool   sinks = rule->sink.rank > 0;
        double max = sinks ? sink_at(head) : -INFINITY, sum = 0;
        for (int i = first; i < n; i++) {
            p[i] = 0;
            for (int d = 0; d < h.hd; d++)
                p[i] += q[head * h.hd + d] * key(r, view, m, i, kv, d, false) * scale;
            if (rule->cap > 0) p[i] = rule->cap * tanh(p[i] / rule->cap);
            max = fmax(max, p[i]);
        }
        if (sinks) sum = exp(sink_at(head) - max);
        for (int i = first; i < n; i++)
            sum += p[i] = exp(p[i] - max);
        for (int d = 0; d < h.hd; d++) {
            double o = 0;
            for (int i = first; i < n; i++)
                o += p[i] / sum * key(r, view, m, i, kv, d, true);
            double got = op_value(r, out, (int64_t)m * h.nh * h.hd + head * h.hd + d);
            if (!(fabs(got - o) <= tol)) fail_msg("row %d head %d[%d]: %.9g, expected %.9g", m, head, d, got, o);
        }
    }
    free(p);
}

// A device's numbers enter products as two of bf16 each.
static double tolerance(const pl_backend *be) {
    return be->real == PL_F64 ? 1e-12 : be->device ? 0x1p-15 : 2e-6;
}

// Cached: rows of two sessions, a few committed keys each, then a tree.

enum { SLOTS = 20, ROWS = 9, PATH = 6 }; // slots past the committed keys

typedef struct cached_shape {
    heads             h;
    int               n_ctx[2]; // committed keys of the two sessions
    pl_attention_rule rule;
    bool              block; // session 1's rows see all of each other
} cached_shape;

static int slots_of(const cached_shape *s) {
    return (s->n_ctx[0] > s->n_ctx[1] ? s->n_ctx[0] : s->n_ctx[1]) + SLOTS;
}

// Rows 0..3: session 0, a tree of root 0, children 1 and 2, grandchild 3 under 2, at scattered slots past n_ctx.
// Rows 4..8: session 1, a chain (path NULL), of which one row stands before the one that precedes it.
static const struct {
    int session, slot_offset, n_path, path[PATH]; // slots relative to n_ctx
} tree[ROWS] = {
    {0, 5, 1, {5}},    {0, 2, 2, {5, 2}},       {0, 9, 2, {5, 9}},    {0, 0, 3, {5, 9, 0}},       {1, 0, 1, {0}},
    {1, 1, 2, {0, 1}}, {1, 3, 4, {0, 1, 2, 3}}, {1, 2, 3, {0, 1, 2}}, {1, 4, 5, {0, 1, 2, 3, 4}},
};

static int path_of(const cached_shape *s, int m) {
    return s->block && tree[m].session == 1 ? 5 : tree[m].n_path;
}

static void cached(op_run *r, const void *arg) {
    const cached_shape *s = arg;
    heads               h = s->h;
    pl_tensor           qkv = op_constant(r, ROWS, width(h), 1), cache[4];
    for (int i = 0; i < 4; i++)
        cache[i] = op_cache(r, slots_of(s), h.nkv * h.hd, held);
    pl_kvrow *row = op_bytes(r, ROWS * sizeof *row);
    int32_t  *path = op_bytes(r, ROWS * PATH * sizeof *path);
    for (int m = 0; m < ROWS; m++) {
        int n_ctx = s->n_ctx[tree[m].session];
        for (int i = 0; i < tree[m].n_path; i++) // of trees
            path[m * PATH + i] = n_ctx + tree[m].path[i];
        row[m] = (pl_kvrow){.k = cache[2 * tree[m].session].data,
                            .v = cache[2 * tree[m].session + 1].data,
                            .path = tree[m].session == 0 ? path + m * PATH : NULL,
                            .n_ctx = n_ctx,
                            .n_path = path_of(s, m),
                            .slot = n_ctx + tree[m].slot_offset,
                            .dtype = held};
    }
    op_keep(r, qkv, row, h.nh, h.nkv, h.hd);
    pl_attention_rule rule = with_sinks(r, s->rule, h.nh);
    op_out(r, pl_attention_ruled(op_ctx(r), qkv, row, h.nh, h.nkv, h.hd, &rule));
    op_out(r, qkv);
    for (int i = 0; i < 4; i++)
        op_out_cache(r, cache[i]);
}

static const cached_shape cached_shapes[] = {
    {{1, 1, 1}, {0, 1}, {.window = 0}, false},
    {{2, 1, 3}, {0, 3}, {.window = 0}, false},
    {{3, 3, 31}, {31, 32}, {.window = 0}, false},
    {{4, 2, 33}, {33, 65}, {.window = 0}, false},
    {{9, 3, 64}, {64, 29}, {.window = 0}, false},
    {{8, 2, 128}, {128, 27}, {.window = 0}, false},
    {{6, 6, 64}, {1, 95}, {.window = 0}, false},
    {{20, 1, 8}, {40, 3}, {.window = 0}, false},
    // Windows that begin within a group, at its edge, among the tree's own rows, before the text; caps; a scale.
    {{2, 1, 8}, {40, 3}, {.window = 5}, false},
    {{9, 3, 64}, {64, 29}, {.window = 1}, false},
    {{4, 2, 33}, {95, 130}, {.window = 33}, false},
    {{3, 3, 31}, {127, 32}, {.window = 32, .cap = 2}, false},
    {{8, 2, 128}, {128, 27}, {.window = 2, .scale = 0.05, .cap = 1}, false},
    {{2, 1, 64}, {100, 0}, {.window = 200, .cap = 50}, false},
    {{4, 1, 256}, {33, 65}, {.cap = 0.5}, false},
    {{20, 1, 16}, {135, 101}, {.window = 64}, false},
    {{20, 1, 201}, {40, 35}, {.window = 38}, false}, // many queries of a wide head: a GPU's blocks share its values
    // Past 4,096 keys a GPU's parts of a row are longer; of the chain's rows some are on either side.
    {{1, 1, 8}, {4101, 4094}, {.window = 0}, false},
    {{20, 1, 8}, {31, 4094}, {.window = 0}, false},
    {{2, 1, 8}, {8230, 4093}, {.window = 150}, false},
    {{2, 1, 8}, {40, 3}, {.sink.rank = 1}, false},
    {{9, 3, 31}, {64, 29}, {.sink.rank = 1, .window = 6}, false},
    {{8, 2, 64}, {128, 0}, {.sink.rank = 1, .window = 1, .cap = 2}, false},
    // Blocks that attend in both directions: the window begins elsewhere for each row.
    {{2, 1, 8}, {40, 3}, {.window = 0}, true},
    {{4, 2, 33}, {95, 130}, {.window = 6}, true},
    {{9, 3, 64}, {64, 29}, {.window = 31}, true},
    {{20, 1, 16}, {135, 101}, {.window = 64}, true},
    {{2, 1, 8}, {40, 4094}, {.window = 200}, true},
    {{8, 2, 128}, {31, 62}, {.window = 5}, true},
};
enum { CACHED_SHAPES = sizeof cached_shapes / sizeof cached_shapes[0] };

static void cached_all_backends(void **state) {
    (void)state;
    for (int i = 0; i < 2 * CACHED_SHAPES; i++) {
        const cached_shape s = cached_shapes[i / 2];
        held = i % 2 ? PL_BF16 : PL_F32;
        op_check(cached, &s, OP_NO_TAPE | OP_BF16_PAIRS | (s.rule.sink.rank ? OP_NO_DEVICE : 0),
                 "cached attention, %d/%d heads of %d, contexts %d and %d in %s, window %d, cap %g", s.h.nh, s.h.nkv,
                 s.h.hd, s.n_ctx[0], s.n_ctx[1], pl_dtype_name(held), s.rule.window, s.rule.cap);
    }
}

static double cached_key(const op_run *r, const void *view, int m, int i, int kv_head, int d, bool value) {
    const cached_shape *s = view;
    int                 session = tree[m].session, n_ctx = s->n_ctx[session];
    int                 slot = i < n_ctx || session == 1 ? i : n_ctx + tree[m].path[i - n_ctx];
    return op_value(r, 2 + 2 * session + value, (int64_t)slot * s->h.nkv * s->h.hd + kv_head * s->h.hd + d);
}

static void cached_values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < 2 * CACHED_SHAPES; i++) {
            const cached_shape *s = &cached_shapes[i / 2];
            held = i % 2 ? PL_BF16 : PL_F32;
            if (s->rule.sink.rank && be->memory) continue;
            op_run *r = op_run_once(cached, s, be, 1, OP_NO_TAPE);
            double *q = malloc((size_t)width(s->h) * sizeof *q);
            assert_non_null(q);
            for (int m = 0; m < ROWS; m++) {
                for (int k = 0; k < s->h.nh * s->h.hd; k++)
                    q[k] = op_value(r, 1, (int64_t)m * width(s->h) + k);
                int n_ctx = s->n_ctx[tree[m].session];
                expect_attention(r, 0, m, s->h, q, n_ctx + path_of(s, m), n_ctx + tree[m].n_path, cached_key, s,
                                 &s->rule, tolerance(be));
            }
            free(q);
            op_run_free(r);
        }
}

// The same eight tokens after n committed keys in four ways: the last row must come out with the same bits.
//   0 prefill: eight rows, chain; beside them an unrelated row
//   1 plain decoding: seven tokens are committed, one row
//   2 a tree whose deepest path they are, its nodes at scattered slots, siblings beside it
//   3 a chain draft: four committed, a row chain of four
typedef struct way {
    heads             h;
    int               n, which;
    pl_attention_rule rule;
} way;

enum { TOKENS = 8, WAY_ROOM = 24 };

static void one_way(op_run *r, const void *arg) {
    static const int32_t scattered[TOKENS] = {13, 2, 11, 0, 7, 9, 1, 5};
    const way           *w = arg;
    heads                h = w->h;
    int                  kv = h.nkv * h.hd, before = w->which == 1 ? TOKENS - 1 : w->which == 3 ? 4 : 0;
    int                  rows = TOKENS - before;
    pl_tensor            tokens = op_constant(r, TOKENS + 1, width(h), 1); // the last one is the unrelated row
    pl_tensor            k = op_cache(r, w->n + WAY_ROOM, kv, held), v = op_cache(r, w->n + WAY_ROOM, kv, held);
    pl_kvrow            *row = op_bytes(r, (TOKENS + 1) * sizeof *row);
    int32_t *path = op_bytes(r, (TOKENS + 1) * sizeof *path), *index = op_bytes(r, (TOKENS + 1) * sizeof *index);
    pl_ctx  *ctx = op_ctx(r);

    // The committed ones among the tokens lie where the chain puts them.
    for (int i = 0; i < before; i++) {
        index[i] = i;
        row[i] = (pl_kvrow){k.data, v.data, NULL, w->n, i + 1, w->n + i, held};
    }
    if (before) op_keep(r, pl_gather(ctx, tokens, index, before), row, h.nh, h.nkv, h.hd);
    for (int i = 0; i < TOKENS; i++)
        path[i] = w->n + before + scattered[i];
    // Gathers run at once here (no tape), so the index array can be used again.
    int extra = w->which == 0 || w->which == 2;
    for (int i = 0; i < rows; i++) {
        bool in_tree = w->which == 2;
        index[i] = before + i;
        row[i] = (pl_kvrow){.k = k.data,
                            .v = v.data,
                            .path = in_tree ? path : NULL,
                            .n_ctx = w->n + before,
                            .n_path = i + 1,
                            .slot = in_tree ? path[i] : w->n + before + i,
                            .dtype = held};
    }
    if (extra) {
        index[rows] = TOKENS;
        row[rows] = row[0];
        path[TOKENS] = w->n + 20;
        row[rows].path = &path[TOKENS];
        row[rows].n_ctx = 3;
        row[rows].slot = path[TOKENS];
    }
    pl_tensor qkv = pl_gather(ctx, tokens, index, rows + extra);
    op_keep(r, qkv, row, h.nh, h.nkv, h.hd);
    pl_attention_rule rule = with_sinks(r, w->rule, h.nh);
    pl_tensor         o = pl_attention_ruled(ctx, qkv, row, h.nh, h.nkv, h.hd, &rule);
    const int32_t    *last = op_ids_from(r, &(int32_t){rows - 1}, 1);
    op_out(r, pl_gather(ctx, o, last, 1));
}

static void bits_depend_on_positions_alone(void **state) {
    (void)state;
    const heads h[] = {{2, 1, 33}, {9, 3, 64}, {2, 1, 128}, {40, 1, 16}, {3, 1, 144}, {20, 1, 200}};
    const int   n[] = {0, 1, 24, 25, 31, 60, 4090};
    const struct {
        int               heads, n;
        pl_attention_rule rule;
    } ruled[] = {{1, 2, {.window = 7}},    {1, 5, {.window = 33, .cap = 3}}, {1, 5, {.window = 4}},
                 {2, 5, {.window = 36}},   {0, 4, {.window = 20, .cap = 1}}, {1, 5, {.window = 9, .sink.rank = 1}},
                 {0, 3, {.sink.rank = 1}}, {0, 6, {.window = 300}},          {1, 6, {.window = 200}},
                 {5, 5, {.window = 40}}};
    enum { PLAIN = 30, RULED = sizeof ruled / sizeof *ruled };
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int both = 0; both < 2 * (PLAIN + RULED); both++) {
            int               which = both / 2, i = which / 6, c = which % 6;
            pl_attention_rule rule = {0};
            if (which >= PLAIN) {
                i = ruled[which - PLAIN].heads;
                c = ruled[which - PLAIN].n;
                rule = ruled[which - PLAIN].rule;
            }
            if (rule.sink.rank && be->memory) continue;
            held = both % 2 ? PL_BF16 : PL_F32;
            op_run *r[4];
            way     w[4];
            for (int k = 0; k < 4; k++) {
                w[k] = (way){h[i], n[c], k, rule};
                r[k] = op_run_once(one_way, &w[k], be, k == 2 ? 2 : 1, OP_NO_TAPE);
            }
            for (int k = 1; k < 4; k++)
                for (int d = 0; d < h[i].nh * h[i].hd; d++)
                    if (op_value(r[k], 0, d) != op_value(r[0], 0, d))
                        fail_msg("%s, %d heads of %d after %d keys in %s, window %d: way %d differs at %d", be->name,
                                 h[i].nh, h[i].hd, n[c], pl_dtype_name(held), rule.window, k, d);
            for (int k = 0; k < 4; k++)
                op_run_free(r[k]);
        }
}

// Blocks: documents, padding, diagonals of the unroll.

typedef struct block_shape {
    heads h;
    int   rows, n_blocks;
    int   document; // rows per document; the last two rows are padding when there are several
    int   window;   // 0: none
} block_shape;

static const block_shape block_shapes[] = {
    {{1, 1, 1}, 1, 1, 1, 0},      {{1, 1, 3}, 3, 2, 3, 0},
    {{2, 1, 5}, 7, 3, 3, 0},      {{4, 2, 8}, 33, 4, 13, 0},
    {{9, 3, 16}, 31, 3, 31, 0},   {{3, 3, 33}, 40, 7, 17, 0},
    {{3, 1, 64}, 65, 2, 40, 0},   {{2, 2, 31}, 9, PL_MAX_UNROLL, 4, 0},
    {{4, 2, 64}, 70, 1, 60, 0},   {{1, 1, 130}, 66, 2, 66, 0},
    {{2, 1, 256}, 5, 2, 3, 0},    {{1, 1, 4}, 200, 2, 70, 0},
    {{2, 1, 8}, 150, 1, 150, 40}, {{4, 2, 16}, 140, 2, 100, 7},
};
enum { BLOCK_SHAPES = sizeof block_shapes / sizeof block_shapes[0] };

static int block_lo(const block_shape *s, int m) {
    if (s->document < s->rows && m >= s->rows - 2) return -1;
    int first = m / s->document * s->document;
    return s->window > 0 && m - s->window + 1 > first ? m - s->window + 1 : first;
}

static void blocks(op_run *r, const void *arg) {
    const block_shape *s = arg;
    pl_tensor          block[PL_MAX_UNROLL];
    int32_t           *lo = op_bytes(r, (size_t)s->rows * sizeof *lo);
    for (int m = 0; m < s->rows; m++)
        lo[m] = block_lo(s, m);
    for (int j = 0; j < s->n_blocks; j++)
        block[j] = op_leaf(r, s->rows, width(s->h), 0, 1);
    op_out(r, pl_attention_blocks(op_ctx(r), block, s->n_blocks, lo, s->h.nh, s->h.nkv, s->h.hd));
    for (int j = 0; j < s->n_blocks; j++) { // a look at the inputs, without a part in the loss
        block[j].grad = NULL;
        op_out(r, block[j]);
    }
}

static void blocks_all_backends(void **state) {
    (void)state;
    for (int i = 0; i < BLOCK_SHAPES; i++) {
        const block_shape *s = &block_shapes[i];
        op_check(blocks, s, OP_BF16_PAIRS, "block attention, %d rows, documents of %d, %d blocks, %d/%d heads of %d",
                 s->rows, s->document, s->n_blocks, s->h.nh, s->h.nkv, s->h.hd);
    }
}

static double block_key(const op_run *r, const void *view, int m, int i, int kv_head, int d, bool value) {
    const block_shape *s = view;
    int                own = m - block_lo(s, m) + 1, j = i < own ? 0 : i - own + 1;
    int64_t            row = i < own ? block_lo(s, m) + i : m;
    return op_value(r, 1 + j, row * width(s->h) + (s->h.nh + value * s->h.nkv + kv_head) * s->h.hd + d);
}

static void blocks_values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < BLOCK_SHAPES; i++) {
            const block_shape *s = &block_shapes[i];
            op_run            *r = op_run_once(blocks, s, be, 1, 0);
            double            *q = malloc((size_t)width(s->h) * sizeof *q);
            assert_non_null(q);
            for (int m = 0; m < s->rows; m++) {
                int lo = block_lo(s, m);
                for (int k = 0; k < s->h.nh * s->h.hd; k++) {
                    q[k] = op_value(r, s->n_blocks, (int64_t)m * width(s->h) + k);
                    if (lo < 0) assert_true(op_value(r, 0, (int64_t)m * s->h.nh * s->h.hd + k) == 0);
                }
                if (lo >= 0)
                    expect_attention(r, 0, m, s->h, q, m - lo + 1 + s->n_blocks - 1, 0, block_key, s,
                                     &(pl_attention_rule){0}, tolerance(be));
            }
            free(q);
            op_run_free(r);
        }
}

// Unrolled: the queries' block also lends its keys to later steps, earlier blocks are shared by both attentions.
static void unrolled(op_run *r, const void *arg) {
    const block_shape *s = arg;
    pl_tensor          block[3];
    int32_t           *lo = op_bytes(r, (size_t)s->rows * sizeof *lo);
    for (int m = 0; m < s->rows; m++)
        lo[m] = block_lo(s, m);
    for (int j = 0; j < 3; j++) {
        block[j] = op_leaf(r, s->rows, width(s->h), 0, 1);
        op_out(r, pl_attention_blocks(op_ctx(r), block, j + 1, lo, s->h.nh, s->h.nkv, s->h.hd));
    }
}

// Queries of some rows: block 0 holds keys and values alone, odd blocks have more rows than there are queries.
typedef struct part_shape {
    block_shape b;
    int         out_of, kept; // rows m with m % out_of < kept have a query
} part_shape;

static bool has_query(const part_shape *s, int m) {
    return m % s->out_of < s->kept && block_lo(&s->b, m) >= 0;
}

// Rows of an odd block: those with a query, and every third.
static bool in_block(const part_shape *s, int m) {
    return has_query(s, m) || m % 3 == 0;
}

static void parts(op_run *r, const void *arg) {
    const part_shape *s = arg;
    const heads      *h = &s->b.h;
    pl_tensor         block[PL_MAX_UNROLL];
    const int32_t    *place[PL_MAX_UNROLL] = {0};
    int32_t          *at = op_bytes(r, (size_t)s->b.rows * sizeof *at);
    int32_t          *lo = op_bytes(r, (size_t)s->b.rows * sizeof *lo);
    int32_t          *there = op_bytes(r, (size_t)s->b.rows * sizeof *there);
    int               n = 0, more = 0;
    for (int m = 0; m < s->b.rows; m++) {
        there[m] = in_block(s, m) ? more++ : -1;
        if (!has_query(s, m)) continue;
        at[n] = m;
        lo[n++] = block_lo(&s->b, m);
    }
    block[0] = op_leaf(r, s->b.rows, 2 * (int64_t)h->nkv * h->hd, 0, 1);
    for (int j = 1; j < s->b.n_blocks; j++) {
        place[j] = j % 2 ? there : NULL;
        block[j] = op_leaf(r, j % 2 ? more : n, width(*h), 0, 1);
    }
    bool apart = s->b.n_blocks == 1 || s->b.n_blocks % 2 == 0; // else the last block's rows are the queries'
    pl_attention_part p = {apart ? op_leaf(r, n, (int64_t)h->nh * h->hd, 0, 1) : block[s->b.n_blocks - 1], at, place};
    op_out(r, pl_attention_some(op_ctx(r), PL_F32, 0, &p, block, s->b.n_blocks, lo, h->nh, h->nkv, h->hd));
}

static const part_shape part_shapes[] = {
    {{{1, 1, 3}, 5, 1, 5, 0}, 2, 1},      {{{2, 1, 5}, 7, 3, 3, 0}, 3, 2},      {{{4, 2, 8}, 70, 4, 23, 0}, 5, 1},
    {{{3, 1, 64}, 200, 2, 90, 0}, 64, 9}, {{{9, 3, 16}, 131, 5, 131, 0}, 1, 1}, {{{4, 2, 16}, 140, 2, 100, 7}, 70, 33},
};

static void parts_all_backends(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof part_shapes / sizeof *part_shapes; i++)
        op_check(parts, &part_shapes[i], OP_BF16_PAIRS, "block attention of some rows, case %zu", i);
}

// A query's output has the same bits whichever other rows have one.
static void whole(op_run *r, const void *arg) {
    const part_shape *s = arg;
    pl_tensor         all = op_constant(r, s->b.rows, width(s->b.h), 1);
    int32_t          *lo = op_bytes(r, (size_t)s->b.rows * sizeof *lo);
    for (int m = 0; m < s->b.rows; m++)
        lo[m] = block_lo(&s->b, m);
    op_out(r, pl_attention_blocks(op_ctx(r), &all, 1, lo, s->b.h.nh, s->b.h.nkv, s->b.h.hd));
}

static void some(op_run *r, const void *arg) {
    const part_shape *s = arg;
    pl_tensor         all = op_constant(r, s->b.rows, width(s->b.h), 1);
    const int32_t    *place[1] = {0};
    int32_t          *at = op_bytes(r, (size_t)s->b.rows * sizeof *at);
    int32_t          *lo = op_bytes(r, (size_t)s->b.rows * sizeof *lo);
    int               n = 0;
    for (int m = 0; m < s->b.rows; m++)
        if (has_query(s, m)) lo[n] = block_lo(&s->b, m), at[n++] = m;
    pl_attention_part p = {pl_gather(op_ctx(r), all, at, n), at, place};
    op_out(r, pl_attention_some(op_ctx(r), PL_F32, 0, &p, &all, 1, lo, s->b.h.nh, s->b.h.nkv, s->b.h.hd));
}

static void bits_depend_on_no_other_query(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (size_t i = 0; i < sizeof part_shapes / sizeof *part_shapes; i++) {
            const part_shape *s = &part_shapes[i];
            op_run           *all = op_run_once(whole, s, be, 1, 0), *few = op_run_once(some, s, be, 1, 0);
            int64_t           n = 0, o = (int64_t)s->b.h.nh * s->b.h.hd;
            for (int m = 0; m < s->b.rows; m++) {
                if (!has_query(s, m)) continue;
                for (int64_t c = 0; c < o; c++)
                    assert_true(op_value(few, 0, n * o + c) == op_value(all, 0, m * o + c));
                n++;
            }
            assert_true(n > 0);
            op_run_free(all);
            op_run_free(few);
        }
}

// The first block is a constant (a frozen layer below): gradients flow into the others only.
static void partly_constant(op_run *r, const void *arg) {
    const block_shape *s = arg;
    pl_tensor          block[2] = {op_constant(r, s->rows, width(s->h), 1), op_leaf(r, s->rows, width(s->h), 0, 1)};
    int32_t           *lo = op_bytes(r, (size_t)s->rows * sizeof *lo);
    for (int m = 0; m < s->rows; m++)
        lo[m] = block_lo(s, m);
    op_out(r, pl_attention_blocks(op_ctx(r), block, 2, lo, s->h.nh, s->h.nkv, s->h.hd));
}

static void blocks_composed(void **state) {
    (void)state;
    const block_shape s = {{4, 2, 6}, 11, 3, 4, 0};
    op_check(unrolled, &s, OP_BF16_PAIRS, "unrolled block attention");
    op_check(partly_constant, &s, OP_BF16_PAIRS, "block attention over a constant block");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_all_backends),
        cmocka_unit_test(cached_values),
        cmocka_unit_test(bits_depend_on_positions_alone),
        cmocka_unit_test(blocks_all_backends),
        cmocka_unit_test(blocks_values),
        cmocka_unit_test(blocks_composed),
        cmocka_unit_test(parts_all_backends),
        cmocka_unit_test(bits_depend_on_no_other_query),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
