#include "checkpoints/quant.h"

// A scale for 16 columns of a row.
static void read_row(const pl_weight_entry *e, const pl_quant_matrix *m, int64_t row, float *dst) {
    const uint8_t *pair = (const uint8_t *)e->data + row * (e->shape[1] / 2);
    for (int64_t g = 0; g < m->groups; g++) {
        float s = pl_quant_scale(m->scale, row * m->groups + g);
        pl_quant_halves(dst + 16 * g, pair + 8 * g, 8, m->divides ? s / m->factor : s * m->factor);
    }
}

static void read_rows(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    for (int64_t r = 0; r < n; r++)
        read_row(e, e->scale, row0 + r, dst + r * e->shape[1]);
}

const pl_weight_code pl_weight_nvfp4 = {.name = "nvfp4",
                                        .read = read_rows,
                                        .span = pl_quant_span,
                                        .hash = pl_quant_hash,
                                        .check = pl_quant_check,
                                        .grain = pl_quant_grain};
