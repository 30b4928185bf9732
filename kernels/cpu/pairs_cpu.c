// Passes over panels of bf16, and the rows that passes take. The arithmetic is in panels.h.
//
// Without a matrix unit: of a block of 32 k, 4 KB of a panel, a group of columns at a time: its even and odd chains for
// all rows are in registers, so that as many are under way as fma takes to finish; y, in the first-level cache, takes
// their sums once a block. With one: 16 or 32 rows by 64 or 32 columns are tiles of sums.
#include "kernels/cpu/pack.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/tiles.h"

#include "kernels/panels.h"

enum {
    BLOCK = PL_PANEL_BLOCK,
    PAIRS = BLOCK / 2,
    COLUMNS_MOST = 4, // vectors of columns of a group
#ifdef PL_TILES
    ROWS_MOST = 2 * PL_TILE_ROWS,
    TILES_FROM = 3, // rows from which the matrix unit is taken
#else
    ROWS_MOST = PL_MR_BF16,
    TILES_FROM = ROWS_MOST + 1,
#endif
    FMA_ROWS = TILES_FROM - 1, // at most, of a pass without it
};
_Static_assert(PL_MR_BF16 <= 12, "the list of passes below");
_Static_assert(ROWS_MOST <= PL_PASS_ROWS && PL_MR_PANEL <= PL_PASS_ROWS, "what callers have room for");

uint64_t pl_panels_begin(bool bf16) {
    if (!bf16) return 0;
#ifdef PL_TILES
    pl_tiles_begin();
#endif
    return pl_flush_denormals();
}

void pl_panels_end(bool bf16, uint64_t mode) {
    if (!bf16) return;
    pl_flush_end(mode);
#ifdef PL_TILES
    pl_tiles_end();
#endif
}

// ---- what is fetched ahead ----

// How many bytes ahead of its use a line is prefetched: panels_cpu.c has the reasons.
enum { TRIES = 3 };
static const int64_t ahead_near[TRIES] = {PL_PANELS_AHEAD, 17408, 10240};
static const int64_t ahead_once[1] = {16384};

// What the tries of a block at w fetch, `left` bytes before the end of the panel: past that end it is what comes after.
PL_INLINE void find_ahead(const char *from[TRIES], int tries, const int64_t *ahead, const pl_pass *p, const char *w,
                          int64_t left) {
    for (int t = 0; t < tries; t++) {
        bool past = p->after && ahead[t] >= left;
        from[t] = (const char *)((uintptr_t)(past ? p->after : w) + (uintptr_t)(past ? ahead[t] - left : ahead[t]));
    }
}

// ---- without a matrix unit ----

typedef void (*pass_fn)(const pl_pass *p);

PL_INLINE void run_pass(const int R, const int C, const int W, const int tries, const pl_pass *p) {
    const int     width = W * PL_VN_LANES;
    const size_t  step = (size_t)width * 4; // bytes of a pair of k
    const bool    whole = p->cols == width;
    float         edge[PL_MR_BF16 * PL_PANEL];
    float        *to = whole ? p->y : edge;
    const int64_t ld = whole ? p->ldy : width;
    const float  *x = p->x;
    const char   *w = p->w;
    bool          first = !p->resume;
    if (!first && !whole)
        for (int r = 0; r < R; r++)
            for (int64_t j = 0; j < width; j++)
                edge[r * width + j] = j < p->cols ? p->y[r * p->ldy + j] : 0.0f;

    int64_t left = (p->kc + 1) / 2 * (int64_t)step;
    for (int64_t k = 0; k < p->kc; k += BLOCK, first = false) {
        const int   pairs = p->kc - k < BLOCK ? (int)(p->kc - k + 1) / 2 : PAIRS;
        const char *next[TRIES];
        find_ahead(next, tries, tries > 1 ? ahead_near : ahead_once, p, w, left);
        for (int v0 = 0; v0 < W; v0 += C) {
            const size_t at = (size_t)v0 * sizeof(pl_vn);
            pl_vn        even[PL_MR_BF16][COLUMNS_MOST], odd[PL_MR_BF16][COLUMNS_MOST];
#pragma GCC unroll 12
            for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                for (int c = 0; c < C; c++)
                    even[r][c] = odd[r][c] = pl_vn_set1(0.0f);
            for (int q = 0; q < pairs; q++) {
                const size_t here = (size_t)q * step + at;
                const float *xq = x + (int64_t)q * 2 * R;
                for (int t = 0; t < tries && v0 == 0; t++) // all of a pair: one stream, however columns are grouped
                    for (size_t line = 0; line < step; line += 64)
                        __builtin_prefetch(next[t] + here + line);
#pragma GCC unroll 4
                for (int c = 0; c < C; c++) {
                    pl_vnu words;
                    memcpy(&words, w + here + (size_t)c * sizeof words, sizeof words);
                    pl_vn lo = (pl_vn)(words << 16), hi = (pl_vn)(words & 0xffff0000u);
#pragma GCC unroll 12
                    for (int r = 0; r < R; r++) {
                        even[r][c] = pl_vn_fma_bf16(pl_vn_set1(xq[r]), lo, even[r][c]);
                        odd[r][c] = pl_vn_fma_bf16(pl_vn_set1(xq[R + r]), hi, odd[r][c]);
                    }
                }
            }
            const pl_vn zero = pl_vn_set1(0.0f);
#pragma GCC unroll 12
            for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                for (int c = 0; c < C; c++) {
                    float *sum = to + r * ld + (v0 + c) * PL_VN_LANES;
                    // The products of zeros that a short block ends with change the sign of a zero at most.
                    if (pairs < PAIRS) even[r][c] += zero, odd[r][c] += zero;
                    pl_vn_storeu(sum, (first ? zero : pl_vn_loadu(sum)) + (even[r][c] + odd[r][c]));
                }
        }
        x += (int64_t)pairs * 2 * R;
        w += (size_t)pairs * step;
        left -= pairs * (int64_t)step;
    }
    if (!whole)
        for (int r = 0; r < R; r++)
            memcpy(p->y + r * p->ldy, edge + (size_t)r * width, (size_t)p->cols * sizeof(float));
}

// As many columns as the chains of R rows leave room for; rows that are never called shrink to nothing.
#define FIT(R) ((R) <= FMA_ROWS && (R) <= PL_MR_BF16 ? (R) : 1)
#define GROUP(R) (8 * FIT(R) <= PL_CHAINS ? 4 : 4 * FIT(R) <= PL_CHAINS ? 2 : 1)
enum { WIDE = PL_PANEL / PL_VN_LANES, HALF = PL_HALF_PANEL / PL_VN_LANES };
#define PASS(R)                                                                                                        \
    static void once_##R(const pl_pass *p) {                                                                           \
        run_pass(FIT(R), GROUP(R), WIDE, 1, p);                                                                        \
    }                                                                                                                  \
    static void half_##R(const pl_pass *p) {                                                                           \
        run_pass(FIT(R), GROUP(R) < HALF ? GROUP(R) : HALF, HALF, 1, p);                                               \
    }
#define NEAR(R)                                                                                                        \
    static void near_##R(const pl_pass *p) {                                                                           \
        run_pass(FIT(R), GROUP(R), WIDE, TRIES, p);                                                                    \
    }
#define ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define FEW(X) X(1) X(2) X(3)
ROWS(PASS)
FEW(NEAR)

#define ONCE_OF(R) [R] = once_##R,
#define HALF_OF(R) [R] = half_##R,
#define NEAR_OF(R) [R] = near_##R,
static const pass_fn once[] = {ROWS(ONCE_OF)}, half[] = {ROWS(HALF_OF)}, near[] = {FEW(NEAR_OF)};

static void fma_pass(int rows, int width, const pl_pass *p) {
    if (width == PL_HALF_PANEL)
        half[rows](p);
    else
        (rows <= 3 && !p->far ? near : once)[rows](p);
}

// ---- with one ----

#ifdef PL_TILES
#ifdef PL_TILES_EMULATED
_Thread_local pl_tile PL_CPU(tile)[8];
#endif

enum { X_TILE = PL_TILE_ROWS * BLOCK }; // bf16 values of a tile of x

// The weights of a block that does not fill a tile, continued with zeros.
static const char *fill_up(char *to, const char *w, int pairs, size_t step) {
    memset(to, 0, PAIRS * step);
    memcpy(to, w, (size_t)pairs * step);
    return to;
}

PL_INLINE void fetch_block(const char *const *next, const size_t step) {
    for (size_t i = 0; i < PAIRS * step; i += 64)
        __builtin_prefetch(next[0] + i);
}

// A walk over the blocks: `body` sees x and w of each.
#define OVER_BLOCKS(x_tiles, fetch, body)                                                                              \
    do {                                                                                                               \
        const uint16_t *x = p->x;                                                                                      \
        const char     *at = p->w;                                                                                     \
        int64_t         left = (p->kc + 1) / 2 * (int64_t)step;                                                        \
        for (int64_t k = 0; k < p->kc; k += BLOCK, x += (x_tiles)*X_TILE, at += PAIRS * step) {                        \
            const char *next[TRIES], *w = at;                                                                          \
            find_ahead(next, 1, ahead_once, p, at, left);                                                              \
            left -= PAIRS * (int64_t)step;                                                                             \
            if (p->kc - k < BLOCK)                                                                                     \
                w = fill_up(tail, at, (int)(p->kc - k + 1) / 2, step);                                                 \
            else if (fetch)                                                                                            \
                fetch_block(next, step);                                                                               \
            body                                                                                                       \
        }                                                                                                              \
    } while (0)

// Tiles 0 to 3 are sums, whose places are rows of PL_PANEL floats.
enum { SUM_ROW = PL_PANEL * sizeof(float) };

static void take_sums(float *const at[4], bool resume) {
    pl_tile_zero(0);
    pl_tile_zero(1);
    pl_tile_zero(2);
    pl_tile_zero(3);
    if (!resume) return;
    pl_tile_load(0, at[0], SUM_ROW);
    pl_tile_load(1, at[1], SUM_ROW);
    pl_tile_load(2, at[2], SUM_ROW);
    pl_tile_load(3, at[3], SUM_ROW);
}

static void leave_sums(float *const at[4]) {
    pl_tile_store(0, at[0], SUM_ROW);
    pl_tile_store(1, at[1], SUM_ROW);
    pl_tile_store(2, at[2], SUM_ROW);
    pl_tile_store(3, at[3], SUM_ROW);
}

static void tile_pass(int rows, int width, const pl_pass *p) {
    const size_t       step = (size_t)width * 4;
    _Alignas(64) char  tail[PAIRS * PL_PANEL * 4];
    // Sums on their way between y, of which a panel's columns and these rows may not all be there, and tiles.
    _Alignas(64) float y[ROWS_MOST][PL_PANEL];
    if (p->resume) {
        memset(y, 0, sizeof y);
        for (int r = 0; r < rows; r++)
            memcpy(y[r], p->y + r * p->ldy, (size_t)p->cols * sizeof(float));
    }
    if (rows <= PL_TILE_ROWS) {
        float *const sums[4] = {&y[0][0], &y[0][16], &y[0][32], &y[0][48]};
        take_sums(sums, p->resume);
        if (width == PL_PANEL)
            OVER_BLOCKS(1, true, {
                pl_tile_load(4, x, 64);
                pl_tile_load(5, w, step);
                pl_tile_product(0, 4, 5);
                pl_tile_load(6, w + 64, step);
                pl_tile_product(1, 4, 6);
                pl_tile_load(7, w + 128, step);
                pl_tile_product(2, 4, 7);
                pl_tile_load(5, w + 192, step);
                pl_tile_product(3, 4, 5);
            });
        else
            OVER_BLOCKS(1, true, {
                pl_tile_load(4, x, 64);
                pl_tile_load(5, w, step);
                pl_tile_product(0, 4, 5);
                pl_tile_load(6, w + 64, step);
                pl_tile_product(1, 4, 6);
            });
        leave_sums(sums);
    } else {
        for (int j = 0; j < width; j += 2 * PL_TILE_ROWS) {
            float *const sums[4] = {&y[0][j], &y[0][j + 16], &y[16][j], &y[16][j + 16]};
            take_sums(sums, p->resume);
            OVER_BLOCKS(2, j == 0, {
                pl_tile_load(4, x, 64);
                pl_tile_load(6, w + (size_t)j * 4, step);
                pl_tile_load(5, x + X_TILE, 64);
                pl_tile_load(7, w + (size_t)j * 4 + 64, step);
                pl_tile_product(0, 4, 6);
                pl_tile_product(2, 5, 6);
                pl_tile_product(1, 4, 7);
                pl_tile_product(3, 5, 7);
            });
            leave_sums(sums);
        }
    }
    for (int r = 0; r < rows; r++)
        memcpy(p->y + r * p->ldy, y[r], (size_t)p->cols * sizeof(float));
}
#endif

void pl_unit_run(int times) {
#ifdef PL_TILES
    pl_tiles_begin(); // all zero: the unit takes as long
    for (int i = 0; i < times; i++) {
        pl_tile_product(0, 4, 6);
        pl_tile_product(1, 4, 7);
        pl_tile_product(2, 5, 6);
        pl_tile_product(3, 5, 7);
    }
    pl_tiles_end();
#else
    (void)times;
#endif
}

void pl_pairs_pass(int rows, int width, const pl_pass *p) {
#ifdef PL_TILES
    if (rows >= TILES_FROM) {
        tile_pass(rows, width, p);
        return;
    }
#endif
    fma_pass(rows, width, p);
}

// ---- rows ----

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

const int PL_ROWS_TILE = ROWS_MOST;

static int64_t rows_most(bool bf16) {
    return bf16 ? ROWS_MOST : PL_MR_PANEL;
}

// Of a tile of `rows` rows; grows with rows.
static size_t tile_bytes(bool bf16, int64_t rows, int64_t k) {
    int64_t floats = rows * pl_panel_columns(bf16 ? PL_BF16 : PL_F32, k) + PL_PACK_SLACK;
    size_t  bytes = (size_t)ceil_div(floats, PL_VL) * PL_VL * sizeof(float);
#ifdef PL_TILES
    size_t tiles = rows < TILES_FROM ? 0 : (size_t)(ceil_div(rows, PL_TILE_ROWS) * ceil_div(k, BLOCK)) * X_TILE * 2;
    if (bf16 && tiles > bytes) bytes = tiles;
#endif
    return bytes;
}

size_t pl_rows_bytes(bool bf16, int64_t rows, int64_t k) {
    int64_t most = rows_most(bf16);
    if (!bf16 && rows == 1) return 0;
    return (size_t)ceil_div(rows, most) * tile_bytes(bf16, rows < most ? rows : most, k);
}

void pl_rows_begin(pl_rows *r, bool bf16, const float *x, int64_t rows, int64_t k, void *room) {
    int64_t most = rows_most(bf16);
    *r = (pl_rows){.x = x, .ld = k, .rows = rows, .k = k, .tiles = ceil_div(rows, most), .bf16 = bf16};
    r->tile_bytes = tile_bytes(bf16, rows < most ? rows : most, k);
    r->packed = bf16 || rows > 1 ? room : NULL;
}

size_t pl_rows_apart_bytes(bool bf16, int64_t rows, int64_t k) {
    return bf16 ? (size_t)rows * tile_bytes(true, 1, k) : 0;
}

void pl_rows_apart(pl_rows *r, bool bf16, const float *x, int64_t rows, int64_t k, void *room) {
    *r = (pl_rows){.x = x, .ld = k, .rows = rows, .k = k, .tiles = rows, .bf16 = bf16};
    r->tile_bytes = tile_bytes(bf16, 1, k);
    r->packed = bf16 ? room : NULL;
}

#ifdef PL_TILES
// A tile of x: up to 16 rows by up to 32 columns, zeros to the end of both. Lines of x are its rows, or its columns.
static void pack_tile(uint16_t *to, const float *x, int64_t ld, bool across, int rows, int columns) {
    enum { PARTS = PL_TILE_ROWS / PL_VN_LANES };
    float        own[BLOCK][PL_TILE_ROWS] = {{0}}, line[BLOCK];
    const float *from;
    if (!across) {
        for (int r = 0; r < PL_TILE_ROWS; r++, to += BLOCK) {
            if (r >= rows) {
                memset(to, 0, BLOCK * sizeof *to);
                continue;
            }
            from = x + r * ld;
            if (columns < BLOCK) {
                memset(line, 0, sizeof line);
                memcpy(line, from, (size_t)columns * sizeof *line);
                from = line;
            }
#pragma GCC unroll 4
            for (int i = 0; i < BLOCK; i += 2 * PL_VN_LANES) {
                pl_vnu words = pl_vn_words_of(pl_vn_loadu(from + i), pl_vn_loadu(from + i + PL_VN_LANES));
                memcpy(to + i, &words, sizeof words);
            }
        }
        return;
    }
    if (rows < PL_TILE_ROWS || columns < BLOCK) {
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
                from = x + 2 * (q0 + q) * ld + part * PL_VN_LANES;
                t[q] = (pl_vn)pl_vn_words(pl_vn_loadu(from), pl_vn_loadu(from + ld));
            }
            pl_vn_transpose(t);
#pragma GCC unroll 16
            for (int r = 0; r < PL_VN_LANES; r++)
                memcpy(to + (part * PL_VN_LANES + r) * BLOCK + 2 * q0, &t[r], sizeof t[r]);
        }
}

static void pack_tiles(const pl_rows *p, uint16_t *to, const float *x, int64_t rows) {
    for (int64_t k0 = 0; k0 < p->k; k0 += BLOCK)
        for (int64_t r = 0; r < rows; r += PL_TILE_ROWS, to += X_TILE)
            pack_tile(to, p->across ? x + k0 * p->ld + r : x + r * p->ld + k0, p->ld, p->across,
                      (int)(rows - r < PL_TILE_ROWS ? rows - r : PL_TILE_ROWS),
                      (int)(p->k - k0 < BLOCK ? p->k - k0 : BLOCK));
}
#endif

static void round_floats(float *x, int64_t n) {
    int64_t i = 0;
    for (; i + PL_VN_LANES <= n; i += PL_VN_LANES)
        pl_vn_storeu(x + i, pl_vn_round_bf16(pl_vn_loadu(x + i)));
    for (; i < n; i++)
        x[i] = pl_round_bf16(x[i]);
}

void pl_rows_pack(const pl_rows *r, int64_t tile) {
    int64_t      first = pl_rows_first(r, tile), rows = pl_rows_first(r, tile + 1) - first, k = r->k;
    const float *x = r->x + first * (r->across ? 1 : r->ld);
    float       *to = (float *)(void *)(r->packed + (size_t)tile * r->tile_bytes);
    if (!r->packed) return;
#ifdef PL_TILES
    if (r->bf16 && rows >= TILES_FROM) {
        pack_tiles(r, (uint16_t *)(void *)to, x, rows);
        return;
    }
#endif
    if (r->across)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < rows; j++)
                to[i * rows + j] = x[i * r->ld + j];
    else if (rows == 1)
        memcpy(to, x, (size_t)k * sizeof *to);
    else
        pl_pack_transposed(to, rows, x, r->ld, rows, k);
    if (!r->bf16) return;
    round_floats(to, rows * k);
    for (int64_t i = rows * k; i < rows * pl_panel_columns(PL_BF16, k); i++)
        to[i] = 0.0f;
}

const void *pl_rows_at(const pl_rows *r, int64_t tile, int64_t k) {
    const char *packed = r->packed + (size_t)tile * r->tile_bytes;
    int64_t     rows = pl_rows_first(r, tile + 1) - pl_rows_first(r, tile);
    if (!r->packed) return r->x + pl_rows_first(r, tile) * r->k + k;
#ifdef PL_TILES
    if (r->bf16 && rows >= TILES_FROM)
        return packed + (size_t)(k / BLOCK * ceil_div(rows, PL_TILE_ROWS)) * X_TILE * sizeof(uint16_t);
#endif
    return packed + (size_t)(k * rows) * sizeof(float);
}
