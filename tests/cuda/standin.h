// A CUDA runtime that is none, for tests of kernels/cuda/device_cuda.c where there is no GPU: its calls queue work,
// which is done as late, or as early, and in as free an order as CUDA allows, drawn from a seed; kernels run on the
// emulated device. What CUDA refuses or leaves undefined stops with a line.
//   streams   in order each; among them only events order. Work is done when it is waited for, or at any call before
//   copies    pinned memory is read and written when the copy is done, pageable memory is staged at the call; one copy
//             stays within one block on each side
//   capture   no call that waits or allocates; ways that part must meet before the end; then a graph's launches run in
//             any order that its edges allow
//   early     (programmatic stream serialization) not behind a wait for an event, and only of kernels that leave a
//             multiprocessor's memory to shared memory (cudaFuncAttributePreferredSharedMemoryCarveout)
//   devices   two; a thread's first one is 0, and most calls open the one that is current
//   kernels   more than 48 KB of dynamic shared memory only after cudaFuncSetAttribute
#ifndef PL_TEST_STANDIN_H
#define PL_TEST_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct standin_counts {
    uint64_t calls, kernels, early, copies, captures, graphs, blocks; // blocks: of memory, not freed
    uint64_t sent;                                                    // bytes of copies from the host
    uint32_t opened;                                                  // devices, a bit each
    bool     failed;                                                  // standin_fail's call has come
} standin_counts;
extern standin_counts standin_seen;
// The n-th call from now on that can fail does, with this error; 0: none, and what a kernel broke is mended.
void                  standin_fail(uint64_t n, int error);
// The n-th kernel from now on breaks the device: every call fails from then on, and nothing is done any more.
void                  standin_fail_kernel(uint64_t n, int error);
void                  standin_seed(uint64_t seed);
// How much is queued and not done.
int                   standin_pending(void);

#endif
