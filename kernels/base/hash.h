// 64-bit content hashes (xxHash64 with seed 0) for checksums, fingerprints and recipe hashes. Not cryptographic.
#ifndef PL_HASH_H
#define PL_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t                 pl_hash(const void *data, size_t n);
uint64_t                 pl_hash_more(uint64_t h, const void *data, size_t n); // chained: order matters
// pl_hash of what is fed, piece by piece. begin: NULL when out of memory; end frees it (NULL: 0).
typedef struct pl_hasher pl_hasher;
pl_hasher               *pl_hash_begin(void);
void                     pl_hash_feed(pl_hasher *h, const void *data, size_t n);
uint64_t                 pl_hash_end(pl_hasher *h);
void                     pl_hash_hex(char out[17], uint64_t h);

#endif
