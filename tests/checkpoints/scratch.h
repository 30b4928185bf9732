// A folder of its own for every test program, and the few helpers that these tests share.
#ifndef PL_TEST_SCRATCH_H
#define PL_TEST_SCRATCH_H

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/status.h"
#include "tests/malformed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char scratch[256];

static inline int scratch_setup(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/paceline-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_teardown(void **state) {
    (void)state;
    return pl_tree_remove(scratch, NULL) == PL_OK ? 0 : -1;
}

// scratch/name; good for the next seven calls.
static inline const char *at(const char *name) {
    static char ring[8][512];
    static int  next;
    char       *p = ring[next++ % 8];
    snprintf(p, sizeof ring[0], "%s/%s", scratch, name);
    return p;
}

// A file of the outside data, or NULL where there is none (then the case is skipped).
static inline const char *outside(const char *name) {
    static char path[512];
    const char *base = getenv("PACELINE_TEST_DATA");
    if (!base) return NULL;
    snprintf(path, sizeof path, "%s/%s", base, name);
    return path;
}

static inline void put_file(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void put_text(const char *path, const char *text) {
    put_file(path, text, strlen(text));
}

// err is a pl_err in scope of the caller that the call fills.
#define assert_ok(expr)                                                                                                \
    do {                                                                                                               \
        if ((expr) != PL_OK) fail_msg("%s: %s", #expr, err.msg);                                                       \
    } while (0)

// The status, one line, and what it must say.
static inline void assert_says(pl_status st, pl_status wanted, const pl_err *err, const char *text) {
    if (st != wanted || !strstr(err->msg, text) || strchr(err->msg, '\n'))
        fail_msg("status %d (wanted %d), message \"%s\", wanted \"%s\"", (int)st, (int)wanted, err->msg, text);
    assert_int_equal(err->status, st);
}

// A malformed input, refused with this in its line; counted.
static inline void assert_refused(pl_status st, const pl_err *err, const char *text) {
    assert_says(st, PL_E_INPUT, err, text);
    malformed_seen();
}

#endif
