#include "infer/sample.h"

#include "kernels/base/rng.h"

#include <math.h>
#include <stdlib.h>

pl_status pl_sampling_check(const pl_sampling *s, pl_err *err) {
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return pl_fail(err, PL_E_USAGE, "--temperature: must lie in 0..100 (0 is greedy)");
    if (s->top_k < 0) return pl_fail(err, PL_E_USAGE, "--top-k: must be 0 (off) or positive");
    if (!(s->top_p > 0 && s->top_p <= 1)) return pl_fail(err, PL_E_USAGE, "--top-p: must lie in (0, 1]");
    return PL_OK;
}

static int32_t argmax(const float *x, int64_t v) {
    int64_t best = 0;
    for (int64_t i = 0; i < v; i++) {
        if (isnan(x[i])) return -1;
        if (x[i] > x[best]) best = i;
    }
    return (int32_t)best;
}

static int by_value(const void *a, const void *b) {
    const pl_sample_work *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return x->id < y->id ? -1 : 1; // ties: lower id first
}

// Inverse of the cumulative distribution over all ids, in id order.
static int32_t draw_all(const float *x, int64_t v, float max, double inv_t, double u) {
    double sum = 0, acc = 0;
    for (int64_t i = 0; i < v; i++)
        sum += (double)expf((float)((x[i] - max) * inv_t));
    double  target = u * sum;
    int64_t last = 0;
    for (int64_t i = 0; i < v; i++) {
        double w = (double)expf((float)((x[i] - max) * inv_t));
        if (w > 0) last = i;
        acc += w;
        if (acc > target) return (int32_t)i;
    }
    return (int32_t)last; // rounding: u * sum reached past the end
}

int32_t pl_sample(const float *logits, int64_t v, const pl_sampling *s, uint64_t key, int64_t position,
                  pl_sample_work *work) {
    int32_t best = argmax(logits, v);
    if (s->temperature == 0 || best < 0) return best;
    float  max = logits[best];
    double inv_t = 1 / s->temperature;
    double u = pl_rng_uniform(pl_rng_make(s->seed, PL_STREAM_SAMPLE, key), (uint64_t)position);
    if (s->top_k == 0 && s->top_p >= 1) return draw_all(logits, v, max, inv_t, u);

    double sum = 0;
    for (int64_t i = 0; i < v; i++) {
        work[i] = (pl_sample_work){.p = expf((float)((logits[i] - max) * inv_t)), .id = (int32_t)i};
        sum += (double)work[i].p;
    }
    qsort(work, (size_t)v, sizeof *work, by_value);
    int64_t n = s->top_k > 0 && s->top_k < v ? s->top_k : v;
    if (s->top_k > 0) {
        sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)work[i].p;
    }
    // top-p after top-k: the shortest prefix that holds at least p of what is left, never empty.
    double kept = 0;
    for (int64_t i = 0; i < n; i++) {
        kept += (double)work[i].p;
        if (kept >= s->top_p * sum) {
            n = i + 1;
            break;
        }
    }
    double acc = 0;
    for (int64_t i = 0; i < n; i++) {
        acc += (double)work[i].p;
        if (acc > u * kept) return work[i].id;
    }
    return work[n - 1].id;
}
