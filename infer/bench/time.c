// bench: memory in which steps are timed, the limits beside which they stand, and timing them.
#include "infer/bench/parts.h"

#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/json_put.h"
#include "kernels/base/log.h"
#include "kernels/base/room.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRY_SECONDS 0.002
#define TRIES 4       // of a sample
#define SLOW 0.1      // seconds of tries after which no further one begins
#define PATIENCE 60.0 // seconds after which no further round begins
#define COPY_TIMES 6  // copies of one try
#define COPY_TRIES 3
#define COPY_BYTES ((size_t)512 << 20)
#define CACHE ((size_t)256 << 20) // a device's last cache, several times over
#define NOISE ((size_t)1 << 20)   // bytes of noise that are repeated, and some: blocks of weights are not all alike

// ---- memory ----

typedef struct fill {
    uint8_t *p;
    size_t   bytes;
} fill;

static void fill_part(void *arg, int part, int parts) {
    fill *f = arg;
    long  lo, hi;
    pl_range((long)f->bytes, 4096, part, parts, &lo, &hi);
    if (hi > lo) memset(f->p + lo, 0x3c, (size_t)(hi - lo)); // 0.0115 as fp32 and as bf16: no zeros, no subnormals
}

// Of either sign and any mantissa, around 0.01.
static void fill_device(pl_bench *b, uint8_t *p, size_t bytes) {
    size_t    n = NOISE + 4160 < bytes ? NOISE + 4160 : bytes;
    uint16_t *noise = pl_malloc(n + 2);
    uint64_t  x = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; noise && i < n / 2 + 1; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        noise[i] = (uint16_t)((x >> 48 & 0x80ff) | 0x3c00);
    }
    if (!noise) {
        pl_ctx_fail(&b->ctx, PL_E_MEMORY, "bench: out of memory");
        return;
    }
    pl_ctx_upload(&b->ctx, p, noise, n);
    pl_ctx_repeat(&b->ctx, p, n, bytes);
    pl_ctx_wait(&b->ctx);
    pl_free(noise);
}

void pl_bench_fill(pl_bench *b, void *p, size_t bytes) {
    fill f = {.p = p, .bytes = bytes};
    if (b->env->backend->memory)
        fill_device(b, p, bytes);
    else
        pl_parallel(b->env->pool, pl_pool_threads(b->env->pool), fill_part, &f);
}

pl_status pl_bench_room(const pl_bench *b, double bytes, const char *what, const char *mend, pl_err *err) {
    return pl_backend_on_host(b->env->backend) ? pl_memory_room(bytes, what, mend, err) : PL_OK;
}

void *pl_bench_block(pl_bench *b, size_t bytes) {
    pl_err err = {0};
    void  *p = pl_memory_create(b->env->backend->memory, PL_LOCAL, bytes, &err);
    if (p) pl_bench_fill(b, p, bytes);
    if (p && pl_ctx_sync(&b->ctx, &err) == PL_OK) return p;
    pl_log_warn("bench: %s", err.msg);
    pl_bench_drop(b, p, bytes);
    return NULL;
}

void pl_bench_drop(pl_bench *b, void *p, size_t bytes) {
    if (p) pl_memory_destroy(b->env->backend->memory, PL_LOCAL, p, bytes);
}

bool pl_bench_input(pl_bench *b, pl_tensor *x, size_t *bytes, int64_t m, int64_t k) {
    *bytes = pl_size_mul((size_t)m, (size_t)k, sizeof(float));
    *x = pl_tensor_2d(pl_bench_block(b, *bytes), PL_F32, m, k);
    return x->data != NULL;
}

void *pl_bench_shared(pl_bench *b, size_t bytes) {
    pl_err err = {0};
    void  *p = pl_memory_create(b->env->backend->memory, PL_SHARED, bytes, &err);
    if (!p) pl_log_warn("bench: %s", err.msg);
    return p;
}

void pl_bench_drop_shared(pl_bench *b, void *p, size_t bytes) {
    if (p) pl_memory_destroy(b->env->backend->memory, PL_SHARED, p, bytes);
}

int pl_bench_copies(const pl_bench *b, size_t bytes) {
    if (!b->copy_bytes || bytes == 0) return 1;
    size_t n = CACHE / bytes + 1;
    return n < PL_BENCH_COPIES ? (int)n : PL_BENCH_COPIES;
}

// ---- limits ----

pl_status pl_bench_open(pl_bench *b, const pl_env *env, double max_bytes, pl_err *err) {
    *b = (pl_bench){.env = env, .max_bytes = max_bytes, .rounds = PL_BENCH_TRIES};
    PL_TRY(pl_ctx_init(&b->ctx, env->backend, env->pool));
    pl_status st = pl_ctx_sync(&b->ctx, err); // a device that could not be opened says so here
    if (st == PL_OK && !env->backend->memory) b->peak = pl_backend_peak(env->backend, PL_F32, env->pool);
    if (st == PL_OK && !env->backend->memory) b->peak_bf16 = pl_backend_peak(env->backend, PL_BF16, env->pool);
    for (int i = 0; i < 2 && st == PL_OK && env->backend->memory; i++) {
        b->copy_bytes = max_bytes < (double)COPY_BYTES ? (size_t)max_bytes : COPY_BYTES;
        b->copy[i] = pl_memory_create(env->backend->memory, PL_LOCAL, b->copy_bytes, err);
        if (!b->copy[i]) st = PL_E_MEMORY;
    }
    if (st == PL_OK && b->copy_bytes) pl_bench_fill(b, b->copy[0], b->copy_bytes);
    if (st == PL_OK) st = pl_ctx_sync(&b->ctx, err);
    if (st != PL_OK) pl_bench_close(b);
    return st;
}

void pl_bench_close(pl_bench *b) {
    for (int i = 0; i < 2; i++)
        pl_bench_drop(b, b->copy[i], b->copy_bytes);
    pl_ctx_fini(&b->ctx);
    *b = (pl_bench){0};
}

double pl_bench_copy_rate(pl_bench *b, size_t bytes) {
    double best = 0;
    pl_err err = {0};
    pl_ctx_wait(&b->ctx);
    for (int i = 0; i <= COPY_TRIES; i++) { // the first warms up
        double t0 = pl_now();
        for (int k = 0; k < COPY_TIMES; k++)
            pl_ctx_copy(&b->ctx, b->copy[1], b->copy[0], bytes);
        pl_ctx_wait(&b->ctx);
        double rate = 2.0 * (double)bytes * COPY_TIMES / (pl_now() - t0);
        if (i > 0 && rate > best) best = rate;
    }
    if (pl_ctx_sync(&b->ctx, &err) == PL_OK) return b->copy_rate = best;
    pl_log_warn("bench: copies: %s", err.msg);
    return 0;
}

double pl_bench_rate(pl_bench *b, const void *p, size_t bytes) {
    if (!b->copy_bytes) return pl_probe_read(b->env->pool, p, bytes);
    return pl_bench_copy_rate(b, b->copy_bytes);
}

static double floor_of(pl_bench *b, const pl_bench_case *c) {
    double rate = c->memory_bytes ? pl_bench_rate(b, c->memory, c->memory_bytes) : 0;
    double peak = pl_backend_peak_once(b->env->backend, c->factors, b->env->pool);
    return fmax(rate > 0 ? c->bytes / rate : 0, peak > 0 ? c->flops / peak : 0);
}

// ---- timing ----

void pl_bench_leave_out(pl_bench *b, const char *name, const pl_err *err) {
    pl_log_warn("bench: %s: %s", name, err->msg);
    if (b->n_left == PL_BENCH_LEFT) return;
    snprintf(b->left[b->n_left].name, sizeof b->left->name, "%s", name);
    snprintf(b->left[b->n_left++].why, sizeof b->left->why, "%.*s", (int)sizeof b->left->why - 1, err->msg);
}

static void drop_case(pl_bench *b, pl_bench_case *c, const pl_err *err) {
    pl_bench_leave_out(b, c->name, err);
    pl_bench_done(c);
}

pl_bench_case *pl_bench_cases(int n, pl_err *err) {
    pl_bench_case *c = pl_calloc((size_t)n, sizeof *c);
    if (!c) pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    return c;
}

void pl_bench_ready(pl_bench *b, pl_bench_case *c) {
    pl_err err = {0};
    c->ready = pl_ctx_init(&c->ctx, b->env->backend, b->env->pool) == PL_OK;
    c->ctx.repeats = true; // as in decoding
    if (c->ready && pl_ctx_measure(&c->ctx, c->step, c->arg, &err) != PL_OK) drop_case(b, c, &err);
}

static double run_times(pl_bench_case *c, int times) {
    double t0 = pl_now();
    for (int i = 0; i < times; i++) {
        pl_ctx_begin(&c->ctx);
        c->step(&c->ctx, c->arg);
    }
    pl_ctx_wait(&c->ctx);
    return (pl_now() - t0) / times;
}

// A sample is the best of TRIES, as a floor is the best of the probe's: what interrupts one try must not count on one
// side only.
static double time_case(pl_bench_case *c) {
    double warm = run_times(c, 1), best = INFINITY, t0 = pl_now();
    int    times = warm < TRY_SECONDS ? (int)(TRY_SECONDS / (warm > 1e-8 ? warm : 1e-8)) + 1 : 1;
    for (int i = 0; i < TRIES && (i == 0 || pl_now() - t0 < SLOW); i++)
        best = fmin(best, run_times(c, times));
    return best;
}

void pl_bench_time(pl_bench *b, pl_bench_case *c, int n) {
    double t0 = pl_now();
    for (int t = 0; t < b->rounds && (t < 3 || pl_now() - t0 < PATIENCE); t++)
        for (int i = 0; i < n; i++) {
            pl_err err = {0};
            if (!c[i].ready) continue;
            if (t % 2 == 0) c[i].floor[t] = floor_of(b, &c[i]);
            c[i].seconds[t] = time_case(&c[i]);
            if (t % 2 != 0) c[i].floor[t] = floor_of(b, &c[i]);
            c[i].n = t + 1;
            if (pl_ctx_sync(&c[i].ctx, &err) != PL_OK) drop_case(b, &c[i], &err);
        }
}

void pl_bench_write_pairs(pl_json_out *o, const pl_bench_pairs *p) {
    double    share[PL_BENCH_MAX_PAIRS];
    const int n = p->n;
    PL_CHECK(n >= 1 && n <= PL_BENCH_MAX_PAIRS, "%d pairs", n);
    for (int i = 0; i < n; i++)
        share[i] = p->floor[i] / p->seconds[i];
    pl_sample_stats s = pl_stats(share, n);
    pl_put_num(o, "floor_seconds", pl_stats(p->floor, n).median);
    pl_put_num(o, "share_of_floor", s.median);
    pl_put_num(o, "share_p10", s.p10);
    pl_put_num(o, "share_p90", s.p90);
}

double pl_bench_seconds(const pl_bench_case *c) {
    return c->ready && c->n ? pl_stats(c->seconds, c->n).median : NAN;
}

void pl_bench_write(pl_json_out *o, const pl_bench_case *c) {
    pl_sample_stats s = pl_stats(c->seconds, c->n);
    pl_put_num(o, "seconds", s.median);
    pl_put_num(o, "p10", s.p10);
    pl_put_num(o, "p90", s.p90);
    pl_put_num(o, "bytes", c->bytes);
    pl_put_num(o, "flops", c->flops);
    pl_bench_write_pairs(o, &(pl_bench_pairs){c->seconds, c->floor, c->n});
}

void pl_bench_done(pl_bench_case *c) {
    if (c->ready) pl_ctx_fini(&c->ctx);
    c->ready = false;
}

void pl_bench_write_goal(pl_json_out *o, const char *what, double reached, double goal, bool more) {
    pl_put_str(o, "goal_of", what);
    pl_put_num(o, "reached", reached);
    pl_put_num(o, "goal", goal);
    pl_put_str(o, "met",
               !isfinite(goal) || !isfinite(reached)        ? "-"
               : (more ? reached >= goal : reached <= goal) ? "yes"
                                                            : "no");
}
