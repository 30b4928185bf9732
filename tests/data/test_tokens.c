#include "data/dataset/tokens.h"
#include "kernels/base/hash.h"
#include "tok_fixture.h"

// Documents of the given lengths, all "a" so that a document of n bytes has a known number of tokens with a vocabulary
// in which nothing merges.
static pl_corpus *corpus_of(const char *const *texts, int n) {
    pl_corpus *c = pl_calloc(1, sizeof *c);
    assert_non_null(c);
    c->docs = pl_calloc((size_t)n, sizeof *c->docs);
    assert_non_null(c->docs);
    for (int i = 0; i < n; i++) {
        c->docs[i] = (pl_document){pl_strdup("doc"), pl_strdup(texts[i]), strlen(texts[i])};
        c->bytes += strlen(texts[i]);
        c->n++;
    }
    return c;
}

static const char *const texts[] = {"the cat and the cat\n", "", "and an aaaa caf\xC3\xA9", "cat",
                                    "the the the the the the the the the the the the the the the the"};
enum { N = sizeof texts / sizeof *texts };

static pl_tokens *open_ok(const char *path) {
    pl_err     err;
    pl_tokens *t;
    assert_ok(pl_tokens_open(&t, path, NULL, &err));
    return t;
}

static void test_write_and_open(void **state) {
    (void)state;
    pl_err        err;
    pl_tokenizer *tok = tiny_open();
    pl_corpus    *c = corpus_of(texts, N);
    for (int eos = 0; eos < 2; eos++) {
        assert_ok(pl_tokens_write(at("t.tok"), c, tok, eos, &err));
        pl_tokens *t = open_ok(at("t.tok"));
        assert_int_equal(t->n_docs, N);
        assert_int_equal(t->vocab_size, TINY_VOCAB);
        assert_int_equal(t->id_bytes, 2);
        assert_string_equal(t->fingerprint, pl_tokenizer_fingerprint(tok));
        for (int i = 0; i < N; i++) {
            int32_t *ids, got[64];
            int64_t  n, len = t->doc_offsets[i + 1] - t->doc_offsets[i];
            assert_ok(pl_tokenizer_encode(tok, texts[i], strlen(texts[i]), PL_TOK_ADD_BOS, &ids, &n, &err));
            assert_int_equal(len, n + eos);
            pl_tokens_copy(t, t->doc_offsets[i], len, got);
            assert_memory_equal(got, ids, (size_t)n * sizeof *ids);
            if (eos) assert_int_equal(got[n], 2);
            pl_free(ids);
        }
        pl_tokens_close(t);
    }
    pl_tokens *t;
    assert_ok(pl_tokens_open(&t, at("t.tok"), pl_tokenizer_fingerprint(tok), &err));
    pl_tokens_close(t);
    assert_says(pl_tokens_open(&t, at("t.tok"), "0123456789abcdef", &err), PL_E_INPUT, &err,
                "this one is 0123456789abcdef");
    assert_true(strstr(err.msg, pl_tokenizer_fingerprint(tok)) != NULL);
    assert_null(t);
    pl_corpus_destroy(c);
    pl_tokenizer_close(tok);
}

static void test_wide_ids(void **state) {
    (void)state;
    // A vocabulary that does not fit 16 bits: the last piece, "zz", has id 70000.
    FILE *f = fopen(at("wide.bin"), "wb");
    assert_non_null(f);
    int32_t longest = 16;
    fwrite(&longest, 4, 1, f);
    for (int id = 0; id <= 70000; id++) {
        char  s[32];
        float score = 0;
        if (id < TINY_VOCAB)
            tiny_piece(id, s, &score);
        else if (id == 70000)
            strcpy(s, "\xC2\xA7");
        else
            snprintf(s, sizeof s, "#%d", id);
        int32_t len = (int32_t)strlen(s);
        fwrite(&score, 4, 1, f);
        fwrite(&len, 4, 1, f);
        fwrite(s, 1, (size_t)len, f);
    }
    fclose(f);
    pl_err            err;
    pl_tokenizer     *tok;
    const char *const text[] = {"a\xC2\xA7\xC2\xA7"};
    assert_ok(pl_tokenizer_open(&tok, at("wide.bin"), &err));
    pl_corpus *c = corpus_of(text, 1);
    assert_ok(pl_tokens_write(at("wide.tok"), c, tok, false, &err));
    pl_tokens *t = open_ok(at("wide.tok"));
    int32_t    ids[8];
    assert_int_equal(t->id_bytes, 4);
    assert_int_equal(t->n, 4);
    pl_tokens_copy(t, 0, 4, ids);
    assert_int_equal(ids[3], 70000);
    pl_tokens_close(t);
    pl_corpus_destroy(c);
    pl_tokenizer_close(tok);
}

// A stream without a file: id i stands at place i.
static pl_tokens fake_tokens(int64_t n, int32_t *ids, int64_t *offsets, int64_t n_docs) {
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)i;
    return (pl_tokens){
        .n = n, .n_docs = n_docs, .vocab_size = 1 << 20, .doc_offsets = offsets, .ids = ids, .id_bytes = 4};
}

static void test_windows(void **state) {
    (void)state;
    enum { MAX = 1200 };
    int32_t ids[MAX], window[MAX], doc[MAX];
    int64_t offsets[] = {0, 0};
    for (int64_t n = 0; n <= 1111; n = n < 40 ? n + 1 : n + 97)
        for (int64_t T = 1; T <= 33; T += 8) {
            offsets[1] = n;
            pl_tokens t = fake_tokens(n, ids, offsets, 1);
            int64_t   count = pl_tokens_windows(&t, T);
            if (n < T + 1) {
                assert_int_equal(count, 0);
                continue;
            }
            assert_true(count >= 1 && count <= (n - 1) / T && count >= (n - 1) / T - 1);
            for (int64_t epoch = 0; epoch < 3; epoch++) {
                uint8_t seen[MAX] = {0};
                int64_t shift = -1;
                for (int64_t i = 0; i < count; i++) {
                    pl_token_window w = pl_tokens_window(&t, T, 5, epoch * count + i, window, doc);
                    assert_int_equal(w.epoch, epoch);
                    assert_true(w.start >= 0 && w.start + T + 1 <= n);
                    if (shift < 0) shift = w.start % T;
                    assert_int_equal(w.start % T, shift);
                    for (int64_t k = 0; k <= T; k++) {
                        assert_int_equal(window[k], w.start + k);
                        assert_int_equal(doc[k], 0);
                        if (k < T) assert_int_equal(seen[w.start + k]++, 0); // inputs are seen once an epoch
                    }
                }
            }
        }
}

static void test_order(void **state) {
    (void)state;
    static int32_t ids[64001];
    int32_t        a[65], b[65];
    int64_t        offsets[] = {0, 64001};
    pl_tokens      t = fake_tokens(64001, ids, offsets, 1);
    int64_t        count = pl_tokens_windows(&t, 64), in_place = 0, other = 0;
    assert_int_equal(count, 999);
    for (int64_t i = 0; i < count; i++) {
        pl_token_window w = pl_tokens_window(&t, 64, 9, i, a, NULL), again = pl_tokens_window(&t, 64, 9, i, b, NULL);
        assert_int_equal(w.start, again.start);
        assert_memory_equal(a, b, sizeof a);
        in_place += w.start / 64 == i;
        other += w.start / 64 == pl_tokens_window(&t, 64, 10, i, b, NULL).start / 64;
        other += w.start / 64 == pl_tokens_window(&t, 64, 9, i + count, b, NULL).start / 64;
    }
    // A random permutation of 999 has one fixed point on average.
    assert_true(in_place < 8);
    assert_true(other < 16);
    // Neighbours are far apart: the mean distance of random windows is a third of the whole.
    int64_t distance = 0, last = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t start = pl_tokens_window(&t, 64, 9, i, a, NULL).start / 64;
        distance += start > last ? start - last : last - start;
        last = start;
    }
    assert_in_range(distance / count, 280, 390);
}

static void test_documents(void **state) {
    (void)state;
    int32_t   ids[40], window[40], doc[40];
    int64_t   offsets[] = {0, 0, 3, 4, 4, 4, 11, 30, 30};
    pl_tokens t = fake_tokens(30, ids, offsets, 8);
    for (int64_t position = 0; position < 12; position++) {
        pl_token_window w = pl_tokens_window(&t, 7, 1, position, window, doc);
        int32_t         k = 0;
        for (int64_t i = 0; i <= 7; i++) {
            int64_t at_token = w.start + i;
            bool    starts = at_token == 3 || at_token == 4 || at_token == 11;
            if (i > 0 && starts) k++;
            assert_int_equal(doc[i], k);
        }
    }
}

static void test_broken(void **state) {
    (void)state;
    pl_err        err;
    pl_tokenizer *tok = tiny_open();
    pl_corpus    *c = corpus_of(texts, N);
    uint8_t      *data;
    size_t        n;
    pl_tokens    *t;
    assert_ok(pl_tokens_write(at("t.tok"), c, tok, false, &err));
    assert_ok(pl_file_read(at("t.tok"), &data, &n, 1 << 20, &err));
    for (size_t i = 0; i < n; i++) { // any flipped byte is noticed
        data[i] ^= 0x10;
        put_file(at("bad.tok"), data, n);
        pl_status st = pl_tokens_open(&t, at("bad.tok"), NULL, &err);
        if (st != PL_E_INPUT) fail_msg("byte %zu: status %d", i, (int)st);
        assert_null(t);
        data[i] ^= 0x10;
    }
    for (size_t cut = 0; cut < n; cut += cut < 140 ? 1 : 7) {
        put_file(at("bad.tok"), data, cut);
        assert_int_equal(pl_tokens_open(&t, at("bad.tok"), NULL, &err), PL_E_INPUT);
    }
    assert_says(pl_tokens_open(&t, at("bad.tok"), NULL, &err), PL_E_INPUT, &err,
                "broken token file: its size does not match its header; tokenise the text again");
    data[40] ^= 1;
    put_file(at("bad.tok"), data, n);
    assert_says(pl_tokens_open(&t, at("bad.tok"), NULL, &err), PL_E_INPUT, &err,
                "its header does not match its checksum");
    data[40] ^= 1;
    data[n - 1] ^= 1;
    put_file(at("bad.tok"), data, n);
    assert_says(pl_tokens_open(&t, at("bad.tok"), NULL, &err), PL_E_INPUT, &err,
                "contents do not match their checksum");
    data[n - 1] ^= 1;
    data[8] = 9;
    put_file(at("bad.tok"), data, n);
    assert_says(pl_tokens_open(&t, at("bad.tok"), NULL, &err), PL_E_INPUT, &err, "version 9, this program reads 1");
    data[8] = 1;
    // Whole by its checksums, but with a token beyond its vocabulary.
    memset(data + n - 2, 0xff, 2);
    uint64_t hash = pl_hash_more(pl_hash(data + 128, (N + 1) * 8), data + 128 + (N + 1) * 8, n - 128 - (N + 1) * 8);
    memcpy(data + 56, &hash, 8);
    hash = pl_hash(data, 120);
    memcpy(data + 120, &hash, 8);
    put_file(at("bad.tok"), data, n);
    assert_says(pl_tokens_open(&t, at("bad.tok"), NULL, &err), PL_E_INPUT, &err, "a token is outside the vocabulary");
    put_text(at("bad.tok"), "hello");
    assert_says(pl_tokens_open(&t, at("bad.tok"), NULL, &err), PL_E_INPUT, &err, "not a token file");
    assert_says(pl_tokens_open(&t, at("none.tok"), NULL, &err), PL_E_INPUT, &err, "none.tok");
    // What could not be written leaves nothing.
    pl_io_fail_after(2);
    assert_int_equal(pl_tokens_write(at("new.tok"), c, tok, false, &err), PL_E_IO);
    pl_io_fail_after(0);
    assert_false(pl_path_exists(at("new.tok")));
    pl_free(data);
    pl_corpus_destroy(c);
    c = corpus_of((const char *const[]){"fine", "bad \xff"}, 2);
    assert_says(pl_tokens_write(at("new.tok"), c, tok, false, &err), PL_E_INPUT, &err,
                "doc: text is not valid UTF-8 at byte 4");
    pl_corpus_destroy(c);
    pl_tokenizer_close(tok);
    pl_tokens_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_open), cmocka_unit_test(test_wide_ids),  cmocka_unit_test(test_windows),
        cmocka_unit_test(test_order),          cmocka_unit_test(test_documents), cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
