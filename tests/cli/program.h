// Runs the program as a user does and looks at everything that comes out of it.
#ifndef PL_TEST_PROGRAM_H
#define PL_TEST_PROGRAM_H

#include "kernels/base/json.h"

#include <stdio.h>
#include <sys/types.h>

typedef struct test_output {
    char  *out, *err; // all of standard output and standard error; owned
    size_t out_bytes, err_bytes;
    int    code;   // exit code; -1: killed by a signal
    int    signal; // which; 0: none
} test_output;

// args: the arguments, split at blanks; '...' keeps blanks together. Without --device it runs on the CPU, whatever the
// machine has; with --device emulated it is paceline_emulated.
void test_run(test_output *o, const char *args, ...) __attribute__((format(printf, 2, 3)));
void test_run_fini(test_output *o);

// The same in two steps, for tests that do something to the program while it runs. before: called in the child, NULL:
// nothing. A program that has not ended within so many seconds is killed, and the test fails.
typedef struct test_child {
    pid_t pid;
    FILE *out, *err;
} test_child;
void test_start(test_child *c, void (*before)(const void *arg), const void *arg, const char *args, ...)
    __attribute__((format(printf, 4, 5)));
void test_end(test_child *c, double seconds, test_output *o);

// Runs and expects success with one JSON document on standard output; closes with pl_json_close.
void test_run_json(pl_json *j, const char *args, ...) __attribute__((format(printf, 2, 3)));
// Runs and expects this exit code, an empty standard output and one line "paceline: ..." that holds `part`.
void test_run_fails(int code, const char *part, const char *args, ...) __attribute__((format(printf, 3, 4)));

// "$PACELINE_TEST_DATA/name" in a buffer of the caller's; skips the test where the variable is unset.
const char *test_data(char buf[512], const char *name);
const char *test_scratch(char buf[64]); // a new folder
void        test_scratch_remove(const char *dir);
void        test_write(const char *path, const char *text);
char       *test_read(const char *path); // pl_free
// A page of HTML with every run of white space as one blank, and none behind a tag. Fails where tags are not nested.
char       *test_read_page(const char *path);
// The same of dir/name.
void        test_put(const char *dir, const char *name, const char *text);
char       *test_get(const char *dir, const char *name);

// Members of obj (NULL: the document); the test fails where there is none of the kind.
double       test_num(const pl_json *j, const cJSON *obj, const char *key);
const char  *test_str(const pl_json *j, const cJSON *obj, const char *key);
const cJSON *test_array(const pl_json *j, const cJSON *obj, const char *key);
// Integers of an array member.
int          test_ids(const pl_json *j, const char *key, int32_t *out, int most);

#endif
