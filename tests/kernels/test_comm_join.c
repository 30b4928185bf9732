// How ranks that were started by themselves find each other: by names, and over processes that come and go again.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/clock.h"
#include "kernels/comm/comm.h"
#include "kernels/comm/net.h"
#include "tests/key.h"
#include "tests/port.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int  reached;          // the one port that can be; 0: all
static bool listens_anywhere; // this process's

// Our objects' calls come here by the linker (--wrap, in CMakeLists.txt).
int __real_connect(int fd, const struct sockaddr *a, socklen_t n);
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t n);
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t n) {
    struct sockaddr_in to = {0};
    memcpy(&to, a, n < sizeof to ? n : sizeof to);
    if (!reached || ntohs(to.sin_port) == reached) return __real_connect(fd, a, n);
    errno = ECONNREFUSED;
    return -1;
}

int __real_bind(int fd, const struct sockaddr *a, socklen_t n);
int __wrap_bind(int fd, const struct sockaddr *a, socklen_t n);
int __wrap_bind(int fd, const struct sockaddr *a, socklen_t n) {
    pl_net_address at = {.bytes = n};
    memcpy(&at.at, a, n);
    if (pl_net_is_any(&at)) listens_anywhere = true;
    return __real_bind(fd, a, n);
}

static void nap(double seconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

// A process that joins and meets the others once; says: what its failure's line holds, NULL: there is none.
static pid_t rank_at(const char *address, int rank, double patience, const char *says) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    pl_comm_place p = {
        .rank = rank, .ranks = 3, .address = address, .patience = patience, .silence = 3, .find_key = test_key};
    pl_comm *c = NULL;
    pl_err   err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    pl_status st = pl_comm_join(&c, &p, &err);
    if (st == PL_OK) st = pl_comm_barrier(c, &err);
    if (st != PL_OK) pl_comm_fail(c, &err);
    pl_comm_close(c);
    bool good = says ? st != PL_OK && strstr(err.msg, says) : st == PL_OK;
    if (!good) fprintf(stderr, "rank %d: %s\n", rank, st == PL_OK ? "no failure" : err.msg);
    if (listens_anywhere && (rank > 0 || strncmp(address, "127.0.0.1:", 10) == 0)) {
        fprintf(stderr, "rank %d of %s listens at every address\n", rank, address);
        good = false;
    }
    _exit(good ? 0 : 1);
}

static bool ended_well(pid_t child) {
    int how = 0;
    return waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

// This host by its name, where that is a loopback address to itself, and by an address that others know it by.
static bool goes_by_two(char name[96], char own[96]) {
    pl_net_address here, a[8];
    int            n = pl_net_own(a, 8), port = test_free_port();
    if (gethostname(own, 64) != 0) return false;
    snprintf(name, 96, "%.64s:%d", own, port);
    if (pl_net_find(&here, name, false, NULL) != PL_OK || !pl_net_is_loopback(&here)) return false;
    for (int i = 0; i < n; i++) {
        if (a[i].at.ss_family != here.at.ss_family) continue;
        pl_net_set_port(&a[i], port);
        pl_net_text(&a[i], own, 96);
        return true;
    }
    return false;
}

// Ranks of its own and of another host find rank 0 by what its name is to them.
static void a_host_is_found_by_its_name(void **state) {
    (void)state;
    char name[96], own[96];
    if (!goes_by_two(name, own)) skip();
    pid_t child[3];
    for (int r = 0; r < 3; r++)
        child[r] = rank_at(r < 2 ? name : own, r, 5, NULL);
    bool good = true;
    for (int r = 0; r < 3; r++)
        good &= ended_well(child[r]);
    assert_true(good);
}

// ---- processes that go again

static const double WHILE = 0.7; // seconds in which a rank has come

static const char *free_address(void) {
    static char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", test_free_port());
    return address;
}

static void end(pid_t child) {
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void who_came_and_ended_may_come_anew(void **state) {
    (void)state;
    const char *address = free_address();
    pid_t       first = rank_at(address, 0, 20, NULL), second = rank_at(address, 1, 20, NULL);
    nap(WHILE);
    end(second);
    second = rank_at(address, 1, 20, NULL);
    nap(WHILE);
    pid_t third = rank_at(address, 2, 20, NULL);
    bool  good = ended_well(first), other = ended_well(second), last = ended_well(third);
    assert_true(good && other && last);
}

static void who_came_and_ended_is_missing(void **state) {
    (void)state;
    const char *address = free_address(), *says = "number 1 of 3 did not come to ";
    pid_t       first = rank_at(address, 0, 3, says), second = rank_at(address, 1, 3, NULL);
    nap(WHILE);
    end(second);
    pid_t third = rank_at(address, 2, 3, says);
    bool  good = ended_well(first), last = ended_well(third);
    assert_true(good && last);
}

// It is stopped before it says where it listens, then ended.
static void who_ends_while_all_connect_is_told(void **state) {
    (void)state;
    const char *address = free_address(), *says = "ranks: number 1 of ";
    pid_t       first = rank_at(address, 0, 25, says), second = rank_at(address, 1, 25, NULL);
    nap(WHILE);
    assert_int_equal(kill(second, SIGSTOP), 0);
    pid_t third = rank_at(address, 2, 25, says);
    nap(WHILE);
    double begin = pl_now();
    end(second);
    bool good = ended_well(first), last = ended_well(third);
    assert_true(good && last && pl_now() - begin < 15);
}

// It reaches rank 0 alone, as through a firewall: all hear why, and nobody is taken for silent.
static void who_reaches_rank_0_alone_is_told(void **state) {
    (void)state;
    const char *address = free_address(), *says = "rank 2: ranks: number 1 of ";
    pid_t       first = rank_at(address, 0, 4, says), second = rank_at(address, 1, 4, says);
    reached = atoi(strrchr(address, ':') + 1);
    pid_t third = rank_at(address, 2, 4, "cannot reach 127.0.0.1:");
    reached = 0;
    bool good = ended_well(first), other = ended_well(second), last = ended_well(third);
    assert_true(good && other && last);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_is_found_by_its_name),      cmocka_unit_test(who_came_and_ended_may_come_anew),
        cmocka_unit_test(who_came_and_ended_is_missing),    cmocka_unit_test(who_ends_while_all_connect_is_told),
        cmocka_unit_test(who_reaches_rank_0_alone_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
