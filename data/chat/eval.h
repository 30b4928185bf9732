// Evaluation of a template's tree. Callable functions are rows of tables (filters.c, builtins.c, strings.c): a filter,
// a test, a function or a method is one function and one row.
#ifndef PL_CHAT_EVAL_H
#define PL_CHAT_EVAL_H

#include "data/chat/syntax.h"
#include <time.h>

typedef struct pl_chat_span {
    size_t from, to; // bytes of the output
} pl_chat_span;

typedef struct pl_chat_machine {
    pl_region       *r;
    int              captured; // macros and blocks open whose output is a value
    pl_chat_value    vars;     // the caller's variables
    const struct tm *now;      // for strftime_now; NULL: refused
    pl_chat_span    *spans;    // of {% generation %}
    int64_t          n_spans, cap_spans;
} pl_chat_machine;

void pl_chat_run(pl_chat_machine *m, const pl_chat_nodes *body);

// jinja.c: pl_jinja_render with variables that `fill` writes into the dictionary `vars`; it may raise.
typedef void pl_chat_fill(pl_region *r, pl_chat_value vars, const void *arg);
struct pl_jinja;
struct pl_jinja_out;
pl_status pl_jinja_render_filled(const struct pl_jinja *t, pl_chat_fill *fill, const void *arg, const char *date,
                                 struct pl_jinja_out *out, pl_err *err);

// Limits other than those of every template.
typedef struct pl_chat_bounds {
    size_t  bytes;
    int64_t steps;
    int64_t done; // steps taken, also if it failed
} pl_chat_bounds;
pl_status pl_jinja_render_within(const struct pl_jinja *t, pl_chat_fill *fill, const void *arg, const char *date,
                                 pl_chat_bounds *bounds, struct pl_jinja_out *out, pl_err *err);

// ---- interface of builtins

#define PL_CHAT_ARGS 6

typedef struct pl_chat_args {
    pl_chat_value *v; // positional
    int64_t        n;
    const char   **keyword;
    pl_chat_value *kv;
    int64_t        nk;
} pl_chat_args;

// self: the filtered or tested value, or the method's object. arg: in the order of the row's names, missing ones
// undefined.
typedef pl_chat_value pl_chat_function(pl_chat_machine *m, pl_chat_value self, const pl_chat_value *arg,
                                       const pl_chat_args *all);

typedef struct pl_chat_builtin {
    const char       *name;
    const char       *params; // names in order, "!" after a required one; NULL: the function reads `all`
    pl_chat_function *call;
} pl_chat_builtin;

#define PL_CHAT_BUILTIN(name)                                                                                          \
    static pl_chat_value name(pl_chat_machine *m, pl_chat_value self, const pl_chat_value *arg, const pl_chat_args *all)
#define PL_CHAT_UNUSED (void)m, (void)self, (void)arg, (void)all

extern const pl_chat_builtin pl_chat_filters[], pl_chat_tests[], pl_chat_functions[]; // each ends with a nameless row
extern const pl_chat_builtin pl_chat_str_methods[], pl_chat_list_methods[], pl_chat_dict_methods[];

const pl_chat_builtin *pl_chat_builtin_find(const pl_chat_builtin *table, const char *name);
pl_chat_value pl_chat_apply(pl_chat_machine *m, const pl_chat_builtin *b, pl_chat_value self, const pl_chat_args *all);
// Applies the filter or test of a name; refuses unknown ones.
pl_chat_value pl_chat_filter(pl_chat_machine *m, const char *name, pl_chat_value v, const pl_chat_args *all);
bool          pl_chat_test(pl_chat_machine *m, const char *name, pl_chat_value v, const pl_chat_args *all);

// A callable value.
typedef struct pl_chat_call {
    const pl_chat_builtin *builtin; // with self
    pl_chat_value          self;
    const pl_chat_node    *macro; // with its scope of definition
    struct pl_chat_scope  *scope;
    struct pl_chat_loop   *loop; // the loop of a "for", for access to its members
} pl_chat_call;

pl_chat_value  pl_chat_attr(pl_chat_machine *m, pl_chat_value of, const char *name);    // of.name
pl_chat_value  pl_chat_item(pl_chat_machine *m, pl_chat_value of, pl_chat_value which); // of[which]
// Returns the items that a "for" visits: characters, items, keys; none for undefined values.
pl_chat_list  *pl_chat_items(pl_chat_machine *m, pl_chat_value v);
bool           pl_chat_is_sequence(pl_chat_value v);                 // a string, a list or a tuple
_Noreturn void pl_chat_missing(pl_chat_machine *m, pl_chat_value v); // refuses an undefined value
bool           pl_chat_contains(pl_chat_machine *m, pl_chat_value in, pl_chat_value what);
pl_chat_value  pl_chat_text(pl_chat_machine *m, pl_chat_value v); // str(v)
// Returns v as the required type, or refuses it with a message that starts with `what`.
int64_t        pl_chat_need_int(pl_chat_machine *m, pl_chat_value v, const char *what);
pl_chat_value  pl_chat_need_str(pl_chat_machine *m, pl_chat_value v, const char *what);

// arithmetic.c
pl_chat_value pl_chat_arithmetic(pl_chat_machine *m, const char *op, pl_chat_value a, pl_chat_value b);
pl_chat_value pl_chat_signed(pl_chat_machine *m, pl_chat_value v, int sign); // a number, by 1 or -1

// strings.c
pl_chat_value pl_chat_strip(pl_chat_machine *m, pl_chat_value s, pl_chat_value chars, bool left, bool right);
pl_chat_value pl_chat_replace(pl_chat_machine *m, pl_chat_value s, pl_chat_value from, pl_chat_value to, int64_t count);
pl_chat_value pl_chat_cased(pl_chat_machine *m, pl_chat_value s, bool upper);
bool          pl_chat_is_space(uint32_t c); // str.isspace: White_Space and the separators U+001C to U+001F
pl_chat_value pl_chat_capitalized(pl_chat_machine *m, pl_chat_value s);
pl_chat_list *pl_chat_lines(pl_chat_machine *m, pl_chat_value s);
pl_chat_value pl_chat_printf(pl_chat_machine *m, pl_chat_value format, const pl_chat_value *v, int64_t n);

#endif
