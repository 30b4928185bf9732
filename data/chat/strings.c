// Python's strings: their methods, and functions for filters. White space and digits are Unicode's, positions are
// counted in characters.
#include "data/chat/eval.h"
#include "data/tokenizer/unicode.h"
#include <stdio.h>
#include <stdlib.h>

static bool is_given(pl_chat_value v) {
    return v.type != PL_CHAT_UNDEFINED && v.type != PL_CHAT_NONE;
}

bool pl_chat_is_space(uint32_t c) {
    return pl_unicode_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

static pl_chat_value take_part(pl_chat_value s, size_t from, size_t to) {
    return pl_chat_strn(s.s + from, to - from);
}

// Returns the start of `what` in s[from..], or SIZE_MAX.
static size_t find_text(pl_chat_machine *m, pl_chat_value s, pl_chat_value what, size_t from) {
    if (what.n > s.n - from) return SIZE_MAX;
    if (what.n == 0) return from;
    pl_chat_move(m->r, what.n);
    const char *at = memmem(s.s + from, s.n - from, what.s, what.n);
    size_t      hit = at ? (size_t)(at - s.s) : SIZE_MAX;
    pl_chat_step(m->r, 1 + (int64_t)((at ? hit : s.n) - from) / 16);
    return hit;
}

// Returns true if the character s[at..next) is stripped: one of `chars`, or white space if `chars` is none.
static bool is_stripped(pl_chat_value s, size_t at, size_t next, pl_chat_value chars) {
    size_t n = next - at;
    if (chars.type != PL_CHAT_STR) {
        size_t end;
        return pl_chat_is_space(pl_chat_char(s, at, &end));
    }
    for (size_t i = 0, end; i < chars.n; i = end) {
        pl_chat_char(chars, i, &end);
        if (end - i == n && memcmp(chars.s + i, s.s + at, n) == 0) return true;
    }
    return false;
}

pl_chat_value pl_chat_strip(pl_chat_machine *m, pl_chat_value s, pl_chat_value chars, bool left, bool right) {
    size_t from = 0, to = 0, next;
    bool   begun = !left;
    if (is_given(chars)) chars = pl_chat_need_str(m, chars, "strip");
    pl_chat_read(m->r, s.n);
    for (size_t at = 0; at < s.n; at = next) {
        pl_chat_char(s, at, &next);
        if (is_given(chars)) pl_chat_step(m->r, (int64_t)chars.n);
        bool goes = is_stripped(s, at, next, chars);
        if (!begun && !goes) {
            begun = true;
            from = at;
        }
        if (!goes || !right) to = next;
    }
    if (!begun) from = s.n;
    return take_part(s, from, to > from ? to : from);
}

pl_chat_value pl_chat_replace(pl_chat_machine *m, pl_chat_value s, pl_chat_value from, pl_chat_value to,
                              int64_t count) {
    size_t mark = m->r->text.n, at = 0, next;
    for (int64_t done = 0; count < 0 || done < count; done++) {
        pl_chat_step(m->r, 1);
        size_t hit = find_text(m, s, from, at);
        if (hit == SIZE_MAX) break;
        if (from.n == 0) { // before every character and at the end
            pl_chat_print(m->r, to);
            if (at == s.n) return pl_chat_taken(m->r, mark);
            pl_chat_char(s, at, &next);
            pl_chat_add(m->r, s.s + at, next - at);
            at = next;
            continue;
        }
        pl_chat_add(m->r, s.s + at, hit - at);
        pl_chat_print(m->r, to);
        at = hit + from.n;
    }
    pl_chat_add(m->r, s.s + at, s.n - at);
    return pl_chat_taken(m->r, mark);
}

pl_chat_value pl_chat_cased(pl_chat_machine *m, pl_chat_value s, bool upper) {
    size_t mark = m->r->text.n;
    pl_chat_read(m->r, 2 * s.n);
    if (pl_unicode_is_special_case(s.s, s.n))
        pl_chat_raise(m->r, PL_E_UNSUPPORTED, "the case of letters that change their number is not built");
    (upper ? pl_unicode_upper : pl_unicode_lower)(s.s, s.n, &m->r->text);
    return pl_chat_taken(m->r, mark);
}

// Title-cases the first letter of a word: U+01C4 becomes U+01C5.
static pl_chat_value title_case(pl_chat_machine *m, pl_chat_value s) {
    size_t mark = m->r->text.n;
    pl_chat_cased(m, s, true); // refuses unsupported characters
    pl_unicode_title(s.s, s.n, &m->r->text);
    return pl_chat_taken(m->r, mark);
}

pl_chat_value pl_chat_capitalized(pl_chat_machine *m, pl_chat_value s) {
    if (s.n == 0) return s;
    size_t next;
    pl_chat_char(s, 0, &next);
    return pl_chat_arithmetic(m, "+", title_case(m, take_part(s, 0, next)),
                              pl_chat_cased(m, take_part(s, next, s.n), false));
}

pl_chat_list *pl_chat_lines(pl_chat_machine *m, pl_chat_value s) {
    pl_chat_value list = pl_chat_list_new(m->r, false);
    size_t        from = 0;
    pl_chat_read(m->r, s.n);
    for (size_t at = 0, next; at < s.n; at = next) {
        uint32_t c = pl_chat_char(s, at, &next);
        bool     ends = (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (!ends) continue;
        pl_chat_push(m->r, list, take_part(s, from, at));
        if (c == '\r' && next < s.n && s.s[next] == '\n') next++;
        from = next;
    }
    if (from < s.n) pl_chat_push(m->r, list, take_part(s, from, s.n));
    return list.list;
}

pl_chat_value pl_chat_printf(pl_chat_machine *m, pl_chat_value format, const pl_chat_value *v, int64_t n) {
    size_t  mark = m->r->text.n;
    int64_t used = 0;
    pl_chat_read(m->r, format.n);
    for (size_t i = 0; i < format.n; i++) {
        char c = format.s[i], kind = i + 1 < format.n ? format.s[i + 1] : 0;
        if (c != '%') {
            pl_chat_add(m->r, &c, 1);
            continue;
        }
        i++;
        if (kind == '%') {
            pl_chat_add(m->r, "%", 1);
            continue;
        }
        if (!kind || !strchr("sdr", kind)) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "%% formats other than %%s %%d %%r");
        if (used >= n) pl_chat_raise(m->r, PL_E_INPUT, "not enough arguments for a format");
        if (kind == 'd')
            pl_chat_print(m->r, pl_chat_int(pl_chat_need_int(m, v[used++], "%d")));
        else
            (kind == 's' ? pl_chat_print : pl_chat_repr)(m->r, v[used++]);
    }
    if (used < n) pl_chat_raise(m->r, PL_E_INPUT, "not all arguments of a format are used");
    return pl_chat_taken(m->r, mark);
}

// ---- methods

PL_CHAT_BUILTIN(strip_both) {
    PL_CHAT_UNUSED;
    return pl_chat_strip(m, self, is_given(arg[0]) ? arg[0] : pl_chat_none(), true, true);
}

PL_CHAT_BUILTIN(strip_left) {
    PL_CHAT_UNUSED;
    return pl_chat_strip(m, self, is_given(arg[0]) ? arg[0] : pl_chat_none(), true, false);
}

PL_CHAT_BUILTIN(strip_right) {
    PL_CHAT_UNUSED;
    return pl_chat_strip(m, self, is_given(arg[0]) ? arg[0] : pl_chat_none(), false, true);
}

PL_CHAT_BUILTIN(replace) {
    PL_CHAT_UNUSED;
    return pl_chat_replace(m, self, pl_chat_need_str(m, arg[0], "replace"), pl_chat_need_str(m, arg[1], "replace"),
                           is_given(arg[2]) ? pl_chat_need_int(m, arg[2], "replace") : -1);
}

// Words between white space, at most `most` cuts (-1: any number).
static void split_words(pl_chat_machine *m, pl_chat_value s, int64_t most, pl_chat_value list) {
    size_t from = SIZE_MAX;
    pl_chat_read(m->r, s.n);
    for (size_t at = 0, next; at < s.n; at = next) {
        bool space = pl_chat_is_space(pl_chat_char(s, at, &next));
        if (space && from != SIZE_MAX) {
            pl_chat_push(m->r, list, take_part(s, from, at));
            from = SIZE_MAX;
        } else if (!space && from == SIZE_MAX) {
            from = at;
            if (most >= 0 && list.list->n == most) { // the rest, with trailing blanks
                pl_chat_push(m->r, list, take_part(s, at, s.n));
                return;
            }
        }
    }
    if (from != SIZE_MAX) pl_chat_push(m->r, list, take_part(s, from, s.n));
}

PL_CHAT_BUILTIN(split) { // sep, maxsplit
    PL_CHAT_UNUSED;
    pl_chat_value list = pl_chat_list_new(m->r, false);
    int64_t       most = is_given(arg[1]) ? pl_chat_need_int(m, arg[1], "split") : -1;
    if (!is_given(arg[0])) {
        split_words(m, self, most, list);
        return list;
    }
    pl_chat_value by = pl_chat_need_str(m, arg[0], "split");
    size_t        at = 0, hit;
    if (by.n == 0) pl_chat_raise(m->r, PL_E_INPUT, "split by an empty string");
    while ((most < 0 || list.list->n < most) && (hit = find_text(m, self, by, at)) != SIZE_MAX) {
        pl_chat_push(m->r, list, take_part(self, at, hit));
        at = hit + by.n;
    }
    pl_chat_push(m->r, list, take_part(self, at, self.n));
    return list;
}

static size_t find_last(pl_chat_machine *m, pl_chat_value s, pl_chat_value what, size_t before) {
    for (size_t at = before + 1; at-- > what.n;) {
        pl_chat_step(m->r, 1 + (int64_t)what.n / 16);
        if (memcmp(s.s + at - what.n, what.s, what.n) == 0) return at - what.n;
    }
    return SIZE_MAX;
}

PL_CHAT_BUILTIN(split_right) {
    PL_CHAT_UNUSED;
    pl_chat_value list = pl_chat_list_new(m->r, false), turned = pl_chat_list_new(m->r, false);
    int64_t       most = is_given(arg[1]) ? pl_chat_need_int(m, arg[1], "rsplit") : -1;
    if (!is_given(arg[0])) {
        if (most >= 0) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "rsplit by white space with a limit is not built");
        split_words(m, self, -1, list);
        return list;
    }
    pl_chat_value by = pl_chat_need_str(m, arg[0], "rsplit");
    size_t        end = self.n, hit;
    if (by.n == 0) pl_chat_raise(m->r, PL_E_INPUT, "rsplit by an empty string");
    while ((most < 0 || list.list->n < most) && (hit = find_last(m, self, by, end)) != SIZE_MAX) {
        pl_chat_push(m->r, list, take_part(self, hit + by.n, end));
        end = hit;
    }
    pl_chat_push(m->r, list, take_part(self, 0, end));
    for (int64_t i = list.list->n; i-- > 0;)
        pl_chat_push(m->r, turned, list.list->v[i]);
    return turned;
}

PL_CHAT_BUILTIN(split_lines) {
    PL_CHAT_UNUSED;
    pl_chat_value list = pl_chat_list_new(m->r, false);
    *list.list = *pl_chat_lines(m, self);
    return list;
}

static bool begins(pl_chat_machine *m, pl_chat_value s, pl_chat_value with) {
    pl_chat_move(m->r, with.n);
    return s.n >= with.n && memcmp(s.s, with.s, with.n) == 0;
}

static bool ends(pl_chat_machine *m, pl_chat_value s, pl_chat_value with) {
    pl_chat_move(m->r, with.n);
    return s.n >= with.n && memcmp(s.s + s.n - with.n, with.s, with.n) == 0;
}

// Tests an affix: one string or a tuple of them.
static pl_chat_value affix(pl_chat_machine *m, pl_chat_value s, pl_chat_value with,
                           bool (*is)(pl_chat_machine *, pl_chat_value, pl_chat_value)) {
    bool any = false;
    if (with.type == PL_CHAT_STR) return pl_chat_bool(is(m, s, pl_chat_need_str(m, with, "startswith")));
    const pl_chat_list *items = pl_chat_items(m, with);
    for (int64_t i = 0; i < items->n; i++)
        any = any || is(m, s, pl_chat_need_str(m, items->v[i], "startswith"));
    return pl_chat_bool(any);
}

PL_CHAT_BUILTIN(starts_with) {
    PL_CHAT_UNUSED;
    return affix(m, self, arg[0], begins);
}

PL_CHAT_BUILTIN(ends_with) {
    PL_CHAT_UNUSED;
    return affix(m, self, arg[0], ends);
}

PL_CHAT_BUILTIN(remove_prefix) {
    PL_CHAT_UNUSED;
    pl_chat_value p = pl_chat_need_str(m, arg[0], "removeprefix");
    return begins(m, self, p) ? take_part(self, p.n, self.n) : self;
}

PL_CHAT_BUILTIN(remove_suffix) {
    PL_CHAT_UNUSED;
    pl_chat_value p = pl_chat_need_str(m, arg[0], "removesuffix");
    return p.n && ends(m, self, p) ? take_part(self, 0, self.n - p.n) : self;
}

PL_CHAT_BUILTIN(upper) {
    PL_CHAT_UNUSED;
    return pl_chat_cased(m, self, true);
}

PL_CHAT_BUILTIN(lower) {
    PL_CHAT_UNUSED;
    return pl_chat_cased(m, self, false);
}

PL_CHAT_BUILTIN(capitalize) {
    PL_CHAT_UNUSED;
    return pl_chat_capitalized(m, self);
}

PL_CHAT_BUILTIN(title) { // cased letters after uncased characters
    PL_CHAT_UNUSED;
    size_t mark = m->r->text.n;
    bool   inside = false;
    pl_chat_read(m->r, self.n);
    for (size_t at = 0, next; at < self.n; at = next) {
        pl_unicode_case has = pl_unicode_case_of(pl_chat_char(self, at, &next));
        pl_chat_value   c = take_part(self, at, next);
        if (has == PL_CASE_UNKNOWN) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "title: the letter %.*s", (int)c.n, c.s);
        if (has == PL_CASED) c = inside ? pl_chat_cased(m, c, false) : title_case(m, c);
        pl_chat_add(m->r, c.s, c.n);
        inside = has == PL_CASED;
    }
    return pl_chat_taken(m->r, mark);
}

PL_CHAT_BUILTIN(join) {
    PL_CHAT_UNUSED;
    const pl_chat_list *items = pl_chat_items(m, arg[0]);
    size_t              mark = m->r->text.n;
    for (int64_t i = 0; i < items->n; i++) {
        if (i) pl_chat_print(m->r, self);
        pl_chat_print(m->r, pl_chat_need_str(m, items->v[i], "join"));
    }
    return pl_chat_taken(m->r, mark);
}

static int64_t char_index(pl_chat_machine *m, pl_chat_value s, size_t at) {
    return at == SIZE_MAX ? -1 : pl_chat_length(m->r, take_part(s, 0, at));
}

PL_CHAT_BUILTIN(find_first) {
    PL_CHAT_UNUSED;
    return pl_chat_int(char_index(m, self, find_text(m, self, pl_chat_need_str(m, arg[0], "find"), 0)));
}

PL_CHAT_BUILTIN(find_from_right) {
    PL_CHAT_UNUSED;
    return pl_chat_int(char_index(m, self, find_last(m, self, pl_chat_need_str(m, arg[0], "rfind"), self.n)));
}

PL_CHAT_BUILTIN(index_of) {
    int64_t i = find_first(m, self, arg, all).i;
    if (i < 0) pl_chat_raise(m->r, PL_E_INPUT, "index: substring not found");
    return pl_chat_int(i);
}

PL_CHAT_BUILTIN(count) {
    PL_CHAT_UNUSED;
    pl_chat_value what = pl_chat_need_str(m, arg[0], "count");
    int64_t       n = 0;
    if (what.n == 0) return pl_chat_int(pl_chat_length(m->r, self) + 1);
    for (size_t at = 0; (at = find_text(m, self, what, at)) != SIZE_MAX; at += what.n)
        n++;
    return pl_chat_int(n);
}

// Returns true if there are characters and all of them are of the class.
static pl_chat_value all_of(pl_chat_machine *m, pl_chat_value s, bool (*is)(uint32_t)) {
    bool every = s.n > 0;
    pl_chat_read(m->r, s.n);
    for (size_t at = 0; at < s.n && every;)
        every = is(pl_chat_char(s, at, &at));
    return pl_chat_bool(every);
}

static bool is_letter(uint32_t c) {
    return pl_unicode_class(c) == PL_CHAR_LETTER;
}

PL_CHAT_BUILTIN(is_alpha) {
    PL_CHAT_UNUSED;
    return all_of(m, self, is_letter);
}

PL_CHAT_BUILTIN(is_blank) {
    PL_CHAT_UNUSED;
    return all_of(m, self, pl_chat_is_space);
}

PL_CHAT_BUILTIN(is_digits) {
    PL_CHAT_UNUSED;
    pl_chat_read(m->r, self.n);
    for (size_t i = 0; i < self.n; i++)
        if ((uint8_t)self.s[i] >= 0x80) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "isdigit beyond ASCII is not built");
    char *s = pl_region_copy(m->r, self.s, self.n);
    return pl_chat_bool(self.n > 0 && strspn(s, "0123456789") == self.n);
}

// {} {0} {name}, {{ and }}; no conversions, no format specifications, no members.
PL_CHAT_BUILTIN(format) {
    (void)arg;
    size_t  mark = m->r->text.n;
    int64_t next = 0;
    bool    numbered = false;
    pl_chat_read(m->r, self.n);
    for (size_t i = 0; i < self.n; i++) {
        char c = self.s[i], follows = i + 1 < self.n ? self.s[i + 1] : 0;
        if (c != '{' && c != '}') {
            pl_chat_add(m->r, &c, 1);
            continue;
        }
        if (follows == c) {
            pl_chat_add(m->r, &c, 1);
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < self.n && self.s[end] != '}')
            end++;
        if (c == '}' || end == self.n) pl_chat_raise(m->r, PL_E_INPUT, "format: a single '%c'", c);
        char                *name = pl_region_copy(m->r, self.s + i + 1, end - i - 1);
        const pl_chat_value *v = NULL;
        if (strpbrk(name, ":!.[{")) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "format: the field {%s} is not built", name);
        if (strspn(name, "0123456789") == strlen(name)) {
            int64_t k = name[0] ? strtoll(name, NULL, 10) : next++;
            numbered = numbered || name[0];
            if (numbered && next) pl_chat_raise(m->r, PL_E_INPUT, "format: {} and {%s} together", name);
            if (k < all->n) v = &all->v[k];
        }
        pl_chat_step(m->r, all->nk / 8);
        for (int64_t k = 0; k < all->nk && !v; k++)
            if (strcmp(all->keyword[k], name) == 0) v = &all->kv[k];
        if (!v) pl_chat_raise(m->r, PL_E_INPUT, "format: no value for {%s}", name);
        pl_chat_print(m->r, *v);
        i = end;
    }
    return pl_chat_taken(m->r, mark);
}

const pl_chat_builtin pl_chat_str_methods[] = {
    {"capitalize", "", capitalize},
    {"count", "sub!", count},
    {"endswith", "suffix!", ends_with},
    {"find", "sub!", find_first},
    {"format", NULL, format},
    {"index", "sub!", index_of},
    {"isalpha", "", is_alpha},
    {"isdigit", "", is_digits},
    {"isspace", "", is_blank},
    {"join", "iterable!", join},
    {"lower", "", lower},
    {"lstrip", "chars", strip_left},
    {"removeprefix", "prefix!", remove_prefix},
    {"removesuffix", "suffix!", remove_suffix},
    {"replace", "old! new! count", replace},
    {"rfind", "sub!", find_from_right},
    {"rsplit", "sep maxsplit", split_right},
    {"rstrip", "chars", strip_right},
    {"split", "sep maxsplit", split},
    {"splitlines", "", split_lines},
    {"startswith", "prefix!", starts_with},
    {"strip", "chars", strip_both},
    {"title", "", title},
    {"upper", "", upper},
    {0},
};
