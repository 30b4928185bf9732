// Counts the malformed inputs that a test program's readers refused with the line expected; printed when it ends.
// `tests/shown.sh malformed` adds them up over all programs.
#ifndef PL_TEST_MALFORMED_H
#define PL_TEST_MALFORMED_H

#include <stdio.h>
#include <stdlib.h>

static int malformed_inputs;

static inline void malformed_print(void) {
    printf("malformed inputs refused with their line: %d\n", malformed_inputs);
}

static inline void malformed_seen(void) {
    if (malformed_inputs++ == 0) atexit(malformed_print);
}

#endif
