#include "checkpoints/quant.h"

// A pass decodes 64 rows, 256 bytes of each of the file's rows, which are words of a few columns here; tile by tile, so
// that rows that lie a power of two apart are not written in turns.
enum { BAND = 64, TILE = 32 };

typedef struct band {
    float scale[BAND], zero[BAND];
} band;

// Zeros are fields along the rows, a group after another.
static void load_group(band *b, const pl_quant_matrix *m, int64_t rows, int64_t row0, int64_t n, int64_t g) {
    const uint8_t *zeros = (const uint8_t *)m->zero->data + 4 * g * m->zero->shape[1];
    uint32_t       mask = (1U << m->bits) - 1;
    for (int64_t i = 0; i < n; i++) {
        b->scale[i] = pl_quant_scale(m->scale, g * rows + row0 + i);
        b->zero[i] = (float)((pl_quant_field(zeros, 1, row0 + i, m->bits) + (uint32_t)m->zero_shift) & mask);
    }
}

static void read_band(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    const pl_quant_matrix *m = e->scale;
    int64_t                rows = e->shape[0], cols = e->shape[1], have = -1;
    const uint8_t         *fields = (const uint8_t *)e->data + 4 * row0;
    float                  tile[BAND][TILE];
    band                   b;
    for (int64_t c = 0; c < cols; c++) {
        int64_t g = m->index ? (int64_t)pl_quant_word(m->index->data, c) : c / m->group_cols, at = c % TILE;
        if (g != have) load_group(&b, m, rows, row0, n, g);
        have = g;
        for (int64_t i = 0; i < n; i++)
            tile[i][at] = ((float)pl_quant_field(fields + 4 * i, rows, c, m->bits) - b.zero[i]) * b.scale[i];
        for (int64_t i = 0; i < n && (at == TILE - 1 || c == cols - 1); i++)
            memcpy(dst + i * cols + c - at, tile[i], (size_t)(at + 1) * sizeof **tile);
    }
}

static void read_rows(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    for (int64_t r = 0; r < n; r += BAND)
        read_band(e, row0 + r, n - r < BAND ? n - r : BAND, dst + r * e->shape[1]);
}

const pl_weight_code pl_weight_gptq = {.name = "gptq",
                                       .read = read_rows,
                                       .span = pl_quant_span,
                                       .hash = pl_quant_hash,
                                       .check = pl_quant_check,
                                       .grain = pl_quant_grain};
