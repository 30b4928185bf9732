// What the parts of the emulated device share: blocks of fibers (emulate.cc), the order they run in (schedule.cc).
#ifndef PL_CUDA_MACHINE_H
#define PL_CUDA_MACHINE_H

#include "tests/cuda/emulate/emulate.h"
#include "tests/cuda/emulate/watch.h"

// Drawn for what a GPU is free to do. One sequence for each launching thread.
unsigned pl_emu_draw(unsigned below);
bool     pl_emu_shuffles(); // whether there is a seed: orders are drawn
// All blocks of a launch: run_block(arg, i) for each, on threads that take turns where orders are drawn.
void     pl_emu_blocks(unsigned blocks, void (*run_block)(void *arg, unsigned block), void *arg);
// A place where another block may go on (where several are alive).
void     pl_emu_may_switch();
// Fills the kernel's static shared memory with 0xff on this thread.
void     pl_emu_spoil_static(const void *kernel);

#endif
