#include "infer/bench/bench.h"

#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/room.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TRY_SECONDS 0.002
#define TRIES 4       // tries of a sample
#define SLOW 0.1      // seconds of tries after which no further try begins
#define PATIENCE 60.0 // seconds after which no further round begins
#define COPY_TIMES 6  // copies of one try
#define COPY_TRIES 3
#define COPY_BYTES ((size_t)512 << 20)
#define CACHE ((size_t)256 << 20) // several times a device's last-level cache
#define NOISE ((size_t)1 << 20)   // about the bytes of noise that are repeated to fill a block

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

// Fills a device's block with values around 0.01, of both signs and random mantissas.
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

static void fill_block(pl_bench *b, void *p, size_t bytes) {
    fill f = {.p = p, .bytes = bytes};
    if (b->env->backend->memory)
        fill_device(b, p, bytes);
    else
        pl_parallel(b->env->pool, pl_pool_threads(b->env->pool), fill_part, &f);
}

pl_status pl_bench_room(const pl_bench *b, double bytes, const char *what, const char *mend, pl_err *err) {
    return pl_backend_on_host(b->env->backend) ? pl_memory_room(bytes, what, mend, err) : PL_OK;
}

enum { HOST = -1 }; // pl_bench_held.where

static void *hold(pl_bench *b, int where, size_t bytes) {
    pl_err                err = {0};
    struct pl_bench_held *h = pl_calloc(1, sizeof *h);
    if (h) h->p = where == HOST ? pl_calloc(1, bytes) : pl_memory_create(b->env->backend->memory, where, bytes, &err);
    if (!h || !h->p) {
        pl_log_warn("bench: %s", *err.msg ? err.msg : "out of memory");
        pl_free(h);
        return NULL;
    }
    h->bytes = bytes;
    h->where = where;
    h->next = b->held;
    b->held = h;
    return h->p;
}

static void drop_held(pl_bench *b) {
    while (b->held) {
        struct pl_bench_held *h = b->held;
        b->held = h->next;
        if (h->where == HOST)
            pl_free(h->p);
        else
            pl_memory_destroy(b->env->backend->memory, h->where, h->p, h->bytes);
        pl_free(h);
    }
}

void *pl_bench_block(pl_bench *b, size_t bytes) {
    pl_err err = {0};
    void  *p = hold(b, PL_LOCAL, bytes);
    if (p) fill_block(b, p, bytes);
    if (pl_ctx_sync(&b->ctx, &err) == PL_OK) return p;
    pl_log_warn("bench: %s", err.msg);
    return NULL;
}

void *pl_bench_shared(pl_bench *b, size_t bytes) {
    return hold(b, PL_SHARED, bytes);
}

void *pl_bench_alloc(pl_bench *b, size_t bytes) {
    return hold(b, HOST, bytes);
}

bool pl_bench_input(pl_bench *b, pl_tensor *x, int64_t m, int64_t k) {
    *x = pl_tensor_2d(pl_bench_block(b, pl_size_mul((size_t)m, (size_t)k, sizeof(float))), PL_F32, m, k);
    return x->data != NULL;
}

int pl_bench_copies(const pl_bench *b, size_t bytes) {
    if (!b->copy_bytes || bytes == 0) return 1;
    size_t n = CACHE / bytes + 1;
    return n < PL_BENCH_COPIES ? (int)n : PL_BENCH_COPIES;
}

double pl_bench_copied(const pl_bench *b, size_t bytes) {
    return (double)bytes > b->max_bytes ? 0 : (double)bytes * pl_bench_copies(b, bytes);
}

// ---- limits ----

pl_status pl_bench_open(pl_bench *b, const pl_env *env, double max_bytes, pl_err *err) {
    *b = (pl_bench){.env = env, .max_bytes = max_bytes, .rounds = PL_BENCH_TRIES};
    PL_TRY(pl_ctx_init(&b->ctx, env->backend, env->pool));
    pl_status st = pl_ctx_sync(&b->ctx, err); // fails if a device could not be opened
    if (st == PL_OK && !env->backend->memory) b->peak = pl_backend_peak(env->backend, PL_F32, env->pool);
    if (st == PL_OK && !env->backend->memory) b->peak_bf16 = pl_backend_peak(env->backend, PL_BF16, env->pool);
    for (int i = 0; i < 2 && st == PL_OK && env->backend->memory; i++) {
        b->copy_bytes = max_bytes < (double)COPY_BYTES ? (size_t)max_bytes : COPY_BYTES;
        b->copy[i] = pl_memory_create(env->backend->memory, PL_LOCAL, b->copy_bytes, err);
        if (!b->copy[i]) st = PL_E_MEMORY;
    }
    if (st == PL_OK && b->copy_bytes) fill_block(b, b->copy[0], b->copy_bytes);
    if (st == PL_OK) st = pl_ctx_sync(&b->ctx, err);
    if (st != PL_OK) pl_bench_close(b);
    return st;
}

void pl_bench_close(pl_bench *b) {
    pl_bench_forget(b);
    for (int i = 0; i < 2; i++)
        if (b->copy[i]) pl_memory_destroy(b->env->backend->memory, PL_LOCAL, b->copy[i], b->copy_bytes);
    pl_ctx_fini(&b->ctx);
    *b = (pl_bench){0};
}

// Samples the bandwidth of copies of `bytes` bytes, copy_bytes at most, bytes read and written.
static double copy_rate(pl_bench *b, size_t bytes) {
    double best = 0;
    pl_err err = {0};
    pl_ctx_wait(&b->ctx);
    for (int i = 0; i <= COPY_TRIES; i++) { // the first try warms up
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
    return copy_rate(b, b->copy_bytes);
}

double pl_bench_floor(double bytes, double rate, double flops, double peak) {
    return fmax(rate > 0 ? bytes / rate : 0, peak > 0 ? flops / peak : 0);
}

static double floor_of(pl_bench *b, const pl_bench_case *c) {
    double rate = c->memory_bytes ? pl_bench_rate(b, c->memory, c->memory_bytes) : 0;
    double peak = pl_backend_peak_once(b->env->backend, c->factors, b->env->pool);
    return pl_bench_floor(c->bytes, rate, c->flops, peak);
}

// ---- timing ----

void pl_bench_leave_out(pl_bench *b, const char *name, const pl_err *err) {
    pl_log_warn("bench: %s: %s", name, err->msg);
    if (b->n_left == PL_BENCH_LEFT) return;
    snprintf(b->left[b->n_left].name, sizeof b->left->name, "%s", name);
    snprintf(b->left[b->n_left++].why, sizeof b->left->why, "%.*s", (int)sizeof b->left->why - 1, err->msg);
}

// Frees a case's context and memory; its samples stay.
static void end_case(pl_bench_case *c) {
    if (c->ready) pl_ctx_fini(&c->ctx);
    c->ready = false;
    if (c->drop) c->drop(c->arg);
    c->drop = NULL;
}

static void fail_case(pl_bench *b, pl_bench_case *c, const pl_err *err) {
    pl_bench_leave_out(b, c->name, err);
    c->n = 0;
    end_case(c);
}

pl_bench_case *pl_bench_add(pl_bench *b, const char *name, ...) {
    va_list        ap;
    pl_bench_case *c = pl_calloc(1, sizeof *c);
    PL_CHECK(c && b->n < PL_BENCH_CASES, "case %d of a bench", b->n);
    va_start(ap, name);
    vsnprintf(c->name, sizeof c->name, name, ap);
    va_end(ap);
    return b->c[b->n++] = c;
}

static void add_member(pl_bench_case *c, pl_bench_member m) {
    PL_CHECK(c->n_members < PL_BENCH_MEMBERS, "%s: member %s", c->name, m.key);
    c->member[c->n_members++] = m;
}

void pl_bench_text(pl_bench_case *c, const char *key, const char *text) {
    add_member(c, (pl_bench_member){.key = key, .text = text});
}

void pl_bench_int(pl_bench_case *c, const char *key, int64_t value) {
    add_member(c, (pl_bench_member){.key = key, .value = value});
}

void pl_bench_flag(pl_bench_case *c, const char *key, bool value) {
    add_member(c, (pl_bench_member){.key = key, .value = value, .flag = true});
}

void pl_bench_ready(pl_bench *b, pl_bench_case *c) {
    pl_err err = {0};
    c->ready = pl_ctx_init(&c->ctx, b->env->backend, b->env->pool) == PL_OK;
    c->ctx.repeats = !c->tape; // as in decoding
    c->ctx.tape = c->tape;
    if (c->ready && pl_ctx_measure(&c->ctx, c->step, c->arg, &err) != PL_OK) fail_case(b, c, &err);
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

// Takes a sample: the best of TRIES, since the floor is the best of the probe's tries too, and an interruption must not
// distort one of the two alone.
static double time_case(pl_bench_case *c) {
    double warm = run_times(c, 1), best = INFINITY, t0 = pl_now();
    int    times = warm < TRY_SECONDS ? (int)(TRY_SECONDS / (warm > 1e-8 ? warm : 1e-8)) + 1 : 1;
    for (int i = 0; i < TRIES && (i == 0 || pl_now() - t0 < SLOW); i++)
        best = fmin(best, run_times(c, times));
    return best;
}

void pl_bench_run(pl_bench *b) {
    double t0 = pl_now();
    for (int t = 0; t < b->rounds && (t < 3 || pl_now() - t0 < PATIENCE); t++)
        for (int i = b->timed; i < b->n; i++) {
            pl_bench_case *c = b->c[i];
            pl_err         err = {0};
            if (!c->ready) continue;
            if (t % 2 == 0) c->floor[t] = floor_of(b, c);
            c->seconds[t] = time_case(c);
            if (t % 2 != 0) c->floor[t] = floor_of(b, c);
            c->n = t + 1;
            if (pl_ctx_sync(&c->ctx, &err) != PL_OK) fail_case(b, c, &err);
        }
    for (; b->timed < b->n; b->timed++)
        end_case(b->c[b->timed]);
    drop_held(b);
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
    return c->n ? pl_stats(c->seconds, c->n).median : NAN;
}

static void write_case(pl_json_out *o, const pl_bench_case *c) {
    pl_sample_stats s = pl_stats(c->seconds, c->n);
    pl_json_out_object(o);
    pl_put_str(o, "name", c->name);
    for (int i = 0; i < c->n_members; i++) {
        const pl_bench_member *m = &c->member[i];
        if (m->text)
            pl_put_str(o, m->key, m->text);
        else if (m->flag)
            pl_put_bool(o, m->key, m->value);
        else
            pl_put_int(o, m->key, m->value);
    }
    pl_put_num(o, "seconds", s.median);
    pl_put_num(o, "p10", s.p10);
    pl_put_num(o, "p90", s.p90);
    pl_put_num(o, "bytes", c->bytes);
    pl_put_num(o, "flops", c->flops);
    pl_bench_write_pairs(o, &(pl_bench_pairs){c->seconds, c->floor, c->n});
    if (c->rated) pl_put_num(o, "flops_per_second", c->flops / s.median);
    if (c->full) pl_put_num(o, "speedup_over_full", pl_bench_seconds(c->full) / s.median);
    pl_json_out_close(o, '}');
}

void pl_bench_put(pl_json_out *o, pl_bench *b, const char *key) {
    pl_bench_run(b);
    pl_put_array(o, key);
    for (int i = 0; i < b->n; i++)
        if (b->c[i]->n) write_case(o, b->c[i]);
    pl_json_out_close(o, ']');
    pl_bench_forget(b);
}

void pl_bench_forget(pl_bench *b) {
    for (int i = 0; i < b->n; i++) {
        end_case(b->c[i]);
        pl_free(b->c[i]);
    }
    b->n = b->timed = 0;
    drop_held(b);
}

// ---- bandwidth ----

// On a device it times copies within its memory, counting bytes read and written; the footprint is both blocks.
void pl_bench_put_bandwidth(pl_json_out *o, pl_bench *b) {
    pl_put_array(o, "bandwidth");
    for (double mb = 1; mb <= 1024 && mb * 1048576 <= b->max_bytes; mb *= 2) {
        size_t bytes = (size_t)(mb * 1048576);
        if (b->copy_bytes && bytes / 2 > b->copy_bytes) break;
        pl_json_out_object(o);
        pl_put_num(o, "footprint_mb", mb);
        if (b->copy_bytes) {
            double rate = copy_rate(b, bytes / 2);
            pl_put_num(o, "copy_gb_per_second", rate > 0 ? rate / 1e9 : NAN);
        } else {
            double one = pl_probe_bandwidth(NULL, bytes), all = pl_probe_bandwidth(b->env->pool, bytes);
            pl_put_num(o, "one_thread_gb_per_second", one > 0 ? one / 1e9 : NAN);
            pl_put_num(o, "all_threads_gb_per_second", all > 0 ? all / 1e9 : NAN);
        }
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}
