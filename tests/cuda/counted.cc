// How the counted device sees accesses of several words (kernels/cuda/predict/count.cc): kernels whose requests and
// sectors follow from CUDA's rule that a vector's load or store is one instruction. CMake builds it at -O2 and at -O3.
#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/cuda/predict/predict.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
}

enum { FOURS = 4 }; // one after another in a thread
constexpr int64_t BYTES = FOURS * PL_WARP * sizeof(float4);

static __global__ void vectors_kernel(const float4 *in, float4 *out) {
    float4 sum = {0, 0, 0, 0};
    for (int i = 0; i < FOURS; i++) {
        const float4 v = in[i * PL_WARP + threadIdx.x];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    out[threadIdx.x] = sum;
}

// Kept in an array and chosen: what compilers take apart more gladly still.
static __global__ void kept_kernel(const uint4 *in, uint4 *out, int n) {
    uint4 v[FOURS];
#pragma unroll
    for (int i = 0; i < FOURS; i++)
        v[i] = i < n ? in[i * PL_WARP + threadIdx.x] : uint4{0, 0, 0, 0};
    uint4 last = v[0];
#pragma unroll
    for (int i = 1; i < FOURS; i++)
        last = uint4{last.x ^ v[i].x, last.y + v[i].y, last.z ^ v[i].z, last.w + v[i].w};
    out[threadIdx.x] = last;
}

static __global__ void words_kernel(const float *in, float *out) {
    for (int k = 0; k < 4; k++)
        out[4 * threadIdx.x + k] = in[4 * threadIdx.x + k] + 1;
}

static __global__ void named_words_kernel(const float *in, float *out) {
    const float *p = in + 4 * threadIdx.x;
    const float  a = p[0], b = p[1], c = p[2], d = p[3];
    float       *to = out + 4 * threadIdx.x;
    to[0] = a + 1, to[1] = b + 1, to[2] = c + 1, to[3] = d + 1;
}

// Two members alone of four, and pairs.
static __global__ void members_kernel(const float4 *in, float2 *out) {
    out[threadIdx.x] = float2{in[threadIdx.x].x, in[threadIdx.x].z};
}

// Through shared memory: 16 bytes a lane are served by quarters of a warp.
static __global__ void shared_kernel(const uint2 *in, uint4 *out) {
    __shared__ uint4 room[PL_WARP];
    const uint2      v = in[threadIdx.x];
    room[threadIdx.x] = uint4{v.x, v.y, v.y, v.x};
    __syncwarp();
    out[threadIdx.x] = room[threadIdx.x ^ 1];
}

static void vectors(pl_ctx *ctx, void *in, void *out) {
    PL_LAUNCH(ctx, "counted", vectors_kernel, pl_grid(1), PL_WARP, (const float4 *)in, (float4 *)out);
}
static void kept(pl_ctx *ctx, void *in, void *out) {
    PL_LAUNCH(ctx, "counted", kept_kernel, pl_grid(1), PL_WARP, (const uint4 *)in, (uint4 *)out, FOURS);
}
static void words(pl_ctx *ctx, void *in, void *out) {
    PL_LAUNCH(ctx, "counted", words_kernel, pl_grid(1), PL_WARP, (const float *)in, (float *)out);
}
static void named_words(pl_ctx *ctx, void *in, void *out) {
    PL_LAUNCH(ctx, "counted", named_words_kernel, pl_grid(1), PL_WARP, (const float *)in, (float *)out);
}
static void members(pl_ctx *ctx, void *in, void *out) {
    PL_LAUNCH(ctx, "counted", members_kernel, pl_grid(1), PL_WARP, (const float4 *)in, (float2 *)out);
}
static void shared(pl_ctx *ctx, void *in, void *out) {
    PL_LAUNCH(ctx, "counted", shared_kernel, pl_grid(1), PL_WARP, (const uint2 *)in, (uint4 *)out);
}

static const struct expected {
    const char *name;
    void (*run)(pl_ctx *ctx, void *in, void *out);
    int requests, sectors, shared, wavefronts;
} cases[] = {
    {"vectors", vectors, FOURS + 1, 16 * (FOURS + 1), 0, 0}, // 512 bytes are 16 sectors
    {"kept vectors", kept, FOURS + 1, 16 * (FOURS + 1), 0, 0},
    {"words", words, 4 + 4, 16 * (4 + 4), 0, 0}, // each of them reads or writes in all 16 sectors
    {"named words", named_words, 4 + 4, 16 * (4 + 4), 0, 0},
    {"members", members, 2 + 1, 16 * 2 + 8, 0, 0},
    {"shared", shared, 1 + 1, 8 + 16, 2, 4 + 4},
};

static void requests_and_sectors(void **state) {
    (void)state;
    const pl_backend    *be = pl_backend_counted();
    pl_ctx               ctx;
    pl_err               err = {};
    static pl_prediction p;
    void                *in = pl_memory_create(be->memory, PL_LOCAL, BYTES, &err);
    void                *out = pl_memory_create(be->memory, PL_LOCAL, BYTES, &err);
    int                  wrong = 0;
    assert_true(in && out);
    assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
    for (const expected &e : cases) {
        pl_predict_begin(&p);
        pl_ctx_begin(&ctx);
        e.run(&ctx, in, out);
        assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
        pl_predict_end(&p);
        assert_int_equal(p.n, 1);
        const pl_counted &c = p.k[0].c;
        print_message("%s: %g requests of %g sectors, %g of shared memory in %g wavefronts\n", e.name, c.requests,
                      c.sectors, c.shared, c.wavefronts);
        wrong +=
            c.requests != e.requests || c.sectors != e.sectors || c.shared != e.shared || c.wavefronts != e.wavefronts;
    }
    assert_int_equal(wrong, 0);
    pl_ctx_fini(&ctx);
    pl_memory_destroy(be->memory, PL_LOCAL, in, BYTES);
    pl_memory_destroy(be->memory, PL_LOCAL, out, BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(requests_and_sectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
