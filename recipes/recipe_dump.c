// The effective recipe as canonical YAML, its hash, and the help text of the tables.
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include "kernels/base/utf8.h"
#include "recipes/recipe.h"
#include "recipes/recipe_impl.h"

#include <ctype.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct writer {
    char                *text;
    size_t               n, size;
    bool                 failed; // out of memory; sticks
    unsigned             stages;
    bool                 hashed;      // omits keys that a hash omits
    bool                 inline_next; // the next line follows a "- "
    const pl_key *const *tables;      // of help
    int                  n_tables;
} writer;

static void put_bytes(writer *w, const char *s, size_t n) {
    if (w->failed) return;
    if (n >= w->size - w->n) {
        size_t size = 2 * (w->size + n) + 256;
        char  *more = pl_realloc(w->text, size);
        if (!more) {
            w->failed = true;
            return;
        }
        w->text = more;
        w->size = size;
    }
    memcpy(w->text + w->n, s, n);
    w->n += n;
    w->text[w->n] = 0;
}

static void put(writer *w, const char *s) {
    put_bytes(w, s, strlen(s));
}

static pl_status finish(writer *w, char **text, pl_err *err) {
    *text = NULL;
    put(w, ""); // an empty text is still a string
    if (w->failed) {
        pl_free(w->text);
        return pl_fail(err, PL_E_MEMORY, "out of memory while writing a recipe");
    }
    *text = w->text;
    return PL_OK;
}

// Returns true if every YAML reader reads the text as the same string without quotes: it starts like a word or a path
// and is none of YAML 1.1's reserved words.
static bool is_plain(const char *s) {
    static const char *const words[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
    bool                     path = !strncmp(s, "./", 2) || !strncmp(s, "../", 3);
    if (!isalpha((unsigned char)*s) && *s != '_' && *s != '/' && !path) return false;
    for (const char *c = s; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_./+-", *c)) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(s, words[i])) return false;
    return true;
}

// Writes a string; in double quotes, escapes characters that a YAML reader would fold, strip or refuse.
static void put_string(writer *w, const char *s) {
    char   escape[16];
    size_t n = strlen(s);
    if (is_plain(s)) {
        put(w, s);
        return;
    }
    put(w, "\"");
    for (size_t i = 0; i < n;) {
        uint32_t code = 0;
        int      len = pl_utf8_next(s + i, n - i, &code);
        PL_CHECK(len > 0, "a string that is not UTF-8 in a recipe, byte %zu", i);
        bool odd = code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0xfeff ||
                   code == 0xfffe || code == 0xffff;
        if (code == '"' || code == '\\')
            snprintf(escape, sizeof escape, "\\%c", (char)code);
        else if (code == '\n')
            snprintf(escape, sizeof escape, "\\n");
        else if (code == '\t')
            snprintf(escape, sizeof escape, "\\t");
        else
            snprintf(escape, sizeof escape, "\\u%04X", (unsigned)code);
        if (odd || code == '"' || code == '\\')
            put(w, escape);
        else
            put_bytes(w, s + i, (size_t)len);
        i += (size_t)len;
    }
    put(w, "\"");
}

static bool is_counted(const writer *w, const pl_recipe *r, int i) {
    const pl_key *row = r->rows[i];
    if (w->hashed && row->late && pl_recipe_is_default(r, i)) return false;
    return (r->values[i].present || r->values[i].undone) && (!w->stages || !row->stages || (row->stages & w->stages));
}

static void begin_line(writer *w, int indent) {
    if (w->inline_next) {
        w->inline_next = false;
        return;
    }
    for (int i = 0; i < indent; i++)
        put(w, "  ");
}

static void put_section(writer *w, const pl_recipe *r, const char *prefix, size_t prefix_n, int indent);

static void put_items(writer *w, const pl_recipe_value *v, int indent) {
    put(w, "\n");
    for (int i = 0; i < v->n; i++) {
        begin_line(w, indent);
        put(w, "- ");
        w->inline_next = true;
        put_section(w, v->items[i], "", 0, indent + 1);
        if (w->inline_next) put(w, "{}\n");
        w->inline_next = false;
    }
}

// Writes the value of a key, which is no list of maps.
static void put_value(writer *w, const pl_recipe *r, int i) {
    const pl_recipe_value *v = &r->values[i];
    pl_key_type            type = r->rows[i]->type;
    bool strings = type == PL_KEY_STRING || type == PL_KEY_PATH || type == PL_KEY_ENUM || type == PL_KEY_STRING_LIST;
    if (v->undone) {
        put(w, "null");
        return;
    }
    if (pl_recipe_type_is_list(type)) put(w, "[");
    for (int j = 0; j < (pl_recipe_type_is_list(type) ? v->n : 1); j++) {
        const char *text = pl_recipe_type_is_list(type) ? v->texts[j] : v->text;
        if (j) put(w, ", ");
        if (strings)
            put_string(w, text);
        else
            put(w, text);
    }
    if (pl_recipe_type_is_list(type)) put(w, "]");
}

static void put_key(writer *w, const pl_recipe *r, int i, const char *name, int indent) {
    begin_line(w, indent);
    put(w, name);
    put(w, ":");
    if (r->rows[i]->type == PL_KEY_LIST_OF_MAPS && r->values[i].n) {
        put_items(w, &r->values[i], indent + 1);
        return;
    }
    put(w, " ");
    put_value(w, r, i);
    put(w, "\n");
}

static bool starts(const char *path, const char *prefix, size_t n) {
    return !strncmp(path, prefix, n);
}

// Writes the keys below prefix ("" or "train."), each section at the place of its first key.
static void put_section(writer *w, const pl_recipe *r, const char *prefix, size_t prefix_n, int indent) {
    for (int i = 0; i < r->n; i++) {
        const char *path = r->rows[i]->path, *name = path + prefix_n;
        if (!starts(path, prefix, prefix_n) || !is_counted(w, r, i)) continue;
        const char *dot = strchr(name, '.');
        if (!dot) {
            put_key(w, r, i, name, indent);
            continue;
        }
        size_t n = (size_t)(dot + 1 - path);
        bool   done = false;
        for (int j = 0; j < i && !done; j++)
            done = starts(r->rows[j]->path, path, n) && is_counted(w, r, j);
        if (done) continue;
        begin_line(w, indent);
        put_bytes(w, name, (size_t)(dot - name));
        put(w, ":\n");
        put_section(w, r, path, n, indent + 1);
    }
}

static pl_status dump(const pl_recipe *r, unsigned stages, bool hashed, char **text, pl_err *err) {
    writer w = {.stages = stages, .hashed = hashed};
    put_section(&w, r, "", 0, 0);
    return finish(&w, text, err);
}

pl_status pl_recipe_dump(const pl_recipe *r, char **text, pl_err *err) {
    return dump(r, 0, false, text, err);
}

pl_status pl_recipe_hash(const pl_recipe *r, unsigned stages, char out[17], pl_err *err) {
    char *text = NULL;
    out[0] = 0;
    PL_TRY(dump(r, stages, true, &text, err));
    pl_hash_hex(out, pl_hash(text, strlen(text)));
    pl_free(text);
    return PL_OK;
}

// Writes the value of row i as one line of text, a list of maps as its lines; "" if it does not matter to `stages`.
static pl_status value_text(const pl_recipe *r, int i, unsigned stages, char **text, pl_err *err) {
    writer w = {.stages = stages, .hashed = true};
    if (is_counted(&w, r, i)) {
        if (r->rows[i]->type == PL_KEY_LIST_OF_MAPS)
            put_items(&w, &r->values[i], 0);
        else
            put_value(&w, r, i);
    }
    return finish(&w, text, err);
}

pl_status pl_recipe_change(const pl_recipe *was, const pl_recipe *is, unsigned stages, char *out, size_t size,
                           pl_err *err) {
    *out = 0;
    for (int i = 0; i < is->n && !*out; i++) {
        char     *before = NULL, *now = NULL;
        pl_status st = value_text(was, i, stages, &before, err);
        if (st == PL_OK) st = value_text(is, i, stages, &now, err);
        bool same = st != PL_OK || strcmp(before, now) == 0, items = is->rows[i]->type == PL_KEY_LIST_OF_MAPS;
        if (!same && items) snprintf(out, size, "%s, which were others", is->rows[i]->path);
        if (!same && !items)
            snprintf(out, size, "%s, which was %.60s, not %.60s", is->rows[i]->path, *before ? before : "not given",
                     *now ? now : "left out");
        pl_free(before);
        pl_free(now);
        PL_TRY(st);
    }
    return PL_OK;
}

// Returns true if a table before t has the key, which is then listed there.
static bool told(const writer *w, int t, const char *path) {
    for (int k = 0; k < t; k++)
        for (const pl_key *row = w->tables[k]; row->path; row++)
            if (strcmp(row->path, path) == 0) return true;
    return false;
}

// Writes the help of the keys that items of an overriding list may give besides their own.
static void put_overriding(writer *w, const char *at) {
    for (int t = 0; t < w->n_tables; t++)
        for (const pl_key *row = w->tables[t]; row->path; row++) {
            if (!row->each || told(w, t, row->path)) continue;
            put(w, at);
            put(w, pl_recipe_short_path(row->path));
            put(w, ": instead of ");
            put(w, row->path);
            put(w, "\n");
        }
}

// Writes a table's help. t: the table's number; 0 for a list's items.
static void put_help(writer *w, const pl_key *table, int t, const char *at) {
    char range[96];
    for (const pl_key *row = table; row->path; row++) {
        if (told(w, t, row->path)) continue;
        put(w, at);
        put(w, row->path);
        put(w, ": ");
        put(w, row->type == PL_KEY_ENUM ? "one of " : pl_recipe_type_name(row->type));
        for (int i = 0; row->type == PL_KEY_ENUM && pl_key_choice(row, i); i++) {
            put(w, i ? ", " : "");
            put(w, pl_key_choice(row, i));
        }
        put(w, pl_recipe_range(row, range, sizeof range));
        put(w, row->deflt ? "; default " : "; no default");
        if (row->deflt) put(w, *row->deflt ? row->deflt : "\"\"");
        put(w, "\n");
        if (row->help) {
            put(w, "    ");
            put(w, row->help);
            put(w, "\n");
        }
        if (!row->item) continue;
        char *below = pl_sprintf("%s%s.N.", at, row->path);
        if (below)
            put_help(w, row->item, 0, below);
        else
            w->failed = true;
        if (below && row->overrides) put_overriding(w, below);
        pl_free(below);
    }
}

pl_status pl_recipe_help(const pl_key *const tables[], int n_tables, char **text, pl_err *err) {
    writer   w = {.tables = tables, .n_tables = n_tables};
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    locale_t before = plain ? uselocale(plain) : (locale_t)0;
    for (int t = 0; t < n_tables; t++)
        put_help(&w, tables[t], t, "");
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return finish(&w, text, err);
}
