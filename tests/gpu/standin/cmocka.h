// As much of cmocka's interface as the tests of kernels/ use, for machines that have no cmocka (a bare GPU machine):
// a failed assertion ends its test, the others go on, the program's status is the number of failed ones.
#ifndef STANDIN_CMOCKA_H
#define STANDIN_CMOCKA_H

#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(f)                                                                                            \
    { #f, f }
#define cmocka_run_group_tests(tests, setup, teardown) standin_run(tests, (int)(sizeof tests / sizeof tests[0]))
#define print_message printf

int  standin_run(const struct CMUnitTest *tests, int n);
void standin_fail(const char *file, int line, const char *fmt, ...) __attribute__((noreturn, format(printf, 3, 4)));

#define fail_msg(...) standin_fail(__FILE__, __LINE__, __VA_ARGS__)
#define assert_true(x) ((x) ? (void)0 : standin_fail(__FILE__, __LINE__, "not true: %s", #x))
#define assert_false(x) ((x) ? standin_fail(__FILE__, __LINE__, "not false: %s", #x) : (void)0)
#define assert_null(x) assert_true((x) == NULL)
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)

#endif
