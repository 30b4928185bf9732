// What this machine can do at most, measured: the floors beside which every timing stands.
#ifndef PL_PROBE_H
#define PL_PROBE_H

#include "kernels/base/parallel.h"

#include <stdbool.h>
#include <stddef.h>

// Bytes per second at which all threads of the pool together (NULL: one thread) read a buffer of so many bytes again
// and again, the best of several tries. Which cache holds the buffer is the point: ask with the footprint of what is to
// be judged. 0 when there is no memory for the buffer.
double pl_probe_bandwidth(pl_pool *pool, size_t bytes);

// One sample, of reading or of fp32 multiply-adds, counted as two operations each. On a machine whose limits move while
// one measures, a sample right before or after a timing says more about it than the best of a minute ago. Reading is
// warmed up and tried a few times, some tens of milliseconds in all: a single try right after other work stays far
// below the limit and would flatter what is judged by it.
// p: memory of the caller that has been written, aligned to 64 bytes; its first `bytes` (rounded down to 512) are read.
double pl_probe_read(pl_pool *pool, const void *p, size_t bytes);
double pl_probe_flops_once(pl_pool *pool);

// ---- whether weights are prefetched by instructions, or left to the processor, which recognises a stream

// Returns whether this processor gains by prefetch instructions: AMD's Zen 4 reads streams 1.2 to 1.4 times as fast
// without them, Zen 5 up to 1.4 times as fast with them. PACELINE_FETCH_AHEAD=0|1 in the environment overrides it, for
// measuring. Changes no bit.
bool pl_fetch_ahead(void);
// Returns the same for passes with fma over one or two rows whose weights come from memory rather than a cache: Intel's
// processors (one with AMX was measured) read them 1.15 times as fast without.
bool pl_fetch_ahead_far(void);

#endif
