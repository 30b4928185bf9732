// An NCCL that is none, for tests of kernels/cuda/lib/comm_nccl.c where there is no GPU: a library that it loads, over
// memory that processes share, whose work stands on the streams of the runtime that is none (tests/cuda/standin.h).
// Calls end as late, pieces go in as free an order and in parts of any size as NCCL allows, drawn from a seed; what NCCL
// leaves undefined stops with a line: a call while the last one is in progress, sends and receives outside a group or of
// other sizes, memory that is not the device's, a communicator destroyed after an error or with work under way.
#ifndef PL_TEST_STANDIN_NCCL_H
#define PL_TEST_STANDIN_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What can fail, or be died in: the calls, what ncclCommGetAsyncError says, a part of a piece under way.
#define STANDIN_NCCL_CALLS(X)                                                                                          \
    X(id) X(init) X(ask) X(state) X(group_start) X(group_end) X(send) X(recv) X(part) X(destroy)
typedef enum standin_nccl_call {
#define X(name) STANDIN_NCCL_##name,
    STANDIN_NCCL_CALLS(X)
#undef X
        STANDIN_NCCL_CALL_COUNT
} standin_nccl_call;

// Lies in the program; the library reads and writes it.
typedef struct standin_nccl_plan {
    uint64_t seed;
    int      call, n; // the n-th such call of this process fails with this error; n 0: none
    int      error;   // an ncclResult_t; < 0: the process dies in it
    bool     fell;    // it came to that
    int      comms;   // that have neither been destroyed nor aborted
    uint64_t parts;   // of pieces that went or came
} standin_nccl_plan;
extern standin_nccl_plan standin_nccl;

// Of tests/cuda/standin_cuda.cc. Work of a library on a stream: `goes` is asked again and again and says whether it is
// done, then `end` is called. Nothing behind it on the stream begins before.
struct CUstream_st;
void standin_queue(struct CUstream_st *s, bool (*goes)(void *arg), void (*end)(void *arg), void *arg);
// Stops unless [p, p + n) lies in one block of the device.
void standin_of_device(const void *p, size_t n);

#endif
