// The backend's table from cuda.def, and the launchers' checks before and after a launch. Compiled once for the real
// device and once for the emulated one.
#include "kernels/cuda/table.h"
#include "kernels/base/check.h"

unsigned PL_CUDA(trial);

typedef void declare_op(pl_ctx *ctx, const void *args);
#define X_FWD(NAME, name) declare_op PL_CUDA(name##_fwd);
#define X_BWD(NAME, name) declare_op PL_CUDA(name##_bwd);
#include "kernels/cuda/cuda.def"
#undef X_FWD
#undef X_BWD

void PL_CUDA(fill)(pl_backend *be) {
#define X_FWD(NAME, name) be->fwd[PL_OP_##NAME] = PL_CUDA(name##_fwd);
#define X_BWD(NAME, name) be->bwd[PL_OP_##NAME] = PL_CUDA(name##_bwd);
#include "kernels/cuda/cuda.def"
#undef X_FWD
#undef X_BWD
}

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the same for 5.0 and later.
enum { MOST_X = 2147483647, MOST_YZ = 65535, MOST_THREADS = 1024, WARP = 32 };

bool PL_CUDA(may_launch)(pl_ctx *ctx, const char *op, const int64_t grid[3], int threads) {
    PL_CHECK(threads > 0 && threads <= MOST_THREADS && threads % WARP == 0, "op %s: blocks of %d threads", op, threads);
    PL_CHECK(!ctx->measuring, "op %s is queued while measuring", op);
    if (ctx->err.status != PL_OK || grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return false;
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    if (!s) {
        pl_ctx_fail(ctx, PL_E_DEVICE, "%s: op %s: the context has no stream", ctx->be->name, op);
        return false;
    }
    if (grid[0] > MOST_X || grid[1] > MOST_YZ || grid[2] > MOST_YZ) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED,
                    "%s: op %s needs a grid of %lld x %lld x %lld blocks, the device's limit is %d x %d x %d; make the "
                    "batch smaller",
                    ctx->be->name, op, (long long)grid[0], (long long)grid[1], (long long)grid[2], MOST_X, MOST_YZ,
                    MOST_YZ);
        return false;
    }
    PL_CUDA(settle)(ctx);
    if (ctx->err.status != PL_OK) return false;
    s->op = op;
    s->rounded.of = NULL;
    return PL_CUDA(enter)(ctx);
}

void PL_CUDA(settle)(pl_ctx *ctx) {
    pl_cuda_state       *s = pl_cuda_state_of(ctx);
    const pl_cuda_slices left = s->slices;
    s->slices.y = NULL;
    if (left.y) PL_CUDA(add_slices)(ctx, &left);
}

void PL_CUDA(faults)(pl_ctx *ctx, const pl_cuda_fault *f) {
    if (f->score != PL_NO_FAULT) // before faults that its choice caused
        pl_ctx_fail(ctx, PL_E_INPUT, "router: NaN at row %lld; check the drafter's weights", (long long)f->score);
    if (f->nan != PL_NO_FAULT)
        pl_ctx_fail(ctx, PL_E_INPUT, "logits: NaN at row %lld, id %lld; check the weights", (long long)(f->nan >> 32),
                    (long long)(uint32_t)f->nan);
    if (f->id != PL_NO_FAULT)
        pl_ctx_fail(ctx, PL_E_DEVICE, "%s: an index is out of range: row %lld has %d", ctx->be->name,
                    (long long)(f->id >> 32), (int)(int32_t)(uint32_t)f->id);
}
