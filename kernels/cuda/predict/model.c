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

// Seconds that memory needs for a launch's bytes.
static double streaming(const pl_counted *c, int how) {
    const double whole = c->copied > 0 ? 1 - c->split / c->copied * (1 - 1 / pl_gpu(PL_GPU_SPLIT, how)) : 1;
    const double read = (c->far - c->written) * whole, least = fmin(read, c->written);
    return 2 * least / pl_gpu(PL_GPU_COPY, how) + (read - least) / pl_gpu(PL_GPU_READ, how) +
           (c->written - least) / pl_gpu(PL_GPU_COPY, how);
}

// Seconds of a launch, the gap left out; limiter: of what they are.
static double busy_seconds(const pl_predicted_kernel *k, int how, const char **limiter) {
    static const char *const names[] = {"launch",        "rounds",       "memory",      "L2",
                                        "shared memory", "tensor cores", "exponentials"};
    enum { LAUNCH, ROUNDS, MEMORY, L2, SHARED, TENSOR, EXP, TERMS };
    const pl_counted *c = &k->c;
    const double      sms = pl_gpu(PL_GPU_MULTIPROCESSORS, how), clock = pl_gpu(PL_GPU_CLOCK, how);
    const double      blocks = (double)k->blocks, at_once = sms * resident(k);
    const double      busy = blocks < sms ? blocks / sms : blocks / (ceil(blocks / at_once) * at_once); // share of SMs
    const double      used = blocks < at_once ? fmin(1, blocks / sms) : busy;
    double            t[TERMS] = {0};
    t[ROUNDS] = fmax(c->most_path[how], blocks <= at_once ? 0 : c->path[how] / at_once);
    const double memory = streaming(c, how);
    const double first = pl_gpu(PL_GPU_FAR, how) / clock; // what is small is done before the rate is reached
    if (c->far > 0)
        t[MEMORY] = c->lead[how] + first + fmin(pl_gpu(PL_GPU_RAMP, how) - first, memory) + memory + c->trail[how];
    t[L2] = c->sectors * 32 / pl_gpu(PL_GPU_L2_RATE, how);
    t[SHARED] = c->wavefronts / fmin(sms, blocks) / clock;
    t[TENSOR] =
        (c->products * PRODUCT_FLOPS / pl_gpu(PL_GPU_MMA_RATE, how) + c->warpgroup / pl_gpu(PL_GPU_WGMMA_RATE, how)) /
        used;
    t[EXP] = c->exponentials / pl_gpu(PL_GPU_EXP_RATE, how) / used;
    int most = 0;
    for (int i = 1; i < TERMS; i++)
        if (t[i] > t[most]) most = i;
    *limiter = t[most] > pl_gpu(PL_GPU_GAP, how) ? names[most] : names[LAUNCH];
    return t[most];
}

void pl_predict_kernel(pl_predicted_kernel *k) {
    k->bytes = k->c.far;
    for (int how = PL_PESSIMISTIC; how >= PL_CENTRAL; how--) {
        k->memory[how] = streaming(&k->c, how);
        k->seconds[how] = pl_gpu(PL_GPU_GAP, how) + busy_seconds(k, how, &k->limiter);
    }
}

// Share of the multiprocessors on which k's blocks find room while `before` runs.
static double beside(const pl_predicted_kernel *before, const pl_predicted_kernel *k) {
    const double sms = pl_gpu(PL_GPU_MULTIPROCESSORS, PL_CENTRAL);
    const bool   both =
        before->room + k->room + 2 * ROOM_RESERVED <= ROOM && before->threads + k->threads <= MOST_THREADS;
    return both ? 1 : fmax(0, 1 - (double)before->blocks / sms);
}

// What a launch that needs memory for so long hides behind the one before it, of which memory is idle for so long.
static double hidden(const pl_predicted_kernel *k, double room, double idle, double memory, int how) {
    if (k->c.ahead <= 0 || room <= 0) return 0;
    const double first = k->c.lead[how] + pl_gpu(PL_GPU_FAR, how) / pl_gpu(PL_GPU_CLOCK, how);
    return fmin(idle, first + fmin(k->c.ahead * room / pl_gpu(PL_GPU_READ, how), memory));
}

// Seconds of a launch behind `before`, as early as it may.
static double early_seconds(const pl_predicted_kernel *before, const pl_predicted_kernel *k, int how) {
    const double gap = pl_gpu(PL_GPU_GAP, how), early = pl_gpu(PL_GPU_EARLY_GAP, how);
    if (!before || !k->early) return k->seconds[how];
    const double idle = early + fmax(0, before->seconds[how] - gap - before->memory[how]);
    return early + fmax(0, k->seconds[how] - gap - hidden(k, beside(before, k), idle, k->memory[how], how));
}

static bool fills(const pl_predicted_kernel *k) {
    return (double)k->blocks >= pl_gpu(PL_GPU_MULTIPROCESSORS, PL_CENTRAL) * resident(k);
}

// The next launch of one of the ways from i on, or where the launches end.
static int next_of(const pl_prediction *p, int i, bool aside) {
    while (i < p->launched && (p->way[i] == PL_ASIDE) != aside)
        i++;
    return i;
}

// A branch from its first launch on, beside those up to the one that meets it: seconds that it adds to them.
static double branch_seconds(pl_prediction *p, int first, int how) {
    const pl_predicted_kernel *before = NULL;
    double                     room = 0, all = 0;
    int                        end = first, i = next_of(p, first, false);
    while (end < p->launched && p->way[end] != PL_MEETS)
        end++;
    for (int next; i < end; before = &p->k[p->order[i]], i = next) {
        const pl_predicted_kernel *k = &p->k[p->order[i]];
        next = next_of(p, i + 1, false);
        const pl_predicted_kernel *then = next < end ? &p->k[p->order[next]] : NULL;
        if (!fills(k) && !(then && then->early && fills(then))) room += early_seconds(before, k, how);
    }
    before = NULL;
    for (i = first; i < end; i = next_of(p, i + 1, true)) {
        pl_predicted_kernel *k = &p->k[p->order[i]];
        const double         t = early_seconds(before, k, how), within = fmin(t, room);
        const double         adds = t - within + fmin(within, k->memory[how]);
        room -= within;
        all += adds;
        k->early_seconds[how] += adds;
        before = k;
    }
    return all;
}

void pl_predict_sequence(pl_prediction *p) {
    for (int how = 0; how < 2; how++) {
        const pl_predicted_kernel *before = NULL;
        bool                       branched = false;
        p->seconds[how] = p->early_seconds[how] = 0;
        for (int i = 0; i < p->n; i++)
            p->k[i].early_seconds[how] = 0;
        for (int i = 0; i < p->launched; i++) {
            pl_predicted_kernel *k = &p->k[p->order[i]];
            p->seconds[how] += k->seconds[how];
            if (p->way[i] == PL_ASIDE) {
                if (!branched) p->early_seconds[how] += branch_seconds(p, i, how);
                branched = true;
                continue;
            }
            if (p->way[i] == PL_MEETS) branched = false;
            const double t = early_seconds(p->way[i] == PL_MEETS ? NULL : before, k, how);
            p->early_seconds[how] += t;
            k->early_seconds[how] += t;
            before = k;
        }
    }
}
