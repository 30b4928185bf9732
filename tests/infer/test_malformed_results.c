// Malformed results.json and metrics.jsonl, as `report` reads them.
#include "infer/report/curves.h"
#include "infer/report/report.h"
#include "tests/checkpoints/scratch.h"

static void test_results(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "results.json:1:1: not JSON"},
        {"{", "not JSON"},
        {"{\"methods\":[}", "results.json:1:13: not JSON"},
        {"[]", "methods: missing; expected an array"},
        {"{}", "methods: missing; expected an array"},
        {"7", "methods: missing; expected an array"},
        {"{\"methods\":{}}", "methods: expected an array, found an object"},
        {"{\"methods\":7}", "methods: expected an array, found 7"},
        {"{\"methods\":[7]}", "methods: expected at most"},
        {"{\"methods\":[null]}", "methods: expected at most"},
        {"{\"methods\":[{}]}", "methods[0].name: missing; expected a string"},
        {"{\"methods\":[{\"name\":7}]}", "methods[0].name: expected a string, found 7"},
        {"{\"methods\":[{\"name\":\"a\"},{\"name\":[]}]}", "methods[1].name: expected a string, found an array"},
        {"{\"methods\":[]} x", "text behind the end"},
        {"{\"methods\":[{\"name\":\"\xff\"}]}", "not UTF-8"},
        {"{\"methods\":[{\"name\":\"a\nb\"}]}", "not JSON"},
        {"{\"methods\":[{\"name\":\"\\u0000\"}]}", "not JSON"},
        {"{\"methods\":[{\"name\":\"a\",\"speedup\":NaN}]}", "not JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err      err;
        const char *run = at("results.json");
        put_text(run, bad[i].text);
        pl_status st = pl_report_write(at("report.html"), &run, 1, &err);
        if (st == PL_OK) fail_msg("accepted: %s", bad[i].text);
        assert_refused(st, &err, bad[i].says);
        assert_false(pl_path_exists(at("report.html")));
    }
}

static void test_metrics(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{}\n", "metrics.jsonl:1: step: missing; expected a number"},
        {"{\"step\":1}\n\n{\"step\":\n", "metrics.jsonl:3:9: not JSON"},
        {"{\"step\":\"1\"}\n", "step: expected a number from 0"},
        {"{\"step\":-1}\n", "step: expected a number from 0"},
        {"{\"step\":1e300}\n", "step: expected a number from 0"},
        {"{\"step\":null}\n", "step: missing"},
        {"{\"step\":1,\"stage\":2}\n", "stage: expected a string, found 2"},
        {"[1]\n", "step: missing"},
        {"{\"step\":1} {\"step\":2}\n", "metrics.jsonl:1:12: not JSON: text behind the end"},
        {"{\"step\":01}\n", "not a number"},
        {"{\"step\":1,}\n", "expected a key in quotes"},
        {"\xef\xbb\n", "metrics.jsonl:1:1: not JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err    err;
        pl_curves c = {0};
        put_text(at("metrics.jsonl"), bad[i].text);
        pl_status st = pl_curves_read(&c, "s", at("metrics.jsonl"), &err);
        if (st == PL_OK) fail_msg("accepted: %s", bad[i].text);
        assert_refused(st, &err, bad[i].says);
        pl_curves_fini(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_results), cmocka_unit_test(test_metrics)};
    return cmocka_run_group_tests_name("test_malformed_results", tests, scratch_setup, scratch_teardown);
}
