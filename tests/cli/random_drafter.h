// A draft head that was never trained: right or not, decoding with it must say what plain decoding says.
#ifndef PL_TEST_RANDOM_DRAFTER_H
#define PL_TEST_RANDOM_DRAFTER_H

// Writes an EAGLE-3 checkpoint for the target into dir. head: "full" or "lowrank".
void test_random_drafter(const char *dir, const char *target, const char *head, int rank);

#endif
