// Counts launches and asynchronous copies of the emulated device (tests/cuda/emulate/watch.h), from when it is linked.
#ifndef PL_TEST_COUNTER_H
#define PL_TEST_COUNTER_H

#include <stdint.h>

typedef struct counted {
    int64_t launches, late; // late: those that wait for the launch before them
    int64_t shared;         // pointers to PL_SHARED memory, which lies across the bus, among their arguments
    int64_t zeroed;         // bytes
    int64_t waits;          // of the host for all that was queued
    int64_t copied, split;  // bytes of copies of 16 bytes; of those that take parts of lines of 128 bytes
} counted;

// What was counted since the last call.
counted count_end(void);

#endif
