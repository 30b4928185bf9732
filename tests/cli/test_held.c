// Answers that are held to a grammar, as a user has them: what ends by itself is one of its texts, with a drafter the
// same tokens, and a grammar that is malformed is refused before anything is decoded.
#include "program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DECODE "decode --json --quiet --target checkpoints/tiny -n 80 --prompt 'Once upon a time' "

static char scratch[64];

static const char *schema_file(const char *schema) {
    static char path[128];
    snprintf(path, sizeof path, "%s/schema.json", scratch);
    FILE *f = fopen(path, "w");
    assert_true(f && fputs(schema, f) >= 0 && fclose(f) == 0);
    return path;
}

static void a_schema_holds(void **state) {
    (void)state;
    static const char *const more[] = {"", "--drafter lookup", "--temperature 1", "--temperature 1 --drafter suffix:8"};
    const char              *path =
        schema_file("{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":"
                    "{\"type\":\"integer\",\"minimum\":1,\"maximum\":99}},\"required\":[\"name\",\"age\"]}");
    char texts[4][512];
    for (int i = 0; i < 4; i++) {
        pl_json     j, answer;
        pl_err      err = {0};
        const char *text, *finish;
        int64_t     age;
        test_run_json(&j, DECODE "--json-schema %s %s", path, more[i]);
        assert_int_equal(pl_json_get_str(&j, NULL, "text", &text, &err), PL_OK);
        assert_int_equal(pl_json_get_str(&j, NULL, "finish", &finish, &err), PL_OK);
        assert_string_equal(finish, "stop");
        snprintf(texts[i], sizeof texts[i], "%s", text);
        assert_int_equal(pl_json_parse(&answer, "answer", 0, text, strlen(text), 0, &err), PL_OK);
        assert_int_equal(pl_json_get_int(&answer, NULL, "age", 1, 99, &age, &err), PL_OK);
        assert_int_equal(cJSON_GetArraySize(answer.root), 2);
        pl_json_close(&answer);
        pl_json_close(&j);
    }
    assert_string_equal(texts[0], texts[1]);
    assert_string_equal(texts[2], texts[3]);
}

static void malformed_ones_are_refused(void **state) {
    (void)state;
    test_run_fails(2, "--regex: regular expression: character 3: expected )", DECODE "--regex '(a'");
    test_run_fails(1, "uniqueItems: this keyword", DECODE "--json-schema %s", schema_file("{\"uniqueItems\":true}"));
    test_run_fails(2, "exclude each other", DECODE "--regex a --grammar nowhere");
    test_run_fails(2, "nowhere: cannot open", DECODE "--grammar nowhere");
}

static int make(void **state) {
    (void)state;
    test_scratch(scratch);
    return 0;
}

static int clear(void **state) {
    (void)state;
    test_scratch_remove(scratch);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schema_holds),
        cmocka_unit_test(malformed_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
