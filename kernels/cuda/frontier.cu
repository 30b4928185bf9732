// The next level's index arrays (kernels/op/frontier.h): one block for each tree.
#include "kernels/cuda/select.cuh"
extern "C" {
#include "kernels/op/frontier.h"
}

static_assert(PL_FRONTIER_MAX <= PL_SORT, "candidates are sorted by one block");

static __device__ __forceinline__ bool is_there(const pl_frontier_args &a, const pl_frontier_group &g, int c) {
    int64_t m = g.first + c / a.k;
    return a.id[m * a.k + c % a.k] >= 0 && !(a.at.score && a.at.score[m] > 0);
}

static __device__ __forceinline__ float score_of(const pl_frontier_args &a, const pl_frontier_group &g, int c) {
    int64_t m = g.first + c / a.k;
    float   of_parent = a.at.score ? a.at.score[m] : 0, logp = a.lse ? a.value[m * a.k + c % a.k] - a.lse[m] : 0;
    return of_parent + (logp < 0 ? logp : 0);
}

// Fills row i of the group: candidate c, -1: none; then the row repeats candidate `like`.
static __device__ __forceinline__ void fill(const pl_frontier_args &a, const pl_frontier_group &g, int i, int c,
                                            int like) {
    int     from = c < 0 ? like : c;
    int64_t m = g.first + (from < 0 ? 0 : from / a.k), to = g.to + i;
    int32_t id = from < 0 ? -1 : a.id[m * a.k + from % a.k];
    a.next.token[to] = id >= 0 && a.d2t ? a.d2t[id] : id;
    a.next.row[to] = a.index ? a.index[m] : (int32_t)m;
    a.next.score[to] = c < 0 ? INFINITY : score_of(a, g, c);
    a.next.picked[to] = c;
    int32_t *path = a.next.path + to * (a.depth + 1);
    for (int j = 0; j < a.depth; j++)
        path[j] = a.at.path[m * a.depth + j];
    path[a.depth] = g.slot + i;
}

static __device__ __forceinline__ int pick_of(const pl_frontier_args &a, const pl_frontier_group &g, int i) {
    int c = a.pick[g.to + i];
    return is_there(a, g, c) ? c : -1;
}

static __global__ void __launch_bounds__(PL_BLOCK) frontier_kernel(pl_frontier_args a) {
    pl_previous_done();
    __shared__ pl_key       key[PL_FRONTIER_MAX];
    const pl_frontier_group g = a.group[blockIdx.x];
    int                     n = g.rows * a.k, room = 2;
    if (!a.pick) {
        while (room < n)
            room *= 2;
        for (int c = (int)threadIdx.x; c < room; c += PL_BLOCK)
            key[c] = c < n && is_there(a, g, c) ? pl_key_of(score_of(a, g, c), (uint32_t)c) : 0;
        pl_sort_keys(key, room);
    }
    for (int i = (int)threadIdx.x; i < g.width; i += PL_BLOCK) {
        int c = a.pick ? pick_of(a, g, i) : i < n ? pl_key_id(key[i]) : -1, like = a.pick ? -1 : pl_key_id(key[0]);
        for (int j = 0; a.pick && c < 0 && like < 0 && j < g.width; j++)
            like = pick_of(a, g, j);
        fill(a, g, i, c, like);
    }
}

PL_CUDA_OP(frontier_fwd) {
    const pl_frontier_args *from = (const pl_frontier_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (from->n == 0) return;
    pl_frontier_args a = *from;
    int32_t          m = a.n_groups ? a.group[a.n_groups - 1].first + a.group[a.n_groups - 1].rows : 0;
    a.group = pl_index(ctx, from->group, a.n_groups);
    a.index = pl_index(ctx, from->index, m);
    a.pick = pl_index(ctx, from->pick, a.n);
    PL_LAUNCH_EARLY(ctx, "frontier", frontier_kernel, pl_grid(a.n_groups), PL_BLOCK, a);
}
