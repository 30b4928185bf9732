// SentencePiece: training, exact round trips, and models that are broken on purpose.
#include "data/tokenizer/spm_proto.h"
#include "data/tokenizer/spm_shim.h"
#include "data/tokenizer/spm_train.h"
#include "kernels/base/hash.h"
#include "tok_fixture.h"

static void train(const char *path, const pl_spm_train_options *o) {
    pl_err     err;
    pl_corpus *c = small_corpus();
    assert_ok(pl_spm_train(path, c, o, &err));
    pl_corpus_destroy(c);
}

static pl_tokenizer *open_at(const char *path) {
    pl_err        err;
    pl_tokenizer *tok;
    assert_ok(pl_tokenizer_open(&tok, path, &err));
    return tok;
}

static const pl_spm_train_options bpe = {.vocab_size = 360, .byte_fallback = true, .quiet = true};

static uint64_t hash_file(const char *path) {
    pl_err   err;
    uint8_t *data;
    size_t   n;
    assert_ok(pl_file_read(path, &data, &n, 1 << 24, &err));
    uint64_t h = pl_hash(data, n);
    pl_free(data);
    return h;
}

static const char *const texts[] = {"",
                                    " ",
                                    "\n",
                                    "\n\n\n",
                                    " the cat",
                                    "the cat  sat \n on\n\n a mat.\n",
                                    "tabs\tand\r\nreturns\r",
                                    "caf\xC3\xA9 na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80",
                                    "12345 6.78",
                                    "   indented\n\ttoo\n",
                                    "</s> <s> <unk> <0x0A>",
                                    "trailing   "};

static void test_round_trips(void **state) {
    (void)state;
    const pl_spm_train_options unigram = {
        .vocab_size = 310, .model_type = "unigram", .byte_fallback = true, .quiet = true};
    for (int k = 0; k < 2; k++) {
        train(at("m.model"), k ? &unigram : &bpe);
        pl_tokenizer *tok = open_at(at("m.model"));
        assert_string_equal(pl_tokenizer_kind(tok), "sentencepiece");
        assert_int_equal(pl_tokenizer_vocab_size(tok), k ? 310 : 360);
        assert_string_equal(pl_tokenizer_piece(tok, 0), "<unk>");
        assert_int_equal(pl_tokenizer_bos_id(tok), 1);
        assert_int_equal(pl_tokenizer_eos_id(tok), 2);
        assert_int_equal(pl_tokenizer_find(tok, "<s>"), 1);
        assert_true(pl_tokenizer_find(tok, "\n") > 2); // a piece of its own, not the byte
        assert_true(pl_tokenizer_find(tok, "<0x0A>") > 2);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            assert_round_trip(tok, texts[i], strlen(texts[i]), PL_TOK_ADD_BOS);
        assert_round_trip(tok, "a\0b\n", 4, 0);
        pl_corpus *c = small_corpus();
        assert_round_trip(tok, c->docs[0].text, c->docs[0].bytes, 0);
        pl_err   err;
        int32_t *ids;
        int64_t  n;
        assert_ok(pl_tokenizer_encode(tok, "12", 2, PL_TOK_ADD_BOS, &ids, &n, &err));
        assert_true(n >= 3); // digits stay apart
        assert_int_equal(ids[0], 1);
        pl_free(ids);
        pl_corpus_destroy(c);
        pl_tokenizer_close(tok);
    }
}

// Word by word is what the library gives for whole texts.
static void check_words(const char *path, const char *text, size_t n) {
    pl_err        err;
    uint8_t      *data;
    size_t        bytes;
    pl_spm       *lib;
    char          msg[256];
    int32_t      *a, *b;
    int64_t       na, nb;
    pl_tokenizer *tok = open_at(path);
    assert_ok(pl_file_read(path, &data, &bytes, 1 << 24, &err));
    assert_int_equal(pl_spm_open(&lib, data, bytes, msg, sizeof msg), 0);
    for (int round = 0; round < 2; round++) { // the second time from memory
        assert_ok(pl_tokenizer_encode(tok, text, n, 0, &a, &na, &err));
        assert_int_equal(pl_spm_encode(lib, text, n, &b, &nb, msg, sizeof msg), 0);
        assert_int_equal(na, nb);
        assert_memory_equal(a, b, (size_t)na * sizeof *a);
        pl_free(a);
        pl_free(b);
    }
    pl_spm_close(lib);
    pl_free(data);
    pl_tokenizer_close(tok);
}

static void test_words(void **state) {
    (void)state;
    static const char *const atoms[] = {" ", "  ", "\n", "the", "cat",  "\xC3\xA9", "\xE2\x96\x81", "\xE6\x97\xA5",
                                        "1", ".",  "a",  "\t",  " caf", "</s>",     " rain"};
    train(at("m.model"), &bpe);
    train(at("nobytes.model"), &(pl_spm_train_options){.vocab_size = 120, .quiet = true});
    char     text[4096];
    unsigned x = 1;
    for (int round = 0; round < 60; round++) {
        size_t n = 0;
        for (int i = 0; i < round; i++) {
            x = x * 1664525u + 1013904223u;
            const char *s = atoms[(x >> 12) % (sizeof atoms / sizeof *atoms)];
            memcpy(text + n, s, strlen(s));
            n += strlen(s);
        }
        check_words(at("m.model"), text, n);
        check_words(at("nobytes.model"), text, n);
    }
    pl_corpus *c = small_corpus();
    check_words(at("m.model"), c->docs[0].text, c->docs[0].bytes);
    pl_corpus_destroy(c);
    const char *llama = outside("tokenizers/llama2/tokenizer.model");
    if (!llama) return;
    char        path[600];
    const char *book[] = {path};
    snprintf(path, sizeof path, "%s", outside("text/gutenberg/Alice-s-Adventures-in-Wonderland_11.txt"));
    pl_err err;
    assert_ok(pl_corpus_read(&c, book, 1, (pl_text_options){0}, &err));
    check_words(outside("tokenizers/llama2/tokenizer.model"), c->docs[0].text, c->docs[0].bytes);
    pl_corpus_destroy(c);
}

static void test_deterministic(void **state) {
    (void)state;
    pl_spm_train_options o = bpe;
    train(at("a.model"), &o);
    train(at("b.model"), &o);
    assert_int_equal(hash_file(at("a.model")), hash_file(at("b.model")));
    pl_tokenizer *a = open_at(at("a.model")), *b = open_at(at("b.model"));
    assert_string_equal(pl_tokenizer_fingerprint(a), pl_tokenizer_fingerprint(b));
    pl_tokenizer_close(b);
    o.vocab_size = 350;
    train(at("b.model"), &o);
    b = open_at(at("b.model"));
    assert_string_not_equal(pl_tokenizer_fingerprint(a), pl_tokenizer_fingerprint(b));
    pl_tokenizer_close(a);
    pl_tokenizer_close(b);
    // A sample of lines depends on the seed and on nothing else.
    o = bpe;
    o.max_lines = 60;
    o.vocab_size = 330;
    o.seed = 1;
    train(at("a.model"), &o);
    train(at("b.model"), &o);
    assert_int_equal(hash_file(at("a.model")), hash_file(at("b.model")));
    o.seed = 2;
    train(at("b.model"), &o);
    assert_int_not_equal(hash_file(at("a.model")), hash_file(at("b.model")));
}

static void test_without_bytes(void **state) {
    (void)state;
    const pl_spm_train_options o = {.vocab_size = 120, .quiet = true, .character_coverage = 1};
    train(at("nobytes.model"), &o);
    pl_tokenizer *tok = open_at(at("nobytes.model"));
    pl_err        err;
    int32_t      *ids;
    int64_t       n;
    char         *text;
    size_t        len;
    assert_ok(pl_tokenizer_encode(tok, "cat \xE6\x97\xA5", 7, 0, &ids, &n, &err));
    assert_int_equal(ids[n - 1], 0);
    assert_ok(pl_tokenizer_decode(tok, ids, n, &text, &len, &err));
    assert_string_equal(text, "cat  \xE2\x81\x87 ");
    pl_free(text);
    pl_free(ids);
    pl_tokenizer_close(tok);
}

static void test_train_refused(void **state) {
    (void)state;
    pl_err               err;
    pl_corpus           *c = small_corpus();
    pl_spm_train_options o = bpe;
    o.vocab_size = 100000;
    assert_says(pl_spm_train(at("none.model"), c, &o, &err), PL_E_INPUT, &err, "Vocabulary size too high (100000)");
    assert_null(strstr(err.msg, ".cc"));
    assert_false(pl_path_exists(at("none.model")));
    o.vocab_size = 100; // fewer than the bytes
    assert_says(pl_spm_train(at("none.model"), c, &o, &err), PL_E_INPUT, &err, "none.model");
    o = bpe;
    o.model_type = "wordpiece";
    assert_says(pl_spm_train(at("none.model"), c, &o, &err), PL_E_USAGE, &err, "'wordpiece' is unknown");
    assert_says(pl_spm_train(at("no/such/dir.model"), c, &bpe, &err), PL_E_INPUT, &err, "dir.model");
    assert_false(pl_path_exists(at("none.model")));
    pl_corpus_destroy(c);
}

// ---- broken models

typedef struct model {
    uint8_t b[1 << 16];
    size_t  n;
} model;

static void put(model *m, const void *data, size_t n) {
    assert_true(m->n + n <= sizeof m->b);
    memcpy(m->b + m->n, data, n);
    m->n += n;
}

static void put_field(model *m, int number, const void *data, size_t n) {
    assert_true(n < 16384);
    put(m, (uint8_t[]){(uint8_t)(number << 3 | 2)}, 1);
    if (n > 127)
        put(m, (uint8_t[]){(uint8_t)(n | 0x80), (uint8_t)(n >> 7)}, 2);
    else
        put(m, (uint8_t[]){(uint8_t)n}, 1);
    put(m, data, n);
}

static void put_piece(model *m, const char *s, float score, int type) {
    model p = {.n = 0};
    put_field(&p, 1, s, strlen(s));
    put(&p, "\x15", 1);
    put(&p, &score, 4);
    put(&p, (uint8_t[]){0x18, (uint8_t)type}, 2);
    put_field(m, 1, p.b, p.n);
}

static void put_words(model *m) {
    put_piece(m, "<unk>", 0, PL_SPM_UNKNOWN);
    put_piece(m, "<s>", 0, PL_SPM_CONTROL);
    put_piece(m, "</s>", 0, PL_SPM_CONTROL);
    put_piece(m, "\xE2\x96\x81", -1, PL_SPM_NORMAL);
    put_piece(m, "a", -2, PL_SPM_NORMAL);
    put_piece(m, "b", -3, PL_SPM_NORMAL);
    put_piece(m, "ab", -0.5f, PL_SPM_NORMAL);
}

static void says(const model *m, const char *text) {
    pl_err        err;
    pl_tokenizer *tok;
    put_file(at("bad.model"), m->b, m->n);
    assert_refused(pl_tokenizer_open(&tok, at("bad.model"), &err), &err, text);
    assert_true(strstr(err.msg, "bad.model") != NULL);
    assert_null(tok);
}

static void test_hand_made(void **state) {
    (void)state;
    model m = {.n = 0};
    put_words(&m);
    put_field(&m, 2, "\x18\x02", 2); // trainer_spec.model_type BPE
    put_file(at("hand.model"), m.b, m.n);
    pl_tokenizer *tok = open_at(at("hand.model"));
    pl_err        err;
    int32_t      *ids;
    int64_t       n;
    assert_ok(pl_tokenizer_encode(tok, "ab ba", 5, 0, &ids, &n, &err));
    assert_int_equal(n, 5);
    assert_memory_equal(ids, ((int32_t[]){3, 6, 3, 5, 4}), 20);
    pl_free(ids);
    pl_tokenizer_close(tok);
}

// A normaliser's table of one block of units that replaces "x" by "y", and what is wrong with its neighbours.
static void put_charsmap(model *m, uint32_t root, uint32_t node, uint32_t leaf, uint32_t trie_bytes, size_t cut) {
    uint8_t  map[4 + 1024 + 4];
    uint32_t units[256] = {0};
    units[0] = root;
    units['x'] = node;
    units[1] = leaf;
    memcpy(map, &trie_bytes, 4);
    memcpy(map + 4, units, 1024);
    memcpy(map + 1028, "zy\0", 4); // the replacements: "zy", then an empty one
    model spec = {.n = 0};
    put_field(&spec, 2, map, sizeof map - cut);
    put_field(m, 3, spec.b, spec.n);
}

static void test_charsmap(void **state) {
    (void)state;
    // Unit layout of Darts-clone: label in the low 8 bits, 0x100 has a leaf, 0x200 long offset, offset << 10.
    const uint32_t root = 0, node = 'x' | 0x100u | ('x' ^ 1u) << 10, leaf = 0x80000000u | 1;
    model          m = {.n = 0};
    put_words(&m);
    size_t words = m.n;
    put_charsmap(&m, root, node, leaf, 1024, 0);
    put_file(at("map.model"), m.b, m.n);
    pl_tokenizer *tok = open_at(at("map.model"));
    pl_tokenizer_close(tok);
    const struct {
        uint32_t    root, node, leaf, bytes;
        size_t      cut;
        const char *says;
    } bad[] = {{root, node, leaf, 1024, 4, "replacements are cut"},
               {root, node, leaf, 1024, 1024, "trie does not fit"},
               {root, node, leaf, 1020, 0, "trie does not fit"},
               {root, node, leaf, 1 << 30, 0, "trie does not fit"},
               {root, node, leaf, 1024, 1029, "table is cut"},
               {1u << 20, node, leaf, 1024, 0, "trie leads outside"},
               {0x80000000u | 1u << 20, node, leaf, 1024, 0, "trie leads outside"}, // the root is walked whatever it is
               {root, 'x' | 0x300u | 0x1000u << 10, leaf, 1024, 0, "trie leads outside"},
               {root, node, 0x80000000u | 4, 1024, 0, "outside the replacements"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        m.n = words;
        put_charsmap(&m, bad[i].root, bad[i].node, bad[i].leaf, bad[i].bytes, bad[i].cut);
        says(&m, bad[i].says);
    }
}

static void test_broken(void **state) {
    (void)state;
    model m = {.n = 0}, ok = {.n = 0};
    put_words(&ok);
    put(&m, "\x12", 1);
    says(&m, "it ends inside a number");
    m.n = 0;
    put(&m,
        "\x0a\x7f"
        "abc",
        5);
    says(&m, "a field runs past the end");
    m.n = 0;
    put(&m, "\x0b\x0c", 2); // a group
    says(&m, "unknown wire type");
    m.n = 0;
    put(&m, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12);
    says(&m, "longer than 64 bits");
    m.n = 0;
    put(&m, "\x02\x00", 2);
    says(&m, "a field number is out of range");
    m.n = 0;
    put_field(&m, 2, "", 0);
    says(&m, "it has no pieces");
    m = ok;
    put_piece(&m, "", 0, 1);
    says(&m, "a piece is empty");
    m = ok;
    put_piece(&m, "\xff", 0, 1);
    says(&m, "a piece is not valid UTF-8");
    m = ok;
    put_piece(&m, "ab", 0, 1);
    says(&m, "a piece stands twice");
    m = ok;
    put_piece(&m, "q", 0, 9);
    says(&m, "a piece has an unknown type");
    m = ok;
    put_piece(&m, "q", 0.0f / (float)(m.n == 0), 1);
    says(&m, "score is not finite");
    m = ok;
    put_piece(&m, "q", 0, PL_SPM_UNKNOWN);
    says(&m, "exactly one unknown piece");
    m = ok;
    put_piece(&m, "<0x41>", 0, PL_SPM_BYTE);
    says(&m, "byte pieces and byte_fallback do not agree");
    m = ok;
    put_field(&m, 2, "\x98\x02\x01", 3); // byte_fallback without bytes
    says(&m, "byte pieces and byte_fallback do not agree");
    m = ok;
    put_field(&m, 2, "\x18\x09", 2);
    says(&m, "its model type is unknown");
    m = ok;
    put_field(&m, 2, "\xc0\x01\x01", 3);
    says(&m, "treat_whitespace_as_suffix is not supported");
    m = ok;
    put_field(&m, 3, "\x28\x00", 2);
    says(&m, "escape_whitespaces=false is not supported");
    m = ok;
    put_field(&m, 5, "\x12\x01x", 3);
    says(&m, "a denormalizer is not supported");
    m = ok;
    put(&m, "\x10\x01", 2); // trainer_spec as a number
    says(&m, "a field has the wrong type");
    put_text(at("text.model"), "hello, this is not a model at all");
    pl_err        err;
    pl_tokenizer *tok;
    assert_says(pl_tokenizer_open(&tok, at("text.model"), &err), PL_E_INPUT, &err, "broken SentencePiece model");
}

// Whatever the bytes: an error or a tokenizer that works, never a crash.
static void test_any_bytes(void **state) {
    (void)state;
    pl_err   err;
    uint8_t *data, *bad;
    size_t   n;
    int      opened = 0;
    unsigned x = 11;
    train(at("m.model"), &bpe);
    assert_ok(pl_file_read(at("m.model"), &data, &n, 1 << 24, &err));
    bad = malloc(n);
    assert_non_null(bad);
    for (int round = 0; round < 600; round++) {
        memcpy(bad, data, n);
        size_t len = n;
        for (int i = 0; i <= round % 4; i++) {
            x = x * 1664525u + 1013904223u;
            bad[(x >> 4) % n] = (uint8_t)(x >> 24);
        }
        if (round % 5 == 0) len = (x >> 3) % n;
        put_file(at("fuzz.model"), bad, len);
        pl_tokenizer *tok;
        pl_status     st = pl_tokenizer_open(&tok, at("fuzz.model"), &err);
        if (st != PL_OK) {
            assert_int_equal(st, PL_E_INPUT);
            assert_null(strchr(err.msg, '\n'));
            continue;
        }
        opened++;
        int32_t *ids;
        int64_t  m;
        assert_ok(pl_tokenizer_encode(tok, "the cat sat\n\xC3\xA9 12", 17, 0, &ids, &m, &err));
        for (int64_t i = 0; i < m; i++)
            assert_in_range(ids[i], 0, pl_tokenizer_vocab_size(tok) - 1);
        pl_free(ids);
        pl_tokenizer_close(tok);
    }
    assert_true(opened > 50); // a flipped score or letter is no error
    free(bad);
    pl_free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),   cmocka_unit_test(test_words),
        cmocka_unit_test(test_deterministic), cmocka_unit_test(test_without_bytes),
        cmocka_unit_test(test_train_refused), cmocka_unit_test(test_hand_made),
        cmocka_unit_test(test_charsmap),      cmocka_unit_test(test_broken),
        cmocka_unit_test(test_any_bytes),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
