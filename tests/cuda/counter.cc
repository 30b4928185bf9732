#include "tests/cuda/emulate/emulate.h"
#include "tests/cuda/emulate/watch.h"
extern "C" {
#include "tests/cuda/counter.h"
}
#include <algorithm>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace {
enum { WARP = 32, QUARTER = 8, WIDE = 16, LINE = 128, MOST = 1024 };

struct copy {
    uintptr_t to, from;
};

std::mutex                     lock; // blocks run on several threads
counted                        all;
thread_local std::vector<copy> of[MOST]; // the running block's, by thread
thread_local int               threads;
thread_local bool              open;

// The k-th copies of eight neighbouring threads go together: they are split unless they fill the lines that they touch,
// on both sides.
void end_block() {
    if (!open) return;
    counted mine = {};
    for (int first = 0; first < threads; first += QUARTER)
        for (size_t k = 0, n = 1; n > 0; k++) {
            std::set<std::pair<uintptr_t, uintptr_t>> pieces;
            n = 0;
            for (int t = first; t < first + QUARTER; t++)
                if (k < of[t].size()) n++, pieces.insert({of[t][k].from / LINE, of[t][k].to / LINE});
            mine.copied += (int64_t)n * WIDE;
            if (pieces.size() * LINE > n * WIDE) mine.split += (int64_t)n * WIDE;
        }
    for (int t = 0; t < threads; t++)
        of[t].clear();
    open = false;
    std::lock_guard<std::mutex> held(lock);
    all.copied += mine.copied;
    all.split += mine.split;
}

uint64_t queued(const void *, const pl_cuda_launch *l) {
    std::lock_guard<std::mutex> held(lock);
    all.launches++;
    all.late += !l->early;
    for (int i = 0; i < l->n_args; i++)
        all.shared += l->size[i] == sizeof(void *) && pl_emu_shared(*(void **)l->arg[i]);
    return 0;
}
void block(uint32_t, int n, const void *, size_t, const void *, size_t) {
    end_block();
    threads = n;
    open = true;
}
void copy_begins(void *to, const void *from, size_t bytes, bool there) {
    if (bytes == WIDE && there) of[pl_emu.thread.x].push_back({(uintptr_t)to, (uintptr_t)from});
}
void of_queue(const void *) {}
void waited(const void *) {
    std::lock_guard<std::mutex> held(lock);
    all.waits++;
}
void launch(uint64_t, const pl_cuda_launch *) {}
void barrier(pl_emu_way) {}
void nothing() {}
void atomic(void *, size_t) {}
void copy_ends(void *, size_t) {}

const pl_emu_watcher watcher = {queued,  of_queue, of_queue, waited,  launch,      end_block, block,
                                barrier, nothing,  atomic,   nothing, copy_begins, copy_ends};

struct here {
    here() { pl_emu_watch = &watcher; }
} set;
} // namespace

counted count_end(void) {
    end_block();
    std::lock_guard<std::mutex> held(lock);
    all.zeroed = (int64_t)std::exchange(pl_emu_zeroed, 0);
    return std::exchange(all, {});
}
