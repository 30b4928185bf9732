// How much of the product of its axes a test runs: a part that has each value of each axis beside each of every other,
// or, where PACELINE_TEST_WHOLE is set (the nightly tier's whole_<unit>), all of it.
#ifndef PL_TEST_WHOLE_H
#define PL_TEST_WHOLE_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool test_whole(void) {
    const char *whole = getenv("PACELINE_TEST_WHOLE");
    return whole && *whole;
}

#endif
