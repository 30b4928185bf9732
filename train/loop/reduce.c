#include "train/loop/reduce.h"

#include "kernels/base/arena.h"

#include <stdlib.h>

// ---- complete gradients

static int by_place(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

// Runs in the summing thread.
static void take_in(void *arg, pl_ctx *ctx, int64_t from, int64_t n) {
    pl_reduce *r = arg;
    pl_slots_finish(&r->slots, ctx, r->block->grad, from, n);
}

static void complete(void *arg, size_t from, size_t to) {
    pl_reduce *r = arg;
    size_t     each = pl_dtype_size(r->block->real);
    pl_summing_ready(r->summing, (int64_t)(from / each), (int64_t)(to / each));
}

// Lists the trained parameters' gradients in memory order, each with the gap after it.
static pl_status list_gradients(pl_reduce *r, pl_err *err) {
    const pl_param_block *b = r->block;
    pl_tape_ready        *t = &r->ready;
    size_t                n = (size_t)b->params->n;
    *t = (pl_tape_ready){.grad = b->grad, .done = complete, .arg = r};
    t->at = r->at = pl_calloc(n + 1, sizeof *r->at);
    t->part = pl_calloc(n + 1, sizeof *t->part);
    if (!t->at || !t->part) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    for (size_t i = 0; i < n; i++)
        if (!b->frozen[i]) r->at[t->n++] = (size_t)b->at[i] * pl_dtype_size(b->real);
    r->at[t->n] = (size_t)b->n * pl_dtype_size(b->real);
    qsort(r->at, (size_t)t->n, sizeof *r->at, by_place);
    return PL_OK;
}

// ---- a step

pl_status pl_reduce_init(pl_reduce *r, int n_slots, pl_param_block *block, pl_comm *comm, pl_tape *tape,
                         const pl_backend *be, pl_err *err) {
    pl_summing_of of = {.x = block->grad,
                        .n = block->n,
                        .piece = block->shard.ranks > 1 ? block->piece : 0,
                        .before = take_in,
                        .arg = r};
    *r = (pl_reduce){.block = block, .comm = comm, .tape = tape};
    PL_TRY(pl_slots_init(&r->slots, n_slots, block->n, be, err));
    if (!tape || block->n == 0 || !pl_summing_can(comm, be)) return PL_OK;
    PL_TRY(list_gradients(r, err));
    return pl_summing_create(&r->summing, comm, be, &of, err);
}

void pl_reduce_fini(pl_reduce *r) {
    pl_summing_destroy(r->summing);
    pl_slots_fini(&r->slots);
    pl_free(r->at);
    pl_free(r->ready.part);
    *r = (pl_reduce){0};
}

static bool is_last(const pl_reduce *r) {
    return r->slots.next == r->slots.n_slots - 1;
}

void pl_reduce_open(pl_reduce *r) {
    if (!is_last(r) || !r->summing) return;
    r->ready.ran = false;
    r->tape->ready = &r->ready;
    pl_summing_begin(r->summing);
}

// A failed slot is summed as it is, as on the other ranks: they learn of the failure at the next meeting.
static pl_status end_beside(pl_reduce *r, double *sums, pl_status slot, pl_err *err) {
    pl_err why = {0};
    r->tape->ready = NULL;
    pl_status st = pl_summing_end(r->summing, &why);
    if (slot != PL_OK) return slot;
    if (st != PL_OK && err) *err = why;
    if (st == PL_OK) pl_slots_finish_sums(&r->slots, sums);
    return st;
}

pl_status pl_reduce_add(pl_reduce *r, pl_ctx *ctx, double *sums, pl_status slot, pl_err *err) {
    pl_param_block *b = r->block;
    bool            end = is_last(r);
    if (end && r->summing) return end_beside(r, sums, slot, err);
    if (slot != PL_OK) return slot;
    pl_slots_add(&r->slots, ctx, b->grad, sums);
    if (!end) return PL_OK;
    if (b->shard.ranks > 1) return pl_comm_sum_pieces(r->comm, ctx, b->grad, b->n, b->piece, err);
    return pl_comm_sum(r->comm, ctx, b->grad, b->n, err);
}
