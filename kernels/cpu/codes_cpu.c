// Passes over panels that are held as codes (kernels/codes.h), in the order and with the bits of plain panels.
//
// A vector has the codes of as many rows of W at one k. One mask passes over the words of a row, so that a code stays
// where it lies in its word: u * 2^(bits j) becomes a float as exactly as u does, and scale * 2^(-bits j) makes up for
// it. The highest code would be a sign; it is shifted down. A value v is rounded to the 8 bits of bf16 as
// c - (c - v), c = (2^16 + 1) v (Veltkamp's split; for 24 and 8 bits ties go to even: tests/kernels/test_codes.c).
//
//   few rows    values go from registers into the products: no room, no second read
//   more rows   a piece of a panel is opened into bf16, in the first-level cache, and passed over as plain panels are
#include "kernels/codes.h"
#include "kernels/cpu/pairs.h"

enum {
    PIECE = 2 * PL_PANEL_BLOCK, // columns of a piece: 8 KiB
    VECTORS = PL_PANEL / PL_VN_LANES,
    AHEAD = 4096,                            // bytes ahead of their use that codes are prefetched
    ABREAST = 4,                             // values that are made side by side
    FEW = PL_FMA_ROWS < 2 ? PL_FMA_ROWS : 2, // rows that take values from registers: those that fma multiplies
    MOST = FEW > 0 ? FEW : 1,
};
_Static_assert(PL_CODE_BLOCK == PL_PANEL_BLOCK, "a block of codes is one of sums");

typedef struct form {
    int  bits, groups;
    bool wide, minima;
} form;

// Scales or minima of a vector of rows.
PL_INLINE pl_vn take_scale(const form f, const char *scales, int i, int v) {
    const char *from = scales + (i * PL_PANEL + v * PL_VN_LANES) * (f.wide ? 4 : 2);
    if (f.wide) return pl_vn_loadu((const float *)from);
    return pl_vn_from_f16(from);
}

// The factors and minima of code j in a vector of rows. by: scale * 2^(-bits j).
typedef struct scales {
    pl_vn scale, by, minimum;
} scales;

PL_INLINE void begin_code(scales *s, const form f, const char *block, int v, const int j) {
    const int group = 32 / f.bits / f.groups;
    if (j % group > 0) {
        s->by *= pl_vn_set1(1.0f / (float)(1 << f.bits));
        return;
    }
    s->scale = take_scale(f, block, j / group, v);
    s->by = s->scale * pl_vn_set1(1.0f / (float)((uint64_t)1 << j * f.bits));
    if (!f.minima)
        s->minimum = s->scale * pl_vn_set1(-(float)(1 << (f.bits - 1)));
    else if (j == 0)
        s->minimum = take_scale(f, block, f.groups, v);
}

// Codes j of words i to i + 3 of vector v, as values: step by step, so that the processor sees four at a time.
PL_INLINE void take_values(pl_vn t[ABREAST], const form f, const char *words, const int j, const int i, int v,
                           const scales *s) {
    const bool top = j == 32 / f.bits - 1;
#pragma GCC unroll 4
    for (int c = 0; c < ABREAST; c++) {
        pl_vnu u;
        memcpy(&u, words + ((i + c) * PL_PANEL + v * PL_VN_LANES) * 4, sizeof u);
        u = top ? u >> (j * f.bits) : u & (((1u << f.bits) - 1) << j * f.bits);
        t[c] = __builtin_convertvector((pl_vni)u, pl_vn);
    }
#pragma GCC unroll 4
    for (int c = 0; c < ABREAST; c++)
        t[c] = pl_vn_fma_bf16(t[c], top ? s->scale : s->by, s->minimum);
    pl_vn split[ABREAST];
#pragma GCC unroll 4
    for (int c = 0; c < ABREAST; c++)
        split[c] = pl_vn_opaque(t[c] * pl_vn_set1(65537.0f));
#pragma GCC unroll 4
    for (int c = 0; c < ABREAST; c++)
        t[c] = split[c] - t[c];
#pragma GCC unroll 4
    for (int c = 0; c < ABREAST; c++)
        t[c] = split[c] - t[c];
}

PL_INLINE const char *words_of(const form f, const char *block) {
    return block + (f.groups + f.minima) * PL_PANEL * (f.wide ? 4 : 2);
}

PL_INLINE void fetch_block(const char *block, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)((uintptr_t)block + AHEAD + i));
}

PL_INLINE void open_block(const form f, const char *block, char *to) {
    const char *words = words_of(f, block);
    for (int v = 0; v < VECTORS; v++) {
        scales s;
#pragma GCC unroll 8
        for (int j = 0; j < 32 / f.bits; j++) {
            begin_code(&s, f, block, v, j);
#pragma GCC unroll 4
            for (int i = 0; i < f.bits; i += ABREAST) {
                pl_vn t[ABREAST];
                take_values(t, f, words, j, i, v, &s);
#pragma GCC unroll 2
                for (int c = 0; c < ABREAST; c += 2) {
                    pl_vnu word = (pl_vnu)t[c] >> 16 | (pl_vnu)t[c + 1];
                    memcpy(to + ((j * f.bits + i + c) / 2 * PL_PANEL + v * PL_VN_LANES) * 4, &word, sizeof word);
                }
            }
        }
    }
}

// R rows over all of a panel.
PL_INLINE void run_few(const int R, const form f, const size_t bytes, const pl_pass *p) {
    const bool    whole = p->cols == PL_PANEL;
    float         edge[MOST * PL_PANEL];
    float        *to = whole ? p->y : edge;
    const int64_t ld = whole ? p->ldy : PL_PANEL;
    const float  *x = p->x;
    const char   *block = p->w;
    const pl_vn   zero = pl_vn_set1(0.0f);
    if (p->resume && !whole) pl_take_edge(edge, PL_PANEL, R, p);
    for (int64_t k = 0; k < p->kc; k += PL_PANEL_BLOCK, block += bytes, x += R * PL_PANEL_BLOCK) {
        const bool first = k == 0 && !p->resume;
        fetch_block(block, bytes);
        const char *words = words_of(f, block);
        for (int v = 0; v < VECTORS; v++) {
            pl_vn  sum[MOST][2]; // of even k, of odd k
            scales s;
#pragma GCC unroll 2
            for (int r = 0; r < R; r++)
                sum[r][0] = sum[r][1] = zero;
#pragma GCC unroll 8
            for (int j = 0; j < 32 / f.bits; j++) {
                begin_code(&s, f, block, v, j);
#pragma GCC unroll 2
                for (int i = 0; i < f.bits; i += ABREAST) {
                    const float *xk = x + (j * f.bits + i) * R;
                    pl_vn        t[ABREAST];
                    take_values(t, f, words, j, i, v, &s);
#pragma GCC unroll 4
                    for (int c = 0; c < ABREAST; c++)
#pragma GCC unroll 2
                        for (int r = 0; r < R; r++)
                            sum[r][c % 2] = pl_vn_fma_bf16(pl_vn_set1(xk[c * R + r]), t[c], sum[r][c % 2]);
                }
            }
#pragma GCC unroll 2
            for (int r = 0; r < R; r++) {
                float *y = to + r * ld + v * PL_VN_LANES;
                pl_vn_storeu(y, (first ? zero : pl_vn_loadu(y)) + (sum[r][0] + sum[r][1]));
            }
        }
    }
    if (!whole) pl_leave_edge(edge, PL_PANEL, R, p);
}

#define FORMS(X)                                                                                                       \
    X(PL_CODE_4, 4, 1, false, false)                                                                                   \
    X(PL_CODE_4_MINIMA, 4, 1, false, true)                                                                             \
    X(PL_CODE_4_WIDE, 4, 1, true, true)                                                                                \
    X(PL_CODE_8, 8, 1, false, false)                                                                                   \
    X(PL_CODE_8_WIDE, 8, 2, true, false)

typedef void (*open_fn)(const char *block, char *to);
typedef void (*pass_fn)(size_t bytes, const pl_pass *p);

#define FIT(R) ((R) <= FEW ? (R) : 1)
#define FEW_ROWS(R, CODE, ...)                                                                                         \
    static void few_##R##_##CODE(size_t bytes, const pl_pass *p) {                                                     \
        run_few(FIT(R), (form){__VA_ARGS__}, bytes, p);                                                                \
    }
#define DEFINE(CODE, ...)                                                                                              \
    static void open_##CODE(const char *block, char *to) {                                                             \
        open_block((form){__VA_ARGS__}, block, to);                                                                    \
    }                                                                                                                  \
    FEW_ROWS(1, CODE, __VA_ARGS__) FEW_ROWS(2, CODE, __VA_ARGS__)
FORMS(DEFINE)

#define OPEN_OF(CODE, ...) [CODE] = open_##CODE,
#define FEW_OF(CODE, ...) [CODE] = {NULL, few_1_##CODE, few_2_##CODE},
static const open_fn opens[] = {FORMS(OPEN_OF)};
static const pass_fn fews[][3] = {FORMS(FEW_OF)};

void pl_codes_open(pl_code code, const char *codes, int64_t columns, char *to) {
    const size_t bytes = pl_code_block_bytes(code);
    for (int64_t k = 0; k < columns; k += PL_PANEL_BLOCK, codes += bytes, to += PL_PANEL * PL_PANEL_BLOCK * 2) {
        fetch_block(codes, bytes);
        opens[code](codes, to);
    }
}

void pl_codes_pass(int rows, const pl_pass *p) {
    const size_t bytes = pl_code_block_bytes(p->code);
    if (rows <= FEW) {
        fews[p->code][rows](bytes, p);
        return;
    }
    _Alignas(64) char room[PIECE * PL_PANEL * 2];
    for (int64_t k = 0; k < p->kc; k += PIECE) {
        pl_pass a = *p;
        a.kc = p->kc - k < PIECE ? p->kc - k : PIECE;
        a.code = PL_CODE_NONE;
        a.w = room;
        a.here = true;
        a.after = NULL;
        a.x = pl_rows_on(p->x, rows, p->among, k);
        a.resume = p->resume || k > 0;
        pl_codes_open(p->code, p->w + (size_t)(k / PL_PANEL_BLOCK) * bytes, a.kc, room);
        pl_pairs_pass(rows, PL_PANEL, &a);
    }
}
