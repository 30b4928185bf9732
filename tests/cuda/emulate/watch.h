// What looks on while kernels run on the emulated device (tests/cuda/race.cc): told of everything that orders memory.
// One at a time, set before anything runs; NULL: nobody does.
#ifndef PL_CUDA_WATCH_H
#define PL_CUDA_WATCH_H

#include "kernels/cuda/state.h"

enum pl_emu_way { PL_EMU_BLOCK, PL_EMU_WARP }; // whom a barrier holds

struct pl_emu_watcher {
    // In order of queueing. The number that comes back is the launch's from here on. q NULL: done at once.
    uint64_t (*queued)(const void *q, const pl_cuda_launch *l);
    void (*copied)(const void *q); // a copy or fill: all before it are done
    void (*met)(const void *q);    // the branch ends
    void (*waited)(const void *q);
    // A launch starts and ends; a block does, on the calling thread: its dynamic shared memory and its threads' stacks.
    void (*launch)(uint64_t number, const pl_cuda_launch *l);
    void (*launched)(void);
    void (*block)(uint32_t number, int threads, const void *room, size_t room_bytes, const void *stacks,
                  size_t stack_bytes);
    // Of the thread that runs (pl_emu.thread.x): a barrier has opened, after its last thread came.
    void (*barrier)(pl_emu_way way);
    void (*fence)(void);
    void (*atomic)(void *p, size_t bytes);
    void (*previous_done)(void);
    void (*copy_begins)(void *to, const void *from, size_t bytes, bool there);
    void (*copy_ends)(void *to, size_t bytes);
};
extern const pl_emu_watcher *pl_emu_watch;

#endif
