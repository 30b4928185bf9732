#include "kernels/base/hash.h"
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

uint64_t pl_hash(const void *data, size_t n) {
    return XXH64(data, n, 0);
}

// The value so far is the seed of the next piece; pieces are part of the value ("ab"+"c" differs from "a"+"bc").
uint64_t pl_hash_more(uint64_t h, const void *data, size_t n) {
    return XXH64(data, n, h);
}

pl_hasher *pl_hash_begin(void) {
    XXH64_state_t *s = XXH64_createState();
    if (s) XXH64_reset(s, 0);
    return (pl_hasher *)s;
}

void pl_hash_feed(pl_hasher *h, const void *data, size_t n) {
    if (n > 0) XXH64_update((XXH64_state_t *)h, data, n);
}

uint64_t pl_hash_end(pl_hasher *h) {
    uint64_t sum = h ? XXH64_digest((XXH64_state_t *)h) : 0;
    XXH64_freeState((XXH64_state_t *)h);
    return sum;
}

void pl_hash_hex(char out[17], uint64_t h) {
    snprintf(out, 17, "%016" PRIx64, h);
}
