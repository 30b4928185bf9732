#include "data/dataset/h5.h"
#include "data/dataset/mxint8.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char OFFSETS[] = "doc_offsets";

// The lists of pl_doc_about: least and most, and what stands for a list that the shard lacks.
static const struct {
    const char *name;
    size_t      at; // of the struct
    int32_t     min, max, absent;
} lists[] = {{"doc_ends", offsetof(pl_doc_about, end), -1, INT32_MAX, -1},
             {"doc_turns", offsetof(pl_doc_about, turn), 0, INT32_MAX, 0},
             {"doc_backs", offsetof(pl_doc_about, back), 0, INT32_MAX, 0},
             {"doc_finishes", offsetof(pl_doc_about, finish), 0, PL_ANSWER_CONTEXT, PL_ANSWER_UNKNOWN},
             {"doc_cuts", offsetof(pl_doc_about, cut), 0, 1, 0}};
enum { LISTS = sizeof lists / sizeof *lists };
static const char NUMBERING[] = "layer inputs, 0-based", NORM[] = "post final norm",
                  SHIFT[] = "unshifted: row t holds the features of token t",
                  STEP[] =
                      "token and hidden: what a draft step consumed; output: what the head read; top: its distribution";

// Bytes: 16 rows, the least that a chunk holds, of 16 taps of 2^18 elements, wider than any model.
#define MAX_CHUNK ((double)(1 << 28))

// HDF5's type ids are run-time values, so these cannot be tables.
static hid_t file_type(pl_element e) {
    switch (e) {
    case PL_ELEMENT_U8: return H5T_STD_U8LE;
    case PL_ELEMENT_I32: return H5T_STD_I32LE;
    case PL_ELEMENT_BF16: return H5T_STD_U16LE;
    case PL_ELEMENT_F32: break;
    }
    return H5T_IEEE_F32LE;
}
static hid_t memory_type(pl_element e) {
    switch (e) {
    case PL_ELEMENT_U8: return H5T_NATIVE_UINT8;
    case PL_ELEMENT_I32: return H5T_NATIVE_INT32;
    case PL_ELEMENT_BF16: return H5T_NATIVE_UINT16;
    case PL_ELEMENT_F32: break;
    }
    return H5T_NATIVE_FLOAT;
}
static int rank_of(pl_column c) {
    return pl_column_wide(c) ? 2 : 1;
}

// ---- errors

typedef struct cause {
    char      why[256];
    pl_status status, of_file; // of_file: where the machine is not to blame
} cause;

// No memory, or a read or write of the disk that failed, is not the file's fault.
static herr_t deepest(unsigned n, const H5E_error2_t *e, void *to) {
    (void)n;
    cause *c = to;
    snprintf(c->why, sizeof c->why, "%s", e->desc ? e->desc : "no reason given");
    c->status = e->maj_num == H5E_RESOURCE ? PL_E_MEMORY : e->maj_num == H5E_IO ? PL_E_IO : c->of_file;
    return 0;
}

static pl_status h5_fail(pl_err *err, pl_status status, const char *path, const char *what) {
    // HDF5 may report nothing of a write that found no room.
    bool  full = errno == ENOSPC || errno == EFBIG || errno == EDQUOT;
    cause c = {.status = status, .of_file = status};
    snprintf(c.why, sizeof c.why, "%s", full ? strerror(errno) : "no reason given");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, deepest, &c); // the last one walked is where it happened
    H5Eclear2(H5E_DEFAULT);
    return pl_fail(err, c.status, "%s: %s: HDF5: %s", path, what, c.why);
}

// Before whatever else is called. HDF5's own work at exit would end in a segmentation fault where a file could not be
// closed for want of room on the disk.
static void quiet(void) {
    H5dont_atexit();
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); // per thread, so at every entry
}

// ---- attributes

static const char FORMAT[] = "feature_format"; // bf16 goes without saying

static bool write_text(hid_t at, const char *name, const char *s) {
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), attr = H5I_INVALID_HID;
    bool ok = type >= 0 && space >= 0 && H5Tset_size(type, strlen(s) + 1) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0;
    if (ok) attr = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ok = attr >= 0 && H5Awrite(attr, type, s) >= 0;
    if (attr >= 0) ok = H5Aclose(attr) >= 0 && ok;
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return ok;
}

// n 0: one number by itself, else a list.
static bool write_ints(hid_t at, const char *name, const int32_t *v, int n) {
    hsize_t dim = (hsize_t)n;
    hid_t   space = n == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dim, NULL);
    hid_t   attr = space >= 0 ? H5Acreate2(at, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT) : H5I_INVALID_HID;
    bool    ok = attr >= 0 && H5Awrite(attr, H5T_NATIVE_INT32, v) >= 0;
    if (attr >= 0) ok = H5Aclose(attr) >= 0 && ok;
    if (space >= 0) H5Sclose(space);
    return ok;
}

static bool write_attrs(hid_t file, const pl_dataset_attrs *a) {
    int32_t          version = PL_DATASET_VERSION;
    pl_dataset_attrs from = *a;
    bool             ok = write_ints(file, "schema_version", &version, 0) && write_ints(file, "d", &a->d, 0) &&
              write_ints(file, "A", &a->A, 0) && write_ints(file, "vocab_size", &a->vocab_size, 0) &&
              (a->A == 0 || write_ints(file, "tap_layer_ids", a->tap_layer_ids, a->A)) &&
              write_text(file, "tap_numbering", NUMBERING) && write_text(file, "last_hidden", NORM) &&
              write_text(file, "shift", a->top ? STEP : SHIFT);
    for (int i = 0; i < pl_dataset_texts(a) && ok; i++)
        ok = write_text(file, pl_dataset_text_name(i), *pl_dataset_text(&from, i));
    if (a->feature_format == PL_FEATURES_INT8)
        ok = ok && write_text(file, FORMAT, pl_dataset_format_name(a->feature_format));
    return ok && (a->top == 0 || write_ints(file, "top", &a->top, 0));
}

// PL_E_INPUT when there is no such text; *s is from pl_malloc.
static pl_status read_text(hid_t at, const char *name, char **s) {
    *s = NULL;
    hid_t attr = H5Aopen(at, name, H5P_DEFAULT);
    if (attr < 0) return PL_E_INPUT;
    hid_t     type = H5Aget_type(attr), space = H5Aget_space(attr);
    pl_status st = PL_E_INPUT;
    size_t n = type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 ? H5Tget_size(type) : 0;
    if (n > 0 && n < (1u << 20) && space >= 0 && H5Sget_simple_extent_npoints(space) == 1) {
        *s = pl_malloc(n + 1);
        st = *s ? PL_OK : PL_E_MEMORY;
    }
    if (st == PL_OK && H5Aread(attr, type, *s) < 0) {
        pl_free(*s);
        *s = NULL;
        st = PL_E_INPUT;
    }
    if (*s) (*s)[n] = 0;
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    H5Aclose(attr);
    return st;
}

static bool read_ints(hid_t at, const char *name, int32_t *v, int n) {
    hid_t attr = H5Aopen(at, name, H5P_DEFAULT);
    if (attr < 0) return false;
    hid_t space = H5Aget_space(attr), type = H5Aget_type(attr);
    bool  ok = space >= 0 && type >= 0 && H5Sget_simple_extent_npoints(space) == n &&
              H5Tget_class(type) == H5T_INTEGER && H5Aread(attr, H5T_NATIVE_INT32, v) >= 0;
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    H5Aclose(attr);
    return ok;
}

// PL_E_INPUT when it is another text, or none.
static pl_status check_text(hid_t at, const char *name, const char *s) {
    char *have;
    PL_TRY(read_text(at, name, &have));
    pl_status st = strcmp(have, s) == 0 ? PL_OK : PL_E_INPUT;
    pl_free(have);
    return st;
}

static pl_status read_attrs(hid_t file, const char *path, pl_dataset_own_attrs *o, pl_err *err) {
    int32_t version = 0;
    *o = (pl_dataset_own_attrs){0};
    if (!read_ints(file, "schema_version", &version, 1))
        return pl_fail(err, PL_E_INPUT, "%s: not a shard of a dataset (no schema_version)", path);
    if (version != PL_DATASET_VERSION)
        return pl_fail(err, PL_E_INPUT, "%s: schema version %d, this program reads %d; generate the dataset again",
                       path, version, PL_DATASET_VERSION);
    pl_status st = PL_OK;
    bool      traces = H5Aexists(file, "top") > 0;
    for (int i = 0; i < pl_dataset_texts(&(pl_dataset_attrs){.top = traces}) && st == PL_OK; i++)
        st = read_text(file, pl_dataset_text_name(i), &o->text[i]);
    if (st == PL_E_MEMORY) return pl_fail(err, st, "%s: out of memory", path);
    pl_dataset_own_point(o);
    bool ok = st == PL_OK && read_ints(file, "d", &o->a.d, 1) && read_ints(file, "A", &o->a.A, 1) &&
              read_ints(file, "vocab_size", &o->a.vocab_size, 1);
    ok = ok && o->a.d > 0 && o->a.vocab_size > 0 && o->a.A >= 0 && o->a.A <= PL_DATASET_MAX_TAPS;
    ok = ok && (o->a.A == 0 || read_ints(file, "tap_layer_ids", o->a.tap_layer_ids, o->a.A));
    if (traces)
        ok =
            ok && o->a.A == 0 && read_ints(file, "top", &o->a.top, 1) && o->a.top > 0 && o->a.top <= PL_DATASET_MAX_TOP;
    o->a.feature_format = PL_FEATURES_BF16;
    if (ok && H5Aexists(file, FORMAT) > 0) {
        st = check_text(file, FORMAT, pl_dataset_format_name(PL_FEATURES_INT8));
        if (st == PL_E_MEMORY) return pl_fail(err, st, "%s: out of memory", path);
        ok = st == PL_OK && !traces;
        o->a.feature_format = PL_FEATURES_INT8;
    }
    if (!ok) return pl_fail(err, PL_E_INPUT, "%s: an attribute is missing or broken; generate the dataset again", path);
    st = check_text(file, "tap_numbering", NUMBERING);
    if (st == PL_OK) st = check_text(file, "last_hidden", NORM);
    if (st == PL_OK) st = check_text(file, "shift", traces ? STEP : SHIFT);
    if (st == PL_E_MEMORY) return pl_fail(err, st, "%s: out of memory", path);
    if (st != PL_OK)
        return pl_fail(err, PL_E_INPUT,
                       "%s: its conventions (tap_numbering, last_hidden, shift) are not \"%s\", "
                       "\"%s\", \"%s\"; generate the dataset again",
                       path, NUMBERING, NORM, traces ? STEP : SHIFT);
    return PL_OK;
}

// ---- files

static void reset(pl_h5_shard *s) {
    *s = (pl_h5_shard){.file = H5I_INVALID_HID};
    for (pl_column c = 0; c < PL_COLUMNS; c++)
        s->set[c] = H5I_INVALID_HID;
}

static bool packed(const pl_dataset_attrs *a, pl_column c) {
    return a->feature_format == PL_FEATURES_INT8 && (c == PL_COLUMN_FEATURES || c == PL_COLUMN_LAST_HIDDEN);
}

static void set_widths(pl_h5_shard *s, const pl_dataset_attrs *a) {
    pl_columns_shape shape = pl_dataset_shape(a);
    for (pl_column c = 0; c < PL_COLUMNS; c++) {
        s->packed[c] = packed(a, c);
        s->element[c] = s->packed[c] ? PL_ELEMENT_U8 : pl_column_element(c);
        s->width[c] = pl_column_width(c, &shape);
        if (s->packed[c]) s->width[c] = s->width[c] / (size_t)a->d * pl_mxint8_bytes(a->d);
    }
    s->d = a->d;
    s->traces = a->top > 0;
}

static size_t stored_row(const pl_dataset_attrs *a, pl_column c) {
    pl_h5_shard s;
    set_widths(&s, a);
    return s.width[c] * pl_element_size(s.element[c]);
}

int64_t pl_dataset_row_bytes(const pl_dataset_attrs *a) {
    int64_t n = 0;
    for (pl_column c = 0; c < PL_COLUMNS; c++)
        n += (int64_t)stored_row(a, c);
    return n;
}

// Locks are the writer's own (and its folder may be read by others while it works): HDF5 must not add any, for network
// file systems often refuse them. Times stay out, so that the same data are the same bytes.
static hid_t file_access(void) {
    hid_t p = H5Pcreate(H5P_FILE_ACCESS);
    // Strong: what HDF5 left open in a broken file must not keep its descriptor, nor its broken state for the next
    // open.
    if (p >= 0 && (H5Pset_file_locking(p, 0, 1) < 0 || H5Pset_fclose_degree(p, H5F_CLOSE_STRONG) < 0)) {
        H5Pclose(p);
        return H5I_INVALID_HID;
    }
    return p;
}

void pl_h5_close(pl_h5_shard *s) {
    for (pl_column c = 0; c < PL_COLUMNS; c++)
        if (s->set[c] >= 0) H5Dclose(s->set[c]);
    if (s->file >= 0) H5Fclose(s->file);
    reset(s);
}

// Rows of a chunk: about 64 KiB, but not of a few rows each.
static size_t chunk_rows(size_t row_bytes) {
    size_t rows = ((size_t)64 << 10) / row_bytes;
    return rows > 16 ? rows : 16;
}

int64_t pl_dataset_shard_room(const pl_dataset_attrs *a, int64_t rows, int64_t docs) {
    int64_t of_doc = 8 + (int64_t)sizeof(pl_doc_about), bytes = (64 << 10) + (docs + 1) * of_doc;
    for (pl_column c = 0; c < PL_COLUMNS; c++) {
        size_t row = stored_row(a, c);
        if (row == 0) continue;
        int64_t per = (int64_t)chunk_rows(row), chunks = (rows + per - 1) / per;
        bytes += chunks * (per * (int64_t)row + 128); // and its line in the index
    }
    return bytes;
}

// What the attribute dtype says of elements that HDF5 has no type for; NULL: nothing.
static const char *dtype_of(const pl_h5_shard *s, pl_column c) {
    return s->packed[c] ? "mxint8" : s->element[c] == PL_ELEMENT_BF16 ? "bf16" : NULL;
}

// Rows are read and written in order, so two chunks in HDF5's cache are enough.
static hid_t create_set(const pl_h5_shard *s, pl_column column) {
    size_t  width = s->width[column], row = width * pl_element_size(s->element[column]);
    int     rank = rank_of(column);
    hsize_t dims[2] = {0, width}, max[2] = {H5S_UNLIMITED, width}, chunk[2] = {chunk_rows(row), width};
    hid_t   plist = H5Pcreate(H5P_DATASET_CREATE), access = H5Pcreate(H5P_DATASET_ACCESS);
    hid_t   space = H5Screate_simple(rank, dims, max), set = H5I_INVALID_HID;
    int     zero = 0;
    size_t  cache = 2 * row * (size_t)chunk[0];
    // The unused end of the last chunk is written too: as zeroes, not as whatever memory held.
    if (plist >= 0 && access >= 0 && space >= 0 && H5Pset_chunk(plist, rank, chunk) >= 0 &&
        H5Pset_obj_track_times(plist, false) >= 0 && H5Pset_fill_value(plist, H5T_NATIVE_INT, &zero) >= 0 &&
        H5Pset_chunk_cache(access, 101, cache, 1.0) >= 0)
        set = H5Dcreate2(s->file, pl_column_name(column), file_type(s->element[column]), space, H5P_DEFAULT, plist,
                         access);
    if (set >= 0 && dtype_of(s, column) && !write_text(set, "dtype", dtype_of(s, column))) {
        H5Dclose(set);
        set = H5I_INVALID_HID;
    }
    if (plist >= 0) H5Pclose(plist);
    if (access >= 0) H5Pclose(access);
    if (space >= 0) H5Sclose(space);
    return set;
}

pl_status pl_h5_create(pl_h5_shard *s, const char *path, const pl_dataset_attrs *a, pl_err *err) {
    quiet();
    reset(s);
    set_widths(s, a);
    hid_t access = file_access(), create = H5Pcreate(H5P_FILE_CREATE);
    if (access >= 0 && create >= 0 && H5Pset_obj_track_times(create, false) >= 0)
        s->file = H5Fcreate(path, H5F_ACC_TRUNC, create, access);
    if (access >= 0) H5Pclose(access);
    if (create >= 0) H5Pclose(create);
    bool ok = s->file >= 0 && write_attrs(s->file, a);
    for (pl_column c = 0; c < PL_COLUMNS && ok; c++)
        if (s->width[c] > 0) ok = (s->set[c] = create_set(s, c)) >= 0;
    if (ok) return PL_OK;
    pl_status st = h5_fail(err, PL_E_IO, path, "cannot create the shard");
    pl_h5_close(s);
    return st;
}

// Rows [first, first + n) of a column: the file's selection and the memory's shape.
static bool select_rows(const pl_h5_shard *s, pl_column c, int64_t first, int64_t n, hid_t *file_space, hid_t *memory) {
    int     rank = rank_of(c);
    hsize_t start[2] = {(hsize_t)first, 0}, count[2] = {(hsize_t)n, s->width[c]};
    *memory = H5Screate_simple(rank, count, NULL);
    *file_space = H5Dget_space(s->set[c]);
    return *memory >= 0 && *file_space >= 0 &&
           H5Sselect_hyperslab(*file_space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0;
}

static void close_spaces(hid_t a, hid_t b) {
    if (a >= 0) H5Sclose(a);
    if (b >= 0) H5Sclose(b);
}

// n vectors.
static void encode(uint8_t *to, const uint16_t *from, int64_t n, int64_t d) {
    for (int64_t i = 0; i < n; i++)
        pl_mxint8_encode(to + (size_t)i * pl_mxint8_bytes(d), from + i * d, d);
}
static void decode(uint16_t *to, const uint8_t *from, int64_t n, int64_t d) {
    for (int64_t i = 0; i < n; i++)
        pl_mxint8_decode(to + i * d, from + (size_t)i * pl_mxint8_bytes(d), d);
}

static pl_status append_rows(pl_h5_shard *s, const char *path, pl_column c, int64_t n, const void *from, pl_err *err) {
    hsize_t size[2] = {(hsize_t)(s->rows + n), s->width[c]};
    hid_t   there = H5I_INVALID_HID, here = H5I_INVALID_HID;
    bool    ok = H5Dset_extent(s->set[c], size) >= 0 && select_rows(s, c, s->rows, n, &there, &here) &&
              H5Dwrite(s->set[c], memory_type(s->element[c]), here, there, H5P_DEFAULT, from) >= 0;
    close_spaces(there, here);
    return ok ? PL_OK : h5_fail(err, PL_E_IO, path, "cannot write rows");
}

static pl_status append_packed(pl_h5_shard *s, const char *path, pl_column c, int64_t n, const uint16_t *from,
                               pl_err *err) {
    size_t   bytes = (size_t)n * s->width[c];
    uint8_t *rows = pl_malloc(bytes);
    if (!rows) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    encode(rows, from, (int64_t)(bytes / pl_mxint8_bytes(s->d)), s->d);
    pl_status st = append_rows(s, path, c, n, rows, err);
    pl_free(rows);
    return st;
}

pl_status pl_h5_append(pl_h5_shard *s, const char *path, const pl_columns *doc, pl_err *err) {
    int64_t n = doc->n;
    quiet();
    for (pl_column c = 0; c < PL_COLUMNS; c++) {
        if (s->width[c] == 0) continue;
        PL_TRY(s->packed[c] ? append_packed(s, path, c, n, pl_columns_at(doc, c), err)
                            : append_rows(s, path, c, n, pl_columns_at(doc, c), err));
    }
    s->rows += n;
    return PL_OK;
}

// A list of a shard's documents, whole.
static bool write_list(hid_t file, const char *name, hid_t stored, hid_t held, int64_t n, const void *list) {
    hsize_t dim = (hsize_t)n;
    hid_t   plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &dim, NULL), set = H5I_INVALID_HID;
    if (plist >= 0 && space >= 0 && H5Pset_obj_track_times(plist, false) >= 0)
        set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    bool ok = set >= 0 && H5Dwrite(set, held, H5S_ALL, H5S_ALL, H5P_DEFAULT, list) >= 0;
    if (set >= 0) ok = H5Dclose(set) >= 0 && ok;
    if (plist >= 0) H5Pclose(plist);
    if (space >= 0) H5Sclose(space);
    return ok;
}

static int32_t *member(pl_doc_about *about, int list) {
    return (int32_t *)((char *)about + lists[list].at);
}

// of_all: room for one integer of each document.
static bool write_about(pl_h5_shard *s, const pl_doc_about *about, int64_t docs, int32_t *of_all) {
    bool ok = true;
    for (int l = 0; l < LISTS && ok; l++) {
        for (int64_t i = 0; i < docs; i++)
            memcpy(&of_all[i], (const char *)&about[i] + lists[l].at, sizeof *of_all);
        ok = write_list(s->file, lists[l].name, H5T_STD_I32LE, H5T_NATIVE_INT32, docs, of_all);
    }
    return ok;
}

pl_status pl_dataset_as_stored(const pl_dataset_attrs *a, pl_columns *doc, pl_err *err) {
    pl_columns_shape shape = pl_dataset_shape(a);
    uint8_t         *row = NULL;
    for (pl_column c = 0; c < PL_COLUMNS; c++) {
        int64_t   vectors = doc->n * (int64_t)pl_column_width(c, &shape) / a->d;
        uint16_t *x = packed(a, c) ? pl_columns_at(doc, c) : NULL;
        if (x && !row) row = pl_malloc(pl_mxint8_bytes(a->d));
        if (x && !row) return pl_fail(err, PL_E_MEMORY, "dataset: out of memory");
        for (int64_t i = 0; x && i < vectors; i++) {
            encode(row, x + i * a->d, 1, a->d);
            decode(x + i * a->d, row, 1, a->d);
        }
    }
    pl_free(row);
    return PL_OK;
}

pl_status pl_h5_finish(pl_h5_shard *s, const char *path, const int64_t *doc_offsets, const pl_doc_about *about,
                       int64_t docs, pl_err *err) {
    int32_t *of_all = pl_malloc((size_t)docs * sizeof *of_all);
    quiet();
    bool ok = of_all && write_list(s->file, OFFSETS, H5T_STD_I64LE, H5T_NATIVE_INT64, docs + 1, doc_offsets);
    if (!s->traces) ok = ok && write_about(s, about, docs, of_all);
    // A full disk may show only when the chunk caches are flushed, here.
    for (pl_column c = 0; c < PL_COLUMNS; c++) {
        if (s->set[c] >= 0) ok = H5Dclose(s->set[c]) >= 0 && ok;
        s->set[c] = H5I_INVALID_HID;
    }
    ok = ok && H5Fflush(s->file, H5F_SCOPE_LOCAL) >= 0;
    pl_status st = ok ? PL_OK : h5_fail(err, PL_E_IO, path, "cannot finish the shard");
    if (!of_all) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_free(of_all);
    if (H5Fclose(s->file) < 0 && st == PL_OK) st = h5_fail(err, PL_E_IO, path, "cannot close the shard");
    reset(s);
    return st;
}

// ---- reading

// True when the set has this shape and element.
static bool has_shape(hid_t set, int rank, hsize_t rows, hsize_t width, hid_t want) {
    hid_t   space = H5Dget_space(set), type = H5Dget_type(set);
    hsize_t dims[H5S_MAX_RANK] = {0};
    bool    ok = space >= 0 && type >= 0 && H5Sget_simple_extent_ndims(space) == rank &&
              H5Sget_simple_extent_dims(space, dims, NULL) == rank && dims[0] == rows &&
              (rank == 1 || dims[1] == width) && H5Tequal(type, want) > 0;
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return ok;
}

// A set of this very file, stored as the writer does: no link to another file, no external or virtual storage (which
// read whatever they name), no filters (which load code), no chunk larger than a row of the widest model needs.
static hid_t open_set(hid_t file, const char *name) {
    H5L_info_t link;
    if (H5Lget_info(file, name, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD) return H5I_INVALID_HID;
    hid_t   set = H5Dopen2(file, name, H5P_DEFAULT), plist = set >= 0 ? H5Dget_create_plist(set) : H5I_INVALID_HID;
    hid_t   type = set >= 0 ? H5Dget_type(set) : H5I_INVALID_HID;
    hsize_t chunk[H5S_MAX_RANK];
    double  bytes = type >= 0 ? (double)H5Tget_size(type) : 0;
    bool    ok = plist >= 0 && type >= 0 && H5Pget_external_count(plist) == 0 && H5Pget_nfilters(plist) == 0;
    if (ok && H5Pget_layout(plist) == H5D_CHUNKED) {
        int rank = H5Pget_chunk(plist, H5S_MAX_RANK, chunk);
        for (int i = 0; i < rank; i++)
            bytes *= (double)chunk[i];
        ok = rank > 0 && bytes <= MAX_CHUNK;
    } else if (ok) {
        ok = H5Pget_layout(plist) == H5D_CONTIGUOUS;
    }
    if (type >= 0) H5Tclose(type);
    if (plist >= 0) H5Pclose(plist);
    if (!ok && set >= 0) H5Dclose(set);
    return ok ? set : H5I_INVALID_HID;
}

static int64_t first_dim(hid_t set) {
    hid_t   space = set >= 0 ? H5Dget_space(set) : H5I_INVALID_HID;
    hsize_t dims[H5S_MAX_RANK] = {0};
    bool ok = space >= 0 && H5Sget_simple_extent_ndims(space) == 1 && H5Sget_simple_extent_dims(space, dims, NULL) == 1;
    if (space >= 0) H5Sclose(space);
    return ok && dims[0] <= INT64_MAX ? (int64_t)dims[0] : -1;
}

static pl_status open_sets(pl_h5_shard *s, const char *path, pl_err *err) {
    for (pl_column c = 0; c < PL_COLUMNS; c++) {
        if (s->width[c] == 0) continue;
        s->set[c] = open_set(s->file, pl_column_name(c));
        if (s->set[c] < 0)
            return pl_fail(err, PL_E_INPUT,
                           "%s: '%s' is missing, or not stored as a shard stores it; generate the dataset again", path,
                           pl_column_name(c));
        if (c == PL_COLUMN_TOKENS) s->rows = first_dim(s->set[c]);
        int       rank = rank_of(c);
        pl_status st = dtype_of(s, c) ? check_text(s->set[c], "dtype", dtype_of(s, c)) : PL_OK;
        if (st == PL_E_MEMORY) return pl_fail(err, st, "%s: out of memory", path);
        if (st != PL_OK || s->rows < 0 ||
            !has_shape(s->set[c], rank, (hsize_t)s->rows, s->width[c], file_type(s->element[c])))
            return pl_fail(err, PL_E_INPUT,
                           "%s: '%s' has another shape or type than its attributes say; generate the "
                           "dataset again",
                           path, pl_column_name(c));
    }
    hid_t offsets = open_set(s->file, OFFSETS);
    s->docs = first_dim(offsets) - 1;
    bool ok = s->docs >= 0 && has_shape(offsets, 1, (hsize_t)s->docs + 1, 0, H5T_STD_I64LE);
    if (offsets >= 0) H5Dclose(offsets);
    if (!ok)
        return pl_fail(err, PL_E_INPUT, "%s: 'doc_offsets' is missing or broken; generate the dataset again", path);
    return PL_OK;
}

pl_status pl_h5_open(pl_h5_shard *s, const char *path, pl_dataset_own_attrs *o, pl_err *err) {
    quiet();
    reset(s);
    *o = (pl_dataset_own_attrs){0};
    if (pl_path_is_special(path)) return pl_fail(err, PL_E_INPUT, "%s: not a regular file", path);
    hid_t access = file_access();
    if (access >= 0) s->file = H5Fopen(path, H5F_ACC_RDONLY, access);
    pl_status st = s->file >= 0 ? PL_OK : h5_fail(err, PL_E_INPUT, path, "cannot open the shard");
    if (access >= 0) H5Pclose(access);
    if (st == PL_OK) st = read_attrs(s->file, path, o, err);
    if (st == PL_OK) {
        set_widths(s, &o->a);
        st = open_sets(s, path, err);
    }
    if (st != PL_OK) pl_h5_close(s);
    return st;
}

// What is read of a column, of `width` stored elements a row, at `row`: where it belongs, or a place to decode it from.
typedef struct landing {
    void    *to, *at;
    uint8_t *packed; // owned
    int64_t  vectors;
} landing;

static pl_status land(landing *l, const pl_h5_shard *s, const char *path, pl_column c, size_t width, int64_t n,
                      void *to, pl_err *err) {
    *l = (landing){.to = to, .at = to};
    if (!s->packed[c]) return PL_OK;
    l->at = l->packed = pl_malloc((size_t)n * width);
    l->vectors = (int64_t)((size_t)n * width / pl_mxint8_bytes(s->d));
    return l->packed || n == 0 ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
}

static pl_status landed(landing *l, const pl_h5_shard *s, const char *path, pl_column c, bool ok, pl_err *err) {
    if (ok && l->packed) decode(l->to, l->packed, l->vectors, s->d);
    pl_free(l->packed);
    return ok ? PL_OK : h5_fail(err, PL_E_INPUT, path, pl_column_name(c));
}

pl_status pl_h5_read(const pl_h5_shard *s, const char *path, pl_column column, int64_t first, int64_t n, void *to,
                     pl_err *err) {
    hid_t   there = H5I_INVALID_HID, here = H5I_INVALID_HID;
    landing l;
    PL_TRY(land(&l, s, path, column, s->width[column], n, to, err));
    quiet();
    bool ok = select_rows(s, column, first, n, &there, &here) &&
              H5Dread(s->set[column], memory_type(s->element[column]), here, there, H5P_DEFAULT, l.at) >= 0;
    close_spaces(there, here);
    return landed(&l, s, path, column, ok, err);
}

// Tap by tap: one selection of several would bring them into the order in which the file has them.
pl_status pl_h5_read_taps(const pl_h5_shard *s, const char *path, const int *place, int n_taps, int64_t first,
                          int64_t n, void *to, pl_err *err) {
    const pl_column c = PL_COLUMN_FEATURES;
    size_t          tap = s->packed[c] ? pl_mxint8_bytes(s->d) : (size_t)s->d, width = (size_t)n_taps * tap;
    hsize_t         shape[2] = {(hsize_t)n, width}, count[2] = {(hsize_t)n, tap};
    bool            ok = true;
    landing         l;
    PL_TRY(land(&l, s, path, c, width, n, to, err));
    quiet();
    for (int i = 0; i < n_taps && ok; i++) {
        hsize_t from[2] = {(hsize_t)first, (hsize_t)place[i] * tap}, at[2] = {0, (hsize_t)i * tap};
        hid_t   here = H5Screate_simple(2, shape, NULL), there = H5Dget_space(s->set[c]);
        ok = here >= 0 && there >= 0 && H5Sselect_hyperslab(here, H5S_SELECT_SET, at, NULL, count, NULL) >= 0 &&
             H5Sselect_hyperslab(there, H5S_SELECT_SET, from, NULL, count, NULL) >= 0 &&
             H5Dread(s->set[c], memory_type(s->element[c]), here, there, H5P_DEFAULT, l.at) >= 0;
        close_spaces(there, here);
    }
    return landed(&l, s, path, c, ok, err);
}

pl_status pl_h5_read_offsets(const pl_h5_shard *s, const char *path, int64_t *doc_offsets, pl_err *err) {
    quiet();
    hid_t set = open_set(s->file, OFFSETS);
    bool  ok = set >= 0 && H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, doc_offsets) >= 0;
    if (set >= 0) H5Dclose(set);
    if (!ok) return h5_fail(err, PL_E_INPUT, path, OFFSETS);
    ok = doc_offsets[0] == 0 && doc_offsets[s->docs] == s->rows;
    for (int64_t i = 0; i < s->docs && ok; i++)
        ok = doc_offsets[i] < doc_offsets[i + 1];
    return ok ? PL_OK
              : pl_fail(err, PL_E_INPUT, "%s: its documents are out of order; generate the dataset again", path);
}

// List l, in room for one integer of each document.
static pl_status read_list(const pl_h5_shard *s, const char *path, int l, int32_t *of_all, pl_err *err) {
    htri_t there = s->traces ? 0 : H5Lexists(s->file, lists[l].name, H5P_DEFAULT);
    for (int64_t i = 0; i < s->docs; i++)
        of_all[i] = lists[l].absent;
    if (there == 0) return PL_OK;
    hid_t set = there > 0 ? open_set(s->file, lists[l].name) : H5I_INVALID_HID;
    bool  ok = set >= 0 && has_shape(set, 1, (hsize_t)s->docs, 0, H5T_STD_I32LE) &&
              H5Dread(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, of_all) >= 0;
    if (set >= 0) H5Dclose(set);
    for (int64_t i = 0; i < s->docs && ok; i++)
        ok = of_all[i] >= lists[l].min && of_all[i] <= lists[l].max;
    return ok ? PL_OK : pl_fail(err, PL_E_INPUT, "%s: '%s' is broken; generate the dataset again", path, lists[l].name);
}

pl_status pl_h5_read_about(const pl_h5_shard *s, const char *path, pl_doc_about *about, int32_t vocab, int64_t first,
                           pl_err *err) {
    int32_t *of_all = pl_malloc((size_t)s->docs * sizeof *of_all);
    if (!of_all) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    quiet();
    pl_status st = PL_OK;
    for (int l = 0; l < LISTS && st == PL_OK; l++) {
        st = read_list(s, path, l, of_all, err);
        for (int64_t i = 0; i < s->docs && st == PL_OK; i++)
            *member(&about[i], l) = of_all[i];
    }
    for (int64_t i = 0; i < s->docs && st == PL_OK; i++)
        if (about[i].end >= vocab || about[i].back > first + i)
            st = pl_fail(err, PL_E_INPUT, "%s: '%s' is broken; generate the dataset again", path,
                         about[i].end >= vocab ? lists[0].name : lists[2].name);
    pl_free(of_all);
    return st;
}
