#include "checkpoints/quant.h"
#include "kernels/base/hash.h"

#include <math.h>

static void read_row(const pl_weight_entry *e, int64_t row, float *dst) {
    int64_t        cols = e->shape[1], at = row * e->row_stride;
    const uint8_t *pair = (const uint8_t *)e->data + at * (cols / 2);
    const uint8_t *scale = (const uint8_t *)e->scale + at * (cols / 32);
    for (int64_t b = 0; b < cols / 32; b++)
        pl_quant_halves(dst + 32 * b, pair + 16 * b, 16, scale[b] == 255 ? NAN : ldexpf(1, scale[b] - 127));
}

static void read_rows(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    for (int64_t r = 0; r < n; r++)
        read_row(e, row0 + r, dst + r * e->shape[1]);
}

// From the first row's first byte to the last row's last.
static int64_t rows_between(const pl_weight_entry *e) {
    return (e->shape[0] - 1) * e->row_stride + 1;
}

static size_t span_of(const pl_weight_entry *e) {
    return (size_t)(rows_between(e) * (e->shape[1] / 2));
}

static uint64_t hash_scales(const pl_weight_entry *e, uint64_t h) {
    return pl_hash_more(h, e->scale, (size_t)(rows_between(e) * (e->shape[1] / 32)));
}

static pl_weight_grain grain_of(const pl_weight_entry *e) {
    (void)e;
    return (pl_weight_grain){.bits = 4, .rows = 1, .cols = 32};
}

const pl_weight_code pl_weight_mxfp4 = {
    .name = "mxfp4", .read = read_rows, .span = span_of, .hash = hash_scales, .grain = grain_of};
