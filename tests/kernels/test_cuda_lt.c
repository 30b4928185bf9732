// cuBLASLt behind training's products (kernels/cuda/lib/lt.h): the library as it is installed, or its absence, without
// a GPU; and on the emulated device, with a stand-in that reads the descriptors as the library's manual says and
// computes the product they describe, every shape and orientation that training has.
#define PL_CUDA_SUFFIX emulated
#include "kernels/cuda/lib/lt_table.h"
#include "kernels/op/divergence.h"
#include "kernels/op/linear.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/cuda/emulate/queue.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- the library ----------------------------------------------------------------------------------------------------

static void one_line(const pl_err *err, const char *part) {
    if (!strstr(err->msg, part)) fail_msg("\"%s\" is not in \"%s\"", part, err->msg);
    assert_null(strchr(err->msg, '\n'));
}

// All functions are there, and descriptors of all three products can be made and take what they are given.
static void installed(void **state) {
    (void)state;
    pl_err             err = {0};
    char               line[256];
    const pl_lt_table *t = pl_lt_installed(&err);
    pl_backend_cuda_libraries(line, sizeof line);
    print_message("%s\n", line);
    if (!t) {
        one_line(&err, "libcublasLt.so");
        one_line(&err, "is not installed");
        skip();
    }
    assert_int_equal(t->GetVersion() / 10000, CUBLAS_VER_MAJOR);
    assert_true(pl_lt_installed(NULL) == t);
    for (int i = 0; i < 8; i++) {
        pl_lt_product p = {.c_row = 136, .M = 130, .N = 136, .K = 200, .add = i & 1};
        pl_lt_plan    plan;
        p.a = (pl_lt_factor){NULL, i & 2 ? 136 : 200, i & 2};
        p.b = (pl_lt_factor){NULL, i & 4 ? 136 : 200, i & 4};
        if (pl_lt_plan_create(t, &p, &plan, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_true(plan.op && plan.left && plan.right && plan.out && plan.wish);
        pl_lt_plan_destroy(t, &plan);
    }
}

static void missing(void **state) {
    (void)state;
    pl_lt_table t, before;
    pl_err      err = {0};
    memset(&t, 0x5a, sizeof t);
    before = t;
    assert_int_equal(pl_lt_open("libcublasLt.so.0", "/nonexistent", &t, &err), PL_E_UNSUPPORTED);
    one_line(&err, "libcublasLt.so.0 is not installed");
    assert_int_equal(pl_lt_open("libm.so.6", NULL, &t, &err), PL_E_UNSUPPORTED);
    one_line(&err, "libm.so.6 has no cublasLtCreate");
    assert_memory_equal(&t, &before, sizeof t);
    assert_null(pl_lt_none(NULL));
}

// ---- a stand-in -----------------------------------------------------------------------------------------------------

typedef struct fake_layout {
    cudaDataType type;
    uint64_t     rows, cols;
    int64_t      ld;
} fake_layout;
typedef struct fake_desc {
    cublasComputeType_t compute;
    cudaDataType        scale;
    int32_t             trans[2];
} fake_desc;
typedef struct fake_wish {
    uint64_t workspace;
    uint32_t sums, align[4];
} fake_wish;

static struct {
    int  held; // objects made and not destroyed
    int  asked, products;
    bool refuses; // the heuristic finds nothing
    bool fails;   // products fail
} fake;

static void *made(size_t bytes) {
    void *p = calloc(1, bytes);
    assert_non_null(p);
    fake.held++;
    return p;
}
static cublasStatus_t dropped(void *p) {
    assert_non_null(p);
    free(p);
    fake.held--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_create(cublasLtHandle_t *h) {
    *h = made(1);
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t fake_destroy(cublasLtHandle_t h) {
    return dropped(h);
}
static size_t fake_version(void) {
    return 130100;
}
static const char *fake_status(cublasStatus_t s) {
    return s == CUBLAS_STATUS_EXECUTION_FAILED ? "it would not run" : "unknown";
}
static cublasStatus_t fake_desc_create(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale) {
    fake_desc *f = made(sizeof *f);
    *f = (fake_desc){compute, scale, {CUBLAS_OP_N, CUBLAS_OP_N}};
    *d = (cublasLtMatmulDesc_t)(void *)f;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t fake_desc_destroy(cublasLtMatmulDesc_t d) {
    return dropped(d);
}
static cublasStatus_t fake_desc_set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *v, size_t n) {
    assert_true(n == sizeof(int32_t) && (a == CUBLASLT_MATMUL_DESC_TRANSA || a == CUBLASLT_MATMUL_DESC_TRANSB));
    memcpy(&((fake_desc *)(void *)d)->trans[a == CUBLASLT_MATMUL_DESC_TRANSB], v, n);
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t fake_layout_create(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols,
                                         int64_t ld) {
    fake_layout *f = made(sizeof *f);
    *f = (fake_layout){type, rows, cols, ld};
    assert_true(ld >= (int64_t)rows); // by columns, not overlapping
    *l = (cublasLtMatrixLayout_t)(void *)f;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t fake_layout_destroy(cublasLtMatrixLayout_t l) {
    return dropped(l);
}
static cublasStatus_t fake_wish_create(cublasLtMatmulPreference_t *w) {
    fake_wish *f = made(sizeof *f);
    *f = (fake_wish){0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    *w = (cublasLtMatmulPreference_t)(void *)f;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t fake_wish_destroy(cublasLtMatmulPreference_t w) {
    return dropped(w);
}
static cublasStatus_t fake_wish_set(cublasLtMatmulPreference_t w, cublasLtMatmulPreferenceAttributes_t a, const void *v,
                                    size_t n) {
    fake_wish *f = (fake_wish *)(void *)w;
    void      *to = a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? (void *)&f->workspace
                    : a == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
                        ? (void *)&f->sums
                        : (void *)&f->align[a - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
    assert_int_equal(n, to == (void *)&f->workspace ? 8 : 4);
    memcpy(to, v, n);
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t fake_heuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t to,
                                     cublasLtMatmulPreference_t w, int most, cublasLtMatmulHeuristicResult_t *r,
                                     int *n) {
    const fake_wish *f = (const fake_wish *)(const void *)w;
    assert_true(h && d && a && b && c && to && most == 1);
    assert_true(f->workspace == PL_LT_WORKSPACE && !(f->sums & CUBLASLT_REDUCTION_SCHEME_INPLACE));
    fake.asked++;
    *n = !fake.refuses;
    r->state = CUBLAS_STATUS_SUCCESS;
    memcpy(&r->algo, &f->align, sizeof f->align);
    return CUBLAS_STATUS_SUCCESS;
}

// Element (i, k) of op(matrix), by columns.
static float element(const fake_layout *l, const void *data, int32_t trans, uint64_t i, uint64_t k) {
    uint64_t row = trans == CUBLAS_OP_T ? k : i, col = trans == CUBLAS_OP_T ? i : k;
    assert_true(l->type == CUDA_R_16BF && row < l->rows && col < l->cols);
    return pl_bf16_to_f32(((const uint16_t *)data)[col * (uint64_t)l->ld + row]);
}

static cublasStatus_t fake_matmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *A,
                                  cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta,
                                  const void *C, cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t to,
                                  const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                                  cudaStream_t stream) {
    const fake_desc   *f = (const fake_desc *)(const void *)d;
    const fake_layout *la = (const fake_layout *)(const void *)a, *lb = (const fake_layout *)(const void *)b;
    const fake_layout *out = (const fake_layout *)(const void *)to;
    uint32_t           align[4];
    assert_true(h && f->compute == CUBLAS_COMPUTE_32F && f->scale == CUDA_R_32F && C == D && c == to && !stream);
    assert_true(bytes == PL_LT_WORKSPACE && workspace && (uintptr_t)workspace % 256 == 0);
    memset(workspace, 0xff, 1 << 16);
    memcpy(align, algo, sizeof align);
    assert_true((uintptr_t)A % align[0] == 0 && (uintptr_t)B % align[1] == 0 && (uintptr_t)D % align[3] == 0);
    assert_true(la->ld * 2 % align[0] == 0 && lb->ld * 2 % align[1] == 0 && out->ld * 4 % align[3] == 0);
    uint64_t K = f->trans[0] == CUBLAS_OP_T ? la->rows : la->cols;
    assert_true(out->type == CUDA_R_32F && *(const float *)alpha == 1);
    assert_int_equal(K, f->trans[1] == CUBLAS_OP_T ? lb->cols : lb->rows);
    assert_int_equal(out->rows, f->trans[0] == CUBLAS_OP_T ? la->cols : la->rows);
    assert_int_equal(out->cols, f->trans[1] == CUBLAS_OP_T ? lb->rows : lb->cols);
    fake.products++;
    for (uint64_t col = 0; col < out->cols; col++)
        for (uint64_t row = 0; row < out->rows; row++) {
            float *y = (float *)D + col * (uint64_t)out->ld + row, sum = 0;
            for (uint64_t k = 0; k < K; k++)
                sum = fmaf(element(la, A, f->trans[0], row, k), element(lb, B, f->trans[1], k, col), sum);
            *y = *(const float *)beta == 0 ? sum : *y + sum;
        }
    return fake.fails ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

static const pl_lt_table stand_in = {.Create = fake_create,
                                     .Destroy = fake_destroy,
                                     .GetVersion = fake_version,
                                     .GetStatusString = fake_status,
                                     .MatmulDescCreate = fake_desc_create,
                                     .MatmulDescDestroy = fake_desc_destroy,
                                     .MatmulDescSetAttribute = fake_desc_set,
                                     .MatrixLayoutCreate = fake_layout_create,
                                     .MatrixLayoutDestroy = fake_layout_destroy,
                                     .MatmulPreferenceCreate = fake_wish_create,
                                     .MatmulPreferenceDestroy = fake_wish_destroy,
                                     .MatmulPreferenceSetAttribute = fake_wish_set,
                                     .MatmulAlgoGetHeuristic = fake_heuristic,
                                     .Matmul = fake_matmul};

static int begin(void **state) {
    (void)state;
    memset(&fake, 0, sizeof fake);
    pl_lt_use_emulated(&stand_in);
    return 0;
}

static int end(void **state) {
    (void)state;
    pl_lt_use_emulated(NULL);
    return fake.held; // all that was made is destroyed
}

typedef struct shape {
    int m, n, k;
} shape;

static void working(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->m, s->k, 0, 1), w = op_working(r, s->n, s->k, 1 / sqrt(s->k));
    op_out(r, pl_linear(op_ctx(r), x, w));
}

// A weight that lies in bf16 already, and whose lines are whole pieces: read where it is.
static void stored(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->m, s->k, 0, 1);
    op_out(r, pl_linear(op_ctx(r), x, op_weight(r, s->n, s->k, PL_BF16, PL_ROWMAJOR, 1 / sqrt(s->k))));
}

enum { FLAGS = OP_NO_DIFFERENCES | OP_NARROW };

// Forward, dx and dw of lines that are and are not multiples of 8; small products stay at home.
static void products(void **state) {
    (void)state;
    const shape shapes[] = {{128, 128, 128}, {131, 129, 133}, {136, 200, 144}};
    for (int i = 0; i < 3; i++) {
        const shape *s = &shapes[i];
        fake.products = fake.asked = 0;
        op_check(working, s, FLAGS, "linear through the library %dx%dx%d", s->m, s->n, s->k);
        assert_int_equal(fake.products, 3 * op_device_runs());
        assert_int_equal(fake.asked, op_device_runs() ? 3 : 0); // one choice a shape
        op_check(stored, s, FLAGS, "linear through the library, stored %dx%dx%d", s->m, s->n, s->k);
        assert_int_equal(fake.products, 5 * op_device_runs());
    }
    const shape small = {127, 127, 127};
    fake.products = 0;
    op_check(working, &small, FLAGS, "linear at home");
    assert_int_equal(fake.products, 0);
}

static int launches;

static void count_launch(const pl_cuda_launch *l) {
    (void)l;
    launches++;
}

// Each factor is rounded once a pass, dy for both of its products; a weight of bf16 rows is read where it is.
static void rounded_once(void **state) {
    (void)state;
    const shape s = {136, 200, 144};
    pl_emu_on_launch = count_launch;
    for (int taped = 0; taped < 2; taped++) {
        launches = 0;
        op_run_free(op_run_once(working, &s, pl_backend_cuda_emulated(), 1, taped ? 0 : OP_NO_TAPE));
        assert_int_equal(launches, taped ? 3 : 1); // x; then dy and x again
    }
    pl_emu_on_launch = NULL;
}

// The library has no algorithm: the own kernel computes it.
static void refused(void **state) {
    (void)state;
    const shape s = {130, 128, 128};
    fake.refuses = true;
    op_check(working, &s, FLAGS, "linear that the library refuses");
    assert_true(fake.products == 0 && fake.asked == (op_device_runs() ? 3 : 0));
}

// The library fails: one line, with the op and the way round.
static void failed(void **state) {
    (void)state;
    pl_ctx  ctx;
    pl_err  err = {0};
    int64_t n = 128;
    fake.fails = true;
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_cuda_emulated(), NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 20, NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx.scratch, PL_LT_WORKSPACE + (1 << 20), NULL), PL_OK);
    pl_tensor x = pl_ctx_const(&ctx, n, n), w = pl_ctx_const(&ctx, n, n);
    w.bf16 = pl_ctx_const(&ctx, n, n).data;
    memset(x.data, 0, (size_t)(n * n) * 4);
    memset(w.data, 0, (size_t)(n * n) * 4);
    pl_linear(&ctx, x, w);
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_E_DEVICE);
    one_line(&err, "op linear: cuBLASLt: it would not run; PACELINE_GEMM=own");
    pl_ctx_fini(&ctx);
}

// More shapes than are kept: old plans make room for new ones, and the last are still known.
static void many_shapes(void **state) {
    (void)state;
    enum { SHAPES = 2000, MOST_HELD = 1 + 5 * 512 };
    pl_ctx ctx;
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_cuda_emulated(), NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx.scratch, PL_LT_WORKSPACE + 4096, NULL), PL_OK);
    assert_true(pl_lt_takes_emulated(&ctx, 128, 128, 128) && !pl_lt_takes_emulated(&ctx, 128, 127, 128));
    fake.refuses = true; // they are looked up all the same
    pl_lt_product p = {.c_row = 128, .N = 128, .K = 128, .a = {NULL, 128, false}, .b = {NULL, 128, false}};
    for (int i = 0; i < SHAPES; i++) {
        p.M = 128 + i;
        assert_false(pl_lt_product_emulated(&ctx, "linear", &p));
        assert_true(fake.asked == i + 1 && fake.held <= MOST_HELD);
    }
    assert_false(pl_lt_product_emulated(&ctx, "linear", &p));
    assert_int_equal(fake.asked, SHAPES);
    pl_ctx_fini(&ctx);
}

// The divergence engine's products: rows and dz in bf16 already, ids through a list, chunks of 128 rows and of 2.
static void engine(op_run *r, const void *arg) {
    const bool settled = *(const bool *)arg;
    enum { ROWS = 130, TEACHERS = 128, D = 136, V = 300, VD = 150 };
    pl_divergence_args a = {.objective = PL_OBJ_KL, .whole = true, .settled = settled};
    float             *weight = op_bytes(r, ROWS * 4);
    int32_t           *row = op_bytes(r, ROWS * 4), *d2t = op_bytes(r, VD * 4);
    a.x = op_leaf(r, ROWS, D, 0, 1);
    a.w = op_working(r, VD, D, 1 / sqrt(D));
    a.xt = op_constant(r, TEACHERS, D, 1);
    a.wt = op_weight(r, V, D, PL_BF16, PL_ROWMAJOR, 1 / sqrt(D));
    for (int i = 0; i < ROWS; i++) {
        weight[i] = 1;
        row[i] = i % TEACHERS;
    }
    for (int i = 0; i < VD; i++)
        d2t[i] = 2 * i;
    a.weight = weight;
    a.teacher_row = row;
    a.d2t = d2t;
    op_out_loss(r, pl_divergence(op_ctx(r), &a), weight);
}

static void divergences(void **state) {
    (void)state;
    for (int settled = 0; settled < 2; settled++) {
        const bool is = settled;
        fake.products = 0;
        op_check(engine, &is, FLAGS | OP_BF16_GRADS, "divergence through the library");
        // The teacher's and the student's logits, dx, dW; where backward comes later both logits again.
        assert_int_equal(fake.products, (settled ? 4 : 6) * op_device_runs());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(installed),
        cmocka_unit_test(missing),
        cmocka_unit_test_setup_teardown(products, begin, end),
        cmocka_unit_test_setup_teardown(rounded_once, begin, end),
        cmocka_unit_test_setup_teardown(refused, begin, end),
        cmocka_unit_test_setup_teardown(failed, begin, end),
        cmocka_unit_test_setup_teardown(many_shapes, begin, end),
        cmocka_unit_test_setup_teardown(divergences, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
