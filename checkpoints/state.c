#define _GNU_SOURCE 1 // fchmod
#include "checkpoints/state.h"
#include "checkpoints/names.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a little-endian machine");

#define MAGIC "PLSTATE1"
enum { VERSION = 1, BLOB_ALIGN = 64, SUM = 8 };

typedef struct header {
    char     magic[8];
    uint32_t version, count;
    uint64_t table; // bytes
} header;

typedef struct row {
    uint64_t name; // bytes of the name, which follows with its zeros
    char     dtype[8];
    uint64_t count, offset, hash;
} row;

_Static_assert(sizeof(header) == 24 && sizeof(row) == 40, "the layout on disk");

struct pl_state {
    pl_map         map;
    pl_state_item *items;
    int64_t        count;
    pl_names       names;
};

static size_t up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static size_t padded_name(size_t n) {
    return (n / 8 + 1) * 8;
}

// ---- writing ----

static pl_status append_zeros(pl_atomic_file *f, size_t n, pl_err *err) {
    static const uint8_t zeros[BLOB_ALIGN];
    PL_CHECK(n <= sizeof zeros, "%zu zeros", n);
    return pl_atomic_file_append(f, zeros, n, err);
}

// Header and table (heap, *bytes long), with the place of every blob; sums: of the blobs, NULL: not known yet.
static uint8_t *make_front(const pl_state_item *items, int64_t n, const uint64_t *sums, size_t *bytes) {
    size_t table = 0;
    for (int64_t i = 0; i < n; i++)
        table += sizeof(row) + padded_name(strlen(items[i].name));
    uint8_t *front = pl_calloc(1, sizeof(header) + table);
    if (!front) return NULL;
    header h = {.version = VERSION, .count = (uint32_t)n, .table = table};
    memcpy(h.magic, MAGIC, 8);
    memcpy(front, &h, sizeof h);
    uint8_t *to = front + sizeof h;
    size_t   at = sizeof h + table;
    for (int64_t i = 0; i < n; i++) {
        const pl_state_item *item = &items[i];
        at = up(at, BLOB_ALIGN);
        row r = {.name = strlen(item->name), .count = (uint64_t)item->count, .offset = at, .hash = sums ? sums[i] : 0};
        memcpy(r.dtype, pl_dtype_name(item->dtype), strlen(pl_dtype_name(item->dtype)));
        memcpy(to, &r, sizeof r);
        memcpy(to + sizeof r, item->name, r.name);
        to += sizeof r + padded_name(r.name);
        at += pl_size_mul((size_t)item->count, pl_dtype_size(item->dtype), 1);
    }
    *bytes = sizeof h + table;
    return front;
}

// The item's bytes into the file; *sum: theirs.
static pl_status write_blob(pl_atomic_file *f, const pl_state_item *item, uint64_t *sum, pl_err *err) {
    size_t each = pl_dtype_size(item->dtype), bytes = (size_t)item->count * each;
    if (!item->fill) {
        *sum = pl_hash(item->data, bytes);
        return pl_atomic_file_append(f, item->data, bytes, err);
    }
    uint8_t   *part = pl_malloc(PL_STATE_STREAM * each);
    pl_hasher *h = pl_hash_begin();
    pl_status  st = part && h ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", f->path);
    for (int64_t at = 0; at < item->count && st == PL_OK; at += PL_STATE_STREAM) {
        int64_t n = item->count - at < PL_STATE_STREAM ? item->count - at : PL_STATE_STREAM;
        st = item->fill(item->arg, at, part, n, err);
        if (st != PL_OK) break;
        pl_hash_feed(h, part, (size_t)n * each);
        st = pl_atomic_file_append(f, part, (size_t)n * each, err);
    }
    *sum = pl_hash_end(h);
    pl_free(part);
    return st;
}

static pl_status check_names(const char *path, const pl_state_item *items, int64_t n, pl_err *err) {
    pl_names names = {0};
    int64_t  added = 0;
    for (int64_t i = 0; i < n && added != -2; i++) {
        size_t len = strlen(items[i].name);
        PL_CHECK(len >= 1 && len <= PL_STATE_NAME_MAX, "a name of %zu bytes", len);
        PL_CHECK(items[i].count >= 0 && (items[i].data || items[i].fill || items[i].count == 0), "%s: no data",
                 items[i].name);
        added = pl_names_add(&names, items[i].name);
        PL_CHECK(added != -1, "two items named %s", items[i].name);
    }
    pl_names_fini(&names);
    return added != -2 ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
}

// The front comes last, when the sums are known; until then its place is taken by one without.
static pl_status write_all(pl_atomic_file *f, const pl_state_item *items, int64_t n, uint64_t *sums, pl_err *err) {
    size_t   bytes, at;
    uint8_t *front = make_front(items, n, NULL, &bytes);
    if (!front) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", f->path);
    pl_status st = pl_atomic_file_append(f, front, bytes, err);
    pl_free(front);
    at = bytes;
    for (int64_t i = 0; i < n && st == PL_OK; i++) {
        st = append_zeros(f, up(at, BLOB_ALIGN) - at, err);
        if (st == PL_OK) st = write_blob(f, &items[i], &sums[i], err);
        at = up(at, BLOB_ALIGN) + (size_t)items[i].count * pl_dtype_size(items[i].dtype);
    }
    PL_TRY(st);
    PL_TRY(append_zeros(f, up(at, 8) - at, err));
    front = make_front(items, n, sums, &bytes);
    if (!front) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", f->path);
    uint64_t sum = pl_hash(front, bytes);
    st = pl_atomic_file_append(f, &sum, SUM, err);
    if (st == PL_OK) st = pl_atomic_file_rewrite(f, 0, front, bytes, err);
    pl_free(front);
    return st;
}

static pl_status make_private(const pl_atomic_file *f, pl_err *err) {
    return fchmod(f->fd, 0600) == 0 ? PL_OK : pl_fail_errno(err, "%s: cannot be made private", f->path);
}

static pl_status write_file(const char *path, const pl_state_item *items, int64_t n, bool private, pl_err *err) {
    PL_CHECK(n >= 0 && n <= PL_STATE_ITEMS_MAX, "%" PRId64 " items", n);
    pl_atomic_file f;
    PL_TRY(check_names(path, items, n, err));
    uint64_t *sums = pl_calloc((size_t)n + 1, sizeof *sums);
    if (!sums) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = pl_atomic_file_begin(&f, path, err);
    if (st == PL_OK && private) st = make_private(&f, err); // before its first byte
    if (st == PL_OK) st = write_all(&f, items, n, sums, err);
    if (st == PL_OK)
        st = pl_atomic_file_commit(&f, err);
    else
        pl_atomic_file_abort(&f);
    pl_free(sums);
    return st;
}

pl_status pl_state_write(const char *path, const pl_state_item *items, int64_t n, pl_err *err) {
    return write_file(path, items, n, false, err);
}

pl_status pl_state_write_private(const char *path, const pl_state_item *items, int64_t n, pl_err *err) {
    return write_file(path, items, n, true, err);
}

// ---- reading ----

static pl_status damaged(pl_err *err, const char *path, const char *why) {
    return pl_fail(err, PL_E_INPUT, "%s: %s; the file is damaged, resume from another checkpoint", path, why);
}

static bool zeros(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

static bool find_dtype(const char name[8], pl_dtype *out) {
    for (int t = 0; t < PL_DTYPE_COUNT; t++) {
        char padded[8] = {0};
        memcpy(padded, pl_dtype_name((pl_dtype)t), strlen(pl_dtype_name((pl_dtype)t)));
        if (memcmp(padded, name, 8) == 0) {
            *out = (pl_dtype)t;
            return true;
        }
    }
    return false;
}

// Row and blob number i. *row_at and *blob_at move on.
static pl_status read_item(pl_state *s, size_t *row_at, size_t table_end, size_t *blob_at, size_t blobs_end,
                           const char *path, pl_err *err) {
    const uint8_t *base = s->map.data;
    row            r;
    pl_dtype       dtype;
    size_t         size;
    if (table_end - *row_at < sizeof r) return damaged(err, path, "the table ends too early");
    memcpy(&r, base + *row_at, sizeof r);
    const uint8_t *name = base + *row_at + sizeof r;
    size_t         room = table_end - *row_at - sizeof r;
    if (r.name < 1 || r.name > PL_STATE_NAME_MAX || padded_name(r.name) > room || memchr(name, 0, r.name) ||
        !zeros(name + r.name, padded_name(r.name) - r.name))
        return damaged(err, path, "a name in the table is not one");
    if (!find_dtype(r.dtype, &dtype) || r.count > INT64_MAX ||
        __builtin_mul_overflow((size_t)r.count, pl_dtype_size(dtype), &size))
        return damaged(err, path, "a type or count in the table makes no sense");
    size_t begin = up(*blob_at, BLOB_ALIGN);
    if (r.offset != begin || begin > blobs_end || size > blobs_end - begin)
        return damaged(err, path, "an item lies outside of its place");
    if (!zeros(base + *blob_at, begin - *blob_at)) return damaged(err, path, "something between the items");
    if (pl_hash(base + begin, size) != r.hash)
        return pl_fail(err, PL_E_INPUT, "%s: %s: wrong checksum; the file is damaged, resume from another checkpoint",
                       path, (const char *)name);
    int64_t added = pl_names_add(&s->names, (const char *)name);
    if (added == -2) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (added == -1) return damaged(err, path, "two items of one name");
    s->items[s->count++] =
        (pl_state_item){.name = (const char *)name, .dtype = dtype, .count = (int64_t)r.count, .data = base + begin};
    *row_at += sizeof r + padded_name(r.name);
    *blob_at = begin + size;
    return PL_OK;
}

bool pl_state_is(const char *path) {
    pl_map m;
    pl_err ignored = {0};
    if (!pl_path_exists(path) || pl_path_is_dir(path) || pl_map_open(&m, path, &ignored) != PL_OK) return false;
    bool is = m.size >= 8 && memcmp(m.data, MAGIC, 8) == 0;
    pl_map_close(&m);
    return is;
}

static pl_status verify(pl_state *s, const char *path, pl_err *err) {
    const uint8_t *base = s->map.data;
    size_t         size = s->map.size;
    header         h;
    uint64_t       sum;
    if (size < sizeof h + SUM || memcmp(base, MAGIC, 8) != 0)
        return pl_fail(err, PL_E_INPUT, "%s: not a training state of paceline", path);
    memcpy(&h, base, sizeof h);
    if (h.version != VERSION)
        return pl_fail(err, PL_E_INPUT,
                       "%s: training state of version %" PRIu32 ", this program reads %d; use the one "
                       "that wrote it",
                       path, h.version, VERSION);
    if (size % 8 != 0 || h.table > size - sizeof h - SUM || h.count > PL_STATE_ITEMS_MAX)
        return damaged(err, path, "cut, or a header that makes no sense");
    size_t row_at = sizeof h, table_end = sizeof h + (size_t)h.table, blob_at = table_end;
    memcpy(&sum, base + size - SUM, SUM);
    if (pl_hash(base, table_end) != sum) return damaged(err, path, "cut, or a wrong checksum");
    s->items = pl_calloc(h.count, sizeof *s->items);
    if (!s->items) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    for (uint32_t i = 0; i < h.count; i++)
        PL_TRY(read_item(s, &row_at, table_end, &blob_at, size - SUM, path, err));
    if (row_at != table_end || up(blob_at, 8) != size - SUM || !zeros(base + blob_at, size - SUM - blob_at))
        return damaged(err, path, "something behind the last item");
    return PL_OK;
}

pl_status pl_state_open(pl_state **out, const char *path, pl_err *err) {
    *out = NULL;
    pl_state *s = pl_calloc(1, sizeof *s);
    if (!s) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = pl_map_open(&s->map, path, err);
    if (st == PL_OK) st = verify(s, path, err);
    if (st == PL_OK)
        *out = s;
    else
        pl_state_close(s);
    return st;
}

void pl_state_close(pl_state *s) {
    if (!s) return;
    pl_names_fini(&s->names);
    pl_free(s->items);
    pl_map_close(&s->map);
    pl_free(s);
}

int64_t pl_state_count(const pl_state *s) {
    return s->count;
}

const pl_state_item *pl_state_at(const pl_state *s, int64_t i) {
    PL_CHECK(i >= 0 && i < s->count, "item %" PRId64 " of %" PRId64, i, s->count);
    return &s->items[i];
}

const pl_state_item *pl_state_find(const pl_state *s, const char *name) {
    int64_t i = pl_names_find(&s->names, name);
    return i < 0 ? NULL : &s->items[i];
}

pl_status pl_state_get(const pl_state *s, const char *name, pl_dtype dtype, int64_t count, const void **data,
                       pl_err *err) {
    *data = NULL;
    const pl_state_item *item = pl_state_find(s, name);
    if (!item)
        return pl_fail(err, PL_E_INPUT, "training state: %s: missing; it was written by another kind of run", name);
    if (item->dtype != dtype || item->count != count)
        return pl_fail(err, PL_E_INPUT,
                       "training state: %s: expected %" PRId64 " of %s, found %" PRId64
                       " of %s; it belongs to another model or recipe",
                       name, count, pl_dtype_name(dtype), item->count, pl_dtype_name(item->dtype));
    *data = item->data;
    return PL_OK;
}
