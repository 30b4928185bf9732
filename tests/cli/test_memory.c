// What takes much memory by a shape is refused before it is made: with the bytes it needs, those that can be had and
// what would fit. PACELINE_MEMORY says how much may be used.
#include "kernels/base/room.h"
#include "tests/cli/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// A sanitizer's shadow and what it keeps of freed blocks count as memory that the process has, tens of MB: limits near
// what the program itself needs cannot be tried then.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LEAN = 0 };
#else
enum { LEAN = 1 };
#endif

static void limit(const char *bytes) {
    if (bytes)
        setenv("PACELINE_MEMORY", bytes, 1);
    else
        unsetenv("PACELINE_MEMORY");
}

static int no_limit(void **state) {
    (void)state;
    limit(NULL);
    return 0;
}

static void sizes(void **state) {
    (void)state;
    static const struct {
        const char *set;
        double      bytes; // 0: refused
    } cases[] = {{"1000000", 1e6},
                 {"3k", 3 * 1024},
                 {"2M", 2 << 20},
                 {"1.5G", 1.5 * (1 << 30)},
                 {"1T", 1099511627776.0},
                 {"0", 0},
                 {"-5", 0},
                 {"many", 0},
                 {"5X", 0},
                 {"5MB", 0},
                 {"1e400", 0},
                 {"nan", 0}};
    pl_err err = {0};
    double all, have;
    limit(NULL);
    assert_int_equal(pl_memory_available(&all, &err), PL_OK);
    assert_true(all > 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        limit(cases[i].set);
        pl_status st = pl_memory_available(&have, &err);
        if (cases[i].bytes == 0) {
            assert_int_equal(st, PL_E_USAGE);
            assert_non_null(strstr(err.msg, "expected bytes, or a size like 500M or 20G"));
            continue;
        }
        assert_int_equal(st, PL_OK);
        assert_true(have <= cases[i].bytes && (cases[i].bytes > 1e9 || have < all));
    }
    limit("1T");
    assert_int_equal(pl_memory_available(&have, &err), PL_OK);
    assert_true(have > 0.5 * all && have < 2 * all); // the machine's own limit, whatever moved
    limit("100M");
    assert_int_equal(pl_memory_room(50e6, "it", "take less", &err), PL_OK);
    assert_int_equal(pl_memory_room(200e6, "it", "take less", &err), PL_E_MEMORY);
    assert_non_null(strstr(err.msg, "it: 190.7 MiB of memory are needed, "));
    assert_non_null(strstr(err.msg, " can be had; take less"));
}

static void refused(const char *part, const char *args) {
    test_run_fails(1, part, "%s", args);
}

static void refusals(void **state) {
    (void)state;
    limit("junk");
    test_run_fails(2, "PACELINE_MEMORY=junk: expected bytes", "bench heads");
    limit("300M");
    refused("heads: the largest of 128256 rows: 2.1 GiB of memory are needed",
            "bench heads --vocab 128256 --hidden 4096");
    refused("linear: the weights: ", "bench linear --vocab 128256 --hidden 4096");
    refused("attention: the caches: ", "bench attention --hidden 65536");
    refused("train: weights, gradients and rows: ", "bench train --device emulated --vocab 128256 --hidden 4096");
    refused("give fewer --layers", "bench decode --shape llama3-8b");
    refused("give fewer --layers", "bench decode --shape tiny --context 4000000");
    refused("random weights: 501.0 MiB", "bench step --shape llama3.2-1b");
    refused("give fewer --layers", "plan --shape llama3-8b");
    if (!LEAN) return;
    limit("20M");
    refused("a training step's activations: ", "bench step --shape tiny --batch 16 --seq-len 512");
}

// A target whose parameters cannot be held says how many could; one whose step cannot, what makes it smaller.
static void training(void **state) {
    (void)state;
    char  dir[64], path[128];
    char *text = malloc(60001);
    assert_non_null(text);
    test_scratch(dir);
    for (int i = 0; i < 60000; i++)
        text[i] = i % 6 == 5 ? (i % 60 == 59 ? '\n' : ' ') : (char)('a' + i * 7 / 6 % 23);
    text[60000] = 0;
    snprintf(path, sizeof path, "%s/text.txt", dir);
    test_write(path, text);
    free(text);
    snprintf(path, sizeof path, "%s/r.yaml", dir);
    test_write(path, "kind: target\ndata: {tokenizer: {vocab_size: 300}}\n"
                     "target: {new: {layers: 8, heads: 8, kv_heads: 8, positions: 128}}\n"
                     "train: {steps: 1, batch: 1, seq_len: 64}\n");
    limit("300M");
    test_run_fails(1, "million would fit, its activations apart",
                   "train %s --out %s/run --quiet --set data.text=%s/text.txt --set target.new.hidden_size=1024 "
                   "--set target.new.intermediate=4096",
                   path, dir, dir);
    limit("60M");
    test_run_fails(
        1, "a training step's activations: ",
        "train %s --out %s/run2 --quiet --set data.text=%s/text.txt --set target.new.hidden_size=64 "
        "--set target.new.intermediate=128 --set train.batch=128 --set train.slots=1 --set train.seq_len=128",
        path, dir, dir);
    limit(NULL);
    test_scratch_remove(dir);
}

// Heads lie in memory one at a time; and what a refusal says would fit does.
static void one_head_at_a_time(void **state) {
    (void)state;
    test_output o;
    pl_json     j;
    if (!LEAN) skip();
    limit("40M"); // the largest is 16 MB, all of them 130 MB
    test_run_json(&j, "bench heads --json --quiet --threads 1 --vocab 8000 --hidden 512 --weights fp32 --ranks 8");
    assert_int_equal(cJSON_GetArraySize(test_array(&j, NULL, "heads")), 12);
    assert_true(test_num(&j, NULL, "peak_memory_bytes") < 60e6);
    pl_json_close(&j);
    test_run(&o, "bench heads --quiet --threads 1 --vocab 90000 --hidden 512 --weights fp32 --ranks 8");
    assert_int_equal(o.code, 1);
    const char *says = strstr(o.err, "--vocab ");
    assert_non_null(says);
    long rows = strtol(says + 8, NULL, 10);
    assert_true(rows > 5000 && rows < 20000);
    test_run_fini(&o);
    test_run_json(&j, "bench heads --json --quiet --threads 1 --vocab %ld --hidden 512 --weights fp32 --ranks 8", rows);
    pl_json_close(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(sizes, no_limit),
        cmocka_unit_test_teardown(refusals, no_limit),
        cmocka_unit_test_teardown(training, no_limit),
        cmocka_unit_test_teardown(one_head_at_a_time, no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
