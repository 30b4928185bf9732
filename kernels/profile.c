#include "kernels/profile.h"

#include "kernels/base/clock.h"
#include "kernels/flops.h"
#include <string.h>

static pl_profile *open_profile;

void pl_profile_begin(pl_profile *t) {
    *t = (pl_profile){.phase = "forward"};
    open_profile = t;
}

void pl_profile_end(void) {
    open_profile = NULL;
}

const char *pl_profile_current(void) {
    return open_profile ? open_profile->phase : NULL;
}

void pl_profile_phase(const char *name) {
    if (open_profile) open_profile->phase = name;
}

void pl_profile_add(const pl_profile_line *x) {
    pl_profile *t = open_profile;
    if (!t) return;
    const char *phase = x->phase ? x->phase : t->phase;
    int         i = 0;
    while (i < t->n && !(t->line[i].idle == x->idle && strcmp(t->line[i].phase, phase) == 0 &&
                         strcmp(t->line[i].op, x->op) == 0 && strcmp(t->line[i].what, x->what) == 0))
        i++;
    if (i == PL_PROFILE_LINES) {
        t->lost++;
        return;
    }
    pl_profile_line *line = &t->line[i];
    if (i == t->n) {
        *line = *x;
        line->phase = phase;
        line->n = 0;
        line->seconds = line->flops = line->bytes = 0;
        t->n++;
    }
    line->n++;
    line->seconds += x->seconds;
    line->flops += x->flops;
    line->bytes += x->bytes;
}

void pl_profile_run(void (*fn)(pl_ctx *ctx, const void *args), pl_ctx *ctx, pl_op op, const void *args, bool backward) {
    pl_profile_line x = {.op = pl_op_name(op)};
    double          start = pl_now();
    fn(ctx, args);
    x.seconds = pl_now() - start;
    if (ctx->err.status == PL_OK) x.flops = pl_op_flops(op, args, backward);
    pl_profile_add(&x);
}
