#include "checkpoints/quant.h"

// Columns [c0, c0 + n) of a row's fields. Those of 4 and of 8 bits are taken from bytes, which hold them in order.
static void unpack(uint8_t *dst, const uint8_t *row, int64_t c0, int n, int bits) {
    for (int i = 0; i < n; i++) {
        int64_t c = c0 + i;
        if (bits == 8)
            dst[i] = row[c];
        else if (bits == 4)
            dst[i] = row[c / 2] >> (c % 2 * 4) & 15;
        else
            dst[i] = (uint8_t)pl_quant_field(row, 1, c, bits);
    }
}

// The group's zero, with the offset of the fields. Zeros are fields along the rows.
static float zero_of(const pl_quant_matrix *m, int64_t row, int64_t g) {
    if (!m->zero) return (float)(1 << (m->bits - 1));
    return (float)pl_quant_field((const uint8_t *)m->zero->data + 4 * g, m->groups, row, m->bits);
}

static void read_row(const pl_weight_entry *e, const pl_quant_matrix *m, int64_t row, float *dst) {
    enum { SPAN = 256 };
    uint8_t        q[SPAN];
    int64_t        cols = e->shape[1], words = m->weight->shape[1], have = -1;
    const uint8_t *fields = (const uint8_t *)e->data + 4 * row * words;
    float          s = 0, z = 0;
    for (int64_t c0 = 0; c0 < cols; c0 += SPAN) {
        int n = cols - c0 < SPAN ? (int)(cols - c0) : SPAN;
        unpack(q, fields, c0, n, m->bits);
        for (int i = 0; i < n; i++) {
            int64_t c = c0 + i, g = m->index ? (int64_t)pl_quant_word(m->index->data, c) : c / m->group_cols;
            if (g != have) {
                s = pl_quant_scale(m->scale, row / m->group_rows * m->groups + g);
                z = zero_of(m, row, g);
                have = g;
            }
            dst[c] = ((float)q[i] - z) * s;
        }
    }
}

static void read_rows(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    for (int64_t r = 0; r < n; r++)
        read_row(e, e->scale, row0 + r, dst + r * e->shape[1]);
}

const pl_weight_code pl_weight_packed = {.name = "packed",
                                         .read = read_rows,
                                         .span = pl_quant_span,
                                         .hash = pl_quant_hash,
                                         .check = pl_quant_check,
                                         .grain = pl_quant_grain};
