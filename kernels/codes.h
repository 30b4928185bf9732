// Panels of bf16 weights that are held as the codes of a quantised file (pl_tensor.code): 0.28 (PL_CODE_4) to 0.63
// (PL_CODE_8_WIDE) of the bytes, and the same values, so that every product has the bits of plain panels.
//
//   W[n, k] = bf16(scale * u + minimum)     u: the code, 0 .. 2^bits - 1
//
// rounded once to fp32 and from there to the nearest bf16, ties to even. Forms without minima have
// minimum = -scale * 2^(bits - 1): codes of signed numbers. K is a multiple of 32 (PL_CODE_BLOCK). A panel is one block
// for each 32 columns, in order; a block of its 64 rows is
//   scales   [32 / group][64], fp16 or fp32: of `group` columns each
//   minima   [64] in the same type, if the form has them
//   codes    [bits][64] words of 32 bits; code j of word i, from the lowest bits up, is column j * bits + i
// so that columns ascend while one mask passes over all words of a row.
#ifndef PL_CODES_H
#define PL_CODES_H

#include "kernels/tensor.h"

#include <stdbool.h>
#include <stddef.h>

#define PL_CODE_BLOCK 32

typedef struct pl_code_form {
    int      bits;  // 4 or 8
    int      group; // columns that share a scale: 32 or 16
    pl_dtype scale; // of scales and minima: F16 or F32
    bool     minima;
} pl_code_form;

pl_code_form pl_code_form_of(pl_code code);
// Bytes of a block of 64 rows, and of [N, K].
size_t       pl_code_block_bytes(pl_code code);
size_t       pl_codes_bytes(int64_t n, int64_t k, pl_code code);

// Bytes of a panel of packed weights (whole ones: not PL_SEGMENTS), codes or not, and of all its panels.
size_t pl_packed_panel(const pl_tensor *w);
size_t pl_packed_bytes(const pl_tensor *w);

// 32 columns of a row.
typedef struct pl_code_row {
    uint8_t u[PL_CODE_BLOCK];
    float   scale[2]; // the second: of columns 16 on where the form's group is 16
    float   minimum;
} pl_code_row;

// Writes columns 32 * block .. of the row that lies at `place` of the panels (pl_gated_place). Scales and minima are
// values of the form's type, and multiples of 2^-24 as those of fp16 are: no weight is a denormal of bf16.
void  pl_codes_put(void *panels, pl_code code, int64_t place, int64_t block, int64_t cols, const pl_code_row *row);
// One element back: tests and ref.
float pl_codes_at(const void *panels, pl_code code, int64_t place, int64_t k, int64_t cols);

#endif
