// Small kernels that are right, and the same with one thing missing: what the detector must pass and must find.
//   litmus NAME    runs one; a race ends it by abort
//   litmus --list  "right NAME" or "broken NAME", a line each
#include "tests/cuda/emulate/emulate.h"

#include "kernels/cuda/launch.cuh"
#include <stdio.h>
extern "C" {
#include "kernels/base/arena.h"
#include "tests/cuda/emulate/device_emulated.h"
}

enum { FENCE = 1, BARRIER = 2, WAIT = 4, SECOND = 8, ALL = 15 };

// Block 0 writes and raises a flag; others read what it wrote where they see the flag.
static __global__ void message_kernel(int *data, unsigned *flag, int *out, int with) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        data[0] = 42;
        if (with & FENCE) pl_fence();
        atomicAdd(flag, 1u);
    } else if (blockIdx.x > 0 && threadIdx.x == 0) {
        unsigned seen = atomicAdd(flag, 0u);
        if (with & WAIT) pl_fence();
        if (seen) out[blockIdx.x] = data[0];
    }
}

// All write; the block that takes the last ticket adds up.
static __global__ void ticket_kernel(float *part, unsigned *ticket, float *out, int with) {
    __shared__ unsigned last;
    part[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    if (with & BARRIER) __syncthreads();
    if (threadIdx.x == 0) {
        if (with & FENCE) pl_fence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
        if (with & WAIT) pl_fence();
    }
    if (with & SECOND) __syncthreads();
    if (!last) return;
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; b++)
        sum += part[b * blockDim.x + threadIdx.x];
    out[threadIdx.x] = sum;
}

// The same with fences that are not the thread's that takes the ticket: they acquire and release nothing.
static __global__ void others_fence_kernel(float *part, unsigned *ticket, float *out, int with) {
    __shared__ unsigned last;
    part[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    if (with & FENCE || threadIdx.x == 0) pl_fence();
    __syncthreads();
    if (threadIdx.x == 0 && with & WAIT) pl_fence();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    if (threadIdx.x == 0 && with & SECOND) pl_fence();
    __syncthreads();
    if (!last) return;
    pl_fence();
    out[threadIdx.x] = part[threadIdx.x] + part[(gridDim.x - 1) * blockDim.x + threadIdx.x];
}

// Two halves of shared memory, filled by asynchronous copies while the other is read.
static __global__ void buffers_kernel(const float *from, float *out, int rounds, int with) {
    float *room = (float *)pl_dynamic_shared();
    float  sum = 0;
    auto   fill = [&](int r) {
        if (r < rounds)
            pl_copy_async<16, false>(room + r % 2 * 4 * blockDim.x + 4 * threadIdx.x,
                                     from + (r * blockDim.x + threadIdx.x) * 4, true);
        pl_copy_commit();
    };
    fill(0);
    for (int r = 0; r < rounds; r++) {
        fill(r + 1);
        if (with & WAIT) pl_copy_wait<1>();
        if (with & BARRIER) __syncthreads();
        sum += room[r % 2 * 4 * blockDim.x + (4 * threadIdx.x + 4) % (4 * blockDim.x)]; // a neighbour's
        if (with & SECOND) __syncthreads();
    }
    pl_copy_wait<0>();
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

static __global__ void warp_kernel(int *out, int with) {
    __shared__ int room[64];
    room[threadIdx.x] = (int)threadIdx.x;
    if (with & BARRIER) __syncwarp();
    if (with & WAIT) __shfl_sync(PL_FULL, 0, 0); // orders nothing
    out[threadIdx.x] = room[threadIdx.x ^ (with & SECOND ? 1 : 32)];
}

static __global__ void early_kernel(const int *in, int *out, int with) {
    int v = with & WAIT ? 0 : in[threadIdx.x];
    pl_previous_done();
    out[threadIdx.x] = with & WAIT ? in[threadIdx.x] : v;
}

// Halves of one word are two places.
static __global__ void halves_kernel(uint16_t *out, int with) {
    out[with & BARRIER ? threadIdx.x : threadIdx.x / 2] = (uint16_t)threadIdx.x;
}

struct room {
    float    from[4096], part[1024], out[1024];
    int      data[64], other[64], ints[1024];
    unsigned word;
    uint16_t half[64];
};

struct litmus {
    const char *name;
    bool        right;
    void (*run)(pl_ctx *ctx, room *r, int with);
    int with;
};

static void message(pl_ctx *ctx, room *r, int with) {
    PL_LAUNCH(ctx, "litmus", message_kernel, pl_grid(3), 32, r->data, &r->word, r->ints, with);
}
static void ticket(pl_ctx *ctx, room *r, int with) {
    PL_LAUNCH(ctx, "litmus", ticket_kernel, pl_grid(3), 64, r->part, &r->word, r->out, with);
}
static void others_fence(pl_ctx *ctx, room *r, int with) {
    PL_LAUNCH(ctx, "litmus", others_fence_kernel, pl_grid(3), 64, r->part, &r->word, r->out, with);
}
static void buffers(pl_ctx *ctx, room *r, int with) {
    pl_launch(ctx, "litmus", buffers_kernel, pl_grid(2), 64, 2 * 64 * 16, false, r->from, r->out, 5, with);
}
static void warps(pl_ctx *ctx, room *r, int with) {
    PL_LAUNCH(ctx, "litmus", warp_kernel, pl_grid(1), 64, r->ints, with);
}
static void early(pl_ctx *ctx, room *r, int with) {
    PL_LAUNCH_EARLY(ctx, "litmus", early_kernel, pl_grid(1), 32, r->ints, r->data, WAIT);
    PL_LAUNCH_EARLY(ctx, "litmus", early_kernel, pl_grid(1), 32, r->data, r->other, with);
}
static void early_weights(pl_ctx *ctx, room *r, int with) { // what no launch writes may be read
    PL_LAUNCH_EARLY(ctx, "litmus", early_kernel, pl_grid(1), 32, r->ints, r->data, WAIT);
    PL_LAUNCH_EARLY(ctx, "litmus", early_kernel, pl_grid(1), 32, r->ints, r->other, with);
}
static void early_two_back(pl_ctx *ctx, room *r, int with) { // a chain: the one before the one before runs, too
    early(ctx, r, WAIT);
    PL_LAUNCH_EARLY(ctx, "litmus", early_kernel, pl_grid(1), 32, r->data, r->ints, with);
}
static void after_a_wait(pl_ctx *ctx, room *r, int) {
    PL_LAUNCH_EARLY(ctx, "litmus", early_kernel, pl_grid(1), 32, r->ints, r->data, WAIT);
    pl_ctx_sync(ctx, NULL);
    PL_LAUNCH_EARLY(ctx, "litmus", early_kernel, pl_grid(1), 32, r->data, r->other, 0);
}
static void halves(pl_ctx *ctx, room *r, int with) {
    PL_LAUNCH(ctx, "litmus", halves_kernel, pl_grid(1), 32, r->half, with);
}

static const litmus all[] = {
    {"message", true, message, ALL},
    {"message-no-fence", false, message, ALL & ~FENCE},
    {"message-no-fence-behind", false, message, ALL & ~WAIT},
    {"ticket", true, ticket, ALL},
    {"ticket-no-fence", false, ticket, ALL & ~FENCE},
    {"ticket-no-barrier", false, ticket, ALL & ~BARRIER},
    {"ticket-no-second-barrier", false, ticket, ALL & ~SECOND},
    {"ticket-no-fence-behind", false, ticket, ALL & ~WAIT},
    {"others-fence", true, others_fence, ALL},
    {"others-fence-before", false, others_fence, ALL & ~WAIT},
    {"others-fence-behind", false, others_fence, ALL & ~SECOND},
    {"buffers", true, buffers, ALL},
    {"buffers-no-wait", false, buffers, ALL & ~WAIT},
    {"buffers-no-barrier", false, buffers, ALL & ~BARRIER},
    {"buffers-no-second-barrier", false, buffers, ALL & ~SECOND},
    {"warp", true, warps, BARRIER | SECOND},
    {"warp-no-barrier", false, warps, SECOND},
    {"warp-shuffle-alone", false, warps, WAIT | SECOND},
    {"warp-of-another", false, warps, BARRIER},
    {"early", true, early, WAIT},
    {"early-reads-before", false, early, 0},
    {"early-weights", true, early_weights, 0},
    {"early-two-back", false, early_two_back, 0},
    {"early-after-a-wait", true, after_a_wait, 0},
    {"halves", true, halves, BARRIER},
    {"halves-twice", false, halves, 0},
};

int main(int argc, char **argv) {
    for (const litmus &l : all) {
        if (argc > 1 && strcmp(argv[1], "--list") == 0) printf("%s %s\n", l.right ? "right" : "broken", l.name);
        if (argc < 2 || strcmp(argv[1], l.name) != 0) continue;
        pl_ctx ctx;
        room  *r = (room *)calloc(1, sizeof *r);
        if (!r || pl_ctx_init(&ctx, pl_backend_cuda_emulated(), NULL) != PL_OK) return 2;
        l.run(&ctx, r, l.with);
        pl_ctx_sync(&ctx, NULL);
        pl_ctx_fini(&ctx);
        free(r);
        return 0;
    }
    return argc > 1 && strcmp(argv[1], "--list") == 0 ? 0 : 2;
}
