// cuDNN behind attention over blocks (kernels/cuda/lib/cudnn_attention.h): the library as it is installed, or its
// absence; its plans finished for GPUs that are only described, with a stand-in for the driver; and on the emulated
// device, with a stand-in for the library that reads the graphs as its manual says and computes them, operation by
// operation.
#define PL_CUDA_SUFFIX emulated
#include "kernels/cuda/lib/cudnn_table.h"
#include "kernels/op/attention.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/kernels/op_harness.h"
#include "tests/whole.h"
#include <dlfcn.h>
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

static const pl_cudnn_table *installed_or_skip(void) {
    pl_err                err = {0};
    char                  line[256];
    const pl_cudnn_table *t = pl_cudnn_installed(&err);
    pl_backend_cuda_attention(line, sizeof line);
    print_message("%s\n", line);
    if (t) return t;
    one_line(&err, getenv("PACELINE_ATTENTION") ? "PACELINE_ATTENTION=own" : "libcudnn.so");
    skip();
    return NULL;
}

static const pl_cudnn_shape shapes[] = {{2048, 32, 8, 128}, {256, 2, 2, 64}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// All functions are there, and take every operation of both graphs.
static void installed(void **state) {
    (void)state;
    const pl_cudnn_table *t = installed_or_skip();
    assert_true(t->GetVersion() >= PL_CUDNN_OLDEST && pl_cudnn_installed(NULL) == t);
    for (int i = 0; i < 2 * SHAPES; i++) {
        pl_cudnn_graph g = {.t = t, .next = PL_CUDNN_UIDS};
        (i % 2 ? pl_cudnn_backward : pl_cudnn_forward)(&g, &shapes[i / 2]);
        if (g.status != CUDNN_STATUS_SUCCESS) fail_msg("%s: %s", g.doing, t->GetErrorString(g.status));
        assert_true(g.n_ops >= 15 && g.n_made > 2 * g.n_ops);
        pl_cudnn_drop(&g);
        assert_int_equal(g.n_made, 0);
    }
}

// What the library's own serialisation of a device holds, of three GPUs.
static const struct {
    const char *name;
    int         version, sms, l2, shared, clock;
} gpus[] = {{"A100", 800, 108, 41943040, 166912, 1410000},
            {"H100", 900, 132, 52428800, 232448, 1980000},
            {"B200", 1000, 148, 132644864, 232448, 1965000}};

static cudnnBackendDescriptor_t described(pl_cudnn_graph *g, int gpu) {
    char json[1024];
    int  n = snprintf(
         json, sizeof json,
         "{\"deviceName\":\"NVIDIA %s\",\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,"
          "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
          "\"multiProcessorCount\":%d,\"smClockRateKHz\":%d,\"memClockRateKHz\":2619000,\"l2CacheSize\":%d,"
          "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
          "\"oversizedSharedMemoryPerBlock\":0,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
          "\"pciDeviceId\":0,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
          "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":85000000000}",
         gpus[gpu].name, gpus[gpu].version, gpus[gpu].sms, gpus[gpu].clock, gpus[gpu].l2, gpus[gpu].shared);
    assert_true(n > 0 && n < (int)sizeof json);
    cudnnBackendDescriptor_t d = pl_cudnn_make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    pl_cudnn_set(g, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n, json);
    pl_cudnn_finish(g, d, "a described GPU");
    return d;
}

// The library chooses deterministic engines for both graphs, compiles their kernels and finishes the plans, for every
// generation of GPUs. Where there is a driver the GPU's own plans are made by the op's tests.
static void plans(void **state) {
    (void)state;
    const pl_cudnn_table *t = installed_or_skip();
    void                 *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver) {
        dlclose(driver);
        print_message("there is a driver: no stand-in for it\n");
        skip();
    }
    if (!dlopen(PACELINE_STANDIN_DRIVER, RTLD_NOW | RTLD_GLOBAL)) fail_msg("%s", dlerror());
    for (int gpu = 0; gpu < 3; gpu++) {
        pl_cudnn_graph  g = {.t = t};
        pl_cudnn_target on = {.device = described(&g, gpu)};
        if (g.status != CUDNN_STATUS_SUCCESS) fail_msg("%s: %s", g.doing, t->GetErrorString(g.status));
        for (int i = 0; i < 2 * SHAPES; i++) {
            const pl_cudnn_shape *s = &shapes[i / 2];
            pl_cudnn_plan         plan;
            pl_err                err = {0};
            if (!test_whole() && (i % 2 + i / 2 + gpu) % 2) continue; // each is compiled for seconds
            if (pl_cudnn_plan_create(t, &on, s, i % 2, &plan, &err) != PL_OK)
                fail_msg("%s: %s", gpus[gpu].name, err.msg);
            print_message("%s: %s, %d rows, %d/%d heads of %d: %.1f MB of workspace\n", gpus[gpu].name,
                          i % 2 ? "backward" : "forward", (int)s->rows, s->nh, s->nkv, s->hd,
                          1e-6 * (double)plan.workspace);
            // Backward keeps its scores' gradients: the form without atomic sums.
            if (i % 2) assert_true(plan.workspace >= 2 * s->nh * s->rows * s->rows);
            pl_cudnn_plan_destroy(&plan);
        }
        const pl_cudnn_shape large = {8192, 32, 8, 128};
        pl_cudnn_plan        plan;
        pl_err               err = {0};
        if (gpu == 0) {
            assert_int_equal(pl_cudnn_plan_create(t, &on, &large, true, &plan, &err), PL_E_UNSUPPORTED);
            one_line(&err, "no deterministic attention backward for 8192 rows");
        }
        pl_cudnn_drop(&g);
    }
}

bool pl_cudnn_takes_cuda(pl_ctx *ctx, const pl_cudnn_shape *s, size_t *workspace);

// On a GPU (PACELINE_TEST_GPU) the installed library has plans, so that the op's cases below go through it there.
static void takes_on_a_gpu(void **state) {
    (void)state;
    const pl_backend *be = NULL, *each;
    for (int i = 0; (each = op_backend(i)); i++)
        if (each->device && each != pl_backend_cuda_emulated()) be = each;
    if (!be) skip();
    installed_or_skip();
    pl_ctx ctx;
    size_t workspace;
    assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
    for (int i = 0; i < SHAPES; i++)
        if (!pl_cudnn_takes_cuda(&ctx, &shapes[i], &workspace)) fail_msg("%s: no plans for shape %d", be->name, i);
    pl_ctx_fini(&ctx);
}

static size_t old_version(void) {
    return 90907;
}

static void missing(void **state) {
    (void)state;
    pl_cudnn_table t, before;
    pl_err         err = {0};
    memset(&t, 0x5a, sizeof t);
    before = t;
    assert_int_equal(pl_cudnn_open("libcudnn.so.0", "/nonexistent", &t, &err), PL_E_UNSUPPORTED);
    one_line(&err, "libcudnn.so.0 is not installed");
    assert_int_equal(pl_cudnn_open("libm.so.6", NULL, &t, &err), PL_E_UNSUPPORTED);
    one_line(&err, "libm.so.6 has no cudnnCreate");
    assert_memory_equal(&t, &before, sizeof t);
    assert_null(pl_cudnn_none(NULL));
    t.GetVersion = old_version;
    assert_int_equal(pl_cudnn_accept(&t, &err), PL_E_UNSUPPORTED);
    one_line(&err, "cuDNN 9.9 is older than 9.10");
}

// ---- a stand-in: descriptors ----------------------------------------------------------------------------------------

enum { ATTRIBUTES = 8, VALUES = 8, MOST_OPS = 64 };

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t                     n;
    void                       *value;
} attribute;

typedef struct object {
    cudnnBackendDescriptorType_t type;
    bool                         done;
    int                          n;
    attribute                    set[ATTRIBUTES];
    const struct object         *graph;  // of an engine's configuration
    bool                         varies; // it says that it may differ from run to run
} object;

static struct {
    int     held;           // objects made and not destroyed
    int     runs[2], plans; // forward, backward
    bool    refuses;        // no engine takes the graph
    bool    only_varying;   // the only engine may differ from run to run
    bool    fails;          // running fails
    int64_t workspace;
} fake;

static object *object_of(cudnnBackendDescriptor_t d) {
    assert_non_null(d);
    return (object *)d;
}

static cudnnStatus_t fake_create(cudnnHandle_t *h) {
    *h = (cudnnHandle_t)calloc(1, 1);
    assert_non_null(*h);
    fake.held++;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t fake_destroy(cudnnHandle_t h) {
    assert_non_null(h);
    free(h);
    fake.held--;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t fake_stream(cudnnHandle_t h, cudaStream_t stream) {
    assert_true(h && !stream);
    return CUDNN_STATUS_SUCCESS;
}
static size_t fake_version(void) {
    return 91900;
}
static const char *fake_status(cudnnStatus_t s) {
    return s == CUDNN_STATUS_EXECUTION_FAILED ? "it would not run" : "unknown";
}

static cudnnStatus_t fake_make(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d) {
    object *o = calloc(1, sizeof *o);
    assert_non_null(o);
    o->type = type;
    fake.held++;
    *d = (cudnnBackendDescriptor_t)o;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t fake_drop(cudnnBackendDescriptor_t d) {
    object *o = object_of(d);
    for (int i = 0; i < o->n; i++)
        free(o->set[i].value);
    free(o);
    fake.held--;
    return CUDNN_STATUS_SUCCESS;
}

static size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64: return 8;
    case CUDNN_TYPE_BOOLEAN: return 1;
    default: return 4; // enumerations
    }
}

static cudnnStatus_t fake_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    object *o = object_of(d);
    assert_true(!o->done && o->n < ATTRIBUTES && n > 0);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) // what is named must be finished
        for (int64_t i = 0; i < n; i++)
            assert_true(object_of(((const cudnnBackendDescriptor_t *)value)[i])->done);
    attribute *a = &o->set[o->n++];
    *a = (attribute){name, n, malloc((size_t)n * size_of(type))};
    assert_non_null(a->value);
    memcpy(a->value, value, (size_t)n * size_of(type));
    return CUDNN_STATUS_SUCCESS;
}

static const attribute *find(const object *o, cudnnBackendAttributeName_t name) {
    for (int i = 0; i < o->n; i++)
        if (o->set[i].name == name) return &o->set[i];
    return NULL;
}
static const void *need(const object *o, cudnnBackendAttributeName_t name, int64_t n) {
    const attribute *a = find(o, name);
    if (!a || a->n != n) fail_msg("attribute %d of a descriptor %d", (int)name, (int)o->type);
    return a->value;
}
static int number_of(const object *o, cudnnBackendAttributeName_t name) {
    int v;
    memcpy(&v, need(o, name, 1), sizeof v);
    return v;
}
static object *part(const object *o, cudnnBackendAttributeName_t name) {
    return object_of(*(cudnnBackendDescriptor_t const *)need(o, name, 1));
}

static cudnnStatus_t fake_finish(cudnnBackendDescriptor_t d) {
    object *o = object_of(d);
    assert_false(o->done);
    o->done = true;
    if (o->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
    assert_false(part(o, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->varies);
    assert_non_null(find(o, CUDNN_ATTR_EXECUTION_PLAN_HANDLE));
    fake.plans++;
    return CUDNN_STATUS_SUCCESS;
}

// The heuristic: an engine that varies, then one that does not.
static cudnnStatus_t fake_get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *value) {
    object *o = object_of(d);
    (void)type;
    *n = 1;
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        assert_true(o->done && room >= 2);
        *n = fake.refuses ? 0 : fake.only_varying ? 1 : 2;
        for (int64_t i = 0; i < *n; i++) {
            object *config = object_of(((cudnnBackendDescriptor_t *)value)[i]);
            config->graph = part(o, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
            config->varies = i == 0;
            config->done = true;
        }
        break;
    case CUDNN_ATTR_ENGINECFG_ENGINE: object_of(*(cudnnBackendDescriptor_t *)value)->varies = o->varies; break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        assert_true(room >= 2);
        *n = o->varies ? 2 : 1;
        ((cudnnBackendNumericalNote_t *)value)[0] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        if (o->varies) ((cudnnBackendNumericalNote_t *)value)[1] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        assert_true(o->done);
        memcpy(value, &fake.workspace, sizeof fake.workspace);
        break;
    default: fail_msg("attribute %d is asked for", (int)name);
    }
    return CUDNN_STATUS_SUCCESS;
}

// ---- a stand-in: what graphs compute --------------------------------------------------------------------------------

typedef struct array {
    const object *of;
    int64_t       dim[4], stride[4];
    int           type;
    bool          own;
    void         *data;
} array;

static struct {
    const object *pack;
    array         array[MOST_OPS * 3];
    int           n;
} run;

static array *array_of(const object *t) {
    for (int i = 0; i < run.n; i++)
        if (run.array[i].of == t) return &run.array[i];
    assert_true(t->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && run.n < MOST_OPS * 3);
    array *a = &run.array[run.n++];
    *a = (array){.of = t, .type = number_of(t, CUDNN_ATTR_TENSOR_DATA_TYPE)};
    memcpy(a->dim, need(t, CUDNN_ATTR_TENSOR_DIMENSIONS, 4), sizeof a->dim);
    memcpy(a->stride, need(t, CUDNN_ATTR_TENSOR_STRIDES, 4), sizeof a->stride);
    int64_t uid = *(const int64_t *)need(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1), last = 0;
    for (int i = 0; i < 4; i++)
        last += (a->dim[i] - 1) * a->stride[i];
    const attribute *uids = find(run.pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    int64_t          at = 0;
    while (at < uids->n && ((const int64_t *)uids->value)[at] != uid)
        at++;
    if (find(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
        assert_true(at == uids->n);
        a->own = true;
        a->data = calloc((size_t)last + 1, 4);
    } else {
        assert_true(at < uids->n);
        a->data = ((void *const *)need(run.pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, uids->n))[at];
        size_t align = find(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE)
                           ? 4
                           : (size_t) * (const int64_t *)need(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
        assert_true((uintptr_t)a->data % align == 0);
    }
    assert_non_null(a->data);
    return a;
}

static double value_at(const array *a, int64_t at) {
    switch (a->type) {
    case CUDNN_DATA_FLOAT: return (double)((const float *)a->data)[at];
    case CUDNN_DATA_BFLOAT16: return (double)pl_bf16_to_f32(((const uint16_t *)a->data)[at]);
    case CUDNN_DATA_INT32: return ((const int32_t *)a->data)[at];
    case CUDNN_DATA_BOOLEAN: return ((const uint8_t *)a->data)[at];
    default: fail_msg("a tensor of type %d", a->type); return 0;
    }
}
static void put_at(array *a, int64_t at, double v) {
    switch (a->type) {
    case CUDNN_DATA_FLOAT: ((float *)a->data)[at] = (float)v; break;
    case CUDNN_DATA_BFLOAT16: ((uint16_t *)a->data)[at] = pl_f32_to_bf16((float)v); break;
    case CUDNN_DATA_INT32: ((int32_t *)a->data)[at] = (int32_t)v; break;
    case CUDNN_DATA_BOOLEAN: ((uint8_t *)a->data)[at] = v != 0; break;
    default: fail_msg("a tensor of type %d", a->type);
    }
}

// Where element i lies; a dimension of one serves all, a key head all its query heads.
static int64_t place(const array *a, const array *of, const int64_t i[4]) {
    int64_t at = 0;
    for (int d = 0; d < 4; d++) {
        assert_true(of->dim[d] % a->dim[d] == 0 && (d == 1 || a->dim[d] == 1 || a->dim[d] == of->dim[d]));
        at += i[d] / (of->dim[d] / a->dim[d]) * (a->dim[d] == 1 ? 0 : a->stride[d]);
    }
    return at;
}
static bool next(const array *a, int64_t i[4]) {
    for (int d = 3; d >= 0; d--) {
        if (++i[d] < a->dim[d]) return true;
        i[d] = 0;
    }
    return false;
}

static void multiply(const object *op) {
    array *a = array_of(part(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    array *b = array_of(part(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    array *c = array_of(part(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    assert_int_equal(number_of(part(op, CUDNN_ATTR_OPERATION_MATMUL_DESC), CUDNN_ATTR_MATMUL_COMP_TYPE),
                     CUDNN_DATA_FLOAT);
    int64_t M = c->dim[2], N = c->dim[3], K = a->dim[3];
    assert_true(a->dim[2] == M && b->dim[2] == K && b->dim[3] == N && c->dim[1] % b->dim[1] == 0);
    assert_int_equal(a->dim[1], c->dim[1]);
    float *left = malloc((size_t)(M * K) * 4), *right = malloc((size_t)(K * N) * 4), *sum = malloc((size_t)N * 4);
    assert_true(left && right && sum);
    for (int64_t h = 0; h < c->dim[1]; h++) {
        int64_t from = h / (c->dim[1] / b->dim[1]);
        for (int64_t m = 0; m < M; m++)
            for (int64_t k = 0; k < K; k++) // factors go through bf16, whatever they come as
                left[m * K + k] =
                    pl_round_bf16((float)value_at(a, h * a->stride[1] + m * a->stride[2] + k * a->stride[3]));
        for (int64_t k = 0; k < K; k++)
            for (int64_t n = 0; n < N; n++)
                right[k * N + n] = (float)value_at(b, from * b->stride[1] + k * b->stride[2] + n * b->stride[3]);
        for (int64_t m = 0; m < M; m++) {
            memset(sum, 0, (size_t)N * 4);
            for (int64_t k = 0; k < K; k++)
                for (int64_t n = 0; n < N; n++)
                    sum[n] += left[m * K + k] * right[k * N + n];
            for (int64_t n = 0; n < N; n++)
                put_at(c, h * c->stride[1] + m * c->stride[2] + n * c->stride[3], (double)sum[n]);
        }
    }
    free(left), free(right), free(sum);
}

static float elementwise(int mode, float x, float b, bool choose, int64_t number) {
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return expf(x);
    case CUDNN_POINTWISE_LOG: return logf(x);
    case CUDNN_POINTWISE_GEN_INDEX: return (float)number;
    case CUDNN_POINTWISE_CMP_LT: return x < b;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return choose ? x : b;
    default: fail_msg("elementwise %d", mode); return 0;
    }
}

static array *optional(const object *op, cudnnBackendAttributeName_t name) {
    return find(op, name) ? array_of(part(op, name)) : NULL;
}

static void each(const object *op) {
    const object *kind = part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    array        *x = array_of(part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    array        *b = optional(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    array        *t = optional(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    array        *y = array_of(part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    int           mode = number_of(kind, CUDNN_ATTR_POINTWISE_MODE);
    int64_t       i[4] = {0}, axis = 0;
    if (mode == CUDNN_POINTWISE_GEN_INDEX) axis = *(const int64_t *)need(kind, CUDNN_ATTR_POINTWISE_AXIS, 1);
    do
        put_at(y, place(y, y, i),
               (double)elementwise(mode, (float)value_at(x, place(x, y, i)), b ? (float)value_at(b, place(b, y, i)) : 0,
                                   t && value_at(t, place(t, y, i)) != 0, i[axis]));
    while (next(y, i));
}

static void reduce(const object *op) {
    const object *kind = part(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    array        *x = array_of(part(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    array        *y = array_of(part(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    bool          max = number_of(kind, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
    int64_t       i[4] = {0}, n = y->dim[1] * y->dim[2] * y->dim[3];
    double       *sum = malloc((size_t)n * sizeof *sum);
    assert_non_null(sum);
    assert_true(max || number_of(kind, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD);
    for (int64_t k = 0; k < n; k++)
        sum[k] = max ? -INFINITY : 0;
    do {
        int64_t to = 0;
        for (int d = 1; d < 4; d++)
            to = to * y->dim[d] + i[d] / (x->dim[d] / y->dim[d]);
        double v = value_at(x, place(x, x, i));
        sum[to] = max ? fmax(sum[to], v) : sum[to] + v;
    } while (next(x, i));
    int64_t k = 0;
    memset(i, 0, sizeof i);
    do
        put_at(y, place(y, y, i), sum[k++]);
    while (next(y, i));
    free(sum);
}

// The same memory in another layout.
static void reshape(const object *op) {
    array  *x = array_of(part(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    array  *y = array_of(part(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    int64_t i[4] = {0};
    do
        put_at(y, place(y, y, i), value_at(x, place(y, y, i)));
    while (next(y, i));
}

static cudnnStatus_t fake_execute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    const object *p = object_of(plan), *graph = part(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->graph;
    assert_true(h && p->done && object_of(pack)->done);
    void *workspace = *(void *const *)need(object_of(pack), CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1);
    assert_true(workspace && (uintptr_t)workspace % 256 == 0);
    memset(workspace, 0xff, (size_t)fake.workspace);
    run.pack = object_of(pack);
    run.n = 0;
    const attribute *ops = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    assert_true(ops && ops->n <= MOST_OPS);
    bool backward =
        ((const int64_t *)find(run.pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->value)[PL_CUDNN_DO] == PL_CUDNN_DO + 1;
    for (int64_t i = 0; i < ops->n; i++) {
        const object *op = object_of(((cudnnBackendDescriptor_t const *)ops->value)[i]);
        switch ((int)op->type) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: multiply(op); break;
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: each(op); break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: reduce(op); break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: reshape(op); break;
        default: fail_msg("an operation %d", (int)op->type);
        }
    }
    for (int i = 0; i < run.n; i++)
        if (run.array[i].own) free(run.array[i].data);
    fake.runs[backward]++;
    return fake.fails ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

static const pl_cudnn_table stand_in = {.Create = fake_create,
                                        .Destroy = fake_destroy,
                                        .SetStream = fake_stream,
                                        .GetVersion = fake_version,
                                        .GetErrorString = fake_status,
                                        .BackendCreateDescriptor = fake_make,
                                        .BackendDestroyDescriptor = fake_drop,
                                        .BackendSetAttribute = fake_set,
                                        .BackendGetAttribute = fake_get,
                                        .BackendFinalize = fake_finish,
                                        .BackendExecute = fake_execute};

static int begin(void **state) {
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.workspace = 5000;
    pl_cudnn_use_emulated(&stand_in);
    return 0;
}

static int end(void **state) {
    (void)state;
    pl_cudnn_use_emulated(NULL);
    return fake.held; // all that was made is destroyed
}

// ---- the op ---------------------------------------------------------------------------------------------------------

typedef struct slot {
    int      nh, nkv, hd, rows, n_blocks;
    int      document; // rows of one; the last three rows are padding, and one between documents
    pl_dtype numbers;
    bool     falling; // a later row begins before an earlier one
    bool     frozen;  // block 0 is a constant
    int      every;   // rows m with m % every > 1 have no query (pl_attention_part); 0: all have one
} slot;

static int slot_lo(const slot *s, int m) {
    if (s->document < s->rows && (m >= s->rows - 3 || m == s->document)) return -1;
    if (s->falling && m == s->rows - 4) return 0;
    return m / s->document * s->document + (m / s->document == 1); // the second begins behind the padding
}

static void blocks(op_run *r, const void *arg) {
    const slot *s = arg;
    pl_tensor   block[PL_MAX_UNROLL];
    int         width = (s->nh + 2 * s->nkv) * s->hd;
    int32_t    *lo = op_bytes(r, (size_t)s->rows * sizeof *lo);
    for (int m = 0; m < s->rows; m++)
        lo[m] = slot_lo(s, m);
    for (int j = 0; j < s->n_blocks; j++)
        block[j] = j == 0 && s->frozen ? op_constant(r, s->rows, width, 1) : op_leaf(r, s->rows, width, 0, 1);
    op_out(r, pl_attention_blocks_in(op_ctx(r), s->numbers, 0, block, s->n_blocks, lo, s->nh, s->nkv, s->hd));
}

// Queries of some rows; block 0 holds keys and values alone.
static void some(op_run *r, const void *arg) {
    const slot    *s = arg;
    pl_tensor      block[PL_MAX_UNROLL];
    const int32_t *place[PL_MAX_UNROLL] = {0};
    int            width = (s->nh + 2 * s->nkv) * s->hd, n = 0;
    int32_t       *lo = op_bytes(r, (size_t)s->rows * sizeof *lo), *at = op_bytes(r, (size_t)s->rows * sizeof *at);
    for (int m = 0; m < s->rows; m++)
        if (m % s->every <= 1 && slot_lo(s, m) >= 0) lo[n] = slot_lo(s, m), at[n++] = m;
    block[0] = op_leaf(r, s->rows, 2 * s->nkv * s->hd, 0, 1);
    for (int j = 1; j < s->n_blocks; j++)
        block[j] = op_leaf(r, n, width, 0, 1);
    pl_attention_part p = {op_leaf(r, n, s->nh * s->hd, 0, 1), at, place};
    op_out(r, pl_attention_some(op_ctx(r), s->numbers, 0, &p, block, s->n_blocks, lo, s->nh, s->nkv, s->hd));
}

enum { FLAGS = OP_NO_DIFFERENCES | OP_BF16_INSIDE };

static void check(const slot *s, bool taken, const char *what) {
    memset(fake.runs, 0, sizeof fake.runs);
    op_check(s->every ? some : blocks, s, FLAGS,
             "attention through the library, %s: %d rows, documents of %d, %d blocks, %d/%d of %d", what, s->rows,
             s->document, s->n_blocks, s->nh, s->nkv, s->hd);
    assert_int_equal(fake.runs[0], fake.runs[1]);
    if (op_device_runs() == 0) return; // on a GPU it was the installed library
    if ((fake.runs[0] > 0) != taken) fail_msg("%s: %d runs of the library", what, fake.runs[0]);
}

// Documents within a slot, padding, groups of query heads, unrolled steps; rows that are no multiple of anything.
static const slot plain = {2, 2, 64, 256, 1, 256, PL_BF16, false, false, 0};
static const slot grouped = {4, 2, 64, 256, 1, 256, PL_BF16, false, false, 0};
static const slot documents = {2, 2, 64, 256, 1, 140, PL_BF16, false, false, 0};
static const slot steps = {1, 1, 64, 256, PL_MAX_UNROLL, 256, PL_BF16, false, false, 0};
static const slot all_of_it = {4, 2, 64, 256, 3, 150, PL_BF16, false, false, 0};
static const slot odd_rows = {2, 1, 128, 261, 2, 120, PL_BF16, false, false, 0};
static const slot frozen = {2, 1, 64, 256, 2, 140, PL_BF16, false, true, 0};
static const slot of_some_rows = {2, 1, 64, 261, 3, 150, PL_BF16, false, false, 3};

static void taken(void **state) {
    const slot *s = *state;
    begin(NULL);
    check(s, true, "taken");
    if (op_device_runs()) assert_int_equal(fake.plans, 2); // one forward and one backward, made once
    assert_int_equal(end(NULL), 0);
}

// What stays at home: too few rows, other heads, fp32 numbers, documents too short, rows out of order.
static void at_home(void **state) {
    (void)state;
    const struct {
        slot        s;
        const char *why;
    } home[] = {{{1, 1, 64, 255, 2, 255, PL_BF16, false, false, 0}, "too few rows"},
                {{1, 1, 32, 256, 1, 256, PL_BF16, false, false, 0}, "heads of 32"},
                {{1, 1, 64, 256, 1, 256, PL_F32, false, false, 0}, "in fp32"},
                {{1, 1, 64, 256, 1, 40, PL_BF16, false, false, 0}, "short documents"},
                {{1, 1, 64, 260, 1, 130, PL_BF16, true, false, 0}, "out of order"}};
    for (int i = 0; i < 5; i++)
        check(&home[i].s, false, home[i].why);
}

static void refused(void **state) {
    (void)state;
    const slot s = {1, 1, 64, 256, 2, 200, PL_BF16, false, false, 0};
    fake.refuses = true;
    check(&s, false, "no engine");
    pl_cudnn_use_emulated(&stand_in); // forgets
    fake.refuses = false;
    fake.only_varying = true;
    check(&s, false, "an engine that varies");
    pl_cudnn_use_emulated(&stand_in);
    fake.only_varying = false;
    fake.workspace = (int64_t)PL_CUDNN_WORKSPACE + 1;
    check(&s, false, "too much workspace");
    if (op_device_runs()) assert_int_equal(fake.plans, 1); // forward's was made, and not taken
}

// One document of 256 rows, on a context with so much scratch; what came of it.
static pl_status once(size_t scratch, pl_err *err) {
    enum { ROWS = 256, WIDTH = 4 * 64 };
    static int32_t lo[ROWS];
    pl_ctx         ctx;
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_cuda_emulated(), NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx.frame, 4 << 20, NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx.scratch, scratch, NULL), PL_OK);
    pl_tensor qkv = pl_ctx_const(&ctx, ROWS, WIDTH);
    memset(qkv.data, 0, (size_t)ROWS * WIDTH * 4);
    pl_attention_blocks_in(&ctx, PL_BF16, 0, &qkv, 1, lo, 2, 1, 64);
    pl_status st = pl_ctx_sync(&ctx, err);
    pl_ctx_fini(&ctx);
    return st;
}

// The library fails: one line, with the op and the way round. Without room for it, own kernels compute.
static void failed(void **state) {
    (void)state;
    pl_err err = {0};
    fake.fails = true;
    assert_int_equal(once(4 << 20, &err), PL_E_DEVICE);
    one_line(&err, "op attention: cuDNN: it would not run; PACELINE_ATTENTION=own");
    assert_int_equal(fake.runs[0], 1);
    assert_int_equal(once(64 << 10, &err), PL_OK);
    assert_int_equal(fake.runs[0], 1);
}

int main(void) {
    setenv("PACELINE_TEST_DEVICES_ALONE", "1", 1); // the cpu's levels are test_op_attention's
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(installed),
        cmocka_unit_test(plans),
        cmocka_unit_test(takes_on_a_gpu),
        cmocka_unit_test(missing),
        {"taken: plain", taken, NULL, NULL, (void *)&plain},
        {"taken: grouped", taken, NULL, NULL, (void *)&grouped},
        {"taken: documents", taken, NULL, NULL, (void *)&documents},
        {"taken: steps", taken, NULL, NULL, (void *)&steps},
        {"taken: all of it", taken, NULL, NULL, (void *)&all_of_it},
        {"taken: odd rows", taken, NULL, NULL, (void *)&odd_rows},
        {"taken: frozen", taken, NULL, NULL, (void *)&frozen},
        {"taken: of some rows", taken, NULL, NULL, (void *)&of_some_rows},
        cmocka_unit_test_setup_teardown(at_home, begin, end),
        cmocka_unit_test_setup_teardown(refused, begin, end),
        cmocka_unit_test_setup_teardown(failed, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
