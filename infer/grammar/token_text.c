#include "infer/grammar/token_text.h"

#include "infer/grammar/grammar.h"
#include "kernels/base/arena.h"

#include <string.h>

static int32_t shared_bytes(const pl_lexicon *x, int32_t i) {
    int32_t n = 0, most = i > 0 && x->len[i - 1] < x->len[i] ? x->len[i - 1] : i > 0 ? x->len[i] : 0;
    while (n < most && x->s[i - 1][n] == x->s[i][n])
        n++;
    return n;
}

// Returns true if the bytes hold one that stands for a mark, which no UTF-8 does.
static bool holds_mark(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)s[i] >= PL_MARK_BYTE) return true;
    return false;
}

static void find_marks(pl_token_text *t, const pl_tokenizer *tok) {
    for (int i = 0; i < PL_MARKS; i++) {
        int32_t id = pl_tokenizer_find(tok, pl_mark_text[i]);
        t->mark[i] = pl_tokenizer_is_special(tok, id) ? id : -1;
        t->spelt[PL_MARK_BYTE + i] = t->mark[i] >= 0;
        if (t->mark[i] >= 0) t->string[id] = PL_NO_TEXT - 1 - i;
    }
}

static pl_status fill(pl_token_text *t, pl_err *err) {
    const pl_lexicon *x = &t->lexicon;
    t->shared = pl_malloc(((size_t)x->n + 1) * sizeof *t->shared);
    t->string = pl_malloc(((size_t)t->vocab + 1) * sizeof *t->string);
    if (!t->shared || !t->string) return pl_fail(err, PL_E_MEMORY, "a vocabulary's texts: out of memory");
    for (int32_t i = 0; i < x->n; i++)
        t->shared[i] = shared_bytes(x, i);
    int32_t *of = pl_malloc(((size_t)t->vocab + 1) * sizeof *of); // the string that a representing token stands for
    if (!of) return pl_fail(err, PL_E_MEMORY, "a vocabulary's texts: out of memory");
    for (int32_t i = 0; i < x->n; i++)
        of[x->id[i]] = i;
    for (int32_t id = 0; id < t->vocab; id++) {
        size_t      n;
        const char *s = pl_lexicon_bytes(x, id, &n);
        int32_t     same = n > 0 && n <= PL_TOKEN_TEXT_BYTES && !holds_mark(s, n) ? pl_lexicon_find(x, s, n) : -1;
        t->string[id] = same < 0 ? PL_NO_TEXT : of[same];
    }
    pl_free(of);
    for (int b = 0; b < 256; b++) {
        char one = (char)b;
        t->spelt[b] = pl_lexicon_find(x, &one, 1) >= 0;
    }
    find_marks(t, x->tok);
    return PL_OK;
}

pl_status pl_token_text_open(pl_token_text **out, const pl_tokenizer *tok, pl_err *err) {
    pl_token_text *t = pl_calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return pl_fail(err, PL_E_MEMORY, "a vocabulary's texts: out of memory");
    t->vocab = pl_tokenizer_vocab_size(tok);
    pl_status st = pl_lexicon_init(&t->lexicon, tok, err);
    if (st == PL_OK) st = fill(t, err);
    if (st == PL_OK)
        *out = t;
    else
        pl_token_text_close(t);
    return st;
}

void pl_token_text_close(pl_token_text *t) {
    if (!t) return;
    pl_lexicon_fini(&t->lexicon);
    pl_free(t->shared);
    pl_free(t->string);
    pl_free(t);
}
