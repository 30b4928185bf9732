#include "checkpoints/quant.h"
#include "kernels/base/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

// The tensors of a matrix, by what follows the module's name.
typedef struct form {
    pl_quant_kind         kind;
    pl_dtype              type; // of the elements
    const char           *elements, *scale, *zero, *index, *shape, *factor;
    bool                  divides; // by the factor
    const pl_weight_code *code;
} form;

static const form forms[] = {
    {PL_QUANT_BYTES, PL_F8_E4M3, ".weight", ".weight_scale_inv", .code = &pl_weight_fp8},
    {PL_QUANT_BYTES, PL_F8_E4M3, ".weight", ".weight_scale", .code = &pl_weight_fp8},
    {PL_QUANT_BYTES, PL_I8, ".weight", ".weight_scale", ".weight_zero_point", .code = &pl_weight_int8},
    {PL_QUANT_PACKED, PL_I32, ".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx", ".weight_shape",
     .code = &pl_weight_packed},
    {PL_QUANT_NVFP4, PL_U8, ".weight_packed", ".weight_scale", .factor = ".weight_global_scale", .divides = true,
     .code = &pl_weight_nvfp4},
    {PL_QUANT_NVFP4, PL_U8, ".weight", ".weight_scale", .factor = ".weight_scale_2", .code = &pl_weight_nvfp4},
    {PL_QUANT_MXFP4, PL_U8, ".weight_packed", ".weight_scale", .code = &pl_weight_mxfp4},
    {PL_QUANT_AWQ, PL_I32, ".qweight", ".scales", ".qzeros", .code = &pl_weight_awq},
    {PL_QUANT_GPTQ, PL_I32, ".qweight", ".scales", ".qzeros", ".g_idx", .code = &pl_weight_gptq},
};
enum { FORMS = sizeof forms / sizeof *forms };

// Suffixes of tensors for quantised activations and caches, which are not imitated.
static const char *const of_engines[] = {
    ".input_scale",      ".input_zero_point", ".input_global_scale", ".input_scale_ub",
    ".activation_scale", ".output_scale",     ".output_zero_point",  ".q_scale",
    ".k_scale",          ".v_scale",          ".kv_scale",           ".k_zero_point",
    ".v_zero_point",
};

// A matrix that is being put together.
typedef struct joining {
    const pl_quant        *q;
    const pl_quant_scheme *scheme;
    const form            *form;
    const pl_st           *set;
    const pl_st_entry     *t;      // the elements
    int                    module; // bytes of the module's name
    pl_weight_entry       *e;
    pl_quant_matrix       *m;
} joining;

static int64_t whole(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

// Bytes of the name before a suffix; -1: it does not end so.
static int before(const char *name, const char *suffix) {
    size_t n = strlen(name), s = suffix ? strlen(suffix) : n + 1;
    return s <= n && n - s < 400 && strcmp(name + n - s, suffix) == 0 ? (int)(n - s) : -1;
}

static const pl_st_entry *beside(const pl_st *set, const char *name, int module, const char *suffix) {
    char full[512];
    if (!suffix) return NULL;
    snprintf(full, sizeof full, "%.*s%s", module, name, suffix);
    return pl_st_find(set, full);
}

// ---- what must hold of the tensors ----

static pl_status fail(const joining *j, const pl_st_entry *t, pl_err *err, const char *expected) {
    char shape[PL_ST_SHAPE_TEXT];
    return pl_fail(err, PL_E_INPUT, "%s: %s: expected %s, found %s %s; the config says %s", pl_st_path(j->set), t->name,
                   expected, pl_dtype_name(t->dtype), pl_st_shape_text(shape, t->shape, t->rank), j->q->name);
}

static pl_status find(const joining *j, const char *suffix, const pl_st_entry **out, pl_err *err) {
    *out = beside(j->set, j->t->name, j->module, suffix);
    if (*out) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: %s: has no %.*s%s beside it; the file is cut, or not of %s",
                   pl_st_path(j->set), j->t->name, j->module, j->t->name, suffix, j->q->name);
}

// A matrix [rows, cols]; one column or row, and one element, may be a vector or a scalar.
static pl_status expect(const joining *j, const pl_st_entry *t, bool type, const char *types, int64_t rows,
                        int64_t cols, pl_err *err) {
    char          expected[160];
    const int64_t want[2] = {rows, cols};
    char          shape[PL_ST_SHAPE_TEXT];
    int64_t       count = 1;
    bool          vector = rows == 1 || cols == 1, fits = true;
    for (int i = 0; i < t->rank; i++)
        count *= t->shape[i];
    fits = t->rank == 2 ? t->shape[0] == rows && t->shape[1] == cols : t->rank < 2 && vector && count == rows * cols;
    if (fits && type) return PL_OK;
    snprintf(expected, sizeof expected, "%s %s", types, pl_st_shape_text(shape, want, 2));
    return fail(j, t, err, expected);
}

static bool is_real(pl_dtype t) {
    return t == PL_F32 || t == PL_BF16 || t == PL_F16;
}

// One scale for group_rows rows by group_cols columns, in the order of rows. blocks: those at the edges may be cut.
static pl_status take_scales(joining *j, bool blocks, bool type, const char *types, pl_err *err) {
    pl_quant_matrix *m = j->m;
    int64_t          rows = j->e->shape[0], cols = j->e->shape[1];
    m->group_rows = j->scheme->group_rows ? j->scheme->group_rows : rows;
    m->group_cols = j->scheme->group_cols ? j->scheme->group_cols : cols;
    if (!blocks && cols % m->group_cols != 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: %s: groups of %" PRId64 " columns do not divide the %" PRId64
                       " that it has; the config says %s",
                       pl_st_path(j->set), j->t->name, m->group_cols, cols, j->q->name);
    m->groups = whole(cols, m->group_cols);
    if (j->scheme->either && m->scale->rank <= 2 && m->scale->bytes == pl_dtype_size(m->scale->dtype))
        m->group_rows = rows;
    return expect(j, m->scale, type, types, whole(rows, m->group_rows), m->groups, err);
}

static pl_status take_index(joining *j, const pl_st_entry *t, int64_t groups, pl_err *err) {
    int64_t cols = j->e->shape[1], none = 0;
    PL_TRY(expect(j, t, t->dtype == PL_I32, "I32", cols, 1, err));
    for (int64_t c = 0; c < cols; c++) {
        uint32_t g = pl_quant_word(t->data, c);
        none += g == UINT32_MAX;
        if ((int64_t)g >= groups && g != UINT32_MAX)
            return pl_fail(err, PL_E_INPUT, "%s: %s: column %" PRId64 " is in group %" PRId32 " of %" PRId64,
                           pl_st_path(j->set), t->name, c, (int32_t)g, groups);
    }
    if (none > 0 && none < cols)
        return pl_fail(err, PL_E_INPUT, "%s: %s: %" PRId64 " of %" PRId64 " columns are in no group",
                       pl_st_path(j->set), t->name, none, cols);
    if (none == 0) j->m->index = t; // all -1: columns are in order
    return PL_OK;
}

// Zeros are there where the scheme has them, and only there.
static pl_status find_zeros(joining *j, pl_err *err) {
    const pl_st_entry *zero = beside(j->set, j->t->name, j->module, j->form->zero);
    if (j->scheme->zeros) return find(j, j->form->zero, &j->m->zero, err);
    if (!zero) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: %s: zeros, and the config (%s) says that there are none", pl_st_path(j->set),
                   zero->name, j->q->name);
}

static bool is_matrix(const pl_st_entry *t) {
    return t->rank == 2 && t->shape[0] > 0 && t->shape[1] > 0;
}

// ---- one function for each kind: shape, companions, groups ----

static pl_status join_bytes(joining *j, pl_err *err) {
    const pl_st_entry *s = j->m->scale;
    j->e->shape[0] = j->t->shape[0];
    j->e->shape[1] = j->t->shape[1];
    bool type = is_real(s->dtype) || s->dtype == PL_F8_E8M0 || s->dtype == PL_U8;
    PL_TRY(take_scales(j, j->scheme->group_rows > 1, type, "F32, BF16, F16 or F8_E8M0", err));
    PL_TRY(find_zeros(j, err));
    if (!j->m->zero) return PL_OK;
    return expect(j, j->m->zero, j->m->zero->dtype == j->t->dtype, pl_dtype_name(j->t->dtype),
                  whole(j->e->shape[0], j->m->group_rows), j->m->groups, err);
}

// The columns of a packed matrix stand beside it.
static pl_status packed_columns(const joining *j, int64_t *cols, pl_err *err) {
    const pl_st_entry *t;
    int64_t            shape[2] = {0};
    PL_TRY(find(j, j->form->shape, &t, err));
    if (t->rank != 1 || t->shape[0] != 2 || (t->dtype != PL_I64 && t->dtype != PL_I32))
        return fail(j, t, err, "I64 [2]");
    for (int i = 0; i < 2; i++)
        if (t->dtype == PL_I64)
            memcpy(&shape[i], (const uint8_t *)t->data + 8 * i, 8);
        else
            shape[i] = (int32_t)pl_quant_word(t->data, i);
    *cols = shape[1];
    if (shape[0] == j->t->shape[0] && *cols > 0 && *cols <= j->t->shape[1] * 32) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: %s: says [%" PRId64 ", %" PRId64 "], which is not the shape of %s",
                   pl_st_path(j->set), t->name, shape[0], shape[1], j->t->name);
}

static pl_status join_packed(joining *j, pl_err *err) {
    const pl_st_entry *index = beside(j->set, j->t->name, j->module, j->form->index);
    int64_t            rows = j->t->shape[0], cols = 0;
    int                bits = j->scheme->bits;
    PL_TRY(packed_columns(j, &cols, err));
    j->e->shape[0] = rows;
    j->e->shape[1] = cols;
    PL_TRY(expect(j, j->t, true, "I32", rows, whole(cols * bits, 32), err));
    PL_TRY(take_scales(j, false, is_real(j->m->scale->dtype), "F32, BF16 or F16", err));
    if (index) PL_TRY(take_index(j, index, j->m->groups, err));
    PL_TRY(find_zeros(j, err));
    if (!j->m->zero) return PL_OK;
    return expect(j, j->m->zero, j->m->zero->dtype == PL_I32, "I32", whole(rows * bits, 32), j->m->groups, err);
}

static pl_status take_factor(joining *j, pl_err *err) {
    const pl_st_entry *t;
    PL_TRY(find(j, j->form->factor, &t, err));
    PL_TRY(expect(j, t, t->dtype == PL_F32, "F32", 1, 1, err));
    j->m->factor = pl_quant_scale(t, 0);
    j->m->divides = j->form->divides;
    if (isfinite(j->m->factor) && j->m->factor > 0) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: %s: %g is no scale", pl_st_path(j->set), t->name, (double)j->m->factor);
}

static pl_status join_halves(joining *j, pl_err *err) {
    const pl_st_entry *s = j->m->scale;
    bool               nv = j->scheme->kind == PL_QUANT_NVFP4,
         type = nv ? s->dtype == PL_F8_E4M3 : s->dtype == PL_U8 || s->dtype == PL_F8_E8M0;
    j->e->shape[0] = j->t->shape[0];
    j->e->shape[1] = 2 * j->t->shape[1];
    PL_TRY(take_scales(j, false, type, nv ? "F8_E4M3" : "U8 or F8_E8M0", err));
    if (nv) return take_factor(j, err);
    j->e->row_stride = 1; // as weights_mxfp4.c has it
    j->e->scale = s->data;
    return PL_OK;
}

static pl_status join_awq(joining *j, pl_err *err) {
    const pl_st_entry *zero;
    int64_t            rows = 8 * j->t->shape[1], cols = j->t->shape[0], g = j->scheme->group_cols;
    j->e->shape[0] = rows;
    j->e->shape[1] = cols;
    g = g > 0 ? g : cols;
    if (cols % g != 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: %s: groups of %" PRId64 " columns do not divide the %" PRId64 " that it has",
                       pl_st_path(j->set), j->t->name, g, cols);
    PL_TRY(expect(j, j->m->scale, is_real(j->m->scale->dtype), "F16, BF16 or F32", cols / g, rows, err));
    PL_TRY(find(j, j->form->zero, &zero, err));
    PL_TRY(expect(j, zero, zero->dtype == PL_I32, "I32", cols / g, rows / 8, err));
    j->m->zero = zero;
    j->m->group_cols = g;
    j->m->groups = cols / g;
    return PL_OK;
}

static pl_status join_gptq(joining *j, pl_err *err) {
    const pl_st_entry *index = beside(j->set, j->t->name, j->module, j->form->index), *zero;
    int                bits = j->scheme->bits;
    int64_t            rows = j->t->shape[1], cols = j->t->shape[0] * 32 / bits, g = j->scheme->group_cols;
    if (index && index->rank == 1 && index->shape[0] > 0 && whole(index->shape[0] * bits, 32) == j->t->shape[0])
        cols = index->shape[0]; // the last word may not be full
    PL_TRY(expect(j, j->t, true, "I32", whole(cols * bits, 32), rows, err));
    j->e->shape[0] = rows;
    j->e->shape[1] = cols;
    g = g > 0 ? g : cols;
    PL_TRY(expect(j, j->m->scale, is_real(j->m->scale->dtype), "F16, BF16 or F32", whole(cols, g), rows, err));
    PL_TRY(find(j, j->form->zero, &zero, err));
    PL_TRY(
        expect(j, zero, zero->dtype == PL_I32 && zero->rank == 2, "I32", whole(cols, g), whole(rows * bits, 32), err));
    if (index) PL_TRY(take_index(j, index, whole(cols, g), err));
    j->m->zero = zero;
    j->m->group_cols = g;
    j->m->groups = whole(cols, g);
    j->m->zero_shift = j->q->zero_shift;
    return PL_OK;
}

// ---- joining ----

static pl_status fit(joining *j, pl_err *err) {
    static pl_status (*const by_kind[])(joining *, pl_err *) = {
        [PL_QUANT_BYTES] = join_bytes,  [PL_QUANT_PACKED] = join_packed, [PL_QUANT_NVFP4] = join_halves,
        [PL_QUANT_MXFP4] = join_halves, [PL_QUANT_AWQ] = join_awq,       [PL_QUANT_GPTQ] = join_gptq};
    *j->m = (pl_quant_matrix){.weight = j->t, .bits = j->scheme->bits, .group_rows = 1};
    *j->e = (pl_weight_entry){
        .dtype = PL_BF16, .rank = 2, .data = j->t->data, .code = j->form->code, .scale = j->m, .bytes = j->t->bytes};
    if (!is_matrix(j->t)) return fail(j, j->t, err, "a matrix");
    PL_TRY(find(j, j->form->scale, &j->m->scale, err));
    PL_TRY(by_kind[j->scheme->kind](j, err));
    j->e->bytes += j->m->scale->bytes + (j->m->zero ? j->m->zero->bytes : 0) + (j->m->index ? j->m->index->bytes : 0);
    return PL_OK;
}

static bool has_scheme(const form *f, const pl_quant_scheme *s) {
    return f->kind == s->kind && (f->kind != PL_QUANT_BYTES || s->real == (f->type == PL_F8_E4M3));
}

// A module that the config ignores by its very name must not be quantised.
static pl_status check_ignored(const pl_quant *q, const pl_st *set, const pl_st_entry *t, int module, pl_err *err) {
    for (const cJSON *i = q->ignore ? q->ignore->child : NULL; i; i = i->next)
        if (cJSON_IsString(i) && strlen(i->valuestring) == (size_t)module &&
            strncmp(i->valuestring, t->name, (size_t)module) == 0)
            return pl_fail(err, PL_E_INPUT, "%s: %s: is quantised, and the config (%s) leaves it out", pl_st_path(set),
                           t->name, q->name);
    return PL_OK;
}

// The first scheme and form that fit; else the first one's complaint.
static pl_status join_elements(joining *j, pl_err *err) {
    pl_err    first = {0}, other;
    pl_status st = PL_OK;
    for (int s = 0; s < j->q->n; s++)
        for (int f = 0; f < FORMS; f++) {
            j->scheme = &j->q->scheme[s];
            j->form = &forms[f];
            if (!has_scheme(j->form, j->scheme) || before(j->t->name, j->form->elements) < 0 ||
                j->t->dtype != j->form->type)
                continue;
            if (f == 0 && !beside(j->set, j->t->name, j->module, j->form->scale)) continue; // the second has it
            pl_status found = fit(j, st == PL_OK ? &first : &other);
            if (found == PL_OK) return check_ignored(j->q, j->set, j->t, j->module, err);
            if (st == PL_OK) st = found;
        }
    if (st != PL_OK) return pl_fail(err, st, "%s", first.msg);
    return pl_fail(err, PL_E_INPUT, "%s: %s: is of %s, which is not in the config's schemes (%s)", pl_st_path(j->set),
                   j->t->name, pl_dtype_name(j->t->dtype), j->q->name);
}

static bool is_of_engines(const char *name) {
    for (size_t i = 0; i < sizeof of_engines / sizeof *of_engines; i++)
        if (before(name, of_engines[i]) >= 0) return true;
    return false;
}

// A suffix of companions: bytes of the module's name; -1: it has none. *alone: no elements are beside it.
static int companion_of(const pl_st *set, const char *name, bool *alone) {
    int module = -1;
    *alone = true;
    for (int f = 0; f < FORMS; f++) {
        const char *const suffix[] = {forms[f].scale, forms[f].zero, forms[f].index, forms[f].shape, forms[f].factor};
        for (int i = 0; i < 5; i++) {
            int n = before(name, suffix[i]);
            if (n < 0) continue;
            const pl_st_entry *elements = beside(set, name, n, forms[f].elements);
            module = n;
            if (elements && elements->dtype == forms[f].type) *alone = false;
        }
    }
    return module;
}

pl_status pl_quant_join(pl_quant_role *role, pl_weight_entry *e, pl_quant_matrix *m, int *module, const pl_quant *q,
                        const pl_st *set, const pl_st_entry *t, pl_err *err) {
    bool alone;
    *role = is_of_engines(t->name) ? PL_QUANT_COMPANION : PL_QUANT_PLAIN;
    if (*role != PL_QUANT_PLAIN) return PL_OK;
    if (companion_of(set, t->name, &alone) >= 0) {
        *role = PL_QUANT_COMPANION;
        if (!alone) return PL_OK;
        return pl_fail(err, PL_E_INPUT, "%s: %s: belongs to a matrix that is not there, or is not quantised",
                       pl_st_path(set), t->name);
    }
    for (int f = 0; f < FORMS; f++) {
        *module = before(t->name, forms[f].elements);
        if (*module < 0 || (t->dtype != forms[f].type && strcmp(forms[f].elements, ".weight") == 0)) continue;
        *role = PL_QUANT_ELEMENTS;
        return join_elements(&(joining){.q = q, .set = set, .t = t, .module = *module, .e = e, .m = m}, err);
    }
    return PL_OK;
}

// ---- for the codes ----

size_t pl_quant_span(const pl_weight_entry *e) {
    return ((const pl_quant_matrix *)e->scale)->weight->bytes;
}

uint64_t pl_quant_hash(const pl_weight_entry *e, uint64_t h) {
    const pl_quant_matrix   *m = e->scale;
    const pl_st_entry *const of[] = {m->scale, m->zero, m->index};
    const int64_t            numbers[] = {m->bits, m->zero_shift, m->group_rows, m->group_cols, m->divides};
    h = pl_hash_more(h, e->code->name, strlen(e->code->name));
    h = pl_hash_more(h, numbers, sizeof numbers);
    h = pl_hash_more(h, &m->factor, sizeof m->factor);
    for (int i = 0; i < 3; i++)
        if (of[i]) h = pl_hash_more(h, of[i]->data, of[i]->bytes);
    return h;
}

pl_weight_grain pl_quant_grain(const pl_weight_entry *e) {
    const pl_quant_matrix *m = e->scale;
    return (pl_weight_grain){.bits = m->bits, .rows = m->group_rows, .cols = m->group_cols};
}

pl_status pl_quant_check(const pl_weight_entry *e, const char *path, pl_err *err) {
    const pl_st_entry *s = ((const pl_quant_matrix *)e->scale)->scale;
    int64_t            n = (int64_t)(s->bytes / pl_dtype_size(s->dtype));
    for (int64_t i = 0; i < n; i++) {
        float x = pl_quant_scale(s, i);
        if (!isfinite(x))
            return pl_fail(err, PL_E_INPUT, "%s: %s: scale %" PRId64 " is %g; the file is damaged", path, s->name, i,
                           (double)x);
    }
    return PL_OK;
}
