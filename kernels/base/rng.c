#include "kernels/base/rng.h"
#include "kernels/base/check.h"
#include <math.h>

// Where the pieces of a draw go (every backend must agree):
//   key     = seed lo, seed hi
//   counter = position lo, position hi, stream lo, stream hi ^ rotate(lane_block, 16)
// The rotation keeps lanes below 2^16 and sub-keys below 2^40 apart: no two of those draws share a counter.

pl_rng pl_rng_make(uint64_t seed, pl_stream stream, uint64_t subkey) {
    PL_CHECK((unsigned)stream < 256, "stream %d", (int)stream);
    // The upper byte of the sub-key is shifted out: for a hash, 56 bits are enough.
    return (pl_rng){.seed = seed, .stream = (uint64_t)stream | subkey << 8};
}

void pl_philox(uint32_t out[4], pl_rng r, uint64_t position, uint32_t lane_block) {
    uint32_t k0 = (uint32_t)r.seed, k1 = (uint32_t)(r.seed >> 32);
    uint32_t c0 = (uint32_t)position, c1 = (uint32_t)(position >> 32);
    uint32_t c2 = (uint32_t)r.stream, c3 = (uint32_t)(r.stream >> 32) ^ (lane_block << 16 | lane_block >> 16);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static uint64_t join(uint32_t lo, uint32_t hi) {
    return (uint64_t)hi << 32 | lo;
}

uint64_t pl_rng_u64(pl_rng r, uint64_t position) {
    uint32_t x[4];
    pl_philox(x, r, position, 0);
    return join(x[0], x[1]);
}

double pl_rng_uniform(pl_rng r, uint64_t position) {
    return (double)(pl_rng_u64(r, position) >> 11) * 0x1p-53;
}

float pl_rng_normal(pl_rng r, uint64_t position) {
    uint32_t x[4];
    pl_philox(x, r, position, 0);
    double u = (double)((join(x[0], x[1]) >> 11) + 1) * 0x1p-53; // (0, 1]: its logarithm is finite
    double v = (double)(join(x[2], x[3]) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586477 * v));
}

__extension__ typedef unsigned __int128 wide;

uint64_t pl_rng_below(pl_rng r, uint64_t position, uint64_t n) {
    PL_CHECK(n > 0, "pl_rng_below of nothing (position %llu)", (unsigned long long)position);
    return (uint64_t)((wide)pl_rng_u64(r, position) * n >> 64);
}

void pl_rng_permute(pl_rng r, int64_t *p, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        p[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)pl_rng_below(r, (uint64_t)i, (uint64_t)i + 1), t = p[i];
        p[i] = p[j];
        p[j] = t;
    }
}
