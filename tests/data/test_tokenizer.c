// The tokenizer's interface, the tokenizer.json and llama2.c kinds; all files are made here.
#include "data/tokenizer/tokenizer.h"
#include "golden_hf.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/utf8.h"
#include "tok_fixture.h"
#include <pthread.h>

enum { GOLDEN = sizeof golden_tokenizers / sizeof *golden_tokenizers };

static void put_golden(const char *path, const golden_tokenizer *g) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "{%s,\"model\":{%s,", g->head, g->settings);
    for (size_t i = 0; i < sizeof golden_model / sizeof *golden_model; i++)
        fputs(golden_model[i], f);
    fputs("}}", f);
    assert_int_equal(fclose(f), 0);
}

static pl_tokenizer *open_golden(int i) {
    pl_err        err;
    pl_tokenizer *tok;
    put_golden(at("tokenizer.json"), &golden_tokenizers[i]);
    assert_ok(pl_tokenizer_open(&tok, at("tokenizer.json"), &err));
    return tok;
}

static void test_golden_encode(void **state) {
    (void)state;
    pl_err err;
    for (int i = 0; i < GOLDEN; i++) {
        const golden_tokenizer *g = &golden_tokenizers[i];
        pl_tokenizer           *tok = open_golden(i);
        assert_string_equal(pl_tokenizer_kind(tok), "huggingface");
        assert_int_equal(pl_tokenizer_adds_bos(tok), g->n_bos);
        for (size_t k = 0; k < sizeof g->cases / sizeof *g->cases; k++) {
            const golden_case *c = &g->cases[k];
            int32_t           *ids;
            int64_t            n;
            assert_ok(pl_tokenizer_encode(tok, c->text, (size_t)c->n_bytes, 0, &ids, &n, &err));
            bool same = n == c->n;
            for (int64_t t = 0; t < n && same; t++)
                same = ids[t] == c->ids[t];
            if (!same) fail_msg("%s: \"%s\": %d ids, wanted %d", g->name, c->text, (int)n, c->n);
            pl_free(ids);
            assert_ok(pl_tokenizer_encode(tok, c->text, (size_t)c->n_bytes, PL_TOK_ADD_BOS, &ids, &n, &err));
            assert_int_equal(n, c->n + g->n_bos);
            if (g->n_bos) assert_int_equal(ids[0], pl_tokenizer_bos_id(tok));
            pl_free(ids);
        }
        pl_tokenizer_close(tok);
    }
}

static void test_golden_decode(void **state) {
    (void)state;
    pl_err err;
    for (int i = 0; i < GOLDEN; i++) {
        const golden_tokenizer *g = &golden_tokenizers[i];
        pl_tokenizer           *tok = open_golden(i);
        for (size_t k = 0; k < sizeof g->cases / sizeof *g->cases; k++) {
            const golden_case *c = &g->cases[k];
            char              *text;
            size_t             n;
            assert_ok(pl_tokenizer_decode(tok, c->ids, c->n, &text, &n, &err));
            assert_int_equal(strlen(text), n);
            if (strcmp(text, c->decoded) != 0)
                fail_msg("%s: \"%s\" gives \"%s\", wanted \"%s\"", g->name, c->text, text, c->decoded);
            pl_free(text);
        }
        pl_tokenizer_close(tok);
    }
}

static void test_no_special(void **state) {
    (void)state;
    pl_err        err;
    pl_tokenizer *tok = open_golden(0);
    int32_t      *ids;
    int64_t       n;
    const char   *text = "</s>the<s><|end|>x";
    assert_ok(pl_tokenizer_encode(tok, text, strlen(text), PL_TOK_NO_SPECIAL, &ids, &n, &err));
    for (int64_t i = 0; i < n; i++)
        assert_false(pl_tokenizer_is_special(tok, ids[i]));
    // "<|end|>x" is added but not special: it is still found.
    assert_int_equal(ids[n - 1], pl_tokenizer_find(tok, "<|end|>x"));
    pl_free(ids);
    assert_round_trip(tok, text, strlen(text), PL_TOK_NO_SPECIAL);
    pl_tokenizer_close(tok);
}

// Blanks that are an added token, behind one that takes in the blanks behind it: ids of `tokenizers` 0.23.3, which does
// not survive what is marked.
static void test_added_blanks(void **state) {
    (void)state;
    static const struct {
        bool        lstrip;
        const char *text;
        int         n;
        int32_t     ids[4];
    } cases[] = {{true, "<x>  a", 2, {2, 0}},         {true, "<x> a", 2, {2, 0}},
                 {true, "a    a", 4, {0, 3, 3, 0}},   {true, "<x>   a", 2, {2, 0}}, // marked
                 {false, "<x>  a", 3, {2, 3, 0}},     {false, "<x>   a", 4, {2, 3, 1, 0}},
                 {false, "<x>     ", 4, {2, 3, 3, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err        err;
        pl_tokenizer *tok;
        int32_t      *ids;
        int64_t       n;
        char          json[1024];
        snprintf(
            json, sizeof json,
            "{\"added_tokens\":[{\"id\":2,\"content\":\"<x>\",\"rstrip\":true,\"special\":true},"
            "{\"id\":3,\"content\":\"  \",\"lstrip\":%s,\"special\":true}],\"normalizer\":{\"type\":\"Replace\","
            "\"pattern\":{\"String\":\" \"},\"content\":\"_\"},\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Fuse\"},"
            "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"_\":1},\"merges\":[]}}",
            cases[i].lstrip ? "true" : "false");
        put_text(at("tokenizer.json"), json);
        assert_ok(pl_tokenizer_open(&tok, at("tokenizer.json"), &err));
        assert_ok(pl_tokenizer_encode(tok, cases[i].text, strlen(cases[i].text), 0, &ids, &n, &err));
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(ids, cases[i].ids, (size_t)n * sizeof *ids);
        pl_free(ids);
        pl_tokenizer_close(tok);
    }
}

// ---- streaming

static void check_stream(const pl_tokenizer *tok, const int32_t *ids, int64_t n) {
    pl_err      err;
    pl_detok    d;
    pl_strbuf   b = {0};
    char       *whole;
    size_t      len, m;
    const char *s;
    assert_ok(pl_tokenizer_decode(tok, ids, n, &whole, &len, &err));
    assert_ok(pl_detok_init(&d, tok, true, &err));
    for (int64_t i = 0; i < n; i++) {
        uint64_t before = pl_alloc_count();
        m = pl_detok_push(&d, ids[i], &s);
        assert_int_equal(pl_alloc_count(), before);
        assert_int_equal(pl_utf8_valid(s, m), m);
        pl_strbuf_add(&b, s, m);
    }
    m = pl_detok_flush(&d, &s);
    pl_strbuf_add(&b, s, m);
    assert_int_equal(b.n, len);
    if (len) assert_memory_equal(b.s, whole, len);
    pl_strbuf_fini(&b);
    pl_free(whole);
    pl_detok_fini(&d);
}

static void test_stream_any_ids(void **state) {
    (void)state;
    pl_tokenizer *toks[] = {open_golden(0), open_golden(2), tiny_open()};
    unsigned      x = 7;
    for (int k = 0; k < 3; k++) {
        for (int round = 0; round < 200; round++) {
            int32_t ids[40];
            for (int i = 0; i < 40; i++) {
                x = x * 1664525u + 1013904223u;
                ids[i] = (int32_t)((x >> 8) % (unsigned)pl_tokenizer_vocab_size(toks[k]));
            }
            check_stream(toks[k], ids, 40);
        }
        pl_tokenizer_close(toks[k]);
    }
}

static void test_stream_bytes(void **state) {
    (void)state;
    pl_err        err;
    pl_tokenizer *tok = tiny_open();
    pl_detok      d;
    const char   *s;
    // E2 82 AC is the euro sign; it appears with its last byte.
    assert_ok(pl_detok_init(&d, tok, true, &err));
    assert_int_equal(pl_detok_push(&d, 3 + 0xe2, &s), 0);
    assert_int_equal(pl_detok_push(&d, 3 + 0x82, &s), 0);
    assert_int_equal(pl_detok_push(&d, 3 + 0xac, &s), 3);
    assert_memory_equal(s, "\xE2\x82\xAC", 3);
    // A byte that breaks the character: both waiting bytes are given up, the newcomer shows.
    assert_int_equal(pl_detok_push(&d, 3 + 0xe2, &s), 0);
    assert_int_equal(pl_detok_push(&d, 3 + 0x82, &s), 0);
    assert_int_equal(pl_detok_push(&d, pl_tokenizer_find(tok, "cat"), &s), 9);
    assert_memory_equal(s,
                        "\xEF\xBF\xBD\xEF\xBF\xBD"
                        "cat",
                        9);
    assert_int_equal(pl_detok_push(&d, 3 + 0xf0, &s), 0);
    assert_int_equal(pl_detok_push(&d, -1, &s), 0);
    assert_int_equal(pl_detok_push(&d, TINY_VOCAB, &s), 0);
    assert_int_equal(pl_detok_flush(&d, &s), 3);
    assert_memory_equal(s, "\xEF\xBF\xBD", 3);
    assert_int_equal(pl_detok_flush(&d, &s), 0);
    pl_detok_fini(&d);
    // The dummy space goes once, at the start only, and not at all when a prompt is continued.
    int32_t cat = pl_tokenizer_find(tok, " cat");
    assert_ok(pl_detok_init(&d, tok, true, &err));
    assert_int_equal(pl_detok_push(&d, 1, &s), 0); // BOS shows nothing
    assert_int_equal(pl_detok_push(&d, cat, &s), 3);
    assert_int_equal(pl_detok_push(&d, cat, &s), 4);
    pl_detok_fini(&d);
    assert_ok(pl_detok_init(&d, tok, false, &err));
    assert_int_equal(pl_detok_push(&d, cat, &s), 4);
    pl_detok_fini(&d);
    pl_tokenizer_close(tok);
}

// ---- llama2.c

// The algorithm of llama2.c's run.c, step by step, over the fixture's table.
static int tiny_lookup(const char *s) {
    for (int id = 0; id < TINY_VOCAB; id++) {
        char  piece[32];
        float score;
        tiny_piece(id, piece, &score);
        if (strcmp(piece, s) == 0) return id;
    }
    return -1;
}

static int naive_encode(const char *text, int *tokens) {
    int  n = 0;
    char piece[64], other[32];
    if (text[0]) tokens[n++] = tiny_lookup(" ");
    size_t len = 0;
    for (const char *c = text; *c; c++) {
        if ((*c & 0xC0) != 0x80) len = 0;
        piece[len++] = *c;
        piece[len] = 0;
        if ((c[1] & 0xC0) == 0x80 && len < 4) continue;
        int id = tiny_lookup(piece);
        if (id != -1)
            tokens[n++] = id;
        else
            for (size_t i = 0; i < len; i++)
                tokens[n++] = (unsigned char)piece[i] + 3;
        len = 0;
    }
    for (;;) {
        float best = -1e10f, score;
        int   best_id = -1, best_at = -1;
        for (int i = 0; i < n - 1; i++) {
            tiny_piece(tokens[i], piece, &score);
            tiny_piece(tokens[i + 1], other, &score);
            strcat(piece, other);
            int id = tiny_lookup(piece);
            if (id == -1) continue;
            tiny_piece(id, piece, &score);
            if (score > best) {
                best = score;
                best_id = id;
                best_at = i;
            }
        }
        if (best_at == -1) return n;
        tokens[best_at] = best_id;
        for (int i = best_at + 1; i < n - 1; i++)
            tokens[i] = tokens[i + 1];
        n--;
    }
}

static void check_run_c(void) {
    static const char *const atoms[] = {
        " ", "t", "h", "e", "a", "c", "n", "d", "\n", "\xC3\xA9", "\xE6\x97\xA5", "z", "the", "cat", " and", "aaaa"};
    pl_err        err;
    pl_tokenizer *tok = tiny_open();
    unsigned      x = 3;
    for (int round = 0; round < 400; round++) {
        char text[160] = "";
        int  want[200], len = round % 23;
        for (int i = 0; i < len; i++) {
            x = x * 1664525u + 1013904223u;
            strcat(text, atoms[(x >> 10) % (sizeof atoms / sizeof *atoms)]);
        }
        int      m = naive_encode(text, want);
        int32_t *ids;
        int64_t  n;
        assert_ok(pl_tokenizer_encode(tok, text, strlen(text), PL_TOK_ADD_BOS, &ids, &n, &err));
        assert_int_equal(ids[0], 1);
        assert_int_equal(n, m + 1);
        for (int i = 0; i < m; i++)
            if (ids[i + 1] != want[i]) fail_msg("\"%s\": id %d is %d, wanted %d", text, i, ids[i + 1], want[i]);
        check_stream(tok, ids, n);
        pl_free(ids);
        assert_round_trip(tok, text, strlen(text), 0);
    }
    assert_round_trip(tok, "a\0b", 3, 0);
    assert_int_equal(pl_tokenizer_bos_id(tok), 1);
    assert_int_equal(pl_tokenizer_eos_id(tok), 2);
    assert_int_equal(pl_tokenizer_vocab_size(tok), TINY_VOCAB);
    assert_string_equal(pl_tokenizer_kind(tok), "llama2c");
    assert_string_equal(pl_tokenizer_piece(tok, 259 + 12), "the");
    pl_tokenizer_close(tok);
}

static void test_llama2c_equals_run_c(void **state) {
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        tiny_apart = apart;
        check_run_c();
    }
    tiny_apart = false;
}

// Threads share one tokenizer: whoever finds its memory of words in use does without, with the same ids.
static void *encode_again(void *arg) {
    const pl_tokenizer *tok = arg;
    static const char   text[] = "the cat and the cat and a cat ate the cat the the an and and cat";
    int32_t            *first = NULL;
    int64_t             n = 0;
    intptr_t            different = 0;
    for (int i = 0; i < 300; i++) {
        int32_t *ids;
        int64_t  m;
        if (pl_tokenizer_encode(tok, text, sizeof text - 1, 0, &ids, &m, NULL) != PL_OK) return (void *)1;
        if (!first) {
            first = ids;
            n = m;
            continue;
        }
        different += m != n || memcmp(ids, first, (size_t)n * sizeof *ids) != 0;
        pl_free(ids);
    }
    pl_free(first);
    return (void *)different;
}

static void test_threads(void **state) {
    (void)state;
    tiny_apart = true;
    pl_tokenizer *tok = tiny_open();
    pthread_t     t[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, encode_again, tok), 0);
    for (int i = 0; i < 3; i++) {
        void *different;
        assert_int_equal(pthread_join(t[i], &different), 0);
        assert_null(different);
    }
    pl_tokenizer_close(tok);
    tiny_apart = false;
}

// Small vocabularies have no pieces for bytes, or not for all: only a text that needs one of those is refused.
static void test_llama2c_small(void **state) {
    (void)state;
    static const char *const piece[] = {"<unk>", "\n<s>\n", "\n</s>\n", "<0x00>", " ", "a", "b", "ab", " ab"};
    enum { N = sizeof piece / sizeof *piece };
    static const int32_t want[] = {8, 8, 4, 3, 6};
    static const struct {
        const char *text;
        size_t      n;
        const char *says;
    } bad[] = {
        {"ab abc", 6, "byte 0x63 ('c')"},
        {"caf\xC3\xA9", 5, "byte 0x63 ('c')"},
        {"a\xC3\xA9", 3, "byte 0xc3"},
        {"a\001", 2, "byte 0x01"}, // whose place is the space's
    };
    pl_err        err;
    pl_tokenizer *tok;
    uint8_t       bin[512];
    int32_t       longest = 8, *ids;
    size_t        used = 4;
    int64_t       n;
    memcpy(bin, &longest, 4);
    for (int i = 0; i < N; i++) {
        float   score = (float)i;
        int32_t len = (int32_t)strlen(piece[i]);
        memcpy(bin + used, &score, 4);
        memcpy(bin + used + 4, &len, 4);
        memcpy(bin + used + 8, piece[i], (size_t)len);
        used += 8 + (size_t)len;
    }
    put_file(at("small.bin"), bin, used);
    assert_ok(pl_tokenizer_open(&tok, at("small.bin"), &err));
    assert_int_equal(pl_tokenizer_vocab_size(tok), N);
    assert_ok(pl_tokenizer_encode(tok, "ab ab \0b", 8, 0, &ids, &n, &err));
    assert_int_equal(n, 5);
    assert_memory_equal(ids, want, sizeof want);
    pl_free(ids);
    assert_round_trip(tok, "ab ab \0b", 8, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_says(pl_tokenizer_encode(tok, bad[i].text, bad[i].n, 0, &ids, &n, &err), PL_E_INPUT, &err, bad[i].says);
    pl_tokenizer_close(tok);
}

static void test_llama2c_broken(void **state) {
    (void)state;
    uint8_t       bin[8192], bad[8192];
    pl_err        err;
    pl_tokenizer *tok;
    size_t        n = tiny_bin(bin);
    int           opened = 0;
    for (size_t cut = 1; cut < n; cut++) {
        put_file(at("cut.bin"), bin, cut);
        pl_status st = pl_tokenizer_open(&tok, at("cut.bin"), &err);
        if (st == PL_OK)
            opened++;
        else
            assert_int_equal(st, PL_E_INPUT);
        pl_tokenizer_close(tok);
    }
    assert_true(opened < TINY_VOCAB); // only cuts exactly behind a piece make a (smaller) tokenizer
    put_file(at("cut.bin"), bin, n - 1);
    assert_says(pl_tokenizer_open(&tok, at("cut.bin"), &err), PL_E_INPUT, &err, "runs past the end of the file");
    assert_null(tok);
    memcpy(bad, bin, n);
    memset(bad, 0xff, 4);
    put_file(at("bad.bin"), bad, n);
    assert_says(pl_tokenizer_open(&tok, at("bad.bin"), &err), PL_E_INPUT, &err, "not a llama2.c tokenizer");
    memcpy(bad, bin, n);
    memset(bad + 8, 0x7f, 4); // the first length
    put_file(at("bad.bin"), bad, n);
    assert_says(pl_tokenizer_open(&tok, at("bad.bin"), &err), PL_E_INPUT, &err, "piece 0 at byte 4 runs past the end");
    memcpy(bad, bin, n);
    memcpy(bad + 4, "\x00\x00\xc0\x7f", 4); // a NaN score
    put_file(at("bad.bin"), bad, n);
    assert_says(pl_tokenizer_open(&tok, at("bad.bin"), &err), PL_E_INPUT, &err, "score of piece 0 is not finite");
    put_file(at("empty.bin"), bin, 0);
    assert_says(pl_tokenizer_open(&tok, at("empty.bin"), &err), PL_E_INPUT, &err, "is empty");
}

// ---- what is refused

// golden 0 with one part of its JSON replaced.
static void put_changed(const char *from, const char *to) {
    pl_strbuf b = {0};
    char      path[600];
    snprintf(path, sizeof path, "%s", at("changed.json"));
    put_golden(path, &golden_tokenizers[0]);
    pl_err   err;
    uint8_t *data;
    size_t   n;
    assert_ok(pl_file_read(path, &data, &n, 1 << 24, &err));
    char *there = strstr((char *)data, from);
    if (!there) fail_msg("'%s' is not in the golden file", from);
    pl_strbuf_add(&b, (char *)data, (size_t)(there - (char *)data));
    pl_strbuf_add(&b, to, strlen(to));
    pl_strbuf_add(&b, there + strlen(from), strlen(there + strlen(from)));
    put_file(path, b.s, b.n);
    pl_strbuf_fini(&b);
    pl_free(data);
}

static void test_json_refused(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"type\":\"BPE\"", "\"type\":\"WordPiece\"", "model type 'WordPiece' is not supported"},
        {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model.vocab: expected an array"},
        {"\"type\":\"Prepend\"", "\"type\":\"Nmt\"", "normalizer 'Nmt' is not supported"},
        {"\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}",
         "ByteLevel stands among the pre-tokenizers alone"},
        {"\"type\":\"Fuse\"", "\"type\":\"WordPiece\"", "decoder 'WordPiece' is not supported"},
        {"\"start\":1", "\"start\":2", "decoder.decoders[3].start"},
        {"\"type\":\"TemplateProcessing\"", "\"type\":\"BertProcessing\"",
         "post_processor 'BertProcessing' is not supported"},
        {"[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]",
         "[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}]",
         "TemplateProcessing with a token behind the text"},
        {"\"dropout\":null", "\"dropout\":0.1", "'dropout' is not supported"},
        {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "end_of_word_suffix '</w>'"},
        {"\"pattern\":{\"String\":\" \"}", "\"pattern\":{\"Regex\":\"(\"}", "regular expression '('"},
        {"\"unk_token\":\"<unk>\"", "\"unk_token\":\"<nope>\"", "model.unk_token: it is not in the vocabulary"},
        {"\"<0x01>\":4", "\"<0x01>\":3", "token id 3 is given twice"},
        {"\"<0x01>\":4", "\"<0x01>\":-1", "model.vocab"},
        {"\"<0x01>\":4", "\"<0x01>\":1e12", "model.vocab"},
        {"\"<0x01>\":4", "\"<0x01>\":\"x\"", "expected a non-negative integer"},
        {"\"version\":", "\"model\":{},\"version\":", "model: the key is there twice"},
        {"\"merges\":[\"", "\"merges\":[\"qqq ", "model.merges[0]"},
        {"\"merges\":[", "\"merges\":[7,", "model.merges[0]"},
        {"\"merges\":[", "\"merges\":[[\"a\"],", "a merge has two parts"},
        {"\"id\":1,\"content\":\"<s>\"", "\"id\":9,\"content\":\"<s>\"", "'<s>' has id 1 in the vocabulary, 9 here"},
        {"\"id\":380", "\"id\":379", "token id 379 is given twice"},
        {"}}", "}", "not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err        err;
        pl_tokenizer *tok;
        put_changed(cases[i].from, cases[i].to);
        assert_refused(pl_tokenizer_open(&tok, at("changed.json"), &err), &err, cases[i].says);
        assert_true(strstr(err.msg, "changed.json") != NULL);
        assert_null(tok);
    }
}

static void test_open_refused(void **state) {
    (void)state;
    pl_err        err;
    pl_tokenizer *tok;
    assert_says(pl_tokenizer_open(&tok, at("nowhere"), &err), PL_E_INPUT, &err, "nowhere");
    assert_ok(pl_dir_make(at("void"), &err));
    assert_says(pl_tokenizer_open(&tok, at("void"), &err), PL_E_INPUT, &err,
                "no tokenizer.json, tokenizer.model, vocab.json");
    put_text(at("tokenizer.tiktoken"), "IQ== 0\nIg== 1\n");
    assert_says(pl_tokenizer_open(&tok, at("tokenizer.tiktoken"), &err), PL_E_INPUT, &err,
                "tokenizer.tiktoken: byte 0x00 has no rank");
    tok = tiny_open();
    int32_t *ids;
    int64_t  n;
    assert_says(pl_tokenizer_encode(tok,
                                    "ab\xff"
                                    "c",
                                    4, 0, &ids, &n, &err),
                PL_E_INPUT, &err, "not valid UTF-8 at byte 2 (0xff)");
    assert_null(ids);
    assert_says(pl_tokenizer_encode(tok, "a\xE2\x82", 3, 0, &ids, &n, &err), PL_E_INPUT, &err, "at byte 1");
    char  *text;
    size_t len;
    assert_says(pl_tokenizer_decode(tok, (int32_t[]){5, TINY_VOCAB}, 2, &text, &len, &err), PL_E_INPUT, &err,
                "outside the vocabulary, 0..285");
    assert_says(pl_tokenizer_decode(tok, (int32_t[]){-1}, 1, &text, &len, &err), PL_E_INPUT, &err, "token id -1");
    assert_null(text);
    pl_tokenizer_close(tok);
    pl_tokenizer_close(NULL);
}

// ---- the folder, its configuration, the fingerprint

static void test_folder_and_config(void **state) {
    (void)state;
    pl_err        err;
    pl_tokenizer *tok;
    char          before[17];
    assert_ok(pl_dir_make(at("model"), &err));
    put_golden(at("model/tokenizer.json"), &golden_tokenizers[0]);
    assert_ok(pl_tokenizer_open(&tok, at("model"), &err));
    assert_true(pl_tokenizer_adds_bos(tok));
    assert_int_equal(pl_tokenizer_bos_id(tok), 1);
    assert_int_equal(pl_tokenizer_eos_id(tok), 2);
    strcpy(before, pl_tokenizer_fingerprint(tok));
    assert_int_equal(strlen(before), 16);
    pl_tokenizer_close(tok);
    put_text(at("model/tokenizer_config.json"),
             "{\"add_bos_token\":false,\"bos_token\":{\"content\":\"<mask>\"},\"eos_token\":\"<|end|>\"}");
    assert_ok(pl_tokenizer_open(&tok, at("model"), &err));
    assert_false(pl_tokenizer_adds_bos(tok));
    assert_int_equal(pl_tokenizer_bos_id(tok), pl_tokenizer_find(tok, "<mask>"));
    assert_int_equal(pl_tokenizer_eos_id(tok), pl_tokenizer_find(tok, "<|end|>"));
    assert_string_equal(pl_tokenizer_fingerprint(tok), before); // ids mean the same
    int32_t *ids;
    int64_t  n;
    assert_ok(pl_tokenizer_encode(tok, "the", 3, PL_TOK_ADD_BOS, &ids, &n, &err));
    assert_int_equal(n, 1);
    pl_free(ids);
    pl_tokenizer_close(tok);
    put_text(at("model/tokenizer_config.json"), "{\"eos_token\":5}");
    assert_says(pl_tokenizer_open(&tok, at("model"), &err), PL_E_INPUT, &err, "eos_token: expected a string, found 5");
    put_text(at("model/tokenizer_config.json"), "{\"add_eos_token\":true}");
    assert_says(pl_tokenizer_open(&tok, at("model"), &err), PL_E_INPUT, &err, "add_eos_token");
    put_text(at("model/tokenizer_config.json"), "{\"split_special_tokens\":true}");
    char  *said = NULL;
    size_t n_said;
    FILE  *f = open_memstream(&said, &n_said);
    pl_log_to(f);
    assert_ok(pl_tokenizer_open(&tok, at("model"), &err));
    pl_log_to(NULL);
    fclose(f);
    assert_non_null(strstr(said, "split_special_tokens: true is not followed"));
    free(said);
    pl_tokenizer_close(tok);
    put_text(at("model/tokenizer_config.json"), "{\"add_bos_token\":\"yes\"}");
    assert_says(pl_tokenizer_open(&tok, at("model"), &err), PL_E_INPUT, &err, "add_bos_token");
    put_text(at("model/tokenizer_config.json"), "{");
    assert_says(pl_tokenizer_open(&tok, at("model"), &err), PL_E_INPUT, &err, "tokenizer_config.json:1:");
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"};
    put_text(at("model/tokenizer_config.json"), "{}");
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "model/%s", files[i]);
        put_text(at(name), "{\"eos_token\": 1, \"eos_token\": 2}");
        assert_says(pl_tokenizer_open(&tok, at("model"), &err), PL_E_INPUT, &err, "eos_token: the key is there twice");
        put_text(at(name), "[8]");
        assert_says(pl_tokenizer_open(&tok, at("model"), &err), PL_E_INPUT, &err, "not an object");
        put_text(at(name), "{}");
    }
}

// The files beside tokenizer.json, and odd vocabularies, as transformers and tokenizers have them
// (make_golden_tokenizer_files.py).
static void put_line(const pl_json *j) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};
    const cJSON             *files = cJSON_GetObjectItem(j->root, "files");
    for (int i = 0; i < 4; i++) {
        const cJSON *file = cJSON_GetObjectItem(files, names[i]);
        char         path[64];
        snprintf(path, sizeof path, "beside/%s", names[i]);
        unlink(at(path));
        if (file) put_text(at(path), file->valuestring);
    }
}

static size_t nul_bytes(char *s) {
    size_t n = strlen(s), m = 0;
    for (size_t i = 0; i < n; i++, m++) {
        bool nul = strncmp(s + i, PL_JSON_NUL_BYTES, 2) == 0;
        s[m] = nul ? 0 : s[i];
        i += nul;
    }
    return m;
}

static void ids_are(const pl_tokenizer *tok, const char *name, const cJSON *text, const cJSON *want) {
    int32_t  *ids;
    int64_t   n;
    pl_err    err;
    size_t    bytes = nul_bytes(text->valuestring);
    pl_status st = pl_tokenizer_encode(tok, text->valuestring, bytes, 0, &ids, &n, &err);
    if (st != PL_OK) fail_msg("%s: %s", name, err.msg);
    if (n != cJSON_GetArraySize(want)) fail_msg("%s: '%s': %lld ids", name, text->valuestring, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] != cJSON_GetArrayItem(want, (int)i)->valueint)
            fail_msg("%s: '%s': id %lld is %d", name, text->valuestring, (long long)i, ids[i]);
    pl_free(ids);
}

static void test_files_beside(void **state) {
    (void)state;
    pl_err   err;
    uint8_t *file;
    size_t   n;
    int      lines = 0;
    assert_ok(pl_dir_make(at("beside"), &err));
    assert_ok(pl_file_read(PACELINE_SOURCE_DIR "/tests/data/golden_tokenizer_files.jsonl", &file, &n, 1 << 20, &err));
    for (char *line = strtok((char *)file, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        pl_json       j;
        pl_tokenizer *tok;
        char         *said = NULL;
        assert_ok(pl_json_parse(&j, "golden", 0, line, strlen(line), PL_JSON_NUL, &err));
        const char  *name = cJSON_GetObjectItem(j.root, "name")->valuestring;
        const cJSON *texts = cJSON_GetObjectItem(j.root, "texts"), *ids = cJSON_GetObjectItem(j.root, "ids");
        put_line(&j);
        FILE *f = open_memstream(&said, &n);
        pl_log_to(f);
        pl_status st = pl_tokenizer_open(&tok, at("beside"), &err);
        pl_log_to(NULL);
        fclose(f);
        if (st != PL_OK) fail_msg("%s: %s", name, err.msg);
        if (pl_tokenizer_bos_id(tok) != cJSON_GetObjectItem(j.root, "bos")->valueint ||
            pl_tokenizer_eos_id(tok) != cJSON_GetObjectItem(j.root, "eos")->valueint)
            fail_msg("%s: BOS %d, EOS %d", name, pl_tokenizer_bos_id(tok), pl_tokenizer_eos_id(tok));
        if (pl_tokenizer_states_eos(tok) != (pl_tokenizer_eos_id(tok) >= 0)) fail_msg("%s: states no EOS", name);
        if ((*said != 0) != cJSON_IsTrue(cJSON_GetObjectItem(j.root, "warns"))) fail_msg("%s: said \"%s\"", name, said);
        for (int i = 0; i < cJSON_GetArraySize(texts); i++)
            ids_are(tok, name, cJSON_GetArrayItem(texts, i), cJSON_GetArrayItem(ids, i));
        free(said);
        pl_tokenizer_close(tok);
        pl_json_close(&j);
    }
    assert_true(lines > 30);
    pl_free(file);
}

// Classes of tokenizer_config.json that transformers 5.24 makes anew from the vocabulary (tokenization_gpt2.py, ...), but
// not for types of models that tokenization_auto.py maps to TokenizersBackend.
static void test_classes(void **state) {
    (void)state;
#define LEVEL(regex, prefix) "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"use_regex\":" regex "}"
#define SPLIT(pattern)                                                                                                 \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern                  \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}," LEVEL("false", "false") "]}"
#define DIGITS                                                                                                         \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}," LEVEL("true",        \
                                                                                                        "false") "]}"
#define NFC "{\"type\":\"NFC\"}"
    static const char qwen[] = SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
                                     "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"
                                     "\\\\s+");
    static const char llama3[] =
        SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
              "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+");
    static const char gpt2[] = LEVEL("true", "false"), prefixed[] = LEVEL("true", "true");
    static const struct {
        const char *normalizer, *pre, *config, *model;
        bool        warns;
    } cases[] = {
        {NFC, qwen, "\"tokenizer_class\":\"Qwen2Tokenizer\"", "qwen3", false},
        {NFC, qwen, "\"tokenizer_class\":\"Qwen2TokenizerFast\"", "qwen3", false},
        {"null", qwen, "\"tokenizer_class\":\"Qwen2Tokenizer\"", "qwen3", true},
        {NFC, llama3, "\"tokenizer_class\":\"Qwen2TokenizerFast\"", "qwen3", true},
        {NFC, llama3, "\"tokenizer_class\":\"PreTrainedTokenizerFast\"", "llama", false},
        {NFC, llama3, "\"tokenizer_class\":\"Qwen2TokenizerOfOurs\"", "llama", false},
        {NFC, llama3, "\"tokenizer_class\":\"Qwen2Tokenizer\"", "phi3", false},
        {NFC, llama3, "\"tokenizer_class\":\"GPT2Tokenizer\"", "llama", true},
        {"null", gpt2, "\"tokenizer_class\":\"GPT2TokenizerFast\"", "llama", false},
        {"null", prefixed, "\"tokenizer_class\":\"GPT2Tokenizer\"", "llama", true},
        {"null", prefixed, "\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":true", "llama", false},
        {NFC, gpt2, "\"tokenizer_class\":\"GPT2Tokenizer\"", "llama", true},
        {NFC, gpt2, "\"tokenizer_class\":\"GPTNeoXTokenizerFast\"", "llama", false},
        {NFC, DIGITS, "\"tokenizer_class\":\"CohereTokenizer\"", "llama", false},
        {NFC, gpt2, "\"tokenizer_class\":\"CohereTokenizer\"", "llama", true},
        {"null", gpt2, "\"tokenizer_class\":\"GemmaTokenizer\"", "llama", true},
    };
    pl_err err;
    assert_ok(pl_dir_make(at("classes"), &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_tokenizer *tok;
        char          text[1024], *said = NULL;
        size_t        n;
        snprintf(text, sizeof text,
                 "{\"added_tokens\":[],\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":{\"type\":\"ByteLevel\"},"
                 "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}",
                 cases[i].normalizer, cases[i].pre);
        put_text(at("classes/tokenizer.json"), text);
        snprintf(text, sizeof text, "{%s,\"x%zu\":0}", cases[i].config, i);
        put_text(at("classes/tokenizer_config.json"), text);
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", cases[i].model);
        put_text(at("classes/config.json"), text);
        FILE *f = open_memstream(&said, &n);
        pl_log_to(f);
        pl_status st = pl_tokenizer_open(&tok, at("classes"), &err);
        pl_log_to(NULL);
        fclose(f);
        if (st != PL_OK) fail_msg("case %zu: %s", i, err.msg);
        if ((strstr(said, "makes anew") != NULL) != cases[i].warns) fail_msg("case %zu: said \"%s\"", i, said);
        free(said);
        pl_tokenizer_close(tok);
    }
    // Those of Llama's kind differ in single texts alone.
    static const struct {
        const char *config, *model, *text, *says; // NULL: nothing
    } llama[] = {
        {"\"tokenizer_class\":\"LlamaTokenizer\"", "llama", "<s>a", "names LlamaTokenizer"},
        {"\"tokenizer_class\":\"LlamaTokenizerFast\"", "llama", "<s>a", "names LlamaTokenizer"},
        {"\"tokenizer_class\":\"CodeLlamaTokenizer\"", "llama", "<s>a", "names CodeLlamaTokenizer"},
        {"\"tokenizer_class\":\"LlamaTokenizer\",\"legacy\":true", "llama", "<s>a", NULL},
        {"\"tokenizer_class\":\"LlamaTokenizer\",\"legacy\":true", "llama", " a", "names LlamaTokenizer"},
        {"\"tokenizer_class\":\"LlamaTokenizer\"", "llama", "a", NULL},
        {"\"tokenizer_class\":\"LlamaTokenizer\"", "mistral", "<s>a", NULL},
        {"\"tokenizer_class\":\"LlamaTokenizer\"", "phi3", "<s>a", NULL},
        {"\"tokenizer_class\":\"TokenizersBackend\"", "llama", "<s>a", NULL},
    };
    put_text(
        at("classes/tokenizer.json"),
        "{\"added_tokens\":[{\"id\":2,\"content\":\"<s>\",\"special\":true}],\"normalizer\":{\"type\":\"Sequence\","
        "\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},{\"type\":\"Replace\",\"pattern\":{"
        "\"String\":\" \"},\"content\":\"\u2581\"}]},\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Fuse\"},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\u2581\":1},\"merges\":[]}}");
    for (size_t i = 0; i < sizeof llama / sizeof *llama; i++) {
        pl_tokenizer *tok;
        int32_t      *ids;
        int64_t       n_ids;
        char          text[256], *said = NULL;
        size_t        n;
        snprintf(text, sizeof text, "{%s}", llama[i].config);
        put_text(at("classes/tokenizer_config.json"), text);
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", llama[i].model);
        put_text(at("classes/config.json"), text);
        FILE *f = open_memstream(&said, &n);
        pl_log_to(f);
        assert_ok(pl_tokenizer_open(&tok, at("classes"), &err));
        assert_ok(pl_tokenizer_encode(tok, llama[i].text, strlen(llama[i].text), 0, &ids, &n_ids, &err));
        pl_log_to(NULL);
        fclose(f);
        if (llama[i].says ? !strstr(said, llama[i].says) : *said != 0) fail_msg("case %zu: said \"%s\"", i, said);
        free(said);
        pl_free(ids);
        pl_tokenizer_close(tok);
    }
    // What stands in a config.json that cannot be read is the model's business.
    pl_tokenizer *tok;
    put_text(at("classes/config.json"), "{");
    assert_ok(pl_tokenizer_open(&tok, at("classes"), &err));
    pl_tokenizer_close(tok);
}

static void test_fingerprint(void **state) {
    (void)state;
    char          seen[GOLDEN + 2][17];
    pl_err        err;
    pl_tokenizer *tok;
    for (int i = 0; i < GOLDEN + 2; i++) {
        if (i < GOLDEN)
            tok = open_golden(i);
        else {
            // another order of merges; another id of an added token
            if (i == GOLDEN)
                put_changed("\"h e\",\"", "\"");
            else
                put_changed("\"id\":380", "\"id\":400");
            assert_ok(pl_tokenizer_open(&tok, at("changed.json"), &err));
        }
        strcpy(seen[i], pl_tokenizer_fingerprint(tok));
        pl_tokenizer_close(tok);
        for (int k = 0; k < i; k++)
            if (strcmp(seen[k], seen[i]) == 0) fail_msg("tokenizers %d and %d have one fingerprint", k, i);
    }
    tok = open_golden(3);
    assert_string_equal(pl_tokenizer_fingerprint(tok), seen[3]);
    pl_tokenizer_close(tok);
}

// Every allocation may fail: an error, nothing leaked (the sanitizer looks), nothing half made.
static void test_out_of_memory(void **state) {
    (void)state;
    pl_err        err;
    pl_tokenizer *tok;
    uint8_t       bin[8192];
    put_golden(at("tokenizer.json"), &golden_tokenizers[0]);
    put_file(at("tiny.bin"), bin, tiny_bin(bin));
    const char *paths[] = {at("tokenizer.json"), at("tiny.bin")};
    for (int k = 0; k < 2; k++) {
        uint64_t before = pl_alloc_count();
        assert_ok(pl_tokenizer_open(&tok, paths[k], &err));
        uint64_t total = pl_alloc_count() - before;
        pl_tokenizer_close(tok);
        for (uint64_t i = 1; i <= total; i += total > 400 && i > 40 && i + 200 < total ? 37 : 1) {
            pl_alloc_fail_after(i);
            pl_status st = pl_tokenizer_open(&tok, paths[k], &err);
            pl_alloc_fail_after(0);
            assert_int_equal(st, PL_E_MEMORY);
            assert_null(tok);
        }
        assert_ok(pl_tokenizer_open(&tok, paths[k], &err));
        int32_t *ids;
        int64_t  n;
        for (uint64_t i = 1, st = PL_E_MEMORY; st != PL_OK; i++) {
            pl_alloc_fail_after(i);
            st = pl_tokenizer_encode(tok, "the cat and\n\xC3\xA9", 14, PL_TOK_ADD_BOS, &ids, &n, &err);
            pl_alloc_fail_after(0);
            if (st != PL_OK) assert_int_equal(st, PL_E_MEMORY);
            if (st == PL_OK) assert_true(i > 2);
            pl_free(ids);
        }
        pl_tokenizer_close(tok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_encode),
        cmocka_unit_test(test_golden_decode),
        cmocka_unit_test(test_added_blanks),
        cmocka_unit_test(test_no_special),
        cmocka_unit_test(test_stream_any_ids),
        cmocka_unit_test(test_stream_bytes),
        cmocka_unit_test(test_llama2c_equals_run_c),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_llama2c_broken),
        cmocka_unit_test(test_llama2c_small),
        cmocka_unit_test(test_json_refused),
        cmocka_unit_test(test_open_refused),
        cmocka_unit_test(test_folder_and_config),
        cmocka_unit_test(test_files_beside),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
