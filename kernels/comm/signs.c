#define _GNU_SOURCE 1
#include "kernels/comm/signs.h"

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/comm/net.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WHY = sizeof(((pl_err *)NULL)->msg) };

// Seconds: between signs, after which a gap in this process's own time is noticed, for reading the last signs at the
// end.
static const double BEAT = 1, LOST = 5, LAST = 2;

enum { SIGN_BEAT, SIGN_FAILED, SIGN_GONE };
typedef struct sign {
    int32_t kind, who, status, n; // n bytes of text follow
} sign;

typedef struct peer {
    int         fd; // -1: none
    char        host[PL_HOST_BYTES];
    double      heard; // time of its last sign
    atomic_bool gone;  // it has announced its end, or is lost
    double      since; // pl_now() at that time; set before gone is
    uint8_t     in[sizeof(sign) + WHY];
    size_t      n_in;
} peer;

struct pl_signs {
    int             rank, ranks;
    peer           *peer; // [ranks]
    double          silence;
    pthread_t       watcher;
    bool            watched;
    int             wake[2], end[2]; // pipes: to the meeting, on a failure; to the watcher
    pthread_mutex_t sending;
    pl_comm_failure failure;
};

static void sleep_for(double seconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

// ---- failures

// Sends a sign; ignores failures: the reader is dead, or notices the silence.
static void send_sign(pl_signs *s, int to, const sign *what, const char *text) {
    peer *p = &s->peer[to];
    if (p->fd < 0 || p->gone) return;
    double  deadline = pl_now() + 0.2;
    uint8_t both[sizeof *what + WHY];
    memcpy(both, what, sizeof *what);
    if (what->n) memcpy(both + sizeof *what, text, (size_t)what->n);
    pthread_mutex_lock(&s->sending);
    if (pl_net_send(p->fd, both, sizeof *what + (size_t)what->n, deadline, NULL) != PL_OK) shutdown(p->fd, SHUT_WR);
    pthread_mutex_unlock(&s->sending);
}

// Sends a sign to all ranks that this one is connected with.
static void send_signs(pl_signs *s, const sign *what, const char *text) {
    for (int r = 0; r < s->ranks; r++)
        if (r != s->rank) send_sign(s, r, what, text);
}

void pl_signs_tell(pl_signs *s, int who, pl_status status, const char *why) {
    if (!pl_comm_failure_set(&s->failure, who, status, why)) return;
    (void)!write(s->wake[1], "", 1);
    sign what = {.kind = SIGN_FAILED, .who = who, .status = (int32_t)status, .n = (int32_t)strlen(s->failure.why)};
    send_signs(s, &what, s->failure.why);
}

static void tell_broken(pl_signs *s, int who) {
    char why[WHY];
    snprintf(why, sizeof why, "its process on %s ended or its connection broke", s->peer[who].host);
    pl_signs_tell(s, who, PL_E_IO, why);
}

int pl_signs_wake(const pl_signs *s) {
    return s->wake[0];
}

pl_status pl_signs_check(pl_signs *s, pl_comm *c, pl_err *err) {
    return pl_comm_failed(&s->failure) ? pl_comm_failure_told(c, &s->failure, err) : PL_OK;
}

pl_status pl_signs_lost(pl_signs *s, pl_comm *c, int who, const char *why, pl_err *err) {
    double until = pl_now() + LAST;
    while (!pl_comm_failed(&s->failure) && pl_now() < until)
        sleep_for(1e-2);
    if (why)
        pl_signs_tell(s, who, PL_E_IO, why);
    else
        tell_broken(s, who);
    return pl_comm_failure_told(c, &s->failure, err);
}

bool pl_signs_left(const pl_signs *s, int rank) {
    const peer *p = &s->peer[rank];
    return p->gone && p->since > 0 && pl_now() - p->since > s->silence;
}

// ---- the watcher

// Reads the complete signs.
static void read_signs(pl_signs *s, int from) {
    peer  *p = &s->peer[from];
    size_t at = 0;
    for (;;) {
        sign what;
        if (p->n_in - at < sizeof what) break;
        memcpy(&what, p->in + at, sizeof what);
        if (what.n < 0 || what.n >= WHY || what.kind < SIGN_BEAT || what.kind > SIGN_GONE || what.who < 0 ||
            what.who >= s->ranks) {
            pl_signs_tell(s, from, PL_E_IO, "it sends what no rank would");
            p->gone = true;
            return;
        }
        if (p->n_in - at - sizeof what < (size_t)what.n) break;
        if (what.kind == SIGN_GONE) {
            p->since = pl_now();
            p->gone = true;
        }
        if (what.kind == SIGN_FAILED) {
            char why[WHY] = "";
            bool known = what.status > PL_OK && what.status <= PL_E_INTERNAL;
            memcpy(why, p->in + at + sizeof what, (size_t)what.n);
            pl_signs_tell(s, what.who, known ? (pl_status)what.status : PL_E_IO, why);
        }
        at += sizeof what + (size_t)what.n;
    }
    memmove(p->in, p->in + at, p->n_in - at);
    p->n_in -= at;
}

static void read_peer(pl_signs *s, int from, double now) {
    peer   *p = &s->peer[from];
    ssize_t n = recv(p->fd, p->in + p->n_in, sizeof p->in - p->n_in, 0);
    if (n > 0) {
        p->heard = now;
        p->n_in += (size_t)n;
        read_signs(s, from);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (!p->gone) tell_broken(s, from);
        p->gone = true;
    }
}

static void judge_silence(pl_signs *s, double now) {
    char why[WHY];
    for (int r = 0; r < s->ranks; r++) {
        peer *p = &s->peer[r];
        if (p->fd < 0 || p->gone || now - p->heard <= s->silence) continue;
        snprintf(why, sizeof why, "no sign of life from %s for %.0f s: stopped, or cut off", p->host, now - p->heard);
        pl_signs_tell(s, r, PL_E_IO, why);
        p->gone = true;
    }
}

static void *watch_peers(void *arg) {
    pl_signs *s = arg;
    double    last = pl_now(), beat = last;
    for (;;) {
        struct pollfd fd[PL_RANKS_MAX + 1] = {{.fd = s->end[0], .events = POLLIN}};
        int           who[PL_RANKS_MAX + 1], n = 1;
        for (int r = 0; r < s->ranks; r++)
            if (s->peer[r].fd >= 0 && !s->peer[r].gone) {
                who[n] = r;
                fd[n++] = (struct pollfd){.fd = s->peer[r].fd, .events = POLLIN};
            }
        double left = beat - pl_now();
        if (poll(fd, (nfds_t)n, left > 0 ? (int)(left * 1e3) + 1 : 0) < 0 && errno != EINTR) sleep_for(0.1);
        double now = pl_now();
        for (int r = 0; r < s->ranks && now - last > LOST; r++)
            s->peer[r].heard = now; // this process itself was suspended
        last = now;
        if (fd[0].revents) return NULL;
        for (int i = 1; i < n; i++)
            if (fd[i].revents) read_peer(s, who[i], now);
        if (now < beat) continue;
        beat = now + BEAT;
        send_signs(s, &(sign){.kind = SIGN_BEAT}, NULL);
        judge_silence(s, now);
    }
}

pl_status pl_signs_start(pl_signs *s, pl_err *err) {
    sigset_t all, before;
    double   now = pl_now();
    for (int r = 0; r < s->ranks; r++)
        s->peer[r].heard = now;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // signals are handled by other threads
    int r = pthread_create(&s->watcher, NULL, watch_peers, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) return pl_fail(err, PL_E_MEMORY, "ranks: no thread for signs of life: %s", strerror(r));
    s->watched = true;
    return PL_OK;
}

// ---- presence

void pl_signs_connect(pl_signs *s, int rank, int fd) {
    s->peer[rank].fd = fd;
}

int pl_signs_connection(const pl_signs *s, int rank) {
    return s->peer[rank].fd;
}

void pl_signs_set_host(pl_signs *s, int rank, const char *host) {
    snprintf(s->peer[rank].host, PL_HOST_BYTES, "%s", host);
}

const char *pl_signs_host(const pl_signs *s, int rank) {
    return s->peer[rank].host;
}

void pl_signs_own_host(char host[PL_HOST_BYTES]) {
    memset(host, 0, PL_HOST_BYTES);
    if (gethostname(host, PL_HOST_BYTES - 1) != 0) snprintf(host, PL_HOST_BYTES, "an unnamed host");
}

int pl_signs_neighbours(const pl_signs *s) {
    int n = 0;
    for (int r = 0; r < s->ranks; r++)
        n += strcmp(s->peer[r].host, s->peer[s->rank].host) == 0;
    return n;
}

// ---- beginning and ending

pl_status pl_signs_create(pl_signs **out, int rank, int ranks, double silence, pl_err *err) {
    pl_signs *s = *out = pl_calloc(1, sizeof *s);
    if (s) s->peer = pl_calloc((size_t)ranks, sizeof *s->peer);
    if (!s || !s->peer) {
        pl_free(s);
        *out = NULL;
        return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    }
    s->rank = rank;
    s->ranks = ranks;
    s->silence = silence > 0 ? silence : PL_COMM_SILENCE;
    s->wake[0] = s->wake[1] = s->end[0] = s->end[1] = -1;
    for (int r = 0; r < ranks; r++)
        s->peer[r].fd = -1;
    pl_signs_own_host(s->peer[rank].host);
    pthread_mutex_init(&s->sending, NULL);
    if (pipe2(s->wake, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(s->end, O_CLOEXEC | O_NONBLOCK) == 0) return PL_OK;
    pl_status st = pl_fail_errno(err, "ranks: a pipe");
    pl_signs_close(s);
    *out = NULL;
    return st;
}

// Announces the end; later signs to this rank are dropped.
static void say_goodbye(pl_signs *s) {
    double until = pl_now() + LAST;
    char   rest[256];
    if (!pl_comm_failed(&s->failure)) send_signs(s, &(sign){.kind = SIGN_GONE}, NULL);
    for (int r = 0; r < s->ranks; r++)
        if (s->peer[r].fd >= 0) shutdown(s->peer[r].fd, SHUT_WR);
    for (int r = 0; r < s->ranks; r++) // closing with unread signs would discard the last one sent
        while (s->peer[r].fd >= 0 && pl_net_take(s->peer[r].fd, rest, 1, until, NULL) == PL_OK)
            ;
}

void pl_signs_close(pl_signs *s) {
    if (!s) return;
    if (s->watched) {
        (void)!write(s->end[1], "", 1);
        pthread_join(s->watcher, NULL);
        say_goodbye(s);
    }
    for (int r = 0; r < s->ranks; r++)
        if (s->peer[r].fd >= 0) close(s->peer[r].fd);
    for (int i = 0; i < 2; i++) {
        if (s->wake[i] >= 0) close(s->wake[i]);
        if (s->end[i] >= 0) close(s->end[i]);
    }
    pthread_mutex_destroy(&s->sending);
    pl_free(s->peer);
    pl_free(s);
}
