// DFlash 2's grouped dynamic convolution over a block's slots (inco.ai, "DFlash 2", 2026; its code is in z-lab/dflash
// and in speculators' dflash2): depthwise, causal within the block, zeros before its first slot; each tap is a learned
// weight per channel plus a dynamic weight of the row per group of channels.
//
//   x [M, H], slots block after block: row m is slot m % block of its block;  taps o = 0 .. K - 1, K <= block
//   y[m, c] = sum_o ( base[side, o, c] + kernel[m, (side K + o) G + c / group] ) x[m - o, c],   o <= m % block
//   base [2, K, H] as one vector; kernel [M, 2 K G], G = H / group: a projection of the sublayer's input, for both
//   sides: 0 filters the input, 1 the output.
//   dx[m - o, c] += dy[m, c] (base + kernel);  dbase[side, o, c] += sum_m dy x[m - o, c]  (m ascending; on a GPU in
//   chunks of 64, chunks ascending);  dkernel[m, ..] += sum over the group's channels, ascending (cpu: in lanes)
// Blocks are independent: bits do not depend on neighbours. With base 1 at tap 0 and zeros elsewhere y is x.
// Cost: 2 M H (K + 1) flops.
#ifndef PL_OP_BLOCKCONV_H
#define PL_OP_BLOCKCONV_H
#include "kernels/backend.h"

typedef struct pl_blockconv_args {
    pl_tensor y, x;   // [M, H]
    pl_tensor kernel; // [M, 2 K G]
    pl_tensor base;   // [2 K H] in be->real
    int       side, block, group, taps;
} pl_blockconv_args;

pl_tensor pl_blockconv(pl_ctx *ctx, pl_tensor x, pl_tensor kernel, pl_tensor base, int side, int block, int group);
#endif
