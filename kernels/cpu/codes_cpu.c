// Passes over panels that are held as codes (kernels/codes.h), in the order and with the bits of plain panels.
//
// A vector has the codes of as many rows of W at one k. One mask passes over the words of a row, so that a code stays
// where it lies in its word: u * 2^(bits j) becomes a float as exactly as u does, and scale * 2^(-bits j) makes up for
// it. The highest code would be a sign; it is shifted down. A value v is rounded to the 8 bits of bf16 as
// c - (c - v), c = (2^16 + 1) v (Veltkamp's split; for 24 and 8 bits ties go to even: tests/kernels/test_codes.c), on
// AVX512-BF16 by an instruction.
//
//   few rows    values go from registers into the products: no room, no second read
//   more rows   a piece of a panel is opened into bf16, in the first-level cache, and passed over as plain panels are
//
// With products of pairs 32 values take five to six cycles of a Zen 4 to make, and 1.1 for each row that multiplies
// them: from nine rows on the second read is less than making them again.
#include "kernels/codes.h"
#include "kernels/cpu/pairs.h"

enum {
    PIECE = 2 * PL_PANEL_BLOCK, // columns of a piece: 8 KiB
    VECTORS = PL_PANEL / PL_VN_LANES,
    AHEAD = 4096, // bytes ahead of their use that codes are prefetched
    ABREAST = 4,  // values that are made side by side
#ifdef PL_DOTS
    FEW = 8, // rows that take values from registers
#else
    FEW = 2,
#endif
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

// Codes j of words i to i + 3 of vector v, as values before they are rounded: step by step, so that the processor sees
// four at a time.
PL_INLINE void take_exact(pl_vn t[ABREAST], const form f, const char *words, const int j, const int i, int v,
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
}

#if !defined(__AVX512BF16__) || !defined(PL_DOTS) // else an instruction rounds
PL_INLINE void round_values(pl_vn t[ABREAST]) {
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
#endif

// Rounds four values and makes words of them, of low and of high halves: one instruction where there is one.
PL_INLINE void make_words(pl_vnu to[2], pl_vn t[ABREAST], const int low0, const int high0, const int low1,
                          const int high1) {
#if defined(__AVX512BF16__)
    to[0] = pl_vn_words_normal(t[low0], t[high0]);
    to[1] = pl_vn_words_normal(t[low1], t[high1]);
#else
    round_values(t);
    to[0] = (pl_vnu)t[low0] >> 16 | (pl_vnu)t[high0];
    to[1] = (pl_vnu)t[low1] >> 16 | (pl_vnu)t[high1];
#endif
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
                pl_vn  t[ABREAST];
                pl_vnu word[2];
                take_exact(t, f, words, j, i, v, &s);
                make_words(word, t, 0, 1, 2, 3);
                for (int c = 0; c < 2; c++)
                    memcpy(to + (((j * f.bits + i) / 2 + c) * PL_PANEL + v * PL_VN_LANES) * 4, &word[c],
                           sizeof word[c]);
            }
        }
    }
}

// Adds what R rows of x and four k, from k on in a block, give to the chains of even and of odd k.
PL_INLINE void add_products(pl_vn sum[FEW][2], const int R, const void *x, const int k, pl_vn t[ABREAST]) {
#ifdef PL_DOTS
    const uint32_t *xk = (const uint32_t *)x + k / 2;
    const pl_vnu    none = {0};
    pl_vnu          word[2]; // k + 2 below k, k + 3 below k + 1
    make_words(word, t, 2, 0, 3, 1);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
        for (int c = 0; c < 2; c++)
            sum[r][c] = pl_vn_dot(sum[r][c], none + xk[r * PL_BLOCK_PAIRS + c], word[c]);
#else
    const float *xk = (const float *)x + k * R;
    round_values(t);
#pragma GCC unroll 4
    for (int c = 0; c < ABREAST; c++)
#pragma GCC unroll 2
        for (int r = 0; r < R; r++)
            sum[r][c % 2] = pl_vn_fma_bf16(pl_vn_set1(xk[c * R + r]), t[c], sum[r][c % 2]);
#endif
}

// R rows over all of a panel.
PL_INLINE void run_few(const int R, const form f, const size_t bytes, const pl_pass *p) {
    const size_t  x_block = (size_t)R * PL_PANEL_BLOCK * (PL_DOT_ROWS > 0 ? sizeof(uint16_t) : sizeof(float));
    const bool    whole = p->cols == PL_PANEL;
    float         edge[FEW * PL_PANEL];
    float        *to = whole ? p->y : edge;
    const int64_t ld = whole ? p->ldy : PL_PANEL;
    const char   *x = p->x, *block = p->w;
    const pl_vn   zero = pl_vn_set1(0.0f);
    if (p->resume && !whole) pl_take_edge(edge, PL_PANEL, R, p);
    for (int64_t k = 0; k < p->kc; k += PL_PANEL_BLOCK, block += bytes, x += x_block) {
        const bool first = k == 0 && !p->resume;
        fetch_block(block, bytes);
        const char *words = words_of(f, block);
        for (int v = 0; v < VECTORS; v++) {
            pl_vn  sum[FEW][2]; // of even k, of odd k
            scales s;
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
                sum[r][0] = sum[r][1] = zero;
#pragma GCC unroll 8
            for (int j = 0; j < 32 / f.bits; j++) {
                begin_code(&s, f, block, v, j);
#pragma GCC unroll 2
                for (int i = 0; i < f.bits; i += ABREAST) {
                    pl_vn t[ABREAST];
                    take_exact(t, f, words, j, i, v, &s);
                    add_products(sum, R, x, j * f.bits + i, t);
                }
            }
#pragma GCC unroll 8
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

#define FEW_ROWS(R, CODE, ...)                                                                                         \
    static void few_##R##_##CODE(size_t bytes, const pl_pass *p) {                                                     \
        run_few(R, (form){__VA_ARGS__}, bytes, p);                                                                     \
    }
#ifdef PL_DOTS
#define UP_TO_FEW(X, ...)                                                                                              \
    X(1, __VA_ARGS__)                                                                                                  \
    X(2, __VA_ARGS__)                                                                                                  \
    X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__) X(7, __VA_ARGS__) X(8, __VA_ARGS__)
#else
#define UP_TO_FEW(X, ...) X(1, __VA_ARGS__) X(2, __VA_ARGS__)
#endif
#define DEFINE(CODE, ...)                                                                                              \
    static void open_##CODE(const char *block, char *to) {                                                             \
        open_block((form){__VA_ARGS__}, block, to);                                                                    \
    }                                                                                                                  \
    UP_TO_FEW(FEW_ROWS, CODE, __VA_ARGS__)
FORMS(DEFINE)

#define OPEN_OF(CODE, ...) [CODE] = open_##CODE,
#define ROWS_OF(R, CODE) [R] = few_##R##_##CODE,
#define FEW_OF(CODE, ...) [CODE] = {UP_TO_FEW(ROWS_OF, CODE)},
static const open_fn opens[] = {FORMS(OPEN_OF)};
static const pass_fn fews[][FEW + 1] = {FORMS(FEW_OF)};

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
