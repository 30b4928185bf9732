// --device: what it takes, what it says, and that the program's answers do not depend on how it drafts there.
#include "program.h"
#include "random_drafter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"

enum { MOST = 64 };
#define TINY PACELINE_SOURCE_DIR "/checkpoints/tiny"

static int decode(int32_t *ids, const char *options) {
    pl_json j;
    test_run_json(&j, "decode --json --quiet --target " TINY " --prompt-ids 1,365,471,263 --max-new-tokens 5 %s",
                  options);
    int n = test_ids(&j, "tokens", ids, MOST);
    pl_json_close(&j);
    return n;
}

static void same_as(const int32_t *want, int n, const char *options) {
    int32_t got[MOST];
    if (decode(got, options) != n || memcmp(got, want, (size_t)n * sizeof *got) != 0)
        fail_msg("decode %s: other tokens", options);
}

// Greedy in fp32, the device's text is the CPU's; in bf16 and drawn, it is the device's own plain text.
static void decoding(void **state) {
    (void)state;
    int32_t want[MOST];
    char    scratch[64], dir[96], options[256];
    int     n = decode(want, "--dtype fp32");
    same_as(want, n, "--dtype fp32 --device emulated");
    test_scratch(scratch);
    snprintf(dir, sizeof dir, "%s/head", scratch);
    test_random_drafter(dir, TINY, "lowrank", 16);
    n = decode(want, "--device emulated");
    static const char *const drafting[] = {"chain:2", "eagle2:4,2,2"};
    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof options, "--device emulated --drafter %s --tree %s", dir, drafting[i]);
        same_as(want, n, options);
    }
    n = decode(want, "--device emulated --temperature 0.8 --seed 3");
    snprintf(options, sizeof options, "--device emulated --temperature 0.8 --seed 3 --drafter %s --tree chain:2", dir);
    same_as(want, n, options);
    // What looks on at decoding looks on there too.
    pl_json j;
    test_run_json(&j, "inspect --acceptance " TINY " --drafter %s --positions 2 --children 2 --json --device emulated",
                  dir);
    assert_true(test_num(&j, NULL, "positions") >= 2);
    pl_json_close(&j);
    test_scratch_remove(scratch);
}

static void choosing(void **state) {
    (void)state;
    test_output o;
    pl_json     j;
    const char *name;
    bool        gpu = pl_backend_cuda(0, NULL) != NULL;
    test_run_fails(2, "expected auto|cuda[:N]|cpu", "doctor --device gpu");
    test_run_fails(2, "expected auto", "doctor --device cuda:x");
    test_run_fails(2, "expected auto", "doctor --device cpu:0");
    test_run_fails(1, "--device cuda:77: ", "decode --device cuda:77 --target nowhere --prompt a"); // before all else
    test_run_fails(1, "on the CPU alone", "tokenize --device emulated --tokenizer nowhere --text a");
    // Where there is nothing to choose, auto is the CPU without a word about GPUs, whether there is one or not.
    test_run(&o, "tokenize --device auto --tokenizer %s --text a", TINY);
    assert_int_equal(o.code, 0);
    assert_int_equal(o.err_bytes, 0);
    test_run_fini(&o);
    test_run_fails(1, "--device cuda: ", "tokenize --device cuda --tokenizer nowhere --text a");
    test_run_json(&j, "doctor --json --device emulated");
    assert_int_equal(pl_json_get_str(&j, NULL, "backend", &name, NULL), PL_OK);
    assert_string_equal(name, "emulated");
    pl_json_close(&j);
    test_run(&o, "doctor --device auto");
    assert_int_equal(o.code, 0);
    if (!gpu) assert_non_null(strstr(o.err, "device: cpu-"));
    if (!gpu) assert_non_null(strstr(o.err, "(--device auto: no CUDA: "));
    if (gpu) assert_string_equal(o.err, "device: cuda:0\n");
    test_run_fini(&o);
    test_run_json(&j, "doctor --json --device auto");
    assert_int_equal(pl_json_get_str(&j, NULL, "device", &name, NULL), PL_OK);
    assert_true(strncmp(name, gpu ? "cuda" : "cpu-", 4) == 0);
    assert_int_equal(pl_json_get_str(&j, NULL, "device_why", &name, NULL) == PL_OK, !gpu);
    pl_json_close(&j);
    test_run(&o, "doctor --device auto --quiet");
    assert_int_equal(o.err_bytes, 0);
    test_run_fini(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoding), cmocka_unit_test(choosing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
