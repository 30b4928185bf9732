#include "checkpoints/quant.h"

// A pass decodes 64 rows, 32 bytes of each of the file's rows, which are columns here; tile by tile, so that rows that
// lie a power of two apart are not written in turns.
enum { BAND = 64, TILE = 32 };

// The place of each row's field in a row of words: of eight rows in a word, even ones are in its lower half.
typedef struct band {
    int64_t n, word[BAND];
    int     shift[BAND];
    float   scale[BAND], zero[BAND];
} band;

static void place_band(band *b, int64_t row0, int64_t n) {
    static const int field[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    b->n = n;
    for (int64_t i = 0; i < n; i++) {
        b->word[i] = (row0 + i) / 8;
        b->shift[i] = 4 * field[(row0 + i) % 8];
    }
}

static void load_group(band *b, const pl_quant_matrix *m, int64_t rows, int64_t row0, int64_t g) {
    const uint8_t *zeros = (const uint8_t *)m->zero->data + 4 * g * (rows / 8);
    for (int64_t i = 0; i < b->n; i++) {
        b->scale[i] = pl_quant_scale(m->scale, g * rows + row0 + i);
        b->zero[i] = (float)(pl_quant_word(zeros, b->word[i]) >> b->shift[i] & 15);
    }
}

static void read_band(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    const pl_quant_matrix *m = e->scale;
    int64_t                rows = e->shape[0], cols = e->shape[1];
    const uint8_t         *words = e->data;
    float                  tile[BAND][TILE];
    band                   b;
    place_band(&b, row0, n);
    for (int64_t c = 0; c < cols; c++, words += 4 * (rows / 8)) {
        int64_t at = c % TILE;
        if (c % m->group_cols == 0) load_group(&b, m, rows, row0, c / m->group_cols);
        for (int64_t i = 0; i < n; i++)
            tile[i][at] = ((float)(pl_quant_word(words, b.word[i]) >> b.shift[i] & 15) - b.zero[i]) * b.scale[i];
        for (int64_t i = 0; i < n && (at == TILE - 1 || c == cols - 1); i++)
            memcpy(dst + i * cols + c - at, tile[i], (size_t)(at + 1) * sizeof **tile);
    }
}

static void read_rows(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    for (int64_t r = 0; r < n; r += BAND)
        read_band(e, row0 + r, n - r < BAND ? n - r : BAND, dst + r * e->shape[1]);
}

const pl_weight_code pl_weight_awq = {.name = "awq",
                                      .read = read_rows,
                                      .span = pl_quant_span,
                                      .hash = pl_quant_hash,
                                      .check = pl_quant_check,
                                      .grain = pl_quant_grain};
