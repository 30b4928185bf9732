// What ranks over TCP do about connections that are none of theirs, and about ranks that break the protocol: real
// processes over loopback, against a peer that sends what it likes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/comm/handshake.h"
#include "kernels/comm/impl.h"
#include "tests/key.h"
#include "tests/port.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Bytes that ranks send, as kernels/comm/tcp.c and handshake.c have them.
enum { MAGIC = 0x706c6332, MESSAGE = PL_NONCE_BYTES + sizeof(pl_claim) + PL_PROOF_BYTES, SPARE = 64 };
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

static char address[32];
static int  port;

static void find_port(void) {
    port = test_free_port();
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
}

static pl_status other_key(void *arg, uint8_t key[PL_COMM_KEY], pl_err *err) {
    (void)arg, (void)err;
    memset(key, 'x', PL_COMM_KEY);
    return PL_OK;
}

// ---- ranks in processes of their own

typedef pl_status (*rank_fn)(pl_comm *c, pl_err *err);

// A process that joins as `rank` of `ranks`, calls fn and ends with 0 where its failure has `says` (NULL: it has none).
static pid_t start_rank(int rank, int ranks, double patience, rank_fn fn, const char *says) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    pl_comm_place p = {.rank = rank, .ranks = ranks, .address = address, .patience = patience, .silence = 3};
    pl_comm      *c = NULL;
    pl_err        err = {0};
    p.find_key = test_key;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    pl_status st = pl_comm_join(&c, &p, &err);
    if (st == PL_OK) st = fn(c, &err);
    if (st != PL_OK) pl_comm_fail(c, &err);
    pl_comm_close(c);
    bool good = says ? st != PL_OK && strstr(err.msg, says) && !strchr(err.msg, '\n') : st == PL_OK;
    if (!good) fprintf(stderr, "rank %d: wanted %s, got %s\n", rank, says ? says : "no failure", st ? err.msg : "none");
    _exit(good ? 0 : 1);
}

static bool ended_well(pid_t child) {
    int how = 0;
    return waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

static pl_status meet(pl_comm *c, pl_err *err) {
    return pl_comm_barrier(c, err);
}

// ---- a peer that is no rank

static int reach(void) {
    pl_net_address a;
    pl_err         err = {0};
    int            fd = -1;
    if (pl_net_find(&a, address, false, &err) != PL_OK || pl_net_connect(&fd, &a, pl_now() + 10, &err) != PL_OK)
        fail_msg("%s", err.msg);
    return fd;
}

static void say(int fd, const void *data, size_t n) {
    pl_net_send(fd, data, n, pl_now() + 5, NULL); // refused halfway, perhaps
}

static void take(int fd, void *data, size_t n) {
    pl_err err = {0};
    if (pl_net_take(fd, data, n, pl_now() + 10, &err) != PL_OK) fail_msg("%s", err.msg);
}

// Whether the other end closes the connection within `seconds` without another byte.
static bool closes(int fd, double seconds) {
    char   more;
    double begin = pl_now();
    return pl_net_take(fd, &more, 1, begin + seconds, NULL) != PL_OK && pl_now() < begin + seconds;
}

static pl_claim claim(int kind, int rank, int ranks) {
    pl_claim c;
    pl_claim_make(&c, kind, rank, ranks, "");
    return c;
}

// The message of an honest rank 1 of 2 to something that answers at its rank 0's address.
static void overhear(uint8_t message[MESSAGE]) {
    pl_net_address a;
    pl_err         err = {0};
    pl_net_address from;
    int            listener = -1, fd = -1;
    char           before[sizeof address];
    memcpy(before, address, sizeof before);
    find_port();
    if (pl_net_find(&a, address, true, &err) != PL_OK || pl_net_listen(&listener, &a, &err) != PL_OK)
        fail_msg("%s", err.msg);
    pid_t rank = start_rank(1, 2, 1, meet, "");
    poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 10000);
    assert_int_equal(pl_net_accept(&fd, &from, listener, &err), PL_OK);
    uint8_t nonce[PL_NONCE_BYTES] = {1};
    say(fd, nonce, sizeof nonce);
    take(fd, message, MESSAGE);
    close(fd);
    close(listener);
    kill(rank, SIGKILL);
    waitpid(rank, NULL, 0);
    memcpy(address, before, sizeof before);
}

// What a stranger does at rank 0's port; each row leaves connections open (fd[n]) that are to be closed.
typedef enum { SILENT, GARBAGE, HTTP, PART, FORMER, WRONG, REPLAYED, REFLECTED, RESET, KINDS } stranger;
static const char *const stranger_name[] = {"silent", "garbage",  "http",      "part", "former",
                                            "wrong",  "replayed", "reflected", "reset"};

static uint8_t overheard[MESSAGE];

static int come(stranger how) {
    uint8_t  bytes[MESSAGE] = {0}, key[PL_COMM_KEY];
    pl_claim own = claim(PL_FOR_SIGNS, 1, 2);
    pl_err   err = {0};
    int      fd = reach();
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    if (how == GARBAGE) say(fd, bytes, sizeof bytes);
    if (how == HTTP) say(fd, "GET / HTTP/1.0\r\n\r\n", 18);
    if (how == PART) say(fd, overheard, sizeof overheard / 2);
    if (how == FORMER) say(fd, "1clp\0\0\0\0\1\0\0\0\2\0\0\0\1\0\0\0vm", 22);
    if (how == WRONG) assert_int_equal(pl_gate_pass(fd, &own, 0, other_key, NULL, key, pl_now() + 5, &err), PL_E_IO);
    if (how == REPLAYED) say(fd, overheard, sizeof overheard);
    if (how == REFLECTED) { // rank 0's own bytes as the proof
        take(fd, bytes + sizeof bytes - PL_PROOF_BYTES, PL_PROOF_BYTES);
        memcpy(bytes, bytes + sizeof bytes - PL_PROOF_BYTES, PL_NONCE_BYTES);
        memcpy(bytes + PL_NONCE_BYTES, &own, sizeof own);
        say(fd, bytes, sizeof bytes);
    }
    if (how == RESET) {
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
        close(fd);
        return -1;
    }
    return fd;
}

// They cost rank 1 no time; those that send a whole message are closed at once, without a byte but the nonce.
static void strangers_cost_nothing(void **state) {
    (void)state;
    enum { EACH = 2 };
    int fd[KINDS * EACH];
    overhear(overheard);
    find_port();
    pid_t first = start_rank(0, 2, 30, meet, NULL);
    for (int i = 0; i < KINDS * EACH; i++)
        fd[i] = come((stranger)(i / EACH));
    double begin = pl_now();
    pid_t  second = start_rank(1, 2, 30, meet, NULL);
    bool   good = ended_well(second) && ended_well(first);
    double took = pl_now() - begin;
    if (!good || took > 3) fail_msg("the ranks %s, after %.1f s", good ? "join" : "fail", took);
    for (int i = 0; i < KINDS * EACH; i++) {
        uint8_t nonce[PL_NONCE_BYTES];
        int     how = i / EACH;
        if (fd[i] < 0) continue;
        if (how < WRONG || how == REPLAYED) take(fd[i], nonce, sizeof nonce);
        if (!closes(fd[i], 5)) fail_msg("%s: hears more than a nonce", stranger_name[how]);
        close(fd[i]);
    }
}

// A whole message that proves nothing is refused at once, though the ranks still wait; rank 0 goes on.
static void a_refusal_tells_nothing(void **state) {
    (void)state;
    static const stranger how[] = {GARBAGE, WRONG, REPLAYED, REFLECTED};
    overhear(overheard);
    find_port();
    pid_t first = start_rank(0, 2, 30, meet, NULL);
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        uint8_t nonce[PL_NONCE_BYTES];
        int     fd = come(how[i]);
        if (how[i] == GARBAGE || how[i] == REPLAYED) take(fd, nonce, sizeof nonce);
        if (!closes(fd, 3)) fail_msg("%s: is not refused", stranger_name[how[i]]);
        close(fd);
    }
    pid_t second = start_rank(1, 2, 30, meet, NULL);
    bool  good = ended_well(first), other = ended_well(second);
    assert_true(good && other);
}

// The oldest of too many connections makes room.
static void pending_connections_are_bounded(void **state) {
    (void)state;
    int fd[2 + SPARE + 8], n = sizeof fd / sizeof *fd;
    find_port();
    pid_t first = start_rank(0, 2, 30, meet, NULL);
    for (int i = 0; i < n; i++) {
        uint8_t nonce[PL_NONCE_BYTES];
        fd[i] = reach();
        take(fd[i], nonce, sizeof nonce);
    }
    bool  dropped = closes(fd[0], 2), kept = !closes(fd[n - 1], 0.1);
    pid_t second = start_rank(1, 2, 30, meet, NULL);
    bool  good = ended_well(first), other = ended_well(second);
    for (int i = 0; i < n; i++)
        close(fd[i]);
    assert_true(dropped && kept && good && other);
}

static void patience_is_kept(void **state) {
    (void)state;
    int fd[8];
    find_port();
    double begin = pl_now();
    pid_t  first = start_rank(0, 2, 2, meet, "number 1 of 2 did not come to ");
    for (int i = 0; i < 8; i++)
        fd[i] = reach();
    bool   good = ended_well(first);
    double took = pl_now() - begin;
    for (int i = 0; i < 8; i++)
        close(fd[i]);
    if (!good || took < 2 || took > 4) fail_msg("%s after %.1f s", good ? "ends" : "fails", took);
}

// ---- something that is no rank 0

// Answers at rank 0's port: without the key, until its end, or once where it leaves; bytes: of its answer to rank 1's
// message.
typedef struct impostor {
    const char *name, *says; // the failure of rank 1
    bool        nonce, reflects, closes, leaves;
    size_t      bytes;
} impostor;

static const impostor impostors[] = {
    {.name = "silent", .says = "no answer in time"},
    {.name = "closed", .says = "127.0.0.1:", .closes = true},
    {.name = "a nonce and no more", .says = "no answer in time", .nonce = true},
    {.name = "refuses", .says = "does not take this rank's secret", .nonce = true, .closes = true},
    {.name = "garbage", .says = "does not know the secret", .nonce = true, .bytes = PL_PROOF_BYTES},
    {.name = "reflects", .says = "does not know the secret", .nonce = true, .bytes = PL_PROOF_BYTES, .reflects = true},
    {.name = "refuses and leaves",
     .says = "not take this rank's secret",
     .nonce = true,
     .closes = true,
     .leaves = true},
};

// Serves one connection as it does.
static void pose(const impostor *how, int fd) {
    uint8_t message[MESSAGE] = {0};
    if (how->nonce) say(fd, (uint8_t[PL_NONCE_BYTES]){7}, PL_NONCE_BYTES);
    if (how->nonce) pl_net_take(fd, message, sizeof message, pl_now() + 5, NULL);
    if (how->bytes) say(fd, how->reflects ? message + MESSAGE - PL_PROOF_BYTES : message, how->bytes);
    if (how->closes) shutdown(fd, SHUT_RDWR);
}

static void no_rank_0_is_obeyed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof impostors / sizeof *impostors; i++) {
        pl_net_address a, from;
        pl_err         err = {0};
        int            listener = -1, fd = -1;
        find_port();
        if (pl_net_find(&a, address, true, &err) != PL_OK || pl_net_listen(&listener, &a, &err) != PL_OK)
            fail_msg("%s", err.msg);
        double begin = pl_now();
        pid_t  rank = start_rank(1, 2, 0.8, meet, impostors[i].says);
        bool   left = false;
        while (!left && pl_now() < begin + 1) {
            poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 100);
            assert_int_equal(pl_net_accept(&fd, &from, listener, &err), PL_OK);
            if (fd >= 0) pose(&impostors[i], fd); // stays open, so that nothing is learnt from its end
            left = impostors[i].leaves && fd >= 0;
        }
        if (left) close(listener);
        bool good = ended_well(rank);
        if (!left) close(listener);
        if (!good || pl_now() - begin > 5) fail_msg("%s, after %.1f s", impostors[i].name, pl_now() - begin);
    }
}

// ---- peers that have the key and break the protocol

static pl_status gather(pl_comm *c, pl_err *err) {
    uint8_t mine[1440] = {0}, *all;
    size_t  bytes[PL_RANKS_MAX];
    PL_TRY(pl_comm_gather(c, mine, sizeof mine, 4096, &all, bytes, err));
    pl_free(all);
    return PL_OK;
}

static pl_status exchange(pl_comm *c, pl_err *err) {
    uint8_t         in[64];
    pl_comm_parcels p = {.in[1] = in, .in_bytes[1] = sizeof in};
    return pl_comm_exchange(c, &p, err);
}

// Rank 1 joins as it should and then announces n.
static void announce(rank_fn fn, uint64_t n, const char *says) {
    pl_comm      *c = NULL;
    pl_err        err = {0};
    uint64_t      all[2];
    pl_comm_place p = {.rank = 1, .ranks = 2, .patience = 20, .silence = 3, .find_key = test_key};
    find_port();
    p.address = address;
    pid_t first = start_rank(0, 2, 20, fn, says);
    if (pl_comm_join(&c, &p, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_status st = pl_comm_show(c, PL_MEET_EXCHANGE, &n, (uint8_t *)all, sizeof n, &err);
    if (st == PL_OK && pl_comm_barrier(c, &err) == PL_OK) fail_msg("%llu: is taken", (unsigned long long)n);
    bool good = ended_well(first);
    pl_comm_close(c);
    assert_true(good);
}

static void announced_lengths_are_bounded(void **state) {
    (void)state;
    announce(gather, UINT64_MAX - 1440 + 9, "rank 1: announces 18446744073709550184 bytes, at most 4096 can be");
    announce(gather, UINT64_MAX - 24, "rank 1: announces ");
    announce(gather, (uint64_t)1 << 50, "rank 1: announces ");
    announce(gather, 4097, "rank 1: announces 4097 bytes, at most 4096 can be");
    announce(exchange, (uint64_t)1 << 60, "rank 1: announces 1152921504606846976 rounds of an exchange");
}

// As rank 1 of 2 it passes rank 0's gate and says `port`; n bytes of it.
static void say_port(uint32_t at, size_t n, const char *says) {
    uint8_t  key[PL_COMM_KEY];
    pl_claim own = claim(PL_FOR_SIGNS, 1, 2);
    pl_err   err = {0};
    answer   a;
    find_port();
    double begin = pl_now();
    pid_t  first = start_rank(0, 2, 1, meet, says);
    int    fd = reach();
    if (pl_gate_pass(fd, &own, 0, test_key, NULL, key, pl_now() + 5, &err) != PL_OK) fail_msg("%s", err.msg);
    take(fd, &a, sizeof a);
    assert_int_equal(a.status, PL_OK);
    say(fd, &at, n);
    bool good = ended_well(first);
    close(fd);
    if (!good || pl_now() - begin > 9) fail_msg("port %u: after %.1f s", at, pl_now() - begin);
}

static void ports_are_checked(void **state) {
    (void)state;
    say_port(0, 4, "listens at no port (0)");
    say_port(65536, 4, "listens at no port (65536)");
    say_port(1, 2, "ranks: number 1 of "); // silent then, though the connection stands
}

// Rank 0 by the key: its answers to rank 1, as they come; `table` rows of the table behind the second one.
typedef struct false_answer {
    const char *name, *says;
    uint32_t    magic, status;
    int         listen_family, table_family;
} false_answer;

static const false_answer false_answers[] = {
    {"another magic", "answers as no rank 0 does", 1, 0, 0, 0},
    {"a status that is none", "its words", MAGIC, 77, 0, 0},
    {"a family that is none", "says no address to listen at", MAGIC, 0, 77, 0},
    {"a table of no addresses", "says no address of number 1", MAGIC, 0, 0, 77},
};

static void answers_are_checked(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof false_answers / sizeof *false_answers; i++) {
        const false_answer *f = &false_answers[i];
        pl_net_address      at, from;
        pl_err              err = {0};
        pl_gate            *gate = NULL;
        pl_claim            c;
        uint8_t             key[PL_COMM_KEY];
        uint32_t            told;
        int                 listener = -1, fd = -1;
        entry               table[2] = {{.home = 1}};
        answer              a = {.magic = f->magic, .status = f->status, .why = "its words"};
        find_port();
        test_key(NULL, key, NULL);
        if (pl_net_find(&at, address, true, &err) != PL_OK || pl_net_listen(&listener, &at, &err) != PL_OK ||
            pl_gate_open(&gate, listener, 0, 2, key, &err) != PL_OK)
            fail_msg("%s", err.msg);
        pid_t rank = start_rank(1, 2, 2, meet, f->says);
        if (pl_gate_next(gate, &fd, &c, &from, -1, pl_now() + 10, &err) != PL_OK || fd < 0) fail_msg("%s", err.msg);
        assert_true(c.kind == PL_FOR_SIGNS && c.rank == 1 && c.ranks == 2);
        a.listen.at.ss_family = (sa_family_t)f->listen_family;
        say(fd, &a, sizeof a);
        if (f->table_family) {
            take(fd, &told, sizeof told);
            table[1].at.at.ss_family = (sa_family_t)f->table_family;
            say(fd, &a, sizeof a);
            say(fd, table, sizeof table);
        }
        bool good = ended_well(rank);
        pl_gate_close(gate);
        close(fd);
        close(listener);
        if (!good) fail_msg("%s", f->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_cost_nothing),
        cmocka_unit_test(a_refusal_tells_nothing),
        cmocka_unit_test(pending_connections_are_bounded),
        cmocka_unit_test(patience_is_kept),
        cmocka_unit_test(no_rank_0_is_obeyed),
        cmocka_unit_test(announced_lengths_are_bounded),
        cmocka_unit_test(ports_are_checked),
        cmocka_unit_test(answers_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
