// safetensors: 8 bytes little-endian header length, a JSON header, raw little-endian row-major data.
// https://github.com/huggingface/safetensors (format, "Yes or no" list)
//
// A file is mapped read-only and believed in nothing: header length against file size, JSON, dtype, rank, product of
// the shape, offsets within the data, size equal to shape times dtype, no overlap, no hole, no byte left over, no name
// twice. Only then are there pointers. A set is a folder or an index. The index is the authority: of its files, which
// lie beside it or in folders there, the tensors that it gives to them are read and no others, and a model.safetensors
// that lies beside it is named in a warning. A folder without an index holds model.safetensors or all of
// model-00001-of-0000N.safetensors, in which a tensor that is in two files must be the same in both.
#ifndef PL_SAFETENSORS_H
#define PL_SAFETENSORS_H

#include "kernels/base/dtype.h"
#include "kernels/base/status.h"
#include <stdint.h>

#define PL_ST_RANK 8
#define PL_ST_HEADER_MAX ((size_t)100 << 20) // as the reference implementation
#define PL_ST_VALUES_MAX ((int64_t)4 << 20)  // of a header: half a million tensors, seven or eight values each

typedef struct pl_st_entry {
    const char *name; // lives as long as the set
    pl_dtype    dtype;
    int         rank; // 0: one element
    int64_t     shape[PL_ST_RANK];
    const void *data; // mapped; aligned to its element only if the writer cared: copy or pl_to_f32, don't cast blindly
    size_t      bytes;
} pl_st_entry;

typedef struct pl_st pl_st;

// path: a .safetensors file, an .index.json file, or a folder. PL_E_INPUT for anything wrong with the content, PL_E_IO,
// PL_E_MEMORY.
pl_status          pl_st_open(pl_st **out, const char *path, pl_err *err);
void               pl_st_close(pl_st *st);
int64_t            pl_st_count(const pl_st *st);
const pl_st_entry *pl_st_at(const pl_st *st, int64_t i);          // in file order, shard after shard
const pl_st_entry *pl_st_find(const pl_st *st, const char *name); // NULL if absent
// From __metadata__ of the file, or of the first shard; NULL if absent.
const char        *pl_st_metadata(const pl_st *st, const char *key);
const char        *pl_st_path(const pl_st *st); // for messages
// "[2, 3]", of at most so many bytes.
#define PL_ST_SHAPE_TEXT 192
const char *pl_st_shape_text(char out[PL_ST_SHAPE_TEXT], const int64_t *shape, int rank);

// ---- writing ----

// Bytes [offset, offset + n) of an entry into buf; called in order, once over the whole.
typedef pl_status (*pl_st_fill)(void *arg, size_t offset, void *buf, size_t n, pl_err *err);

typedef struct pl_st_source {
    const char *name;
    pl_dtype    dtype;
    int         rank;
    int64_t     shape[PL_ST_RANK];
    const void *data; // the bytes, or NULL: then fill gives them
    pl_st_fill  fill;
    void       *arg;
} pl_st_source;

typedef struct pl_st_pair {
    const char *key, *value;
} pl_st_pair;

// Writes path atomically (the folder must exist). Entries keep the caller's order among those of one element size;
// larger elements come first, so that all data is aligned and no hole is needed. The same entries give the same bytes.
// A name twice, or one that is not UTF-8 or is "__metadata__", is the caller's mistake.
pl_status pl_st_write(const char *path, const pl_st_source *entries, int64_t n, const pl_st_pair *metadata,
                      int64_t n_metadata, pl_err *err);

#endif
