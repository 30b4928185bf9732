// Ranks over TCP: processes that something else started, on one machine or many.
//
// Two nets. Pieces and words go between each two ranks; beside them a star around rank 0 carries signs of life
// (kernels/comm/signs.h).
#define _GNU_SOURCE 1
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/comm/impl.h"
#include "kernels/comm/net.h"
#include "kernels/comm/signs.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAGIC = 0x706c6331, IDENTITY = 256, WHY = sizeof(((pl_err *)NULL)->msg) };
enum { FOR_SIGNS, FOR_DATA }; // what a connection is for

// Seconds: for a stranger's first words, for a last word to who is refused; of waiting between looks for a failure.
static const double STRANGER = 5, LAST = 2, LOOK = 2;

typedef struct hello {
    uint32_t magic, kind, rank, ranks, port;
    char     host[PL_HOST_BYTES], identity[IDENTITY];
} hello;

typedef struct answer { // rank 0's to a hello, once all are here; `ranks` entries follow where all is well
    uint32_t magic, status;
    char     why[WHY];
} answer;

typedef struct entry {
    pl_net_address at;
    char           host[PL_HOST_BYTES];
} entry;

// Before what goes to each rank in a meeting.
typedef struct head {
    uint32_t magic, what, turn, rank;
    uint64_t bytes;
} head;

typedef struct peer {
    int    data; // socket; -1: none
    // of the meeting
    head   mine, theirs;
    size_t sent, taken; // heads included
} peer;

typedef struct tcp {
    peer     *peer; // [ranks]
    pl_signs *signs;
} tcp;

// ---- failures

static pl_status check(pl_comm *c, pl_err *err) {
    return pl_signs_check(((tcp *)c->link)->signs, c, err);
}

static void fail(pl_comm *c, const pl_err *why) {
    pl_signs_tell(((tcp *)c->link)->signs, c->rank, why->status, why->msg);
}

// ---- meeting

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
        if (!push(p, s->out[r]) || !pull(p, s->in[r], s->in_bytes[r])) return pl_signs_lost(t->signs, c, r, NULL, err);
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
        fd[open] = (struct pollfd){.fd = pl_signs_wake(t->signs), .events = POLLIN};
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
    pl_signs_own_host(h.host);
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
            h->host[PL_HOST_BYTES - 1] = h->identity[IDENTITY - 1] = 0;
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
    if (h->rank == 0 || h->rank >= own->ranks || pl_signs_connection(t->signs, (int)h->rank) >= 0)
        return pl_fail(err, PL_E_USAGE, "ranks: two processes are number %u of %u: one of %s and one of %s", h->rank,
                       h->ranks, pl_signs_host(t->signs, (int)(h->rank % own->ranks)), h->host);
    if (strcmp(h->identity, own->identity) != 0)
        return pl_fail(err, PL_E_USAGE, "ranks: number %u of %s is %s, number 0 of %s is %s", h->rank, h->host,
                       h->identity, own->host, own->identity);
    return PL_OK;
}

static pl_status say_missing(const pl_comm *c, const char *address, double patience, pl_err *err) {
    const tcp *t = c->link;
    char       list[128] = "";
    size_t     used = 0;
    for (int r = 1; r < c->ranks; r++)
        if (pl_signs_connection(t->signs, r) < 0 && used < sizeof list - 16)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", r);
    return pl_fail(err, PL_E_IO, "ranks: number %s of %d did not come to %s within %.0f s", list, c->ranks, address,
                   patience);
}

// Rank 0's answer to all that have come.
static pl_status answer_all(const pl_comm *c, const entry *table, pl_status st, const pl_err *why, double deadline,
                            pl_err *err) {
    const tcp *t = c->link;
    answer     a = {.magic = MAGIC, .status = (uint32_t)st};
    if (st != PL_OK && why) snprintf(a.why, sizeof a.why, "%s", why->msg);
    for (int r = 1; r < c->ranks; r++) {
        int to = pl_signs_connection(t->signs, r);
        if (to < 0) continue;
        pl_status sent = pl_net_send(to, &a, sizeof a, deadline, st == PL_OK ? err : NULL);
        if (sent == PL_OK && st == PL_OK)
            sent = pl_net_send(to, table, (size_t)c->ranks * sizeof *table, deadline, err);
        if (st == PL_OK && sent != PL_OK) return pl_fail_at(err, sent, "ranks: number %d", r);
    }
    return PL_OK;
}

// Forgets those that came and have ended: another process may come in their place. How many ranks are here.
static int drop_ended(const pl_comm *c) {
    const tcp *t = c->link;
    int        here = 1;
    for (int r = 1; r < c->ranks; r++) {
        int fd = pl_signs_connection(t->signs, r);
        if (fd >= 0 && pl_net_is_open(fd)) {
            here++;
        } else if (fd >= 0) {
            close(fd);
            pl_signs_connect(t->signs, r, -1);
        }
    }
    return here;
}

// Rank 0: all come.
static pl_status gather(pl_comm *c, const pl_comm_place *place, entry *table, int listener, double deadline,
                        double patience, pl_err *err) {
    tcp      *t = c->link;
    hello     own = introduce(c, place, FOR_SIGNS, 0);
    pl_err    why = {0};
    pl_status st = PL_OK;
    while (st == PL_OK && drop_ended(c) < c->ranks) {
        hello          h;
        pl_net_address from;
        int            fd;
        st = next_hello(&fd, &h, &from, listener, deadline, &why);
        drop_ended(c); // while this one was awaited
        if (st == PL_OK && fd < 0) st = say_missing(c, place->address, patience, &why);
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
        pl_signs_connect(t->signs, (int)h.rank, fd);
        pl_signs_set_host(t->signs, (int)h.rank, h.host);
        table[h.rank].at = from;
        pl_net_set_port(&table[h.rank].at, (int)h.port);
        memcpy(table[h.rank].host, h.host, PL_HOST_BYTES);
    }
    memcpy(table[0].host, own.host, PL_HOST_BYTES);
    pl_status sent = answer_all(c, table, st, &why, pl_now() + 10, err);
    return st == PL_OK ? sent : pl_fail(err, st, "%s", why.msg);
}

// The same port at another address.
static void reach_by(pl_net_address *a, const pl_net_address *by) {
    int port = pl_net_port(a);
    *a = *by;
    pl_net_set_port(a, port);
}

// The others: to rank 0, and what it says of all.
static pl_status report(pl_comm *c, const pl_comm_place *place, entry *table, const pl_net_address *first, int port,
                        double deadline, pl_err *err) {
    tcp   *t = c->link;
    hello  own = introduce(c, place, FOR_SIGNS, port);
    answer a;
    int    fd;
    PL_TRY(pl_net_connect(&fd, first, deadline, err));
    pl_signs_connect(t->signs, 0, fd);
    pl_status st = pl_net_send(fd, &own, sizeof own, deadline, err);
    if (st == PL_OK) st = pl_net_take(fd, &a, sizeof a, deadline + 15, err); // it names who is missing
    if (st == PL_OK && a.magic != MAGIC) st = pl_fail(err, PL_E_IO, "what answers there is no rank 0");
    if (st == PL_OK && a.status != PL_OK) {
        a.why[WHY - 1] = 0;
        return pl_fail(err, a.status <= PL_E_INTERNAL ? (pl_status)a.status : PL_E_IO, "%s", a.why);
    }
    if (st == PL_OK) st = pl_net_take(fd, table, (size_t)c->ranks * sizeof *table, deadline + 15, err);
    if (st != PL_OK) return pl_fail_at(err, st, "ranks: number 0 at %s", place->address);
    table[0].at = *first;
    for (int r = 0; r < c->ranks; r++) {
        bool home = r > 0 && pl_net_is_loopback(&table[r].at); // it is of rank 0's host, and was seen from there
        if (home) reach_by(&table[r].at, first);
        table[r].host[PL_HOST_BYTES - 1] = 0;
        pl_signs_set_host(t->signs, r, table[r].host);
    }
    return PL_OK;
}

// One of those below, unless somebody fails meanwhile.
static pl_status connect_one(pl_comm *c, int *fd, const pl_net_address *at, double deadline, pl_err *err) {
    for (;;) {
        double    until = pl_now() + LOOK < deadline ? pl_now() + LOOK : deadline;
        pl_status st = pl_net_connect(fd, at, until, err);
        if (st == PL_OK || until >= deadline || pl_now() < until) return st;
        PL_TRY(check(c, err));
    }
}

// Each with each: to those below, from those above.
static pl_status connect_all(pl_comm *c, const pl_comm_place *place, const entry *table, int listener, double deadline,
                             pl_err *err) {
    tcp  *t = c->link;
    hello own = introduce(c, place, FOR_DATA, 0);
    for (int r = 0; r < c->rank; r++) {
        pl_status st = connect_one(c, &t->peer[r].data, &table[r].at, deadline, err);
        if (st == PL_OK) st = pl_net_send(t->peer[r].data, &own, sizeof own, deadline, err);
        if (st != PL_OK && c->broken) return st;
        if (st != PL_OK) return pl_fail_at(err, st, "ranks: number %d of %s", r, table[r].host);
    }
    deadline += 2 * LOOK; // who connects in vain knows why, and tells it first
    for (int left = c->ranks - c->rank - 1; left > 0;) {
        hello          h;
        pl_net_address from;
        int            fd;
        PL_TRY(check(c, err));
        PL_TRY(next_hello(&fd, &h, &from, listener, pl_now() + LOOK, err));
        if (fd < 0 && pl_now() < deadline) continue;
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
        st = c->rank == 0 ? gather(c, place, table, listener, deadline, patience, err)
                          : report(c, place, table, &first, pl_net_port(&own), deadline, err);
    if (st == PL_OK) st = pl_signs_start(((tcp *)c->link)->signs, err);
    if (st == PL_OK) {
        pl_err why = {0};
        st = connect_all(c, place, table, listener, pl_now() + patience, &why);
        if (st != PL_OK) fail(c, &why); // the others hear it instead of waiting
        if (st != PL_OK && err) *err = why;
    }
    if (listener >= 0) close(listener);
    pl_free(table);
    return st;
}

static pl_status make(pl_comm *c, const pl_comm_place *place, pl_err *err) {
    tcp *t = c->link = pl_calloc(1, sizeof *t);
    if (t) t->peer = pl_calloc((size_t)c->ranks, sizeof *t->peer);
    if (!t || !t->peer) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    for (int r = 0; r < c->ranks; r++)
        t->peer[r].data = -1;
    return pl_signs_create(&t->signs, c->rank, c->ranks, place->silence, err);
}

static void close_tcp(pl_comm *c) {
    tcp *t = c->link;
    if (!t) return;
    pl_signs_close(t->signs);
    for (int r = 0; t->peer && r < c->ranks; r++)
        if (t->peer[r].data >= 0) close(t->peer[r].data);
    pl_free(t->peer);
    pl_free(t);
    c->link = NULL;
}

static pl_status join(pl_comm *c, const pl_comm_place *place, pl_err *err) {
    const tcp *t;
    PL_TRY(make(c, place, err));
    t = c->link;
    if (c->ranks > 1) PL_TRY(come_together(c, place, err));
    c->neighbours = pl_signs_neighbours(t->signs);
    c->beside = true;
    return PL_OK;
}

const pl_group pl_group_tcp = {
    .name = "TCP", .join = join, .swap = swap, .check = check, .fail = fail, .close = close_tcp};
