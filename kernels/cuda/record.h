// Steps that repeat (pl_ctx.repeats): launches are kept until PL_RECORD_LAUNCHES of them wait (after a wait
// PL_RECORD_FIRST, so that the device soon has work again), or something needs them done. Then they go to the stream
// together. A sequence whose every byte (kernels, grids, arguments) has been seen before goes as a graph: captured when
// it comes the second time, launched from then on. So a graph is never what was not asked for, and nothing above has to
// say what a step is. What varies from step to step (lengths, positions, ids, paths) lies in index arrays, which
// kernels read; a context that grows changes no byte of a launch.
//
// Index arrays lie in PL_SHARED memory, on the host's side of the bus. Each such block has a twin on the device; an
// array that an op announces (pl_index) is sent there before the launches that read it go, once between two waits, and
// the op is given the twin's address. This needs what the context's contract says anyway: an array is written before
// its op is queued, and not again before a wait. The emulated device stops where that is broken.
//
// A branch (pl_ctx_fork) begins a sequence of its own, so that it and what runs beside it go together, as one graph
// with two ways. Where a sequence ends before the join, the ways meet there.
#ifndef PL_CUDA_RECORD_H
#define PL_CUDA_RECORD_H

#include "kernels/cuda/state.h"

enum { PL_RECORD_FIRST = 12, PL_RECORD_LAUNCHES = 48, PL_RECORD_BYTES = 64 << 10 };
enum { PL_RECORD_GRAPHS = 512, PL_RECORD_ARRAYS = 256 };

typedef struct pl_cuda_array {
    const void *from;
    void       *to; // its place in the twin
    size_t      bytes;
} pl_cuda_array;

typedef struct pl_record pl_record;

// NULL: out of memory. graphs false: sequences go launch by launch.
pl_record *PL_CUDA(record_open)(bool graphs);
void       PL_CUDA(record_close)(pl_record *r);
// All that waits goes to the stream; on a failed context it is dropped.
void       PL_CUDA(record_flush)(pl_ctx *ctx);
// The stream has been waited for: the host may have written again.
void       PL_CUDA(record_waited)(pl_record *r);
// What pl_device has for branches.
void       PL_CUDA(fork)(pl_ctx *ctx);
void       PL_CUDA(back)(pl_ctx *ctx);
void       PL_CUDA(join)(pl_ctx *ctx);
// The launches kept in n bytes, one after another: false at the end. arg: [PL_RECORD_ARGS], where l's arguments are.
enum { PL_RECORD_ARGS = 32 };
bool PL_CUDA(record_next)(const uint8_t *bytes, size_t n, size_t *at, pl_cuda_launch *l, void *arg[PL_RECORD_ARGS]);

// What the device at hand does for them.
void  PL_CUDA(meet)(pl_ctx *ctx);                                    // what is queued from here on waits for the branch
void  PL_CUDA(apart)(pl_ctx *ctx, void *p, size_t bytes);            // a branch's results: nobody may have them yet
bool  PL_CUDA(records)(const pl_ctx *ctx);                           // whether launches of this context are kept
void  PL_CUDA(submit)(pl_ctx *ctx, const pl_cuda_launch *l);         // one launch to the stream
void *PL_CUDA(capture)(pl_ctx *ctx, const uint8_t *bytes, size_t n); // a graph; NULL: it cannot
void  PL_CUDA(replay)(pl_ctx *ctx, void *graph);                     // the graph to the stream
void  PL_CUDA(drop)(void *graph);                                    // forgets it
void *PL_CUDA(twin)(const pl_ctx *ctx, const void *p, size_t bytes); // NULL: p lies in no shared block
void  PL_CUDA(send)(pl_ctx *ctx, const pl_cuda_array *array, int n); // arrays to their twins, by the stream

#endif
