// Clocks of warps, from accesses as they come (predict.h says what is counted, and the model of a block).
//
// A thread runs on until it waits for others, so each lane's events are kept until its warp meets (a barrier, shuffle
// or product), and then taken side by side: the first lane that has any left gives the place in the code, and all lanes
// whose next event is of that place go with it.
//
// First all blocks run without clocks, products or copied values ("skimmed"): which sectors of memory they touch, and
// how much each has to do. Of those some are timed, spread over how much they do, and each of the others counts as the
// timed one nearest to it.
#include "kernels/cuda/predict/count.h"
#include "kernels/cuda/emulate/machine.h"
#include <algorithm>
#include <cmath>
#include <link.h>
#include <set>
#include <stdlib.h>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace {
constexpr int WARP = 32, MOST = 1024, BANKS = 32, SECTOR = 32, LINE = 128, PAGE = 4096, CACHED = 1024;
enum kind : uint8_t { LOAD, STORE, SHARED_LOAD, SHARED_STORE, COPY, WAIT, ATOMIC, FENCE };

struct event {
    const void *site;
    uintptr_t   at; // WAIT: copies that may be left
    uint32_t    bytes;
    kind        what;
    bool        far, write;
    uintptr_t   to = 0; // COPY
};

struct lane {
    std::vector<event> events;
    size_t             next = 0;
};

struct clock_of { // a warp's, by one set of constants
    double              now = 0, loaded = 0, shared = 0, busy_until = 0, idle = 0;
    double              copied = 0;
    double              first = -1, last = 0; // of what comes from memory: asked for, there
    std::vector<double> copies;               // when each group of copies is there
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
    std::vector<char> waited; // threads that wait for no launch before this one any more
    int64_t           work = 0;
    bool              joins = false; // by atomics on global memory: what a block does depends on those before it
};

// Sectors of a page of 4 KB that were touched.
struct touched {
    uint64_t read[2] = {}, written[2] = {};
};

struct place {
    uintptr_t page = ~(uintptr_t)0;
    bool      global = false, far = false;
    touched  *sectors = NULL;
};

double                         constant[2][PL_GPU_CONSTANTS];
block                         *counting; // NULL: nothing is
bool                           skims, whole;
std::unordered_set<uintptr_t> *alone; // sectors that the skimmed block itself reads or writes; NULL: nobody asks
pl_counted                    *into;
double                         weight; // of the block that is timed: those that it stands for
int64_t                        events;
std::unordered_map<uintptr_t, touched> pages;
place                                  cache[CACHED];

bool within(const void *p, const uint8_t *from, size_t bytes) {
    return (uintptr_t)p - (uintptr_t)from < bytes;
}

double of(int name, int how) {
    return constant[how][name];
}

const place &classify(const void *p) {
    const uintptr_t page = (uintptr_t)p / PAGE;
    place          &at = cache[page % CACHED];
    if (at.page == page) return at;
    const size_t bytes = pl_counted_block(p);
    at.page = page;
    at.global = bytes > 0;
    at.far = (double)bytes > of(PL_GPU_L2_BYTES, PL_CENTRAL);
    at.sectors = at.far ? &pages[page] : NULL;
    return at;
}

// What a skimmed block touches of memory for the first time in its launch.
void touch(const void *p, size_t bytes, bool write) {
    for (uintptr_t s = (uintptr_t)p / SECTOR; s <= ((uintptr_t)p + bytes - 1) / SECTOR; s++) {
        if (alone) alone->insert(2 * s + write);
        touched       *t = classify((const void *)(s * SECTOR)).sectors;
        const unsigned i = s % (PAGE / SECTOR);
        uint64_t      &in = (write ? t->written : t->read)[i / 64];
        if (in >> i % 64 & 1) continue;
        in |= (uint64_t)1 << i % 64;
        into->far += SECTOR;
        if (write) into->written += SECTOR;
        if (!counting->waited[pl_emu.thread.x]) into->ahead += SECTOR;
    }
}

void keep_event(const event &e) {
    counting->work++;
    if (skims) {
        if (e.far && (e.what == LOAD || e.what == STORE || e.what == COPY)) touch((void *)e.at, e.bytes, e.write);
        return;
    }
    counting->lanes[pl_emu.thread.x].events.push_back(e);
    events++;
}

bool of_block(const block *b, const void *p) {
    return within(p, b->room, b->room_bytes) || within(p, b->statics, b->static_bytes);
}

void keep(const void *site, const void *p, size_t bytes, bool write) {
    block *b = counting;
    if (!b || within(p, b->stacks, b->stack_bytes) || within(p, (const uint8_t *)&pl_emu, sizeof pl_emu)) return;
    event e = {site, (uintptr_t)p, (uint32_t)bytes, LOAD, false, write};
    if (of_block(b, p)) {
        e.what = write ? SHARED_STORE : SHARED_LOAD;
    } else {
        const place &at = classify(p);
        if (!at.global) return; // arguments
        e.what = write ? STORE : LOAD;
        e.far = at.far;
    }
    keep_event(e);
}

void keep_other(kind what, const void *p, size_t bytes, const void *to = NULL) {
    if (!counting) return;
    event e = {NULL, (uintptr_t)p, (uint32_t)bytes, what, false, false, (uintptr_t)to};
    if (what == ATOMIC) {
        if (of_block(counting, p)) return;
        counting->joins = true;
    }
    if (what == COPY || what == ATOMIC) e.far = classify(p).far;
    keep_event(e);
}

// ---- one request of a warp

struct request {
    event e;
    int   n = 0;
    event of[WARP];
};

int sectors_of(const request &r) {
    static std::vector<uintptr_t> s;
    s.clear();
    for (int i = 0; i < r.n; i++)
        for (uintptr_t at = r.of[i].at / SECTOR; at <= (r.of[i].at + r.of[i].bytes - 1) / SECTOR; at++)
            s.push_back(at);
    std::sort(s.begin(), s.end());
    int n = (int)(std::unique(s.begin(), s.end()) - s.begin());
    into->requests += weight;
    into->sectors += weight * n;
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
    into->shared += weight;
    into->wavefronts += weight * all;
    return all;
}

// Copies of 16 bytes go by quarters of the warp: one that takes other than whole lines to whole lines is split.
void count_split(const request &r) {
    if (r.e.bytes < 16) return;
    for (int first = 0; first < r.n; first += 8) {
        std::set<std::pair<uintptr_t, uintptr_t>> pieces;
        const int                                 n = std::min(8, r.n - first);
        for (int i = first; i < first + n; i++)
            pieces.insert({r.of[i].at / LINE, r.of[i].to / LINE});
        into->copied += weight * n * r.e.bytes;
        if ((int)pieces.size() * LINE > n * (int)r.e.bytes) into->split += weight * n * r.e.bytes;
    }
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

void comes(clock_of &c, bool far, double there) {
    in_flight(c, there);
    if (!far) return;
    if (c.first < 0) c.first = c.now;
    c.last = std::max(c.last, there);
}

void load(warp &w, const request &r) {
    const int n = sectors_of(r);
    for (int how = 0; how < 2; how++) {
        clock_of &c = w.c[how];
        if (++w.times[how][r.e.site] > (int)of(PL_GPU_UNROLL, how)) { // the next batch of a loop
            c.now = std::max(c.now, c.loaded);
            w.times[how].clear();
            w.times[how][r.e.site] = 1;
            if (how == PL_CENTRAL) w.open = false;
        }
        c.now += (n + 3) / 4;
        const double there = c.now + of(r.e.far ? PL_GPU_FAR : PL_GPU_NEAR, how);
        c.loaded = std::max(c.loaded, there);
        comes(c, r.e.far, there);
    }
    if (!w.open) w.rounds++;
    w.open = true;
}

void take(warp &w, const request &r) {
    if (r.e.what == LOAD) return load(w, r);
    if (r.e.what == STORE || r.e.what == ATOMIC || r.e.what == FENCE) wait_loads(w);
    const bool global = r.e.what == STORE || r.e.what == COPY || r.e.what == ATOMIC;
    const bool shared = r.e.what == SHARED_LOAD || r.e.what == SHARED_STORE;
    const int  n = global ? sectors_of(r) : shared ? wavefronts_of(r) : 0;
    for (int how = 0; how < 2; how++) {
        clock_of &c = w.c[how];
        c.now += global ? (n + 3) / 4 : n;
        if (r.e.what == SHARED_LOAD) c.shared = c.now + of(PL_GPU_SHARED, how);
        if (r.e.what == ATOMIC) c.now += of(PL_GPU_ATOMIC, how);
        if (r.e.what == FENCE) { // central: its own stores; pessimistic: all that is under way
            if (how == PL_PESSIMISTIC) c.now = std::max(c.now, c.copied);
            c.now += of(PL_GPU_NEAR, how);
        }
        if (r.e.what == COPY && how == PL_CENTRAL && r.e.far) count_split(r);
        if (r.e.what == COPY) {
            const double there = c.now + of(r.e.far ? PL_GPU_FAR : PL_GPU_NEAR, how);
            c.copied = std::max(c.copied, there);
            comes(c, r.e.far, there);
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
        take(w, r);
    }
    for (int i = 0; i < WARP; i++)
        l[i].events.clear(), l[i].next = 0;
}

void met(unsigned which, int name) {
    block *b = counting;
    if (!b || skims) return;
    meet(b, which);
    wait_loads(b->warps[which]);
    for (int how = 0; how < 2; how++)
        b->warps[which].c[how].now += of(name, how);
    if (name == PL_GPU_MMA) into->products += weight;
}

// ---- what the emulation tells

void barrier(pl_emu_way way) {
    block *b = counting;
    if (!b || skims) return;
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
    b.waited.assign((size_t)n, 0);
    b.work = 0;
    b.joins = false;
    counting = &b;
}

// A timed block has ended. What it waits for memory: from when its first byte is asked for until its last has come.
void end() {
    block *b = counting;
    for (size_t i = 0; i < b->warps.size(); i++) {
        meet(b, (unsigned)i);
        wait_loads(b->warps[i]);
        into->most_rounds = std::max(into->most_rounds, b->warps[i].rounds);
    }
    for (int how = 0; how < 2; how++) {
        const double clock = of(PL_GPU_CLOCK, how);
        double       path = 0, idle = 1e30, first = 1e30, last = 0;
        for (warp &w : b->warps) {
            in_flight(w.c[how], 0);
            path = std::max(path, w.c[how].now / clock);
            idle = std::min(idle, w.c[how].idle / clock);
            if (w.c[how].first >= 0) first = std::min(first, w.c[how].first / clock);
            last = std::max(last, w.c[how].last / clock);
        }
        into->path[how] += weight * path;
        into->idle[how] += weight * idle;
        into->most_path[how] = std::max(into->most_path[how], path);
        if (last == 0) continue;
        into->lead[how] = into->led ? std::min(into->lead[how], first) : first;
        into->trail[how] = std::max(into->trail[how], path - last);
        into->led |= how == PL_PESSIMISTIC;
    }
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
    .previous_done =
        [] {
            if (counting) counting->waited[pl_emu.thread.x] = 1;
        },
    .copy_begins =
        [](void *to, const void *from, size_t bytes, bool there) {
            if (there) keep_other(COPY, from, bytes, to);
        },
    .copy_ends = [](void *, size_t) {},
    .exchanged = exchanged,
    .copy_waits = [](int left) { keep_other(WAIT, (const void *)(uintptr_t)left, 0); },
};

// Blocks by how much they do, the most first, then the least, then those halfway between ones that stand here.
std::vector<unsigned> spread(const std::vector<int64_t> &work) {
    const unsigned        n = (unsigned)work.size();
    std::vector<unsigned> by(n), order;
    std::vector<char>     has(n, 0);
    for (unsigned i = 0; i < n; i++)
        by[i] = i;
    std::stable_sort(by.begin(), by.end(), [&](unsigned a, unsigned b) { return work[a] > work[b]; });
    auto add = [&](uint64_t at) {
        if (!has[at]) has[at] = 1, order.push_back(by[at]);
    };
    add(0);
    add(n - 1);
    for (unsigned parts = 2; order.size() < n && parts < 2 * n; parts *= 2)
        for (uint64_t i = 1; i < parts; i += 2)
            add(n * i / parts);
    return order;
}

int64_t skim(const pl_cuda_launch *l, unsigned b, bool *joins) {
    skims = pl_emu_skims = true;
    pl_emu_run_block(l, b);
    const int64_t work = counting->work;
    *joins = *joins || counting->joins;
    counting = NULL;
    skims = pl_emu_skims = false;
    return work;
}

void time_block(const pl_cuda_launch *l, unsigned b) {
    pl_emu_run_block(l, b);
    end();
}

constexpr unsigned PARTLY = 16; // blocks that are skimmed of a launch that is too large

// Sectors of all blocks, where one has `each` and n together `some`: the size of a set of which n shares of that size,
// drawn at random, cover so much.
double all_of(double each, double some, double n, double blocks) {
    double low = some, high = std::max(some, each * blocks);
    for (int i = 0; i < 60; i++) {
        const double size = (low + high) / 2;
        (size * (1 - std::pow(1 - std::min(1.0, each / size), n)) < some ? low : high) = size;
    }
    return std::min(low, each * blocks);
}

// Of a launch that is too large PARTLY blocks are skimmed, of which each stands for those from it to the next one.
// Block 0 has been.
void skim_some(const pl_cuda_launch *l, std::vector<int64_t> *work, bool *joins) {
    const uint64_t                blocks = work->size();
    std::unordered_set<uintptr_t> sectors;
    double                        each = into->far;
    alone = &sectors;
    into->seen = 1;
    for (uint64_t i = 0; i < PARTLY; i++) {
        const uint64_t b = blocks * i / PARTLY, next = blocks * (i + 1) / PARTLY;
        if (b == next) continue;
        if (b > 0) {
            sectors.clear();
            (*work)[b] = skim(l, (unsigned)b, joins);
            each += (double)sectors.size() * SECTOR;
            into->seen++;
        }
        std::fill(work->begin() + (ptrdiff_t)b, work->begin() + (ptrdiff_t)next, (*work)[b]);
    }
    alone = NULL;
    if (into->far == 0) return;
    const double n = (double)into->seen, more = all_of(each / n, into->far, n, (double)blocks) / into->far;
    into->far *= more, into->written *= more, into->ahead *= more;
}

// How many blocks each of those timed stands for: itself, and those to which it is the nearest by work.
std::vector<double> stand_for(const std::vector<unsigned> &timed, const std::vector<int64_t> &work) {
    std::vector<double> n(timed.size(), 0);
    for (int64_t w : work) {
        size_t best = 0;
        for (size_t i = 1; i < timed.size(); i++)
            if (llabs(work[timed[i]] - w) < llabs(work[timed[best]] - w)) best = i;
        n[best]++;
    }
    return n;
}

// Blocks of one launch, in order where they join: those not timed are skimmed again, so that the last finds the others
// done. Their sectors have been counted.
void time_launch(const pl_cuda_launch *l, const std::vector<int64_t> &work, bool joins) {
    const std::vector<unsigned> order = spread(work);
    std::vector<unsigned>       timed;
    int64_t                     expected = 0;
    for (unsigned b : order) {
        if (!timed.empty() && expected + work[b] > PL_PREDICT_EVENTS) break;
        expected += work[b], timed.push_back(b);
    }
    const std::vector<double> n = stand_for(timed, work);
    std::vector<double>       of_block(work.size(), 0);
    for (size_t i = 0; i < timed.size(); i++)
        of_block[timed[i]] = n[i];
    for (unsigned b = 0; b < work.size(); b++) {
        bool ignored = false;
        if ((weight = of_block[b]) > 0)
            time_block(l, b);
        else if (joins && whole)
            skim(l, b, &ignored);
    }
}
} // namespace

void pl_count_launch(const pl_cuda_launch *l, pl_counted *c) {
    const unsigned        blocks = l->grid[0] * l->grid[1] * l->grid[2];
    std::vector<int64_t>  work(blocks, 0);
    bool                  joins = false;
    const pl_emu_watcher *before = pl_emu_watch;
    for (int how = 0; how < 2; how++)
        for (int i = 0; i < PL_GPU_CONSTANTS; i++)
            constant[how][i] = pl_gpu(i, how);
    pages.clear();
    std::fill(cache, cache + CACHED, place());
    into = c;
    events = 0;
    pl_emu_watch = &watcher;
    work[0] = skim(l, 0, &joins);
    whole = blocks <= PL_PREDICT_BLOCKS && (double)work[0] * blocks <= PL_PREDICT_SKIMMED;
    if (whole) {
        for (unsigned b = 1; b < blocks; b++)
            work[b] = skim(l, b, &joins);
        c->seen = blocks;
    } else {
        skim_some(l, &work, &joins);
    }
    time_launch(l, work, joins);
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
