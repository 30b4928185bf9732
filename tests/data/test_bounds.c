// Work and memory of tokenizers that somebody else wrote: what their normalizers make of a text, how far their regular
// expressions backtrack, how many added tokens they bring.
#include "data/tokenizer/hf.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/tokenizer.h"
#include "kernels/base/strbuf.h"
#include "tests/checkpoints/scratch.h"
#include <time.h>

// ---- a tokenizer.json of these parts, and of 'a' and 'b'

typedef struct parts {
    const char *normalizer, *pre_tokenizer, *decoder, *added; // JSON; NULL: none
} parts;

static pl_status open_parts(pl_tokenizer **tok, const parts *p, pl_err *err) {
    char *json =
        pl_sprintf("{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,\"model\":"
                   "{\"type\":\"BPE\",\"unk_token\":\"b\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}",
                   p->added ? p->added : "", p->normalizer ? p->normalizer : "null",
                   p->pre_tokenizer ? p->pre_tokenizer : "null", p->decoder ? p->decoder : "{\"type\":\"Fuse\"}");
    assert_non_null(json);
    put_text(at("tokenizer.json"), json);
    pl_free(json);
    return pl_tokenizer_open(tok, at("tokenizer.json"), err);
}

// n times s.
static char *times(const char *s, int n) {
    pl_strbuf b = {0};
    for (int i = 0; i < n; i++)
        pl_strbuf_add(&b, s, strlen(s));
    char *text = pl_strbuf_take(&b);
    assert_non_null(text);
    return text;
}

// Whatever replaces or is replaced has an end.
static void long_replacements(void **state) {
    (void)state;
    static const struct {
        int         part; // of `parts`
        const char *json, *says;
    } cases[] = {
        {0, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}",
         "normalizer: a content of 1025"},
        {0, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"%s\"},\"content\":\"a\"}",
         "normalizer: a pattern of 1025"},
        {0, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"%s\"}", "normalizer: a content of 1025"},
        {0, "{\"type\":\"Prepend\",\"prepend\":\"%s\"}", "normalizer: a beginning of 1025"},
        {1, "{\"type\":\"Split\",\"pattern\":{\"String\":\"%s\"},\"behavior\":\"Isolated\"}", "a pattern of 1025"},
        {2, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"c\"},\"content\":\"%s\"}", "decoder: a content of 1025"},
        {2, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"%s\"},\"content\":\"a\"}", "decoder: a pattern of 1025"},
        {3, "{\"id\":2,\"content\":\"%s\"}", "added_tokens: a token of 1025 bytes, more than 1024"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int more = 0; more < 2; more++) {
            char         *s = times("x", 1024 + more), *json = pl_sprintf(cases[i].json, s);
            const char   *part[4] = {0};
            pl_tokenizer *tok;
            pl_err        err = {0};
            part[cases[i].part] = json;
            pl_status st = open_parts(&tok, &(parts){part[0], part[1], part[2], part[3]}, &err);
            if (more)
                assert_refused(st, &err, cases[i].says);
            else
                assert_ok(st);
            pl_tokenizer_close(tok);
            pl_free(s);
            pl_free(json);
        }
}

// Unigram tries every length at every place.
static void long_pieces(void **state) {
    (void)state;
    for (int more = 0; more < 2; more++) {
        char         *s = times("x", 1024 + more);
        char         *json = pl_sprintf("{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"decoder\":"
                                                "{\"type\":\"Fuse\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":"
                                                "[[\"u\",0.0],[\"%s\",-1.5]]}}",
                                        s);
        pl_tokenizer *tok;
        pl_err        err = {0};
        put_text(at("tokenizer.json"), json);
        pl_status st = pl_tokenizer_open(&tok, at("tokenizer.json"), &err);
        if (more)
            assert_refused(st, &err, "model.vocab[1]: a piece of 1025 bytes, more than 1024");
        else
            assert_ok(st);
        pl_tokenizer_close(tok);
        pl_free(json);
        pl_free(s);
    }
}

#define SIXTEEN "aaaaaaaaaaaaaaaa"
#define REPLACE(what, by) "{\"type\":\"Replace\",\"pattern\":{" what "},\"content\":\"" by "\"}"
#define SEQUENCE(a, b) "{\"type\":\"Sequence\",\"normalizers\":[" a "," b "]}"

// A text may come to 64 times its bytes and a kilobyte, whatever its normalizers and wherever it is cut.
static void long_texts(void **state) {
    (void)state;
    static const struct {
        const char *normalizer, *text;
        int         times;
        const char *says; // NULL: encoded
    } cases[] = {
        {REPLACE("\"String\":\"a\"", SIXTEEN SIXTEEN SIXTEEN), "a", 1000, NULL},
        {REPLACE("\"String\":\"a\"", SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN), "a", 1000,
         "normalizer 1, Replace, makes"},
        {REPLACE("\"Regex\":\".\"", SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN), "a", 1000,
         "normalizer 1, Replace, makes"},
        {SEQUENCE(REPLACE("\"String\":\"a\"", SIXTEEN), REPLACE("\"String\":\"a\"", SIXTEEN)), "a", 1000,
         "normalizer 2, Replace, makes"},
        {SEQUENCE("{\"type\":\"NFKC\"}", REPLACE("\"Regex\":\".\"", SIXTEEN)), "\xEF\xB7\xBA", 1000, // 18 letters
         "normalizer 2, Replace, makes"},
        {SEQUENCE(REPLACE("\"String\":\"a\"", "\xEF\xB7\xBA\xEF\xB7\xBA\xEF\xB7\xBA\xEF\xB7\xBA"),
                  "{\"type\":\"NFKD\"}"),
         "a", 1000, "normalizer 2, NFKD, makes"},
        {SEQUENCE("{\"type\":\"Prepend\",\"prepend\":\"" SIXTEEN SIXTEEN "\"}",
                  REPLACE("\"String\":\"a\"", SIXTEEN SIXTEEN)),
         "b", 1, NULL},
        {SEQUENCE("{\"type\":\"Prepend\",\"prepend\":\"" SIXTEEN SIXTEEN SIXTEEN "\"}",
                  REPLACE("\"String\":\"a\"", SIXTEEN SIXTEEN)),
         "b", 1, "normalizer 2, Replace, makes"},
        // Every piece between added tokens is normalised by itself; what they make is counted together.
        {SEQUENCE("{\"type\":\"Prepend\",\"prepend\":\"" SIXTEEN "\"}", REPLACE("\"String\":\"a\"", SIXTEEN)), "b<t>",
         1, NULL},
        {SEQUENCE("{\"type\":\"Prepend\",\"prepend\":\"" SIXTEEN SIXTEEN "\"}", REPLACE("\"String\":\"a\"", SIXTEEN)),
         "b<t>", 100, "normalizer 2, Replace, makes"},
        {SEQUENCE("{\"type\":\"Lowercase\"}", "{\"type\":\"Strip\"}"), " A", 1000, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_tokenizer *tok;
        pl_err        err = {0};
        int32_t      *ids;
        int64_t       n;
        char         *text = times(cases[i].text, cases[i].times);
        assert_ok(open_parts(
            &tok,
            &(parts){.normalizer = cases[i].normalizer, .added = "{\"id\":2,\"content\":\"<t>\",\"special\":true}"},
            &err));
        pl_status st = pl_tokenizer_encode(tok, text, strlen(text), 0, &ids, &n, &err);
        if (cases[i].says)
            assert_says(st, PL_E_INPUT, &err, cases[i].says);
        else
            assert_ok(st);
        pl_free(ids);
        pl_tokenizer_close(tok);
        pl_free(text);
    }
    pl_tokenizer *tok;
    pl_err        err = {0};
    assert_refused(open_parts(&tok,
                              &(parts){.decoder = "{\"type\":\"Sequence\",\"decoders\":[" REPLACE(
                                           "\"String\":\"a\"", SIXTEEN) "," REPLACE("\"String\":\"a\"",
                                                                                    SIXTEEN) ",{\"type\":\"Fuse\"}]}"},
                              &err),
                   &err, "the decoders make more than 68 bytes of token 0, which has 1");
}

// utf8proc sorts marks by insertion.
static void many_marks(void **state) {
    (void)state;
    pl_err err = {0};
    for (int more = 0; more < 2; more++) {
        char     *text = times("\xCC\x81\xCC\xA7", 2048 + more); // an acute accent and a cedilla, out of order
        pl_strbuf b = {0};
        pl_status st = pl_unicode_normalize(PL_NFD, text, strlen(text), &b, &err);
        if (more)
            assert_says(st, PL_E_INPUT, &err, "more than 4096 combining marks");
        else
            assert_ok(st);
        pl_strbuf_fini(&b);
        pl_free(text);
    }
}

// ---- regular expressions

static pl_status count_matches(const char *pattern, const char *s, size_t n, int64_t *count, size_t *from, size_t *to,
                               pl_err *err) {
    pl_regex     *r;
    pl_matcher    m = {0};
    pl_regex_walk w = {0};
    pl_status     st;
    bool          found = true;
    *count = 0;
    assert_int_equal(pl_regex_compile(&r, pattern, err), PL_OK);
    while ((st = pl_regex_next(r, &m, s, n, &w, &found, from, to, err)) == PL_OK && found)
        ++*count; // the last one's place stays
    pl_regex_free(r);
    pl_matcher_fini(&m);
    return st;
}

// Expressions that take little from each place, or walk far from each, and far too much over a text.
static void long_matches(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *text;
        int         times;
        int64_t     matches; // -1: it gives up
    } cases[] = {
        {"(?:[a-x]|[a-y]){20}[0-9]", "abcdefghij", 200, -1},
        {"(?:a|b)*[cd]", "ab", 50000, -1},
        {"[ab]*[cd]", "ab", 100000, -1},
        {"\\p{L}+[0-9]", "\xC3\xA9", 200000, -1},
        {"a.*?[cd]", "a", 200000, -1},
        {"(?=[ab]*c)a|b", "ab", 100000, -1},
        {"(?:a|b)+|.", "abab ", 200000, 400000},
        {"(?:a|b)++", "ab", 500000, 1},
        {"[^ ]+ ?", "ab", 1000000, 1},
        {"[^ ]+", "ab\xC3\xA9 ", 300000, 300000},
        {"\\s+(?!\\S)|\\s+|\\S", " ", 1000000, 1},
        {"[0-9]", "a", 1000000, 0},
        {"[a-x]*[0-9]", "a", 9000, 0}, // to the end from each place
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err    err = {0};
        int64_t   n;
        size_t    from, to;
        char     *text = times(cases[i].text, cases[i].times);
        pl_status st = count_matches(cases[i].pattern, text, strlen(text), &n, &from, &to, &err);
        if (cases[i].matches < 0) {
            assert_says(st, PL_E_INPUT, &err, "gave up at byte");
            assert_non_null(strstr(err.msg, cases[i].pattern));
        } else {
            if (st != PL_OK || n != cases[i].matches) fail_msg("%s: %ld, %s", cases[i].pattern, (long)n, err.msg);
        }
        pl_free(text);
    }
}

static pl_status take_piece(void *ctx, const char *s, size_t n, pl_err *err) {
    (void)s, (void)n, (void)err;
    ++*(int *)ctx;
    return PL_OK;
}

// The bound is the text's: pieces that an earlier step has cut share it.
static void many_pieces(void **state) {
    (void)state;
    pl_pretok  p = {0};
    pl_matcher m = {0};
    pl_err     err = {0};
    int        n = 0;
    char      *text = times("abcdefghijklmnopqrst ", 2000);
    assert_ok(pl_pretok_add_split(&p, " ", false, PL_ISOLATED, false, &err));
    assert_ok(pl_pretok_add_split(&p, "(?:[a-x]|[a-y]){14}[0-9]", true, PL_ISOLATED, false, &err));
    assert_says(pl_pretok_run(&p, &m, text, strlen(text), take_piece, &n, &err), PL_E_INPUT, &err, "gave up at byte");
    pl_matcher_fini(&m);
    pl_pretok_fini(&p);
    pl_free(text);
}

// Wherever a match lies, and however long it is, it is found where it is without any bounds.
static void matches_across_stretches(void **state) {
    (void)state;
    static const int sizes[] = {1,   2,   127, 128, 254, 255, 256,  257,  258,
                                509, 510, 511, 512, 513, 514, 1000, 2048, 3000};
    static const struct {
        const char *pattern, *gap, *run, *tail;
        size_t      less; // bytes of the tail that the match leaves out
    } cases[] = {
        {"x+y", " ", "x", "y", 0},
        {"x+(?=y)", " ", "x", "y", 1},
        {"x+(?!x)", "\xC3\xA9", "x", "y", 1},
        {"(?:x|z)+y", "-", "xz", "y", 0},
        {"(?<= )x*y", " ", "x", "y", 0},
        {"x+?y", "\xE2\x96\x81", "x", "y", 0},
        {"\xC3\xA9+y", " ", "\xC3\xA9", "y", 0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                pl_err  err = {0};
                int64_t n;
                size_t  from = 0, to = 0;
                char   *gap = times(cases[c].gap, sizes[i]), *run = times(cases[c].run, sizes[k]);
                char   *text = pl_sprintf("%s%s%s%s", gap, run, cases[c].tail, gap);
                assert_ok(count_matches(cases[c].pattern, text, strlen(text), &n, &from, &to, &err));
                size_t begin = strlen(gap), end = begin + strlen(run) + strlen(cases[c].tail) - cases[c].less;
                if (n != 1 || from != begin || to != end)
                    fail_msg("%s behind %d, of %d: %ld matches", cases[c].pattern, sizes[i], sizes[k], (long)n);
                pl_free(gap);
                pl_free(run);
                pl_free(text);
            }
}

// ---- added tokens

// Of all added tokens that stand at a place the longest counts, of equal ones the last in the file.
static void longest_added(void **state) {
    (void)state;
    static const char letters[] = "<ab>";
    unsigned          x = 7;
    for (int round = 0; round < 20; round++) {
        pl_strbuf     b = {0};
        pl_tokenizer *tok;
        pl_err        err = {0};
        char          token[60][8];
        int           n = 0;
        for (int i = 0; i < 60; i++) {
            size_t len = 0, most;
            x = x * 1664525u + 1013904223u;
            most = 1 + (x >> 20) % 5;
            token[n][len++] = '<';
            while (len < most) {
                x = x * 1664525u + 1013904223u;
                token[n][len++] = letters[(x >> 20) % 4];
            }
            token[n][len] = 0;
            char *json = pl_sprintf("%s{\"id\":%d,\"content\":\"%s\",\"special\":%s}", n ? "," : "", 2 + n, token[n],
                                    n % 2 ? "true" : "false,\"normalized\":false");
            pl_strbuf_add(&b, json, strlen(json));
            pl_free(json);
            n++;
        }
        char *added = pl_strbuf_take(&b);
        assert_ok(open_parts(&tok, &(parts){.added = added}, &err));
        char text[400];
        for (size_t i = 0; i + 1 < sizeof text; i++) {
            x = x * 1664525u + 1013904223u;
            text[i] = letters[(x >> 20) % 4];
        }
        text[sizeof text - 1] = 0;
        int32_t *ids;
        int64_t  n_ids, k = 0;
        assert_ok(pl_tokenizer_encode(tok, text, strlen(text), 0, &ids, &n_ids, &err));
        for (size_t at = 0; text[at];) {
            int best = -1;
            for (int i = 0; i < n; i++)
                if (strncmp(text + at, token[i], strlen(token[i])) == 0 &&
                    (best < 0 || strlen(token[i]) >= strlen(token[best])))
                    best = i;
            if (best >= 0) {
                assert_true(k < n_ids);
                assert_int_equal(ids[k], 2 + best);
                k++;
                at += strlen(token[best]);
            } else {
                assert_true(k < n_ids);
                assert_int_equal(ids[k], text[at] == 'a' ? 0 : 1);
                k++;
                at++;
            }
        }
        assert_int_equal(k, n_ids);
        pl_free(ids);
        pl_free(added);
        pl_tokenizer_close(tok);
    }
}

// Seconds of reading so many added tokens, and a text in which each place could be one.
static double seconds_of(int n) {
    pl_strbuf     b = {0};
    pl_tokenizer *tok;
    pl_err        err = {0};
    int32_t      *ids;
    int64_t       n_ids;
    for (int i = 0; i < n; i++) {
        char *json = pl_sprintf("%s{\"id\":%d,\"content\":\"<%d\",\"special\":true}", i ? "," : "", 2 + i, i);
        pl_strbuf_add(&b, json, strlen(json));
        pl_free(json);
    }
    char *added = pl_strbuf_take(&b), *text = times("<1<x", 5000);
    assert_ok(open_parts(&tok, &(parts){.added = added}, &err));
    clock_t from = clock();
    assert_ok(pl_tokenizer_encode(tok, text, strlen(text), 0, &ids, &n_ids, &err));
    double spent = (double)(clock() - from) / CLOCKS_PER_SEC;
    pl_free(ids);
    pl_tokenizer_close(tok);
    pl_free(added);
    pl_free(text);
    return spent;
}

static void many_added(void **state) {
    (void)state;
    assert_true(seconds_of(20000) < 20 * seconds_of(20) + 0.05);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_replacements),
        cmocka_unit_test(long_pieces),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(many_marks),
        cmocka_unit_test(long_matches),
        cmocka_unit_test(many_pieces),
        cmocka_unit_test(matches_across_stretches),
        cmocka_unit_test(longest_added),
        cmocka_unit_test(many_added),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
