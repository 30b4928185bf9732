// cuDNN behind the causal block of attention over blocks (kernels/op/attention.h), in training: loaded when the first
// attention wants it, own kernels (attention_tiles.cuh) where it is not there. Decoding never comes here.
//
// What the library computes. Queries are those of the last block, keys and values those of block 0. Row m sees key j of
// its document where j <= m < end[j], end[j] being the first row after j that no longer sees it. (The library's graphs
// take a vector along the keys as a mask on every generation of GPUs, one along the queries not backward.) Forward
// gives the block's o and log-sum-exp; the later blocks' diagonals are merged into them by own kernels (cudnn_rows.cu).
// Backward is given the merged o and log-sum-exp, which is what makes the blocks' shares add up, and gives the block's
// dq, dk, dv; the diagonals' shares are own kernels' again.
//
// In which numbers: queries, keys, values, probabilities, o, do and the three gradients go through bf16, sums are fp32.
// So it is taken only where the caller says that numbers may be rounded to bf16 (pl_attention_args.numbers).
//
// When: heads of 64 or 128, PL_CUDNN_LEAST rows, documents one after another (lo never falls), and of the pairs that a
// single document would have at least one in PL_CUDNN_SHARE: the library computes all of them and masks, own kernels
// leave out what lies in other documents. A shape's rows are rounded up to a multiple of PL_CUDNN_ROWS.
//
// Deterministic. Backward is described with its scores' gradients as one matrix that all three products read, so that
// nothing is added atomically; that costs 2 nh rows^2 bytes of workspace, and where it is more than PL_CUDNN_WORKSPACE,
// or than the context was measured with, the own kernels stay. An engine that says its results differ from run to run
// is not taken.
//
// Plans (forward and backward) are made once for a shape and kept; the workspace lies in the context's scratch. Nothing
// is allocated on the device for a shape that was seen before.
// PACELINE_ATTENTION=own in the environment leaves the library out; `paceline doctor` says which it is.
#ifndef PL_CUDA_CUDNN_ATTENTION_H
#define PL_CUDA_CUDNN_ATTENTION_H

#include "kernels/cuda/state.h"

#define PL_CUDNN_LEAST 256
#define PL_CUDNN_ROWS 256
#define PL_CUDNN_SHARE 4
#define PL_CUDNN_WORKSPACE ((size_t)2 << 30)
#define PL_CUDNN_HIDDEN 1e30f // the log-sum-exp of a row that takes no part: every probability is zero

// A causal block. rows: a multiple of PL_CUDNN_ROWS. Its tensors lie as rows, contiguous:
//   queries, o and their gradients  [rows, nh * hd] bf16
//   keys with values behind them    [rows, 2 * nkv * hd] bf16, and the gradients likewise
//   stats, sums                     [nh, rows] fp32: log-sum-exp; room for do . o
//   end                             [rows] int32
typedef struct pl_cudnn_shape {
    int64_t rows;
    int     nh, nkv, hd;
} pl_cudnn_shape;

enum pl_cudnn_tensor {
    PL_CUDNN_Q,
    PL_CUDNN_KV,
    PL_CUDNN_O,
    PL_CUDNN_STATS,
    PL_CUDNN_END,
    PL_CUDNN_DO, // from here on: backward alone
    PL_CUDNN_SUMS,
    PL_CUDNN_DQ,
    PL_CUDNN_DKV,
    PL_CUDNN_TENSORS
};

// Whether the library has deterministic plans for the shape, and how much workspace the larger takes; the same on
// measuring contexts. The first call for a shape makes its plans (seconds).
bool PL_CUDA(cudnn_takes)(pl_ctx *ctx, const pl_cudnn_shape *s, size_t *workspace);
// Queues one of them. `at`: device addresses, multiples of 16 (workspace: of 256).
void PL_CUDA(cudnn_run)(pl_ctx *ctx, const char *op, const pl_cudnn_shape *s, bool backward, double scale,
                        void *const at[PL_CUDNN_TENSORS], void *workspace);

// What `paceline doctor` says of it.
void PL_CUDA(cudnn_describe)(char *out, size_t room);

#endif
