// What kernels would take on a GPU that is not here: the CUDA backend's own launches, counted on the emulated device,
// and a model that turns counts into seconds.
//
//   the recorder  is a backend of its own ("counted"): launchers, table and kernels of kernels/cuda, compiled once more
//                 with a call at each access of memory (-fsanitize=thread, whose calls come to count.cc). Its memory is
//                 mapped and never filled: reads give zeros, copies do nothing, so that a model of any size fits.
//   once each     Launches that differ in addresses alone (the layers of a model) are one: it is run once, and counts
//                 for all. Of its blocks first 0, then those halfway between those that ran, until
//                 PL_PREDICT_EVENTS accesses were seen; the same command samples the same blocks. Values are not
//                 those of the launches before: they are zeros, so what depends on values (a support, ties among
//                 logits) is not as it would be.
//   the model     knows counts and the device's constants (constants.def), and no kernel by name.
//
// The model of a block: each warp has a clock in cycles. Requests are the lanes' accesses in the order of the code,
// those of one place in the code together.
//   load, global  issues in ceil(sectors / 4) cycles and is there a latency later; loads are waited for together (a
//                 round) until a global store, barrier, shuffle or tensor core's product needs them, or until one place
//                 has been loaded UNROLL times (what a compiler batches of a loop). Latency: the memory's for
//                 blocks of memory larger than the L2, else the L2's
//   cp.async      issues likewise and is waited for where the code waits
//   shared        wavefronts: the most words that one bank has to give, a quarter or half of the warp at a time for
//                 accesses of 16 and 8 bytes; a latency before they are used
//   barrier       the slowest of the block, and a latency
// The model of a launch of B blocks, R resident on a multiprocessor:
//   seconds = gap + max(path, bytes / bandwidth of memory + a latency, bytes / bandwidth of the L2,
//                       wavefronts / clock, products / rate)
//   path is the longest block's where all are resident, else the mean's times B / (multiprocessors x R).
// Bytes from memory are distinct sectors of large blocks: what samples have in common counts once.
// Not modelled: arithmetic outside tensor cores, registers, instruction fetch, branches beside each other, early
// launches. Of a product that blocks share, the last block's sum is counted only where all blocks were sampled.
#ifndef PL_CUDA_PREDICT_H
#define PL_CUDA_PREDICT_H

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_PREDICT_EVENTS 3000000 // accesses of single threads, of one launch
#define PL_PREDICT_KERNELS 512    // different launches

// What was counted of the blocks that ran.
typedef struct pl_counted {
    int64_t sampled;                        // blocks
    double  requests, sectors;              // of global memory by warps
    double  shared, wavefronts;             // requests of shared memory
    double  far, distinct, near;            // bytes from memory: each block's own; together; bytes from the L2
    double  most_far;                       // bytes of one block from memory
    double  products;                       // of tensor cores: m16n8k16
    double  rounds, most_rounds;            // rounds of dependent loads of a block's slowest warp
    double  path[2], most_path[2], idle[2]; // seconds, by the model of a block: sum, longest, nothing in flight
} pl_counted;

enum { PL_CENTRAL, PL_PESSIMISTIC };

typedef struct pl_predicted_kernel {
    const char *op; // of the launch, for people
    uint64_t    key;
    int64_t     launches, blocks;
    int         threads;
    size_t      room;
    pl_counted  c;
    double      seconds[2]; // of one launch, the gap before it included
    const char *limiter;    // central: "memory", "L2", "rounds", "shared memory", "tensor cores", "launch"
    double      bytes;      // of one launch from and to memory
} pl_predicted_kernel;

typedef struct pl_prediction {
    pl_predicted_kernel k[PL_PREDICT_KERNELS];
    int                 n;
    int64_t             left; // launches beyond the table
    double              seconds[2];
} pl_prediction;

// One of the constants: seconds, bytes per second ... as constants.def has them.
typedef struct pl_gpu_constant {
    const char *name, *unit;
    double      central, low, high;
    bool        less_is_worse;
    const char *source;
} pl_gpu_constant;
extern const pl_gpu_constant pl_gpu_constants[];
extern const int             pl_gpu_constants_n;
double                       pl_gpu(int constant, int how); // PL_GPU_..., PL_CENTRAL or PL_PESSIMISTIC

enum {
#define X(NAME, unit, central, low, high, less_is_worse, source) PL_GPU_##NAME,
#include "kernels/cuda/predict/constants.def"
#undef X
    PL_GPU_CONSTANTS
};

// NULL: this build has no counted kernels (a sanitizer's, or a compiler's that is not GCC).
const pl_backend *pl_backend_counted(void);
// Launches of the counted backend from here on are counted into p (zeroed first), one recorder at a time; end gives
// their seconds and stops.
void              pl_predict_begin(pl_prediction *p);
void              pl_predict_end(pl_prediction *p);
// The model of a launch, alone: sets seconds, limiter and bytes.
void              pl_predict_kernel(pl_predicted_kernel *k);

#ifdef __cplusplus
}
#endif

#endif
