// Reads YAML by libyaml's events: values are typed while parsing, and errors have the parser's position.
#include "kernels/base/arena.h"
#include "kernels/base/utf8.h"
#include "recipes/recipe_impl.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

typedef struct reader {
    yaml_parser_t   parser;
    yaml_event_t    event; // the current one
    bool            holds; // event must be deleted
    pl_recipe_place place; // of the current event; its `set` and `name` hold for the whole text
    pl_err         *err;
} reader;

static pl_status read_mapping(reader *rd, pl_recipe *r, const char *prefix);

static int clamp_line(size_t n) {
    return n < 1u << 30 ? (int)n + 1 : 1 << 30;
}

static void place_at(reader *rd, yaml_mark_t mark) {
    rd->place.line = clamp_line(mark.line);
    rd->place.column = clamp_line(mark.column);
}

static pl_status memory(reader *rd) {
    return pl_fail(rd->err, PL_E_MEMORY, "out of memory while reading a recipe");
}

static pl_status broken(reader *rd) {
    const yaml_parser_t *y = &rd->parser;
    const char          *problem = y->problem ? y->problem : "cannot be read";
    if (y->error == YAML_MEMORY_ERROR) return memory(rd);
    place_at(rd, y->problem_mark);
    if (y->error == YAML_READER_ERROR) rd->place.line = 0;
    rd->place.path = NULL;
    if (y->context)
        return pl_recipe_place_fail(&rd->place, rd->err, "not valid YAML: %s %s; check indentation, colons and quotes",
                                    y->context, problem);
    return pl_recipe_place_fail(&rd->place, rd->err, "not valid YAML: %s; check indentation, colons and quotes",
                                problem);
}

// Refuses YAML features that recipes do not support, so that each value is where its key is.
static pl_status refuse_extras(reader *rd) {
    const yaml_event_t *e = &rd->event;
    const yaml_char_t  *anchor = NULL, *tag = NULL;
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return pl_recipe_place_fail(&rd->place, rd->err, "aliases (*%s) are not part of recipes; write the value out",
                                    (const char *)e->data.alias.anchor);
    case YAML_SCALAR_EVENT: anchor = e->data.scalar.anchor, tag = e->data.scalar.tag; break;
    case YAML_SEQUENCE_START_EVENT: anchor = e->data.sequence_start.anchor, tag = e->data.sequence_start.tag; break;
    case YAML_MAPPING_START_EVENT: anchor = e->data.mapping_start.anchor, tag = e->data.mapping_start.tag; break;
    default: break;
    }
    if (anchor)
        return pl_recipe_place_fail(&rd->place, rd->err, "anchors (&%s) are not part of recipes; write the value out",
                                    (const char *)anchor);
    if (tag)
        return pl_recipe_place_fail(&rd->place, rd->err, "tags (%s) are not part of recipes; remove it",
                                    (const char *)tag);
    if (e->type == YAML_SCALAR_EVENT && memchr(e->data.scalar.value, 0, e->data.scalar.length))
        return pl_recipe_place_fail(&rd->place, rd->err, "a NUL character in a value");
    return PL_OK;
}

static pl_status next(reader *rd) {
    if (rd->holds) yaml_event_delete(&rd->event);
    rd->holds = false;
    if (!yaml_parser_parse(&rd->parser, &rd->event)) return broken(rd);
    rd->holds = true;
    place_at(rd, rd->event.start_mark);
    return refuse_extras(rd);
}

static const char *scalar(const reader *rd) {
    return (const char *)rd->event.data.scalar.value;
}

static bool is_quoted(const reader *rd) {
    return rd->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

static bool is_null(const reader *rd) {
    const char *s = scalar(rd);
    if (rd->event.type != YAML_SCALAR_EVENT || is_quoted(rd)) return false;
    return !*s || !strcmp(s, "~") || !strcmp(s, "null") || !strcmp(s, "Null") || !strcmp(s, "NULL");
}

// Describes the current event, for "expected ..., found ...".
static const char *found(const reader *rd, char *buf, size_t size) {
    if (is_null(rd)) return "nothing";
    switch (rd->event.type) {
    case YAML_SCALAR_EVENT: return pl_recipe_quote(scalar(rd), buf, size);
    case YAML_SEQUENCE_START_EVENT: return "a list";
    case YAML_MAPPING_START_EVENT: return "a mapping";
    default: return "nothing";
    }
}

static pl_status read_list(reader *rd, const pl_recipe *r, const pl_key *row, pl_recipe_value *v) {
    char what[256], why[320];
    if (row->type != PL_KEY_LIST_OF_MAPS && rd->event.type == YAML_SCALAR_EVENT && !is_null(rd))
        return pl_recipe_value_append(v, row, scalar(rd), is_quoted(rd), &rd->place, rd->err);
    if (rd->event.type != YAML_SEQUENCE_START_EVENT)
        return pl_recipe_mismatch(row, &rd->place, found(rd, what, sizeof what), rd->err);
    v->present = true;
    for (;;) {
        PL_TRY(next(rd));
        if (rd->event.type == YAML_SEQUENCE_END_EVENT) return PL_OK;
        if (row->type == PL_KEY_LIST_OF_MAPS && rd->event.type == YAML_MAPPING_START_EVENT) {
            pl_recipe *item = pl_recipe_item_create(r, row, v->n, rd->err);
            if (!item) return PL_E_MEMORY;
            bool in_file = rd->place.name && !rd->place.set;
            item->line = in_file ? rd->place.line : 0;
            item->column = in_file ? rd->place.column : 0;
            PL_TRY(pl_recipe_value_append_item(v, item, &rd->place, rd->err));
            pl_recipe_place here = rd->place;
            rd->place.at = item->at;
            rd->place.path = NULL;
            PL_TRY(read_mapping(rd, item, ""));
            rd->place = here;
        } else if (row->type != PL_KEY_LIST_OF_MAPS && rd->event.type == YAML_SCALAR_EVENT && !is_null(rd)) {
            PL_TRY(pl_recipe_value_append(v, row, scalar(rd), is_quoted(rd), &rd->place, rd->err));
        } else {
            snprintf(why, sizeof why, "%s in it", found(rd, what, sizeof what));
            return pl_recipe_mismatch(row, &rd->place, why, rd->err);
        }
    }
}

// Reads the value at the current event.
static pl_status read_value(reader *rd, const pl_recipe *r, const pl_key *row, pl_recipe_value *v) {
    char what[256];
    v->line = rd->place.line;
    v->column = rd->place.column;
    if (pl_recipe_type_is_list(row->type)) return read_list(rd, r, row, v);
    if (rd->event.type != YAML_SCALAR_EVENT || is_null(rd))
        return pl_recipe_mismatch(row, &rd->place, found(rd, what, sizeof what), rd->err);
    return pl_recipe_value_scalar(v, row, scalar(rd), is_quoted(rd), &rd->place, rd->err);
}

// Records a key or section. All are known ones, each recorded once, so the list is no longer than the tables.
static pl_status note_seen(reader *rd, pl_recipe *r, const char *path) {
    for (int i = 0; i < r->n_seen; i++)
        if (!strcmp(r->seen[i].path, path))
            return rd->place.set ? pl_recipe_place_fail(&rd->place, rd->err, "%s%s stands twice", r->at, path)
                                 : pl_recipe_place_fail(&rd->place, rd->err,
                                                        "duplicate key; it stands on line %d "
                                                        "already",
                                                        r->seen[i].line);
    pl_recipe_seen *more = pl_realloc(r->seen, pl_size_mul((size_t)r->n_seen + 1, sizeof *more, 1));
    if (!more) return memory(rd);
    r->seen = more;
    more[r->n_seen].line = rd->place.line;
    more[r->n_seen].path = pl_strdup(path);
    if (!more[r->n_seen].path) return memory(rd);
    r->n_seen++;
    return PL_OK;
}

static pl_status read_section(reader *rd, pl_recipe *r, const char *path, int first) {
    char what[256];
    if (is_null(rd)) return PL_OK; // a section with all keys commented out
    if (rd->event.type == YAML_MAPPING_START_EVENT) return read_mapping(rd, r, path);
    return pl_recipe_place_fail(&rd->place, rd->err, "expected a section with keys such as %s%s, found %s", r->at,
                                r->rows[first]->path, found(rd, what, sizeof what));
}

// Returns true for an explicit null; a key without any value is an error.
static bool says_null(const reader *rd) {
    return is_null(rd) && *scalar(rd);
}

static pl_status read_leaf(reader *rd, pl_recipe *r, int index) {
    if (says_null(rd)) return pl_recipe_unset(r, index, &rd->place, rd->err);
    pl_recipe_value v = {.given = rd->place.set || rd->place.name, .set = rd->place.set};
    pl_status       st = read_value(rd, r, r->rows[index], &v);
    if (st == PL_OK)
        pl_recipe_value_move(&r->values[index], &v);
    else
        pl_recipe_value_clear(&v);
    return st;
}

// Reads a key of a mapping, at the current event, and its value.
static pl_status read_pair(reader *rd, pl_recipe *r, const char *prefix) {
    char path[PL_RECIPE_MAX_PATH];
    if (rd->event.type != YAML_SCALAR_EVENT) {
        rd->place.path = NULL;
        return pl_recipe_place_fail(&rd->place, rd->err, "a key must be a name, found %s",
                                    found(rd, path, sizeof path));
    }
    int n = snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", scalar(rd));
    if (n >= (int)sizeof path) memcpy(path + sizeof path - 4, "...", 4); // longer than any known path
    rd->place.path = path;
    int       index = pl_recipe_find(r, path), first = index < 0 ? pl_recipe_section(r, path) : -1;
    pl_status st = index < 0 && first < 0 ? pl_recipe_unknown(r, &rd->place, rd->err) : note_seen(rd, r, path);
    if (st == PL_OK) st = next(rd);
    if (st == PL_OK) st = index >= 0 ? read_leaf(rd, r, index) : read_section(rd, r, path, first);
    rd->place.path = NULL; // `path` ends here
    return st;
}

// Reads the pairs of a mapping, from its start at the current event to its end.
static pl_status read_mapping(reader *rd, pl_recipe *r, const char *prefix) {
    for (;;) {
        PL_TRY(next(rd));
        if (rd->event.type == YAML_MAPPING_END_EVENT) return PL_OK;
        PL_TRY(read_pair(rd, r, prefix));
    }
}

static pl_status begin(reader *rd, const char *text, size_t n, pl_err *err) {
    rd->err = err;
    if (!yaml_parser_initialize(&rd->parser)) return memory(rd);
    yaml_parser_set_encoding(&rd->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&rd->parser, (const unsigned char *)text, n);
    return PL_OK;
}

static void end(reader *rd) {
    if (rd->holds) yaml_event_delete(&rd->event);
    yaml_parser_delete(&rd->parser);
}

// Refuses invalid bytes before libyaml, which would not give their position.
static pl_status check_bytes(const char *text, size_t n, pl_recipe_place place, pl_err *err) {
    place.line = place.column = 1;
    for (size_t i = 0; i < n;) {
        uint32_t code = 0;
        int      len = pl_utf8_next(text + i, n - i, &code);
        if (len <= 0) return pl_recipe_place_fail(&place, err, "not UTF-8; save the recipe as UTF-8 text");
        if (code == '\t') return pl_recipe_place_fail(&place, err, "a tab; use spaces (and \\t inside double quotes)");
        bool line_end = code == '\n' || code == '\r';
        if ((code < 0x20 && !line_end) || (code >= 0x7f && code < 0xa0 && code != 0x85) || code == 0xfffe ||
            code == 0xffff)
            return pl_recipe_place_fail(&place, err, "a control character (U+%04X); remove it", (unsigned)code);
        bool crlf = code == '\r' && i + 1 < n && text[i + 1] == '\n';
        if (line_end && !crlf)
            place.line++, place.column = 1;
        else
            place.column++;
        i += (size_t)len;
    }
    return PL_OK;
}

// Reads the events of a stream: no document, or one whose top level is a mapping.
static pl_status read_stream(reader *rd, pl_recipe *r) {
    char what[256];
    PL_TRY(next(rd)); // stream start
    PL_TRY(next(rd));
    if (rd->event.type == YAML_STREAM_END_EVENT) return PL_OK;
    PL_TRY(next(rd));
    if (rd->event.type == YAML_MAPPING_START_EVENT)
        PL_TRY(read_mapping(rd, r, ""));
    else if (!is_null(rd))
        return pl_recipe_place_fail(&rd->place, rd->err, "expected keys (name: value), found %s",
                                    found(rd, what, sizeof what));
    PL_TRY(next(rd)); // document end
    PL_TRY(next(rd));
    if (rd->event.type == YAML_STREAM_END_EVENT) return PL_OK;
    return pl_recipe_place_fail(&rd->place, rd->err, "a second document; a recipe is one document");
}

pl_status pl_recipe_read_document(pl_recipe *r, const char *text, size_t n, pl_err *err) {
    reader rd = {.place = {.name = r->name, .at = r->at}};
    if (n > PL_RECIPE_MAX_BYTES)
        return pl_recipe_place_fail(&rd.place, err, "larger than %u bytes; this is no recipe", PL_RECIPE_MAX_BYTES);
    if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) // a byte order mark, which libyaml counts as a column
        text += 3, n -= 3;
    PL_TRY(check_bytes(text, n, rd.place, err));
    PL_TRY(begin(&rd, text, n, err));
    pl_status st = read_stream(&rd, r);
    end(&rd);
    return st;
}

pl_status pl_recipe_read_flow(pl_recipe_value *v, const pl_recipe *r, const pl_key *row, const char *text,
                              const pl_recipe_place *p, pl_err *err) {
    reader    rd = {.place = *p};
    pl_status st = PL_OK;
    PL_TRY(begin(&rd, text, strlen(text), err));
    PL_TRY_GOTO(st, done, next(&rd)); // stream start
    PL_TRY_GOTO(st, done, next(&rd)); // document start
    if (rd.event.type == YAML_STREAM_END_EVENT) {
        st = pl_recipe_mismatch(row, p, "nothing", err);
        goto done;
    }
    PL_TRY_GOTO(st, done, next(&rd));
    PL_TRY_GOTO(st, done, read_value(&rd, r, row, v));
    PL_TRY_GOTO(st, done, next(&rd)); // document end
    PL_TRY_GOTO(st, done, next(&rd));
    if (rd.event.type != YAML_STREAM_END_EVENT) st = pl_recipe_place_fail(p, err, "more than one value; write [a, b]");
done:
    end(&rd);
    return st;
}
