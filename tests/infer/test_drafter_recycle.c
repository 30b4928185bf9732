// Token recycling against a matrix kept by hand, and through the engine: plain decoding's own tokens.
#include "tests/infer/fixture.h"
#include "tests/infer/lossless.h"

#include "kernels/base/arena.h"
#include "kernels/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { V = TEST_VOCAB, K = 8, ROWS = 40, SLOTS = 2 };

static pl_llama small = {.vocab = V};

typedef struct forward {
    float   logits[ROWS * V];
    int32_t token[ROWS], logits_row[ROWS];
} forward;

// Random rows; some have no logits, and some tokens come more than once. Slot s has rows 20 s .. 20 s + 19.
static void make_forward(forward *f, uint64_t seed) {
    pl_rng r = pl_rng_make(seed, PL_STREAM_TEST, 0);
    int    n = 0;
    for (int i = 0; i < ROWS; i++) {
        f->token[i] = (int32_t)pl_rng_below(r, (uint64_t)i, 12);
        f->logits_row[i] = i % 5 == 4 ? -1 : n++;
    }
    for (int i = 0; i < n * V; i++)
        f->logits[i] = (float)pl_rng_below(r, 1000 + (uint64_t)i, 60); // many equal values
}

static void best(const float *x, int32_t *id) {
    bool used[V] = {false};
    for (int k = 0; k < K; k++) {
        int b = -1;
        for (int v = 0; v < V; v++)
            if (!used[v] && (b < 0 || x[v] > x[b])) b = v;
        used[b] = true;
        id[k] = b;
    }
}

static void sized(pl_ctx *ctx, void *arg) {
    pl_drafter *d = arg;
    d->kind->propose(d, ctx, &(pl_draft_batch){.n = 0});
}

// Every path of the tree is a path of the matrix with the ranks of the shape, and nothing that could stand there is
// missing; candidates of a node are distinct.
static void check_tree(const pl_tree *t, const pl_tree_policy *p, int32_t matrix[V][K], int depth) {
    int node[PL_TREE_MAX] = {0}, n = 1;
    for (int i = 1; i < p->shape_n; i++) {
        int parent = node[p->shape_parent[i]];
        node[i] = -1;
        if (parent < 0 || t->depth[parent] >= depth) continue;
        int32_t token = matrix[t->token[parent]][p->shape_rank[i]];
        if (token < 0) continue;
        assert_true(n < t->n);
        assert_int_equal(t->token[n], token);
        assert_int_equal(t->parent[n], parent);
        node[i] = n++;
    }
    assert_int_equal(t->n, n);
}

static void equals_matrix_by_hand(void **state) {
    (void)state;
    static forward           f;
    static int32_t           matrix[SLOTS][V][K];
    static pl_tree           tree[SLOTS];
    static const char *const whats[] = {"recycle", "recycle:40", "recycle:127,keep"};
    for (size_t c = 0; c < sizeof whats / sizeof *whats; c++) {
        pl_err      err = {0};
        pl_ctx      ctx;
        pl_drafter *d;
        int         largest = 0;
        assert_int_equal(
            pl_drafter_open(
                &d, whats[c],
                &(pl_drafter_options){
                    .target = &small, .dtype = PL_F32, .max_sessions = SLOTS, .max_rows = ROWS, .slots = 64},
                &err),
            PL_OK);
        assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu(), NULL), PL_OK);
        assert_int_equal(pl_ctx_measure(&ctx, sized, d, &err), PL_OK);
        memset(matrix, 0xff, sizeof matrix);
        uint64_t before = pl_alloc_count();
        for (int step = 0; step < 60; step++) {
            if (step % 20 == 0) {
                int slot = step / 20 % SLOTS;
                pl_drafter_reset(d, slot);
                if (c < 2) memset(matrix[slot], 0xff, sizeof matrix[slot]);
            }
            make_forward(&f, (uint64_t)step);
            int rows = 0;
            for (int i = 0; i < ROWS; i++)
                rows += f.logits_row[i] >= 0;
            pl_draft_item it[SLOTS];
            for (int s = 0; s < SLOTS; s++) {
                it[s] = (pl_draft_item){.slot = s, .row0 = 20 * s, .rows = 20, .tree = &tree[s], .depth = 1 + step % 9};
                pl_tree_root(&tree[s], f.token[20 * s + 3]);
                for (int i = 20 * s; i < 20 * s + 20; i++) // of equal tokens the later row stays
                    if (f.logits_row[i] >= 0) best(f.logits + f.logits_row[i] * V, matrix[c < 2 ? s : 0][f.token[i]]);
            }
            pl_draft_batch b = {.item = it,
                                .n = SLOTS,
                                .token = f.token,
                                .logits = pl_tensor_2d(f.logits, PL_F32, rows, V),
                                .logits_row = f.logits_row};
            pl_ctx_begin(&ctx);
            d->kind->propose(d, &ctx, &b);
            assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
            for (int s = 0; s < SLOTS; s++) {
                check_tree(&tree[s], &d->policy, matrix[c < 2 ? s : 0], it[s].depth);
                if (tree[s].n > largest) largest = tree[s].n;
            }
        }
        assert_int_equal(pl_alloc_count() - before, 0);
        assert_true(largest > 4 || c == 0);
        assert_true(d->kind->step_bytes(d) > 0);
        pl_ctx_fini(&ctx);
        pl_drafter_destroy(d);
    }
}

static bool same_path(const pl_tree_policy *p, int i, const pl_tree_policy *q, int j) {
    for (; i > 0 && j > 0; i = p->shape_parent[i], j = q->shape_parent[j])
        if (p->shape_rank[i] != q->shape_rank[j]) return false;
    return i == 0 && j == 0;
}

// The shape: every node's rank follows its elder sibling's, and no path left out has a larger product of shares than
// one taken (by exchange: the last one taken has the least product).
static void shapes(void **state) {
    (void)state;
    for (int nodes = 1; nodes < PL_TREE_MAX; nodes++) {
        char           what[24];
        pl_err         err = {0};
        pl_tree_policy p, q;
        int            next[PL_TREE_MAX] = {0}, depth[PL_TREE_MAX] = {0}, deepest = 0;
        snprintf(what, sizeof what, "recycle:%d", nodes);
        assert_int_equal(pl_drafter_shape(&p, what, NULL, &err), PL_OK);
        assert_int_equal(p.shape_n, nodes + 1);
        assert_int_equal(p.max_nodes, nodes + 1);
        for (int i = 1; i <= nodes; i++) {
            assert_true(p.shape_parent[i] >= 0 && p.shape_parent[i] < i);
            assert_int_equal(p.shape_rank[i], next[p.shape_parent[i]]++);
            assert_true(p.shape_rank[i] < K);
            depth[i] = depth[p.shape_parent[i]] + 1;
            if (depth[i] > deepest) deepest = depth[i];
        }
        assert_int_equal(p.depth, deepest);
        if (nodes == 1) continue; // a larger shape holds every smaller one
        snprintf(what, sizeof what, "recycle:%d", nodes - 1);
        assert_int_equal(pl_drafter_shape(&q, what, NULL, &err), PL_OK);
        for (int i = 0, j; i < q.shape_n; i++) {
            for (j = 0; j < p.shape_n && !same_path(&q, i, &p, j);)
                j++;
            assert_true(j < p.shape_n);
        }
    }
}

static void names(void **state) {
    (void)state;
    static const char *const bad[][2] = {{"recycle:0", NULL},      {"recycle:128", NULL}, {"recycle:4,", NULL},
                                         {"recycle:4,kept", NULL}, {"recycle:x", NULL},   {"recycle:,keep", NULL},
                                         {"recycle:4 ", NULL},     {"recycle", "tree:1"}, {"recycle:4x", NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err      err = {0};
        pl_drafter *d;
        if (pl_drafter_open(&d, bad[i][0],
                            &(pl_drafter_options){.target = &small,
                                                  .dtype = PL_F32,
                                                  .tree = bad[i][1],
                                                  .max_sessions = 1,
                                                  .max_rows = 8,
                                                  .slots = 64},
                            &err) == PL_OK)
            fail_msg("%s is taken", bad[i][0]);
        assert_null(d);
        assert_true(err.msg[0] && !strchr(err.msg, '\n'));
    }
    static const char *const good[] = {"recycle", "recycle:keep", "recycle:127", "recycle:5,keep"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        pl_err      err = {0};
        pl_drafter *d;
        assert_int_equal(
            pl_drafter_open(
                &d, good[i],
                &(pl_drafter_options){.target = &small, .dtype = PL_F32, .max_sessions = 1, .max_rows = 8, .slots = 64},
                &err),
            PL_OK);
        pl_drafter_destroy(d);
    }
}

static void lossless(void **state) {
    (void)state;
    test_lossless("recycle:25", NULL);
    test_lossless("recycle", "chain:4");
    test_lossless("recycle", "auto");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_matrix_by_hand), cmocka_unit_test(shapes),
                                       cmocka_unit_test(names), cmocka_unit_test(lossless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
