// Filters: one function and one row each.
#include "data/chat/eval.h"
#include "data/tokenizer/unicode.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static bool given(pl_chat_value v) {
    return v.type != PL_CHAT_UNDEFINED;
}

static pl_chat_value list_of(pl_chat_machine *m, const pl_chat_list *items) {
    pl_chat_value list = pl_chat_list_new(m->r, false);
    for (int64_t i = 0; i < items->n; i++)
        pl_chat_push(m->r, list, items->v[i]);
    return list;
}

// Returns one step of a path such as "a.b.0" (attribute=). otherwise: the value of a missing step; none: undefined.
static pl_chat_value step_of(pl_chat_machine *m, pl_chat_value of, pl_chat_value step, pl_chat_value otherwise) {
    pl_chat_value v = pl_chat_item(m, of, step);
    return given(v) || otherwise.type == PL_CHAT_NONE ? v : otherwise;
}

static pl_chat_value path_or(pl_chat_machine *m, pl_chat_value of, pl_chat_value path, pl_chat_value otherwise) {
    if (path.type == PL_CHAT_INT) return step_of(m, of, path, otherwise);
    pl_chat_need_str(m, path, "attribute");
    pl_chat_read(m->r, path.n);
    for (size_t from = 0; from <= path.n;) {
        size_t end = from;
        while (end < path.n && path.s[end] != '.')
            end++;
        char *name = pl_region_copy(m->r, path.s + from, end - from);
        bool  digits = end > from && strspn(name, "0123456789") == end - from;
        of = step_of(m, of, digits ? pl_chat_int(strtoll(name, NULL, 10)) : pl_chat_str(name), otherwise);
        from = end + 1;
    }
    return of;
}

static pl_chat_value member_path(pl_chat_machine *m, pl_chat_value of, pl_chat_value path) {
    return path_or(m, of, path, pl_chat_none());
}

PL_CHAT_BUILTIN(f_default) {
    PL_CHAT_UNUSED;
    bool missing = !given(self) || (given(arg[1]) && pl_chat_true(arg[1]) && !pl_chat_true(self));
    if (!missing) return self;
    return given(arg[0]) || all->n > 0 ? arg[0] : pl_chat_str("");
}

PL_CHAT_BUILTIN(f_length) {
    PL_CHAT_UNUSED;
    return pl_chat_int(pl_chat_length(m->r, self));
}

PL_CHAT_BUILTIN(f_string) {
    PL_CHAT_UNUSED;
    return self.type == PL_CHAT_STR ? self : pl_chat_text(m, self);
}

PL_CHAT_BUILTIN(f_safe) {
    PL_CHAT_UNUSED;
    pl_chat_value v = self.type == PL_CHAT_STR ? self : pl_chat_text(m, self);
    v.flag = true;
    return v;
}

PL_CHAT_BUILTIN(f_trim) {
    PL_CHAT_UNUSED;
    return pl_chat_strip(m, pl_chat_text(m, self), given(arg[0]) ? arg[0] : pl_chat_none(), true, true);
}

PL_CHAT_BUILTIN(f_upper) {
    PL_CHAT_UNUSED;
    return pl_chat_cased(m, pl_chat_text(m, self), true);
}

PL_CHAT_BUILTIN(f_lower) {
    PL_CHAT_UNUSED;
    return pl_chat_cased(m, pl_chat_text(m, self), false);
}

PL_CHAT_BUILTIN(f_capitalize) {
    PL_CHAT_UNUSED;
    return pl_chat_capitalized(m, pl_chat_text(m, self));
}

static bool ends_word(uint32_t c) {
    return pl_chat_is_space(c) || (c && c < 0x80 && strchr("-({[<", (int)c));
}

// Upper-cases the first letter of each word.
PL_CHAT_BUILTIN(f_title) {
    PL_CHAT_UNUSED;
    pl_chat_value s = pl_chat_text(m, self), word;
    size_t        mark = m->r->text.n;
    pl_chat_read(m->r, s.n);
    for (size_t from = 0, end, next; from < s.n; from = end) {
        bool between = ends_word(pl_chat_char(s, from, &end));
        while (end < s.n && ends_word(pl_chat_char(s, end, &next)) == between)
            end = next;
        word = pl_chat_strn(s.s + from, end - from);
        if (!between) word = pl_chat_capitalized(m, word);
        pl_chat_add(m->r, word.s, word.n);
    }
    return pl_chat_taken(m->r, mark);
}

PL_CHAT_BUILTIN(f_replace) {
    PL_CHAT_UNUSED;
    return pl_chat_replace(m, pl_chat_text(m, self), pl_chat_text(m, arg[0]), pl_chat_text(m, arg[1]),
                           given(arg[2]) && arg[2].type != PL_CHAT_NONE ? pl_chat_need_int(m, arg[2], "count") : -1);
}

PL_CHAT_BUILTIN(f_join) {
    PL_CHAT_UNUSED;
    const pl_chat_list *items = pl_chat_items(m, self);
    pl_chat_value       by = given(arg[0]) ? pl_chat_text(m, arg[0]) : pl_chat_str("");
    size_t              mark = m->r->text.n;
    for (int64_t i = 0; i < items->n; i++) {
        pl_chat_value v = given(arg[1]) ? member_path(m, items->v[i], arg[1]) : items->v[i];
        if (i) pl_chat_print(m->r, by);
        pl_chat_print(m->r, v);
    }
    return pl_chat_taken(m->r, mark);
}

PL_CHAT_BUILTIN(f_first) {
    PL_CHAT_UNUSED;
    const pl_chat_list *items = pl_chat_items(m, self);
    if (items->n && self.type == PL_CHAT_LIST && self.list->kind == PL_CHAT_GENERATOR) // it continues after this item
        self.list->v = items->v + 1, self.list->n = self.list->cap = items->n - 1;
    return items->n ? items->v[0] : pl_chat_undefined("the first item of nothing");
}

PL_CHAT_BUILTIN(f_last) {
    PL_CHAT_UNUSED;
    if (self.type == PL_CHAT_LIST && self.list->kind == PL_CHAT_GENERATOR)
        pl_chat_raise(m->r, PL_E_INPUT, "'generator' object is not reversible");
    const pl_chat_list *items = pl_chat_items(m, self);
    return items->n ? items->v[items->n - 1] : pl_chat_undefined("the last item of nothing");
}

PL_CHAT_BUILTIN(f_list) {
    PL_CHAT_UNUSED;
    return list_of(m, pl_chat_items(m, self));
}

PL_CHAT_BUILTIN(f_reverse) {
    PL_CHAT_UNUSED;
    const pl_chat_list *items = pl_chat_items(m, self);
    pl_chat_value       list = pl_chat_list_of_kind(m->r, PL_CHAT_GENERATOR);
    size_t              mark = m->r->text.n;
    for (int64_t i = items->n; i-- > 0;)
        if (self.type == PL_CHAT_STR)
            pl_chat_add(m->r, items->v[i].s, items->v[i].n);
        else
            pl_chat_push(m->r, list, items->v[i]);
    return self.type == PL_CHAT_STR ? pl_chat_taken(m->r, mark) : list;
}

PL_CHAT_BUILTIN(f_items) {
    PL_CHAT_UNUSED;
    pl_chat_value list = pl_chat_list_of_kind(m->r, PL_CHAT_GENERATOR);
    if (!given(self)) return list;
    if (self.type != PL_CHAT_DICT || self.flag) pl_chat_raise(m->r, PL_E_INPUT, "items of what is no mapping");
    for (int64_t i = 0; i < self.dict->n; i++)
        pl_chat_push(m->r, list, pl_chat_pair(m->r, self.dict->key[i], self.dict->value[i]));
    return list;
}

static pl_chat_value fold_case(pl_chat_machine *m, pl_chat_value v, bool case_sensitive) {
    return v.type == PL_CHAT_STR && !case_sensitive ? pl_chat_cased(m, v, false) : v;
}

PL_CHAT_BUILTIN(f_sort) { // reverse, case_sensitive, attribute
    PL_CHAT_UNUSED;
    pl_chat_value list = list_of(m, pl_chat_items(m, self)), keys = pl_chat_list_new(m->r, false);
    for (int64_t i = 0; i < list.list->n; i++) {
        pl_chat_value v = list.list->v[i];
        if (given(arg[2]) && arg[2].type != PL_CHAT_NONE) v = member_path(m, v, arg[2]);
        pl_chat_push(m->r, keys, fold_case(m, v, given(arg[1]) && pl_chat_true(arg[1])));
    }
    pl_chat_sort(m->r, list.list->v, keys.list->v, list.list->n, given(arg[0]) && pl_chat_true(arg[0]));
    return list;
}

PL_CHAT_BUILTIN(f_dictsort) { // case_sensitive, by, reverse
    bool          by_value = given(arg[1]) && pl_chat_is(arg[1], "value");
    pl_chat_value list = f_items(m, self, arg, all), keys = pl_chat_list_new(m->r, false);
    list.list->kind = PL_CHAT_WHOLE;
    for (int64_t i = 0; i < list.list->n; i++)
        pl_chat_push(m->r, keys,
                     fold_case(m, list.list->v[i].list->v[by_value], given(arg[0]) && pl_chat_true(arg[0])));
    pl_chat_sort(m->r, list.list->v, keys.list->v, list.list->n, given(arg[2]) && pl_chat_true(arg[2]));
    return list;
}

PL_CHAT_BUILTIN(f_unique) { // case_sensitive, attribute
    PL_CHAT_UNUSED;
    const pl_chat_list *items = pl_chat_items(m, self);
    pl_chat_value       list = pl_chat_list_of_kind(m->r, PL_CHAT_GENERATOR), keys = pl_chat_list_new(m->r, false);
    for (int64_t i = 0; i < items->n; i++) {
        pl_chat_value v = given(arg[1]) ? member_path(m, items->v[i], arg[1]) : items->v[i];
        v = fold_case(m, v, given(arg[0]) && pl_chat_true(arg[0]));
        if (pl_chat_contains(m, keys, v)) continue;
        pl_chat_push(m->r, keys, v);
        pl_chat_push(m->r, list, items->v[i]);
    }
    return list;
}

static pl_chat_value find_extreme(pl_chat_machine *m, pl_chat_value self, const pl_chat_value *arg, int sign) {
    const pl_chat_list *items = pl_chat_items(m, self);
    bool                exact = given(arg[0]) && pl_chat_true(arg[0]);
    pl_chat_value       best = pl_chat_undefined("an extreme of nothing"), best_key = best;
    for (int64_t i = 0; i < items->n; i++) {
        pl_chat_value key = fold_case(m, given(arg[1]) ? member_path(m, items->v[i], arg[1]) : items->v[i], exact);
        if (i && sign * pl_chat_order(m->r, key, best_key) <= 0) continue;
        best = items->v[i];
        best_key = key;
    }
    return best;
}

PL_CHAT_BUILTIN(f_max) {
    PL_CHAT_UNUSED;
    return find_extreme(m, self, arg, 1);
}

PL_CHAT_BUILTIN(f_min) {
    PL_CHAT_UNUSED;
    return find_extreme(m, self, arg, -1);
}

PL_CHAT_BUILTIN(f_sum) { // attribute, start
    PL_CHAT_UNUSED;
    const pl_chat_list *items = pl_chat_items(m, self);
    pl_chat_value       v = given(arg[1]) ? arg[1] : pl_chat_int(0);
    for (int64_t i = 0; i < items->n; i++)
        v = pl_chat_arithmetic(m, "+", v, given(arg[0]) ? member_path(m, items->v[i], arg[0]) : items->v[i]);
    return v;
}

PL_CHAT_BUILTIN(f_abs) {
    PL_CHAT_UNUSED;
    bool below = self.type == PL_CHAT_INT ? self.i < 0 : self.type == PL_CHAT_FLOAT && signbit(self.f);
    return pl_chat_signed(m, self, below ? -1 : 1);
}

// Returns the text of a possible number, without the blanks around it; NULL: it is none. Refuses forms that only Python
// reads.
static char *digits_of(pl_chat_machine *m, pl_chat_value self) {
    pl_chat_value s = pl_chat_strip(m, self, pl_chat_none(), true, true);
    char         *text = pl_region_copy(m->r, s.s, s.n);
    pl_chat_read(m->r, s.n);
    for (size_t at = 0; at < s.n;)
        if (pl_unicode_class(pl_chat_char(s, at, &at)) == PL_CHAR_NUMBER && (s.s[at - 1] & 0x80))
            pl_chat_raise(m->r, PL_E_UNSUPPORTED, "a number in digits beyond ASCII is not built");
    const char *word = text + strspn(text, "+-");
    if (strcasecmp(word, "nan") == 0 || strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0)
        pl_chat_raise(m->r, PL_E_UNSUPPORTED, "the number %s is not built", text);
    if (s.n == 0 || strspn(text, "+-.0123456789eE_") != s.n) return NULL;
    if (strchr(text, '_')) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "digits grouped by _ are not built");
    return text;
}

static pl_chat_value whole_number(pl_chat_machine *m, double f) {
    if (!(fabs(f) < 9e18)) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "an integer beyond 64 bits");
    return pl_chat_int((int64_t)f);
}

PL_CHAT_BUILTIN(f_int) {
    PL_CHAT_UNUSED;
    pl_chat_value other = given(arg[0]) ? arg[0] : pl_chat_int(0);
    if (self.type == PL_CHAT_INT) return self;
    if (self.type == PL_CHAT_BOOL) return pl_chat_int(self.flag);
    if (self.type == PL_CHAT_FLOAT) return whole_number(m, self.f);
    char *text = self.type == PL_CHAT_STR ? digits_of(m, self) : NULL, *end;
    if (!text) return other;
    errno = 0;
    long long i = strtoll(text, &end, 10);
    if (*end == 0 && errno == 0) return pl_chat_int(i);
    double f = strtod(text, &end);
    return *end || isinf(f) ? other : whole_number(m, f);
}

PL_CHAT_BUILTIN(f_float) {
    PL_CHAT_UNUSED;
    pl_chat_value other = given(arg[0]) ? arg[0] : pl_chat_float(0);
    if (self.type == PL_CHAT_FLOAT) return self;
    if (self.type == PL_CHAT_INT) return pl_chat_float((double)self.i);
    if (self.type == PL_CHAT_BOOL) return pl_chat_float(self.flag);
    char *text = self.type == PL_CHAT_STR ? digits_of(m, self) : NULL, *end;
    if (!text) return other;
    double f = strtod(text, &end);
    return *end ? other : pl_chat_float(f);
}

PL_CHAT_BUILTIN(f_round) { // precision, method
    PL_CHAT_UNUSED;
    char    text[400];
    int64_t digits = given(arg[0]) ? pl_chat_need_int(m, arg[0], "round") : 0;
    if (given(arg[1]) && !pl_chat_is(arg[1], "common"))
        pl_chat_raise(m->r, PL_E_UNSUPPORTED, "round: only the method common is built");
    if (digits < 0 || digits > 15) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "round: a precision outside 0 to 15");
    if (self.type == PL_CHAT_INT) return self;
    if (self.type == PL_CHAT_BOOL) return pl_chat_int(self.flag);
    if (self.type != PL_CHAT_FLOAT) pl_chat_raise(m->r, PL_E_INPUT, "round of a %s", pl_chat_type_name(self));
    snprintf(text, sizeof text, "%.*f", (int)digits, self.f);
    return pl_chat_float(strtod(text, NULL));
}

PL_CHAT_BUILTIN(f_indent) { // width, first, blank
    PL_CHAT_UNUSED;
    pl_chat_value       s = pl_chat_text(m, self), by = given(arg[0]) ? arg[0] : pl_chat_int(4);
    const pl_chat_list *lines;
    bool                first = given(arg[1]) && pl_chat_true(arg[1]), blank = given(arg[2]) && pl_chat_true(arg[2]);
    size_t              mark = m->r->text.n;
    if (by.type != PL_CHAT_STR) by = pl_chat_arithmetic(m, "*", pl_chat_str(" "), by);
    lines = pl_chat_lines(m, pl_chat_arithmetic(m, "+", s, pl_chat_str("\n")));
    for (int64_t i = 0; i < lines->n; i++) {
        if (i) pl_chat_add(m->r, "\n", 1);
        if (i == 0 ? first : blank || lines->v[i].n) pl_chat_add(m->r, by.s, by.n);
        pl_chat_add(m->r, lines->v[i].s, lines->v[i].n);
    }
    return pl_chat_taken(m->r, mark);
}

// transformers' own: json.dumps with ensure_ascii off by default, without escaping for HTML.
PL_CHAT_BUILTIN(f_tojson) { // ensure_ascii, indent, separators, sort_keys
    PL_CHAT_UNUSED;
    pl_chat_json how = {.indent = -1, .item = ", ", .key = ": ", .sorted = given(arg[3]) && pl_chat_true(arg[3])};
    size_t       mark = m->r->text.n;
    how.ascii = given(arg[0]) && pl_chat_true(arg[0]);
    if (given(arg[1]) && arg[1].type != PL_CHAT_NONE) {
        int64_t n = pl_chat_need_int(m, arg[1], "tojson: indent");
        how.indent = n < 0 ? 0 : n > 64 ? 64 : (int)n;
        how.item = ",";
    }
    if (given(arg[2]) && arg[2].type != PL_CHAT_NONE) {
        const pl_chat_list *both = pl_chat_items(m, arg[2]);
        if (both->n != 2) pl_chat_raise(m->r, PL_E_INPUT, "tojson: separators are two strings");
        for (int i = 0; i < 2; i++) {
            pl_chat_value v = pl_chat_need_str(m, both->v[i], "tojson: separators");
            *(i ? &how.key : &how.item) = pl_region_copy(m->r, v.s, v.n);
        }
    }
    pl_chat_dump(m->r, self, &how);
    return pl_chat_taken(m->r, mark);
}

static pl_chat_args rest_args(const pl_chat_args *all, int64_t from) {
    return all->n > from ? (pl_chat_args){.v = all->v + from, .n = all->n - from} : (pl_chat_args){0};
}

// map, select and similar filters treat any false value, none included, as an empty list.
static const pl_chat_list *items_of_true(pl_chat_machine *m, pl_chat_value v) {
    return pl_chat_items(m, pl_chat_true(v) ? v : pl_chat_list_new(m->r, false));
}

PL_CHAT_BUILTIN(f_map) {
    (void)arg;
    const pl_chat_list *items = items_of_true(m, self);
    pl_chat_value       list = pl_chat_list_of_kind(m->r, PL_CHAT_GENERATOR), attribute = pl_chat_none(),
                  otherwise = pl_chat_none();
    pl_chat_args more = rest_args(all, 1);
    for (int64_t k = 0; k < all->nk; k++)
        if (strcmp(all->keyword[k], "attribute") == 0)
            attribute = all->kv[k];
        else if (strcmp(all->keyword[k], "default") == 0)
            otherwise = all->kv[k];
        else
            pl_chat_raise(m->r, PL_E_UNSUPPORTED, "map: an argument that is not built");
    if (attribute.type == PL_CHAT_NONE && all->n == 0) pl_chat_raise(m->r, PL_E_INPUT, "map: a filter's name");
    for (int64_t i = 0; i < items->n; i++) {
        pl_chat_value v = items->v[i];
        if (attribute.type == PL_CHAT_NONE) {
            pl_chat_value name = pl_chat_need_str(m, all->v[0], "map");
            v = pl_chat_filter(m, pl_region_copy(m->r, name.s, name.n), v, &more);
        } else {
            v = path_or(m, v, attribute, otherwise);
        }
        pl_chat_push(m->r, list, v);
    }
    return list;
}

// select and similar filters: items that pass a test (or whose member does), or that are true if no test is named.
static pl_chat_value choose_items(pl_chat_machine *m, pl_chat_value self, const pl_chat_args *all, bool by_member,
                                  bool keep) {
    const pl_chat_list *items = items_of_true(m, self);
    pl_chat_value       list = pl_chat_list_of_kind(m->r, PL_CHAT_GENERATOR);
    int64_t             at = by_member;
    pl_chat_args        more = rest_args(all, at + 1);
    if (all->nk || all->n < at) pl_chat_raise(m->r, PL_E_INPUT, "select: a member's name");
    for (int64_t i = 0; i < items->n; i++) {
        pl_chat_value v = by_member ? member_path(m, items->v[i], all->v[0]) : items->v[i];
        bool          passes = pl_chat_true(v);
        if (all->n > at) {
            pl_chat_value name = pl_chat_need_str(m, all->v[at], "select");
            passes = pl_chat_test(m, pl_region_copy(m->r, name.s, name.n), v, &more);
        }
        if (passes == keep) pl_chat_push(m->r, list, items->v[i]);
    }
    return list;
}

PL_CHAT_BUILTIN(f_select) {
    (void)arg;
    return choose_items(m, self, all, false, true);
}

PL_CHAT_BUILTIN(f_reject) {
    (void)arg;
    return choose_items(m, self, all, false, false);
}

PL_CHAT_BUILTIN(f_selectattr) {
    (void)arg;
    return choose_items(m, self, all, true, true);
}

PL_CHAT_BUILTIN(f_rejectattr) {
    (void)arg;
    return choose_items(m, self, all, true, false);
}

PL_CHAT_BUILTIN(f_format) {
    (void)arg;
    if (all->nk) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "format: named arguments are not built");
    return pl_chat_printf(m, pl_chat_need_str(m, self, "format"), all->v, all->n);
}

PL_CHAT_BUILTIN(f_attr) {
    PL_CHAT_UNUSED;
    pl_chat_value name = pl_chat_need_str(m, arg[0], "attr");
    pl_chat_value v = pl_chat_attr(m, self, pl_region_copy(m->r, name.s, name.n));
    bool          member = self.type == PL_CHAT_DICT && !self.flag && v.type != PL_CHAT_CALL;
    return member ? pl_chat_undefined("an attribute of a dictionary") : v;
}

const pl_chat_builtin pl_chat_filters[] = {
    {"abs", "", f_abs},
    {"attr", "name!", f_attr},
    {"capitalize", "", f_capitalize},
    {"count", "", f_length},
    {"d", "default_value boolean", f_default},
    {"default", "default_value boolean", f_default},
    {"dictsort", "case_sensitive by reverse", f_dictsort},
    {"first", "", f_first},
    {"float", "default", f_float},
    {"format", NULL, f_format},
    {"indent", "width first blank", f_indent},
    {"int", "default", f_int},
    {"items", "", f_items},
    {"join", "d attribute", f_join},
    {"last", "", f_last},
    {"length", "", f_length},
    {"list", "", f_list},
    {"lower", "", f_lower},
    {"map", NULL, f_map},
    {"max", "case_sensitive attribute", f_max},
    {"min", "case_sensitive attribute", f_min},
    {"reject", NULL, f_reject},
    {"rejectattr", NULL, f_rejectattr},
    {"replace", "old! new! count", f_replace},
    {"reverse", "", f_reverse},
    {"round", "precision method", f_round},
    {"safe", "", f_safe},
    {"select", NULL, f_select},
    {"selectattr", NULL, f_selectattr},
    {"sort", "reverse case_sensitive attribute", f_sort},
    {"string", "", f_string},
    {"sum", "attribute start", f_sum},
    {"title", "", f_title},
    {"tojson", "ensure_ascii indent separators sort_keys", f_tojson},
    {"trim", "chars", f_trim},
    {"unique", "case_sensitive attribute", f_unique},
    {"upper", "", f_upper},
    {0},
};
