#define _GNU_SOURCE 1 // dl_iterate_phdr, dladdr
#include "fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Thread_local int fault_inside;

static fault_plan    plan;
static fault_report *report; // NULL: not armed
static atomic_bool   armed;
static int64_t       files_before;

static atomic_uint_fast64_t seen[2][FAULT_KIND_COUNT], fired;
static atomic_int_fast64_t  maps;

const char *fault_kind_name(fault_kind k) {
    static const char *const names[] = {
#define X(id, name, cause) name,
        FAULT_KINDS(X)
#undef X
    };
    return names[k];
}

static int cause_of(fault_kind k) {
    static const int causes[] = {
#define X(id, name, cause) cause,
        FAULT_KINDS(X)
#undef X
    };
    return causes[k];
}

// Prints where the caller stands; backtrace allocates, which nobody must see.
static void say_where(const char *what) {
    void *frame[32];
    fault_inside++;
    bool was = atomic_exchange(&armed, false);
    int  n = backtrace(frame, 32);
    dprintf(STDERR_FILENO, "-- %s\n", what);
    backtrace_symbols_fd(frame, n, STDERR_FILENO);
    atomic_store(&armed, was);
    fault_inside--;
}

bool fault_due(fault_side side, fault_kind k) {
    if (!atomic_load_explicit(&armed, memory_order_acquire)) return false;
    uint64_t n = atomic_fetch_add_explicit(&seen[side][k], 1, memory_order_relaxed) + 1;
    if (side != plan.side || k != plan.kind || plan.n == 0) return false;
    if (n != plan.n && !(plan.onward && n > plan.n)) return false;
    if (atomic_fetch_add(&fired, 1) == 0 && plan.trace) say_where("the failure");
    errno = cause_of(k);
    return true;
}

// ---- what is held ----

typedef struct block {
    const void *p;
    fault_side  side;
    const void *site;
} block;

enum { TABLE = 1 << 15 }; // a power of two; open addressing, closed up again when a block goes

static block       table[TABLE];
static void       *frames[TABLE][FAULT_FRAMES]; // with plan.trace
static size_t      held;
static atomic_flag table_lock = ATOMIC_FLAG_INIT;

static void lock(void) {
    while (atomic_flag_test_and_set_explicit(&table_lock, memory_order_acquire))
        ;
}

static void unlock(void) {
    atomic_flag_clear_explicit(&table_lock, memory_order_release);
}

// Libraries whose objects are ours to free: only their blocks are followed.
typedef struct object {
    const char *part; // of its name
    uintptr_t   lo, hi;
} object;

static object cjson = {.part = "libcjson"}, yaml = {.part = "libyaml"};

static int find_object(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    object *o = arg;
    if (!strstr(info->dlpi_name, o->part)) return 0;
    o->lo = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (at < o->lo) o->lo = at;
        if (at + info->dlpi_phdr[i].p_memsz > o->hi) o->hi = at + info->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

static bool inside(const object *o, const void *site) {
    return (uintptr_t)site >= o->lo && (uintptr_t)site < o->hi;
}

static size_t slot_of(const void *p) {
    return (size_t)(((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15u >> 40) & (TABLE - 1);
}

static size_t next_slot(size_t i) {
    return (i + 1) & (TABLE - 1);
}

void fault_took(fault_side side, const void *p, const void *site) {
    if (!p || !atomic_load_explicit(&armed, memory_order_acquire)) return;
    if (side == FAULT_LIBS && !inside(&cjson, site) && !inside(&yaml, site)) return;
    void *frame[FAULT_FRAMES] = {0};
    if (plan.trace && side == FAULT_OWN) {
        fault_inside++;
        backtrace(frame, FAULT_FRAMES);
        fault_inside--;
    }
    lock();
    size_t i = slot_of(p);
    while (table[i].p && table[i].p != p)
        i = next_slot(i);
    if (!table[i].p && ++held == TABLE / 2) abort(); // a leak, or a table that is too small
    table[i] = (block){.p = p, .side = side, .site = site};
    if (plan.trace) memcpy(frames[i], frame, sizeof frame);
    unlock();
}

void fault_gave(const void *p) {
    if (!p || !atomic_load_explicit(&armed, memory_order_acquire)) return;
    lock();
    size_t hole = slot_of(p);
    while (table[hole].p && table[hole].p != p)
        hole = next_slot(hole);
    if (table[hole].p) {
        held--;
        table[hole].p = NULL;
        // What had to pass over the hole moves into it.
        for (size_t i = next_slot(hole); table[i].p; i = next_slot(i)) {
            size_t home = slot_of(table[i].p);
            if (((i - home) & (TABLE - 1)) < ((i - hole) & (TABLE - 1))) continue;
            table[hole] = table[i];
            if (plan.trace) memcpy(frames[hole], frames[i], sizeof frames[i]);
            table[i].p = NULL;
            hole = i;
        }
    }
    unlock();
}

void fault_mapped(int64_t change) {
    if (atomic_load_explicit(&armed, memory_order_acquire)) atomic_fetch_add(&maps, change);
}

static int64_t open_files(void) {
    int64_t n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int64_t held_by(const object *o) {
    int64_t n = 0;
    for (size_t i = 0; i < TABLE; i++)
        n += table[i].p && table[i].side == FAULT_LIBS && inside(o, table[i].site);
    return n;
}

// ---- a run ----

void fault_arm(fault_report *r, const fault_plan *p) {
    void *frame[2];
    backtrace(frame, 2); // its first call loads a library
    dl_iterate_phdr(find_object, &cjson);
    dl_iterate_phdr(find_object, &yaml);
    plan = *p;
    report = r;
    memset(seen, 0, sizeof seen);
    fired = 0;
    maps = 0;
    files_before = open_files();
    atomic_store_explicit(&armed, true, memory_order_release);
}

void fault_disarm(void) {
    atomic_store_explicit(&armed, false, memory_order_release);
    fault_report *r = report;
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < FAULT_KIND_COUNT; k++)
            r->seen[s][k] = seen[s][k];
    r->fired = fired;
    r->maps = maps;
    r->files = open_files() - files_before;
    r->blocks = 0;
    for (size_t i = 0; i < TABLE; i++) {
        if (!table[i].p || table[i].side != FAULT_OWN) continue;
        if (plan.trace && r->blocks < FAULT_LEAKS) {
            dprintf(STDERR_FILENO, "-- still held\n");
            backtrace_symbols_fd(frames[i], FAULT_FRAMES, STDERR_FILENO);
        }
        r->blocks++;
    }
    r->cjson = held_by(&cjson);
    r->yaml = held_by(&yaml);
}

// ---- ends that nobody asked for ----

static fault_report *ending;

// The first frame that belongs neither to this layer nor to the language's own libraries.
static void put_down(void) {
    static const char *const passed[] = {"libc.so", "libstdc++", "libgcc_s", "ld-linux",
                                         "libasan", "libtsan",   "libubsan"};
    void                    *frame[64];
    atomic_store(&armed, false);
    int n = backtrace(frame, 64);
    for (int i = 2; i < n; i++) {
        Dl_info     info;
        const char *name = dladdr(frame[i], &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
        bool        pass = false;
        name = name ? name + 1 : "?";
        for (size_t k = 0; k < sizeof passed / sizeof *passed; k++)
            pass |= strncmp(name, passed[k], strlen(passed[k])) == 0;
        if (pass) continue;
        ending->ours = strncmp(name, "test_fault", 10) == 0;
        snprintf(ending->culprit, sizeof ending->culprit, "%s", name);
        return;
    }
}

static void on_crash(int sig) {
    put_down();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void on_exit_called(void) {
    if (!ending->ended) put_down();
}

void fault_catch(fault_report *r) {
    static const int crashes[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
    static char      stack[1 << 16];
    struct sigaction act = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK};
    ending = r;
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigaction(crashes[i], &act, NULL);
    atexit(on_exit_called);
}
