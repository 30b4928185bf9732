// Which rank a process is, by every launcher's environment as it was seen, and what is refused: faked environments.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/run/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// "NAME=VALUE NAME=VALUE ..."
static const char *get(void *arg, const char *name) {
    static char value[4][256];
    static int  turn;
    size_t      n = strlen(name);
    for (const char *at = arg; *at;) {
        size_t len = strcspn(at, " ");
        if (len > n && strncmp(at, name, n) == 0 && at[n] == '=') {
            turn = (turn + 1) % 4;
            snprintf(value[turn], sizeof value[turn], "%.*s", (int)(len - n - 1), at + n + 1);
            return value[turn];
        }
        at += len + (at[len] == ' ');
    }
    return NULL;
}

#define TORCH(rank, size, local, locals)                                                                               \
    "RANK=" #rank " WORLD_SIZE=" #size " LOCAL_RANK=" #local " LOCAL_WORLD_SIZE=" #locals                              \
    " MASTER_ADDR=node7 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none"
#define SLURM(rank, size)                                                                                              \
    "SLURM_JOB_ID=812 SLURM_STEP_ID=0 SLURM_PROCID=" #rank " SLURM_NTASKS=" #size                                      \
    " SLURM_LOCALID=1 SLURM_JOB_NODELIST=gpu[03-05,9]"
#define OMPI(rank, size, local, locals)                                                                                \
    "OMPI_COMM_WORLD_RANK=" #rank " OMPI_COMM_WORLD_SIZE=" #size " OMPI_COMM_WORLD_LOCAL_RANK=" #local                 \
    " OMPI_COMM_WORLD_LOCAL_SIZE=" #locals

static const pl_launch_options none = {.rank = -1};

static void decided(void **state) {
    (void)state;
    const struct {
        const char       *env;
        pl_launch_options o;
        const char       *by;
        int               rank, ranks, local;
        const char       *address; // NULL: any of this host
    } want[] = {
        {"", none, NULL, 0, 1, 0, ""},
        {TORCH(5, 8, 1, 4), none, "torchrun", 5, 8, 1, "node7:29501"},
        {TORCH(0, 1, 0, 1), none, NULL, 0, 1, 0, ""},
        {TORCH(5, 8, 1, 4), {.rank = -1, .address = "node7:4000"}, "torchrun", 5, 8, 1, "node7:4000"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=::1", none, "torchrun", 1, 2, 1, "[::1]:29501"},
        {"RANK=0", none, NULL, 0, 1, 0, ""}, // left behind, of one
        {"RANK=0 WORLD_SIZE=1", none, NULL, 0, 1, 0, ""},
        {SLURM(3, 4), {.rank = -1, .address = "h:1"}, "srun", 3, 4, 1, "h:1"},
        // The shell of an allocation, and a batch script: one process.
        {"SLURM_JOB_ID=812 SLURM_PROCID=0 SLURM_NTASKS=4", none, NULL, 0, 1, 0, ""},
        {"SLURM_JOB_ID=812 SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=4", none, NULL, 0, 1, 0, ""},
        {SLURM(1, 8) " SLURM_STEP_NUM_TASKS=2", {.rank = -1, .address = "h:1"}, "srun", 1, 2, 1, "h:1"},
        {OMPI(2, 4, 2, 4) " PMIX_NAMESPACE=j1", none, "mpirun", 2, 4, 2, NULL},
        {OMPI(2, 4, 0, 2), {.rank = -1, .address = "a:9"}, "mpirun", 2, 4, 0, "a:9"},
        {OMPI(0, 1, 0, 1), none, NULL, 0, 1, 0, ""},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", none, "mpirun", 1, 2, 1, NULL},
        // One launcher for each host, inside srun or mpirun; Slurm's own MPI variables.
        {SLURM(1, 2) " " TORCH(5, 8, 1, 4), none, "torchrun", 5, 8, 1, "node7:29501"},
        {OMPI(1, 2, 0, 1) " " TORCH(5, 8, 1, 4), none, "torchrun", 5, 8, 1, "node7:29501"},
        {SLURM(1, 2) " " OMPI(3, 4, 1, 2), {.rank = -1, .address = "a:9"}, "mpirun", 3, 4, 1, "a:9"},
        {SLURM(1, 2) " PMI_RANK=1 PMI_SIZE=2", {.rank = -1, .address = "h:1"}, "srun", 1, 2, 1, "h:1"},
        {"", {.rank = 1, .world = 3, .address = "10.0.0.2:5000"}, "options", 1, 3, 1, "10.0.0.2:5000"},
        {"", {.rank = 0, .world = 1, .address = "10.0.0.2:5000"}, "options", 0, 1, 0, "10.0.0.2:5000"},
        {TORCH(5, 8, 1, 4), {.rank = 5, .world = 8, .address = "b:1"}, "options", 5, 8, 1, "b:1"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        pl_launch l;
        pl_err    err = {0};
        if (pl_launch_find(&l, &want[i].o, get, (void *)(uintptr_t)want[i].env, &err) != PL_OK)
            fail_msg("%s: %s", want[i].env, err.msg);
        bool same = want[i].by ? l.by && strcmp(l.by, want[i].by) == 0 : !l.by;
        if (!same || l.rank != want[i].rank || l.ranks != want[i].ranks || l.local != want[i].local)
            fail_msg("%s: rank %d of %d, %d, by %s", want[i].env, l.rank, l.ranks, l.local, l.by ? l.by : "none");
        if (want[i].address ? strcmp(l.address, want[i].address) != 0 : strncmp(l.address, "127.0.0.1:", 10) != 0)
            fail_msg("%s: at %s", want[i].env, l.address);
    }
}

// Where all are of one host rank 0 listens by loopback, and a secret may be drawn.
static void hosts(void **state) {
    (void)state;
    const struct {
        const char       *env;
        pl_launch_options o;
        bool              one;
        const char       *address; // NULL: any of loopback
    } want[] = {
        {TORCH(5, 8, 1, 4), none, false, "node7:29501"},
        {TORCH(1, 4, 1, 4), none, true, "127.0.0.1:29501"},
        {TORCH(1, 4, 1, 4), {.rank = -1, .address = "node7:4000"}, true, "node7:4000"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=::1", none, true, "[::1]:29501"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=node7", none, false, "node7:29501"},
        {OMPI(2, 4, 2, 4), none, true, NULL},
        {OMPI(2, 4, 0, 2), {.rank = -1, .address = "a:9"}, false, "a:9"},
        {SLURM(3, 4), none, false, "gpu03:"},
        {SLURM(3, 4) " SLURM_STEP_NUM_NODES=2", none, false, "gpu03:"},
        {SLURM(3, 4) " SLURM_STEP_NUM_NODES=1", none, true, NULL},
        {"", {.rank = 1, .world = 3, .address = "10.0.0.2:5000"}, false, "10.0.0.2:5000"},
        {"", {.rank = 1, .world = 3, .address = "127.0.0.2:5000"}, true, "127.0.0.2:5000"},
        {"", {.rank = 1, .world = 3, .address = "localhost:5000"}, true, "localhost:5000"},
        {"", {.rank = 1, .world = 3, .address = "127.example.org:5000"}, false, "127.example.org:5000"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        pl_launch   l;
        pl_err      err = {0};
        const char *at = want[i].address ? want[i].address : "127.0.0.1:";
        if (pl_launch_find(&l, &want[i].o, get, (void *)(uintptr_t)want[i].env, &err) != PL_OK)
            fail_msg("%zu: %s", i, err.msg);
        if (l.one_host != want[i].one || strncmp(l.address, at, strlen(at)) != 0)
            fail_msg("%zu: %s: %s at %s", i, want[i].env, l.one_host ? "one host" : "hosts", l.address);
    }
}

// Over MPI where mpirun and build are of one kind, and nobody says otherwise.
static void groups(void **state) {
    (void)state;
    const struct {
        const char       *env;
        pl_launch_options o;
        bool              mpi;
        const char       *address; // NULL: any
    } want[] = {
        {OMPI(2, 4, 0, 2), {.rank = -1, .has_mpi = PL_MPI_OPEN}, true, ""},
        {OMPI(2, 4, 0, 2), {.rank = -1, .has_mpi = PL_MPI_OPEN, .group = "auto"}, true, ""},
        {OMPI(2, 4, 0, 2), {.rank = -1, .has_mpi = PL_MPI_OPEN, .address = "a:9"}, false, "a:9"},
        {OMPI(2, 4, 0, 2), {.rank = -1, .has_mpi = PL_MPI_OPEN, .address = "a:9", .group = "mpi"}, true, "a:9"},
        {OMPI(2, 4, 2, 4), {.rank = -1, .has_mpi = PL_MPI_OPEN, .group = "tcp"}, false, NULL},
        {OMPI(2, 4, 2, 4), {.rank = -1, .has_mpi = PL_MPI_MPICH}, false, NULL},
        {OMPI(2, 4, 2, 4), {.rank = 2, .world = 4, .has_mpi = PL_MPI_OPEN, .address = "a:9"}, false, "a:9"},
        {OMPI(0, 1, 0, 1), {.rank = -1, .has_mpi = PL_MPI_OPEN}, false, ""},
        {"PMI_RANK=1 PMI_SIZE=2", {.rank = -1, .has_mpi = PL_MPI_MPICH}, true, ""},
        // mpirun in an allocation, one rank for each node; srun's own ranks, whose MPI may be another.
        {SLURM(1, 2) " " OMPI(1, 2, 0, 1), {.rank = -1, .has_mpi = PL_MPI_OPEN}, true, ""},
        {SLURM(1, 2) " PMI_RANK=1 PMI_SIZE=2", {.rank = -1, .has_mpi = PL_MPI_MPICH}, false, NULL},
        {SLURM(1, 2), {.rank = -1, .has_mpi = PL_MPI_OPEN}, false, NULL},
        {SLURM(1, 2), {.rank = -1, .has_mpi = PL_MPI_OPEN, .group = "mpi"}, true, ""},
        {TORCH(5, 8, 1, 4), {.rank = -1, .has_mpi = PL_MPI_OPEN}, false, NULL},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        pl_launch l;
        pl_err    err = {0};
        if (pl_launch_find(&l, &want[i].o, get, (void *)(uintptr_t)want[i].env, &err) != PL_OK)
            fail_msg("%s: %s", want[i].env, err.msg);
        if (l.mpi != want[i].mpi || (want[i].address && strcmp(l.address, want[i].address) != 0))
            fail_msg("%zu: %s: %s at '%s'", i, want[i].env, l.mpi ? "MPI" : "TCP", l.address);
    }
}

// All ranks of a job find one address; two jobs of a host another each.
static void addresses(void **state) {
    (void)state;
    pl_launch a, b, c;
    pl_err    err = {0};
    assert_int_equal(pl_launch_find(&a, &none, get, SLURM(0, 4), &err), PL_OK);
    assert_int_equal(pl_launch_find(&b, &none, get, SLURM(3, 4), &err), PL_OK);
    assert_int_equal(pl_launch_find(&c, &none, get,
                                    "SLURM_JOB_ID=813 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 "
                                    "SLURM_JOB_NODELIST=gpu03",
                                    &err),
                     PL_OK);
    assert_string_equal(a.address, b.address);
    assert_true(strncmp(a.address, "gpu03:", 6) == 0 && strncmp(c.address, "gpu03:", 6) == 0);
    assert_string_not_equal(a.address, c.address);
    const char *const lists[][2] = {{"node1", "node1"},
                                    {"node1,node2", "node1"},
                                    {"n[3-5]", "n3"},
                                    {"n[007,009-011]", "n007"},
                                    {"r[1-2]-gpu,x", "r1-gpu"},
                                    {"a[1-2]b[3-4]", NULL},
                                    {"n[3-5", NULL},
                                    {"n[]", NULL},
                                    {"", NULL}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char host[32];
        bool good = pl_launch_first_host(host, sizeof host, lists[i][0]);
        if (good != (lists[i][1] != NULL) || (good && strcmp(host, lists[i][1]) != 0))
            fail_msg("%s: %s", lists[i][0], good ? host : "none");
    }
    char small[4];
    assert_false(pl_launch_first_host(small, sizeof small, "node1"));
}

static void refused(void **state) {
    (void)state;
    const struct {
        const char       *env;
        pl_launch_options o;
        const char       *says[2];
    } bad[] = {
        {"RANK=3 WORLD_SIZE=8", none, {"WORLD_SIZE=8 is set", "is not"}},
        {"WORLD_SIZE=8", none, {"WORLD_SIZE=8 is set", "unset WORLD_SIZE"}},
        {"RANK=8 WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=a", none, {"RANK=8 and WORLD_SIZE=8", "no such rank"}},
        {"RANK=x WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=a", none, {"RANK=x", "expected a number"}},
        {"RANK=0 WORLD_SIZE=9999 LOCAL_RANK=0 MASTER_ADDR=a", none, {"WORLD_SIZE=9999", "expected a number"}},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=0", none, {"MASTER_PORT=0", "port"}},
        {SLURM(1, 2) " " TORCH(1, 4, 1, 4), none, {"RANK=1 of WORLD_SIZE=4", "SLURM_PROCID=1 of SLURM_NTASKS=2"}},
        {SLURM(0, 2) " " TORCH(5, 8, 1, 4), none, {"RANK=5", "SLURM_PROCID=0"}},
        {OMPI(1, 4, 1, 4) " " TORCH(2, 4, 2, 4), none, {"RANK=2", "OMPI_COMM_WORLD_RANK=1"}},
        {OMPI(0, 1, 0, 1) " " TORCH(5, 8, 1, 4), none, {"WORLD_SIZE=8", "OMPI_COMM_WORLD_SIZE=1"}},
        {SLURM(1, 2) " PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2", none, {"PMI_RANK=0", "SLURM_PROCID=1"}},
        {OMPI(2, 4, 0, 2), none, {"OMPI_COMM_WORLD_SIZE=4 on several hosts", "--address"}},
        {OMPI(2, 4, 0, 2), none, {"OMPI_COMM_WORLD_SIZE=4 on several hosts", "PACELINE_MPI=ON"}},
        {OMPI(2, 4, 0, 2), {.rank = -1, .has_mpi = PL_MPI_MPICH}, {"on several hosts", "--address"}},
        {OMPI(2, 4, 0, 2), {.rank = -1, .group = "udp"}, {"--group udp: expected auto|tcp|mpi", ""}},
        {TORCH(5, 8, 1, 4),
         {.rank = -1, .group = "mpi", .has_mpi = PL_MPI_OPEN},
         {"--group mpi: torchrun starts no MPI", "--group tcp"}},
        {"", {.rank = -1, .group = "mpi", .has_mpi = PL_MPI_OPEN}, {"--group mpi: nothing started", "mpirun"}},
        {OMPI(1, 2, 1, 2),
         {.rank = 1, .world = 2, .address = "a:1", .group = "mpi", .has_mpi = PL_MPI_OPEN},
         {"--group mpi: it is mpirun that says ranks", ""}},
        {"SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2", none, {"SLURM_NTASKS=2", "--address"}},
        {"", {.rank = 1, .world = 2}, {"--address: is missing", ""}},
        {"", {.rank = 1, .address = "a:1"}, {"--world: is missing", ""}},
        {"", {.rank = -1, .world = 2, .address = "a:1"}, {"--rank: is missing", ""}},
        {"", {.rank = 2, .world = 2, .address = "a:1"}, {"--rank 2: the last of --world 2 is 1", ""}},
        {"", {.rank = -1, .address = "a:1"}, {"--address: nothing says which rank this is", ""}},
        {TORCH(5, 8, 1, 4),
         {.rank = 4, .world = 8, .address = "a:1"},
         {"--rank 4 --world 8", "RANK=5 of WORLD_SIZE=8"}},
        {SLURM(1, 4), {.rank = 1, .world = 2, .address = "a:1"}, {"--world 2", "SLURM_NTASKS=4"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_launch l;
        pl_err    err = {0};
        if (pl_launch_find(&l, &bad[i].o, get, (void *)(uintptr_t)bad[i].env, &err) != PL_E_USAGE)
            fail_msg("%s: taken as %d of %d", bad[i].env, l.rank, l.ranks);
        for (int k = 0; k < 2; k++)
            if (!strstr(err.msg, bad[i].says[k]) || strchr(err.msg, '\n'))
                fail_msg("%s: wanted '%s', got '%s'", bad[i].env, bad[i].says[k], err.msg);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decided), cmocka_unit_test(hosts), cmocka_unit_test(groups),
                                       cmocka_unit_test(addresses), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
