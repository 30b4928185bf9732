#include "kernels/comm/summing.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/comm/impl.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

struct pl_summing {
    pl_comm        *comm;
    pl_summing_of   of;
    pl_ctx          ctx;  // the thread's
    size_t          each; // bytes of an element
    size_t          bytes, piece, rounds;
    uint32_t       *order;   // [rounds] order of summation
    bool            known;   // the order is rank 0's
    double          seconds; // the comm's, at the start of the sum
    pthread_t       thread;
    pthread_mutex_t lock; // guards the fields below
    pthread_cond_t  said;
    bool            running, ending; // a sum is in progress; the thread must end
    size_t         *missing;         // [rounds] incomplete bytes
    uint32_t       *told;            // [rounds] completed rounds, in order of completion
    uint32_t        n_told;
    pl_status       status;
    pl_err          err;
};

bool pl_summing_can(const pl_comm *c, const pl_backend *be) {
    return c && c->ranks > 1 && c->beside && c->transport == &pl_transport_host && !be->memory;
}

// ---- the thread

// Calls `before` for each part of a round.
static void prepare_round(pl_summing *s, const pl_comm_round *r) {
    for (int i = 0; i < s->comm->ranks && s->of.before; i++) {
        size_t at = (size_t)(r->part[i] - (uint8_t *)s->of.x);
        if (r->bytes[i] > 0)
            s->of.before(s->of.arg, &s->ctx, (int64_t)(at / s->each), (int64_t)(r->bytes[i] / s->each));
    }
}

static void await_round(pl_summing *s, uint32_t k) {
    pthread_mutex_lock(&s->lock);
    while (s->missing[k] > 0)
        pthread_cond_wait(&s->said, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static pl_status sum_all(pl_summing *s, pl_err *err) {
    PL_TRY(pl_comm_make_room(s->comm, &s->ctx, err));
    for (size_t i = 0; i < s->rounds; i++) {
        pl_comm_round r;
        await_round(s, s->order[i]);
        pl_comm_round_at(s->comm, s->of.x, s->bytes, s->piece, s->order[i], &r);
        prepare_round(s, &r);
        PL_TRY(pl_comm_sum_round(s->comm, &s->ctx, &r, err));
        if (s->piece == 0) PL_TRY(pl_comm_give_round(s->comm, &s->ctx, &r, err));
    }
    return pl_ctx_sync(&s->ctx, err);
}

static void *run_thread(void *arg) {
    pl_summing *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->running && !s->ending)
            pthread_cond_wait(&s->said, &s->lock);
        if (s->ending) break;
        pthread_mutex_unlock(&s->lock);
        pl_err    err = {0};
        pl_status st = sum_all(s, &err);
        pthread_mutex_lock(&s->lock);
        s->status = st;
        s->err = err;
        s->running = false;
        pthread_cond_broadcast(&s->said);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static pl_status start_thread(pl_summing *s, pl_err *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // signals are handled by other threads
    int r = pthread_create(&s->thread, NULL, run_thread, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r == 0 ? PL_OK : pl_fail(err, PL_E_MEMORY, "ranks: no thread for sums: %s", strerror(r));
}

// ---- called by the owner

static void drop_sum(pl_summing *s) {
    pl_ctx_fini(&s->ctx);
    pl_free(s->order);
    pl_free(s->missing);
    pl_free(s->told);
    pthread_cond_destroy(&s->said);
    pthread_mutex_destroy(&s->lock);
    pl_free(s);
}

pl_status pl_summing_create(pl_summing **out, pl_comm *c, const pl_backend *be, const pl_summing_of *of, pl_err *err) {
    pl_summing *s = pl_calloc(1, sizeof *s);
    *out = NULL;
    PL_CHECK(pl_summing_can(c, be), "sums of %s beside what computes", be->name);
    if (!s) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    *s = (pl_summing){.comm = c, .of = *of, .each = pl_dtype_size(be->real)};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->said, NULL);
    s->bytes = pl_size_mul((size_t)of->n, s->each, 1);
    s->piece = pl_size_mul((size_t)of->piece, s->each, 1);
    s->rounds = pl_comm_rounds(c, s->bytes, s->piece);
    s->order = pl_calloc(s->rounds + 1, sizeof *s->order);
    s->missing = pl_calloc(s->rounds + 1, sizeof *s->missing);
    s->told = pl_calloc(s->rounds + 1, sizeof *s->told);
    for (size_t i = 0; i < s->rounds && s->order; i++)
        s->order[i] = (uint32_t)i;
    pl_status st = pl_ctx_init(&s->ctx, be, NULL);
    if (st == PL_OK && !(s->order && s->missing && s->told)) st = pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    if (st == PL_OK) st = start_thread(s, err);
    if (st == PL_OK)
        *out = s;
    else
        drop_sum(s);
    return st;
}

void pl_summing_destroy(pl_summing *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    PL_CHECK(!s->running, "a sum that was begun and not ended");
    s->ending = true;
    pthread_cond_broadcast(&s->said);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    drop_sum(s);
}

void pl_summing_begin(pl_summing *s) {
    pthread_mutex_lock(&s->lock);
    PL_CHECK(!s->running, "a sum begins before the last one has ended");
    for (size_t k = 0; k < s->rounds; k++) {
        pl_comm_round r;
        pl_comm_round_at(s->comm, s->of.x, s->bytes, s->piece, k, &r);
        s->missing[k] = 0;
        for (int i = 0; i < s->comm->ranks; i++)
            s->missing[k] += r.bytes[i];
    }
    s->n_told = 0;
    s->seconds = s->comm->counts.seconds;
    s->running = true;
    pthread_cond_broadcast(&s->said);
    pthread_mutex_unlock(&s->lock);
}

// Subtracts bytes [from, to) from those missing in round k.
static void take_off(pl_summing *s, size_t k, size_t from, size_t to) {
    pl_comm_round r;
    pl_comm_round_at(s->comm, s->of.x, s->bytes, s->piece, k, &r);
    for (int i = 0; i < s->comm->ranks; i++) {
        size_t at = (size_t)(r.part[i] - (uint8_t *)s->of.x), end = at + r.bytes[i];
        size_t lo = at > from ? at : from, hi = end < to ? end : to;
        if (hi > lo) s->missing[k] -= hi - lo;
    }
    if (s->missing[k] == 0) s->told[s->n_told++] = (uint32_t)k;
}

void pl_summing_ready(pl_summing *s, int64_t from, int64_t to) {
    pthread_mutex_lock(&s->lock);
    for (size_t k = 0; k < s->rounds; k++)
        if (s->missing[k] > 0) take_off(s, k, (size_t)from * s->each, (size_t)to * s->each);
    pthread_cond_broadcast(&s->said);
    pthread_mutex_unlock(&s->lock);
}

// Broadcasts rank 0's order, once it has one: reported rounds, then the rest in their present order.
static pl_status learn_order(pl_summing *s, pl_err *err) {
    s->known = s->n_told > 0;
    PL_TRY(pl_comm_broadcast(s->comm, &s->known, sizeof s->known, err));
    if (!s->known) return PL_OK;
    for (size_t k = 0; k < s->rounds; k++) {
        bool there = false;
        for (uint32_t i = 0; i < s->n_told && !there; i++)
            there = s->told[i] == k;
        if (!there) s->told[s->n_told++] = (uint32_t)k;
    }
    PL_TRY(pl_comm_broadcast(s->comm, s->told, s->rounds * sizeof *s->told, err));
    memcpy(s->order, s->told, s->rounds * sizeof *s->told);
    return PL_OK;
}

pl_status pl_summing_end(pl_summing *s, pl_err *err) {
    double from = pl_now();
    pthread_mutex_lock(&s->lock);
    memset(s->missing, 0, s->rounds * sizeof *s->missing);
    pthread_cond_broadcast(&s->said);
    while (s->running)
        pthread_cond_wait(&s->said, &s->lock);
    pl_status st = s->status;
    if (st != PL_OK && err) *err = s->err;
    pthread_mutex_unlock(&s->lock);
    s->comm->counts.seconds = s->seconds + pl_now() - from; // earlier seconds were overlapped
    return st == PL_OK && !s->known ? learn_order(s, err) : st;
}
