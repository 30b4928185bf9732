// The rows that passes take (panels.h): for fma k-slow, as floats; for products of pairs and for the matrix unit as
// lines of 32 k in bf16, block by block of them.
#include "kernels/cpu/pack.h"
#include "kernels/cpu/pairs.h"

#include "kernels/panels.h"

enum { BLOCK = PL_PANEL_BLOCK };

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

const int PL_ROWS_TILE = PL_MOST_ROWS;
const int PL_ROWS_BLOCK = PL_TILE_ROWS_MOST > 0 ? 256 : 96;

static int64_t rows_most(bool bf16) {
    return bf16 ? PL_MOST_ROWS : PL_MR_PANEL;
}

// Lines of a block that so many rows take, 0 where they are floats. The matrix unit's tiles are as high as the rows of
// a lone one; among several they are whole, as telling the unit another height takes as long as some products.
static int64_t lines_of(int64_t rows, bool among) {
    if (rows > PL_FEW_ROWS && !among && rows < PL_TILE_ROWS) return rows;
    if (rows > PL_FEW_ROWS) return ceil_div(rows, PL_TILE_ROWS) * PL_TILE_ROWS;
    return PL_DOT_ROWS > 0 ? rows : 0;
}

// Of a tile of `rows` rows; grows with rows.
static size_t tile_bytes(bool bf16, int64_t rows, int64_t k, bool among) {
    int64_t lines = bf16 ? lines_of(rows, among) : 0;
    if (lines > 0) return (size_t)(lines * ceil_div(k, BLOCK)) * BLOCK * sizeof(uint16_t);
    int64_t floats = rows * pl_panel_columns(bf16 ? PL_BF16 : PL_F32, k) + PL_PACK_SLACK;
    return (size_t)ceil_div(floats, PL_VL) * PL_VL * sizeof(float);
}

// Whole tiles of the matrix unit. The first 16 rows read the weights as they lie, which processors foresee; the others,
// 32 columns at a time, find them in the second-level cache. (Where somebody else fetches them all rows go alike:
// pl_rows_even.)
static bool is_led(bool bf16, int64_t rows) {
    return bf16 && PL_TILE_ROWS_MOST > 0 && rows > PL_TILE_ROWS;
}

static int64_t tiles_of(bool bf16, int64_t rows) {
    return is_led(bf16, rows) ? 1 + ceil_div(rows - PL_TILE_ROWS, rows_most(bf16)) : ceil_div(rows, rows_most(bf16));
}

// From a tile to the next. The same columns of many tiles are in use together: an odd number of steps of 32 KB keeps
// them from sharing a few sets of a cache.
static size_t tile_stride(bool bf16, int64_t rows, int64_t k) {
    enum { STEP = 1 << 15 };
    int64_t most = rows_most(bf16);
    size_t  bytes = tile_bytes(bf16, rows < most ? rows : most, k, rows > most);
    return is_led(bf16, rows) && bytes % (2 * STEP) == 0 ? bytes + STEP : bytes;
}

size_t pl_rows_bytes(bool bf16, int64_t rows, int64_t k) {
    if (!bf16 && rows == 1) return 0;
    return (size_t)tiles_of(bf16, rows) * tile_stride(bf16, rows, k);
}

void pl_rows_begin(pl_rows *r, bool bf16, const float *x, int64_t rows, int64_t k, void *room) {
    *r = (pl_rows){.x = x, .ld = k, .rows = rows, .k = k, .tiles = tiles_of(bf16, rows), .bf16 = bf16};
    r->tile_bytes = tile_stride(bf16, rows, k);
    r->packed = bf16 || rows > 1 ? room : NULL;
    if (is_led(bf16, rows)) {
        r->lead = PL_TILE_ROWS;
        r->high = rows_most(bf16);
    }
}

size_t pl_rows_apart_bytes(bool bf16, int64_t rows, int64_t k) {
    return bf16 ? (size_t)rows * tile_bytes(true, 1, k, false) : 0;
}

void pl_rows_apart(pl_rows *r, bool bf16, const float *x, int64_t rows, int64_t k, void *room) {
    *r = (pl_rows){.x = x, .ld = k, .rows = rows, .k = k, .tiles = rows, .bf16 = bf16};
    r->tile_bytes = tile_bytes(bf16, 1, k, false);
    r->packed = bf16 ? room : NULL;
}

// Rows of up to 32 columns as lines, zeros where columns end. In lines for products of pairs (dots) the values of k and
// k + 2 share a word, and of k + 1 and k + 3, as in pl_vn_chain_words; in others neighbours do.
static void pack_rows(uint16_t *to, const float *x, int64_t ld, int rows, int columns, bool dots) {
    float line[BLOCK];
    for (int r = 0; r < rows; r++, to += BLOCK) {
        const float *from = x + r * ld;
        if (columns < BLOCK) {
            memset(line, 0, sizeof line);
            memcpy(line, from, (size_t)columns * sizeof *line);
            from = line;
        }
#pragma GCC unroll 4
        for (int i = 0; i < BLOCK; i += 2 * PL_VN_LANES) {
            pl_vn  a = pl_vn_loadu(from + i), b = pl_vn_loadu(from + i + PL_VN_LANES);
            pl_vnu words = dots ? pl_vn_chain_words_of(a, b) : pl_vn_words_of(a, b);
            memcpy(to + i, &words, sizeof words);
        }
    }
}

// The same of up to 16 rows that are columns of x, of which `there` can be read: k + 1 follows k after ld.
static void pack_columns(uint16_t *to, const float *x, int64_t ld, int rows, int64_t there, int columns, bool dots) {
    enum { PARTS = PL_TILE_ROWS / PL_VN_LANES, PAIRS = PL_BLOCK_PAIRS };
    float own[BLOCK][PL_TILE_ROWS];
    if (there < PL_TILE_ROWS || columns < BLOCK) {
        memset(own, 0, sizeof own);
        for (int k = 0; k < columns; k++)
            memcpy(own[k], x + k * ld, (size_t)rows * sizeof own[k][0]);
        x = own[0];
        ld = PL_TILE_ROWS;
    }
    for (int part = 0; part < PARTS; part++) // of the rows
        for (int q0 = 0; q0 < PAIRS; q0 += PL_VN_LANES) {
            pl_vn t[PL_VN_LANES];
#pragma GCC unroll 16
            for (int q = 0; q < PL_VN_LANES; q++) {
                const int    pair = q0 + q, low = dots ? pair / 2 * 4 + pair % 2 + 2 : 2 * pair;
                const int    high = dots ? low - 2 : low + 1;
                const float *from = x + part * PL_VN_LANES;
                t[q] = (pl_vn)pl_vn_words(pl_vn_loadu(from + low * ld), pl_vn_loadu(from + high * ld));
            }
            pl_vn_transpose(t);
#pragma GCC unroll 16
            for (int r = 0; r < PL_VN_LANES; r++)
                if (part * PL_VN_LANES + r < rows)
                    memcpy(to + (part * PL_VN_LANES + r) * BLOCK + 2 * q0, &t[r], sizeof t[r]);
        }
}

// Columns k0 .. k0 + count - 1, which lie at x. there: rows of x from these on.
static void pack_lines(const pl_rows *p, uint16_t *to, const float *x, int64_t rows, int64_t there, int64_t k0,
                       int64_t count) {
    const int64_t all = lines_of(rows, p->tiles > 1);
    const bool    dots = rows <= PL_FEW_ROWS;
    to += k0 * all;
    for (int64_t k = 0; k < count; k += BLOCK, to += all * BLOCK) {
        int columns = (int)(count - k < BLOCK ? count - k : BLOCK);
        memset(to + rows * BLOCK, 0, (size_t)(all - rows) * BLOCK * sizeof *to);
        if (!p->across) pack_rows(to, x + k, p->ld, (int)rows, columns, dots);
        for (int64_t r = 0; r < rows && p->across; r += PL_TILE_ROWS)
            pack_columns(to + r * BLOCK, x + k * p->ld + r, p->ld,
                         (int)(rows - r < PL_TILE_ROWS ? rows - r : PL_TILE_ROWS), there - r, columns, dots);
    }
}

static void round_floats(float *x, int64_t n) {
    int64_t i = 0;
    for (; i + PL_VN_LANES <= n; i += PL_VN_LANES)
        pl_vn_storeu(x + i, pl_vn_round_bf16(pl_vn_loadu(x + i)));
    for (; i < n; i++)
        x[i] = pl_round_bf16(x[i]);
}

// Columns of any number of rows, k-slow. The last rows first: what is written past them are rows that follow.
static void pack_slow(float *to, const float *x, int64_t ld, int64_t rows, int64_t count) {
    for (int64_t r = (rows - 1) / PL_VN_LANES * PL_VN_LANES; r >= 0; r -= PL_VN_LANES)
        pl_pack_transposed(to + r, rows, x + r * ld, ld, rows - r < PL_VN_LANES ? rows - r : PL_VN_LANES, count);
}

// Columns of which there are more: those that follow may have been packed by another thread.
static void pack_piece(float *to, const float *x, int64_t ld, int64_t rows, int64_t count) {
    float own[BLOCK * PL_PASS_ROWS + PL_PACK_SLACK];
    for (int64_t k = 0, n; k < count; k += n) {
        n = count - k < BLOCK ? count - k : BLOCK;
        pack_slow(own, x + k, ld, rows, n);
        memcpy(to + k * rows, own, (size_t)(n * rows) * sizeof *own);
    }
}

// Columns k0 .. k0 + count - 1 as floats, one column of the tile's rows after the other.
static void pack_floats(const pl_rows *r, float *to, const float *x, int64_t rows, int64_t k0, int64_t count) {
    to += k0 * rows;
    if (r->across)
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < rows; j++)
                to[i * rows + j] = x[i * r->ld + j];
    else if (rows == 1)
        memcpy(to, x, (size_t)count * sizeof *to);
    else if (k0 + count < r->k)
        pack_piece(to, x, r->ld, rows, count);
    else
        pack_slow(to, x, r->ld, rows, count);
    if (!r->bf16) return;
    round_floats(to, rows * count);
    for (int64_t i = rows * count; k0 + count == r->k && i < rows * (pl_panel_columns(PL_BF16, r->k) - k0); i++)
        to[i] = 0.0f;
}

void pl_rows_pack_some(const pl_rows *r, int64_t tile, int64_t k0, int64_t count, const float *x) {
    int64_t first = pl_rows_first(r, tile), rows = pl_rows_first(r, tile + 1) - first;
    float  *to = (float *)(void *)(r->packed + (size_t)tile * r->tile_bytes);
    if (!r->packed) return;
    x += first * (r->across ? 1 : r->ld);
    if (r->bf16 && lines_of(rows, r->tiles > 1) > 0)
        pack_lines(r, (uint16_t *)(void *)to, x, rows, r->rows - first, k0, count);
    else
        pack_floats(r, to, x, rows, k0, count);
}

void pl_rows_pack(const pl_rows *r, int64_t tile) {
    pl_rows_pack_some(r, tile, 0, r->k, r->x);
}

const void *pl_rows_at(const pl_rows *r, int64_t tile, int64_t k) {
    const char *packed = r->packed + (size_t)tile * r->tile_bytes;
    int64_t     rows = pl_rows_first(r, tile + 1) - pl_rows_first(r, tile);
    if (!r->packed) return r->x + pl_rows_first(r, tile) * r->k + k;
    return r->bf16 ? pl_rows_on(packed, rows, r->tiles > 1, k) : packed + (size_t)(k * rows) * sizeof(float);
}

const void *pl_rows_on(const void *x, int64_t rows, bool among, int64_t k) {
    int64_t lines = lines_of(rows, among);
    return (const char *)x + (lines > 0 ? (size_t)(k * lines) * sizeof(uint16_t) : (size_t)(k * rows) * sizeof(float));
}
