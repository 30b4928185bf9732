#include "kernels/cpu/rows.h"
#include "kernels/softmax.h"
#include <math.h>

_Static_assert(PL_SUM_LANES == PL_VL, "a lane of the sum for each of a vector");

static bool top_of(const float *x, int64_t n, float *top) {
    pl_vf max = pl_vf_set1(-INFINITY), odd = pl_vf_zero();
    for (int64_t i = 0; i < n; i += PL_VL) {
        int64_t lanes = pl_vf_lanes(i, n);
        pl_vf   v = lanes == PL_VL ? pl_vf_loadu(x + i) : pl_vf_load_n(x + i, lanes, -INFINITY);
        max = pl_vf_max(max, v);
        // Where a lane is NaN the comparison sets all its bits, which as a float is NaN again.
        for (int p = 0; p < PL_VF_PARTS; p++)
            odd.p[p] = (pl_vn)((pl_vni)odd.p[p] | (pl_vni)(v.p[p] != v.p[p]));
    }
    *top = pl_vf_hmax(max);
    return !isnan(pl_vf_hsum(odd));
}

static double weigh(float *w, const float *x, int64_t n, float top, float inv_t) {
    double sum[PL_VL] = {0}, total = 0;
    pl_vf  max = pl_vf_set1(top), factor = pl_vf_set1(inv_t), least = pl_vf_set1(-87.0f);
    for (int64_t i = 0; i < n; i += PL_VL) {
        int64_t lanes = pl_vf_lanes(i, n);
        float   e[PL_VL];
        pl_vf   v = lanes == PL_VL ? pl_vf_loadu(x + i) : pl_vf_load_n(x + i, lanes, -INFINITY);
        v = pl_vf_mul(pl_vf_sub(v, max), factor);
        v = pl_vf_select_gt(v, least, pl_vf_exp(v), pl_vf_zero());
        pl_vf_put(w + i, v, lanes);
        pl_vf_storeu(e, v);
        for (int j = 0; j < PL_VL; j++)
            sum[j] += (double)e[j];
    }
    for (int j = 0; j < PL_VL; j++)
        total += sum[j];
    return total;
}

static void scale(double *p, const float *w, int64_t n, double by) {
    for (int64_t i = 0; i < n; i++)
        p[i] = (double)w[i] * by;
}

extern const pl_softmax PL_CPU(softmax);
const pl_softmax        PL_CPU(softmax) = {.top = top_of, .weigh = weigh, .scale = scale};
