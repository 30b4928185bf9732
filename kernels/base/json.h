// JSON read strictly, with errors that say where: "FILE:LINE:COLUMN: WHY" for text that is not JSON, and
// "FILE: dotted.path: expected X, found Y" for a value that is not what the reader needs. The tree is cJSON's.
//
// Accepted is RFC 8259 in UTF-8 and nothing else: no trailing text, no comments, no leading zeros, no NaN, no raw
// control characters, no lone surrogates, no depth beyond PL_JSON_DEPTH; no U+0000 in strings, because cJSON's strings
// end there, but with PL_JSON_NUL. A byte order mark in front is skipped. Numbers are doubles: integers are exact up to
// 2^53, larger ones are refused by the integer getters.
//
// Big objects and arrays (a vocabulary) are walked with cJSON_ArrayForEach, one pass: cJSON's lookups by name or index
// walk a linked list and are for small objects only.
//
// A tree takes some 40 times the bytes of the densest text (80 to 140 a value, "0," being one), so the values of a text
// are counted, and too many refused, before there is a tree: a foreign file cannot ask for more memory than its kind
// needs.
//
// Not for several threads at once: cJSON keeps its last error in a global.
// Everything here returns PL_E_INPUT for bad content, PL_E_MEMORY, or what pl_file_read returns.
#ifndef PL_JSON_H
#define PL_JSON_H

#include "kernels/base/status.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#define PL_JSON_DEPTH 64
#define PL_JSON_INT_MAX ((int64_t)1 << 53)
#define PL_JSON_VALUES ((int64_t)1 << 20) // of a line or another text that no reader expects more of: 150 MB at most
#define PL_JSON_SPARSE 16 // a file of the most bytes that a reader takes has that many bytes a value, or more
#define PL_JSON_NUL_BYTES "\xC0\x80" // U+0000 in a string; no other string has these bytes, which are not UTF-8

typedef enum pl_json_flags {
    PL_JSON_UNIQUE = 1, // an object with the same key twice is refused; without it the first one counts
    PL_JSON_TABLES = 4, // with UNIQUE: objects of numbers alone (a vocabulary) may have a key twice
    PL_JSON_NUL = 2,    // U+0000 may stand in strings, and is PL_JSON_NUL_BYTES there
} pl_json_flags;

typedef struct pl_json {
    char  *where; // for messages: the path, or what the caller said; owned
    cJSON *root;  // owned
} pl_json;

// path: a file of at most max_bytes and max_bytes / PL_JSON_SPARSE values. Zeroed *j on failure.
pl_status pl_json_open(pl_json *j, const char *path, size_t max_bytes, unsigned flags, pl_err *err);
// Values beyond PL_JSON_VALUES are refused. data need not end in 0 and may go away afterwards. line: 0 for a whole
// file; n for text that is line n of `where` (JSONL), so that all messages about it begin with "where:n".
pl_status pl_json_parse(pl_json *j, const char *where, int64_t line, const void *data, size_t n, unsigned flags,
                        pl_err *err);
pl_status pl_json_parse_many(pl_json *j, const char *where, int64_t line, const void *data, size_t n, int64_t values,
                             unsigned flags, pl_err *err); // the same with another bound of the values
void      pl_json_close(pl_json *j);

// The getters. `obj` is an object inside j (NULL: the root). `key` names a member; dots lead into inner objects
// ("eagle_config.use_aux_hidden_state"), so keys that hold dots themselves cannot be asked for this way.
//   get: the member must be there.     opt: when it is absent or null *out = def (which need not lie within the
//   bounds).
// Strings and nodes point into j. On failure *out is not touched.
pl_status pl_json_get_int(const pl_json *j, const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t *out,
                          pl_err *err);
pl_status pl_json_opt_int(const pl_json *j, const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t def,
                          int64_t *out, pl_err *err);
pl_status pl_json_get_num(const pl_json *j, const cJSON *obj, const char *key, double min, double max, double *out,
                          pl_err *err);
pl_status pl_json_opt_num(const pl_json *j, const cJSON *obj, const char *key, double min, double max, double def,
                          double *out, pl_err *err);
pl_status pl_json_get_bool(const pl_json *j, const cJSON *obj, const char *key, bool *out, pl_err *err);
pl_status pl_json_opt_bool(const pl_json *j, const cJSON *obj, const char *key, bool def, bool *out, pl_err *err);
pl_status pl_json_get_str(const pl_json *j, const cJSON *obj, const char *key, const char **out, pl_err *err);
pl_status pl_json_opt_str(const pl_json *j, const cJSON *obj, const char *key, const char *def, const char **out,
                          pl_err *err);
pl_status pl_json_get_object(const pl_json *j, const cJSON *obj, const char *key, const cJSON **out, pl_err *err);
pl_status pl_json_opt_object(const pl_json *j, const cJSON *obj, const char *key, const cJSON **out, pl_err *err);
pl_status pl_json_get_array(const pl_json *j, const cJSON *obj, const char *key, const cJSON **out, pl_err *err);
pl_status pl_json_opt_array(const pl_json *j, const cJSON *obj, const char *key, const cJSON **out, pl_err *err);

// The member, or NULL when absent or null. Never fails.
const cJSON *pl_json_find(const pl_json *j, const cJSON *obj, const char *key);

// The value of one node (an element of an array, a member met while walking) as an integer in [min, max] or a string.
pl_status pl_json_int_of(const pl_json *j, const cJSON *node, int64_t min, int64_t max, int64_t *out, pl_err *err);
pl_status pl_json_str_of(const pl_json *j, const cJSON *node, const char **out, pl_err *err);

// The caller's own complaint about a node: fills err with "where: dotted.path: ..." and returns PL_E_INPUT.
// The path is found by a search from the root, so this costs nothing until it is needed.
pl_status pl_json_fail(const pl_json *j, const cJSON *node, pl_err *err, const char *fmt, ...) PL_PRINTF(4, 5);

// ---- writing (json_out.c) ----

// JSON text into a growing buffer; the same calls give the same bytes on every machine. With indent 0 everything is on
// one line without blanks. Memory failures stick and are told by pl_json_out_end.
typedef struct pl_json_out {
    char  *text; // owned, 0-terminated
    size_t len, cap;
    int    indent; // blanks per level
    int    depth;
    bool   first, after_key, failed;
} pl_json_out;

void      pl_json_out_begin(pl_json_out *o, int indent);
void      pl_json_out_object(pl_json_out *o);              // {
void      pl_json_out_array(pl_json_out *o);               // [
void      pl_json_out_close(pl_json_out *o, char bracket); // '}' or ']'
void      pl_json_out_key(pl_json_out *o, const char *key);
void      pl_json_out_str(pl_json_out *o, const char *s); // NULL gives null; bytes that are not UTF-8 become U+FFFD
void      pl_json_out_strn(pl_json_out *o, const char *s, size_t n);
void      pl_json_out_int(pl_json_out *o, int64_t v);
void      pl_json_out_num(pl_json_out *o, double v); // shortest that reads back; has '.' or 'e'; not finite: null
void      pl_json_out_bool(pl_json_out *o, bool v);
void      pl_json_out_null(pl_json_out *o);
void      pl_json_out_raw(pl_json_out *o, const char *json); // a value that is JSON text already, on one line
void      pl_json_out_node(pl_json_out *o, const cJSON *node);      // a tree; its numbers exactly
// PL_OK, or PL_E_MEMORY (then text is NULL). On PL_OK the caller owns o->text (pl_free) of o->len bytes.
pl_status pl_json_out_end(pl_json_out *o, pl_err *err);

// ---- members of an open object in one line each; NULL strings and numbers that are not finite give null ----

static inline void pl_put_str(pl_json_out *o, const char *key, const char *s) {
    pl_json_out_key(o, key);
    pl_json_out_str(o, s);
}

static inline void pl_put_int(pl_json_out *o, const char *key, int64_t v) {
    pl_json_out_key(o, key);
    pl_json_out_int(o, v);
}

static inline void pl_put_num(pl_json_out *o, const char *key, double v) {
    pl_json_out_key(o, key);
    pl_json_out_num(o, v);
}

static inline void pl_put_bool(pl_json_out *o, const char *key, bool v) {
    pl_json_out_key(o, key);
    pl_json_out_bool(o, v);
}

static inline void pl_put_object(pl_json_out *o, const char *key) {
    pl_json_out_key(o, key);
    pl_json_out_object(o);
}

static inline void pl_put_array(pl_json_out *o, const char *key) {
    pl_json_out_key(o, key);
    pl_json_out_array(o);
}

static inline void pl_put_nums(pl_json_out *o, const char *key, const double *v, int n) {
    pl_put_array(o, key);
    for (int i = 0; i < n; i++)
        pl_json_out_num(o, v[i]);
    pl_json_out_close(o, ']');
}

static inline void pl_put_ids(pl_json_out *o, const char *key, const int32_t *v, int64_t n) {
    pl_put_array(o, key);
    for (int64_t i = 0; i < n; i++)
        pl_json_out_int(o, v[i]);
    pl_json_out_close(o, ']');
}

#endif
