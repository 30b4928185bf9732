#include "infer/sample/coin.h"

#include "kernels/base/check.h"

#define CYCLE_BITS 20 // bits for the decisions of one cycle

enum { LANES = 8, BLOCK = 256 };

static double next_uniform(pl_rng_coin *c) {
    PL_CHECK((c->next + 1) & ((1u << CYCLE_BITS) - 1), "more than %d decisions in a cycle", 1 << CYCLE_BITS);
    return pl_rng_uniform(c->own, c->next++);
}

static bool flip(pl_coin *base, double p) {
    return next_uniform((pl_rng_coin *)base) < p; // strictly less: a uniform of 0 never accepts a probability of 0
}

// In lanes: a single sum would stall on the adder at every weight.
double pl_sum(const double *w, int64_t n) {
    double  lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += w[i + j];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    for (; i < n; i++)
        sum += w[i];
    return sum;
}

int64_t pl_draw_at(const double *w, int64_t n, double u) {
    double  bound = u * pl_sum(w, n), acc = 0;
    int64_t last = -1;
    for (int64_t from = 0; from < n; from += BLOCK) {
        int64_t end = from + BLOCK < n ? from + BLOCK : n;
        double  all = pl_sum(w + from, end - from);
        if (all > 0 && acc + all > bound) {
            for (int64_t i = from; i < end; i++) {
                if (!(w[i] > 0)) continue;
                last = i;
                acc += w[i];
                if (acc > bound) return i;
            }
            return last; // rounding: the block's sum in another order
        }
        acc += all;
    }
    for (int64_t i = n - 1; i >= 0 && last < 0; i--) // rounding: u times the sum reached past the end
        if (w[i] > 0) last = i;
    PL_CHECK(last >= 0, "a draw from %lld weights that are all zero", (long long)n);
    return last;
}

double pl_rng_coin_own(const pl_rng_coin *c, int64_t position) {
    return pl_rng_uniform(c->sample, (uint64_t)position);
}

static double uniform(pl_coin *base) {
    return next_uniform((pl_rng_coin *)base);
}

static int64_t draw(pl_coin *base, const double *w, int64_t n, int64_t position) {
    pl_rng_coin *c = (pl_rng_coin *)base;
    return pl_draw_at(w, n, position >= 0 ? pl_rng_coin_own(c, position) : next_uniform(c));
}

void pl_rng_coin_init(pl_rng_coin *c, uint64_t seed, pl_stream stream, uint64_t key, int64_t root) {
    *c = (pl_rng_coin){.base = {.flip = flip, .draw = draw, .uniform = uniform},
                       .own = pl_rng_make(seed, stream, key),
                       .sample = pl_rng_make(seed, PL_STREAM_SAMPLE, key),
                       .next = (uint64_t)root << CYCLE_BITS};
}
