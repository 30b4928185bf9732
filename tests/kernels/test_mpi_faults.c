// The n-th call of MPI by a rank fails: whatever n, nobody hangs or crashes, who fails says so in one line, the other
// hears of it by name once they are joined, and all have ended. MPI's calls come here first and go on by their profiling
// names (MPI standard, section 15.2).
//   test_mpi_faults [all [CALL]]     (nothing: one failure of some calls; all: the first 16 of each call, of either rank)
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/clock.h"
#include "kernels/comm/comm.h"
#include "tests/mpirun.h"
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// name, parameters, arguments
#define CALLS(X)                                                                                                       \
    X(Initialized, (int *a), (a))                                                                                      \
    X(Finalized, (int *a), (a))                                                                                        \
    X(Init_thread, (int *a, char ***b, int c, int *d), (a, b, c, d))                                                   \
    X(Comm_set_errhandler, (MPI_Comm a, MPI_Errhandler b), (a, b))                                                     \
    X(Comm_rank, (MPI_Comm a, int *b), (a, b))                                                                         \
    X(Comm_size, (MPI_Comm a, int *b), (a, b))                                                                         \
    X(Comm_dup, (MPI_Comm a, MPI_Comm * b), (a, b))                                                                    \
    X(Iallgather, (const void *a, int b, MPI_Datatype c, void *d, int e, MPI_Datatype f, MPI_Comm g, MPI_Request *h),  \
      (a, b, c, d, e, f, g, h))                                                                                        \
    X(Ibcast, (void *a, int b, MPI_Datatype c, int d, MPI_Comm e, MPI_Request *f), (a, b, c, d, e, f))                 \
    X(Ibarrier, (MPI_Comm a, MPI_Request * b), (a, b))                                                                 \
    X(Test, (MPI_Request * a, int *b, MPI_Status *c), (a, b, c))                                                       \
    X(Irecv, (void *a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request *g), (a, b, c, d, e, f, g))        \
    X(Isend, (const void *a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request *g), (a, b, c, d, e, f, g))  \
    X(Testsome, (int a, MPI_Request b[], int *c, int d[], MPI_Status e[]), (a, b, c, d, e))                            \
    X(Comm_free, (MPI_Comm * a), (a))                                                                                  \
    X(Finalize, (void), ())

#include "tests/kernels/nth_call.h"

#define X(name, parameters, arguments)                                                                                 \
    int MPI_##name parameters {                                                                                        \
        return falls(CALL_##name) ? MPI_ERR_OTHER : PMPI_##name arguments;                                             \
    }
CALLS(X)
#undef X

// ---- a rank

enum { RANKS = 2 };

typedef struct outcome {
    int  status, fell, joined;
    char line[sizeof(((pl_err *)NULL)->msg)];
} outcome;

static int from_launcher(const char *open_mpi, const char *mpich) {
    const char *v = getenv(open_mpi) ? getenv(open_mpi) : getenv(mpich);
    return v ? atoi(v) : -1;
}

static void note(const char *folder, int rank, const outcome *o) {
    char path[256], there[256];
    snprintf(path, sizeof path, "%s/.%d", folder, rank);
    snprintf(there, sizeof there, "%s/%d", folder, rank);
    FILE *f = fopen(path, "w");
    if (!f) return;
    fprintf(f, "%d %d %d\n%s\n", o->status, o->fell, o->joined, o->line);
    if (fclose(f) == 0) rename(path, there);
}

// arg: folder, call, victim, n
static int as_rank(char **arg) {
    pl_comm      *c = NULL;
    pl_err        err = {0};
    double        x = 1;
    pl_comm_place place = {.mpi = true, .silence = 5, .patience = 20};
    place.rank = from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK");
    place.ranks = RANKS;
    alarm(60);
    if (place.rank == atoi(arg[3])) armed = atoi(arg[2]), left = atoi(arg[4]);
    pl_status st = pl_comm_join(&c, &place, &err);
    outcome   o = {.joined = st == PL_OK};
    if (st == PL_OK) signal(SIGTERM, SIG_IGN); // which mpirun sends when one has ended: from here on it is named
    for (int i = 0; i < 3 && st == PL_OK; i++)
        st = pl_comm_sum_doubles(c, &x, 1, &err);
    if (st == PL_OK && x != 8) st = pl_fail(&err, PL_E_INTERNAL, "%g is no sum", x);
    if (st != PL_OK) pl_comm_fail(c, &err);
    o.status = st;
    o.fell = armed >= 0 && left == 0;
    memcpy(o.line, err.msg, sizeof o.line);
    note(arg[1], place.rank, &o);
    signal(SIGTERM, SIG_DFL);
    pl_comm_close(c);
    o.fell = armed >= 0 && left == 0; // perhaps in ending
    if (st == PL_OK) note(arg[1], place.rank, &o);
    return st == PL_OK ? 0 : 1;
}

// ---- all of them

static const char *self;
static char        folder[64];

static bool heard(int rank, outcome *o) {
    char  path[256];
    int   st;
    FILE *f;
    snprintf(path, sizeof path, "%s/%d", folder, rank);
    *o = (outcome){0};
    if (!(f = fopen(path, "r"))) return false;
    st = fscanf(f, "%d %d %d\n%1023[^\n]", &o->status, &o->fell, &o->joined, o->line);
    if (fgetc(f) == '\n' && fgetc(f) != EOF) st = 0; // more than one line
    fclose(f);
    unlink(path);
    return st >= 3;
}

// Whether it came to the failure.
static bool fails(int call, int victim, int n) {
    char    command[512];
    outcome v, w;
    snprintf(command, sizeof command, "timeout -k 5 90 '%s' %s -n %d '%s' '%s' %d %d %d >/dev/null 2>&1",
             PACELINE_MPIEXEC, test_mpirun_patience(), RANKS, self, folder, call, victim, n);
    int  how = system(command);
    bool ended = how != -1 && WIFEXITED(how) && WEXITSTATUS(how) != 124 && WEXITSTATUS(how) != 137;
    if (!ended) fail_msg("%s %d of rank %d: hangs", call_name[call], n, victim);
    bool said = heard(victim, &v), other = heard(!victim, &w);
    if (!said) fail_msg("%s %d of rank %d: it says nothing", call_name[call], n, victim);
    if (v.status && !*v.line) fail_msg("%s %d of rank %d: a failure without a line", call_name[call], n, victim);
    if (v.status && !v.fell) fail_msg("%s %d of rank %d: no call had failed: %s", call_name[call], n, victim, v.line);
    if (v.status && WEXITSTATUS(how) == 0) fail_msg("%s %d of rank %d: mpirun returns 0", call_name[call], n, victim);
    if (v.status && v.joined && !(other && w.status && strstr(w.line, "rank ")))
        fail_msg("%s %d of rank %d: the other says '%s'", call_name[call], n, victim, w.line);
    return v.fell;
}

static int         most;
static const char *only; // a call

static void every_call_fails(void **state) {
    (void)state;
    int all = 0;
    for (int call = 0; call < CALL_COUNT; call++)
        for (int victim = 0; victim < RANKS; victim++) {
            int n = 1;
            if (most == 1 && (call < CALL_Comm_dup || call % 2 == 0 || victim != call / 2 % 2)) continue;
            if (only && strcmp(only, call_name[call]) != 0) continue;
            while (n <= most && fails(call, victim, n))
                n++;
            print_message("%s of rank %d: %d failures\n", call_name[call], victim, n - 1);
            all += n - 1;
        }
    print_message("%d failing calls of MPI\n", all);
    assert_true(all > 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_fails)};
    if (argc > 3) return as_rank(argv);
    if (!*PACELINE_MPIEXEC) return 77;
    self = argv[0];
    most = argc > 1 ? 16 : 1; // MPI is polled for as long as the ranks run
    only = argc > 2 ? argv[2] : NULL;
    test_mpirun_here();
    snprintf(folder, sizeof folder, "/tmp/paceline-test-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    int wrong = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return wrong;
}
