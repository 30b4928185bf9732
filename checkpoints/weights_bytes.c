#include "checkpoints/quant.h"

// The value of each byte: F8_E4M3 or I8.
static void list_values(float value[256], pl_dtype t) {
    for (int b = 0; b < 256; b++)
        value[b] = t == PL_I8 ? (float)(int8_t)b : pl_f8_e4m3_to_f32((uint8_t)b);
}

static void read_row(const pl_weight_entry *e, const pl_quant_matrix *m, const float *value, int64_t row, float *dst) {
    int64_t        cols = e->shape[1], first = row / m->group_rows * m->groups;
    const uint8_t *q = (const uint8_t *)e->data + row * cols;
    for (int64_t g = 0; g < m->groups; g++) {
        int64_t end = cols - g * m->group_cols < m->group_cols ? cols : (g + 1) * m->group_cols;
        float   s = pl_quant_scale(m->scale, first + g);
        float   z = m->zero ? value[((const uint8_t *)m->zero->data)[first + g]] : 0;
        for (int64_t c = g * m->group_cols; c < end; c++)
            dst[c] = (value[q[c]] - z) * s;
    }
}

static void read_rows(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    const pl_quant_matrix *m = e->scale;
    float                  value[256];
    list_values(value, m->weight->dtype);
    for (int64_t r = 0; r < n; r++)
        read_row(e, m, value, row0 + r, dst + r * e->shape[1]);
}

const pl_weight_code pl_weight_fp8 = {.name = "fp8",
                                      .read = read_rows,
                                      .span = pl_quant_span,
                                      .hash = pl_quant_hash,
                                      .check = pl_quant_check,
                                      .grain = pl_quant_grain};

const pl_weight_code pl_weight_int8 = {.name = "int8",
                                       .read = read_rows,
                                       .span = pl_quant_span,
                                       .hash = pl_quant_hash,
                                       .check = pl_quant_check,
                                       .grain = pl_quant_grain};
