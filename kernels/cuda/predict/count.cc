// Clocks of warps, from accesses as they come (predict.h says what is counted, and the model of a block).
//
// A thread runs on until it waits for others, so each lane's events are kept until its warp meets (a barrier, shuffle
// or product), and then taken side by side: the first lane that has any left gives the place in the code, and all lanes
// whose next event is of that place go with it.
#include "kernels/cuda/predict/count.h"
#include "kernels/cuda/emulate/machine.h"
#include <algorithm>
#include <link.h>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace {
constexpr int WARP = 32, MOST = 1024, BANKS = 32, SECTOR = 32;
enum kind : uint8_t { LOAD, STORE, SHARED_LOAD, SHARED_STORE, COPY, WAIT, ATOMIC, FENCE };

struct event {
    const void *site;
    uintptr_t   at; // WAIT: copies that may be left
    uint32_t    bytes;
    kind        what;
    bool        far;
};

struct lane {
    std::vector<event> events;
    size_t             next = 0;
};

struct clock_of { // a warp's, by one set of constants
    double              now = 0, loaded = 0, shared = 0, busy_until = 0, idle = 0;
    double              copied = 0;
    std::vector<double> copies; // when each group of copies is there
};

struct warp {
    clock_of                              c[2];
    double                                rounds = 0;
    bool                                  open = false; // a round of loads
    std::unordered_map<const void *, int> times[2];     // of a place in this round, by set of constants
};

struct block {
    int               n = 0;
    const uint8_t    *room = NULL, *stacks = NULL, *statics = NULL;
    size_t            room_bytes = 0, stack_bytes = 0, static_bytes = 0;
    std::vector<lane> lanes;
    std::vector<warp> warps;
    double            far = 0;
};

double                        constant[2][PL_GPU_CONSTANTS];
block                        *counting; // NULL: nothing is
pl_counted                   *into;
int64_t                       events;
std::unordered_set<uintptr_t> sectors_of_launch, sectors_of_block;
struct {
    uintptr_t page = ~(uintptr_t)0;
    bool      global = false, far = false;
} last;

bool within(const void *p, const uint8_t *from, size_t bytes) {
    return (uintptr_t)p - (uintptr_t)from < bytes;
}

double of(int name, int how) {
    return constant[how][name];
}

void classify(const void *p) {
    uintptr_t page = (uintptr_t)p >> 12;
    if (last.page == page) return;
    size_t bytes = pl_counted_block(p);
    last.page = page;
    last.global = bytes > 0;
    last.far = (double)bytes > of(PL_GPU_L2_BYTES, PL_CENTRAL);
}

void keep(const void *site, const void *p, size_t bytes, bool write) {
    block *b = counting;
    if (!b || within(p, b->stacks, b->stack_bytes) || within(p, (const uint8_t *)&pl_emu, sizeof pl_emu)) return;
    event e = {site, (uintptr_t)p, (uint32_t)bytes, LOAD, false};
    if (within(p, b->room, b->room_bytes) || within(p, b->statics, b->static_bytes)) {
        e.what = write ? SHARED_STORE : SHARED_LOAD;
    } else {
        classify(p);
        if (!last.global) return; // arguments
        e.what = write ? STORE : LOAD;
        e.far = last.far;
    }
    b->lanes[pl_emu.thread.x].events.push_back(e);
    events++;
}

void keep_other(kind what, const void *p, size_t bytes) {
    if (!counting) return;
    event e = {NULL, (uintptr_t)p, (uint32_t)bytes, what, false};
    if (what == COPY || what == ATOMIC) {
        if (what == ATOMIC &&
            (within(p, counting->room, counting->room_bytes) || within(p, counting->statics, counting->static_bytes)))
            return;
        classify(p);
        e.far = last.far;
    }
    counting->lanes[pl_emu.thread.x].events.push_back(e);
    events++;
}

// ---- one request of a warp

struct request {
    event e;
    int   n = 0;
    event of[WARP];
};

// Bytes of these sectors that this block had not asked of memory before.
int sectors_of(const request &r, block *b) {
    std::vector<uintptr_t> s;
    for (int i = 0; i < r.n; i++)
        for (uintptr_t at = r.of[i].at / SECTOR; at <= (r.of[i].at + r.of[i].bytes - 1) / SECTOR; at++)
            s.push_back(at);
    std::sort(s.begin(), s.end());
    int n = (int)(std::unique(s.begin(), s.end()) - s.begin());
    for (int i = 0; i < n; i++) {
        if (!r.e.far) continue;
        if (sectors_of_block.insert(s[i]).second) {
            into->far += SECTOR, b->far += SECTOR;
            if (sectors_of_launch.insert(s[i]).second) into->distinct += SECTOR;
        }
    }
    into->requests++;
    into->sectors += n;
    return n;
}

// Lanes of 16 bytes are served by quarters of the warp, of 8 by halves.
int wavefronts_of(const request &r) {
    const int together = r.e.bytes >= 16 ? 8 : r.e.bytes >= 8 ? 16 : 32;
    int       all = 0;
    for (int first = 0; first < r.n; first += together) {
        std::vector<uintptr_t> word;
        int                    in[BANKS] = {}, most = 0;
        for (int i = first; i < r.n && i < first + together; i++)
            for (unsigned k = 0; k < (r.of[i].bytes + 3u) / 4; k++)
                word.push_back(r.of[i].at / 4 + k);
        std::sort(word.begin(), word.end());
        int n = (int)(std::unique(word.begin(), word.end()) - word.begin());
        for (int i = 0; i < n; i++)
            most = std::max(most, ++in[word[i] % BANKS]);
        all += most;
    }
    into->shared++;
    into->wavefronts += all;
    return all;
}

void in_flight(clock_of &c, double until) {
    if (c.now > c.busy_until) c.idle += c.now - c.busy_until;
    c.busy_until = std::max(c.busy_until, until);
}

void wait_loads(warp &w) {
    for (clock_of &c : w.c)
        c.now = std::max({c.now, c.loaded, c.shared});
    w.open = false;
    for (auto &t : w.times)
        t.clear();
}

void load(warp &w, const request &r, block *b) {
    const int n = sectors_of(r, b);
    for (int how = 0; how < 2; how++) {
        clock_of &c = w.c[how];
        if (++w.times[how][r.e.site] > (int)of(PL_GPU_UNROLL, how)) { // the next batch of a loop
            c.now = std::max(c.now, c.loaded);
            w.times[how].clear();
            w.times[how][r.e.site] = 1;
            if (how == PL_CENTRAL) w.open = false;
        }
        c.now += (n + 3) / 4;
        c.loaded = std::max(c.loaded, c.now + of(r.e.far ? PL_GPU_FAR : PL_GPU_NEAR, how));
        in_flight(c, c.loaded);
    }
    if (!w.open) w.rounds++;
    w.open = true;
}

void take(warp &w, const request &r, block *b) {
    if (r.e.what == LOAD) return load(w, r, b);
    if (r.e.what == STORE || r.e.what == ATOMIC || r.e.what == FENCE) wait_loads(w);
    const bool global = r.e.what == STORE || r.e.what == COPY || r.e.what == ATOMIC;
    const bool shared = r.e.what == SHARED_LOAD || r.e.what == SHARED_STORE;
    const int  n = global ? sectors_of(r, b) : shared ? wavefronts_of(r) : 0;
    for (int how = 0; how < 2; how++) {
        clock_of &c = w.c[how];
        c.now += global ? (n + 3) / 4 : n;
        if (r.e.what == SHARED_LOAD) c.shared = c.now + of(PL_GPU_SHARED, how);
        if (r.e.what == ATOMIC) c.now += of(PL_GPU_ATOMIC, how);
        if (r.e.what == FENCE) c.now += of(PL_GPU_NEAR, how);
        if (r.e.what == COPY) {
            c.copied = std::max(c.copied, c.now + of(r.e.far ? PL_GPU_FAR : PL_GPU_NEAR, how));
            in_flight(c, c.copied);
        }
        if (r.e.what != WAIT) continue;
        c.copies.push_back(c.copied); // what was issued until here is one group
        if (c.copies.size() > r.e.at) c.now = std::max(c.now, c.copies[c.copies.size() - 1 - r.e.at]);
    }
}

void meet(block *b, unsigned which) {
    warp &w = b->warps[which];
    lane *l = &b->lanes[which * WARP];
    for (int first = 0; first < WARP;) {
        if (l[first].next == l[first].events.size()) {
            first++;
            continue;
        }
        request r;
        r.e = l[first].events[l[first].next];
        for (int i = first; i < WARP; i++) {
            if (l[i].next == l[i].events.size()) continue;
            const event &e = l[i].events[l[i].next];
            if (e.site != r.e.site || e.what != r.e.what) continue;
            r.of[r.n++] = e;
            l[i].next++;
        }
        take(w, r, b);
    }
    for (int i = 0; i < WARP; i++)
        l[i].events.clear(), l[i].next = 0;
}

void met(unsigned which, int name) {
    block *b = counting;
    if (!b) return;
    meet(b, which);
    wait_loads(b->warps[which]);
    for (int how = 0; how < 2; how++)
        b->warps[which].c[how].now += of(name, how);
    if (name == PL_GPU_MMA) into->products++;
}

// ---- what the emulation tells

void barrier(pl_emu_way way) {
    block *b = counting;
    if (!b) return;
    if (way == PL_EMU_WARP) return met(pl_emu.thread.x / WARP, PL_GPU_SHARED);
    for (size_t i = 0; i < b->warps.size(); i++)
        met((unsigned)i, PL_GPU_BARRIER);
    for (int how = 0; how < 2; how++) {
        double most = 0;
        for (warp &w : b->warps)
            most = std::max(most, w.c[how].now);
        for (warp &w : b->warps)
            w.c[how].now = most;
    }
}

void exchanged(bool product) {
    met(pl_emu.thread.x / WARP, product ? PL_GPU_MMA : PL_GPU_SHUFFLE);
}

int find_statics(struct dl_phdr_info *info, size_t, void *arg) {
    block *b = (block *)arg;
    for (int i = 0; i < info->dlpi_phnum && !b->statics; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data &&
            within(&pl_emu, (const uint8_t *)info->dlpi_tls_data, info->dlpi_phdr[i].p_memsz)) {
            b->statics = (const uint8_t *)info->dlpi_tls_data;
            b->static_bytes = info->dlpi_phdr[i].p_memsz;
        }
    return 0;
}

void begin(uint32_t, int n, const void *room, size_t room_bytes, const void *stacks, size_t stack_bytes) {
    static block b;
    if (!b.statics) dl_iterate_phdr(find_statics, &b);
    b.n = n;
    b.room = (const uint8_t *)room, b.room_bytes = room_bytes;
    b.stacks = (const uint8_t *)stacks, b.stack_bytes = stack_bytes;
    b.lanes.resize(MOST);
    b.warps.assign((size_t)n / WARP, warp());
    b.far = 0;
    sectors_of_block.clear();
    counting = &b;
}

void end() {
    block *b = counting;
    double rounds = 0;
    for (size_t i = 0; i < b->warps.size(); i++) {
        meet(b, (unsigned)i);
        wait_loads(b->warps[i]);
        rounds = std::max(rounds, b->warps[i].rounds);
    }
    for (int how = 0; how < 2; how++) {
        double path = 0, idle = 1e30;
        for (warp &w : b->warps) {
            in_flight(w.c[how], 0);
            path = std::max(path, w.c[how].now / of(PL_GPU_CLOCK, how));
            idle = std::min(idle, w.c[how].idle / of(PL_GPU_CLOCK, how));
        }
        into->path[how] += path;
        into->idle[how] += idle;
        into->most_path[how] = std::max(into->most_path[how], path);
    }
    into->rounds += rounds;
    into->most_rounds = std::max(into->most_rounds, rounds);
    into->most_far = std::max(into->most_far, b->far);
    into->sampled++;
    counting = NULL;
}

const pl_emu_watcher watcher = {
    .queued = [](const void *, const pl_cuda_launch *) -> uint64_t { return 0; },
    .copied = [](const void *) {},
    .met = [](const void *) {},
    .waited = [](const void *) {},
    .launch = [](uint64_t, const pl_cuda_launch *) {},
    .launched = [] {},
    .block = begin,
    .barrier = barrier,
    .fence = [] { keep_other(FENCE, NULL, 0); },
    .atomic = [](void *p, size_t bytes) { keep_other(ATOMIC, p, bytes); },
    .previous_done = [] {},
    .copy_begins =
        [](void *, const void *from, size_t bytes, bool there) {
            if (there) keep_other(COPY, from, bytes);
        },
    .copy_ends = [](void *, size_t) {},
    .exchanged = exchanged,
    .copy_waits = [](int left) { keep_other(WAIT, (const void *)(uintptr_t)left, 0); },
};

// 0, then halves, quarters ... of the grid, each block once.
std::vector<unsigned> spread(unsigned blocks) {
    std::vector<unsigned> order = {0};
    std::vector<bool>     has(blocks, false);
    has[0] = true;
    for (unsigned parts = 2; order.size() < blocks && parts < 2 * blocks; parts *= 2)
        for (uint64_t i = 1; i < parts; i += 2)
            if (unsigned at = (unsigned)((uint64_t)blocks * i / parts); !has[at]) has[at] = true, order.push_back(at);
    return order;
}
} // namespace

void pl_count_launch(const pl_cuda_launch *l, pl_counted *c) {
    const unsigned blocks = l->grid[0] * l->grid[1] * l->grid[2];
    for (int how = 0; how < 2; how++)
        for (int i = 0; i < PL_GPU_CONSTANTS; i++)
            constant[how][i] = pl_gpu(i, how);
    const pl_emu_watcher *before = pl_emu_watch;
    sectors_of_launch.clear();
    into = c;
    events = 0;
    last.page = ~(uintptr_t)0;
    pl_emu_watch = &watcher;
    for (unsigned b : spread(blocks)) {
        if (events >= PL_PREDICT_EVENTS) break;
        pl_emu_run_block(l, b);
        end();
    }
    pl_emu_watch = before;
}

// ---- what the compiler calls

#define ACCESS(name, bytes, write)                                                                                     \
    extern "C" __attribute__((noinline)) void pl_counted_##name(void *p) {                                             \
        if (counting) keep(__builtin_return_address(0), p, bytes, write);                                              \
    }
#define ACCESSES(n)                                                                                                    \
    ACCESS(read##n, n, false)                                                                                          \
    ACCESS(write##n, n, true)                                                                                          \
    ACCESS(unaligned_read##n, n, false)                                                                                \
    ACCESS(unaligned_write##n, n, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
extern "C" void pl_counted_read_range(void *p, long n) {
    if (counting) keep(__builtin_return_address(0), p, (size_t)n, false);
}
extern "C" void pl_counted_write_range(void *p, long n) {
    if (counting) keep(__builtin_return_address(0), p, (size_t)n, true);
}
extern "C" void pl_counted_vptr_update(void *, void *) {}
extern "C" void pl_counted_vptr_read(void *) {}
extern "C" void pl_counted_func_entry(void *) {}
extern "C" void pl_counted_func_exit(void *) {}
extern "C" void pl_counted_init(void) {}
