// CUDA's vocabulary on a host: kernels/cuda/*.cu compile and run without nvcc, a driver or a GPU where this is included
// before them.
//
// A launch runs its blocks in order, or, by a seed, in orders that are drawn, several at once (device_emulated.h). The
// threads of a block are fibers on one thread; a fiber runs until it waits at a barrier (block or warp) that others
// have not reached. __shared__ is storage of that thread, which runs one block at a time. A barrier that some threads
// never reach, and a shuffle outside whole warps, abort with a message instead of hanging.
// What this cannot show by itself: memory ordering (tests/cuda/race.cc watches it), registers, time. What it shows:
// indices, shapes, launch sizes, barriers, the arithmetic itself, tensor cores' (mma.cc) included.
#ifndef PL_CUDA_EMULATE_H
#define PL_CUDA_EMULATE_H

#include <cmath>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

extern "C" {
#include "kernels/base/dtype.h"
#include "tests/cuda/emulate/queue.h"
}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
// CUDA's vectors, which a GPU loads and stores by one instruction. Of a struct a compiler makes one access a member
// wherever it can (scalar replacement of aggregates), which to whoever watches memory would be as many instructions:
// here a copy is one access of all bytes, and only a member that is asked for by itself is one of its own.
#define PL_EMU_VECTOR(name, T, bytes)                                                                                  \
    typedef T vector __attribute__((vector_size(bytes), may_alias));                                                   \
    name() = default;                                                                                                  \
    __attribute__((always_inline)) name(const name &from) : whole(from.whole) {}                                       \
    __attribute__((always_inline)) name &operator=(const name &from) {                                                 \
        whole = from.whole;                                                                                            \
        return *this;                                                                                                  \
    }
#define PL_EMU_TWO(name, T)                                                                                            \
    struct name {                                                                                                      \
        PL_EMU_VECTOR(name, T, 8)                                                                                      \
        __attribute__((always_inline)) name(T a, T b) : whole{a, b} {}                                                 \
        union {                                                                                                        \
            vector whole;                                                                                              \
            __extension__ struct { T x, y; };                                                                          \
        };                                                                                                             \
    }
#define PL_EMU_FOUR(name, T)                                                                                           \
    struct name {                                                                                                      \
        PL_EMU_VECTOR(name, T, 16)                                                                                     \
        __attribute__((always_inline)) name(T a, T b, T c, T d) : whole{a, b, c, d} {}                                 \
        union {                                                                                                        \
            vector whole;                                                                                              \
            __extension__ struct { T x, y, z, w; };                                                                    \
        };                                                                                                             \
    }
PL_EMU_TWO(uint2, uint32_t);
PL_EMU_FOUR(uint4, uint32_t);
PL_EMU_TWO(float2, float);
PL_EMU_FOUR(float4, float);

// Not told to whoever watches memory: atomics say it themselves.
#define PL_EMU_PLAIN __attribute__((no_sanitize_thread))

struct pl_emu_thread {
    dim3 thread, block, block_dim, grid_dim;
};
extern constinit thread_local pl_emu_thread pl_emu; // of the fiber that runs; read without a call
#define threadIdx (pl_emu.thread)
#define blockIdx (pl_emu.block)
#define blockDim (pl_emu.block_dim)
#define gridDim (pl_emu.grid_dim)

// Waits for all fibers of the block or of the warp.
void     pl_emu_sync_block(void);
void     pl_emu_sync_warp(void);
// Puts this lane's bytes (at most 64) where its warp can see them and waits for the warp; the result is the warp's
// table, lane by lane 64 bytes, good until the second exchange from now.
uint8_t *pl_emu_exchange(const void *own, size_t bytes);
void     pl_emu_unreachable(const char *op, int argument); // aborts

// Padding may hold what is left of a pointer. Compilers that cannot clear it leave structs unchecked.
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define PL_EMU_CLEAR(p) (__builtin_clear_padding(p), true)
#endif
#endif
#ifndef PL_EMU_CLEAR
#define PL_EMU_CLEAR(p) false
#endif

// A pointer must lead into the device's blocks; in a struct, each word that is the address of other mapped memory is
// taken for a pointer that does not.
template <typename A> static bool pl_emu_may_see(A a) {
    if constexpr (std::is_pointer_v<A>) return !a || pl_emu_reachable((const void *)a);
    if constexpr (std::is_class_v<A>)
        for (size_t at = 0; PL_EMU_CLEAR(&a) && at + sizeof(void *) <= sizeof a; at += sizeof(void *)) {
            const void *word;
            memcpy(&word, (const char *)&a + at, sizeof word);
            if (pl_emu_of_host(word)) return false;
        }
    return true;
}
template <typename... A> static void pl_emu_check(void *queue, const char *op, const A &...a) {
    int n = 0;
    if (queue) ((pl_emu_may_see(a) ? (void)n++ : pl_emu_unreachable(op, n)), ...);
}
template <typename... P> static inline void pl_check_arguments(pl_ctx *ctx, const pl_cuda_launch *l, const P &...a) {
    if (pl_emu_on_launch) pl_emu_on_launch(l);
    pl_emu_check(pl_cuda_state_of(ctx)->stream, pl_cuda_state_of(ctx)->op, a...);
}

// What a proof leaves out, one place at a time (pl_emu_manner.drop): whether it is this one.
bool pl_emu_dropped(const char *file, int line);
#define PL_EMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
static inline void __syncthreads(PL_EMU_HERE) {
    if (!pl_emu_dropped(file, line)) pl_emu_sync_block();
}
static inline void __syncwarp(PL_EMU_HERE) {
    if (!pl_emu_dropped(file, line)) pl_emu_sync_warp();
}
void               pl_emu_fence(void);
void               pl_emu_atomic(void *p, size_t bytes); // comes before one
static inline void pl_fence(PL_EMU_HERE) {
    if (!pl_emu_dropped(file, line)) pl_emu_fence();
}

template <typename T> static inline T __shfl_sync(unsigned, T v, int lane) {
    T out;
    memcpy(&out, pl_emu_exchange(&v, sizeof v) + (lane % 32) * 64, sizeof out);
    return out;
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T v, int bits) {
    return __shfl_sync(mask, v, (int)(pl_emu.thread.x % 32) ^ bits);
}

static inline int __any_sync(unsigned, int v) {
    const uint8_t own = v != 0, *all = pl_emu_exchange(&own, sizeof own);
    bool          any = false;
    for (int lane = 0; lane < 32; lane++)
        any |= all[lane * 64];
    return any;
}
template <typename T> static inline T __reduce_max_sync(unsigned mask, T v) { // int or unsigned
    for (int s = 16; s > 0; s >>= 1) {
        const T other = __shfl_xor_sync(mask, v, s);
        v = other > v ? other : v;
    }
    return v;
}

template <typename T> PL_EMU_PLAIN static inline T atomicAdd(T *p, T v) {
    pl_emu_atomic(p, sizeof *p);
    T old = *p;
    *p += v;
    return old;
}
static inline unsigned atomicAdd(unsigned *p, int v) {
    return atomicAdd(p, (unsigned)v);
}
PL_EMU_PLAIN static inline unsigned long long atomicMin(unsigned long long *p, unsigned long long v) {
    pl_emu_atomic(p, sizeof *p);
    unsigned long long old = *p;
    if (v < old) *p = v;
    return old;
}

PL_EMU_PLAIN static inline void pl_store_alike(int32_t *p, int32_t v) {
    pl_emu_atomic(p, sizeof *p);
    *p = v;
}

static inline uint32_t pl_pack_bf16(float lo, float hi) {
    return (uint32_t)pl_f32_to_bf16(lo) | (uint32_t)pl_f32_to_bf16(hi) << 16;
}
template <int which> static inline uint32_t pl_zip_halves(uint32_t a, uint32_t b) {
    return which ? (a >> 16) | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
}
// A copy is made when it is waited for; until then the place holds 0xff, so that what reads it too early, or never
// waits, computes with NaN.
void                                      pl_emu_copy_async(void *to, const void *from, size_t bytes, bool there);
void                                      pl_emu_copy_wait(int left);
void                                      pl_copy_commit();
void                                      pl_emu_previous_done(); // missed in a launch that is early: aborts
void                                     *pl_dynamic_shared();    // filled with 0xff before each block
template <int n, bool> static inline void pl_copy_async(void *to, const void *from, bool there) {
    static_assert(n == 8 || n == 16);
    pl_emu_copy_async(to, from, n, there);
}
template <int N> static inline void pl_copy_wait(PL_EMU_HERE) {
    if (!pl_emu_dropped(file, line)) pl_emu_copy_wait(N);
}
static inline void pl_previous_done(PL_EMU_HERE) {
    if (!pl_emu_dropped(file, line)) pl_emu_previous_done();
}
template <typename T> static inline T pl_load_fresh(const T *p) {
    return *p;
}
static inline int pl_only_here(int v) {
    return v;
}
void pl_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]);

#endif
