#define _GNU_SOURCE 1
#include "kernels/comm/handshake.h"

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SPARE = 64 }; // pending connections in addition to one per rank

static const double STRANGER = 5; // seconds within which a connection must prove itself

// The input of M.
typedef struct statement {
    char     direction[16];
    uint8_t  listener[PL_NONCE_BYTES], connector[PL_NONCE_BYTES];
    uint32_t to;
    pl_claim claim;
} statement;

_Static_assert(sizeof(pl_claim) == 12 + PL_HOST_BYTES + PL_IDENTITY_BYTES, "a claim has no padding");
_Static_assert(sizeof(statement) == 16 + 2 * PL_NONCE_BYTES + 4 + sizeof(pl_claim), "a statement has no padding");

static pl_status begin_sodium(pl_err *err) {
    return sodium_init() < 0 ? pl_fail(err, PL_E_IO, "ranks: libsodium finds no random numbers") : PL_OK;
}

void pl_comm_key_of(uint8_t key[PL_COMM_KEY], const void *secret, size_t n) {
    crypto_generichash(key, PL_COMM_KEY, secret, n, NULL, 0);
}

pl_status pl_comm_key_draw(uint8_t key[PL_COMM_KEY], pl_err *err) {
    PL_TRY(begin_sodium(err));
    randombytes_buf(key, PL_COMM_KEY);
    return PL_OK;
}

void pl_claim_make(pl_claim *out, int kind, int rank, int ranks, const char *identity) {
    *out = (pl_claim){.kind = (uint32_t)kind, .rank = (uint32_t)rank, .ranks = (uint32_t)ranks};
    pl_signs_own_host(out->host);
    snprintf(out->identity, sizeof out->identity, "%s", identity ? identity : "");
}

static void compute_proof(uint8_t proof[PL_PROOF_BYTES], const uint8_t *key, const char *direction,
                          const uint8_t *listener, int to, const pl_gate_message *m) {
    statement s = {.to = (uint32_t)to, .claim = m->claim};
    snprintf(s.direction, sizeof s.direction, "%s", direction);
    memcpy(s.listener, listener, sizeof s.listener);
    memcpy(s.connector, m->nonce, sizeof s.connector);
    crypto_generichash(proof, PL_PROOF_BYTES, (const uint8_t *)&s, sizeof s, key, PL_COMM_KEY);
}

// ---- the listener's side

typedef struct pending {
    int             fd;
    pl_net_address  from;
    double          until;
    uint8_t         nonce[PL_NONCE_BYTES];
    pl_gate_message in;
    size_t          n_in;
} pending;

struct pl_gate {
    int      listener, rank, most, n;
    uint8_t  key[PL_COMM_KEY];
    bool     warned;
    pending *pending; // [most], the first n in order of arrival
};

pl_status pl_gate_open(pl_gate **out, int listener, int rank, int ranks, const uint8_t key[PL_COMM_KEY], pl_err *err) {
    *out = NULL;
    PL_TRY(begin_sodium(err));
    pl_gate *g = pl_calloc(1, sizeof *g);
    int      most = ranks + SPARE;
    if (g) g->pending = pl_calloc((size_t)most, sizeof *g->pending);
    if (!g || !g->pending) {
        pl_free(g);
        return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    }
    g->listener = listener;
    g->rank = rank;
    g->most = most;
    memcpy(g->key, key, sizeof g->key);
    *out = g;
    return PL_OK;
}

static void remove_pending(pl_gate *g, int i) {
    g->n--;
    memmove(g->pending + i, g->pending + i + 1, (size_t)(g->n - i) * sizeof *g->pending);
}

static void drop_pending(pl_gate *g, int i) {
    close(g->pending[i].fd);
    remove_pending(g, i);
}

void pl_gate_close(pl_gate *g) {
    if (!g) return;
    while (g->n > 0)
        drop_pending(g, g->n - 1);
    sodium_memzero(g->key, sizeof g->key);
    pl_free(g->pending);
    pl_free(g);
}

static bool send_whole(int fd, const void *data, size_t n) { // a new connection's buffer is empty
    return send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}

// Accepts the connections that wait at the listener. The oldest pending connection is closed for a new one, and when
// descriptors run out.
static pl_status accept_all(pl_gate *g, double now, pl_err *err) {
    for (int i = 0; i < g->most; i++) { // more of them after a pass over the pending ones
        pl_net_address from;
        int            fd;
        pl_status      st = pl_net_accept(&fd, &from, g->listener, err);
        if (st != PL_OK && g->n == 0) return st;
        if (st != PL_OK || (fd >= 0 && g->n == g->most)) drop_pending(g, 0);
        if (st != PL_OK) continue;
        if (fd < 0) return PL_OK;
        pending *p = &g->pending[g->n++];
        *p = (pending){.fd = fd, .from = from, .until = now + STRANGER};
        randombytes_buf(p->nonce, sizeof p->nonce);
        if (!send_whole(fd, p->nonce, sizeof p->nonce)) drop_pending(g, g->n - 1);
    }
    return PL_OK;
}

static void warn_once(pl_gate *g, const pl_net_address *from) {
    char text[80];
    if (g->warned) return;
    g->warned = true;
    pl_net_text(from, text, sizeof text);
    pl_log_warn("ranks: a connection from %s was closed, as it does not know the secret of this run", text);
}

typedef enum { WAITS, FALSE, PROVEN } verdict;

// Reads from pending connection i.
static verdict read_pending(pl_gate *g, int i) {
    pending *p = &g->pending[i];
    uint8_t  proof[PL_PROOF_BYTES];
    ssize_t  n = recv(p->fd, (uint8_t *)&p->in + p->n_in, sizeof p->in - p->n_in, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return WAITS;
    if (n <= 0) return FALSE;
    p->n_in += (size_t)n;
    if (p->n_in < sizeof p->in) return WAITS;
    compute_proof(proof, g->key, "connector", p->nonce, g->rank, &p->in);
    if (sodium_memcmp(proof, p->in.proof, sizeof proof) != 0) {
        warn_once(g, &p->from);
        return FALSE;
    }
    compute_proof(proof, g->key, "listener", p->nonce, g->rank, &p->in);
    return send_whole(p->fd, proof, sizeof proof) ? PROVEN : FALSE;
}

static void hand_out(pl_gate *g, int i, int *fd, pl_claim *claim, pl_net_address *from) {
    const pending *p = &g->pending[i];
    *fd = p->fd;
    *claim = p->in.claim;
    *from = p->from;
    claim->host[PL_HOST_BYTES - 1] = claim->identity[PL_IDENTITY_BYTES - 1] = 0;
    remove_pending(g, i);
}

enum { LISTENER, WAKE, FIRST }; // indices in the list for poll

// Fills the list for poll; returns the time at which the first pending connection expires, at most the deadline.
static double list_pending(const pl_gate *g, struct pollfd *fd, int wake, double deadline) {
    fd[LISTENER] = (struct pollfd){.fd = g->listener, .events = POLLIN};
    fd[WAKE] = (struct pollfd){.fd = wake, .events = POLLIN};
    for (int i = 0; i < g->n; i++)
        fd[FIRST + i] = (struct pollfd){.fd = g->pending[i].fd, .events = POLLIN};
    return g->n > 0 && g->pending[0].until < deadline ? g->pending[0].until : deadline;
}

pl_status pl_gate_next(pl_gate *g, int *fd, pl_claim *claim, pl_net_address *from, int wake, double deadline,
                       pl_err *err) {
    struct pollfd list[FIRST + PL_RANKS_MAX + SPARE];
    *fd = -1;
    for (;;) {
        double until = list_pending(g, list, wake, deadline), now;
        int    listed = g->n;
        if (poll(list, (nfds_t)(FIRST + listed), pl_net_milliseconds(until)) < 0) {
            if (errno != EINTR) return pl_fail_errno(err, "ranks: waiting");
            for (int i = 0; i < FIRST + listed; i++)
                list[i].revents = 0;
        }
        now = pl_now();
        if (list[WAKE].revents) return PL_OK;
        for (int i = listed - 1; i >= 0; i--) { // backwards, as removing one moves those after it
            verdict v = list[FIRST + i].revents ? read_pending(g, i) : WAITS;
            if (v == PROVEN) {
                hand_out(g, i, fd, claim, from);
                return PL_OK;
            }
            if (v == FALSE || now >= g->pending[i].until) drop_pending(g, i);
        }
        if (list[LISTENER].revents) PL_TRY(accept_all(g, now, err));
        if (now >= deadline) return PL_OK;
    }
}

// ---- the connector's side

void pl_gate_prove(pl_gate_message *m, uint8_t answer[PL_PROOF_BYTES], const pl_claim *own, int to,
                   const uint8_t nonce[PL_NONCE_BYTES], const uint8_t key[PL_COMM_KEY]) {
    m->claim = *own;
    randombytes_buf(m->nonce, sizeof m->nonce);
    compute_proof(m->proof, key, "connector", nonce, to, m);
    compute_proof(answer, key, "listener", nonce, to, m);
}

pl_status pl_gate_pass(int fd, const pl_claim *own, int to, pl_comm_find_key find_key, void *arg,
                       uint8_t key[PL_COMM_KEY], double deadline, pl_err *err) {
    pl_gate_message m;
    uint8_t         nonce[PL_NONCE_BYTES], proof[PL_PROOF_BYTES], theirs[PL_PROOF_BYTES];
    PL_TRY(begin_sodium(err));
    PL_TRY(pl_net_take(fd, nonce, sizeof nonce, deadline, err));
    PL_TRY(find_key(arg, key, err));
    pl_gate_prove(&m, proof, own, to, nonce, key);
    PL_TRY(pl_net_send(fd, &m, sizeof m, deadline, err));
    pl_status st = pl_net_take(fd, theirs, sizeof theirs, deadline, err);
    if (st != PL_OK && pl_now() < deadline)
        return pl_fail(err, st, "does not take this rank's secret (all ranks need the same one), or has ended");
    PL_TRY(st);
    if (sodium_memcmp(proof, theirs, sizeof proof) == 0) return PL_OK;
    return pl_fail(err, PL_E_IO, "what answers there does not know the secret of this run");
}

pl_status pl_gate_given_key(void *arg, uint8_t key[PL_COMM_KEY], pl_err *err) {
    (void)err;
    memmove(key, arg, PL_COMM_KEY);
    return PL_OK;
}
