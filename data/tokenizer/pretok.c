#include "data/tokenizer/pretok.h"
#include "kernels/base/arena.h"
#include "kernels/base/hash.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"

// ---- the byte alphabet: printable Latin-1 is mapped to itself, the other bytes to U+0100 and following

static bool stands_for_itself(unsigned b) {
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

static unsigned char_of_byte(unsigned byte) {
    if (stands_for_itself(byte)) return byte;
    if (byte <= ' ') return 0x100 + byte;
    return byte == 0xad ? 0x143 : 0x100 + byte - 0x7f + 33; // 0x7f..0xa0, then the soft hyphen
}

static int byte_of_char(uint32_t cp) {
    if (cp < 0x100) return stands_for_itself(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x100 - 33 + 0x7f);
    return cp == 0x143 ? 0xad : -1;
}

int pl_byte_to_char(uint8_t byte, char to[2]) {
    char four[4];
    int  n = pl_utf8_put(four, char_of_byte(byte));
    memcpy(to, four, (size_t)n);
    return n;
}

bool pl_chars_to_bytes(const char *s, size_t n, char *to, size_t *n_to) {
    *n_to = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        int      len = pl_utf8_next(s + at, n - at, &cp), byte = len > 0 ? byte_of_char(cp) : -1;
        if (byte < 0) return false;
        to[(*n_to)++] = (char)byte;
        at += (size_t)len;
    }
    return true;
}

// ---- building

static pl_status add_step(pl_pretok *p, pl_step step, pl_err *err) {
    if (p->n == PL_PRETOK_MAX) {
        pl_regex_free(step.regex);
        pl_free(step.pattern);
        return pl_fail(err, PL_E_INPUT, "more than %d steps of pre-tokenization", PL_PRETOK_MAX);
    }
    p->step[p->n++] = step;
    return PL_OK;
}

pl_status pl_pretok_add_scan(pl_pretok *p, const pl_scan *scan, pl_err *err) {
    return add_step(p, (pl_step){.kind = PL_STEP_SCAN, .scan = scan}, err);
}

pl_status pl_pretok_add_byte_level(pl_pretok *p, bool prefix_space, bool split, pl_err *err) {
    if (p->bytes) return pl_fail(err, PL_E_INPUT, "ByteLevel stands there twice");
    if (prefix_space) PL_TRY(add_step(p, (pl_step){.kind = PL_STEP_PREFIX}, err));
    if (split) PL_TRY(pl_pretok_add_scan(p, pl_scan_of_name("gpt-2"), err));
    p->bytes = true;
    return add_step(p, (pl_step){.kind = PL_STEP_MAP}, err);
}

pl_status pl_pretok_add_split(pl_pretok *p, const char *pattern, bool is_regex, pl_behavior behavior, bool invert,
                              pl_err *err) {
    const pl_scan *scan = is_regex ? pl_scan_of_pattern(pattern) : NULL;
    // Known splits leave no text between their words: everything is found or, inverted, nothing.
    if (scan && ((behavior == PL_ISOLATED) || (behavior == PL_REMOVED && invert)))
        return pl_pretok_add_scan(p, scan, err);
    pl_step step = {.kind = is_regex ? PL_STEP_REGEX : PL_STEP_LITERAL, .behavior = behavior, .invert = invert};
    if (!pattern[0]) return pl_fail(err, PL_E_INPUT, "an empty pattern");
    if (is_regex) PL_TRY(pl_regex_compile(&step.regex, pattern, err));
    step.pattern = pl_strdup(pattern);
    if (step.pattern) return add_step(p, step, err);
    pl_regex_free(step.regex);
    return pl_fail(err, PL_E_MEMORY, "pre-tokenizer: out of memory");
}

pl_status pl_pretok_add_class(pl_pretok *p, bool (*in_class)(uint32_t cp), pl_behavior behavior, pl_err *err) {
    return add_step(p, (pl_step){.kind = PL_STEP_CLASS, .behavior = behavior, .in_class = in_class}, err);
}

void pl_pretok_fini(pl_pretok *p) {
    for (int i = 0; i < p->n; i++) {
        pl_regex_free(p->step[i].regex);
        pl_free(p->step[i].pattern);
    }
    *p = (pl_pretok){0};
}

uint64_t pl_pretok_hash(const pl_pretok *p, uint64_t h) {
    for (int i = 0; i < p->n; i++) {
        const pl_step *s = &p->step[i];
        const char    *text = s->scan ? s->scan->pattern : s->pattern ? s->pattern : "";
        // A class is identified by its values for a few characters: a digit, a full stop, a space.
        int32_t        settings[] = {s->kind,
                                     s->behavior,
                                     s->invert,
                                     s->in_class && s->in_class('0'),
                                     s->in_class && s->in_class('.'),
                                     s->in_class && s->in_class(' ')};
        h = pl_hash_more(pl_hash_more(h, settings, sizeof settings), text, strlen(text));
    }
    return h;
}

// ---- running

typedef struct run {
    const pl_pretok *p;
    pl_matcher      *m;
    pl_pretok_word   fn;
    void            *ctx;
    pl_err          *err;
} run;

static pl_status run_step(const run *r, int k, bool mapped, const char *s, size_t n);

// Pieces of a word, found or not, on their way to the next step.
typedef struct pieces {
    const run  *r;
    int         k;
    bool        mapped;
    const char *s;
    pl_behavior behavior;
    bool        invert;
    size_t      start, end; // piece waiting for its neighbour; start == end: none
    bool        found;      // of the previous piece
} pieces;

static pl_status send_piece(pieces *q) {
    size_t start = q->start, end = q->end;
    q->start = q->end;
    return end > start ? run_step(q->r, q->k + 1, q->mapped, q->s + start, end - start) : PL_OK;
}

static pl_status take_piece(pieces *q, size_t start, size_t end, bool found) {
    if (end == start) return PL_OK;
    bool is = found != q->invert, before = q->found, waits = q->end > q->start, join = false;
    q->found = is;
    if (q->behavior == PL_REMOVED && is) return PL_OK;
    if (q->behavior == PL_CONTIGUOUS) join = waits && is == before;
    if (q->behavior == PL_MERGED_WITH_PREVIOUS) join = waits && is && !before;
    if (q->behavior == PL_MERGED_WITH_NEXT) join = waits && before && !is;
    if (!join) {
        PL_TRY(send_piece(q));
        q->start = start;
    }
    q->end = end;
    return PL_OK;
}

static pl_status cut_regex(pieces *q, const pl_step *t, size_t n) {
    pl_regex_walk w = {0};
    size_t        done = 0;
    for (;;) {
        bool   found;
        size_t start, end;
        PL_TRY(pl_regex_next(t->regex, q->r->m, q->s, n, &w, &found, &start, &end, q->r->err));
        if (!found) break;
        PL_TRY(take_piece(q, done, start, false));
        PL_TRY(take_piece(q, start, end, true));
        if (start == end) PL_TRY(send_piece(q)); // an empty match still cuts
        done = end;
    }
    return take_piece(q, done, n, false);
}

static pl_status cut_literal(pieces *q, const pl_step *t, size_t n) {
    size_t m = strlen(t->pattern), done = 0;
    for (size_t at = 0; at + m <= n;) {
        if (memcmp(q->s + at, t->pattern, m) != 0) {
            at++;
            continue;
        }
        PL_TRY(take_piece(q, done, at, false));
        PL_TRY(take_piece(q, at, at + m, true));
        done = at += m;
    }
    return take_piece(q, done, n, false);
}

static pl_status cut_class(pieces *q, const pl_step *t, size_t n) {
    size_t done = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t   len = (size_t)pl_utf8_next(q->s + at, n - at, &cp);
        if (t->in_class(cp)) {
            PL_TRY(take_piece(q, done, at, false));
            PL_TRY(take_piece(q, at, at + len, true));
            done = at + len;
        }
        at += len;
    }
    return take_piece(q, done, n, false);
}

static pl_status cut_word(const run *r, int k, bool mapped, const char *s, size_t n) {
    const pl_step *t = &r->p->step[k];
    pieces         q = {.r = r, .k = k, .mapped = mapped, .s = s, .behavior = t->behavior, .invert = t->invert};
    pl_status      st = t->kind == PL_STEP_REGEX     ? cut_regex(&q, t, n)
                        : t->kind == PL_STEP_LITERAL ? cut_literal(&q, t, n)
                                                     : cut_class(&q, t, n);
    return st == PL_OK ? send_piece(&q) : st;
}

// Continues with a word that a step has rewritten.
static pl_status go_on_with(const run *r, int k, bool mapped, pl_strbuf *b) {
    pl_status st = b->failed ? pl_fail(r->err, PL_E_MEMORY, "encoding: out of memory") : PL_OK;
    if (st == PL_OK) st = run_step(r, k + 1, mapped, b->s, b->n);
    pl_strbuf_fini(b);
    return st;
}

static pl_status put_prefix(const run *r, int k, bool mapped, const char *s, size_t n) {
    if (s[0] == ' ') return run_step(r, k + 1, mapped, s, n);
    pl_strbuf b = {0};
    pl_strbuf_add(&b, " ", 1);
    pl_strbuf_add(&b, s, n);
    return go_on_with(r, k, mapped, &b);
}

static pl_status map_bytes(const run *r, int k, bool mapped, const char *s, size_t n) {
    // No later step needs the alphabet: the result is bytes.
    if (k + 1 == r->p->n && !mapped) return r->fn(r->ctx, s, n, r->err);
    pl_strbuf b = {0};
    for (size_t i = 0; i < n; i++) {
        char c[2];
        pl_strbuf_add(&b, c, (size_t)pl_byte_to_char((uint8_t)s[i], c));
    }
    return go_on_with(r, k, true, &b);
}

static pl_status unmap_bytes(const run *r, const char *s, size_t n) {
    char *bytes = pl_malloc(n + 1);
    if (!bytes) return pl_fail(r->err, PL_E_MEMORY, "encoding: out of memory");
    size_t    m;
    bool      ok = pl_chars_to_bytes(s, n, bytes, &m); // a PREFIX after MAP adds a bare space
    pl_status st = ok ? r->fn(r->ctx, bytes, m, r->err)
                      : pl_fail(r->err, PL_E_INPUT, "the pre-tokenizer changes text behind its ByteLevel step");
    pl_free(bytes);
    return st;
}

static pl_status run_step(const run *r, int k, bool mapped, const char *s, size_t n) {
    if (k == r->p->n) return mapped ? unmap_bytes(r, s, n) : r->fn(r->ctx, s, n, r->err);
    const pl_step *t = &r->p->step[k];
    switch (t->kind) {
    case PL_STEP_SCAN:
        for (size_t at = 0, end; at < n; at = end) {
            end = t->scan->next(s, n, at);
            PL_TRY(run_step(r, k + 1, mapped, s + at, end - at));
        }
        return PL_OK;
    case PL_STEP_PREFIX: return put_prefix(r, k, mapped, s, n);
    case PL_STEP_MAP: return map_bytes(r, k, mapped, s, n);
    default: return cut_word(r, k, mapped, s, n);
    }
}

pl_status pl_pretok_run(const pl_pretok *p, pl_matcher *m, const char *s, size_t n, pl_pretok_word fn, void *ctx,
                        pl_err *err) {
    run r = {p, m, fn, ctx, err};
    return n ? run_step(&r, 0, false, s, n) : PL_OK;
}
