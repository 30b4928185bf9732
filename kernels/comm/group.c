// The processes of a group: starting them, meeting, failing, ending. Linux: a shared anonymous mapping, futexes.
#define _GNU_SOURCE 1
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/comm/impl.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, TURNS = 2 };
enum { NOBODY, WRITING, FAILED }; // who has failed

struct pl_comm_shared {
    _Alignas(LINE) atomic_uint turn;   // meetings that are over; who waits sleeps on it
    _Alignas(LINE) atomic_int arrived; // ranks at the present one
    _Alignas(LINE) atomic_int failed;
    int  who; // rank; with `why`, once failed
    int  status;
    char why[sizeof(((pl_err *)NULL)->msg)];
    int  what[TURNS][PL_RANKS_MAX]; // of the meeting
    _Alignas(4096) uint8_t window[];
};

static const double SPIN = 20e-6, LOOK = 0.05, END = 10; // seconds: before sleeping, between looks, to end in

static void *window(const pl_comm *c, unsigned turn, int rank) {
    return c->shared->window + ((size_t)(turn % TURNS) * (size_t)c->ranks + (size_t)rank) * PL_COMM_WINDOW;
}

void *pl_comm_window(const pl_comm *c, int rank) {
    return window(c, c->turn, rank);
}

void *pl_comm_window_seen(const pl_comm *c, int rank) {
    return window(c, c->turn - 1, rank);
}

static void nap(double seconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

// ---- failures

static void wake(pl_comm_shared *s) {
    syscall(SYS_futex, &s->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void tell(pl_comm *c, int who, pl_status status, const char *why) {
    pl_comm_shared *s = c->shared;
    int             nobody = NOBODY;
    if (!atomic_compare_exchange_strong(&s->failed, &nobody, WRITING)) return; // another one was first
    s->who = who;
    s->status = (int)status;
    snprintf(s->why, sizeof s->why, "%s", why);
    atomic_store(&s->failed, FAILED);
    wake(s);
}

void pl_comm_fail(pl_comm *c, const pl_err *why) {
    if (!c || c->broken) return;
    tell(c, c->rank, why->status, why->msg);
    c->broken = true;
}

static pl_status told(pl_comm *c, pl_err *err) {
    pl_comm_shared *s = c->shared;
    c->broken = true;
    for (int i = 0; i < 1000 && atomic_load(&s->failed) != FAILED; i++)
        nap(1e-3); // who writes has only a line to write, unless it died over it
    if (atomic_load(&s->failed) != FAILED) return pl_fail(err, PL_E_IO, "a rank ended without saying why");
    return pl_fail(err, (pl_status)s->status, "rank %d: %s", s->who, s->why);
}

// A child that is gone did not mean to go: who fails tells it first, and who is done is waited for in pl_comm_close.
static void look_after(pl_comm *c) {
    for (int r = 1; r < c->ranks && c->rank == 0; r++) {
        char why[200];
        int  how = 0;
        if (c->pid[r] == 0) continue;
        pid_t got = waitpid(c->pid[r], &how, WNOHANG);
        if (got == 0 || (got < 0 && errno == EINTR)) continue;
        if (got > 0 && WIFSIGNALED(how))
            snprintf(why, sizeof why, "process %d was ended by signal %d, %s%s", c->pid[r], WTERMSIG(how),
                     strsignal(WTERMSIG(how)),
                     WTERMSIG(how) == SIGKILL ? " (if memory ran out: fewer ranks or smaller slots)" : "");
        else
            snprintf(why, sizeof why, "process %d ended", c->pid[r]);
        c->pid[r] = 0;
        tell(c, r, PL_E_IO, why);
    }
    // The kernel sends the signal of pl_comm_fork; this is for a parent that had gone before it was asked for.
    if (c->rank > 0 && getppid() != c->pid[0]) tell(c, 0, PL_E_IO, "ended");
}

pl_status pl_comm_check(pl_comm *c, pl_err *err) {
    if (atomic_load(&c->shared->failed) == NOBODY) look_after(c);
    return atomic_load(&c->shared->failed) == NOBODY ? PL_OK : told(c, err);
}

// ---- meeting

// Until the turn ends or somebody has failed.
static pl_status wait_turn(pl_comm *c, unsigned turn, pl_err *err) {
    pl_comm_shared *s = c->shared;
    double          until = pl_now() + SPIN;
    while (atomic_load_explicit(&s->turn, memory_order_acquire) == turn)
        if (pl_now() > until) break;
    struct timespec look = {.tv_nsec = (long)(LOOK * 1e9)};
    while (atomic_load(&s->turn) == turn) {
        PL_TRY(pl_comm_check(c, err));
        syscall(SYS_futex, &s->turn, FUTEX_WAIT, turn, &look, NULL, 0);
    }
    return PL_OK;
}

pl_status pl_comm_meet(pl_comm *c, int what, pl_err *err) {
    pl_comm_shared *s = c->shared;
    if (c->broken || atomic_load(&s->failed) != NOBODY) return told(c, err);
    unsigned turn = c->turn++;
    int     *here = s->what[turn % TURNS];
    here[c->rank] = what;
    if (atomic_fetch_add(&s->arrived, 1) + 1 == c->ranks) {
        atomic_store(&s->arrived, 0);
        atomic_store(&s->turn, turn + 1);
        wake(s);
    } else {
        PL_TRY(wait_turn(c, turn, err));
    }
    for (int r = 0; r < c->ranks; r++)
        PL_CHECK(here[r] == what, "rank %d met rank %d for %d, which came for %d", c->rank, r, what, here[r]);
    return PL_OK;
}

// ---- starting and ending

static void become(pl_comm *c, int rank, int parent) {
    c->rank = rank;
    memset(c->pid, 0, sizeof c->pid);
    c->pid[0] = parent;
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); // it ended before it could be watched
}

static void kill_all(pl_comm *c) {
    for (int r = 1; r < c->ranks; r++) {
        if (c->pid[r] == 0) continue;
        kill(c->pid[r], SIGKILL);
        while (waitpid(c->pid[r], NULL, 0) < 0 && errno == EINTR)
            ;
        c->pid[r] = 0;
    }
}

static void drop(pl_comm *c) {
    if (c->shared) munmap(c->shared, c->shared_bytes);
    pl_free(c);
}

pl_status pl_comm_fork(pl_comm **out, int ranks, pl_err *err) {
    *out = NULL;
    PL_CHECK(ranks >= 1 && ranks <= PL_RANKS_MAX, "%d ranks", ranks);
    pl_comm *c = pl_calloc(1, sizeof *c);
    if (!c) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    c->ranks = ranks;
    c->shared_bytes = sizeof(pl_comm_shared) + (size_t)TURNS * (size_t)ranks * PL_COMM_WINDOW;
    void *p = mmap(NULL, c->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        drop(c);
        return pl_fail(err, PL_E_MEMORY, "ranks: no shared memory for %d of them", ranks);
    }
    c->shared = p; // zeroed: no turn, nobody failed
    fflush(NULL);  // what stands in buffers would be written once per rank
    int parent = (int)getpid();
    for (int r = 1; r < ranks; r++) {
        pid_t pid = fork();
        if (pid == 0) {
            become(c, r, parent);
            break;
        }
        if (pid < 0) {
            pl_status st = pl_fail_errno(err, "ranks: cannot start number %d of %d (ask for fewer)", r + 1, ranks);
            kill_all(c);
            drop(c);
            return st;
        }
        c->pid[r] = (int)pid;
    }
    *out = c;
    return PL_OK;
}

// Children that ended by themselves within `seconds`.
static void await(pl_comm *c, double seconds) {
    double until = pl_now() + seconds;
    for (int r = 1; r < c->ranks; r++)
        while (c->pid[r]) {
            pid_t got = waitpid(c->pid[r], NULL, WNOHANG);
            if (got > 0 || (got < 0 && errno != EINTR)) c->pid[r] = 0;
            if (got == 0 && pl_now() > until) return;
            if (got == 0) nap(1e-3);
        }
}

void pl_comm_close(pl_comm *c) {
    if (!c) return;
    if (c->transport && c->transport->close) c->transport->close(c);
    if (c->room) pl_memory_destroy(c->memory, PL_LOCAL, c->room, PL_COMM_WINDOW);
    if (c->rank == 0) {
        if (atomic_load(&c->shared->failed) == NOBODY) await(c, END);
        kill_all(c); // they write nothing that a kill could leave half-made
    }
    drop(c);
}
