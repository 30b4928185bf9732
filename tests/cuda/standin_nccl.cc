extern "C" {
#include "tests/cuda/standin_nccl.h"
}
#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {
constexpr size_t ROOM = 1 << 16; // bytes under way from one rank to another
constexpr int    MOST = 8;       // ranks

struct channel { // from one rank to another: a ring
    std::atomic<uint64_t> sent, taken;
    uint8_t               data[ROOM];
};
struct shared {
    std::atomic<int> arrived;
    int              ranks;
    channel          from[MOST][MOST]; // [from][to]
};
struct name { // what an ncclUniqueId holds: a file of memory that is open in the process that made it
    int pid, fd;
};
static_assert(sizeof(name) <= sizeof(ncclUniqueId));

struct piece {
    ncclComm *comm;
    bool      out;
    int       peer;
    uint8_t  *at;
    size_t    bytes, done;
    uint64_t  size;       // what the sender says
    size_t    size_bytes; // of that number, sent or taken
};
struct group {
    std::vector<piece> pieces;
    CUstream_st       *stream = NULL;
    ncclResult_t       error = ncclSuccess; // of one of its calls
};
} // namespace

struct ncclComm {
    int          rank, ranks;
    shared      *all;
    int          polls = 0; // until what was called last is done
    ncclResult_t error = ncclSuccess;
    group       *next = NULL; // what stands on the stream once it is
    int          under_way = 0;
    bool         aborted = false, gone = false;
};

namespace {
uint64_t            drawn;
thread_local group *open_group;
thread_local int    depth;

[[noreturn]] void undefined(const char *what) {
    fprintf(stderr, "stand-in for NCCL: %s\n", what);
    abort();
}

unsigned draw(unsigned below) {
    if (!drawn) drawn = standin_nccl.seed * 2 + 1;
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(drawn >> 33) % below;
}

ncclResult_t falls(standin_nccl_call call) {
    if (standin_nccl.call != call || standin_nccl.n == 0 || --standin_nccl.n > 0) return ncclSuccess;
    standin_nccl.fell = true;
    if (standin_nccl.error < 0) raise(SIGKILL);
    return (ncclResult_t)standin_nccl.error;
}
#define ENTER(call)                                                                                                    \
    if (ncclResult_t e = falls(STANDIN_NCCL_##call); e != ncclSuccess) return e

void at_rest(const ncclComm *c) {
    if (c->polls) undefined("a call while the last one is in progress");
}

size_t move(channel &ch, bool out, uint8_t *at, size_t n) { // as much of it as there is room for, or is there
    uint64_t sent = ch.sent.load(std::memory_order_acquire), taken = ch.taken.load(std::memory_order_acquire);
    n = std::min<size_t>(n, out ? ROOM - (sent - taken) : sent - taken);
    for (size_t i = 0; i < n;) {
        size_t   from = (out ? sent + i : taken + i) % ROOM, part = std::min(n - i, ROOM - from);
        uint8_t *there = ch.data + from;
        if (out)
            memcpy(there, at + i, part);
        else
            memcpy(at + i, there, part);
        i += part;
    }
    (out ? ch.sent : ch.taken).fetch_add(n, std::memory_order_release);
    return n;
}

bool done(const piece &p) {
    return p.size_bytes == sizeof p.size && p.done == p.bytes;
}

void go_on(piece &p) {
    ncclComm *c = p.comm;
    channel  &ch = p.out ? c->all->from[c->rank][p.peer] : c->all->from[p.peer][c->rank];
    if (draw(4) == 0) return;
    if (p.size_bytes < sizeof p.size) {
        p.size_bytes += move(ch, p.out, (uint8_t *)&p.size + p.size_bytes, sizeof p.size - p.size_bytes);
        if (p.size_bytes < sizeof p.size) return;
        if (p.size != p.bytes) undefined("a receive of another size than what is sent");
    }
    size_t n = std::min<size_t>(p.bytes - p.done, draw(8) ? ROOM : 1 + draw(1000));
    n = move(ch, p.out, p.at + p.done, n);
    p.done += n;
    if (n == 0) return;
    standin_nccl.parts++;
    if (ncclResult_t e = falls(STANDIN_NCCL_part); e != ncclSuccess) c->error = e;
}

bool goes(void *arg) {
    auto     *g = (group *)arg;
    ncclComm *c = g->pieces[0].comm;
    bool      all = true;
    if (c->error != ncclSuccess && !c->aborted) return false; // its kernel waits for ever
    size_t first = draw((unsigned)g->pieces.size());
    for (size_t k = 0; k < g->pieces.size(); k++) {
        piece &p = g->pieces[(first + k) % g->pieces.size()];
        if (c->aborted && !p.out && !done(p)) memset(p.at, 0xff, p.bytes); // whatever comes in half
        if (c->aborted) continue;
        if (!done(p)) go_on(p);
        all &= done(p);
    }
    return all && (c->aborted || c->error == ncclSuccess);
}

void forget(ncclComm *c) {
    if (!c->gone || c->under_way > 0) return;
    munmap(c->all, sizeof *c->all);
    delete c;
}

void end(void *arg) {
    auto     *g = (group *)arg;
    ncclComm *c = g->pieces[0].comm;
    c->under_way--;
    delete g;
    forget(c);
}

void queue(ncclComm *c, group *g) {
    c->under_way++;
    standin_queue(g->stream, goes, end, g);
}

ncclResult_t add(bool out, void *at, size_t n, ncclDataType_t type, int peer, ncclComm *c, CUstream_st *s) {
    if (depth == 0) undefined("a piece outside a group, which would wait for the other end's");
    at_rest(c);
    if (c->error != ncclSuccess) return open_group->error = c->error;
    if (type != ncclUint8) undefined("a type that the stand-in lacks");
    if (peer < 0 || peer >= c->ranks || peer == c->rank) return ncclInvalidArgument;
    standin_of_device(at, n);
    for (const piece &p : open_group->pieces) {
        if (p.comm != c || open_group->stream != s) undefined("a group over two communicators or streams");
        if (p.out == out && p.peer == peer) undefined("two pieces from one rank to another in a group");
    }
    open_group->stream = s;
    open_group->pieces.push_back({c, out, peer, (uint8_t *)at, n, 0, out ? n : 0, 0});
    return draw(2) ? ncclSuccess : ncclInProgress;
}

ncclResult_t leave(ncclComm *c, bool abort) {
    standin_nccl.comms--;
    c->aborted |= abort;
    c->gone = true;
    delete c->next;
    c->next = NULL;
    forget(c);
    return ncclSuccess;
}
} // namespace

extern "C" {
ncclResult_t ncclGetVersion(int *v) {
    *v = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t e) {
    return e == ncclRemoteError ? "remote process exited or there was a network error" : "a failure that was asked for";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    ENTER(id);
    static int fd = -1; // stays open until all have joined, for as long as this process lives
    name       n = {(int)getpid(), memfd_create("standin-nccl", MFD_CLOEXEC)};
    if (fd >= 0) close(fd);
    fd = n.fd;
    if (fd < 0 || ftruncate(fd, sizeof(shared)) != 0) return ncclSystemError;
    memset(id, 0, sizeof *id);
    memcpy(id, &n, sizeof n);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    char path[64];
    name n;
    *out = NULL;
    ENTER(init);
    if (!config || config->blocking != 0) undefined("a communicator that blocks for ever where a rank has died");
    if (ranks > MOST) undefined("more ranks than the stand-in has room for");
    memcpy(&n, &id, sizeof n);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", n.pid, n.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return ncclSystemError;
    void *all = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (all == MAP_FAILED) return ncclSystemError;
    *out = new ncclComm{rank, ranks, (shared *)all};
    (*out)->polls = 1 + (int)draw(4);
    (*out)->all->arrived++;
    standin_nccl.comms++;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
    ENTER(ask);
    if (ncclResult_t e = falls(STANDIN_NCCL_state); e != ncclSuccess) c->error = e;
    if (c->error == ncclSuccess && c->polls > 0 && c->all->arrived == c->ranks && --c->polls == 0 && c->next) {
        queue(c, c->next);
        c->next = NULL;
    }
    *state = c->error != ncclSuccess ? c->error : c->polls > 0 ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
    return leave(c, true);
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    at_rest(c);
    if (c->error != ncclSuccess || c->under_way > 0)
        undefined("a communicator ends after an error or with work under way");
    leave(c, false);
    return falls(STANDIN_NCCL_destroy);
}

ncclResult_t ncclGroupStart(void) {
    ENTER(group_start);
    if (depth++ > 0) undefined("a group in a group");
    open_group = new group;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (depth-- != 1) undefined("a group's end without its start");
    group *g = open_group;
    open_group = NULL;
    ncclResult_t e = falls(STANDIN_NCCL_group_end);
    if (e == ncclSuccess) e = g->error;
    if (e != ncclSuccess || g->pieces.empty()) {
        delete g;
        return e;
    }
    ncclComm *c = g->pieces[0].comm;
    if ((c->polls = (int)draw(4)) > 0) {
        c->next = g;
        return ncclInProgress;
    }
    queue(c, g);
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *at, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) {
    if (ncclResult_t e = falls(STANDIN_NCCL_send); e != ncclSuccess) return open_group->error = e;
    return add(true, (void *)at, n, type, peer, c, s);
}

ncclResult_t ncclRecv(void *at, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) {
    if (ncclResult_t e = falls(STANDIN_NCCL_recv); e != ncclSuccess) return open_group->error = e;
    return add(false, at, n, type, peer, c, s);
}
}
