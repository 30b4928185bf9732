#include "kernels/base/hash.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#define XXH_STATIC_LINKING_ONLY // for a state on the stack
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

// The kernel's own draw for this process is taken where it lends no more randomness. Odd, so never 0, which stands for
// "not yet drawn".
static uint64_t draw_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        memcpy(&seed, (const void *)getauxval(AT_RANDOM), sizeof seed);
    return seed | 1;
}

uint64_t pl_hash_seed(void) {
    static _Atomic uint64_t seed;
    uint64_t                now = atomic_load_explicit(&seed, memory_order_relaxed), none = 0;
    if (now) return now;
    now = draw_seed();
    return atomic_compare_exchange_strong(&seed, &none, now) ? now : none; // another thread was first
}

uint64_t pl_hash_key(const void *data, size_t n) {
    return XXH3_64bits_withSeed(data, n, pl_hash_seed());
}

uint64_t pl_hash_keys(const void *a, size_t na, const void *b, size_t nb) {
    char         both[256];
    XXH3_state_t s;
    if (na <= sizeof both && nb <= sizeof both - na) {
        memcpy(both, a, na);
        memcpy(both + na, b, nb);
        return pl_hash_key(both, na + nb);
    }
    XXH3_INITSTATE(&s);
    XXH3_64bits_reset_withSeed(&s, pl_hash_seed());
    XXH3_64bits_update(&s, a, na);
    XXH3_64bits_update(&s, b, nb);
    return XXH3_64bits_digest(&s);
}
