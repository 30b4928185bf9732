#include "checkpoints/weights.h"
#include "checkpoints/names.h"
#include "checkpoints/quant.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct pl_weight_source {
    char            *path;
    pl_weight_entry *entries;
    int64_t          count;
    pl_names         names;
    void (*release)(void *owner);
    void *owner;
};

// ---- sources ----

pl_status pl_weight_source_create(pl_weight_source **out, const char *path, const pl_weight_entry *entries, int64_t n,
                                  void (*release)(void *owner), void *owner, pl_err *err) {
    *out = NULL;
    pl_status         st = PL_OK;
    pl_weight_source *src = pl_calloc(1, sizeof *src);
    if (!src) {
        st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path); // the path may be the owner's
        release(owner);
        return st;
    }
    src->release = release;
    src->owner = owner;
    src->path = pl_strdup(path);
    src->entries = pl_malloc((size_t)n * sizeof *entries);
    if (!src->path || !src->entries) {
        st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        goto done;
    }
    for (int64_t i = 0; i < n; i++) {
        const pl_weight_entry *e = &entries[i];
        PL_CHECK(e->rope_heads == 0 || (e->rank <= 2 && e->shape[0] % (2 * e->rope_heads) == 0),
                 "%s: %" PRId64 " rows in %" PRId64 " heads", e->name, e->shape[0], e->rope_heads);
        const pl_weight_tiles *t = &e->column_tiles;
        PL_CHECK(t->keys * t->each <= PL_WEIGHT_TILES && t->width <= PL_WEIGHT_TILE_WIDTH && t->first == 0,
                 "%s: heads of %" PRId64 " columns", e->name, t->width);
        int64_t added = pl_names_add(&src->names, e->name);
        if (added == -1) st = pl_fail(err, PL_E_INPUT, "%s: two tensors named %s", path, e->name);
        if (added == -2) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        if (st != PL_OK) goto done;
        src->entries[src->count++] = *e;
    }
    *out = src;
    src = NULL;
done:
    pl_weight_source_close(src);
    return st;
}

// A file set, its tensors' names, and its quantised matrices.
typedef struct opened {
    pl_st           *set;
    char            *names;
    pl_quant_matrix *matrix;
} opened;

static void release_st(void *owner) {
    opened *o = owner;
    pl_st_close(o->set);
    pl_free(o->names);
    pl_free(o->matrix);
    pl_free(o);
}

// The wrappings: what stands before the decoder's names, and what takes its place. The first that has the embedding is
// the file's. Layers for drafting (mtp) have no wrapping.
enum { WRAPPED = 3 };
static const struct wrapping {
    const char *embedding, *from[WRAPPED], *to[WRAPPED];
} wrappings[] = {
    {"language_model.model.embed_tokens.weight",
     {"language_model.model.", "language_model.lm_head.", "mtp."},
     {"model.", "lm_head.", "mtp."}},
    {"model.language_model.embed_tokens.weight",
     {"model.language_model.", "lm_head.", "mtp."},
     {"model.", "lm_head.", "mtp."}},
};

static const struct wrapping *wrapping_of(const pl_st *set) {
    for (size_t i = 0; i < sizeof wrappings / sizeof *wrappings; i++)
        if (pl_st_find(set, wrappings[i].embedding)) return &wrappings[i];
    return NULL;
}

// The decoder's name of a tensor, within `name` or the tensor's own; NULL: it is not the decoder's.
static const char *decoder_name(const struct wrapping *w, const char *given, char name[512]) {
    for (int k = 0; k < WRAPPED && w; k++) {
        size_t n = strlen(w->from[k]);
        if (strncmp(given, w->from[k], n) != 0 || strlen(given) >= 512) continue;
        sprintf(name, "%s%s", w->to[k], given + n); // never longer than it was
        return name;
    }
    return w ? NULL : given;
}

static pl_status list_quantised(pl_weight_list *l, const pl_quant *q, const pl_st *set, const pl_st_entry *t,
                                const char *name, pl_err *err) {
    pl_quant_role   role;
    pl_weight_entry e;
    pl_quant_matrix counted, *m = l->matrix ? &l->matrix[l->n_matrices] : &counted;
    char            plain[512];
    int             module;
    PL_TRY(pl_quant_join(&role, &e, m, &module, q, set, t, err));
    if (role == PL_QUANT_PLAIN) pl_weight_list_add(l, set, t, name);
    if (role != PL_QUANT_ELEMENTS) return PL_OK;
    int cut = (int)(strlen(t->name) - (size_t)module); // of the decoder's name too
    snprintf(plain, sizeof plain, "%.*s.weight", (int)strlen(name) - cut, name);
    pl_weight_list_add_matrix(l, &e, plain);
    l->n_matrices++;
    return PL_OK;
}

// The tensors of the file that are the decoder's, into a list.
static pl_status list_tensors(pl_weight_list *l, const pl_quant *q, const pl_st *set, pl_err *err) {
    const struct wrapping *w = wrapping_of(set);
    for (int64_t i = 0; i < pl_st_count(set); i++) {
        const pl_st_entry *e = pl_st_at(set, i);
        char               text[512];
        const char        *name = decoder_name(w, e->name, text);
        if (name && q->n == 0) pl_weight_list_add(l, set, e, name);
        if (name && q->n > 0) PL_TRY(list_quantised(l, q, set, e, name, err));
    }
    if (q->n == 0 || l->n_matrices > 0) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: no tensor is quantised, and the config says %s", pl_st_path(set), q->name);
}

// Lists, makes room, and lists again.
static pl_status list_all(pl_weight_list *l, opened *o, const pl_quant *q, pl_err *err) {
    PL_TRY(list_tensors(l, q, o->set, err));
    o->names = pl_malloc(l->text + 1);
    o->matrix = pl_calloc((size_t)l->n_matrices + 1, sizeof *o->matrix);
    *l = (pl_weight_list){
        .entry = pl_calloc((size_t)l->n + 1, sizeof *l->entry), .names = o->names, .matrix = o->matrix};
    if (!l->entry || !o->names || !o->matrix) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", pl_st_path(o->set));
    return list_tensors(l, q, o->set, err);
}

pl_status pl_weight_source_open(pl_weight_source **out, const char *path, pl_err *err) {
    *out = NULL;
    pl_weight_list list = {0};
    pl_quant       quant;
    pl_json        config = {0};
    opened        *o = pl_calloc(1, sizeof *o);
    if (!o) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = pl_quant_read(&quant, &config, path, err);
    if (st == PL_OK) st = pl_st_open(&o->set, path, err);
    if (st == PL_OK) st = list_all(&list, o, &quant, err);
    if (st == PL_OK)
        st = pl_weight_source_create(out, pl_st_path(o->set), list.entry, list.n, release_st, o, err);
    else
        release_st(o);
    pl_free(list.entry);
    pl_json_close(&config);
    return st;
}

void pl_weight_source_close(pl_weight_source *src) {
    if (!src) return;
    pl_names_fini(&src->names);
    pl_free(src->entries);
    pl_free(src->path);
    src->release(src->owner);
    pl_free(src);
}

const char *pl_weight_source_path(const pl_weight_source *src) {
    return src->path;
}

int64_t pl_weight_source_count(const pl_weight_source *src) {
    return src->count;
}

const pl_weight_entry *pl_weight_source_at(const pl_weight_source *src, int64_t i) {
    PL_CHECK(i >= 0 && i < src->count, "entry %" PRId64 " of %" PRId64, i, src->count);
    return &src->entries[i];
}

const pl_weight_entry *pl_weight_source_find(const pl_weight_source *src, const char *name) {
    int64_t i = pl_names_find(&src->names, name);
    return i < 0 ? NULL : &src->entries[i];
}

// ---- specs ----

static void check_spec(const pl_weight_spec *s) {
    PL_CHECK(s->n_parts >= 1 && s->n_parts <= PL_WEIGHT_PARTS, "%d parts", s->n_parts);
    int64_t rows = 0;
    for (int p = 0; p < s->n_parts; p++)
        rows += s->part[p].rows;
    for (int p = 0; p < s->n_parts; p++) {
        const pl_weight_part *part = &s->part[p];
        PL_CHECK(part->run == 0 || (part->of > 0 && part->pitch >= part->run && part->rows % part->run == 0),
                 "%s: %" PRId64 " rows in runs of %" PRId64, part->name, part->rows, part->run);
        int64_t span = part->run > 0 ? (part->rows / part->run - 1) * part->pitch + part->run : part->rows;
        PL_CHECK(part->of == 0 || (part->first >= 0 && part->first + span <= part->of),
                 "%s: rows %" PRId64 " + %" PRId64 " of %" PRId64, part->name, part->first, span, part->of);
    }
    PL_CHECK(rows == s->rows && s->cols >= 0, "%s: parts of %" PRId64 " rows, spec of %" PRId64, s->part[0].name, rows,
             s->rows);
}

// Returns the tensor's row that is row r of a part; *n becomes how many rows follow each other from there in both, at
// most *n.
static int64_t row_of_part(const pl_weight_part *p, int64_t r, int64_t *n) {
    if (p->run == 0) return p->first + r;
    if (*n > p->run - r % p->run) *n = p->run - r % p->run;
    return p->first + r / p->run * p->pitch + r % p->run;
}

static int64_t width(const pl_weight_spec *s) {
    return s->cols > 0 ? s->cols : 1;
}

// The tensor's sizes of a part; returns its rank.
static int shape_of(const pl_weight_spec *s, int p, int64_t shape[3]) {
    int64_t rows = s->part[p].of ? s->part[p].of : s->part[p].rows, inner = s->inner[0] * s->inner[1];
    shape[0] = inner > 0 ? rows / inner : rows;
    shape[1] = inner > 0 ? s->inner[0] : s->cols;
    shape[2] = s->inner[1];
    return inner > 0 ? 3 : s->cols > 0 ? 2 : 1;
}

static const pl_weight_entry *part_of(const pl_weight_source *src, const pl_weight_spec *s, int p) {
    const pl_weight_entry *e = pl_weight_source_find(src, s->part[p].name);
    return !e && p == 0 && s->alias ? pl_weight_source_find(src, s->alias) : e;
}

static bool is_float(pl_dtype t) {
    return t == PL_F32 || t == PL_BF16 || t == PL_F16 || t == PL_F64;
}

static pl_status check_part(const pl_weight_source *src, const pl_weight_spec *s, int p, pl_err *err) {
    const pl_weight_entry *e = part_of(src, s, p);
    int64_t                shape[3];
    int                    rank = shape_of(s, p, shape);
    bool                   other = false;
    char                   expected[PL_ST_SHAPE_TEXT], found[PL_ST_SHAPE_TEXT];
    pl_st_shape_text(expected, shape, rank);
    if (!e)
        return pl_fail(err, PL_E_INPUT, "%s: %s: missing; expected a tensor of shape %s", src->path, s->part[p].name,
                       expected);
    for (int i = 0; i < rank && e->rank == rank; i++)
        other |= e->shape[i] != shape[i];
    if (e->rank != rank || other) {
        return pl_fail(err, PL_E_INPUT, "%s: %s: expected shape %s, found %s; config.json is of another model?",
                       src->path, e->name, expected, pl_st_shape_text(found, e->shape, e->rank));
    }
    if (!is_float(e->dtype))
        return pl_fail(err, PL_E_INPUT, "%s: %s: expected F32, BF16, F16 or F64, found %s%s", src->path, e->name,
                       pl_dtype_name(e->dtype),
                       e->dtype == PL_F8_E4M3 || e->dtype == PL_I8 ? "; config.json has no quantization_config" : "");
    return PL_OK;
}

static pl_status check_parts(const pl_weight_source *src, const pl_weight_spec *s, pl_err *err) {
    for (int p = 0; p < s->n_parts; p++)
        PL_TRY(check_part(src, s, p, err));
    return PL_OK;
}

static pl_status check_codes(const pl_weight_source *src, const pl_weight_spec *s, pl_err *err) {
    for (int p = 0; p < s->n_parts; p++) {
        const pl_weight_entry *e = part_of(src, s, p);
        if (e->code && e->code->check) PL_TRY(e->code->check(e, src->path, err));
    }
    return PL_OK;
}

pl_status pl_weight_source_check(const pl_weight_source *src, const pl_weight_spec *specs, int64_t n, pl_err *err) {
    for (int64_t i = 0; i < n; i++) {
        const pl_weight_spec *s = &specs[i];
        check_spec(s);
        bool any = false;
        for (int p = 0; p < s->n_parts; p++)
            any = any || part_of(src, s, p);
        if (!any && s->optional) continue;
        PL_TRY(check_parts(src, s, err));
        PL_TRY(check_codes(src, s, err));
    }
    return PL_OK;
}

pl_status pl_weight_source_unclaimed(const pl_weight_source *src, const pl_weight_spec *specs, int64_t n,
                                     const char **names, int64_t cap, int64_t *count, pl_err *err) {
    *count = 0;
    bool *claimed = pl_calloc((size_t)src->count, sizeof *claimed);
    if (!claimed) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", src->path);
    for (int64_t i = 0; i < n; i++) {
        int64_t at;
        for (int p = 0; p < specs[i].n_parts; p++)
            if ((at = pl_names_find(&src->names, specs[i].part[p].name)) >= 0) claimed[at] = true;
        if (specs[i].alias && (at = pl_names_find(&src->names, specs[i].alias)) >= 0) claimed[at] = true;
    }
    for (int64_t i = 0; i < src->count; i++) {
        if (claimed[i]) continue;
        if (*count < cap) names[*count] = src->entries[i].name;
        ++*count;
    }
    pl_free(claimed);
    return PL_OK;
}

pl_dtype pl_weight_source_stored_dtype(const pl_weight_source *src, const pl_weight_spec *specs, int64_t n) {
    pl_dtype matrix = PL_DTYPE_COUNT, vector = PL_DTYPE_COUNT;
    int64_t  items = specs ? n : src->count;
    for (int64_t i = 0; i < items; i++)
        for (int p = 0; p < (specs ? specs[i].n_parts : 1); p++) {
            const pl_weight_entry *e = specs ? part_of(src, &specs[i], p) : &src->entries[i];
            if (!e || !is_float(e->dtype)) continue;
            if (e->code) return e->dtype;
            pl_dtype *kind = e->rank >= 2 ? &matrix : &vector;
            *kind = *kind == PL_DTYPE_COUNT || *kind == e->dtype ? e->dtype : PL_F32;
        }
    return matrix != PL_DTYPE_COUNT ? matrix : vector != PL_DTYPE_COUNT ? vector : PL_F32;
}

// ---- reading ----

bool pl_weight_has(const pl_weight_source *src, const pl_weight_spec *spec) {
    for (int p = 0; p < spec->n_parts; p++)
        if (!part_of(src, spec, p)) return false;
    return true;
}

// Returns the stored place of row or column i.
static int64_t tile_of(const pl_weight_tiles *t, int64_t i) {
    if (t->keys == 0 || i < t->first) return i;
    int64_t head = (i - t->first) / t->width;
    return t->first + (head % t->each * t->keys + head / t->each) * t->width + (i - t->first) % t->width;
}

// The row of the file that is row r in Hugging Face's order.
static int64_t stored_row(const pl_weight_entry *e, int64_t r) {
    if (e->row_tiles.keys > 0) return tile_of(&e->row_tiles, r);
    if (e->rope_heads == 0) return r;
    int64_t dim = e->shape[0] / e->rope_heads, i = r % dim;
    return r - i + (i < dim / 2 ? 2 * i : 2 * (i - dim / 2) + 1);
}

// Returns how many of the n rows from r on follow each other in the file.
static int64_t rows_in_order(const pl_weight_entry *e, int64_t r, int64_t n) {
    const pl_weight_tiles *t = &e->row_tiles;
    if (e->rope_heads > 0) return 1;
    if (t->keys == 0) return n;
    int64_t left = r < t->first ? t->first - r : t->width - (r - t->first) % t->width;
    return n < left ? n : left;
}

// Puts the heads of a row in order, in place; bytes: of a head. Follows each cycle of the permutation once.
static void order_columns(const pl_weight_tiles *t, void *row, size_t bytes) {
    bool    done[PL_WEIGHT_TILES] = {false};
    uint8_t held[PL_WEIGHT_TILE_WIDTH * sizeof(float)], *head = row;
    for (int64_t first = 0; first < t->keys * t->each; first++) {
        int64_t to = first;
        if (done[first]) continue;
        memcpy(held, head + (size_t)first * bytes, bytes);
        for (;;) {
            int64_t from = to % t->each * t->keys + to / t->each;
            done[to] = true;
            if (from == first) break;
            memcpy(head + (size_t)to * bytes, head + (size_t)from * bytes, bytes);
            to = from;
        }
        memcpy(head + (size_t)to * bytes, held, bytes);
    }
}

static bool is_plain(const pl_weight_entry *e) {
    bool ordered = e->row_tiles.keys == 0 && e->column_tiles.keys == 0;
    return ordered && e->rope_heads == 0 && e->row_stride == 0 && !e->code;
}

// Rows that are columns of what is stored, or every other one: some rows of a column lie close together.
static void read_strided(const pl_weight_entry *e, int64_t row0, int64_t n, int64_t cols, float *dst) {
    enum { SPAN = 256 };
    float   span[SPAN];
    int64_t step = e->row_stride, most = (SPAN - 1) / step + 1;
    size_t  size = pl_dtype_size(e->dtype);
    for (int64_t r = 0; r < n; r += most)
        for (int64_t c = 0; c < cols; c++) {
            int64_t rows = n - r < most ? n - r : most;
            int64_t at = (row0 + r) * step + c * e->column_stride;
            pl_to_f32(span, (const uint8_t *)e->data + (size_t)at * size, e->dtype, (size_t)((rows - 1) * step + 1));
            for (int64_t i = 0; i < rows; i++)
                dst[(r + i) * cols + c] = span[i * step];
        }
}

static void read_part(const pl_weight_entry *e, int64_t row0, int64_t n, int64_t cols, float *dst) {
    if (!e->code && e->row_stride > 0) {
        read_strided(e, row0, n, cols, dst);
        return;
    }
    size_t row_bytes = (size_t)cols * pl_dtype_size(e->dtype);
    for (int64_t r = 0; r < n;) {
        // Whole runs where rows lie in order.
        int64_t run = rows_in_order(e, row0 + r, n - r), from = stored_row(e, row0 + r);
        if (e->code)
            e->code->read(e, from, run, dst + r * cols);
        else
            pl_to_f32(dst + r * cols, (const uint8_t *)e->data + (size_t)from * row_bytes, e->dtype,
                      (size_t)(run * cols));
        r += run;
    }
    for (int64_t r = 0; r < n && e->column_tiles.keys > 0; r++)
        order_columns(&e->column_tiles, dst + r * cols, (size_t)e->column_tiles.width * sizeof *dst);
}

pl_status pl_weight_read_rows(const pl_weight_source *src, const pl_weight_spec *spec, int64_t row0, int64_t n,
                              float *dst, pl_err *err) {
    check_spec(spec);
    PL_CHECK(row0 >= 0 && n >= 0 && row0 <= spec->rows && n <= spec->rows - row0,
             "rows %" PRId64 " + %" PRId64 " of %" PRId64, row0, n, spec->rows);
    PL_TRY(check_parts(src, spec, err));
    int64_t top = 0; // first row of the part
    for (int p = 0; p < spec->n_parts; p++) {
        int64_t end = top + spec->part[p].rows;
        int64_t lo = row0 > top ? row0 : top, hi = row0 + n < end ? row0 + n : end;
        for (int64_t run; lo < hi; lo += run) {
            run = hi - lo;
            int64_t from = row_of_part(&spec->part[p], lo - top, &run);
            read_part(part_of(src, spec, p), from, run, width(spec), dst + (lo - row0) * width(spec));
        }
        top = end;
    }
    return PL_OK;
}

pl_status pl_weight_read_f32(const pl_weight_source *src, const pl_weight_spec *spec, float *dst, pl_err *err) {
    return pl_weight_read_rows(src, spec, 0, spec->rows, dst, err);
}

pl_code pl_weight_form(const pl_weight_source *src, const pl_weight_spec *spec) {
    pl_code form = PL_CODE_NONE;
    for (int p = 0; p < spec->n_parts; p++) {
        const pl_weight_entry *e = part_of(src, spec, p);
        if (!e->code || !e->code->codes || (p > 0 && e->code->form != form)) return PL_CODE_NONE;
        if (e->column_tiles.width % PL_CODE_BLOCK != 0) return PL_CODE_NONE;
        form = e->code->form;
    }
    return form;
}

void pl_weight_read_codes(const pl_weight_source *src, const pl_weight_spec *spec, int64_t row, pl_code_row *to) {
    int p = 0;
    for (; row >= spec->part[p].rows; p++)
        row -= spec->part[p].rows;
    const pl_weight_entry *e = part_of(src, spec, p);
    int64_t                one = 1;
    e->code->codes(e, stored_row(e, row_of_part(&spec->part[p], row, &one)), to);
    if (e->column_tiles.keys > 0)
        order_columns(&e->column_tiles, to, (size_t)(e->column_tiles.width / PL_CODE_BLOCK) * sizeof *to);
}

bool pl_weight_view(const pl_weight_source *src, const pl_weight_spec *spec, const void **data, pl_dtype *dtype) {
    check_spec(spec);
    if (spec->n_parts != 1 || spec->part[0].run > 0 || check_parts(src, spec, NULL) != PL_OK) return false;
    const pl_weight_entry *e = part_of(src, spec, 0);
    if (!is_plain(e) || (uintptr_t)e->data % pl_dtype_size(e->dtype) != 0) return false;
    *data = (const uint8_t *)e->data + (size_t)(spec->part[0].first * width(spec)) * pl_dtype_size(e->dtype);
    *dtype = e->dtype;
    return true;
}

int64_t pl_weight_rows_view(const pl_weight_source *src, const pl_weight_spec *spec, int64_t row0, pl_dtype dtype,
                            const void **data) {
    check_spec(spec);
    int64_t top = 0;
    for (int p = 0; p < spec->n_parts; top += spec->part[p++].rows) {
        const pl_weight_entry *e = part_of(src, spec, p);
        if (row0 < top || row0 >= top + spec->part[p].rows) continue;
        if (!e || e->dtype != dtype || !is_plain(e)) return 0;
        int64_t n = top + spec->part[p].rows - row0, from = row_of_part(&spec->part[p], row0 - top, &n);
        *data = (const uint8_t *)e->data + (size_t)(from * width(spec)) * pl_dtype_size(dtype);
        return n;
    }
    return 0;
}

void pl_weight_drop_rows(const pl_weight_source *src, const pl_weight_spec *spec, int64_t row0, int64_t n) {
    int64_t top = 0;
    for (int p = 0; p < spec->n_parts; top += spec->part[p++].rows) {
        const pl_weight_entry *e = part_of(src, spec, p);
        int64_t end = top + spec->part[p].rows, lo = row0 > top ? row0 : top, hi = row0 + n < end ? row0 + n : end;
        if (!e || lo >= hi || e->row_stride > 0 || e->row_tiles.keys > 0 || spec->part[p].run > 0)
            continue;  // others' rows lie between
        if (e->code) { // whose rows may lie in each other
            if (hi - lo == e->shape[0]) pl_map_drop(e->data, e->code->span(e));
            continue;
        }
        size_t row = (size_t)width(spec) * pl_dtype_size(e->dtype);
        pl_map_drop((const uint8_t *)e->data + (size_t)(spec->part[p].first + lo - top) * row, (size_t)(hi - lo) * row);
    }
}

void pl_weight_drop(const pl_weight_source *src, const pl_weight_spec *spec) {
    pl_weight_drop_rows(src, spec, 0, spec->rows);
}

// ---- copies ----

// Elements [offset, offset + n) of a quantised matrix, from the rows that hold them.
static pl_status copy_decoded(void *arg, size_t offset, void *buf, size_t n, pl_err *err) {
    const pl_weight_entry *e = arg;
    size_t                 size = pl_dtype_size(e->dtype);
    int64_t                cols = e->shape[1], first = (int64_t)(offset / size), count = (int64_t)(n / size);
    int64_t                row = first / cols, rows = (first + count - 1) / cols + 1 - row;
    float                 *values = pl_malloc(pl_size_mul((size_t)rows, (size_t)cols, sizeof *values));
    if (!values) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", e->name);
    read_part(e, row, rows, cols, values);
    pl_from_f32(buf, e->dtype, values + (first - row * cols), (size_t)count);
    pl_free(values);
    return PL_OK;
}

void pl_weight_copy(pl_st_source *s, const pl_weight_entry *e) {
    s->dtype = e->dtype;
    s->rank = e->rank;
    memcpy(s->shape, e->shape, sizeof s->shape);
    s->data = e->code ? NULL : e->data;
    s->fill = e->code ? copy_decoded : NULL;
    s->arg = (void *)(uintptr_t)e;
}

// ---- writing ----

typedef struct conversion {
    const float *data;
    pl_dtype     dtype;
} conversion;

static pl_status convert(void *arg, size_t offset, void *buf, size_t n, pl_err *err) {
    (void)err;
    const conversion *c = arg;
    size_t            size = pl_dtype_size(c->dtype);
    pl_from_f32(buf, c->dtype, c->data + offset / size, n / size);
    return PL_OK;
}

pl_status pl_weights_write(const char *path, const pl_weight_spec *specs, int64_t n, const float *const *data,
                           pl_dtype dtype, const pl_st_source *extra, int64_t n_extra, const pl_st_pair *metadata,
                           int64_t n_metadata, pl_err *err) {
    PL_CHECK(dtype == PL_F32 || dtype == PL_BF16, "dtype %s", pl_dtype_name(dtype));
    size_t        most = (size_t)n * PL_WEIGHT_PARTS;
    pl_st_source *list = pl_calloc(most + (size_t)n_extra, sizeof *list);
    conversion   *args = pl_calloc(most, sizeof *args);
    pl_status     st = PL_OK;
    int64_t       count = 0;
    if (!list || !args) {
        st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        goto done;
    }
    for (int64_t i = 0; i < n; i++) {
        const pl_weight_spec *s = &specs[i];
        check_spec(s);
        PL_CHECK(data[i] || s->optional, "no data for %s", s->part[0].name);
        if (!data[i]) continue;
        const float *from = data[i];
        for (int p = 0; p < s->n_parts; p++, count++) {
            PL_CHECK(s->part[p].of == 0, "%s: a piece of a tensor is read, not written", s->part[p].name);
            args[count] = (conversion){.data = from, .dtype = dtype};
            list[count] = (pl_st_source){.name = s->part[p].name, .dtype = dtype, .fill = convert, .arg = &args[count]};
            list[count].rank = shape_of(s, p, list[count].shape);
            from += s->part[p].rows * width(s);
        }
    }
    for (int64_t i = 0; i < n_extra; i++)
        list[count++] = extra[i];
    st = pl_st_write(path, list, count, metadata, n_metadata, err);
done:
    pl_free(args);
    pl_free(list);
    return st;
}
