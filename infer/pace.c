#include "infer/pace.h"

#include <string.h>

#define CALIBRATION 12 // cycles that walk three depths before the first choice
#define REVIEW 8       // cycles between choices
#define EXPLORE 64     // every so often one step deeper, so that deeper acceptances are known
#define DECAY 0.995

void pl_pace_init(pl_pace *p, const pl_tree_policy *policy) {
    *p = (pl_pace){0};
    if (!policy || !policy->adapt) return;
    p->adapt = true;
    p->max_depth = policy->max_nodes - 1 < PL_PACE_MAX ? policy->max_nodes - 1 : PL_PACE_MAX;
}

// C_k = a + b k by least squares over the depths seen, each weighted by its count.
static void fit(const pl_pace *p, double *a, double *b) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int k = 0; k <= p->max_depth; k++) {
        n += p->cost_n[k];
        x += p->cost_n[k] * k;
        y += p->cost_sum[k];
        xx += p->cost_n[k] * k * k;
        xy += p->cost_sum[k] * k;
    }
    double det = n * xx - x * x;
    *b = det > 1e-9 * n * xx ? (n * xy - x * y) / det : 0;
    if (*b < 0) *b = 0; // noise
    *a = n > 0 ? (y - *b * x) / n : 1;
}

int pl_pace_best(const pl_pace *p) {
    double a, b, emitted = 1, reach = 1, share = 0.5, best_rate = 0;
    int    best = 1;
    fit(p, &a, &b);
    for (int k = 1; k <= p->max_depth; k++) {
        if (p->reached[k - 1] >= 4) share = p->accepted[k - 1] / p->reached[k - 1];
        reach *= share;
        emitted += reach;
        double rate = emitted / (a + b * k);
        if (rate > best_rate) {
            best_rate = rate;
            best = k;
        }
    }
    return best;
}

void pl_pace_update(pl_pace *p, pl_tree_policy *policy, int drafted, int accepted, double seconds) {
    if (!p->adapt || drafted < 1 || drafted > p->max_depth) return;
    for (int i = 0; i < p->max_depth; i++) {
        p->reached[i] *= DECAY;
        p->accepted[i] *= DECAY;
    }
    for (int k = 0; k <= p->max_depth; k++) {
        p->cost_n[k] *= DECAY;
        p->cost_sum[k] *= DECAY;
    }
    for (int i = 0; i < drafted && i <= accepted; i++) {
        p->reached[i]++;
        p->accepted[i] += i < accepted;
    }
    p->cost_n[drafted]++;
    p->cost_sum[drafted] += seconds;
    static const int walk[3] = {2, 5, 8};
    long             c = ++p->cycles;
    if (c < CALIBRATION)
        policy->depth = walk[c % 3] < p->max_depth ? walk[c % 3] : p->max_depth;
    else if (c % EXPLORE == 0)
        policy->depth = policy->depth < p->max_depth ? policy->depth + 1 : p->max_depth;
    else if (c == CALIBRATION || c % REVIEW == 1)
        policy->depth = pl_pace_best(p);
}
