#include "checkpoints/quant.h"

// Two E2M1 a byte, the lower half first; a scale for 16 columns of a row, whose sixteen products are made once.
static void read_row(const pl_weight_entry *e, const pl_quant_matrix *m, int64_t row, float *dst) {
    static const float value[16] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    const uint8_t     *pair = (const uint8_t *)e->data + row * (e->shape[1] / 2);
    for (int64_t g = 0; g < m->groups; g++, pair += 8, dst += 16) {
        float s = pl_quant_scale(m->scale, row * m->groups + g), scaled[16];
        s = m->divides ? s / m->factor : s * m->factor;
        for (int i = 0; i < 16; i++)
            scaled[i] = value[i] * s;
        for (int i = 0; i < 8; i++) {
            dst[2 * i] = scaled[pair[i] & 15];
            dst[2 * i + 1] = scaled[pair[i] >> 4];
        }
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
