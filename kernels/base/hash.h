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

// Where a key belongs in a table (XXH3), by a seed that is drawn once a process: names and texts of a foreign file
// cannot have been chosen to collide. It differs from run to run, so nothing that is kept, sent or printed may depend
// on it.
uint64_t pl_hash_key(const void *data, size_t n);
uint64_t pl_hash_keys(const void *a, size_t na, const void *b, size_t nb); // of a and b behind each other
uint64_t pl_hash_seed(void);                                               // for tables that mix numbers themselves

#endif
