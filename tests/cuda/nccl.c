// Sums over ranks by kernels/cuda/lib/comm_nccl.c, over an NCCL and a CUDA runtime that are none: the bits of the fixed
// tree in whatever order NCCL may take, rounds, and that a call that fails or a rank that dies is named, keeps nobody
// waiting and leaves nothing.
//   standin_nccl [walk | round]     (nothing: some seconds of it; walk: every call's every failure; round: 128 MB)
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/clock.h"
#include "kernels/comm/impl.h"
#include "tests/cuda/standin.h"
#include "tests/cuda/standin_nccl.h"
#include "tests/kernels/ranks.h"
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4 };

static unsigned patience = 20; // seconds: who takes longer hangs

standin_nccl_plan standin_nccl;

static const char *const call_name[] = {
#define X(name) #name,
    STANDIN_NCCL_CALLS(X)
#undef X
};

// What a rank came to, in memory that all share.
typedef struct outcome {
    int         status, comms;
    long        blocks;
    uint64_t    parts;
    atomic_bool fell, done;
    char        line[sizeof(((pl_err *)NULL)->msg)];
} outcome;
static outcome *came; // [RANKS]

typedef struct trial {
    int            ranks;
    size_t         room;   // of a round; 0: as it is
    const int64_t *counts; // of elements; ends with < 0
    uint64_t       seed;
    int            victim, call, n, error; // as standin_nccl_plan
} trial;

static pl_status sums(pl_comm *c, pl_ctx *ctx, const trial *t, pl_err *err) {
    for (int i = 0; t->counts[i] >= 0; i++)
        PL_TRY(ranks_sum(c, ctx, t->counts[i], err));
    return PL_OK;
}

static pl_status work(pl_comm *c, const pl_backend *be, const trial *t, pl_err *err) {
    static pl_transport small;
    pl_ctx              ctx;
    PL_TRY(pl_comm_open(c, "nccl", be, err));
    small = *c->transport;
    if (t->room) small.room = t->room;
    c->transport = &small;
    PL_TRY(pl_ctx_init(&ctx, be, NULL));
    pl_status st = sums(c, &ctx, t, err);
    if (st == PL_OK) st = pl_comm_barrier(c, err); // nobody has failed
    if (st != PL_OK) pl_comm_fail(c, err);
    pl_ctx_fini(&ctx);
    return st;
}

static void wait_for_others(const trial *t) { // whom rank 0's end would end
    double until = pl_now() + patience;
    for (int r = 1; r < t->ranks; r++)
        while (!came[r].done && pl_now() < until && !(t->error < 0 && r == t->victim))
            usleep(1000);
}

static void as_ranks(const trial *t) {
    pl_comm *c;
    pl_err   err = {0};
    if (pl_comm_fork(&c, t->ranks, &err) != PL_OK) _exit(1);
    alarm(patience);
    int               rank = pl_comm_rank(c);
    outcome          *o = &came[rank];
    const pl_backend *be = pl_backend_cuda(0, &err);
    long              before = (long)standin_seen.blocks;
    standin_seed(t->seed * RANKS + (uint64_t)rank);
    standin_nccl = (standin_nccl_plan){.seed = t->seed * RANKS + (uint64_t)rank};
    if (rank == t->victim) standin_nccl.call = t->call, standin_nccl.n = t->n, standin_nccl.error = t->error;
    o->status = be ? (int)work(c, be, t, &err) : PL_E_DEVICE;
    memcpy(o->line, err.msg, sizeof o->line);
    if (rank == 0) wait_for_others(t);
    pl_comm_close(c);
    o->comms = standin_nccl.comms;
    o->blocks = (long)standin_seen.blocks - before;
    o->parts = standin_nccl.parts;
    o->fell = standin_nccl.fell;
    o->done = true;
    _exit(0);
}

static void run(const trial *t) {
    memset(came, 0, RANKS * sizeof *came);
    fflush(NULL);
    pid_t child = fork();
    int   how = 0;
    assert_true(child >= 0);
    if (child == 0) as_ranks(t);
    assert_int_equal(waitpid(child, &how, 0), child);
    bool first_dies = t->error < 0 && t->victim == 0;
    if (!first_dies && (!WIFEXITED(how) || WEXITSTATUS(how))) fail_msg("seed %d: %x", (int)t->seed, how);
    if (first_dies && !(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL)) fail_msg("rank 0 did not die: %x", how);
    for (int r = 0; r < t->ranks && !first_dies; r++) {
        const outcome *o = &came[r];
        if (t->error < 0 && r == t->victim && !o->done) continue;
        if (!o->done) fail_msg("seed %d: rank %d hangs or has crashed", (int)t->seed, r);
        if (o->comms || o->blocks)
            fail_msg("seed %d: rank %d keeps %d communicators, %ld blocks", (int)t->seed, r, o->comms, o->blocks);
        if (o->status != PL_OK && (!*o->line || strchr(o->line, '\n'))) fail_msg("rank %d: '%s'", r, o->line);
    }
}

static void all_content(const trial *t) {
    run(t);
    for (int r = 0; r < t->ranks; r++)
        if (came[r].status != PL_OK) fail_msg("seed %d: rank %d: %s", (int)t->seed, r, came[r].line);
}

// Nothing, fewer values than ranks, odd counts, several rounds and a part of one.
static const int64_t counts[] = {0, 1, 3, 17, 1000, 40001, -1}, few[] = {5, 3000, -1};

static void sums_are_the_tree(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= RANKS; ranks++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            all_content(&(trial){.ranks = ranks, .room = 32 << 10, .counts = counts, .seed = seed, .victim = -1});
            assert_true(came[0].parts > 20);
        }
}

// Who fails says it in one line of its own, the others by its name; whether it came to that.
static bool fails(int call, int victim, int n, int error) {
    trial t = {.ranks = 2,
               .room = 4 << 10,
               .counts = few,
               .seed = (uint64_t)n,
               .victim = victim,
               .call = call,
               .n = n,
               .error = error};
    char  name[16];
    run(&t);
    const outcome *v = &came[victim], *w = &came[!victim];
    if (!v->fell) {
        if (v->status || w->status)
            fail_msg("%s %d of rank %d: '%s' '%s'", call_name[call], n, victim, v->line, w->line);
        return false;
    }
    bool ends = call == STANDIN_NCCL_destroy; // then all has been said
    snprintf(name, sizeof name, "rank %d: ", victim);
    if (!ends && (v->status != PL_E_DEVICE || strncmp(v->line, "NCCL: ", 6) != 0))
        fail_msg("%s %d of rank %d: %s", call_name[call], n, victim, v->line);
    if (!ends && (w->status != PL_E_DEVICE || strncmp(w->line, name, 8) != 0))
        fail_msg("%s %d of rank %d: the other says %s", call_name[call], n, victim, w->line);
    return true;
}

static int  walk_most; // of each call
static void every_call_fails(void **state) {
    (void)state;
    for (int call = 0; call < STANDIN_NCCL_CALL_COUNT; call++)
        for (int victim = 0; victim < 2; victim++) {
            int n = 1;
            while (n <= walk_most && fails(call, victim, n, n % 2 ? ncclSystemError : ncclRemoteError))
                n++;
            print_message("%s of rank %d: %d failures\n", call_name[call], victim, n - 1);
            assert_true(n > 1 || (call == STANDIN_NCCL_id && victim > 0)); // which rank 0 alone makes
        }
}

// A rank dies while the others wait for it in NCCL, and they end with its name.
static void a_dead_rank_is_named(void **state) {
    (void)state;
    static const int where[] = {STANDIN_NCCL_init, STANDIN_NCCL_ask, STANDIN_NCCL_group_end, STANDIN_NCCL_part};
    for (int i = 0; i < (int)(sizeof where / sizeof *where); i++)
        for (int victim = 1; victim < 3; victim++) {
            char  name[32];
            trial t = {.ranks = 3,
                       .room = 4 << 10,
                       .counts = few,
                       .seed = (uint64_t)i,
                       .victim = victim,
                       .call = where[i],
                       .n = 1 + i,
                       .error = -1};
            if (where[i] == STANDIN_NCCL_init) t.n = 1;
            run(&t);
            assert_false(came[victim].done);
            snprintf(name, sizeof name, "rank %d: process ", victim);
            for (int r = 0; r < 3; r++)
                if (r != victim && (came[r].status != PL_E_IO || !strstr(came[r].line, name) ||
                                    !strstr(came[r].line, "signal 9, Killed")))
                    fail_msg("%s: rank %d says '%s'", call_name[where[i]], r, came[r].line);
        }
}

// The others do not outlive rank 0.
static void nobody_outlives_rank_0(void **state) {
    (void)state;
    int    ends[2];
    char   byte;
    double from = pl_now();
    assert_int_equal(pipe(ends), 0);
    run(&(trial){
        .ranks = 3, .room = 4 << 10, .counts = few, .victim = 0, .call = STANDIN_NCCL_part, .n = 3, .error = -1});
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0); // the last one that held the other end
    close(ends[0]);
    assert_true(pl_now() - from < patience / 2); // and it went by itself
}

static void a_whole_round(void **state) {
    (void)state;
    static const int64_t whole[] = {PL_COMM_ROUND_NCCL / sizeof(float) + 12345, -1};
    double               from = pl_now();
    all_content(&(trial){.ranks = 2, .counts = whole, .victim = -1});
    print_message("%lld values of 2 ranks in rounds of %zu MiB: %.1f s\n", (long long)whole[0],
                  PL_COMM_ROUND_NCCL >> 20, pl_now() - from);
}

int main(int argc, char **argv) {
    bool walk = argc > 1 && strcmp(argv[1], "walk") == 0, round = argc > 1 && strcmp(argv[1], "round") == 0;
    const struct CMUnitTest brief[] = {cmocka_unit_test(sums_are_the_tree), cmocka_unit_test(every_call_fails),
                                       cmocka_unit_test(a_dead_rank_is_named),
                                       cmocka_unit_test(nobody_outlives_rank_0)};
    const struct CMUnitTest walks[] = {cmocka_unit_test(every_call_fails)};
    const struct CMUnitTest rounds[] = {cmocka_unit_test(a_whole_round)};
    setenv("PACELINE_NCCL", PACELINE_STANDIN_NCCL, 1);
    came = mmap(NULL, RANKS * sizeof *came, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (came == MAP_FAILED) return 1;
    if (round) patience = 600;
    walk_most = walk ? 1000 : 2;
    if (walk) return cmocka_run_group_tests(walks, NULL, NULL);
    if (round) return cmocka_run_group_tests(rounds, NULL, NULL);
    return cmocka_run_group_tests(brief, NULL, NULL);
}
