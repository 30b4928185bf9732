// Prompt lookup against a search that looks at every place, and through the engine: plain decoding's own tokens.
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

enum { TEXT = 600, SLOTS = 3 };

// What the longest suffix of at most `gram` tokens was followed by the last time, copied as Lempel and Ziv do.
static int slowly(const int32_t *text, int n, int gram, int depth, int32_t *out) {
    for (int k = gram < n - 1 ? gram : n - 1; k > 0; k--)
        for (int end = n - 2; end >= k - 1; end--) {
            if (memcmp(text + end - k + 1, text + n - k, (size_t)k * sizeof *text) != 0) continue;
            int32_t all[TEXT + PL_TREE_MAX];
            memcpy(all, text, (size_t)n * sizeof *text);
            for (int i = 0; i < depth; i++)
                all[n + i] = all[end + 1 + i];
            memcpy(out, all + n, (size_t)depth * sizeof *out);
            return depth;
        }
    return 0;
}

static void draft(pl_drafter *d, int slot, const int32_t *text, int n, int depth, pl_tree *t) {
    pl_ctx         ctx = {0};
    pl_draft_item  it = {.slot = slot, .tokens = text, .n_tokens = n, .tree = t, .depth = depth};
    pl_draft_batch b = {.item = &it, .n = 1};
    if (t) pl_tree_root(t, text[n - 1]);
    d->kind->propose(d, &ctx, &b);
}

static void equals_naive_search(void **state) {
    (void)state;
    static int32_t text[SLOTS][TEXT];
    static pl_tree t;
    static const struct {
        const char *what, *tree;
        int         gram, length;
    } set[] = {{"lookup", NULL, 3, 16},
               {"lookup:1,5", NULL, 1, 5},
               {"lookup:5,20", "chain:7", 5, 7},
               {"lookup:16", "chain:3", 16, 3}};
    for (size_t c = 0; c < sizeof set / sizeof *set; c++) {
        pl_err      err = {0};
        pl_drafter *d;
        int         hits = 0, misses = 0;
        assert_int_equal(
            pl_drafter_open(
                &d, set[c].what,
                &(pl_drafter_options){
                    .dtype = PL_F32, .tree = set[c].tree, .max_sessions = SLOTS, .max_rows = 8, .slots = TEXT},
                &err),
            PL_OK);
        assert_string_equal(d->tree, set[c].tree ? set[c].tree : c == 0 ? "chain:auto" : "chain:5");
        uint64_t before = pl_alloc_count();
        for (int round = 0; round < 2; round++) { // the second finds nothing of the first
            int n[SLOTS] = {0};
            for (int s = 0; s < SLOTS; s++)
                pl_drafter_reset(d, s);
            for (int step = 0; step < 400; step++) {
                pl_rng  r = pl_rng_make(9, PL_STREAM_TEST, (uint64_t)(1000 * round + step));
                int     s = (int)pl_rng_below(r, 0, SLOTS), more = 1 + (int)pl_rng_below(r, 1, step ? 5 : 60);
                int32_t want[PL_TREE_MAX];
                for (int i = 0; i < more && n[s] < TEXT; i++) // few kinds of tokens: many repeats, and loops
                    text[s][n[s]++] =
                        (int32_t)pl_rng_below(r, 2 + (uint64_t)i, step % 90 < 20 ? 1 : 3 + 4 * (uint64_t)s);
                if (step % 7 == 0) {
                    draft(d, s, text[s], n[s], 0, NULL); // taken in without a tree, as a chunk of the prompt is
                    continue;
                }
                int depth = 1 + step % 18, most = depth < set[c].length ? depth : set[c].length;
                if (most > d->policy.depth) most = d->policy.depth; // chain:auto begins with a chain of its own choice
                draft(d, s, text[s], n[s], depth < d->policy.max_nodes - 1 ? depth : d->policy.max_nodes - 1, &t);
                if (most > d->policy.max_nodes - 1) most = d->policy.max_nodes - 1;
                int k = slowly(text[s], n[s], set[c].gram, most, want);
                assert_int_equal(t.n, k + 1);
                for (int i = 0; i < k; i++) {
                    assert_int_equal(t.token[i + 1], want[i]);
                    assert_int_equal(t.parent[i + 1], i);
                }
                hits += k > 0;
                misses += k == 0;
            }
        }
        assert_int_equal(pl_alloc_count() - before, 0); // memory is what was taken when it was opened
        assert_true(hits > 100 && misses > 0);
        assert_true(d->kind->step_bytes(d) > 0);
        pl_drafter_destroy(d);
    }
}

// The index is as large as the positions of a session, and no larger text is taken.
static void fills_up(void **state) {
    (void)state;
    static int32_t text[1024];
    static pl_tree t;
    pl_err         err = {0};
    pl_drafter    *d;
    assert_int_equal(
        pl_drafter_open(&d, "lookup:3,4",
                        &(pl_drafter_options){.dtype = PL_F32, .max_sessions = 1, .max_rows = 8, .slots = 1024}, &err),
        PL_OK);
    for (int i = 0; i < 1024; i++)
        text[i] = i; // no two alike: every entry of the tables is taken
    draft(d, 0, text, 1024, 4, &t);
    assert_int_equal(t.n, 1);
    pl_drafter_destroy(d);
}

static void names(void **state) {
    (void)state;
    static const char *const bad[][2] = {{"lookup:0", NULL},    {"lookup:17", NULL},    {"lookup:3,", NULL},
                                         {"lookup:3,0", NULL},  {"lookup:x", NULL},     {"lookup:3,4,5", NULL},
                                         {"lookup:", "tree:1"}, {"lookup:3,128", NULL}, {"lookups", NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err      err = {0};
        pl_drafter *d;
        assert_int_not_equal(
            pl_drafter_open(&d, bad[i][0],
                            &(pl_drafter_options){
                                .dtype = PL_F32, .tree = bad[i][1], .max_sessions = 1, .max_rows = 8, .slots = 64},
                            &err),
            PL_OK);
        assert_null(d);
        assert_true(err.msg[0] && !strchr(err.msg, '\n'));
    }
    assert_false(pl_drafter_is_folder("lookup"));
    assert_false(pl_drafter_is_folder("lookup:3"));
    assert_true(pl_drafter_is_folder("./lookup"));
    assert_true(pl_drafter_is_folder("lookups"));
}

static void lossless(void **state) {
    (void)state;
    test_lossless("lookup:2,6", NULL);
    test_lossless("lookup", "chain:3");
    test_lossless("lookup", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_naive_search), cmocka_unit_test(fills_up),
                                       cmocka_unit_test(names), cmocka_unit_test(lossless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
