// Cleaning text in place: line ends, Project Gutenberg's wrapping, hard-wrapped paragraphs.
#include "data/text/text.h"
#include <string.h>
#include <strings.h>

size_t pl_text_normalize_newlines(char *text, size_t n) {
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\r') {
            text[to++] = text[i];
        } else if (i + 1 == n || text[i + 1] != '\n') {
            text[to++] = '\n';
        }
    }
    return to;
}

// ---- Project Gutenberg

typedef struct line {
    const char *s;
    size_t      n;    // without the newline
    size_t      next; // offset of the next line
} line;

static line line_at(const char *text, size_t n, size_t at) {
    const char *end = memchr(text + at, '\n', n - at);
    size_t      len = end ? (size_t)(end - (text + at)) : n - at;
    return (line){text + at, len, at + len + (end != NULL)};
}

static bool is_blank(line l) {
    for (size_t i = 0; i < l.n; i++)
        if (l.s[i] != ' ' && l.s[i] != '\t') return false;
    return true;
}

// Whether l begins with `with`, case aside, after blanks; on success l goes on behind it.
static bool eat(line *l, const char *with) {
    size_t m = strlen(with), i = 0;
    while (i < l->n && (l->s[i] == ' ' || l->s[i] == '\t'))
        i++;
    if (l->n - i < m || strncasecmp(l->s + i, with, m) != 0) return false;
    l->s += i + m;
    l->n -= i + m;
    return true;
}

static bool has(line l, const char *what) {
    size_t m = strlen(what);
    for (size_t i = 0; i + m <= l.n; i++)
        if (strncasecmp(l.s + i, what, m) == 0) return true;
    return false;
}

// "*** START OF THIS PROJECT GUTENBERG EBOOK TITLE ***", with the spellings of thirty years.
static bool is_marker(line l, const char *which) {
    if (!eat(&l, "***") || !eat(&l, which)) return false;
    return eat(&l, "OF THIS PROJECT GUTENBERG") || eat(&l, "OF THE PROJECT GUTENBERG") ||
           eat(&l, "OF PROJECT GUTENBERG");
}

// The last line of the head of etexts before 2004: "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*".
static bool is_small_print(line l) {
    return (eat(&l, "*END*") || eat(&l, "*END")) && eat(&l, "THE SMALL PRINT");
}

static bool is_end(line l) {
    if (is_marker(l, "END")) return true;
    if (!eat(&l, "End of")) return false;
    if (!eat(&l, "the ")) eat(&l, "this ");
    return eat(&l, "Project Gutenberg");
}

// A marker with a long title may go on over a line or two.
static size_t behind_marker(const char *text, size_t n, line l) {
    size_t at = l.next;
    for (int more = 0; more < 3; more++) {
        size_t m = l.n;
        while (m > 0 && l.s[m - 1] == ' ')
            m--;
        if (m >= 3 && memcmp(l.s + m - 3, "***", 3) == 0) return more ? l.next : at;
        if (l.next >= n) break;
        l = line_at(text, n, l.next);
        if (is_blank(l)) break;
    }
    return at;
}

static size_t skip_blank_lines(const char *text, size_t n, size_t at) {
    while (at < n) {
        line l = line_at(text, n, at);
        if (!is_blank(l)) break;
        at = l.next;
    }
    return at;
}

// Who typed and proofread the book stands in the first paragraphs.
enum { MAX_CREDIT_LINES = 12 };

static size_t skip_credits(const char *text, size_t n, size_t at) {
    static const char *const words[] = {"Produced by",
                                        "E-text prepared by",
                                        "Etext prepared by",
                                        "This etext was",
                                        "This eBook was",
                                        "Transcribed from",
                                        "Transcribed by",
                                        "HTML version by",
                                        "[Transcriber",
                                        "Transcriber's note",
                                        "Transcriber\xE2\x80\x99s note"};
    for (;;) {
        at = skip_blank_lines(text, n, at);
        if (at >= n) return at;
        line l = line_at(text, n, at);
        bool credit = false;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            line rest = l;
            credit = credit || eat(&rest, words[i]);
        }
        if (!credit) return at;
        // A paragraph of a few lines; in texts without blank lines the credit is its first line alone.
        size_t behind = l.next;
        int    lines = 0;
        while (at < n && !is_blank(l = line_at(text, n, at)) && lines++ < MAX_CREDIT_LINES)
            at = l.next;
        if (lines > MAX_CREDIT_LINES) return behind;
    }
}

// Corrections and notes of the transcriber, at the end: a paragraph that says so, within the last 16 KiB.
static size_t cut_notes(const char *text, size_t from, size_t end) {
    size_t at = from;
    if (end - from > 16384) at = line_at(text, end, end - 16384).next;
    bool blank = true;
    while (at < end) {
        line l = line_at(text, end, at);
        if (blank && (has(l, "transcriber's note") || has(l, "transcriber\xE2\x80\x99s note") ||
                      has(l, "etext transcriber") || has(l, "transcribers' note")))
            return at;
        blank = is_blank(l);
        at = l.next;
    }
    return end;
}

size_t pl_text_strip_gutenberg(char *text, size_t n) {
    size_t from = 0, end = n, at = 0;
    bool   marked = false;
    while (at < n) {
        line l = line_at(text, n, at);
        if (!marked && is_marker(l, "START")) {
            from = behind_marker(text, n, l);
            marked = true;
        } else if (is_small_print(l) && at < n / 2) {
            from = l.next;
            marked = true;
        } else if (is_end(l) && at >= from && (marked || at > n / 2)) {
            end = at;
            marked = true;
            break;
        }
        at = l.next;
    }
    if (!marked) return n;
    from = skip_credits(text, end, from);
    end = cut_notes(text, from, end);
    while (end > from && (text[end - 1] == '\n' || text[end - 1] == ' '))
        end--;
    if (end > from && end < n) text[end++] = '\n';
    memmove(text, text + from, end - from);
    return end - from;
}

// ---- paragraphs

size_t pl_text_unwrap(char *text, size_t n) {
    size_t to = 0;
    bool   open = false; // a line has been written that the next one may join
    bool   ended = n > 0 && text[n - 1] == '\n';
    for (size_t at = 0; at < n;) {
        line l = line_at(text, n, at);
        at = l.next;
        if (is_blank(l)) {
            if (open) text[to++] = '\n';
            open = false;
            continue;
        }
        bool   indented = l.n >= 2 && (l.s[0] == '\t' || (l.s[0] == ' ' && (l.s[1] == ' ' || l.s[1] == '\t')));
        size_t i = 0, m = l.n;
        while (l.s[i] == ' ' || l.s[i] == '\t')
            i++;
        while (l.s[m - 1] == ' ' || l.s[m - 1] == '\t')
            m--;
        // The newline (or the blank) that parted the two lines pays for this byte, so `to` never passes what is read.
        if (open) text[to++] = indented ? '\n' : ' ';
        memmove(text + to, l.s + i, m - i);
        to += m - i;
        open = true;
    }
    if (open && ended) text[to++] = '\n';
    return to;
}
