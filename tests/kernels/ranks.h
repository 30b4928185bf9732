// What ranks bring to a sum, and the tree that it must have the bits of.
#ifndef PL_TEST_RANKS_H
#define PL_TEST_RANKS_H

#include "kernels/comm/comm.h"

// A rank that is not content says so by failing.
#define EXPECT(cond)                                                                                                   \
    do {                                                                                                               \
        if (!(cond)) return pl_fail(err, PL_E_INTERNAL, "line %d: %s", __LINE__, #cond);                               \
    } while (0)

float     ranks_value(int rank, int64_t i);
// Element i of the sum over ranks [from, from + n), by the definition: halves at the largest power of two below n.
float     ranks_tree(int from, int n, int64_t i);
// Sums n values of all ranks in the memory of ctx's backend: PL_E_INTERNAL where it is not the tree's, bit for bit.
pl_status ranks_sum(pl_comm *c, pl_ctx *ctx, int64_t n, pl_err *err);

#endif
