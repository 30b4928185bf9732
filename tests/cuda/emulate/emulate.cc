// Fibers, barriers and exchanges of the emulated device (emulate.h).
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/cuda/emulate/machine.h"
#include "tests/cuda/emulate/mma.h"
#include <mutex>
#include <new>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

enum {
    MAX_THREADS = 1024,
    WARP = 32,
    STACK = (64 << 10) + 448, // ends at multiples of 4 KiB would share one set of the first-level cache
    SLOT = 64,
    ROOM = 227 << 10
};

struct barrier {
    unsigned here; // fibers that wait
};

struct copy { // asynchronous, not waited for
    void       *to;
    const void *from;
    size_t      bytes;
    bool        there, made;
    unsigned    group;
};

struct fiber {
#if defined(__x86_64__)
    void *sp; // where it goes on
#else
    ucontext_t place; // the same
#endif
    barrier          *waits; // NULL: it may go on
    bool              done, previous_done;
    unsigned          group; // committed so far
    std::vector<copy> copies;
};

struct machine { // of the thread that runs a block
    fiber    fibers[MAX_THREADS];
    fiber    home; // that thread itself
    uint8_t *stacks;
    int      n, current, alive;
    barrier  block, warp[MAX_THREADS / WARP];
    alignas(64) uint8_t slot[2][MAX_THREADS][SLOT]; // exchanges alternate, so that one barrier each is enough
    unsigned              turn_of[MAX_THREADS];
    const pl_cuda_launch *l;
    alignas(128) uint8_t room[ROOM];
};

const pl_emu_watcher                *pl_emu_watch;
constinit thread_local pl_emu_thread pl_emu;
static thread_local machine         *now;

[[noreturn]] static void broken(const char *what) {
    fprintf(stderr, "emulated device: block %u,%u,%u thread %u: %s\n", pl_emu.block.x, pl_emu.block.y, pl_emu.block.z,
            pl_emu.thread.x, what);
    abort();
}

#if defined(__x86_64__)
// Callee-saved registers on the old stack, then on to the new one: swapcontext without its system calls.
extern "C" void pl_emu_switch(void **from, void *to);
asm(".text\n.globl pl_emu_switch\n.type pl_emu_switch,@function\npl_emu_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size pl_emu_switch,.-pl_emu_switch\n");
static void go(fiber *from, fiber *to) {
    pl_emu_switch(&from->sp, to->sp);
}
static void prepare(fiber *f, uint8_t *stack, void (*entry)(void)) {
    void **top = (void **)(stack + STACK) - 2; // entry starts as if called: the stack is 8 past a multiple of 16
    *top = (void *)entry;
    f->sp = top - 6;
    memset(f->sp, 0, 6 * sizeof(void *));
}
#else
static void go(fiber *from, fiber *to) {
    swapcontext(&from->place, &to->place);
}
static void prepare(fiber *f, uint8_t *stack, void (*entry)(void)) {
    getcontext(&f->place);
    f->place.uc_stack.ss_sp = stack;
    f->place.uc_stack.ss_size = STACK;
    f->place.uc_link = NULL;
    makecontext(&f->place, entry, 0);
}
#endif

// On to a fiber that may: the next one, or one that is drawn; home when all are done.
static void yield(void) {
    machine *m = now;
    int      me = m->current, next = pl_emu_shuffles() ? (int)pl_emu_draw((unsigned)m->n) : me, tried = 0;
    if (m->alive == 0) {
        go(&m->fibers[me], &m->home);
        return;
    }
    do {
        if (tried++ == m->n) broken("waits at a barrier or shuffle that others of its group do not reach");
        next = next + 1 == m->n ? 0 : next + 1;
    } while (m->fibers[next].done || m->fibers[next].waits);
    if (next == me) return;
    m->current = next;
    pl_emu.thread.x = (unsigned)next;
    go(&m->fibers[me], &m->fibers[next]);
}

static void entry(void) {
    machine *m = now;
    m->l->call(m->l->kernel, m->l->arg);
    if (m->l->early && !m->fibers[m->current].previous_done)
        broken("is launched early and waits for no launch before it");
    if (!m->fibers[m->current].copies.empty()) broken("ends with asynchronous copies that it has not waited for");
    m->fibers[m->current].done = true;
    m->alive--;
    yield();
    broken("a finished thread went on");
}

// True for the last to come, before the others go on.
static bool arrive(barrier *b, int threads) {
    if (++b->here == (unsigned)threads) {
        b->here = 0;
        return true;
    }
    now->fibers[now->current].waits = b;
    yield();
    return false;
}

static void open(barrier *b, int first, int threads) {
    for (int i = first; i < first + threads; i++)
        if (now->fibers[i].waits == b) now->fibers[i].waits = NULL;
    if (pl_emu_shuffles()) yield(); // who came last need not go on first
}

void pl_emu_sync_block(void) {
    if (!arrive(&now->block, now->n)) return;
    if (pl_emu_watch) pl_emu_watch->barrier(PL_EMU_BLOCK);
    pl_emu_may_switch();
    open(&now->block, 0, now->n);
}

static void meet_warp(bool told, void (*last)(uint8_t *slots), uint8_t *slots) {
    int warp = (int)pl_emu.thread.x / WARP;
    if (!arrive(&now->warp[warp], WARP)) return;
    if (last) last(slots);
    if (told && pl_emu_watch) pl_emu_watch->barrier(PL_EMU_WARP);
    open(&now->warp[warp], warp * WARP, WARP);
}

void pl_emu_sync_warp(void) {
    meet_warp(true, NULL, NULL);
}

// The warp's table for the next exchange; this thread's own place in it is at `own`.
static uint8_t *take_slots(uint8_t **own) {
    machine *m = now;
    unsigned me = pl_emu.thread.x, which = m->turn_of[me]++ % 2;
    *own = m->slot[which][me];
    return m->slot[which][me / WARP * WARP];
}

// Orders no memory but its own: to the watcher it is nothing.
uint8_t *pl_emu_exchange(const void *from, size_t bytes) {
    uint8_t *own, *slots = take_slots(&own);
    memcpy(own, from, bytes);
    meet_warp(false, NULL, slots);
    return slots;
}

static void multiply(uint8_t *slots) {
    pl_emu_multiply((pl_emu_fragments *)(void *)slots, pl_emu_behave.sm);
}

void pl_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    uint8_t          *place, *slots = take_slots(&place);
    pl_emu_fragments *own = (pl_emu_fragments *)(void *)place;
    static_assert(sizeof *own == SLOT);
    memcpy(own->factor, a, 4 * sizeof *a);
    memcpy(own->factor + 4, b, 2 * sizeof *b);
    memcpy(own->d, d, sizeof own->d);
    meet_warp(false, multiply, slots);
    memcpy(d, own->d, sizeof own->d);
}

void pl_emu_fence(void) {
    if (pl_emu_watch) pl_emu_watch->fence();
    pl_emu_may_switch();
}

void pl_emu_atomic(void *p, size_t bytes) {
    pl_emu_may_switch();
    if (pl_emu_watch) pl_emu_watch->atomic(p, bytes);
}

// ---- what a proof leaves out

static uint64_t times_dropped;

static void say_dropped(void) {
    fprintf(stderr, "emulated device: left out %s %llu times\n", pl_emu_behave.drop, (unsigned long long)times_dropped);
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// The places that were passed, each once.
static struct passed {
    std::mutex                             lock;
    std::set<std::pair<const char *, int>> at; // names as the compiler has them
    void                                   add(const char *file, int line) {
                                          std::lock_guard<std::mutex> held(lock);
                                          at.emplace(file, line);
    }
    ~passed() {
        FILE *f = at.empty() ? NULL : fopen(pl_emu_behave.places, "w");
        for (const auto &p : at)
            if (f) fprintf(f, "%s:%d\n", name_of(p.first), p.second);
        if (f && fclose(f) != 0) perror(pl_emu_behave.places);
    }
} all_passed;

bool pl_emu_dropped(const char *file, int line) {
    static const struct at {
        const char *name = name_of(pl_emu_behave.drop);
        size_t      length = strcspn(name, ":");
        int         line = name[length] ? atoi(name + length + 1) : 0;
        at() {
            if (line) atexit(say_dropped);
        }
    } drop;
    if (*pl_emu_behave.places) all_passed.add(file, line);
    if (line != drop.line) return false;
    const char *name = name_of(file);
    if (strncmp(name, drop.name, drop.length) != 0 || name[drop.length]) return false;
    __atomic_fetch_add(&times_dropped, 1, __ATOMIC_RELAXED);
    return true;
}

// ---- asynchronous copies

static void make(const copy &c) {
    if (c.there)
        memcpy(c.to, c.from, c.bytes);
    else
        memset(c.to, 0, c.bytes);
}

void pl_emu_copy_async(void *to, const void *from, size_t bytes, bool there) {
    fiber *f = &now->fibers[now->current];
    if ((uintptr_t)to % bytes || (there && (uintptr_t)from % bytes)) broken("an asynchronous copy is not aligned");
    if (pl_emu_watch) pl_emu_watch->copy_begins(to, from, bytes, there);
    copy c = {to, from, bytes, there, pl_emu_shuffles() && pl_emu_draw(2) == 0, f->group};
    if (c.made)
        make(c);
    else
        memset(to, 0xff, bytes);
    f->copies.push_back(c);
}

void pl_copy_commit() {
    now->fibers[now->current].group++;
}

void pl_emu_copy_wait(int left) {
    fiber *f = &now->fibers[now->current];
    size_t n = 0;
    for (; n < f->copies.size() && f->group - f->copies[n].group > (unsigned)left; n++) {
        if (!f->copies[n].made) make(f->copies[n]);
        if (pl_emu_watch) pl_emu_watch->copy_ends(f->copies[n].to, f->copies[n].bytes);
    }
    f->copies.erase(f->copies.begin(), f->copies.begin() + (ptrdiff_t)n);
}

void pl_emu_previous_done(void) {
    now->fibers[now->current].previous_done = true;
    if (pl_emu_watch) pl_emu_watch->previous_done();
}

void *pl_dynamic_shared() {
    return now->room;
}

// ---- blocks

static machine *machine_create(void) {
    machine *m = new (std::nothrow) machine();
    if (!m) broken("out of memory");
    m->stacks =
        (uint8_t *)mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->stacks == MAP_FAILED) broken("out of memory");
    return m;
}

static machine *own_machine(void) {
    static thread_local struct keeper {
        machine *m = machine_create();
        ~keeper() {
            munmap(m->stacks, (size_t)MAX_THREADS * STACK);
            delete m;
        }
    } pl_emu_kept;
    return pl_emu_kept.m;
}

// One block, on the calling thread: all fibers from their start to their end.
static void run_block(void *arg, unsigned number) {
    const pl_cuda_launch *l = (const pl_cuda_launch *)arg;
    machine              *m = now = own_machine();
    m->l = l;
    m->n = m->alive = (int)l->threads;
    m->block = barrier();
    memset(m->room, 0xff, l->room);
    if (pl_emu_shuffles()) pl_emu_spoil_static(l->kernel);
    pl_emu.block_dim = dim3(l->threads);
    pl_emu.grid_dim = dim3(l->grid[0], l->grid[1], l->grid[2]);
    pl_emu.block = dim3(number % l->grid[0], number / l->grid[0] % l->grid[1], number / l->grid[0] / l->grid[1]);
    for (int i = 0; i < m->n; i++) {
        m->fibers[i].done = m->fibers[i].previous_done = false;
        m->fibers[i].waits = NULL;
        m->fibers[i].group = 0;
        m->turn_of[i] = 0;
        prepare(&m->fibers[i], m->stacks + (size_t)i * STACK, entry);
    }
    for (int w = 0; w < m->n / WARP; w++)
        m->warp[w] = barrier();
    if (pl_emu_watch) pl_emu_watch->block(number, m->n, m->room, l->room, m->stacks, (size_t)MAX_THREADS * STACK);
    m->current = pl_emu_shuffles() ? (int)pl_emu_draw((unsigned)m->n) : 0;
    pl_emu.thread.x = (unsigned)m->current;
    go(&m->home, &m->fibers[m->current]);
}

void pl_emu_run_block(const pl_cuda_launch *l, unsigned number) {
    if (l->room > ROOM) broken("more dynamic shared memory than a block has");
    run_block((void *)(uintptr_t)l, number);
}

void pl_emu_run(uint64_t number, const pl_cuda_launch *l) {
    if (l->room > ROOM) broken("more dynamic shared memory than a block has");
    if (pl_emu_watch) pl_emu_watch->launch(number, l);
    pl_emu_blocks(l->grid[0] * l->grid[1] * l->grid[2], run_block, (void *)(uintptr_t)l);
    if (pl_emu_watch) pl_emu_watch->launched();
}
