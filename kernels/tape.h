// The tape: eager autograd. Ops run immediately; a recording context stores each op with a copy of its args; replay
// runs the backwards newest first. No lazy graph, no broadcasting, no dtype promotion, no views.
//
// Invariants: no op on a tape overwrites data that an earlier entry saved (rope rotates in place and undoes itself);
// gradients start at zero (pl_ctx_tensor's here; parameters' gradients are zeroed by their owner) and backward
// always accumulates, so a weight used at several unroll steps collects all of them. On a device the zeros of
// pl_ctx_tensor are written late: an op's backward that writes a whole gradient may take their place (pl_tape_first).
//
// Recomputation (gradient checkpointing: Chen et al. 2016, arXiv 1604.06174): of a stretch of ops only the results are
// kept, and backward runs its forward again. Forward and backward see the same values in the same order, so gradients
// have the same bits; the stretch's forward is computed twice, and memory holds the inside of one stretch at a time.
//
// Gradients that are complete before backward ends (pl_tape_ready): the tape searches recorded args for addresses of
// watched gradients. An op that adds to a gradient has its address in its args, which hold tensors by value, so a
// gradient is complete once backward has run the oldest op with that address; an op that has finished the front of one
// before it returns calls pl_tape_done_to.
//
// Memory: entries and copies of args live in two heap buffers of the tape, not in the frame, so that a measuring run
// can walk the tape too. They grow while measuring only; afterwards a full tape is an error of the step.
#ifndef PL_TAPE_H
#define PL_TAPE_H

#include "kernels/backend.h"

// Watches gradients that lie consecutively at `grad`. `done` is called once for each byte, newest op first, but not for
// gradients that no op on the tape adds to. A single backward must make all contributions: a second one with the same
// `ready` is a caller's mistake.
typedef struct pl_tape_ready {
    uint8_t      *grad;
    int           n;
    const size_t *at; // [n + 1] ascending: gradient i is bytes [at[i], at[i + 1])
    struct pl_tape_part {
        int    first;                                // the oldest entry that adds to it; INT_MAX: none so far
        size_t told;                                 // bytes reported
    } * part;                                        // [n]; the tape's while it records
    void (*done)(void *arg, size_t from, size_t to); // bytes of grad
    void *arg;
    bool  ran; // a backward has run; cleared by the owner
} pl_tape_ready;

struct pl_tape {
    struct pl_tape_entry {
        int    op; // a pl_op, or an entry type of tape.c
        size_t at; // offset of the copy of its args in `args`
    } * entry;
    uint8_t *args;
    size_t   used, size; // bytes of args
    int      count, capacity;
    struct pl_tape_fresh {
        uint8_t *from, *to;
    } * fresh; // zeros of a device that are not written yet
    int            n_fresh, fresh_room;
    pl_tape_ready *ready; // borrowed; NULL: not watched
    int            at;    // the entry whose backward runs
};

// Reserves `capacity` entries of common size; 0 if a measuring run will size the tape.
pl_status pl_tape_init(pl_tape *t, int capacity, pl_err *err);
void      pl_tape_fini(pl_tape *t);
void      pl_tape_clear(pl_tape *t);
// Stores an op; called by pl_run.
void      pl_tape_push(pl_ctx *ctx, pl_op op, const void *args, size_t args_size);
// A stretch of ops: reads *arg (and data that it points to, which must not change until backward has run) and
// parameters, and returns its results in out[0 .. n). It must do the same in every run.
#define PL_STRETCH_OUT 12
#define PL_STRETCH_ARG 512 // bytes
typedef void (*pl_stretch_fn)(pl_ctx *ctx, const void *arg, pl_tensor *out);
// Runs fn and records it as one entry: memory that it allocates is released, except for its results, whose shapes
// [rows, cols] are given in out[i].dim. Results that fn writes to the caller's memory (a slice of a larger tensor) stay
// there. On a context that does not record, fn simply runs.
void pl_tape_stretch(pl_ctx *ctx, pl_stretch_fn fn, const void *arg, size_t arg_size, pl_tensor *out, int n);
// Runs all backwards, newest first. The caller has seeded the gradients of the outputs (or the last op seeds itself:
// divergence does). Does nothing once the context has failed.
void pl_tape_backward(pl_ctx *ctx);
// Declares a device's gradient in the frame zero.
void pl_tape_leave(pl_ctx *ctx, void *grad, size_t bytes);
// Writes the zeros that a gradient still lacks; call before it is read or added to.
void pl_tape_settle(pl_ctx *ctx, const void *grad, size_t bytes);
// Returns true if a gradient consists of such zeros alone: the caller then writes all of it instead of adding to it.
// Otherwise settles it. For the ops in tape.c's list; before others the tape settles every gradient in their arguments.
bool pl_tape_first(pl_ctx *ctx, void *grad, size_t bytes);
// For an op's backward: declares the first `bytes` of the gradient at `grad` complete; it adds nothing more to them.
void pl_tape_done_to(pl_ctx *ctx, const void *grad, size_t bytes);

#endif
