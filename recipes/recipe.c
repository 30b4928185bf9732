// Opening and --set. recipe_value.c and recipe_yaml.c read values, recipe_fields.c fills structs, recipe_dump.c writes.
#include "recipes/recipe.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/utf8.h"
#include "recipes/recipe_impl.h"

#include <ctype.h>
#include <locale.h>
#include <string.h>

#define MAX_NESTING 8 // lists of mappings within each other

static pl_status memory(pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "out of memory while reading a recipe");
}

int pl_recipe_find(const pl_recipe *r, const char *path) {
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->rows[i]->path, path)) return i;
    return -1;
}

int pl_recipe_section(const pl_recipe *r, const char *path) {
    size_t n = strlen(path);
    for (int i = 0; i < r->n; i++)
        if (!strncmp(r->rows[i]->path, path, n) && r->rows[i]->path[n] == '.') return i;
    return -1;
}

// ---- tables ----

static void check_path(const char *path) {
    size_t n = strlen(path);
    PL_CHECK(n > 0 && n < PL_RECIPE_MAX_PATH, "recipe key \"%s\": %zu bytes", path, n);
    for (size_t i = 0; i < n; i++) {
        bool dot = path[i] == '.' && i > 0 && path[i - 1] != '.' && i + 1 < n;
        PL_CHECK(dot || isalnum((unsigned char)path[i]) || path[i] == '_' || path[i] == '-', "recipe key \"%s\"", path);
    }
}

static void check_row(const pl_recipe *r, int index, int nesting) {
    const pl_key *row = r->rows[index];
    check_path(row->path);
    bool number = row->type <= PL_KEY_BOOL || row->type == PL_KEY_ENUM;
    PL_CHECK(row->type != PL_KEY_ENUM || pl_key_choice(row, 0), "recipe key %s: no choices", row->path);
    PL_CHECK(row->choices[PL_KEY_MAX_CHOICES - 1] == NULL, "recipe key %s: too many choices", row->path);
    PL_CHECK(!number || !row->field.form || row->deflt, "recipe key %s: fills a field and has no default", row->path);
    PL_CHECK(row->min <= row->max, "recipe key %s: range %g to %g", row->path, row->min, row->max);
    PL_CHECK((row->type == PL_KEY_LIST_OF_MAPS) == (row->item != NULL), "recipe key %s: item table", row->path);
    PL_CHECK(!row->overrides || row->item, "recipe key %s: overrides without items", row->path);
    PL_CHECK(!row->late || (row->deflt && !row->item), "recipe key %s: late, without a default to leave out",
             row->path);
    for (int j = 0; j < r->n; j++) {
        size_t n = strlen(row->path);
        PL_CHECK(j == index || strncmp(r->rows[j]->path, row->path, n) != 0 ||
                     (r->rows[j]->path[n] != 0 && r->rows[j]->path[n] != '.'),
                 "recipe key %s stands twice or is a section of %s", row->path, r->rows[j]->path);
    }
    PL_CHECK(nesting < MAX_NESTING, "recipe key %s: lists of mappings nested too deep", row->path);
}

static int table_length(const pl_key *table) {
    int n = 0;
    while (table[n].path)
        n++;
    return n;
}

static void check_tables(const pl_recipe *r, int nesting);

static void check_items(const pl_key *table, int nesting) {
    const pl_key *rows[256];
    pl_recipe     item = {.rows = rows, .n = table_length(table)};
    PL_CHECK(item.n <= 256, "item table of %d keys", item.n);
    for (int i = 0; i < item.n; i++)
        rows[i] = &table[i];
    check_tables(&item, nesting);
}

static void check_tables(const pl_recipe *r, int nesting) {
    for (int i = 0; i < r->n; i++) {
        check_row(r, i, nesting);
        if (r->rows[i]->item) check_items(r->rows[i]->item, nesting + 1);
    }
}

// ---- creating ----

// Reads the value of a --set or a default: a scalar verbatim, a list as `a,b` or in YAML flow style.
static pl_status read_text(pl_recipe_value *v, const pl_recipe *r, const pl_key *row, const char *text,
                           const pl_recipe_place *p, pl_err *err) {
    if (!pl_recipe_type_is_list(row->type)) return pl_recipe_value_scalar(v, row, text, false, p, err);
    if (row->type == PL_KEY_LIST_OF_MAPS || *text == '[') return pl_recipe_read_flow(v, r, row, text, p, err);
    v->present = true;
    while (*text) {
        size_t n = strcspn(text, ","), from = strspn(text, " "), to = n;
        while (to > from && text[to - 1] == ' ')
            to--;
        char *element = from < to ? pl_sprintf("%.*s", (int)(to - from), text + from) : pl_strdup("");
        if (!element) return memory(err);
        pl_status st = pl_recipe_value_append(v, row, element, false, p, err);
        pl_free(element);
        PL_TRY(st);
        if (text[n] && !text[n + 1]) return pl_recipe_place_fail(p, err, "a comma at the end; write a,b");
        text += n + (text[n] == ',');
    }
    return PL_OK;
}

static pl_status read_default(pl_recipe *r, int index, pl_recipe_value *v, pl_err *err) {
    const pl_key   *row = r->rows[index];
    pl_recipe_place place = {.at = r->at, .path = row->path};
    pl_err          why;
    if (!row->deflt) return PL_OK;
    pl_status st = read_text(v, r, row, row->deflt, &place, &why);
    if (st == PL_E_MEMORY) return memory(err);
    PL_CHECK(st == PL_OK, "the default \"%s\" of recipe key %s does not fit: %s", row->deflt, row->path, why.msg);
    return PL_OK;
}

pl_status pl_recipe_unset(pl_recipe *r, int index, const pl_recipe_place *p, pl_err *err) {
    pl_recipe_value v = {0};
    pl_status       st = read_default(r, index, &v, err);
    if (st != PL_OK) {
        pl_recipe_value_clear(&v);
        return st;
    }
    pl_recipe_value_move(&r->values[index], &v);
    if (!r->each || r->table_of[index] != 1) return PL_OK;
    r->values[index].undone = true;
    r->values[index].set = p->set;
    r->values[index].line = p->line;
    r->values[index].column = p->column;
    return PL_OK;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

// Adds the rows of table t; an existing key gets an additional field for its value.
static void add_rows(pl_recipe *r, int t) {
    for (const pl_key *row = r->tables[t]; row->path; row++) {
        int there = row->field.form ? pl_recipe_find(r, row->path) : -1;
        if (there < 0) {
            r->table_of[r->n] = t;
            r->rows[r->n++] = row;
            continue;
        }
        const pl_key *first = r->rows[there];
        PL_CHECK(first->field.form && first->type == row->type && same_text(first->deflt, row->deflt) &&
                     first->min == row->min && first->max == row->max,
                 "recipe key %s stands twice, not in agreement", row->path);
        r->alias[r->n_alias++] = (pl_recipe_alias){.row = there, .key = row, .table = t};
    }
}

static int count_rows(const pl_key *const tables[], int n_tables) {
    int n = 0;
    for (int t = 0; t < n_tables; t++)
        n += table_length(tables[t]);
    return n;
}

// Creates a recipe with defaults only. Copies name (may be NULL) and at.
static pl_status create(pl_recipe **out, const pl_key *const tables[], int n_tables, const char *name, const char *at,
                        pl_err *err) {
    pl_status  st = PL_OK;
    size_t     n = (size_t)count_rows(tables, n_tables) + 1;
    pl_recipe *r = pl_calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return memory(err);
    r->rows = pl_calloc(n, sizeof *r->rows);
    r->table_of = pl_calloc(n, sizeof *r->table_of);
    r->alias = pl_calloc(n, sizeof *r->alias);
    r->values = pl_calloc(n, sizeof *r->values);
    r->defaults = pl_calloc(n, sizeof *r->defaults);
    r->tables = pl_calloc((size_t)n_tables + 1, sizeof *r->tables);
    r->structs = pl_calloc((size_t)n_tables + 1, sizeof *r->structs);
    r->at = pl_strdup(at);
    r->name = name ? pl_strdup(name) : NULL;
    if (!r->rows || !r->table_of || !r->alias || !r->values || !r->defaults || !r->tables || !r->structs || !r->at ||
        (name && !r->name)) {
        st = memory(err);
        goto done;
    }
    for (; r->n_tables < n_tables; r->n_tables++) {
        r->tables[r->n_tables] = tables[r->n_tables];
        add_rows(r, r->n_tables);
    }
    if (!*at) check_tables(r, 0);
    for (int i = 0; i < r->n; i++) {
        PL_TRY_GOTO(st, done, read_default(r, i, &r->values[i], err));
        PL_TRY_GOTO(st, done, read_default(r, i, &r->defaults[i], err));
    }
    *out = r;
    r = NULL;
done:
    pl_recipe_destroy(r);
    return st;
}

// Makes rows for the keys that items of an overriding list may give besides their own: checked as text here, and
// finally as the keys that they replace.
static pl_key *overriding_keys(const pl_recipe *root) {
    pl_key *key = pl_calloc((size_t)root->n + 1, sizeof *key);
    int     n = 0;
    for (int i = 0; key && i < root->n; i++) {
        const pl_key *row = root->rows[i];
        if (!row->each) continue;
        key[n++] = (pl_key){.path = pl_recipe_short_path(row->path),
                            .type = pl_recipe_type_is_list(row->type) ? PL_KEY_STRING_LIST : PL_KEY_STRING};
    }
    return key;
}

pl_recipe *pl_recipe_item_create(const pl_recipe *parent, const pl_key *row, int index, pl_err *err) {
    pl_recipe    *item = NULL;
    char         *at = pl_sprintf("%s%s.%d.", parent->at, row->path, index);
    pl_key       *each = row->overrides ? overriding_keys(parent) : NULL;
    const pl_key *tables[] = {row->item, each};
    if (!at || (row->overrides && !each))
        memory(err);
    else
        create(&item, tables, each ? 2 : 1, parent->name, at, err);
    if (item)
        item->each = each;
    else
        pl_free(each);
    pl_free(at);
    return item;
}

void pl_recipe_destroy(pl_recipe *r) {
    if (!r) return;
    pl_recipe_drop_fields(r);
    for (int i = 0; r->values && r->defaults && i < r->n; i++) {
        pl_recipe_value_clear(&r->values[i]);
        pl_recipe_value_clear(&r->defaults[i]);
    }
    for (int i = 0; i < r->n_sets; i++)
        pl_free(r->sets[i]);
    for (int i = 0; i < r->n_seen; i++)
        pl_free(r->seen[i].path);
    pl_free(r->sets);
    pl_free(r->seen);
    pl_free(r->values);
    pl_free(r->defaults);
    pl_free(r->rows);
    pl_free(r->table_of);
    pl_free(r->alias);
    pl_free(r->tables);
    pl_free(r->structs);
    pl_free(r->each);
    pl_free(r->name);
    pl_free(r->at);
    pl_free(r);
}

// ---- --set ----

static pl_status apply_set(pl_recipe *r, const char *path, const char *value, pl_recipe_place *p, pl_err *err);

// Applies a --set to the item that "INDEX.rest" names; an index one past the last appends an item.
static pl_status apply_set_item(pl_recipe *r, int row_index, const char *tail, const char *value, pl_recipe_place *p,
                                pl_err *err) {
    const pl_key    *row = r->rows[row_index];
    pl_recipe_value *v = &r->values[row_index];
    int              index = 0, digits = 0;
    while (isdigit((unsigned char)tail[digits]) && digits < 6)
        index = 10 * index + (tail[digits++] - '0');
    if (!digits || tail[digits] != '.' || !tail[digits + 1])
        return pl_recipe_place_fail(p, err, "expected an item's number and key, such as %s%s.0.%s", r->at, row->path,
                                    row->item[0].path ? row->item[0].path : "key");
    if (index > v->n)
        return pl_recipe_place_fail(p, err, "%s%s has %d items; the next is %s%s.%d", r->at, row->path, v->n, r->at,
                                    row->path, v->n);
    if (index == v->n) {
        pl_recipe *item = pl_recipe_item_create(r, row, index, err);
        if (!item) return PL_E_MEMORY;
        PL_TRY(pl_recipe_value_append_item(v, item, p, err));
    }
    v->given = true;
    return apply_set(v->items[index], tail + digits + 1, value, p, err);
}

static pl_status apply_set(pl_recipe *r, const char *path, const char *value, pl_recipe_place *p, pl_err *err) {
    int index = pl_recipe_find(r, path), first = pl_recipe_section(r, path);
    p->at = r->at;
    p->path = path;
    for (int i = 0; i < r->n && index < 0; i++) {
        size_t n = strlen(r->rows[i]->path);
        if (r->rows[i]->item && !strncmp(path, r->rows[i]->path, n) && path[n] == '.')
            return apply_set_item(r, i, path + n + 1, value, p, err);
    }
    if (index < 0 && first >= 0)
        return pl_recipe_place_fail(p, err, "%s%s is a section; set one of its keys, such as %s%s", r->at, path, r->at,
                                    r->rows[first]->path);
    if (index < 0) return pl_recipe_unknown(r, p, err);
    if (strcmp(value, "null") == 0) return pl_recipe_unset(r, index, p, err);
    bool            quoted = !pl_recipe_type_is_list(r->rows[index]->type) && strcmp(value, "\"null\"") == 0;
    pl_recipe_value v = {.given = true, .set = p->set};
    pl_status       st = read_text(&v, r, r->rows[index], quoted ? "null" : value, p, err);
    if (st == PL_OK)
        pl_recipe_value_move(&r->values[index], &v);
    else
        pl_recipe_value_clear(&v);
    return st;
}

static pl_status read_set(pl_recipe *r, char *set, pl_err *err) {
    pl_recipe_place p = {.set = set, .at = ""};
    const char     *equal = strchr(set, '=');
    if (pl_utf8_valid(set, strlen(set)) < strlen(set)) return pl_recipe_place_fail(&p, err, "not UTF-8");
    if (!equal || equal == set) return pl_recipe_place_fail(&p, err, "expected key.path=value");
    char *path = pl_sprintf("%.*s", (int)(equal - set), set);
    if (!path) return memory(err);
    pl_status st = apply_set(r, path, equal + 1, &p, err);
    pl_free(path);
    return st;
}

static pl_status read_sets(pl_recipe *r, const char *const sets[], int n_sets, pl_err *err) {
    r->sets = pl_calloc((size_t)n_sets + 1, sizeof *r->sets);
    if (!r->sets) return memory(err);
    for (int i = 0; i < n_sets; i++) {
        r->sets[i] = pl_strdup(sets[i]);
        if (!r->sets[i]) return memory(err);
        r->n_sets++;
        PL_TRY(read_set(r, r->sets[i], err));
    }
    return PL_OK;
}

// ---- opening ----

static pl_status parse(pl_recipe **out, const char *text, size_t n, const char *name, const pl_key *const tables[],
                       int n_tables, const char *const sets[], int n_sets, pl_err *err) {
    pl_recipe *r = NULL;
    pl_status  st = PL_OK;
    PL_TRY_GOTO(st, done, create(&r, tables, n_tables, name, "", err));
    if (text) PL_TRY_GOTO(st, done, pl_recipe_read_document(r, text, n, err));
    PL_TRY_GOTO(st, done, read_sets(r, sets, n_sets, err));
    PL_TRY_GOTO(st, done, pl_recipe_fill(r, err));
    *out = r;
    r = NULL;
done:
    pl_recipe_destroy(r);
    return st;
}

pl_status pl_recipe_parse(pl_recipe **out, const char *text, size_t n, const char *name, const pl_key *const tables[],
                          int n_tables, const char *const sets[], int n_sets, pl_err *err) {
    PL_CHECK(out && n_tables >= 0 && n_sets >= 0, "n_tables %d n_sets %d", n_tables, n_sets);
    *out = NULL;
    // Numbers are read and written with a decimal point, whatever the locale of the host program.
    locale_t  plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    locale_t  before = plain ? uselocale(plain) : (locale_t)0;
    pl_status st = parse(out, text, n, name, tables, n_tables, sets, n_sets, err);
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return st;
}

pl_status pl_recipe_open(pl_recipe **out, const char *path, const pl_key *const tables[], int n_tables,
                         const char *const sets[], int n_sets, pl_err *err) {
    uint8_t *text = NULL;
    size_t   n = 0;
    *out = NULL;
    if (path) PL_TRY(pl_file_read(path, &text, &n, PL_RECIPE_MAX_BYTES, err));
    pl_status st = pl_recipe_parse(out, (const char *)text, n, path, tables, n_tables, sets, n_sets, err);
    pl_free(text);
    return st;
}

void pl_recipe_close(pl_recipe *r) {
    PL_CHECK(!r || !*r->at, "%s is an item's view, which its recipe closes", r ? r->at : "");
    pl_recipe_destroy(r);
}
