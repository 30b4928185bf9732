#include "data/chat/syntax.h"
#include "data/tokenizer/unicode.h"
#include "kernels/base/utf8.h"
#include <errno.h>
#include <stdlib.h>

typedef struct lexer {
    pl_region      *r;
    const char     *s;
    size_t          n, at;
    pl_chat_tokens *out;
} lexer;

static void emit_token(lexer *l, pl_chat_token_kind kind, pl_chat_value v) {
    pl_chat_tokens *t = l->out;
    t->v = pl_region_room(l->r, t->v, t->n, &t->cap, sizeof *t->v);
    t->v[t->n++] = (pl_chat_token){kind, l->r->line, v};
}

static bool starts_with(const lexer *l, const char *with) {
    size_t n = strlen(with);
    return l->n - l->at >= n && memcmp(l->s + l->at, with, n) == 0;
}

static void advance_by(lexer *l, size_t n) {
    for (size_t i = 0; i < n; i++)
        l->r->line += l->s[l->at + i] == '\n';
    l->at += n;
}

// Python's \s: White_Space and the four separators U+001C to U+001F.
static bool space_at(const lexer *l, size_t at, size_t *next) {
    uint32_t c = pl_chat_char(pl_chat_strn(l->s, l->n), at, next);
    return pl_unicode_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

static void skip_spaces(lexer *l) {
    size_t next;
    while (l->at < l->n && space_at(l, l->at, &next))
        advance_by(l, next - l->at);
}

// Returns the end of s[from..to) without trailing white space.
static size_t trim_end(const lexer *l, size_t from, size_t to) {
    size_t end = from, next;
    for (size_t at = from; at < to; at = next)
        if (!space_at(l, at, &next)) end = next;
    return end;
}

// After a tag's end: "-" strips white space, else one line feed is dropped (trim_blocks) unless "+" keeps it.
static void after_tag(lexer *l, char sign, bool trims) {
    if (sign == '-')
        skip_spaces(l);
    else if (trims && sign != '+' && l->at < l->n && l->s[l->at] == '\n')
        advance_by(l, 1);
}

// Emits text up to a tag that begins at `to`, with the sign after its opening. lstrip: blanks between the start of the
// line and the tag are dropped.
static void emit_text(lexer *l, size_t from, size_t to, char sign, bool lstrip) {
    size_t end = to;
    if (sign == '-') {
        end = trim_end(l, from, to);
    } else if (lstrip && sign != '+') {
        size_t line = to;
        while (line > from && l->s[line - 1] != '\n')
            line--;
        bool at_start = line > from || from == 0 || l->s[from - 1] == '\n';
        if (at_start && trim_end(l, line, to) == line) end = line;
    }
    if (end > from) emit_token(l, PL_TOKEN_TEXT, pl_chat_strn(l->s + from, end - from));
}

// ---- inside a tag

static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int hex_digits(lexer *l, size_t at, size_t end, int n) {
    int v = 0;
    for (int i = 0; i < n; i++) {
        char c = at + (size_t)i < end ? l->s[at + (size_t)i] : 0;
        int  d = is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0) pl_chat_raise(l->r, PL_E_INPUT, "an escape in a string without its %d hex digits", n);
        v = v << 4 | d;
    }
    return v;
}

static void lex_string(lexer *l) {
    char   quote = l->s[l->at];
    size_t end = l->at + 1, n = 0;
    while (end < l->n && l->s[end] != quote)
        end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->n) pl_chat_raise(l->r, PL_E_INPUT, "a string that does not end");
    char *to = pl_region_alloc(l->r, end - l->at + 1);
    for (size_t i = l->at + 1; i < end; i++) {
        static const char from[] = "\\'\"abfnrtv\n", into[] = "\\'\"\a\b\f\n\r\t\v";
        char              c = l->s[i];
        const char       *plain;
        uint32_t          cp;
        if (c != '\\') {
            to[n++] = c;
            continue;
        }
        c = l->s[++i];
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (digits) {
            cp = (uint32_t)hex_digits(l, i + 1, end, digits);
            i += (size_t)digits;
        } else if (c >= '0' && c <= '7') {
            for (cp = 0, digits = 0; digits < 3 && i < end && l->s[i] >= '0' && l->s[i] <= '7'; digits++)
                cp = cp * 8 + (uint32_t)(l->s[i++] - '0');
            i--;
        } else if (c == 'N') {
            pl_chat_raise(l->r, PL_E_UNSUPPORTED, "\\N{...} in a string is not built");
        } else if (c && (plain = strchr(from, c))) {
            if (c != '\n') to[n++] = into[plain - from];
            continue;
        } else { // an unknown escape is literal
            to[n++] = '\\';
            to[n++] = c;
            continue;
        }
        if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
            pl_chat_raise(l->r, PL_E_INPUT, "an escape in a string that is no character: U+%X", (unsigned)cp);
        n += (size_t)pl_utf8_put(to + n, cp);
    }
    emit_token(l, PL_TOKEN_VALUE, pl_chat_strn(to, n));
    advance_by(l, end + 1 - l->at);
}

static void lex_number(lexer *l) {
    char   text[64];
    size_t n = 0, at = l->at;
    bool   whole = true;
    if (starts_with(l, "0x") || starts_with(l, "0X") || starts_with(l, "0b") || starts_with(l, "0B") ||
        starts_with(l, "0o") || starts_with(l, "0O"))
        pl_chat_raise(l->r, PL_E_UNSUPPORTED, "an integer that is not decimal is not built");
    for (; at < l->n && n + 1 < sizeof text; at++) {
        char c = l->s[at], next = at + 1 < l->n ? l->s[at + 1] : 0;
        bool point = c == '.' && whole && is_digit(next);
        bool exponent = (c == 'e' || c == 'E') && n > 0 &&
                        (is_digit(next) || ((next == '-' || next == '+') && at + 2 < l->n && is_digit(l->s[at + 2])));
        if (c == '_' && is_digit(next)) continue;
        if (!is_digit(c) && !point && !exponent) break;
        text[n++] = c;
        if (exponent && !is_digit(next)) text[n++] = l->s[++at];
        whole = whole && !point && !exponent;
    }
    text[n] = 0;
    errno = 0;
    pl_chat_value v = whole ? pl_chat_int(strtoll(text, NULL, 10)) : pl_chat_float(strtod(text, NULL));
    if (whole && errno == ERANGE) pl_chat_raise(l->r, PL_E_UNSUPPORTED, "the integer %s, beyond 64 bits", text);
    emit_token(l, PL_TOKEN_VALUE, v);
    advance_by(l, at - l->at);
}

// Reads one sign; longer ones first.
static void lex_sign(lexer *l, int *open) {
    static const char *const signs[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (starts_with(l, signs[i])) {
            *open += strchr("([{", signs[i][0]) != NULL;
            *open -= strchr(")]}", signs[i][0]) != NULL;
            emit_token(l, PL_TOKEN_SIGN, pl_chat_str(signs[i]));
            advance_by(l, strlen(signs[i]));
            return;
        }
    size_t next;
    pl_chat_char(pl_chat_strn(l->s, l->n), l->at, &next);
    pl_chat_raise(l->r, PL_E_INPUT, "unexpected '%.*s'", (int)(next - l->at), l->s + l->at);
}

// Reads a tag's inside and its end; `close` is "%}" or "}}".
static void lex_tag(lexer *l, const char *close, bool trims) {
    int open = 0; // brackets: "}}" inside them closes dictionaries
    for (;;) {
        skip_spaces(l);
        if (l->at >= l->n) pl_chat_raise(l->r, PL_E_INPUT, "a tag that does not end: no %s", close);
        char c = l->s[l->at], sign = (c == '-' || (c == '+' && trims)) ? c : 0;
        if (open == 0 && l->n - l->at >= (sign ? 3u : 2u) && memcmp(l->s + l->at + (sign != 0), close, 2) == 0) {
            emit_token(l, trims ? PL_TOKEN_BLOCK_END : PL_TOKEN_PRINT_END, pl_chat_str(close));
            advance_by(l, sign ? 3 : 2);
            after_tag(l, sign, trims);
            return;
        }
        if (is_name_start(c)) {
            size_t end = l->at;
            while (end < l->n && (is_name_start(l->s[end]) || is_digit(l->s[end])))
                end++;
            emit_token(l, PL_TOKEN_NAME, pl_chat_str(pl_region_copy(l->r, l->s + l->at, end - l->at)));
            advance_by(l, end - l->at);
        } else if (is_digit(c)) {
            lex_number(l);
        } else if (c == '"' || c == '\'') {
            lex_string(l);
        } else {
            lex_sign(l, &open);
        }
    }
}

// ---- outside

// Matches "{% raw %}" at the current position: returns the start of its inside, or 0. sign: after the opening; strip:
// before the closing.
static size_t raw_begins(const lexer *l, size_t at, const char *word, char *sign, char *strip) {
    size_t next, n = strlen(word);
    if (l->n - at < 2 || memcmp(l->s + at, "{%", 2) != 0) return 0;
    at += 2;
    *sign = at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at++] : 0;
    while (at < l->n && space_at(l, at, &next))
        at = next;
    if (l->n - at < n || memcmp(l->s + at, word, n) != 0) return 0;
    at += n;
    while (at < l->n && space_at(l, at, &next))
        at = next;
    *strip = at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at++] : 0;
    return l->n - at >= 2 && memcmp(l->s + at, "%}", 2) == 0 ? at + 2 : 0;
}

static void lex_raw(lexer *l, size_t inside, char strip) {
    advance_by(l, inside - l->at);
    after_tag(l, strip == '-' ? '-' : 0, false);
    size_t from = l->at, end = 0;
    char   sign = 0;
    for (; l->at < l->n && !(end = raw_begins(l, l->at, "endraw", &sign, &strip)); advance_by(l, 1))
        ;
    if (!end) pl_chat_raise(l->r, PL_E_INPUT, "raw without endraw");
    emit_text(l, from, l->at, sign, true);
    advance_by(l, end - l->at);
    after_tag(l, strip, true);
}

void pl_chat_lex(pl_region *r, const char *text, size_t n, pl_chat_tokens *out) {
    // Line ends are line feeds, and one at the very end does not count.
    char  *s = pl_region_alloc(r, n + 1);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        s[m++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (m > 0 && s[m - 1] == '\n') m--;
    lexer  l = {r, s, m, 0, out};
    size_t from = 0;
    r->line = 1;
    while (l.at < m) {
        bool block = starts_with(&l, "{%"), print = starts_with(&l, "{{"), comment = starts_with(&l, "{#");
        if (!block && !print && !comment) {
            advance_by(&l, 1);
            continue;
        }
        char   c = l.at + 2 < m ? s[l.at + 2] : 0, sign = c == '-' || c == '+' ? c : 0, strip = 0;
        size_t inside = block ? raw_begins(&l, l.at, "raw", &sign, &strip) : 0;
        emit_text(&l, from, l.at, sign, !print);
        if (inside) {
            lex_raw(&l, inside, strip);
        } else if (comment) {
            size_t begin = l.at + (sign ? 3 : 2), end = begin;
            while (end + 1 < m && !(s[end] == '#' && s[end + 1] == '}'))
                end++;
            if (end + 1 >= m) pl_chat_raise(r, PL_E_INPUT, "a comment that does not end: no #}");
            strip = end > begin ? s[end - 1] : 0;
            advance_by(&l, end + 2 - l.at);
            after_tag(&l, strip == '-' || strip == '+' ? strip : 0, true);
        } else {
            emit_token(&l, block ? PL_TOKEN_BLOCK : PL_TOKEN_PRINT, pl_chat_str(block ? "{%" : "{{"));
            advance_by(&l, sign ? 3 : 2);
            lex_tag(&l, block ? "%}" : "}}", block);
        }
        from = l.at;
    }
    emit_text(&l, from, m, 0, false);
    emit_token(&l, PL_TOKEN_END, pl_chat_str("the template's end"));
}
