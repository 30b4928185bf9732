// Attention through cuDNN: one handle per device, plans by shape.
#include "kernels/base/check.h"
#include "kernels/cuda/lib/cudnn_table.h"
#include "kernels/cuda/table.h"
#include <pthread.h>
#include <stdio.h>

enum { DEVICES = 16, SHAPES = 1024 };

// Both plans of a shape, or none.
typedef struct kept {
    pl_cudnn_shape shape;
    pl_cudnn_plan *plan; // [2] forward, backward; NULL: the library has none for it
    bool           used;
} kept;

typedef struct device {
    const pl_backend *be; // NULL: the entry is free
    cudnnHandle_t     handle;
    kept             *shape; // [SHAPES]
    bool              failed;
} device;

static pthread_mutex_t       lock = PTHREAD_MUTEX_INITIALIZER;
static device                devices[DEVICES];
static const pl_cudnn_table *given;

static const pl_cudnn_table *table(pl_err *err) {
    return given ? given : PL_CUDNN_DEFAULT(err);
}

static void forget(device *d, const pl_cudnn_table *t) {
    for (int i = 0; d->shape && i < SHAPES; i++) {
        for (int way = 0; d->shape[i].plan && way < 2; way++)
            pl_cudnn_plan_destroy(&d->shape[i].plan[way]);
        pl_free(d->shape[i].plan);
    }
    pl_free(d->shape);
    if (d->handle) t->Destroy(d->handle);
    *d = (device){0};
}

void PL_CUDA(cudnn_use)(const pl_cudnn_table *t) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < DEVICES; i++)
        if (devices[i].be) forget(&devices[i], table(NULL));
    given = t;
    pthread_mutex_unlock(&lock);
}

void PL_CUDA(cudnn_describe)(char *out, size_t room) {
    pl_err                err = {0};
    const pl_cudnn_table *t = table(&err);
    size_t                v = t ? t->GetVersion() : 0;
    if (t)
        snprintf(out, room, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    else
        snprintf(out, room, "own kernels (%s)", err.msg);
}

// Returns the entry of the context's current device, with a handle made at the first call. NULL on failure.
static device *device_of(pl_ctx *ctx, const pl_cudnn_table *t) {
    device *d = devices;
    while (d < devices + DEVICES && d->be && d->be != ctx->be)
        d++;
    if (d == devices + DEVICES) return NULL;
    if (!d->be) {
        d->be = ctx->be;
        d->shape = pl_calloc(SHAPES, sizeof *d->shape);
        d->failed = !d->shape || !PL_CUDA(enter)(ctx) || t->Create(&d->handle) != CUDNN_STATUS_SUCCESS;
    }
    return d->failed || !PL_CUDA(enter)(ctx) ? NULL : d;
}

static bool same(const pl_cudnn_shape *a, const pl_cudnn_shape *b) {
    return a->rows == b->rows && a->nh == b->nh && a->nkv == b->nkv && a->hd == b->hd;
}

// Returns the shape's plans, made on first use; plan NULL: there are none. NULL if no entry is left: a plan may be in
// use on the device, so none is ever destroyed to make room.
static kept *plans_for(device *d, const pl_cudnn_table *t, const pl_cudnn_shape *s) {
    kept *k = d->shape;
    while (k < d->shape + SHAPES && k->used && !same(&k->shape, s))
        k++;
    if (k == d->shape + SHAPES) return NULL;
    if (k->used) return k;
    pl_cudnn_target on = {.handle = d->handle};
    pl_cudnn_plan  *plan = pl_calloc(2, sizeof *plan);
    *k = (kept){.shape = *s, .used = true};
    if (!plan || pl_cudnn_plan_create(t, &on, s, false, &plan[0], NULL) != PL_OK) {
        pl_free(plan);
    } else if (pl_cudnn_plan_create(t, &on, s, true, &plan[1], NULL) != PL_OK) {
        pl_cudnn_plan_destroy(&plan[0]);
        pl_free(plan);
    } else {
        k->plan = plan;
    }
    return k;
}

static const kept *plans_of(pl_ctx *ctx, const pl_cudnn_shape *s) {
    const pl_cudnn_table *t = table(NULL);
    device               *d = t ? device_of(ctx, t) : NULL;
    const kept           *k = d ? plans_for(d, t, s) : NULL;
    return k && k->plan ? k : NULL;
}

bool PL_CUDA(cudnn_takes)(pl_ctx *ctx, const pl_cudnn_shape *s, size_t *workspace) {
    if (ctx->err.status != PL_OK) return false;
    pthread_mutex_lock(&lock);
    const kept *k = plans_of(ctx, s);
    int64_t     most = 0;
    for (int i = 0; k && i < 2; i++)
        if (k->plan[i].workspace > most) most = k->plan[i].workspace;
    pthread_mutex_unlock(&lock);
    *workspace = (size_t)most;
    return k != NULL;
}

static cudnnStatus_t queue(pl_ctx *ctx, const pl_cudnn_shape *s, bool backward, double scale,
                           void *const at[PL_CUDNN_TENSORS], void *workspace) {
    const pl_cudnn_table *t = table(NULL);
    const kept           *k = plans_of(ctx, s);
    device               *d = t ? device_of(ctx, t) : NULL;
    if (!k || !d) return CUDNN_STATUS_NOT_SUPPORTED;
    cudnnStatus_t e = t->SetStream(d->handle, (cudaStream_t)PL_CUDA(stream)(ctx));
    return e ? e : pl_cudnn_plan_run(&k->plan[backward], d->handle, s, backward, scale, at, workspace);
}

void PL_CUDA(cudnn_run)(pl_ctx *ctx, const char *op, const pl_cudnn_shape *s, bool backward, double scale,
                        void *const at[PL_CUDNN_TENSORS], void *workspace) {
    const int64_t one_block[3] = {1, 1, 1};
    if (!PL_CUDA(may_launch)(ctx, op, one_block, 32)) return;
    for (int i = 0; i < (backward ? PL_CUDNN_TENSORS : PL_CUDNN_DO); i++)
        PL_CHECK(at[i] && (uintptr_t)at[i] % 16 == 0, "op %s: tensor %d at %p", op, i, at[i]);
    pthread_mutex_lock(&lock);
    cudnnStatus_t e = queue(ctx, s, backward, scale, at, workspace);
    if (e)
        pl_ctx_fail(ctx, PL_E_DEVICE, "%s: op %s: cuDNN: %s; PACELINE_ATTENTION=own does without it", ctx->be->name, op,
                    table(NULL)->GetErrorString(e));
    pthread_mutex_unlock(&lock);
    PL_CUDA(queued)(ctx);
}
