// UTF-8, strictly (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
#ifndef PL_UTF8_H
#define PL_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define PL_UTF8_REPLACEMENT "\xEF\xBF\xBD" // U+FFFD

// The character that s[0..n) starts with (n > 0): its length 1..4 and *cp (may be NULL); 0 when s is cut inside what
// could still become a character; -1 when it can never be one.
int    pl_utf8_next(const char *s, size_t n, uint32_t *cp);
// Bytes of s that are valid from the start: n when all are.
size_t pl_utf8_valid(const char *s, size_t n);
// 1..4 bytes to out; cp must be a Unicode scalar value.
int    pl_utf8_put(char out[4], uint32_t cp);

#endif
