#include "data/tokenizer/unicode.h"
#include "kernels/base/arena.h"
#include "kernels/base/utf8.h"
#include <utf8proc.h>

// Most bytes passed to utf8proc at once; its sizes are 32 bits on some machines.
#define MAX_STRETCH ((size_t)1 << 26)

bool pl_unicode_is_space(uint32_t cp) {
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || cp == ' ';
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

pl_char_class pl_unicode_class(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return PL_CHAR_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return PL_CHAR_NUMBER;
    default: return pl_unicode_is_space(cp) ? PL_CHAR_SPACE : PL_CHAR_OTHER;
    }
}

bool pl_unicode_is_punct(uint32_t cp) {
    if (cp < 0x80)
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
               (cp >= '{' && cp <= '~');
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool pl_unicode_is_printable(uint32_t cp) {
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return cp == ' ' || (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_SO);
}

bool pl_unicode_is_word(uint32_t cp) {
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC || cp == 0x200c ||
           cp == 0x200d || (cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) ||
           (cp >= 0x1f150 && cp <= 0x1f169) || (cp >= 0x1f170 && cp <= 0x1f189);
}

// ---- normalisation

bool pl_unicode_is_normal(pl_unicode_form form, const char *s, size_t n) {
    uint8_t below = form == PL_NFC ? 0xcc : form == PL_NFD ? 0xc3 : 0xc2;
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)s[i] >= below) return false;
    return true;
}

// Limit of consecutive marks, which are sorted by insertion.
#define MAX_MARKS 4096

// utf8proc's time grows with the square of such a run; Unicode's own limit for streams is 30.
static bool has_endless_marks(const char *s, size_t n) {
    int run = 0;
    for (size_t at = 0; at < n && run <= MAX_MARKS;) {
        uint32_t cp;
        at += (size_t)pl_utf8_next(s + at, n - at, &cp);
        run = utf8proc_get_property((utf8proc_int32_t)cp)->combining_class ? run + 1 : 0;
    }
    return run > MAX_MARKS;
}

static pl_status normalize_stretch(utf8proc_option_t options, const char *s, size_t n, pl_strbuf *to, pl_err *err) {
    const utf8proc_uint8_t *u = (const utf8proc_uint8_t *)s;
    if (n > MAX_STRETCH) return pl_fail(err, PL_E_INPUT, "text of %zu bytes without any ASCII is too long", n);
    if (n > MAX_MARKS && has_endless_marks(s, n))
        return pl_fail(err, PL_E_INPUT, "text of more than %d combining marks behind each other", MAX_MARKS);
    utf8proc_ssize_t  count = utf8proc_decompose(u, (utf8proc_ssize_t)n, NULL, 0, options);
    utf8proc_int32_t *cp = count < 0 ? NULL : pl_malloc(((size_t)count + 1) * sizeof *cp);
    if (count >= 0 && !cp) return pl_fail(err, PL_E_MEMORY, "normalising: out of memory");
    if (count >= 0) count = utf8proc_decompose(u, (utf8proc_ssize_t)n, cp, count, options);
    // In place: a code point takes four bytes, its UTF-8 at most as many.
    if (count >= 0) count = utf8proc_reencode(cp, count, options);
    if (count >= 0) pl_strbuf_add(to, (const char *)cp, (size_t)count);
    pl_free(cp);
    if (count < 0) return pl_fail(err, PL_E_INPUT, "normalising: %s", utf8proc_errmsg(count));
    return PL_OK;
}

// ASCII never changes and never joins the character before it, so only ranges of other characters, each with the one
// ASCII character before it (which an accent may join), go through utf8proc.
pl_status pl_unicode_normalize(pl_unicode_form form, const char *s, size_t n, pl_strbuf *to, pl_err *err) {
    utf8proc_option_t options =
        UTF8PROC_STABLE | (form == PL_NFC || form == PL_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
    if (form == PL_NFKC || form == PL_NFKD) options |= UTF8PROC_COMPAT;
    size_t done = 0;
    for (size_t at = 0; at < n;) {
        if ((uint8_t)s[at] < 0x80) {
            at++;
            continue;
        }
        size_t end = at;
        while (end < n && (uint8_t)s[end] >= 0x80)
            end++;
        if (!pl_unicode_is_normal(form, s + at, end - at)) {
            size_t start = at > done ? at - 1 : at;
            pl_strbuf_add(to, s + done, start - done);
            PL_TRY(normalize_stretch(options, s + start, end - start, to, err));
            done = end;
        }
        at = end;
    }
    pl_strbuf_add(to, s + done, n - done);
    return PL_OK;
}

void pl_unicode_lower(const char *s, size_t n, pl_strbuf *to) {
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        char     c[4];
        at += (size_t)pl_utf8_next(s + at, n - at, &cp);
        if (cp == 0x130) // the one character whose lower case is two: i and a dot above
            pl_strbuf_add(to, "i\xCC\x87", 3);
        else
            pl_strbuf_add(to, c, (size_t)pl_utf8_put(c, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp)));
    }
}

static void mapped(const char *s, size_t n, utf8proc_int32_t (*of)(utf8proc_int32_t), pl_strbuf *to) {
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        char     c[4];
        at += (size_t)pl_utf8_next(s + at, n - at, &cp);
        pl_strbuf_add(to, c, (size_t)pl_utf8_put(c, (uint32_t)of((utf8proc_int32_t)cp)));
    }
}

void pl_unicode_upper(const char *s, size_t n, pl_strbuf *to) {
    mapped(s, n, utf8proc_toupper, to);
}

void pl_unicode_title(const char *s, size_t n, pl_strbuf *to) {
    mapped(s, n, utf8proc_totitle, to);
}

pl_unicode_case pl_unicode_case_of(uint32_t cp) {
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT: return PL_CASED;
    case UTF8PROC_CATEGORY_LM: return PL_CASE_UNKNOWN;
    default:
        if (cp == 0xaa || cp == 0xba) return PL_CASE_UNKNOWN;
        return utf8proc_toupper(c) != c || utf8proc_tolower(c) != c ? PL_CASED : PL_UNCASED;
    }
}

bool pl_unicode_is_special_case(const char *s, size_t n) {
    static const uint32_t ranges[][2] = {{0xdf, 0xdf},   {0x130, 0x130},   {0x149, 0x149},   {0x1f0, 0x1f0},
                                         {0x345, 0x345}, {0x390, 0x390},   {0x3a3, 0x3a3},   {0x3b0, 0x3b0},
                                         {0x587, 0x587}, {0x1e96, 0x1e9e}, {0x1f50, 0x1fff}, {0xfb00, 0xfb17}};
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        at += (size_t)pl_utf8_next(s + at, n - at, &cp);
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
            if (cp >= ranges[i][0] && cp <= ranges[i][1]) return true;
    }
    return false;
}
