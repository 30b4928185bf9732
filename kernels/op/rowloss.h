// Losses of rows against constant targets: smooth L1, and of class scores. The ops are roots of the tape: their
// backward needs no incoming gradient, and targets never get one.
//   total = sum_i weight[i] loss[i]
// weight [n] holds mask and normaliser; 0 skips the row (loss 0). Rows are independent; sums run over a row ascending,
// in double. Both allocate loss (frame, no gradient) if .data is NULL, run, and return loss.
#ifndef PL_OP_ROWLOSS_H
#define PL_OP_ROWLOSS_H
#include "kernels/backend.h"

// ---- features -------------------------------------------------------------------------------------------------------

// Smooth L1 loss of rows against constant rows (Girshick 2015; torch's SmoothL1Loss), for regression on features.
//   u = x[i, j] - t[row[i], j]
//   loss[i] = 1/d sum_j  u^2 / (2 beta) where |u| < beta,  |u| - beta/2 elsewhere
// row[i] < 0 skips the row, too.
// backward: dx[i, j] += weight[i] / d * clamp(u / beta, -1, 1).

typedef struct pl_smoothl1_args {
    pl_tensor      x;      // [n, d]
    pl_tensor      t;      // [T', d]
    const int32_t *row;    // [n] rows of t
    const float   *weight; // [n]
    pl_tensor      loss;   // [n] be->real
    double         beta;   // > 0
} pl_smoothl1_args;

pl_tensor pl_smoothl1(pl_ctx *ctx, pl_smoothl1_args *args);

// ---- classes --------------------------------------------------------------------------------------------------------

// Losses of class scores z [n, C] against targets y [n, C] over the same classes.
//   PL_CLASSIFY_BCE      several classes may hold (torch's BCEWithLogitsLoss, summed over classes; DynaSpec §4.2):
//     loss[i] = sum_c -y log s - (1 - y) log(1 - s),  s = 1 / (1 + exp(-z))    y in [0, 1]
//             = sum_c max(z, 0) - z y + log(1 + exp(-|z|))                     which is how it is computed
//     dz[i, c] += weight[i] (s - y)
//   PL_CLASSIFY_SOFTMAX  one class holds, y its probabilities (cross-entropy with soft labels):
//     loss[i] = sum_c y (lse_i - z),  lse_i = log sum_c exp(z)
//     dz[i, c] += weight[i] (exp(z - lse_i) sum_c y - y)

typedef enum pl_classify_kind { PL_CLASSIFY_BCE, PL_CLASSIFY_SOFTMAX } pl_classify_kind;

typedef struct pl_classify_args {
    pl_tensor        z;      // [n, C]
    const float     *y;      // [n, C]
    const float     *weight; // [n]
    pl_tensor        loss;   // [n] be->real
    pl_classify_kind kind;
} pl_classify_args;

pl_tensor pl_classify(pl_ctx *ctx, pl_classify_args *args);
#endif
