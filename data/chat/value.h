// Values of chat templates, with Python's semantics, and the memory that they live in.
//
// All values of a template live in a region and are freed with it, and a failure anywhere leaves by one jump
// (pl_chat_raise) to the call that opened the region (jinja.c): a template is foreign code, and its errors occur deep
// inside expressions.
//
// Strings are UTF-8, counted in bytes here and in characters in templates (length, slices).
#ifndef PL_CHAT_VALUE_H
#define PL_CHAT_VALUE_H

#include "kernels/base/status.h"
#include "kernels/base/strbuf.h"
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

// ---- memory and failure

typedef struct pl_region {
    struct pl_region_chunk *chunks; // owned
    size_t                  held;   // bytes of all chunks
    size_t                  limit;  // most bytes of chunks and text together
    pl_strbuf               text;   // the output, followed by strings that expressions are printing
    const char             *where;  // the template's name, for messages; borrowed
    int                     line;   // of the current construct; 0: none
    int64_t                 steps;  // work done so far
    int64_t                 most;   // limit of steps; pl_chat_step refuses more, which ends infinite loops
    int                     depth;  // nesting depth of expressions, blocks and calls
    bool                    listed; // a list of parts was printed as a list
    pl_err                 *err;    // borrowed
    jmp_buf                 out;    // target of failures; the opener sets it before anything else
} pl_region;

// Returns an empty one: limit bytes and `most` steps, each at least 1.
pl_region pl_region_new(const char *where, size_t limit, int64_t most, pl_err *err);
// Zeroed bytes. Does not return when memory runs out.
void     *pl_region_alloc(pl_region *r, size_t n);
char     *pl_region_copy(pl_region *r, const char *s, size_t n); // with a terminating 0
// Returns an array with room for one more item than its n: v itself, or a larger copy, with the new *cap.
void     *pl_region_room(pl_region *r, void *v, int64_t n, int64_t *cap, size_t item);
void      pl_region_fini(pl_region *r);

// Writes "WHERE:LINE: ..." to the region's error, then jumps out. PL_E_UNSUPPORTED for constructs that are not built,
// named.
_Noreturn void pl_chat_raise(pl_region *r, pl_status st, const char *fmt, ...) PL_PRINTF(3, 4);
// Counts n more steps of work: some 30 ns each. Jumps out of long work after a stop request (pl_stop_requested).
void           pl_chat_step(pl_region *r, int64_t n);
// Counts the steps of visiting n bytes: as characters, whose class or case is looked up, and as memory.
void           pl_chat_read(pl_region *r, size_t n);
void           pl_chat_move(pl_region *r, size_t n);

// Enters and leaves a nested construct: refuses a nesting that would overflow the stack.
void pl_chat_enter(pl_region *r);
void pl_chat_leave(pl_region *r);

// ---- values

typedef enum pl_chat_type {
    PL_CHAT_UNDEFINED, // a missing name or member: prints as an empty text, is false, has no members
    PL_CHAT_NONE,
    PL_CHAT_BOOL,
    PL_CHAT_INT,
    PL_CHAT_FLOAT,
    PL_CHAT_STR,
    PL_CHAT_LIST, // tuples too
    PL_CHAT_DICT, // namespaces too
    PL_CHAT_CALL, // a callable, and the loop of a "for"
} pl_chat_type;

typedef struct pl_chat_value {
    pl_chat_type type;
    bool         flag; // bool: its value; list: a tuple; dict: a namespace; str: marked safe
    union {
        int64_t i;
        double  f;
        struct {
            const char *s; // str; undefined: the missing name
            size_t      n;
        };
        struct pl_chat_list *list;
        struct pl_chat_dict *dict;
        struct pl_chat_call *call; // eval.h
    };
} pl_chat_value;

typedef enum pl_chat_list_kind {
    PL_CHAT_WHOLE,     // a list, or with the value's flag a tuple
    PL_CHAT_GENERATOR, // the result of map, select, unique, reverse and items: visited once, true even when empty
    PL_CHAT_VIEW,      // a dictionary's keys, values or items
    PL_CHAT_RANGE,
} pl_chat_list_kind;

typedef struct pl_chat_list {
    pl_chat_value    *v;
    int64_t           n, cap;
    pl_chat_list_kind kind;
    bool              parts; // content in parts of text, which a template should iterate over rather than print
} pl_chat_list;

typedef struct pl_chat_dict { // in order of insertion
    pl_chat_value *key, *value;
    int64_t        n, cap;
} pl_chat_dict;

pl_chat_value  pl_chat_undefined(const char *name); // name: borrowed for the region's life
pl_chat_value  pl_chat_none(void);
pl_chat_value  pl_chat_bool(bool b);
pl_chat_value  pl_chat_int(int64_t i);
pl_chat_value  pl_chat_float(double f);
pl_chat_value  pl_chat_strn(const char *s, size_t n); // borrowed
pl_chat_value  pl_chat_str(const char *s);            // borrowed
pl_chat_value  pl_chat_list_new(pl_region *r, bool tuple);
pl_chat_value  pl_chat_list_of_kind(pl_region *r, pl_chat_list_kind kind);
pl_chat_value  pl_chat_pair(pl_region *r, pl_chat_value a, pl_chat_value b); // a tuple
pl_chat_value  pl_chat_dict_new(pl_region *r);
void           pl_chat_push(pl_region *r, pl_chat_value list, pl_chat_value v);
void           pl_chat_put(pl_region *r, pl_chat_value dict, pl_chat_value key, pl_chat_value v);
// Returns the member, or NULL.
pl_chat_value *pl_chat_find(pl_region *r, pl_chat_value dict, pl_chat_value key);
pl_chat_value *pl_chat_member(pl_region *r, pl_chat_value dict, const char *key);

// Sorts v[0..n) and their keys by the keys, stable in both directions; insertion is enough for what templates sort.
void pl_chat_sort(pl_region *r, pl_chat_value *v, pl_chat_value *key, int64_t n, bool reverse);

bool        pl_chat_is(pl_chat_value v, const char *s); // a string of these bytes
bool        pl_chat_true(pl_chat_value v);              // as Python's bool()
bool        pl_chat_equal(pl_region *r, pl_chat_value a, pl_chat_value b);
int         pl_chat_order(pl_region *r, pl_chat_value a, pl_chat_value b); // <0, 0, >0; types without order: refused
int64_t     pl_chat_length(pl_region *r, pl_chat_value v);                 // len(): characters, items
const char *pl_chat_type_name(pl_chat_value v);                            // Python's

// Appends bytes to the region's text. Does not return if they exceed the limit.
void pl_chat_add(pl_region *r, const char *s, size_t n);

// str(), repr() and json.dumps, appended to the region's text.
typedef struct pl_chat_json {
    int         indent; // -1: on one line
    bool        sorted;
    bool        ascii;      // characters beyond ASCII as \uXXXX
    const char *item, *key; // separators
} pl_chat_json;
void pl_chat_print(pl_region *r, pl_chat_value v);
void pl_chat_repr(pl_region *r, pl_chat_value v);
void pl_chat_dump(pl_region *r, pl_chat_value v, const pl_chat_json *how);

// Returns the text appended from `from` on as a string of the region, and removes it from the text.
pl_chat_value pl_chat_taken(pl_region *r, size_t from);

// Converts JSON to values: with integers and floats distinct, as in Python's json, unlike cJSON's tree. text: accepted
// by pl_json_parse.
pl_chat_value pl_chat_from_json(pl_region *r, const char *text, size_t n);
// Adds the members of a JSON object to `to`, overriding existing ones.
void          pl_chat_merge(pl_region *r, pl_chat_value to, const char *text, size_t n);

// Returns one character of s[at..n) and the start of the next.
uint32_t      pl_chat_char(pl_chat_value s, size_t at, size_t *next);
// Returns the bytes of characters [from, to) of a string, 0 <= from <= to <= length.
pl_chat_value pl_chat_chars(pl_region *r, pl_chat_value s, int64_t from, int64_t to);

#endif
