// The n-th socket, connection, message... of a rank fails: whatever n, nobody hangs or crashes, who fails says so in one
// line, and nothing is held. Our objects' calls come here by the linker (--wrap, in CMakeLists.txt).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/comm/comm.h"
#include "tests/key.h"
#include "tests/port.h"
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

// name, result, errno, parameters, arguments
#define CALLS(X)                                                                                                       \
    X(socket, int, -1, EMFILE, (int a, int b, int c), (a, b, c))                                                       \
    X(bind, int, -1, EADDRINUSE, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))                            \
    X(listen, int, -1, EADDRINUSE, (int a, int b), (a, b))                                                             \
    X(getsockname, int, -1, ENOBUFS, (int a, struct sockaddr *b, socklen_t *c), (a, b, c))                             \
    X(accept4, int, -1, EMFILE, (int a, struct sockaddr *b, socklen_t *c, int d), (a, b, c, d))                        \
    X(connect, int, -1, ENETUNREACH, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))                        \
    X(getaddrinfo, int, EAI_MEMORY, ENOMEM,                                                                            \
      (const char *a, const char *b, const struct addrinfo *c, struct addrinfo **d), (a, b, c, d))                     \
    X(send, ssize_t, -1, ECONNRESET, (int a, const void *b, size_t c, int d), (a, b, c, d))                            \
    X(recv, ssize_t, -1, ECONNRESET, (int a, void *b, size_t c, int d), (a, b, c, d))                                  \
    X(poll, int, -1, ENOMEM, (struct pollfd * a, nfds_t b, int c), (a, b, c))                                          \
    X(pipe2, int, -1, EMFILE, (int *a, int b), (a, b))                                                                 \
    X(pthread_create, int, EAGAIN, EAGAIN, (pthread_t * a, const pthread_attr_t *b, void *(*c)(void *), void *d),      \
      (a, b, c, d))

#include "tests/kernels/nth_call.h"

#define X(name, result, wrong, cause, parameters, arguments)                                                           \
    result __real_##name parameters;                                                                                   \
    result __wrap_##name parameters;                                                                                   \
    result __wrap_##name parameters {                                                                                  \
        if (!falls(CALL_##name)) return __real_##name arguments;                                                       \
        errno = cause;                                                                                                 \
        return wrong;                                                                                                  \
    }
CALLS(X)
#undef X

static int held(void) {
    int  n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d) closedir(d);
    return n;
}

enum { FAILED = 1, BAD = 2, FELL = 4 };

static int as_rank(int rank, const char *address) {
    pl_comm      *c = NULL;
    pl_err        err = {0};
    double        x = 1;
    int           before = held(), code = 0;
    pl_comm_place place = {
        .rank = rank, .ranks = 2, .address = address, .patience = 1, .silence = 3, .find_key = test_key};
    alarm(40);
    pl_status st = pl_comm_join(&c, &place, &err);
    for (int i = 0; i < 3 && st == PL_OK; i++)
        st = pl_comm_sum_doubles(c, &x, 1, &err);
    if (st == PL_OK && x != 8) code |= BAD;
    if (st != PL_OK) pl_comm_fail(c, &err);
    pl_comm_close(c);
    if (st != PL_OK) code |= FAILED;
    if (st != PL_OK && (!*err.msg || strchr(err.msg, '\n'))) code |= BAD;
    if (held() != before) code |= BAD;
    if (code & BAD) fprintf(stderr, "rank %d: %d descriptors, then %d; %s\n", rank, before, held(), err.msg);
    if (armed >= 0 && atomic_load(&left) == 0) code |= FELL;
    return code;
}

// Two ranks, of which `victim`'s n-th call fails; whether it came to that.
static bool run(int call, int victim, int n) {
    char address[32];
    bool fell = false;
    int  failed = 0;
    snprintf(address, sizeof address, "127.0.0.1:%d", test_free_port());
    fflush(NULL);
    for (int r = 0; r < 2; r++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child > 0) continue;
        armed = r == victim ? call : -1;
        atomic_store(&left, n);
        _exit(as_rank(r, address));
    }
    for (int r = 0; r < 2; r++) {
        int how;
        assert_true(waitpid(-1, &how, 0) > 0);
        if (!WIFEXITED(how) || (WEXITSTATUS(how) & BAD))
            fail_msg("%s %d of rank %d: a rank ended with %x", call_name[call], n, victim, how);
        fell |= (WEXITSTATUS(how) & FELL) != 0;
        failed += WEXITSTATUS(how) & FAILED;
    }
    if (!fell && failed) fail_msg("%s %d of rank %d: ranks failed, and no call had", call_name[call], n, victim);
    return fell;
}

static void every_call(void **state) {
    (void)state;
    for (int call = 0; call < CALL_COUNT; call++)
        for (int victim = 0; victim < 2; victim++) {
            int n = 1;
            while (n <= 16 && run(call, victim, n)) // the watcher's calls go on as long as the ranks do
                n++;
            print_message("%s of rank %d: %d failures\n", call_name[call], victim, n - 1);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
