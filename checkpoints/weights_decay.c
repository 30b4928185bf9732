// A gated delta net's A_log as llama.cpp's files have it: -exp(A_log).
#include "checkpoints/weights.h"
#include "kernels/base/hash.h"
#include <math.h>
#include <string.h>

static float stored_at(const pl_weight_entry *e, int64_t i) {
    float v;
    memcpy(&v, (const uint8_t *)e->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

static void read_logs(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)log(-(double)stored_at(e, row0 + i));
}

static size_t span_of(const pl_weight_entry *e) {
    return (size_t)e->shape[0] * sizeof(float);
}

static uint64_t hash_name(const pl_weight_entry *e, uint64_t h) {
    return pl_hash_more(h, e->code->name, strlen(e->code->name));
}

static pl_status check_signs(const pl_weight_entry *e, const char *path, pl_err *err) {
    for (int64_t i = 0; i < e->shape[0]; i++) {
        double v = (double)stored_at(e, i);
        if (!(v < 0 && isfinite(v)))
            return pl_fail(err, PL_E_INPUT, "%s: %s: element %lld is stored as %g, expected -exp(A_log)", path, e->name,
                           (long long)i, v);
    }
    return PL_OK;
}

const pl_weight_code pl_weight_decay = {
    .name = "-exp(A_log)", .read = read_logs, .span = span_of, .hash = hash_name, .check = check_signs};
