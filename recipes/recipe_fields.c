// Fills structs from a recipe's values, finds keys by their fields in these structs, and makes recipes of single items.
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/strbuf.h"
#include "recipes/recipe_impl.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool pl_recipe_is_default(const pl_recipe *r, int i) {
    const pl_recipe_value *v = &r->values[i], *d = &r->defaults[i];
    if (r->rows[i]->type == PL_KEY_LIST_OF_MAPS || v->present != d->present || v->n != d->n) return false;
    bool same = !v->text || strcmp(v->text, d->text) == 0;
    for (int k = 0; k < v->n && same; k++)
        same = strcmp(v->texts[k], d->texts[k]) == 0;
    return same;
}

// ---- structs ----

static pl_status memory(pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "out of memory while reading a recipe");
}

static size_t struct_size(const pl_key *table) {
    while (table->path)
        table++;
    return table->size;
}

static void fill_scalar(const pl_key *row, const pl_recipe_value *v, void *to) {
    switch (row->field.form) {
    case PL_FIELD_INT:
        PL_CHECK(v->i >= INT_MIN && v->i <= INT_MAX, "recipe key %s: %lld in an int; give the row a range", row->path,
                 (long long)v->i);
        *(int *)to = (int)v->i;
        break;
    case PL_FIELD_INT64: *(int64_t *)to = v->i; break;
    case PL_FIELD_REAL: *(double *)to = v->f; break;
    case PL_FIELD_BOOL: *(bool *)to = v->b; break;
    case PL_FIELD_TEXT: *(const char **)to = v->text; break;
    case PL_FIELD_STRINGS: *(pl_strings *)to = (pl_strings){v->n, (const char *const *)v->texts}; break;
    case PL_FIELD_INTS: *(pl_ints *)to = (pl_ints){v->n, v->ints}; break;
    case PL_FIELD_REALS: *(pl_reals *)to = (pl_reals){v->n, v->reals}; break;
    default: break;
    }
}

static pl_status fill(pl_recipe *r, pl_err *err);

static pl_status fill_items(const pl_key *row, pl_recipe_value *v, void *to, pl_err *err) {
    typedef PL_KEY_ITEMS(char) any_items;
    size_t size = struct_size(row->item);
    PL_CHECK(size > 0, "recipe key %s: its items fill no struct", row->path);
    v->structs = pl_calloc((size_t)v->n + 1, size);
    if (!v->structs) return memory(err);
    for (int i = 0; i < v->n; i++) {
        v->items[i]->is_item = true;
        v->items[i]->structs[0] = (char *)v->structs + (size_t)i * size;
        PL_TRY(fill(v->items[i], err));
    }
    *(any_items *)to = (any_items){v->n, v->structs};
    return PL_OK;
}

// Returns the struct of row i's field; NULL: it has none.
static char *base_of(const pl_recipe *r, int i) {
    return r->rows[i]->field.form ? r->structs[r->table_of[i]] : NULL;
}

static pl_status fill(pl_recipe *r, pl_err *err) {
    for (int i = 0; i < r->n; i++) {
        const pl_key *row = r->rows[i];
        char         *base = base_of(r, i);
        if (!base) continue;
        if (row->item)
            PL_TRY(fill_items(row, &r->values[i], base + row->field.offset, err));
        else
            fill_scalar(row, &r->values[i], base + row->field.offset);
    }
    for (int i = 0; i < r->n_alias; i++) {
        const pl_recipe_alias *a = &r->alias[i];
        fill_scalar(a->key, &r->values[a->row], (char *)r->structs[a->table] + a->key->field.offset);
    }
    return PL_OK;
}

pl_status pl_recipe_fill(pl_recipe *r, pl_err *err) {
    for (int t = 0; t < r->n_tables; t++) {
        size_t size = struct_size(r->tables[t]);
        r->structs[t] = size ? pl_calloc(1, size) : NULL;
        if (size && !r->structs[t]) return memory(err);
    }
    return fill(r, err);
}

void pl_recipe_drop_fields(pl_recipe *r) {
    for (int t = 0; t < r->n_tables && !r->is_item; t++)
        pl_free(r->structs[t]);
}

const void *pl_recipe_struct(const pl_recipe *r, const pl_key *table) {
    for (int t = 0; t < r->n_tables; t++)
        if (r->tables[t] == table) return r->structs[t];
    return NULL;
}

// ---- by field ----

// A row of a recipe, or of an item of one of its lists.
typedef struct place {
    const pl_recipe *r;
    int              row;
} place;

static bool find_field(const pl_recipe *r, const void *field, place *out) {
    for (int i = 0; i < r->n; i++) {
        char *base = base_of(r, i);
        if (base && base + r->rows[i]->field.offset == field) {
            *out = (place){r, i};
            return true;
        }
        for (int k = 0; r->rows[i]->item && k < r->values[i].n; k++)
            if (find_field(r->values[i].items[k], field, out)) return true;
    }
    for (int i = 0; i < r->n_alias; i++) {
        const pl_recipe_alias *a = &r->alias[i];
        if ((char *)r->structs[a->table] + a->key->field.offset == field) {
            *out = (place){r, a->row};
            return true;
        }
    }
    return false;
}

static place must_find_field(const pl_recipe *r, const void *field) {
    place p = {0};
    PL_CHECK(find_field(r, field, &p), "no field that a key of this recipe fills: %p", field);
    return p;
}

bool pl_recipe_given(const pl_recipe *r, const void *field) {
    place p = must_find_field(r, field);
    return p.r->values[p.row].given;
}

bool pl_recipe_differs(const pl_recipe *r, const void *field) {
    place p = must_find_field(r, field);
    PL_CHECK(!p.r->rows[p.row]->item, "recipe key %s%s has another type", p.r->at, p.r->rows[p.row]->path);
    return !pl_recipe_is_default(p.r, p.row);
}

const char *pl_recipe_default(const pl_recipe *r, const void *field) {
    place p = must_find_field(r, field);
    return p.r->rows[p.row]->deflt;
}

const char *pl_recipe_path(const pl_recipe *r, const void *field) {
    place p = must_find_field(r, field);
    return p.r->rows[p.row]->path;
}

pl_status pl_recipe_require(const pl_recipe *r, const void *field, pl_err *err) {
    place           p = must_find_field(r, field);
    const pl_key   *row = p.r->rows[p.row];
    pl_recipe_place at = {
        .name = p.r->name, .line = p.r->line, .column = p.r->column, .at = p.r->at, .path = row->path};
    const char *help = row->help ? row->help : pl_recipe_type_name(row->type);
    if (p.r->values[p.row].present) return PL_OK;
    return pl_recipe_place_fail(&at, err, "missing (%s); add it to the recipe or give --set %s%s=VALUE", help, p.r->at,
                                row->path);
}

static pl_status fail_at(const pl_recipe *root, place p, pl_err *err, const char *why) {
    const pl_key          *row = p.r->rows[p.row];
    const pl_recipe_value *v = &p.r->values[p.row];
    pl_recipe_place        at = {.name = p.r->name, .at = p.r->at, .path = row->path};
    if (!root->composed) at.set = v->set, at.line = v->line, at.column = v->column;
    if (v->given || !v->present || !row->deflt) return pl_recipe_place_fail(&at, err, "%s", why);
    at.line = 0;
    return pl_recipe_place_fail(&at, err, "%s (%s is its default)", why, row->deflt);
}

pl_status pl_recipe_fail(const pl_recipe *r, const void *field, pl_err *err, const char *fmt, ...) {
    char    why[sizeof err->msg];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    return fail_at(r, must_find_field(r, field), err, why);
}

// Refuses a key. why: follows the key's own help in the message.
static pl_status refuse(const pl_recipe *r, int i, const char *why, pl_err *err) {
    char text[sizeof err->msg];
    snprintf(text, sizeof text, "%s (%s)", why, r->rows[i]->help ? r->rows[i]->help : "");
    return fail_at(r, (place){r, i}, err, text);
}

pl_status pl_recipe_refuse_stages(const pl_recipe *r, unsigned stages, const char *why, pl_err *err) {
    for (int i = 0; i < r->n; i++) {
        unsigned of = r->rows[i]->stages;
        if (of && !(of & ~stages) && r->values[i].given && !pl_recipe_is_default(r, i)) return refuse(r, i, why, err);
    }
    return PL_OK;
}

static bool has_key(const pl_key *table, const char *path) {
    for (const pl_key *row = table; row && row->path; row++)
        if (strcmp(row->path, path) == 0) return true;
    return false;
}

pl_status pl_recipe_refuse_table(const pl_recipe *r, const pl_key *table, const pl_key *but, const char *why,
                                 pl_err *err) {
    for (int i = 0; i < r->n; i++) {
        const char *path = r->rows[i]->path;
        if (has_key(table, path) && !has_key(but, path) && !pl_recipe_is_default(r, i)) return refuse(r, i, why, err);
    }
    return PL_OK;
}

// ---- items ----

const char *pl_recipe_short_path(const char *path) {
    const char *dot = strchr(path, '.');
    return dot ? dot + 1 : path;
}

// Returns the item of a list whose struct is at `item`; *list: the list's row.
static const pl_recipe *must_find_item(const pl_recipe *r, const void *item, int *list) {
    for (int i = 0; i < r->n; i++)
        for (int k = 0; r->rows[i]->item && k < r->values[i].n; k++)
            if (r->values[i].items[k]->structs[0] == item) {
                *list = i;
                return r->values[i].items[k];
            }
    PL_CHECK(false, "no item of this recipe's lists: %p", item);
    return NULL;
}

// Returns the row of an item by which it overrides root row i; -1: none.
static int overriding_row(const pl_recipe *root, const pl_recipe *item, int i) {
    const char *path = pl_recipe_short_path(root->rows[i]->path);
    for (int k = 0; root->rows[i]->each && k < item->n; k++)
        if (item->table_of[k] == 1 && strcmp(item->rows[k]->path, path) == 0 &&
            (item->values[k].given || item->values[k].undone))
            return k;
    return -1;
}

const char *pl_recipe_override(const pl_recipe *r, const void *item, const void *field) {
    int              list;
    const pl_recipe *from = must_find_item(r, item, &list);
    place            p = must_find_field(r, field);
    int              k = p.r == r ? overriding_row(r, from, p.row) : -1;
    PL_CHECK(k < 0 || !pl_recipe_type_is_list(from->rows[k]->type), "%s is a list", r->rows[p.row]->path);
    if (k < 0) return NULL;
    return from->values[k].undone ? r->defaults[p.row].text : from->values[k].text;
}

bool pl_recipe_undone(const pl_recipe *r, const void *item, const void *field) {
    int              list;
    const pl_recipe *from = must_find_item(r, item, &list);
    place            p = must_find_field(r, field);
    int              k = p.r == r ? overriding_row(r, from, p.row) : -1;
    return k >= 0 && from->values[k].undone;
}

bool pl_recipe_overrides(const pl_recipe *r, const void *item, const void *field) {
    int              list;
    const pl_recipe *from = must_find_item(r, item, &list);
    place            p = must_find_field(r, field);
    return p.r == r && overriding_row(r, from, p.row) >= 0;
}

pl_status pl_recipe_fail_override(const pl_recipe *r, const void *item, const void *field, pl_err *err, const char *fmt,
                                  ...) {
    char    why[sizeof err->msg];
    int     list;
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    const pl_recipe *from = must_find_item(r, item, &list);
    int              k = overriding_row(r, from, must_find_field(r, field).row);
    PL_CHECK(k >= 0, "%s does not say %s", from->at, pl_recipe_path(r, field));
    return fail_at(r, (place){from, k}, err, why);
}

static char *set_of(const char *path, const pl_recipe_value *v, bool list) {
    pl_strbuf text = {0};
    if (v->undone) return pl_sprintf("%s=null", path);
    if (!list) return pl_sprintf(strcmp(v->text, "null") == 0 ? "%s=\"%s\"" : "%s=%s", path, v->text);
    pl_strbuf_add(&text, path, strlen(path));
    pl_strbuf_add(&text, "=[", 2);
    for (int i = 0; i < v->n; i++) {
        if (i) pl_strbuf_add(&text, ",", 1);
        pl_strbuf_add(&text, v->texts[i], strlen(v->texts[i]));
    }
    pl_strbuf_add(&text, "]", 1);
    return pl_strbuf_take(&text);
}

pl_status pl_recipe_of_item(pl_recipe **out, const pl_recipe *r, const void *item, const char *name,
                            const char *const sets[], int n_sets, pl_err *err) {
    int              list, n = 0;
    const pl_recipe *from = must_find_item(r, item, &list);
    char           **own = pl_calloc((size_t)r->n + 1, sizeof *own), *text = NULL;
    const char     **all = pl_calloc((size_t)r->n + 1 + (size_t)n_sets, sizeof *all);
    pl_status        st = own && all ? pl_recipe_dump(r, &text, err) : memory(err);
    *out = NULL;
    if (st == PL_OK) own[n++] = pl_sprintf("%s=[]", r->rows[list]->path);
    for (int i = 0; st == PL_OK && i < r->n; i++) {
        int k = overriding_row(r, from, i);
        if (k >= 0) own[n++] = set_of(r->rows[i]->path, &from->values[k], pl_recipe_type_is_list(from->rows[k]->type));
    }
    for (int i = 0; st == PL_OK && i < n; i++) {
        all[i] = own[i];
        if (!own[i]) st = memory(err);
    }
    for (int i = 0; st == PL_OK && i < n_sets; i++)
        all[n + i] = sets[i];
    if (st == PL_OK)
        st = pl_recipe_parse(out, text, strlen(text), name, (const pl_key *const *)r->tables, r->n_tables, all,
                             n + n_sets, err);
    // Its lines and --set arguments are not the user's, so messages must not cite them.
    if (st == PL_OK) (*out)->composed = true;
    for (int i = 0; i < n; i++)
        pl_free(own[i]);
    pl_free(own);
    pl_free(all);
    pl_free(text);
    return st;
}

pl_status pl_recipe_item_hash(const pl_recipe *r, const void *item, char out[17], pl_err *err) {
    int list;
    return pl_recipe_hash(must_find_item(r, item, &list), 0, out, err);
}
