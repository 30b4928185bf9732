// The n-th of one kind of calls fails: for a program that puts functions of its own before a library's. Included once,
// behind CALLS(X): a line X(NAME, ...) for each kind.
#ifndef PL_TEST_NTH_CALL_H
#define PL_TEST_NTH_CALL_H

#include <stdatomic.h>
#include <stdbool.h>

enum {
#define X(name, ...) CALL_##name,
    CALLS(X)
#undef X
        CALL_COUNT
};
static const char *const call_name[] = {
#define X(name, ...) #name,
    CALLS(X)
#undef X
};

static int        armed = -1; // which call fails here
static atomic_int left;       // until then; 0: it has

static bool falls(int call) {
    return call == armed && atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1;
}

#endif
