// Ranks as real processes: sums with the bits of the fixed tree, words, and what happens when one of them fails or
// dies.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/comm/comm.h"
#include "kernels/comm/summing.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/kernels/ranks.h"
#include "tests/key.h"
#include "tests/mpirun.h"
#include "tests/port.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// What every rank does.
typedef pl_status (*rank_fn)(pl_comm *c, pl_err *err);

// How the ranks come together: as children that share memory, or, each started by itself, over TCP, or by mpirun over
// MPI.
static enum { SHARED, TCP, MPI } way;
static pl_comm_place place = {.find_key = test_key}; // what all are told, but for the rank and its number of ranks
static char          address[32];

static void find_port(void) {
    snprintf(address, sizeof address, "127.0.0.1:%d", test_free_port());
    place.address = address;
}

static pl_status start(pl_comm **c, int ranks, pl_err *err) {
    if (way == SHARED) return pl_comm_fork(c, ranks, err);
    find_port();
    place.ranks = ranks;
    place.rank = 0;
    fflush(NULL);
    for (int r = 1; r < ranks; r++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child > 0) continue;
        place.rank = r;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        break;
    }
    return pl_comm_join(c, &place, err);
}

static pl_status by_mpirun(int ranks, rank_fn fn, pl_err *err);

// Rank 0's status; the others' processes have ended.
static pl_status in_ranks(int ranks, rank_fn fn, pl_err *err) {
    pl_comm *c;
    *err = (pl_err){0};
    pl_comm_limit_rounds(SIZE_MAX);
    if (way == MPI) return by_mpirun(ranks, fn, err);
    if (start(&c, ranks, err) != PL_OK) {
        fprintf(stderr, "%s\n", err->msg);
        if (way == TCP && place.rank > 0) _exit(1);
        fail_msg("%s", err->msg);
    }
    pl_status st = fn(c, err);
    if (st == PL_OK) st = pl_comm_barrier(c, err); // nobody has failed
    if (st != PL_OK) pl_comm_fail(c, err);
    bool first = pl_comm_rank(c) == 0;
    pl_comm_close(c);
    if (!first) _exit(st == PL_OK ? 0 : 1);
    while (way == TCP && waitpid(-1, NULL, 0) > 0)
        ;
    return st;
}

static void all_content(int ranks, rank_fn fn) {
    pl_err err;
    if (in_ranks(ranks, fn, &err) != PL_OK) fail_msg("%d ranks: %s", ranks, err.msg);
}

// ---- sums

static const pl_backend *backend;

// Elements [from, to) are the sum's: all of them, of a long range every 13th (of each 64 bytes some) and the last.
static bool are_the_sum(const float *host, int64_t from, int64_t to, int ranks) {
    const int64_t step = to - from > 50000 ? 13 : 1;
    for (int64_t i = from; i < to; i += step)
        if (host[i] != ranks_tree(0, ranks, i)) return false;
    return to <= from || host[to - 1] == ranks_tree(0, ranks, to - 1);
}

// The two halves of the sum: a rank's piece is the sum's, bit for bit; once gathered, all of it is there. What of
// rank r is fetched stands in rank 0's memory, and nobody else's changes.
static pl_status halves(pl_comm *c, pl_ctx *ctx, int64_t n, int64_t piece, pl_err *err) {
    const pl_memory *m = backend->memory;
    size_t           bytes = (size_t)n * sizeof(float);
    float           *host = pl_malloc(bytes + sizeof *host);
    void            *x = pl_memory_create(m, PL_LOCAL, bytes + 1, err);
    int              rank = pl_comm_rank(c), ranks = pl_comm_ranks(c);
    int64_t          from = rank * piece < n ? rank * piece : n, to = from + piece < n ? from + piece : n;
    EXPECT(host && x);
    for (int64_t i = 0; i < n; i++)
        host[i] = ranks_value(rank, i);
    PL_TRY(pl_memory_write(m, x, host, bytes, err));
    PL_TRY(pl_comm_sum_pieces(c, ctx, x, n, piece, err));
    PL_TRY(pl_memory_read(m, host, x, bytes, err));
    EXPECT(are_the_sum(host, from, to, ranks));
    for (int64_t i = 0; i < n; i++)
        if (i < from || i >= to) host[i] = -1;
    PL_TRY(pl_memory_write(m, x, host, bytes, err));
    PL_TRY(pl_comm_gather_pieces(c, ctx, x, bytes, (size_t)piece * sizeof(float), err));
    PL_TRY(pl_memory_read(m, host, x, bytes, err));
    for (int r = 0; r < ranks; r++)
        EXPECT(are_the_sum(host, r * piece, r * piece + piece < n ? r * piece + piece : n, ranks));
    for (int r = 0; r < ranks; r++) {
        for (int64_t i = 0; i < n; i++)
            host[i] = (float)(100 * rank) + (float)(i % 7);
        pl_comm_parcels p = {0};
        if (rank == r && r > 0) p.out[0] = host, p.out_bytes[0] = bytes;
        if (rank == 0) p.in[r] = host, p.in_bytes[r] = r > 0 ? bytes : 0;
        PL_TRY(pl_comm_exchange(c, &p, err));
        int whose = rank == 0 ? r : rank;
        for (int64_t i = 0; i < n; i++)
            EXPECT(host[i] == (float)(100 * whose) + (float)(i % 7));
    }
    pl_memory_destroy(m, PL_LOCAL, x, bytes + 1);
    pl_free(host);
    return PL_OK;
}

// Pieces of nothing, of less than the others, of more than one round.
static pl_status all_halves(pl_comm *c, pl_err *err) {
    static const int64_t counts[] = {0, 1, 17, 1000, 40001, 2500003};
    int                  ranks = pl_comm_ranks(c);
    pl_ctx               ctx;
    PL_TRY(pl_comm_open(c, "host", backend, err));
    PL_TRY(pl_ctx_init(&ctx, backend, NULL));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i] > 50000 && backend->memory) continue; // an emulated device takes its time
        PL_TRY(halves(c, &ctx, counts[i], (counts[i] + ranks - 1) / ranks, err));
        if (counts[i] < 50000 && ranks > 1) PL_TRY(halves(c, &ctx, counts[i], counts[i] - counts[i] / 3, err));
    }
    pl_ctx_fini(&ctx);
    return PL_OK;
}

static void halves_are_the_sum(void **state) {
    (void)state;
    backend = pl_backend_cpu();
    all_content(1, all_halves);
    for (int ranks = 2; ranks <= 5; ranks++)
        all_content(ranks, all_halves);
    backend = pl_backend_emulated();
    all_content(3, all_halves);
}

// Fewer values than ranks, odd counts, more than one round.
static pl_status sums(pl_comm *c, pl_err *err) {
    static const int64_t counts[] = {0, 1, 3, 17, 1000, 40001, (1 << 20) - 1, (1 << 20) + 5, 2500003};
    pl_ctx               ctx;
    PL_TRY(pl_comm_open(c, "host", backend, err));
    PL_TRY(pl_ctx_init(&ctx, backend, NULL));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        PL_TRY(ranks_sum(c, &ctx, counts[i], err));
    pl_ctx_fini(&ctx);
    return PL_OK;
}

static void sums_are_the_tree(void **state) {
    (void)state;
    backend = pl_backend_cpu();
    for (int ranks = 2; ranks <= 7; ranks += ranks > 3 ? 2 : 1)
        all_content(ranks, sums);
}

// Twice what the caller left, which is what the sum is to be of.
static void twice(void *arg, pl_ctx *ctx, int64_t from, int64_t n) {
    float *x = arg;
    (void)ctx;
    for (int64_t i = from; i < from + n; i++)
        x[i] *= 2;
}

// The part'th of `parts` of n elements, in an order of the rank's own, is there; the last one is never told.
static void tell_parts(pl_summing *s, float *x, int rank, int step, int64_t n) {
    enum { PARTS = 7 };
    for (int i = 0; i < PARTS; i++) {
        int     part = (3 * i + rank + step) % PARTS;
        int64_t from = n * part / PARTS, to = n * (part + 1) / PARTS;
        for (int64_t k = from; k < to; k++)
            x[k] = ranks_value(rank, k + step) / 2;
        if (i < PARTS - 1) pl_summing_ready(s, from, to);
    }
}

// Rounds in any order, by ranks that tell of theirs in another or of none: the sum, or this rank's piece of it.
static pl_status beside(pl_comm *c, int64_t n, int64_t piece, pl_err *err) {
    float        *x = pl_malloc((size_t)n * sizeof *x + sizeof *x);
    pl_summing_of of = {.x = x, .n = n, .piece = piece, .before = twice, .arg = x};
    pl_summing   *s;
    int           rank = pl_comm_rank(c), ranks = pl_comm_ranks(c);
    EXPECT(x);
    PL_TRY(pl_summing_create(&s, c, backend, &of, err));
    for (int step = 0; step < 4; step++) {
        int64_t from = piece ? rank * piece : 0, to = piece && from + piece < n ? from + piece : n;
        pl_summing_begin(s);
        if ((step + rank) % 3 == 0) // tells nothing: the first step of rank 0 is one
            for (int64_t i = 0; i < n; i++)
                x[i] = ranks_value(rank, i + step) / 2;
        else
            tell_parts(s, x, rank, step, n);
        PL_TRY(pl_summing_end(s, err));
        for (int64_t i = from; i < to; i++)
            EXPECT(x[i] == ranks_tree(0, ranks, i + step));
        PL_TRY(pl_comm_barrier(c, err)); // the comm is everybody's again
    }
    pl_summing_destroy(s);
    pl_free(x);
    return PL_OK;
}

static pl_status all_beside(pl_comm *c, pl_err *err) {
    int64_t ranks = pl_comm_ranks(c);
    backend = pl_backend_cpu();
    pl_comm_limit_rounds(4096);
    PL_TRY(pl_comm_open(c, "host", backend, err));
    EXPECT(pl_summing_can(c, backend) || way == MPI); // which may take calls of one thread alone
    if (!pl_summing_can(c, backend)) fprintf(stderr, "sums beside backward: not over this MPI\n");
    for (int64_t n = 1; n < 40000 && pl_summing_can(c, backend); n = 3 * n + 1) {
        PL_TRY(beside(c, n, 0, err));
        PL_TRY(beside(c, n, (n + ranks - 1) / ranks, err));
    }
    return PL_OK;
}

static void sums_go_on_beside(void **state) {
    (void)state;
    all_content(2, all_beside);
    all_content(3, all_beside);
}

static pl_status device_sums(pl_comm *c, pl_err *err) {
    pl_ctx ctx;
    PL_TRY(pl_comm_open(c, "auto", backend, err));
    EXPECT(strcmp(pl_comm_transport(c), way == MPI ? "MPI" : way == TCP ? "TCP" : "shared memory") == 0);
    PL_TRY(pl_ctx_init(&ctx, backend, NULL));
    PL_TRY(ranks_sum(c, &ctx, 5, err));
    PL_TRY(ranks_sum(c, &ctx, 10007, err));
    pl_ctx_fini(&ctx);
    return PL_OK;
}

static void sums_on_a_device(void **state) {
    (void)state;
    backend = pl_backend_emulated();
    all_content(3, device_sums);
}

// ---- columns

typedef struct columns_of {
    pl_comm     *c;
    int64_t      rows;
    int          to;
    float       *host; // this rank's
    pl_tensor    all;
    const float *got;
} columns_of;

static const int64_t widths[3] = {5, 1, 7};

static void gather_columns(pl_ctx *ctx, void *arg) {
    columns_of *g = arg;
    pl_tensor   x = pl_ctx_const(ctx, g->rows, widths[pl_comm_rank(g->c)]);
    pl_ctx_upload(ctx, x.data, g->host, (size_t)pl_tensor_count(&x) * sizeof(float));
    g->all = pl_comm_columns(g->c, ctx, x, widths, g->to);
    g->got = pl_ctx_read(ctx, &g->all);
}

static float element(int64_t row, int64_t column) {
    return (float)(row * 31 % 1000) + 1000 * (float)column;
}

static pl_status columns_of_rows(pl_comm *c, int64_t rows, int to, pl_err *err) {
    pl_ctx     ctx;
    int        rank = pl_comm_rank(c);
    int64_t    own = widths[rank], before = rank == 0 ? 0 : rank == 1 ? widths[0] : widths[0] + widths[1];
    columns_of g = {.c = c, .rows = rows, .to = to, .host = pl_malloc((size_t)(rows * own + 1) * sizeof(float))};
    uint64_t   sent = pl_comm_sent(c);
    EXPECT(g.host);
    for (int64_t i = 0; i < rows * own; i++)
        g.host[i] = element(i / own, before + i % own);
    PL_TRY(pl_ctx_init(&ctx, backend, NULL));
    PL_TRY(pl_ctx_measure(&ctx, gather_columns, &g, err));
    pl_ctx_begin(&ctx);
    gather_columns(&ctx, &g);
    PL_TRY(pl_comm_settle(c, &ctx, err));
    PL_TRY(pl_ctx_sync(&ctx, err));
    EXPECT(pl_tensor_count(&g.all) == rows * 13);
    for (int64_t i = 0; i < rows * 13 && (to == PL_TO_ALL || to == rank); i++)
        EXPECT(g.got[i] == element(i / 13, i % 13));
    EXPECT(pl_comm_sent(c) - sent == (uint64_t)(rows * own * 4) * (to == PL_TO_ALL ? 2 : to != rank));
    pl_ctx_fini(&ctx);
    pl_free(g.host);
    return PL_OK;
}

// None, one row, several, more than a round.
static pl_status columns(pl_comm *c, pl_err *err) {
    static const int64_t rows[] = {0, 1, 6, 250000};
    PL_TRY(pl_comm_open(c, "host", backend, err));
    for (int i = 0; i < (backend->memory ? 3 : 4); i++)
        for (int to = PL_TO_ALL; to < 3; to++)
            PL_TRY(columns_of_rows(c, rows[i], to, err));
    return PL_OK;
}

static void columns_stand_side_by_side(void **state) {
    (void)state;
    backend = pl_backend_cpu();
    all_content(3, columns);
    backend = pl_backend_emulated();
    all_content(3, columns);
}

static pl_status words(pl_comm *c, pl_err *err) {
    size_t   n = (9u << 20) + 3;
    uint8_t *data = pl_malloc(n);
    double   x[300];
    EXPECT(data);
    for (int again = 0; again < 20; again++) {
        size_t part = again == 0 ? n : (size_t)again * 100;
        for (size_t i = 0; i < part; i++)
            data[i] = pl_comm_rank(c) == 0 ? (uint8_t)(i * 7 + (size_t)again) : 0;
        PL_TRY(pl_comm_broadcast(c, data, part, err));
        for (size_t i = 0; i < part; i++)
            EXPECT(data[i] == (uint8_t)(i * 7 + (size_t)again));
        for (int i = 0; i < 300; i++)
            x[i] = (double)ranks_value(pl_comm_rank(c), i);
        PL_TRY(pl_comm_sum_doubles(c, x, 300, err));
        EXPECT(x[299] == ((double)ranks_value(0, 299) + (double)ranks_value(1, 299)) + (double)ranks_value(2, 299));
        PL_TRY(pl_comm_barrier(c, err));
    }
    pl_free(data);
    return PL_OK;
}

static void words_arrive(void **state) {
    (void)state;
    all_content(3, words);
}

// From each to each, of other sizes (none, a few bytes, more than a round takes), and the same to all.
static size_t parcel(int from, int to) {
    return (from + to) % 3 == 0 ? 0 : (from + 2 * to) % 3 == 1 ? 7 + (size_t)from : ((size_t)5 << 20) + (size_t)to;
}

static uint8_t letter(int from, int to, size_t i) {
    return (uint8_t)(31 * from + 7 * to + (int)(i % 251));
}

static pl_status parcels(pl_comm *c, pl_err *err) {
    pl_comm_parcels p = {0};
    int             me = pl_comm_rank(c), n = pl_comm_ranks(c);
    for (int r = 0; r < n; r++) {
        uint8_t *out = pl_malloc(parcel(me, r) + 1), *in = pl_malloc(parcel(r, me) + 1);
        EXPECT(out && in);
        for (size_t i = 0; i < parcel(me, r); i++)
            out[i] = letter(me, r, i);
        p.out[r] = out, p.out_bytes[r] = parcel(me, r);
        p.in[r] = in, p.in_bytes[r] = parcel(r, me);
    }
    PL_TRY(pl_comm_exchange(c, &p, err));
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < p.in_bytes[r] && r != me; i++)
            EXPECT(((uint8_t *)p.in[r])[i] == letter(r, me, i));
        pl_free((void *)(uintptr_t)p.out[r]), pl_free(p.in[r]);
    }
    // One place, of which each gets as much as its number.
    static const uint8_t alike[] = "abcdefgh";
    uint8_t              got[PL_RANKS_MAX][8] = {{0}};
    p = (pl_comm_parcels){0};
    for (int r = 0; r < n; r++)
        p.out[r] = alike, p.out_bytes[r] = (size_t)r, p.in[r] = got[r], p.in_bytes[r] = (size_t)me;
    PL_TRY(pl_comm_exchange(c, &p, err));
    for (int r = 0; r < n; r++)
        EXPECT(r == me || memcmp(got[r], alike, (size_t)me) == 0);
    char     text[32];
    uint8_t *all;
    size_t   bytes[PL_RANKS_MAX], at = 0;
    int      own = snprintf(text, sizeof text, "%.*s", 5 * me, "and so on, to the end");
    PL_TRY(pl_comm_gather(c, text, (size_t)own, sizeof text, &all, bytes, err));
    for (int r = 0; r < n; at += bytes[r], r++)
        EXPECT(bytes[r] == strnlen("and so on, to the end", (size_t)(5 * r)) &&
               memcmp(all + at, "and so on, to the end", bytes[r]) == 0);
    pl_free(all);
    return PL_OK;
}

static void parcels_arrive(void **state) {
    (void)state;
    all_content(1, parcels);
    all_content(2, parcels);
    all_content(3, parcels);
    pl_err err = {0};
    if (parcels(NULL, &err) != PL_OK) fail_msg("alone: %s", err.msg);
}

// Rank 0 is slow: the others see what it did before it left.
static int       file[2];
static pl_status first(pl_comm *c, pl_err *err) {
    char byte;
    PL_TRY(pl_comm_enter(c, err));
    if (pl_comm_rank(c) == 0) {
        usleep(100000);
        EXPECT(write(file[1], "ab", 2) == 2);
    } else {
        EXPECT(read(file[0], &byte, 1) == 1);
    }
    return pl_comm_leave(c, err);
}

static void rank_0_goes_first(void **state) {
    (void)state;
    assert_int_equal(pipe2(file, O_NONBLOCK), 0); // a byte that is not there is not waited for
    all_content(3, first);
    close(file[0]), close(file[1]);
}

// ---- one rank

static void one_rank_costs_nothing(void **state) {
    (void)state;
    pl_err   err = {0};
    double   x = 5;
    float    y = 3;
    uint64_t allocated = pl_alloc_count();
    assert_int_equal(pl_comm_rank(NULL), 0);
    assert_int_equal(pl_comm_ranks(NULL), 1);
    assert_int_equal(pl_comm_open(NULL, "auto", pl_backend_cpu(), &err), PL_OK);
    assert_int_equal(pl_comm_sum(NULL, NULL, &y, 1, &err), PL_OK);
    assert_int_equal(pl_comm_sum_doubles(NULL, &x, 1, &err), PL_OK);
    assert_int_equal(pl_comm_broadcast(NULL, &x, sizeof x, &err), PL_OK);
    assert_int_equal(pl_comm_enter(NULL, &err), PL_OK);
    assert_int_equal(pl_comm_leave(NULL, &err), PL_OK);
    pl_comm_fail(NULL, &err);
    pl_comm_close(NULL);
    assert_true(x == 5 && y == 3);
    assert_int_equal(pl_alloc_count(), allocated);
}

// A group of one, which takes the way of all.
static void a_group_of_one(void **state) {
    (void)state;
    backend = pl_backend_cpu();
    all_content(1, sums);
}

// ---- failures

static void no_memory(void **state) {
    (void)state;
    pl_comm *c = NULL;
    pl_err   err = {0};
    pl_alloc_fail_after(1);
    pl_status st = pl_comm_fork(&c, 2, &err);
    pl_alloc_fail_after(0);
    assert_int_equal(st, PL_E_MEMORY);
    assert_null(c);
}

// One of the ranks has no room for pieces: a line from it, on all.
static pl_status no_room(pl_comm *c, pl_err *err) {
    float  x[8] = {0};
    pl_ctx ctx;
    PL_TRY(pl_comm_open(c, "host", pl_backend_cpu(), err));
    PL_TRY(pl_ctx_init(&ctx, pl_backend_cpu(), NULL));
    if (pl_comm_rank(c) == 1) pl_alloc_fail_after(1);
    pl_status st = pl_comm_sum(c, &ctx, x, 8, err);
    pl_ctx_fini(&ctx);
    return st;
}

static void no_memory_for_a_sum(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(in_ranks(3, no_room, &err), PL_E_MEMORY);
    assert_non_null(strstr(err.msg, "rank 1: "));
}

static int victim;

// All meet a few times, then one is killed while the others wait for it.
static pl_status killed(pl_comm *c, pl_err *err) {
    double x = 1;
    for (int i = 0; i < 10; i++)
        PL_TRY(pl_comm_sum_doubles(c, &x, 1, err));
    if (pl_comm_rank(c) == victim) raise(SIGKILL);
    return pl_comm_sum_doubles(c, &x, 1, err);
}

// In the middle of a sum that goes on beside.
static pl_status killed_beside(pl_comm *c, pl_err *err) {
    enum { N = 5000 };
    static float  x[N];
    pl_summing   *s;
    pl_summing_of of = {.x = x, .n = N};
    pl_comm_limit_rounds(4096);
    PL_TRY(pl_comm_open(c, "host", pl_backend_cpu(), err));
    if (!pl_summing_can(c, pl_backend_cpu())) return killed(c, err); // an MPI that takes calls of one thread alone
    PL_TRY(pl_summing_create(&s, c, pl_backend_cpu(), &of, err));
    pl_summing_begin(s);
    pl_summing_ready(s, 0, N / 2);
    if (pl_comm_rank(c) == victim) raise(SIGKILL);
    pl_status st = pl_summing_end(s, err);
    pl_summing_destroy(s);
    return st;
}

static void a_killed_rank_stops_all(void **state) {
    (void)state;
    for (victim = 1; victim < 3; victim++) {
        pl_err err;
        char   part[32];
        double start = pl_now();
        assert_int_equal(in_ranks(3, killed, &err), PL_E_IO);
        snprintf(part, sizeof part, way != SHARED ? "rank %d: its process on " : "rank %d: process ", victim);
        assert_non_null(strstr(err.msg, part));
        if (way == SHARED) assert_non_null(strstr(err.msg, "signal 9, Killed"));
        assert_null(strchr(err.msg, '\n'));
        assert_true(pl_now() - start < 20);
        assert_int_equal(in_ranks(3, killed_beside, &err), PL_E_IO);
        assert_non_null(strstr(err.msg, part));
    }
}

static pl_status failing(pl_comm *c, pl_err *err) {
    PL_TRY(pl_comm_barrier(c, err));
    if (pl_comm_rank(c) == victim) return pl_fail(err, PL_E_MEMORY, "no room; make it smaller");
    PL_TRY(pl_comm_barrier(c, err));
    return pl_fail(err, PL_E_INTERNAL, "nobody failed");
}

static void a_failure_is_told(void **state) {
    (void)state;
    pl_err err;
    victim = 2;
    assert_int_equal(in_ranks(3, failing, &err), PL_E_MEMORY);
    assert_string_equal(err.msg, "rank 2: no room; make it smaller");
    victim = 0;
    assert_int_equal(in_ranks(3, failing, &err), PL_E_MEMORY);
    assert_string_equal(err.msg, "no room; make it smaller");
}

static pl_status leaves(pl_comm *c, pl_err *err) {
    PL_TRY(pl_comm_barrier(c, err)); // who ends sooner is missed by those that still join
    if (pl_comm_rank(c) == 1) {
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); // rank 0 is in the next meeting
        _exit(0);
    }
    return pl_comm_barrier(c, err);
}

static void a_rank_that_leaves_is_missed(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(in_ranks(2, leaves, &err), PL_E_IO);
    if (strncmp(err.msg, "rank 1: ", 8) != 0) fail_msg("%s", err.msg); // by its signs of life or by its connection
}

// A broken group stays so.
static pl_status again(pl_comm *c, pl_err *err) {
    double x = 0;
    pl_comm_barrier(c, NULL); // all have joined; it may tell of the failure already
    if (pl_comm_rank(c) == 1) return pl_fail(err, PL_E_IO, "gone");
    EXPECT(pl_comm_barrier(c, NULL) == PL_E_IO);
    EXPECT(pl_comm_sum_doubles(c, &x, 1, NULL) == PL_E_IO);
    EXPECT(pl_comm_broadcast(c, &x, sizeof x, NULL) == PL_E_IO);
    return pl_comm_barrier(c, err);
}

static void a_failure_stays(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(in_ranks(3, again, &err), PL_E_IO);
    assert_string_equal(err.msg, "rank 1: gone");
}

// Rank 0 dies without a word: the others do not outlive it. All of them hold the pipe's end open.
static void nobody_outlives_rank_0(void **state) {
    (void)state;
    int  ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t middle = fork();
    assert_true(middle >= 0);
    if (middle == 0) {
        pl_comm *c;
        pl_err   err;
        close(ends[0]);
        if (pl_comm_fork(&c, 3, &err) != PL_OK) _exit(1);
        if (pl_comm_barrier(c, &err) != PL_OK) _exit(1);
        if (pl_comm_rank(c) == 0) raise(SIGKILL);
        if (pl_comm_rank(c) == 2)
            for (;;)
                pause(); // busy elsewhere
        pl_comm_barrier(c, &err);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(middle, NULL, 0), middle);
    assert_int_equal(read(ends[0], &byte, 1), 0); // the last one has closed it
    close(ends[0]);
}

// Requests to stop are rank 0's to answer.
static pl_status ignores(pl_comm *c, pl_err *err) {
    if (pl_comm_rank(c) > 0) {
        raise(SIGINT);
        raise(SIGTERM);
    }
    return pl_comm_barrier(c, err);
}

static void others_ignore_stops(void **state) {
    (void)state;
    all_content(2, ignores);
}

// ---- transports

static const char *asked;

static pl_status choose(pl_comm *c, pl_err *err) {
    return pl_comm_open(c, asked, backend, err);
}

static void transports_are_chosen(void **state) {
    (void)state;
    pl_err err;
    char   nccl[256];
    backend = pl_backend_cpu();
    asked = "mpi";
    assert_int_equal(in_ranks(2, choose, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "--transport mpi: expected auto|host|nccl"));
    asked = "nccl";
    assert_int_equal(in_ranks(2, choose, &err), PL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "use --transport host"));
    asked = "auto";
    assert_int_equal(in_ranks(2, choose, &err), PL_OK);

    pl_comm_describe_nccl(nccl, sizeof nccl); // before it has been loaded by anything else in this process
    print_message("NCCL: %s\n", nccl);
    assert_true(*nccl);
}

// A missing library and one that is another, before a good one is found and kept.
static void nccl_is_looked_for(void **state) {
    (void)state;
    char nccl[256];
    setenv("PACELINE_NCCL", "/nowhere/libnccl.so", 1);
    pl_comm_describe_nccl(nccl, sizeof nccl);
    if (strcmp(nccl, "not built in") == 0) {
        unsetenv("PACELINE_NCCL");
        skip();
    }
    assert_non_null(strstr(nccl, "NCCL cannot be loaded: /nowhere/libnccl.so"));
    setenv("PACELINE_NCCL", "libm.so.6", 1);
    pl_comm_describe_nccl(nccl, sizeof nccl);
    assert_non_null(strstr(nccl, "libm.so.6 has no ncclGetVersion"));
    unsetenv("PACELINE_NCCL");
}

// Two ranks whose backends differ: only one of them found a GPU, say.
static pl_status mixed(pl_comm *c, pl_err *err) {
    return pl_comm_open(c, "host", pl_comm_rank(c) ? pl_backend_cpu() : pl_backend_emulated(), err);
}

static void mixed_devices_are_refused(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(in_ranks(3, mixed, &err), PL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "1 of 3 ranks have a GPU"));
}

// ---- stopped children

static double rests; // seconds for which the victim is stopped, by its parent

static pl_status stopped_for_a_while(pl_comm *c, pl_err *err) {
    PL_TRY(pl_comm_barrier(c, err));
    if (pl_comm_rank(c) == victim) raise(SIGSTOP);
    if (pl_comm_rank(c) == 0 && rests > 0) usleep((useconds_t)(rests * 1e6));
    if (pl_comm_rank(c) == 0 && rests > 0) kill(0, SIGCONT);
    return pl_comm_barrier(c, err);
}

static void a_stopped_child_is_named(void **state) {
    (void)state;
    pl_err err;
    double begin = pl_now();
    alarm(60); // where it is not noticed
    pl_comm_limit_silence(1);
    for (victim = 1; victim < 3; victim++) {
        char part[48];
        assert_int_equal(in_ranks(3, stopped_for_a_while, &err), PL_E_IO);
        snprintf(part, sizeof part, "rank %d: process ", victim);
        if (!strstr(err.msg, part) || !strstr(err.msg, " has been stopped for ")) fail_msg("%s", err.msg);
    }
    assert_true(pl_now() - begin < 8);
    victim = 1;
    rests = 0.3;
    all_content(3, stopped_for_a_while);
    rests = 0;
    pl_comm_limit_silence(PL_COMM_SILENCE);
    alarm(0);
}

// Rank 0 is asked to stop, once, while a child is stopped.
static void a_stopped_child_does_not_hold_rank_0(void **state) {
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pl_err err = {0};
        alarm(20); // below the limit of silence
        victim = 1;
        pl_stop_install();
        pl_stop_hold(); // as work with something to keep
        raise(SIGINT);
        _exit(in_ranks(2, stopped_for_a_while, &err) == PL_E_IO && strstr(err.msg, "has been stopped") ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

// ---- over TCP

// A rank that is stopped is dead after a while, and named; one that is busy is not.
static pl_status stopped(pl_comm *c, pl_err *err) {
    PL_TRY(pl_comm_barrier(c, err));
    if (pl_comm_rank(c) == victim) raise(SIGSTOP);
    PL_TRY(pl_comm_barrier(c, err)); // whose last word may lie here already
    return pl_comm_barrier(c, err);
}

static void a_stopped_rank_is_named(void **state) {
    (void)state;
    place.silence = 2;
    for (victim = 1; victim < 3; victim++) {
        pl_comm *c;
        pl_err   err = {0};
        char     part[48];
        double   begin = pl_now();
        assert_int_equal(start(&c, 3, &err), PL_OK);
        pl_status st = stopped(c, &err);
        if (place.rank > 0) {
            if (st != PL_E_IO) fprintf(stderr, "rank %d: %s\n", place.rank, st ? err.msg : "no failure");
            _exit(st == PL_E_IO ? 0 : 1);
        }
        assert_int_equal(st, PL_E_IO);
        snprintf(part, sizeof part, "rank %d: no sign of life from ", victim);
        if (!strstr(err.msg, part)) fail_msg("%s", err.msg);
        assert_true(pl_now() - begin < 10);
        pl_comm_close(c);
        for (int ended = 0; ended < 2; ended++) {
            int how = 0;
            kill(0, SIGCONT);
            assert_true(waitpid(-1, &how, 0) > 0);
            if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) fail_msg("%x", how);
            // each heard of the failure, the stopped one too
        }
    }
    place.silence = 0;
}

static pl_status busy(pl_comm *c, pl_err *err) {
    double until = pl_now() + 4;
    PL_TRY(pl_comm_barrier(c, err));
    while (pl_comm_rank(c) == 1 && pl_now() < until)
        ;
    return pl_comm_barrier(c, err);
}

static void a_busy_rank_lives(void **state) {
    (void)state;
    place.silence = 2;
    all_content(3, busy);
    place.silence = 0;
}

// The line of rank 0 and of another one, of two that are told different things.
static void strangers(pl_comm_place first, pl_comm_place second, const char *says) {
    pl_comm *c;
    pl_err   err = {0};
    find_port();
    first.address = second.address = address;
    first.find_key = second.find_key = test_key;
    first.patience = second.patience = 5;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    pl_status st = pl_comm_join(&c, child ? &first : &second, &err);
    bool      good = st != PL_OK && strstr(err.msg, says) && !strchr(err.msg, '\n');
    if (!good) fprintf(stderr, "wanted '%s', got '%s'\n", says, st ? err.msg : "a group");
    if (child == 0) _exit(good ? 0 : 1);
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(good && WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void others_are_refused(void **state) {
    (void)state;
    strangers((pl_comm_place){.ranks = 2, .identity = "paceline 1"},
              (pl_comm_place){.rank = 1, .ranks = 2, .identity = "paceline 2"}, "is paceline 2, number 0 of ");
    strangers((pl_comm_place){.ranks = 2}, (pl_comm_place){.rank = 1, .ranks = 3}, "as 1 of 3, rank 0 as one of 2");
    strangers((pl_comm_place){.ranks = 3}, (pl_comm_place){.rank = 1, .ranks = 3}, "number 2 of 3 did not come to ");
}

static void who_does_not_come(void **state) {
    (void)state;
    pl_comm *c;
    pl_err   err = {0};
    find_port();
    pl_comm_place p = {.ranks = 2, .address = address, .patience = 0.5, .find_key = test_key};
    assert_int_equal(pl_comm_join(&c, &p, &err), PL_E_IO);
    assert_non_null(strstr(err.msg, "number 1 of 2 did not come to 127.0.0.1:"));
    p.rank = 1;
    assert_int_equal(pl_comm_join(&c, &p, &err), PL_E_IO);
    assert_non_null(strstr(err.msg, "cannot reach 127.0.0.1:"));
    static const char *const bad[] = {"", "host", "host:", "host:0", "host:70000", ":1", "a:b:1", "[::1]1", "[]:5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        p.address = bad[i];
        if (pl_comm_join(&c, &p, &err) != PL_E_USAGE) fail_msg("%s: %s", bad[i], err.msg);
    }
    p.address = "no.such.host.invalid:5";
    assert_int_equal(pl_comm_join(&c, &p, &err), PL_E_IO);
}

// Something that is no rank connects first, and says nothing, or nonsense.
static void strangers_are_let_go(void **state) {
    (void)state;
    find_port();
    pid_t child = fork();
    assert_true(child >= 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    a.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
    pl_comm_place p = {.ranks = 2, .rank = child == 0, .address = address, .patience = 20, .find_key = test_key};
    pl_comm      *c;
    pl_err        err = {0};
    if (child == 0) {
        static char text[600] = "GET / HTTP/1.0";
        for (int i = 0; i < 2; i++) {
            int fd;
            for (int tries = 0; tries < 100; tries++) {
                fd = socket(AF_INET, SOCK_STREAM, 0);
                if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) break;
                close(fd);
                usleep(50000);
            }
            if (write(fd, text, i ? sizeof text : 14) < 0) _exit(2);
            if (i == 0) shutdown(fd, SHUT_WR);
        }
    }
    pl_status st = pl_comm_join(&c, &p, &err);
    if (st == PL_OK) st = pl_comm_barrier(c, &err);
    if (st == PL_OK) pl_comm_close(c);
    if (child == 0) _exit(st == PL_OK ? 0 : 1);
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (st != PL_OK) fail_msg("%s", err.msg);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

// ---- over MPI

// Each rank believes something else.
static pl_status another(pl_comm *c, pl_err *err) {
    return pl_comm_barrier(c, err);
}

static const struct {
    rank_fn fn;
} cases[] = {{all_beside}, {killed_beside}, {sums},   {all_halves}, {parcels}, {device_sums}, {words}, {no_room},
             {killed},     {failing},       {leaves}, {again},      {mixed},   {stopped},     {busy},  {another}};
static const char *self; // this program

// What is set here, as the ranks' arguments: number of the case, victim, whether on the emulated device, silence; and
// where rank 0 says what came of it.
static pl_status by_mpirun(int ranks, rank_fn fn, pl_err *err) {
    char command[1024], said[] = "/tmp/paceline-test-XXXXXX";
    int  which = 0, status = -1, fd = mkstemp(said);
    while (cases[which].fn != fn)
        assert_true(++which < (int)(sizeof cases / sizeof *cases));
    assert_true(fd >= 0);
    snprintf(command, sizeof command, "timeout 120 '%s' -n %d '%s' %d %d %d %g '%s' %d >/dev/null 2>&1",
             PACELINE_MPIEXEC, ranks, self, which, victim, backend == pl_backend_emulated(), place.silence, said,
             place.ranks);
    int   how = system(command);
    FILE *f = fdopen(fd, "r");
    assert_true(f && how != -1 && WIFEXITED(how));
    if (WEXITSTATUS(how) == 124) fail_msg("%s: hangs", command);
    if (fscanf(f, "%d\n%511[^\n]", &status, err->msg) < 1) fail_msg("%s: rank 0 says nothing", command);
    fclose(f);
    unlink(said);
    err->status = (pl_status)status;
    if (fn == leaves && pl_comm_mpi_kind() == PL_MPI_MPICH)
        return err->status; // whose mpirun takes the first one's code
    if ((status == PL_OK) != (WEXITSTATUS(how) == 0)) fail_msg("status %d, but mpirun's %d", status, WEXITSTATUS(how));
    return err->status;
}

static int from_launcher(const char *open_mpi, const char *mpich) {
    const char *v = getenv(open_mpi) ? getenv(open_mpi) : getenv(mpich);
    return v ? atoi(v) : -1;
}

// A rank that by_mpirun started.
static int as_rank(char **arg) {
    rank_fn  fn = cases[atoi(arg[1])].fn;
    pl_comm *c = NULL;
    pl_err   err = {0};
    signal(SIGTERM, SIG_IGN); // which mpirun sends when one has died
    way = MPI;
    victim = atoi(arg[2]);
    backend = atoi(arg[3]) ? pl_backend_emulated() : pl_backend_cpu();
    place = (pl_comm_place){.mpi = true, .silence = atof(arg[4]), .identity = "all"};
    place.rank = from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK");
    place.ranks = atoi(arg[6]) ? atoi(arg[6]) : from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
    if (fn == another && place.rank == victim) place.identity = "paceline 2";
    pl_status st = pl_comm_join(&c, &place, &err);
    if (st == PL_OK) st = fn(c, &err);
    if (st == PL_OK) st = pl_comm_barrier(c, &err);
    if (st != PL_OK) pl_comm_fail(c, &err);
    if (place.rank == 0) {
        FILE *f = fopen(arg[5], "w");
        if (f) fprintf(f, "%d\n%s\n", (int)st, err.msg);
        if (f) fclose(f);
    }
    pl_comm_close(c);
    return st == PL_OK ? 0 : 1;
}

static void a_stopped_rank_is_named_by_mpi(void **state) {
    (void)state;
    place.silence = 2;
    for (victim = 1; victim < 3; victim++) {
        pl_err err;
        char   part[48];
        double begin = pl_now();
        assert_int_equal(in_ranks(3, stopped, &err), PL_E_IO);
        snprintf(part, sizeof part, "rank %d: no sign of life from ", victim);
        if (!strstr(err.msg, part)) fail_msg("%s", err.msg);
        assert_true(pl_now() - begin < 30);
    }
    place.silence = 0;
}

static void others_are_refused_by_mpi(void **state) {
    (void)state;
    pl_err err;
    victim = 1;
    assert_int_equal(in_ranks(2, another, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "ranks: number 1 of "));
    assert_non_null(strstr(err.msg, "is paceline 2, number 0 of "));
    victim = 0;
    place.ranks = 3; // as a launcher of another MPI would say
    assert_int_equal(in_ranks(2, another, &err), PL_E_USAGE);
    place.ranks = 0;
    assert_non_null(strstr(err.msg, "as rank 0 of 2, its launcher as 0 of 3: they are of two MPIs"));
}

static void no_mpi_in_this_build(void **state) {
    (void)state;
    pl_comm      *c;
    pl_err        err;
    pl_comm_place p = {.ranks = 2, .mpi = true};
    if (pl_comm_mpi_kind() != PL_MPI_NONE) skip();
    assert_int_equal(pl_comm_join(&c, &p, &err), PL_E_UNSUPPORTED);
    assert_string_equal(err.msg, "this build has no MPI (PACELINE_MPI=ON builds it in); use --group tcp");
    assert_null(c);
}

int main(int argc, char **argv) {
    if (argc > 1) return as_rank(argv);
    self = argv[0];
    const struct CMUnitTest shared[] = {
        cmocka_unit_test(sums_are_the_tree),
        cmocka_unit_test(halves_are_the_sum),
        cmocka_unit_test(sums_go_on_beside),
        cmocka_unit_test(sums_on_a_device),
        cmocka_unit_test(columns_stand_side_by_side),
        cmocka_unit_test(words_arrive),
        cmocka_unit_test(parcels_arrive),
        cmocka_unit_test(rank_0_goes_first),
        cmocka_unit_test(one_rank_costs_nothing),
        cmocka_unit_test(a_group_of_one),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(no_memory_for_a_sum),
        cmocka_unit_test(a_killed_rank_stops_all),
        cmocka_unit_test(a_failure_is_told),
        cmocka_unit_test(a_rank_that_leaves_is_missed),
        cmocka_unit_test(a_failure_stays),
        cmocka_unit_test(a_stopped_child_is_named),
        cmocka_unit_test(a_stopped_child_does_not_hold_rank_0),
        cmocka_unit_test(nobody_outlives_rank_0),
        cmocka_unit_test(others_ignore_stops),
        cmocka_unit_test(nccl_is_looked_for),
        cmocka_unit_test(transports_are_chosen),
        cmocka_unit_test(mixed_devices_are_refused),
        cmocka_unit_test(no_mpi_in_this_build),
    };
    const struct CMUnitTest tcp[] = {
        cmocka_unit_test(sums_are_the_tree),
        cmocka_unit_test(halves_are_the_sum),
        cmocka_unit_test(sums_go_on_beside),
        cmocka_unit_test(sums_on_a_device),
        cmocka_unit_test(columns_stand_side_by_side),
        cmocka_unit_test(words_arrive),
        cmocka_unit_test(parcels_arrive),
        cmocka_unit_test(rank_0_goes_first),
        cmocka_unit_test(a_group_of_one),
        cmocka_unit_test(no_memory_for_a_sum),
        cmocka_unit_test(a_failure_is_told),
        cmocka_unit_test(a_failure_stays),
        cmocka_unit_test(a_killed_rank_stops_all),
        cmocka_unit_test(a_rank_that_leaves_is_missed),
        cmocka_unit_test(mixed_devices_are_refused),
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(a_busy_rank_lives),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(who_does_not_come),
        cmocka_unit_test(strangers_are_let_go),
    };
    const struct CMUnitTest mpi[] = {
        cmocka_unit_test(sums_are_the_tree),
        cmocka_unit_test(halves_are_the_sum),
        cmocka_unit_test(sums_go_on_beside),
        cmocka_unit_test(sums_on_a_device),
        cmocka_unit_test(words_arrive),
        cmocka_unit_test(parcels_arrive),
        cmocka_unit_test(a_group_of_one),
        cmocka_unit_test(no_memory_for_a_sum),
        cmocka_unit_test(a_failure_is_told),
        cmocka_unit_test(a_failure_stays),
        cmocka_unit_test(a_killed_rank_stops_all),
        cmocka_unit_test(a_rank_that_leaves_is_missed),
        cmocka_unit_test(mixed_devices_are_refused),
        cmocka_unit_test(a_stopped_rank_is_named_by_mpi),
        cmocka_unit_test(a_busy_rank_lives),
        cmocka_unit_test(others_are_refused_by_mpi),
    };
    int wrong = cmocka_run_group_tests(shared, NULL, NULL);
    way = TCP;
    wrong += cmocka_run_group_tests(tcp, NULL, NULL);
    way = MPI;
    place = (pl_comm_place){0};
    if (!*PACELINE_MPIEXEC) return wrong;
    test_mpirun_here();
    return wrong + cmocka_run_group_tests(mpi, NULL, NULL);
}
