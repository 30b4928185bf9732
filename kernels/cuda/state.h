// The CUDA backend's state of a context, and the launchers' interface to it. Private to kernels/cuda. Everything here
// exists twice: for the real device (PL_CUDA_SUFFIX=cuda) and for the emulated one (=emulated).
#ifndef PL_CUDA_STATE_H
#define PL_CUDA_STATE_H

#include "kernels/backend.h"

#define PL_CUDA_JOIN_2(name, suffix) pl_##name##_##suffix
#define PL_CUDA_JOIN(name, suffix) PL_CUDA_JOIN_2(name, suffix)
#define PL_CUDA(name) PL_CUDA_JOIN(name, PL_CUDA_SUFFIX) // PL_CUDA(linear_fwd) is pl_linear_fwd_cuda

#define PL_NO_FAULT (~0ull)
#define PL_NO_FAULTS                                                                                                   \
    { PL_NO_FAULT, PL_NO_FAULT, PL_NO_FAULT }
#define PL_CUDA_TICKETS 65536 // two for each block of the fused head: far more than fit on any GPU at a time

// Faults found by kernels, in device memory, read when the context is checked; the lowest index wins, so that the
// message does not depend on timing.
typedef struct pl_cuda_fault {
    unsigned long long nan;   // (row << 32 | id) of a NaN among logits
    unsigned long long id;    // (row << 32 | id) of an index out of range
    unsigned long long score; // row of a NaN among a router's scores
} pl_cuda_fault;

// A bf16 copy of the last launch's result, for a following product (rounded.cuh).
typedef struct pl_cuda_rounded {
    const float *of; // [rows, columns]; NULL: none
    const void  *copy;
    int64_t      rows, columns;
} pl_cuda_rounded;

// The unadded slices of the last product (slices.cuh): y is the sum of n slices, in order.
typedef struct pl_cuda_slices {
    float       *y;    // [rows, columns]; NULL: none
    const float *part; // scratch: [n][columns / 128, rounded up][rows][128]
    int64_t      columns;
    int          rows, n;
} pl_cuda_slices;

// The product of a library's call (kernels/cuda/timeline.h).
typedef struct pl_cuda_product {
    int64_t M, N, K; // M 0: none
    bool    add;
} pl_cuda_product;

typedef struct pl_cuda_state {
    void             *stream;
    int               sms;  // multiprocessors
    size_t            room; // shared memory available to one block, bytes
    pl_cuda_fault    *fault;
    unsigned         *ticket;  // [PL_CUDA_TICKETS], zero between ops: finished units of a pair (fused head)
    unsigned         *spare;   // the same for a branch; the two are swapped with it
    const char       *op;      // the last op queued
    pl_cuda_rounded   rounded; // dropped when another writer is queued
    pl_cuda_slices    slices;  // added when anything else is queued or waited for
    pl_cuda_product   product; // of the library call being queued
    // Steps that repeat (record.h):
    struct pl_record *record;             // NULL: this device keeps no launches
    uint64_t          captured, replayed; // number of graphs so far
    uint64_t          waits;              // number of waits for the stream so far: syncs, waits, copies to and from the
                                          // host
    // A branch (record.h):
    bool              aside;   // launches go to it
    bool              parted;  // it has launches that later ones do not wait for yet
    bool              joining; // the next launch waits for it
    size_t            forked;  // the frame's use at the fork
} pl_cuda_state;

// Bits of pl_backend_cuda_try.
enum { PL_TRY_EARLY = 1 };
extern unsigned PL_CUDA(trial);

static inline pl_cuda_state *pl_cuda_state_of(const pl_ctx *ctx) {
    return (pl_cuda_state *)ctx->state;
}

// One launch; grid and threads have been checked (may_launch).
typedef struct pl_cuda_launch {
    const void *kernel;
    void (*call)(const void *kernel, void **arg); // runs one thread of it: the emulated device's entry
    unsigned      grid[3], threads;
    size_t        room; // dynamic shared memory, bytes
    void        **arg;  // [n_args], each of size[i] bytes
    const size_t *size;
    int           n_args;
    bool          early; // may start before the previous launch is complete (pl_previous_done)
    // The way that it runs on, and its waits for the other way before (parts, meets) or after it (ends). A branch that
    // continues past the end of a sequence meets there early; `joins` is the step's own join.
    bool          aside, parts, meets, ends, joins;
} pl_cuda_launch;

// Checks a launch: false if the context has failed or the grid is empty or beyond the device's limits (then the context
// fails with one line).
bool        PL_CUDA(may_launch)(pl_ctx *ctx, const char *op, const int64_t grid[3], int threads);
// Queues the sum of the last product's slices, if any (slices.cuh): before launches (may_launch does), copies, waits
// and branches.
void        PL_CUDA(settle)(pl_ctx *ctx);
// Returns true if results are read only after a wait, so that they may be completed after their op.
bool        PL_CUDA(unseen)(const pl_ctx *ctx);
void        PL_CUDA(add_slices)(pl_ctx *ctx, const pl_cuda_slices *left); // linear.cu
// Returns the address from which a kernel reads `bytes` of an index array (ids, positions, spans, pl_kvrow): the
// device's copy (record.h) of an array that the host has written and no kernel writes, else p itself. An array that a
// kernel has written (frontier) lies in PL_LOCAL memory and has no copy.
const void *PL_CUDA(index)(pl_ctx *ctx, const void *p, size_t bytes);
// Queues a launch; a refused one sticks to the context.
void        PL_CUDA(launch)(pl_ctx *ctx, const pl_cuda_launch *l);
// Returns the stream, for a library that queues on it itself, after sending kept launches (record.h). Call queued
// afterwards, as after a launch.
void       *PL_CUDA(stream)(pl_ctx *ctx);
void        PL_CUDA(queued)(pl_ctx *ctx);

#endif
