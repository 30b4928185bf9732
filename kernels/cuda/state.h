// What the CUDA backend keeps for a context, and how launchers speak to it. Private to kernels/cuda. Everything here
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
#define PL_CUDA_TICKETS 65536 // two for each block of the fused head: far more than any GPU has room for at a time

// Faults that kernels find. Device memory, read when the context is asked; the lowest place wins, so that the message
// does not depend on timing.
typedef struct pl_cuda_fault {
    unsigned long long nan;   // (row << 32 | id) of a NaN among logits
    unsigned long long id;    // (row << 32 | id) of an index out of range
    unsigned long long score; // row of a NaN among a router's scores
} pl_cuda_fault;

// The values of the last launch's result in bf16, for a product that comes next (rounded.cuh).
typedef struct pl_cuda_rounded {
    const float *of; // [rows, columns]; NULL: none
    const void  *copy;
    int64_t      rows, columns;
} pl_cuda_rounded;

// What the last product left unadded (slices.cuh): y is the sum of n slices, in order.
typedef struct pl_cuda_slices {
    float       *y;    // [rows, columns]; NULL: none
    const float *part; // scratch: [n][columns / 128, rounded up][rows][128]
    int64_t      columns;
    int          rows, n;
} pl_cuda_slices;

// The product that a library's call computes (kernels/cuda/timeline.h).
typedef struct pl_cuda_product {
    int64_t M, N, K; // M 0: none
    bool    add;
} pl_cuda_product;

typedef struct pl_cuda_state {
    void             *stream;
    int               sms;  // multiprocessors
    size_t            room; // shared memory that one block may have, bytes
    pl_cuda_fault    *fault;
    unsigned         *ticket;  // [PL_CUDA_TICKETS], zero between ops: units of a pair that are there (fused head)
    unsigned         *spare;   // the same for a branch; the two change places with it
    const char       *op;      // the last one queued
    pl_cuda_rounded   rounded; // forgotten when anything else is queued that writes
    pl_cuda_slices    slices;  // added when anything else is queued or waited for
    pl_cuda_product   product; // of the library's call that is being queued
    // Steps that repeat (record.h):
    struct pl_record *record;             // NULL: this device keeps no launches
    uint64_t          captured, replayed; // graphs, so far
    uint64_t          waits;              // for the stream, so far: syncs, waits, copies to and from the host
    // A branch (record.h):
    bool              aside;   // launches go to it
    bool              parted;  // it has some that those after them do not wait for yet
    bool              joining; // the next launch does
    size_t            forked;  // the frame's use when it began
} pl_cuda_state;

// Bits of pl_backend_cuda_try.
enum { PL_TRY_IDS = 1, PL_TRY_NO_UPLOAD = 2, PL_TRY_EARLY = 4 };
extern unsigned PL_CUDA(trial);

static inline pl_cuda_state *pl_cuda_state_of(const pl_ctx *ctx) {
    return (pl_cuda_state *)ctx->state;
}

// One launch as launchers describe it; grid and threads have been checked (may_launch).
typedef struct pl_cuda_launch {
    const void *kernel;
    void (*call)(const void *kernel, void **arg); // one thread of it: the emulated device's way in
    unsigned      grid[3], threads;
    size_t        room; // dynamic shared memory, bytes
    void        **arg;  // [n_args], each of size[i] bytes
    const size_t *size;
    int           n_args;
    bool          early; // may start before the launch before it is done (pl_previous_done)
    // On which way it goes, and which waits for the other before (parts, meets) or after it (ends). A branch that goes
    // on behind the end of what is sent together meets there early; `joins` is where its step asked for it.
    bool          aside, parts, meets, ends, joins;
} pl_cuda_launch;

// Before a launch: false where the context has failed or the grid is empty or beyond the device's limits (then it fails
// with one line).
bool        PL_CUDA(may_launch)(pl_ctx *ctx, const char *op, const int64_t grid[3], int threads);
// Queues the sum of what the last product left, if it did (slices.cuh): before launches (may_launch does), copies,
// waits and branches.
void        PL_CUDA(settle)(pl_ctx *ctx);
// Whether nobody looks at results before waiting for them, so that they may come later than their op.
bool        PL_CUDA(unseen)(const pl_ctx *ctx);
void        PL_CUDA(add_slices)(pl_ctx *ctx, const pl_cuda_slices *left); // linear.cu
// Where a kernel is to read `bytes` of an index array (ids, positions, spans, pl_kvrow): of one that the host has
// written and nothing on the device writes the device's own copy where there is one (record.h), else p itself. An array
// that a kernel has written (frontier) lies in PL_LOCAL memory and has no copy: it is read where it lies.
const void *PL_CUDA(index)(pl_ctx *ctx, const void *p, size_t bytes);
// Queues it; a launch that is refused sticks to the context.
void        PL_CUDA(launch)(pl_ctx *ctx, const pl_cuda_launch *l);
// The stream, for a library that queues on it itself: what is kept (record.h) has gone there. Then queued, as after a
// launch.
void       *PL_CUDA(stream)(pl_ctx *ctx);
void        PL_CUDA(queued)(pl_ctx *ctx);

#endif
