// Where the time of steps goes: seconds, operations and bytes by phase, op and piece of work, added up while a profile
// is open. On the host an op's forward and backward are timed as wholes. On a device each launch, library call, copy
// and zeroing is timed by events (kernels/cuda/timeline.h), and its idle time stands under the host call behind which
// it began. One profile at a time, filled by one thread; without one every call returns at once.
#ifndef PL_PROFILE_H
#define PL_PROFILE_H

#include "kernels/backend.h"

#define PL_PROFILE_LINES 512 // a training step has some 150

typedef struct pl_profile_line {
    const char *phase, *op; // literals
    char        what[64];   // kernel, product M x N x K, copy; "" for an op of the host
    bool        idle;       // the device had nothing to do
    int64_t     n;
    double      seconds, flops, bytes; // 0: not known
} pl_profile_line;

typedef struct pl_profile {
    pl_profile_line line[PL_PROFILE_LINES];
    int             n;
    int64_t         lost; // pieces of work for which the table had no line
    const char     *phase;
} pl_profile;

// Opens an empty profile, until pl_profile_end. t outlives it.
void        pl_profile_begin(pl_profile *t);
void        pl_profile_end(void);
// Names the phase of all that follows; a literal.
void        pl_profile_phase(const char *name);
// The phase; NULL where no profile is open.
const char *pl_profile_current(void);
// Adds x to the line of the same phase, op, what and idle. x->phase NULL: the current one.
void        pl_profile_add(const pl_profile_line *x);
// Runs an op's function of a backend of the host as one piece of work, with the operations of kernels/flops.h.
void pl_profile_run(void (*fn)(pl_ctx *ctx, const void *args), pl_ctx *ctx, pl_op op, const void *args, bool backward);

#endif
