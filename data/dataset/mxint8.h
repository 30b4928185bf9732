// Features in 8 bits: MXINT8 of the OCP Microscaling Formats (MX) Specification 1.0 (arXiv 2310.10537). Each 32
// elements share a scale of one byte, a power of two; an element is an integer of 8 bits in 64ths of it:
//
//   x_i ~ 2^(b - 127) q_i / 64,   b = exponent of the block's largest magnitude,   q_i = x_i 64 / 2^(b - 127), to the
//   nearest (ties to even), within -127..127
//
// The error of an element is at most half a 64th of the scale, so at most 1/128 of the block's largest magnitude: the
// inputs are bf16, whose largest is 127.5 64ths at most. What is decoded has 7 significant bits and is a bf16 exactly,
// subnormal ones too; encoded again it decodes to the same. A block with an infinity or NaN is NaN (b = 255).
//
// A vector of d elements is a row of blocks of 33 bytes, the scale first; the last one is filled up with zeroes. That
// is 1.03 bytes an element where d is a multiple of 32.
#ifndef PL_DATASET_MXINT8_H
#define PL_DATASET_MXINT8_H

#include <stddef.h>
#include <stdint.h>

enum { PL_MXINT8_BLOCK = 32 };

size_t pl_mxint8_bytes(int64_t d); // of a vector
void   pl_mxint8_encode(uint8_t *to, const uint16_t *bf16, int64_t d);
void   pl_mxint8_decode(uint16_t *bf16, const uint8_t *from, int64_t d);

#endif
