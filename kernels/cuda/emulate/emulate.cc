// Fibers, barriers and exchanges of the emulated device (emulate.h).
#include "kernels/cuda/emulate/emulate.h"
#include <functional>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

enum { MAX_THREADS = 1024, WARP = 32, STACK = 64 << 10, SLOT = 64, ROOM = 227 << 10 };

struct barrier {
    unsigned here, turn; // fibers that wait; how often it has opened
};

struct copy { // asynchronous, not waited for
    void       *to;
    const void *from;
    size_t      bytes;
    bool        there;
    unsigned    group;
};

struct fiber {
    ucontext_t        place; // where it goes on
    void             *sp;    // the same, on x86-64
    bool              done, previous_done;
    unsigned          group; // committed so far
    std::vector<copy> copies;
};

struct machine {
    fiber    fibers[MAX_THREADS];
    fiber    home; // the launching thread
    uint8_t *stacks;
    int      n, current, alive;
    unsigned events; // barriers opened and threads finished: what tells waiting from hanging
    barrier  block, warp[MAX_THREADS / WARP];
    uint8_t  slot[2][MAX_THREADS][SLOT]; // exchanges alternate, so that one barrier each is enough
    unsigned turn_of[MAX_THREADS];
    void (*call)(const void *kernel, void **arg);
    const void *kernel;
    void      **arg;
    size_t      room_used;
    bool        early;
    alignas(16) uint8_t room[ROOM];
};

thread_local pl_emu_thread   pl_emu;
static thread_local machine *now;

static void broken(const char *what) {
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

// On to the next fiber that is not done, or home.
static void yield(void) {
    machine *m = now;
    int      me = m->current, next = me;
    if (m->alive == 0) {
        go(&m->fibers[me], &m->home);
        return;
    }
    do
        next = next + 1 == m->n ? 0 : next + 1;
    while (m->fibers[next].done);
    if (next == me) return;
    m->current = next;
    pl_emu.thread.x = (unsigned)next;
    go(&m->fibers[me], &m->fibers[next]);
}

static void entry(void) {
    machine *m = now;
    m->call(m->kernel, m->arg);
    if (m->early && !m->fibers[m->current].previous_done) broken("is launched early and waits for no launch before it");
    if (!m->fibers[m->current].copies.empty()) broken("ends with asynchronous copies that it has not waited for");
    m->fibers[m->current].done = true;
    m->alive--;
    m->events++;
    yield();
    broken("a finished thread went on");
}

static void wait_at(barrier *b, unsigned threads) {
    unsigned turn = b->turn;
    if (++b->here == threads) {
        b->here = 0;
        b->turn++;
        now->events++;
        return;
    }
    unsigned seen = now->events;
    for (int rounds = 0; b->turn == turn; rounds++) {
        if (seen != now->events) rounds = 0;
        seen = now->events;
        if (rounds > 2) broken("waits at a barrier or shuffle that others of its group do not reach");
        yield();
    }
}

void pl_emu_sync_block(void) {
    wait_at(&now->block, (unsigned)now->n);
}

void pl_emu_sync_warp(void) {
    wait_at(&now->warp[pl_emu.thread.x / WARP], WARP);
}

uint8_t *pl_emu_exchange(const void *own, size_t bytes) {
    machine *m = now;
    unsigned me = pl_emu.thread.x, which = m->turn_of[me]++ % 2;
    memcpy(m->slot[which][me], own, bytes);
    pl_emu_sync_warp();
    return m->slot[which][me / WARP * WARP];
}

void pl_emu_copy_async(void *to, const void *from, size_t bytes, bool there) {
    fiber *f = &now->fibers[now->current];
    if ((uintptr_t)to % bytes || (there && (uintptr_t)from % bytes)) broken("an asynchronous copy is not aligned");
    memset(to, 0xff, bytes);
    f->copies.push_back(copy{to, from, bytes, there, f->group});
}

void pl_copy_commit() {
    now->fibers[now->current].group++;
}

void pl_emu_copy_wait(int left) {
    fiber *f = &now->fibers[now->current];
    size_t n = 0;
    for (; n < f->copies.size() && f->group - f->copies[n].group > (unsigned)left; n++) {
        const copy &c = f->copies[n];
        if (c.there)
            memcpy(c.to, c.from, c.bytes);
        else
            memset(c.to, 0, c.bytes);
    }
    f->copies.erase(f->copies.begin(), f->copies.begin() + (ptrdiff_t)n);
}

void pl_previous_done() {
    now->fibers[now->current].previous_done = true;
}

void *pl_dynamic_shared() {
    return now->room;
}

static machine *machine_create(void) {
    machine *m = new (std::nothrow) machine();
    if (!m) broken("out of memory");
    m->stacks =
        (uint8_t *)mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->stacks == MAP_FAILED) broken("out of memory");
    return m;
}

// One block: all fibers from their start to their end.
static void run_block(machine *m) {
    m->alive = m->n;
    m->current = 0;
    m->block = barrier();
    memset(m->room, 0xff, m->room_used);
    for (int i = 0; i < m->n; i++) {
        m->fibers[i].done = m->fibers[i].previous_done = false;
        m->fibers[i].group = 0;
        m->turn_of[i] = 0;
        prepare(&m->fibers[i], m->stacks + (size_t)i * STACK, entry);
    }
    for (int w = 0; w < m->n / WARP; w++)
        m->warp[w] = barrier();
    pl_emu.thread.x = 0;
    go(&m->home, &m->fibers[0]);
}

// All threads of all blocks.
static void run(const pl_cuda_launch *l) {
    static thread_local struct keeper {
        machine *m = machine_create();
        ~keeper() {
            munmap(m->stacks, (size_t)MAX_THREADS * STACK);
            delete m;
        }
    } kept;
    machine *m = kept.m;
    now = m;
    m->n = (int)l->threads;
    m->call = l->call;
    m->kernel = l->kernel;
    m->arg = l->arg;
    m->room_used = l->room;
    m->early = l->early;
    if (l->room > ROOM) broken("more dynamic shared memory than a block has");
    dim3 grid(l->grid[0], l->grid[1], l->grid[2]);
    pl_emu.block_dim = dim3(l->threads);
    pl_emu.grid_dim = grid;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                pl_emu.block = dim3(x, y, z);
                run_block(m);
            }
}

// A product of two of bf16 is exact in fp32, so that a multiplication and an addition are what fmaf would give.
void pl_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    uint8_t *all = pl_emu_exchange(own, sizeof own);
    unsigned lane = pl_emu.thread.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t y[2][8], nonzero[2] = {}; // columns 2t, 2t + 1: pairs along k
    float    x[2][16], z[2][16];       // rows g, g + 8; the columns
    bool     finite = true;
    for (unsigned pair = 0; pair < 8; pair++) {
        unsigned holder = pair % 4, upper = pair / 4;
        for (unsigned i = 0; i < 2; i++) {
            uint32_t v;
            memcpy(&v, all + (g * 4 + holder) * SLOT + (i + 2 * upper) * 4, 4);
            memcpy(&y[i][pair], all + ((2 * t + i) * 4 + holder) * SLOT + (4 + upper) * 4, 4);
            nonzero[i] |= v & 0x7fff7fffu;
            finite &= (y[i][pair] & 0x7f80u) != 0x7f80u && (y[i][pair] & 0x7f800000u) != 0x7f800000u;
            x[i][2 * pair] = pl_bf16_to_f32((uint16_t)v);
            x[i][2 * pair + 1] = pl_bf16_to_f32((uint16_t)(v >> 16));
            z[i][2 * pair] = pl_bf16_to_f32((uint16_t)y[i][pair]);
            z[i][2 * pair + 1] = pl_bf16_to_f32((uint16_t)(y[i][pair] >> 16));
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        if (!nonzero[i] && finite) continue; // padding: nothing is added
        for (unsigned k = 0; k < 16; k++)
            d[2 * i] += x[i][k] * z[0][k], d[2 * i + 1] += x[i][k] * z[1][k];
    }
}

// ---- the queue ------------------------------------------------------------------------------------------------------

namespace {
struct queue {
    std::vector<std::function<void()>> work, aside; // aside: a branch's, not joined yet
};
} // namespace

extern "C" void *pl_emu_queue_create(void) {
    return new (std::nothrow) queue;
}

extern "C" void pl_emu_queue_destroy(void *q) {
    delete static_cast<queue *>(q);
}

static void pl_emu_keep(void *q, std::function<void()> work) {
    static_cast<queue *>(q)->work.push_back(std::move(work));
}

extern "C" void pl_emu_join(void *q) {
    queue *of = static_cast<queue *>(q);
    for (auto &w : of->aside)
        of->work.push_back(std::move(w));
    of->aside.clear();
}

namespace {
struct kept_launch {
    pl_cuda_launch                    l;
    std::vector<std::vector<uint8_t>> bytes;
};
} // namespace

extern "C" void pl_emu_submit(void *q, const pl_cuda_launch *l) {
    if (!q) return run(l);
    kept_launch kept = {*l, {}};
    for (int i = 0; i < l->n_args; i++) {
        const uint8_t *from = static_cast<const uint8_t *>(l->arg[i]);
        kept.bytes.emplace_back(from, from + l->size[i]);
    }
    queue *at = static_cast<queue *>(q);
    if (l->joins) pl_emu_join(at);
    (l->aside ? at->aside : at->work).push_back([kept]() mutable {
        std::vector<void *> arg;
        for (auto &b : kept.bytes)
            arg.push_back(b.data());
        kept.l.arg = arg.data();
        run(&kept.l);
    });
}

extern "C" void pl_emu_queue_run(void *q) {
    queue *of = static_cast<queue *>(q);
    pl_emu_join(of);
    for (const auto &w : of->work)
        w();
    of->work.clear();
}

extern "C" void pl_emu_copy(void *q, void *to, const void *from, size_t bytes, size_t pitch, size_t n) {
    auto work = [=] {
        for (size_t i = 0; i < n; i++)
            memcpy(static_cast<uint8_t *>(to) + i * pitch, static_cast<const uint8_t *>(from) + i * pitch, bytes);
    };
    if (!q) return work();
    if (!pl_emu_reachable(to) || !pl_emu_reachable(from)) pl_emu_unreachable("copy", 0);
    pl_emu_keep(q, work);
}

extern "C" void pl_emu_send(void *q, void *to, const void *from, size_t bytes) {
    const uint8_t       *at = static_cast<const uint8_t *>(from);
    std::vector<uint8_t> as_sent(at, at + bytes);
    pl_emu_keep(q, [=] {
        if (memcmp(from, as_sent.data(), bytes) != 0) {
            fprintf(stderr, "emulated device: an index array was written again before its ops were waited for\n");
            abort();
        }
        memcpy(to, from, bytes);
    });
}

extern "C" void pl_emu_zero(void *q, void *to, size_t bytes) {
    if (!q) {
        memset(to, 0, bytes);
        return;
    }
    if (!pl_emu_reachable(to)) pl_emu_unreachable("zero", 0);
    pl_emu_keep(q, [=] { memset(to, 0, bytes); });
}

void pl_emu_unreachable(const char *op, int argument) {
    fprintf(stderr, "emulated device: op %s: argument %d is a pointer to host memory\n", op, argument);
    abort();
}
