#include "data/tokenizer/transcript.h"

#include "data/tokenizer/impl.h"
#include "kernels/base/check.h"

#define BEHIND 4 // tokens before the end that may still change
#define WORD 64  // and at most so many more, to reach the beginning of a word

pl_status pl_transcript_init(pl_transcript *t, const pl_lexicon *from, const pl_lexicon *to, int said_room, int room,
                             pl_err *err) {
    *t = (pl_transcript){.from = from, .to = to, .room = room, .said_room = said_room};
    t->said = pl_calloc((size_t)said_room, sizeof *t->said);
    t->said_end = pl_calloc((size_t)said_room, sizeof *t->said_end);
    t->ids = pl_calloc((size_t)room, sizeof *t->ids);
    t->of = pl_calloc((size_t)room, sizeof *t->of);
    t->end = pl_calloc((size_t)room, sizeof *t->end);
    if (t->said && t->said_end && t->ids && t->of && t->end) return PL_OK;
    pl_transcript_fini(t);
    return pl_fail(err, PL_E_MEMORY, "a text of %d tokens: out of memory", room);
}

void pl_transcript_fini(pl_transcript *t) {
    pl_free(t->said);
    pl_free(t->said_end);
    pl_free(t->ids);
    pl_free(t->of);
    pl_free(t->end);
    pl_strbuf_fini(&t->text);
    *t = (pl_transcript){0};
}

void pl_transcript_clear(pl_transcript *t) {
    t->n_said = t->n = 0;
    t->text.n = 0;
    t->full = false;
}

// Returns the token of `to` for a special one of `from`, -1: none.
static int32_t special_of(const pl_lexicon *from, const pl_lexicon *to, int32_t id) {
    const pl_tokenizer *a = from->tok, *b = to->tok;
    if (id < 0 || id >= a->vocab.n) return -1;
    if (id == a->eos) return b->eos;
    if (id == a->bos) return b->bos;
    size_t      n;
    const char *s = pl_vocab_piece(&a->vocab, id, &n);
    int32_t     other = n > 0 ? pl_vocab_find(&b->vocab, s, n) : -1;
    return other >= 0 && b->special[other] ? other : -1;
}

static void add_id(pl_transcript *t, int32_t id, int32_t of, size_t end) {
    if (t->n == t->room) {
        t->full = true;
        return;
    }
    t->ids[t->n] = id;
    t->of[t->n] = of;
    t->end[t->n++] = end;
}

static bool begins_word(const pl_lexicon *x, int32_t id) {
    size_t      n;
    const char *s = pl_lexicon_bytes(x, id, &n);
    return n > 0 && s[0] == ' ';
}

// Re-encodes the unsettled text after the last special token, up to its end.
static pl_status settle_text(pl_transcript *t, pl_err *err) {
    int back = 0, at = t->n, n;
    if (t->text.n == (t->n ? t->end[t->n - 1] : 0)) return PL_OK;
    while (at > 0 && t->of[at - 1] < 0 && back < BEHIND + WORD) {
        if (back >= BEHIND && begins_word(t->to, t->ids[at])) break;
        at--;
        back++;
    }
    size_t from = at ? t->end[at - 1] : 0;
    t->n = at;
    bool starts = at == 0 || t->of[at - 1] >= 0;
    PL_TRY(pl_lexicon_spell(t->to, t->text.s + from, t->text.n - from, starts, t->ids + at, t->end + at, t->room - at,
                            &n, err));
    for (int i = 0; i < n; i++) {
        t->of[at + i] = -1;
        t->end[at + i] += from;
    }
    t->n = at + n;
    t->full |= t->n == t->room;
    return PL_OK;
}

static void forget_ids(pl_transcript *t, int n) {
    if (n == t->n_said) return;
    t->n_said = n;
    t->text.n = n ? t->said_end[n - 1] : 0;
    while (t->n > 0 && (t->end[t->n - 1] > t->text.n || t->of[t->n - 1] >= n))
        t->n--;
    t->full = false;
}

// Appends an id's bytes; a text's dummy space is no part of it.
static void add_bytes(pl_transcript *t, int32_t id) {
    size_t      n;
    const char *s = pl_lexicon_bytes(t->from, id, &n);
    bool        start = t->text.n == 0 && t->from->tok->strip > 0;
    while (start && n > 0 && s[0] == ' ') {
        s++;
        n--;
        start = t->from->tok->strip == 2;
    }
    pl_strbuf_add(&t->text, s, n);
}

static pl_status say_token(pl_transcript *t, int32_t token, pl_err *err) {
    if (pl_tokenizer_is_special(t->from->tok, token)) {
        int32_t id = special_of(t->from, t->to, token), bos = t->to->tok->bos;
        PL_TRY(settle_text(t, err));
        if (id >= 0 && !(id == bos && t->n > 0 && t->ids[t->n - 1] == id)) add_id(t, id, t->n_said, t->text.n);
    } else {
        add_bytes(t, token);
    }
    if (t->text.failed) return pl_fail(err, PL_E_MEMORY, "a text of %d tokens: out of memory", t->n_said);
    t->said[t->n_said] = token;
    t->said_end[t->n_said++] = t->text.n;
    return PL_OK;
}

pl_status pl_transcript_tell(pl_transcript *t, const int32_t *tokens, int n, pl_err *err) {
    const pl_tokenizer *b = t->to->tok;
    int                 same = 0;
    PL_CHECK(n <= t->said_room, "a text of %d tokens, at most %d", n, t->said_room);
    while (same < t->n_said && same < n && t->said[same] == tokens[same])
        same++;
    forget_ids(t, same);
    if (t->n == 0 && b->add_bos && b->bos >= 0) add_id(t, b->bos, 0, 0); // stands for the first token, whatever it is
    for (int i = same; i < n; i++)
        PL_TRY(say_token(t, tokens[i], err));
    return settle_text(t, err);
}

pl_status pl_transcript_add(pl_transcript *t, int32_t token, pl_err *err) {
    PL_CHECK(t->n_said < t->said_room, "a text of more than %d tokens", t->said_room);
    PL_TRY(say_token(t, token, err));
    return settle_text(t, err);
}

const char *pl_transcript_tail(const pl_transcript *t, size_t *n) {
    int at = t->n_said, back = 0;
    while (at > 0 && back < BEHIND + WORD && !pl_tokenizer_is_special(t->from->tok, t->said[at - 1])) {
        at--;
        back++;
        if (back >= BEHIND && begins_word(t->from, t->said[at])) break;
    }
    size_t from = at ? t->said_end[at - 1] : 0;
    *n = t->text.n - from;
    return *n ? t->text.s + from : "";
}
