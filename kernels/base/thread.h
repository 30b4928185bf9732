// Starting threads with a stack of their own size. The C library's default follows `ulimit -s` (glibc) or is small
// (musl), and a thread would overflow it.
#ifndef PL_THREAD_H
#define PL_THREAD_H

#include <pthread.h>

// Bytes. The deepest part of an op takes less than 0.1 MB (a frame of 52 KB in kernels/op/headtopk_cpu.c). Under glibc
// a thread's static TLS lies on its stack, too: 1.1 MB in programs of tests. Untouched pages cost addresses alone.
#define PL_THREAD_STACK ((size_t)4 << 20)

// pthread_create with such a stack; returns its error number.
int  pl_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);
// For a program: such a stack for the threads that libraries start from now on, where the C library can (glibc).
void pl_thread_defaults(void);

#endif
