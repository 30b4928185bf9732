// Training state: a flat list of named blobs in one file, from which a run resumes bit for bit.
//
// Layout, little-endian: "PLSTATE1", u32 version (1), u32 count, u64 bytes of the table, the table, the blobs each on a
// 64-byte boundary, zeros up to a multiple of 8, and u64 xxHash64 of header and table. A row of the table: u64 length
// of the name, the type's name in 8 bytes, u64 count, u64 offset from the start of the file, u64 xxHash64 of the blob,
// the name with 1 to 8 zeros up to a multiple of 8. Gaps are zero; so the last sum vouches, through the table, for
// every byte. A file that is cut, foreign, or does not agree with its sums is refused with one line.
#ifndef PL_STATE_H
#define PL_STATE_H

#include "kernels/base/dtype.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_STATE_NAME_MAX 255 // bytes
#define PL_STATE_ITEMS_MAX (1 << 20)

// Elements [at, at + n) of an item into data; asked for in order, once over the whole.
typedef pl_status (*pl_state_fill)(void *arg, int64_t at, void *data, int64_t n, pl_err *err);

typedef struct pl_state_item {
    const char   *name;
    pl_dtype      dtype; // plain bytes: PL_U8
    int64_t       count; // elements
    const void   *data;  // count * pl_dtype_size(dtype) bytes; when read, aligned to 64
    pl_state_fill fill;  // written with data NULL: gives the elements, at most PL_STATE_STREAM at a time
    void         *arg;
} pl_state_item;
#define PL_STATE_STREAM (1 << 19)

typedef struct pl_state pl_state;

// Atomically, fsynced; items in order, so that whoever fills them may have them come from elsewhere. Names must differ,
// be non-empty and at most PL_STATE_NAME_MAX bytes (the caller's mistake if not).
pl_status pl_state_write(const char *path, const pl_state_item *items, int64_t n, pl_err *err);

// The same, a file that none but its owner reads (mode 0600).
pl_status pl_state_write_private(const char *path, const pl_state_item *items, int64_t n, pl_err *err);

// Whether the file begins as one, whole or not; false too where it cannot be read.
bool                 pl_state_is(const char *path);
// Maps the file and verifies all of it. Items live until close.
pl_status            pl_state_open(pl_state **out, const char *path, pl_err *err);
void                 pl_state_close(pl_state *s);
int64_t              pl_state_count(const pl_state *s);
const pl_state_item *pl_state_at(const pl_state *s, int64_t i);
const pl_state_item *pl_state_find(const pl_state *s, const char *name); // NULL if absent
// The item's data, which must have this type and count; else one line names it, what was expected and what is there.
pl_status            pl_state_get(const pl_state *s, const char *name, pl_dtype dtype, int64_t count, const void **data,
                                  pl_err *err);

#endif
