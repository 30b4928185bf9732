// The language of this folder's kernels: CUDA C++ for nvcc. A host compiler takes the same sources where another header
// defines that language before them (tests/cuda/emulate/emulate.h).
//
// Kernels use one-dimensional blocks of whole warps, static or dynamic shared memory, and from CUDA only
// __syncthreads, __syncwarp, __shfl_sync, __shfl_xor_sync, __any_sync, __reduce_max_sync (whole warps), atomicAdd on
// unsigned and unsigned long long, atomicMin on the latter, fmaf, expf... The names below are this project's.
#ifndef PL_CUDA_DEVICE_CUH
#define PL_CUDA_DEVICE_CUH

#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#endif

constexpr int PL_WARP = 32;
constexpr int PL_BLOCK = 256;
#define PL_FULL 0xffffffffu

#ifdef __CUDACC__
// Rounds two floats to bf16, nearest even: the first in the low half.
static __device__ __forceinline__ uint32_t pl_pack_bf16(float lo, float hi) {
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    uint32_t       u;
    memcpy(&u, &v, 4);
    return u;
}

// Combines two 16-bit halves of a and b: low halves (which 0) or high halves (which 1), a's first.
template <int which> static __device__ __forceinline__ uint32_t pl_zip_halves(uint32_t a, uint32_t b) {
    return __byte_perm(a, b, which ? 0x7632 : 0x5410);
}

// D += A B on tensor cores, A [16, 16] and B [16, 8] bf16, D [16, 8] fp32. Lane 4g + t holds
//   a: rows g, g + 8, g, g + 8 at columns (2t, 2t+1), the same, (2t+8, 2t+9), the same;  b: rows 2t, 2t+1 and 2t+8,
//   2t+9 of column g;  d: row g columns 2t, 2t+1, then row g + 8.
static __device__ __forceinline__ void pl_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Asynchronous copies of n bytes (8 or 16, aligned alike) into shared memory, bypassing the registers; data used once,
// as weights are, is marked (`once`) to leave the L2 first. `there` false copies zeros. Copies complete in groups:
// pl_copy_wait<N> returns when all but the thread's last N committed groups are complete, for this thread alone; other
// threads see them after a barrier.
template <int n, bool once>
static __device__ __forceinline__ void pl_copy_async(void *to, const void *from, bool there) {
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    int      bytes = there ? n : 0;
    static_assert(n == 16 || (n == 8 && !once), "8 or 16 bytes");
    if constexpr (n == 16 && once) {
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(at), "l"(from),
                     "r"(bytes), "l"(policy)
                     : "memory");
    } else if constexpr (n == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
    }
}
static __device__ __forceinline__ void pl_copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> static __device__ __forceinline__ void pl_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Kernels that are launched early (PL_LAUNCH_EARLY) may start while the previous launch still runs. Each of their
// threads calls this before it reads or writes memory that any kernel writes: it lets the next launch start likewise,
// then waits until all earlier ones are complete and visible. Before it, only weights may be read, which no kernel
// writes while a context that repeats has work in flight.
static __device__ __forceinline__ void pl_previous_done() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Returns the block's dynamic shared memory, aligned to 128 bytes so that copies of whole lines stay whole; its size is
// the launch's.
static __device__ __forceinline__ void *pl_dynamic_shared() {
    extern __shared__ __align__(128) uint4 pl_dynamic_bytes[];
    return pl_dynamic_bytes;
}

// A fence between blocks, for the calling thread: writes of its block before a barrier, and its own, are visible before
// its next atomic; after a fence that follows such an atomic, and behind a barrier, all threads of that block see them
// (PTX ISA, memory consistency model: fence.acq_rel, which is cumulative). Called by one thread, so that the others'
// copies stay in flight.
static __device__ __forceinline__ void pl_fence() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// Returns v, opaque to the compiler, so that values derived from it are computed where they are used instead of ahead
// of a loop, where they would hold registers.
static __device__ __forceinline__ int pl_only_here(int v) {
    asm volatile("" : "+r"(v));
    return v;
}

// Loads values that other blocks of this launch wrote before such a fence.
template <typename T> static __device__ __forceinline__ T pl_load_fresh(const T *p) {
    return __ldcg(p);
}

// Stores where others may store at the same time, all the same value: plain stores would be a race.
static __device__ __forceinline__ void pl_store_alike(int32_t *p, int32_t v) {
    *(volatile int32_t *)p = v;
}
#endif

// Sum and maximum over a warp by a fixed tree; every lane gets the result.
static __device__ __forceinline__ float pl_warp_sum(float v) {
    for (int s = PL_WARP / 2; s > 0; s >>= 1)
        v += __shfl_xor_sync(PL_FULL, v, s);
    return v;
}
static __device__ __forceinline__ double pl_warp_sum(double v) {
    for (int s = PL_WARP / 2; s > 0; s >>= 1)
        v += __shfl_xor_sync(PL_FULL, v, s);
    return v;
}
static __device__ __forceinline__ float pl_warp_max(float v) {
    for (int s = PL_WARP / 2; s > 0; s >>= 1)
        v = fmaxf(v, __shfl_xor_sync(PL_FULL, v, s));
    return v;
}

static __device__ __forceinline__ int pl_warp_max(int v) {
    return __reduce_max_sync(PL_FULL, v);
}

// Sum and maximum over a block of at most 1024 threads; room: one element per warp, reusable after the call.
template <typename T> static __device__ __forceinline__ T pl_block_sum(T v, T *room) {
    int lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP, warps = (int)blockDim.x / PL_WARP;
    v = pl_warp_sum(v);
    if (lane == 0) room[warp] = v;
    __syncthreads();
    v = pl_warp_sum(lane < warps ? room[lane] : (T)0);
    __syncthreads();
    return v;
}
static __device__ __forceinline__ float pl_block_max(float v, float *room) {
    int lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP, warps = (int)blockDim.x / PL_WARP;
    v = pl_warp_max(v);
    if (lane == 0) room[warp] = v;
    __syncthreads();
    v = pl_warp_max(lane < warps ? room[lane] : room[0]);
    __syncthreads();
    return v;
}

// Inclusive prefix sum over the warp, or over the block, where *total is the sum of all. room: as above.
static __device__ __forceinline__ int pl_warp_upto(int v) {
    int lane = (int)threadIdx.x % PL_WARP;
    for (int s = 1; s < PL_WARP; s *= 2) {
        int before = __shfl_sync(PL_FULL, v, (lane - s) & (PL_WARP - 1));
        if (lane >= s) v += before;
    }
    return v;
}
static __device__ __forceinline__ int pl_block_upto(int v, int *room, int *total) {
    int lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP, warps = (int)blockDim.x / PL_WARP;
    v = pl_warp_upto(v);
    if (lane == PL_WARP - 1) room[warp] = v;
    __syncthreads();
    int own = lane < warps ? room[lane] : 0, upto = pl_warp_upto(own);
    *total = __shfl_sync(PL_FULL, upto, PL_WARP - 1);
    v += __shfl_sync(PL_FULL, upto - own, warp);
    __syncthreads();
    return v;
}

// Converts bf16 bits to float, and rounds a float to the nearest bf16.
static __device__ __forceinline__ float pl_widen(uint32_t bits) {
    bits <<= 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static __device__ __forceinline__ float pl_narrowed(float f) {
    return pl_widen(pl_pack_bf16(f, 0) & 0xffffu);
}

// Caps a score or a logit (pl_softcap, kernels/op/elementwise.h).
static __device__ __forceinline__ float pl_softcapped(float x, float cap) {
    return cap * tanhf(x / cap);
}

#endif
