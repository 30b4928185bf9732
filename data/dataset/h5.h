// Inside the dataset: one shard as an HDF5 file. Only data/dataset*.c include this. HDF5's own error printing is off;
// its deepest message ends up in pl_err.
#ifndef PL_DATASET_H5_H
#define PL_DATASET_H5_H

#include "data/dataset/dataset.h"
#include <hdf5.h>

typedef struct pl_h5_shard {
    hid_t      file, set[PL_COLUMNS]; // < 0: not open, and what this kind of dataset lacks
    int64_t    rows, docs;
    // As they are stored: elements per row, 0: the dataset lacks the column; and what they are.
    size_t     width[PL_COLUMNS];
    pl_element element[PL_COLUMNS];
    bool       packed[PL_COLUMNS]; // by data/dataset/mxint8.h, vectors of d elements
    int64_t    d;
    bool       traces; // documents of traces end nowhere
} pl_h5_shard;

enum { PL_DATASET_TEXTS = 7 };

// Attributes with strings of their own.
typedef struct pl_dataset_own_attrs {
    pl_dataset_attrs a;
    char            *text[PL_DATASET_TEXTS]; // owned: the strings of `a` in their order
} pl_dataset_own_attrs;

void         pl_dataset_own_fini(pl_dataset_own_attrs *o);
pl_status    pl_dataset_own_copy(pl_dataset_own_attrs *o, const pl_dataset_attrs *a, pl_err *err);
// The strings of attributes, pl_dataset_texts of them (traces have more), by their place in `text`; their names.
int          pl_dataset_texts(const pl_dataset_attrs *a);
const char **pl_dataset_text(pl_dataset_attrs *a, int i);
const char  *pl_dataset_text_name(int i);
void         pl_dataset_own_point(pl_dataset_own_attrs *o); // a's strings to those of `text`
// Refuses `have` where it differs from what `want` asks for (see pl_dataset_open_options), here with exactly these
// taps. One line, both sides.
pl_status    pl_dataset_attrs_check(const char *path, const pl_dataset_attrs *have, const pl_dataset_attrs *want,
                                    pl_err *err);
// Where the taps that `want` asks for lie among those of `have`: place[i] of tap i. Refuses one that is not there.
pl_status    pl_dataset_taps_find(int place[PL_DATASET_MAX_TAPS], const char *path, const pl_dataset_attrs *have,
                                  const pl_dataset_attrs *want, pl_err *err);

// "bf16", "int8"; of a name (NULL: none is said). false: no such format.
const char *pl_dataset_format_name(pl_feature_format f);
bool        pl_dataset_format_find(const char *name, pl_feature_format *f);
// "features" or "traces".
const char *pl_dataset_kind_name(const pl_dataset_attrs *a);

// An empty shard in the existing file `path`, whose content is dropped.
pl_status pl_h5_create(pl_h5_shard *s, const char *path, const pl_dataset_attrs *a, pl_err *err);
pl_status pl_h5_append(pl_h5_shard *s, const char *path, const pl_columns *doc, pl_err *err);
// Writes doc_offsets [docs + 1] and, of features, the lists of about [docs], and closes.
pl_status pl_h5_finish(pl_h5_shard *s, const char *path, const int64_t *doc_offsets, const pl_doc_about *about,
                       int64_t docs, pl_err *err);

// Opens for reading and checks shapes and types; attributes go to *o, which the caller finishes also on failure.
pl_status pl_h5_open(pl_h5_shard *s, const char *path, pl_dataset_own_attrs *o, pl_err *err);
pl_status pl_h5_read(const pl_h5_shard *s, const char *path, pl_column column, int64_t first, int64_t n, void *to,
                     pl_err *err);
// Of `features`, the taps that lie at place[0..n_taps), side by side in this order.
pl_status pl_h5_read_taps(const pl_h5_shard *s, const char *path, const int *place, int n_taps, int64_t first,
                          int64_t n, void *to, pl_err *err);
pl_status pl_h5_read_offsets(const pl_h5_shard *s, const char *path, int64_t *doc_offsets, pl_err *err);
// Ends below vocab, each `back` within the `first` documents of earlier shards and those of this one.
pl_status pl_h5_read_about(const pl_h5_shard *s, const char *path, pl_doc_about *about, int32_t vocab, int64_t first,
                           pl_err *err);
void      pl_h5_close(pl_h5_shard *s);

#endif
