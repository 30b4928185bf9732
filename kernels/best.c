#include "kernels/best.h"

#include <math.h>

typedef struct heap { // its worst one at the root
    const pl_tensor *score;
    int64_t          first, n;
    int32_t         *id;
} heap;

static double score_of(const heap *h, int32_t id) {
    return pl_real_at(h->score, h->first + id);
}

// Whether a is left out before b.
static bool worse(const heap *h, int32_t a, int32_t b) {
    double x = score_of(h, a), y = score_of(h, b);
    return x < y || (x == y && a > b);
}

static void sink(heap *h, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < h->n; at = child) {
        if (child + 1 < h->n && worse(h, h->id[child + 1], h->id[child])) child++;
        if (!worse(h, h->id[child], h->id[at])) return;
        int32_t t = h->id[at];
        h->id[at] = h->id[child];
        h->id[child] = t;
    }
}

bool pl_best_of(const pl_tensor *score, int64_t first, int64_t n, int64_t k, int32_t *best) {
    heap h = {.score = score, .first = first, .n = k < n ? k : n, .id = best};
    for (int64_t i = 0; i < n; i++)
        if (isnan(pl_real_at(score, first + i))) return false;
    for (int64_t i = 0; i < h.n; i++)
        best[i] = (int32_t)i;
    for (int64_t i = h.n / 2 - 1; i >= 0; i--)
        sink(&h, i);
    for (int64_t i = h.n; i < n && h.n > 0; i++)
        if (worse(&h, best[0], (int32_t)i)) {
            best[0] = (int32_t)i;
            sink(&h, 0);
        }
    return true;
}
