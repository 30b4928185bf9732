#include "kernels/panels.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <string.h>

// Where element (n, k) lies in a packed matrix, in elements.
static size_t panel_index(pl_dtype t, int64_t n, int64_t k, int64_t cols) {
    size_t panel = (size_t)n / PL_PANEL * (size_t)pl_panel_columns(t, cols) * PL_PANEL;
    return panel + pl_panel_place(t, n % PL_PANEL, k, PL_PANEL);
}

size_t pl_panels_bytes(int64_t n, int64_t k, pl_dtype t) {
    PL_CHECK(n >= 0 && k >= 0 && (t == PL_F32 || t == PL_BF16), "panels of [%lld, %lld] %s", (long long)n, (long long)k,
             pl_dtype_name(t));
    return pl_size_mul(((size_t)n + PL_PANEL - 1) / PL_PANEL * PL_PANEL, (size_t)pl_panel_columns(t, k),
                       pl_dtype_size(t));
}

// Rows of W that follow each other in one panel, from its row `row` on.
typedef struct run {
    uint8_t *panel;
    int64_t  row, rows;
} run;

// Of rows [from, end) of N the first ones that do.
static run run_of(pl_layout layout, void *dst, pl_dtype t, int64_t from, int64_t end, int64_t n, int64_t k) {
    bool    gated = layout == PL_GATED;
    int64_t place = gated ? pl_gated_place(from, n) : from, room = gated ? PL_HALF_PANEL : PL_PANEL;
    run     r = {.row = place % PL_PANEL, .rows = room - place % room};
    if (gated && from < n / 2 && end > n / 2) end = n / 2;
    if (r.rows > end - from) r.rows = end - from;
    r.panel = (uint8_t *)dst + panel_index(t, place - r.row, 0, k) * pl_dtype_size(t);
    return r;
}

static void check_rows(pl_layout layout, int64_t n0, int64_t count, int64_t n) {
    PL_CHECK(layout == PL_PANELS || (layout == PL_GATED && n % 2 == 0), "%lld rows in layout %d", (long long)n,
             (int)layout);
    PL_CHECK(n0 >= 0 && count >= 0 && n0 + count <= n, "rows %lld..%lld of %lld", (long long)n0,
             (long long)(n0 + count), (long long)n);
}

void pl_panels_pack(void *dst, pl_dtype t, int64_t n0, int64_t count, int64_t n, int64_t k, const float *src) {
    pl_panels_pack_as(PL_PANELS, dst, t, n0, count, n, k, src);
}

void pl_panels_pack_as(pl_layout layout, void *dst, pl_dtype t, int64_t n0, int64_t count, int64_t n, int64_t k,
                       const float *src) {
    PL_CHECK(t == PL_F32 || t == PL_BF16, "panels of %s", pl_dtype_name(t));
    check_rows(layout, n0, count, n);
    run r;
    for (int64_t from = n0; from < n0 + count; from += r.rows) {
        r = run_of(layout, dst, t, from, n0 + count, n, k);
        pl_panel_pack(r.panel, t, PL_PANEL, r.row, r.rows, k, src + (from - n0) * k);
    }
}

enum { BLOCK = 32 }; // columns: of bf16 one cache line of a row, for which a panel has 4 KB

// Columns k0 .. k0 + columns - 1 of one row, `src` from k0 on. A pair is a word as it lies there; the last of an odd
// number has no partner.
static void put_pairs(uint8_t *panel, int width, int64_t row, int64_t k0, int64_t columns, const uint8_t *src) {
    uint8_t *to = panel + pl_panel_place(PL_BF16, row, k0, width) * sizeof(uint16_t);
    size_t   step = (size_t)width * sizeof(uint32_t);
    int64_t  i = 0;
    for (; i + 2 <= columns; i += 2, to += step)
        memcpy(to, src + i * 2, sizeof(uint32_t));
    if (i < columns) memcpy(to, src + i * 2, sizeof(uint16_t));
}

void pl_panels_pack_bf16(pl_layout layout, void *dst, int64_t n0, int64_t count, int64_t n, int64_t k,
                         const void *src) {
    check_rows(layout, n0, count, n);
    run r;
    for (int64_t from = n0; from < n0 + count; from += r.rows) {
        const uint8_t *s = (const uint8_t *)src + (from - n0) * k * 2;
        r = run_of(layout, dst, PL_BF16, from, n0 + count, n, k);
        for (int64_t k0 = 0; k0 < k; k0 += BLOCK)
            for (int64_t i = 0; i < r.rows; i++) {
                const uint8_t *at = s + (i * k + k0) * 2;
                __builtin_prefetch(at + BLOCK * 2); // rows lie pages apart: no processor foresees that
                put_pairs(r.panel, PL_PANEL, r.row + i, k0, k - k0 < BLOCK ? k - k0 : BLOCK, at);
            }
    }
}

// A transposition: blocks of columns, so that the lines written stay in the first-level cache.
void pl_panel_pack(void *panel, pl_dtype t, int width, int64_t row0, int64_t count, int64_t k, const float *src) {
    for (int64_t k0 = 0; k0 < k; k0 += BLOCK) {
        int64_t columns = k - k0 < BLOCK ? k - k0 : BLOCK;
        for (int64_t row = row0; row < row0 + count; row++) {
            const float *s = src + (row - row0) * k + k0;
            uint16_t     half[BLOCK];
            if (t == PL_F32) {
                float *to = (float *)panel + pl_panel_place(t, row, k0, width);
                for (int64_t i = 0; i < columns; i++)
                    to[i * width] = s[i];
            } else {
                pl_from_f32(half, PL_BF16, s, (size_t)columns);
                put_pairs(panel, width, row, k0, columns, (const uint8_t *)half);
            }
        }
    }
}

float pl_panels_at(const void *panels, pl_dtype t, int64_t n, int64_t k, int64_t cols) {
    size_t at = panel_index(t, n, k, cols);
    return t == PL_F32 ? ((const float *)panels)[at] : pl_bf16_to_f32(((const uint16_t *)panels)[at]);
}

void pl_panels_row(float *dst, const void *panels, pl_dtype t, int64_t n, int64_t cols) {
    for (int64_t k = 0; k < cols; k++)
        dst[k] = pl_panels_at(panels, t, n, k, cols);
}
