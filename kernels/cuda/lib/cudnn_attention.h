// cuDNN for the causal block of attention over blocks (kernels/op/attention.h), in training: loaded at the first
// attention, with our own kernels (attention_tiles.cuh) as the fallback. Decoding does not use it.
//
// Queries are those of the last block, keys and values those of block 0. Row m sees key j of its document if j <= m <
// end[j], end[j] being the first row after j that no longer sees it. (The library's graphs accept a vector along the
// keys as a mask on every generation of GPUs, but not one along the queries in backward.) Forward gives the block's o
// and log-sum-exp; our own kernels (cudnn_rows.cu) merge the later blocks' diagonals into them. Backward takes the
// merged o and log-sum-exp, so that the blocks' shares add up, and gives the block's dq, dk, dv; the diagonals' shares
// are our own kernels' again.
//
// Queries, keys, values, probabilities, o, do and the three gradients are rounded to bf16, sums are fp32, so it is used
// only if the caller allows bf16 (pl_attention_args.numbers). Conditions: heads of 64 or 128, PL_CUDNN_LEAST rows,
// documents in order (lo never falls), and at least one in PL_CUDNN_SHARE of the pairs of a single document: the
// library computes all of them and masks, our own kernels skip other documents. A shape's rows are rounded up to a
// multiple of PL_CUDNN_ROWS.
//
// Deterministic. Backward is described with its scores' gradients as one matrix that all three products read, so that
// no atomics are used; that costs 2 nh rows^2 bytes of workspace, and if it exceeds PL_CUDNN_WORKSPACE or the measured
// scratch, our own kernels run. Engines that declare nondeterministic results are skipped. Plans (forward and backward)
// are made once per shape and kept; the workspace lies in the context's scratch. Nothing is allocated on the device for
// a known shape. PACELINE_ATTENTION=own in the environment disables the library; `paceline doctor` reports which is
// used.
#ifndef PL_CUDA_CUDNN_ATTENTION_H
#define PL_CUDA_CUDNN_ATTENTION_H

#include "kernels/cuda/state.h"

#define PL_CUDNN_LEAST 256
#define PL_CUDNN_ROWS 256
#define PL_CUDNN_SHARE 4
#define PL_CUDNN_WORKSPACE ((size_t)2 << 30)
#define PL_CUDNN_HIDDEN 1e30f // the log-sum-exp of a skipped row: every probability is zero

// A causal block. rows: a multiple of PL_CUDNN_ROWS. Its tensors are contiguous rows:
//   queries, o and their gradients  [rows, nh * hd] bf16
//   keys followed by values         [rows, 2 * nkv * hd] bf16, and the gradients likewise
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
    PL_CUDNN_DO, // this and the following: backward alone
    PL_CUDNN_SUMS,
    PL_CUDNN_DQ,
    PL_CUDNN_DKV,
    PL_CUDNN_TENSORS
};

// Returns true if the library has deterministic plans for the shape, with the larger workspace; the same on measuring
// contexts. The first call for a shape makes its plans (seconds).
bool PL_CUDA(cudnn_takes)(pl_ctx *ctx, const pl_cudnn_shape *s, size_t *workspace);
// Queues one of them. `at`: device addresses, multiples of 16 (workspace: of 256).
void PL_CUDA(cudnn_run)(pl_ctx *ctx, const char *op, const pl_cudnn_shape *s, bool backward, double scale,
                        void *const at[PL_CUDNN_TENSORS], void *workspace);

// Writes `paceline doctor`'s line about it.
void PL_CUDA(cudnn_describe)(char *out, size_t room);

#endif
