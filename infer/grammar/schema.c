// JSON schemas (2020-12, and draft 7's definitions and exclusive bounds) as grammars of the texts that are valid.
//
//   any type   true, {}, type (one or a list), const, enum, $ref within the schema, anyOf, allOf of one, oneOf of
//              different types or of objects that a required property's const or enum tells apart
//   object     properties, in their order, required, additionalProperties, minProperties and maxProperties of maps
//   array      items, prefixItems, minItems, maxItems
//   string     minLength, maxLength, or pattern, or format: date, time, date-time, uuid, ipv4, uri, email
//   integer    minimum, maximum, exclusiveMinimum, exclusiveMaximum; of a number where they are whole
//
// The texts are some of the valid ones: properties beyond the named ones are not written where some are named, numbers
// have 16 digits at most, and between tokens stands at most a blank or a line end with 20 blanks of indent. Other
// keywords that limit values are refused by name.
#include "infer/grammar/readers.h"

#include "infer/grammar/numbers.h"
#include "kernels/base/arena.h"
#include "kernels/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct named {
    const cJSON *schema;
    int32_t      rule;
} named;

typedef struct reader {
    pl_nodes      *g;
    const pl_json *json;
    const cJSON   *root;  // the schema that references start at; NULL: any object
    named         *rules; // schemas that are rules of their own; those from n_done on are not defined yet
    int            n_rules, n_done, cap_rules;
    int32_t        space, string, value;
    pl_err        *err;
} reader;

static pl_status node_of(reader *r, const cJSON *s, int32_t *out);

static pl_status unsupported(const reader *r, const cJSON *at, const char *why) {
    pl_json_fail(r->json, at, r->err, "%s", why);
    if (r->err) r->err->status = PL_E_UNSUPPORTED;
    return PL_E_UNSUPPORTED;
}

// ---- parts of JSON --------------------------------------------------------------------------------------------------

static int32_t text(pl_nodes *g, const char *s) {
    return pl_node_text(g, s, strlen(s));
}

static int32_t optional(pl_nodes *g, int32_t node) {
    return pl_node_repeat(g, node, 0, 1);
}

// "open" inner "close", with space inside the brackets where there is something.
static int32_t enclose(const reader *r, const char *open, int32_t inner, const char *close) {
    int32_t seq = pl_node_list(r->g, PL_NODE_SEQ), gap = pl_node_list(r->g, PL_NODE_SEQ);
    pl_node_add(r->g, gap, r->space);
    pl_node_add(r->g, gap, inner);
    pl_node_add(r->g, gap, r->space);
    pl_node_add(r->g, seq, text(r->g, open));
    pl_node_add(r->g, seq, gap);
    pl_node_add(r->g, seq, text(r->g, close));
    return seq;
}

static int32_t behind_comma(const reader *r, int32_t item) {
    int32_t seq = pl_node_list(r->g, PL_NODE_SEQ);
    pl_node_add(r->g, seq, text(r->g, ","));
    pl_node_add(r->g, seq, r->space);
    pl_node_add(r->g, seq, item);
    return seq;
}

// min to max items with commas between them.
static int32_t listing(const reader *r, int32_t item, int32_t min, int32_t max) {
    pl_nodes *g = r->g;
    if (max == 0) return pl_node_empty(g);
    int32_t more = pl_node_repeat(g, behind_comma(r, item), min > 0 ? min - 1 : 0,
                                  max == PL_GRAMMAR_MANY ? PL_GRAMMAR_MANY : max - 1);
    int32_t all = pl_node_pair(g, PL_NODE_SEQ, item, more);
    return min > 0 ? all : optional(g, all);
}

static int32_t member(const reader *r, int32_t key, int32_t value) {
    int32_t seq = pl_node_list(r->g, PL_NODE_SEQ);
    pl_node_add(r->g, seq, key);
    pl_node_add(r->g, seq, text(r->g, ":"));
    pl_node_add(r->g, seq, r->space);
    pl_node_add(r->g, seq, value);
    return seq;
}

static int32_t any_object(const reader *r) {
    return enclose(r, "{", listing(r, member(r, r->string, r->value), 0, PL_GRAMMAR_MANY), "}");
}

// Any JSON value; recursive.
static void define_value(const reader *r) {
    pl_nodes *g = r->g;
    int32_t   alt = pl_node_list(g, PL_NODE_ALT);
    pl_node_add(g, alt, any_object(r));
    pl_node_add(g, alt, enclose(r, "[", listing(r, r->value, 0, PL_GRAMMAR_MANY), "]"));
    pl_node_add(g, alt, r->string);
    pl_node_add(g, alt, pl_json_number(g));
    pl_node_add(g, alt, text(g, "true"));
    pl_node_add(g, alt, text(g, "false"));
    pl_node_add(g, alt, text(g, "null"));
    pl_node_define(g, r->value, alt);
}

static void make_parts(reader *r) {
    pl_nodes *g = r->g;
    int32_t   seq = pl_node_list(g, PL_NODE_SEQ), blank = pl_node_pair(g, PL_NODE_ALT, text(g, " "), text(g, "\t"));
    int32_t   line = pl_node_pair(g, PL_NODE_SEQ, text(g, "\n"), pl_node_repeat(g, blank, 0, 20));
    r->space = optional(g, pl_node_pair(g, PL_NODE_ALT, text(g, " "), line));
    pl_node_add(g, seq, text(g, "\""));
    pl_node_add(g, seq, pl_node_repeat(g, pl_json_any_char(g), 0, PL_GRAMMAR_MANY));
    pl_node_add(g, seq, text(g, "\""));
    r->string = seq;
    r->value = pl_node_rule(g);
    define_value(r);
}

// ---- keywords -------------------------------------------------------------------------------------------------------

enum { OBJECT = 1, ARRAY = 2, STRING = 4, NUMBER = 8, INTEGER = 16, BOOLEAN = 32, NIL = 64, ALL = 127 };

static const struct {
    const char *name;
    int         type;
} types[] = {{"object", OBJECT},   {"array", ARRAY},     {"string", STRING}, {"number", NUMBER},
             {"integer", INTEGER}, {"boolean", BOOLEAN}, {"null", NIL}};

// Keywords that limit values of these types; 0: of any type, where they stand alone beside `type`.
static const struct {
    const char *name;
    int         types;
} limits[] = {{"properties", OBJECT},
              {"required", OBJECT},
              {"additionalProperties", OBJECT},
              {"minProperties", OBJECT},
              {"maxProperties", OBJECT},
              {"items", ARRAY},
              {"prefixItems", ARRAY},
              {"minItems", ARRAY},
              {"maxItems", ARRAY},
              {"minLength", STRING},
              {"maxLength", STRING},
              {"pattern", STRING},
              {"format", STRING},
              {"minimum", NUMBER | INTEGER},
              {"maximum", NUMBER | INTEGER},
              {"const", 0},
              {"enum", 0},
              {"exclusiveMinimum", NUMBER | INTEGER},
              {"anyOf", 0},
              {"oneOf", 0},
              {"exclusiveMaximum", NUMBER | INTEGER},
              {"allOf", 0},
              {"$ref", 0}};

// Keywords of any draft that limit values and are not supported. Others have no effect on validity.
static bool is_refused(const char *key) {
    static const char *const name[] = {"multipleOf",
                                       "uniqueItems",
                                       "contains",
                                       "minContains",
                                       "maxContains",
                                       "patternProperties",
                                       "propertyNames",
                                       "unevaluatedProperties",
                                       "not",
                                       "if",
                                       "then",
                                       "else",
                                       "additionalItems",
                                       "unevaluatedItems",
                                       "$dynamicRef",
                                       "$recursiveRef",
                                       "dependencies",
                                       "dependentRequired",
                                       "dependentSchemas",
                                       "divisibleBy",
                                       "disallow",
                                       "extends"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (strcmp(key, name[i]) == 0) return true;
    return false;
}

// Returns the limits' types together, and in *whole the keyword that stands for the whole value, NULL: none.
static pl_status look_at_keywords(const reader *r, const cJSON *s, int *of, const cJSON **whole) {
    const cJSON *x;
    *of = 0;
    *whole = NULL;
    cJSON_ArrayForEach(x, s) {
        size_t i = 0;
        while (i < sizeof limits / sizeof *limits && strcmp(limits[i].name, x->string) != 0)
            i++;
        if (i == sizeof limits / sizeof *limits) {
            if (is_refused(x->string)) return unsupported(r, x, "this keyword cannot constrain a text here");
        } else if (limits[i].types) {
            *of |= limits[i].types;
        } else if (*whole) {
            return unsupported(r, x, "stands beside another keyword for the whole value");
        } else {
            *whole = x;
        }
    }
    return PL_OK;
}

static pl_status read_type(const reader *r, const cJSON *x, int *out) {
    if (cJSON_IsString(x))
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (strcmp(types[i].name, x->valuestring) == 0) {
                *out |= types[i].type;
                return PL_OK;
            }
    return pl_json_fail(r->json, x, r->err, "is no type");
}

// The types that a schema names; those of its limits, else all, where it names none.
static pl_status read_types(const reader *r, const cJSON *s, int of, int *out) {
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(s, "type"), *one;
    *out = 0;
    if (!x) {
        *out = of & (NUMBER | INTEGER) ? (of & ~INTEGER) | NUMBER : of ? of : ALL;
        return PL_OK;
    }
    if (!cJSON_IsArray(x)) return read_type(r, x, out);
    cJSON_ArrayForEach(one, x) PL_TRY(read_type(r, one, out));
    return PL_OK;
}

static pl_status count_of(const reader *r, const cJSON *s, const char *key, int32_t def, int32_t *out) {
    int64_t v;
    PL_TRY(pl_json_opt_int(r->json, s, key, 0, 1 << 20, def, &v, r->err));
    *out = (int32_t)v;
    return PL_OK;
}

// ---- references -----------------------------------------------------------------------------------------------------

// The rule of a schema, which is defined once, later.
static pl_status rule_of(reader *r, const cJSON *s, int32_t *out) {
    for (int i = 0; i < r->n_rules; i++)
        if (r->rules[i].schema == s) {
            *out = r->rules[i].rule;
            return PL_OK;
        }
    if (r->n_rules == PL_GRAMMAR_RULES)
        return pl_json_fail(r->json, s, r->err, "more than 4096 schemas are referenced");
    if (r->n_rules == r->cap_rules) {
        int    cap = r->cap_rules ? 2 * r->cap_rules : 16;
        named *p = pl_realloc(r->rules, (size_t)cap * sizeof *p);
        if (!p) return pl_fail(r->err, PL_E_MEMORY, "schema: out of memory");
        r->rules = p;
        r->cap_rules = cap;
    }
    *out = pl_node_rule(r->g);
    r->rules[r->n_rules++] = (named){.schema = s, .rule = *out};
    return PL_OK;
}

// Copies one part of a JSON pointer, in which ~1 is / and ~0 is ~.
static const char *pointer_part(const char *p, char *to, size_t room) {
    size_t n = 0;
    for (; *p && *p != '/' && n + 1 < room; p++) {
        bool escaped = *p == '~' && (p[1] == '0' || p[1] == '1');
        to[n++] = escaped ? (p[1] == '0' ? '~' : '/') : *p;
        p += escaped;
    }
    to[n] = 0;
    return p;
}

// Finds the schema that a reference names.
static pl_status find_schema(const reader *r, const cJSON *x, const cJSON **out) {
    const cJSON *at = r->root;
    const char  *p;
    char         part[256];
    PL_TRY(pl_json_str_of(r->json, x, &p, r->err));
    if (*p != '#') return unsupported(r, x, "leads out of the schema");
    for (p++; *p == '/' && at;) {
        p = pointer_part(p + 1, part, sizeof part);
        at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(part)) : cJSON_GetObjectItemCaseSensitive(at, part);
    }
    if (!at || *p) return pl_json_fail(r->json, x, r->err, "\"%.100s\" is not in the schema", x->valuestring);
    *out = at;
    return PL_OK;
}

static pl_status follow(reader *r, const cJSON *x, int32_t *out) {
    const cJSON *at;
    PL_TRY(find_schema(r, x, &at));
    return rule_of(r, at, out);
}

// ---- the types ------------------------------------------------------------------------------------------------------

// A value as its compact text.
static pl_status literal(const reader *r, const cJSON *x, int32_t *out) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_node(&o, x);
    PL_TRY(pl_json_out_end(&o, r->err));
    *out = pl_node_text(r->g, o.text, o.len);
    pl_free(o.text);
    return PL_OK;
}

static int type_of(const cJSON *x) {
    return cJSON_IsObject(x)   ? OBJECT
           : cJSON_IsArray(x)  ? ARRAY
           : cJSON_IsString(x) ? STRING
           : cJSON_IsBool(x)   ? BOOLEAN
           : cJSON_IsNull(x)   ? NIL
                               : NUMBER | (x->valuedouble == floor(x->valuedouble) ? INTEGER : 0);
}

// Adds the values of these types; a schema's `type` beside them holds too.
static pl_status add_literals(const reader *r, const cJSON *first, bool list, int mine, int32_t *out) {
    *out = pl_node_list(r->g, PL_NODE_ALT);
    for (const cJSON *x = first; x; x = list ? x->next : NULL) {
        int32_t one = 0;
        if (!(type_of(x) & mine)) continue;
        PL_TRY(literal(r, x, &one));
        pl_node_add(r->g, *out, one);
    }
    return PL_OK;
}

static pl_status key_of(const reader *r, const char *name, int32_t *out) {
    cJSON s = {.type = cJSON_String, .valuestring = (char *)name};
    return literal(r, &s, out);
}

static bool is_required(const cJSON *required, const char *name) {
    const cJSON *x;
    cJSON_ArrayForEach(x, required) if (cJSON_IsString(x) && strcmp(x->valuestring, name) == 0) return true;
    return false;
}

// Members in their order, built from the last one: `first` where none stands before it, `later` where one does.
typedef struct chain {
    int32_t first, later;
    int     n;
} chain;

static pl_status add_member(reader *r, chain *c, const char *name, int32_t value, bool must) {
    pl_nodes *g = r->g;
    int32_t   key = 0;
    PL_TRY(key_of(r, name, &key));
    int32_t one = member(r, key, value);
    int32_t a = pl_node_pair(g, PL_NODE_SEQ, one, c->later);
    int32_t b = pl_node_pair(g, PL_NODE_SEQ, behind_comma(r, one), c->later);
    c->first = must ? a : pl_node_pair(g, PL_NODE_ALT, a, c->first);
    c->later = must ? b : pl_node_pair(g, PL_NODE_ALT, b, c->later);
    c->n++;
    return PL_OK;
}

// The properties, and behind them what is required beside them, of the value `more`.
static pl_status members(reader *r, const cJSON *properties, const cJSON *required, int32_t more, int32_t *out) {
    chain        c = {.first = pl_node_empty(r->g)};
    const cJSON *x, *last = properties ? properties->child : NULL;
    c.later = c.first;
    cJSON_ArrayForEach(x, required) {
        const char *name;
        PL_TRY(pl_json_str_of(r->json, x, &name, r->err));
        if (cJSON_GetObjectItemCaseSensitive(properties, name)) continue;
        if (more < 0) return unsupported(r, x, "is required and not among the properties");
        PL_TRY(add_member(r, &c, name, more, true));
    }
    while (last && last->next)
        last = last->next;
    for (x = last; x; x = x == properties->child ? NULL : x->prev) {
        int32_t value = 0;
        PL_TRY(node_of(r, x, &value));
        PL_TRY(add_member(r, &c, x->string, value, is_required(required, x->string)));
    }
    if (c.n > PL_GRAMMAR_RULES) return pl_json_fail(r->json, properties, r->err, "more than 4096 properties");
    *out = c.first;
    return PL_OK;
}

static pl_status object_node(reader *r, const cJSON *s, int32_t *out) {
    const cJSON *properties = cJSON_GetObjectItemCaseSensitive(s, "properties");
    const cJSON *required = cJSON_GetObjectItemCaseSensitive(s, "required");
    const cJSON *more = cJSON_GetObjectItemCaseSensitive(s, "additionalProperties");
    const cJSON *least = cJSON_GetObjectItemCaseSensitive(s, "minProperties");
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(s, "maxProperties");
    int32_t      inner = 0, value = r->value, min, max;
    if (properties && !cJSON_IsObject(properties))
        return pl_json_fail(r->json, properties, r->err, "expected an object");
    if (required && !cJSON_IsArray(required)) return pl_json_fail(r->json, required, r->err, "expected an array");
    PL_TRY(count_of(r, s, "minProperties", 0, &min));
    PL_TRY(count_of(r, s, "maxProperties", PL_GRAMMAR_NODES, &max));
    if (more && !cJSON_IsFalse(more)) PL_TRY(node_of(r, more, &value));
    if ((properties && properties->child) || (required && required->child)) {
        if (least || most) return unsupported(r, least ? least : most, "stands beside named properties");
        PL_TRY(members(r, properties, required, cJSON_IsFalse(more) ? -1 : value, &inner));
    } else if (cJSON_IsFalse(more)) {
        if (min > 0) return pl_json_fail(r->json, least, r->err, "no property is allowed");
        inner = pl_node_empty(r->g);
    } else {
        if (max < min) return pl_json_fail(r->json, most, r->err, "is below minProperties");
        inner = listing(r, member(r, r->string, value), min, most ? max : PL_GRAMMAR_MANY);
    }
    *out = enclose(r, "{", inner, "}");
    return PL_OK;
}

static pl_status array_node(reader *r, const cJSON *s, int32_t *out) {
    pl_nodes    *g = r->g;
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(s, "items"), *x;
    const cJSON *prefix = cJSON_GetObjectItemCaseSensitive(s, "prefixItems");
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(s, "maxItems");
    int32_t      min = 0, max = 0, item = r->value, seq = pl_node_list(g, PL_NODE_SEQ), n = 0;
    PL_TRY(count_of(r, s, "minItems", 0, &min));
    PL_TRY(count_of(r, s, "maxItems", 0, &max));
    if (!most) max = PL_GRAMMAR_MANY;
    if (max < min) return pl_json_fail(r->json, most, r->err, "is below minItems");
    if (items && cJSON_IsFalse(items))
        max = prefix && cJSON_GetArraySize(prefix) < max ? cJSON_GetArraySize(prefix) : prefix ? max : 0;
    else if (items)
        PL_TRY(node_of(r, items, &item));
    if (prefix && !cJSON_IsArray(prefix)) return pl_json_fail(r->json, prefix, r->err, "expected an array");
    if (max < min) return pl_json_fail(r->json, s, r->err, "has fewer items than minItems");
    cJSON_ArrayForEach(x, prefix) {
        int32_t one = 0;
        if (n == max) break;
        PL_TRY(node_of(r, x, &one));
        pl_node_add(g, seq, n++ ? behind_comma(r, one) : one);
    }
    int32_t least = min > n ? min - n : 0, left = max == PL_GRAMMAR_MANY ? max : max - n;
    if (n > 0 && !items) left = least;
    pl_node_add(g, seq, n ? pl_node_repeat(g, behind_comma(r, item), least, left) : listing(r, item, least, left));
    *out = enclose(r, "[", seq, "]");
    return PL_OK;
}

static const struct {
    const char *name, *pattern;
} formats[] = {
#define DAY "(?:0[1-9]|[12]\\d"
#define DATE "\\d{4}-(?:(?:0[13578]|1[02])-" DAY "|3[01])|(?:0[469]|11)-" DAY "|30)|02-(?:0[1-9]|1\\d|2[0-8]))"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"ipv4", "^(?:" BYTE "\\.){3}" BYTE "$"},
    {"uri", "^https?://[A-Za-z0-9]{1,30}(?:[.-][A-Za-z0-9]{1,30}){0,4}(?:/[A-Za-z0-9._~-]{0,40}){0,8}$"},
    {"email", "^[A-Za-z0-9]{1,30}(?:[._-][A-Za-z0-9]{1,30}){0,3}@[A-Za-z0-9]{1,30}(?:[.-][A-Za-z0-9]{1,30}){0,3}"
              "\\.[A-Za-z]{2,8}$"}};

static pl_status pattern_of(const reader *r, const cJSON *format, const char **out) {
    const char *name;
    PL_TRY(pl_json_str_of(r->json, format, &name, r->err));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) {
            *out = formats[i].pattern;
            return PL_OK;
        }
    return unsupported(r, format, "this format cannot constrain a text here");
}

static pl_status string_node(const reader *r, const cJSON *s, int32_t *out) {
    pl_nodes    *g = r->g;
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(s, "pattern");
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(s, "format");
    const cJSON *least = cJSON_GetObjectItemCaseSensitive(s, "minLength");
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(s, "maxLength");
    const char  *text_of = NULL;
    int32_t      min, max, inner = 0;
    PL_TRY(count_of(r, s, "minLength", 0, &min));
    PL_TRY(count_of(r, s, "maxLength", 0, &max));
    if (!most) max = PL_GRAMMAR_MANY;
    if (max < min) return pl_json_fail(r->json, most, r->err, "is below minLength");
    if ((pattern && format) || ((pattern || format) && (least || most)))
        return unsupported(r, pattern ? pattern : format, "stands beside another limit of the string");
    if (pattern) PL_TRY(pl_json_str_of(r->json, pattern, &text_of, r->err));
    if (format) PL_TRY(pattern_of(r, format, &text_of));
    if (!text_of && !least && !most) {
        *out = r->string;
        return PL_OK;
    }
    if (text_of) {
        pl_err    why = {0};
        pl_status st = pl_regex_node(&inner, g, text_of, strlen(text_of), true, &why);
        if (st == PL_E_MEMORY) return pl_fail(r->err, st, "schema: out of memory");
        if (st != PL_OK) return unsupported(r, pattern, why.msg);
    } else {
        inner = pl_node_repeat(g, pl_json_any_char(g), min, max);
    }
    *out = pl_node_list(g, PL_NODE_SEQ);
    pl_node_add(g, *out, text(g, "\""));
    pl_node_add(g, *out, inner);
    pl_node_add(g, *out, text(g, "\""));
    return PL_OK;
}

// Reads a bound; *given stays false where the keyword is absent.
static pl_status bound_of(const reader *r, const cJSON *s, const char *key, double *v, bool *given) {
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(s, key);
    if (!x) return PL_OK;
    if (!cJSON_IsNumber(x)) return unsupported(r, x, "is no number");
    *given = true;
    *v = x->valuedouble;
    return PL_OK;
}

static pl_status number_node(const reader *r, const cJSON *s, bool whole, int32_t *out) {
    double v[4] = {0}; // minimum, maximum, and the exclusive ones
    bool   given[4] = {false};
    PL_TRY(bound_of(r, s, "minimum", &v[0], &given[0]));
    PL_TRY(bound_of(r, s, "maximum", &v[1], &given[1]));
    PL_TRY(bound_of(r, s, "exclusiveMinimum", &v[2], &given[2]));
    PL_TRY(bound_of(r, s, "exclusiveMaximum", &v[3], &given[3]));
    if (!given[0] && !given[1] && !given[2] && !given[3]) {
        *out = whole ? pl_json_integer(r->g, -PL_JSON_NUMBER_MAX, PL_JSON_NUMBER_MAX) : pl_json_number(r->g);
        return PL_OK;
    }
    if ((given[0] && given[2]) || (given[1] && given[3])) return unsupported(r, s, "has two bounds on one side");
    double lo = given[0] ? v[0] : given[2] ? v[2] : -(double)PL_JSON_NUMBER_MAX;
    double hi = given[1] ? v[1] : given[3] ? v[3] : (double)PL_JSON_NUMBER_MAX;
    if (whole) { // the whole numbers inside
        lo = given[2] ? floor(lo) + 1 : ceil(lo);
        hi = given[3] ? ceil(hi) - 1 : floor(hi);
    }
    if (lo != floor(lo) || hi != floor(hi)) return unsupported(r, s, "has a bound that is not whole");
    if (lo < -(double)PL_JSON_NUMBER_MAX || hi > (double)PL_JSON_NUMBER_MAX)
        return unsupported(r, s, "has a bound beyond 2^53");
    if (lo > hi || (!whole && lo == hi && (given[2] || given[3])))
        return pl_json_fail(r->json, s, r->err, "no number lies between the bounds");
    *out = whole ? pl_json_integer(r->g, (int64_t)lo, (int64_t)hi)
                 : pl_json_decimal(r->g, (int64_t)lo, (int64_t)hi, given[2], given[3]);
    return PL_OK;
}

// ---- a schema -------------------------------------------------------------------------------------------------------

static pl_status type_node(reader *r, const cJSON *s, int type, int32_t *out) {
    switch (type) {
    case OBJECT: return object_node(r, s, out);
    case ARRAY: return array_node(r, s, out);
    case STRING: return string_node(r, s, out);
    case NUMBER: return number_node(r, s, false, out);
    case INTEGER: return number_node(r, s, true, out);
    case BOOLEAN: *out = pl_node_pair(r->g, PL_NODE_ALT, text(r->g, "true"), text(r->g, "false")); return PL_OK;
    default: *out = text(r->g, "null"); return PL_OK;
    }
}

// ---- alternatives of which one is valid -----------------------------------------------------------------------------

enum { ALTERNATIVES = 64, VALUES = 64 }; // each is compared with all others

// Returns the const of a property, or the first of its enum; NULL: it has neither. *list: the others follow.
static const cJSON *values_of(const cJSON *s, const char *key, bool *list) {
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(s, "properties"), key);
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(of, "enum");
    *list = all && cJSON_IsArray(all) && cJSON_GetArraySize(all) <= VALUES;
    return *list ? all->child : cJSON_GetObjectItemCaseSensitive(of, "const");
}

static bool requires(const cJSON *s, const char *key) {
    const cJSON *x;
    cJSON_ArrayForEach(x, cJSON_GetObjectItemCaseSensitive(s, "required")) {
        if (cJSON_IsString(x) && strcmp(x->valuestring, key) == 0) return true;
    }
    return false;
}

// Returns true if no object is valid for both: they give different values to a property that one of them requires.
static bool are_told_apart(const cJSON *a, const cJSON *b) {
    const cJSON *key;
    cJSON_ArrayForEach(key, cJSON_GetObjectItemCaseSensitive(a, "properties")) {
        bool         list_a, list_b, meet = false;
        const cJSON *x = values_of(a, key->string, &list_a), *first = values_of(b, key->string, &list_b);
        if (!x || !first || !(requires(a, key->string) || requires(b, key->string))) continue;
        for (; x && !meet; x = list_a ? x->next : NULL)
            for (const cJSON *y = first; y && !meet; y = list_b ? y->next : NULL)
                meet = cJSON_Compare(x, y, true);
        if (!meet) return true;
    }
    return false;
}

// Finds what an alternative, or the schema that it names, says of types.
static pl_status read_alternative(const reader *r, const cJSON *x, const cJSON **schema, int *types_of) {
    const cJSON *ref = cJSON_GetObjectItemCaseSensitive(x, "$ref"), *whole;
    int          of;
    *schema = x;
    *types_of = ALL;
    if (ref) PL_TRY(find_schema(r, ref, schema));
    if (!cJSON_IsObject(*schema)) return PL_OK;
    PL_TRY(look_at_keywords(r, *schema, &of, &whole));
    PL_TRY(read_types(r, *schema, of, types_of));
    if (*types_of & NUMBER) *types_of |= INTEGER;
    return PL_OK;
}

// Alternatives of oneOf must not overlap.
static pl_status check_apart(const reader *r, const cJSON *list) {
    const cJSON *x, *schema[ALTERNATIVES];
    int          of[ALTERNATIVES], n = 0;
    cJSON_ArrayForEach(x, list) {
        if (n == ALTERNATIVES) return unsupported(r, list, "has more than 64 alternatives");
        PL_TRY(read_alternative(r, x, &schema[n], &of[n]));
        for (int i = 0; i < n; i++)
            if (of[i] & of[n] && !((of[i] & of[n]) == OBJECT && are_told_apart(schema[i], schema[n])))
                return unsupported(r, list,
                                   "has alternatives that differ neither in type nor in a required property's const");
        n++;
    }
    return PL_OK;
}

static pl_status alternatives(reader *r, const cJSON *list, int32_t *out) {
    const cJSON *x;
    if (!cJSON_IsArray(list) || !list->child) return pl_json_fail(r->json, list, r->err, "expected schemas");
    if (strcmp(list->string, "oneOf") == 0) PL_TRY(check_apart(r, list));
    if (strcmp(list->string, "allOf") == 0 && list->child->next)
        return unsupported(r, list, "has more than one schema");
    *out = pl_node_list(r->g, PL_NODE_ALT);
    cJSON_ArrayForEach(x, list) {
        int32_t one = 0;
        PL_TRY(node_of(r, x, &one));
        pl_node_add(r->g, *out, one);
    }
    return PL_OK;
}

static pl_status whole_node(reader *r, const cJSON *s, const cJSON *x, int32_t *out) {
    int  mine = 0;
    bool list = strcmp(x->string, "enum") == 0;
    PL_TRY(read_types(r, s, 0, &mine));
    if (list && !cJSON_IsArray(x)) return pl_json_fail(r->json, x, r->err, "expected an array");
    if (list || strcmp(x->string, "const") == 0) return add_literals(r, list ? x->child : x, list, mine, out);
    if (mine != ALL) return unsupported(r, x, "stands beside a type");
    return strcmp(x->string, "$ref") == 0 ? follow(r, x, out) : alternatives(r, x, out);
}

static pl_status node_of(reader *r, const cJSON *s, int32_t *out) {
    const cJSON *whole;
    int          of, mine;
    *out = r->value;
    if (cJSON_IsTrue(s)) return PL_OK;
    if (!cJSON_IsObject(s)) return pl_json_fail(r->json, s, r->err, "expected a schema");
    PL_TRY(look_at_keywords(r, s, &of, &whole));
    if (whole && of) return unsupported(r, whole, "stands beside limits of the value");
    if (whole) return whole_node(r, s, whole, out);
    PL_TRY(read_types(r, s, of, &mine));
    if (mine == ALL && !of) return PL_OK; // *out is any value
    *out = pl_node_list(r->g, PL_NODE_ALT);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int32_t one = 0;
        if (!(mine & types[i].type) || (types[i].type == INTEGER && mine & NUMBER)) continue;
        PL_TRY(type_node(r, s, types[i].type, &one));
        pl_node_add(r->g, *out, one);
    }
    return PL_OK;
}

static pl_status define_rules(reader *r) {
    for (; r->n_done < r->n_rules; r->n_done++) {
        int32_t node = 0, rule = r->rules[r->n_done].rule;
        PL_TRY(node_of(r, r->rules[r->n_done].schema, &node));
        pl_node_define(r->g, rule, node);
    }
    return PL_OK;
}

pl_status pl_schema_node(int32_t *node, pl_nodes *g, const pl_json *json, const cJSON *schema, pl_err *err) {
    reader r = {.g = g, .json = json, .root = schema, .err = err};
    make_parts(&r);
    if (!schema) {
        *node = any_object(&r);
        return PL_OK;
    }
    pl_status st = rule_of(&r, schema, node);
    if (st == PL_OK) st = define_rules(&r);
    pl_free(r.rules);
    return st;
}

pl_status pl_schema_read(pl_nodes *g, const char *data, size_t n, pl_err *err) {
    pl_json json = {0};
    PL_TRY(pl_json_parse(&json, "schema", 0, data, n, PL_JSON_UNIQUE, err));
    pl_status st = pl_schema_node(&g->root, g, &json, json.root, err);
    pl_json_close(&json);
    return st;
}
