// What kernels would take on a GPU that is not here: the CUDA backend's own launches, counted on the emulated device,
// and a model that turns counts into seconds.
//
//   the recorder  is a backend of its own ("counted"): launchers, table and kernels of kernels/cuda, compiled once more
//                 with a call at each access of memory (-fsanitize=thread, whose calls come to count.cc). Its memory is
//                 mapped and never filled: reads give zeros, copies do nothing, so that a model of any size fits.
//   once each     Launches that differ in addresses alone (the layers of a model) are one: it is run once, and counts
//                 for all. All of its blocks are skimmed (which sectors of memory, how many accesses), unless they are
//                 more than PL_PREDICT_BLOCKS, or PL_PREDICT_SKIMMED accesses: then 16 are, each for those from it to
//                 the next. Some are timed, until PL_PREDICT_EVENTS accesses were seen: the one that does most, the
//                 one that does least, those halfway between; each other counts as the timed one that is nearest to
//                 it. The same command times the same blocks. Values are not those of the launches before: they are
//                 zeros, so what depends on values (a support, ties among logits) is not as it would be.
//   products      that go to cuBLASLt on a GPU (lib/lt.h) are described, not run: lt_counted.c
//   the model     knows counts and the device's constants (constants.def), and no kernel by name.
//
// The model of a block: each warp has a clock in cycles. Requests are the lanes' accesses in the order of the code,
// those of one place in the code together. A vector's load or store (float4) is one access of all its bytes, as it is
// one instruction on a GPU: emulate.h sees to that, since a compiler that takes structs apart makes four calls of one
// such copy, which were counted as four requests of as many sectors. Four words that the code asks for by themselves
// stay four (tests/cuda/counted.cc).
//   load, global  issues in ceil(sectors / 4) cycles and is there a latency later; loads are waited for together (a
//                 round) until a global store, barrier, shuffle or tensor core's product needs them, or until one place
//                 has been loaded UNROLL times (what a compiler batches of a loop). Latency: the memory's for
//                 blocks of memory larger than the L2, else the L2's
//   cp.async      issues likewise and is waited for where the code waits; memory gives SPLIT of its rate where eight
//                 lanes take other than whole lines of 128 bytes to whole lines of shared memory
//   fence         a round trip to the L2; at its pessimistic end it waits for all copies under way too
//   shared        wavefronts: the most words that one bank has to give, a quarter or half of the warp at a time for
//                 accesses of 16 and 8 bytes; a latency before they are used
//   barrier       the slowest of the block, and a latency
// The model of a launch of B blocks, R resident on a multiprocessor:
//   seconds = gap + max(path, lead + ramp + bytes / rate + trail, sectors / bandwidth of the L2, wavefronts / clock,
//                       products / rate)
//   path is the longest block's where all are resident, else at least all blocks' over multiprocessors x R; lead and
//   trail are what a block does before it first asks memory for anything, and after the last of it has come; ramp is a
//   latency, and where there are bytes enough RAMP, in which memory's rate is not reached; rate is that of reads, and a
//   copy's for what is written and as much of what is read.
// Bytes are distinct sectors of blocks larger than the L2: within a launch nothing comes twice.
// Launches that may start early (state.h) have a second time: a shorter gap, and of what they ask of memory before they
// wait for the launch before them so much is hidden as memory had nothing to do in that one, on multiprocessors that
// have room for both.
// In this second time a branch (state.h) runs beside the launches between its fork and its join, while they leave room:
// while neither the one that runs nor the next, if that starts early, fills all multiprocessors. What of the branch
// finds no time there comes before the launch that waits for it; what does still takes memory's time for its bytes.
// Neither the branch's first launch nor the one that waits for it starts early. In the first time ("in turn") a branch
// is launches like any other.
// Not modelled: arithmetic outside tensor cores, registers, instruction fetch.
#ifndef PL_CUDA_PREDICT_H
#define PL_CUDA_PREDICT_H

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_PREDICT_EVENTS 3000000 // accesses of single threads that are timed, of one launch
#define PL_PREDICT_SKIMMED 4e8    // and that are skimmed
#define PL_PREDICT_BLOCKS 4096    // of a launch that is skimmed whole
#define PL_PREDICT_KERNELS 512    // different launches
#define PL_PREDICT_LAUNCHES 16384

// What was counted of a launch: of all its blocks, those that were not timed as their nearest were.
typedef struct pl_counted {
    int64_t seen, sampled;                  // blocks that were skimmed, timed
    double  requests, sectors;              // of global memory by warps
    double  shared, wavefronts;             // requests of shared memory
    double  far, written, ahead;            // bytes from and to memory; of these written; asked for before it waits
    double  copied, split;                  // bytes of copies of 16 from memory; of these in parts of lines
    double  products;                       // of tensor cores: m16n8k16
    double  warpgroup, exponentials;        // flops by wgmma, exponentials: of launches that are described, not counted
    double  most_rounds;                    // rounds of dependent loads of the slowest warp
    double  path[2], most_path[2], idle[2]; // seconds of a block: sum, longest, nothing in flight (sum)
    double  lead[2], trail[2];              // seconds: before memory is first asked, after the last has come
    bool    led;
} pl_counted;

enum { PL_CENTRAL, PL_PESSIMISTIC };

typedef struct pl_predicted_kernel {
    const char *op; // of the launch, for people
    uint64_t    key;
    int64_t     launches, blocks;
    int         threads;
    size_t      room;
    bool        early; // may start early
    pl_counted  c;
    double      seconds[2];       // of one launch by itself, the gap before it included
    double      early_seconds[2]; // of all its launches where they start early
    double      memory[2];        // of these, memory is busy
    const char *limiter;          // central: "memory", "L2", "rounds", "shared memory", "tensor cores", "launch" ...
    double      bytes;            // of one launch from and to memory
} pl_predicted_kernel;

// A launch's: on the branch, and the first that waits for it.
typedef enum pl_predicted_way { PL_MAIN, PL_ASIDE, PL_MEETS } pl_predicted_way;

typedef struct pl_prediction {
    pl_predicted_kernel k[PL_PREDICT_KERNELS];
    int                 n;
    int64_t             left;                       // launches beyond the tables
    uint16_t            order[PL_PREDICT_LAUNCHES]; // which kernel each launch is
    uint8_t             way[PL_PREDICT_LAUNCHES];   // pl_predicted_way
    int                 launched;
    double              seconds[2], early_seconds[2]; // one after another; each as early as it may, branches beside
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
// The model of a launch, alone: sets seconds, memory, limiter and bytes.
void              pl_predict_kernel(pl_predicted_kernel *k);
// That of launches in order, out of their kernels' (and of these early_seconds).
void              pl_predict_sequence(pl_prediction *p);

#ifdef __cplusplus
}
#endif

#endif
