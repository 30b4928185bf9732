// Inside the dataset: manifest.json, the list of whole shards, and manifest-PART.json, those that another process than
// the first has written. Only data/dataset*.c include this.
#ifndef PL_DATASET_MANIFEST_H
#define PL_DATASET_MANIFEST_H

#include "data/dataset/h5.h"

typedef struct pl_manifest_shard {
    int64_t  index; // of its name
    int64_t  rows, docs, bytes;
    int64_t  first_row, first_doc; // sums of those before
    uint64_t hash;                 // xxHash64 of the file
} pl_manifest_shard;

typedef struct pl_manifest {
    pl_dataset_own_attrs attrs;
    bool                 complete;
    pl_manifest_shard   *shards; // owned, by index, which has gaps while shards are being made
    int64_t              n, cap;
    int64_t              rows, docs;
} pl_manifest;

// A zeroed manifest is an empty one.
void                     pl_manifest_fini(pl_manifest *m);
// "dir/shard-00007.h5", from pl_malloc; NULL when out of memory.
char                    *pl_manifest_shard_path(const char *dir, int64_t i);
// The list of this part, 0 for manifest.json; likewise.
char                    *pl_manifest_path(const char *dir, int part);
// In its place (index, rows, docs, bytes and hash are read). One that is there already must be the same one: what was
// made again from the same inputs has the same bytes.
pl_status                pl_manifest_put(pl_manifest *m, const char *dir, const pl_manifest_shard *s, pl_err *err);
// NULL: it is not listed.
const pl_manifest_shard *pl_manifest_find(const pl_manifest *m, int64_t index);
// Shards 0, 1, ... without a gap.
int64_t                  pl_manifest_whole(const pl_manifest *m);
// Reads that part's list; PL_E_INPUT when there is none or it is broken. *m is the caller's, also on failure.
pl_status                pl_manifest_read(pl_manifest *m, const char *dir, int part, uint64_t *file_hash, pl_err *err);
pl_status                pl_manifest_write(const pl_manifest *m, const char *dir, int part, pl_err *err);

// Size and xxHash64 of a file.
pl_status pl_manifest_hash_file(const char *path, int64_t *bytes, uint64_t *hash, pl_err *err);

#endif
