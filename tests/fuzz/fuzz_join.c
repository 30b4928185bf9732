// The protocol by which ranks join and meet over TCP, in both roles: rank 0 against any connector, rank 1 against
// anything that listens at rank 0's address; without the key, and with it, so that the bytes behind the handshake are
// reached. A peer without the key never gets more than a nonce, or joins.
//
// The rank runs on the fuzzer's thread over real loopback connections. Its peer acts whenever the rank would wait (poll
// and nanosleep come here by the linker, --wrap in CMakeLists.txt), and where neither has anything to do the clock goes
// on by itself: no input takes real seconds.
//
// An input: a byte of flags; two bytes: the length of what goes over the connection for signs of life, and that; the
// rest goes over the connection for data.
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/comm/handshake.h"
#include "kernels/comm/impl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/key.h"
#include "tests/port.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANK_1 = 1, KNOWS = 2, CLOSES = 4, CLAIMS = 8 }; // flags; CLAIMS: the first bytes are the peer's claim

// ---- the protocol -------------------------------------------------------------------------------------------------

// What goes over connections, as kernels/comm/tcp.c and signs.c have it.
enum { MAGIC = 0x706c6332 };
typedef struct answer {
    uint32_t       magic, status;
    char           why[sizeof(((pl_err *)NULL)->msg)];
    pl_net_address listen;
} answer;
typedef struct entry {
    pl_net_address at;
    uint32_t       home;
    char           host[PL_HOST_BYTES];
} entry;
typedef struct head {
    uint32_t magic, what, turn, rank;
    uint64_t bytes;
} head;
typedef struct sign {
    int32_t kind, who, status, n;
} sign;

// ---- time ------------------------------------------------------------------------------------------------------------

static _Atomic double   passed;   // seconds beside the real ones
static _Atomic unsigned looked;   // polls of the watcher of signs
static atomic_bool      watching; // it runs
static pthread_t        fuzzer;
static bool             acting; // the peer, on the fuzzer's thread: its calls are real

double __real_pl_now(void);
double __wrap_pl_now(void);
int    __real_poll(struct pollfd *fd, nfds_t n, int ms);
int    __wrap_poll(struct pollfd *fd, nfds_t n, int ms);
int    __real_nanosleep(const struct timespec *t, struct timespec *rest);
int    __wrap_nanosleep(const struct timespec *t, struct timespec *rest);

static bool act(void);

double __wrap_pl_now(void) {
    return __real_pl_now() + passed;
}

// Lets the watcher of signs look before time goes on: a gap in its own time would mean that the process was suspended.
static void let_pass(double seconds) {
    passed = passed + seconds;
    for (unsigned before = looked; watching && looked - before < 2;)
        __real_nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static int poll_as_watcher(struct pollfd *fd, nfds_t n, int ms) {
    watching = true;
    int r = __real_poll(fd, n, ms < 0 || ms > 1 ? 1 : ms);
    looked++;
    if (fd[0].revents) watching = false; // its end: signs.c
    return r;
}

int __wrap_poll(struct pollfd *fd, nfds_t n, int ms) {
    if (!pthread_equal(pthread_self(), fuzzer)) return poll_as_watcher(fd, n, ms);
    if (acting) return __real_poll(fd, n, ms);
    while (act())
        ;
    int r = __real_poll(fd, n, 0);
    if (r != 0 || ms == 0) return r;
    if (ms > 0) {
        let_pass(ms / 1e3);
        return 0;
    }
    r = __real_poll(fd, n, 1);
    if (r == 0) let_pass(1);
    return r;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *rest) {
    if (!pthread_equal(pthread_self(), fuzzer)) return __real_nanosleep(t, rest);
    while (act())
        ;
    let_pass((double)t->tv_sec + (double)t->tv_nsec / 1e9);
    return 0;
}

// ---- the peer --------------------------------------------------------------------------------------------------------

typedef struct end {
    int            fd; // -1: not yet
    bool           opened, proven;
    const uint8_t *send;
    size_t         n, sent, received;
} end;

static struct {
    unsigned flags;
    int      port, listener; // of rank 0; the peer's
    pl_gate *gate;           // of the peer as rank 0
    pl_claim claim;
    end      end[2]; // PL_FOR_SIGNS, PL_FOR_DATA
} peer;

static uint8_t key[PL_COMM_KEY];

static bool knows(void) {
    return peer.flags & KNOWS;
}

static void close_end(end *e) {
    if (e->fd < 0) return;
    setsockopt(e->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger)); // no port waits
    close(e->fd);
    e->fd = -1;
}

// Connects to rank 0: for data once the table has come.
static bool open_connector(int kind) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    end               *e = &peer.end[kind];
    if (e->opened || (kind == PL_FOR_DATA && peer.end[PL_FOR_SIGNS].received <= 2 * sizeof(answer))) return false;
    a.sin_port = htons((uint16_t)peer.port);
    e->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    e->opened = e->fd >= 0 && connect(e->fd, (const struct sockaddr *)&a, sizeof a) == 0;
    e->proven = !knows();
    if (!e->opened) close_end(e);
    return e->opened;
}

static bool prove(int kind) {
    end            *e = &peer.end[kind];
    uint8_t         nonce[PL_NONCE_BYTES], expected[PL_PROOF_BYTES];
    pl_gate_message m;
    pl_claim        own = peer.claim;
    if (recv(e->fd, nonce, sizeof nonce, MSG_DONTWAIT) != (ssize_t)sizeof nonce) return false;
    if (kind == PL_FOR_DATA) pl_claim_make(&own, kind, 1, 2, NULL);
    pl_gate_prove(&m, expected, &own, 0, nonce, key);
    e->proven = send(e->fd, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof m;
    return e->proven;
}

// Takes a connection of rank 1 in: what has the key by the gate.
static bool open_listener(void) {
    pl_net_address from;
    pl_claim       c = {0};
    pl_err         err = {0};
    int            fd = -1, kind = peer.end[PL_FOR_SIGNS].opened ? PL_FOR_DATA : PL_FOR_SIGNS;
    if (knows())
        pl_fuzz_must(pl_gate_next(peer.gate, &fd, &c, &from, -1, 0, &err), &err);
    else
        pl_fuzz_must(pl_net_accept(&fd, &from, peer.listener, &err), &err);
    if (fd < 0) return false;
    if (peer.end[kind].opened) { // a try after the first that was refused
        close(fd);
        return true;
    }
    peer.end[kind] =
        (end){.fd = fd, .opened = true, .proven = true, .send = peer.end[kind].send, .n = peer.end[kind].n};
    return true;
}

// Sends and receives what goes at once.
static bool move(end *e) {
    uint8_t in[4096];
    bool    moved = false;
    if (e->fd < 0 || !e->proven) return false;
    if (e->sent < e->n) {
        ssize_t n = send(e->fd, e->send + e->sent, e->n - e->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        moved = n > 0;
        if (n > 0) e->sent += (size_t)n;
    }
    ssize_t n = recv(e->fd, in, sizeof in, MSG_DONTWAIT);
    if (n > 0) e->received += (size_t)n;
    if (n == 0 || (e->sent == e->n && (peer.flags & CLOSES))) close_end(e);
    return moved || n >= 0;
}

// A step of the peer; false: it waits itself.
static bool act(void) {
    bool any = false;
    acting = true;
    if (peer.flags & RANK_1) any |= open_listener();
    for (int kind = 0; kind < 2; kind++) {
        if (!(peer.flags & RANK_1)) any |= open_connector(kind);
        if (peer.end[kind].fd >= 0 && !peer.end[kind].proven) any |= prove(kind);
        any |= move(&peer.end[kind]);
    }
    acting = false;
    return any;
}

// ---- seeds -----------------------------------------------------------------------------------------------------------

typedef struct text {
    uint8_t at[8192];
    size_t  n;
} text;

static void put(text *t, const void *data, size_t n) {
    memcpy(t->at + t->n, data, n);
    t->n += n;
}

static void put_meeting(text *t, int rank, unsigned turn, uint32_t what, const void *data, size_t n) {
    put(t, &(head){.magic = MAGIC, .what = what, .turn = turn, .rank = (uint32_t)rank, .bytes = n}, sizeof(head));
    if (n) put(t, data, n);
}

// The meetings of use_group, of a peer that announces `bytes` and `rounds`.
static void put_meetings(text *t, int rank, uint64_t bytes, uint64_t rounds) {
    double x[2] = {1, 2};
    put_meeting(t, rank, 0, PL_MEET_EXCHANGE, &bytes, sizeof bytes);
    put_meeting(t, rank, 1, PL_MEET_EXCHANGE, &rounds, sizeof rounds);
    put_meeting(t, rank, 2, PL_MEET_EXCHANGE, "sixteen letters.", 16);
    put_meeting(t, rank, 3, PL_MEET_DOUBLES, x, sizeof x);
    put_meeting(t, rank, 4, PL_MEET_BROADCAST, "thirty-two letters of the first.", rank == 0 ? 32 : 0);
    put_meeting(t, rank, 5, PL_MEET_BARRIER, NULL, 0);
}

static void seed(unsigned flags, const text *signs, const text *data) {
    text all = {0};
    put(&all, (uint8_t[]){(uint8_t)flags, (uint8_t)signs->n, (uint8_t)(signs->n >> 8)}, 3);
    put(&all, signs->at, signs->n);
    put(&all, data->at, data->n);
    pl_fuzz_seed(all.at, all.n);
}

static void put_signs(text *t, int who) {
    put(t, &(sign){.kind = 0}, sizeof(sign));
    put(t, &(sign){.kind = 1, .who = who, .status = PL_E_IO, .n = 5}, sizeof(sign));
    put(t, "ended", 5);
}

// As rank 1.
static void put_port(text *t) {
    put(t, &(uint32_t){1}, 4);
}

// As rank 0.
static void put_answers(text *t, uint32_t status, int family) {
    answer a = {.magic = MAGIC, .status = status, .why = "why"};
    entry  table[2] = {{.host = "a"}, {.host = "b"}};
    a.listen.at.ss_family = (sa_family_t)family;
    for (int r = 0; r < 2; r++) {
        table[r].at.at.ss_family = AF_INET;
        table[r].at.bytes = sizeof(struct sockaddr_in);
    }
    put(t, &a, sizeof a);
    put(t, &a, sizeof a);
    put(t, table, sizeof table);
}

static void seeds(void) {
    static const struct {
        uint64_t bytes, rounds;
    } said[] = {{16, 1}, {64, 1}, {65, 1}, {UINT64_MAX - 7, 1}, {16, (uint64_t)1 << 60}, {0, 0}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        for (int rank = 0; rank < 2; rank++) { // the peer's
            text signs = {0}, data = {0};
            if (rank == 0)
                put_answers(&signs, PL_OK, 0);
            else
                put_port(&signs);
            if (i == 1) put_signs(&signs, rank);
            put_meetings(&data, rank, said[i].bytes, said[i].rounds);
            seed(KNOWS | (rank == 0 ? RANK_1 : 0), &signs, &data);
            if (i == 0) seed(rank == 0 ? RANK_1 : 0, &signs, &data);
            if (i == 0) seed(KNOWS | CLOSES | (rank == 0 ? RANK_1 : 0), &signs, &data);
        }
    text none = {0}, refused = {0}, elsewhere = {0};
    put_answers(&refused, PL_E_USAGE, 0);
    put_answers(&elsewhere, PL_OK, 77);
    seed(RANK_1 | KNOWS, &refused, &none);
    seed(RANK_1 | KNOWS, &elsewhere, &none);
    for (uint32_t rank = 0; rank < 4; rank++) {
        text     signs = {0};
        pl_claim c = {
            .rank = rank, .ranks = rank == 3 ? 3 : 2, .kind = rank == 2, .host = "host", .identity = "another"};
        put(&signs, &c, sizeof c);
        put_port(&signs);
        seed(KNOWS | CLAIMS, &signs, &none);
    }
}

static const char *const words[] = {"2clp", "\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff", NULL};

const pl_fuzz_target pl_fuzz = {.name = "join", .seeds = seeds, .words = words, .runs = 1500, .max_len = 1 << 13};

// ---- the rank --------------------------------------------------------------------------------------------------------

static void check_failure(pl_status st, const pl_err *err) {
    if (st == PL_OK) return;
    if (err->status != st || !err->msg[0]) pl_fuzz_finding("a failure without a line");
    for (const char *p = err->msg; *p; p++)
        if ((unsigned char)*p < ' ') pl_fuzz_finding("byte 0x%02x in the line \"%s\"", (unsigned)*p, err->msg);
}

static pl_status use_group(pl_comm *c, pl_err *err) {
    enum { MOST = 64 };
    uint8_t mine[32] = "sixteen letters.", *all = NULL;
    size_t  bytes[PL_RANKS_MAX];
    double  x[2] = {1, 2};
    PL_TRY(pl_comm_gather(c, mine, 16, MOST, &all, bytes, err));
    if (bytes[0] > MOST || bytes[1] > MOST) pl_fuzz_finding("%zu and %zu bytes", bytes[0], bytes[1]);
    pl_fuzz_touch(all, bytes[0] + bytes[1]);
    pl_free(all);
    PL_TRY(pl_comm_sum_doubles(c, x, 2, err));
    PL_TRY(pl_comm_broadcast(c, mine, sizeof mine, err));
    return pl_comm_barrier(c, err);
}

static void begin(const uint8_t *data, size_t n) {
    size_t at = 3, n_signs = n < 3 ? 0 : (size_t)data[1] | (size_t)data[2] << 8;
    if (at > n) at = n;
    if (n_signs > n - at) n_signs = n - at;
    peer.flags = n ? data[0] : 0;
    pl_claim_make(&peer.claim, PL_FOR_SIGNS, 1, 2, NULL);
    if ((peer.flags & CLAIMS) && n_signs) {
        size_t k = n_signs < sizeof peer.claim ? n_signs : sizeof peer.claim;
        memcpy(&peer.claim, data + at, k);
        at += k;
        n_signs -= k;
    }
    peer.end[PL_FOR_SIGNS] = (end){.fd = -1, .send = data + at, .n = n_signs};
    peer.end[PL_FOR_DATA] = (end){.fd = -1, .send = data + at + n_signs, .n = n - at - n_signs};
}

static void open_peer(void) {
    pl_net_address a;
    pl_err         err = {0};
    if (peer.port) return;
    fuzzer = pthread_self();
    pl_log_set(PL_LOG_MUTE); // most inputs are strangers
    peer.port = test_free_port();
    test_key(NULL, key, NULL);
    pl_fuzz_must(pl_net_find(&a, "127.0.0.1:1", true, &err), &err);
    pl_net_set_port(&a, 0);
    pl_fuzz_must(pl_net_listen(&peer.listener, &a, &err), &err);
    pl_fuzz_must(pl_gate_open(&peer.gate, peer.listener, 0, 2, key, &err), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char     address[32];
    pl_err   err = {0};
    pl_comm *c;
    open_peer();
    begin(data, n);
    bool first = !(peer.flags & RANK_1);
    int  port = peer.port;
    if (!first) {
        pl_net_address at;
        pl_fuzz_must(pl_net_near(&at, peer.listener, &err), &err);
        port = pl_net_port(&at);
    }
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    pl_comm_place p = {.rank = !first, .ranks = 2, .address = address, .patience = 0.5, .silence = 3};
    p.find_key = test_key;
    pl_status st = pl_comm_join(&c, &p, &err);
    if (st == PL_OK && !knows()) pl_fuzz_finding("a peer without the key has joined");
    check_failure(st, &err);
    if (first && !knows() && peer.end[0].received > PL_NONCE_BYTES)
        pl_fuzz_finding("%zu bytes for a peer without the key", peer.end[0].received);
    if (st == PL_OK) {
        st = use_group(c, &err);
        check_failure(st, &err);
        if (st != PL_OK) pl_comm_fail(c, &err);
        pl_comm_close(c);
    }
    acting = true;
    while (!first && open_listener()) // connections that the rank has given up
        ;
    acting = false;
    for (int kind = 0; kind < 2; kind++)
        close_end(&peer.end[kind]);
    return 0;
}
