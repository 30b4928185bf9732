#include "infer/eval/repeated.h"

#include "kernels/base/arena.h"
#include "kernels/base/hash.h"

#include <string.h>

#define GRAM 4

int64_t pl_repeated_tokens(const int32_t *tokens, int64_t n, bool *again) {
    for (int64_t i = 0; again && i < n; i++)
        again[i] = false;
    if (n <= GRAM) return 0;
    int64_t grams = n - GRAM + 1, slots = 4, inside = 0, counted = 0; // tokens below `counted` have been counted
    while (slots < 2 * grams)
        slots *= 2;
    int64_t *first = pl_malloc(pl_size_mul((size_t)slots, sizeof *first, 1)); // start of the first such gram, or -1
    if (!first) return -1;
    memset(first, 0xff, (size_t)slots * sizeof *first);
    for (int64_t i = 0; i < grams; i++) {
        int64_t at = (int64_t)(pl_hash_key(tokens + i, GRAM * sizeof *tokens) & (uint64_t)(slots - 1));
        while (first[at] >= 0 && memcmp(tokens + first[at], tokens + i, GRAM * sizeof *tokens) != 0)
            at = (at + 1) & (slots - 1);
        if (first[at] < 0) {
            first[at] = i;
            continue;
        }
        for (int64_t k = i > counted ? i : counted; k < i + GRAM; k++, inside++)
            if (again) again[k] = true;
        counted = i + GRAM;
    }
    pl_free(first);
    return inside;
}
