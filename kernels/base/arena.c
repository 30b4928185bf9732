#define _GNU_SOURCE 1 // MAP_ANONYMOUS, madvise
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_uint_fast64_t allocations, held; // held: bytes of blocks
static atomic_uint_fast64_t fail_in;           // allocations until one fails; 0 = never

uint64_t pl_alloc_count(void) {
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

void pl_alloc_fail_after(uint64_t n) {
    atomic_store(&fail_in, n);
}

// Every allocation passes here once: counts it, and says whether it may go on.
static bool admit(void) {
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    uint_fast64_t left = atomic_load_explicit(&fail_in, memory_order_relaxed);
    while (left != 0)
        if (atomic_compare_exchange_weak(&fail_in, &left, left - 1)) {
            if (left > 1) return true;
            errno = ENOMEM;
            return false;
        }
    return true;
}

size_t pl_size_mul(size_t a, size_t b, size_t c) {
    // A zero factor wins over an overflow of the other two.
    if (a == 0 || b == 0 || c == 0) return 0;
    size_t ab, abc;
    if (__builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc)) return SIZE_MAX;
    return abc;
}

// The heap. Zero bytes are one byte, so that NULL always means failure.

// Sizes that no object can have (SIZE_MAX from pl_size_mul) are refused here: sanitizers abort on them.
static bool heap_admit(size_t n) {
    if (n <= PTRDIFF_MAX) return admit();
    errno = ENOMEM;
    return false;
}

void *pl_malloc(size_t n) {
    return heap_admit(n) ? malloc(n ? n : 1) : NULL;
}

void *pl_calloc(size_t count, size_t size) {
    size_t n = pl_size_mul(count, size, 1);
    return heap_admit(n) ? calloc(n ? n : 1, 1) : NULL;
}

void *pl_realloc(void *p, size_t n) {
    return heap_admit(n) ? realloc(p, n ? n : 1) : NULL;
}

void pl_free(void *p) {
    free(p);
}

char *pl_strdup(const char *s) {
    PL_CHECK(s, "pl_strdup of NULL");
    size_t n = strlen(s) + 1;
    char  *out = pl_malloc(n);
    if (out) memcpy(out, s, n);
    return out;
}

char *pl_sprintf(const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int   n = vsnprintf(NULL, 0, fmt, ap);
    char *out = n < 0 ? NULL : pl_malloc((size_t)n + 1);
    if (out) vsnprintf(out, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return out;
}

// Blocks

enum { HUGE_PAGE = 2 << 20 };

// The length that is mapped for `bytes`, or 0 when it does not fit in an address.
static size_t mapped(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0) bytes = 1;
    if (bytes > SIZE_MAX / 2) return 0;
    return (bytes + page - 1) / page * page;
}

void *pl_block_create(size_t bytes, pl_err *err) {
    size_t   n = mapped(bytes);
    size_t   slack = n >= HUGE_PAGE ? HUGE_PAGE : 0; // room to start on a huge page
    uint8_t *p = MAP_FAILED;
    if (!admit() || n == 0)
        errno = ENOMEM;
    else
        p = mmap(NULL, n + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        pl_fail(err, PL_E_MEMORY, "memory: no block of %.1f MiB: %s; make the model, the batch or the context smaller",
                (double)bytes / 1048576, strerror(errno));
        return NULL;
    }
    if (slack) {
        size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (head) munmap(p, head);
        p += head;
        if (slack - head) munmap(p + n, slack - head);
        madvise(p, n, MADV_HUGEPAGE); // a wish: a kernel without huge pages changes nothing but speed
    }
    atomic_fetch_add_explicit(&held, n, memory_order_relaxed);
    return p;
}

void pl_block_destroy(void *p, size_t bytes) {
    if (!p) return;
    munmap(p, mapped(bytes));
    atomic_fetch_sub_explicit(&held, mapped(bytes), memory_order_relaxed);
}

uint64_t pl_blocks_held(void) {
    return atomic_load_explicit(&held, memory_order_relaxed);
}

void *pl_memory_create(const pl_memory *m, pl_place place, size_t bytes, pl_err *err) {
    if (!m) return pl_block_create(bytes, err);
    if (admit()) return m->create(m, place, bytes, err);
    pl_fail(err, PL_E_MEMORY, "%s: no block of %.1f MiB: out of memory", m->name, (double)bytes / 1048576);
    return NULL;
}

void pl_memory_destroy(const pl_memory *m, pl_place place, void *p, size_t bytes) {
    if (m && p) m->destroy(m, place, p, bytes);
    if (!m) pl_block_destroy(p, bytes);
}

pl_status pl_memory_write(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err) {
    if (bytes == 0) return PL_OK;
    if (m) return m->write(m, to, from, bytes, err);
    memcpy(to, from, bytes);
    return PL_OK;
}

pl_status pl_memory_read(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err) {
    if (bytes == 0) return PL_OK;
    if (m) return m->read(m, to, from, bytes, err);
    memcpy(to, from, bytes);
    return PL_OK;
}

void *pl_memory_stage(const pl_memory *m, void *at, size_t bytes) {
    return m ? pl_calloc(bytes, 1) : at;
}

pl_status pl_memory_put(const pl_memory *m, void *at, void *stage, size_t bytes, pl_status st, pl_err *err) {
    if (!m) return st;
    if (st == PL_OK) st = pl_memory_write(m, at, stage, bytes, err);
    pl_free(stage);
    return st;
}

// Arenas. A guarded block of n bytes is laid out as
//   header (PL_ALIGN: n, n ^ SEAL, pattern) | n bytes | pattern up to the next multiple of PL_ALIGN, and PL_ALIGN more
// so that the check can walk the blocks from the front and sees even a single byte written past the end.

static const uint64_t SEAL = 0x9e3779b97f4a7c15u;
static const uint8_t  PATTERN = 0xa5;

void pl_arena_init(pl_arena *a, const char *name) {
    *a = (pl_arena){.name = name ? name : "arena"};
}

// Guard bytes are written and checked by the host.
static pl_place place_of(const pl_arena *a) {
    return a->guard ? PL_SHARED : a->place;
}

static void drop(pl_arena *a) {
    pl_memory_destroy(a->memory, place_of(a), a->base, a->size);
    a->base = NULL;
    a->size = a->used = a->peak = 0;
}

void pl_arena_fini(pl_arena *a) {
    drop(a);
    a->measuring = false;
}

void pl_arena_begin_measure(pl_arena *a) {
    drop(a);
    a->measuring = true;
}

static pl_status take(pl_arena *a, size_t bytes, pl_err *err) {
    drop(a);
    a->measuring = false;
    if (bytes == 0) return PL_OK;
    a->base = pl_memory_create(a->memory, place_of(a), bytes, err);
    if (!a->base) return pl_fail_at(err, PL_E_MEMORY, "%s", a->name);
    a->size = bytes;
    return PL_OK;
}

pl_status pl_arena_commit(pl_arena *a, pl_err *err) {
    PL_CHECK(a->measuring, "arena %s: commit without begin_measure", a->name);
    return take(a, a->peak, err);
}

pl_status pl_arena_reserve(pl_arena *a, size_t bytes, pl_err *err) {
    return take(a, bytes, err);
}

pl_status pl_arena_init_shared(pl_arena *a, const char *name, const pl_memory *m, void (*take_all)(void *arg),
                               void *arg, pl_err *err) {
    pl_arena_init(a, name);
    a->memory = m;
    a->place = PL_SHARED;
    pl_arena_begin_measure(a);
    take_all(arg);
    PL_TRY(pl_arena_commit(a, err));
    take_all(arg);
    return PL_OK;
}

// What a block of `bytes` takes, or SIZE_MAX when no arena could hold it. Never 0: addresses stay distinct.
static size_t block_size(const pl_arena *a, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return SIZE_MAX;
    size_t n = bytes ? (bytes + PL_ALIGN - 1) / PL_ALIGN * PL_ALIGN : PL_ALIGN;
    return a->guard ? n + 2 * PL_ALIGN : n;
}

void *pl_arena_alloc(pl_arena *a, size_t bytes) {
    size_t n = block_size(a, bytes), front = a->guard ? PL_ALIGN : 0, at = a->used;
    if (a->measuring) {
        // Sizes too large for any machine stay in the peak as SIZE_MAX: commit then fails instead of wrapping round.
        a->used = n == SIZE_MAX || at > SIZE_MAX / 2 ? SIZE_MAX : at + n;
        if (a->used > a->peak) a->peak = a->used;
        return (void *)((uintptr_t)4096 + (a->used == SIZE_MAX ? 0 : at + front));
    }
    PL_CHECK(n <= a->size - at, "arena %s is full: %zu bytes asked, %zu of %zu used", a->name, bytes, at, a->size);
    a->used = at + n;
    if (a->used > a->peak) a->peak = a->used;
    uint8_t *p = a->base + at;
    if (a->guard) {
        uint64_t head[2] = {bytes, bytes ^ SEAL};
        memcpy(p, head, sizeof head);
        memset(p + sizeof head, PATTERN, PL_ALIGN - sizeof head);
        memset(p + PL_ALIGN + bytes, PATTERN, n - PL_ALIGN - bytes);
    }
    return p + front;
}

bool pl_arena_has(const pl_arena *a, size_t bytes) {
    return a->measuring || block_size(a, bytes) <= a->size - a->used;
}

size_t pl_arena_mark(const pl_arena *a) {
    return a->used;
}

void pl_arena_release(pl_arena *a, size_t mark) {
    PL_CHECK(pl_arena_check(a), "arena %s: guard bytes are damaged", a->name); // free where guard is off
    PL_CHECK(mark <= a->used, "arena %s: mark %zu is past the %zu bytes in use", a->name, mark, a->used);
    a->used = mark;
}

void pl_arena_reset(pl_arena *a) {
    a->used = 0;
}

static bool all_pattern(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != PATTERN) return false;
    return true;
}

bool pl_arena_check(const pl_arena *a) {
    if (!a->guard || a->measuring) return true;
    for (size_t at = 0; at < a->used;) {
        const uint8_t *p = a->base + at;
        uint64_t       head[2];
        memcpy(head, p, sizeof head);
        if ((head[0] ^ SEAL) != head[1]) return false;
        size_t bytes = (size_t)head[0], n = block_size(a, bytes);
        if (n > a->used - at) return false;
        if (!all_pattern(p + sizeof head, PL_ALIGN - sizeof head)) return false;
        if (!all_pattern(p + PL_ALIGN + bytes, n - PL_ALIGN - bytes)) return false;
        at += n;
    }
    return true;
}
