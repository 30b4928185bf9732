// The choice of a routed head's rows, on the device (kernels/op/route.h). Each row of scores marks its clusters in its
// own block; then a block for each group unites its rows' marks and writes spans.
#include "kernels/cuda/select.cuh"
extern "C" {
#include "kernels/op/route.h"
}

constexpr int ROUTE_THREADS = 1024;

static __global__ void __launch_bounds__(ROUTE_THREADS)
    choose_kernel(uint8_t *chosen, const float *score, int64_t C, int k, pl_cuda_fault *fault) {
    pl_previous_done();
    __shared__ pl_digits digits;
    int64_t              m = blockIdx.x;
    score += m * C;
    chosen += m * C;
    auto   key = [&](int64_t c) { return pl_key_of(score[c], (uint32_t)c); };
    pl_key least = pl_least_of(key, C, k, digits);
    for (int64_t c = threadIdx.x; c < C; c += ROUTE_THREADS) {
        if (isnan(score[c])) atomicMin(&fault->score, (unsigned long long)m);
        chosen[c] = key(c) >= least;
    }
}

struct spans {
    pl_span       *span; // [groups, most]
    int32_t       *held;
    uint8_t       *chosen; // [M, C]; the first row of a group becomes its rows' union
    const int64_t *offset;
    const int32_t *row;
    int64_t        C, most;
};

// Returns whether the next cluster with rows, from c on (step 1) or back (-1), is read. Clusters without rows separate
// nothing.
static __device__ __forceinline__ bool read_beside(const spans &s, const uint8_t *read, int64_t c, int step) {
    for (c += step; c >= 0 && c < s.C; c += step)
        if (s.offset[c] < s.offset[c + 1]) return read[c];
    return false;
}

static __global__ void __launch_bounds__(ROUTE_THREADS) spans_kernel(spans s) {
    pl_previous_done();
    __shared__ int room[PL_WARP];
    int64_t        g = blockIdx.x, first = s.row[g], end = s.row[g + 1];
    uint8_t       *read = s.chosen + first * s.C;
    pl_span       *span = s.span + g * s.most;
    int            found = 0;
    for (int64_t c = threadIdx.x; c < s.C; c += ROUTE_THREADS) {
        uint8_t any = 0;
        for (int64_t m = first; m < end; m++)
            any |= s.chosen[m * s.C + c];
        read[c] = any && s.offset[c] < s.offset[c + 1];
    }
    __syncthreads();
    for (int64_t c0 = 0; c0 < s.C; c0 += ROUTE_THREADS) {
        int64_t c = c0 + threadIdx.x;
        bool    in = c < s.C && read[c], begins = in && !read_beside(s, read, c, -1);
        int     more, at = found + pl_block_upto(begins, room, &more) - 1;
        if (begins) span[at].first = (int32_t)s.offset[c];
        __syncthreads(); // a span's end is searched from its beginning
        if (in && !read_beside(s, read, c, 1)) span[at].count = (int32_t)s.offset[c + 1] - span[at].first;
        found += more;
    }
    if (threadIdx.x == 0) s.held[g] = found;
}

PL_CUDA_OP(route_fwd) {
    const pl_route_args *a = (const pl_route_args *)args;
    int64_t              M = a->score.dim[0], C = a->score.dim[1];
    size_t               mark = pl_arena_mark(&ctx->scratch);
    spans                s = {};
    s.chosen = (uint8_t *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)M, (size_t)C, 1));
    s.span = a->span, s.held = a->held, s.C = C, s.most = a->most;
    if (!ctx->measuring) {
        s.offset = pl_index(ctx, a->offset, C + 1);
        s.row = pl_index(ctx, a->row, a->groups + 1);
        PL_LAUNCH_EARLY(ctx, "route", choose_kernel, pl_grid(M), ROUTE_THREADS, s.chosen, pl_f32(&a->score), C, a->k,
                        pl_cuda_state_of(ctx)->fault);
        PL_LAUNCH_EARLY(ctx, "route", spans_kernel, pl_grid(a->groups), ROUTE_THREADS, s);
    }
    pl_arena_release(&ctx->scratch, mark);
}
