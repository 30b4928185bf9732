#include "checkpoints/gguf.h"
#include "checkpoints/names.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/strbuf.h"

#include <stdio.h>

#define MAGIC "GGUF"
#define ALIGNMENT 32
#define ALIGNMENT_MAX 65536
#define MAX_NAME 512 // bytes of a key or a tensor's name that are believed

struct pl_gguf {
    pl_map          map;
    char           *path; // owned
    pl_gguf_value  *value;
    pl_gguf_tensor *tensor;
    int64_t         n_values, n_tensors;
};

static const size_t width[PL_GGUF_TYPES] = {
    [PL_GGUF_U8] = 1,  [PL_GGUF_I8] = 1,   [PL_GGUF_U16] = 2, [PL_GGUF_I16] = 2, [PL_GGUF_U32] = 4, [PL_GGUF_I32] = 4,
    [PL_GGUF_F32] = 4, [PL_GGUF_BOOL] = 1, [PL_GGUF_U64] = 8, [PL_GGUF_I64] = 8, [PL_GGUF_F64] = 8};

// ---- reading ----

typedef struct cursor {
    const pl_gguf *g;
    size_t         at;
} cursor;

static size_t left(const cursor *c) {
    return c->g->map.size - c->at;
}

static pl_status cut(const cursor *c, const char *what, pl_err *err) {
    return pl_fail(err, PL_E_INPUT, "%s: byte %zu: the file ends inside %s", c->g->path, c->at, what);
}

static pl_status take(cursor *c, void *to, size_t n, const char *what, pl_err *err) {
    if (left(c) < n) return cut(c, what, err);
    memcpy(to, c->g->map.data + c->at, n);
    c->at += n;
    return PL_OK;
}

static pl_status take_name(cursor *c, const char **s, size_t *n, const char *what, pl_err *err) {
    uint64_t bytes = 0;
    PL_TRY(take(c, &bytes, sizeof bytes, what, err));
    if (bytes > left(c)) return cut(c, what, err);
    if (bytes == 0 || bytes > MAX_NAME)
        return pl_fail(err, PL_E_INPUT, "%s: byte %zu: a name of %llu bytes", c->g->path, c->at,
                       (unsigned long long)bytes);
    *s = (const char *)c->g->map.data + c->at;
    *n = (size_t)bytes;
    c->at += *n;
    return PL_OK;
}

static pl_status skip_string(cursor *c, uint64_t *n, pl_err *err) {
    PL_TRY(take(c, n, sizeof *n, "a text", err));
    if (*n > left(c)) return cut(c, "a text", err);
    c->at += (size_t)*n;
    return PL_OK;
}

static pl_status take_type(cursor *c, pl_gguf_type *t, pl_err *err) {
    uint32_t v = PL_GGUF_TYPES;
    PL_TRY(take(c, &v, sizeof v, "a type", err));
    if (v >= PL_GGUF_TYPES) return pl_fail(err, PL_E_INPUT, "%s: byte %zu: type %u is unknown", c->g->path, c->at, v);
    *t = (pl_gguf_type)v;
    return PL_OK;
}

static pl_status take_array(cursor *c, pl_gguf_value *v, pl_err *err) {
    PL_TRY(take_type(c, &v->item, err));
    PL_TRY(take(c, &v->n, sizeof v->n, "an array", err));
    v->data = c->g->map.data + c->at;
    if (v->item == PL_GGUF_ARRAY)
        return pl_fail(err, PL_E_INPUT, "%s: byte %zu: an array of arrays", c->g->path, c->at);
    if (v->item == PL_GGUF_STRING) {
        for (uint64_t i = 0, n; i < v->n; i++)
            PL_TRY(skip_string(c, &n, err));
        return PL_OK;
    }
    if (v->n > left(c) / width[v->item]) return cut(c, "an array", err);
    c->at += (size_t)v->n * width[v->item];
    return PL_OK;
}

static pl_status take_value(cursor *c, pl_gguf_value *v, pl_err *err) {
    PL_TRY(take_name(c, &v->key, &v->n_key, "a key", err));
    PL_TRY(take_type(c, &v->type, err));
    v->raw = v->data = c->g->map.data + c->at;
    size_t from = c->at;
    if (v->type == PL_GGUF_ARRAY) {
        PL_TRY(take_array(c, v, err));
    } else if (v->type == PL_GGUF_STRING) {
        PL_TRY(skip_string(c, &v->n, err));
        v->data += sizeof v->n;
    } else {
        if (left(c) < width[v->type]) return cut(c, "a value", err);
        c->at += width[v->type];
    }
    v->n_raw = c->at - from;
    return PL_OK;
}

// Bytes of an element of the types whose blocks are one; 0: packed in blocks, whose bytes only ggml knows.
static size_t element(uint32_t type) {
    switch (type) {
    case 0:
    case 26: return 4;
    case 1:
    case 30:
    case 25: return 2;
    case 27:
    case 28: return 8;
    case 24: return 1;
    default: return 0;
    }
}

static pl_status take_tensor(cursor *c, pl_gguf_tensor *t, uint64_t *offset, pl_err *err) {
    uint32_t rank;
    PL_TRY(take_name(c, &t->name, &t->n_name, "a tensor's name", err));
    PL_TRY(take(c, &rank, sizeof rank, "a tensor", err));
    if (rank < 1 || rank > PL_GGUF_RANK)
        return pl_fail(err, PL_E_INPUT, "%s: byte %zu: a tensor of rank %u", c->g->path, c->at, rank);
    t->rank = (int)rank;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t n;
        PL_TRY(take(c, &n, sizeof n, "a tensor", err));
        if (n < 1 || n > (uint64_t)1 << 40)
            return pl_fail(err, PL_E_INPUT, "%s: byte %zu: a tensor of size %llu", c->g->path, c->at,
                           (unsigned long long)n);
        t->shape[i] = (int64_t)n;
    }
    PL_TRY(take(c, &t->type, sizeof t->type, "a tensor", err));
    return take(c, offset, sizeof *offset, "a tensor", err);
}

// Where the tensor lies: all of it, as far as its size is known here.
static pl_status place(pl_gguf *g, pl_gguf_tensor *t, size_t data, uint64_t offset, size_t alignment, pl_err *err) {
    size_t room = g->map.size - data, one = element(t->type), n = one ? one : 1;
    bool   fits = offset % alignment == 0 && offset < room;
    for (int i = 0; i < t->rank && fits && one; i++) {
        fits = (uint64_t)t->shape[i] <= (room - offset) / n;
        n *= fits ? (size_t)t->shape[i] : 1;
    }
    if (!fits)
        return pl_fail(err, PL_E_INPUT, "%s: tensor %.*s does not lie in the file", g->path, (int)t->n_name, t->name);
    t->data = g->map.data + data + offset;
    t->room = room - (size_t)offset;
    return PL_OK;
}

static pl_status check_names(const pl_gguf *g, bool tensors, pl_err *err) {
    pl_names  names = {0};
    int64_t   n = tensors ? g->n_tensors : g->n_values;
    char    **copy = pl_calloc((size_t)n, sizeof *copy);
    pl_status st = copy || n == 0 ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", g->path);
    for (int64_t i = 0; i < n && st == PL_OK; i++) {
        const char *s = tensors ? g->tensor[i].name : g->value[i].key;
        size_t      bytes = tensors ? g->tensor[i].n_name : g->value[i].n_key;
        copy[i] = pl_sprintf("%.*s", (int)bytes, s);
        int64_t added = copy[i] ? pl_names_add(&names, copy[i]) : -2;
        if (added == -1) st = pl_fail(err, PL_E_INPUT, "%s: \"%.200s\" stands there twice", g->path, copy[i]);
        if (added == -2) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", g->path);
    }
    pl_names_fini(&names);
    for (int64_t i = 0; i < n && copy; i++)
        pl_free(copy[i]);
    pl_free(copy);
    return st;
}

static pl_status read_head(cursor *c, uint64_t *tensors, uint64_t *values, pl_err *err) {
    char     magic[4];
    uint32_t version;
    PL_TRY(take(c, magic, sizeof magic, "its head", err));
    if (memcmp(magic, MAGIC, 4) != 0) return pl_fail(err, PL_E_INPUT, "%s: not a GGUF file", c->g->path);
    PL_TRY(take(c, &version, sizeof version, "its head", err));
    if (version != 2 && version != 3)
        return pl_fail(err, PL_E_INPUT, "%s: GGUF of version %u; 2 and 3 are known", c->g->path, version);
    PL_TRY(take(c, tensors, sizeof *tensors, "its head", err));
    PL_TRY(take(c, values, sizeof *values, "its head", err));
    // The smallest key and the smallest tensor that there can be.
    if (*values > left(c) / 14 || *tensors > left(c) / 33) return cut(c, "its keys and tensors", err);
    return PL_OK;
}

static pl_status read_all(pl_gguf *g, pl_err *err) {
    cursor   c = {g, 0};
    uint64_t tensors, values;
    int64_t  alignment = ALIGNMENT;
    PL_TRY(read_head(&c, &tensors, &values, err));
    g->value = pl_calloc((size_t)values, sizeof *g->value);
    g->tensor = pl_calloc((size_t)tensors, sizeof *g->tensor);
    uint64_t *offset = pl_calloc((size_t)tensors, sizeof *offset);
    pl_status st = (g->value || !values) && ((g->tensor && offset) || !tensors)
                       ? PL_OK
                       : pl_fail(err, PL_E_MEMORY, "%s: out of memory", g->path);
    for (uint64_t i = 0; i < values && st == PL_OK; i++, g->n_values++)
        st = take_value(&c, &g->value[i], err);
    for (uint64_t i = 0; i < tensors && st == PL_OK; i++, g->n_tensors++)
        st = take_tensor(&c, &g->tensor[i], &offset[i], err);
    if (st == PL_OK) pl_gguf_int(g, "general.alignment", &alignment);
    if (st == PL_OK && (alignment < 1 || alignment > ALIGNMENT_MAX || (alignment & (alignment - 1))))
        st = pl_fail(err, PL_E_INPUT, "%s: general.alignment %lld", g->path, (long long)alignment);
    size_t data = st == PL_OK ? (c.at + (size_t)alignment - 1) & ~((size_t)alignment - 1) : 0;
    if (st == PL_OK && tensors && data >= g->map.size) st = cut(&c, "its tensors", err);
    for (uint64_t i = 0; i < tensors && st == PL_OK; i++)
        st = place(g, &g->tensor[i], data, offset[i], (size_t)alignment, err);
    pl_free(offset);
    if (st == PL_OK) st = check_names(g, false, err);
    return st == PL_OK ? check_names(g, true, err) : st;
}

bool pl_gguf_is(const char *path) {
    char  magic[4] = "";
    FILE *f = pl_path_is_dir(path) || pl_path_is_special(path) ? NULL : fopen(path, "rbe");
    bool  is = f && fread(magic, 1, sizeof magic, f) == sizeof magic && memcmp(magic, MAGIC, sizeof magic) == 0;
    if (f) fclose(f);
    return is;
}

pl_status pl_gguf_open(pl_gguf **out, const char *path, pl_err *err) {
    pl_gguf *g = pl_calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    g->path = pl_strdup(path);
    pl_status st = g->path ? pl_map_open(&g->map, path, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (st == PL_OK) st = read_all(g, err);
    if (st == PL_OK)
        *out = g;
    else
        pl_gguf_close(g);
    return st;
}

void pl_gguf_close(pl_gguf *g) {
    if (!g) return;
    pl_map_close(&g->map);
    pl_free(g->path);
    pl_free(g->value);
    pl_free(g->tensor);
    pl_free(g);
}

int64_t pl_gguf_values(const pl_gguf *g) {
    return g->n_values;
}

const pl_gguf_value *pl_gguf_value_at(const pl_gguf *g, int64_t i) {
    return &g->value[i];
}

const pl_gguf_value *pl_gguf_find(const pl_gguf *g, const char *key) {
    for (int64_t i = 0; i < g->n_values; i++)
        if (g->value[i].n_key == strlen(key) && memcmp(g->value[i].key, key, g->value[i].n_key) == 0)
            return &g->value[i];
    return NULL;
}

int64_t pl_gguf_tensors(const pl_gguf *g) {
    return g->n_tensors;
}

const pl_gguf_tensor *pl_gguf_tensor_at(const pl_gguf *g, int64_t i) {
    return &g->tensor[i];
}

const pl_gguf_tensor *pl_gguf_find_tensor(const pl_gguf *g, const char *name) {
    for (int64_t i = 0; i < g->n_tensors; i++)
        if (g->tensor[i].n_name == strlen(name) && memcmp(g->tensor[i].name, name, g->tensor[i].n_name) == 0)
            return &g->tensor[i];
    return NULL;
}

bool pl_gguf_int(const pl_gguf *g, const char *key, int64_t *to) {
    const pl_gguf_value *v = pl_gguf_find(g, key);
    uint64_t             bits = 0;
    if (!v || v->type == PL_GGUF_F32 || v->type == PL_GGUF_F64 || v->type == PL_GGUF_BOOL || !width[v->type])
        return false;
    memcpy(&bits, v->data, width[v->type]); // little endian
    bool wide = v->type == PL_GGUF_U64 || v->type == PL_GGUF_I64;
    bool is_signed = v->type == PL_GGUF_I8 || v->type == PL_GGUF_I16 || v->type == PL_GGUF_I32;
    int  shift = 64 - 8 * (int)width[v->type];
    if (v->type == PL_GGUF_U64 && bits > INT64_MAX) return false;
    *to = is_signed && !wide ? (int64_t)(bits << shift) >> shift : (int64_t)bits;
    return true;
}

bool pl_gguf_text(const pl_gguf *g, const char *key, char *to, size_t room) {
    const pl_gguf_value *v = pl_gguf_find(g, key);
    if (!v || v->type != PL_GGUF_STRING || v->n >= room || memchr(v->data, 0, (size_t)v->n)) return false;
    memcpy(to, v->data, (size_t)v->n);
    to[v->n] = 0;
    return true;
}

const char *pl_gguf_next_string(const uint8_t **at, size_t *n) {
    uint64_t bytes;
    memcpy(&bytes, *at, sizeof bytes); // the reader has seen that it lies in the file
    *n = (size_t)bytes;
    const char *s = (const char *)*at + sizeof bytes;
    *at += sizeof bytes + *n;
    return s;
}

// ---- writing ----

typedef struct pending {
    const void *data;
    size_t      bytes;
} pending;

struct pl_gguf_out {
    pl_strbuf values, tensors;          // as they stand in the file
    uint64_t  n_values, n_tensors, end; // end: of the data so far
    pending  *list;                     // [n_tensors] owned
    bool      failed;
};

pl_gguf_out *pl_gguf_out_new(void) {
    return pl_calloc(1, sizeof(pl_gguf_out));
}

void pl_gguf_out_free(pl_gguf_out *o) {
    if (!o) return;
    pl_strbuf_fini(&o->values);
    pl_strbuf_fini(&o->tensors);
    pl_free(o->list);
    pl_free(o);
}

static void add(pl_strbuf *b, const void *p, size_t n) {
    pl_strbuf_add(b, p, n);
}

static void add_u32(pl_strbuf *b, uint32_t v) {
    add(b, &v, sizeof v);
}

static void add_u64(pl_strbuf *b, uint64_t v) {
    add(b, &v, sizeof v);
}

static void add_text(pl_strbuf *b, const char *s, size_t n) {
    add_u64(b, n);
    add(b, s, n);
}

static void begin(pl_gguf_out *o, const char *key, size_t n, pl_gguf_type t) {
    add_text(&o->values, key, n);
    add_u32(&o->values, (uint32_t)t);
    o->n_values++;
}

void pl_gguf_put_u32(pl_gguf_out *o, const char *key, uint32_t v) {
    begin(o, key, strlen(key), PL_GGUF_U32);
    add_u32(&o->values, v);
}

void pl_gguf_put_f32(pl_gguf_out *o, const char *key, float v) {
    begin(o, key, strlen(key), PL_GGUF_F32);
    add(&o->values, &v, sizeof v);
}

void pl_gguf_put_bool(pl_gguf_out *o, const char *key, bool v) {
    begin(o, key, strlen(key), PL_GGUF_BOOL);
    add(&o->values, &(uint8_t){v}, 1);
}

void pl_gguf_put_text(pl_gguf_out *o, const char *key, const char *v) {
    begin(o, key, strlen(key), PL_GGUF_STRING);
    add_text(&o->values, v, strlen(v));
}

void pl_gguf_put_i32s(pl_gguf_out *o, const char *key, const int32_t *v, uint64_t n) {
    begin(o, key, strlen(key), PL_GGUF_ARRAY);
    add_u32(&o->values, PL_GGUF_I32);
    add_u64(&o->values, n);
    add(&o->values, v, (size_t)n * sizeof *v);
}

void pl_gguf_put_value(pl_gguf_out *o, const pl_gguf_value *v) {
    begin(o, v->key, v->n_key, v->type);
    add(&o->values, v->raw, v->n_raw);
}

static uint32_t number_of(pl_dtype t) {
    switch (t) {
    case PL_F32: return 0;
    case PL_F16: return 1;
    case PL_I32: return 26;
    case PL_I64: return 27;
    case PL_BF16: return 30;
    default: break;
    }
    PL_CHECK(false, "%s in a GGUF file", pl_dtype_name(t));
    return 0;
}

void pl_gguf_put_tensor(pl_gguf_out *o, const char *name, pl_dtype t, int rank, const int64_t *shape,
                        const void *data) {
    pending *grown = pl_realloc(o->list, (size_t)(o->n_tensors + 1) * sizeof *grown);
    o->failed |= !grown;
    if (!grown) return;
    size_t bytes = pl_dtype_size(t);
    o->list = grown;
    add_text(&o->tensors, name, strlen(name));
    add_u32(&o->tensors, (uint32_t)rank);
    for (int i = rank; i-- > 0; bytes = pl_size_mul(bytes, (size_t)shape[i], 1))
        add_u64(&o->tensors, (uint64_t)shape[i]);
    add_u32(&o->tensors, number_of(t));
    add_u64(&o->tensors, o->end);
    o->list[o->n_tensors++] = (pending){data, bytes};
    o->end += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static pl_status append(const pl_gguf_out *o, pl_atomic_file *f, pl_err *err) {
    static const char zeros[ALIGNMENT];
    pl_strbuf         head = {0};
    add(&head, MAGIC, 4);
    add_u32(&head, 3);
    add_u64(&head, o->n_tensors);
    add_u64(&head, o->n_values);
    add(&head, o->values.s, o->values.n);
    add(&head, o->tensors.s, o->tensors.n);
    add(&head, zeros, (ALIGNMENT - head.n % ALIGNMENT) % ALIGNMENT);
    pl_status st = head.failed ? pl_fail(err, PL_E_MEMORY, "out of memory") : PL_OK;
    if (st == PL_OK) st = pl_atomic_file_append(f, head.s, head.n, err);
    pl_strbuf_fini(&head);
    for (uint64_t i = 0; i < o->n_tensors && st == PL_OK; i++) {
        const pending *p = &o->list[i];
        st = pl_atomic_file_append(f, p->data, p->bytes, err);
        if (st == PL_OK) st = pl_atomic_file_append(f, zeros, (ALIGNMENT - p->bytes % ALIGNMENT) % ALIGNMENT, err);
    }
    return st;
}

pl_status pl_gguf_write(const pl_gguf_out *o, const char *path, pl_err *err) {
    pl_atomic_file f;
    if (o->failed || o->values.failed || o->tensors.failed) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    PL_TRY(pl_atomic_file_begin(&f, path, err));
    pl_status st = append(o, &f, err);
    if (st == PL_OK) return pl_atomic_file_commit(&f, err);
    pl_atomic_file_abort(&f);
    return st;
}
