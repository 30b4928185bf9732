// Ranks as children of one process: starting, meeting, failing, ending. Linux: a shared anonymous mapping and futexes.
#define _GNU_SOURCE 1
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
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

typedef struct shared {
    _Alignas(LINE) atomic_uint turn;   // number of completed meetings; waiting ranks sleep on it
    _Alignas(LINE) atomic_int arrived; // ranks that have arrived at the current one
    _Alignas(LINE) pl_comm_failure failure;
    int what[TURNS][PL_RANKS_MAX]; // purpose of the meeting
    _Alignas(4096) uint8_t window[];
} shared;

typedef struct forked {
    shared *shared;
    size_t  shared_bytes;
    int     pid[PL_RANKS_MAX];     // rank 0: the others', 0: has ended; other ranks: [0] is the parent
    double  stopped[PL_RANKS_MAX]; // rank 0: pl_now() when a stop of that process was noticed; 0: it runs
    bool    left[PL_RANKS_MAX];    // rank 0: ended after the meeting that this rank was still waiting for
} forked;

// A rank's data for the others: the offset of each one's piece, then the pieces.
typedef struct front {
    size_t at[PL_RANKS_MAX];
} front;

#define WINDOW (sizeof(front) + PL_COMM_ROUND)

static const double SPIN = 20e-6, LOOK = 0.05, END = 10; // seconds: spinning before sleeping, between checks, to end in

static shared *shared_of(const pl_comm *c) {
    return ((forked *)c->link)->shared;
}

// Returns a rank's window in a meeting. The rank writes it before the meeting, and all read it until the next one:
// there are two, alternating, so that an exchange needs a single meeting.
static front *window_of(const pl_comm *c, unsigned turn, int rank) {
    return (front *)(shared_of(c)->window + ((size_t)(turn % TURNS) * (size_t)c->ranks + (size_t)rank) * WINDOW);
}

// ---- failures

static void wake_all(shared *s) {
    syscall(SYS_futex, &s->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void report_failure(pl_comm *c, int who, pl_status status, const char *why) {
    if (pl_comm_failure_set(&shared_of(c)->failure, who, status, why)) wake_all(shared_of(c));
}

static void fail(pl_comm *c, const pl_err *why) {
    report_failure(c, c->rank, why->status, why->msg);
}

static double silence = PL_COMM_SILENCE;

void pl_comm_limit_silence(double seconds) {
    silence = seconds;
}

// Fails rank r if it has been stopped for longer than a joined rank may be silent, or if rank 0 is to stop. (A
// terminal's stop also stops rank 0, and ends when rank 0 continues.)
static void judge_stopped(pl_comm *c, int r) {
    const forked *f = c->link;
    char          why[120];
    double        since = f->stopped[r];
    if (since == 0 || (pl_now() - since <= silence && !pl_stop_requested())) return;
    snprintf(why, sizeof why, "process %d has been stopped for %.0f s (kill -CONT lets it go on)", f->pid[r],
             pl_now() - since);
    report_failure(c, r, PL_E_IO, why);
}

// Reports children that have ended: one that fails reports its failure first, and one that is done is reaped by
// pl_comm_close. In a meeting of turn `turn` (NULL: in none) a child may arrive, finish and end between the check of
// the turn and the check of the child: once the turn is over, an end is reported by the next meeting.
static void look_after(pl_comm *c, const unsigned *turn) {
    forked *f = c->link;
    int    *child = f->pid;
    for (int r = 1; r < c->ranks && c->rank == 0; r++) {
        char why[200];
        int  how = 0;
        if (child[r] == 0 && f->left[r]) report_failure(c, r, PL_E_IO, "its process ended");
        if (child[r] == 0) continue;
        pid_t got = waitpid(child[r], &how, WNOHANG | WUNTRACED | WCONTINUED);
        if (got > 0 && (WIFSTOPPED(how) || WIFCONTINUED(how))) {
            f->stopped[r] = WIFSTOPPED(how) ? pl_now() : 0;
            got = 0;
        }
        if (got == 0) judge_stopped(c, r);
        if (got == 0 || (got < 0 && errno == EINTR)) continue;
        f->left[r] = turn && atomic_load(&f->shared->turn) != *turn;
        if (f->left[r]) child[r] = 0;
        if (f->left[r]) continue;
        if (got > 0 && WIFSIGNALED(how))
            snprintf(why, sizeof why, "process %d was ended by signal %d, %s%s", child[r], WTERMSIG(how),
                     strsignal(WTERMSIG(how)),
                     WTERMSIG(how) == SIGKILL ? " (if memory ran out: fewer ranks or smaller slots)" : "");
        else
            snprintf(why, sizeof why, "process %d ended", child[r]);
        child[r] = 0;
        report_failure(c, r, PL_E_IO, why);
    }
    // The kernel sends pl_comm_fork's signal; this check is for a parent that ended before the signal was requested.
    if (c->rank > 0 && getppid() != child[0]) report_failure(c, 0, PL_E_IO, "ended");
}

static pl_status check_in(pl_comm *c, const unsigned *turn, pl_err *err) {
    if (!pl_comm_failed(&shared_of(c)->failure)) look_after(c, turn);
    return pl_comm_failed(&shared_of(c)->failure) ? pl_comm_failure_told(c, &shared_of(c)->failure, err) : PL_OK;
}

static pl_status check(pl_comm *c, pl_err *err) {
    return check_in(c, NULL, err);
}

// ---- meeting

// Waits until the turn ends or a rank has failed.
static pl_status wait_turn(pl_comm *c, unsigned turn, pl_err *err) {
    shared *s = shared_of(c);
    double  until = pl_now() + SPIN;
    while (atomic_load_explicit(&s->turn, memory_order_acquire) == turn)
        if (pl_now() > until) break;
    struct timespec look = {.tv_nsec = (long)(LOOK * 1e9)};
    while (atomic_load(&s->turn) == turn) {
        PL_TRY(check_in(c, &turn, err));
        syscall(SYS_futex, &s->turn, FUTEX_WAIT, turn, &look, NULL, 0);
    }
    return PL_OK;
}

static pl_status meet_ranks(pl_comm *c, int what, pl_err *err) {
    shared *s = shared_of(c);
    if (c->broken || pl_comm_failed(&s->failure)) return pl_comm_failure_told(c, &s->failure, err);
    unsigned turn = c->turn++;
    int     *here = s->what[turn % TURNS];
    here[c->rank] = what;
    if (atomic_fetch_add(&s->arrived, 1) + 1 == c->ranks) {
        atomic_store(&s->arrived, 0);
        atomic_store(&s->turn, turn + 1);
        wake_all(s);
    } else {
        PL_TRY(wait_turn(c, turn, err));
    }
    for (int r = 0; r < c->ranks; r++)
        PL_CHECK(here[r] == what, "rank %d met rank %d for %d, which came for %d", c->rank, r, what, here[r]);
    return PL_OK;
}

static pl_status swap(pl_comm *c, int what, const pl_comm_swap *s, pl_err *err) {
    front      *mine = window_of(c, c->turn, c->rank);
    size_t      at = 0, last_bytes = 0;
    const void *last = NULL;
    for (int i = 0; i < c->ranks; i++) {
        if (s->out_bytes[i] == 0) continue;
        bool again = last == s->out[i] && last_bytes == s->out_bytes[i]; // bytes for several ranks are written once
        if (again) at -= s->out_bytes[i];
        PL_CHECK(at + s->out_bytes[i] <= PL_COMM_ROUND, "a round of %zu bytes", at + s->out_bytes[i]);
        mine->at[i] = at;
        if (!again) memcpy((uint8_t *)(mine + 1) + at, s->out[i], s->out_bytes[i]);
        at += s->out_bytes[i];
        last = s->out[i];
        last_bytes = s->out_bytes[i];
    }
    PL_TRY(meet_ranks(c, what, err));
    for (int i = 0; i < c->ranks; i++) {
        const front *theirs = window_of(c, c->turn - 1, i);
        if (s->in_bytes[i]) memcpy(s->in[i], (const uint8_t *)(theirs + 1) + theirs->at[c->rank], s->in_bytes[i]);
    }
    return PL_OK;
}

// ---- starting and ending

static void become_rank(pl_comm *c, int rank, int parent) {
    forked *f = c->link;
    c->rank = c->local = rank;
    memset(f->pid, 0, sizeof f->pid);
    f->pid[0] = parent;
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); // the parent ended before the signal was requested
}

static void kill_all(pl_comm *c) {
    int *child = ((forked *)c->link)->pid;
    for (int r = 1; r < c->ranks; r++) {
        if (child[r] == 0) continue;
        kill(child[r], SIGKILL);
        while (waitpid(child[r], NULL, 0) < 0 && errno == EINTR)
            ;
        child[r] = 0;
    }
}

static void drop_group(pl_comm *c) {
    forked *f = c->link;
    if (f && f->shared) munmap(f->shared, f->shared_bytes);
    pl_free(f);
    c->link = NULL;
}

// Waits up to `seconds` for children that end by themselves.
static void await_children(pl_comm *c, double seconds) {
    int   *child = ((forked *)c->link)->pid;
    double until = pl_now() + seconds;
    for (int r = 1; r < c->ranks; r++)
        while (child[r]) {
            pid_t got = waitpid(child[r], NULL, WNOHANG);
            if (got > 0 || (got < 0 && errno != EINTR)) child[r] = 0;
            if (got == 0 && pl_now() > until) return;
            if (got == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
}

static void close_forked(pl_comm *c) {
    if (c->rank == 0) {
        if (!pl_comm_failed(&shared_of(c)->failure)) await_children(c, END);
        kill_all(c); // they write no files that a kill could damage
    }
    drop_group(c);
}

const pl_group pl_group_forked = {
    .name = "shared memory", .swap = swap, .check = check, .fail = fail, .close = close_forked};

static pl_status share_memory(pl_comm *c, pl_err *err) {
    forked *f = c->link = pl_calloc(1, sizeof *f);
    if (!f) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    f->shared_bytes = sizeof(shared) + (size_t)TURNS * (size_t)c->ranks * WINDOW;
    void *p = mmap(NULL, f->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return pl_fail(err, PL_E_MEMORY, "ranks: no shared memory for %d of them", c->ranks);
    c->beside = true;
    f->shared = p; // zeroed: no turn, no failure
    return PL_OK;
}

static pl_status start_children(pl_comm *c, pl_err *err) {
    forked *f = c->link;
    int     parent = (int)getpid();
    fflush(NULL); // unflushed buffers would be written once per rank
    for (int r = 1; r < c->ranks; r++) {
        pid_t pid = fork();
        if (pid == 0) {
            become_rank(c, r, parent);
            return PL_OK;
        }
        if (pid < 0) {
            pl_status st = pl_fail_errno(err, "ranks: cannot start number %d of %d (ask for fewer)", r + 1, c->ranks);
            kill_all(c);
            return st;
        }
        f->pid[r] = (int)pid;
    }
    return PL_OK;
}

pl_status pl_comm_fork(pl_comm **out, int ranks, pl_err *err) {
    *out = NULL;
    pl_comm *c = pl_comm_new(&pl_group_forked, 0, ranks);
    if (!c) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    pl_status st = share_memory(c, err);
    if (st == PL_OK) st = start_children(c, err);
    if (st == PL_OK) {
        *out = c;
        return PL_OK;
    }
    drop_group(c);
    pl_free(c);
    return st;
}
