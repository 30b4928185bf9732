// Stands for cuBLASLt on the counted device (predict.h): the products that the library takes on a GPU (lib/lt.h has the
// rule) are one launch each, described instead of counted: tiles of 128 by 256 through wgmma, factors read and sums
// written (or added to) once.
#include "kernels/base/hash.h"
#include "kernels/cuda/lib/lt.h"
#include "kernels/cuda/predict/count.h"

enum { TILE_M = 128, TILE_N = 256, THREADS = 384, ROOM = 200 << 10 };

bool PL_CUDA(lt_takes)(pl_ctx *ctx, int64_t M, int64_t N, int64_t K) {
    return M >= PL_LT_LEAST && N >= PL_LT_LEAST && K >= PL_LT_LEAST && ctx->err.status == PL_OK;
}

bool PL_CUDA(lt_product)(pl_ctx *ctx, const char *op, const pl_lt_product *p) {
    const int64_t shape[] = {p->M, p->N, p->K, p->add};
    const double  m = (double)p->M, n = (double)p->N, k = (double)p->K;
    bool          again;
    if (ctx->measuring) return true;
    pl_cuda_state_of(ctx)->op = op;
    pl_predicted_kernel *of = pl_counted_launch(ctx, pl_hash(shape, sizeof shape), &again);
    if (!of || again) return true;
    of->blocks = (p->M + TILE_M - 1) / TILE_M * ((p->N + TILE_N - 1) / TILE_N);
    of->threads = THREADS;
    of->room = ROOM;
    of->c.warpgroup = 2 * m * n * k;
    of->c.written = 4 * m * n;
    of->c.far = 2 * (m * k + n * k) + of->c.written * (p->add ? 2 : 1);
    return true;
}
