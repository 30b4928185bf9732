// The tape: autograd-lite. Ops run now; a recording context stores each op with a copy of its args; replay runs the
// backwards newest first. No lazy graph, no broadcasting, no dtype promotion, no views.
//
// Invariants: no op on a tape overwrites data that an earlier entry saved (rope rotates in place and undoes itself);
// gradients start at zero (pl_ctx_tensor zeroes them; parameters' gradients are zeroed by their owner) and backward
// always accumulates, so a weight used at several unroll steps collects all of them.
//
// Memory: entries and copies of args live in two heap buffers of the tape, not in the frame, so that a measuring run
// can walk the tape too. They grow while measuring only; afterwards a tape that is full is an error of the step.
#ifndef PL_TAPE_H
#define PL_TAPE_H

#include "kernels/backend.h"

struct pl_tape {
    struct pl_tape_entry {
        pl_op  op;
        size_t at; // offset of the copy of its args in `args`
    } * entry;
    uint8_t *args;
    size_t   used, size; // bytes of args
    int      count, capacity;
};

// Room for `capacity` entries of common size; 0 where a measuring run will size the tape.
pl_status pl_tape_init(pl_tape *t, int capacity, pl_err *err);
void      pl_tape_fini(pl_tape *t);
void      pl_tape_clear(pl_tape *t);
// Stores an op (pl_run does it).
void      pl_tape_push(pl_ctx *ctx, pl_op op, const void *args, size_t args_size);
// Runs all backwards, newest first. The caller has seeded the gradients of the outputs (or the last op seeds itself:
// divergence does). Does nothing once the context has failed.
void      pl_tape_backward(pl_ctx *ctx);

#endif
