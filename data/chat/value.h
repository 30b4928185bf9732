// Values of chat templates, as Python has them: what a template computes with, and the memory that they live in.
//
// Everything that a template makes lives in a region and goes with it, so nothing here is freed one by one, and a
// failure anywhere leaves by one jump (pl_chat_raise) to the call that opened the region (jinja.c): a template is
// somebody else's program, and its mistakes are found deep inside expressions.
//
// Strings are UTF-8, counted in bytes here and in characters by what templates see (length, slices).
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
    size_t                  limit;  // bytes of chunks and text together; more is refused
    pl_strbuf               text;   // the output; behind it, while they are made, strings that expressions print
    const char             *where;  // the template's name, for messages; borrowed
    int                     line;   // of the construct at work; 0: none is
    int64_t                 steps;  // work done so far
    int64_t                 most;   // steps; pl_chat_step refuses more, which is what never ends
    int                     depth;  // expressions, blocks and calls open inside each other
    bool                    listed; // a list of parts was printed as a list
    pl_err                 *err;    // borrowed
    jmp_buf                 out;    // where failures go; the opener sets it before anything else
} pl_region;

// An empty one: limit bytes and `most` steps, each at least 1.
pl_region pl_region_new(const char *where, size_t limit, int64_t most, pl_err *err);
// Zeroed bytes. Does not return when memory runs out.
void     *pl_region_alloc(pl_region *r, size_t n);
char     *pl_region_copy(pl_region *r, const char *s, size_t n); // with a terminating 0
// An array that has room for one item more than its n: v itself, or a larger copy, whose *cap is told.
void     *pl_region_room(pl_region *r, void *v, int64_t n, int64_t *cap, size_t item);
void      pl_region_fini(pl_region *r);

// "WHERE:LINE: ..." into the region's error, then out. PL_E_UNSUPPORTED for constructs that are not built, named.
_Noreturn void pl_chat_raise(pl_region *r, pl_status st, const char *fmt, ...) PL_PRINTF(3, 4);
// n steps of work more: some 30 ns each. Long work that is interrupted (pl_stop_requested) is left here.
void           pl_chat_step(pl_region *r, int64_t n);
// The steps of going through n bytes: as characters, whose class or case is looked up, and as memory.
void           pl_chat_read(pl_region *r, size_t n);
void           pl_chat_move(pl_region *r, size_t n);

// Entering and leaving what may stand inside itself: too deep is refused before the stack is.
void pl_chat_enter(pl_region *r);
void pl_chat_leave(pl_region *r);

// ---- values

typedef enum pl_chat_type {
    PL_CHAT_UNDEFINED, // a name or member that is not there: prints as nothing, is false, has no members
    PL_CHAT_NONE,
    PL_CHAT_BOOL,
    PL_CHAT_INT,
    PL_CHAT_FLOAT,
    PL_CHAT_STR,
    PL_CHAT_LIST, // tuples too
    PL_CHAT_DICT, // namespaces too
    PL_CHAT_CALL, // what can be called, and the loop of a "for"
} pl_chat_type;

typedef struct pl_chat_value {
    pl_chat_type type;
    bool         flag; // bool: its value; list: a tuple; dict: a namespace; str: marked safe
    union {
        int64_t i;
        double  f;
        struct {
            const char *s; // str, and undefined: what was looked for
            size_t      n;
        };
        struct pl_chat_list *list;
        struct pl_chat_dict *dict;
        struct pl_chat_call *call; // eval.h
    };
} pl_chat_value;

typedef enum pl_chat_list_kind {
    PL_CHAT_WHOLE,     // a list, or with the value's flag a tuple
    PL_CHAT_GENERATOR, // what map, select, unique, reverse and items give: gone through once, true even when empty
    PL_CHAT_VIEW,      // a dictionary's keys, values or items
    PL_CHAT_RANGE,
} pl_chat_list_kind;

typedef struct pl_chat_list {
    pl_chat_value    *v;
    int64_t           n, cap;
    pl_chat_list_kind kind;
    bool              parts; // content in parts of text, which a template goes through rather than prints
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
// The member, or NULL.
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

// Bytes behind the region's text. Does not return when they are more than the region may hold.
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

// Takes the text appended from `from` on as a string of the region; the text ends there again.
pl_chat_value pl_chat_taken(pl_region *r, size_t from);

// JSON to values: integers and floats apart, as Python's json has them, which cJSON's tree does not know. text: what
// pl_json_parse has read without a complaint.
pl_chat_value pl_chat_from_json(pl_region *r, const char *text, size_t n);
// The members of a JSON object into `to`, over those that are there.
void          pl_chat_merge(pl_region *r, pl_chat_value to, const char *text, size_t n);

// One character of s[at..n) and where the next begins.
uint32_t      pl_chat_char(pl_chat_value s, size_t at, size_t *next);
// The bytes of characters [from, to) of a string, 0 <= from <= to <= length.
pl_chat_value pl_chat_chars(pl_region *r, pl_chat_value s, int64_t from, int64_t to);

#endif
