// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
// A draw is a pure function of (seed, stream, position, lane): the same on every thread, rank and device.
#ifndef PL_RNG_H
#define PL_RNG_H

#include <stdint.h>

// Separate purposes never share noise: a draft and the test that accepts it, made from one number, are not independent,
// and the emitted distribution is no longer the target's.
typedef enum pl_stream {
    PL_STREAM_INIT,    // weight initialisation
    PL_STREAM_SHUFFLE, // order of data
    PL_STREAM_SAMPLE,  // the target's own draws, keyed by position of the emitted token
    PL_STREAM_DRAFT,
    PL_STREAM_ACCEPT,
    PL_STREAM_RESIDUAL,
    PL_STREAM_NOISE,
    PL_STREAM_TEST,
    PL_STREAM_ANCHOR, // which positions blocks are trained from
    PL_STREAM_WINDOW, // order of data within a window
    PL_STREAM_OWN,    // which prompts a drafter answers itself
} pl_stream;

typedef struct pl_rng {
    uint64_t seed;
    uint64_t stream; // pl_stream | (sub-key << 8): e.g. the session or the tensor
} pl_rng;

pl_rng   pl_rng_make(uint64_t seed, pl_stream stream, uint64_t subkey);
void     pl_philox(uint32_t out[4], pl_rng r, uint64_t position, uint32_t lane_block);
uint64_t pl_rng_u64(pl_rng r, uint64_t position);
double   pl_rng_uniform(pl_rng r, uint64_t position);           // [0, 1), 53 bits
float    pl_rng_normal(pl_rng r, uint64_t position);            // Box-Muller, mean 0, variance 1
uint64_t pl_rng_below(pl_rng r, uint64_t position, uint64_t n); // [0, n), unbiased to 2^-64
// p[0..n): the permutation of (seed, stream): Fisher-Yates.
void     pl_rng_permute(pl_rng r, int64_t *p, int64_t n);

#endif
