// Stands in for xxhash.h where that library is missing: another 64-bit hash (FNV-1a), which serves within one process.
// What is stored or compared between machines needs the library, and nothing of that is built with this.
#ifndef PL_STANDIN_XXHASH_H
#define PL_STANDIN_XXHASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t XXH64(const void *data, size_t n, uint64_t seed) {
    const unsigned char *p = data;
    uint64_t             h = 0xcbf29ce484222325u ^ seed;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

#endif
