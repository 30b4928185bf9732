// The emulated device's queue (queue.h).
#include "tests/cuda/emulate/machine.h"
#include <functional>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

namespace {
struct queue {
    std::vector<std::function<void()>> work, aside; // aside: a branch's, not joined yet
};
} // namespace

void (*pl_emu_on_launch)(const pl_cuda_launch *l);

extern "C" void *pl_emu_queue_create(void) {
    return new (std::nothrow) queue;
}

extern "C" void pl_emu_queue_destroy(void *q) {
    delete static_cast<queue *>(q);
}

static void pl_emu_keep(void *q, std::function<void()> work) {
    if (pl_emu_watch) pl_emu_watch->copied(q);
    static_cast<queue *>(q)->work.push_back(std::move(work));
}

extern "C" void pl_emu_join(void *q) {
    queue *of = static_cast<queue *>(q);
    if (pl_emu_watch && !of->aside.empty()) pl_emu_watch->met(q);
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
    const uint64_t number = pl_emu_watch ? pl_emu_watch->queued(q, l) : 0;
    if (!q) return pl_emu_run(number, l);
    kept_launch kept = {*l, {}};
    for (int i = 0; i < l->n_args; i++) {
        const uint8_t *from = static_cast<const uint8_t *>(l->arg[i]);
        kept.bytes.emplace_back(from, from + l->size[i]);
    }
    queue *at = static_cast<queue *>(q);
    if (l->joins) pl_emu_join(at);
    (l->aside ? at->aside : at->work).push_back([kept, number]() mutable {
        std::vector<void *> arg;
        for (auto &b : kept.bytes)
            arg.push_back(b.data());
        kept.l.arg = arg.data();
        pl_emu_run(number, &kept.l);
    });
}

extern "C" void pl_emu_waited(const void *q) {
    if (pl_emu_watch) pl_emu_watch->waited(q);
}

extern "C" void pl_emu_queue_run(void *q) {
    queue *of = static_cast<queue *>(q);
    pl_emu_join(of);
    for (const auto &w : of->work)
        w();
    of->work.clear();
    pl_emu_waited(q);
}

extern "C" void pl_emu_copy(void *q, void *to, const void *from, size_t bytes, size_t pitch, size_t n) {
    auto work = [=] {
        for (size_t i = 0; i < n; i++)
            memcpy(static_cast<uint8_t *>(to) + i * pitch, static_cast<const uint8_t *>(from) + i * pitch, bytes);
    };
    if (!q) {
        if (pl_emu_watch) pl_emu_watch->copied(q);
        return work();
    }
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

extern "C" {
uint64_t pl_emu_zeroed;
}

extern "C" void pl_emu_zero(void *q, void *to, size_t bytes) {
    if (q) pl_emu_zeroed += bytes;
    if (!q) {
        if (pl_emu_watch) pl_emu_watch->copied(q);
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
