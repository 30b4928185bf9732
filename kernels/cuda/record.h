// Steps that repeat (pl_ctx.repeats): launches are kept until there are PL_RECORD_LAUNCHES of them (after a wait
// PL_RECORD_FIRST, so that the device soon has work again), or until their results are needed. Then they go to the
// stream together. A sequence whose every byte (kernels, grids, arguments) has been seen before goes as a graph:
// captured when it comes the second time, launched from then on. So a graph repeats exactly what was queued, and
// callers need not declare steps. Values that vary from step to step (lengths, positions, ids, paths) lie in index
// arrays, which kernels read; a growing context changes no byte of a launch.
//
// Index arrays lie in PL_SHARED memory, on the host's side of the bus. Each such block has a twin on the device; an
// array that an op announces (pl_index) is copied there before the launches that read it, once between two waits, and
// the op gets the twin's address. This relies on the context's contract: an array is written before its op is queued,
// and not again before a wait. The emulated device aborts if that is broken.
//
// A branch (pl_ctx_fork) begins a new sequence, so that it and the work that it overlaps with go together, as one graph
// with two ways. If a sequence ends before the join, the ways meet there.
#ifndef PL_CUDA_RECORD_H
#define PL_CUDA_RECORD_H

#include "kernels/cuda/state.h"

enum { PL_RECORD_FIRST = 12, PL_RECORD_LAUNCHES = 48, PL_RECORD_BYTES = 64 << 10 };
enum { PL_RECORD_GRAPHS = 512, PL_RECORD_ARRAYS = 256 };

typedef struct pl_cuda_array {
    const void *from;
    void       *to; // its copy in the twin
    size_t      bytes;
} pl_cuda_array;

typedef struct pl_record pl_record;

// NULL: out of memory. graphs false: sequences go launch by launch.
pl_record *PL_CUDA(record_open)(bool graphs);
void       PL_CUDA(record_close)(pl_record *r);
// Sends all kept launches to the stream; on a failed context drops them.
void       PL_CUDA(record_flush)(pl_ctx *ctx);
// Call after a wait for the stream: the host may have written arrays again.
void       PL_CUDA(record_waited)(pl_record *r);
// pl_device's functions for branches.
void       PL_CUDA(fork)(pl_ctx *ctx);
void       PL_CUDA(back)(pl_ctx *ctx);
void       PL_CUDA(join)(pl_ctx *ctx);
// Reads the next of the launches kept in n bytes: false at the end. arg: [PL_RECORD_ARGS] receives pointers to l's
// arguments.
enum { PL_RECORD_ARGS = 32 };
bool PL_CUDA(record_next)(const uint8_t *bytes, size_t n, size_t *at, pl_cuda_launch *l, void *arg[PL_RECORD_ARGS]);

// Implemented by the device.
void  PL_CUDA(meet)(pl_ctx *ctx);                                    // later work waits for the branch
void  PL_CUDA(apart)(pl_ctx *ctx, void *p, size_t bytes);            // marks a branch's results, which may not be read
                                                                     // yet
bool  PL_CUDA(records)(const pl_ctx *ctx);                           // returns true if launches of this context are
                                                                     // kept
void  PL_CUDA(submit)(pl_ctx *ctx, const pl_cuda_launch *l);         // sends one launch to the stream
void *PL_CUDA(capture)(pl_ctx *ctx, const uint8_t *bytes, size_t n); // makes a graph; NULL: not possible
void  PL_CUDA(replay)(pl_ctx *ctx, void *graph);                     // sends the graph to the stream
void  PL_CUDA(drop)(void *graph);                                    // destroys it
void *PL_CUDA(twin)(const pl_ctx *ctx, const void *p, size_t bytes); // returns p's copy; NULL: p lies in no shared
                                                                     // block
void  PL_CUDA(send)(pl_ctx *ctx, const pl_cuda_array *array, int n); // copies arrays to their twins, on the stream

#endif
