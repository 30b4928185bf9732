// A dataset made by several processes: byte for byte that of one, whatever their number, whoever was killed in between.
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "train/run/run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_status make(const pl_recipe *r, const char *dir, const pl_env *env, int64_t stop_after, pl_err *err) {
    (void)stop_after;
    return pl_ranks_generate(r, &(pl_taps){.n = 2, .layer = {1, 2}}, dir, env, err);
}

static pl_status generate(int ranks, const char *out, const char *extra, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines, "%s%s", small_data_lines, extra);
    return small_ranks(ranks, out, lines, make, 0, err);
}

static void made(int ranks, const char *out, const char *extra) {
    pl_err err;
    if (generate(ranks, out, extra, &err) != PL_OK) fail_msg("%s: %s", out, err.msg);
}

// Every file of the dataset; how many shards there are.
static int same(const char *a, const char *b) {
    char name[64];
    int  n = 0;
    small_same(a, b, "dataset/manifest.json");
    for (;; n++) {
        char there[128];
        snprintf(name, sizeof name, "dataset/shard-%05d.h5", n);
        snprintf(there, sizeof there, "%s/%s", a, name);
        if (!small_exists(there)) break;
        small_same(a, b, name);
    }
    for (int part = 1; part < 4; part++) {
        snprintf(name, sizeof name, "%s/dataset/manifest-%d.json", b, part);
        assert_false(small_exists(name));
    }
    return n;
}

#define SHARDS "data.rows_per_shard=300\ndata.sessions=4\n"

static void any_number(void **state) {
    (void)state;
    made(1, "one", SHARDS);
    made(2, "two", SHARDS);
    made(3, "three", SHARDS);
    assert_true(same("one", "two") > 8);
    same("one", "three");
    // The documents of shards of another size, and of the fixture's single one.
    made(4, "large", "");
    assert_int_equal(same("large", "large"), 1);
}

// Turns of a conversation stand in several shards, which one rank makes.
static void conversations(void **state) {
    (void)state;
    small_conversations(70);
    static const char talks[] =
        SHARDS "data.prompts=BASE/talks.jsonl\ndata.form=chat\ndata.chat.template=BASE/t.jinja\n"
               "data.max_new_tokens=8\n";
    made(1, "talk1", talks);
    made(3, "talk3", talks);
    assert_true(same("talk1", "talk3") > 8);
}

// All of them are killed at one moment after the other; other numbers of ranks go on.
static void killed(void **state) {
    (void)state;
    pl_err err;
    int    died = 0;
    for (int i = 0; i < 6; i++) {
        small_dies_after_ms = 15 + 25 * i;
        pl_status st = generate(2 + i % 2, "killed", SHARDS, &err);
        small_dies_after_ms = 0;
        if (st == PL_OK || strstr(err.msg, "this dataset is complete")) break; // it died with nothing left to do
        assert_int_equal(st, PL_E_IO);
        assert_non_null(strstr(err.msg, "rank 1: process "));
        died++;
    }
    assert_true(died > 0);
    pl_status st = generate(2, "killed", SHARDS, &err);
    if (st != PL_OK) assert_non_null(strstr(err.msg, "this dataset is complete"));
    same("one", "killed");
}

// A disk that fails under rank 0 at one step after the other; one process goes on behind it.
static void full_disk(void **state) {
    (void)state;
    pl_err    err;
    pl_status st = PL_E_IO;
    int       failed = 0;
    for (uint64_t n = 4; n < 60 && st != PL_OK; n += 9) {
        pl_io_fail_after(n);
        st = generate(2, "full", SHARDS, &err);
        pl_io_fail_after(0);
        if (st == PL_OK) break;
        assert_int_equal(st, PL_E_IO);
        assert_null(strchr(err.msg, '\n'));
        failed++;
    }
    assert_true(failed > 2);
    if (st != PL_OK) made(1, "full", SHARDS);
    same("one", "full");
}

static void other_shards(void **state) {
    (void)state;
    pl_err err;
    pl_io_fail_after(30);
    assert_int_equal(generate(1, "other", SHARDS, &err), PL_E_IO);
    pl_io_fail_after(0);
    assert_int_equal(generate(1, "other", "data.rows_per_shard=500\n", &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "its shards hold other documents than they would now"));
}

// One that goes on with other prompts is refused, though there are as many.
static void other_prompts(void **state) {
    (void)state;
    pl_err err;
    small_other_prompts();
    pl_io_fail_after(30);
    assert_int_equal(generate(1, "edited", SHARDS, &err), PL_E_IO);
    pl_io_fail_after(0);
    assert_int_equal(generate(1, "edited", SHARDS "data.prompts=BASE/others.jsonl\n", &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "made with generation settings"));
    made(1, "edited", SHARDS);
    same("one", "edited");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number), cmocka_unit_test(conversations), cmocka_unit_test(killed),
        cmocka_unit_test(full_disk),  cmocka_unit_test(other_shards),  cmocka_unit_test(other_prompts),
    };
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
