#include "kernels/cuda/timeline.h"

#include "kernels/profile.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARKS = 4096 }; // a training step queues some 1,000; a full table is settled early

typedef struct mark {
    cudaEvent_t     event;
    pl_profile_line line; // idle: the event is before the first launch after a wait
} mark;

static mark        marks[MARKS];
static cudaEvent_t last; // the last settled mark
static bool        has_last;
static int         n_marks;
static const void *stream; // of the newest mark
static const char *waited = "start";

// Adds an event to the stream; false where no profile is open or CUDA refuses.
static bool add_mark(pl_ctx *ctx, const pl_profile_line *line) {
    if (n_marks == MARKS) pl_timeline_settle("a full table of events");
    mark *m = &marks[n_marks];
    if (!m->event && cudaEventCreate(&m->event) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    if (cudaEventRecord(m->event, (cudaStream_t)pl_cuda_state_of(ctx)->stream) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    m->line = *line;
    m->line.phase = pl_profile_current();
    n_marks++;
    return true;
}

void pl_timeline_before(pl_ctx *ctx) {
    if (!pl_profile_current()) return;
    if (n_marks > 0 && stream == pl_cuda_state_of(ctx)->stream) return;
    if (add_mark(ctx, &(pl_profile_line){.op = "idle", .idle = true})) stream = pl_cuda_state_of(ctx)->stream;
}

// Reads the last name in a mangled one: _ZN12_GLOBAL__N_16kernelEPf is "kernel".
static void read_name(const char *mangled, char *out, size_t room) {
    const char *at = strncmp(mangled, "_Z", 2) == 0 ? mangled + 2 : "";
    snprintf(out, room, "%s", mangled);
    while (*at == 'N' || *at == 'L')
        at++;
    for (char *rest; *at >= '1' && *at <= '9'; at = rest) {
        unsigned long n = strtoul(at, &rest, 10);
        if (n > strlen(rest)) return;
        snprintf(out, room, "%.*s", (int)n, rest);
        rest += n;
        while (*rest == 'L')
            rest++;
    }
}

void pl_timeline_behind(pl_ctx *ctx, const void *kernel, const char *what, double bytes) {
    pl_cuda_state  *s = pl_cuda_state_of(ctx);
    pl_profile_line x = {.op = what && !kernel ? what : s->op, .bytes = bytes};
    pl_cuda_product p = s->product;
    const char     *name = NULL;
    s->product = (pl_cuda_product){0};
    if (!pl_profile_current()) return;
    if (kernel && cudaFuncGetName(&name, kernel) == cudaSuccess && name)
        read_name(name, x.what, sizeof x.what);
    else if (p.M > 0)
        snprintf(x.what, sizeof x.what, "%lld x %lld x %lld%s", (long long)p.M, (long long)p.N, (long long)p.K,
                 p.add ? " +=" : "");
    else if (!what)
        snprintf(x.what, sizeof x.what, "library");
    if (p.M > 0) {
        double M = (double)p.M, N = (double)p.N, K = (double)p.K;
        x.flops = 2 * M * N * K;
        x.bytes = 2 * (M * K + N * K) + (p.add ? 8 : 4) * M * N;
    }
    add_mark(ctx, &x);
}

static double seconds_between(cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    if (cudaEventElapsedTime(&ms, from, to) == cudaSuccess) return ms * 1e-3;
    cudaGetLastError();
    return 0;
}

void pl_timeline_settle(const char *what) {
    if (!pl_profile_current()) has_last = false;
    if (n_marks == 0) return;
    if (cudaDeviceSynchronize() != cudaSuccess) { // the context's own wait fails with it
        cudaGetLastError();
        n_marks = 0;
        return;
    }
    for (int i = 0; i < n_marks; i++) {
        pl_profile_line *x = &marks[i].line;
        if (i == 0 && !has_last) continue;
        x->seconds = seconds_between(i > 0 ? marks[i - 1].event : last, marks[i].event);
        if (x->idle) snprintf(x->what, sizeof x->what, "after %s", i > 0 ? "another stream" : waited);
        pl_profile_add(x);
    }
    cudaEvent_t spare = last;
    last = marks[n_marks - 1].event;
    marks[n_marks - 1].event = spare;
    has_last = pl_profile_current();
    n_marks = 0;
    waited = what;
}
