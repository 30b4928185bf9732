// A race detector for kernels on the emulated device. The kernels are compiled with -fsanitize=thread, whose calls
// (__tsan_read4...) come here instead of to the sanitizer's own runtime; barriers, fences, atomics, asynchronous copies
// and launches are reported by the emulation (tests/cuda/emulate/watch.h). Two accesses of one place, one of them a
// write, are a race unless CUDA's rules order them:
//   in a block        by __syncthreads; within a warp by __syncwarp; shuffles and tensor cores order nothing
//   between blocks    by an access, a fence, an atomic on one side and, on the other, an atomic on the same place that
//                     comes later, a fence, an access; fence and atomic are one thread's (they acquire and release:
//                     PTX ISA, memory consistency model), accesses may be others', with barriers between
//   between launches  by the stream, forks and joins; of one that is launched early not before pl_previous_done
//   cp.async          writes from its issue to its wait: who waited sees it then, others after a barrier
// Happens-before by the order that was run, so that one run finds what any schedule would that takes atomics in the
// same order.
//
// Time is counted in ticks of a block: each barrier, fence, atomic and wait is one. A cell of 4 bytes keeps the last
// accesses that are not ordered before one another, at most CELLS; the oldest goes.
#include "tests/cuda/emulate/emulate.h"
#include "tests/cuda/emulate/watch.h"
#include <algorithm>
#include <dlfcn.h>
#include <link.h>
#include <map>
#include <memory>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <unordered_map>
#include <vector>

#define CALLED __attribute__((visibility("default"))) __attribute__((noinline))

namespace {
enum { CELLS = 4, PAGE = 4096, WARP = 32, MOST = 1024 };
enum : uint8_t { WRITE = 1, ATOMIC = 2, PENDING = 4, BEFORE = 8 }; // BEFORE: pl_previous_done

struct access {
    uint32_t launch; // number, 0: none
    uint32_t block, tick;
    uint16_t thread;
    uint8_t  mask, how;
};
struct cell {
    access of[CELLS];
};
struct page {
    cell cells[PAGE / 4];
};

// What a block has let go of by fences: everything before tick `all`, and of thread x before own[x].
struct released {
    uint32_t              all = 0;
    std::vector<uint32_t> own;
    void                  take(const released &o) {
                         if (o.all > all) all = o.all;
        if (own.size() < o.own.size()) own.resize(o.own.size());
        for (size_t i = 0; i < o.own.size(); i++)
            if (o.own[i] > own[i]) own[i] = o.own[i];
    }
    bool has(const access &a) const { return a.tick < all || (a.thread < own.size() && a.tick < own[a.thread]); }
};
typedef std::map<uint32_t, released> knowledge; // by block

// What an atomic read. A fence of its thread that comes after it makes the thread know; others of the block know after a
// barrier.
struct acquired {
    std::shared_ptr<knowledge> what;
    uint16_t                   thread;
    uint32_t                   fence; // 0: none since then
};

struct block {
    uint32_t              number, tick, epoch, warp_epoch[MOST / WARP];     // ticks at which the last barriers opened
    uint32_t              fence[MOST], fence_epoch[MOST], fence_warp[MOST]; // a thread's last fence; what it saw
    bool                  waited[MOST];                                     // pl_previous_done
    std::vector<acquired> known;
    const uint8_t        *room, *stacks, *statics;
    size_t                room_bytes, stack_bytes, static_bytes;
};

// A launch's place in its queue's two ways, and up to where it is behind them: after pl_previous_done and before.
struct place {
    const void    *queue;
    int            way;
    uint64_t       at, behind[2], early_behind[2];
    pl_cuda_launch l;
};
struct ways {
    uint64_t reached[2], knows[2][2]; // knows[w]: up to where way w is behind each
    uint64_t first[2];                // behind which the last one started
    bool     kernel[2];               // the last thing on it is one
};

std::recursive_mutex                                 running;
std::unordered_map<const void *, ways>               queues;
std::vector<place>                                   places(1);
std::unordered_map<uintptr_t, std::unique_ptr<page>> pages;
std::unordered_map<uintptr_t, knowledge>             atomics;
uint32_t                                             launch_now;
int                                                  races;
thread_local block                                  *pl_emu_block;
thread_local const void                             *pl_emu_from; // who called
thread_local struct {
    uintptr_t at;
    page     *of;
} pl_emu_last[64]; // pages that were touched last, which stay where they are

void tell(const access &before, uint8_t how, const void *p, const char *kind) {
    const block             *b = pl_emu_block;
    static const char *const what[] = {"read", "write", "atomic", "atomic"};
    fflush(stdout);
    fprintf(stderr, "race: %s memory %p: %s by block %u thread %u, and %s%s by block %u thread %u", kind, p,
            what[how & 3], b->number, pl_emu.thread.x, what[before.how & 3],
            before.how & PENDING ? " of an asynchronous copy that is not waited for" : "", before.block, before.thread);
    Dl_info of;
    if (pl_emu_from && dladdr(pl_emu_from, &of))
        fprintf(stderr, " (addr2line -pife %s %#zx)", of.dli_fname,
                (size_t)((const char *)pl_emu_from - (const char *)of.dli_fbase) - 1);
    if (before.launch != launch_now) fprintf(stderr, " of launch %u (now %u)", before.launch, launch_now);
    fprintf(stderr, "\n");
    if (++races >= 4 || !getenv("PACELINE_RACES_GO_ON")) abort();
}

bool within(const void *p, const uint8_t *from, size_t bytes) {
    return (uintptr_t)p - (uintptr_t)from < bytes;
}

// Whether `a`, of this block, is ordered before now for thread t.
bool before_in_block(const block *b, const access &a, unsigned t) {
    if (a.how & PENDING) return false;
    return a.thread == t || a.tick < b->epoch || (a.thread / WARP == t / WARP && a.tick < b->warp_epoch[t / WARP]);
}

// Whether thread t knows what the atomic of k read.
bool heard(const block *b, const acquired &k, unsigned t) {
    return k.fence &&
           (k.thread == t || k.fence < b->epoch || (k.thread / WARP == t / WARP && k.fence < b->warp_epoch[t / WARP]));
}

bool before_in_launch(const block *b, const access &a, unsigned t) {
    if (a.how & PENDING) return false;
    for (const acquired &k : b->known) {
        auto r = k.what->find(a.block);
        if (r != k.what->end() && r->second.has(a) && heard(b, k, t)) return true;
    }
    return false;
}

bool before_launch(const block *b, const access &a, unsigned t) {
    const place &then = places[a.launch], &here = places[launch_now];
    if (then.queue != here.queue) return true; // what orders queues is the host's
    // A branch is run when it is joined, later than what came after it in the queue.
    if (a.launch > launch_now) return here.at <= (a.how & BEFORE ? then.early_behind : then.behind)[here.way];
    return then.at <= (b->waited[t] ? here.behind : here.early_behind)[then.way];
}

cell *cell_of(uintptr_t p) {
    const uintptr_t at = p / PAGE;
    auto           &last = pl_emu_last[at % (sizeof pl_emu_last / sizeof *pl_emu_last)];
    if (last.at != at || !last.of) {
        auto &of = pages[at];
        if (!of) of.reset((page *)calloc(1, sizeof(page)));
        last = {at, of.get()};
    }
    return &last.of->cells[p % PAGE / 4];
}

bool older(const access &a, const access &b) {
    return a.launch < b.launch || (a.launch == b.launch && a.tick < b.tick);
}

void touch_cell(block *b, uintptr_t p, uint8_t mask, uint8_t how, bool shared) {
    const unsigned t = pl_emu.thread.x;
    cell          *c = cell_of(p);
    access now = {launch_now, b->number, b->tick, (uint16_t)t, mask, (uint8_t)(how | (b->waited[t] ? 0 : BEFORE))};
    int    free = -1, oldest = 0;
    // Whatever came between the two, in the same tick, was held against the first.
    for (const access &a : c->of)
        if (memcmp(&a, &now, sizeof now) == 0) return;
    for (int i = 0; i < CELLS; i++) {
        access    &a = c->of[i];
        const bool same = a.launch == launch_now && a.block == b->number;
        if (a.launch == 0 || (shared && !same)) {
            a.launch = 0;
            if (free < 0) free = i;
            continue;
        }
        if (!((a.how | how) & WRITE)) { // never a race, so that their order does not matter
            if (same && a.thread == t && (a.mask & ~mask) == 0) {
                a.launch = 0;
                if (free < 0) free = i;
            } else if (older(a, c->of[oldest])) {
                oldest = i;
            }
            continue;
        }
        // Atomics on one place come one after another, so that what is ordered behind the last is behind all.
        const bool ordered = (a.how & how & ATOMIC)   ? true
                             : a.launch != launch_now ? before_launch(b, a, t)
                             : same                   ? before_in_block(b, a, t)
                                                      : before_in_launch(b, a, t);
        if ((a.mask & mask) && !ordered && ((a.how | how) & WRITE))
            tell(a, how, (const void *)p, shared ? "shared" : "global");
        // What this one stands for from now on: a write for all that it comes after, a read for the thread's own.
        if (ordered && (a.mask & ~mask) == 0 && ((how & WRITE) || (a.thread == t && same && !(a.how & WRITE)))) {
            a.launch = 0;
            if (free < 0) free = i;
        } else if (older(a, c->of[oldest])) {
            oldest = i;
        }
    }
    c->of[free >= 0 ? free : oldest] = now;
}

void touch(const void *p, size_t bytes, uint8_t how) {
    block *b = pl_emu_block;
    if (!b || within(p, b->stacks, b->stack_bytes)) return;
    const bool shared = within(p, b->room, b->room_bytes) || within(p, b->statics, b->static_bytes);
    uintptr_t  from = (uintptr_t)p, end = from + bytes;
    for (uintptr_t at = from & ~(uintptr_t)3; at < end; at += 4) {
        unsigned lo = at < from ? (unsigned)(from - at) : 0, hi = end - at < 4 ? (unsigned)(end - at) : 4;
        touch_cell(b, at, (uint8_t)((1u << hi) - (1u << lo)), how, shared);
    }
}

// ---- what the emulation tells

int find_statics(struct dl_phdr_info *info, size_t, void *arg) {
    block *b = (block *)arg;
    for (int i = 0; i < info->dlpi_phnum && !b->statics; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data &&
            within(&pl_emu_block, (const uint8_t *)info->dlpi_tls_data, info->dlpi_phdr[i].p_memsz)) {
            b->statics = (const uint8_t *)info->dlpi_tls_data;
            b->static_bytes = info->dlpi_phdr[i].p_memsz;
        }
    return 0;
}

uint64_t queued(const void *q, const pl_cuda_launch *l) {
    std::lock_guard<std::recursive_mutex> held(running);
    ways                                 &w = queues[q];
    int                                   way = l->aside;
    place                                 p = {};
    if (l->parts) w.knows[1][0] = w.reached[0], w.kernel[1] = false;
    if (l->joins || l->meets) w.knows[0][1] = w.reached[1], w.kernel[0] = false;
    p.queue = q;
    p.way = way;
    p.l = *l;
    p.behind[way] = w.reached[way];
    p.behind[!way] = w.knows[way][!way];
    // An early launch starts behind what the one before it started behind, and no later than that.
    if (!l->early || !w.kernel[way]) w.first[way] = w.reached[way];
    p.early_behind[way] = w.first[way];
    p.early_behind[!way] = p.behind[!way];
    p.at = ++w.reached[way];
    w.kernel[way] = true;
    if (l->ends) w.knows[0][1] = w.reached[1], w.kernel[0] = false;
    places.push_back(p);
    return places.size() - 1;
}

void copied(const void *q) {
    std::lock_guard<std::recursive_mutex> held(running);
    queues[q].kernel[0] = false;
}

void met(const void *q) {
    std::lock_guard<std::recursive_mutex> held(running);
    ways                                 &w = queues[q];
    w.knows[0][1] = w.reached[1];
    w.kernel[0] = false;
}

void waited(const void *q) {
    std::lock_guard<std::recursive_mutex> held(running);
    queues[q].kernel[0] = queues[q].kernel[1] = false;
}

void launch(uint64_t number, const pl_cuda_launch *) {
    running.lock();
    launch_now = (uint32_t)number;
    atomics.clear();
}

void launched() {
    pl_emu_block = NULL; // what comes now is the host's
    running.unlock();
}

void begin(uint32_t number, int, const void *room, size_t room_bytes, const void *stacks, size_t stack_bytes) {
    static thread_local std::unique_ptr<block> pl_emu_own;
    if (!pl_emu_own) {
        pl_emu_own.reset(new block());
        dl_iterate_phdr(find_statics, pl_emu_own.get());
    }
    block *b = pl_emu_own.get();
    b->number = number;
    b->tick = 1;
    b->epoch = 0;
    memset(b->warp_epoch, 0, sizeof b->warp_epoch);
    memset(b->fence, 0, sizeof b->fence);
    memset(b->fence_epoch, 0, sizeof b->fence_epoch);
    memset(b->fence_warp, 0, sizeof b->fence_warp);
    memset(b->waited, 0, sizeof b->waited);
    b->known.clear();
    b->room = (const uint8_t *)room, b->room_bytes = room_bytes;
    b->stacks = (const uint8_t *)stacks, b->stack_bytes = stack_bytes;
    pl_emu_block = b;
}

void barrier(pl_emu_way way) {
    block *b = pl_emu_block;
    b->tick++;
    if (way == PL_EMU_BLOCK)
        b->epoch = b->tick;
    else
        b->warp_epoch[pl_emu.thread.x / WARP] = b->tick;
    b->tick++;
}

void fence() {
    block         *b = pl_emu_block;
    const unsigned t = pl_emu.thread.x;
    b->tick++;
    b->fence[t] = b->tick;
    b->fence_epoch[t] = b->epoch;
    b->fence_warp[t] = b->warp_epoch[t / WARP];
    for (acquired &k : b->known)
        if (k.thread == t && !k.fence) k.fence = b->tick;
    b->tick++;
}

// What thread t's last fence, which comes before this atomic of its, has let go of.
void release(const block *b, unsigned t, knowledge *to) {
    released mine;
    mine.own.resize(t / WARP * WARP + WARP);
    for (unsigned y = t / WARP * WARP; y < mine.own.size(); y++)
        mine.own[y] = b->fence_warp[t];
    mine.own[t] = b->fence[t];
    mine.all = b->fence_epoch[t];
    for (const acquired &k : b->known) // what it knew itself goes along
        if (heard(b, k, t) && k.fence <= b->fence[t])
            for (const auto &[number, r] : *k.what)
                (*to)[number].take(r);
    (*to)[b->number].take(mine);
}

void atomic(void *p, size_t bytes) {
    block *b = pl_emu_block;
    if (!b) return;
    const unsigned t = pl_emu.thread.x;
    const bool     shared = within(p, b->room, b->room_bytes) || within(p, b->statics, b->static_bytes);
    b->tick++;
    touch(p, bytes, WRITE | ATOMIC);
    if (!shared) {
        knowledge &there = atomics[(uintptr_t)p];
        if (!there.empty()) b->known.push_back({std::make_shared<knowledge>(there), (uint16_t)t, 0});
        if (b->fence[t]) release(b, t, &there);
    }
    b->tick++;
}

void previous_done() {
    pl_emu_block->waited[pl_emu.thread.x] = true;
}

void copy_begins(void *to, const void *from, size_t bytes, bool there) {
    if (there) touch(from, bytes, 0);
    touch(to, bytes, WRITE | PENDING);
}

void copy_ends(void *to, size_t bytes) {
    block         *b = pl_emu_block;
    const unsigned t = pl_emu.thread.x;
    for (uintptr_t p = (uintptr_t)to; p < (uintptr_t)to + bytes; p += 4)
        for (access &a : cell_of(p)->of)
            if (a.launch == launch_now && a.block == b->number && a.thread == t && (a.how & PENDING))
                a.how &= (uint8_t)~PENDING, a.tick = b->tick;
}

const pl_emu_watcher watcher = {queued,  copied, met,    waited,        launch,      launched, begin,
                                barrier, fence,  atomic, previous_done, copy_begins, copy_ends};

struct here {
    here() { pl_emu_watch = &watcher; }
} set;
} // namespace

// ---- what the compiler calls

#define READ(n)                                                                                                        \
    extern "C" CALLED void __tsan_read##n(void *p) {                                                                   \
        pl_emu_from = __builtin_return_address(0);                                                                     \
        touch(p, n, 0);                                                                                                \
    }                                                                                                                  \
    extern "C" CALLED void __tsan_unaligned_read##n(void *p) {                                                         \
        pl_emu_from = __builtin_return_address(0);                                                                     \
        touch(p, n, 0);                                                                                                \
    }                                                                                                                  \
    extern "C" CALLED void __tsan_write##n(void *p) {                                                                  \
        pl_emu_from = __builtin_return_address(0);                                                                     \
        touch(p, n, WRITE);                                                                                            \
    }                                                                                                                  \
    extern "C" CALLED void __tsan_unaligned_write##n(void *p) {                                                        \
        pl_emu_from = __builtin_return_address(0);                                                                     \
        touch(p, n, WRITE);                                                                                            \
    }
READ(1)
READ(2)
READ(4)
READ(8)
READ(16)
extern "C" CALLED void __tsan_read_range(void *p, size_t n) {
    pl_emu_from = __builtin_return_address(0);
    touch(p, n, 0);
}
extern "C" CALLED void __tsan_write_range(void *p, size_t n) {
    pl_emu_from = __builtin_return_address(0);
    touch(p, n, WRITE);
}
extern "C" CALLED void __tsan_vptr_update(void **, void *) {}
extern "C" CALLED void __tsan_func_entry(void *) {}
extern "C" CALLED void __tsan_func_exit() {}
extern "C" CALLED void __tsan_init() {}
