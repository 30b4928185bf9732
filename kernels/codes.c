#include "kernels/codes.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/panels.h"

#include <math.h>
#include <string.h>

pl_code_form pl_code_form_of(pl_code code) {
    static const pl_code_form forms[] = {
        [PL_CODE_4] = {.bits = 4, .group = 32, .scale = PL_F16},
        [PL_CODE_4_MINIMA] = {.bits = 4, .group = 32, .scale = PL_F16, .minima = true},
        [PL_CODE_4_WIDE] = {.bits = 4, .group = 32, .scale = PL_F32, .minima = true},
        [PL_CODE_8] = {.bits = 8, .group = 32, .scale = PL_F16},
        [PL_CODE_8_WIDE] = {.bits = 8, .group = 16, .scale = PL_F32},
    };
    PL_CHECK(code > PL_CODE_NONE && code <= PL_CODE_8_WIDE, "code %d", (int)code);
    return forms[code];
}

// Bytes of the scales and minima of a block.
static size_t scales_bytes(pl_code_form f) {
    return (size_t)(PL_CODE_BLOCK / f.group + f.minima) * pl_dtype_size(f.scale) * PL_PANEL;
}

size_t pl_code_block_bytes(pl_code code) {
    pl_code_form f = pl_code_form_of(code);
    return scales_bytes(f) + (size_t)f.bits * sizeof(uint32_t) * PL_PANEL;
}

size_t pl_codes_bytes(int64_t n, int64_t k, pl_code code) {
    PL_CHECK(n >= 0 && k >= 0 && k % PL_CODE_BLOCK == 0, "codes of [%lld, %lld]", (long long)n, (long long)k);
    return pl_size_mul(((size_t)n + PL_PANEL - 1) / PL_PANEL, (size_t)k / PL_CODE_BLOCK, pl_code_block_bytes(code));
}

size_t pl_packed_panel(const pl_tensor *w) {
    return w->code ? pl_codes_bytes(PL_PANEL, w->dim[1], w->code) : pl_panels_bytes(PL_PANEL, w->dim[1], w->dtype);
}

size_t pl_packed_bytes(const pl_tensor *w) {
    return w->code ? pl_codes_bytes(w->dim[0], w->dim[1], w->code) : pl_panels_bytes(w->dim[0], w->dim[1], w->dtype);
}

// Returns the byte at which a row's block begins; *row: the row's number within its panel.
static size_t block_at(pl_code code, int64_t place, int64_t block, int64_t cols, int64_t *row) {
    *row = place % PL_PANEL;
    return (size_t)(place / PL_PANEL * (cols / PL_CODE_BLOCK) + block) * pl_code_block_bytes(code);
}

static void put_scale(uint8_t *block, pl_code_form f, int i, int64_t row, float x) {
    pl_from_f32(block + (size_t)(i * PL_PANEL + row) * pl_dtype_size(f.scale), f.scale, &x, 1);
}

static float scale_at(const uint8_t *block, pl_code_form f, int i, int64_t row) {
    float x;
    pl_to_f32(&x, block + (size_t)(i * PL_PANEL + row) * pl_dtype_size(f.scale), f.scale, 1);
    return x;
}

void pl_codes_put(void *panels, pl_code code, int64_t place, int64_t block, int64_t cols, const pl_code_row *from) {
    pl_code_form f = pl_code_form_of(code);
    int64_t      row;
    uint8_t     *b = (uint8_t *)panels + block_at(code, place, block, cols, &row);
    int          groups = PL_CODE_BLOCK / f.group;
    for (int i = 0; i < groups; i++)
        put_scale(b, f, i, row, from->scale[i]);
    if (f.minima) put_scale(b, f, groups, row, from->minimum);
    b += scales_bytes(f);
    for (int i = 0; i < f.bits; i++) {
        uint32_t word = 0;
        for (int j = 0; j < 32 / f.bits; j++)
            word |= (uint32_t)from->u[j * f.bits + i] << j * f.bits;
        memcpy(b + ((size_t)i * PL_PANEL + (size_t)row) * sizeof word, &word, sizeof word);
    }
}

float pl_codes_at(const void *panels, pl_code code, int64_t place, int64_t k, int64_t cols) {
    pl_code_form   f = pl_code_form_of(code);
    int64_t        row;
    const uint8_t *b = (const uint8_t *)panels + block_at(code, place, k / PL_CODE_BLOCK, cols, &row);
    int            c = (int)(k % PL_CODE_BLOCK), groups = PL_CODE_BLOCK / f.group;
    float          scale = scale_at(b, f, c / f.group, row);
    float          minimum = f.minima ? scale_at(b, f, groups, row) : -scale * (float)(1 << (f.bits - 1));
    uint32_t       word;
    b += scales_bytes(f);
    memcpy(&word, b + ((size_t)(c % f.bits) * PL_PANEL + (size_t)row) * sizeof word, sizeof word);
    uint32_t u = word >> c / f.bits * f.bits & ((1u << f.bits) - 1);
    return pl_round_bf16(fmaf(scale, (float)u, minimum));
}
