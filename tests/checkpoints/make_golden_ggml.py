#!/usr/bin/env python3
"""Writes golden_ggml.bin: a row of 256 numbers in each of ggml's quantised types that paceline reads, and their values
as the gguf package's dequantize has them. Development only.

Needs: pip install gguf==0.19.0 numpy. A type: u32 its number, u32 the bytes of a row, the row, 256 float32."""
import pathlib
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

HERE = pathlib.Path(__file__).resolve().parent
# Where a block holds numbers in fp16.
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: []}


def row_of(t, rng):
    block, size = GGML_QUANT_SIZES[t]
    blocks = rng.integers(0, 256, (256 // block, size), dtype=np.uint8)
    for at in HALVES[t]:
        scales = rng.normal(0, 0.1, len(blocks)).astype(np.float16)
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    if t == T.MXFP4:
        blocks[:, 0] = [0, 1, 2, 100, 126, 127, 130, 255]
    return blocks.reshape(1, -1)


def main():
    rng = np.random.default_rng(7)
    with open(HERE / "golden_ggml.bin", "wb") as f:
        for t in HALVES:
            row = row_of(t, rng)
            values = dequantize(row, t)
            assert values.shape == (1, 256) and values.dtype == np.float32
            f.write(struct.pack("<II", t, row.size) + row.tobytes() + values.tobytes())


main()
