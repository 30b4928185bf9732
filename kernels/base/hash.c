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

void pl_hash_hex(char out[17], uint64_t h) {
    snprintf(out, 17, "%016" PRIx64, h);
}
