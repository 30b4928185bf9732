// Seconds of a launch out of what was counted (predict.h).
#include "kernels/cuda/predict/predict.h"
#include <math.h>

const pl_gpu_constant pl_gpu_constants[] = {
#define X(NAME, unit, central, low, high, less_is_worse, source)                                                       \
    {#NAME, unit, central, low, high, less_is_worse, source},
#include "kernels/cuda/predict/constants.def"
#undef X
};
const int pl_gpu_constants_n = PL_GPU_CONSTANTS;

double pl_gpu(int constant, int how) {
    const pl_gpu_constant *c = &pl_gpu_constants[constant];
    return how == PL_CENTRAL ? c->central : c->less_is_worse ? c->low : c->high;
}

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", 9.0.
enum { MOST_THREADS = 2048, MOST_BLOCKS = 32, ROOM = 228 << 10, ROOM_RESERVED = 1 << 10 };
#define PRODUCT_FLOPS (2.0 * 16 * 8 * 16)

static double resident(const pl_predicted_kernel *k) {
    int    by_threads = MOST_THREADS / k->threads;
    size_t by_room = ROOM / (k->room + ROOM_RESERVED);
    int    n = by_threads < MOST_BLOCKS ? by_threads : MOST_BLOCKS;
    return (size_t)n < by_room ? n : (double)by_room;
}

// Bytes of a launch out of those of samples: what they have in common is read once.
static double whole(const pl_predicted_kernel *k) {
    const pl_counted *c = &k->c;
    double            n = (double)c->sampled, each = c->far / n;
    double            common = n > 1 ? fmax(0, (c->far - c->distinct) / (n - 1)) : 0;
    return common + (each - common) * (double)k->blocks;
}

void pl_predict_kernel(pl_predicted_kernel *k) {
    static const char *const names[] = {"launch", "rounds", "memory", "L2", "shared memory", "tensor cores"};
    const pl_counted        *c = &k->c;
    const double             n = c->sampled ? (double)c->sampled : 1, more = (double)k->blocks / n;
    k->bytes = c->sampled ? whole(k) : 0;
    for (int how = PL_PESSIMISTIC; how >= PL_CENTRAL; how--) {
        const double sms = pl_gpu(PL_GPU_MULTIPROCESSORS, how), clock = pl_gpu(PL_GPU_CLOCK, how);
        const double at_once = sms * resident(k), uneven = c->far > 0 ? c->most_far / (c->far / n) : 1;
        const bool   one_wave = (double)k->blocks <= at_once;
        double       t[6] = {0};
        t[1] = one_wave ? c->most_path[how] : c->path[how] / n * (double)k->blocks / at_once;
        if (k->bytes > 0)
            t[2] = k->bytes * (one_wave ? uneven : 1) / pl_gpu(PL_GPU_COPY, how) + pl_gpu(PL_GPU_FAR, how) / clock;
        t[3] = c->sectors * 32 * more / pl_gpu(PL_GPU_L2_RATE, how);
        t[4] = c->wavefronts * more / fmin(sms, (double)k->blocks) / clock;
        t[5] = c->products * more * PRODUCT_FLOPS / pl_gpu(PL_GPU_MMA_RATE, how);
        int most = 0;
        for (int i = 1; i < 6; i++)
            if (t[i] > t[most]) most = i;
        k->limiter = t[most] > pl_gpu(PL_GPU_GAP, how) ? names[most] : names[0];
        k->seconds[how] = pl_gpu(PL_GPU_GAP, how) + t[most];
    }
}
