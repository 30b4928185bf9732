// Memory by lifetime. An arena is one block handed out from front to back and given back all at once (or to a mark).
//
// Life:  init -> [begin_measure, run the code once, commit]  or  [reserve(bytes)]
//             -> alloc/mark/release/reset ... -> fini
//
// While measuring, alloc returns addresses that must not be touched (ops do nothing on a measuring context) and only
// the high-water mark is kept. After commit the block never grows: running past its end is a bug and aborts, so there
// is no allocation in a steady loop; pl_alloc_count() lets tests assert that.
#ifndef PL_ARENA_H
#define PL_ARENA_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_ALIGN 64 // bytes; every arena block starts on it

// Memory for long-lived blocks. A backend whose tensors do not live in host memory has one (pl_backend.memory); NULL is
// host memory everywhere. Two places:
//   PL_LOCAL   accessed by the device only: weights, caches, activations
//   PL_SHARED  accessed by both, at the same address: index arrays of ops, results that the host reads. The host may
//              write only bytes that no op in flight reads, and reads results after pl_ctx_wait or pl_ctx_sync.
// On the host the two are the same. A model's weights live from load to close, a session's cache and an engine's index
// arrays as long as the engine, a step's activations in the arenas of its context. All of them are allocated before the
// first step.
typedef enum pl_place { PL_LOCAL, PL_SHARED } pl_place;
typedef struct pl_memory {
    const char *name; // "cuda:0", for messages
    bool        host; // PL_LOCAL blocks lie in the host's memory and count against what the host has free
    void *(*create)(const struct pl_memory *m, pl_place place, size_t bytes, pl_err *err); // aligned, zeroed or NULL
    void (*destroy)(const struct pl_memory *m, pl_place place, void *p, size_t bytes);
    pl_status (*write)(const struct pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err);
    pl_status (*read)(const struct pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err);
} pl_memory;

// A long-lived block of a memory: page-aligned, zeroed. NULL and *err on failure.
void     *pl_memory_create(const pl_memory *m, pl_place place, size_t bytes, pl_err *err);
void      pl_memory_destroy(const pl_memory *m, pl_place place, void *p, size_t bytes);
// Copies host bytes into a block and back, outside of any step: weights at load, a training state at a checkpoint. Done
// on return; no context may have work in flight on these bytes (pl_ctx_upload and pl_ctx_download keep its order).
pl_status pl_memory_write(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err);
pl_status pl_memory_read(const pl_memory *m, void *to, const void *from, size_t bytes, pl_err *err);
// Returns memory in which the host may fill a block of `bytes` at `at`: the block itself, or a heap copy (zeroed, NULL
// when out of memory), which pl_memory_put then writes to its place. put frees it, also on failure, and may be called
// with a NULL stage after a failure of the caller's own: `st` is what it returns then.
void     *pl_memory_stage(const pl_memory *m, void *at, size_t bytes);
pl_status pl_memory_put(const pl_memory *m, void *at, void *stage, size_t bytes, pl_status st, pl_err *err);

typedef struct pl_arena {
    const char *name; // for messages; borrowed
    uint8_t    *base;
    size_t      size, used, peak;
    bool        measuring;
    bool        guard; // tests: PL_ALIGN guard bytes around each block, checked by pl_arena_check (place: PL_SHARED)
    const pl_memory *memory; // NULL: host
    pl_place         place;
} pl_arena;

void      pl_arena_init(pl_arena *a, const char *name);
void      pl_arena_fini(pl_arena *a);
void      pl_arena_begin_measure(pl_arena *a);       // frees any block held before
pl_status pl_arena_commit(pl_arena *a, pl_err *err); // one block of the measured peak, with huge pages requested
pl_status pl_arena_reserve(pl_arena *a, size_t bytes, pl_err *err); // as measure+commit with a known size
// All of the above for index arrays and results that live as long as their owner (PL_SHARED of `m`): take allocates
// them from `a`, once while measuring and once for good. Leaves nothing allocated on failure.
pl_status pl_arena_init_shared(pl_arena *a, const char *name, const pl_memory *m, void (*take)(void *arg), void *arg,
                               pl_err *err);
void     *pl_arena_alloc(pl_arena *a, size_t bytes);     // 64-byte aligned, contents undefined; aborts when full
bool      pl_arena_has(const pl_arena *a, size_t bytes); // room for one more block; always while measuring
size_t    pl_arena_mark(const pl_arena *a);
void      pl_arena_release(pl_arena *a, size_t mark); // drops everything allocated since mark
void      pl_arena_reset(pl_arena *a);                // release to the start
// Guarded arenas: true when every guard byte still stands (all blocks live since the last reset).
bool      pl_arena_check(const pl_arena *a);

// Long-lived blocks of host memory: page-aligned, zeroed, huge pages requested above 2 MiB. NULL and *err on failure.
void    *pl_block_create(size_t bytes, pl_err *err);
void     pl_block_destroy(void *p, size_t bytes);
// Returns their current total in bytes, touched or not.
uint64_t pl_blocks_held(void);

// The heap, counted: as malloc/realloc/free/strdup, never NULL for n > 0 unless out of memory or a fault is injected.
void *pl_malloc(size_t n);
void *pl_calloc(size_t count, size_t size); // overflow-checked
void *pl_realloc(void *p, size_t n);
void  pl_free(void *p);
char *pl_strdup(const char *s);
char *pl_sprintf(const char *fmt, ...) PL_PRINTF(1, 2); // heap string or NULL

// Returns the number of allocations so far (heap, blocks and arena commits): a steady loop must not change it.
uint64_t pl_alloc_count(void);
// Tests: the n-th allocation from now fails (0 = never).
void     pl_alloc_fail_after(uint64_t n);
// a*b*c without overflow, or SIZE_MAX.
size_t   pl_size_mul(size_t a, size_t b, size_t c);

#endif
