// Smooth L1 loss of rows against constant rows (Girshick 2015; torch's SmoothL1Loss), for regression on features.
//   u = x[i, j] - t[row[i], j]
//   loss[i] = 1/d sum_j  u^2 / (2 beta) where |u| < beta,  |u| - beta/2 elsewhere
//   total = sum_i weight[i] loss[i]; weight already holds mask and normaliser; weight[i] == 0 or row[i] < 0 skips the
//   row (loss 0). The op is a root of the tape: its backward needs no incoming gradient.
// backward: dx[i, j] += weight[i] / d * clamp(u / beta, -1, 1). The target never gets a gradient.
// Rows are independent; sums run over j ascending in double.
#ifndef PL_OP_SMOOTHL1_H
#define PL_OP_SMOOTHL1_H
#include "kernels/backend.h"

typedef struct pl_smoothl1_args {
    pl_tensor      x;      // [n, d]
    pl_tensor      t;      // [T', d]
    const int32_t *row;    // [n] rows of t
    const float   *weight; // [n]
    pl_tensor      loss;   // [n] be->real
    double         beta;   // > 0
} pl_smoothl1_args;

// Allocates loss (frame, no gradient) if .data is NULL, and runs. Returns loss.
pl_tensor pl_smoothl1(pl_ctx *ctx, pl_smoothl1_args *args);
#endif
