#include "kernels/flops.h"

#include "kernels/op/attention.h"
#include "kernels/op/blockattention.h"
#include "kernels/op/divergence.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"

static _Thread_local double counted;

static double learning(const pl_tensor *x, const pl_tensor *w) {
    return (x->grad ? 1 : 0) + (w->grad ? 1 : 0);
}

static double product(double rows, const pl_tensor *x, const pl_tensor *w, bool backward) {
    return 2 * rows * (double)w->dim[0] * (double)w->dim[1] * (backward ? learning(x, w) : 1);
}

static double linear(const pl_linear_args *a, bool backward) {
    return product((double)pl_tensor_rows(&a->x), &a->x, &a->w, backward);
}

static double gatedlinear(const pl_gatedlinear_args *a) {
    double rows = (double)pl_tensor_rows(&a->x);
    return product(rows, &a->x, &a->w, false) + (a->down.data ? product(rows, &a->x, &a->down, false) : 0);
}

// Backward computes nothing if no earlier op needs gradients.
static double seen(const pl_tensor *o, int nh, int hd, double pairs, bool backward) {
    return 4.0 * nh * hd * pairs * (!backward ? 1 : o->grad ? 2 : 0);
}

static double attention(const pl_attention_args *a, bool backward) {
    double pairs = 0;
    for (int64_t m = 0; a->lo && m < a->o.dim[0]; m++)
        if (a->lo[m] >= 0) // from lo to its row, and one key of each further block
            pairs += (double)(pl_attention_row(a, 0, m) - a->lo[m] + a->n_blocks);
    return seen(&a->o, a->nh, a->hd, pairs, backward);
}

static double blockattention(const pl_blockattention_args *a, bool backward) {
    double pairs = 0;
    for (int64_t g = 0; g < a->o.dim[0] / a->block; g++)
        for (int j = 0; j < a->block; j++)
            pairs += (double)pl_block_keys(a, g, j);
    return seen(&a->o, a->nh, a->hd, pairs, backward);
}

// A row without a weight or a teacher is skipped.
static double divergence(const pl_divergence_args *a, bool backward) {
    bool   label = a->objective == PL_OBJ_LABEL;
    double rows = 0;
    for (int64_t i = 0; i < a->x.dim[0]; i++)
        rows += a->weight[i] != 0 && (label ? a->label[i] : a->teacher_row[i]) >= 0;
    double student = product(rows, &a->x, &a->w, backward);
    if (backward || label) return student;
    double ids = (double)(a->whole ? a->wt : a->w).dim[0];
    return student + 2 * (double)pl_tensor_count(&a->xt) * ids;
}

static double gatherdot(const pl_gatherdot_args *a, bool backward) {
    double entries = (double)pl_tensor_count(&a->y);
    return 2 * entries * (double)a->w.dim[1] * (backward ? learning(&a->x, &a->w) : 1);
}

double pl_op_flops(pl_op op, const void *args, bool backward) {
    switch (op) {
    case PL_OP_LINEAR: return linear(args, backward);
    case PL_OP_GATEDLINEAR: return gatedlinear(args);
    case PL_OP_ATTENTION: return attention(args, backward);
    case PL_OP_BLOCKATTENTION: return blockattention(args, backward);
    case PL_OP_DIVERGENCE: return divergence(args, backward);
    case PL_OP_GATHERDOT: return gatherdot(args, backward);
    default: return 0;
    }
}

double pl_flops_counted(void) {
    return counted;
}

void pl_flops_count(pl_op op, const void *args, bool backward) {
    counted += pl_op_flops(op, args, backward);
}
