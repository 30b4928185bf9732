#include "kernels/op/rope.h"
#include "kernels/base/check.h"
#include <math.h>

void pl_rope(pl_ctx *ctx, const pl_rope_args *a) {
    PL_CHECK(a->hd > 0 && a->n_rot >= 0 && a->qkv.dim[1] >= (int64_t)a->n_rot * a->hd,
             "rope: %d vectors of %d in a row of %lld", a->n_rot, a->hd, (long long)a->qkv.dim[1]);
    PL_CHECK(2 * a->cos.dim[1] <= a->hd && a->sin.dim[1] == a->cos.dim[1] && a->cos.dim[0] == a->sin.dim[0],
             "rope: tables [%lld, %lld] for heads of %d", (long long)a->cos.dim[0], (long long)a->cos.dim[1], a->hd);
    PL_CHECK(a->qkv.dtype == ctx->be->real && a->cos.dtype == ctx->be->real && a->sin.dtype == ctx->be->real,
             "rope: qkv %s, tables %s", pl_dtype_name(a->qkv.dtype), pl_dtype_name(a->cos.dtype));
    int64_t turned = (int64_t)a->n_rot * a->hd, kv = a->qkv.dim[1] - turned;
    PL_CHECK(!a->row || (kv > 0 && kv <= turned && kv % a->hd == 0), "rope: %d vectors of %d, %lld values to keep",
             a->n_rot, a->hd, (long long)kv);
    pl_run(ctx, PL_OP_ROPE, a, sizeof *a);
}

// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
static double smoothed(const pl_rope_spec *s, double freq) {
    double turns = s->original_positions * freq / (2 * acos(-1.0)); // rotations within the original context
    if (turns < s->low_freq_factor) return freq / s->factor;
    if (turns > s->high_freq_factor) return freq;
    double blend = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - blend) * freq / s->factor + blend * freq;
}

// Returns the fractional index of the pair that turns `turns` times within the original context.
static double turning(const pl_rope_spec *s, double turns) {
    return s->hd * log(s->original_positions / (turns * 2 * acos(-1.0))) / (2 * log(s->theta));
}

static double yarn(const pl_rope_spec *s, int i, double freq) {
    double low = turning(s, s->beta_fast), high = turning(s, s->beta_slow), last = s->hd - 1;
    if (s->truncate) low = floor(low), high = ceil(high);
    if (low < 0) low = 0;
    if (high > last) high = last;
    if (low == high) high += 0.001;
    double blend = (i - low) / (high - low);
    blend = blend < 0 ? 0 : blend > 1 ? 1 : blend;
    return freq / s->factor * blend + freq * (1 - blend);
}

void pl_rope_table(void *cosine, void *sine, pl_dtype t, const pl_rope_spec *s, int64_t positions) {
    PL_CHECK(t == PL_F32 || t == PL_F64, "rope table in %s", pl_dtype_name(t));
    PL_CHECK(s->hd > 0 && s->hd % 2 == 0, "rope: head width %d", s->hd);
    double scale = s->scaling == PL_ROPE_YARN || s->scaling == PL_ROPE_LONG ? s->attention : 1;
    for (int i = 0; i < s->hd / 2; i++) {
        double freq = pow(s->theta, -2.0 * i / s->hd);
        if (s->scaling == PL_ROPE_LINEAR) freq /= s->factor;
        if (s->scaling == PL_ROPE_LLAMA3) freq = smoothed(s, freq);
        if (s->scaling == PL_ROPE_YARN) freq = yarn(s, i, freq);
        if (s->scaling == PL_ROPE_LONG) freq /= s->divisor[i];
        for (int64_t pos = 0; pos < positions; pos++) {
            double  angle = (double)pos * freq, c = scale * cos(angle), d = scale * sin(angle);
            int64_t at = pos * (s->hd / 2) + i;
            if (t == PL_F32) {
                ((float *)cosine)[at] = (float)c;
                ((float *)sine)[at] = (float)d;
            } else {
                ((double *)cosine)[at] = c;
                ((double *)sine)[at] = d;
            }
        }
    }
}
