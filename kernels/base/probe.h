// What this machine can do at most, measured: the floors beside which every timing stands.
#ifndef PL_PROBE_H
#define PL_PROBE_H

#include "kernels/base/parallel.h"

#include <stddef.h>

// Bytes per second at which all threads of the pool together (NULL: one thread) read a buffer of so many bytes again
// and again, the best of several tries. Which cache holds the buffer is the point: ask with the footprint of what is to
// be judged. 0 when there is no memory for the buffer.
double pl_probe_bandwidth(pl_pool *pool, size_t bytes);
// fp32 multiply-adds, counted as two operations each, per second on all threads of the pool.
double pl_probe_flops(pl_pool *pool);

#endif
