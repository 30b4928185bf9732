#include "checkpoints/safetensors.h"
#include "checkpoints/hub.h"
#include "checkpoints/names.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The format is little-endian, and data is used where it lies.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a little-endian machine");

enum { SHARDS_MAX = 65536, CHUNK = 1 << 20 };
#define INDEX_MAX ((size_t)64 << 20) // that of DeepSeek-V3, 92,000 tensors, has 9 MB
#define METADATA "__metadata__"
#define WHOLE "model.safetensors"

typedef struct shard {
    pl_map  map;
    pl_json header; // names and metadata live here
    int64_t first, count;
} shard;

struct pl_st {
    char        *path;
    shard       *shards;
    int64_t      n_shards;
    pl_st_entry *entries;
    int64_t      count, cap;
    pl_names     names;
};

static pl_status fail_memory(pl_err *err, const char *path) {
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
}

// ---- one file ----

static pl_status read_dtype(const pl_json *j, const cJSON *tensor, pl_dtype *out, pl_err *err) {
    const char *name;
    PL_TRY(pl_json_get_str(j, tensor, "dtype", &name, err));
    for (int t = 0; t < PL_DTYPE_COUNT; t++)
        if (strcmp(pl_dtype_name((pl_dtype)t), name) == 0) {
            *out = (pl_dtype)t;
            return PL_OK;
        }
    return pl_json_fail(
        j, pl_json_find(j, tensor, "dtype"), err,
        "\"%.40s\" is not supported; use F32, BF16, F16, F64, F8_E4M3, F8_E8M0, I64, I32, I8, U8 or BOOL", name);
}

// One member of the header. *begin: offset in the data.
static pl_status read_entry(const pl_json *j, const cJSON *tensor, const uint8_t *data, size_t size, pl_st_entry *e,
                            pl_err *err) {
    const cJSON *shape, *offsets;
    *e = (pl_st_entry){.name = tensor->string};
    if (!cJSON_IsObject(tensor))
        return pl_json_fail(j, tensor, err, "expected an object with dtype, shape and offsets");
    PL_TRY(read_dtype(j, tensor, &e->dtype, err));
    PL_TRY(pl_json_get_array(j, tensor, "shape", &shape, err));
    PL_TRY(pl_json_get_array(j, tensor, "data_offsets", &offsets, err));
    int64_t elements = 1, range[2] = {0, 0};
    for (const cJSON *c = shape->child; c; c = c->next) {
        if (e->rank == PL_ST_RANK) return pl_json_fail(j, shape, err, "more than %d dimensions", PL_ST_RANK);
        int64_t *dim = &e->shape[e->rank++];
        PL_TRY(pl_json_int_of(j, c, 0, PL_JSON_INT_MAX, dim, err));
        if (__builtin_mul_overflow(elements, *dim, &elements))
            return pl_json_fail(j, shape, err, "more elements than can be counted");
    }
    int n = 0;
    for (const cJSON *c = offsets->child; c; c = c->next, n++) {
        if (n == 2) return pl_json_fail(j, offsets, err, "expected two offsets");
        PL_TRY(pl_json_int_of(j, c, 0, PL_JSON_INT_MAX, &range[n], err));
    }
    if (n != 2) return pl_json_fail(j, offsets, err, "expected two offsets");
    if (range[0] > range[1]) return pl_json_fail(j, offsets, err, "ends before it begins");
    if ((uint64_t)range[1] > size)
        return pl_json_fail(j, offsets, err,
                            "ends at byte %" PRId64 " of the data, which has %zu; the file is cut or damaged", range[1],
                            size);
    int64_t bytes;
    if (__builtin_mul_overflow(elements, (int64_t)pl_dtype_size(e->dtype), &bytes) || bytes != range[1] - range[0])
        return pl_json_fail(j, offsets, err, "%" PRId64 " bytes for %" PRId64 " elements of %s", range[1] - range[0],
                            elements, pl_dtype_name(e->dtype));
    e->data = data + range[0];
    e->bytes = (size_t)bytes;
    return PL_OK;
}

// By place; empty ones at one place by name, so that the order is always the same.
static int by_place(const void *a, const void *b) {
    const pl_st_entry *x = a, *y = b;
    if (x->data != y->data) return (const uint8_t *)x->data < (const uint8_t *)y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static pl_status check_metadata(const pl_json *j, const cJSON *metadata, pl_err *err) {
    const char *text;
    if (!cJSON_IsObject(metadata)) return pl_json_fail(j, metadata, err, "expected an object of strings");
    for (const cJSON *c = metadata->child; c; c = c->next)
        PL_TRY(pl_json_str_of(j, c, &text, err));
    return PL_OK;
}

static pl_status add_entry(pl_st *st, const pl_st_entry *e, const char *path, pl_err *err) {
    if (st->count == st->cap) {
        int64_t      cap = st->cap ? 2 * st->cap : 256;
        pl_st_entry *bigger = pl_realloc(st->entries, (size_t)cap * sizeof *bigger);
        if (!bigger) return fail_memory(err, path);
        st->entries = bigger;
        st->cap = cap;
    }
    st->entries[st->count++] = *e;
    return PL_OK;
}

// Which file an index gives each tensor to: the authority, whatever else the files hold.
typedef struct assignment {
    pl_names files;   // in the order in which the index names them
    pl_names tensors; // of the index
    int64_t *file;    // [tensors.count]
} assignment;

// Keeps those tensors of the shard that are file `number`'s, in their order.
static void keep_assigned(pl_st *st, shard *s, const assignment *a, int64_t number) {
    int64_t kept = s->first;
    for (int64_t i = s->first; i < st->count; i++) {
        int64_t t = pl_names_find(&a->tensors, st->entries[i].name);
        if (t >= 0 && a->file[t] == number) st->entries[kept++] = st->entries[i];
    }
    st->count = kept;
}

static bool same_tensor(const pl_st_entry *a, const pl_st_entry *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0 &&
           memcmp(a->data, b->data, a->bytes) == 0;
}

// Without an index, a tensor that two shards hold must be the same in both.
static pl_status name_entries(pl_st *st, const shard *s, const char *path, pl_err *err) {
    int64_t kept = s->first;
    for (int64_t i = s->first; i < st->count; i++) {
        pl_st_entry e = st->entries[i];
        int64_t     added = pl_names_add(&st->names, e.name);
        if (added == -2) return fail_memory(err, path);
        if (added == -1 && !same_tensor(&e, &st->entries[pl_names_find(&st->names, e.name)]))
            return pl_fail(err, PL_E_INPUT,
                           "%s: %s: is in another shard as well, with other values, and no index says "
                           "which counts",
                           path, e.name);
        if (added >= 0) st->entries[kept++] = e;
    }
    st->count = kept;
    return PL_OK;
}

// Adds the tensors of a file, those that `a` (NULL: all) gives to this one. The shard belongs to st before anything can
// fail.
static pl_status open_shard(pl_st *st, shard *s, const char *path, const assignment *a, int64_t number, pl_err *err) {
    PL_TRY(pl_map_open(&s->map, path, err));
    uint64_t n = 0;
    if (s->map.size < 8)
        return pl_fail(err, PL_E_INPUT, "%s: %zu bytes are no safetensors file; download or export it again", path,
                       s->map.size);
    memcpy(&n, s->map.data, 8);
    size_t      rest = s->map.size - 8;
    const char *what = rest == 0 || s->map.data[8] != '{' ? pl_sniff(s->map.data, s->map.size) : NULL;
    if (what) return pl_fail(err, PL_E_INPUT, "%s: %s", path, what);
    if (n > PL_ST_HEADER_MAX || n > rest)
        return pl_fail(err, PL_E_INPUT,
                       "%s: a header of %" PRIu64 " bytes in a file of %zu; the file is cut, or is no safetensors file",
                       path, n, s->map.size);
    const uint8_t *header = s->map.data + 8, *data = header + n;
    size_t         size = rest - (size_t)n;
    if (n == 0 || header[0] != '{')
        return pl_fail(err, PL_E_INPUT, "%s: the header does not begin with '{'; this is no safetensors file", path);
    PL_TRY(pl_json_parse_many(&s->header, path, 0, header, (size_t)n, PL_ST_VALUES_MAX, PL_JSON_UNIQUE, err));
    s->first = st->count;
    for (const cJSON *c = s->header.root->child; c; c = c->next) {
        if (strcmp(c->string, METADATA) == 0) {
            PL_TRY(check_metadata(&s->header, c, err));
            continue;
        }
        pl_st_entry e;
        PL_TRY(read_entry(&s->header, c, data, size, &e, err));
        PL_TRY(add_entry(st, &e, path, err));
    }
    s->count = st->count - s->first;
    if (s->count > 0) qsort(st->entries + s->first, (size_t)s->count, sizeof *st->entries, by_place);
    const uint8_t *expected = data;
    for (int64_t i = s->first; i < st->count; i++) {
        const pl_st_entry *e = &st->entries[i];
        const uint8_t     *at = e->data;
        if (at != expected)
            return pl_fail(err, PL_E_INPUT, "%s: %s: %s; the file is damaged", path, e->name,
                           at < expected ? "overlaps the tensor before it" : "a hole in front of it");
        expected = at + e->bytes;
    }
    if (expected != data + size)
        return pl_fail(err, PL_E_INPUT, "%s: %zu bytes at the end belong to no tensor; the file is damaged", path,
                       (size_t)(data + size - expected));
    if (a) keep_assigned(st, s, a, number);
    PL_TRY(name_entries(st, s, path, err));
    s->count = st->count - s->first;
    return PL_OK;
}

// ---- an index ----

// A name from a file must not lead out of the folder.
static bool leads_out(const char *file) {
    if (!*file || *file == '/') return true;
    for (const char *at = file; at; at = strchr(at, '/')) {
        if (*at == '/') at++;
        if (strncmp(at, "..", 2) == 0 && (!at[2] || at[2] == '/')) return true;
    }
    return false;
}

static pl_status read_assignment(assignment *a, const pl_json *j, const cJSON *map, const char *path, pl_err *err) {
    a->file = pl_malloc((size_t)cJSON_GetArraySize(map) * sizeof *a->file + 1);
    if (!a->file) return fail_memory(err, path);
    for (const cJSON *c = map->child; c; c = c->next) {
        const char *file;
        PL_TRY(pl_json_str_of(j, c, &file, err));
        if (leads_out(file)) return pl_json_fail(j, c, err, "\"%.80s\" is no name of a file beside the index", file);
        int64_t tensor = pl_names_add(&a->tensors, c->string), added = pl_names_add(&a->files, file);
        if (tensor == -2 || added == -2) return fail_memory(err, path);
        if (a->files.count > SHARDS_MAX) return pl_json_fail(j, map, err, "more than %d shards", SHARDS_MAX);
        a->file[tensor] = added >= 0 ? added : pl_names_find(&a->files, file);
    }
    return PL_OK;
}

static pl_status open_files(pl_st *st, const pl_names *files, const char *dir, const assignment *a, pl_err *err) {
    st->shards = pl_calloc((size_t)files->count + 1, sizeof *st->shards);
    if (!st->shards) return fail_memory(err, st->path);
    for (int64_t i = 0; i < files->count; i++) {
        char *path = pl_path_join(dir, files->name[i]);
        if (!path) return fail_memory(err, st->path);
        pl_status status = open_shard(st, &st->shards[st->n_shards++], path, a, i, err);
        pl_free(path);
        PL_TRY(status);
    }
    return PL_OK;
}

// The index is the authority; a file that looks like the model's and is not in it is named.
static void warn_stray(const char *dir, const assignment *a) {
    char *path = pl_path_join(dir, WHOLE);
    if (path && pl_path_exists(path) && pl_names_find(&a->files, WHOLE) < 0)
        pl_log_warn_once("%s: lies beside an index that does not name it; the index's files are read, this one is not",
                         path);
    pl_free(path);
}

static pl_status open_shards(pl_st *st, const pl_json *j, const cJSON *map, const char *dir, pl_err *err) {
    assignment a = {0};
    pl_status  status = read_assignment(&a, j, map, st->path, err);
    if (status == PL_OK) status = open_files(st, &a.files, dir, &a, err);
    for (const cJSON *c = map->child; c && status == PL_OK; c = c->next)
        if (pl_names_find(&st->names, c->string) < 0)
            status = pl_json_fail(j, c, err, "%s does not hold this tensor", c->valuestring);
    if (status == PL_OK) warn_stray(dir, &a);
    pl_free(a.file);
    pl_names_fini(&a.tensors);
    pl_names_fini(&a.files);
    return status;
}

static pl_status open_index(pl_st *st, const char *path, pl_err *err) {
    pl_json      j;
    const cJSON *map;
    PL_TRY(pl_json_open(&j, path, INDEX_MAX, PL_JSON_UNIQUE, err));
    char     *dir = NULL;
    pl_status status = pl_json_get_object(&j, NULL, "weight_map", &map, err);
    if (status != PL_OK) goto done;
    dir = pl_strdup(path);
    if (!dir) {
        status = fail_memory(err, path);
        goto done;
    }
    dir[pl_path_name(path) - path] = 0;
    status = open_shards(st, &j, map, dir, err);
done:
    pl_free(dir);
    pl_json_close(&j);
    return status;
}

// ---- a set ----

// "model-00002-of-00005.safetensors": 2 and 5; false for other names.
static bool is_shard(const char *name, int *number, int *of) {
    int end = 0;
    return sscanf(name, "model-%d-of-%d.safetensors%n", number, of, &end) == 2 && end > 0 && !name[end] &&
           *number >= 1 && *number <= *of && *of <= SHARDS_MAX;
}

// How many shards the names in a folder say there are; 0: none lies there, -1: names disagree.
static int count_shards(DIR *d) {
    int count = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        int number, of;
        if (!is_shard(e->d_name, &number, &of)) continue;
        if (count != 0 && count != of) return -1;
        count = of;
    }
    return count;
}

// Shards without an index, where all that their names tell of are there. *found: there are some.
static pl_status open_numbered(pl_st *st, const char *dir, bool *found, pl_err *err) {
    DIR *d = opendir(dir);
    int  count = d ? count_shards(d) : 0;
    if (d) closedir(d);
    *found = count != 0;
    if (count < 0)
        return pl_fail(err, PL_E_INPUT, "%s: shards of two sets, and no model.safetensors.index.json that chooses",
                       dir);
    if (count == 0) return PL_OK;
    if (!(st->path = pl_strdup(dir))) return fail_memory(err, dir);
    st->shards = pl_calloc((size_t)count, sizeof *st->shards);
    if (!st->shards) return fail_memory(err, dir);
    for (int i = 1; i <= count; i++) {
        char *path = pl_sprintf("%s/model-%05d-of-%05d.safetensors", dir, i, count);
        if (!path) return fail_memory(err, dir);
        pl_status status = open_shard(st, &st->shards[st->n_shards++], path, NULL, 0, err);
        pl_free(path);
        PL_TRY(status);
    }
    return PL_OK;
}

// The file or index that a folder holds (heap); NULL: neither is there.
static pl_status find_in_folder(const char *dir, char **out, pl_err *err) {
    static const char *const names[] = {"model.safetensors.index.json", WHOLE};
    *out = NULL;
    for (int i = 0; i < 2 && !*out; i++) {
        char *path = pl_path_join(dir, names[i]);
        if (!path) return fail_memory(err, dir);
        if (pl_path_exists(path))
            *out = path;
        else
            pl_free(path);
    }
    return PL_OK;
}

static pl_status fail_nothing(const char *dir, pl_err *err) {
    char *bin = pl_path_join(dir, "pytorch_model.bin");
    bool  torch = bin && pl_path_exists(bin);
    pl_free(bin);
    PL_TRY(pl_hub_refuse(dir, err));
    if (torch) return pl_fail(err, PL_E_INPUT, "%s: only pytorch_model.bin; convert it to model.safetensors", dir);
    return pl_fail(err, PL_E_INPUT, "%s: no model.safetensors and no model.safetensors.index.json in this folder", dir);
}

static pl_status open_folder(pl_st *st, const char *dir, pl_err *err) {
    bool found;
    PL_TRY(find_in_folder(dir, &st->path, err));
    if (st->path) return PL_OK;
    PL_TRY(open_numbered(st, dir, &found, err));
    return found ? PL_OK : fail_nothing(dir, err);
}

pl_status pl_st_open(pl_st **out, const char *path, pl_err *err) {
    *out = NULL;
    pl_st *st = pl_calloc(1, sizeof *st);
    if (!st) return fail_memory(err, path);
    pl_status status = PL_OK;
    if (pl_path_is_dir(path))
        status = open_folder(st, path, err);
    else if (!(st->path = pl_strdup(path)))
        status = fail_memory(err, path);
    if (status != PL_OK || st->shards) goto done;
    if (pl_path_ends(st->path, ".json")) {
        status = open_index(st, st->path, err);
        goto done;
    }
    st->shards = pl_calloc(1, sizeof *st->shards);
    if (!st->shards) {
        status = fail_memory(err, path);
        goto done;
    }
    st->n_shards = 1;
    status = open_shard(st, st->shards, st->path, NULL, 0, err);
done:
    if (status == PL_OK)
        *out = st;
    else
        pl_st_close(st);
    return status;
}

void pl_st_close(pl_st *st) {
    if (!st) return;
    for (int64_t i = 0; i < st->n_shards; i++) {
        pl_json_close(&st->shards[i].header);
        pl_map_close(&st->shards[i].map);
    }
    pl_free(st->shards);
    pl_free(st->entries);
    pl_names_fini(&st->names);
    pl_free(st->path);
    pl_free(st);
}

int64_t pl_st_count(const pl_st *st) {
    return st->count;
}

const pl_st_entry *pl_st_at(const pl_st *st, int64_t i) {
    PL_CHECK(i >= 0 && i < st->count, "entry %" PRId64 " of %" PRId64, i, st->count);
    return &st->entries[i];
}

const pl_st_entry *pl_st_find(const pl_st *st, const char *name) {
    int64_t i = pl_names_find(&st->names, name);
    return i < 0 ? NULL : &st->entries[i];
}

const char *pl_st_metadata(const pl_st *st, const char *key) {
    if (st->n_shards == 0) return NULL;
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(st->shards[0].header.root, METADATA);
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(metadata, key));
}

const char *pl_st_shape_text(char out[PL_ST_SHAPE_TEXT], const int64_t *shape, int rank) {
    int n = snprintf(out, PL_ST_SHAPE_TEXT, "[");
    for (int i = 0; i < rank && i < PL_ST_RANK; i++)
        n += snprintf(out + n, (size_t)(PL_ST_SHAPE_TEXT - n), "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(out + n, (size_t)(PL_ST_SHAPE_TEXT - n), "]");
    return out;
}

const char *pl_st_path(const pl_st *st) {
    return st->path;
}

// ---- writing ----

static size_t source_bytes(const pl_st_source *e) {
    size_t bytes = pl_dtype_size(e->dtype);
    for (int i = 0; i < e->rank; i++) {
        PL_CHECK(e->shape[i] >= 0, "%s: shape[%d] is %" PRId64, e->name, i, e->shape[i]);
        bytes = pl_size_mul(bytes, (size_t)e->shape[i], 1);
    }
    PL_CHECK(bytes <= PL_JSON_INT_MAX, "%s: %zu bytes", e->name, bytes);
    return bytes;
}

// The order in the file: larger elements first, else as given.
static void order_of(int64_t *order, const pl_st_source *entries, int64_t n) {
    int64_t k = 0;
    for (size_t size = 8; size > 0; size /= 2)
        for (int64_t i = 0; i < n; i++)
            if (pl_dtype_size(entries[i].dtype) == size) order[k++] = i;
    PL_CHECK(k == n, "%" PRId64 " of %" PRId64 " entries have an element size", k, n);
}

// The header with its padding, without the length in front.
static pl_status make_header(pl_json_out *o, const pl_st_source *entries, const int64_t *order, int64_t n,
                             const pl_st_pair *metadata, int64_t n_metadata, pl_err *err) {
    pl_json_out_begin(o, 0);
    pl_json_out_object(o);
    if (n_metadata > 0) {
        pl_put_object(o, METADATA);
        for (int64_t i = 0; i < n_metadata; i++)
            pl_put_str(o, metadata[i].key, metadata[i].value);
        pl_json_out_close(o, '}');
    }
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const pl_st_source *e = &entries[order[i]];
        pl_put_object(o, e->name);
        pl_put_str(o, "dtype", pl_dtype_name(e->dtype));
        pl_put_array(o, "shape");
        for (int d = 0; d < e->rank; d++)
            pl_json_out_int(o, e->shape[d]);
        pl_json_out_close(o, ']');
        pl_put_array(o, "data_offsets");
        pl_json_out_int(o, at);
        at += (int64_t)source_bytes(e);
        PL_CHECK(at <= PL_JSON_INT_MAX, "%" PRId64 " bytes in one file", at);
        pl_json_out_int(o, at);
        pl_json_out_close(o, ']');
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, '}');
    return pl_json_out_end(o, err);
}

static pl_status write_entry(pl_atomic_file *f, const pl_st_source *e, uint8_t *chunk, pl_err *err) {
    size_t bytes = source_bytes(e);
    if (e->data) return pl_atomic_file_append(f, e->data, bytes, err);
    PL_CHECK(e->fill || bytes == 0, "%s: neither data nor fill", e->name);
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        PL_TRY(e->fill(e->arg, at, chunk, n, err));
        PL_TRY(pl_atomic_file_append(f, chunk, n, err));
    }
    return PL_OK;
}

pl_status pl_st_write(const char *path, const pl_st_source *entries, int64_t n, const pl_st_pair *metadata,
                      int64_t n_metadata, pl_err *err) {
    pl_atomic_file f = {.fd = -1};
    pl_json_out    header = {0};
    pl_names       names = {0};
    uint8_t       *chunk = pl_malloc(CHUNK);
    int64_t       *order = pl_malloc((size_t)n * sizeof *order);
    pl_status      st = PL_OK;
    if (!chunk || !order) {
        st = fail_memory(err, path);
        goto done;
    }
    for (int64_t i = 0; i < n; i++) {
        PL_CHECK(entries[i].rank >= 0 && entries[i].rank <= PL_ST_RANK, "%s: rank %d", entries[i].name,
                 entries[i].rank);
        PL_CHECK(strcmp(entries[i].name, METADATA) != 0, "a tensor named %s", METADATA);
        int64_t added = pl_names_add(&names, entries[i].name);
        PL_CHECK(added != -1, "two tensors named %s", entries[i].name);
        if (added == -2) {
            st = fail_memory(err, path);
            goto done;
        }
    }
    order_of(order, entries, n);
    PL_TRY_GOTO(st, done, make_header(&header, entries, order, n, metadata, n_metadata, err));
    PL_TRY_GOTO(st, done, pl_atomic_file_begin(&f, path, err));
    uint64_t length = (header.len + 7) / 8 * 8;
    PL_TRY_GOTO(st, done, pl_atomic_file_append(&f, &length, 8, err));
    PL_TRY_GOTO(st, done, pl_atomic_file_append(&f, header.text, header.len, err));
    PL_TRY_GOTO(st, done, pl_atomic_file_append(&f, "       ", (size_t)length - header.len, err));
    for (int64_t i = 0; i < n; i++)
        PL_TRY_GOTO(st, done, write_entry(&f, &entries[order[i]], chunk, err));
    st = pl_atomic_file_commit(&f, err);
done:
    pl_atomic_file_abort(&f);
    pl_names_fini(&names);
    pl_free(header.text);
    pl_free(order);
    pl_free(chunk);
    return st;
}
