// Lookahead decoding against windows and n-grams kept by hand, and through the engine: plain decoding's own tokens.
#include "tests/infer/fixture.h"
#include "tests/infer/lossless.h"

#include "kernels/base/arena.h"
#include "kernels/base/hash.h"
#include "kernels/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { V = TEST_VOCAB, ROWS = 128, STEPS = 60, TEXT = 1200 };

static pl_llama small = {.vocab = V};

static pl_drafter *opened(const char *what, const char *tree, pl_err *err) {
    pl_drafter        *d;
    pl_drafter_options o = {
        .target = &small, .dtype = PL_F32, .tree = tree, .max_sessions = 2, .max_rows = ROWS, .slots = 300};
    *err = (pl_err){0};
    return pl_drafter_open(&d, what, &o, err) == PL_OK ? d : NULL;
}

static void sized(pl_ctx *ctx, void *arg) {
    pl_drafter *d = arg;
    d->kind->propose(d, ctx, &(pl_draft_batch){.n = 0});
}

// Returns the node at the end of a path from `node`, -1: it is not in the tree.
static int follow(const pl_tree *t, int node, const int32_t *path, int n) {
    for (int i = 0; i < n && node >= 0; i++)
        node = pl_tree_child(t, node, path[i]);
    return node;
}

// A target whose best token is a function of the last one, so that iterations converge and n-grams repeat: whatever the tree holds is compared with a window and a list of n-grams kept in plain arrays.
typedef struct by_hand {
    int     W, N, G, iterations, joined;
    int32_t x[16][64], gram[STEPS * 64][16];
} by_hand;

static int32_t best_behind(const pl_tree *t, int node) {
    return (t->token[node] * 7 + 1) % 11;
}

static void check_tree(const by_hand *h, const pl_tree *t, int depth) {
    int32_t path[80];
    int     n = 0, nodes = 1 + h->G * (h->N - 1) + h->W * (h->N - 1) - 1;
    assert_true(t->n <= nodes);
    for (int c = 0; c < h->W; c++) { // the window
        if (c > 0) path[n++] = h->x[0][c];
        for (int l = 1; l < h->N - 1; l++)
            path[n + l - 1] = h->x[l][c];
        int deep = n + h->N - 2;
        assert_true(follow(t, 0, path, deep < depth ? deep : depth) >= 0);
        if (deep > depth) break;
    }
    int newest = h->joined - 1;
    while (newest >= 0 && h->gram[newest][0] != t->token[0])
        newest--;
    if (newest >= 0) assert_true(follow(t, 0, h->gram[newest] + 1, h->N - 1 < depth ? h->N - 1 : depth) >= 0);
}

static void iterate_by_hand(by_hand *h, const pl_tree *t) {
    int32_t y[64], path[80];
    int     n = 0;
    for (int c = 0; c < h->W; c++) {
        if (c > 0) path[n++] = h->x[0][c];
        for (int l = 1; l < h->N - 1; l++)
            path[n + l - 1] = h->x[l][c];
        int node = follow(t, 0, path, n + h->N - 2);
        if (node < 0) return;
        y[c] = best_behind(t, node);
    }
    for (int c = 0; c < h->W && h->iterations >= h->N - 1; c++) {
        for (int l = 0; l < h->N - 1; l++)
            h->gram[h->joined][l] = c == 0 && l == 0 ? t->token[0] : h->x[l][c];
        h->gram[h->joined++][h->N - 1] = y[c];
    }
    h->iterations++;
    for (int l = 0; l < h->N - 2; l++)
        memcpy(h->x[l], h->x[l + 1], sizeof h->x[l]);
    memcpy(h->x[h->N - 2], y, sizeof y);
}

// Tokens of the text, by a hash of their place.
static void begin_by_hand(by_hand *h, const int32_t *text, int n) {
    for (int i = 0; i < (h->N - 1) * h->W; i++)
        h->x[i / h->W][i % h->W] = text[pl_hash_key(&i, sizeof i) % (uint64_t)n];
}

static void equals_windows_by_hand(void **state) {
    (void)state;
    static const struct {
        const char *what;
        int         W, N, G;
    } cases[] = {{"lookahead", 5, 3, 5}, {"lookahead:6,2,2", 6, 2, 2}, {"lookahead:3,5,4", 3, 5, 4}};
    static pl_tree tree;
    static float   logits[ROWS * V];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        pl_err         err;
        pl_ctx         ctx;
        static by_hand h;
        int32_t        text[TEXT] = {3, 1, 4, 1, 5, 9, 2, 6}, token[ROWS], row[ROWS];
        int            n = 8, followed = 0;
        pl_drafter    *d = opened(cases[c].what, NULL, &err);
        if (!d) fail_msg("%s", err.msg);
        h = (by_hand){.W = cases[c].W, .N = cases[c].N, .G = cases[c].G};
        assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu(), NULL), PL_OK);
        assert_int_equal(pl_ctx_measure(&ctx, sized, d, &err), PL_OK);
        pl_drafter_reset(d, 1);
        uint64_t before = pl_alloc_count();
        for (int step = 0; step < STEPS; step++) {
            int rows = step == 0 ? n : tree.n;
            for (int i = 0; i < rows; i++) {
                token[i] = step == 0 ? text[i] : tree.token[i];
                row[i] = i;
                memset(logits + i * V, 0, V * sizeof *logits);
                if (step > 0) logits[i * V + best_behind(&tree, i)] = 1;
            }
            if (step > 0) { // what the target says is committed: one token and what of the draft follows it
                iterate_by_hand(&h, &tree);
                int node = 0, next;
                do {
                    text[n] = best_behind(&tree, node);
                    next = pl_tree_child(&tree, node, text[n++]);
                    followed += next >= 0;
                    node = next;
                } while (node >= 0);
            }
            int            depth = step % 9 == 8 ? 2 : 100;
            pl_draft_item  it = {.slot = 1, .tokens = text, .n_tokens = n, .rows = rows, .tree = &tree, .depth = depth};
            pl_draft_batch b = {.item = &it,
                                .n = 1,
                                .token = token,
                                .logits = pl_tensor_2d(logits, PL_F32, rows, V),
                                .logits_row = row};
            pl_tree_root(&tree, text[n - 1]);
            pl_ctx_begin(&ctx);
            d->kind->propose(d, &ctx, &b);
            assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
            if (step == 0) begin_by_hand(&h, text, n);
            check_tree(&h, &tree, depth);
        }
        assert_int_equal(pl_alloc_count() - before, 0);
        assert_true(followed > STEPS / 3 && d->kind->step_bytes(d) > 0);
        pl_ctx_fini(&ctx);
        pl_drafter_destroy(d);
    }
}

static void names(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"lookahead:0,3,5", NULL},  {"lookahead:5,1,5", NULL}, {"lookahead:5,3,0", NULL},   {"lookahead:5,3", NULL},
        {"lookahead:5,3,5,", NULL}, {"lookahead:a,3,5", NULL}, {"lookahead:60,3,60", NULL}, {"lookahead: 5,3,5", NULL},
        {"lookahead:5,17,1", NULL}, {"lookahead", "chain:3"},  {"lookahead:5,3,5x", NULL}};
    pl_err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (opened(bad[i][0], bad[i][1], &err)) fail_msg("%s is taken", bad[i][0]);
        assert_true(strstr(err.msg, "lookahead") && !strchr(err.msg, '\n'));
    }
    static const struct {
        const char *what;
        int         nodes, depth;
    } good[] = {
        {"lookahead", 20, 5}, {"lookahead:7,5,7", 56, 9}, {"lookahead:1,2,1", 2, 1}, {"lookahead:64,2,63", 127, 63}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        pl_drafter *d = opened(good[i].what, NULL, &err);
        if (!d) fail_msg("%s", err.msg);
        assert_int_equal(d->policy.max_nodes, good[i].nodes);
        assert_int_equal(d->policy.depth, good[i].depth);
        pl_drafter_destroy(d);
    }
}

static void lossless(void **state) {
    (void)state;
    test_lossless("lookahead", NULL);
    test_lossless("lookahead:3,5,4", NULL);
    test_lossless("lookahead:6,2,3", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_windows_by_hand), cmocka_unit_test(names),
                                       cmocka_unit_test(lossless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
