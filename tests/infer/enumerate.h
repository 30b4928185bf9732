// Every outcome of code whose randomness comes from a pl_coin, with its probability: each run replays the decisions so
// far and takes the next outcome at the last one that has more.
//
//   for (test_every_begin(&e); test_every_next(&e);) { run(&e.coin); ... e.probability ... }
#ifndef PL_TEST_INFER_ENUMERATE_H
#define PL_TEST_INFER_ENUMERATE_H

#include "infer/sample/coin.h"

#define TEST_DECISIONS 64

typedef struct test_every {
    pl_coin coin;
    int     n, at;
    int64_t chosen[TEST_DECISIONS];
    bool    more[TEST_DECISIONS];
    double  probability; // of the run
    int64_t runs;
} test_every;

void test_every_begin(test_every *e);
bool test_every_next(test_every *e); // false when all outcomes were run

#endif
