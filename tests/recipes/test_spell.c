// The distance between misspelt names.
#include "recipes/spell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_known_distances(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        int         d;
    } cases[] = {{"", "", 0},           {"", "abc", 3},       {"steps", "steps", 0}, {"stepz", "steps", 1},
                 {"setps", "steps", 1}, {"step", "steps", 1}, {"Steps", "steps", 0}, {"kitten", "sitting", 3},
                 {"ca", "abc", 3},      {"abcd", "badc", 2},  {"rnak", "rank", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(pl_spell_distance(cases[i].a, cases[i].b), cases[i].d);
        assert_int_equal(pl_spell_distance(cases[i].b, cases[i].a), cases[i].d);
    }
}

static void test_long_words_are_cut(void **state) {
    (void)state;
    char a[400], b[400];
    memset(a, 'x', sizeof a);
    memset(b, 'x', sizeof b);
    a[399] = b[399] = 0;
    b[300] = 'y'; // behind the cut
    assert_int_equal(pl_spell_distance(a, b), 0);
    b[100] = 'y';
    assert_int_equal(pl_spell_distance(a, b), 1);
    assert_int_equal(pl_spell_distance(a, ""), PL_SPELL_MAX);
}

static void test_close(void **state) {
    (void)state;
    assert_true(pl_spell_close("lr", 1));
    assert_false(pl_spell_close("lr", 2));
    assert_true(pl_spell_close("deterministic", 4));
    assert_false(pl_spell_close("deterministic", 5));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_distances),
                                       cmocka_unit_test(test_long_words_are_cut), cmocka_unit_test(test_close)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
