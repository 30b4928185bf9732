// The CUDA backend's own kernels and launchers on an emulated device (emulate.h), as two backends.
#ifndef PL_CUDA_DEVICE_EMULATED_H
#define PL_CUDA_DEVICE_EMULATED_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/backend.h"

// "cuda-emulated": memory of the host, everything done when it returns. For the ops' own tests, which look into
// tensors.
const pl_backend *pl_backend_cuda_emulated(void);

// "emulated": as strict as a GPU, for everything above the ops.
//   queue     launches and copies within the device are kept and run when the context waits, in order: an index array
//             that is written again too early, or a result read too early, is seen as wrong numbers
//   branches  their launches are kept until the launches behind the join are queued; the frame that they fill holds NaN
//             until then
//   walls     PL_LOCAL blocks are mapped without access except while queued work runs: a host that reads a tensor
//             stops at once
//   pointers  each pointer that a kernel is given, by itself or in a struct, must lie in a block of the device: host
//             memory that a GPU could not reach aborts with the op's name
const pl_backend *pl_backend_emulated(void);

// What it does where a GPU is free to choose, or is known to differ. Changed between launches alone; at first as the
// environment says.
typedef struct pl_emu_manner {
    // 0: blocks and threads in order, asynchronous copies made when they are waited for. Else the orders of blocks and
    // threads are drawn from it, three blocks are alive at once and take turns at barriers, fences and atomics, copies
    // are made at once or when they are waited for, and static shared memory, too, starts as NaN.
    // PACELINE_EMULATED_SEED.
    uint64_t    seed;
    int         sm; // whose tensor cores' sums: 80 or 90 (mma.h). PACELINE_EMULATED_SM
    // "FILE:LINE" of a barrier, fence, copy wait or pl_previous_done that does nothing, for proofs that it is missed
    // (tests/cuda/mutate.sh). PACELINE_EMULATED_DROP; the environment's alone.
    const char *drop;
    // A file that is told at the end which of these places were passed, FILE:LINE a line. PACELINE_EMULATED_PLACES; the
    // environment's alone.
    const char *places;
} pl_emu_manner;
extern pl_emu_manner pl_emu_behave;

#ifdef __cplusplus
}
#endif

#endif
