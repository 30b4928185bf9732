// A causal block as a graph of the library's backend API: the operations that its fused attention engines recognise, in
// the form that NVIDIA's cudnn-frontend (MIT licence) passes them. Needs no device.
#include "kernels/base/check.h"
#include "kernels/cuda/lib/cudnn_table.h"

cudnnBackendDescriptor_t pl_cudnn_make(pl_cudnn_graph *g, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = NULL;
    PL_CHECK(g->n_made < PL_CUDNN_MOST, "cuDNN: %d descriptors", g->n_made);
    if (g->status) return NULL;
    g->status = g->t->BackendCreateDescriptor(type, &d);
    g->doing = "a descriptor";
    if (g->status) return NULL;
    return g->made[g->n_made++] = d;
}

void pl_cudnn_set(pl_cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    if (!g->status) g->status = g->t->BackendSetAttribute(d, name, type, n, value);
}

int64_t pl_cudnn_get(pl_cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t n, void *value) {
    int64_t found = 0;
    if (!g->status) g->status = g->t->BackendGetAttribute(d, name, type, n, &found, value);
    return g->status ? 0 : found;
}

void pl_cudnn_finish(pl_cudnn_graph *g, cudnnBackendDescriptor_t d, const char *what) {
    g->doing = g->status ? g->doing : what;
    if (!g->status) g->status = g->t->BackendFinalize(d);
}

void pl_cudnn_drop(pl_cudnn_graph *g) {
    while (g->n_made > 0)
        g->t->BackendDestroyDescriptor(g->made[--g->n_made]);
}

// ---- tensors --------------------------------------------------------------------------------------------------------

typedef cudnnBackendDescriptor_t desc;

// All have four dimensions: batch (1), heads, rows, columns.
typedef struct layout {
    int64_t heads, rows, cols, head, row, col; // and the strides, in elements
} layout;

enum { VIRTUAL = 1, VALUE = 2 }; // VALUE: one fp32 in host memory

static desc tensor(pl_cudnn_graph *g, int64_t name, cudnnDataType_t type, const layout *l, unsigned flags) {
    desc          d = pl_cudnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t dim[4] = {1, l->heads, l->rows, l->cols}, align = 16;
    const int64_t stride[4] = {l->heads * l->rows * l->cols, l->head, l->row, l->col};
    const int64_t uid = name + 1; // from 1 on
    const bool    yes = true;
    pl_cudnn_set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    pl_cudnn_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    pl_cudnn_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    pl_cudnn_set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    pl_cudnn_set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (flags & VIRTUAL) pl_cudnn_set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (flags & VALUE) pl_cudnn_set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    pl_cudnn_finish(g, d, "a tensor");
    return d;
}

static desc between(pl_cudnn_graph *g, cudnnDataType_t type, const layout *l) {
    return tensor(g, g->next++, type, l, VIRTUAL);
}

static desc value(pl_cudnn_graph *g, int64_t uid) {
    return tensor(g, uid, CUDNN_DATA_FLOAT, &(layout){1, 1, 1, 1, 1, 1}, VALUE);
}

// The layouts of a shape (cudnn_attention.h).
typedef struct layouts {
    layout queries;     // o, do, dq as well
    layout keys;        // values, dk, dv as well: [rows, hd] of each key head
    layout keys_across; // the same, [hd, rows]
    layout by_head;     // do times o; dk, dv of every query head, before summing over a key head's
    layout scores, scores_across;
    layout row;    // one number per row and head
    layout column; // one per key, for all rows, as rows of stride 0: of a single row with a number per key the
                   // library's backward reads only the first (9.19, seen on an H100)
} layouts;

static layouts layouts_of(const pl_cudnn_shape *s) {
    int64_t n = s->rows, hd = s->hd, nh = s->nh, nkv = s->nkv, line = nh * hd, pair = 2 * nkv * hd;
    return (layouts){.queries = {nh, n, hd, hd, line, 1},
                     .keys = {nkv, n, hd, hd, pair, 1},
                     .keys_across = {nkv, hd, n, hd, 1, pair},
                     .by_head = {nh, n, hd, n * hd, hd, 1},
                     .scores = {nh, n, n, n * n, n, 1},
                     .scores_across = {nh, n, n, n * n, 1, n},
                     .row = {nh, n, 1, n, 1, 1},
                     .column = {1, n, n, n * n, 0, 1}};
}

// ---- operations -----------------------------------------------------------------------------------------------------

static void put(pl_cudnn_graph *g, desc op, cudnnBackendAttributeName_t name, desc of) {
    pl_cudnn_set(g, op, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &of);
}

static void finish_op(pl_cudnn_graph *g, desc op, const char *what) {
    PL_CHECK(g->n_ops < PL_CUDNN_OPS, "cuDNN: %d operations", g->n_ops);
    pl_cudnn_finish(g, op, what);
    g->op[g->n_ops++] = op;
}

// c = a b, for every head; a key head's b serves all its query heads.
static void product(pl_cudnn_graph *g, desc a, desc b, desc c) {
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    desc                  kind = pl_cudnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    pl_cudnn_set(g, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    pl_cudnn_finish(g, kind, "a product");
    desc op = pl_cudnn_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    put(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    put(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    put(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    put(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    finish_op(g, op, "a product");
}

enum { NO_AXIS = -1, ROWS = 2, COLUMNS = 3 };

// y = mode(x, b, chooser); b and chooser may be NULL.
static void pointwise(pl_cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t in, int64_t axis, desc x, desc b,
                      desc chooser, desc y) {
    desc kind = pl_cudnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    pl_cudnn_set(g, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    pl_cudnn_set(g, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &in);
    if (axis != NO_AXIS) pl_cudnn_set(g, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    pl_cudnn_finish(g, kind, "an elementwise operation");
    desc op = pl_cudnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    put(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    put(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) put(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (chooser) put(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, chooser);
    put(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish_op(g, op, "an elementwise operation");
}

// Into a new fp32 tensor.
static desc map(pl_cudnn_graph *g, cudnnPointwiseMode_t mode, desc x, desc b, const layout *l) {
    desc y = between(g, CUDNN_DATA_FLOAT, l);
    pointwise(g, mode, CUDNN_DATA_FLOAT, NO_AXIS, x, b, NULL, y);
    return y;
}

static void reduce(pl_cudnn_graph *g, cudnnReduceTensorOp_t mode, desc x, desc y) {
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    desc                  kind = pl_cudnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    pl_cudnn_set(g, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    pl_cudnn_set(g, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    pl_cudnn_finish(g, kind, "a reduction");
    desc op = pl_cudnn_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    put(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    put(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    put(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    finish_op(g, op, "a reduction");
}

// Returns a view of x's memory in another layout, in bf16: the engines' form of a transposed factor.
static desc seen_as(pl_cudnn_graph *g, desc x, const layout *l) {
    desc y = between(g, CUDNN_DATA_BFLOAT16, l), op = pl_cudnn_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    put(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    put(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish_op(g, op, "a reshape");
    return y;
}

// ---- the causal block -----------------------------------------------------------------------------------------------

// Returns x where `row` compares with `with` by `mode`; elsewhere -infinity.
static desc where(pl_cudnn_graph *g, const layouts *l, desc x, desc row, cudnnPointwiseMode_t mode, desc with,
                  desc masked) {
    desc holds = between(g, CUDNN_DATA_BOOLEAN, &l->scores), y = between(g, CUDNN_DATA_FLOAT, &l->scores);
    pointwise(g, mode, CUDNN_DATA_BOOLEAN, NO_AXIS, row, with, NULL, holds);
    pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, NO_AXIS, x, masked, holds, y);
    return y;
}

static desc numbers_along(pl_cudnn_graph *g, const layouts *l, desc scores, int64_t axis) {
    desc y = between(g, CUDNN_DATA_INT32, &l->scores);
    pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, scores, NULL, NULL, y);
    return y;
}

// scale q k^T over the visible keys of a row, -infinity elsewhere; `less`, one number per row, is subtracted before
// that, where the engines expect it (NULL: nothing).
static desc scores_of(pl_cudnn_graph *g, const layouts *l, desc q, desc k_across, desc scale, desc less) {
    desc end = tensor(g, PL_CUDNN_END, CUDNN_DATA_INT32, &l->column, 0), masked = value(g, PL_CUDNN_MASKED);
    desc s = between(g, CUDNN_DATA_FLOAT, &l->scores);
    product(g, q, k_across, s);
    s = map(g, CUDNN_POINTWISE_MUL, s, scale, &l->scores);
    if (less) s = map(g, CUDNN_POINTWISE_SUB, s, less, &l->scores);
    s = where(g, l, s, numbers_along(g, l, s, ROWS), CUDNN_POINTWISE_CMP_LT, end, masked);
    desc row = numbers_along(g, l, s, ROWS), column = numbers_along(g, l, s, COLUMNS);
    return where(g, l, s, row, CUDNN_POINTWISE_CMP_GE, column, masked);
}

void pl_cudnn_forward(pl_cudnn_graph *g, const pl_cudnn_shape *shape) {
    layouts l = layouts_of(shape);
    desc    q = tensor(g, PL_CUDNN_Q, CUDNN_DATA_BFLOAT16, &l.queries, 0);
    desc    k_across = tensor(g, PL_CUDNN_KV, CUDNN_DATA_BFLOAT16, &l.keys_across, 0);
    desc    v = tensor(g, PL_CUDNN_V, CUDNN_DATA_BFLOAT16, &l.keys, 0);
    desc    o = tensor(g, PL_CUDNN_O, CUDNN_DATA_BFLOAT16, &l.queries, 0);
    desc    stats = tensor(g, PL_CUDNN_STATS, CUDNN_DATA_FLOAT, &l.row, 0);
    desc    s = scores_of(g, &l, q, k_across, value(g, PL_CUDNN_SCALE), NULL);
    desc    max = between(g, CUDNN_DATA_FLOAT, &l.row), sum = between(g, CUDNN_DATA_FLOAT, &l.row);
    reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, max);
    desc e = map(g, CUDNN_POINTWISE_EXP, map(g, CUDNN_POINTWISE_SUB, s, max, &l.scores), NULL, &l.scores);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    desc log = map(g, CUDNN_POINTWISE_LOG, sum, NULL, &l.row);
    pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, NO_AXIS, max, log, NULL, stats);
    desc p = between(g, CUDNN_DATA_BFLOAT16, &l.scores);
    pointwise(g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, NO_AXIS, e, sum, NULL, p);
    product(g, p, v, o);
}

// A gradient of keys or values: left^T right, added up over the query heads of a key head.
static void key_gradient(pl_cudnn_graph *g, const pl_cudnn_shape *s, const layouts *l, desc left, desc right, desc to) {
    desc across = seen_as(g, left, &l->scores_across);
    if (s->nh == s->nkv) {
        product(g, across, right, to);
        return;
    }
    desc each = between(g, CUDNN_DATA_BFLOAT16, &l->by_head);
    product(g, across, right, each);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, to);
}

// With p = exp(s - lse): dv = p^T do;  ds = scale p (do v^T - do . o);  dk = ds^T q;  dq = ds k.
void pl_cudnn_backward(pl_cudnn_graph *g, const pl_cudnn_shape *shape) {
    layouts l = layouts_of(shape);
    desc    q = tensor(g, PL_CUDNN_Q, CUDNN_DATA_BFLOAT16, &l.queries, 0);
    desc    k_across = tensor(g, PL_CUDNN_KV, CUDNN_DATA_BFLOAT16, &l.keys_across, 0);
    desc    v_across = tensor(g, PL_CUDNN_V, CUDNN_DATA_BFLOAT16, &l.keys_across, 0);
    desc    o = tensor(g, PL_CUDNN_O, CUDNN_DATA_BFLOAT16, &l.queries, 0);
    desc    d_o = tensor(g, PL_CUDNN_DO, CUDNN_DATA_BFLOAT16, &l.queries, 0);
    desc    stats = tensor(g, PL_CUDNN_STATS, CUDNN_DATA_FLOAT, &l.row, 0);
    desc    sums = tensor(g, PL_CUDNN_SUMS, CUDNN_DATA_FLOAT, &l.row, 0);
    desc    dq = tensor(g, PL_CUDNN_DQ, CUDNN_DATA_BFLOAT16, &l.queries, 0);
    desc    dk = tensor(g, PL_CUDNN_DKV, CUDNN_DATA_BFLOAT16, &l.keys, 0);
    desc    dv = tensor(g, PL_CUDNN_DV, CUDNN_DATA_BFLOAT16, &l.keys, 0);
    desc    scale = value(g, PL_CUDNN_SCALE), one = value(g, PL_CUDNN_ONE);

    desc sum = between(g, CUDNN_DATA_FLOAT, &l.row);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, map(g, CUDNN_POINTWISE_MUL, d_o, o, &l.by_head), sum);
    pointwise(g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, NO_AXIS, sum, one, NULL, sums);

    desc p = map(g, CUDNN_POINTWISE_EXP, scores_of(g, &l, q, k_across, scale, stats), NULL, &l.scores);
    key_gradient(g, shape, &l, p, d_o, dv);

    desc dp = between(g, CUDNN_DATA_FLOAT, &l.scores);
    product(g, d_o, v_across, dp);
    desc ds = map(g, CUDNN_POINTWISE_MUL, map(g, CUDNN_POINTWISE_SUB, dp, sums, &l.scores), p, &l.scores);
    ds = map(g, CUDNN_POINTWISE_MUL, ds, scale, &l.scores);
    key_gradient(g, shape, &l, ds, q, dk);
    product(g, ds, seen_as(g, k_across, &l.keys), dq);
}
