#include "data/chat/eval.h"

typedef struct pl_chat_scope {
    struct pl_chat_scope *parent; // NULL: the next scope out is the caller's variables
    const char          **name;
    pl_chat_value        *v;
    int64_t               n, cap;
} scope;

typedef struct pl_chat_loop {
    const pl_chat_list *items;
    int64_t             i;
} loop;

typedef enum flow { NEXT, BREAK, CONTINUE } flow;

static pl_chat_value eval(pl_chat_machine *m, scope *s, const pl_chat_node *n);
static flow          exec(pl_chat_machine *m, scope *s, const pl_chat_nodes *body);

// ---- names

static scope *inner_scope(pl_chat_machine *m, scope *parent) {
    scope *s = pl_region_alloc(m->r, sizeof *s);
    s->parent = parent;
    return s;
}

static void bind_name(pl_chat_machine *m, scope *s, const char *name, pl_chat_value v) {
    pl_chat_step(m->r, s->n / 8);
    for (int64_t i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0) {
            s->v[i] = v;
            return;
        }
    int64_t names = s->cap; // as many as values
    s->name = pl_region_room(m->r, s->name, s->n, &names, sizeof *s->name);
    s->v = pl_region_room(m->r, s->v, s->n, &s->cap, sizeof *s->v);
    s->name[s->n] = name;
    s->v[s->n++] = v;
}

static pl_chat_value make_callable(pl_chat_machine *m, pl_chat_call c) {
    pl_chat_call *to = pl_region_alloc(m->r, sizeof *to);
    *to = c;
    return (pl_chat_value){.type = PL_CHAT_CALL, .call = to};
}

// Refuses Jinja's own names that are not built: they are neither undefined nor empty.
static void refuse_global(pl_chat_machine *m, const char *name) {
    static const char *const names[] = {"cycler", "joiner", "lipsum", "self"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "%s is not built", name);
}

static pl_chat_value lookup(pl_chat_machine *m, const scope *s, const char *name) {
    for (; s; s = s->parent) {
        pl_chat_step(m->r, s->n / 8);
        for (int64_t i = 0; i < s->n; i++)
            if (strcmp(s->name[i], name) == 0) return s->v[i];
    }
    pl_chat_value *v = pl_chat_member(m->r, m->vars, name);
    if (v) return *v;
    const pl_chat_builtin *b = pl_chat_builtin_find(pl_chat_functions, name);
    if (!b) refuse_global(m, name);
    return b ? make_callable(m, (pl_chat_call){.builtin = b}) : pl_chat_undefined(name);
}

static void assign(pl_chat_machine *m, scope *s, const pl_chat_node *to, pl_chat_value v) {
    if (to->kind == PL_CHAT_NAME) {
        bind_name(m, s, to->name, v);
    } else if (to->kind == PL_CHAT_ATTR) {
        pl_chat_value of = lookup(m, s, to->a->name);
        if (of.type != PL_CHAT_DICT || !of.flag)
            pl_chat_raise(m->r, PL_E_INPUT, "set %s.%s: %s is no namespace", to->a->name, to->name, to->a->name);
        pl_chat_put(m->r, of, pl_chat_str(to->name), v);
    } else {
        const pl_chat_list *items = pl_chat_items(m, v);
        if (items->n != to->items.n)
            pl_chat_raise(m->r, PL_E_INPUT, "%lld values for %lld names", (long long)items->n, (long long)to->items.n);
        for (int64_t i = 0; i < items->n; i++)
            assign(m, s, to->items.v[i], items->v[i]);
    }
}

// ---- members

bool pl_chat_is_sequence(pl_chat_value v) {
    return v.type == PL_CHAT_STR || (v.type == PL_CHAT_LIST && v.list->kind == PL_CHAT_WHOLE);
}

static pl_chat_value loop_member(pl_chat_machine *m, pl_chat_value of, const char *name) {
    const loop          *l = of.call->loop;
    const pl_chat_value *v = l->items->v;
    int64_t              n = l->items->n, i = l->i;
    if (strcmp(name, "index") == 0) return pl_chat_int(i + 1);
    if (strcmp(name, "index0") == 0) return pl_chat_int(i);
    if (strcmp(name, "revindex") == 0) return pl_chat_int(n - i);
    if (strcmp(name, "revindex0") == 0) return pl_chat_int(n - i - 1);
    if (strcmp(name, "first") == 0) return pl_chat_bool(i == 0);
    if (strcmp(name, "last") == 0) return pl_chat_bool(i == n - 1);
    if (strcmp(name, "length") == 0) return pl_chat_int(n);
    if (strcmp(name, "depth") == 0) return pl_chat_int(1); // of recursive loops
    if (strcmp(name, "depth0") == 0) return pl_chat_int(0);
    if (strcmp(name, "previtem") == 0) return i > 0 ? v[i - 1] : pl_chat_undefined("there is no previous item");
    if (strcmp(name, "nextitem") == 0) return i + 1 < n ? v[i + 1] : pl_chat_undefined("there is no next item");
    if (strcmp(name, "cycle") == 0 || strcmp(name, "changed") == 0)
        pl_chat_raise(m->r, PL_E_UNSUPPORTED, "loop.%s is not built", name);
    return pl_chat_undefined(name);
}

// Returns true for Python's methods that are not built, which are refused; other unknown names are missing members.
static bool is_python_method(pl_chat_type type, const char *name) {
    static const char *const of_str[] = {
        "casefold",     "center",  "encode",     "expandtabs",  "format_map", "isalnum", "isascii", "isdecimal",
        "isidentifier", "islower", "isnumeric",  "isprintable", "istitle",    "isupper", "ljust",   "maketrans",
        "partition",    "rjust",   "rpartition", "swapcase",    "translate",  "zfill",   "rindex",  NULL};
    static const char *const of_list[] = {"append", "clear",  "copy",    "extend", "insert",
                                          "pop",    "remove", "reverse", "sort",   NULL};
    static const char *const of_dict[] = {"clear", "copy", "fromkeys", "pop", "popitem", "setdefault", "update", NULL};
    const char *const       *names = type == PL_CHAT_STR ? of_str : type == PL_CHAT_LIST ? of_list : of_dict;
    for (; *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

static bool method_of(pl_chat_machine *m, pl_chat_value of, const char *name, pl_chat_value *out) {
    const pl_chat_builtin *table = of.type == PL_CHAT_STR    ? pl_chat_str_methods
                                   : of.type == PL_CHAT_LIST ? pl_chat_list_methods
                                                             : pl_chat_dict_methods;
    const pl_chat_builtin *b = pl_chat_builtin_find(table, name);
    if (!b && is_python_method(of.type, name))
        pl_chat_raise(m->r, PL_E_UNSUPPORTED, "the method %s of a %s is not built", name, pl_chat_type_name(of));
    if (b) *out = make_callable(m, (pl_chat_call){.builtin = b, .self = of});
    return b != NULL;
}

void pl_chat_missing(pl_chat_machine *m, pl_chat_value v) {
    pl_chat_raise(m->r, PL_E_INPUT, "'%s' is undefined", v.s);
}

pl_chat_value pl_chat_attr(pl_chat_machine *m, pl_chat_value of, const char *name) {
    pl_chat_value v;
    if (of.type == PL_CHAT_UNDEFINED) pl_chat_missing(m, of);
    if (of.type == PL_CHAT_CALL && of.call->macro)
        pl_chat_raise(m->r, PL_E_UNSUPPORTED, "the member %s of a macro is not built", name);
    if (of.type == PL_CHAT_CALL) return of.call->loop ? loop_member(m, of, name) : pl_chat_undefined(name);
    bool has_methods = pl_chat_is_sequence(of) || (of.type == PL_CHAT_DICT && !of.flag);
    if (has_methods && method_of(m, of, name, &v)) return v;
    pl_chat_value *member = of.type == PL_CHAT_DICT ? pl_chat_member(m->r, of, name) : NULL;
    return member ? *member : pl_chat_undefined(name);
}

static int64_t wrap_index(int64_t i, int64_t n) {
    return i < 0 ? i + n : i;
}

pl_chat_value pl_chat_item(pl_chat_machine *m, pl_chat_value of, pl_chat_value which) {
    bool whole = which.type == PL_CHAT_INT || which.type == PL_CHAT_BOOL;
    if (of.type == PL_CHAT_UNDEFINED) pl_chat_missing(m, of);
    if (of.type == PL_CHAT_DICT && !of.flag) {
        pl_chat_value *v = pl_chat_find(m->r, of, which);
        if (v) return *v;
    }
    bool list = of.type == PL_CHAT_LIST && (of.list->kind == PL_CHAT_WHOLE || of.list->kind == PL_CHAT_RANGE);
    if ((list || of.type == PL_CHAT_STR) && whole) {
        int64_t n = pl_chat_length(m->r, of), i = wrap_index(which.type == PL_CHAT_INT ? which.i : which.flag, n);
        if (i < 0 || i >= n) return pl_chat_undefined("an item beyond the end");
        return of.type == PL_CHAT_LIST ? of.list->v[i] : pl_chat_chars(m->r, of, i, i + 1);
    }
    if (which.type == PL_CHAT_STR) return pl_chat_attr(m, of, pl_region_copy(m->r, which.s, which.n));
    return pl_chat_undefined("an item that is not there");
}

// Returns Python's bound of a slice in [0, n], or in [-1, n - 1] for a negative step.
static int64_t slice_bound(pl_chat_machine *m, pl_chat_value v, int64_t n, int64_t step, int64_t otherwise) {
    if (v.type == PL_CHAT_NONE) return otherwise;
    int64_t i = wrap_index(pl_chat_need_int(m, v, "a slice"), n), low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    return i < low ? low : i > high ? high : i;
}

static pl_chat_value slice(pl_chat_machine *m, pl_chat_value of, const pl_chat_value part[3]) {
    if (!pl_chat_is_sequence(of)) pl_chat_raise(m->r, PL_E_INPUT, "a slice of a %s", pl_chat_type_name(of));
    int64_t n = pl_chat_length(m->r, of),
            step = part[2].type == PL_CHAT_NONE ? 1 : pl_chat_need_int(m, part[2], "step");
    if (step == 0) pl_chat_raise(m->r, PL_E_INPUT, "slice step cannot be zero");
    if (step < -n - 1) step = -n - 1; // larger steps give the same result
    if (step > n + 1) step = n + 1;
    int64_t from = slice_bound(m, part[0], n, step, step < 0 ? n - 1 : 0);
    int64_t to = slice_bound(m, part[1], n, step, step < 0 ? -1 : n);
    if (of.type == PL_CHAT_STR && step == 1) return pl_chat_chars(m->r, of, from, to > from ? to : from);
    const pl_chat_list *items = pl_chat_items(m, of);
    pl_chat_value       list = pl_chat_list_new(m->r, of.flag && of.type == PL_CHAT_LIST);
    size_t              mark = m->r->text.n;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
        if (of.type == PL_CHAT_STR)
            pl_chat_add(m->r, items->v[i].s, items->v[i].n);
        else
            pl_chat_push(m->r, list, items->v[i]);
    return of.type == PL_CHAT_STR ? pl_chat_taken(m->r, mark) : list;
}

pl_chat_list *pl_chat_items(pl_chat_machine *m, pl_chat_value v) {
    if (v.type == PL_CHAT_LIST) pl_chat_step(m->r, v.list->n); // for the caller, which walks them
    if (v.type == PL_CHAT_LIST && v.list->kind != PL_CHAT_GENERATOR) return v.list;
    pl_chat_value list = pl_chat_list_new(m->r, false);
    if (v.type == PL_CHAT_LIST) { // consumed completely by this
        *list.list = *v.list;
        list.list->kind = PL_CHAT_WHOLE;
        v.list->n = v.list->cap = 0;
        return list.list;
    }
    if (v.type == PL_CHAT_UNDEFINED) return list.list;
    if (v.type == PL_CHAT_STR) {
        for (size_t at = 0, next; at < v.n; at = next) {
            pl_chat_char(v, at, &next);
            pl_chat_push(m->r, list, pl_chat_strn(v.s + at, next - at));
        }
        return list.list;
    }
    if (v.type == PL_CHAT_DICT && !v.flag) {
        for (int64_t i = 0; i < v.dict->n; i++)
            pl_chat_push(m->r, list, v.dict->key[i]);
        return list.list;
    }
    pl_chat_raise(m->r, PL_E_INPUT, "'%s' object is not iterable", pl_chat_type_name(v));
}

bool pl_chat_contains(pl_chat_machine *m, pl_chat_value in, pl_chat_value what) {
    if (in.type == PL_CHAT_STR) {
        pl_chat_value s = pl_chat_need_str(m, what, "'in <string>' requires string as left operand");
        pl_chat_step(m->r, (int64_t)in.n / 16);
        pl_chat_move(m->r, s.n);
        return s.n == 0 || (in.n >= s.n && memmem(in.s, in.n, s.s, s.n) != NULL);
    }
    if (in.type == PL_CHAT_DICT && !in.flag) return pl_chat_find(m->r, in, what) != NULL;
    const pl_chat_list *items = pl_chat_items(m, in);
    for (int64_t i = 0; i < items->n; i++)
        if (pl_chat_equal(m->r, items->v[i], what)) {
            if (in.type == PL_CHAT_LIST && in.list->kind == PL_CHAT_GENERATOR) // it continues after this item
                in.list->v = items->v + i + 1, in.list->n = in.list->cap = items->n - i - 1;
            return true;
        }
    return false;
}

// ---- operators

int64_t pl_chat_need_int(pl_chat_machine *m, pl_chat_value v, const char *what) {
    if (v.type == PL_CHAT_BOOL) return v.flag;
    if (v.type != PL_CHAT_INT)
        pl_chat_raise(m->r, PL_E_INPUT, "%s: not an integer but a %s", what, pl_chat_type_name(v));
    return v.i;
}

pl_chat_value pl_chat_need_str(pl_chat_machine *m, pl_chat_value v, const char *what) {
    if (v.type != PL_CHAT_STR) pl_chat_raise(m->r, PL_E_INPUT, "%s: not a string but a %s", what, pl_chat_type_name(v));
    // Python's result would be safe text that escapes later arguments; templates only print, add to and join it.
    if (v.flag) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "text marked safe, changed by a filter or method, is not built");
    return v;
}

pl_chat_value pl_chat_text(pl_chat_machine *m, pl_chat_value v) {
    if (v.type == PL_CHAT_STR) return pl_chat_need_str(m, v, "a string");
    size_t mark = m->r->text.n;
    pl_chat_print(m->r, v);
    return pl_chat_taken(m->r, mark);
}

static bool compare(pl_chat_machine *m, const char *op, pl_chat_value a, pl_chat_value b) {
    if (strcmp(op, "==") == 0) return pl_chat_equal(m->r, a, b);
    if (strcmp(op, "!=") == 0) return !pl_chat_equal(m->r, a, b);
    if (strcmp(op, "in") == 0) return pl_chat_contains(m, b, a);
    if (strcmp(op, "not in") == 0) return !pl_chat_contains(m, b, a);
    if (a.type == PL_CHAT_UNDEFINED) pl_chat_missing(m, a);
    if (b.type == PL_CHAT_UNDEFINED) pl_chat_missing(m, b);
    int c = pl_chat_order(m->r, a, b);
    return op[0] == '<' ? (op[1] ? c <= 0 : c < 0) : (op[1] ? c >= 0 : c > 0);
}

// ---- calls

static pl_chat_args arguments(pl_chat_machine *m, scope *s, const pl_chat_nodes *items) {
    pl_chat_value list = pl_chat_list_new(m->r, false), named = pl_chat_dict_new(m->r);
    for (int64_t i = 0; i < items->n; i++) {
        const char   *keyword = items->keyword[i];
        pl_chat_value v = eval(m, s, items->v[i]);
        if (!keyword) {
            pl_chat_push(m->r, list, v);
        } else if (strcmp(keyword, "*") == 0) {
            const pl_chat_list *more = pl_chat_items(m, v);
            for (int64_t k = 0; k < more->n; k++)
                pl_chat_push(m->r, list, more->v[k]);
        } else if (strcmp(keyword, "**") == 0) {
            if (v.type != PL_CHAT_DICT) pl_chat_raise(m->r, PL_E_INPUT, "** wants a dictionary");
            for (int64_t k = 0; k < v.dict->n; k++)
                pl_chat_put(m->r, named, pl_chat_need_str(m, v.dict->key[k], "**"), v.dict->value[k]);
        } else {
            pl_chat_put(m->r, named, pl_chat_str(keyword), v);
        }
    }
    pl_chat_args a = {.v = list.list->v, .n = list.list->n, .kv = named.dict->value, .nk = named.dict->n};
    a.keyword = pl_region_alloc(m->r, (size_t)(a.nk + 1) * sizeof *a.keyword);
    for (int64_t i = 0; i < a.nk; i++)
        a.keyword[i] = pl_region_copy(m->r, named.dict->key[i].s, named.dict->key[i].n);
    return a;
}

// Renders a body and returns its output as a value.
static pl_chat_value capture_body(pl_chat_machine *m, scope *s, const pl_chat_nodes *body) {
    size_t mark = m->r->text.n;
    m->captured++;
    exec(m, s, body);
    m->captured--;
    return pl_chat_taken(m->r, mark);
}

static void refuse_surplus(pl_chat_machine *m, const pl_chat_node *macro, const pl_chat_args *a) {
    int64_t named = 0;
    for (int64_t k = 0; k < a->nk; k++)
        for (int64_t i = 0; i < macro->items.n; i++)
            named += strcmp(macro->items.keyword[i], a->keyword[k]) == 0;
    if (a->n > macro->items.n || named < a->nk)
        pl_chat_raise(m->r, PL_E_UNSUPPORTED, "macro %s: arguments for varargs or kwargs are not built", macro->name);
}

static pl_chat_value call_macro(pl_chat_machine *m, const pl_chat_call *c, const pl_chat_args *a,
                                const pl_chat_value *caller) {
    const pl_chat_nodes *params = &c->macro->items;
    scope               *s = inner_scope(m, c->scope);
    if (c->macro->value.flag) refuse_surplus(m, c->macro, a);
    if (a->n > params->n)
        pl_chat_raise(m->r, PL_E_INPUT, "macro %s takes %lld arguments", c->macro->name, (long long)params->n);
    pl_chat_step(m->r, a->nk * params->n / 4); // the cost of looking up each name among the others
    for (int64_t k = 0; k < a->nk; k++) {
        bool known = false;
        for (int64_t i = 0; i < params->n; i++)
            known = known || (strcmp(params->keyword[i], a->keyword[k]) == 0 && i >= a->n);
        if (!known) pl_chat_raise(m->r, PL_E_INPUT, "macro %s: the argument %s", c->macro->name, a->keyword[k]);
    }
    if (caller) bind_name(m, s, "caller", *caller);
    bind_name(m, s, "varargs", pl_chat_list_new(m->r, true)); // arguments beyond the parameters are refused
    bind_name(m, s, "kwargs", pl_chat_dict_new(m->r));
    for (int64_t i = 0; i < params->n; i++) {
        pl_chat_value v = pl_chat_undefined(params->keyword[i]);
        bool          given = i < a->n;
        if (given) v = a->v[i];
        for (int64_t k = 0; k < a->nk && !given; k++)
            if ((given = strcmp(params->keyword[i], a->keyword[k]) == 0)) v = a->kv[k];
        if (!given && params->v[i]) v = eval(m, s, params->v[i]);
        bind_name(m, s, params->keyword[i], v);
    }
    pl_chat_enter(m->r);
    pl_chat_value out = capture_body(m, s, &c->macro->body);
    pl_chat_leave(m->r);
    return out;
}

static pl_chat_value call(pl_chat_machine *m, pl_chat_value f, const pl_chat_args *a, const pl_chat_value *caller) {
    if (f.type == PL_CHAT_UNDEFINED) pl_chat_missing(m, f);
    if (f.type != PL_CHAT_CALL || f.call->loop)
        pl_chat_raise(m->r, PL_E_INPUT, "'%s' object is not callable", pl_chat_type_name(f));
    if (f.call->macro) return call_macro(m, f.call, a, caller);
    if (caller) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "a call block of what is no macro is not built");
    pl_chat_value v = pl_chat_apply(m, f.call->builtin, f.call->self, a);
    bool          text = v.type == PL_CHAT_STR || v.type == PL_CHAT_LIST;
    if (text && f.call->self.type == PL_CHAT_STR) pl_chat_need_str(m, f.call->self, "a method");
    return v;
}

const pl_chat_builtin *pl_chat_builtin_find(const pl_chat_builtin *table, const char *name) {
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0) return table;
    return NULL;
}

pl_chat_value pl_chat_apply(pl_chat_machine *m, const pl_chat_builtin *b, pl_chat_value self, const pl_chat_args *all) {
    pl_chat_value arg[PL_CHAT_ARGS];
    int64_t       i = 0, used = 0;
    for (int k = 0; k < PL_CHAT_ARGS; k++)
        arg[k] = pl_chat_undefined("");
    pl_chat_step(m->r, 1);
    for (const char *p = b->params; p && *p; i++) {
        size_t n = strcspn(p, " !");
        bool   needed = p[n] == '!', given = i < all->n;
        if (given) arg[i] = all->v[i];
        for (int64_t k = 0; k < all->nk && !given; k++)
            if (strlen(all->keyword[k]) == n && memcmp(all->keyword[k], p, n) == 0) {
                arg[i] = all->kv[k];
                used++;
                given = true;
            }
        if (needed && !given) pl_chat_raise(m->r, PL_E_INPUT, "%s: missing argument %.*s", b->name, (int)n, p);
        p += n + needed;
        p += strspn(p, " ");
    }
    if (b->params && (all->n > i || used != all->nk))
        pl_chat_raise(m->r, PL_E_UNSUPPORTED, "%s: an argument that is not built", b->name);
    return b->call(m, self, arg, all);
}

pl_chat_value pl_chat_filter(pl_chat_machine *m, const char *name, pl_chat_value v, const pl_chat_args *all) {
    const pl_chat_builtin *b = pl_chat_builtin_find(pl_chat_filters, name);
    if (!b) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "the filter %s is not built", name);
    return pl_chat_apply(m, b, v, all);
}

bool pl_chat_test(pl_chat_machine *m, const char *name, pl_chat_value v, const pl_chat_args *all) {
    const pl_chat_builtin *b = pl_chat_builtin_find(pl_chat_tests, name);
    if (!b) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "the test %s is not built", name);
    return pl_chat_apply(m, b, v, all).flag;
}

// ---- expressions

// Evaluates a chain of filters; `of` is the innermost operand if the tree has none.
static pl_chat_value apply_filters(pl_chat_machine *m, scope *s, const pl_chat_node *n, pl_chat_value of) {
    pl_chat_enter(m->r);
    pl_chat_value v = n->a ? n->a->kind == PL_CHAT_FILTER ? apply_filters(m, s, n->a, of) : eval(m, s, n->a) : of;
    pl_chat_args  a = arguments(m, s, &n->items);
    pl_chat_leave(m->r);
    m->r->line = n->line;
    return pl_chat_filter(m, n->name, v, &a);
}

static pl_chat_value eval_compare(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    pl_chat_value a = eval(m, s, n->a);
    for (int64_t i = 0; i < n->items.n; i++) {
        pl_chat_value b = eval(m, s, n->items.v[i]);
        if (!compare(m, n->items.keyword[i], a, b)) return pl_chat_bool(false);
        a = b;
    }
    return pl_chat_bool(true);
}

static pl_chat_value eval_items(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    pl_chat_value list = pl_chat_list_new(m->r, n->kind == PL_CHAT_TUPLE);
    for (int64_t i = 0; i < n->items.n; i++)
        pl_chat_push(m->r, list, eval(m, s, n->items.v[i]));
    return list;
}

static pl_chat_value eval_object(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    pl_chat_value dict = pl_chat_dict_new(m->r);
    for (int64_t i = 0; i < n->items.n; i += 2) {
        pl_chat_value key = eval(m, s, n->items.v[i]);
        pl_chat_put(m->r, dict, key, eval(m, s, n->items.v[i + 1]));
    }
    return dict;
}

static pl_chat_value eval_concat(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    pl_chat_value parts = eval_items(m, s, n);
    size_t        mark = m->r->text.n;
    for (int64_t i = 0; i < parts.list->n; i++)
        pl_chat_print(m->r, parts.list->v[i]);
    return pl_chat_taken(m->r, mark);
}

static pl_chat_value eval_slice(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    pl_chat_value of = eval(m, s, n->a), part[3];
    for (int i = 0; i < 3; i++)
        part[i] = n->items.v[i] ? eval(m, s, n->items.v[i]) : pl_chat_none();
    if (of.type == PL_CHAT_UNDEFINED) pl_chat_missing(m, of);
    return slice(m, of, part);
}

static pl_chat_value eval_called(pl_chat_machine *m, scope *s, const pl_chat_node *n, const pl_chat_value *caller) {
    pl_chat_value f = eval(m, s, n->a);
    pl_chat_args  a = arguments(m, s, &n->items);
    m->r->line = n->line;
    return call(m, f, &a, caller);
}

static pl_chat_value eval_any(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    pl_chat_value v;
    pl_chat_args  args;
    switch (n->kind) {
    case PL_CHAT_CONST: return n->value;
    case PL_CHAT_NAME: return lookup(m, s, n->name);
    case PL_CHAT_TUPLE:
    case PL_CHAT_ARRAY: return eval_items(m, s, n);
    case PL_CHAT_OBJECT: return eval_object(m, s, n);
    case PL_CHAT_ATTR: return pl_chat_attr(m, eval(m, s, n->a), n->name);
    case PL_CHAT_ITEM: v = eval(m, s, n->a); return pl_chat_item(m, v, eval(m, s, n->b));
    case PL_CHAT_SLICE: return eval_slice(m, s, n);
    case PL_CHAT_CALLED: return eval_called(m, s, n, NULL);
    case PL_CHAT_FILTER: return apply_filters(m, s, n, pl_chat_none());
    case PL_CHAT_TEST:
        v = eval(m, s, n->a);
        args = arguments(m, s, &n->items);
        return pl_chat_bool(pl_chat_test(m, n->name, v, &args));
    case PL_CHAT_NOT: return pl_chat_bool(!pl_chat_true(eval(m, s, n->a)));
    case PL_CHAT_AND: v = eval(m, s, n->a); return pl_chat_true(v) ? eval(m, s, n->b) : v;
    case PL_CHAT_OR: v = eval(m, s, n->a); return pl_chat_true(v) ? v : eval(m, s, n->b);
    case PL_CHAT_NEGATIVE: return pl_chat_signed(m, eval(m, s, n->a), -1);
    case PL_CHAT_POSITIVE: return pl_chat_signed(m, eval(m, s, n->a), 1);
    case PL_CHAT_ARITHMETIC: v = eval(m, s, n->a); return pl_chat_arithmetic(m, n->name, v, eval(m, s, n->b));
    case PL_CHAT_CONCAT: return eval_concat(m, s, n);
    case PL_CHAT_COMPARE: return eval_compare(m, s, n);
    case PL_CHAT_CHOICE:
        if (pl_chat_true(eval(m, s, n->b))) return eval(m, s, n->a);
        return n->c ? eval(m, s, n->c) : pl_chat_undefined("the other choice of an if");
    default: break;
    }
    pl_chat_raise(m->r, PL_E_INTERNAL, "a statement where an expression was expected");
}

static pl_chat_value eval(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    pl_chat_enter(m->r);
    pl_chat_step(m->r, 1);
    pl_chat_value v = eval_any(m, s, n);
    pl_chat_leave(m->r);
    return v;
}

// ---- statements

// Returns the items that pass the loop's own condition.
static const pl_chat_list *choose_items(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    const pl_chat_list *all = pl_chat_items(m, eval(m, s, n->b));
    pl_chat_value       items = pl_chat_list_new(m->r, false);
    for (int64_t i = 0; i < all->n; i++) {
        scope *each = inner_scope(m, s);
        assign(m, each, n->a, all->v[i]);
        if (pl_chat_true(eval(m, each, n->c))) pl_chat_push(m->r, items, all->v[i]);
    }
    return items.list;
}

static flow exec_for(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    loop         *l = pl_region_alloc(m->r, sizeof *l);
    pl_chat_value self = make_callable(m, (pl_chat_call){.loop = l});
    l->items = n->c ? choose_items(m, s, n) : pl_chat_items(m, eval(m, s, n->b));
    flow f = NEXT;
    bool ended = false; // a body ran to its end; otherwise jinja2 runs "else", whatever the items
    for (; l->i < l->items->n && f != BREAK; l->i++) {
        scope *each = inner_scope(m, s);
        bind_name(m, each, "loop", self);
        assign(m, each, n->a, l->items->v[l->i]);
        f = exec(m, each, &n->body);
        ended = ended || f == NEXT;
    }
    return ended ? NEXT
                 : exec(m, inner_scope(m, s), &n->other); // break and continue in it belong to the enclosing loop
}

static void exec_generation(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    size_t from = m->r->text.n;
    exec(m, inner_scope(m, s), &n->body);
    if (m->captured) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "generation inside a macro or a set block is not built");
    m->spans = pl_region_room(m->r, m->spans, m->n_spans, &m->cap_spans, sizeof *m->spans);
    m->spans[m->n_spans++] = (pl_chat_span){from, m->r->text.n};
}

static flow exec_with(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    scope *in = inner_scope(m, s);
    for (int64_t i = 0; i < n->items.n; i += 2)
        assign(m, in, n->items.v[i], eval(m, s, n->items.v[i + 1]));
    return exec(m, in, &n->body);
}

static flow exec_one(pl_chat_machine *m, scope *s, const pl_chat_node *n) {
    pl_chat_value v;
    m->r->line = n->line;
    pl_chat_step(m->r, 1);
    switch (n->kind) {
    case PL_CHAT_TEXT: pl_chat_print(m->r, n->value); return NEXT;
    case PL_CHAT_OUTPUT: pl_chat_print(m->r, eval(m, s, n->a)); return NEXT;
    case PL_CHAT_IF: return exec(m, s, pl_chat_true(eval(m, s, n->a)) ? &n->body : &n->other);
    case PL_CHAT_FOR: return exec_for(m, s, n);
    case PL_CHAT_SET: assign(m, s, n->a, eval(m, s, n->b)); return NEXT;
    case PL_CHAT_SET_BLOCK:
        v = capture_body(m, inner_scope(m, s), &n->body);
        assign(m, s, n->a, n->b ? apply_filters(m, s, n->b, v) : v);
        return NEXT;
    case PL_CHAT_MACRO: bind_name(m, s, n->name, make_callable(m, (pl_chat_call){.macro = n, .scope = s})); return NEXT;
    case PL_CHAT_CALL_BLOCK:
        v = make_callable(m, (pl_chat_call){.macro = n->b, .scope = s});
        pl_chat_print(m->r, eval_called(m, s, n->a, &v));
        return NEXT;
    case PL_CHAT_FILTERED:
        v = capture_body(m, inner_scope(m, s), &n->body);
        pl_chat_print(m->r, apply_filters(m, s, n->b, v));
        return NEXT;
    case PL_CHAT_WITH: return exec_with(m, s, n);
    case PL_CHAT_GENERATION: exec_generation(m, s, n); return NEXT;
    case PL_CHAT_BREAK: return BREAK;
    case PL_CHAT_CONTINUE: return CONTINUE;
    default: break;
    }
    pl_chat_raise(m->r, PL_E_INTERNAL, "an expression where a statement was expected");
}

static flow exec(pl_chat_machine *m, scope *s, const pl_chat_nodes *body) {
    flow f = NEXT;
    pl_chat_enter(m->r);
    for (int64_t i = 0; i < body->n && f == NEXT; i++)
        f = exec_one(m, s, body->v[i]);
    pl_chat_leave(m->r);
    return f;
}

void pl_chat_run(pl_chat_machine *m, const pl_chat_nodes *body) {
    exec(m, inner_scope(m, NULL), body);
}
