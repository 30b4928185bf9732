// Token counts and vocabulary lists: ranks, coverage, files that come back as they went, files that are refused.
#include "data/counts/counts.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/malformed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int32_t text[] = {3, 1, 3, 5, 1, 3, 0, 5, 3};

static void fill(pl_counts *c) {
    pl_err err = {0};
    assert_int_equal(pl_counts_init(c, 7, "0123456789abcdef", "a test", &err), PL_OK);
    pl_counts_add(c, text, 9);
}

static void test_rank_and_coverage(void **state) {
    (void)state;
    pl_counts c;
    int32_t   id[7], want[7] = {3, 1, 5, 0, 2, 4, 6}; // 4, 2, 2 (tie: lower id), 1, then what never occurred
    fill(&c);
    assert_int_equal(pl_counts_rank(&c, id), 4);
    assert_memory_equal(id, want, sizeof want);
    assert_true(fabs(pl_counts_coverage(&c, id, 0)) == 0);
    assert_true(fabs(pl_counts_coverage(&c, id, 2) - 6.0 / 9) < 1e-15);
    assert_true(fabs(pl_counts_coverage(&c, id, 7) - 1) < 1e-15);
    assert_int_equal(pl_counts_needed(&c, id, 7, 6.0 / 9), 2);
    assert_int_equal(pl_counts_needed(&c, id, 7, 0.7), 3);
    assert_int_equal(pl_counts_needed(&c, id, 2, 0.7), -1);
    pl_counts_fini(&c);
}

// U(k) over all k by hand: 9 tokens of 7 ids, counts 4, 2, 2, 1.
static void test_bcl(void **state) {
    (void)state;
    static const struct {
        pl_bcl  o;
        int64_t k;
    } cases[] = {
        {{.alpha = 1, .min_coverage = 0, .head_share = 1}, 4},   // coverage alone: all that occur
        {{.alpha = 0, .min_coverage = 0, .head_share = 1}, 1},   // latency alone
        {{.alpha = 0, .min_coverage = 0.6, .head_share = 1}, 2}, // 6/9, the least that is enough
        {{.alpha = 0, .min_coverage = 1, .head_share = 1}, 4},
        {{.alpha = 0.5, .min_coverage = 0, .head_share = 1}, 3},   // ids with count/9 > 1/7: 4, 2, 2
        {{.alpha = 0.4, .min_coverage = 0, .head_share = 1}, 3},   // 0.4 * 2/9 > 0.6 / 7
        {{.alpha = 0.3, .min_coverage = 0, .head_share = 1}, 1},   // 0.3 * 2/9 < 0.7 / 7
        {{.alpha = 0.3, .min_coverage = 0, .head_share = 0.5}, 3}, // a head that weighs less: 0.3 * 2/9 > 0.35 / 7
    };
    pl_counts c;
    pl_err    err = {0};
    fill(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const double held[] = {0, 4 / 9.0, 6 / 9.0, 8 / 9.0, 1};
        const pl_bcl       *o = &cases[i].o;
        double              coverage, utility;
        int64_t             k = 0;
        assert_int_equal(pl_counts_bcl(&k, &c, o, &coverage, &utility, &err), PL_OK);
        assert_int_equal(k, cases[i].k);
        assert_true(fabs(coverage - held[k]) < 1e-15);
        assert_true(fabs(utility - o->alpha * held[k] - (1 - o->alpha) * o->head_share * (1 - (double)k / 7)) < 1e-15);
    }
    pl_counts_fini(&c);
    assert_int_equal(pl_counts_init(&c, 7, "x", "nothing", &err), PL_OK);
    int64_t none = 0;
    assert_int_equal(pl_counts_bcl(&none, &c, &cases[0].o, NULL, NULL, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "no token"));
    pl_counts_fini(&c);
}

static char *temp_file(void) {
    const char *dir = getenv("TMPDIR");
    char       *path = pl_sprintf("%s/paceline-counts-XXXXXX", dir ? dir : "/tmp");
    int         fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fclose(f);
    return path;
}

static void test_file(void **state) {
    (void)state;
    pl_counts a, b;
    pl_err    err = {0};
    char     *path = temp_file();
    fill(&a);
    a.size = 3;
    assert_int_equal(pl_counts_write(&a, path, &err), PL_OK);
    assert_int_equal(pl_counts_read(&b, path, &err), PL_OK);
    assert_int_equal(b.vocab, 7);
    assert_int_equal(b.tokens, 9);
    assert_int_equal(b.documents, 1);
    assert_int_equal(b.size, 3);
    assert_string_equal(b.tokenizer, a.tokenizer);
    assert_string_equal(b.corpus, a.corpus);
    assert_memory_equal(a.count, b.count, 7 * sizeof *a.count);
    pl_counts_fini(&a);
    pl_counts_fini(&b);
    remove(path);
    pl_free(path);
}

static void test_refused(void **state) {
    (void)state;
#define LIST(tokens, ids, counts)                                                                                      \
    "{\"format\":\"paceline.vocab\",\"version\":1,\"tokenizer\":\"x\",\"vocab_size\":7,\"corpus\":\"c\","              \
    "\"documents\":1,\"tokens\":" tokens ",\"ids\":" ids ",\"counts\":" counts "}"
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "nothing there"},
        {"{\"format\":\"other\"}", "expected \"paceline.vocab\""},
        {LIST("3", "[1,2]", "[2,2]"), "add up to 4"},
        {LIST("4", "[1,1]", "[3,1]"), "twice"},
        {LIST("4", "[2,1]", "[2,2]"), "must ascend"},
        {LIST("4", "[1,2]", "[1,3]"), "counts"},
        {LIST("4", "[1,2,3]", "[2,2]"), "differ in length"},
        {LIST("2", "[7]", "[2]"), "ids"},
        {LIST("2", "[-1]", "[2]"), "ids"},
        {LIST("0", "[1]", "[0]"), "counts"},
        {LIST("2", "[1]", "[2.5]"), "counts"},
        {LIST("2", "{}", "[2]"), "ids"},
        {LIST("2,\"size\":2", "[1]", "[2]"), "the list is shorter"},
        {LIST("2,\"size\":0", "[1]", "[2]"), "size"},
        {LIST("2,\"size\":8", "[1]", "[2]"), "size"},
    };
    char *path = temp_file();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_counts c;
        pl_err    err = {0};
        assert_int_equal(pl_file_write_atomic(path, bad[i].text, strlen(bad[i].text), &err), PL_OK);
        assert_int_equal(pl_counts_read(&c, path, &err), PL_E_INPUT);
        if (!strstr(err.msg, bad[i].why)) fail_msg("case %zu: %s", i, err.msg);
        malformed_seen();
        assert_null(strchr(err.msg, '\n'));
        assert_null(c.count);
    }
    remove(path);
    pl_free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_and_coverage),
        cmocka_unit_test(test_bcl),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
