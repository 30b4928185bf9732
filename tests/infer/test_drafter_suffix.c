// The suffix automaton against counting at every place of a text; drafters that draft from it through the engine.
#include "tests/infer/fixture.h"
#include "tests/infer/lossless.h"

#include "infer/drafter/automaton.h"
#include "kernels/base/arena.h"
#include "kernels/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT = 500, VOCAB = 7 };

// How often the m tokens occur in the text; behind[x]: how often token x follows them, behind[VOCAB] the separator.
static int count_slowly(const int32_t *text, int n, const int32_t *what, int m, int *behind) {
    int times = 0;
    memset(behind, 0, (VOCAB + 1) * sizeof *behind);
    for (int i = 0; i + m <= n; i++) {
        if (memcmp(text + i, what, (size_t)m * sizeof *what) != 0) continue;
        times++;
        if (i + m < n) behind[text[i + m] < 0 ? VOCAB : text[i + m]]++;
    }
    return times;
}

// The longest end of what[0..n_what), of at most `most` tokens, that occurs so often.
static int longest_slowly(const int32_t *text, int n, const int32_t *what, int n_what, int most, int times) {
    int behind[VOCAB + 1];
    for (int m = n_what < most ? n_what : most; m > 0; m--)
        if (count_slowly(text, n, what + n_what - m, m, behind) >= times) return m;
    return 0;
}

static void check_next(const pl_automaton *a, pl_suffix s, const int32_t *text, int n, const int32_t *what,
                       int n_what) {
    int32_t token[4], count[4];
    int     behind[VOCAB + 1], sum = 0, before = s.length;
    int64_t all;
    int     k = pl_automaton_next(a, &s, 4, token, count, &all);
    assert_true(s.length <= before && s.length < PL_AUTOMATON_LONGEST);
    // Longer ends are followed by nothing, or by the separator alone.
    for (int m = before < PL_AUTOMATON_LONGEST - 1 ? before : PL_AUTOMATON_LONGEST - 1; m > s.length; m--) {
        count_slowly(text, n, what + n_what - m, m, behind);
        for (int x = 0; x < VOCAB; x++)
            assert_int_equal(behind[x], 0);
    }
    if (s.length == 0) {
        assert_int_equal(k, 0);
        return;
    }
    count_slowly(text, n, what + n_what - s.length, s.length, behind);
    for (int r = 0; r < k; r++) {
        assert_int_equal(count[r], behind[token[r]]);
        assert_true(r == 0 || count[r] <= count[r - 1]);
        behind[token[r]] = -behind[token[r]];
    }
    for (int x = 0; x <= VOCAB; x++) {
        if (behind[x] > 0 && x < VOCAB) assert_true(k == 4 && behind[x] <= count[3]); // left out: none more frequent
        sum += abs(behind[x]);
    }
    assert_int_equal(all, sum);
}

static void equals_counting(void **state) {
    (void)state;
    static const int kinds[] = {1, 2, 3, VOCAB};
    for (size_t c = 0; c < 2 * sizeof kinds / sizeof *kinds; c++) {
        int32_t       text[TEXT], what[60];
        pl_err        err = {0};
        pl_automaton *a;
        assert_int_equal(pl_automaton_create(&a, TEXT, &err), PL_OK);
        uint64_t before = pl_alloc_count();
        for (int round = 0; round < 2; round++) { // the second finds nothing of the first
            pl_automaton_clear(a);
            for (int n = 0; n < TEXT; n++) {
                pl_rng r = pl_rng_make(5, PL_STREAM_TEST, (uint64_t)(c * 10000 + (size_t)round * 1000 + (size_t)n));
                text[n] = (int32_t)pl_rng_below(r, 0, (uint64_t)kinds[c / 2]);
                if (c % 2 && n >= 40 && pl_rng_below(r, 1, 4)) text[n] = text[n - 40]; // long repeats
                if (c == 3 && n % 90 == 89) text[n] = PL_AUTOMATON_END;
                pl_automaton_add(a, text[n]);
                if (n % 7) continue;
                pl_suffix s = pl_automaton_repeated(a);
                int       want = longest_slowly(text, n + 1, text, n + 1, PL_AUTOMATON_LONGEST, 2);
                assert_int_equal(s.length, want);
                if (want) check_next(a, s, text, n + 1, text, n + 1);
                // Something else, parts of which occur.
                int from = (int)pl_rng_below(r, 2, (uint64_t)n + 1), m = 0;
                for (; m < 50 && from + m <= n && text[from + m] >= 0; m++)
                    what[m] = m % 17 == 16 ? (what[m - 1] + 1) % VOCAB : text[from + m];
                s = pl_automaton_find(a, what, m);
                assert_int_equal(s.length, longest_slowly(text, n + 1, what, m, PL_AUTOMATON_LONGEST, 1));
                if (s.length) check_next(a, s, text, n + 1, what, m);
            }
            assert_int_equal(pl_automaton_room(a), 0);
        }
        assert_int_equal(pl_alloc_count(), before);
        pl_automaton_destroy(a);
    }
}

// By hand: 1 2 3 occurs three times, twice followed by 4.
static void drafts_by_frequency(void **state) {
    (void)state;
    static const int32_t text[] = {1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 1, 2, 3, 4, 8, 1, 2, 3};
    const int            n = sizeof text / sizeof *text;
    static pl_tree       t;
    pl_err               err = {0};
    pl_automaton        *a;
    assert_int_equal(pl_automaton_create(&a, n, &err), PL_OK);
    for (int i = 0; i < n; i++)
        pl_automaton_add(a, text[i]);
    pl_suffix s = pl_automaton_repeated(a);
    assert_int_equal(s.length, 3);
    pl_tree_root(&t, 3);
    pl_automaton_draft(a, s, NULL, 3, 8, &t);
    double four = 2 / (3 + PL_AUTOMATON_DOUBT / 3), five = four / 2, eight = four / (2 + PL_AUTOMATON_DOUBT / 4);
    assert_int_equal(t.n, 4);
    assert_true(t.token[1] == 4 && t.token[2] == 5 && t.parent[2] == 0); // 2 and 1 of 3
    assert_true(t.token[3] == 8 && t.parent[3] == 1); // behind 1 2 3 4, 4 tokens: 1 of 2, the one that came last
    assert_true(fabs(exp((double)t.score[1]) - four) < 1e-6);
    assert_true(fabs(exp((double)t.score[2]) - five) < 1e-6);
    assert_true(fabs(exp((double)t.score[3]) - eight) < 1e-6);
    pl_tree_root(&t, 3);
    pl_automaton_draft(a, s, NULL, 8, 1, &t); // one level
    assert_int_equal(t.n, 3);
    assert_int_equal(t.token[2], 5);
    pl_tree_policy chain;
    assert_int_equal(pl_tree_policy_parse(&chain, "chain:6", &err), PL_OK);
    pl_tree_root(&t, 3);
    pl_automaton_draft(a, s, &chain, 0, 6, &t);
    static const int32_t want[] = {4, 8, 1, 2, 3, 4}; // and round again
    for (int i = 0; i < 6; i++)
        assert_int_equal(t.token[i + 1], want[i]);
    pl_automaton_destroy(a);
}

static void draft(pl_drafter *d, int slot, const int32_t *text, int n, pl_tree *t) {
    pl_ctx         ctx = {0};
    pl_draft_item  it = {.slot = slot, .tokens = text, .n_tokens = n, .tree = t, .depth = 4};
    pl_draft_batch b = {.item = &it, .n = 1};
    pl_tree_root(t, text[n - 1]);
    d->kind->propose(d, &ctx, &b);
}

// What one slot's answer said is drafted in another's, with keep and not without; the text's own match comes first.
static void keeps_answers(void **state) {
    (void)state;
    static const int32_t answer[] = {5, 6, 7, 8, 9, 3}, text[] = {1, 6, 7, 8}, twice[] = {6, 7, 8, 2, 6, 7, 8};
    static pl_tree       t;
    for (int keep = 0; keep < 2; keep++) {
        pl_drafter        *d;
        pl_err             err = {0};
        pl_drafter_options o = {.max_sessions = 2, .max_rows = 8, .slots = 64};
        assert_int_equal(pl_drafter_open(&d, keep ? "suffix:4,keep" : "suffix:4", &o, &err), PL_OK);
        assert_string_equal(d->tree, "4 nodes");
        for (int s = 0; s < 2; s++)
            pl_drafter_reset(d, s);
        d->kind->ended(d, 0, answer, 6);
        draft(d, 1, text, 4, &t);
        assert_int_equal(t.n, keep ? 3 : 1);
        if (keep) assert_true(t.token[1] == 9 && t.token[2] == 3 && t.parent[2] == 1);
        pl_drafter_reset(d, 1);
        draft(d, 1, twice, 7, &t);
        assert_int_equal(t.token[1], 2);
        for (int i = 0; i < 60000; i++) // more than is kept
            d->kind->ended(d, 0, answer, 6);
        pl_drafter_reset(d, 1);
        draft(d, 1, text, 4, &t);
        assert_int_equal(t.n > 1, keep);
        pl_drafter_destroy(d);
    }
}

static void lossless(void **state) {
    (void)state;
    test_lossless("suffix", NULL);
    test_lossless("suffix:3", "chain:4");
    test_lossless("suffix:20,keep", NULL);
    test_lossless("suffix", "auto");
}

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *what, *tree, *line;
    } bad[] = {
        {"suffix:0", NULL, "drafter \"suffix:0\": expected suffix[:NODES[,keep[=FILE]]], NODES in 1..127"},
        {"suffix:4,kept", NULL, "drafter \"suffix:4,kept\": expected suffix[:NODES[,keep[=FILE]]], NODES in 1..127"},
        {"suffix:keep=", NULL, "drafter \"suffix:keep=\": expected suffix[:NODES[,keep[=FILE]]], NODES in 1..127"},
        {"suffix:keep,4", NULL, "drafter \"suffix:keep,4\": expected suffix[:NODES[,keep[=FILE]]], NODES in 1..127"},
        {"suffix", "eagle2:60,10,6",
         "drafter \"suffix\" drafts chains and trees of a given shape with at most 8 children, not \"eagle2:60,10,6\"; "
         "leave --tree out for its own"},
        {"retrieval", NULL, "drafter \"retrieval\": expected retrieval:PATH, PATH a text or *.jsonl"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_tree_policy p;
        pl_err         err = {0};
        assert_int_equal(pl_drafter_shape(&p, bad[i].what, bad[i].tree, &err), PL_E_USAGE);
        assert_string_equal(err.msg, bad[i].line);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_counting), cmocka_unit_test(drafts_by_frequency),
                                       cmocka_unit_test(keeps_answers), cmocka_unit_test(lossless),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
