// Ranks over MPI: processes that mpirun started (or srun, if its MPI is this build's).
//
// All bytes are MPI messages, posted without blocking and polled, so that a failing rank ends the others' waits. MPI
// does not detect dead ranks: signs of life run beside it, as over TCP (kernels/comm/signs.h), from a thread that never
// calls MPI. So MPI_THREAD_FUNNELED suffices; if MPI allows calls of any thread, one at a time (MPI_THREAD_SERIALIZED),
// sums overlap with computation (kernels/comm/summing.h). After a failure MPI is not called again, neither to cancel
// messages to dead ranks nor to finalize with them; the launcher ends the rest when the first rank exits with 1.
#define _GNU_SOURCE 1
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/comm/handshake.h"
#include "kernels/comm/impl.h"
#include "kernels/comm/net.h"
#include "kernels/comm/signs.h"

#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { IDENTITY = 256, ADDRESSES = 16 };
enum { TAG_HEAD, TAG_DATA };

// Seconds: for the signs' connections once all ranks are here, for one try of them, for MPI_Finalize; of polling before
// the first sleep, and of the sleeps.
static const double CONNECT = 60, TRY = 3, FINALIZE = 30, SPIN = 1e-3, NAP = 50e-6, NAP_MOST = 1e-3;

// A rank's description of itself.
typedef struct card {
    char host[PL_HOST_BYTES], identity[IDENTITY];
} card;

// Rank 0's address for signs of life, and the key of this run's ranks.
typedef struct place_of_signs {
    uint8_t        key[PL_COMM_KEY];
    int32_t        port, n;
    pl_net_address at[ADDRESSES];
} place_of_signs;

// Header before a rank's bytes in a meeting.
typedef struct head {
    uint32_t what, turn;
    uint64_t bytes;
} head;

// A message in transfer.
typedef struct message {
    int  rank; // of the other end
    bool front;
} message;

typedef struct mpi {
    MPI_Comm     comm; // duplicated, used by nothing else
    bool         joined;
    pl_signs    *signs;
    head        *mine, *theirs; // [ranks]
    MPI_Request *request;       // [4 ranks], like the next ones
    MPI_Status  *status;
    message     *message;
    int         *done;
} mpi;

// ---- failures

static pl_status check(pl_comm *c, pl_err *err) {
    return pl_signs_check(((mpi *)c->link)->signs, c, err);
}

static void fail(pl_comm *c, const pl_err *why) {
    pl_signs_tell(((mpi *)c->link)->signs, c->rank, why->status, why->msg);
}

static void say_error(char text[MPI_MAX_ERROR_STRING], int code) {
    int  n, begun = 0; // before MPI_Init, Open MPI aborts on a request for error texts
    bool has_words = MPI_Initialized(&begun) == MPI_SUCCESS && begun && MPI_Error_string(code, text, &n) == MPI_SUCCESS;
    if (!has_words) snprintf(text, MPI_MAX_ERROR_STRING, "error %d", code);
    text[strcspn(text, "\n")] = 0;
}

static pl_status check_call(int code, const char *doing, pl_err *err) {
    char text[MPI_MAX_ERROR_STRING];
    if (code == MPI_SUCCESS) return PL_OK;
    say_error(text, code);
    return pl_fail(err, PL_E_IO, "ranks: MPI: %s: %s", doing, text);
}

// Reports MPI's error with a rank.
static pl_status report_broken(pl_comm *c, int who, int code, pl_err *err) {
    const mpi *m = c->link;
    char       text[MPI_MAX_ERROR_STRING], why[PL_HOST_BYTES + MPI_MAX_ERROR_STRING + 64];
    say_error(text, code);
    snprintf(why, sizeof why, "rank %d does not reach it on %s over MPI: %s", c->rank, pl_signs_host(m->signs, who),
             text);
    return pl_signs_lost(m->signs, c, who, why, err);
}

// ---- meeting

// Pauses between two polls, so that a rank that computes on the same core can run.
static void pause_poll(double since, double *nap) {
    if (pl_now() - since < SPIN) {
        sched_yield();
        return;
    }
    *nap = *nap <= 0 ? NAP : *nap * 2 < NAP_MOST ? *nap * 2 : NAP_MOST;
    nanosleep(&(struct timespec){.tv_nsec = (long)(*nap * 1e9)}, NULL);
}

static pl_status judge_head(const pl_comm *c, int from, size_t bytes, pl_err *err) {
    const mpi  *m = c->link;
    const head *mine = &m->mine[from], *theirs = &m->theirs[from];
    if (theirs->what == mine->what && theirs->turn == mine->turn && theirs->bytes == bytes) return PL_OK;
    return pl_fail(err, PL_E_INTERNAL,
                   "rank %d, meeting %u for %u of %zu bytes, met rank %d in meeting %u for %u of %llu", c->rank,
                   mine->turn, mine->what, bytes, from, theirs->turn, theirs->what, (unsigned long long)theirs->bytes);
}

static pl_status post_messages(pl_comm *c, const pl_comm_swap *s, int what, int *n, pl_err *err) {
    mpi     *m = c->link;
    unsigned turn = c->turn++;
    *n = 0;
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        m->mine[r] = (head){.what = (uint32_t)what, .turn = turn, .bytes = s->out_bytes[r]};
        int         in = (int)s->in_bytes[r], out = (int)s->out_bytes[r], first = *n;
        const void *data = s->out[r];
        m->message[*n] = (message){.rank = r, .front = true};
        int e = MPI_Irecv(&m->theirs[r], sizeof(head), MPI_BYTE, r, TAG_HEAD, m->comm, &m->request[(*n)++]);
        if (e == MPI_SUCCESS && in) e = MPI_Irecv(s->in[r], in, MPI_BYTE, r, TAG_DATA, m->comm, &m->request[(*n)++]);
        if (e == MPI_SUCCESS)
            e = MPI_Isend(&m->mine[r], sizeof(head), MPI_BYTE, r, TAG_HEAD, m->comm, &m->request[(*n)++]);
        if (e == MPI_SUCCESS && out) e = MPI_Isend(data, out, MPI_BYTE, r, TAG_DATA, m->comm, &m->request[(*n)++]);
        if (e != MPI_SUCCESS) return report_broken(c, r, e, err);
        for (int i = first + 1; i < *n; i++)
            m->message[i] = (message){.rank = r};
    }
    return PL_OK;
}

static pl_status swap(pl_comm *c, int what, const pl_comm_swap *s, pl_err *err) {
    mpi   *m = c->link;
    int    n, done = 0;
    double since = pl_now(), nap = 0;
    PL_TRY(check(c, err));
    PL_TRY(post_messages(c, s, what, &n, err));
    while (done != MPI_UNDEFINED && n > 0) {
        int e = MPI_Testsome(n, m->request, &done, m->done, m->status);
        for (int i = 0; i < done && done != MPI_UNDEFINED; i++) {
            message how = m->message[m->done[i]];
            if (e == MPI_ERR_IN_STATUS && m->status[i].MPI_ERROR != MPI_SUCCESS)
                return report_broken(c, how.rank, m->status[i].MPI_ERROR, err);
            if (how.front) PL_TRY(judge_head(c, how.rank, s->in_bytes[how.rank], err));
        }
        if (e != MPI_SUCCESS && e != MPI_ERR_IN_STATUS) return check_call(e, "waiting", err);
        if (done > 0) {
            since = pl_now();
            nap = 0;
        } else if (done == 0) {
            PL_TRY(check(c, err));
            pause_poll(since, &nap);
        }
    }
    return PL_OK;
}

// ---- coming together

static pl_status await_request(MPI_Request *q, const char *doing, double deadline, pl_err *err) {
    int    done = 0;
    double since = pl_now(), nap = 0;
    for (;;) {
        PL_TRY(check_call(MPI_Test(q, &done, MPI_STATUS_IGNORE), doing, err));
        if (done) return PL_OK;
        if (pl_now() > deadline) return pl_fail(err, PL_E_IO, "ranks: MPI: %s: not all did in time", doing);
        pause_poll(since, &nap);
    }
}

static pl_status begin_mpi(pl_comm *c, pl_err *err) {
    int  begun, ended, level = MPI_THREAD_SINGLE, rank, ranks, n;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    mpi *m = c->link;
    PL_TRY(check_call(MPI_Finalized(&ended), "asking for its state", err));
    if (ended) return pl_fail(err, PL_E_UNSUPPORTED, "ranks: MPI has ended in this process and does not begin again");
    PL_TRY(check_call(MPI_Initialized(&begun), "asking for its state", err));
    if (!begun) PL_TRY(check_call(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "beginning", err));
    if (begun) PL_TRY(check_call(MPI_Query_thread(&level), "asking for its level of threads", err));
    if (level < MPI_THREAD_FUNNELED)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "ranks: this MPI allows no threads beside the one that calls it; use --group tcp");
    c->beside = level >= MPI_THREAD_SERIALIZED;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    PL_TRY(check_call(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "asking for the rank", err));
    PL_TRY(check_call(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "asking for the ranks", err));
    MPI_Get_library_version(text, &n);
    if (rank != c->rank || ranks != c->ranks)
        return pl_fail(err, PL_E_USAGE,
                       "ranks: %.*s counts this process as rank %d of %d, its launcher as %d of %d: they are of two "
                       "MPIs; start it by this one's mpirun, or use --group tcp",
                       (int)strcspn(text, ",\n"), text, rank, ranks, c->rank, c->ranks);
    PL_TRY(check_call(MPI_Comm_dup(MPI_COMM_WORLD, &m->comm), "a communicator", err));
    return check_call(MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN), "a communicator", err);
}

static pl_status make_link(pl_comm *c, const pl_comm_place *place, pl_err *err) {
    size_t n = (size_t)c->ranks;
    mpi   *m = c->link = pl_calloc(1, sizeof *m);
    if (m) {
        m->mine = pl_calloc(n, sizeof *m->mine);
        m->theirs = pl_calloc(n, sizeof *m->theirs);
        m->request = pl_calloc(4 * n, sizeof *m->request);
        m->status = pl_calloc(4 * n, sizeof *m->status);
        m->message = pl_calloc(4 * n, sizeof *m->message);
        m->done = pl_calloc(4 * n, sizeof *m->done);
    }
    if (!m || !m->mine || !m->theirs || !m->request || !m->status || !m->message || !m->done)
        return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    return pl_signs_create(&m->signs, c->rank, c->ranks, place->silence, err);
}

// Exchanges all ranks' descriptions; all refuse a rank of another build.
static pl_status meet_all(pl_comm *c, const pl_comm_place *place, card *all, double deadline, pl_err *err) {
    mpi        *m = c->link;
    card        own = {0};
    MPI_Request q;
    pl_signs_own_host(own.host);
    snprintf(own.identity, sizeof own.identity, "%s", place->identity ? place->identity : "");
    PL_TRY(
        check_call(MPI_Iallgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, m->comm, &q), "meeting", err));
    PL_TRY(await_request(&q, "meeting", deadline, err));
    for (int r = 0; r < c->ranks; r++) {
        all[r].host[PL_HOST_BYTES - 1] = all[r].identity[IDENTITY - 1] = 0;
        pl_signs_set_host(m->signs, r, all[r].host);
    }
    for (int r = 1; r < c->ranks; r++)
        if (strcmp(all[r].identity, all[0].identity) != 0)
            return pl_fail(err, PL_E_USAGE, "ranks: number %d of %s is %s, number 0 of %s is %s", r, all[r].host,
                           all[r].identity, all[0].host, all[0].identity);
    return PL_OK;
}

// ---- the connections of signs

static pl_status listen_for_signs(int *fd, place_of_signs *at, const char *address, pl_err *err) {
    pl_net_address a;
    int            port;
    PL_TRY(pl_comm_key_draw(at->key, err));
    if (address) {
        PL_TRY(pl_net_find(&a, address, true, err));
        return pl_net_listen(fd, &a, err);
    }
    PL_TRY(pl_net_listen_anywhere(fd, &port, err));
    at->port = port;
    at->n = pl_net_own(at->at, ADDRESSES);
    return PL_OK;
}

// Rank 0: accepts the connections of all.
static pl_status take_signs(pl_comm *c, pl_gate *gate, double deadline, pl_err *err) {
    const mpi *m = c->link;
    for (int left = c->ranks - 1; left > 0;) {
        pl_claim       h;
        pl_net_address from;
        int            fd;
        PL_TRY(pl_gate_next(gate, &fd, &h, &from, -1, deadline, err));
        if (fd < 0) break;
        bool known = h.kind == PL_FOR_SIGNS && h.rank > 0 && h.ranks == (uint32_t)c->ranks && h.rank < h.ranks;
        int  before = known ? pl_signs_connection(m->signs, (int)h.rank) : -1;
        if (!known || (before >= 0 && pl_net_is_open(before))) {
            close(fd);
            continue;
        }
        if (before >= 0) close(before); // the rank has given it up meanwhile
        if (before < 0) left--;
        pl_signs_connect(m->signs, (int)h.rank, fd);
    }
    for (int r = 1; r < c->ranks; r++)
        if (pl_signs_connection(m->signs, r) < 0)
            return pl_fail(err, PL_E_IO,
                           "ranks: number %d of %s is here by MPI, but no sign of life comes over TCP; give all "
                           "--address HOST:PORT, an address of this host that it reaches",
                           r, pl_signs_host(m->signs, r));
    return PL_OK;
}

static pl_status hear_signs(pl_comm *c, const place_of_signs *at, int listener, double deadline, pl_err *err) {
    pl_gate *gate;
    PL_TRY(pl_gate_open(&gate, listener, 0, c->ranks, at->key, err));
    pl_status st = take_signs(c, gate, deadline, err);
    pl_gate_close(gate);
    return st;
}

// Returns true if rank 0, and no other program, listens there.
static bool greet_rank(pl_comm *c, place_of_signs *at, const pl_net_address *a) {
    const mpi *m = c->link;
    pl_claim   own;
    uint8_t    key[PL_COMM_KEY];
    int        fd;
    if (pl_net_connect(&fd, a, pl_now() + TRY, NULL) != PL_OK) return false;
    pl_claim_make(&own, PL_FOR_SIGNS, c->rank, c->ranks, NULL);
    if (pl_gate_pass(fd, &own, 0, pl_gate_given_key, at->key, key, pl_now() + TRY, NULL) == PL_OK) {
        pl_signs_connect(m->signs, 0, fd);
        return true;
    }
    close(fd);
    return false;
}

// Other ranks: connects to the first of rank 0's addresses that reaches it.
static pl_status give_signs(pl_comm *c, place_of_signs *at, const char *address, double deadline, pl_err *err) {
    const mpi *m = c->link;
    char       tried[200] = "", text[80];
    if (address) {
        PL_TRY(pl_net_find(&at->at[0], address, false, err));
        at->port = pl_net_port(&at->at[0]);
        at->n = 1;
    } else if (strcmp(pl_signs_host(m->signs, 0), pl_signs_host(m->signs, c->rank)) == 0) {
        memmove(at->at + 1, at->at, (ADDRESSES - 1) * sizeof *at->at); // rank 0's address on this host, which may have
                                                                       // no other
        PL_TRY(pl_net_find(&at->at[0], "127.0.0.1:1", false, err));
        at->n = at->n < ADDRESSES ? at->n + 1 : ADDRESSES;
    }
    for (bool again = true; again; again = pl_now() < deadline && at->n > 0) {
        tried[0] = 0;
        for (int i = 0; i < at->n; i++) {
            size_t used = strlen(tried);
            pl_net_set_port(&at->at[i], at->port);
            if (greet_rank(c, at, &at->at[i])) return PL_OK;
            pl_net_text(&at->at[i], text, sizeof text);
            snprintf(tried + used, sizeof tried - used, "%s%s", used ? ", " : "", text);
        }
    }
    return pl_fail(err, PL_E_IO,
                   "ranks: number 0 of %s is here by MPI, but does not hear signs of life over TCP (at %s); give all "
                   "--address HOST:PORT, an address of that host that this one reaches",
                   pl_signs_host(m->signs, 0), *tried ? tried : "no address");
}

static pl_status connect_signs(pl_comm *c, const pl_comm_place *place, pl_err *err) {
    mpi           *m = c->link;
    const char    *address = place->address && *place->address ? place->address : NULL;
    double         deadline = pl_now() + CONNECT;
    int            listener = -1;
    place_of_signs at = {0};
    MPI_Request    q;
    if (c->rank == 0) PL_TRY(listen_for_signs(&listener, &at, address, err));
    pl_status st = check_call(MPI_Ibcast(&at, sizeof at, MPI_BYTE, 0, m->comm, &q), "where signs go", err);
    if (st == PL_OK) st = await_request(&q, "where signs go", deadline, err);
    if (st == PL_OK)
        st = c->rank == 0 ? hear_signs(c, &at, listener, deadline, err) : give_signs(c, &at, address, deadline, err);
    if (listener >= 0) close(listener);
    PL_TRY(st);
    PL_TRY(check_call(MPI_Ibarrier(m->comm, &q), "beginning",
                      err)); // no rank counts as silent while it waits for the last
                             // one to connect
    return await_request(&q, "beginning", deadline + CONNECT, err);
}

static pl_status join(pl_comm *c, const pl_comm_place *place, pl_err *err) {
    double deadline = pl_now() + (place->patience > 0 ? place->patience : PL_COMM_PATIENCE);
    PL_TRY(make_link(c, place, err));
    PL_TRY(begin_mpi(c, err));
    mpi  *m = c->link;
    card *all = pl_calloc((size_t)c->ranks, sizeof *all);
    if (!all) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    pl_status st = meet_all(c, place, all, deadline, err);
    pl_free(all);
    PL_TRY(st);
    if (c->ranks > 1) PL_TRY(connect_signs(c, place, err));
    if (c->ranks > 1) PL_TRY(pl_signs_start(m->signs, err));
    c->neighbours = pl_signs_neighbours(m->signs);
    m->joined = true;
    return PL_OK;
}

// ---- ending

typedef struct guard {
    pl_comm  *comm;
    int       end[2]; // a pipe
    pthread_t thread;
} guard;

// MPI_Finalize waits for all ranks and cannot be interrupted if one dies meanwhile: this thread then ends the process.
static void *watch_end(void *arg) {
    const guard  *g = arg;
    mpi          *m = g->comm->link;
    pl_err        err;
    struct pollfd fd[2] = {{.fd = g->end[0], .events = POLLIN}, {.fd = pl_signs_wake(m->signs), .events = POLLIN}};
    double        until = pl_now() + FINALIZE;
    while (pl_now() < until && !fd[0].revents && !fd[1].revents)
        poll(fd, 2, (int)((until - pl_now()) * 1e3) + 1);
    if (fd[0].revents) return NULL;
    if (check(g->comm, &err) == PL_OK) pl_fail(&err, PL_E_IO, "MPI_Finalize does not return");
    fprintf(stderr, "paceline: ranks: %s\n", err.msg);
    _exit(1);
}

static void finalize_mpi(pl_comm *c) {
    guard g = {.comm = c, .end = {-1, -1}};
    mpi  *m = c->link;
    bool  guarded = pipe(g.end) == 0 && pthread_create(&g.thread, NULL, watch_end, &g) == 0;
    MPI_Comm_free(&m->comm);
    MPI_Finalize();
    if (guarded) {
        (void)!write(g.end[1], "", 1);
        pthread_join(g.thread, NULL);
    }
    for (int i = 0; i < 2; i++)
        if (g.end[i] >= 0) close(g.end[i]);
}

static void close_mpi(pl_comm *c) {
    mpi *m = c->link;
    if (!m) return;
    if (m->joined && swap(c, PL_MEET_BARRIER, &(pl_comm_swap){0}, NULL) == PL_OK) finalize_mpi(c);
    pl_signs_close(m->signs);
    pl_free(m->mine);
    pl_free(m->theirs);
    pl_free(m->request);
    pl_free(m->status);
    pl_free(m->message);
    pl_free(m->done);
    pl_free(m);
    c->link = NULL;
}

const pl_group pl_group_mpi = {
    .name = "MPI", .join = join, .swap = swap, .check = check, .fail = fail, .close = close_mpi};

// ---- the linked MPI

void pl_comm_describe_mpi(char *out, size_t room) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int  n;
    if (MPI_Get_library_version(text, &n) != MPI_SUCCESS) snprintf(text, sizeof text, "built in");
    snprintf(out, room, "%.*s", (int)strcspn(text, ",\n"), text);
}

pl_mpi_kind pl_comm_mpi_kind(void) {
    char text[32];
    pl_comm_describe_mpi(text, sizeof text);
    return strncmp(text, "Open MPI", 8) == 0 ? PL_MPI_OPEN : PL_MPI_MPICH;
}
