// Stands in for xxhash.h where that library is missing: another 64-bit hash (FNV-1a), which serves within one process.
// What is stored or compared between machines needs the library, and nothing of that is built with this.
#ifndef PL_STANDIN_XXHASH_H
#define PL_STANDIN_XXHASH_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t standin_hash(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static inline uint64_t XXH64(const void *data, size_t n, uint64_t seed) {
    return standin_hash(0xcbf29ce484222325u ^ seed, data, n);
}

// Pieces one after the other.
typedef struct XXH64_state_t {
    uint64_t h;
} XXH64_state_t;

static inline XXH64_state_t *XXH64_createState(void) {
    return calloc(1, sizeof(XXH64_state_t));
}

static inline void XXH64_freeState(XXH64_state_t *s) {
    free(s);
}

static inline void XXH64_reset(XXH64_state_t *s, uint64_t seed) {
    s->h = XXH64(NULL, 0, seed);
}

static inline void XXH64_update(XXH64_state_t *s, const void *data, size_t n) {
    s->h = standin_hash(s->h, data, n);
}

static inline uint64_t XXH64_digest(const XXH64_state_t *s) {
    return s->h;
}

#define XXH3_state_t XXH64_state_t
#define XXH3_64bits_withSeed XXH64
#define XXH3_64bits_reset_withSeed XXH64_reset
#define XXH3_64bits_update XXH64_update
#define XXH3_64bits_digest XXH64_digest
#define XXH3_INITSTATE(s) ((void)(s))

#endif
