#include "kernels/panels.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"

// Where element (n, k) lies in a packed matrix, in elements.
static size_t panel_index(pl_dtype t, int64_t n, int64_t k, int64_t cols) {
    size_t line = ((size_t)n / PL_PANEL * (size_t)cols + (size_t)k) * PL_PANEL;
    return line + pl_panel_place(t, n % PL_PANEL, PL_PANEL);
}

size_t pl_panels_bytes(int64_t n, int64_t k, pl_dtype t) {
    PL_CHECK(n >= 0 && k >= 0 && (t == PL_F32 || t == PL_BF16), "panels of [%lld, %lld] %s", (long long)n, (long long)k,
             pl_dtype_name(t));
    return pl_size_mul(((size_t)n + PL_PANEL - 1) / PL_PANEL * PL_PANEL, (size_t)k, pl_dtype_size(t));
}

void pl_panels_pack(void *dst, pl_dtype t, int64_t n0, int64_t count, int64_t n, int64_t k, const float *src) {
    PL_CHECK(t == PL_F32 || t == PL_BF16, "panels of %s", pl_dtype_name(t));
    PL_CHECK(n0 >= 0 && count >= 0 && n0 + count <= n, "rows %lld..%lld of %lld", (long long)n0,
             (long long)(n0 + count), (long long)n);
    for (int64_t from = n0; from < n0 + count;) {
        int64_t to = (from / PL_PANEL + 1) * PL_PANEL;
        if (to > n0 + count) to = n0 + count;
        uint8_t *panel = (uint8_t *)dst + panel_index(t, from / PL_PANEL * PL_PANEL, 0, k) * pl_dtype_size(t);
        pl_panel_pack(panel, t, PL_PANEL, from % PL_PANEL, to - from, k, src + (from - n0) * k);
        from = to;
    }
}

// A transposition: blocks of BLOCK columns, so that the lines written stay in the first-level cache.
void pl_panel_pack(void *panel, pl_dtype t, int width, int64_t row0, int64_t count, int64_t k, const float *src) {
    enum { BLOCK = 16 };
    for (int64_t k0 = 0; k0 < k; k0 += BLOCK) {
        int64_t columns = k - k0 < BLOCK ? k - k0 : BLOCK;
        for (int64_t row = 0; row < count; row++) {
            const float *s = src + row * k + k0;
            size_t       at = (size_t)k0 * (size_t)width + pl_panel_place(t, row0 + row, width);
            for (int64_t i = 0; i < columns; i++, at += (size_t)width) {
                if (t == PL_F32)
                    ((float *)panel)[at] = s[i];
                else
                    ((uint16_t *)panel)[at] = pl_f32_to_bf16(s[i]);
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
