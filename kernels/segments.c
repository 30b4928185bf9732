#include "kernels/segments.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/codes.h"
#include "kernels/panels.h"

void pl_segments_place(int64_t *unit, const int64_t *row, int64_t n) {
    unit[0] = 0;
    for (int64_t i = 0; i < n; i++)
        unit[i + 1] = unit[i] + (row[i + 1] - row[i] + PL_HALF_PANEL - 1) / PL_HALF_PANEL;
}

static size_t packed_row(pl_dtype t, int64_t k) {
    return (size_t)pl_panel_columns(t, k) * pl_dtype_size(t);
}

size_t pl_segments_bytes(const pl_segments *s, int64_t k, pl_dtype t) {
    return pl_size_mul((size_t)s->unit[s->n] * PL_HALF_PANEL, (size_t)pl_panel_columns(t, k), pl_dtype_size(t));
}

// The last segment that begins at or before a row: of empty ones at the same row, the one that is not.
static int64_t segment_of(const pl_segments *s, int64_t row, int64_t near) {
    int64_t low = 0, high = s->n; // row[low] <= row < row[high]
    if (near + 2 <= s->n && s->row[near + 1] <= row && row < s->row[near + 2]) return near + 1;
    if (s->row[near] <= row && row < s->row[near + 1]) return near;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(s->row[middle] <= row ? &low : &high) = middle;
    }
    return low;
}

// row_bytes: of a packed row.
static pl_panel in_segment(const pl_segments *s, int64_t segment, int64_t row, size_t row_bytes) {
    int64_t  panel = (row - s->row[segment]) / PL_PANEL, first = s->row[segment] + panel * PL_PANEL;
    int64_t  left = s->row[segment + 1] - first;
    pl_panel p = {.first = first, .rows = (int)(left < PL_PANEL ? left : PL_PANEL)};
    p.width = p.rows <= PL_HALF_PANEL ? PL_HALF_PANEL : PL_PANEL;
    p.at = ((size_t)s->unit[segment] + 2 * (size_t)panel) * PL_HALF_PANEL * row_bytes;
    return p;
}

pl_panel pl_panel_of(const pl_tensor *w, int64_t row, int64_t *segment) {
    PL_CHECK(row >= 0 && row < w->dim[0], "row %lld of %lld", (long long)row, (long long)w->dim[0]);
    if (w->layout == PL_SEGMENTS) {
        *segment = segment_of(w->segments, row, *segment);
        return in_segment(w->segments, *segment, row, packed_row(w->dtype, w->dim[1]));
    }
    int64_t panel = row / PL_PANEL, left = w->dim[0] - panel * PL_PANEL;
    return (pl_panel){.at = (size_t)panel * pl_packed_panel(w),
                      .first = panel * PL_PANEL,
                      .rows = (int)(left < PL_PANEL ? left : PL_PANEL),
                      .width = PL_PANEL};
}

int64_t pl_panels_most(const pl_tensor *w) {
    return w->layout == PL_SEGMENTS ? w->segments->unit[w->segments->n] : (w->dim[0] + PL_PANEL - 1) / PL_PANEL;
}

void pl_segments_pack(void *dst, pl_dtype t, const pl_segments *s, int64_t n0, int64_t count, int64_t k,
                      const float *src) {
    PL_CHECK(n0 >= 0 && count >= 0 && n0 + count <= s->row[s->n], "rows %lld..%lld of %lld", (long long)n0,
             (long long)(n0 + count), (long long)s->row[s->n]);
    for (int64_t row = n0, segment = 0, n; row < n0 + count; row += n) {
        segment = segment_of(s, row, segment);
        pl_panel p = in_segment(s, segment, row, packed_row(t, k));
        n = p.first + p.rows - row;
        if (n > n0 + count - row) n = n0 + count - row;
        pl_panel_pack((uint8_t *)dst + p.at, t, p.width, row - p.first, n, k, src + (row - n0) * k);
    }
}
