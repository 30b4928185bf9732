// Hand-written splits against their regular expressions; the expressions' translation and their limits.
#include "data/tokenizer/pretok.h"
#include "data/tokenizer/unicode.h"
#include "kernels/base/utf8.h"
#include "tests/checkpoints/scratch.h"

static unsigned seed;
static unsigned draw(unsigned below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

// ---- characters on which the tables of utf8proc and PCRE2 agree: the newest ones may be known to one of them alone

static uint8_t *known; // [0x110000]

static void find_known(void) {
    static const char *const patterns[] = {"\\p{L}", "\\p{N}", "\\s"};
    pl_regex                *r[3];
    pl_matcher               m = {0};
    pl_err                   err;
    int                      unlike = 0;
    known = pl_calloc(0x110000, 1);
    assert_non_null(known);
    for (int i = 0; i < 3; i++)
        assert_ok(pl_regex_compile(&r[i], patterns[i], &err));
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (cp >= 0xd800 && cp < 0xe000) continue;
        char          s[4];
        size_t        n = (size_t)pl_utf8_put(s, cp);
        pl_char_class said = PL_CHAR_OTHER;
        for (int i = 0; i < 3; i++) {
            pl_regex_walk w = {0};
            bool          found;
            size_t        a, b;
            assert_ok(pl_regex_next(r[i], &m, s, n, &w, &found, &a, &b, &err));
            if (found) said = (pl_char_class)(i + 1);
        }
        known[cp] = said == pl_unicode_class(cp);
        unlike += !known[cp];
        if (!known[cp] && cp < 0x500) fail_msg("U+%X: class %d, PCRE2 says %d", cp, (int)pl_unicode_class(cp), said);
        assert_int_equal(pl_unicode_class(cp) == PL_CHAR_SPACE, pl_unicode_is_space(cp));
    }
    assert_true(unlike < 20000);
    for (int i = 0; i < 3; i++)
        pl_regex_free(r[i]);
    pl_matcher_fini(&m);
}

static void check_scan(const pl_scan *scan, const pl_regex *r, pl_matcher *m, const char *s, size_t n) {
    pl_regex_walk w = {0};
    pl_err        err;
    size_t        at = 0;
    for (;;) {
        bool   found;
        size_t a, b;
        assert_ok(pl_regex_next(r, m, s, n, &w, &found, &a, &b, &err));
        if (!found) break;
        size_t end = scan->next(s, n, at);
        if (a != at || b != end)
            fail_msg("%s: \"%.*s\": at %d to %d, by hand at %d to %d", scan->name, (int)n, s, (int)a, (int)b, (int)at,
                     (int)end);
        at = end;
    }
    assert_int_equal(at, n); // nothing is left over
}

static void on_all(const char *s, size_t n, pl_regex *const r[3], pl_matcher *m) {
    for (int i = 0; i < 3; i++)
        check_scan(&pl_scans[i], r[i], m, s, n);
}

static void test_scans_equal_patterns(void **state) {
    (void)state;
    static const char *const atoms[] = {"'",
                                        "'s",
                                        "'S",
                                        "'re",
                                        "'vE",
                                        "'lL",
                                        "'l",
                                        "'\xC5\xBF",
                                        "'d",
                                        "a",
                                        "Z",
                                        "\xC3\xA9",
                                        "e\xCC\x81",
                                        "1",
                                        "12345",
                                        "\xC2\xBD",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\r",
                                        "\r\n",
                                        "\t",
                                        "\x0b",
                                        "\xC2\xA0",
                                        "\xC2\x85",
                                        "\xE2\x80\xA8",
                                        "\xE3\x80\x80",
                                        "\xE1\xA0\x8E",
                                        "!",
                                        "...",
                                        "_",
                                        "<|",
                                        "\xF0\x9F\x9A\x80",
                                        "\xE6\x97\xA5",
                                        "\xD9\xA3",
                                        "\xE2\x80\x8D",
                                        "\x01",
                                        "\x7f",
                                        "s",
                                        "t"};
    enum { ATOMS = sizeof atoms / sizeof *atoms };
    pl_regex  *r[3];
    pl_matcher m = {0};
    pl_err     err;
    find_known();
    for (int i = 0; i < 3; i++) {
        assert_ok(pl_regex_compile(&r[i], pl_scans[i].pattern, &err));
        assert_ptr_equal(pl_scan_of_pattern(pl_scans[i].pattern), &pl_scans[i]);
        assert_ptr_equal(pl_scan_of_name(pl_scans[i].name), &pl_scans[i]);
    }
    // Every triple of atoms, which is every neighbourhood that the patterns look at.
    char s[512];
    for (int a = 0; a < ATOMS; a++)
        for (int b = 0; b < ATOMS; b++)
            for (int c = 0; c < ATOMS; c++)
                on_all(s, (size_t)snprintf(s, sizeof s, "%s%s%s", atoms[a], atoms[b], atoms[c]), r, &m);
    for (int round = 0; round < 20000; round++) {
        size_t n = 0;
        seed = (unsigned)round;
        for (unsigned parts = draw(24); parts > 0 && n < 400; parts--) {
            unsigned kind = draw(10);
            if (kind < 6) {
                const char *atom = atoms[draw(ATOMS)];
                for (unsigned times = 1 + (kind == 0 ? draw(5) : 0); times > 0; times--) {
                    memcpy(s + n, atom, strlen(atom));
                    n += strlen(atom);
                }
            } else if (kind < 8) {
                s[n++] = (char)draw(128);
            } else {
                uint32_t cp = draw(kind == 8 ? 0x3000 : 0x110000);
                if (known[cp]) n += (size_t)pl_utf8_put(s + n, cp);
            }
        }
        on_all(s, n, r, &m);
    }
    for (int i = 0; i < 3; i++)
        pl_regex_free(r[i]);
    pl_matcher_fini(&m);
    pl_free(known);
}

// Whole books, where there are some.
static void test_scans_on_books(void **state) {
    (void)state;
    static const char *const books[] = {"text/gutenberg/Alice-s-Adventures-in-Wonderland_11.txt",
                                        "text/wikitext-2/valid.txt", "bench/long/long_code_audit.txt",
                                        "chat/sharegpt_gpt4_256.jsonl"};
    pl_matcher               m = {0};
    for (size_t i = 0; i < sizeof books / sizeof *books; i++) {
        const char *path = outside(books[i]);
        if (!path) skip();
        pl_err   err;
        uint8_t *text;
        size_t   n;
        assert_ok(pl_file_read(path, &text, &n, 1 << 24, &err));
        n = pl_utf8_valid((char *)text, n);
        for (int k = 0; k < 3; k++) {
            pl_regex *r;
            assert_ok(pl_regex_compile(&r, pl_scans[k].pattern, &err));
            check_scan(&pl_scans[k], r, &m, (char *)text, n);
            pl_regex_free(r);
        }
        pl_free(text);
    }
    pl_matcher_fini(&m);
}

// ---- regular expressions

static void test_regex_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"^a", "'^': not supported"},
                                           {"a$", "'$': not supported"},
                                           {"a\\b", "'\\b': not supported"},
                                           {"\\h", "'\\h': not supported"},
                                           {"\\Aa", "'\\A': not supported"},
                                           {"(a)\\1", "'\\1': not supported"},
                                           {"[\\W]", "not supported in a class"},
                                           {"[a[^b]]", "a negated class inside a class"},
                                           {"[a&&b]", "'&&': not supported"},
                                           {"[[:alpha:]]", "'[:': not supported"},
                                           {"[abc", "an unclosed class"},
                                           {"(?m)a", "not supported"},
                                           {"(?<n>a)", "not supported"},
                                           {"(?(1)a)", "not supported"},
                                           {"(*ACCEPT)", "not supported"},
                                           {"a(?i)b|c", "not supported"},
                                           {"a{1,3}+", "a quantifier behind an interval"},
                                           {"a{2}?", "a quantifier behind an interval"},
                                           {"\\x{zz}", "broken escape"},
                                           {"\\u12", "broken escape"},
                                           {"\\pL", "broken property"},
                                           {"\\p{L", "broken property"},
                                           {"\\p{sc:Han}", "broken property"},
                                           {"\\p{scx=Han}", "broken property"},
                                           {"\\", "a backslash at the end"},
                                           {"(a", "regular expression '(a': "},
                                           {"*a", "regular expression '*a': "},
                                           {"\\p{Klingon}", "regular expression '\\p{Klingon}': "},
                                           {"a{9999999}", "regular expression 'a{9999999}': "},
                                           {"\\x{110000}", "regular expression '\\x{110000}': "},
                                           {"[b-a]", "regular expression '[b-a]': "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err    err;
        pl_regex *r;
        assert_says(pl_regex_compile(&r, cases[i][0], &err), PL_E_INPUT, &err, cases[i][1]);
        assert_null(r);
    }
    pl_err    err;
    pl_regex *r;
    char     *deep = pl_malloc(70001);
    memset(deep, '(', 70000);
    deep[70000] = 0;
    assert_says(pl_regex_compile(&r, deep, &err), PL_E_INPUT, &err, "70000 bytes is too long");
    deep[30000] = 0;
    assert_says(pl_regex_compile(&r, deep, &err), PL_E_INPUT, &err, "regular expression");
    memset(deep, '[', 30000);
    assert_says(pl_regex_compile(&r, deep, &err), PL_E_INPUT, &err, "classes too deep");
    pl_free(deep);
}

// Matches, each between bars: what Oniguruma (Hugging Face's tokenizers 0.23.3) finds.
static void test_regex_matches(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"\\s+", "a \t\xC2\x85\xC2\xA0z\xE1\xA0\x8E", "| \t\xC2\x85\xC2\xA0|"}, // U+180E is no space
        {"\\S", " \xE1\xA0\x8Ez", "|\xE1\xA0\x8E|z|"},
        {"[\\s\\S]", "\xE1\xA0\x8E ", "|\xE1\xA0\x8E| |"},
        {"\\w+", "a_1\xCC\x81-\xE2\x80\xBF\xE2\x85\xA7", "|a_1\xCC\x81|\xE2\x80\xBF\xE2\x85\xA7|"},
        {"\\d", "1\xD9\xA3\xC2\xBD", "|1|\xD9\xA3|"},
        {"[a[bc]d]+", "xabcdx", "|abcd|"},
        {"a{,2}", "aaab", "|aa|a||"},
        {"x{", "x{2", "|x{|"},
        {"(?i:'s)", "'\xC5\xBF'S", "|'\xC5\xBF|'S|"},
        {"(?i)k", "kK\xE2\x84\xAA", "|k|K|\xE2\x84\xAA|"},
        {"a++b|a", "aab a", "|aab|a|"},
        {".", "a\nb\r", "|a|b|\r|"},
        {"(?<!a)b(?=c)", "abc bc", "|b|"},
        {"\\u00e9|\\x{1F680}|\\x41",
         "\xC3\xA9\xF0\x9F\x9A\x80"
         "A",
         "|\xC3\xA9|\xF0\x9F\x9A\x80|A|"},
        {"[\\]\\-^]", "]-^", "|]|-|^|"},
        {"b*", "abb", "||bb|"},
        {"\\w+", "a\xC2\xBD\xC2\xB2\xE2\x82\x82", "|a\xC2\xBD\xC2\xB2|"}, // where it stands alone: 1/2, raised 2
        {"[\\w]+", "a\xC2\xBD", "|a|"},
        {"\\W", "\xC2\xBD\xE2\x82\x82", "|\xE2\x82\x82|"},
        {"\\p{Han}+", "\xE6\x97\xA5\xE3\x80\x81\xE6\x97\xA5", "|\xE6\x97\xA5|\xE6\x97\xA5|"}, // U+3001 is Common
        {"[^\\p{han}a]+|\\p{^Katakana}", "\xE6\x97\xA5\xE3\x80\x81", "|\xE6\x97\xA5|\xE3\x80\x81|"},
        {"\\P{Greek}", "\xCE\xB1\xCD\x82", "|\xCD\x82|"},
        {"\\p{Emoji}\\p{Alphabetic}\\p{Lu}", "1aA", "|1aA|"},
    };
    pl_matcher m = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err        err;
        pl_regex     *r;
        pl_regex_walk w = {0};
        char          got[256] = "|";
        size_t        n = 1;
        assert_ok(pl_regex_compile(&r, cases[i][0], &err));
        for (;;) {
            bool   found;
            size_t a, b;
            assert_ok(pl_regex_next(r, &m, cases[i][1], strlen(cases[i][1]), &w, &found, &a, &b, &err));
            if (!found) break;
            n += (size_t)snprintf(got + n, sizeof got - n, "%.*s|", (int)(b - a), cases[i][1] + a);
        }
        if (strcmp(got, cases[i][2]) != 0) fail_msg("%s: found %s, wanted %s", cases[i][0], got, cases[i][2]);
        pl_regex_free(r);
    }
    pl_matcher_fini(&m);
}

static void test_regex_limit(void **state) {
    (void)state;
    static const char *const patterns[] = {"(x+x+)+[yz]", "(?:x|x)*[yz]", "(?:x?){40}x{40}[yz]"};
    char                     xs[4000];
    memset(xs, 'x', sizeof xs);
    for (int i = 0; i < 3; i++) {
        pl_err        err;
        pl_regex     *r;
        pl_matcher    m = {0};
        pl_regex_walk w = {0};
        bool          found;
        size_t        a, b;
        assert_ok(pl_regex_compile(&r, patterns[i], &err));
        assert_says(pl_regex_next(r, &m, xs, sizeof xs, &w, &found, &a, &b, &err), PL_E_INPUT, &err,
                    "the tokenizer's regular expression");
        assert_false(found);
        pl_matcher_fini(&m);
        pl_regex_free(r);
    }
}

// ---- Unicode

static void test_byte_alphabet(void **state) {
    (void)state;
    char   s[512], back[256];
    size_t n = 0, m;
    for (int b = 0; b < 256; b++) {
        size_t len = (size_t)pl_byte_to_char((uint8_t)b, s + n);
        assert_int_equal(pl_utf8_valid(s + n, len), len);
        n += len;
    }
    assert_true(pl_chars_to_bytes(s, n, back, &m));
    assert_int_equal(m, 256);
    for (int b = 0; b < 256; b++)
        assert_int_equal((uint8_t)back[b], b);
    assert_int_equal(pl_byte_to_char(' ', s), 2);
    assert_memory_equal(s, "\xC4\xA0", 2);
    assert_false(pl_chars_to_bytes("a b", 3, back, &m));
    assert_false(pl_chars_to_bytes("\xC5\x84", 2, back, &m)); // U+0144, the first one behind it
    assert_false(pl_chars_to_bytes("\xC2\xAD", 2, back, &m));
}

static void test_normalize(void **state) {
    (void)state;
    static const struct {
        pl_unicode_form form;
        const char     *from, *to;
    } cases[] = {{PL_NFC, "cafe\xCC\x81s e\xCC\x81", "caf\xC3\xA9s \xC3\xA9"},
                 {PL_NFD, "caf\xC3\xA9s", "cafe\xCC\x81s"},
                 {PL_NFKC, "\xEF\xAC\x80\xC2\xBD\xC2\xA0x",
                  "ff1\xE2\x81\x84"
                  "2 x"},
                 {PL_NFKD, "\xC3\xA9\xE2\x91\xA0",
                  "e\xCC\x81"
                  "1"},
                 {PL_NFC, "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"},
                 {PL_NFC, "\xE2\x84\xAB", "\xC3\x85"},
                 {PL_NFC, "", ""},
                 {PL_NFC, "\xCC\x81", "\xCC\x81"},
                 {PL_NFC, "q\xCC\x87\xCC\xA3!", "q\xCC\xA3\xCC\x87!"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_strbuf b = {0};
        pl_err    err;
        assert_ok(pl_unicode_normalize(cases[i].form, cases[i].from, strlen(cases[i].from), &b, &err));
        assert_int_equal(b.n, strlen(cases[i].to));
        if (b.n) assert_memory_equal(b.s, cases[i].to, b.n);
        // Whatever is said to be normal is.
        if (pl_unicode_is_normal(cases[i].form, cases[i].from, strlen(cases[i].from)))
            assert_string_equal(cases[i].from, cases[i].to);
        pl_strbuf_fini(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scans_equal_patterns),
        cmocka_unit_test(test_scans_on_books),
        cmocka_unit_test(test_regex_refused),
        cmocka_unit_test(test_regex_matches),
        cmocka_unit_test(test_regex_limit),
        cmocka_unit_test(test_byte_alphabet),
        cmocka_unit_test(test_normalize),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
