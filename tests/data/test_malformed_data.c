// Malformed inputs, table by table: llama2.c tokenizers, tokenizer_config.json, token files, text.
#include "data/dataset/tokens.h"
#include "kernels/base/hash.h"
#include "tok_fixture.h"

// ---- llama2.c tokenizers --------------------------------------------------------------------------------------------

static void test_llama2c(void **state) {
    (void)state;
    // Bytes [at, at + n) become `value`; then the file is cut to `cut` bytes (0: it is not).
    static const struct {
        size_t      at, n;
        uint32_t    value;
        size_t      cut;
        const char *says;
    } bad[] = {
        {0, 0, 0, 1, "only 1 bytes"},
        {0, 0, 0, 3, "only 3 bytes"},
        {0, 4, 0, 0, "its longest piece would have 0 bytes"},
        {0, 4, UINT32_MAX, 0, "its longest piece would have -1 bytes"},
        {0, 4, 4097, 0, "its longest piece would have 4097 bytes"},
        {0, 4, 0x7fffffff, 0, "its longest piece would have 2147483647 bytes"},
        {0, 4, 1, 0, "piece 0 has 5 bytes, the header says at most 1"},
        {8, 4, UINT32_MAX, 0, "piece 0 at byte 4 runs past the end"},
        {8, 4, 0x7fffffff, 0, "piece 0 at byte 4 runs past the end"},
        {8, 4, 9, 0, "piece 0 has 9 bytes, the header says at most 8"},
        {4, 4, 0x7fc00000, 0, "the score of piece 0 is not finite"},
        {4, 4, 0x7f800000, 0, "the score of piece 0 is not finite"},
        {4, 4, 0xff800000, 0, "the score of piece 0 is not finite"},
        {0, 0, 0, 11, "piece 0 at byte 4 runs past the end"},
        {0, 0, 0, 13, "piece 0 at byte 4 runs past the end"},
        {0, 0, 0, 17, "1 pieces, at least 3 are needed"},
        {0, 0, 0, 4, "0 pieces, at least 3 are needed"},
    };
    uint8_t good[8192], copy[8192];
    size_t  n = tiny_bin(good);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err        err;
        pl_tokenizer *tok;
        memcpy(copy, good, n);
        memcpy(copy + bad[i].at, &bad[i].value, bad[i].n);
        put_file(at("bad.bin"), copy, bad[i].cut ? bad[i].cut : n);
        assert_refused(pl_tokenizer_open(&tok, at("bad.bin"), &err), &err, bad[i].says);
        assert_true(strstr(err.msg, "bad.bin") != NULL);
        assert_null(tok);
    }
}

// ---- tokenizer_config.json ------------------------------------------------------------------------------------------

static void test_config(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "tokenizer_config.json:1:1: not JSON"},
        {"{", "tokenizer_config.json:1:2: not JSON"},
        {"{\"add_bos_token\":1}", "add_bos_token: expected true or false, found 1"},
        {"{\"add_bos_token\":\"yes\"}", "add_bos_token: expected true or false, found \"yes\""},
        {"{\"add_bos_token\":[]}", "add_bos_token: expected true or false, found an array"},
        {"{\"add_eos_token\":0}", "add_eos_token: expected true or false, found 0"},
        {"{\"add_eos_token\":true}", "an EOS behind every text is not supported"},
        {"{\"add_bos_token\":true}}", "text behind the end"},
        {"{\"add_bos_token\":tru}", "not JSON"},
        {"{add_bos_token:true}", "expected a key in quotes"},
    };
    pl_err  err;
    uint8_t bin[8192];
    assert_ok(pl_dir_make(at("tok"), &err));
    put_file(at("tok/tokenizer.bin"), bin, tiny_bin(bin));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_tokenizer *tok;
        put_text(at("tok/tokenizer_config.json"), bad[i].text);
        assert_refused(pl_tokenizer_open(&tok, at("tok"), &err), &err, bad[i].says);
        assert_null(tok);
    }
}

// ---- token files ----------------------------------------------------------------------------------------------------

// Lies that stand behind right checksums.
static void test_tokens(void **state) {
    (void)state;
    static const struct {
        size_t      at, n;
        uint64_t    value;
        const char *says;
    } bad[] = {
        {0, 1, 'X', "not a token file"},
        {8, 4, 0, "a token file of version 0, this program reads 1"},
        {8, 4, 2, "a token file of version 2, this program reads 1"},
        {12, 4, 0, "its size does not match its header"},
        {12, 4, 1, "its size does not match its header"},
        {12, 4, 3, "its size does not match its header"},
        {12, 4, 4, "its size does not match its header"},
        {12, 4, 8, "its size does not match its header"},
        {32, 8, 0, "its size does not match its header"},
        {32, 8, UINT64_MAX, "its size does not match its header"},
        {32, 8, (uint64_t)1 << 62, "its size does not match its header"},
        {40, 8, 0, "its size does not match its header"},
        {40, 8, UINT64_MAX, "its size does not match its header"},
        {40, 8, (uint64_t)1 << 61, "its size does not match its header"},
        {48, 4, 0, "its size does not match its header"},
        {48, 4, UINT32_MAX, "its size does not match its header"},
        {48, 4, 1, "a token is outside the vocabulary"},
        {128, 8, 1, "its documents do not cover the tokens"},
        {128, 8, UINT64_MAX, "its documents do not cover the tokens"},
        {136, 8, 1000, "its documents are out of order"},
        {136, 8, UINT64_MAX, "its documents are out of order"},
        {144, 8, 0, "its documents do not cover the tokens"},
    };
    pl_err        err;
    uint8_t      *good, *copy;
    size_t        n;
    pl_tokenizer *tok = tiny_open();
    pl_document   docs[] = {{"a", "the cat", 7}, {"b", "and then", 8}};
    assert_ok(pl_tokens_write(at("t.tok"), &(pl_corpus){.docs = docs, .n = 2, .bytes = 15}, tok, false, &err));
    pl_tokenizer_close(tok);
    assert_ok(pl_file_read(at("t.tok"), &good, &n, 1 << 20, &err));
    copy = malloc(n);
    assert_non_null(copy);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_tokens *t;
        memcpy(copy, good, n);
        memcpy(copy + bad[i].at, &bad[i].value, bad[i].n);
        uint64_t hash = pl_hash_more(pl_hash(copy + 128, 24), copy + 152, n - 152); // offsets, then ids
        memcpy(copy + 56, &hash, 8);
        hash = pl_hash(copy, 120);
        memcpy(copy + 120, &hash, 8);
        put_file(at("bad.tok"), copy, n);
        assert_refused(pl_tokens_open(&t, at("bad.tok"), NULL, &err), &err, bad[i].says);
        assert_null(t);
    }
    free(copy);
    pl_free(good);
}

// ---- text -----------------------------------------------------------------------------------------------------------

static void test_text(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t      n;
        const char *says;
    } bad[] = {
        {"fine\n\xff", 6, "not valid UTF-8 at byte 5 (0xff)"},
        {"\xc3", 1, "at byte 0 (0xc3)"},
        {"ab\xe2\x82", 4, "at byte 2 (0xe2)"},
        {"\xed\xa0\x80", 3, "not valid UTF-8 at byte 0"},     // a surrogate
        {"\xc0\xaf", 2, "not valid UTF-8 at byte 0"},         // overlong
        {"\xf4\x90\x80\x80", 4, "not valid UTF-8 at byte 0"}, // beyond U+10FFFF
        {"\xff\xfe"
         "a\0",
         4, "UTF-16 text"},
        {"\xef\xbb\xbf\x80", 4, "(0x80)"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err      err;
        pl_corpus  *c;
        const char *path = at("bad.txt");
        put_file(path, bad[i].text, bad[i].n);
        pl_status st = pl_corpus_read(&c, &path, 1, (pl_text_options){.encoding = PL_TEXT_STRICT}, &err);
        if (st == PL_OK) fail_msg("accepted text %zu", i);
        assert_refused(st, &err, bad[i].says);
        assert_null(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama2c), cmocka_unit_test(test_config),
                                       cmocka_unit_test(test_tokens), cmocka_unit_test(test_text)};
    return cmocka_run_group_tests_name("test_malformed_data", tests, scratch_setup, scratch_teardown);
}
