#define _GNU_SOURCE 1 // flock
#include "data/dataset/manifest.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <unistd.h>

struct pl_dataset_writer {
    char          *dir;
    int            lock;   // of the folder: two writers would number the same shards
    pl_manifest    m, own; // own: of a part above 0, what it wrote itself
    int64_t        rows_per_shard;
    int            part;
    int64_t        expected;       // shards of the whole; 0: as many as are listed
    bool           numbered, gone; // shards by number; some may have been deleted
    int64_t        index;          // of the next or open shard
    pl_atomic_file file;           // of the open shard; zeroed when there is none
    pl_h5_shard    shard;
    bool           open, failed;
    int64_t       *offsets; // of the open shard's documents
    pl_doc_about  *about;   // of the open shard's documents
    int64_t        docs, cap;
};

// Drops the open shard.
static void drop_shard(pl_dataset_writer *w) {
    if (!w->open) return;
    pl_h5_close(&w->shard);
    pl_atomic_file_abort(&w->file);
    w->open = false;
}

void pl_dataset_writer_destroy(pl_dataset_writer *w) {
    if (!w) return;
    drop_shard(w);
    if (w->lock >= 0) close(w->lock);
    pl_manifest_fini(&w->m);
    pl_manifest_fini(&w->own);
    pl_free(w->offsets);
    pl_free(w->about);
    pl_free(w->dir);
    pl_free(w);
}

static pl_status lock_dir(pl_dataset_writer *w, pl_err *err) {
    PL_TRY(pl_dir_make(w->dir, err));
    w->lock = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->lock < 0) return pl_fail_errno(err, "%s: cannot open the dataset's folder", w->dir);
    // A file system without locks (ENOLCK, ENOTSUP) is no reason to refuse work.
    if (flock(w->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return pl_fail(err, PL_E_INPUT,
                       "%s: another process is writing this dataset; wait for it or choose another "
                       "folder",
                       w->dir);
    return PL_OK;
}

// Its size; 0: it is not there.
static pl_status shard_bytes(const pl_dataset_writer *w, int64_t index, int64_t *bytes, pl_err *err) {
    char  *path = pl_manifest_shard_path(w->dir, index);
    pl_map map = {0};
    *bytes = 0;
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", w->dir);
    pl_status st = pl_path_exists(path) ? pl_map_open(&map, path, err) : PL_OK;
    *bytes = (int64_t)map.size;
    pl_map_close(&map);
    pl_free(path);
    return st;
}

static pl_status remove_shard(const pl_dataset_writer *w, int64_t index, pl_err *err) {
    char *path = pl_manifest_shard_path(w->dir, index);
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", w->dir);
    pl_status st = pl_tree_remove(path, err);
    pl_free(path);
    return st;
}

// What a stopped run left: its manifest's shards must be there in full size (their contents are checked by readers).
static pl_status check_shards(const pl_dataset_writer *w, pl_err *err) {
    for (int64_t i = 0; i < w->m.n; i++) {
        const pl_manifest_shard *s = &w->m.shards[i];
        int64_t                  bytes;
        PL_TRY(shard_bytes(w, s->index, &bytes, err));
        if (bytes == s->bytes || (w->gone && bytes == 0)) continue;
        return pl_fail(err, PL_E_INPUT,
                       "%s/shard-%05lld.h5: has %lld bytes, the manifest says %lld; remove the dataset", w->dir,
                       (long long)s->index, (long long)bytes, (long long)s->bytes);
    }
    return PL_OK;
}

static pl_status resume(pl_dataset_writer *w, const pl_dataset_attrs *attrs, pl_err *err) {
    uint64_t hash;
    PL_TRY(pl_manifest_read(&w->m, w->dir, 0, &hash, err));
    PL_TRY(pl_dataset_attrs_check(w->dir, &w->m.attrs.a, attrs, err));
    if (w->m.complete)
        return pl_fail(err, PL_E_INPUT, "%s: this dataset is complete; remove it or choose another folder", w->dir);
    if (w->numbered && w->part == 0) PL_TRY(pl_dataset_writer_join(w, PL_DATASET_PARTS, err));
    if (w->part == 0) PL_TRY(check_shards(w, err));
    if (w->numbered) return PL_OK;
    w->index = w->m.n;
    if (pl_manifest_whole(&w->m) < w->m.n)
        return pl_fail(err, PL_E_INPUT, "%s: shards are missing in between; remove the dataset", w->dir);
    // A shard that got its name but not its line in the manifest does not exist.
    return remove_shard(w, w->index, err);
}

const char *const pl_dataset_files[] = {"manifest.json", "manifest-*.json", "shard-*.h5", NULL};

pl_status pl_dataset_spares(const char *dir, pl_err *err) {
    char *manifest = pl_manifest_path(dir, 0);
    if (!manifest) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    bool there = pl_path_exists(manifest);
    pl_free(manifest);
    if (there || !pl_path_is_dir(dir)) return PL_OK;
    DIR      *d = opendir(dir);
    pl_status st = d ? PL_OK : pl_fail_errno(err, "%s: cannot look into", dir);
    for (struct dirent *e; st == PL_OK && (e = readdir(d));)
        for (int i = 0; pl_dataset_files[i] && st == PL_OK; i++)
            if (fnmatch(pl_dataset_files[i], e->d_name, 0) == 0)
                st = pl_fail(err, PL_E_INPUT,
                             "%s: holds %s and no manifest.json that says whose it is; move it away, or give another "
                             "--out",
                             dir, e->d_name);
    if (d) closedir(d);
    return st;
}

static pl_status begin(pl_dataset_writer *w, const pl_dataset_attrs *attrs, pl_err *err) {
    if (w->part == 0) {
        PL_TRY(pl_dataset_spares(w->dir, err));
        PL_TRY(lock_dir(w, err));
        pl_dir_sweep(w->dir, pl_dataset_files);
    }
    char *manifest = pl_manifest_path(w->dir, 0);
    if (!manifest) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", w->dir);
    bool there = pl_path_exists(manifest);
    pl_free(manifest);
    if (there) return resume(w, attrs, err);
    if (w->part > 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: rank 0's dataset is not seen here; --out must be a folder that all ranks see", w->dir);
    PL_TRY(pl_dataset_own_copy(&w->m.attrs, attrs, err));
    return pl_manifest_write(&w->m, w->dir, 0, err);
}

static pl_status create(pl_dataset_writer **out, const char *dir, const pl_dataset_attrs *attrs,
                        const pl_dataset_writer *as, pl_err *err) {
    PL_CHECK(attrs->target_fingerprint && attrs->tokenizer_fingerprint && attrs->template_name && attrs->generation &&
                 attrs->vocab_size > 0 && attrs->d > 0 && attrs->A >= 0 && attrs->A <= PL_DATASET_MAX_TAPS &&
                 as->rows_per_shard > 0 && attrs->top >= 0 && attrs->top <= PL_DATASET_MAX_TOP &&
                 (attrs->top == 0 ||
                  (attrs->A == 0 && attrs->drafter_fingerprint && attrs->head_fingerprint && attrs->tree)),
             "vocab_size %d, d %d, A %d, rows_per_shard %lld", attrs->vocab_size, attrs->d, attrs->A,
             (long long)as->rows_per_shard);
    *out = NULL;
    pl_dataset_writer *w = pl_calloc(1, sizeof *w);
    if (!w) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_dataset_attrs stored = *attrs;
    if (stored.feature_format == PL_FEATURES_ANY) stored.feature_format = PL_FEATURES_BF16;
    *w = *as;
    w->lock = -1;
    w->dir = pl_strdup(dir);
    pl_status st = w->dir ? begin(w, &stored, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st != PL_OK) {
        pl_dataset_writer_destroy(w);
        return st;
    }
    *out = w;
    return PL_OK;
}

pl_status pl_dataset_writer_create(pl_dataset_writer **out, const char *dir, const pl_dataset_attrs *attrs,
                                   int64_t rows_per_shard, pl_err *err) {
    return create(out, dir, attrs, &(pl_dataset_writer){.rows_per_shard = rows_per_shard}, err);
}

pl_status pl_dataset_writer_open(pl_dataset_writer **out, const char *dir, const pl_dataset_attrs *attrs, int part,
                                 bool gone, pl_err *err) {
    pl_dataset_writer as = {.rows_per_shard = INT64_MAX, .numbered = true, .part = part, .gone = gone};
    return create(out, dir, attrs, &as, err);
}

int64_t pl_dataset_writer_docs(const pl_dataset_writer *w) {
    return w->m.docs;
}

int64_t pl_dataset_writer_rows(const pl_dataset_writer *w) {
    return w->m.rows;
}

int64_t pl_dataset_writer_has(const pl_dataset_writer *w, int64_t shard) {
    const pl_manifest_shard *s = pl_manifest_find(&w->m, shard);
    int64_t                  bytes = 0;
    if (!s || (w->gone && (shard_bytes(w, shard, &bytes, NULL) != PL_OK || bytes != s->bytes))) return 0;
    return s->bytes;
}

// The shards of this part's own list are those that it wrote; manifest.json's are all that are known.
static pl_status list_shard(pl_dataset_writer *w, const pl_manifest_shard *s, pl_err *err) {
    PL_TRY(pl_manifest_put(&w->m, w->dir, s, err));
    if (w->part == 0) return pl_manifest_write(&w->m, w->dir, 0, err);
    w->own.attrs = w->m.attrs; // lent
    pl_status st = pl_manifest_put(&w->own, w->dir, s, err);
    if (st == PL_OK) st = pl_manifest_write(&w->own, w->dir, w->part, err);
    w->own.attrs = (pl_dataset_own_attrs){0};
    return st;
}

static pl_status open_shard(pl_dataset_writer *w, pl_err *err) {
    char *path = pl_manifest_shard_path(w->dir, w->index);
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", w->dir);
    pl_status st = pl_atomic_file_begin(&w->file, path, err);
    pl_free(path);
    PL_TRY(st);
    st = pl_h5_create(&w->shard, w->file.temp, &w->m.attrs.a, err);
    if (st != PL_OK) {
        pl_atomic_file_abort(&w->file);
        return st;
    }
    w->open = true;
    w->docs = 0;
    return PL_OK;
}

// The shard's hash is taken from the file as it stands on disk, before the name that readers see appears.
static pl_status finish_shard(pl_dataset_writer *w, pl_err *err) {
    int64_t   rows = w->shard.rows, bytes;
    uint64_t  hash;
    pl_status st = pl_h5_finish(&w->shard, w->file.temp, w->offsets, w->about, w->docs, err);
    if (st == PL_OK) st = pl_manifest_hash_file(w->file.temp, &bytes, &hash, err);
    w->open = false;
    if (st != PL_OK) {
        pl_atomic_file_abort(&w->file);
        return st;
    }
    pl_manifest_shard s = {.index = w->index, .rows = rows, .docs = w->docs, .bytes = bytes, .hash = hash};
    PL_TRY(pl_atomic_file_commit(&w->file, err));
    w->index++;
    return list_shard(w, &s, err);
}

static pl_status grow_documents(pl_dataset_writer *w, pl_err *err) {
    if (w->docs + 2 <= w->cap) return PL_OK;
    int64_t  cap = w->cap ? 2 * w->cap : 256;
    int64_t *p = pl_realloc(w->offsets, (size_t)cap * sizeof *p);
    if (!p) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", w->dir);
    w->offsets = p;
    pl_doc_about *about = pl_realloc(w->about, (size_t)cap * sizeof *about);
    if (!about) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", w->dir);
    w->about = about;
    w->cap = cap;
    return PL_OK;
}

static pl_status append(pl_dataset_writer *w, const pl_columns *doc, pl_err *err) {
    if (w->open && w->shard.rows + doc->n > w->rows_per_shard) PL_TRY(finish_shard(w, err));
    if (!w->open) PL_TRY(open_shard(w, err));
    PL_TRY(grow_documents(w, err));
    PL_TRY(pl_h5_append(&w->shard, w->file.temp, doc, err));
    w->about[w->docs] = doc->about ? *doc->about : (pl_doc_about){.end = -1};
    w->offsets[0] = 0;
    w->offsets[++w->docs] = w->shard.rows;
    return PL_OK;
}

pl_status pl_dataset_append(pl_dataset_writer *w, const pl_columns *doc, pl_err *err) {
    pl_columns_shape shape = pl_dataset_shape(&w->m.attrs.a);
    PL_CHECK(!w->failed, "%s: append after a failure", w->dir);
    PL_CHECK(doc->n > 0, "%lld rows", (long long)doc->n);
    for (pl_column c = 0; c < PL_COLUMNS; c++)
        PL_CHECK(pl_columns_at(doc, c) || pl_column_width(c, &shape) == 0, "a document without %s", pl_column_name(c));
    int32_t v = w->m.attrs.a.vocab_size;
    PL_CHECK(!doc->about || (doc->about->end >= -1 && doc->about->end < v), "a document that ends with token %d of %d",
             doc->about->end, v);
    pl_status st = append(w, doc, err);
    w->failed = st != PL_OK;
    return st;
}

pl_status pl_dataset_flush(pl_dataset_writer *w, pl_err *err) {
    PL_CHECK(!w->failed, "%s: flush after a failure", w->dir);
    pl_status st = w->open ? finish_shard(w, err) : PL_OK;
    w->failed = st != PL_OK;
    return st;
}

pl_status pl_dataset_writer_shard(pl_dataset_writer *w, int64_t shard, pl_err *err) {
    PL_CHECK(w->numbered, "%s: shard %lld of a dataset whose shards are as they come", w->dir, (long long)shard);
    PL_TRY(pl_dataset_flush(w, err));
    w->index = shard;
    return PL_OK;
}

// The list of one part, if there is one; it is gone afterwards.
static pl_status take_part(pl_dataset_writer *w, int part, pl_err *err) {
    pl_manifest m;
    uint64_t    hash;
    char       *path = pl_manifest_path(w->dir, part);
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", w->dir);
    if (!pl_path_exists(path)) {
        pl_free(path);
        return PL_OK;
    }
    pl_status st = pl_manifest_read(&m, w->dir, part, &hash, err);
    if (st == PL_OK) st = pl_dataset_attrs_check(path, &m.attrs.a, &w->m.attrs.a, err);
    for (int64_t i = 0; i < m.n && st == PL_OK; i++)
        st = pl_manifest_put(&w->m, w->dir, &m.shards[i], err);
    pl_manifest_fini(&m);
    if (st == PL_OK) st = pl_manifest_write(&w->m, w->dir, 0, err);
    if (st == PL_OK) st = pl_tree_remove(path, err);
    pl_free(path);
    return st;
}

void pl_dataset_writer_expect(pl_dataset_writer *w, int64_t shards) {
    w->expected = shards;
}

pl_status pl_dataset_writer_join(pl_dataset_writer *w, int parts, pl_err *err) {
    PL_CHECK(w->numbered && w->part == 0, "%s: part %d joins", w->dir, w->part);
    for (int part = 1; part < parts; part++)
        PL_TRY(take_part(w, part, err));
    return PL_OK;
}

pl_status pl_dataset_writer_drop(pl_dataset_writer *w, int64_t shard, pl_err *err) {
    PL_CHECK(w->gone && w->part == 0, "%s: part %d drops a shard", w->dir, w->part);
    return remove_shard(w, shard, err);
}

static pl_status complete(pl_dataset_writer *w, pl_err *err) {
    if (w->part > 0) return PL_OK;
    if (w->numbered) PL_TRY(pl_dataset_writer_join(w, PL_DATASET_PARTS, err));
    int64_t whole = pl_manifest_whole(&w->m);
    if (whole < w->m.n || whole < w->expected)
        return pl_fail(err, PL_E_INPUT,
                       "%s/shard-%05lld.h5: is not here; was it written on another machine? --out must be a folder "
                       "that all ranks see",
                       w->dir, (long long)whole);
    w->m.complete = true;
    return pl_manifest_write(&w->m, w->dir, 0, err);
}

pl_status pl_dataset_writer_close(pl_dataset_writer *w, pl_err *err) {
    pl_status st = pl_dataset_flush(w, err);
    if (st == PL_OK) st = complete(w, err);
    pl_dataset_writer_destroy(w);
    return st;
}
