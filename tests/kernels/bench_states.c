// The two ways by which a recurrent layer can follow a verdict, on one layer of a 4B hybrid (Qwen3.5-4B's shape):
//   replay   every node but the root leaves a kept row; the accepted rows are applied afterwards (what this engine does)
//   states   the state behind every node is copied to a place of its own, and the accepted one copied back
// For chains of n nodes that are accepted whole, the replay's worst case: the bytes that each takes, and the median
// time of the forward with its commit, and of the recurrence alone. One line each.
//   bench_states [REPEATS]      [21]
#include "kernels/base/parallel.h"
#include "kernels/base/rng.h"
#include "kernels/op/deltarule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 60, REPEATS = 200 };

static const pl_gdn_shape shape = {.nk = 16, .nv = 32, .dk = 128, .dv = 128, .taps = 4};

typedef struct layer {
    pl_ctx       ctx;
    float       *state, *copies, *kept, *x, *gates, *rates, *o;
    pl_kvrow     row[MOST];
    int32_t      path[MOST], rows[1 + MOST];
    int          n; // nodes
    float       *to;
    const float *from;
} layer;

static float *room(int64_t n) {
    float *p = aligned_alloc(64, ((size_t)n * sizeof(float) + 63) / 64 * 64);
    if (!p) {
        fprintf(stderr, "bench_states: out of memory\n");
        exit(1);
    }
    pl_rng r = pl_rng_make(5, PL_STREAM_TEST, (uint64_t)n);
    for (int64_t i = 0; i < n; i++)
        p[i] = 0.1f * pl_rng_normal(r, (uint64_t)i);
    return p;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_rows(layer *l, int first, int n) {
    const int64_t     C = pl_gdn_channels(&shape), width = (int64_t)shape.nv * shape.dv;
    pl_deltarule_args a = {.o = pl_tensor_2d(l->o + first * width, PL_F32, n, width),
                           .x = pl_tensor_2d(l->x + first * C, PL_F32, n, C),
                           .gates = pl_tensor_2d(l->gates + first * 2 * shape.nv, PL_F32, n, 2 * shape.nv),
                           .a_log = pl_tensor_1d(l->rates, PL_F32, shape.nv),
                           .dt = pl_tensor_1d(l->rates, PL_F32, shape.nv),
                           .row = l->row + first,
                           .shape = shape};
    l->ctx.be->fwd[PL_OP_DELTARULE](&l->ctx, &a);
}

static void copy_part(void *arg, int part, int parts) {
    layer  *l = arg;
    int64_t n = pl_gdn_state(&shape), lo = n * part / parts, hi = n * (part + 1) / parts;
    memcpy(l->to + lo, l->from + lo, (size_t)(hi - lo) * sizeof(float));
}

static void copy_state(layer *l, float *to, const float *from) {
    l->to = to;
    l->from = from;
    pl_parallel(l->ctx.pool, pl_pool_threads(l->ctx.pool), copy_part, l);
}

static void chain(layer *l) {
    for (int i = 0; i < l->n; i++)
        l->row[i] = (pl_kvrow){.k = l->state, .v = l->kept, .n_ctx = 100, .n_path = i + 1, .slot = 100 + i};
    run_rows(l, 0, l->n);
}

static void replayed(layer *l) {
    for (int i = 0; i < l->n; i++) {
        l->path[i] = 100 + i;
        l->rows[1 + i] = i + 1;
        l->row[i] =
            (pl_kvrow){.k = l->state, .v = l->kept, .path = l->path, .n_ctx = 100, .n_path = i + 1, .slot = 100 + i};
    }
    run_rows(l, 0, l->n);
    l->rows[0] = l->n - 1;
    pl_replay(&l->ctx,
              &(pl_replay_args){
                  .state = l->state, .kept = l->kept, .layers = 1, .most = MOST, .rows = l->rows, .shape = shape});
}

static void copied(layer *l) {
    for (int i = 0; i < l->n; i++) {
        l->row[i] = (pl_kvrow){.k = l->state, .v = l->kept, .n_ctx = 100 + i, .n_path = 1, .slot = 100 + i};
        run_rows(l, i, 1);
        copy_state(l, l->copies + i * pl_gdn_state(&shape), l->state);
    }
    copy_state(l, l->state, l->copies + (l->n - 1) * pl_gdn_state(&shape));
}

typedef void (*way)(layer *l);
static const way ways[] = {chain, replayed, copied};
enum { WAYS = sizeof ways / sizeof *ways };

static void measured(pl_ctx *ctx, void *arg) {
    layer *l = arg;
    (void)ctx;
    for (int w = 0; w < WAYS; w++)
        ways[w](l);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static const int nodes[] = {1, 2, 4, 8, 16, 60};
    static layer     l;
    const int        repeats = argc > 1 ? atoi(argv[1]) : 21;
    pl_pool         *pool = NULL;
    pl_err           err;
    if (repeats < 1 || repeats > REPEATS) {
        fprintf(stderr, "bench_states: %s: 1 to %d repeats\n", argv[1], REPEATS);
        return 2;
    }
    if (pl_pool_create(&pool, 0, &err) != PL_OK || pl_ctx_init(&l.ctx, pl_backend_cpu(), pool) != PL_OK) return 1;
    l.state = room(pl_gdn_state(&shape));
    l.copies = room(MOST * pl_gdn_state(&shape));
    l.kept = room(MOST * pl_gdn_kept(&shape));
    l.x = room(MOST * pl_gdn_channels(&shape));
    l.gates = room((int64_t)MOST * 2 * shape.nv);
    l.rates = room(shape.nv);
    l.o = room((int64_t)MOST * shape.nv * shape.dv);
    l.n = MOST;
    if (pl_ctx_measure(&l.ctx, measured, &l, &err) != PL_OK) return 1;
    printf("%s, %d threads: nodes, KB kept, us of the recurrence, with replay, with states; KB of states\n",
           l.ctx.be->name, pl_pool_threads(pool));
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        double seconds[WAYS][REPEATS];
        l.n = nodes[i];
        for (int k = -1; k < repeats; k++)
            for (int w = 0; w < WAYS; w++) {
                double began = now();
                ways[w](&l);
                if (k >= 0) seconds[w][k] = now() - began;
            }
        for (int w = 0; w < WAYS; w++)
            qsort(seconds[w], (size_t)repeats, sizeof(double), ascending);
        printf("%d, %lld, %.0f, %.0f, %.0f; %lld\n", l.n,
               (long long)((l.n - 1) * pl_gdn_kept(&shape) * (int64_t)sizeof(float) / 1024),
               1e6 * seconds[0][repeats / 2], 1e6 * seconds[1][repeats / 2], 1e6 * seconds[2][repeats / 2],
               (long long)(l.n * pl_gdn_state(&shape) * (int64_t)sizeof(float) / 1024));
    }
    pl_ctx_fini(&l.ctx);
    pl_pool_destroy(pool);
    return 0;
}
