#include "infer/grammar/readers.h"

enum { MOST = 1 << 20 }; // of a repeat's bounds

static char look(const char *text, size_t at, size_t end) {
    return at < end ? text[at] : 0;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

const char *pl_scan_hex(const char *text, size_t *at, size_t end, int digits, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < digits; i++, ++*at) {
        int v = hex_value(look(text, *at, end));
        if (v < 0) return "expected a hexadecimal digit";
        *out = *out * 16 + (uint32_t)v;
    }
    return *out > 0x10FFFF || (*out >= 0xD800 && *out <= 0xDFFF) ? "is no character" : NULL;
}

static const char *scan_number(const char *text, size_t *at, size_t end, int32_t *out) {
    char c = look(text, *at, end);
    if (!(c >= '0' && c <= '9')) return "expected a number";
    for (*out = 0; c >= '0' && c <= '9' && *out <= MOST; c = look(text, ++*at, end))
        *out = *out * 10 + (c - '0');
    return *out > MOST ? "repeats more than a million times" : NULL;
}

static const char *scan_bounds(const char *text, size_t *at, size_t end, int32_t *min, int32_t *max) {
    const char *why = scan_number(text, at, end, min);
    if (why) return why;
    *max = *min;
    if (look(text, *at, end) == ',') {
        *max = PL_GRAMMAR_MANY;
        if (look(text, ++*at, end) != '}') why = scan_number(text, at, end, max);
    }
    if (why) return why;
    if (look(text, *at, end) != '}') return "expected }";
    ++*at;
    return *max < *min ? "a repeat that runs backwards" : NULL;
}

const char *pl_scan_times(const char *text, size_t *at, size_t end, int32_t *min, int32_t *max) {
    char c = text[(*at)++];
    *min = c == '+';
    *max = c == '?' ? 1 : PL_GRAMMAR_MANY;
    return c == '{' ? scan_bounds(text, at, end, min, max) : NULL;
}
