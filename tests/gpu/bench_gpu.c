// Time of the memory-bound ops on a GPU beside the copy bandwidth measured in the same run.
//   bench_gpu N          GPU N at the shapes of Llama-3-8B: one CSV line each (what, rows, seconds, bytes, GB/s, share)
//   bench_gpu emulated   the same code on the emulated device at a 64th of the sizes: shows that it runs, no figures
// Times are means over repeated launches on one stream, launch overhead included; bytes are those that must move (of
// attention in training, which is bound by arithmetic: q, k, v, read forward and backward, and their gradients twice).
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/op/attention.h"
#include "kernels/op/headtopk.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"
#include "kernels/tape.h"
#include "tests/cuda/emulate/device_emulated.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench {
    pl_ctx  ctx;
    bool    real;
    int64_t shrink; // sizes are divided by it
    int     repeats;
    double  copy_rate; // bytes per second
} bench;

typedef struct job {
    bench    *b;
    pl_tensor x, w; // w.data NULL: attention; x has a gradient: over blocks, forward and backward
    pl_tensor g; // of a product: x goes through a norm first, once for all repeats, which rounds it as a layer's does
    int       k; // > 0: headtopk
    int32_t  *id;
    float    *lse;
    pl_kvrow *row;
    int32_t  *lo;
    pl_dtype  numbers;
    int       nh, nkv, hd;
    int       times;
} job;

static void *take(bench *b, pl_place place, size_t bytes) {
    pl_err err = {0};
    void  *p = pl_memory_create(b->ctx.be->memory, place, bytes, &err);
    if (!p) fprintf(stderr, "bench_gpu: %s\n", err.msg), exit(1);
    return p;
}

// Random bits that are finite in bf16 and, taken two by two, in fp32: exponents around 1.
static void fill(bench *b, void *to, size_t bytes) {
    enum { PIECE = 4 << 20 };
    static uint16_t noise[PIECE / 2];
    static bool     made;
    for (int i = 0; i < PIECE / 2 && !made; i++)
        noise[i] = (uint16_t)(((unsigned)rand() & 0x80ffu) | 0x3c00u);
    made = true;
    for (size_t at = 0; at < bytes; at += PIECE)
        pl_ctx_upload(&b->ctx, (char *)to + at, noise, bytes - at < PIECE ? bytes - at : PIECE);
}

static void run(pl_ctx *ctx, void *arg) {
    job      *j = arg;
    pl_tensor x = j->g.data ? pl_rmsnorm(ctx, j->x, j->g, 1e-5) : j->x;
    for (int i = 0; i < j->times; i++) {
        if (j->x.grad)
            pl_attention_blocks_in(ctx, j->numbers, 0, &j->x, 1, j->lo, j->nh, j->nkv, j->hd);
        else if (!j->w.data)
            pl_attention_cached(ctx, j->x, j->row, j->nh, j->nkv, j->hd);
        else if (j->k)
            pl_headtopk(ctx, &(pl_headtopk_args){.x = x, .w = j->w, .k = j->k, .id = j->id, .lse = j->lse});
        else
            pl_linear(ctx, x, j->w);
    }
    if (j->x.grad) pl_tape_backward(ctx); // gradients are zero: it is all computed the same
}

static void expect(pl_status st, const pl_err *err) {
    if (st == PL_OK) return;
    fprintf(stderr, "bench_gpu: %s\n", err->msg);
    exit(1);
}

static double seconds_of(bench *b, job *j) {
    pl_err err = {0};
    j->times = b->repeats;
    expect(pl_ctx_measure(&b->ctx, run, j, &err), &err);
    double best = 0;
    for (int round = 0; round < 4; round++) { // the first warms up
        pl_ctx_begin(&b->ctx);
        double t0 = pl_now();
        run(&b->ctx, j);
        expect(pl_ctx_sync(&b->ctx, &err), &err);
        double t = (pl_now() - t0) / b->repeats;
        if (round > 0 && (best == 0 || t < best)) best = t;
    }
    return best;
}

static void report(const bench *b, const char *what, int rows, double seconds, double bytes) {
    if (!b->real)
        printf("%s,%d rows: runs\n", what, rows);
    else
        printf("%s,%d,%.3e,%.0f,%.1f,%.3f\n", what, rows, seconds, bytes, bytes / seconds * 1e-9,
               bytes / seconds / b->copy_rate);
    fflush(stdout);
}

static void copy(bench *b) {
    size_t bytes = (size_t)(((int64_t)1 << 30) / b->shrink / b->shrink);
    char  *from = take(b, PL_LOCAL, bytes), *to = take(b, PL_LOCAL, bytes);
    pl_err err = {0};
    double best = 0;
    for (int round = 0; round < 4; round++) {
        double t0 = pl_now();
        for (int i = 0; i < b->repeats; i++)
            pl_ctx_copy(&b->ctx, to, from, bytes);
        expect(pl_ctx_sync(&b->ctx, &err), &err);
        double rate = 2.0 * (double)bytes * b->repeats / (pl_now() - t0);
        if (round > 0 && rate > best) best = rate;
    }
    b->copy_rate = best;
    report(b, "copy", 1, 2.0 * (double)bytes / best, 2.0 * (double)bytes);
    pl_memory_destroy(b->ctx.be->memory, PL_LOCAL, from, bytes);
    pl_memory_destroy(b->ctx.be->memory, PL_LOCAL, to, bytes);
}

static void product(bench *b, const char *what, int64_t n, int64_t k, int top) {
    static const int rows[] = {1, 8, 16, 32, 60, 64};
    n = n / b->shrink + 1, k = k / b->shrink;
    size_t    w_bytes = pl_panels_bytes(n, k, PL_BF16), x_bytes = (size_t)(65 * k) * sizeof(float); // and the norm's g
    pl_tensor w = pl_tensor_2d(take(b, PL_LOCAL, w_bytes), PL_BF16, n, k);
    float    *x = take(b, PL_LOCAL, x_bytes);
    job       j = {.b = b, .w = w, .k = top, .g = pl_tensor_1d(x + 64 * k, PL_F32, k)};
    j.w.layout = PL_PANELS;
    j.id = take(b, PL_SHARED, sizeof(int32_t) * 64 * PL_TOPK_MAX);
    j.lse = take(b, PL_SHARED, sizeof(float) * 64);
    fill(b, w.data, w_bytes);
    fill(b, x, x_bytes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (top && rows[i] > 16) break;
        j.x = pl_tensor_2d(x, PL_F32, rows[i], k);
        double seconds = seconds_of(b, &j), out = top ? 0 : (double)rows[i] * (double)n * 4;
        report(b, what, rows[i], seconds, (double)w_bytes + (double)rows[i] * (double)k * 4 + out);
    }
    pl_memory_destroy(b->ctx.be->memory, PL_LOCAL, w.data, w_bytes);
    pl_memory_destroy(b->ctx.be->memory, PL_LOCAL, x, x_bytes);
    pl_memory_destroy(b->ctx.be->memory, PL_SHARED, j.id, sizeof(int32_t) * 64 * PL_TOPK_MAX);
    pl_memory_destroy(b->ctx.be->memory, PL_SHARED, j.lse, sizeof(float) * 64);
}

static void attention(bench *b, const char *what, int64_t keys) {
    static const int rows[] = {1, 8, 60};
    enum { NH = 32, NKV = 8, HD = 128 };
    keys = keys / b->shrink + 64;
    size_t    kv = (size_t)keys * NKV * HD * sizeof(float), q = (size_t)64 * (NH + 2 * NKV) * HD * sizeof(float);
    char     *k = take(b, PL_LOCAL, 2 * kv), *x = take(b, PL_LOCAL, q);
    pl_kvrow *row = take(b, PL_SHARED, 64 * sizeof *row);
    job       j = {.b = b, .row = row, .nh = NH, .nkv = NKV, .hd = HD};
    fill(b, k, 2 * kv);
    fill(b, x, q);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int m = 0; m < rows[i]; m++) {
            int32_t n_ctx = (int32_t)(keys - rows[i]);
            row[m] = (pl_kvrow){k, k + kv, NULL, n_ctx, m + 1, n_ctx + m, PL_F32};
        }
        j.x = pl_tensor_2d(x, PL_F32, rows[i], (NH + 2 * NKV) * HD);
        report(b, what, rows[i], seconds_of(b, &j), 2 * (double)kv);
    }
    pl_memory_destroy(b->ctx.be->memory, PL_LOCAL, k, 2 * kv);
    pl_memory_destroy(b->ctx.be->memory, PL_LOCAL, x, q);
    pl_memory_destroy(b->ctx.be->memory, PL_SHARED, row, 64 * sizeof *row);
}

// A training step's attention, forward and backward: in fp32's numbers by own kernels, in bf16's by cuDNN where it is.
static void training(bench *b, int64_t rows, int64_t document) {
    enum { NH = 32, NKV = 8, HD = 128, WIDTH = (NH + 2 * NKV) * HD };
    char    what[160], how[64];
    pl_tape tape;
    pl_err  err = {0};
    int     repeats = b->repeats;
    if (b->real)
        pl_backend_cuda_attention(how, sizeof how);
    else
        snprintf(how, sizeof how, "in bf16");
    how[strcspn(how, ",")] = 0; // one field
    rows /= b->shrink, document /= b->shrink;
    size_t   bytes = (size_t)(rows * WIDTH) * sizeof(float);
    char    *x = take(b, PL_LOCAL, 2 * bytes);
    int32_t *lo = take(b, PL_SHARED, (size_t)rows * sizeof *lo);
    job      j = {.b = b, .lo = lo, .nh = NH, .nkv = NKV, .hd = HD};
    for (int64_t m = 0; m < rows; m++)
        lo[m] = (int32_t)(m / document * document);
    fill(b, x, bytes);
    pl_ctx_zero(&b->ctx, x + bytes, bytes);
    j.x = pl_tensor_2d(x, PL_F32, rows, WIDTH);
    j.x.grad = x + bytes;
    expect(pl_tape_init(&tape, 0, &err), &err);
    b->ctx.tape = &tape;
    b->repeats = b->real ? 4 : 1; // each keeps its output
    for (int library = 0; library < 2; library++) {
        j.numbers = library ? PL_BF16 : PL_F32;
        snprintf(what, sizeof what, "attention 32/8x128 training documents of %d %s", (int)document,
                 library ? how : "in fp32");
        report(b, what, (int)rows, seconds_of(b, &j), 4 * (double)bytes);
    }
    b->ctx.tape = NULL;
    b->repeats = repeats;
    pl_tape_fini(&tape);
    pl_memory_destroy(b->ctx.be->memory, PL_LOCAL, x, 2 * bytes);
    pl_memory_destroy(b->ctx.be->memory, PL_SHARED, lo, (size_t)rows * sizeof *lo);
}

int main(int argc, char **argv) {
    static bench b = {.shrink = 1, .repeats = 50};
    pl_err       err = {0};
    if (argc != 2) {
        fprintf(stderr, "bench_gpu: expected a GPU's number, or emulated\n");
        return 2;
    }
    b.real = strcmp(argv[1], "emulated") != 0;
    const pl_backend *be = b.real ? pl_backend_cuda(atoi(argv[1]), &err) : pl_backend_cuda_emulated();
    if (!be) {
        fprintf(stderr, "bench_gpu: %s\n", err.msg);
        return 1;
    }
    if (!b.real) b.shrink = 64, b.repeats = 1;
    expect(pl_ctx_init(&b.ctx, be, NULL), &err);
    b.ctx.repeats = true; // as in decoding
    if (b.real) printf("what,rows,seconds,bytes,gb_per_s,share_of_copy\n");
    copy(&b);
    product(&b, "linear qkv 6144x4096", 6144, 4096, 0);
    product(&b, "linear o 4096x4096", 4096, 4096, 0);
    product(&b, "linear gate-up 28672x4096", 28672, 4096, 0);
    product(&b, "linear down 4096x14336", 4096, 14336, 0);
    product(&b, "linear head 128256x4096", 128256, 4096, 0);
    product(&b, "headtopk full 128256x4096 k10", 128256, 4096, 10);
    product(&b, "headtopk trimmed 32000x4096 k10", 32000, 4096, 10);
    product(&b, "headtopk low-rank 128256x512 k10", 128256, 512, 10);
    attention(&b, "attention 32/8x128 over 1024 keys", 1024);
    attention(&b, "attention 32/8x128 over 8192 keys", 8192);
    training(&b, 2048, 2048);
    training(&b, 2048, 700);
    pl_ctx_fini(&b.ctx);
    return 0;
}
