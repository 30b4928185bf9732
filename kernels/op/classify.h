// Losses of class scores z [n, C] against targets y [n, C] over the same classes.
//   PL_CLASSIFY_BCE      several classes may hold (torch's BCEWithLogitsLoss, summed over classes; DynaSpec §4.2):
//     loss[i] = sum_c -y log s - (1 - y) log(1 - s),  s = 1 / (1 + exp(-z))    y in [0, 1]
//             = sum_c max(z, 0) - z y + log(1 + exp(-|z|))                     which is how it is computed
//     dz[i, c] += weight[i] (s - y)
//   PL_CLASSIFY_SOFTMAX  one class holds, y its probabilities (cross-entropy with soft labels):
//     loss[i] = sum_c y (lse_i - z),  lse_i = log sum_c exp(z)
//     dz[i, c] += weight[i] (exp(z - lse_i) sum_c y - y)
// total = sum_i weight[i] loss[i]; weight holds mask and normaliser, 0 skips the row (loss 0). The op is a root of the
// tape: its backward needs no incoming gradient. Rows are independent; sums run over c ascending in double.
#ifndef PL_OP_CLASSIFY_H
#define PL_OP_CLASSIFY_H
#include "kernels/backend.h"

typedef enum pl_classify_kind { PL_CLASSIFY_BCE, PL_CLASSIFY_SOFTMAX } pl_classify_kind;

typedef struct pl_classify_args {
    pl_tensor        z;      // [n, C]
    const float     *y;      // [n, C]
    const float     *weight; // [n]
    pl_tensor        loss;   // [n] be->real
    pl_classify_kind kind;
} pl_classify_args;

// Allocates loss (frame, no gradient) if .data is NULL, and runs. Returns loss.
pl_tensor pl_classify(pl_ctx *ctx, pl_classify_args *args);
#endif
