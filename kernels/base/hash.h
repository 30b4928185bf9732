// 64-bit content hashes (xxHash64 with seed 0) for checksums, fingerprints and recipe hashes. Not cryptographic.
#ifndef PL_HASH_H
#define PL_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t pl_hash(const void *data, size_t n);
uint64_t pl_hash_more(uint64_t h, const void *data, size_t n); // chained: order matters
void     pl_hash_hex(char out[17], uint64_t h);

#endif
