#include "data/dataset/dataset.h"
#include "data/dataset/manifest.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"

enum { OPEN_SHARDS = 4 }; // HDF5 files kept open; the least recently used gives way

typedef struct shard_state {
    int64_t      *offsets; // [docs + 1] within the shard; NULL until first opened
    pl_doc_about *about;   // [docs], likewise
    bool          verified;
} shard_state;

typedef struct open_shard {
    int64_t     index; // -1: free
    uint64_t    used;
    pl_h5_shard h5;
} open_shard;

struct pl_dataset {
    char        *dir;
    pl_manifest  m;
    shard_state *state; // [m.n]
    open_shard   open[OPEN_SHARDS];
    uint64_t     clock;
    char         fingerprint[17];
    int          n_taps, place[PL_DATASET_MAX_TAPS]; // of the stored taps, those that reading gives
    bool         some;                               // they are not simply all of them
    bool         planned;                            // its shards come and go
};

void pl_dataset_close(pl_dataset *ds) {
    if (!ds) return;
    for (int i = 0; i < OPEN_SHARDS; i++)
        if (ds->open[i].index >= 0) pl_h5_close(&ds->open[i].h5);
    for (int64_t i = 0; ds->state && i < ds->m.n; i++)
        pl_free(ds->state[i].offsets), pl_free(ds->state[i].about);
    pl_free(ds->state);
    pl_manifest_fini(&ds->m);
    pl_free(ds->dir);
    pl_free(ds);
}

// ---- shards

static pl_status right_size(const pl_manifest_shard *s, const char *path, int64_t bytes, pl_err *err) {
    if (bytes == s->bytes) return PL_OK;
    return pl_fail(err, PL_E_INPUT,
                   "%s: broken shard: %lld bytes, the manifest says %lld; copy it again or "
                   "generate the dataset again",
                   path, (long long)bytes, (long long)s->bytes);
}

// The checksum, before HDF5 parses a byte: its library is not made for hostile or broken files.
static pl_status verify(pl_dataset *ds, int64_t i, const char *path, pl_err *err) {
    const pl_manifest_shard *s = &ds->m.shards[i];
    int64_t                  bytes;
    uint64_t                 hash;
    if (ds->state[i].verified) return PL_OK;
    PL_TRY(pl_manifest_hash_file(path, &bytes, &hash, err));
    PL_TRY(right_size(s, path, bytes, err));
    if (hash != s->hash) {
        char have[17], want[17];
        pl_hash_hex(have, hash);
        pl_hash_hex(want, s->hash);
        return pl_fail(err, PL_E_INPUT,
                       "%s: broken shard: its checksum is %s, the manifest says %s; copy it again or "
                       "generate the dataset again",
                       path, have, want);
    }
    ds->state[i].verified = true;
    return PL_OK;
}

static pl_status load_documents(pl_dataset *ds, int64_t i, const pl_h5_shard *h5, const char *path, pl_err *err) {
    if (ds->state[i].offsets) return PL_OK;
    int64_t      *offsets = pl_malloc(((size_t)h5->docs + 1) * sizeof *offsets);
    pl_doc_about *about = pl_malloc((size_t)h5->docs * sizeof *about);
    pl_status     st = offsets && about ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (st == PL_OK) st = pl_h5_read_offsets(h5, path, offsets, err);
    if (st == PL_OK) st = pl_h5_read_about(h5, path, about, ds->m.attrs.a.vocab_size, ds->m.shards[i].first_doc, err);
    if (st == PL_OK) {
        ds->state[i].offsets = offsets;
        ds->state[i].about = about;
    } else {
        pl_free(offsets);
        pl_free(about);
    }
    return st;
}

static pl_status open_h5(pl_dataset *ds, int64_t i, const char *path, pl_h5_shard *h5, pl_err *err) {
    pl_dataset_own_attrs o;
    PL_TRY(verify(ds, i, path, err));
    pl_status st = pl_h5_open(h5, path, &o, err);
    if (st == PL_OK) {
        st = pl_dataset_attrs_check(path, &o.a, &ds->m.attrs.a, err);
        if (st == PL_OK && (h5->rows != ds->m.shards[i].rows || h5->docs != ds->m.shards[i].docs))
            st = pl_fail(err, PL_E_INPUT, "%s: holds %lld rows in %lld documents, the manifest says %lld in %lld", path,
                         (long long)h5->rows, (long long)h5->docs, (long long)ds->m.shards[i].rows,
                         (long long)ds->m.shards[i].docs);
        if (st == PL_OK) st = load_documents(ds, i, h5, path, err);
        if (st != PL_OK) pl_h5_close(h5);
    }
    pl_dataset_own_fini(&o);
    return st;
}

// Shard i, open. *path (for messages) is the caller's.
static pl_status get_shard(pl_dataset *ds, int64_t i, const pl_h5_shard **h5, char **path, pl_err *err) {
    *path = pl_manifest_shard_path(ds->dir, i);
    if (!*path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", ds->dir);
    open_shard *slot = &ds->open[0];
    for (int k = 0; k < OPEN_SHARDS; k++) {
        open_shard *s = &ds->open[k];
        if (s->index == i) {
            s->used = ++ds->clock;
            *h5 = &s->h5;
            return PL_OK;
        }
        if (s->used < slot->used) slot = s; // a free one was never used
    }
    if (slot->index >= 0) pl_h5_close(&slot->h5);
    slot->index = -1;
    slot->used = 0;
    PL_TRY(open_h5(ds, i, *path, &slot->h5, err));
    slot->index = i;
    slot->used = ++ds->clock;
    *h5 = &slot->h5;
    return PL_OK;
}

static pl_status touch(pl_dataset *ds, int64_t i, pl_err *err) {
    const pl_h5_shard *h5;
    char              *path;
    pl_status          st = get_shard(ds, i, &h5, &path, err);
    pl_free(path);
    return st;
}

// The shard that holds item `at`, where first(i) counts rows or documents before shard i.
static int64_t shard_of(const pl_dataset *ds, int64_t at, bool docs) {
    int64_t lo = 0, hi = ds->m.n;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if ((docs ? ds->m.shards[mid].first_doc : ds->m.shards[mid].first_row) <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

// ---- open

// Which of the stored taps reading gives: those that are wanted, or all.
static pl_status choose_taps(pl_dataset *ds, const char *dir, const pl_dataset_attrs *want, pl_err *err) {
    const pl_dataset_attrs *have = &ds->m.attrs.a;
    PL_TRY(pl_dataset_taps_find(ds->place, dir, have, want->A < 0 ? have : want, err));
    ds->n_taps = want->A < 0 ? have->A : want->A;
    ds->some = ds->n_taps != have->A;
    for (int i = 0; i < ds->n_taps; i++)
        ds->some = ds->some || ds->place[i] != i;
    return PL_OK;
}

// Shards behind one that has not been made yet are numbered, but their documents are not.
static void leave_out_behind_gaps(pl_manifest *m) {
    for (int64_t whole = pl_manifest_whole(m); m->n > whole; m->n--) {
        m->rows -= m->shards[m->n - 1].rows;
        m->docs -= m->shards[m->n - 1].docs;
    }
}

static pl_status open_dir(pl_dataset *ds, const char *dir, const pl_dataset_open_options *opt, pl_err *err) {
    uint64_t hash;
    ds->dir = pl_strdup(dir);
    if (!ds->dir) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    PL_TRY(pl_manifest_read(&ds->m, dir, 0, &hash, err));
    pl_hash_hex(ds->fingerprint, hash);
    if (!ds->m.complete) leave_out_behind_gaps(&ds->m);
    pl_dataset_attrs want = opt->want ? *opt->want : (pl_dataset_attrs){.A = -1}, but_taps = want;
    but_taps.A = -1;
    PL_TRY(pl_dataset_attrs_check(dir, &ds->m.attrs.a, &but_taps, err));
    PL_TRY(choose_taps(ds, dir, &want, err));
    if (!ds->m.complete && !opt->incomplete)
        return pl_fail(err, PL_E_INPUT,
                       "%s: this dataset is not complete (%lld documents so far); run its generation "
                       "to the end",
                       dir, (long long)ds->m.docs);
    ds->state = pl_calloc((size_t)ds->m.n, sizeof *ds->state);
    if (!ds->state) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    for (int64_t i = 0; i < ds->m.n && !opt->lazy; i++)
        PL_TRY(touch(ds, i, err));
    return PL_OK;
}

pl_status pl_dataset_open(pl_dataset **out, const char *dir, const pl_dataset_open_options *opt, pl_err *err) {
    static const pl_dataset_open_options any = {0};
    *out = NULL;
    pl_dataset *ds = pl_calloc(1, sizeof *ds);
    if (!ds) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    for (int i = 0; i < OPEN_SHARDS; i++)
        ds->open[i].index = -1;
    pl_status st = open_dir(ds, dir, opt ? opt : &any, err);
    if (st != PL_OK) {
        pl_dataset_close(ds);
        return st;
    }
    *out = ds;
    return PL_OK;
}

// ---- shards that come and go

pl_status pl_dataset_open_planned(pl_dataset **out, const char *dir, const pl_dataset_attrs *want,
                                  const int64_t *first_doc, int64_t n, pl_err *err) {
    pl_dataset_open_options opt = {.want = want, .lazy = true, .incomplete = true};
    pl_dataset             *ds;
    PL_TRY(pl_dataset_open(&ds, dir, &opt, err));
    pl_manifest_shard *shards = pl_calloc((size_t)n + 1, sizeof *shards);
    shard_state       *state = pl_calloc((size_t)n + 1, sizeof *state);
    for (int64_t k = 0; shards && k < n; k++)
        shards[k] = (pl_manifest_shard){.index = k, .docs = first_doc[k + 1] - first_doc[k], .first_doc = first_doc[k]};
    pl_free(ds->m.shards);
    pl_free(ds->state); // nothing of it was read yet
    ds->m.shards = shards;
    ds->state = state;
    ds->m.n = shards && state ? n : 0;
    ds->m.docs = first_doc[n];
    ds->planned = true;
    pl_status st = shards && state ? pl_dataset_refresh(ds, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK)
        *out = ds;
    else
        pl_dataset_close(ds);
    return st;
}

pl_status pl_dataset_refresh(pl_dataset *ds, pl_err *err) {
    pl_manifest m;
    uint64_t    hash;
    PL_CHECK(ds->planned, "%s: is read as it stands", ds->dir);
    pl_status st = pl_manifest_read(&m, ds->dir, 0, &hash, err);
    for (int64_t i = 0; i < m.n && st == PL_OK; i++) {
        const pl_manifest_shard *s = &m.shards[i];
        pl_manifest_shard       *mine = s->index < ds->m.n ? &ds->m.shards[s->index] : NULL;
        if (!mine || mine->docs != s->docs) {
            st = pl_fail(err, PL_E_INPUT,
                         "%s/shard-%05lld.h5: holds other documents than it would now; remove the dataset", ds->dir,
                         (long long)s->index);
            break;
        }
        mine->rows = s->rows;
        mine->bytes = s->bytes;
        mine->hash = s->hash;
    }
    pl_manifest_fini(&m);
    return st;
}

void pl_dataset_forget(pl_dataset *ds, int64_t shard) {
    shard_state *s = &ds->state[shard];
    for (int k = 0; k < OPEN_SHARDS; k++) {
        open_shard *open = &ds->open[k];
        if (open->index != shard) continue;
        pl_h5_close(&open->h5);
        *open = (open_shard){.index = -1};
    }
    pl_free(s->offsets);
    pl_free(s->about);
    *s = (shard_state){0};
}

// ---- shards that are elsewhere

pl_status pl_dataset_here(const pl_dataset *ds, int64_t shard, bool *here, pl_err *err) {
    char     *path = pl_manifest_shard_path(ds->dir, shard);
    pl_map    m = {0};
    pl_status st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", ds->dir);
    *here = path && pl_path_exists(path);
    if (*here) st = pl_map_open(&m, path, err);
    if (*here && st == PL_OK) st = right_size(&ds->m.shards[shard], path, (int64_t)m.size, err);
    pl_map_close(&m);
    pl_free(path);
    return st;
}

void pl_dataset_tell(pl_dataset *ds, int64_t shard, int64_t *offsets, pl_doc_about *about) {
    shard_state *s = &ds->state[shard];
    PL_CHECK(!s->offsets && offsets[ds->m.shards[shard].docs] == ds->m.shards[shard].rows, "shard %lld is told amiss",
             (long long)shard);
    s->offsets = offsets;
    s->about = about;
}

int64_t pl_dataset_shard_of(const pl_dataset *ds, int64_t doc) {
    return shard_of(ds, doc, true);
}

int64_t pl_dataset_shards(const pl_dataset *ds) {
    return ds->m.n;
}

int64_t pl_dataset_shard_bytes(const pl_dataset *ds, int64_t shard) {
    return ds->m.shards[shard].bytes;
}

int64_t pl_dataset_shard_rows(const pl_dataset *ds, int64_t shard) {
    return ds->m.shards[shard].rows;
}

int64_t pl_dataset_shard_docs(const pl_dataset *ds, int64_t shard) {
    return ds->m.shards[shard].docs;
}

const pl_dataset_attrs *pl_dataset_get_attrs(const pl_dataset *ds) {
    return &ds->m.attrs.a;
}

pl_columns_shape pl_dataset_shape(const pl_dataset_attrs *a) {
    return (pl_columns_shape){.d = a->d, .taps = a->A, .top = a->top};
}

pl_columns_shape pl_dataset_read_shape(const pl_dataset *ds) {
    pl_columns_shape s = pl_dataset_shape(&ds->m.attrs.a);
    s.taps = ds->n_taps;
    return s;
}

int64_t pl_dataset_docs(const pl_dataset *ds) {
    return ds->m.docs;
}

int64_t pl_dataset_rows(const pl_dataset *ds) {
    return ds->m.rows;
}

bool pl_dataset_complete(const pl_dataset *ds) {
    return ds->m.complete;
}

const char *pl_dataset_fingerprint(const pl_dataset *ds) {
    return ds->fingerprint;
}

// ---- read

// Whatever a producer wrote.
static pl_status check_rows(const pl_dataset *ds, const char *path, const pl_columns *to, int64_t at, int64_t n,
                            pl_err *err) {
    pl_columns_shape shape = pl_dataset_shape(&ds->m.attrs.a);
    const char      *bad = pl_columns_broken(to, &shape, at, n, ds->m.attrs.a.vocab_size);
    return bad ? pl_fail(err, PL_E_INPUT, "%s: %s is out of range; generate the dataset again", path, bad) : PL_OK;
}

// Rows [first, first + n) of one shard go to place `at` of the caller's buffers.
static pl_status read_part(pl_dataset *ds, int64_t shard, int64_t first, int64_t n, const pl_columns *to, int64_t at,
                           pl_err *err) {
    const pl_h5_shard *h5;
    char              *path;
    pl_columns_shape   shape = pl_dataset_read_shape(ds);
    pl_status          st = get_shard(ds, shard, &h5, &path, err);
    for (pl_column c = 0; c < PL_COLUMNS && st == PL_OK; c++) {
        uint8_t *column = pl_columns_at(to, c);
        size_t   row = pl_column_width(c, &shape) * pl_element_size(pl_column_element(c));
        if (!column || row == 0) continue;
        column += (size_t)at * row;
        if (c == PL_COLUMN_FEATURES && ds->some)
            st = pl_h5_read_taps(h5, path, ds->place, ds->n_taps, first, n, column, err);
        else
            st = pl_h5_read(h5, path, c, first, n, column, err);
    }
    if (st == PL_OK) st = check_rows(ds, path, to, at, n, err);
    pl_free(path);
    return st;
}

pl_status pl_dataset_read(pl_dataset *ds, int64_t first, int64_t n, const pl_columns *to, pl_err *err) {
    PL_CHECK(first >= 0 && n >= 0 && first <= ds->m.rows && n <= ds->m.rows - first, "rows [%lld, +%lld) of %lld",
             (long long)first, (long long)n, (long long)ds->m.rows);
    for (int64_t done = 0; done < n;) {
        int64_t                  i = shard_of(ds, first + done, false);
        const pl_manifest_shard *s = &ds->m.shards[i];
        int64_t                  at = first + done - s->first_row, part = s->rows - at;
        if (part > n - done) part = n - done;
        PL_TRY(read_part(ds, i, at, part, to, done, err));
        done += part;
    }
    return PL_OK;
}

pl_status pl_dataset_doc(pl_dataset *ds, int64_t i, int64_t *first_row, int64_t *n, pl_err *err) {
    PL_CHECK(i >= 0 && i < ds->m.docs, "document %lld of %lld", (long long)i, (long long)ds->m.docs);
    int64_t k = shard_of(ds, i, true), local = i - ds->m.shards[k].first_doc;
    if (!ds->state[k].offsets) PL_TRY(touch(ds, k, err));
    const int64_t *offsets = ds->state[k].offsets;
    PL_CHECK(offsets, "shard %lld was read without its offsets", (long long)k);
    *first_row = ds->m.shards[k].first_row + offsets[local];
    *n = offsets[local + 1] - offsets[local];
    return PL_OK;
}

pl_status pl_dataset_doc_about(pl_dataset *ds, int64_t i, pl_doc_about *about, pl_err *err) {
    PL_CHECK(i >= 0 && i < ds->m.docs, "document %lld of %lld", (long long)i, (long long)ds->m.docs);
    int64_t k = shard_of(ds, i, true);
    if (!ds->state[k].about) PL_TRY(touch(ds, k, err));
    *about = ds->state[k].about[i - ds->m.shards[k].first_doc];
    return PL_OK;
}

bool pl_dataset_held_out(const int32_t *tokens, const uint8_t *mask, int64_t n, uint64_t seed, int64_t every) {
    int64_t prompt = 0;
    while (prompt < n && !mask[prompt])
        prompt++;
    uint64_t h = pl_hash_more(pl_hash(&seed, sizeof seed), tokens, (size_t)prompt * sizeof *tokens);
    return every > 0 && h % (uint64_t)every == 0;
}

pl_status pl_dataset_read_doc(pl_dataset *ds, int64_t i, const pl_columns *to, pl_err *err) {
    int64_t first, n, k = shard_of(ds, i, true);
    PL_TRY(pl_dataset_doc(ds, i, &first, &n, err));
    return read_part(ds, k, first - ds->m.shards[k].first_row, n, to, 0, err);
}

pl_status pl_dataset_doc_held_out(pl_dataset *ds, int64_t i, uint64_t seed, int64_t every, bool *held, pl_err *err) {
    pl_doc_about about;
    int64_t      first, n;
    *held = false;
    if (every <= 0) return PL_OK;
    PL_TRY(pl_dataset_doc_about(ds, i, &about, err));
    PL_TRY(pl_dataset_doc(ds, i - about.back, &first, &n, err));
    int32_t  *tokens = pl_malloc((size_t)n * sizeof *tokens);
    uint8_t  *mask = pl_malloc((size_t)n);
    pl_status st = tokens && mask ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", ds->dir);
    if (st == PL_OK) st = pl_dataset_read(ds, first, n, &(pl_columns){.tokens = tokens, .loss_mask = mask}, err);
    if (st == PL_OK) *held = pl_dataset_held_out(tokens, mask, n, seed, every);
    pl_free(tokens);
    pl_free(mask);
    return st;
}
