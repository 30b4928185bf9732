// The order in which blocks run, where a GPU is free to choose: without a seed one after another; with one in an order
// drawn from it, up to ALIVE at once, which take turns at barriers, fences and atomics. Each lives on a thread of its
// own, so that its static shared memory is its own; one of them runs at a time.
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/cuda/emulate/machine.h"
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <stdlib.h>
#include <thread>
#include <vector>

extern "C" {
#include "kernels/base/rng.h"
}

static pl_emu_manner manner_of_environment() {
    pl_emu_manner m = {0, 90, "", ""};
    const char   *seed = getenv("PACELINE_EMULATED_SEED"), *sm = getenv("PACELINE_EMULATED_SM");
    const char   *drop = getenv("PACELINE_EMULATED_DROP"), *places = getenv("PACELINE_EMULATED_PLACES");
    if (seed) m.seed = strtoull(seed, NULL, 10);
    if (sm) m.sm = atoi(sm);
    if (drop) m.drop = drop;
    if (places) m.places = places;
    return m;
}

pl_emu_manner pl_emu_behave = manner_of_environment();

// ---- drawing

static thread_local struct { uint64_t seed, drawn; } drawing;
static thread_local decltype(drawing) *own_drawing = &drawing; // a block's thread draws from its launching thread's

bool pl_emu_shuffles() {
    return pl_emu_behave.seed != 0;
}

unsigned pl_emu_draw(unsigned below) {
    if (own_drawing->seed != pl_emu_behave.seed) *own_drawing = {pl_emu_behave.seed, 0};
    return (unsigned)pl_rng_below(pl_rng_make(own_drawing->seed, PL_STREAM_TEST, 1), own_drawing->drawn++, below);
}

// ---- blocks that take turns

namespace {
enum { ALIVE = 3, LAUNCHER = ALIVE };

struct turns {
    std::mutex              lock;
    std::condition_variable turned[ALIVE + 1];
    int                     turn = LAUNCHER; // who runs
    bool                    busy[ALIVE] = {}, ends = false;
    std::vector<unsigned>   blocks; // that have not begun
    void (*run_block)(void *, unsigned) = NULL;
    void       *arg = NULL;
    std::thread thread[ALIVE];

    void give(std::unique_lock<std::mutex> &held, int to, int me) {
        turn = to;
        turned[to].notify_one();
        turned[me].wait(held, [&] { return turn == me; });
    }
    int any_busy(int but) {
        for (int k = 0, first = (int)pl_emu_draw(ALIVE); k < ALIVE; k++)
            if (int i = (first + k) % ALIVE; i != but && busy[i]) return i;
        return LAUNCHER;
    }
};

thread_local turns *taking;
thread_local int    my_turn = LAUNCHER;

void live(turns *t, int me, decltype(own_drawing) drawn_from) {
    own_drawing = drawn_from;
    taking = t;
    my_turn = me;
    std::unique_lock<std::mutex> held(t->lock);
    t->turned[me].wait(held, [&] { return t->turn == me; });
    while (!t->ends) {
        while (!t->blocks.empty()) {
            unsigned block = t->blocks.back();
            t->blocks.pop_back();
            held.unlock();
            t->run_block(t->arg, block);
            held.lock();
        }
        t->busy[me] = false;
        t->give(held, t->any_busy(me), me);
    }
    t->turn = LAUNCHER;
    t->turned[LAUNCHER].notify_one();
}

struct keeper { // of a launching thread
    turns t;
    bool  begun = false;
    void  begin() {
         for (int i = 0; i < ALIVE; i++)
            t.thread[i] = std::thread(live, &t, i, own_drawing);
        begun = true;
    }
    ~keeper() {
        if (!begun) return;
        for (int i = 0; i < ALIVE; i++) {
            std::unique_lock<std::mutex> held(t.lock);
            t.ends = true;
            t.give(held, i, LAUNCHER);
            held.unlock();
            t.thread[i].join();
        }
    }
};
} // namespace

void pl_emu_may_switch() {
    if (my_turn == LAUNCHER || pl_emu_draw(4) != 0) return;
    int other = taking->any_busy(my_turn);
    if (other == LAUNCHER) return;
    std::unique_lock<std::mutex> held(taking->lock);
    taking->give(held, other, my_turn);
}

void pl_emu_blocks(unsigned blocks, void (*run_block)(void *, unsigned), void *arg) {
    if (!pl_emu_shuffles()) {
        for (unsigned i = 0; i < blocks; i++)
            run_block(arg, i);
        return;
    }
    static thread_local keeper k;
    if (!k.begun) k.begin();
    std::unique_lock<std::mutex> held(k.t.lock);
    k.t.blocks.resize(blocks);
    std::iota(k.t.blocks.begin(), k.t.blocks.end(), 0u);
    for (unsigned i = blocks; i > 1; i--)
        std::swap(k.t.blocks[i - 1], k.t.blocks[pl_emu_draw(i)]);
    k.t.run_block = run_block;
    k.t.arg = arg;
    for (int i = 0; i < ALIVE; i++)
        k.t.busy[i] = (unsigned)i < blocks;
    k.t.give(held, 0, LAUNCHER);
}
