#define _GNU_SOURCE 1 // sched_getaffinity
#include "kernels/base/parallel.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/room.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How a region runs. The caller writes the job, then publishes a word: region number and number of threads taking part.
// A worker that sees a new word and takes part runs its parts and counts down `pending`; one that does not take part
// looks at nothing but the word, so nobody waits for it. Who waits spins first and then sleeps; before sleeping it
// announces itself and looks once more, and whoever changes the watched value looks for the announcement afterwards.
// Both orders are seq_cst, so at least one of the two sees the other and no wake-up is lost.

enum { MAX_THREADS = 1024, TAKERS_BITS = 16, LINE = 64 };

typedef struct worker {
    _Alignas(LINE) atomic_bool asleep;
    pl_pool        *pool;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    int             index;
} worker;

struct pl_pool {
    // One line: who sees the word has the job with it, rather than in a second transfer between cores.
    _Alignas(LINE) atomic_uint_fast64_t word; // region << TAKERS_BITS | threads taking part
    pl_part_fn fn;                            // the job; written between regions only
    void      *arg;
    int        parts;
    int        threads;
    double     spin;                    // seconds
    _Alignas(LINE) atomic_int pending;  // workers that have not finished the region
    _Alignas(LINE) atomic_int sleepers; // workers asleep
    atomic_bool     busy, stop, caller_asleep;
    pthread_mutex_t lock; // the caller sleeps here
    pthread_cond_t  done;
    worker         *workers; // [threads], 0 (the caller) unused
    size_t          bytes;
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static _Thread_local uintptr_t soon, soon_end;

void pl_soon(const void *p, size_t bytes) {
    soon = (uintptr_t)p;
    soon_end = soon + bytes;
}

// One turn of a waiting loop. A line each: processors drop prefetches that come faster than memory answers.
static inline void idle(void) {
    if (soon >= soon_end) {
        relax();
        return;
    }
    __builtin_prefetch((const void *)soon);
    soon += LINE;
}

// Waiting for seconds at most. The clock is read once a while, and not at all by who hardly waits.
typedef struct patience {
    double seconds, until;
    int    turns;
} patience;

static inline bool wait_on(patience *w) {
    idle();
    if (++w->turns % 64) return true;
    double now = pl_now();
    if (w->turns == 64) w->until = now + w->seconds;
    return now < w->until;
}

// True as soon as *v differs from old, false after `seconds`.
static bool spin_word(atomic_uint_fast64_t *v, uint_fast64_t old, double seconds) {
    patience w = {.seconds = seconds};
    do
        if (atomic_load_explicit(v, memory_order_acquire) != old) return true;
    while (wait_on(&w));
    return false;
}

static bool spin_zero(atomic_int *v, double seconds) {
    patience w = {.seconds = seconds};
    do
        if (atomic_load_explicit(v, memory_order_acquire) == 0) return true;
    while (wait_on(&w));
    return false;
}

// The job is read once: its line goes to and fro between the cores.
static void run_parts(const pl_pool *p, int thread) {
    const pl_part_fn fn = p->fn;
    void *const      arg = p->arg;
    const int        parts = p->parts, threads = p->threads;
    for (long i = thread; i < parts; i += threads)
        fn(arg, (int)i, parts);
}

static void finish(pl_pool *p) {
    if (atomic_fetch_sub(&p->pending, 1) != 1 || !atomic_load(&p->caller_asleep)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg) {
    worker       *w = arg;
    pl_pool      *p = w->pool;
    uint_fast64_t seen = 0;
    for (;;) {
        if (!spin_word(&p->word, seen, p->spin)) {
            pthread_mutex_lock(&w->lock);
            atomic_store(&w->asleep, true);
            atomic_fetch_add(&p->sleepers, 1);
            while (atomic_load(&p->word) == seen)
                pthread_cond_wait(&w->wake, &w->lock);
            atomic_fetch_sub(&p->sleepers, 1);
            atomic_store(&w->asleep, false);
            pthread_mutex_unlock(&w->lock);
        }
        seen = atomic_load_explicit(&p->word, memory_order_acquire);
        if (atomic_load_explicit(&p->stop, memory_order_relaxed)) return NULL;
        if (w->index >= (int)(seen & ((1u << TAKERS_BITS) - 1))) continue;
        // What fn is given has just been written by another core: its lines come at once.
        for (int line = 0; line < 3; line++)
            __builtin_prefetch((const char *)p->arg + line * LINE);
        run_parts(p, w->index);
        finish(p);
    }
}

// Starts a region for threads [0, takers) and wakes those that sleep.
static void publish(pl_pool *p, int takers) {
    uint_fast64_t region = (atomic_load_explicit(&p->word, memory_order_relaxed) >> TAKERS_BITS) + 1;
    atomic_store(&p->word, region << TAKERS_BITS | (uint_fast64_t)takers);
    if (atomic_load(&p->sleepers) == 0) return;
    for (int i = 1; i < takers; i++) {
        worker *w = &p->workers[i];
        if (!atomic_load(&w->asleep)) continue;
        pthread_mutex_lock(&w->lock);
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->lock);
    }
}

// Workers leave signals that ask something of the program to the threads that installed handlers.
static int start(worker *w) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF};
    sigset_t         most, old;
    sigfillset(&most);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&most, faults[i]);
    pthread_sigmask(SIG_SETMASK, &most, &old);
    int rc = pl_thread_start(&w->thread, work, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

// Stops the workers [1, started) and frees everything.
static void tear_down(pl_pool *p, int started) {
    atomic_store(&p->stop, true);
    publish(p, started);
    for (int i = 1; i < started; i++)
        pthread_join(p->workers[i].thread, NULL);
    for (int i = 1; i < p->threads; i++) {
        pthread_mutex_destroy(&p->workers[i].lock);
        pthread_cond_destroy(&p->workers[i].wake);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->done);
    pl_block_destroy(p, p->bytes);
}

pl_status pl_pool_create(pl_pool **out, int threads, pl_err *err) {
    *out = NULL;
    int cores = pl_cores();
    if (threads <= 0) threads = cores < MAX_THREADS ? cores : MAX_THREADS;
    if (threads > MAX_THREADS)
        return pl_fail(err, PL_E_USAGE, "threads: %d is more than %d; ask for fewer", threads, MAX_THREADS);
    // One block holds pool and workers: pages start on a cache line, the heap need not.
    size_t   bytes = sizeof(pl_pool) + (size_t)threads * sizeof(worker);
    pl_pool *p = pl_block_create(bytes, err);
    if (!p) return pl_fail_at(err, PL_E_MEMORY, "threads");
    p->bytes = bytes;
    p->threads = threads;
    p->workers = (worker *)(p + 1);
    // With fewer cores than threads a spinning thread only keeps the one it waits for from running.
    p->spin = threads <= cores ? 80e-6 : 2e-6;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 1; i < threads; i++) {
        worker *w = &p->workers[i];
        w->pool = p;
        w->index = i;
        pthread_mutex_init(&w->lock, NULL);
        pthread_cond_init(&w->wake, NULL);
    }
    for (int i = 1; i < threads; i++) {
        int rc = start(&p->workers[i]);
        if (rc == 0) continue;
        tear_down(p, i);
        errno = rc;
        return pl_fail_errno(err, "threads: cannot start number %d of %d (ask for fewer)", i + 1, threads);
    }
    *out = p;
    return PL_OK;
}

void pl_pool_destroy(pl_pool *p) {
    if (!p) return;
    PL_CHECK(!atomic_load(&p->busy), "pool destroyed inside one of its regions (%d threads)", p->threads);
    tear_down(p, p->threads);
}

int pl_pool_threads(const pl_pool *p) {
    return p ? p->threads : 1;
}

void pl_parallel(pl_pool *p, int parts, pl_part_fn fn, void *arg) {
    PL_CHECK(parts >= 0, "parts %d", parts);
    if (!p) {
        for (int i = 0; i < parts; i++)
            fn(arg, i, parts);
        return;
    }
    PL_CHECK(!atomic_load_explicit(&p->busy, memory_order_relaxed), "nested or concurrent region of %d parts", parts);
    atomic_store_explicit(&p->busy, true, memory_order_relaxed);
    p->fn = fn;
    p->arg = arg;
    p->parts = parts;
    int takers = parts < p->threads ? parts : p->threads;
    if (takers > 1) {
        atomic_store_explicit(&p->pending, takers - 1, memory_order_relaxed);
        publish(p, takers);
    }
    run_parts(p, 0);
    if (takers > 1 && !spin_zero(&p->pending, p->spin)) {
        pthread_mutex_lock(&p->lock);
        atomic_store(&p->caller_asleep, true);
        while (atomic_load(&p->pending) != 0)
            pthread_cond_wait(&p->done, &p->lock);
        atomic_store(&p->caller_asleep, false);
        pthread_mutex_unlock(&p->lock);
    }
    atomic_store_explicit(&p->busy, false, memory_order_relaxed);
}

void pl_range(long n, long grain, int part, int parts, long *lo, long *hi) {
    PL_CHECK(n >= 0 && grain > 0 && part >= 0 && part < parts, "n %ld grain %ld part %d of %d", n, grain, part, parts);
    long units = n / grain + (n % grain != 0), each = units / parts, extra = units % parts;
    long first = each * part + (part < extra ? part : extra), last = first + each + (part < extra);
    *lo = first < units ? first * grain : n;
    *hi = last < units ? last * grain : n;
}

// Cores

static int affinity(void) {
    // The kernel refuses sets smaller than its own: grow until it fits.
    for (int most = 1024; most <= 1 << 20; most *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)most);
        if (!set) break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)most);
        int    rc = sched_getaffinity(0, bytes, set), n = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        int    cause = errno;
        CPU_FREE(set);
        if (rc == 0) return n > 0 ? n : 1;
        if (cause != EINVAL) break;
    }
    return 1;
}

// Cores of one cgroup's quota, rounded up, or `cores` where it sets none. cpu.max holds "QUOTA PERIOD" or "max PERIOD".
static int quota(const char *group, int cores) {
    char path[4200];
    int  n = snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
    if (n < 0 || (size_t)n >= sizeof path) return cores;
    FILE *f = fopen(path, "re");
    if (!f) return cores;
    long limit, period;
    if (fscanf(f, "%ld %ld", &limit, &period) == 2 && limit > 0 && period > 0) {
        long q = limit / period + (limit % period != 0);
        if (q < cores) cores = (int)q;
    }
    fclose(f);
    return cores;
}

int pl_cores(void) {
    int  cores = affinity();
    char group[4096 + 16];
    pl_cgroup(group, sizeof group, NULL);
    // Every ancestor may hold a quota of its own; the smallest counts.
    for (;;) {
        cores = quota(group, cores);
        char *slash = strrchr(group, '/');
        if (!slash) break;
        *slash = 0;
    }
    return cores > 0 ? cores : 1;
}

// ---- threads

// Attributes with the stack's size, to be destroyed where 0 is returned; else an error number.
static int make_attributes(pthread_attr_t *attr) {
    int rc = pthread_attr_init(attr);
    if (rc != 0) return rc;
    rc = pthread_attr_setstacksize(attr, PL_THREAD_STACK);
    if (rc != 0) pthread_attr_destroy(attr);
    return rc;
}

int pl_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg) {
    pthread_attr_t attr;
    int            rc = make_attributes(&attr);
    if (rc != 0) return rc;
    rc = pthread_create(thread, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return rc;
}

void pl_thread_defaults(void) {
#ifdef __GLIBC__
    pthread_attr_t attr;
    if (make_attributes(&attr) != 0) return;
    pthread_setattr_default_np(&attr);
    pthread_attr_destroy(&attr);
#endif
}
