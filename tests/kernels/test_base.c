// The base floor: status, check, dtype, arena, parallel, rng, clock, log, hash.
#define _GNU_SOURCE 1 // posix_openpt
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/dtype.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/base/parallel.h"
#include "kernels/base/rng.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

// Runs fn in a child whose stderr is collected (to a terminal when `tty`); returns its wait status.
static int in_child(void (*fn)(void), bool tty, char *out, size_t room) {
    int ends[2];
    if (tty) {
        ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
        assert_true(ends[0] >= 0);
        assert_int_equal(grantpt(ends[0]), 0);
        assert_int_equal(unlockpt(ends[0]), 0);
        ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
        assert_true(ends[1] >= 0);
        struct winsize size = {.ws_row = 24, .ws_col = 40};
        assert_int_equal(ioctl(ends[1], TIOCSWINSZ, &size), 0);
    } else {
        assert_int_equal(pipe(ends), 0);
    }
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); // cmocka's own handlers stay with the parent
        setenv("TERM", "xterm", 1);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        fn();
        fflush(stderr);
        _exit(0);
    }
    close(ends[1]);
    size_t  n = 0;
    ssize_t got;
    while (n + 1 < room && (got = read(ends[0], out + n, room - 1 - n)) > 0)
        n += (size_t)got;
    out[n] = 0;
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static bool aborted(int status) {
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

// status, check

static void status_messages(void **state) {
    (void)state;
    pl_err e = {0};
    assert_int_equal(pl_fail(&e, PL_E_INPUT, "file %s: line %d: %s", "a\nb", 7, "tab\there"), PL_E_INPUT);
    assert_string_equal(e.msg, "file a b: line 7: tab here");
    assert_int_equal(e.status, PL_E_INPUT);
    assert_int_equal(pl_fail_at(&e, PL_E_USAGE, "recipe %s", "r.yaml"), PL_E_USAGE);
    assert_string_equal(e.msg, "recipe r.yaml: file a b: line 7: tab here");
    assert_int_equal(e.status, PL_E_USAGE);

    // The message may be its own argument.
    pl_fail(&e, PL_E_IO, "again: %s", e.msg);
    assert_string_equal(e.msg, "again: recipe r.yaml: file a b: line 7: tab here");

    pl_err none = {0};
    pl_fail_at(&none, PL_E_DEVICE, "cuda:0");
    assert_string_equal(none.msg, "cuda:0: device error");
    assert_int_equal(pl_fail(NULL, PL_E_IO, "x"), PL_E_IO);
    assert_int_equal(pl_fail_at(NULL, PL_E_IO, "x"), PL_E_IO);

    errno = ENOENT;
    assert_int_equal(pl_fail_errno(&e, "open %s", "f"), PL_E_IO);
    assert_string_equal(e.msg, "open f: No such file or directory");
    errno = ENOMEM;
    assert_int_equal(pl_fail_errno(&e, "map"), PL_E_MEMORY);
}

static void status_is_cut_to_fit(void **state) {
    (void)state;
    pl_err e;
    char   big[3000];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    pl_fail(&e, PL_E_INPUT, "%s", big);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    pl_fail_at(&e, PL_E_INPUT, "%s", big);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    // A two-byte character across the cut goes away whole.
    memcpy(big + sizeof e.msg - 2, "\xc3\xa9", 2);
    pl_fail(&e, PL_E_INPUT, "%s", big);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 2);
    assert_int_equal(e.msg[sizeof e.msg - 3], 'x');
}

static void status_exit_codes(void **state) {
    (void)state;
    assert_int_equal(pl_status_exit(PL_OK), 0);
    assert_int_equal(pl_status_exit(PL_E_USAGE), 2);
    assert_int_equal(pl_status_exit(PL_E_INPUT), 2);
    const pl_status ones[] = {PL_E_IO, PL_E_MEMORY, PL_E_UNSUPPORTED, PL_E_DEVICE, PL_E_INTERRUPTED};
    for (size_t i = 0; i < COUNT(ones); i++)
        assert_int_equal(pl_status_exit(ones[i]), 1);
    assert_string_equal(pl_status_text(PL_E_MEMORY), "out of memory");
    assert_string_equal(pl_status_text((pl_status)99), "unknown status");
}

static pl_status fails_at(int n, int at) {
    return n == at ? PL_E_IO : PL_OK;
}

static pl_status tries(int at, int *reached) {
    for (*reached = 0; *reached < 3; ++*reached)
        PL_TRY(fails_at(*reached, at));
    return PL_OK;
}

static void status_try(void **state) {
    (void)state;
    int n;
    assert_int_equal(tries(1, &n), PL_E_IO);
    assert_int_equal(n, 1);
    assert_int_equal(tries(9, &n), PL_OK);
    assert_int_equal(n, 3);
}

static void break_check(void) {
    int n = 5, max = 4;
    PL_CHECK(n <= max, "n %d max %d", n, max);
}

static void fail_with_ok(void) {
    pl_fail(NULL, PL_OK, "nothing");
}

static void check_aborts(void **state) {
    (void)state;
    char out[4096];
    assert_true(aborted(in_child(break_check, false, out, sizeof out)));
    assert_non_null(strstr(out, "test_base.c:"));
    assert_non_null(strstr(out, "check failed: n <= max: n 5 max 4\n"));
    assert_true(aborted(in_child(fail_with_ok, false, out, sizeof out)));
    PL_CHECK(out[0] != 0, "not evaluated");
}

// dtype

static void dtype_names(void **state) {
    (void)state;
    const char  *names[] = {"F32", "BF16", "F64", "F16", "I32", "I64", "U8", "BOOL", "I8", "F8_E4M3", "F8_E8M0"};
    const size_t sizes[] = {4, 2, 8, 2, 4, 8, 1, 1, 1, 1, 1};
    assert_int_equal(COUNT(names), PL_DTYPE_COUNT);
    for (int t = 0; t < PL_DTYPE_COUNT; t++) {
        assert_string_equal(pl_dtype_name((pl_dtype)t), names[t]);
        assert_int_equal(pl_dtype_size((pl_dtype)t), sizes[t]);
    }
}

static void dtype_bf16(void **state) {
    (void)state;
    // Every bf16 survives the way through fp32 (a NaN becomes quiet, its sign and upper payload stay).
    for (uint32_t b = 0; b < 65536; b++) {
        bool     nan = (b & 0x7fff) > 0x7f80;
        uint16_t back = pl_f32_to_bf16(pl_bf16_to_f32((uint16_t)b));
        assert_int_equal(back, nan ? b | 0x40 : b);
    }
    // Ties go to even, everything else to the nearest; the largest floats round to infinity.
    assert_int_equal(pl_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(pl_f32_to_bf16(1.0f + 0x3p-8f), 0x3f82);
    assert_int_equal(pl_f32_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
    assert_int_equal(pl_f32_to_bf16(3.4028235e38f), 0x7f80);
    assert_true(pl_round_bf16(1.003f) == 1.0f);
}

// By definition: sign * 2^(e-15) * 1.m, or 2^-14 * 0.m.
static double f16_by_definition(uint16_t h) {
    int    e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -x : x;
}

static void dtype_f16(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        double want = f16_by_definition((uint16_t)h), got = pl_f16_to_f32((uint16_t)h);
        if (isnan(want))
            assert_true(isnan(got));
        else
            assert_true(got == want && signbit(got) == signbit(want));
    }
}

// Every half comes back; between two of them the nearer, and of two equally near the even one.
static void dtype_to_f16(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float    x = pl_f16_to_f32((uint16_t)h), next = pl_f16_to_f32((uint16_t)(h + 1)), middle = (x + next) / 2;
        uint16_t back, mid, more;
        pl_from_f32(&back, PL_F16, &x, 1);
        if (isnan(x)) {
            assert_true(isnan(pl_f16_to_f32(back)));
            continue;
        }
        assert_int_equal(back, h);
        if (!isfinite(next) || !isfinite(x) || (h & 0x7fff) == 0x7fff) continue;
        float past = nextafterf(middle, next);
        pl_from_f32(&mid, PL_F16, &middle, 1);
        pl_from_f32(&more, PL_F16, &past, 1);
        assert_int_equal(mid, h & 1 ? h + 1 : h);
        assert_int_equal(more, h + 1);
    }
    const float big[] = {65519.0f, 65520.0f, 1e30f, -1e30f, 1e-30f};
    uint16_t    out[5];
    pl_from_f32(out, PL_F16, big, 5);
    assert_true(out[0] == 0x7bff && out[1] == 0x7c00 && out[2] == 0x7c00 && out[3] == 0xfc00 && out[4] == 0);
}

static void dtype_arrays(void **state) {
    (void)state;
    const float    x[] = {0, -1.5f, 3.1415927f, 1e-40f, -3e38f, INFINITY};
    const pl_dtype both[] = {PL_F32, PL_BF16, PL_F64};
    enum { N = COUNT(x) };
    for (size_t k = 0; k < COUNT(both); k++) {
        uint8_t raw[1 + 8 * N]; // one byte in: never aligned
        float   back[N];
        pl_from_f32(raw + 1, both[k], x, N);
        pl_to_f32(back, raw + 1, both[k], N);
        for (int i = 0; i < N; i++)
            assert_true(back[i] == (both[k] == PL_BF16 ? pl_round_bf16(x[i]) : x[i]));
    }
    const uint8_t half[] = {0xff, 0x00, 0x3c, 0x00, 0xc0}; // little-endian 1, -2 behind one stray byte
    float         y[2];
    pl_to_f32(y, half + 1, PL_F16, 2);
    assert_true(y[0] == 1 && y[1] == -2);
}

static void dtype_wrong(void) {
    float x;
    pl_to_f32(&x, "abcd", PL_I32, 1);
}

static void dtype_refuses_integers(void **state) {
    (void)state;
    char out[4096];
    assert_true(aborted(in_child(dtype_wrong, false, out, sizeof out)));
}

// arena

static void arena_measure_then_run(void **state) {
    (void)state;
    pl_err   e = {0};
    pl_arena a;
    pl_arena_init(&a, "test");
    uint8_t *blocks[2][3];
    size_t   peak = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 0)
            pl_arena_begin_measure(&a);
        else
            assert_int_equal(pl_arena_commit(&a, &e), PL_OK);
        blocks[pass][0] = pl_arena_alloc(&a, 1);
        size_t mark = pl_arena_mark(&a);
        blocks[pass][1] = pl_arena_alloc(&a, 1000);
        pl_arena_release(&a, mark);
        blocks[pass][2] = pl_arena_alloc(&a, 65);
        if (pass == 0) peak = a.peak;
    }
    assert_int_equal(peak, 64 + 1024);
    assert_int_equal(a.size, peak);
    assert_int_equal(a.peak, peak);
    for (int i = 0; i < 3; i++) {
        // A measured run shows the offsets of the real one, at addresses nobody can hold.
        assert_int_equal(blocks[0][i] - blocks[0][0], blocks[1][i] - blocks[1][0]);
        assert_int_equal((uintptr_t)blocks[0][i] % PL_ALIGN, 0);
        assert_int_equal((uintptr_t)blocks[1][i] % PL_ALIGN, 0);
        assert_non_null(blocks[0][i]);
    }
    assert_ptr_equal(blocks[1][1], blocks[1][2]);
    blocks[1][2][64] = 1;

    uint64_t before = pl_alloc_count();
    pl_arena_reset(&a);
    assert_int_equal(pl_arena_mark(&a), 0);
    assert_ptr_equal(pl_arena_alloc(&a, peak), a.base);
    assert_int_equal(pl_alloc_count(), before);
    pl_arena_fini(&a);
    assert_null(a.base);
}

typedef struct shared {
    pl_arena a;
    size_t   bytes;
    uint8_t *p[2];
} shared;

static void take_shared(void *arg) {
    shared *s = arg;
    for (int i = 0; i < 2; i++)
        s->p[i] = pl_arena_alloc(&s->a, s->bytes);
}

static void arena_of_an_owner(void **state) {
    (void)state;
    pl_err e = {0};
    shared s = {.bytes = 100};
    assert_int_equal(pl_arena_init_shared(&s.a, "owner", NULL, take_shared, &s, &e), PL_OK);
    assert_true(s.a.place == PL_SHARED && s.a.size == 256 && s.p[0] == s.a.base && s.p[1] == s.a.base + 128);
    s.p[1][99] = 1;
    pl_arena_fini(&s.a);
    s.bytes = SIZE_MAX;
    assert_int_equal(pl_arena_init_shared(&s.a, "owner", NULL, take_shared, &s, &e), PL_E_MEMORY);
    assert_non_null(strstr(e.msg, "owner: memory: no block"));
    assert_null(s.a.base);
}

static void arena_zero_and_huge(void **state) {
    (void)state;
    pl_err   e = {0};
    pl_arena a;
    pl_arena_init(&a, "big");
    pl_arena_begin_measure(&a);
    void *p = pl_arena_alloc(&a, 0), *q = pl_arena_alloc(&a, 0);
    assert_ptr_not_equal(p, q);
    // Sizes that overflow do not wrap round to something small.
    for (int i = 0; i < 3; i++)
        assert_non_null(pl_arena_alloc(&a, pl_size_mul(SIZE_MAX / 4, 2, 1)));
    pl_arena_alloc(&a, SIZE_MAX);
    assert_int_equal(pl_arena_commit(&a, &e), PL_E_MEMORY);
    assert_non_null(strstr(e.msg, "big: memory: no block"));
    assert_null(a.base);
    assert_int_equal(pl_arena_reserve(&a, (size_t)1 << 60, &e), PL_E_MEMORY);
    pl_arena_begin_measure(&a);
    assert_int_equal(pl_arena_commit(&a, &e), PL_OK); // nothing measured, nothing held
    assert_null(a.base);
    assert_int_equal(pl_arena_reserve(&a, 3 << 20, &e), PL_OK);
    assert_int_equal((uintptr_t)a.base % (2 << 20), 0);
    uint8_t *all = pl_arena_alloc(&a, 3 << 20);
    all[0] = all[(3 << 20) - 1] = 1;
    pl_arena_fini(&a);
}

static void arena_overflow(void) {
    pl_arena a;
    pl_arena_init(&a, "small");
    if (pl_arena_reserve(&a, 128, NULL) != PL_OK) return;
    pl_arena_alloc(&a, 64);
    pl_arena_alloc(&a, 65);
}

static void arena_aborts_when_full(void **state) {
    (void)state;
    char out[4096];
    assert_true(aborted(in_child(arena_overflow, false, out, sizeof out)));
    assert_non_null(strstr(out, "arena small is full: 65 bytes asked, 64 of 128 used"));
}

static void arena_guards(void **state) {
    (void)state;
    const size_t sizes[] = {1, 64, 100, 0, 4096};
    pl_arena     a;
    pl_arena_init(&a, "guarded");
    a.guard = true;
    uint8_t *p[COUNT(sizes)];
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 0)
            pl_arena_begin_measure(&a);
        else
            assert_int_equal(pl_arena_commit(&a, NULL), PL_OK);
        for (size_t i = 0; i < COUNT(sizes); i++)
            p[i] = pl_arena_alloc(&a, sizes[i]);
        assert_true(pl_arena_check(&a));
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        memset(p[i], 0xff, sizes[i]); // all of a block is its owner's
        assert_true(pl_arena_check(&a));
        // The first byte past the end, the last of the guard, and each byte in front.
        uint8_t *end = p[i] + sizes[i], *hits[2 + PL_ALIGN] = {end, end + PL_ALIGN - 1};
        for (int k = 0; k < PL_ALIGN; k++)
            hits[2 + k] = p[i] - 1 - k;
        for (size_t k = 0; k < COUNT(hits); k++) {
            *hits[k] ^= 0x10;
            assert_false(pl_arena_check(&a));
            *hits[k] ^= 0x10;
            assert_true(pl_arena_check(&a));
        }
    }
    pl_arena_fini(&a);
}

static void heap_counts_and_fails(void **state) {
    (void)state;
    uint64_t before = pl_alloc_count();
    char    *s = pl_strdup("abc"), *t = pl_sprintf("%s-%d", "x", 42);
    void    *z = pl_malloc(0), *c = pl_calloc(3, 5);
    assert_string_equal(s, "abc");
    assert_string_equal(t, "x-42");
    assert_non_null(z);
    for (int i = 0; i < 15; i++)
        assert_int_equal(((char *)c)[i], 0);
    s = pl_realloc(s, 100);
    assert_string_equal(s, "abc");
    assert_int_equal(pl_alloc_count() - before, 5);
    volatile size_t half = SIZE_MAX / 2; // volatile: the compiler must not see the overflow
    assert_null(pl_calloc(half, 3));
    assert_null(pl_malloc(pl_size_mul(half, 3, 1)));
    assert_null(pl_realloc(s, half + 1));

    pl_alloc_fail_after(2);
    void *ok = pl_malloc(8);
    assert_non_null(ok);
    assert_null(pl_realloc(s, 200)); // the old block lives on
    assert_string_equal(s, "abc");
    void *after = pl_malloc(8);
    assert_non_null(after);

    pl_err   e = {0};
    pl_arena a;
    pl_arena_init(&a, "a");
    pl_alloc_fail_after(1);
    assert_int_equal(pl_arena_reserve(&a, 64, &e), PL_E_MEMORY);
    pl_alloc_fail_after(1);
    assert_null(pl_block_create(64, &e));
    pl_alloc_fail_after(1);
    assert_null(pl_sprintf("%d", 1));
    pl_alloc_fail_after(1);
    pl_alloc_fail_after(0);
    void *never = pl_malloc(1);
    assert_non_null(never);
    void *all[] = {s, t, z, c, ok, after, never};
    for (size_t i = 0; i < COUNT(all); i++)
        pl_free(all[i]);
    pl_free(NULL);
}

static void blocks(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 4096, 4097, (2 << 20) - 1, 2 << 20, (5 << 20) + 1};
    for (size_t k = 0; k < COUNT(sizes); k++) {
        uint8_t *p = pl_block_create(sizes[k], NULL);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 4096, 0);
        for (size_t i = 0; i < sizes[k]; i += 1000)
            assert_int_equal(p[i], 0);
        if (sizes[k]) p[sizes[k] - 1] = 1;
        pl_block_destroy(p, sizes[k]);
    }
    pl_err e = {0};
    assert_null(pl_block_create(SIZE_MAX, &e));
    assert_int_equal(e.status, PL_E_MEMORY);
    pl_block_destroy(NULL, 5);
}

static void size_mul(void **state) {
    (void)state;
    assert_int_equal(pl_size_mul(3, 5, 7), 105);
    assert_true(pl_size_mul(SIZE_MAX, 2, 1) == SIZE_MAX);
    assert_true(pl_size_mul(1, SIZE_MAX / 2, 3) == SIZE_MAX);
    assert_true(pl_size_mul(SIZE_MAX / 3, 1, 3) == SIZE_MAX / 3 * 3);
    assert_int_equal(pl_size_mul(SIZE_MAX, SIZE_MAX, 0), 0);
}

// parallel

enum { PARTS = 97 };

typedef struct tally {
    int    seen[PARTS]; // plain: each part is written by one thread only
    long   sum[PARTS];
    size_t thread[PARTS];
} tally;

static _Thread_local char here; // its address tells threads apart

static void count_part(void *arg, int part, int parts) {
    tally *t = arg;
    t->seen[part]++;
    t->thread[part] = (size_t)&here;
    long lo, hi;
    pl_range(1000, 8, part, parts, &lo, &hi);
    for (long i = lo; i < hi; i++)
        t->sum[part] += i;
}

static void check_tally(const tally *t, int parts, int threads) {
    long total = 0;
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(t->seen[i], i < parts);
        total += t->sum[i];
        if (i >= threads && i < parts) assert_true(t->thread[i] == t->thread[i - threads]);
    }
    if (parts > 0) {
        assert_int_equal(total, 999 * 500);
        assert_true(t->thread[0] == (size_t)&here);
    }
    for (int i = 1; i < threads && i < parts; i++)
        assert_true(t->thread[i] != t->thread[0]);
}

static void parallel_runs_every_part_once(void **state) {
    (void)state;
    const int sizes[] = {0, 1, 2, 3, 4, 7, PARTS};
    for (int threads = 1; threads <= 5; threads++) {
        pl_pool *p;
        assert_int_equal(pl_pool_create(&p, threads, NULL), PL_OK);
        assert_int_equal(pl_pool_threads(p), threads);
        for (size_t k = 0; k < COUNT(sizes); k++)
            for (int again = 0; again < 3; again++) {
                tally t = {0};
                pl_parallel(p, sizes[k], count_part, &t);
                check_tally(&t, sizes[k], threads);
            }
        pl_pool_destroy(p);
    }
    tally t = {0};
    pl_parallel(NULL, 5, count_part, &t);
    check_tally(&t, 5, 1);
    assert_int_equal(pl_pool_threads(NULL), 1);
    pl_pool_destroy(NULL);
}

// What a thread says it will read need not be there.
static void add_one(void *arg, int part, int parts) {
    (void)parts;
    ((long *)arg)[part * 8]++;
    pl_soon(part % 2 ? (void *)(uintptr_t)4096 : NULL, (size_t)part * 1000);
}

// Regions close together, with sleeps between some, so that workers are met spinning, falling asleep and asleep; and
// with changing numbers of threads taking part.
static void parallel_back_to_back(void **state) {
    (void)state;
    enum { ROUNDS = 3000, THREADS = 3 };
    pl_pool *p;
    long     sums[(THREADS + 1) * 8] = {0}, want[THREADS + 1] = {0};
    assert_int_equal(pl_pool_create(&p, THREADS, NULL), PL_OK);
    uint64_t allocations = pl_alloc_count();
    for (int i = 0; i < ROUNDS; i++) {
        int parts = i % (THREADS + 2);
        pl_parallel(p, parts, add_one, sums);
        for (int k = 0; k < parts; k++)
            want[k]++;
        if (i % 50 == 0) usleep((unsigned)(i % 300));
    }
    assert_int_equal(pl_alloc_count(), allocations);
    for (int k = 0; k <= THREADS; k++)
        assert_int_equal(sums[k * 8], want[k]);
    pl_pool_destroy(p);
}

static void slow_part(void *arg, int part, int parts) {
    (void)parts;
    if (part == 1) usleep(5000); // longer than the caller spins
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void parallel_waits_for_slow_parts(void **state) {
    (void)state;
    pl_pool   *p;
    atomic_int n = 0;
    assert_int_equal(pl_pool_create(&p, 2, NULL), PL_OK);
    for (int i = 1; i <= 5; i++) {
        pl_parallel(p, 2, slow_part, &n);
        assert_int_equal(atomic_load(&n), 2 * i);
        usleep(2000);
    }
    pl_pool_destroy(p);
}

static void nested(void *arg, int part, int parts) {
    (void)part, (void)parts;
    pl_parallel(arg, 1, add_one, NULL);
}

static void nest(void) {
    pl_pool *p;
    if (pl_pool_create(&p, 1, NULL) == PL_OK) pl_parallel(p, 1, nested, p);
}

static void parallel_refuses(void **state) {
    (void)state;
    char     out[4096];
    pl_err   e = {0};
    pl_pool *p = (pl_pool *)&e;
    assert_int_equal(pl_pool_create(&p, 100000, &e), PL_E_USAGE);
    assert_null(p);
    pl_alloc_fail_after(1);
    assert_int_equal(pl_pool_create(&p, 2, &e), PL_E_MEMORY);
    assert_null(p);
    assert_true(aborted(in_child(nest, false, out, sizeof out)));
    assert_non_null(strstr(out, "nested or concurrent region"));
}

static void parallel_default_size(void **state) {
    (void)state;
    pl_pool *p;
    assert_true(pl_cores() >= 1 && pl_cores() <= sysconf(_SC_NPROCESSORS_CONF));
    assert_int_equal(pl_pool_create(&p, 0, NULL), PL_OK);
    assert_int_equal(pl_pool_threads(p), pl_cores() < 1024 ? pl_cores() : 1024);
    pl_pool_destroy(p);
}

static void parallel_ranges(void **state) {
    (void)state;
    const long ns[] = {0, 1, 7, 64, 1000, LONG_MAX}, grains[] = {1, 3, 16, 5000, LONG_MAX - 1};
    for (size_t i = 0; i < COUNT(ns); i++)
        for (size_t k = 0; k < COUNT(grains); k++)
            for (int parts = 1; parts <= 9; parts++) {
                long at = 0, least = LONG_MAX, most = 0;
                for (int part = 0; part < parts; part++) {
                    long lo, hi;
                    pl_range(ns[i], grains[k], part, parts, &lo, &hi);
                    assert_true(lo == at && hi >= lo);
                    assert_true(hi == ns[i] || hi % grains[k] == 0);
                    if (hi - lo < least) least = hi - lo;
                    if (hi - lo > most) most = hi - lo;
                    at = hi;
                }
                assert_true(at == ns[i]);
                assert_true(most - least <= grains[k] || ns[i] % grains[k] != 0);
                assert_true(most / 2 <= grains[k] || most / 2 <= least);
            }
}

// rng

static void rng_known_answers(void **state) {
    (void)state;
    // Random123 kat_vectors, philox4x32 10: counter, key, output.
    static const uint32_t kat[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
         0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };
    for (size_t i = 0; i < COUNT(kat); i++) {
        const uint32_t *k = kat[i];
        pl_rng          r = {.seed = (uint64_t)k[5] << 32 | k[4], .stream = (uint64_t)k[3] << 32 | k[2]};
        uint32_t        out[4];
        pl_philox(out, r, (uint64_t)k[1] << 32 | k[0], 0);
        assert_memory_equal(out, k + 6, sizeof out);
        // A lane block is the fourth counter word turned by 16 bits.
        r.stream = k[2];
        pl_philox(out, r, (uint64_t)k[1] << 32 | k[0], k[3] << 16 | k[3] >> 16);
        assert_memory_equal(out, k + 6, sizeof out);
    }
}

static void rng_draws_are_independent(void **state) {
    (void)state;
    pl_rng base = pl_rng_make(1, PL_STREAM_SAMPLE, 0);
    pl_rng others[] = {pl_rng_make(2, PL_STREAM_SAMPLE, 0), pl_rng_make(1, PL_STREAM_DRAFT, 0),
                       pl_rng_make(1, PL_STREAM_SAMPLE, 1), pl_rng_make(1, PL_STREAM_SAMPLE, (uint64_t)1 << 40)};
    for (uint64_t at = 0; at < 100; at++) {
        uint64_t x = pl_rng_u64(base, at);
        assert_true(x == pl_rng_u64(base, at));
        assert_true(x != pl_rng_u64(base, at + 1));
        for (size_t i = 0; i < COUNT(others); i++)
            assert_true(x != pl_rng_u64(others[i], at));
    }
}

static void rng_distributions(void **state) {
    (void)state;
    enum { N = 100000, BINS = 10 };
    pl_rng r = pl_rng_make(7, PL_STREAM_TEST, 3);
    double sum = 0, normal = 0, square = 0, fourth = 0;
    int    bins[BINS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        double u = pl_rng_uniform(r, i), z = pl_rng_normal(r, i + N);
        assert_true(u >= 0 && u < 1 && isfinite(z));
        sum += u;
        normal += z;
        square += z * z;
        fourth += z * z * z * z;
        uint64_t b = pl_rng_below(r, i + 2 * N, BINS);
        assert_true(b < BINS);
        bins[b]++;
    }
    // Five standard deviations of each estimate.
    assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    assert_true(fabs(normal / N) < 5 * sqrt(1.0 / N));
    assert_true(fabs(square / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(fourth / N - 3) < 5 * sqrt(96.0 / N));
    for (int b = 0; b < BINS; b++)
        assert_true(fabs(bins[b] - (double)N / BINS) < 5 * sqrt(N * 0.09));
    assert_int_equal(pl_rng_below(r, 0, 1), 0);
    assert_true(pl_rng_below(r, 0, UINT64_MAX) < UINT64_MAX);
}

static void rng_permutations(void **state) {
    (void)state;
    enum { N = 1000 };
    int64_t a[N], b[N];
    bool    seen[N] = {0};
    pl_rng_permute(pl_rng_make(1, PL_STREAM_SHUFFLE, 0), a, N);
    pl_rng_permute(pl_rng_make(1, PL_STREAM_SHUFFLE, 0), b, N);
    assert_memory_equal(a, b, sizeof a);
    pl_rng_permute(pl_rng_make(1, PL_STREAM_SHUFFLE, 1), b, N);
    assert_memory_not_equal(a, b, sizeof a);
    for (int i = 0; i < N; i++) {
        assert_true(a[i] >= 0 && a[i] < N && !seen[a[i]]);
        seen[a[i]] = true;
    }
    pl_rng_permute(pl_rng_make(1, PL_STREAM_SHUFFLE, 0), NULL, 0);
    // All six orders of three are about equally frequent.
    int hits[27] = {0};
    for (uint64_t k = 0; k < 6000; k++) {
        pl_rng_permute(pl_rng_make(1, PL_STREAM_SHUFFLE, k), a, 3);
        hits[a[0] * 9 + a[1] * 3 + a[2]]++;
    }
    const int orders[] = {5, 7, 11, 15, 19, 21}; // 012 021 102 120 201 210 in base 3
    for (size_t i = 0; i < COUNT(orders); i++)
        assert_true(abs(hits[orders[i]] - 1000) < 5 * 29);
}

// clock

static void clock_runs_forward(void **state) {
    (void)state;
    double a = pl_now();
    usleep(2000);
    double b = pl_now();
    assert_true(b - a >= 0.002 && b - a < 60);
}

static void clock_statistics(void **state) {
    (void)state;
    const double    one[] = {-3.5};
    pl_sample_stats s = pl_stats(one, 1);
    assert_true(s.median == -3.5 && s.min == -3.5 && s.p10 == -3.5 && s.p90 == -3.5 && s.mean == -3.5 && s.n == 1);

    double x[11];
    for (int i = 0; i < 11; i++)
        x[i] = (i * 7) % 11 - 5; // -5..5 in another order
    s = pl_stats(x, 11);
    assert_true(s.median == 0 && s.min == -5 && s.p10 == -4 && s.p90 == 4 && s.n == 11);
    assert_true(fabs(s.mean) < 1e-12);
    assert_true(x[1] == 2); // left as it was

    const double even[] = {4, 1, 3, 2, 2, -0.0};
    s = pl_stats(even, 6);
    assert_true(s.median == 2 && s.min == 0 && s.p10 == 0.5 && s.p90 == 3.5);
}

// hash

static void hash_known_answers(void **state) {
    (void)state;
    char hex[17];
    assert_true(pl_hash("", 0) == UINT64_C(0xef46db3751d8e999)); // XXH64 of nothing, and of "a"
    assert_true(pl_hash("a", 1) == UINT64_C(0xd24ec4f1a98c6e5b));
    assert_true(pl_hash(NULL, 0) == pl_hash("", 0));
    uint64_t ab = pl_hash_more(pl_hash("a", 1), "b", 1), ba = pl_hash_more(pl_hash("b", 1), "a", 1);
    assert_true(ab != ba && ab != pl_hash("ab", 2));
    pl_hash_hex(hex, UINT64_C(0x0123456789abcdef));
    assert_string_equal(hex, "0123456789abcdef");
    pl_hash_hex(hex, 0);
    assert_string_equal(hex, "0000000000000000");
}

// log

static void say_things(void) {
    pl_log("step %d\nof %s", 3, "\033[31mten");
    pl_log_warn("slow %s", "disk");
    pl_log_set(PL_LOG_QUIET);
    pl_log("hidden");
    pl_log_warn("seen");
}

static void log_lines(void **state) {
    (void)state;
    char out[4096];
    assert_int_equal(in_child(say_things, false, out, sizeof out), 0);
    assert_string_equal(out, "step 3 of  [31mten\npaceline: warning: slow disk\npaceline: warning: seen\n");
}

static void progress_plain(void) {
    pl_progress p;
    pl_progress_begin(&p, "train", 100, 1000);
    pl_progress_update(&p, 200, "loss %.1f", 2.5); // too soon
    p.start -= 20;
    p.last = p.start + 1;
    pl_progress_update(&p, 340, "loss %.1f", 2.5); // 240 in 20 s
    pl_progress_update(&p, 1000, NULL);            // too soon again
    pl_progress_end(&p);
    pl_progress_begin(&p, "short", 0, 2);
    pl_progress_update(&p, 2, NULL);
    pl_progress_end(&p);
    pl_progress_begin(&p, "stream", 0, 0);
    p.start -= 4000;
    p.last -= 4000;
    pl_progress_update(&p, 20, NULL);
}

static void progress_quiet(void) {
    pl_progress p;
    pl_log_set(PL_LOG_QUIET);
    pl_progress_begin(&p, "train", 0, 10);
    p.start -= 20;
    p.last -= 20;
    pl_progress_update(&p, 10, NULL);
    pl_progress_end(&p);
}

static void progress_terminal(void) {
    pl_progress p;
    pl_progress_begin(&p, "eval", 0, 4);
    p.start -= 200;
    p.last -= 1;
    pl_progress_update(&p, 1, NULL);
    pl_progress_update(&p, 2, "too soon");
    pl_log("note");
    pl_progress_update(&p, 4, "a text that does not fit into forty columns");
    pl_progress_end(&p);
}

static void log_progress(void **state) {
    (void)state;
    char out[4096];
    assert_int_equal(in_child(progress_plain, false, out, sizeof out), 0);
    assert_string_equal(out, "train: 34.0% 340/1000 12.0/s left 0:55 loss 2.5\n"
                             "train: ended after 0:20\n"
                             "stream: 20 200.0 s each\n");
    assert_int_equal(in_child(progress_quiet, false, out, sizeof out), 0);
    assert_string_equal(out, "");
    assert_int_equal(in_child(progress_terminal, true, out, sizeof out), 0);
    // Forty columns: thirty-nine are used; the terminal turns \n into \r\n.
    assert_string_equal(out, "\reval: 25.0% 1/4 200.0 s each left 10:00\033[K"
                             "\r\033[Knote\r\n"
                             "\reval: 100.0% 4/4 50.0 s each a text tha\033[K\r\n");
}

// Outside a hold the first signal ends the process, with a line.
static void stop_at_once(void) {
    pl_stop_install();
    pl_stop_hold();
    pl_stop_release();
    raise(SIGTERM);
    _exit(10);
}

// Inside it is a request, which is confirmed where the work takes long; the second one ends the process.
static void stop_held(void) {
    pl_stop_install();
    pl_stop_hold();
    if (pl_stop_requested()) _exit(10);
    raise(SIGTERM);
    if (!pl_stop_requested()) _exit(11);
    pause(); // until the confirmation
    raise(SIGINT);
    _exit(13);
}

// Work that ends soon says nothing but its own line; a request is forgotten by installing again.
static void stop_soon(void) {
    pl_stop_install();
    pl_stop_hold();
    pl_stop_hold();
    pl_stop_release();
    raise(SIGUSR1);
    if (!pl_stop_requested()) _exit(11);
    pl_stop_install();
    if (pl_stop_requested()) _exit(12);
}

static void stop_on_signals(void **state) {
    (void)state;
    static const struct {
        void (*fn)(void);
        int         signal; // that ends it; 0: none
        const char *says;
    } cases[] = {
        {stop_at_once, SIGTERM, "paceline: SIGTERM: ended at once\n"},
        {stop_held, SIGINT,
         "paceline: SIGTERM: ends once the work in hand is done; a second signal ends it at once\n"
         "paceline: SIGINT: ended at once\n"},
        {stop_soon, 0, ""},
    };
    char out[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = in_child(cases[i].fn, false, out, sizeof out);
        assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, cases[i].signal);
        if (!cases[i].signal) assert_int_equal(WEXITSTATUS(status), 0);
        assert_string_equal(out, cases[i].says);
    }
}

// The middle of finite values, whose ends are known: of 1..n the ends lie 2.5 % of n inside. NaN and infinity, wherever
// they stand, change nothing but the count.
static void interval_leaves_out(void **state) {
    (void)state;
    enum { N = 1000 };
    static const int odd[] = {0, 1, 40, 60, 100, 500, 999};
    for (size_t c = 0; c < sizeof odd / sizeof *odd; c++) {
        double x[2 * N];
        int    n = 0, left = odd[c];
        for (int i = 0; i < N; i++) {
            x[n++] = 1 + (i * 37) % N; // 1..N in disorder
            if (i * (double)odd[c] / N > odd[c] - left && left > 0) x[n++] = left-- % 3 ? NAN : INFINITY;
        }
        while (left-- > 0)
            x[n++] = NAN;
        pl_interval of = pl_interval_95(x, n);
        assert_int_equal(of.left_out, odd[c]);
        assert_true(of.low == 26 && of.high == 975);
    }
    double      none[] = {NAN, NAN}, one[] = {NAN, 2, NAN};
    pl_interval of = pl_interval_95(none, 2);
    assert_true(isnan(of.low) && isnan(of.high) && of.left_out == 2);
    of = pl_interval_95(one, 3);
    assert_true(of.low == 2 && of.high == 2 && of.left_out == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_messages),
        cmocka_unit_test(status_is_cut_to_fit),
        cmocka_unit_test(status_exit_codes),
        cmocka_unit_test(status_try),
        cmocka_unit_test(check_aborts),
        cmocka_unit_test(dtype_names),
        cmocka_unit_test(dtype_bf16),
        cmocka_unit_test(dtype_f16),
        cmocka_unit_test(dtype_to_f16),
        cmocka_unit_test(dtype_arrays),
        cmocka_unit_test(dtype_refuses_integers),
        cmocka_unit_test(arena_measure_then_run),
        cmocka_unit_test(arena_of_an_owner),
        cmocka_unit_test(arena_zero_and_huge),
        cmocka_unit_test(arena_aborts_when_full),
        cmocka_unit_test(arena_guards),
        cmocka_unit_test(heap_counts_and_fails),
        cmocka_unit_test(blocks),
        cmocka_unit_test(size_mul),
        cmocka_unit_test(parallel_runs_every_part_once),
        cmocka_unit_test(parallel_back_to_back),
        cmocka_unit_test(parallel_waits_for_slow_parts),
        cmocka_unit_test(parallel_refuses),
        cmocka_unit_test(parallel_default_size),
        cmocka_unit_test(parallel_ranges),
        cmocka_unit_test(rng_known_answers),
        cmocka_unit_test(rng_draws_are_independent),
        cmocka_unit_test(rng_distributions),
        cmocka_unit_test(rng_permutations),
        cmocka_unit_test(clock_runs_forward),
        cmocka_unit_test(clock_statistics),
        cmocka_unit_test(hash_known_answers),
        cmocka_unit_test(log_lines),
        cmocka_unit_test(log_progress),
        cmocka_unit_test(stop_on_signals),
        cmocka_unit_test(interval_leaves_out),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
