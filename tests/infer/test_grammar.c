// Grammars: which texts are theirs, by table; masks beside every token tried by itself; drawn texts that the JSON
// reader takes; what is refused, and why.
#include "infer/grammar/cache.h"
#include "kernels/base/json.h"
#include "kernels/base/rng.h"
#include "tests/checkpoints/scratch.h"

#define TINY PACELINE_SOURCE_DIR "/checkpoints/tiny"

static pl_tokenizer  *tok;
static pl_token_text *tokens;

static pl_grammar *open(pl_grammar_kind kind, const char *text) {
    pl_err      err = {0};
    pl_grammar *g;
    if (pl_grammar_open(&g, kind, text, strlen(text), tokens, &err) != PL_OK) fail_msg("%s: %s", text, err.msg);
    return g;
}

static int32_t walk(pl_grammar *g, const char *text) {
    int32_t at = pl_grammar_start(g);
    for (; *text; text++)
        at = pl_grammar_byte(g, at, (uint8_t)*text);
    return at;
}

typedef struct language {
    pl_grammar_kind kind;
    const char     *grammar;
    const char     *yes[8], *no[8]; // no: also texts that only begin one of its texts
} language;

static const language languages[] = {
    {PL_GRAMMAR_REGEX, "a(b|cd)*e?", {"a", "ab", "acde", "abcdbe"}, {"", "ac", "abee", "b"}},
    {PL_GRAMMAR_REGEX, "^[^\\d-]{2,3}$", {"ab", "abc", "é.", "日本語"}, {"a", "abcd", "a1", "-a"}},
    {PL_GRAMMAR_REGEX, "(?:x{2}){1,2}|y{3,}", {"xx", "xxxx", "yyy", "yyyyyy"}, {"x", "xxx", "xxxxxx", "yy"}},
    {PL_GRAMMAR_REGEX, "(a?){0,3}\\.", {".", "a.", "aaa."}, {"aaaa.", "a"}},
    {PL_GRAMMAR_REGEX, "[\\u0400-\\u04FF]+", {"\xD0\x9F\xD1\x83\xD1\x82\xD1\x8C"}, {"Put", "\xD0"}},
    {PL_GRAMMAR_REGEX, "", {""}, {"a"}},
    {PL_GRAMMAR_GBNF,
     "# sums\nroot ::= term (\"+\" term)*\nterm ::= num | \"(\" root \")\"\nnum ::= [0-9]+ # digits\n",
     {"1", "12+(3+4)", "((7))"},
     {"", "1+", "(1", "1)"}},
    {PL_GRAMMAR_GBNF,
     "root ::= \"a\\n\" . [^\\]x]\n  | \"z\"{2,3}",
     {"a\n\xC3\xA9q", "zz", "zzz"},
     {"a\n\xC3", "a\nqx", "z"}},
    {PL_GRAMMAR_GBNF, "root ::= \"\\u00e9\\U0001F600\"?", {"", "\xC3\xA9\xF0\x9F\x98\x80"}, {"\xC3\xA9"}},
    {PL_GRAMMAR_SCHEMA,
     "true",
     {"{}", "[1,-2.5e+3,null]", "\"a\\n\\u00e9\"", "{\"a\": [true, {\"b\":\n  false}]}", "0"},
     {"{,}", "01", "[1,]", "\"\n\"", "\"\\ud800\"", "nul", "{\"a\"}", "[1  ,2]"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"},"
     "\"c\":{\"type\":\"null\"}},\"required\":[\"b\"],\"additionalProperties\":false}",
     {"{\"b\":\"x\"}", "{\"a\":1,\"b\":\"\"}", "{ \"a\": 1, \"b\": \"y\", \"c\": null }"},
     {"{}", "{\"a\":1}", "{\"b\":\"x\",\"a\":1}", "{\"a\":1.5,\"b\":\"x\"}", "{\"b\":\"x\",}",
      "{\"b\":\"x\",\"d\":1}"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"properties\":{\"a\":true,\"b\":true}}",
     {"{}", "{\"a\":1}", "{\"b\":[2]}", "{\"a\":{},\"b\":2}"},
     {"{,\"b\":2}", "{\"b\":1,\"a\":1}", "1"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"enum\":[1,\"\\u00e9\",[null]]},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[\"\xC3\xA9\",[null]]", "[1, 1, 1]"},
     {"[]", "[2]", "[1,1,1,1]"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"prefixItems\":[{\"type\":\"boolean\"},{\"const\":\"x\"}],\"items\":{\"type\":\"null\"}}",
     {"[true,\"x\"]", "[false,\"x\",null,null]"},
     {"[]", "[true]", "[true,\"x\",1]"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"kids\":{\"type\":"
     "\"array\",\"items\":{\"$ref\":\"#/$defs/tree\"}}},\"required\":[\"v\"]}},\"$ref\":\"#/$defs/tree\"}",
     {"{\"v\":1}", "{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[]},{\"v\":-3}]}"},
     {"{\"kids\":[]}", "{\"v\":1,\"kids\":[1]}"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":[\"string\",\"null\"],\"minLength\":2,\"maxLength\":3}",
     {"null", "\"ab\"", "\"\\n\\\"\xC3\xA9\""},
     {"\"a\"", "\"abcd\"", "12"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"^[a-c\\\"]+$\"}",
     {"\"abc\"", "\"\\\"a\""},
     {"\"\"", "\"d\"", "\"\"a\""}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"x\\\\d\"}",
     {"\"x1\"", "\"..x12\\t\""},
     {"\"\"", "\"x\"", "\"x\"1"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-28\"", "\"1999-12-31\""},
     {"\"2024-02-30\"", "\"2024-13-01\"", "\"24-01-01\""}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"127.0.0.1\"", "\"255.249.99.0\""},
     {"\"256.0.0.1\"", "\"1.2.3\""}},
    {PL_GRAMMAR_SCHEMA,
     "{\"anyOf\":[{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105},{\"type\":\"boolean\"}]}",
     {"-12", "-1", "0", "9", "104", "true"},
     {"-13", "105", "007", "200", "-"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}",
     {"0.001", "0.5", "1", "1.0"},
     {"0", "0.0", "1.1", "-0.5", "2", "-0"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"number\",\"minimum\":-2,\"exclusiveMaximum\":3}",
     {"-2", "-1.9", "2.999", "-0", "0.0"},
     {"3", "3.0", "-2.1", "-3"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":1,\"maxProperties\":2}",
     {"{\"x\":1}", "{\"x\":1, \"y\":2}"},
     {"{}", "{\"x\":\"1\"}", "{\"x\":1,\"y\":2,\"z\":3}"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"oneOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"integer\"}]}",
     {"\"a\"", "7"},
     {"\"ab\"", "7.0"}},
    {PL_GRAMMAR_SCHEMA,
     "{\"oneOf\":[{\"$ref\":\"#/$defs/"
     "dot\"},{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"line\",\"ray\"]},\"to\":"
     "{\"type\":\"integer\"}},\"required\":[\"kind\",\"to\"]},{\"type\":\"null\"}],\"$defs\":{\"dot\":{\"type\":"
     "\"object\","
     "\"properties\":{\"kind\":{\"const\":\"dot\"}},\"required\":[\"kind\"]}}}",
     {"{\"kind\":\"dot\"}", "{\"kind\":\"ray\",\"to\":3}", "null"},
     {"{\"kind\":\"line\"}", "{\"kind\":\"dot\",\"to\":1}", "{}"}},
};

static void languages_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        const language *l = &languages[i];
        pl_grammar     *g = open(l->kind, l->grammar);
        for (int k = 0; k < 8 && l->yes[k]; k++)
            if (!pl_grammar_may_end(g, walk(g, l->yes[k]))) fail_msg("%s: refuses %s", l->grammar, l->yes[k]);
        for (int k = 0; k < 8 && l->no[k]; k++)
            if (pl_grammar_may_end(g, walk(g, l->no[k]))) fail_msg("%s: takes %s", l->grammar, l->no[k]);
        assert_false(pl_grammar_failed(g));
        pl_grammar_close(g);
    }
}

// Every whole number of a range and none beside it.
static void ranges_of_integers(void **state) {
    (void)state;
    static const int64_t ends[] = {-120, -100, -99, -10, -9, -1, 0, 1, 9, 10, 15, 99, 100, 109, 1000};
    for (size_t a = 0; a < 15; a++)
        for (size_t b = a; b < 15; b++) {
            char text[100];
            snprintf(text, sizeof text, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", (int)ends[a],
                     (int)ends[b]);
            pl_grammar *g = open(PL_GRAMMAR_SCHEMA, text);
            for (int v = -1100; v <= 1100; v++) {
                snprintf(text, sizeof text, "%d", v);
                assert_int_equal(pl_grammar_may_end(g, walk(g, text)), v >= ends[a] && v <= ends[b]);
            }
            pl_grammar_close(g);
        }
}

static const struct {
    pl_grammar_kind kind;
    const char     *text, *why;
} malformed[] = {
    {PL_GRAMMAR_REGEX, "(a", "expected )"},
    {PL_GRAMMAR_REGEX, "a)", "a ) that nothing opened"},
    {PL_GRAMMAR_REGEX, "*a", "repeats nothing"},
    {PL_GRAMMAR_REGEX, "[a", "not closed"},
    {PL_GRAMMAR_REGEX, "[z-a]", "backwards"},
    {PL_GRAMMAR_REGEX, "a{3,2}", "backwards"},
    {PL_GRAMMAR_REGEX, "a{9999999}", "a million"},
    {PL_GRAMMAR_REGEX, "(a)\\1", "a backreference"},
    {PL_GRAMMAR_REGEX, "(?=a)b", "(?...)"},
    {PL_GRAMMAR_REGEX, "a\\bc", "\\b"},
    {PL_GRAMMAR_REGEX, "a^b", "an anchor inside"},
    {PL_GRAMMAR_REGEX, "^a|b$", "one alternative"},
    {PL_GRAMMAR_REGEX, "\xFF", "is not UTF-8"},
    {PL_GRAMMAR_REGEX, "a\\", "unknown escape"},
    {PL_GRAMMAR_REGEX, "[^\\x00-\\uFFFF]{0}[\\q]", "unknown escape"},
    {PL_GRAMMAR_REGEX, "(a?){0,1000}", "what may be empty"},
    {PL_GRAMMAR_GBNF, "root = \"a\"", "line 1: expected ::="},
    {PL_GRAMMAR_GBNF, "a ::= \"b\"", "no rule \"root\""},
    {PL_GRAMMAR_GBNF, "root ::= b", "\"b\" is not defined"},
    {PL_GRAMMAR_GBNF, "root ::= \"a\n\"", "line 1: a text ends"},
    {PL_GRAMMAR_GBNF, "\nroot ::= root \"a\" | \"b\"", "left recursion"},
    {PL_GRAMMAR_GBNF, "root ::= a\na ::= [b]* root \"c\"", "matches no text"},
    {PL_GRAMMAR_GBNF, "root ::= a | \"x\"\na ::= [b]* root", "left recursion"},
    {PL_GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
    {PL_GRAMMAR_GBNF, "root ::= (\"a\"", "expected )"},
    {PL_GRAMMAR_GBNF, "root ::= \"a\" ]", "expected an item"},
    {PL_GRAMMAR_GBNF, "root ::= \"\\q\"", "unknown escape"},
    {PL_GRAMMAR_GBNF, "root ::= \"\\ud800\"", "no character"},
    {PL_GRAMMAR_SCHEMA, "{", "schema:1:"},
    {PL_GRAMMAR_SCHEMA, "3", "expected a schema"},
    {PL_GRAMMAR_SCHEMA, "{\"type\":\"text\"}", "is no type"},
    {PL_GRAMMAR_SCHEMA, "{\"multipleOf\":3}", "multipleOf"},
    {PL_GRAMMAR_SCHEMA, "{\"not\":{}}", "not: this keyword"},
    {PL_GRAMMAR_SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"},
    {PL_GRAMMAR_SCHEMA, "{\"properties\":{\"a\":{\"patternProperties\":{}}}}", "properties.a.patternProperties"},
    {PL_GRAMMAR_SCHEMA, "{\"properties\":{\"a\":{}},\"required\":[\"b\"],\"additionalProperties\":false}",
     "not among the properties"},
    {PL_GRAMMAR_SCHEMA, "{\"$ref\":\"#/$defs/x\"}", "is not in the schema"},
    {PL_GRAMMAR_SCHEMA, "{\"$ref\":\"http://x/y\"}", "leads out"},
    {PL_GRAMMAR_SCHEMA, "{\"$ref\":\"#\"}", "matches no text"},
    {PL_GRAMMAR_SCHEMA, "{\"allOf\":[{},{}]}", "more than one schema"},
    {PL_GRAMMAR_SCHEMA, "{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}", "differ neither in type"},
    {PL_GRAMMAR_SCHEMA, "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}}},{\"properties\":{\"k\":{\"const\":2}}}]}",
     "differ neither in type"},
    {PL_GRAMMAR_SCHEMA,
     "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},{\"properties\":{\"k\":{\"enum\":[2,1]}}}"
     "]}",
     "differ neither in type"},
    {PL_GRAMMAR_SCHEMA,
     "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"],\"type\":[\"object\",\"null\"]},{"
     "\"properties\":"
     "{\"k\":{\"const\":2}},\"required\":[\"k\"],\"type\":[\"object\",\"null\"]}]}",
     "differ neither in type"},
    {PL_GRAMMAR_SCHEMA, "{\"oneOf\":[{\"$ref\":\"#/x\"},{\"type\":\"null\"}]}", "is not in the schema"},
    {PL_GRAMMAR_SCHEMA, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "between the bounds"},
    {PL_GRAMMAR_SCHEMA, "{\"type\":\"number\",\"minimum\":0.5}", "not whole"},
    {PL_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "below minLength"},
    {PL_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "backreference"},
    {PL_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"regex\"}", "this format"},
    {PL_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"self\":{\"$ref\":\"#\"}},\"required\":[\"self\"]}",
     "matches no text"},
    {PL_GRAMMAR_SCHEMA, "{\"const\":1,\"minimum\":2}", "beside limits"},
    {PL_GRAMMAR_SCHEMA, "{\"enum\":[\"a\",1.5],\"type\":[\"object\",\"integer\"]}", "matches no text"},
    {PL_GRAMMAR_SCHEMA, "{\"anyOf\":[{}],\"type\":\"null\"}", "beside a type"},
};

static void malformed_grammars(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        pl_err      err = {0};
        pl_grammar *g = NULL;
        pl_status st = pl_grammar_open(&g, malformed[i].kind, malformed[i].text, strlen(malformed[i].text), NULL, &err);
        if (st == PL_OK || !strstr(err.msg, malformed[i].why))
            fail_msg("%s: %s", malformed[i].text, st ? err.msg : "taken");
        assert_null(g);
    }
    // A class of characters that is repeated in a long list of alternatives grows beyond its bound.
    char *big = pl_malloc(1 << 20);
    int   n = 0;
    for (int i = 0; i < 60000; i++)
        n += sprintf(big + n, "%s[^b]", i ? "|" : "");
    pl_err      err = {0};
    pl_grammar *g;
    assert_refused(pl_grammar_open(&g, PL_GRAMMAR_REGEX, big, (size_t)n, NULL, &err), &err, "too large");
    pl_free(big);
}

// Twice as many stacks with each byte: the grammar fails in bounded time, and its texts are dead.
static void ambiguous_grammars_fail(void **state) {
    (void)state;
    pl_grammar *g = open(PL_GRAMMAR_GBNF, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\" root \"d\" | \"a\"");
    assert_true(walk(g, "aaab") >= 0);
    assert_int_equal(walk(g, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), PL_GRAMMAR_DEAD);
    assert_true(pl_grammar_failed(g));
    assert_null(pl_grammar_mask(g, pl_grammar_start(g)));
    pl_grammar_close(g);
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

// A token that may follow, drawn; -1: the text ends.
static int32_t draw(pl_grammar *g, int32_t at, pl_rng r, uint64_t *u) {
    const uint32_t *mask = pl_grammar_mask(g, at);
    int32_t         id[1 << 15], n = 0, vocab = pl_tokenizer_vocab_size(tok);
    assert_non_null(mask);
    for (int32_t i = 0; i < vocab; i++)
        if (mask[i / 32] >> i % 32 & 1) id[n++] = i;
    bool ends = pl_grammar_may_end(g, at);
    assert_true(n > 0 || ends); // never a state without a way on
    if (n == 0 || (ends && pl_rng_below(r, (*u)++, 3) == 0)) return -1;
    return id[pl_rng_below(r, (*u)++, (uint64_t)n)];
}

static void masks_are_the_tokens_that_go_on(void **state) {
    (void)state;
    static const int which[] = {1, 6, 9, 10, 14, 18};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        pl_grammar *g = open(languages[which[i]].kind, languages[which[i]].grammar);
        pl_rng      r = pl_rng_make(5, PL_STREAM_TEST, i);
        uint64_t    u = 0;
        int32_t     at = pl_grammar_start(g);
        for (int step = 0; step < 12 && at >= 0; step++) {
            const uint32_t *mask = pl_grammar_mask(g, at);
            for (int32_t id = 0; id < pl_tokenizer_vocab_size(tok); id++) {
                bool goes_on = pl_grammar_token(g, at, id) >= 0;
                if ((mask[id / 32] >> id % 32 & 1) != goes_on)
                    fail_msg("grammar %d, step %d: token %d", which[i], step, id);
                if (pl_tokenizer_is_special(tok, id)) assert_false(goes_on);
            }
            int32_t one = draw(g, at, r, &u);
            at = one < 0 ? -1 : pl_grammar_token(g, at, one);
        }
        pl_grammar_close(g);
    }
}

// Texts drawn token by token until they may end are JSON; the same states are found again from the beginning.
static void drawn_texts_are_json(void **state) {
    (void)state;
    int whole = 0;
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        if (languages[i].kind != PL_GRAMMAR_SCHEMA) continue;
        pl_grammar *g = open(languages[i].kind, languages[i].grammar);
        for (uint64_t seed = 0; seed < 8; seed++) {
            pl_rng   r = pl_rng_make(seed, PL_STREAM_TEST, i);
            uint64_t u = 0;
            int32_t  at = pl_grammar_start(g), ids[300], n = 0, one = 0;
            while (n < 300 && (one = draw(g, at, r, &u)) >= 0)
                at = pl_grammar_token(g, at, ids[n++] = one);
            if (one >= 0) continue; // too long: a string without end
            char   *text;
            size_t  bytes;
            pl_json json;
            pl_err  err = {0};
            assert_ok(pl_tokenizer_decode_bytes(tok, ids, n, &text, &bytes, &err));
            int32_t again = pl_grammar_start(g);
            for (size_t k = 0; k < bytes; k++)
                again = pl_grammar_byte(g, again, (uint8_t)text[k]);
            assert_int_equal(again, at);
            if (pl_json_parse(&json, "drawn", 0, text, bytes, 0, &err) != PL_OK)
                fail_msg("%s: %.*s: %s", languages[i].grammar, (int)bytes, text, err.msg);
            pl_json_close(&json);
            pl_free(text);
            whole++;
        }
        pl_grammar_close(g);
    }
    assert_true(whole > 60);
}

// Kept grammars are walked by copies, which outlive them; more texts than are kept take turns.
static void kept_grammars(void **state) {
    (void)state;
    pl_grammar_cache c = {0};
    pl_grammar      *g[3 * PL_GRAMMAR_KEPT], *bad;
    pl_err           err = {0};
    enum { N = sizeof g / sizeof *g };
    for (int i = 0; i < N; i++) {
        char text[16];
        int  n = snprintf(text, sizeof text, "a{%d}b", i % (PL_GRAMMAR_KEPT + 1));
        assert_ok(pl_grammar_cached(&c, &g[i], PL_GRAMMAR_REGEX, text, (size_t)n, tokens, &err));
        if (i % 3) assert_ok(pl_grammar_cached(&c, &bad, PL_GRAMMAR_REGEX, text, (size_t)n, tokens, &err));
        if (i % 3) pl_grammar_close(bad);
        assert_refused(pl_grammar_cached(&c, &bad, PL_GRAMMAR_GBNF, text, (size_t)n, tokens, &err), &err, "line 1");
        assert_null(bad);
    }
    pl_grammar_cache_fini(&c);
    for (int i = 0; i < N; i++) {
        int32_t at = pl_grammar_start(g[i]);
        for (int k = 0; k < i % (PL_GRAMMAR_KEPT + 1); k++) {
            assert_true(pl_grammar_byte(g[i], at, 'b') < 0);
            at = pl_grammar_byte(g[i], at, 'a');
        }
        assert_true(pl_grammar_may_end(g[i], pl_grammar_byte(g[i], at, 'b')));
        assert_non_null(pl_grammar_mask(g[i], at));
        pl_grammar_close(g[i]);
    }
}

static int open_tokens(void **state) {
    (void)state;
    pl_err err;
    assert_ok(pl_tokenizer_open(&tok, TINY, &err));
    assert_ok(pl_token_text_open(&tokens, tok, &err));
    return 0;
}

static int close_tokens(void **state) {
    (void)state;
    pl_token_text_close(tokens);
    pl_tokenizer_close(tok);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(languages_by_table),      cmocka_unit_test(ranges_of_integers),
        cmocka_unit_test(kept_grammars),           cmocka_unit_test(malformed_grammars),
        cmocka_unit_test(ambiguous_grammars_fail), cmocka_unit_test(masks_are_the_tokens_that_go_on),
        cmocka_unit_test(drawn_texts_are_json),
    };
    return cmocka_run_group_tests(tests, open_tokens, close_tokens);
}
