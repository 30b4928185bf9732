#include "data/tokenizer/lexicon.h"

#include "data/tokenizer/impl.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"

#include <stdlib.h>
#include <string.h>

// ---- the order ------------------------------------------------------------------------------------------------------

typedef struct entry {
    const uint8_t *s;
    int32_t        len, id;
    bool           byte; // "<0x41>"
} entry;

static int by_bytes(const void *a, const void *b) {
    const entry *x = a, *y = b;
    int          c = memcmp(x->s, y->s, (size_t)(x->len < y->len ? x->len : y->len));
    if (c != 0) return c;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    if (x->byte != y->byte) return x->byte ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int32_t collect_entries(const pl_tokenizer *tok, entry *e) {
    int32_t n = 0;
    for (int32_t id = 0; id < tok->vocab.n; id++) {
        size_t      len, spelled;
        const char *s = pl_vocab_piece(&tok->surface, id, &len), *piece = pl_vocab_piece(&tok->vocab, id, &spelled);
        if (len == 0 || tok->special[id]) continue;
        e[n++] = (entry){.s = (const uint8_t *)s,
                         .len = (int32_t)len,
                         .id = id,
                         .byte = pl_tokenizer_byte_piece(piece, spelled) >= 0};
    }
    qsort(e, (size_t)n, sizeof *e, by_bytes);
    return n;
}

pl_status pl_lexicon_init(pl_lexicon *x, const pl_tokenizer *tok, pl_err *err) {
    size_t room = (size_t)tok->vocab.n + 1;
    entry *e = pl_malloc(room * sizeof *e);
    *x = (pl_lexicon){.tok = tok};
    x->id = pl_malloc(room * sizeof *x->id);
    x->s = pl_malloc(room * sizeof *x->s);
    x->len = pl_malloc(room * sizeof *x->len);
    if (!e || !x->id || !x->s || !x->len) {
        pl_free(e);
        pl_lexicon_fini(x);
        return pl_fail(err, PL_E_MEMORY, "a vocabulary of %d tokens: out of memory", tok->vocab.n);
    }
    int32_t n = collect_entries(tok, e);
    for (int32_t i = 0; i < n; i++) {
        int32_t last = x->n - 1;
        if (x->n > 0 && x->len[last] == e[i].len && memcmp(x->s[last], e[i].s, (size_t)e[i].len) == 0) continue;
        x->id[x->n] = e[i].id;
        x->s[x->n] = e[i].s;
        x->len[x->n++] = e[i].len;
    }
    for (int b = 0, i = 0; b <= 256; b++) {
        while (i < x->n && x->s[i][0] < b)
            i++;
        x->first[b] = i;
    }
    pl_free(e);
    return PL_OK;
}

void pl_lexicon_fini(pl_lexicon *x) {
    pl_free(x->id);
    pl_free((void *)x->s);
    pl_free(x->len);
    *x = (pl_lexicon){0};
}

const char *pl_lexicon_bytes(const pl_lexicon *x, int32_t id, size_t *len) {
    *len = 0;
    if (id < 0 || id >= x->tok->surface.n || x->tok->special[id]) return "";
    return pl_vocab_piece(&x->tok->surface, id, len);
}

// ---- walking --------------------------------------------------------------------------------------------------------

void pl_lexicon_start(const pl_lexicon *x, pl_lexicon_at *at) {
    *at = (pl_lexicon_at){.hi = x->n, .longest = -1};
}

// Returns the first of strings lo..hi-1, which share `depth` bytes, whose next byte is at least b.
static int32_t lower_bound(const pl_lexicon *x, int32_t lo, int32_t hi, int32_t depth, int b) {
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (x->len[mid] <= depth || x->s[mid][depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void pl_lexicon_read(const pl_lexicon *x, pl_lexicon_at *at, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++, at->depth++) {
        int b = (uint8_t)s[i];
        if (at->lo == at->hi) continue;
        if (at->depth == 0) {
            at->lo = x->first[b];
            at->hi = x->first[b + 1];
        } else {
            at->lo = lower_bound(x, at->lo, at->hi, at->depth, b);
            at->hi = lower_bound(x, at->lo, at->hi, at->depth, b + 1);
        }
        if (at->lo == at->hi || x->len[at->lo] != at->depth + 1) continue;
        at->longest = x->id[at->lo]; // the shortest of a range comes first
        at->length = at->depth + 1;
    }
}

bool pl_lexicon_open(const pl_lexicon *x, const pl_lexicon_at *at) {
    return at->lo < at->hi && x->len[at->hi - 1] > at->depth;
}

int32_t pl_lexicon_find(const pl_lexicon *x, const char *s, size_t n) {
    pl_lexicon_at at;
    pl_lexicon_start(x, &at);
    pl_lexicon_read(x, &at, s, n);
    return at.longest >= 0 && (size_t)at.length == n ? at.longest : -1;
}

// Returns the longest token at the start of s; *len its bytes, 0: none.
static int32_t find_longest(const pl_lexicon *x, const char *s, size_t n, size_t *len) {
    pl_lexicon_at at;
    pl_lexicon_start(x, &at);
    for (size_t i = 0; i < n && at.lo < at.hi; i++)
        pl_lexicon_read(x, &at, s + i, 1);
    *len = at.longest < 0 ? 0 : (size_t)at.length;
    return at.longest;
}

// ---- two vocabularies -----------------------------------------------------------------------------------------------

pl_status pl_lexicon_map(int32_t **to, const pl_lexicon *a, const pl_lexicon *b, pl_err *err) {
    size_t   n = (size_t)a->tok->vocab.n;
    int32_t *m = pl_malloc((n + 1) * sizeof *m);
    *to = m;
    if (!m) return pl_fail(err, PL_E_MEMORY, "a vocabulary of %zu tokens: out of memory", n);
    memset(m, 0xff, n * sizeof *m); // -1 everywhere
    for (int32_t i = 0; i < a->n; i++)
        m[a->id[i]] = pl_lexicon_find(b, (const char *)a->s[i], (size_t)a->len[i]);
    return PL_OK;
}

// Sets ends[i] if bytes i..n-1 can be spelled in tokens.
static void mark_ends(const pl_lexicon *x, const char *s, size_t n, bool *ends) {
    ends[n] = true;
    for (size_t j = n; j-- > 0;) {
        pl_lexicon_at at;
        pl_lexicon_start(x, &at);
        for (size_t i = j; i < n && at.lo < at.hi && !ends[j]; i++) {
            pl_lexicon_read(x, &at, s + i, 1);
            ends[j] = at.length == at.depth && ends[i + 1];
        }
    }
}

double pl_lexicon_ways(const pl_lexicon *x, const char *s, size_t n, double *steps) {
    double *ways = pl_calloc(n + 1, sizeof *ways), all = -1;
    bool   *ends = steps ? pl_calloc(n + 1, sizeof *ends) : NULL;
    if (!ways || (steps && !ends)) {
        pl_free(ways);
        pl_free(ends);
        return -1;
    }
    ways[0] = 1;
    for (size_t j = 0; j < n; j++) {
        if (!(ways[j] > 0)) continue;
        pl_lexicon_at at;
        pl_lexicon_start(x, &at);
        for (size_t i = j; i < n && at.lo < at.hi; i++) {
            pl_lexicon_read(x, &at, s + i, 1);
            if (at.length == at.depth) ways[i + 1] += ways[j];
        }
    }
    all = ways[n];
    if (steps) {
        mark_ends(x, s, n, ends);
        *steps = 0;
        for (size_t i = 0; i < n; i++)
            *steps += ends[i] ? ways[i] : 0;
    }
    pl_free(ways);
    pl_free(ends);
    return all;
}

#define OTHER_MARK "\xC4\xA0" // U+0120, a space in GPT-2's alphabet

// Collects the pieces, each string once.
static pl_status spell_pieces(pl_vocab *to, const pl_tokenizer *tok, bool spaces, pl_err *err) {
    pl_status st = PL_OK;
    for (int32_t id = 0; id < tok->vocab.n && st == PL_OK; id++) {
        size_t      len;
        const char *s = pl_vocab_piece(&tok->vocab, id, &len);
        pl_strbuf   b = {0};
        pl_tokenizer_replace(&b, s, len, PL_SPACE_MARK, spaces ? strlen(PL_SPACE_MARK) : 0, OTHER_MARK,
                             strlen(OTHER_MARK));
        if (b.failed) st = pl_fail(err, PL_E_MEMORY, "a vocabulary: out of memory");
        if (st == PL_OK && len > 0) st = pl_vocab_set(to, id, b.s, b.n, err);
        pl_strbuf_fini(&b);
    }
    return st == PL_OK ? pl_vocab_index(to, err) : st;
}

static pl_status spelled_alike(int64_t *n, bool spaces, const pl_tokenizer *a, const pl_tokenizer *b, pl_err *err) {
    pl_vocab  x = {0}, y = {0};
    pl_status st = spell_pieces(&x, a, spaces, err);
    *n = 0;
    if (st == PL_OK) st = spell_pieces(&y, b, spaces, err);
    for (int32_t id = 0; id < x.n && st == PL_OK; id++) {
        size_t      len;
        const char *s = pl_vocab_piece(&x, id, &len);
        *n += len > 0 && pl_vocab_find(&x, s, len) == id && pl_vocab_find(&y, s, len) >= 0;
    }
    pl_vocab_fini(&x);
    pl_vocab_fini(&y);
    return st;
}

pl_status pl_lexicon_spelled_alike(pl_spelled_alike *n, const pl_tokenizer *a, const pl_tokenizer *b, pl_err *err) {
    PL_TRY(spelled_alike(&n->as_they_are, false, a, b, err));
    return spelled_alike(&n->with_spaces, true, a, b, err);
}

int64_t pl_lexicon_inexpressible(const pl_lexicon *a, const pl_lexicon *b) {
    int64_t n = 0;
    for (int32_t i = 0; i < a->n; i++) {
        double ways = pl_lexicon_ways(b, (const char *)a->s[i], (size_t)a->len[i], NULL);
        if (ways < 0) return -1;
        n += ways == 0;
    }
    return n;
}

// ---- spelling -------------------------------------------------------------------------------------------------------

typedef struct spelled {
    int32_t *ids;
    size_t  *end; // NULL: not requested
    int      n, room;
} spelled;

static void put_id(spelled *o, int32_t id, size_t end) {
    if (o->n == o->room) return;
    o->ids[o->n] = id;
    if (o->end) o->end[o->n] = end;
    o->n++;
}

// whole: stops at bytes that begin no token, else skips them. Returns false if it stopped.
static bool by_longest(const pl_lexicon *x, const char *s, size_t n, size_t at, bool whole, spelled *o) {
    size_t from = 0;
    while (from < n) {
        size_t  len;
        int32_t id = find_longest(x, s + from, n - from, &len);
        if (id < 0 && whole) return false;
        from += id < 0 ? 1 : len;
        if (id >= 0) put_id(o, id, at + from);
    }
    return true;
}

// Returns true if ids stand for s; *lead: also for a space before it.
static bool stands_for(const pl_tokenizer *tok, const int32_t *ids, int64_t n, const char *s, size_t n_s, int *lead) {
    size_t bytes = 0, len, at = 0;
    for (int64_t i = 0; i < n; i++) {
        pl_vocab_piece(&tok->surface, ids[i], &len);
        bytes += len;
    }
    *lead = bytes == n_s + 1 && tok->strip > 0;
    if (bytes != n_s + (size_t)*lead) return false;
    for (int64_t i = 0; i < n; i++) {
        const char *p = pl_vocab_piece(&tok->surface, ids[i], &len);
        if (tok->special[ids[i]]) return false;
        for (size_t k = 0; k < len; k++, at++)
            if (p[k] != (at < (size_t)*lead ? ' ' : s[at - (size_t)*lead])) return false;
    }
    return true;
}

// Encodes s, valid UTF-8, with the tokenizer; *good: the ids stand for s.
static pl_status encode_own(const pl_lexicon *x, const char *s, size_t n, int32_t **ids, int64_t *n_ids, int *lead,
                            bool *good, pl_err *err) {
    size_t skip = x->tok->strip > 0 && n > 0 && s[0] == ' '; // the tokenizer adds one
    PL_TRY(pl_tokenizer_encode(x->tok, s + skip, n - skip, PL_TOK_NO_SPECIAL, ids, n_ids, err));
    *good = stands_for(x->tok, *ids, *n_ids, s, n, lead);
    if (*good || !skip) return PL_OK;
    pl_free(*ids);
    PL_TRY(pl_tokenizer_encode(x->tok, s, n, PL_TOK_NO_SPECIAL, ids, n_ids, err));
    *good = stands_for(x->tok, *ids, *n_ids, s, n, lead);
    return PL_OK;
}

pl_status pl_lexicon_spell(const pl_lexicon *x, const char *text, size_t n_text, bool starts, int32_t *ids, size_t *end,
                           int room, int *n, pl_err *err) {
    size_t   valid = pl_utf8_valid(text, n_text);
    spelled  o = {.ids = ids, .end = end, .room = room};
    int32_t *said;
    int64_t  n_said;
    int      lead;
    bool     good;
    PL_TRY(encode_own(x, text, valid, &said, &n_said, &lead, &good, err));
    good &= starts || lead == 0;
    size_t at = 0;
    for (int64_t i = 0; good && i < n_said; i++) {
        size_t len;
        pl_vocab_piece(&x->tok->surface, said[i], &len);
        at += len;
        put_id(&o, said[i], at < (size_t)lead ? 0 : at - (size_t)lead);
    }
    pl_free(said);
    if (!good) by_longest(x, text, valid, 0, false, &o);
    by_longest(x, text + valid, n_text - valid, valid, false, &o);
    *n = o.n;
    return PL_OK;
}

pl_status pl_lexicon_continue(const pl_lexicon *x, const char *tail, size_t n_tail, const char *more, size_t n_more,
                              int32_t *ids, int room, int *n, pl_err *err) {
    size_t   n_text = n_tail + n_more;
    char    *text = pl_malloc(n_text + 1);
    spelled  o = {.ids = ids, .room = room};
    int32_t *said = NULL;
    int64_t  n_said = 0;
    int      lead = 0;
    bool     good = false, on = true;
    *n = 0;
    if (!text) return pl_fail(err, PL_E_MEMORY, "a draft of %zu bytes: out of memory", n_text);
    memcpy(text, tail, n_tail);
    memcpy(text + n_tail, more, n_more);
    size_t    valid = pl_utf8_valid(text, n_text), border = n_tail < valid ? n_tail : valid;
    pl_status st = valid > n_tail ? encode_own(x, text, valid, &said, &n_said, &lead, &good, err) : PL_OK;
    for (int64_t i = 0, end = -lead; st == PL_OK && good && on && i < n_said; i++) {
        size_t len;
        pl_vocab_piece(&x->tok->surface, said[i], &len);
        int64_t from = end;
        end += (int64_t)len;
        if (from >= (int64_t)border)
            put_id(&o, said[i], 0);
        else if (end > (int64_t)border)
            on = by_longest(x, text + border, (size_t)end - border, 0, true, &o);
    }
    if (st == PL_OK && !good) valid = n_tail;
    if (st == PL_OK && on) by_longest(x, text + valid, n_text - valid, 0, true, &o);
    pl_free(said);
    pl_free(text);
    *n = o.n;
    return st;
}
