// Vocabularies by their bytes against plain searches; texts that go from one vocabulary into another and back, token by
// token, cut anywhere: no byte is lost at a border, and no text that stands is told otherwise. Between real tokenizers
// too.
#include "data/tokenizer/impl.h"
#include "data/tokenizer/transcript.h"
#include "kernels/base/rng.h"
#include "kernels/base/utf8.h"
#include "tok_fixture.h"

enum { ROOM = 1 << 16 };

typedef struct vocabulary {
    pl_tokenizer *tok;
    pl_lexicon    x;
} vocabulary;

static void take(vocabulary *v, pl_tokenizer *tok) {
    pl_err err;
    v->tok = tok;
    assert_ok(pl_lexicon_init(&v->x, tok, &err));
}

static void open_outside(vocabulary *v, const char *name) {
    const char   *path = outside(name);
    pl_err        err;
    pl_tokenizer *tok;
    if (!path) skip();
    assert_ok(pl_tokenizer_open(&tok, path, &err));
    take(v, tok);
}

static void drop(vocabulary *v) {
    pl_lexicon_fini(&v->x);
    pl_tokenizer_close(v->tok);
}

// ---- one vocabulary -------------------------------------------------------------------------------------------------

static int32_t plain_longest(const vocabulary *v, const char *s, size_t n, size_t *len, bool *grows) {
    int32_t best = -1;
    *len = 0;
    *grows = false;
    for (int32_t i = 0; i < pl_tokenizer_vocab_size(v->tok); i++) {
        size_t      k;
        const char *t = pl_lexicon_bytes(&v->x, i, &k);
        if (k > n) *grows |= memcmp(t, s, n) == 0;
        if (k == 0 || k > n || memcmp(t, s, k) != 0) continue;
        bool byte = pl_tokenizer_byte_piece(pl_tokenizer_piece(v->tok, i), strlen(pl_tokenizer_piece(v->tok, i))) >= 0;
        if (k > *len || (best < 259 && !byte)) best = i; // bytes stand first there
        *len = k > *len ? k : *len;
    }
    return best;
}

static void text_of(pl_rng r, uint64_t *at, char *s, int n) {
    static const char letters[] = "thecatnd a  \n";
    for (int i = 0; i < n; i++)
        s[i] = pl_rng_below(r, (*at)++, 40) == 0 ? (char)pl_rng_below(r, (*at)++, 256)
                                                 : letters[pl_rng_below(r, (*at)++, sizeof letters - 1)];
}

static void walks_as_a_search_does(void **state) {
    (void)state;
    vocabulary v;
    pl_rng     r = pl_rng_make(1, PL_STREAM_TEST, 0);
    uint64_t   at = 0;
    take(&v, tiny_open());
    for (int round = 0; round < 4000; round++) {
        char          s[8];
        size_t        n = 1 + pl_rng_below(r, at++, 7), len;
        bool          grows;
        pl_lexicon_at a;
        text_of(r, &at, s, (int)n);
        int32_t want = plain_longest(&v, s, n, &len, &grows);
        pl_lexicon_start(&v.x, &a);
        pl_lexicon_read(&v.x, &a, s, n);
        assert_int_equal(a.longest, want);
        if (want >= 0) assert_int_equal(a.length, len);
        assert_int_equal(pl_lexicon_open(&v.x, &a), grows);
        assert_int_equal(pl_lexicon_find(&v.x, s, n), want >= 0 && len == n ? want : -1);
    }
    drop(&v);
}

// ---- from one into another ------------------------------------------------------------------------------------------

static void check_transcript(const pl_transcript *t) {
    size_t at = 0;
    for (int i = 0; i < t->n; i++) {
        size_t      n;
        const char *s = pl_lexicon_bytes(t->to, t->ids[i], &n);
        size_t      lead = (i == 0 || t->of[i - 1] >= 0) && n > 0 && t->end[i] - at + 1 == n; // a dummy space
        if (t->of[i] >= 0) continue;
        assert_int_equal(t->end[i] - at, n - lead);
        assert_memory_equal(t->text.s + at, s + lead, n - lead);
        at = t->end[i];
    }
    assert_int_equal(at, t->text.n);
}

// `more` behind the text: exactly its bytes, all of them where every byte is a token.
static void check_continue(const pl_transcript *t, const char *more, size_t n, bool all) {
    static int32_t ids[ROOM];
    size_t         n_tail, at = 0, len;
    int            m;
    pl_err         err;
    const char    *tail = pl_transcript_tail(t, &n_tail);
    assert_ok(pl_lexicon_continue(t->from, tail, n_tail, more, n, ids, ROOM, &m, &err));
    for (int i = 0; i < m; i++, at += len) {
        const char *s = pl_lexicon_bytes(t->from, ids[i], &len);
        assert_true(len > 0 && at + len <= n);
        assert_memory_equal(more + at, s, len);
    }
    if (all) assert_int_equal(at, n);
}

// A text of a's tokens grows by any of them and is cut back, in b's; what might follow comes back in a's.
static void random_tokens(const vocabulary *a, const vocabulary *b, int32_t first, uint64_t seed, int rounds,
                          bool all) {
    pl_transcript t;
    pl_err        err;
    pl_rng        r = pl_rng_make(seed, PL_STREAM_TEST, 0);
    uint64_t      at = 0;
    int32_t       text[400];
    int           n = 0, v = pl_tokenizer_vocab_size(a->tok);
    assert_ok(pl_transcript_init(&t, &a->x, &b->x, 400, ROOM, &err));
    for (int round = 0; round < rounds; round++) {
        char more[40];
        int  n_more = (int)pl_rng_below(r, at++, sizeof more);
        if (n > 360 || pl_rng_below(r, at++, 12) == 0) n = (int)pl_rng_below(r, at++, (uint64_t)n + 1);
        for (int k = (int)pl_rng_below(r, at++, 5); k >= 0; k--)
            text[n++] = pl_rng_below(r, at++, 50) == 0 ? (int32_t)pl_rng_below(r, at++, 3)
                                                       : first + (int32_t)pl_rng_below(r, at++, (uint64_t)(v - first));
        assert_ok(pl_transcript_tell(&t, text, n, &err));
        assert_false(t.full);
        check_transcript(&t);
        text_of(r, &at, more, n_more);
        check_continue(&t, more, (size_t)n_more, all);
    }
    pl_transcript_fini(&t);
}

static void no_byte_is_lost(void **state) {
    (void)state;
    vocabulary a, b;
    take(&a, tiny_open());
    tiny_apart = true;
    take(&b, tiny_open());
    tiny_apart = false;
    random_tokens(&a, &b, 259, 1, 400, true);
    random_tokens(&b, &a, 0, 2, 400, true); // bytes that make no UTF-8 too
    drop(&a);
    drop(&b);
}

// A text's own tokens in a, told token by token: b's tokens are those of its tokenizer, but for what is not settled.
static void tell_text(const vocabulary *a, const vocabulary *b, const char *text, size_t n_text) {
    int32_t      *ids, *want;
    int64_t       n, n_want;
    int           told = 0, same = 0;
    pl_err        err;
    pl_transcript t;
    assert_ok(pl_tokenizer_encode(a->tok, text, n_text, PL_TOK_NO_SPECIAL, &ids, &n, &err));
    assert_ok(pl_tokenizer_encode(b->tok, text, n_text, PL_TOK_NO_SPECIAL | PL_TOK_ADD_BOS, &want, &n_want, &err));
    assert_ok(pl_transcript_init(&t, &a->x, &b->x, (int)n + 1, ROOM, &err));
    for (told = 0; told < n;) {
        told += 1 + told % 3;
        if (told > n) told = (int)n;
        assert_ok(pl_transcript_tell(&t, ids, told, &err));
        check_transcript(&t);
        size_t at = t.text.n, left = n_text - at;
        assert_memory_equal(t.text.s, text, at);
        size_t n_more = left < 24 ? left : 24;
        if (pl_utf8_valid(text + at, n_more) == n_more) check_continue(&t, text + at, n_more, true);
    }
    assert_int_equal(t.text.n, n_text);
    for (int i = 0; i < t.n && i < n_want; i++)
        same += t.ids[i] == want[i];
    print_message("%s to %s: %lld tokens, %d of %lld as if told at once\n", pl_tokenizer_kind(a->tok),
                  pl_tokenizer_kind(b->tok), (long long)n, same, (long long)n_want);
    assert_true(t.n == n_want && same == n_want);
    pl_transcript_fini(&t);
    pl_free(ids);
    pl_free(want);
}

static void both_ways(const char *one, const char *other) {
    static const char *const texts[] = {"text/tinyshakespeare.txt", "text/gutenberg/Les-Mis-rables_135.txt"};
    vocabulary               a, b;
    open_outside(&a, one);
    open_outside(&b, other);
    for (size_t i = 0; i < 2; i++) {
        uint8_t *text;
        size_t   n, from = i * 400000, take_n = 6000;
        pl_err   err;
        assert_ok(pl_file_read(outside(texts[i]), &text, &n, 1 << 28, &err));
        while (from > 0 && text[from - 1] != '\n')
            from--;
        while (take_n > 0 && text[from + take_n] != '\n')
            take_n--;
        tell_text(&a, &b, (char *)text + from, take_n);
        tell_text(&b, &a, (char *)text + from, take_n);
        pl_free(text);
    }
    random_tokens(&a, &b, 3, 3, 60, false);
    random_tokens(&b, &a, 3, 4, 60, false);
    drop(&a);
    drop(&b);
}

static void llama3_and_qwen2(void **state) {
    (void)state;
    both_ways("tokenizers/llama3/tokenizer.model", "tokenizers/qwen2/vocab.json");
}

static void gpt2_and_llama2(void **state) {
    (void)state;
    both_ways("tokenizers/gpt2/tokenizer.json", "tokenizers/llama2/tokenizer.model");
}

// Every token of b is named once, and stands for the same bytes.
static void map_is_one_to_one(void **state) {
    (void)state;
    vocabulary a, b;
    int32_t   *to;
    pl_err     err;
    int64_t    n = 0;
    open_outside(&a, "tokenizers/llama2/tokenizer.model");
    open_outside(&b, "tokenizers/qwen2/vocab.json");
    assert_ok(pl_lexicon_map(&to, &a.x, &b.x, &err));
    uint8_t *seen = calloc((size_t)pl_tokenizer_vocab_size(b.tok), 1);
    for (int32_t i = 0; i < pl_tokenizer_vocab_size(a.tok); i++) {
        size_t len, other;
        if (to[i] < 0) continue;
        assert_false(seen[to[i]]++);
        const char *s = pl_lexicon_bytes(&a.x, i, &len), *t = pl_lexicon_bytes(&b.x, to[i], &other);
        assert_int_equal(len, other);
        assert_memory_equal(s, t, len);
        n++;
    }
    // 26,438 tokens of Llama-2 stand for bytes of a Qwen2 token; 96 of them are bytes that a piece stands for as well.
    print_message("%lld tokens in both\n", (long long)n);
    assert_true(n > 26000 && n < 26438);
    assert_int_equal(pl_lexicon_inexpressible(&a.x, &b.x), 0);
    assert_int_equal(pl_lexicon_inexpressible(&b.x, &a.x), 0);
    free(seen);
    pl_free(to);
    drop(&a);
    drop(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks_as_a_search_does), cmocka_unit_test(no_byte_is_lost),
        cmocka_unit_test(llama3_and_qwen2),       cmocka_unit_test(gpt2_and_llama2),
        cmocka_unit_test(map_is_one_to_one),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
