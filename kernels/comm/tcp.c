// Ranks over TCP: processes that something else started, on one machine or many.
//
// Two nets. Pieces and words go between each two ranks. Beside them a star around rank 0 carries signs: a thread of
// each rank says every second that the process lives, whatever its other threads compute, and whose sign stays away is
// dead. Rank 0 tells all who has failed; the first to fail is the one that is told. A rank whose own clock stood still
// (a suspended machine) hears the others anew before it judges them.
#define _GNU_SOURCE 1
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/comm/impl.h"
#include "kernels/comm/net.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAGIC = 0x706c6331, HOST = 64, IDENTITY = 256, WHY = sizeof(((pl_err *)NULL)->msg) };
enum { FOR_SIGNS, FOR_DATA }; // what a connection is for

// Seconds: between signs, of one's own that were lost, for a stranger's first words, for a last word after an end.
static const double BEAT = 1, LOST = 5, STRANGER = 5, LAST = 2;

typedef struct hello {
    uint32_t magic, kind, rank, ranks, port;
    char     host[HOST], identity[IDENTITY];
} hello;

typedef struct answer { // rank 0's to a hello, once all are here; `ranks` entries follow where all is well
    uint32_t magic, status;
    char     why[WHY];
} answer;

typedef struct entry {
    pl_net_address at;
    char           host[HOST];
} entry;

enum { SIGN_BEAT, SIGN_FAILED, SIGN_GONE };
typedef struct sign {
    int32_t kind, who, status, n; // n bytes of text follow
} sign;

// Before what goes to each rank in a meeting.
typedef struct head {
    uint32_t magic, what, turn, rank;
    uint64_t bytes;
} head;

typedef struct peer {
    int         data, signs; // sockets; -1: none
    char        host[HOST];
    double      heard; // its last sign
    atomic_bool gone;  // it said that it ends
    uint8_t     in[sizeof(sign) + WHY];
    size_t      n_in;
    // of the meeting
    head        mine, theirs;
    size_t      sent, taken; // heads included
} peer;

typedef struct tcp {
    peer           *peer; // [ranks]
    double          silence;
    pthread_t       watcher;
    bool            watched;
    int             wake[2], end[2]; // pipes: to the meeting, that somebody failed; to the watcher
    pthread_mutex_t sending;         // of signs
    pl_comm_failure failure;
} tcp;

// ---- failures

// A sign that cannot be sent is not missed: its reader is dead, or sees the silence.
static void send_sign(tcp *t, int to, const sign *s, const char *text) {
    peer *p = &t->peer[to];
    if (p->signs < 0 || p->gone) return;
    double  deadline = pl_now() + 0.2;
    uint8_t both[sizeof *s + WHY];
    memcpy(both, s, sizeof *s);
    if (s->n) memcpy(both + sizeof *s, text, (size_t)s->n);
    pthread_mutex_lock(&t->sending);
    if (pl_net_send(p->signs, both, sizeof *s + (size_t)s->n, deadline, NULL) != PL_OK) shutdown(p->signs, SHUT_WR);
    pthread_mutex_unlock(&t->sending);
}

// All of those that a sign of this rank's reaches.
static void send_signs(const pl_comm *c, const sign *s, const char *text) {
    if (c->rank > 0)
        send_sign(c->link, 0, s, text);
    else
        for (int r = 1; r < c->ranks; r++)
            send_sign(c->link, r, s, text);
}

static void tell(pl_comm *c, int who, pl_status status, const char *why) {
    tcp *t = c->link;
    if (!pl_comm_failure_set(&t->failure, who, status, why)) return;
    (void)!write(t->wake[1], "", 1);
    send_signs(
        c, &(sign){.kind = SIGN_FAILED, .who = who, .status = (int32_t)status, .n = (int32_t)strlen(t->failure.why)},
        t->failure.why);
}

static void tell_broken(pl_comm *c, int who) {
    const tcp *t = c->link;
    char       why[WHY];
    snprintf(why, sizeof why, "its process on %s ended or its connection broke", t->peer[who].host);
    tell(c, who, PL_E_IO, why);
}

static void fail(pl_comm *c, const pl_err *why) {
    tell(c, c->rank, why->status, why->msg);
}

static void nap(double seconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static pl_status told(pl_comm *c, pl_err *err) {
    return pl_comm_failure_told(c, &((tcp *)c->link)->failure, err);
}

static pl_status check(pl_comm *c, pl_err *err) {
    tcp *t = c->link;
    return pl_comm_failed(&t->failure) ? told(c, err) : PL_OK;
}

// ---- the watcher

// Signs that have come whole.
static void read_signs(pl_comm *c, int from) {
    tcp   *t = c->link;
    peer  *p = &t->peer[from];
    size_t at = 0;
    for (;;) {
        sign s;
        if (p->n_in - at < sizeof s) break;
        memcpy(&s, p->in + at, sizeof s);
        if (s.n < 0 || s.n >= WHY || s.kind < SIGN_BEAT || s.kind > SIGN_GONE || s.who < 0 || s.who >= c->ranks) {
            tell(c, from, PL_E_IO, "it sends what no rank would");
            p->gone = true;
            return;
        }
        if (p->n_in - at - sizeof s < (size_t)s.n) break;
        if (s.kind == SIGN_GONE) p->gone = true;
        if (s.kind == SIGN_FAILED) {
            char why[WHY] = "";
            memcpy(why, p->in + at + sizeof s, (size_t)s.n);
            tell(c, s.who, s.status > PL_OK && s.status <= PL_E_INTERNAL ? (pl_status)s.status : PL_E_IO, why);
        }
        at += sizeof s + (size_t)s.n;
    }
    memmove(p->in, p->in + at, p->n_in - at);
    p->n_in -= at;
}

static void hear(pl_comm *c, int from, double now) {
    tcp    *t = c->link;
    peer   *p = &t->peer[from];
    ssize_t n = recv(p->signs, p->in + p->n_in, sizeof p->in - p->n_in, 0);
    if (n > 0) {
        p->heard = now;
        p->n_in += (size_t)n;
        read_signs(c, from);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (!p->gone) tell_broken(c, from);
        p->gone = true;
    }
}

static void judge(pl_comm *c, double now) {
    tcp *t = c->link;
    char why[WHY];
    for (int r = 0; r < c->ranks; r++) {
        peer *p = &t->peer[r];
        if (p->signs < 0 || p->gone || now - p->heard <= t->silence) continue;
        snprintf(why, sizeof why, "no sign of life from %s for %.0f s: stopped, or cut off", p->host, now - p->heard);
        tell(c, r, PL_E_IO, why);
        p->gone = true;
    }
}

static void *watch(void *arg) {
    pl_comm *c = arg;
    tcp     *t = c->link;
    double   last = pl_now(), beat = last;
    for (;;) {
        struct pollfd fd[PL_RANKS_MAX + 1] = {{.fd = t->end[0], .events = POLLIN}};
        int           who[PL_RANKS_MAX + 1], n = 1;
        for (int r = 0; r < c->ranks; r++)
            if (t->peer[r].signs >= 0 && !t->peer[r].gone) {
                who[n] = r;
                fd[n++] = (struct pollfd){.fd = t->peer[r].signs, .events = POLLIN};
            }
        double left = beat - pl_now();
        if (poll(fd, (nfds_t)n, left > 0 ? (int)(left * 1e3) + 1 : 0) < 0 && errno != EINTR) nap(0.1);
        double now = pl_now();
        for (int r = 0; r < c->ranks && now - last > LOST; r++)
            t->peer[r].heard = now; // it was this process that stood still
        last = now;
        if (fd[0].revents) return NULL;
        for (int i = 1; i < n; i++)
            if (fd[i].revents) hear(c, who[i], now);
        if (now < beat) continue;
        beat = now + BEAT;
        send_signs(c, &(sign){.kind = SIGN_BEAT}, NULL);
        judge(c, now);
    }
}

static pl_status start_watching(pl_comm *c, pl_err *err) {
    tcp     *t = c->link;
    sigset_t all, before;
    double   now = pl_now();
    for (int r = 0; r < c->ranks; r++)
        t->peer[r].heard = now;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // signals are the other threads'
    int r = pthread_create(&t->watcher, NULL, watch, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) return pl_fail(err, PL_E_MEMORY, "ranks: no thread for signs of life: %s", strerror(r));
    t->watched = true;
    return PL_OK;
}

// ---- meeting

// Who is cut off in a meeting has failed, but perhaps because of another, of whom a sign is on its way.
static pl_status lost(pl_comm *c, int who, pl_err *err) {
    tcp   *t = c->link;
    double until = pl_now() + LAST;
    while (!pl_comm_failed(&t->failure) && pl_now() < until)
        nap(1e-2);
    tell_broken(c, who);
    return told(c, err);
}

// A step of what goes: false where the connection is broken.
static bool push(peer *p, const void *data) {
    while (p->sent < sizeof p->mine + p->mine.bytes) {
        bool        front = p->sent < sizeof p->mine;
        const char *at = front ? (const char *)&p->mine + p->sent : (const char *)data + (p->sent - sizeof p->mine);
        size_t      left = front ? sizeof p->mine - p->sent : sizeof p->mine + p->mine.bytes - p->sent;
        ssize_t     n = send(p->data, at, left, MSG_NOSIGNAL | (front && p->mine.bytes ? MSG_MORE : 0));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN;
        p->sent += (size_t)n;
    }
    return true;
}

static bool pull(peer *p, void *data, size_t bytes) {
    while (p->taken < sizeof p->theirs + bytes) {
        bool    front = p->taken < sizeof p->theirs;
        char   *at = front ? (char *)&p->theirs + p->taken : (char *)data + (p->taken - sizeof p->theirs);
        size_t  left = front ? sizeof p->theirs - p->taken : sizeof p->theirs + bytes - p->taken;
        ssize_t n = recv(p->data, at, left, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN;
        if (n == 0) return false;
        p->taken += (size_t)n;
        if (front && p->taken == sizeof p->theirs) // checked before its bytes are taken for the right ones
            if (p->theirs.magic != MAGIC || p->theirs.bytes != bytes) return true;
    }
    return true;
}

static bool wrong(const peer *p, int from, size_t bytes) {
    return p->taken >= sizeof p->theirs &&
           (p->theirs.magic != MAGIC || p->theirs.bytes != bytes || p->theirs.what != p->mine.what ||
            p->theirs.turn != p->mine.turn || p->theirs.rank != (uint32_t)from);
}

// One look at every connection; *open: how many are not done, listed in fd.
static pl_status exchange(pl_comm *c, const pl_comm_swap *s, struct pollfd *fd, int *open, pl_err *err) {
    tcp *t = c->link;
    *open = 0;
    for (int r = 0; r < c->ranks; r++) {
        peer *p = &t->peer[r];
        if (r == c->rank) continue;
        if (!push(p, s->out[r]) || !pull(p, s->in[r], s->in_bytes[r])) return lost(c, r, err);
        if (wrong(p, r, s->in_bytes[r]))
            return pl_fail(err, PL_E_INTERNAL,
                           "rank %d, meeting %u for %u of %zu bytes, met rank %d in meeting %u for %u of %llu", c->rank,
                           p->mine.turn, p->mine.what, s->in_bytes[r], r, p->theirs.turn, p->theirs.what,
                           (unsigned long long)p->theirs.bytes);
        bool out = p->sent < sizeof p->mine + p->mine.bytes, in = p->taken < sizeof p->theirs + s->in_bytes[r];
        if (out || in)
            fd[(*open)++] = (struct pollfd){.fd = p->data, .events = (short)((out ? POLLOUT : 0) | (in ? POLLIN : 0))};
    }
    return PL_OK;
}

static pl_status swap(pl_comm *c, int what, const pl_comm_swap *s, pl_err *err) {
    tcp          *t = c->link;
    struct pollfd fd[PL_RANKS_MAX + 1];
    unsigned      turn = c->turn;
    int           open = 1;
    if (c->broken) return told(c, err);
    PL_TRY(check(c, err));
    c->turn++;
    for (int r = 0; r < c->ranks; r++) {
        t->peer[r].mine = (head){
            .magic = MAGIC, .what = (uint32_t)what, .turn = turn, .rank = (uint32_t)c->rank, .bytes = s->out_bytes[r]};
        t->peer[r].sent = t->peer[r].taken = 0;
    }
    for (;;) {
        PL_TRY(exchange(c, s, fd, &open, err));
        if (open == 0) return PL_OK;
        fd[open] = (struct pollfd){.fd = t->wake[0], .events = POLLIN};
        if (poll(fd, (nfds_t)open + 1, -1) < 0 && errno != EINTR) return pl_fail_errno(err, "ranks: waiting");
        PL_TRY(check(c, err));
    }
}

// ---- coming together

static hello introduce(const pl_comm *c, const pl_comm_place *place, int kind, int port) {
    hello h = {.magic = MAGIC,
               .kind = (uint32_t)kind,
               .rank = (uint32_t)c->rank,
               .ranks = (uint32_t)c->ranks,
               .port = (uint32_t)port};
    if (gethostname(h.host, sizeof h.host - 1) != 0) snprintf(h.host, sizeof h.host, "an unnamed host");
    snprintf(h.identity, sizeof h.identity, "%s", place->identity ? place->identity : "");
    return h;
}

// The next process that speaks as ranks do; *fd -1: none before the deadline. Others are let go.
static pl_status next_hello(int *fd, hello *h, pl_net_address *from, int listener, double deadline, pl_err *err) {
    for (;;) {
        PL_TRY(pl_net_accept(fd, from, listener, deadline, err));
        if (*fd < 0) return PL_OK;
        double until = pl_now() + STRANGER;
        if (pl_net_take(*fd, h, sizeof *h, until, NULL) == PL_OK && h->magic == MAGIC && h->kind <= FOR_DATA) {
            h->host[HOST - 1] = h->identity[IDENTITY - 1] = 0;
            return PL_OK;
        }
        close(*fd);
        *fd = -1;
    }
}

// What rank 0 has against a rank that came.
static pl_status judge_hello(const pl_comm *c, const hello *h, const hello *own, pl_err *err) {
    const tcp *t = c->link;
    if (h->ranks != own->ranks)
        return pl_fail(err, PL_E_USAGE, "ranks: the one of %s was started as %u of %u, rank 0 as one of %u", h->host,
                       h->rank, h->ranks, own->ranks);
    if (h->rank == 0 || h->rank >= own->ranks || t->peer[h->rank].signs >= 0)
        return pl_fail(err, PL_E_USAGE, "ranks: two processes are number %u of %u: one of %s and one of %s", h->rank,
                       h->ranks, h->rank == 0 ? own->host : t->peer[h->rank % own->ranks].host, h->host);
    if (strcmp(h->identity, own->identity) != 0)
        return pl_fail(err, PL_E_USAGE, "ranks: number %u of %s is %s, number 0 of %s is %s", h->rank, h->host,
                       h->identity, own->host, own->identity);
    return PL_OK;
}

static pl_status say_missing(const pl_comm *c, const pl_net_address *at, double patience, pl_err *err) {
    const tcp *t = c->link;
    char       list[128] = "", text[80];
    size_t     used = 0;
    for (int r = 1; r < c->ranks; r++)
        if (t->peer[r].signs < 0 && used < sizeof list - 16)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", r);
    pl_net_text(at, text, sizeof text);
    return pl_fail(err, PL_E_IO, "ranks: number %s of %d did not come to %s within %.0f s", list, c->ranks, text,
                   patience);
}

// Rank 0's answer to all that have come.
static pl_status answer_all(const pl_comm *c, const entry *table, pl_status st, const pl_err *why, double deadline,
                            pl_err *err) {
    const tcp *t = c->link;
    answer     a = {.magic = MAGIC, .status = (uint32_t)st};
    if (st != PL_OK && why) snprintf(a.why, sizeof a.why, "%s", why->msg);
    for (int r = 1; r < c->ranks; r++) {
        if (t->peer[r].signs < 0) continue;
        pl_status sent = pl_net_send(t->peer[r].signs, &a, sizeof a, deadline, st == PL_OK ? err : NULL);
        if (sent == PL_OK && st == PL_OK)
            sent = pl_net_send(t->peer[r].signs, table, (size_t)c->ranks * sizeof *table, deadline, err);
        if (st == PL_OK && sent != PL_OK) return pl_fail_at(err, sent, "ranks: number %d", r);
    }
    return PL_OK;
}

// Rank 0: all come.
static pl_status gather(pl_comm *c, const pl_comm_place *place, entry *table, int listener, const pl_net_address *at,
                        double deadline, double patience, pl_err *err) {
    tcp      *t = c->link;
    hello     own = introduce(c, place, FOR_SIGNS, 0);
    pl_err    why = {0};
    pl_status st = PL_OK;
    for (int here = 1; here < c->ranks && st == PL_OK; here++) {
        hello          h;
        pl_net_address from;
        int            fd;
        st = next_hello(&fd, &h, &from, listener, deadline, &why);
        if (st == PL_OK && fd < 0) st = say_missing(c, at, patience, &why);
        if (st != PL_OK) break;
        st = h.kind == FOR_SIGNS ? judge_hello(c, &h, &own, &why)
                                 : pl_fail(&why, PL_E_IO, "ranks: %s is of another run", h.host);
        if (st != PL_OK) { // who is refused hears why
            answer a = {.magic = MAGIC, .status = (uint32_t)st};
            snprintf(a.why, sizeof a.why, "%s", why.msg);
            pl_net_send(fd, &a, sizeof a, pl_now() + LAST, NULL);
            close(fd);
            break;
        }
        t->peer[h.rank].signs = fd;
        memcpy(t->peer[h.rank].host, h.host, HOST);
        table[h.rank].at = from;
        pl_net_set_port(&table[h.rank].at, (int)h.port);
        memcpy(table[h.rank].host, h.host, HOST);
    }
    memcpy(table[0].host, own.host, HOST);
    pl_status sent = answer_all(c, table, st, &why, pl_now() + 10, err);
    return st == PL_OK ? sent : pl_fail(err, st, "%s", why.msg);
}

// The others: to rank 0, and what it says of all.
static pl_status report(pl_comm *c, const pl_comm_place *place, entry *table, const pl_net_address *first, int port,
                        double deadline, pl_err *err) {
    tcp   *t = c->link;
    hello  own = introduce(c, place, FOR_SIGNS, port);
    answer a;
    PL_TRY(pl_net_connect(&t->peer[0].signs, first, deadline, err));
    pl_status st = pl_net_send(t->peer[0].signs, &own, sizeof own, deadline, err);
    if (st == PL_OK) st = pl_net_take(t->peer[0].signs, &a, sizeof a, deadline + 15, err); // it names who is missing
    if (st == PL_OK && a.magic != MAGIC) st = pl_fail(err, PL_E_IO, "what answers there is no rank 0");
    if (st == PL_OK && a.status != PL_OK) {
        a.why[WHY - 1] = 0;
        return pl_fail(err, a.status <= PL_E_INTERNAL ? (pl_status)a.status : PL_E_IO, "%s", a.why);
    }
    if (st == PL_OK) st = pl_net_take(t->peer[0].signs, table, (size_t)c->ranks * sizeof *table, deadline + 15, err);
    if (st != PL_OK) return pl_fail_at(err, st, "ranks: number 0 at %s", place->address);
    table[0].at = *first;
    for (int r = 0; r < c->ranks; r++) {
        table[r].host[HOST - 1] = 0;
        memcpy(t->peer[r].host, table[r].host, HOST);
    }
    return PL_OK;
}

// Each with each: to those below, from those above.
static pl_status connect_all(pl_comm *c, const pl_comm_place *place, const entry *table, int listener, double deadline,
                             pl_err *err) {
    tcp  *t = c->link;
    hello own = introduce(c, place, FOR_DATA, 0);
    for (int r = 0; r < c->rank; r++) {
        pl_status st = pl_net_connect(&t->peer[r].data, &table[r].at, deadline, err);
        if (st == PL_OK) st = pl_net_send(t->peer[r].data, &own, sizeof own, deadline, err);
        if (st != PL_OK) return pl_fail_at(err, st, "ranks: number %d of %s", r, table[r].host);
    }
    for (int left = c->ranks - c->rank - 1; left > 0;) {
        hello          h;
        pl_net_address from;
        int            fd;
        PL_TRY(next_hello(&fd, &h, &from, listener, deadline, err));
        if (fd < 0) return pl_fail(err, PL_E_IO, "ranks: %d of %d did not connect in time", left, c->ranks);
        bool known = h.kind == FOR_DATA && h.ranks == own.ranks && (int)h.rank > c->rank && h.rank < h.ranks;
        if (!known || t->peer[h.rank].data >= 0 || strcmp(h.identity, own.identity) != 0) {
            close(fd); // of another run
            continue;
        }
        t->peer[h.rank].data = fd;
        left--;
    }
    return PL_OK;
}

static pl_status come_together(pl_comm *c, const pl_comm_place *place, pl_err *err) {
    double         patience = place->patience > 0 ? place->patience : PL_COMM_PATIENCE;
    double         deadline = pl_now() + patience;
    int            listener = -1;
    pl_net_address first, own;
    entry         *table = pl_calloc((size_t)c->ranks, sizeof *table);
    if (!table) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    pl_status st = pl_net_find(&first, place->address, c->rank == 0, err);
    if (st == PL_OK) {
        own = first;
        if (c->rank > 0) { // anywhere
            own.at = (struct sockaddr_storage){.ss_family = first.at.ss_family};
            pl_net_set_port(&own, 0);
        }
        st = pl_net_listen(&listener, &own, err);
    }
    if (st == PL_OK)
        st = c->rank == 0 ? gather(c, place, table, listener, &first, deadline, patience, err)
                          : report(c, place, table, &first, pl_net_port(&own), deadline, err);
    if (st == PL_OK) st = connect_all(c, place, table, listener, pl_now() + patience, err);
    if (listener >= 0) close(listener);
    pl_free(table);
    return st;
}

static pl_status make(pl_comm *c, const pl_comm_place *place, pl_err *err) {
    tcp *t = c->link = pl_calloc(1, sizeof *t);
    if (t) t->peer = pl_calloc((size_t)c->ranks, sizeof *t->peer);
    if (!t || !t->peer) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    t->silence = place->silence > 0 ? place->silence : PL_COMM_SILENCE;
    t->wake[0] = t->wake[1] = t->end[0] = t->end[1] = -1;
    for (int r = 0; r < c->ranks; r++)
        t->peer[r].data = t->peer[r].signs = -1;
    pthread_mutex_init(&t->sending, NULL);
    if (pipe2(t->wake, O_CLOEXEC | O_NONBLOCK) != 0 || pipe2(t->end, O_CLOEXEC | O_NONBLOCK) != 0)
        return pl_fail_errno(err, "ranks: a pipe");
    return PL_OK;
}

// ---- ending

// The others hear that this rank ends, unless it failed; who has more to say to it says it in vain.
static void say_goodbye(pl_comm *c) {
    tcp   *t = c->link;
    double until = pl_now() + LAST;
    char   rest[256];
    if (!pl_comm_failed(&t->failure)) send_signs(c, &(sign){.kind = SIGN_GONE}, NULL);
    for (int r = 0; r < c->ranks; r++)
        if (t->peer[r].signs >= 0) shutdown(t->peer[r].signs, SHUT_WR);
    for (int r = 0; r < c->ranks; r++) // a close over unread signs would take the last word with it
        while (t->peer[r].signs >= 0 && pl_net_take(t->peer[r].signs, rest, 1, until, NULL) == PL_OK)
            ;
}

static void close_tcp(pl_comm *c) {
    tcp *t = c->link;
    if (!t) return;
    if (t->watched) {
        (void)!write(t->end[1], "", 1);
        pthread_join(t->watcher, NULL);
        say_goodbye(c);
    }
    for (int r = 0; t->peer && r < c->ranks; r++) {
        if (t->peer[r].data >= 0) close(t->peer[r].data);
        if (t->peer[r].signs >= 0) close(t->peer[r].signs);
    }
    for (int i = 0; i < 2 && t->peer; i++) {
        if (t->wake[i] >= 0) close(t->wake[i]);
        if (t->end[i] >= 0) close(t->end[i]);
    }
    if (t->peer) pthread_mutex_destroy(&t->sending);
    pl_free(t->peer);
    pl_free(t);
    c->link = NULL;
}

const pl_group pl_group_tcp = {.name = "TCP", .swap = swap, .check = check, .fail = fail, .close = close_tcp};

static int count_neighbours(const pl_comm *c) {
    const tcp *t = c->link;
    int        n = 1;
    char       own[HOST] = "";
    if (gethostname(own, sizeof own - 1) != 0) return 1;
    for (int r = 0; r < c->ranks; r++)
        n += r != c->rank && strcmp(t->peer[r].host, own) == 0;
    return n;
}

pl_status pl_comm_join(pl_comm **out, const pl_comm_place *place, pl_err *err) {
    *out = NULL;
    pl_comm *c = pl_comm_new(&pl_group_tcp, place->rank, place->ranks);
    if (!c) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    pl_status st = make(c, place, err);
    if (st == PL_OK && c->ranks > 1) st = come_together(c, place, err);
    if (st == PL_OK && c->ranks > 1) st = start_watching(c, err);
    if (st == PL_OK) {
        c->local = place->local;
        c->neighbours = count_neighbours(c);
        *out = c;
        return PL_OK;
    }
    close_tcp(c);
    pl_free(c);
    return st;
}
