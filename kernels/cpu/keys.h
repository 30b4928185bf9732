// The k best of a long stream of (value, id), for k too large for an ordered list: values and ids in 64-bit keys whose
// order is the tie rule (larger value first, then lower id), gathered in a buffer and cut back to about k when 2k are
// in it. Ids come in ascending order and stay in it, so nothing is sorted until an order by value is asked for.
#ifndef PL_CPU_KEYS_H
#define PL_CPU_KEYS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PL_KEYS_SPARE 64 // keys beyond 2k that a buffer has room for: as many as are added at once

typedef struct pl_keys {
    uint64_t *key; // [2k + PL_KEYS_SPARE]
    int       n, k;
    float     least; // at least k that are held reach it: only larger values can enter
    bool      full;
} pl_keys;

// -0 counts as 0, as in comparisons.
static inline uint64_t pl_key_of(float v, int32_t id) {
    uint32_t u;
    v += 0.0f;
    memcpy(&u, &v, sizeof u);
    u = u >> 31 ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (uint32_t)~id;
}

static inline int32_t pl_key_id(uint64_t key) {
    return (int32_t) ~(uint32_t)key;
}

static inline float pl_key_value(uint64_t key) {
    uint32_t u = (uint32_t)(key >> 32);
    float    v;
    u = u >> 31 ? u & 0x7fffffffu : ~u;
    memcpy(&v, &u, sizeof v);
    return v;
}

// A bound that at least k and at most k + slack of n > k distinct keys reach. Halving the range and counting anew each
// time is faster than to partition: counting runs in vectors, and a bound with some slack takes few counts.
static inline uint64_t pl_keys_bound(const uint64_t *key, int n, int k, int slack) {
    uint64_t low = key[0], high = key[0]; // k or more reach low, fewer than k exceed high
    for (int i = 1; i < n; i++) {
        low = key[i] < low ? key[i] : low;
        high = key[i] > high ? key[i] : high;
    }
    for (int reach = n; reach > k + slack;) {
        uint64_t middle = low + (high - low) / 2 + 1, count = 0;
        for (int i = 0; i < n; i++)
            count += key[i] >= middle;
        if ((int)count < k) {
            high = middle - 1;
        } else {
            low = middle;
            reach = (int)count;
        }
    }
    return low;
}

// Cuts n > k keys to the k best and at most slack more, which keep their order. Returns how many are left.
static inline int pl_keys_cut(uint64_t *key, int n, int k, int slack, uint64_t *bound) {
    int kept = 0;
    *bound = pl_keys_bound(key, n, k, slack);
    for (int i = 0; i < n; i++) {
        uint64_t v = key[i];
        key[kept] = v;
        kept += v >= *bound;
    }
    return kept;
}

static inline void pl_keys_begin(pl_keys *s, uint64_t *key, int k) {
    *s = (pl_keys){.key = key, .k = k, .least = -INFINITY};
}

// Takes the values z[j] of the bits j of `places`, id first + j; those at or below `least` the caller has left out.
static inline void pl_keys_add(pl_keys *s, const float *z, uint64_t places, int32_t first) {
    for (; places; places &= places - 1) {
        int j = __builtin_ctzll(places);
        s->key[s->n++] = pl_key_of(z[j], first + j);
    }
    if (s->n < 2 * s->k) return;
    uint64_t bound;
    s->n = pl_keys_cut(s->key, s->n, s->k, s->k / 4, &bound);
    s->least = pl_key_value(bound);
    s->full = true;
}

// At most k are left, the best.
static inline void pl_keys_end(pl_keys *s) {
    uint64_t bound;
    if (s->n > s->k) s->n = pl_keys_cut(s->key, s->n, s->k, 0, &bound);
}

// By value, largest first; equal values stay in order. tmp [n].
static inline void pl_keys_sort(uint64_t *key, int n, uint64_t *tmp) {
    for (int shift = 32; shift < 64; shift += 8) {
        int at[256] = {0}, sum = 0;
        for (int i = 0; i < n; i++)
            at[key[i] >> shift & 255]++;
        for (int d = 255; d >= 0; d--) {
            int count = at[d];
            at[d] = sum;
            sum += count;
        }
        for (int i = 0; i < n; i++)
            tmp[at[key[i] >> shift & 255]++] = key[i];
        memcpy(key, tmp, (size_t)n * sizeof *key);
    }
}

#endif
