// The emulated device's queue, as C sees it. A NULL queue: everything is done at once.
#ifndef PL_CUDA_QUEUE_H
#define PL_CUDA_QUEUE_H

#include "kernels/cuda/state.h"

void  pl_emu_run(uint64_t number, const pl_cuda_launch *l);       // now; the number is its watcher's (watch.h)
void  pl_emu_run_block(const pl_cuda_launch *l, unsigned number); // one of its blocks alone, now
void *pl_emu_queue_create(void);                                  // NULL: out of memory
void  pl_emu_queue_destroy(void *queue);
void  pl_emu_submit(void *queue, const pl_cuda_launch *l); // its arguments are kept by value, as a GPU keeps them
void  pl_emu_join(void *queue);                            // a branch's launches, kept apart till then, come next
void  pl_emu_waited(const void *queue);                    // the host has seen the end of all that was queued
void  pl_emu_queue_run(void *queue);                       // what was kept, in order
void  pl_emu_copy(void *queue, void *to, const void *from, size_t bytes, size_t pitch, size_t n);
// A copy of what the host has written and does not change before it is made: stops where it has.
void  pl_emu_send(void *queue, void *to, const void *from, size_t bytes);
void  pl_emu_zero(void *queue, void *to, size_t bytes);
extern uint64_t pl_emu_zeroed; // bytes, by queues
// Told of each launch as its launcher describes it (tests/cuda/standin_cuda.cc); NULL: nobody is.
extern void (*pl_emu_on_launch)(const pl_cuda_launch *l);
// Whether p lies in (or right behind) a block of the strict device.
bool pl_emu_reachable(const void *p);
bool pl_emu_shared(const void *p); // in PL_SHARED memory itself, not in its copy on the device
// Whether p is an address of mapped memory outside all of them, above 64 TiB, where programs and heaps lie: two small
// numbers side by side look like an address lower down, and sanitizers map all of that.
bool pl_emu_of_host(const void *p);

#endif
