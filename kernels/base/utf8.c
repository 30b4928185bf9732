#include "kernels/base/utf8.h"
#include "kernels/base/check.h"

int pl_utf8_next(const char *s, size_t n, uint32_t *cp) {
    const uint8_t *u = (const uint8_t *)s;
    if (u[0] < 0x80) {
        if (cp) *cp = u[0];
        return 1;
    }
    // The second byte's range is what excludes overlong forms, surrogates and values above U+10FFFF.
    uint8_t  lo = 0x80, hi = 0xbf;
    int      len;
    uint32_t v;
    if (u[0] >= 0xc2 && u[0] <= 0xdf) {
        len = 2;
        v = u[0] & 0x1fu;
    } else if ((u[0] & 0xf0) == 0xe0) {
        len = 3;
        v = u[0] & 0x0fu;
        if (u[0] == 0xe0) lo = 0xa0;
        if (u[0] == 0xed) hi = 0x9f;
    } else if (u[0] >= 0xf0 && u[0] <= 0xf4) {
        len = 4;
        v = u[0] & 0x07u;
        if (u[0] == 0xf0) lo = 0x90;
        if (u[0] == 0xf4) hi = 0x8f;
    } else {
        return -1;
    }
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n) return 0;
        if (u[i] < lo || u[i] > hi) return -1;
        v = v << 6 | (u[i] & 0x3fu);
        lo = 0x80;
        hi = 0xbf;
    }
    if (cp) *cp = v;
    return len;
}

size_t pl_utf8_valid(const char *s, size_t n) {
    size_t at = 0;
    while (at < n) {
        if ((uint8_t)s[at] < 0x80) {
            at++;
            continue;
        }
        int len = pl_utf8_next(s + at, n - at, NULL);
        if (len <= 0) break;
        at += (size_t)len;
    }
    return at;
}

int pl_utf8_put(char out[4], uint32_t cp) {
    PL_CHECK(cp <= 0x10ffff && (cp < 0xd800 || cp > 0xdfff), "U+%X", cp);
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}
