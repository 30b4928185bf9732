// The command line: options, help, error lines and exit codes.
#include "infer/cli/cli.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "paceline.h"
#include "program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// ---- the parser ----

static const pl_key table[] = {
    {PL_OPTION_INT("count", "N"), .letter = 'c', .deflt = "7", .min = 1, .max = 9, .help = "a number"},
    {PL_OPTION_REAL("share", "X"), .min = 0, .max = 1, .help = "a share"},
    {PL_OPTION_CHOICE("kind", "red", "green"), .help = "a choice"},
    {PL_OPTION_TEXTS("set", "K=V"), .help = "settings"},
    {PL_OPTION_FLAG("quick"), .letter = 'q', .help = "a flag"},
    {0}};

static pl_status parse(pl_cli_args *a, pl_err *err, bool stop, int *at, ...) {
    char   *argv[16] = {(char *)(uintptr_t) "program"};
    int     argc = 1;
    va_list ap;
    va_start(ap, at);
    for (char *s; (s = va_arg(ap, char *)) != NULL;)
        argv[argc++] = s;
    va_end(ap);
    *a = (pl_cli_args){.table = {table}};
    *at = 1;
    return pl_cli_parse(a, argc, argv, at, stop, err);
}

static void test_values(void **state) {
    (void)state;
    pl_cli_args a;
    pl_err      err;
    int         at, n;
    const char *list[8];
    assert_int_equal(parse(&a, &err, false, &at, "one", "--count", "3", "--set=a=1", "-q", "--set", "b=2",
                           "--share=0.25", "--kind", "green", "--", "--two", NULL),
                     PL_OK);
    assert_int_equal(pl_cli_int(&a, "count"), 3);
    assert_true(pl_cli_real(&a, "share") == 0.25);
    assert_int_equal(pl_cli_choice(&a, "kind"), 1);
    assert_true(pl_cli_has(&a, "quick"));
    pl_cli_list(&a, "set", list, &n);
    assert_int_equal(n, 2);
    assert_string_equal(list[0], "a=1");
    assert_string_equal(list[1], "b=2");
    assert_int_equal(a.n_positional, 2);
    assert_string_equal(a.positional[1], "--two");
    pl_cli_args_fini(&a);

    assert_int_equal(parse(&a, &err, false, &at, "-c4", "-c", "5", NULL), PL_OK);
    assert_int_equal(pl_cli_int(&a, "count"), 5); // the last one counts
    assert_false(pl_cli_has(&a, "share"));
    assert_int_equal(pl_cli_choice(&a, "kind"), -1);
    pl_cli_args_fini(&a);

    assert_int_equal(parse(&a, &err, true, &at, "-q", "command", "--nonsense", NULL), PL_OK);
    assert_int_equal(at, 2);
    assert_int_equal(pl_cli_int(&a, "count"), 7); // the default
    pl_cli_args_fini(&a);
}

static void test_bad_values(void **state) {
    (void)state;
    static const struct {
        const char *first, *second, *part;
    } bad[] = {{"--count", "0", "--count: expected an integer from 1 to 9, found 0"},
               {"--count", "10", "from 1 to 9, found 10"},
               {"--count", "3x", "--count: expected an integer, found \"3x\""},
               {"--count", "99999999999999999999", "does not fit into 64 bits"},
               {"--count", "", "expected an integer"},
               {"--share", "nan", "expected a number"},
               {"--share", "0x1", "expected a number"},
               {"--share", "1e400", "too large for a number"},
               {"--share", "-0.5", "--share: expected a number from 0 to 1, found -0.5"},
               {"--kind", "blue", "--kind: expected one of red, green, found \"blue\""},
               {"--kind", "gree", "did you mean green?"},
               {"--kind", NULL, "needs a value, red|green"},
               {"--count", "--quick", "needs a value"},
               {"--count", NULL, "needs a value"},
               {"--quick=yes", NULL, "takes no value"},
               {"--cuont", "3", "did you mean --count?"},
               {"--cuont=3", NULL, "did you mean --count?"},
               {"--zebra", NULL, "unknown option"},
               {"-z", NULL, "unknown option"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_cli_args a;
        pl_err      err;
        int         at;
        assert_int_equal(parse(&a, &err, false, &at, bad[i].first, bad[i].second, NULL), PL_E_USAGE);
        if (!strstr(err.msg, bad[i].part)) fail_msg("%s: \"%s\" expected in: %s", bad[i].first, bad[i].part, err.msg);
        pl_cli_args_fini(&a);
    }
}

static void test_id_lists(void **state) {
    (void)state;
    int32_t *ids;
    int64_t  n;
    pl_err   err;
    assert_int_equal(pl_cli_ids("1,2, 3\n2147483647", &ids, &n, &err), PL_OK);
    assert_int_equal(n, 4);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[3], INT32_MAX);
    pl_free(ids);
    assert_int_equal(pl_cli_ids("", &ids, &n, &err), PL_OK);
    assert_int_equal(n, 0);
    pl_free(ids);
    static const char *const bad[] = {"x", "1,-2", "2147483648", "1;2", "1.5", "99999999999999999999", "+1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pl_cli_ids(bad[i], &ids, &n, &err), PL_E_USAGE);
        assert_null(ids);
    }
}

// ---- the program ----

static const char *const commands[] = {"generate", "train",   "eval",  "run",  "decode", "prompts",
                                       "tokenize", "inspect", "bench", "plan", "report", "doctor",
                                       "export",   "import",  "check", "serve"};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void test_help(void **state) {
    (void)state;
    test_output o;
    test_run(&o, "--help");
    assert_int_equal(o.code, 0);
    for (int i = 0; i < COMMANDS; i++)
        assert_non_null(strstr(o.out, commands[i]));
    test_run_fini(&o);
    for (int i = 0; i < COMMANDS; i++) {
        char usage[64];
        snprintf(usage, sizeof usage, "Usage: paceline %s", commands[i]);
        test_run(&o, "%s --help", commands[i]);
        assert_int_equal(o.code, 0);
        assert_non_null(strstr(o.out, usage));
        assert_non_null(strstr(o.out, "Example:"));
        assert_non_null(strstr(o.out, "--json"));
        assert_int_equal(o.err_bytes, 0);
        test_run_fini(&o);
    }
}

static void test_version(void **state) {
    (void)state;
    test_output o;
    pl_json     j;
    const char *version;
    test_run(&o, "--version");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, pl_version()));
    test_run_fini(&o);
    test_run_json(&j, "--version --json");
    assert_int_equal(pl_json_get_str(&j, NULL, "version", &version, NULL), PL_OK);
    assert_string_equal(version, pl_version());
    pl_json_close(&j);
}

static void test_wrong_usage(void **state) {
    (void)state;
    test_run_fails(2, "no command", " ");
    test_run_fails(2, "did you mean decode?", "decdoe");
    test_run_fails(2, "unknown command", "zebra");
    test_run_fails(2, "decode: --promt: unknown option; did you mean --prompt?", "decode --promt x");
    test_run_fails(2, "decode: --target: is missing", "decode --json");
    test_run_fails(2, "--prompt: is missing", "decode --target nowhere");
    test_run_fails(2, "exclude each other", "decode --target nowhere --prompt a --prompt-ids 1");
    test_run_fails(2, "needs a --drafter", "decode --target nowhere --prompt a --tree chain:3");
    test_run_fails(2, "--max-new-tokens: expected an integer from 1",
                   "decode --target nowhere --prompt a --max-new-tokens 0 --json");
    test_run_fails(2, "--top-p: must lie in", "decode --target nowhere --prompt a --temperature 1 --top-p 0");
    test_run_fails(2, "nowhere: no such file", "decode --target nowhere --prompt a --json");
    test_run_fails(2, "--threads: expected an integer from 1 to 1024, found 0", "doctor --threads 0");
    test_run_fails(1, "--device cuda:99: ", "--device cuda:99 doctor");
    test_run_fails(2, "one argument too many", "doctor more");
    test_run_fails(2, "exactly one", "tokenize --tokenizer x");
    test_run_fails(2, "unknown option", "tokenize --set a=b");
    test_run_fails(2, "RECIPE: is missing", "train");
    test_run_fails(2, "no-such.yaml", "eval no-such.yaml --json");
    test_run_fails(2, "no such file", "inspect no-such-thing");
    test_run_fails(2, "RUN...: is missing", "report");
    test_run_fails(2, "no such run", "report no-such-run");
    test_run_fails(2, "did you mean heads", "bench haeds");
    test_run_fails(2, "--target: is missing", "bench decode");
    test_run_fails(2, "--ranks", "bench heads --hidden 64 --ranks 65");
    // What no bench that was asked for would read.
    static const char *const unread[][2] = {
        {"--batch: is for bench step", "bench heads --batch 2"},
        {"--vocab: is for bench linear, heads; on a device also train, draw", "bench attention --vocab 64"},
        {"--vocab: is for bench linear, heads; on a device also train, draw", "bench train --vocab 64"},
        {"--hidden: is for bench linear, heads, attention; on a device also train", "bench bandwidth --hidden 64"},
        {"--ranks: is for bench heads", "bench linear --ranks 4"},
        {"--weights: is for bench heads", "bench linear --weights bf16"},
        {"--seq-len: is for bench step; on a device also train", "bench train --seq-len 64"},
        {"--unroll: is for bench step", "bench decode --shape tiny --unroll 2"},
        {"--head: is for bench step", "bench --head full"},
        {"--context: is for bench decode", "bench step --shape tiny --context 9"},
        {"--new-tokens: is for bench decode", "bench bandwidth --new-tokens 9"},
        {"--repeats: is for bench decode, step", "bench linear --repeats 2"},
        {"--target: is for bench decode, step", "bench linear --target checkpoints/tiny"},
        {"--shape: is for bench decode, step", "bench heads --shape tiny"},
        {"--drafter: is for bench decode", "bench step --target checkpoints/tiny --drafter lookup"},
        {"--tree: is for --drafter", "bench decode --target checkpoints/tiny --tree chain:2"},
        {"--tree: is for --drafter", "bench decode --shape tiny --tree chain:2"},
        {"--tokenizer: is for bench tokenize", "bench draw --tokenizer x"},
        {"--file: is for bench tokenize", "bench linear --file x"},
        {"--pre: is for bench decode, tokenize", "bench linear --pre gpt-2"},
        {"--pre: is for --target, --tokenizer", "bench decode --shape tiny --pre gpt-2"},
        {"--max-mb: is for bench bandwidth, linear, train, heads, attention; on a device also decode, step, tokenize, "
         "draw",
         "bench step --shape tiny --max-mb 4"},
    };
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        test_run_fails(2, unread[i][0], "%s", unread[i][1]);
    setenv("PACELINE_THREADS", "many", 1);
    test_run_fails(2, "PACELINE_THREADS=many", "doctor");
    unsetenv("PACELINE_THREADS");
}

static void test_full_disk(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    int status = system("\"" PACELINE_PROGRAM "\" doctor > /dev/full 2> /dev/null");
    assert_int_equal(WEXITSTATUS(status), 1);
    status = system("\"" PACELINE_PROGRAM "\" doctor --json > /dev/full 2> /dev/null");
    assert_int_equal(WEXITSTATUS(status), 1);
}

static void test_doctor(void **state) {
    (void)state;
    pl_json     j;
    int64_t     threads;
    const char *cuda;
    double      fma, unit;
    test_run_json(&j, "doctor --json --threads 1");
    assert_int_equal(pl_json_get_int(&j, NULL, "threads", 1, 1, &threads, NULL), PL_OK);
    assert_int_equal(pl_json_get_str(&j, NULL, "cuda", &cuda, NULL), PL_OK);
    // No processor does less than 100 MFLOP/s or more than 100 TFLOP/s a thread.
    assert_int_equal(pl_json_get_num(&j, NULL, "peak_flops", 1e8, 1e14, &fma, NULL), PL_OK);
    assert_int_equal(pl_json_get_num(&j, NULL, "peak_bf16_flops", 1e8, 1e14, &unit, NULL), PL_OK);
    pl_json_close(&j);
    setenv("PACELINE_THREADS", "2", 1);
    test_run_json(&j, "doctor --json");
    assert_int_equal(pl_json_get_int(&j, NULL, "threads", 2, 2, &threads, NULL), PL_OK);
    pl_json_close(&j);
    unsetenv("PACELINE_THREADS");
}

// What a newcomer meets first: a path that is not there is called that, and too few prompts come with a way out.
static void test_first_steps(void **state) {
    (void)state;
    char scratch[64], path[128];
    test_scratch(scratch);
    test_run_fails(2, "/dataset: no such file or folder", "vocab --list %s/list.json %s/dataset", scratch, scratch);
    snprintf(path, sizeof path, "%s/prompts.txt", scratch);
    test_write(path, "Once upon a time\n\nThe dog\n\nOne day\n");
    test_run_fails(
        2, "200 prompts held out of 3 leave none to train on; take fewer (--set eval.holdout=1)",
        "run recipes/any-target.yaml --quiet --set target.path=checkpoints/tiny --set data.prompts=%s --out %s/run",
        path, scratch);
    test_write(path, "Once upon a time\n");
    test_run_fails(2, "1 prompts held out of 1 leave none to train on; bring more prompts",
                   "run recipes/any-target.yaml --quiet --set target.path=checkpoints/tiny --set data.prompts=%s "
                   "--set eval.holdout=1 --out %s/run",
                   path, scratch);
    test_scratch_remove(scratch);
}

// A recipe that lacks what one of its stages needs: one line, and nothing is made.
static void test_incomplete_recipes(void **state) {
    (void)state;
    static const char *const bad[][3] = {
        {"run", "", "target.path: missing"},
        {"run", "target: {path: checkpoints/tiny}", "data.prompts: missing"},
        {"run", "kind: target", "data.text: missing"},
        {"run", "target: {path: checkpoints/tiny}\ndata: {prompts: p}\ndrafters: [{head: {kind: full}}]",
         "drafters.0.name: missing"},
        {"run", "target: {path: checkpoints/tiny}\ndata: {prompts: p}\nvocabularies: [{dataset: true}]",
         "vocabularies.0.name: missing"},
        {"run", "target: {path: checkpoints/tiny}\ndata: {prompts: p}\ndrafters: [{name: a, head: {kind: dynaspec}}]",
         "drafter \"a\": drafter.start: missing"},
        {"run", "target: {path: checkpoints/tiny}\ndata: {prompts: p}\ndrafter.head.kind: dynaspec",
         "drafter.start: missing"},
        {"run", "target: {path: checkpoints/tiny}\ndata: {prompts: p}\neval: {drafters: [{name: a}]}",
         "eval.drafters.0.path: missing"},
        {"generate", "data: {prompts: p}", "target.path: missing"},
        {"generate", "target: {path: checkpoints/tiny}", "data.prompts: missing"},
        {"train", "data: {prompts: p}", "target.path: missing"},
        {"train", "kind: target", "data.text: missing"},
        {"train", "target: {path: checkpoints/tiny}\ndata.mode: online", "data.prompts: missing"},
        {"train", "target: {path: checkpoints/tiny}\ndrafter.head.kind: dynaspec", "drafter.start: missing"},
        {"eval", "eval: {prompts: p}", "target.path: missing"},
        {"eval", "target: {path: checkpoints/tiny}", "eval.prompts: is missing, and so is data.prompts"},
        {"eval", "target: {path: checkpoints/tiny}\neval: {prompts: p, drafters: [{name: a}]}",
         "eval.drafters.0.path: missing"}};
    char scratch[64], file[128], out[96];
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/r.yaml", scratch);
    snprintf(out, sizeof out, "%s/runs", scratch);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_write(file, bad[i][1]);
        test_run_fails(2, bad[i][2], "%s %s --out %s/run", bad[i][0], file, out);
        assert_false(pl_path_exists(out));
    }
    // A complete recipe prints one line after the device's; recipe.yaml in the run's folder holds the effective settings.
    test_output o;
    test_write(file, "kind: target\ndata: {text: nowhere}\ntrain: {steps: 77}");
    test_run(&o, "train %s --out %s/run", file, out);
    assert_int_equal(o.code, 2);
    char *recipe = strchr(o.err, '\n'), *end = recipe ? strchr(recipe + 1, '\n') : NULL, says[160];
    snprintf(says, sizeof says, "\nrecipe: %s/run/recipe.yaml (hash ", out);
    assert_non_null(end);
    assert_int_equal(strncmp(o.err, "device: cpu-", 12), 0);
    assert_int_equal(strncmp(recipe, says, strlen(says)), 0);
    assert_int_equal(strncmp(end + 1, "paceline: train: nowhere", 24), 0);
    test_run_fini(&o);
    snprintf(file, sizeof file, "%s/run/recipe.yaml", out);
    char *kept = test_read(file);
    assert_non_null(strstr(kept, "steps: 77"));
    pl_free(kept);
    test_scratch_remove(scratch);
}

static void test_recipe_keys(void **state) {
    (void)state;
    test_output o;
    test_run(&o, "train --keys");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "train.top_k"));
    assert_non_null(strstr(o.out, "train.steps"));
    assert_non_null(strstr(o.out, "eval.max_new_tokens"));
    test_run_fini(&o);
}

// A run goes on while its recipe has the hash with which it began, so a new key must not change the hash of recipes
// that do not give it (.late). The value changes with quickstart.yaml alone.
static void test_new_keys_keep_hashes(void **state) {
    char        scratch[64];
    test_output o;
    (void)state;
    test_scratch(scratch);
    test_run(&o, "run recipes/quickstart.yaml --out %s/run --set data.prompts=/nonexistent", scratch);
    assert_non_null(strstr(o.err, "(hash b554009d0a51e50c)"));
    test_run_fini(&o);
    test_scratch_remove(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_id_lists),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_wrong_usage),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_doctor),
        cmocka_unit_test(test_recipe_keys),
        cmocka_unit_test(test_first_steps),
        cmocka_unit_test(test_incomplete_recipes),
        cmocka_unit_test(test_new_keys_keep_hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
