// Tests, functions, and the methods of lists and dictionaries: one function and one row each.
#include "data/chat/eval.h"

static bool given(pl_chat_value v) {
    return v.type != PL_CHAT_UNDEFINED;
}

// ---- tests

PL_CHAT_BUILTIN(t_defined) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(given(self));
}

PL_CHAT_BUILTIN(t_undefined) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(!given(self));
}

PL_CHAT_BUILTIN(t_none) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(self.type == PL_CHAT_NONE);
}

PL_CHAT_BUILTIN(t_true) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(self.type == PL_CHAT_BOOL && self.flag);
}

PL_CHAT_BUILTIN(t_false) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(self.type == PL_CHAT_BOOL && !self.flag);
}

PL_CHAT_BUILTIN(t_boolean) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(self.type == PL_CHAT_BOOL);
}

PL_CHAT_BUILTIN(t_integer) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(self.type == PL_CHAT_INT);
}

PL_CHAT_BUILTIN(t_float) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(self.type == PL_CHAT_FLOAT);
}

PL_CHAT_BUILTIN(t_number) { // True is a number in Python
    PL_CHAT_UNUSED;
    return pl_chat_bool(self.type >= PL_CHAT_BOOL && self.type <= PL_CHAT_FLOAT);
}

PL_CHAT_BUILTIN(t_string) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(self.type == PL_CHAT_STR);
}

PL_CHAT_BUILTIN(t_mapping) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(self.type == PL_CHAT_DICT && !self.flag);
}

PL_CHAT_BUILTIN(t_iterable) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(!given(self) || self.type == PL_CHAT_STR || self.type == PL_CHAT_LIST ||
                        (self.type == PL_CHAT_DICT && !self.flag));
}

// True for anything with a length and items: strings and dictionaries too, and undefined values, which have all the
// methods that Python checks.
PL_CHAT_BUILTIN(t_sequence) {
    PL_CHAT_UNUSED;
    bool list = self.type == PL_CHAT_LIST && (self.list->kind == PL_CHAT_WHOLE || self.list->kind == PL_CHAT_RANGE);
    return pl_chat_bool(!given(self) || self.type == PL_CHAT_STR || list || (self.type == PL_CHAT_DICT && !self.flag));
}

PL_CHAT_BUILTIN(t_callable) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(!given(self) || self.type == PL_CHAT_CALL);
}

PL_CHAT_BUILTIN(t_in) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(pl_chat_contains(m, arg[0], self));
}

PL_CHAT_BUILTIN(t_equal) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(pl_chat_equal(m->r, self, arg[0]));
}

PL_CHAT_BUILTIN(t_unequal) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(!pl_chat_equal(m->r, self, arg[0]));
}

PL_CHAT_BUILTIN(t_less) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(pl_chat_order(m->r, self, arg[0]) < 0);
}

PL_CHAT_BUILTIN(t_less_equal) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(pl_chat_order(m->r, self, arg[0]) <= 0);
}

PL_CHAT_BUILTIN(t_greater) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(pl_chat_order(m->r, self, arg[0]) > 0);
}

PL_CHAT_BUILTIN(t_greater_equal) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(pl_chat_order(m->r, self, arg[0]) >= 0);
}

static int64_t remainder_of(pl_chat_machine *m, pl_chat_value a, pl_chat_value b) {
    return pl_chat_need_int(m, pl_chat_arithmetic(m, "%", a, b), "a remainder");
}

PL_CHAT_BUILTIN(t_even) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(remainder_of(m, self, pl_chat_int(2)) == 0);
}

PL_CHAT_BUILTIN(t_odd) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(remainder_of(m, self, pl_chat_int(2)) == 1);
}

PL_CHAT_BUILTIN(t_divisible) {
    PL_CHAT_UNUSED;
    return pl_chat_bool(remainder_of(m, self, arg[0]) == 0);
}

PL_CHAT_BUILTIN(t_filter) {
    PL_CHAT_UNUSED;
    pl_chat_value s = pl_chat_need_str(m, self, "filter");
    return pl_chat_bool(pl_chat_builtin_find(pl_chat_filters, pl_region_copy(m->r, s.s, s.n)) != NULL);
}

const pl_chat_builtin pl_chat_tests[] = {
    {"!=", "other!", t_unequal},
    {"<", "other!", t_less},
    {"<=", "other!", t_less_equal},
    {"==", "other!", t_equal},
    {">", "other!", t_greater},
    {">=", "other!", t_greater_equal},
    {"boolean", "", t_boolean},
    {"callable", "", t_callable},
    {"defined", "", t_defined},
    {"divisibleby", "num!", t_divisible},
    {"eq", "other!", t_equal},
    {"equalto", "other!", t_equal},
    {"even", "", t_even},
    {"false", "", t_false},
    {"filter", "", t_filter},
    {"float", "", t_float},
    {"ge", "other!", t_greater_equal},
    {"greaterthan", "other!", t_greater},
    {"gt", "other!", t_greater},
    {"in", "seq!", t_in},
    {"integer", "", t_integer},
    {"iterable", "", t_iterable},
    {"le", "other!", t_less_equal},
    {"lessthan", "other!", t_less},
    {"lt", "other!", t_less},
    {"mapping", "", t_mapping},
    {"ne", "other!", t_unequal},
    {"none", "", t_none},
    {"number", "", t_number},
    {"odd", "", t_odd},
    {"sequence", "", t_sequence},
    {"string", "", t_string},
    {"true", "", t_true},
    {"undefined", "", t_undefined},
    {0},
};

// ---- functions

PL_CHAT_BUILTIN(g_namespace) {
    (void)self, (void)arg;
    pl_chat_value ns = pl_chat_dict_new(m->r);
    if (all->n > 0 && all->v[0].type != PL_CHAT_DICT) pl_chat_raise(m->r, PL_E_INPUT, "namespace of no dictionary");
    for (int64_t i = 0; all->n > 0 && i < all->v[0].dict->n; i++)
        pl_chat_put(m->r, ns, all->v[0].dict->key[i], all->v[0].dict->value[i]);
    for (int64_t i = 0; i < all->nk; i++)
        pl_chat_put(m->r, ns, pl_chat_str(all->keyword[i]), all->kv[i]);
    ns.flag = true;
    return ns;
}

PL_CHAT_BUILTIN(g_dict) {
    pl_chat_value d = g_namespace(m, self, arg, all);
    d.flag = false;
    return d;
}

PL_CHAT_BUILTIN(g_range) {
    PL_CHAT_UNUSED;
    int64_t       from = given(arg[1]) ? pl_chat_need_int(m, arg[0], "range") : 0;
    int64_t       to = pl_chat_need_int(m, given(arg[1]) ? arg[1] : arg[0], "range");
    int64_t       step = given(arg[2]) ? pl_chat_need_int(m, arg[2], "range") : 1;
    pl_chat_value list = pl_chat_list_of_kind(m->r, PL_CHAT_RANGE);
    if (step == 0) pl_chat_raise(m->r, PL_E_INPUT, "range with a step of 0");
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        pl_chat_push(m->r, list, pl_chat_int(i));
        if (list.list->n > 100000) pl_chat_raise(m->r, PL_E_INPUT, "range of more than 100000"); // sandbox's limit
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return list;
}

PL_CHAT_BUILTIN(g_raise) {
    PL_CHAT_UNUSED;
    pl_chat_value s = pl_chat_text(m, arg[0]);
    pl_chat_raise(m->r, PL_E_INPUT, "the template refuses this conversation: %.*s", (int)(s.n < 700 ? s.n : 700), s.s);
}

PL_CHAT_BUILTIN(g_strftime) {
    PL_CHAT_UNUSED;
    pl_chat_value s = pl_chat_need_str(m, arg[0], "strftime_now");
    char          text[256];
    if (!m->now) pl_chat_raise(m->r, PL_E_INPUT, "the template writes today's date; say which (date: YYYY-MM-DD)");
    size_t n = strftime(text, sizeof text, pl_region_copy(m->r, s.s, s.n), m->now);
    return pl_chat_strn(pl_region_copy(m->r, text, n), n);
}

const pl_chat_builtin pl_chat_functions[] = {
    {"dict", NULL, g_dict},
    {"namespace", NULL, g_namespace},
    {"raise_exception", "message!", g_raise},
    {"range", "start! stop step", g_range},
    {"strftime_now", "format!", g_strftime},
    {0},
};

// ---- methods of lists and dictionaries that change nothing: templates run in an immutable sandbox

PL_CHAT_BUILTIN(l_count) {
    PL_CHAT_UNUSED;
    int64_t n = 0;
    pl_chat_step(m->r, self.list->n);
    for (int64_t i = 0; i < self.list->n; i++)
        n += pl_chat_equal(m->r, self.list->v[i], arg[0]);
    return pl_chat_int(n);
}

PL_CHAT_BUILTIN(l_index) {
    PL_CHAT_UNUSED;
    pl_chat_step(m->r, self.list->n);
    for (int64_t i = 0; i < self.list->n; i++)
        if (pl_chat_equal(m->r, self.list->v[i], arg[0])) return pl_chat_int(i);
    pl_chat_raise(m->r, PL_E_INPUT, "index of what is not in the list");
}

const pl_chat_builtin pl_chat_list_methods[] = {{"count", "value!", l_count}, {"index", "value!", l_index}, {0}};

PL_CHAT_BUILTIN(d_get) {
    PL_CHAT_UNUSED;
    pl_chat_value *v = pl_chat_find(m->r, self, arg[0]);
    return v ? *v : given(arg[1]) ? arg[1] : pl_chat_none();
}

PL_CHAT_BUILTIN(d_items) {
    PL_CHAT_UNUSED;
    pl_chat_value list = pl_chat_list_of_kind(m->r, PL_CHAT_VIEW);
    for (int64_t i = 0; i < self.dict->n; i++)
        pl_chat_push(m->r, list, pl_chat_pair(m->r, self.dict->key[i], self.dict->value[i]));
    return list;
}

PL_CHAT_BUILTIN(d_keys) {
    PL_CHAT_UNUSED;
    pl_chat_value list = pl_chat_list_of_kind(m->r, PL_CHAT_VIEW);
    for (int64_t i = 0; i < self.dict->n; i++)
        pl_chat_push(m->r, list, self.dict->key[i]);
    return list;
}

PL_CHAT_BUILTIN(d_values) {
    PL_CHAT_UNUSED;
    pl_chat_value list = pl_chat_list_of_kind(m->r, PL_CHAT_VIEW);
    for (int64_t i = 0; i < self.dict->n; i++)
        pl_chat_push(m->r, list, self.dict->value[i]);
    return list;
}

const pl_chat_builtin pl_chat_dict_methods[] = {
    {"get", "key! default", d_get}, {"items", "", d_items}, {"keys", "", d_keys}, {"values", "", d_values}, {0}};
