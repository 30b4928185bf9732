#include "data/dataset/manifest.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MANIFEST ((size_t)64 << 20) // 400,000 shards
#define MAX_ROWS ((int64_t)1 << 48)

void pl_manifest_fini(pl_manifest *m) {
    pl_dataset_own_fini(&m->attrs);
    pl_free(m->shards);
    *m = (pl_manifest){0};
}

char *pl_manifest_shard_path(const char *dir, int64_t i) {
    return pl_sprintf("%s/shard-%05" PRId64 ".h5", dir, i);
}

char *pl_manifest_path(const char *dir, int part) {
    return part ? pl_sprintf("%s/manifest-%d.json", dir, part) : pl_path_join(dir, "manifest.json");
}

// Where it stands, or would.
static int64_t place_of(const pl_manifest *m, int64_t index) {
    int64_t lo = 0, hi = m->n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (m->shards[mid].index < index)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const pl_manifest_shard *pl_manifest_find(const pl_manifest *m, int64_t index) {
    int64_t at = place_of(m, index);
    return at < m->n && m->shards[at].index == index ? &m->shards[at] : NULL;
}

int64_t pl_manifest_whole(const pl_manifest *m) {
    int64_t n = 0;
    while (n < m->n && m->shards[n].index == n)
        n++;
    return n;
}

static pl_status same_shard(const pl_manifest_shard *was, const char *dir, const pl_manifest_shard *s, pl_err *err) {
    if (was->hash == s->hash && was->bytes == s->bytes && was->rows == s->rows && was->docs == s->docs) return PL_OK;
    return pl_fail(err, PL_E_INPUT,
                   "%s/shard-%05" PRId64 ".h5: made again, it has other bytes than before; was it another build, or "
                   "another machine? Remove the dataset",
                   dir, s->index);
}

pl_status pl_manifest_put(pl_manifest *m, const char *dir, const pl_manifest_shard *s, pl_err *err) {
    int64_t at = place_of(m, s->index);
    if (at < m->n && m->shards[at].index == s->index) return same_shard(&m->shards[at], dir, s, err);
    if (m->n == m->cap) {
        int64_t            cap = m->cap ? 2 * m->cap : 16;
        pl_manifest_shard *p = pl_realloc(m->shards, (size_t)cap * sizeof *p);
        if (!p) return pl_fail(err, PL_E_MEMORY, "dataset: out of memory");
        m->shards = p;
        m->cap = cap;
    }
    memmove(m->shards + at + 1, m->shards + at, (size_t)(m->n - at) * sizeof *m->shards);
    m->shards[at] = *s;
    m->n++;
    m->rows += s->rows;
    m->docs += s->docs;
    for (; at < m->n; at++) {
        const pl_manifest_shard *before = at ? &m->shards[at - 1] : NULL;
        m->shards[at].first_row = before ? before->first_row + before->rows : 0;
        m->shards[at].first_doc = before ? before->first_doc + before->docs : 0;
    }
    return PL_OK;
}

pl_status pl_manifest_hash_file(const char *path, int64_t *bytes, uint64_t *hash, pl_err *err) {
    pl_map m;
    PL_TRY(pl_map_open(&m, path, err));
    *bytes = (int64_t)m.size;
    *hash = pl_hash(m.data, m.size);
    pl_map_drop(m.data, m.size);
    pl_map_close(&m);
    return PL_OK;
}

// ---- reading

static pl_status read_attributes(pl_manifest *m, const pl_json *j, bool traces, pl_err *err) {
    const cJSON     *at, *taps, *e;
    pl_dataset_attrs a = {0};
    const char      *format = NULL;
    int64_t          v;
    PL_TRY(pl_json_get_object(j, NULL, "attributes", &at, err));
    PL_TRY(pl_json_get_str(j, at, "target_fingerprint", &a.target_fingerprint, err));
    PL_TRY(pl_json_get_str(j, at, "tokenizer_fingerprint", &a.tokenizer_fingerprint, err));
    PL_TRY(pl_json_get_str(j, at, "template", &a.template_name, err));
    PL_TRY(pl_json_get_str(j, at, "generation", &a.generation, err));
    if (traces) {
        PL_TRY(pl_json_get_str(j, at, "drafter_fingerprint", &a.drafter_fingerprint, err));
        PL_TRY(pl_json_get_str(j, at, "head_fingerprint", &a.head_fingerprint, err));
        PL_TRY(pl_json_get_str(j, at, "tree", &a.tree, err));
        PL_TRY(pl_json_get_int(j, at, "top", 1, PL_DATASET_MAX_TOP, &v, err));
        a.top = (int32_t)v;
    }
    PL_TRY(pl_json_get_int(j, at, "vocab_size", 1, INT32_MAX, &v, err));
    a.vocab_size = (int32_t)v;
    PL_TRY(pl_json_get_int(j, at, "d", 1, 1 << 24, &v, err));
    a.d = (int32_t)v;
    if (cJSON_HasObjectItem(at, "feature_format")) PL_TRY(pl_json_get_str(j, at, "feature_format", &format, err));
    if (!pl_dataset_format_find(format, &a.feature_format) || (traces && format))
        return pl_json_fail(j, at, err, "features stored as '%s' are not known to this program", format);
    PL_TRY(pl_json_get_array(j, at, "tap_layer_ids", &taps, err));
    cJSON_ArrayForEach(e, taps) {
        if (a.A == PL_DATASET_MAX_TAPS) return pl_json_fail(j, taps, err, "more than %d taps", PL_DATASET_MAX_TAPS);
        PL_TRY(pl_json_int_of(j, e, 0, 1 << 20, &v, err));
        a.tap_layer_ids[a.A++] = (int32_t)v;
    }
    if (traces && a.A > 0) return pl_json_fail(j, taps, err, "traces have no taps");
    return pl_dataset_own_copy(&m->attrs, &a, err);
}

static pl_status read_shard(pl_manifest *m, const pl_json *j, const cJSON *e, pl_err *err) {
    const char *name, *hex;
    char        want[32];
    int64_t     rows, docs, bytes, index = m->n ? m->shards[m->n - 1].index + 1 : 0; // the next one
    PL_TRY(pl_json_get_str(j, e, "name", &name, err));
    // While they are being made, and in another part's list, some are left out.
    if (!m->complete && strncmp(name, "shard-", 6) == 0 && strspn(name + 6, "0123456789") < 16) {
        int64_t named = strtoll(name + 6, NULL, 10);
        if (named > index) index = named;
    }
    snprintf(want, sizeof want, "shard-%05" PRId64 ".h5", index);
    if (strcmp(name, want) != 0) return pl_json_fail(j, e, err, "expected the shard %s here, found %s", want, name);
    PL_TRY(pl_json_get_int(j, e, "rows", 1, MAX_ROWS, &rows, err));
    PL_TRY(pl_json_get_int(j, e, "docs", 1, rows, &docs, err));
    PL_TRY(pl_json_get_int(j, e, "bytes", 1, PL_JSON_INT_MAX, &bytes, err));
    PL_TRY(pl_json_get_str(j, e, "xxhash64", &hex, err));
    if (strlen(hex) != 16 || strspn(hex, "0123456789abcdef") != 16)
        return pl_json_fail(j, e, err, "xxhash64 must be 16 hex digits");
    // Every row is stored as it is, so that a count which its file cannot hold asks for memory in vain.
    int64_t row = pl_dataset_row_bytes(&m->attrs.a);
    if (rows > bytes / row || docs > bytes / 8)
        return pl_json_fail(j, e, err, "%lld rows in %lld documents do not fit into %lld bytes", (long long)rows,
                            (long long)docs, (long long)bytes);
    if (m->rows + rows > MAX_ROWS) return pl_json_fail(j, e, err, "more rows than any dataset can have");
    pl_manifest_shard shard = {
        .index = index, .rows = rows, .docs = docs, .bytes = bytes, .hash = strtoull(hex, NULL, 16)};
    return pl_manifest_put(m, j->where, &shard, err);
}

static pl_status read_root(pl_manifest *m, const pl_json *j, pl_err *err) {
    const cJSON *shards, *e;
    const char  *kind;
    int64_t      version, rows, docs;
    PL_TRY(pl_json_get_str(j, NULL, "kind", &kind, err));
    bool traces = strcmp(kind, "traces") == 0;
    if (!traces && strcmp(kind, "features") != 0)
        return pl_json_fail(j, pl_json_find(j, NULL, "kind"), err, "a dataset of features is wanted, this one is '%s'",
                            kind);
    PL_TRY(pl_json_get_int(j, NULL, "schema_version", 0, INT32_MAX, &version, err));
    if (version != PL_DATASET_VERSION)
        return pl_fail(err, PL_E_INPUT, "%s: schema version %d, this program reads %d; generate the dataset again",
                       j->where, (int)version, PL_DATASET_VERSION);
    PL_TRY(pl_json_get_bool(j, NULL, "complete", &m->complete, err));
    PL_TRY(read_attributes(m, j, traces, err));
    PL_TRY(pl_json_get_array(j, NULL, "shards", &shards, err));
    cJSON_ArrayForEach(e, shards) PL_TRY(read_shard(m, j, e, err));
    PL_TRY(pl_json_get_int(j, NULL, "rows", 0, MAX_ROWS, &rows, err));
    PL_TRY(pl_json_get_int(j, NULL, "docs", 0, MAX_ROWS, &docs, err));
    if (rows != m->rows || docs != m->docs)
        return pl_json_fail(j, j->root, err, "rows or docs are not the sums over the shards");
    return PL_OK;
}

pl_status pl_manifest_read(pl_manifest *m, const char *dir, int part, uint64_t *file_hash, pl_err *err) {
    *m = (pl_manifest){0};
    char *path = pl_manifest_path(dir, part);
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    uint8_t  *data = NULL;
    size_t    n = 0;
    pl_json   j = {0};
    pl_status st;
    if (!pl_path_exists(path)) {
        st = pl_fail(err, PL_E_INPUT, "%s: not a dataset (no manifest.json in it); make one with 'paceline generate'",
                     dir);
        goto done;
    }
    PL_TRY_GOTO(st, done, pl_file_read(path, &data, &n, MAX_MANIFEST, err));
    *file_hash = pl_hash(data, n);
    PL_TRY_GOTO(st, done, pl_json_parse_many(&j, path, 0, data, n, MAX_MANIFEST / PL_JSON_SPARSE, PL_JSON_UNIQUE, err));
    st = read_root(m, &j, err);
done:
    pl_json_close(&j);
    pl_free(data);
    pl_free(path);
    return st;
}

// ---- writing

static void put_attributes(pl_json_out *o, const pl_dataset_attrs *a) {
    pl_put_object(o, "attributes");
    const char *text[][2] = {{"target_fingerprint", a->target_fingerprint},
                             {"tokenizer_fingerprint", a->tokenizer_fingerprint},
                             {"template", a->template_name},
                             {"generation", a->generation},
                             {"drafter_fingerprint", a->drafter_fingerprint},
                             {"head_fingerprint", a->head_fingerprint},
                             {"tree", a->tree}};
    for (size_t i = 0; i < sizeof text / sizeof *text && text[i][1]; i++)
        pl_put_str(o, text[i][0], text[i][1]);
    if (a->top) pl_put_int(o, "top", a->top);
    pl_put_int(o, "vocab_size", a->vocab_size);
    pl_put_int(o, "d", a->d);
    if (a->feature_format == PL_FEATURES_INT8)
        pl_put_str(o, "feature_format", pl_dataset_format_name(a->feature_format));
    pl_put_ids(o, "tap_layer_ids", a->tap_layer_ids, a->A);
    pl_json_out_close(o, '}');
}

static void put_shard(pl_json_out *o, const pl_manifest_shard *s) {
    char name[32], hex[17];
    snprintf(name, sizeof name, "shard-%05" PRId64 ".h5", s->index);
    pl_hash_hex(hex, s->hash);
    pl_json_out_object(o);
    pl_put_str(o, "name", name);
    pl_put_int(o, "rows", s->rows);
    pl_put_int(o, "docs", s->docs);
    pl_put_int(o, "bytes", s->bytes);
    pl_put_str(o, "xxhash64", hex);
    pl_json_out_close(o, '}');
}

pl_status pl_manifest_write(const pl_manifest *m, const char *dir, int part, pl_err *err) {
    char *path = pl_manifest_path(dir, part);
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_json_out o;
    pl_json_out_begin(&o, 1);
    pl_json_out_object(&o);
    pl_put_str(&o, "kind", pl_dataset_kind_name(&m->attrs.a));
    pl_put_int(&o, "schema_version", PL_DATASET_VERSION);
    pl_put_bool(&o, "complete", m->complete);
    pl_put_int(&o, "rows", m->rows);
    pl_put_int(&o, "docs", m->docs);
    put_attributes(&o, &m->attrs.a);
    pl_put_array(&o, "shards");
    for (int64_t i = 0; i < m->n; i++)
        put_shard(&o, &m->shards[i]);
    pl_json_out_close(&o, ']');
    pl_json_out_close(&o, '}');
    pl_status st = pl_json_out_end(&o, err);
    if (st == PL_OK) st = pl_file_write_atomic(path, o.text, o.len, err);
    pl_free(o.text);
    pl_free(path);
    return st;
}
