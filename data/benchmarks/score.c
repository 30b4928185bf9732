#include "data/benchmarks/score.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct span {
    const char *s; // NULL: there is none
    size_t      n;
} span;

// What stands in the last \boxed{...}, braces balanced.
static span boxed(const char *text) {
    span last = {0};
    for (const char *at = text; (at = strstr(at, "\\boxed{")) != NULL;) {
        const char *s = at += strlen("\\boxed{");
        for (int depth = 1; *at; at++) {
            depth += (*at == '{') - (*at == '}');
            if (depth > 0) continue;
            last = (span){s, (size_t)(at - s)};
            break;
        }
    }
    return last;
}

// The number that begins at s, commas between digits left out, as a value; *end: behind it. false: none begins there.
static bool number_at(const char *s, const char **end, double *value) {
    char   digits[64];
    size_t n = 0;
    bool   point = false, any = false;
    if (*s == '-' || *s == '+') digits[n++] = *s++;
    for (; n < sizeof digits - 1; s++) {
        bool digit = isdigit((unsigned char)*s), ahead = *s && isdigit((unsigned char)s[1]);
        if (*s == ',' && any && !point && ahead) continue;
        if (*s == '.' && !point && ahead)
            point = true;
        else if (!digit)
            break;
        any = any || digit;
        digits[n++] = *s;
    }
    digits[n] = 0;
    *end = s;
    if (any) *value = strtod(digits, NULL);
    return any;
}

static bool last_number(span text, double *value) {
    bool found = false;
    for (const char *s = text.s; s < text.s + text.n;) {
        const char *end = s;
        bool        sign = (*s == '-' || *s == '+') && s > text.s && isalnum((unsigned char)s[-1]); // "3-2"
        if (!sign && number_at(s, &end, value)) {
            found = true;
            s = end;
        } else {
            s++;
        }
    }
    return found;
}

static bool same_number(span a, span b) {
    double x, y;
    return last_number(a, &x) && last_number(b, &y) && fabs(x - y) <= 1e-6 * fmax(1, fabs(y));
}

static bool same_text(span a, span b) {
    const char *x = a.s, *y = b.s, *xe = a.s + a.n, *ye = b.s + b.n;
    for (;;) {
        while (x < xe && isspace((unsigned char)*x))
            x++;
        while (y < ye && isspace((unsigned char)*y))
            y++;
        if (x == xe || y == ye) return x == xe && y == ye;
        if (*x++ != *y++) return false;
    }
}

// Nothing but a number, so that 1/2 and 3/2 differ.
static bool is_number(span text) {
    const char *end = text.s;
    double      value;
    while (text.n && isspace((unsigned char)*text.s))
        text.s++, text.n--;
    while (text.n && isspace((unsigned char)text.s[text.n - 1]))
        text.n--;
    return text.n && number_at(text.s, &end, &value) && end == text.s + text.n;
}

bool pl_score(pl_scoring how, const char *answer, const char *reference) {
    span in_box = boxed(answer), want = {reference, strlen(reference)};
    span said = in_box.s ? in_box : (span){answer, strlen(answer)};
    if (how == PL_SCORE_NUMBER) return same_number(said, want);
    if (how != PL_SCORE_BOXED) return false;
    if (in_box.s && same_text(said, want)) return true;
    return is_number(want) && (!in_box.s || is_number(said)) && same_number(said, want);
}

size_t pl_code_of(const char *answer, bool chat, size_t *at) {
    static const char *const ends[] = {"\nclass", "\ndef", "\n#", "\nif", "\nprint"};
    const char              *from = answer, *to = answer + strlen(answer);
    for (const char *s = answer; chat && (s = strstr(s, "```")) != NULL;) {
        const char *line = strchr(s, '\n'), *close = line ? strstr(line, "\n```") : NULL;
        if (!line) break;
        from = line + 1;
        to = close ? close + 1 : answer + strlen(answer); // an answer may be cut inside the block
        s = close ? close + strlen("\n```") : to;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !chat; i++) {
        const char *end = strstr(answer, ends[i]);
        if (end && end < to) to = end;
    }
    *at = (size_t)(from - answer);
    return (size_t)(to - from);
}
