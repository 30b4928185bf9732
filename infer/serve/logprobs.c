#include "infer/serve/logprobs.h"
#include "kernels/base/arena.h"

#include <math.h>

static double log_sum(const float *x, int64_t v) {
    float  most = x[0];
    double sum = 0;
    for (int64_t i = 1; i < v; i++)
        if (x[i] > most) most = x[i];
    for (int64_t i = 0; i < v; i++)
        sum += exp((double)x[i] - most);
    return most + log(sum);
}

// Inserts a token into best[0..*n), n at most `most`, behind those that are as good.
static void insert_token(pl_logprob *best, int *n, int most, int32_t token, float x) {
    int at = *n < most ? (*n)++ : most - 1;
    for (; at > 0 && best[at - 1].logprob < x; at--)
        best[at] = best[at - 1];
    best[at] = (pl_logprob){token, x};
}

pl_status pl_logprobs_add(pl_logprobs *l, const float *logits, int64_t v, int32_t token, pl_err *err) {
    size_t width = 1 + (size_t)l->top;
    if (l->n == l->cap) {
        int   cap = l->cap ? 2 * l->cap : 64;
        void *more = pl_realloc(l->item, (size_t)cap * width * sizeof *l->item);
        if (!more) return pl_fail(err, PL_E_MEMORY, "log-probabilities: out of memory");
        l->item = more;
        l->cap = cap;
    }
    pl_logprob *to = l->item + (size_t)l->n++ * width, *best = to + 1;
    float       all = (float)log_sum(logits, v);
    int         n = 0;
    *to = (pl_logprob){token, logits[token] - all};
    for (int64_t i = 0; i < v && l->top > 0; i++)
        if (n < l->top || logits[i] > best[n - 1].logprob) insert_token(best, &n, l->top, (int32_t)i, logits[i]);
    for (int i = 0; i < n; i++)
        best[i].logprob -= all;
    return PL_OK;
}

void pl_logprobs_fini(pl_logprobs *l) {
    pl_free(l->item);
    *l = (pl_logprobs){0};
}

const pl_logprob *pl_logprobs_at(const pl_logprobs *l, int i) {
    return l->item + (size_t)i * (1 + (size_t)l->top);
}
