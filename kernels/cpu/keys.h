// The k best of a long stream of (value, id), for k too large for an ordered list: values and ids in 64-bit keys whose
// order is the tie rule (larger value first, then lower id), gathered in a buffer of 2k and cut back to k when it is
// full. Ids come in ascending order and stay in it, so nothing is sorted until an order by value is asked for.
#ifndef PL_CPU_KEYS_H
#define PL_CPU_KEYS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct pl_keys {
    uint64_t *key; // [2k]
    int       n, k;
    float     least; // of k held: only larger values can enter
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

// The k-th largest of n distinct keys, 1 <= k <= n, byte by byte from the top: linear whatever the values. tmp [n].
static inline uint64_t pl_keys_kth(const uint64_t *key, int n, int k, uint64_t *tmp) {
    memcpy(tmp, key, (size_t)n * sizeof *tmp);
    for (int shift = 56; n > 1; shift -= 8) {
        int count[256] = {0}, digit = 255, kept = 0;
        for (int i = 0; i < n; i++)
            count[tmp[i] >> shift & 255]++;
        for (; k > count[digit]; digit--)
            k -= count[digit];
        for (int i = 0; i < n; i++) {
            tmp[kept] = tmp[i];
            kept += (int)(tmp[i] >> shift & 255) == digit;
        }
        n = kept;
    }
    return tmp[0];
}

// Cuts n > k keys to the k best, which keep their order; returns the least of them. tmp [n].
static inline uint64_t pl_keys_cut(uint64_t *key, int n, int k, uint64_t *tmp) {
    uint64_t kth = pl_keys_kth(key, n, k, tmp);
    int      kept = 0;
    for (int i = 0; i < n; i++) {
        key[kept] = key[i];
        kept += key[i] >= kth;
    }
    return kth;
}

static inline void pl_keys_begin(pl_keys *s, uint64_t *key, int k) {
    *s = (pl_keys){.key = key, .k = k, .least = -INFINITY};
}

// tmp [2k]
static inline void pl_keys_add(pl_keys *s, float v, int32_t id, uint64_t *tmp) {
    if (s->full && !(v > s->least)) return;
    s->key[s->n++] = pl_key_of(v, id);
    if (s->n < 2 * s->k) return;
    s->least = pl_key_value(pl_keys_cut(s->key, s->n, s->k, tmp));
    s->n = s->k;
    s->full = true;
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
