// Products through cuBLASLt: one handle per device, plans by shape.
#include "kernels/base/check.h"
#include "kernels/cuda/lib/lt_table.h"
#include "kernels/cuda/table.h"
#include <pthread.h>
#include <string.h>

enum { DEVICES = 16, PLANS = 512, ALIGN = 256 }; // ALIGN: of the workspace

typedef struct device {
    const pl_backend *be; // NULL: the entry is free
    cublasLtHandle_t  handle;
    pl_lt_plan       *plan; // [PLANS] by shape, a hash table with linear probing
    bool              failed;
} device;

static pthread_mutex_t    lock = PTHREAD_MUTEX_INITIALIZER;
static device             devices[DEVICES];
static const pl_lt_table *given;

static const pl_lt_table *table(void) {
    return given ? given : PL_LT_DEFAULT(NULL);
}

static void forget(device *d, const pl_lt_table *t) {
    for (int i = 0; d->plan && i < PLANS; i++)
        if (d->plan[i].used) pl_lt_plan_destroy(t, &d->plan[i]);
    pl_free(d->plan);
    if (d->handle) t->Destroy(d->handle);
    *d = (device){0};
}

void PL_CUDA(lt_use)(const pl_lt_table *t) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < DEVICES; i++)
        if (devices[i].be) forget(&devices[i], table());
    given = t;
    pthread_mutex_unlock(&lock);
}

// Returns the entry of the context's current device, with a handle made at the first call. NULL on failure.
static device *device_of(pl_ctx *ctx, const pl_lt_table *t) {
    device *d = devices;
    while (d < devices + DEVICES && d->be && d->be != ctx->be)
        d++;
    if (d == devices + DEVICES) return NULL;
    if (!d->be) {
        d->be = ctx->be;
        d->plan = pl_calloc(PLANS, sizeof *d->plan);
        d->failed = !d->plan || !PL_CUDA(enter)(ctx) || t->Create(&d->handle) != CUBLAS_STATUS_SUCCESS;
    }
    return d->failed ? NULL : d;
}

bool PL_CUDA(lt_takes)(pl_ctx *ctx, int64_t M, int64_t N, int64_t K) {
    if (M < PL_LT_LEAST || N < PL_LT_LEAST || K < PL_LT_LEAST || ctx->err.status != PL_OK) return false;
    const pl_lt_table *t = table();
    if (!t) return false;
    pthread_mutex_lock(&lock);
    bool takes = device_of(ctx, t) != NULL;
    pthread_mutex_unlock(&lock);
    return takes;
}

static bool is_of(const pl_lt_plan *x, const pl_lt_product *p) {
    bool aligned = (uintptr_t)p->c % 16 == 0 && p->c_row % 4 == 0;
    return x->M == p->M && x->N == p->N && x->K == p->K && x->c_row == p->c_row && x->a_line == p->a.line &&
           x->b_line == p->b.line && x->a_columns == p->a.columns && x->b_columns == p->b.columns && x->add == p->add &&
           x->c_aligned == aligned;
}

static unsigned hash(const pl_lt_product *p) {
    uint64_t h = (uint64_t)p->M;
    h = h * 0x9e3779b97f4a7c15u + (uint64_t)p->N;
    h = h * 0x9e3779b97f4a7c15u + (uint64_t)p->K;
    h = h * 0x9e3779b97f4a7c15u + (uint64_t)(p->a.columns + 2 * p->b.columns + 4 * p->add);
    return (unsigned)(h * 0x9e3779b97f4a7c15u >> 40);
}

// Returns the plan for a shape; makes it on first use, replacing an old one if its probes are full.
static pl_lt_plan *plan_for(device *d, const pl_lt_table *t, const pl_lt_product *p) {
    enum { NEAR = 8 };
    pl_lt_plan *x = NULL;
    unsigned    at = hash(p);
    for (unsigned i = 0; i < NEAR; i++) {
        x = &d->plan[(at + i) % PLANS];
        if (x->used && is_of(x, p)) return x;
        if (!x->used) break;
    }
    if (x->used) pl_lt_plan_destroy(t, x = &d->plan[at % PLANS]);
    cublasLtMatmulHeuristicResult_t best = {0};
    int                             found = 0;
    if (pl_lt_plan_create(t, p, x, NULL) != PL_OK) return NULL;
    cublasStatus_t e =
        t->MatmulAlgoGetHeuristic(d->handle, x->op, x->left, x->right, x->out, x->out, x->wish, 1, &best, &found);
    x->fits = e == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS &&
              best.workspaceSize <= PL_LT_WORKSPACE;
    x->algo = best.algo;
    return x;
}

static bool queue(pl_ctx *ctx, const pl_lt_table *t, const pl_lt_product *p, void *workspace) {
    const float one = 1, before = p->add ? 1 : 0;
    device     *d = device_of(ctx, t);
    pl_lt_plan *x = d ? plan_for(d, t, p) : NULL;
    if (!x || !x->fits) return false;
    cublasStatus_t e =
        t->Matmul(d->handle, x->op, &one, p->b.data, x->left, p->a.data, x->right, &before, p->c, x->out, p->c, x->out,
                  &x->algo, workspace, PL_LT_WORKSPACE, (cudaStream_t)PL_CUDA(stream)(ctx));
    if (e != CUBLAS_STATUS_SUCCESS)
        pl_ctx_fail(ctx, PL_E_DEVICE, "%s: op %s: cuBLASLt: %s; PACELINE_GEMM=own does without it", ctx->be->name,
                    pl_cuda_state_of(ctx)->op, t->GetStatusString(e));
    return true;
}

bool PL_CUDA(lt_product)(pl_ctx *ctx, const char *op, const pl_lt_product *p) {
    const int64_t one_block[3] = {1, 1, 1};
    size_t        mark = pl_arena_mark(&ctx->scratch);
    uintptr_t     room = (uintptr_t)pl_arena_alloc(&ctx->scratch, PL_LT_WORKSPACE + ALIGN);
    void         *workspace = (void *)((room + ALIGN - 1) / ALIGN * ALIGN);
    bool          done = true;
    if (!ctx->measuring && PL_CUDA(may_launch)(ctx, op, one_block, 32)) {
        PL_CHECK((uintptr_t)p->a.data % 16 == 0 && (uintptr_t)p->b.data % 16 == 0 && p->a.line % 8 == 0 &&
                     p->b.line % 8 == 0,
                 "op %s: factors at %p and %p, lines of %lld and %lld", op, p->a.data, p->b.data, (long long)p->a.line,
                 (long long)p->b.line);
        pthread_mutex_lock(&lock);
        done = queue(ctx, table(), p, workspace);
        pthread_mutex_unlock(&lock);
        if (done) pl_cuda_state_of(ctx)->product = (pl_cuda_product){p->M, p->N, p->K, p->add};
        if (done) PL_CUDA(queued)(ctx);
    }
    pl_arena_release(&ctx->scratch, mark);
    return done;
}
