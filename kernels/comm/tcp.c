// Ranks over TCP: separately started processes, on one machine or many.
//
// Two networks: pieces and bytes go between each two ranks; besides, a star around rank 0 carries signs of life
// (kernels/comm/signs.h). Every connection begins with the handshake of kernels/comm/handshake.h. Then, on those of the
// star:
//
//   rank 0 to all   answer      once all are here, or if one disagrees: the status; where to listen
//   all to rank 0   port        that this rank listens at
//   rank 0 to all   answer, table      address of each rank
#define _GNU_SOURCE 1
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/comm/handshake.h"
#include "kernels/comm/impl.h"
#include "kernels/comm/net.h"
#include "kernels/comm/signs.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAGIC = 0x706c6332, WHY = sizeof(((pl_err *)NULL)->msg) };

// Seconds: between checks for a failure; for one try of the handshake; between two tries; for rank 0's answer beyond
// this rank's own patience, as rank 0 may have begun to wait later and names the missing ones; for the rest once all
// ranks are here.
static const double LOOK = 2, TRY = 5, PAUSE = 0.1, LATER = 15, CONNECT = 30;

typedef struct answer {
    uint32_t       magic, status;
    char           why[WHY];
    pl_net_address listen; // family 0: the address by which the rank reaches rank 0
} answer;

typedef struct entry {
    pl_net_address at;
    uint32_t       home; // it reaches rank 0 by a loopback address
    char           host[PL_HOST_BYTES];
} entry;

// Header before a rank's bytes in a meeting.
typedef struct head {
    uint32_t magic, what, turn, rank;
    uint64_t bytes;
} head;

typedef struct peer {
    int    data; // socket; -1: none
    // of the current meeting
    head   mine, theirs;
    size_t sent, taken; // heads included
} peer;

typedef struct tcp {
    peer     *peer; // [ranks]
    pl_signs *signs;
    uint8_t   key[PL_COMM_KEY]; // of the run
} tcp;

// ---- failures

static pl_status check(pl_comm *c, pl_err *err) {
    return pl_signs_check(((tcp *)c->link)->signs, c, err);
}

static void fail(pl_comm *c, const pl_err *why) {
    pl_signs_tell(((tcp *)c->link)->signs, c->rank, why->status, why->msg);
}

// ---- meeting

// Sends as much as possible: false if the connection is broken.
static bool push_bytes(peer *p, const void *data) {
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

static bool pull_bytes(peer *p, void *data, size_t bytes) {
    while (p->taken < sizeof p->theirs + bytes) {
        bool    front = p->taken < sizeof p->theirs;
        char   *at = front ? (char *)&p->theirs + p->taken : (char *)data + (p->taken - sizeof p->theirs);
        size_t  left = front ? sizeof p->theirs - p->taken : sizeof p->theirs + bytes - p->taken;
        ssize_t n = recv(p->data, at, left, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN;
        if (n == 0) return false;
        p->taken += (size_t)n;
        if (front && p->taken == sizeof p->theirs) // checked before its bytes are used
            if (p->theirs.magic != MAGIC || p->theirs.bytes != bytes) return true;
    }
    return true;
}

static bool is_wrong(const peer *p, int from, size_t bytes) {
    return p->taken >= sizeof p->theirs &&
           (p->theirs.magic != MAGIC || p->theirs.bytes != bytes || p->theirs.what != p->mine.what ||
            p->theirs.turn != p->mine.turn || p->theirs.rank != (uint32_t)from);
}

// Serves every connection once; *open: number of unfinished ones, listed in fd.
static pl_status exchange_bytes(pl_comm *c, const pl_comm_swap *s, struct pollfd *fd, int *open, pl_err *err) {
    tcp *t = c->link;
    *open = 0;
    for (int r = 0; r < c->ranks; r++) {
        peer *p = &t->peer[r];
        if (r == c->rank) continue;
        if (!push_bytes(p, s->out[r]) || !pull_bytes(p, s->in[r], s->in_bytes[r]))
            return pl_signs_lost(t->signs, c, r, NULL, err);
        if (is_wrong(p, r, s->in_bytes[r]))
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

// Fails if a rank whose part is missing has left while its connection stays open.
static pl_status look_for_left(pl_comm *c, const pl_comm_swap *s, pl_err *err) {
    const tcp *t = c->link;
    for (int r = 0; r < c->ranks; r++) {
        const peer *p = &t->peer[r];
        bool        waits =
            r != c->rank && (p->sent < sizeof p->mine + p->mine.bytes || p->taken < sizeof p->theirs + s->in_bytes[r]);
        if (waits && pl_signs_left(t->signs, r))
            return pl_signs_lost(t->signs, c, r, "it has left, and its part of a meeting is missing", err);
    }
    return PL_OK;
}

static pl_status swap(pl_comm *c, int what, const pl_comm_swap *s, pl_err *err) {
    enum { LOOK_MS = 1000 }; // between checks for ranks that have left
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
        PL_TRY(exchange_bytes(c, s, fd, &open, err));
        if (open == 0) return PL_OK;
        fd[open] = (struct pollfd){.fd = pl_signs_wake(t->signs), .events = POLLIN};
        if (poll(fd, (nfds_t)open + 1, LOOK_MS) < 0 && errno != EINTR) return pl_fail_errno(err, "ranks: waiting");
        PL_TRY(check(c, err));
        PL_TRY(look_for_left(c, s, err));
    }
}

// ---- coming together: rank 0

// Returns the deadline for the rest once all ranks are here, when only packets are in transfer: the rest of the
// patience, within bounds.
static double end_by(double deadline) {
    double left = deadline - pl_now();
    return pl_now() + (left < TRY ? TRY : left > CONNECT ? CONNECT : left);
}

// A rank's addresses as rank 0 sees them: the ends of its connection for signs of life.
typedef struct seen {
    pl_net_address far, near;
} seen;

// Returns rank 0's objection to a rank that has connected.
static pl_status judge_claim(const pl_comm *c, const pl_claim *h, const pl_claim *own, pl_err *err) {
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

static answer make_answer(pl_status st, const pl_err *why) {
    answer a = {.magic = MAGIC, .status = (uint32_t)st};
    if (st != PL_OK) snprintf(a.why, sizeof a.why, "%s", why->msg);
    return a;
}

// Sends a failure to all connected ranks.
static void refuse_all(const pl_comm *c, pl_status st, const pl_err *why) {
    const tcp *t = c->link;
    answer     a = make_answer(st, why);
    double     until = pl_now() + LOOK;
    for (int r = 1; r < c->ranks; r++)
        if (pl_signs_connection(t->signs, r) >= 0)
            pl_net_send(pl_signs_connection(t->signs, r), &a, sizeof a, until, NULL);
}

// Drops connected ranks that have ended: another process may take their place. Returns the number of ranks that are
// here.
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

// Waits until all ranks have come. One that disagrees ends the join and gets the reason.
static pl_status gather_ranks(pl_comm *c, const pl_comm_place *place, pl_gate *gate, seen *all, double deadline,
                              double patience, pl_err *err) {
    tcp     *t = c->link;
    pl_claim own, h;
    pl_claim_make(&own, PL_FOR_SIGNS, 0, c->ranks, place->identity);
    while (drop_ended(c) < c->ranks) {
        pl_net_address from;
        int            fd;
        PL_TRY(pl_gate_next(gate, &fd, &h, &from, -1, deadline, err));
        drop_ended(c); // while waiting
        if (fd < 0) return say_missing(c, place->address, patience, err);
        if (h.kind != PL_FOR_SIGNS) { // from an earlier run with the same secret
            close(fd);
            continue;
        }
        pl_status st = judge_claim(c, &h, &own, err);
        if (st == PL_OK) st = pl_net_near(&all[h.rank].near, fd, err);
        if (st != PL_OK) {
            answer a = make_answer(st, err);
            pl_net_send(fd, &a, sizeof a, pl_now() + LOOK, NULL);
            close(fd);
            return st;
        }
        pl_signs_connect(t->signs, (int)h.rank, fd);
        pl_signs_set_host(t->signs, (int)h.rank, h.host);
        all[h.rank].far = from;
    }
    return PL_OK;
}

// Sets the address at which ranks of rank 0's own host listen if they reach it by loopback: the loopback address or, if
// ranks of other hosts take part, the address by which those reach rank 0, or all if there are several. Returns false
// for loopback.
static bool choose_home(const pl_comm *c, const seen *all, pl_net_address *home) {
    bool any = false, several = false;
    for (int r = 1; r < c->ranks; r++) {
        if (pl_net_is_loopback(&all[r].far)) continue;
        several = several || (any && !pl_net_same_host(home, &all[r].near));
        if (!any) *home = all[r].near;
        any = true;
    }
    if (several) pl_net_widen(home);
    return any;
}

// Sends each rank its address to listen at, and receives its port.
static pl_status place_ranks(const pl_comm *c, const seen *all, entry *table, double deadline, pl_err *err) {
    const tcp     *t = c->link;
    pl_net_address home;
    bool           others = choose_home(c, all, &home);
    for (int r = 1; r < c->ranks; r++) {
        answer a = make_answer(PL_OK, NULL);
        table[r] = (entry){.at = all[r].far, .home = pl_net_is_loopback(&all[r].far)};
        if (others && table[r].home) a.listen = home;
        if (others && table[r].home && !pl_net_is_any(&home)) table[r].at = home;
        pl_status st = pl_net_send(pl_signs_connection(t->signs, r), &a, sizeof a, deadline, err);
        if (st != PL_OK) return pl_fail_at(err, st, "ranks: number %d", r);
    }
    for (int r = 1; r < c->ranks; r++) {
        uint32_t  port;
        pl_status st = pl_net_take(pl_signs_connection(t->signs, r), &port, sizeof port, deadline, err);
        if (st == PL_OK && (port < 1 || port > 65535)) st = pl_fail(err, PL_E_IO, "listens at no port (%u)", port);
        if (st != PL_OK) return pl_fail_at(err, st, "ranks: number %d of %s", r, pl_signs_host(t->signs, r));
        pl_net_set_port(&table[r].at, (int)port);
    }
    for (int r = 0; r < c->ranks; r++)
        memcpy(table[r].host, pl_signs_host(t->signs, r), PL_HOST_BYTES);
    return PL_OK;
}

static pl_status send_table(const pl_comm *c, const entry *table, double deadline, pl_err *err) {
    const tcp *t = c->link;
    answer     a = make_answer(PL_OK, NULL);
    for (int r = 1; r < c->ranks; r++) {
        int       to = pl_signs_connection(t->signs, r);
        pl_status st = pl_net_send(to, &a, sizeof a, deadline, err);
        if (st == PL_OK) st = pl_net_send(to, table, (size_t)c->ranks * sizeof *table, deadline, err);
        if (st != PL_OK) return pl_fail_at(err, st, "ranks: number %d", r);
    }
    return PL_OK;
}

// Rank 0's part, until all ranks have the table of addresses. If it fails all connected ranks get the reason.
static pl_status call_all(pl_comm *c, const pl_comm_place *place, pl_gate *gate, entry *table, double deadline,
                          double patience, pl_err *err) {
    pl_err why = {0};
    seen  *all = pl_calloc((size_t)c->ranks, sizeof *all);
    if (!all) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    pl_status st = gather_ranks(c, place, gate, all, deadline, patience, &why);
    deadline = end_by(deadline);
    if (st == PL_OK) st = place_ranks(c, all, table, deadline, &why);
    if (st == PL_OK) st = send_table(c, table, deadline, &why);
    pl_free(all);
    if (st != PL_OK) refuse_all(c, st, &why);
    return st == PL_OK ? PL_OK : pl_fail(err, st, "%s", why.msg);
}

// ---- coming together: the others

static pl_status pass_gate(int fd, const pl_net_address *at, const pl_claim *own, int to, pl_comm_find_key find_key,
                           void *arg, uint8_t *key, double deadline, pl_err *err) {
    char      text[80];
    double    until = pl_now() + TRY < deadline ? pl_now() + TRY : deadline;
    pl_status st = pl_gate_pass(fd, own, to, find_key, arg, key, until, err);
    pl_net_text(at, text, sizeof text);
    return st == PL_E_IO ? pl_fail_at(err, st, "%s", text) : st;
}

// Connects to a rank and passes its gate; retries until the deadline or, if `watched`, a failure reported by signs.
// Past the deadline the error is that of the last gate that answered: a connection refused since then, or a try cut
// short by the deadline, has no cause to report.
static pl_status reach_rank(pl_comm *c, int *fd, const pl_net_address *at, const pl_claim *own, int to,
                            pl_comm_find_key find_key, void *arg, bool watched, double deadline, pl_err *err) {
    tcp   *t = c->link;
    pl_err before = {0};
    for (;;) {
        double    until = pl_now() + LOOK < deadline ? pl_now() + LOOK : deadline;
        pl_err    why = {0};
        bool      met = false;
        pl_status st = pl_net_connect(fd, at, until, &why);
        if (st == PL_OK) {
            met = true;
            st = pass_gate(*fd, at, own, to, find_key, arg, t->key, deadline, &why);
            if (st == PL_OK) return PL_OK;
            close(*fd);
            *fd = -1;
        }
        if (st != PL_E_IO || pl_now() >= deadline)
            return pl_fail(err, st, "%s", st == PL_E_IO && before.status != PL_OK ? before.msg : why.msg);
        if (met && !watched && before.status == PL_OK) pl_log("ranks: %s; trying again", why.msg);
        if (met) before = why;
        if (watched) PL_TRY(check(c, err));
        nanosleep(&(struct timespec){.tv_nsec = (long)(PAUSE * 1e9)}, NULL);
    }
}

static pl_status take_answer(int fd, answer *a, double deadline, pl_err *err) {
    PL_TRY(pl_net_take(fd, a, sizeof *a, deadline, err));
    a->why[WHY - 1] = 0;
    if (a->status != PL_OK && !a->why[0]) snprintf(a->why, sizeof a->why, "ranks: number 0 says no reason");
    if (a->magic != MAGIC) return pl_fail(err, PL_E_IO, "answers as no rank 0 does");
    return PL_OK;
}

// Sets the address at which this rank listens, port 0.
static pl_status choose_listen(pl_net_address *own, const answer *a, int fd, pl_err *err) {
    PL_TRY(pl_net_near(own, fd, err));
    if (a->listen.at.ss_family != AF_UNSPEC) *own = a->listen;
    if (!pl_net_valid(own)) return pl_fail(err, PL_E_IO, "says no address to listen at");
    pl_net_set_port(own, 0);
    return PL_OK;
}

// Combines a's port with another address.
static void reach_by(pl_net_address *a, const pl_net_address *by) {
    int port = pl_net_port(a);
    *a = *by;
    pl_net_set_port(a, port);
}

// Receives the table. To a rank of another host, a rank of rank 0's host has rank 0's address.
static pl_status take_table(pl_comm *c, int fd, entry *table, const pl_net_address *first, double deadline,
                            pl_err *err) {
    tcp           *t = c->link;
    pl_net_address near;
    PL_TRY(pl_net_near(&near, fd, err));
    PL_TRY(pl_net_take(fd, table, (size_t)c->ranks * sizeof *table, deadline, err));
    table[0].at = *first;
    for (int r = 0; r < c->ranks; r++) {
        table[r].host[PL_HOST_BYTES - 1] = 0;
        if (!pl_net_valid(&table[r].at)) return pl_fail(err, PL_E_IO, "says no address of number %d", r);
        if (table[r].home && !pl_net_is_loopback(&near)) reach_by(&table[r].at, first);
        pl_signs_set_host(t->signs, r, table[r].host);
    }
    return PL_OK;
}

// A rank's part from its first connection until it has the table, or rank 0 reports a failure: *a. *listener: its
// listening socket.
static pl_status learn_places(pl_comm *c, int fd, answer *a, entry *table, const pl_net_address *first, int *listener,
                              double deadline, pl_err *err) {
    pl_net_address own;
    PL_TRY(take_answer(fd, a, deadline + LATER, err));
    if (a->status != PL_OK) return PL_OK;
    PL_TRY(choose_listen(&own, a, fd, err));
    PL_TRY(pl_net_listen(listener, &own, err));
    uint32_t port = (uint32_t)pl_net_port(&own);
    deadline = pl_now() + CONNECT + LOOK; // rank 0 reports why it takes longer
    PL_TRY(pl_net_send(fd, &port, sizeof port, deadline, err));
    PL_TRY(take_answer(fd, a, deadline, err));
    return a->status == PL_OK ? take_table(c, fd, table, first, deadline, err) : PL_OK;
}

static pl_status report_place(pl_comm *c, const pl_comm_place *place, entry *table, const pl_net_address *first,
                              int *listener, double deadline, pl_err *err) {
    tcp     *t = c->link;
    pl_claim own;
    answer   a;
    int      fd;
    pl_claim_make(&own, PL_FOR_SIGNS, c->rank, c->ranks, place->identity);
    PL_TRY(reach_rank(c, &fd, first, &own, 0, place->find_key, place->key_arg, false, deadline, err));
    pl_signs_connect(t->signs, 0, fd);
    pl_status st = learn_places(c, fd, &a, table, first, listener, deadline, err);
    if (st != PL_OK) return pl_fail_at(err, st, "ranks: number 0 at %s", place->address);
    if (a.status == PL_OK) return PL_OK;
    return pl_fail(err, a.status <= PL_E_INTERNAL ? (pl_status)a.status : PL_E_IO, "%s", a.why);
}

// ---- connections between all ranks

static pl_status connect_down(pl_comm *c, const pl_claim *own, const entry *table, double deadline, pl_err *err) {
    tcp *t = c->link;
    for (int r = 0; r < c->rank; r++) {
        pl_status st =
            reach_rank(c, &t->peer[r].data, &table[r].at, own, r, pl_gate_given_key, t->key, true, deadline, err);
        if (st != PL_OK && c->broken) return st;
        if (st != PL_OK) return pl_fail_at(err, st, "ranks: number %d of %s", r, table[r].host);
    }
    return PL_OK;
}

static pl_status connect_up(pl_comm *c, const pl_claim *own, pl_gate *gate, double deadline, pl_err *err) {
    tcp *t = c->link;
    for (int left = c->ranks - c->rank - 1; left > 0;) {
        pl_claim       h;
        pl_net_address from;
        int            fd;
        PL_TRY(check(c, err));
        PL_TRY(pl_gate_next(gate, &fd, &h, &from, pl_signs_wake(t->signs), pl_now() + LOOK, err));
        if (fd < 0 && pl_now() < deadline) continue;
        if (fd < 0) return pl_fail(err, PL_E_IO, "ranks: %d of %d did not connect in time", left, c->ranks);
        bool known = h.kind == PL_FOR_DATA && h.ranks == own->ranks && (int)h.rank > c->rank && h.rank < h.ranks &&
                     strcmp(h.identity, own->identity) == 0;
        int before = known ? t->peer[h.rank].data : -1;
        if (!known || (before >= 0 && pl_net_is_open(before))) {
            close(fd); // of another run
            continue;
        }
        if (before >= 0) close(before); // the rank has given it up meanwhile
        if (before < 0) left--;
        t->peer[h.rank].data = fd;
    }
    return PL_OK;
}

// Connects to lower ranks, accepts from higher ones.
static pl_status connect_all(pl_comm *c, const pl_comm_place *place, const entry *table, pl_gate *gate, double deadline,
                             pl_err *err) {
    pl_claim own;
    pl_claim_make(&own, PL_FOR_DATA, c->rank, c->ranks, place->identity);
    PL_TRY(connect_down(c, &own, table, deadline, err));
    return connect_up(c, &own, gate, deadline + 2 * LOOK, err); // the connecting rank reports its failure first
}

static pl_status meet_first(pl_comm *c, const pl_comm_place *place, entry *table, int *listener, pl_gate **gate,
                            double deadline, double patience, pl_err *err) {
    tcp           *t = c->link;
    pl_net_address first;
    PL_TRY(pl_net_find(&first, place->address, c->rank == 0, err));
    if (c->rank == 0) {
        PL_TRY(pl_net_listen(listener, &first, err));
        PL_TRY(place->find_key(place->key_arg, t->key, err));
        PL_TRY(pl_gate_open(gate, *listener, 0, c->ranks, t->key, err));
        return call_all(c, place, *gate, table, deadline, patience, err);
    }
    PL_TRY(report_place(c, place, table, &first, listener, deadline, err));
    return pl_gate_open(gate, *listener, c->rank, c->ranks, t->key, err);
}

static pl_status come_together(pl_comm *c, const pl_comm_place *place, pl_err *err) {
    double   patience = place->patience > 0 ? place->patience : PL_COMM_PATIENCE;
    double   deadline = pl_now() + patience;
    int      listener = -1;
    pl_gate *gate = NULL;
    entry   *table = pl_calloc((size_t)c->ranks, sizeof *table);
    if (!table) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    pl_status st = meet_first(c, place, table, &listener, &gate, deadline, patience, err);
    if (st == PL_OK) st = pl_signs_start(((tcp *)c->link)->signs, err);
    if (st == PL_OK) {
        pl_err why = {0};
        st = connect_all(c, place, table, gate, end_by(deadline), &why);
        if (st != PL_OK) fail(c, &why); // reports it to the others, which would otherwise wait
        if (st != PL_OK && err) *err = why;
    }
    pl_gate_close(gate);
    if (listener >= 0) close(listener);
    pl_free(table);
    return st;
}

static pl_status make_link(pl_comm *c, const pl_comm_place *place, pl_err *err) {
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
    PL_CHECK(c->ranks == 1 || place->find_key, "%d ranks without a key", c->ranks);
    PL_TRY(make_link(c, place, err));
    t = c->link;
    if (c->ranks > 1) PL_TRY(come_together(c, place, err));
    c->neighbours = pl_signs_neighbours(t->signs);
    c->beside = true;
    return PL_OK;
}

const pl_group pl_group_tcp = {
    .name = "TCP", .join = join, .swap = swap, .check = check, .fail = fail, .close = close_tcp};
