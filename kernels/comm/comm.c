#include "kernels/comm/comm.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/comm/impl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const pl_transport *const transports[] = {&pl_transport_nccl, &pl_transport_host};
enum { TRANSPORTS = sizeof transports / sizeof *transports };

int pl_comm_rank(const pl_comm *c) {
    return c ? c->rank : 0;
}

int pl_comm_ranks(const pl_comm *c) {
    return c ? c->ranks : 1;
}

int pl_comm_local(const pl_comm *c) {
    return c ? c->local : 0;
}

int pl_comm_neighbours(const pl_comm *c) {
    return c ? c->neighbours : 1;
}

bool pl_comm_joined(const pl_comm *c) {
    return c && c->group->join;
}

const char *pl_comm_transport(const pl_comm *c) {
    if (!c || !c->transport) return "none";
    return c->transport == &pl_transport_host ? c->group->name : c->transport->name;
}

pl_comm *pl_comm_new(const pl_group *g, int rank, int ranks) {
    PL_CHECK(ranks >= 1 && ranks <= PL_RANKS_MAX && rank >= 0 && rank < ranks, "rank %d of %d", rank, ranks);
    pl_comm *c = pl_calloc(1, sizeof *c);
    if (c) *c = (pl_comm){.group = g, .rank = rank, .ranks = ranks, .neighbours = ranks};
    return c;
}

pl_status pl_comm_join(pl_comm **out, const pl_comm_place *place, pl_err *err) {
    const pl_group *g = place->mpi ? &pl_group_mpi : &pl_group_tcp;
    *out = NULL;
    pl_comm *c = pl_comm_new(g, place->rank, place->ranks);
    if (!c) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    c->local = place->local;
    pl_status st = g->join(c, place, err);
    if (st == PL_OK) {
        *out = c;
        return PL_OK;
    }
    g->close(c);
    pl_free(c);
    return st;
}

// ---- failures

enum { NOBODY, WRITING, FAILED };

bool pl_comm_failed(pl_comm_failure *f) {
    return atomic_load(&f->state) != NOBODY;
}

bool pl_comm_failure_set(pl_comm_failure *f, int who, pl_status status, const char *why) {
    int nobody = NOBODY;
    if (!atomic_compare_exchange_strong(&f->state, &nobody, WRITING)) return false;
    f->who = who;
    f->status = (int)status;
    snprintf(f->why, sizeof f->why, "%s", why);
    atomic_store(&f->state, FAILED);
    return true;
}

static void fall_apart(pl_comm *c) {
    c->broken = true;
    if (c->transport && c->transport->stop) c->transport->stop(c);
}

pl_status pl_comm_failure_told(pl_comm *c, pl_comm_failure *f, pl_err *err) {
    fall_apart(c);
    for (int i = 0; i < 1000 && atomic_load(&f->state) != FAILED; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); // the writer is between two stores, or died there
    if (atomic_load(&f->state) != FAILED) return pl_fail(err, PL_E_IO, "a rank ended without saying why");
    return pl_fail(err, (pl_status)f->status, "rank %d: %s", f->who, f->why);
}

pl_status pl_comm_check(pl_comm *c, pl_err *err) {
    return c ? c->group->check(c, err) : PL_OK;
}

void pl_comm_fail(pl_comm *c, const pl_err *why) {
    if (!c || c->broken) return;
    c->group->fail(c, why);
    fall_apart(c);
}

void pl_comm_close(pl_comm *c) {
    if (!c) return;
    if (c->transport && c->transport->close) c->transport->close(c);
    if (c->room) pl_memory_destroy(c->memory, PL_LOCAL, c->room, c->transport->room);
    c->group->close(c);
    pl_free(c);
}

// ---- choosing a transport

static pl_status choose_transport(pl_comm *c, const char *name, const pl_backend *be, pl_err *err) {
    bool automatic = strcmp(name, "auto") == 0;
    for (int i = 0; i < TRANSPORTS; i++) {
        const pl_transport *t = transports[i];
        if (!automatic && strcmp(t->name, name) != 0) continue;
        pl_status st = t->open(c, be, err);
        if (st == PL_OK) {
            c->transport = t;
            return PL_OK;
        }
        if (!automatic) return pl_fail_at(err, st, "--transport %s", name);
        if (be->memory && err) pl_log("--transport auto: not %s: %.*s", t->name, (int)strcspn(err->msg, ";"), err->msg);
    }
    return pl_fail(err, PL_E_USAGE, "--transport %s: expected " PL_TRANSPORTS_SYNTAX, name);
}

// Checks that all ranks compute in one arithmetic: sums over others would train another model.
static pl_status same_arithmetic(pl_comm *c, const pl_backend *be, pl_err *err) {
    char first[64] = "";
    snprintf(first, sizeof first, "%s", be->arithmetic);
    PL_TRY(pl_comm_broadcast(c, first, sizeof first, err));
    first[sizeof first - 1] = 0;
    if (strncmp(first, be->arithmetic, sizeof first - 1) == 0) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "computes by %s, rank 0 by %s: their bits differ; choose one for all by --device and PACELINE_ISA",
                   be->arithmetic, first);
}

pl_status pl_comm_open(pl_comm *c, const char *transport, const pl_backend *be, pl_err *err) {
    if (!c) return PL_OK;
    PL_CHECK(!c->transport, "a comm is opened once, not as %s and as %s", c->transport->name, transport);
    PL_TRY(choose_transport(c, transport, be, err));
    double all[3] = {be->memory != NULL, c->transport != &pl_transport_host, c->beside};
    PL_TRY(pl_comm_sum_doubles(c, all, 3, err));
    c->beside = all[2] >= c->ranks; // all ranks or none
    if (all[0] > 0 && all[0] < c->ranks)
        return pl_fail(err, PL_E_UNSUPPORTED, "%.0f of %d ranks have a GPU; use fewer ranks or --device cpu", all[0],
                       c->ranks);
    if (all[1] > 0 && all[1] < c->ranks) { // auto: a transport that only some ranks can use is not used
        if (c->transport->close) c->transport->close(c);
        c->transport = NULL;
        PL_TRY(choose_transport(c, "host", be, err));
    }
    return same_arithmetic(c, be, err);
}

// ---- counters

pl_comm_counts pl_comm_counted(const pl_comm *c) {
    return c ? c->counts : (pl_comm_counts){0};
}

static pl_status count_swap(pl_comm *c, const pl_comm_swap *s, double from, pl_status st) {
    c->counts.seconds += pl_now() - from;
    for (int i = 0; i < c->ranks; i++) {
        c->counts.sent += s->out_bytes[i];
        c->counts.received += s->in_bytes[i];
    }
    return st;
}

pl_status pl_comm_meet(pl_comm *c, int what, const pl_comm_swap *s, pl_err *err) {
    double from = pl_now();
    return count_swap(c, s, from, c->group->swap(c, what, s, err));
}

pl_status pl_comm_travel(pl_comm *c, pl_ctx *ctx, const pl_comm_swap *s, pl_err *err) {
    double from = pl_now();
    return count_swap(c, s, from, c->transport->swap(c, ctx, s, err));
}

pl_status pl_comm_settle(pl_comm *c, pl_ctx *ctx, pl_err *err) {
    if (!c || !c->transport->settle) return PL_OK;
    double    from = pl_now();
    pl_status st = c->transport->settle(c, ctx, err);
    c->counts.seconds += pl_now() - from;
    return st;
}

// ---- bytes of the host

pl_status pl_comm_show(pl_comm *c, int what, const void *mine, uint8_t *in, size_t bytes, pl_err *err) {
    pl_comm_swap s = {0};
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        s.out[r] = mine;
        s.in[r] = in + (size_t)r * bytes;
        s.out_bytes[r] = s.in_bytes[r] = bytes;
    }
    return pl_comm_meet(c, what, &s, err);
}

pl_status pl_comm_broadcast(pl_comm *c, void *data, size_t bytes, pl_err *err) {
    if (!c) return PL_OK;
    for (size_t at = 0; at < bytes;) {
        size_t       n = bytes - at < PL_COMM_ROUND ? bytes - at : PL_COMM_ROUND;
        pl_comm_swap s = {0};
        for (int r = 1; r < c->ranks && c->rank == 0; r++) {
            s.out[r] = (uint8_t *)data + at;
            s.out_bytes[r] = n;
        }
        if (c->rank > 0) {
            s.in[0] = (uint8_t *)data + at;
            s.in_bytes[0] = n;
        }
        PL_TRY(pl_comm_meet(c, PL_MEET_BROADCAST, &s, err));
        at += n;
    }
    return PL_OK;
}

pl_status pl_comm_barrier(pl_comm *c, pl_err *err) {
    return c ? pl_comm_meet(c, PL_MEET_BARRIER, &(pl_comm_swap){0}, err) : PL_OK;
}

pl_status pl_comm_enter(pl_comm *c, pl_err *err) {
    return pl_comm_rank(c) > 0 ? pl_comm_barrier(c, err) : PL_OK;
}

pl_status pl_comm_leave(pl_comm *c, pl_err *err) {
    return pl_comm_rank(c) == 0 ? pl_comm_barrier(c, err) : PL_OK;
}
