#include "data/tokenizer/pretok.h"
#include "data/tokenizer/unicode.h"
#include "kernels/base/utf8.h"
#include <string.h>

// Classes of ASCII.
enum { O = PL_CHAR_OTHER, L = PL_CHAR_LETTER, N = PL_CHAR_NUMBER, S = PL_CHAR_SPACE };
static const unsigned char ascii[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, //
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O, //
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, //
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O};

// Returns class and length of the character at s[at], at < n.
static inline int class_at(const char *s, size_t n, size_t at, size_t *len) {
    unsigned char c = (unsigned char)s[at];
    if (c < 0x80) {
        *len = 1;
        return ascii[c];
    }
    uint32_t cp;
    *len = (size_t)pl_utf8_next(s + at, n - at, &cp);
    return (int)pl_unicode_class(cp);
}

// Returns the end of the run of this class that continues at `at`.
static inline size_t run(const char *s, size_t n, size_t at, int class) {
    size_t len;
    while (at < n && class_at(s, n, at, &len) == class)
        at += len;
    return at;
}

// Matches \s*[\r\n]+ (with lines), \s+(?!\S), \s+ for white space at s[at]. Called if no other rule takes the space.
static size_t spaces(const char *s, size_t n, size_t at, bool lines) {
    size_t end = at, last = at, line = 0, len;
    while (end < n && class_at(s, n, end, &len) == S) {
        last = end;
        end += len;
        if (s[last] == '\n' || s[last] == '\r') line = end;
    }
    if (lines && line) return line;
    return end < n && last > at ? last : end; // the last one belongs to the next word
}

// Matches 's 't 're 've 'm 'll 'd; s[at] is the apostrophe. Returns 0 for none. fold: in either case, and U+017F is an
// s too.
static size_t contraction(const char *s, size_t n, size_t at, bool fold) {
    if (at + 1 >= n) return 0;
    int lower = fold ? 0x20 : 0;
    int a = (unsigned char)s[at + 1] | lower, b = at + 2 < n ? (unsigned char)s[at + 2] | lower : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    if (fold && at + 2 < n && memcmp(s + at + 1, "\xC5\xBF", 2) == 0) return at + 3;
    return 0;
}

static size_t gpt2(const char *s, size_t n, size_t at) {
    size_t len, end;
    if (s[at] == '\'' && (end = contraction(s, n, at, false))) return end;
    int class = class_at(s, n, at, &len);
    if (s[at] == ' ' && at + 1 < n) {
        size_t more;
        int    next = class_at(s, n, at + 1, &more);
        if (next != S) return run(s, n, at + 1 + more, next);
    }
    if (class == S) return spaces(s, n, at, false);
    return run(s, n, at + len, class);
}

// digits: most numbers in one word.
static inline size_t llama(const char *s, size_t n, size_t at, int digits) {
    size_t len, more = 0, end;
    if (s[at] == '\'' && (end = contraction(s, n, at, true))) return end;
    int class = class_at(s, n, at, &len);
    if (class == L) return run(s, n, at + len, L);
    if (class == N) {
        for (at += len; --digits > 0 && at < n && class_at(s, n, at, &len) == N;)
            at += len;
        return at;
    }
    int next = at + len < n ? class_at(s, n, at + len, &more) : -1;
    if (next == L && s[at] != '\r' && s[at] != '\n') return run(s, n, at + len + more, L);
    if (class == S && !(s[at] == ' ' && next == O)) return spaces(s, n, at, true);
    at = run(s, n, at + len, O);
    while (at < n && (s[at] == '\r' || s[at] == '\n'))
        at++;
    return at;
}

static size_t llama3(const char *s, size_t n, size_t at) {
    return llama(s, n, at, 3);
}

static size_t qwen2(const char *s, size_t n, size_t at) {
    return llama(s, n, at, 1);
}

const pl_scan pl_scans[3] = {
    {"gpt-2", PL_SPLIT_GPT2, gpt2}, {"llama-3", PL_SPLIT_LLAMA3, llama3}, {"qwen2", PL_SPLIT_QWEN2, qwen2}};

const pl_scan *pl_scan_of_pattern(const char *pattern) {
    for (size_t i = 0; i < sizeof pl_scans / sizeof *pl_scans; i++)
        if (strcmp(pattern, pl_scans[i].pattern) == 0) return &pl_scans[i];
    return NULL;
}

const pl_scan *pl_scan_of_name(const char *name) {
    for (size_t i = 0; i < sizeof pl_scans / sizeof *pl_scans; i++)
        if (strcmp(name, pl_scans[i].name) == 0) return &pl_scans[i];
    return NULL;
}
