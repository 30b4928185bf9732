// The one thread pool of the process. Workers spin for a while between parallel regions (the ops of a step follow each
// other within microseconds), then sleep. Work is split into numbered parts; which thread runs a part is fixed
// (part % threads), and no result may depend on the number of threads.
#ifndef PL_PARALLEL_H
#define PL_PARALLEL_H

#include "kernels/base/status.h"
#include <pthread.h>

typedef struct pl_pool pl_pool;
typedef void (*pl_part_fn)(void *arg, int part, int parts);

// threads <= 0: as many as the process may run on (affinity mask). The caller is thread 0.
pl_status pl_pool_create(pl_pool **out, int threads, pl_err *err);
void      pl_pool_destroy(pl_pool *p);
int       pl_pool_threads(const pl_pool *p); // 1 for NULL

// Runs fn(arg, i, parts) for i in [0, parts), returns when all are done. A NULL pool runs them in order on the caller.
// parts may exceed the number of threads. Not re-entrant: fn must not call pl_parallel on the same pool.
void pl_parallel(pl_pool *p, int parts, pl_part_fn fn, void *arg);

// What the calling thread reads next, as far as it knows: `bytes` from p. Until its next call (and as long as it waits
// in a pool, for a region to begin or to end) it fetches that into its caches where it would only spin. A hint: it
// changes no result, and any address will do.
void pl_soon(const void *p, size_t bytes);

// [*lo, *hi): the part-th of `parts` near-equal ranges of n items, boundaries on multiples of `grain`.
void pl_range(long n, long grain, int part, int parts, long *lo, long *hi);

// Cores this process may use (affinity and cgroup quota).
int pl_cores(void);

// ---- threads with a stack of their own size. The C library's default follows `ulimit -s` (glibc) or is small (musl),
// and a thread would overflow it.

// Bytes. The deepest part of an op takes less than 0.1 MB (a frame of 52 KB in kernels/op/headtopk_cpu.c). Under glibc
// a thread's static TLS lies on its stack, too: 1.1 MB in programs of tests. Untouched pages cost addresses alone.
#define PL_THREAD_STACK ((size_t)4 << 20)

// pthread_create with such a stack; returns its error number.
int  pl_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);
// For a program: such a stack for the threads that libraries start from now on, where the C library can (glibc).
void pl_thread_defaults(void);

#endif
