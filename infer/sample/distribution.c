#include "infer/sample/distribution.h"

#include "kernels/base/arena.h"

#include <math.h>
#include <string.h>

pl_status pl_sampling_check(const pl_sampling *s, pl_err *err) {
    if (s->temperature != 0 && !(s->temperature >= PL_COLDEST && s->temperature <= 1000))
        return pl_fail(err, PL_E_USAGE, "--temperature: must be 0 (greedy) or lie in %g..1000", PL_COLDEST);
    if (s->top_k < 0) return pl_fail(err, PL_E_USAGE, "--top-k: must be 0 (off) or positive");
    if (!(s->top_p > 0 && s->top_p <= 1)) return pl_fail(err, PL_E_USAGE, "--top-p: must lie in (0, 1]");
    if (!(s->min_p >= 0 && s->min_p <= 1)) return pl_fail(err, PL_E_USAGE, "--min-p: must lie in 0..1");
    if (!(s->repetition_penalty >= 0 && s->repetition_penalty <= 100))
        return pl_fail(err, PL_E_USAGE, "--repetition-penalty: must lie above 0 and within 100 (1 is off)");
    if (!(fabs(s->presence_penalty) <= 2)) return pl_fail(err, PL_E_USAGE, "presence_penalty: must lie in -2..2");
    if (!(fabs(s->frequency_penalty) <= 2)) return pl_fail(err, PL_E_USAGE, "frequency_penalty: must lie in -2..2");
    for (int i = 0; i < s->n_bias; i++)
        if (!(fabsf(s->bias[i].value) <= PL_BIAS_MOST))
            return pl_fail(err, PL_E_USAGE, "logit_bias: %g for token %d must lie in -%d..%d", (double)s->bias[i].value,
                           s->bias[i].id, PL_BIAS_MOST, PL_BIAS_MOST);
    return PL_OK;
}

static bool counts_tokens(const pl_sampling *s) {
    return s->presence_penalty != 0 || s->frequency_penalty != 0;
}

static bool penalises_text(const pl_sampling *s) {
    return s->repetition_penalty > 0 && s->repetition_penalty != 1;
}

bool pl_sampling_has_history(const pl_sampling *s) {
    return penalises_text(s) || counts_tokens(s) || s->constraint;
}

bool pl_sampling_changes_logits(const pl_sampling *s) {
    return pl_sampling_has_history(s) || s->n_bias > 0;
}

bool pl_sampling_on_host(const pl_sampling *s) {
    return counts_tokens(s) || s->n_bias > 0 || s->constraint;
}

pl_sampling pl_sampling_bare(const pl_sampling *s) {
    pl_sampling bare = *s;
    bare.repetition_penalty = 1;
    bare.presence_penalty = bare.frequency_penalty = 0;
    bare.n_bias = 0;
    bare.bias = NULL;
    bare.constraint = NULL;
    return bare;
}

pl_status pl_distribution_work_init(pl_distribution_work *k, int64_t v, pl_err *err) {
    *k = (pl_distribution_work){.w = pl_calloc((size_t)v, sizeof *k->w),
                                .id = pl_calloc((size_t)v, sizeof *k->id),
                                .softmax = pl_softmax_cpu()};
    if (k->w && k->id) return PL_OK;
    pl_distribution_work_fini(k);
    return pl_fail(err, PL_E_MEMORY, "sampling over %lld tokens: out of memory", (long long)v);
}

void pl_distribution_work_fini(pl_distribution_work *k) {
    pl_free(k->w);
    pl_free(k->id);
    *k = (pl_distribution_work){0};
}

static inline void penalise_one(float *w, int64_t t, float penalty) {
    w[t] = w[t] > 0 ? w[t] / penalty : w[t] * penalty;
}

// Penalises each token that occurred once, however often it occurred.
static void penalise_tokens(float *w, int64_t v, float penalty, const pl_history *h) {
    for (int64_t i = 0; h->said && i < pl_said_words(v); i++)
        for (uint32_t bits = h->said[i]; bits; bits &= bits - 1)
            penalise_one(w, 32 * i + __builtin_ctz(bits), penalty);
    for (int64_t i = 0; i < h->n_path; i++) {
        int32_t t = h->path[i];
        int64_t before = 0;
        while (h->path[before] != t)
            before++;
        if (before == i && !(h->said && pl_said_has(h->said, t))) penalise_one(w, t, penalty);
    }
}

// Subtracts the penalties of the tokens that the answer and the path hold, by how often they do. count: [v] scratch.
static void penalise_counts(float *w, const pl_sampling *s, const pl_history *h, int32_t *count) {
    const int32_t *part[2] = {h->answer, h->path};
    const int64_t  n[2] = {h->n_answer, h->n_path};
    for (int pass = 0; pass < 3; pass++) // only the counts of these tokens are cleared, not all v
        for (int k = 0; k < 2; k++)
            for (int64_t i = 0; i < n[k]; i++) {
                int32_t t = part[k][i];
                if (pass < 2) {
                    count[t] = pass ? count[t] + 1 : 0;
                } else if (count[t] > 0) {
                    w[t] = (float)((double)w[t] - count[t] * s->frequency_penalty - s->presence_penalty);
                    count[t] = 0;
                }
            }
}

static void constrain(float *w, int64_t v, const pl_sampling *s, const pl_history *h) {
    const uint32_t *may = s->constraint->allowed(s->constraint, h->answer, h->n_answer, h->path, h->n_path);
    for (int64_t i = 0; i < v; i++)
        if (!(may[i / 32] >> i % 32 & 1)) w[i] = -INFINITY;
}

// Copies the logits to k->w and processes them there.
static void process_logits(const float *logits, int64_t v, const pl_sampling *s, const pl_history *h,
                           pl_distribution_work *k) {
    memcpy(k->w, logits, (size_t)v * sizeof *k->w);
    if (s->constraint) constrain(k->w, v, s, h);
    for (int i = 0; i < s->n_bias; i++)
        k->w[s->bias[i].id] += s->bias[i].value;
    if (penalises_text(s)) penalise_tokens(k->w, v, (float)s->repetition_penalty, h);
    if (counts_tokens(s)) penalise_counts(k->w, s, h, k->id);
}

static inline bool is_better(const float *w, int32_t a, int32_t b) {
    return w[a] > w[b] || (w[a] == w[b] && a < b);
}

static void swap_ids(int32_t *a, int32_t *b) {
    int32_t t = *a;
    *a = *b;
    *b = t;
}

// Moves to the front of id[0..n) the shortest run of best tokens that holds `mass` or counts `most`; returns its length
// and *kept, its mass. Quickselect: the run is not sorted, the set is exact.
static int64_t best_run(const float *w, int32_t *id, int64_t n, int64_t most, double mass, double *kept) {
    int64_t lo = 0, hi = n; // id[0..lo) is in; the run ends within [lo, hi]
    *kept = 0;
    while (lo < hi && lo < most && *kept < mass) {
        int64_t mid = lo + (hi - lo) / 2, last = hi - 1;
        if (is_better(w, id[last], id[lo])) swap_ids(&id[last], &id[lo]);
        if (is_better(w, id[mid], id[lo])) swap_ids(&id[mid], &id[lo]);
        if (is_better(w, id[last], id[mid])) swap_ids(&id[last], &id[mid]);
        int32_t pivot = id[mid];
        swap_ids(&id[mid], &id[last]);
        int64_t at = lo;
        double  sum = 0;
        for (int64_t i = lo; i < last; i++)
            if (is_better(w, id[i], pivot)) {
                sum += (double)w[id[i]];
                swap_ids(&id[i], &id[at++]);
            }
        swap_ids(&id[at], &id[last]);
        // [lo, at) are better than the pivot at `at`.
        if (at > most || *kept + sum >= mass) {
            hi = at;
            continue;
        }
        *kept += sum;
        lo = at;
        if (lo < most && *kept < mass) *kept += (double)w[id[lo++]];
    }
    return lo;
}

// Moves the tokens that remain after top-k, top-p and min-p to the front of id; w are weights relative to the best
// one's 1.
static int64_t find_support(const pl_sampling *s, const float *w, int32_t *id, int64_t v, double *sum) {
    int64_t n = 0;
    // All tokens below (1 - p) / v of the sum together hold less than 1 - p of it: top-p's run ends before them. Half
    // of that bound, for the rounding of sums.
    double  least = s->top_k == 0 && s->top_p < 1 ? 0.5 * (1 - s->top_p) * *sum / (double)v : 0;
    for (int64_t i = 0; i < v; i++) {
        id[n] = (int32_t)i;
        n += (double)w[i] >= least;
    }
    if (s->top_k > 0 && s->top_k < n) n = best_run(w, id, n, s->top_k, INFINITY, sum);
    if (s->top_p < 1) n = best_run(w, id, n, n, s->top_p * *sum, sum);
    if (s->min_p > 0) {
        int64_t at = 0;
        *sum = 0;
        for (int64_t i = 0; i < n; i++)
            if ((double)w[id[i]] >= s->min_p) {
                *sum += (double)w[id[i]];
                id[at++] = id[i];
            }
        n = at;
    }
    return n;
}

bool pl_distribution(double *p, const float *logits, int64_t v, const pl_sampling *s, const pl_history *h,
                     pl_distribution_work *k) {
    const float *x = logits;
    if (pl_sampling_changes_logits(s)) {
        process_logits(logits, v, s, h, k);
        x = k->w;
    }
    float top;
    if (!k->softmax->top(x, v, &top) || isinf(top)) return false;
    if (s->temperature == 0) {
        int64_t best = 0;
        while (x[best] != top) // the lowest among equals
            best++;
        memset(p, 0, (size_t)v * sizeof *p);
        p[best] = 1;
        return true;
    }
    double sum = k->softmax->weigh(k->w, x, v, top, (float)(1 / s->temperature));
    if (s->top_k == 0 && s->top_p >= 1 && s->min_p == 0) {
        k->softmax->scale(p, k->w, v, 1 / sum);
        return true;
    }
    int64_t n = find_support(s, k->w, k->id, v, &sum);
    memset(p, 0, (size_t)v * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[k->id[i]] = (double)k->w[k->id[i]] / sum;
    return true;
}
