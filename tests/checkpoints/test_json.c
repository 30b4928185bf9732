#include "kernels/base/json.h"
#include "scratch.h"
#include <math.h>

static pl_status parse(pl_json *j, const char *text, unsigned flags, pl_err *err) {
    return pl_json_parse(j, "t", 0, text, strlen(text), flags, err);
}

static void test_accepts(void **state) {
    (void)state;
    static const char *const good[] = {"{}",
                                       "[]",
                                       " \t\r\n[ ] ",
                                       "0",
                                       "-0.5e+10",
                                       "1E9",
                                       "\"\"",
                                       "true",
                                       "null",
                                       "[[],{},[{}],{\"a\":[]}]",
                                       "{\"a\":1,\"b\":[true,false,null,\"x\"]}",
                                       "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
                                       "\"\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac\x7f\"",
                                       "\xef\xbb\xbf{}",
                                       "{\"\":0}"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        pl_json j;
        pl_err  err;
        if (parse(&j, good[i], PL_JSON_UNIQUE, &err) != PL_OK) fail_msg("%s: %s", good[i], err.msg);
        pl_json_close(&j);
    }
}

static void test_refuses(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "t:1:1: not JSON: nothing there"},
        {" ", "t:1:2: not JSON: the text ends where a value is expected"},
        {"{", "t:1:2: not JSON: expected a key in quotes"},
        {"[1,", "the text ends where a value is expected"},
        {"[1", "t:1:3: not JSON: the text ends too early"},
        {"[1,]", "t:1:4: not JSON: expected a value"},
        {"[,1]", "expected a value"},
        {"[1 2]", "t:1:4: not JSON: expected ',' or ']'"},
        {"{\"a\":1,}", "t:1:8: not JSON: expected a key in quotes"},
        {"{\"a\" 1}", "expected ':'"},
        {"{\"a\":}", "expected a value"},
        {"{\"a\":1 \"b\":2}", "expected ',' or '}'"},
        {"{a:1}", "expected a key in quotes"},
        {"{'a':1}", "expected a key in quotes"},
        {"{1:1}", "expected a key in quotes"},
        {"[}", "expected a value"},
        {"[1}", "expected ',' or ']'"},
        {"{\"a\":1]", "expected ',' or '}'"},
        {"{} {}", "t:1:4: not JSON: text behind the end"},
        {"1 x", "text behind the end"},
        {"{}\n\n\n  ,", "t:4:3: not JSON: text behind the end"},
        {"01", "not a number"},
        {"-", "not a number"},
        {"+1", "expected a value"},
        {".5", "expected a value"},
        {"1.", "not a number"},
        {"1.e3", "not a number"},
        {"1e", "not a number"},
        {"0x10", "text behind the end"},
        {"NaN", "expected a value"},
        {"Infinity", "expected a value"},
        {"tru", "expected a value"},
        {"nullx", "text behind the end"},
        {"<!doctype HTML>", "a page of HTML"},
        {"PAR1\x15", "a Parquet file"},
        {"\xff\xfe{", "UTF-16 text"},
        {"version https://git-lfs.github.com/spec/v1", "a pointer of Git LFS"},
        {"\"abc", "the text ends inside a string"},
        {"\"a\tb\"", "t:1:3: not JSON: raw control character"},
        {"\"\\x\"", "unknown escape"},
        {"\"\\u12g4\"", "without four hex digits"},
        {"\"\\u12", "without four hex digits"},
        {"\"\\", "unknown escape"},
        {"\"\\u0000\"", "U+0000"},
        {"\"\\ud800\"", "half of a surrogate pair"},
        {"\"\\ud800\\u0041\"", "half of a surrogate pair"},
        {"\"\\udc00\"", "half of a surrogate pair"},
        {"\"\x80\"", "not UTF-8"},
        {"\"\xc0\x80\"", "not UTF-8"},
        {"\"\xe0\x80\x80\"", "not UTF-8"},
        {"\"\xed\xa0\x80\"", "not UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "not UTF-8"},
        {"\"\xf5\x80\x80\x80\"", "not UTF-8"},
        {"\"\xe2\x82\"", "not UTF-8"},
        {"\"\xc3\xa9\" x", "t:1:5: not JSON"}, // columns count characters
        {"// c\n1", "expected a value"},
        {"[1] // c", "text behind the end"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_json   j;
        pl_err    err = {0};
        pl_status st = parse(&j, bad[i].text, 0, &err);
        if (st == PL_OK) fail_msg("accepted: %s", bad[i].text);
        assert_refused(st, &err, bad[i].says);
        assert_null(j.root);
        assert_null(j.where);
    }
}

// What cJSON cannot hold: numbers longer than its buffer, U+0000, and a key twice where the reader decides.
static void test_beyond_cjson(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double      value;
    } numbers[] = {
        {"1111111111111111111111111111111111111111111111111111111111111111", 1.1111111111111111e63},
        {"0.1000000000000000055511151231257827021181583404541015625000000000", 0.1},
        {"-0.000000000000000000000000000000000000000000000000000000000000000125", -1.25e-64},
        {"[\"\\\"1111111111111111111111111111111111111111111111111111111111111111111\", "
         "2.5000000000000000000000000000000000000000000000000000000000000000E+2]",
         250},
    };
    pl_err  err;
    pl_json j;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_ok(parse(&j, numbers[i].text, 0, &err));
        const cJSON *last = j.root;
        while (last->child)
            last = last->child->next ? last->child->next : last->child;
        assert_true(last->valuedouble == numbers[i].value);
        if (i == 3) assert_int_equal(strlen(j.root->child->valuestring), 68); // not a number
        pl_json_close(&j);
    }
    assert_ok(parse(&j, "{\"a\\u0000b\":\"\\\\u0000\\u0000\"}", PL_JSON_NUL, &err));
    assert_string_equal(j.root->child->string, "a" PL_JSON_NUL_BYTES "b");
    assert_string_equal(j.root->child->valuestring, "\\u0000" PL_JSON_NUL_BYTES);
    pl_json_close(&j);
    assert_ok(parse(&j, "{\"v\":{\"a\":1,\"b\":2,\"a\":3}}", PL_JSON_UNIQUE | PL_JSON_TABLES, &err));
    pl_json_close(&j);
    assert_says(parse(&j, "{\"v\":{\"a\":1,\"b\":\"\",\"a\":3}}", PL_JSON_UNIQUE | PL_JSON_TABLES, &err), PL_E_INPUT,
                &err, "v.a: the key is there twice");
}

// A record over several lines, as editors print it, where each line is one.
static void test_over_lines(void **state) {
    (void)state;
    static const char *const first[] = {"{", "[", "[{", "{\"a\":", "{\"a\": 1,"};
    pl_err                   err;
    pl_json                  j;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        assert_says(pl_json_parse(&j, "t", 1, first[i], strlen(first[i]), 0, &err), PL_E_INPUT, &err,
                    "here each line is a value of its own");
        assert_int_equal(pl_json_parse(&j, "t", 0, first[i], strlen(first[i]), 0, &err), PL_E_INPUT);
        assert_null(strstr(err.msg, "here each line"));
    }
}

// Every cut of a text is refused, and nothing is read behind the cut (the sanitizers watch an exact block).
static void test_cuts(void **state) {
    (void)state;
    static const char text[] = "{\"a\":[1.5e3,true,null,\"x\\u00e9\\ud83d\\ude00\"],\"\xc3\xa9\":{\"c\":-2}}";
    size_t            whole = strlen(text);
    for (size_t n = 0; n <= whole; n++) {
        pl_json j;
        pl_err  err;
        char   *exact = malloc(n ? n : 1);
        memcpy(exact, text, n);
        pl_status st = pl_json_parse(&j, "t", 0, exact, n, 0, &err);
        assert_int_equal(st, n == whole ? PL_OK : PL_E_INPUT);
        pl_json_close(&j);
        free(exact);
    }
}

static void test_depth(void **state) {
    (void)state;
    char    text[2 * 100 + 1];
    pl_json j;
    pl_err  err;
    for (int depth = PL_JSON_DEPTH; depth <= PL_JSON_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = 0;
        pl_status st = parse(&j, text, PL_JSON_UNIQUE, &err);
        if (depth == PL_JSON_DEPTH)
            assert_int_equal(st, PL_OK);
        else
            assert_says(st, PL_E_INPUT, &err, "nested too deeply");
        pl_json_close(&j);
    }
}

static void test_duplicates(void **state) {
    (void)state;
    pl_json     j;
    pl_err      err;
    const char *text = "{\"a\":{\"b\":1,\"c\":[{\"x\":1,\"x\":2}]}}";
    assert_ok(parse(&j, text, 0, &err));
    pl_json_close(&j);
    assert_says(parse(&j, text, PL_JSON_UNIQUE, &err), PL_E_INPUT, &err, "the key is there twice");
    assert_non_null(strstr(err.msg, "t: a.c[0].x"));
    assert_null(j.root);
    // Large objects take the other way through.
    char big[2000] = "{", *p = big + 1;
    for (int i = 0; i < 100; i++)
        p += sprintf(p, "\"k%d\":%d,", i, i);
    strcpy(p, "\"z\":0}");
    assert_ok(parse(&j, big, PL_JSON_UNIQUE, &err));
    pl_json_close(&j);
    strcpy(p, "\"k77\":0}");
    assert_says(parse(&j, big, PL_JSON_UNIQUE, &err), PL_E_INPUT, &err, "t: k77: the key is there twice");
}

// A vocabulary of real size is parsed, checked for duplicates and walked.
static void test_large(void **state) {
    (void)state;
    enum { N = 128000 };
    char   *text = malloc((size_t)N * 24 + 16), *p = text;
    pl_json j;
    pl_err  err;
    p += sprintf(p, "{");
    for (int i = 0; i < N; i++)
        p += sprintf(p, "%s\"tok%d\":%d", i ? "," : "", i, i);
    p += sprintf(p, "}");
    assert_ok(pl_json_parse(&j, "t", 0, text, (size_t)(p - text), PL_JSON_UNIQUE, &err));
    int64_t i = 0, v;
    for (const cJSON *c = j.root->child; c; c = c->next, i++) {
        assert_ok(pl_json_int_of(&j, c, 0, N, &v, &err));
        assert_int_equal(v, i);
    }
    assert_int_equal(i, N);
    pl_json_close(&j);
    free(text);
}

static void test_getters(void **state) {
    (void)state;
    pl_json      j;
    pl_err       err;
    int64_t      v = 77;
    double       x = 77;
    bool         b = true;
    const char  *s = "77";
    const cJSON *node = NULL;
    assert_ok(parse(&j,
                    "{\"n\":-3,\"big\":9007199254740993e3,\"half\":1.5,\"whole\":4.0,\"inf\":1e999,\"s\":\"text\","
                    "\"t\":true,\"nil\":null,\"arr\":[1,\"two\"],\"o\":{\"in\":{\"n\":5,\"s\":6}}}",
                    PL_JSON_UNIQUE, &err));
    assert_says(pl_json_get_int(&j, NULL, "n", 1, 100, &v, &err), PL_E_INPUT, &err,
                "t: n: expected a positive integer, found -3");
    assert_says(pl_json_get_int(&j, NULL, "n", 0, 100, &v, &err), PL_E_INPUT, &err, "a non-negative integer, found -3");
    assert_says(pl_json_get_int(&j, NULL, "n", -10, -5, &v, &err), PL_E_INPUT, &err,
                "an integer from -10 to -5, found -3");
    assert_says(pl_json_get_int(&j, NULL, "whole", 1, 3, &v, &err), PL_E_INPUT, &err,
                "an integer from 1 to 3, found 4");
    assert_says(pl_json_get_int(&j, NULL, "half", 0, 3, &v, &err), PL_E_INPUT, &err, "found 1.5");
    assert_says(pl_json_get_int(&j, NULL, "big", 0, PL_JSON_INT_MAX, &v, &err), PL_E_INPUT, &err, "found 9.0");
    assert_says(pl_json_get_int(&j, NULL, "inf", 0, PL_JSON_INT_MAX, &v, &err), PL_E_INPUT, &err, "found inf");
    assert_says(pl_json_get_int(&j, NULL, "s", 0, 3, &v, &err), PL_E_INPUT, &err, "found \"text\"");
    assert_says(pl_json_get_int(&j, NULL, "t", 0, 3, &v, &err), PL_E_INPUT, &err, "found true");
    assert_says(pl_json_get_int(&j, NULL, "arr", 0, 3, &v, &err), PL_E_INPUT, &err, "found an array");
    assert_says(pl_json_get_int(&j, NULL, "o", 0, 3, &v, &err), PL_E_INPUT, &err, "found an object");
    assert_says(pl_json_get_int(&j, NULL, "nil", 0, 3, &v, &err), PL_E_INPUT, &err, "t: nil: missing");
    assert_says(pl_json_get_int(&j, NULL, "o.in.q", 1, 3, &v, &err), PL_E_INPUT, &err,
                "t: o.in.q: missing; expected a positive integer");
    assert_int_equal(v, 77); // failures leave the output alone
    assert_ok(pl_json_get_int(&j, NULL, "whole", 0, 4, &v, &err));
    assert_int_equal(v, 4);
    assert_ok(pl_json_get_int(&j, NULL, "o.in.n", 0, 10, &v, &err));
    assert_int_equal(v, 5);
    assert_ok(pl_json_opt_int(&j, NULL, "o.in.absent", 1, 10, -9, &v, &err));
    assert_int_equal(v, -9);
    assert_ok(pl_json_opt_int(&j, NULL, "nil", 1, 10, 8, &v, &err));
    assert_int_equal(v, 8);

    assert_ok(pl_json_get_object(&j, NULL, "o.in", &node, &err));
    assert_says(pl_json_get_str(&j, node, "s", &s, &err), PL_E_INPUT, &err, "t: o.in.s: expected a string, found 6");
    assert_says(pl_json_get_str(&j, node, "q", &s, &err), PL_E_INPUT, &err, "t: o.in.q: missing; expected a string");
    assert_ok(pl_json_get_array(&j, NULL, "arr", &node, &err));
    assert_says(pl_json_int_of(&j, node->child->next, 0, 5, &v, &err), PL_E_INPUT, &err, "t: arr[1]: expected");
    assert_ok(pl_json_str_of(&j, node->child->next, &s, &err));
    assert_string_equal(s, "two");
    assert_ok(pl_json_opt_str(&j, NULL, "absent", "def", &s, &err));
    assert_string_equal(s, "def");

    assert_ok(pl_json_get_num(&j, NULL, "half", 0, 2, &x, &err));
    assert_true(x == 1.5);
    assert_says(pl_json_get_num(&j, NULL, "half", 2, 3, &x, &err), PL_E_INPUT, &err,
                "expected a number from 2 to 3, found 1.5");
    assert_says(pl_json_get_num(&j, NULL, "half", 2, INFINITY, &x, &err), PL_E_INPUT, &err, "a number of at least 2");
    assert_says(pl_json_get_num(&j, NULL, "inf", -INFINITY, INFINITY, &x, &err), PL_E_INPUT, &err, "found inf");
    assert_says(pl_json_get_num(&j, NULL, "absent", 0, 1, &x, &err), PL_E_INPUT, &err, "missing");
    assert_ok(pl_json_opt_num(&j, NULL, "absent", 0, 1, 3.5, &x, &err));
    assert_true(x == 3.5);

    assert_ok(pl_json_opt_bool(&j, NULL, "absent", false, &b, &err));
    assert_false(b);
    assert_ok(pl_json_get_bool(&j, NULL, "t", &b, &err));
    assert_true(b);
    assert_says(pl_json_get_bool(&j, NULL, "s", &b, &err), PL_E_INPUT, &err, "expected true or false, found \"text\"");
    assert_says(pl_json_get_bool(&j, NULL, "absent", &b, &err), PL_E_INPUT, &err, "missing; expected true or false");

    assert_says(pl_json_get_object(&j, NULL, "arr", &node, &err), PL_E_INPUT, &err,
                "expected an object, found an array");
    assert_says(pl_json_get_array(&j, NULL, "o", &node, &err), PL_E_INPUT, &err, "expected an array, found an object");
    assert_says(pl_json_get_array(&j, NULL, "absent", &node, &err), PL_E_INPUT, &err, "missing; expected an array");
    assert_ok(pl_json_opt_object(&j, NULL, "absent", &node, &err));
    assert_null(node);
    assert_ok(pl_json_opt_array(&j, NULL, "nil", &node, &err));
    assert_null(node);
    assert_null(pl_json_find(&j, NULL, "n.below"));
    assert_null(pl_json_find(&j, NULL, "o.i"));
    pl_json_close(&j);
}

static void test_lines(void **state) {
    (void)state;
    pl_json j;
    pl_err  err;
    int64_t v;
    assert_says(pl_json_parse(&j, "p.jsonl", 17, "{\"a\":tru}", 9, 0, &err), PL_E_INPUT, &err,
                "p.jsonl:17:6: not JSON");
    assert_ok(pl_json_parse(&j, "p.jsonl", 17, "{\"a\":-1}", 8, 0, &err));
    assert_says(pl_json_get_int(&j, NULL, "a", 0, 5, &v, &err), PL_E_INPUT, &err, "p.jsonl:17: a: expected");
    pl_json_close(&j);
}

static void test_open(void **state) {
    (void)state;
    pl_json j;
    pl_err  err;
    put_text(at("f.json"), "{\"a\":\n [1,\n  x]}");
    assert_says(pl_json_open(&j, at("f.json"), 100, 0, &err), PL_E_INPUT, &err,
                "f.json:3:3: not JSON: expected a value");
    assert_says(pl_json_open(&j, at("f.json"), 3, 0, &err), PL_E_INPUT, &err, "larger than 3 bytes");
    assert_says(pl_json_open(&j, at("g.json"), 3, 0, &err), PL_E_INPUT, &err, "g.json: cannot open");
    pl_json_close(&j);
}

static void test_memory(void **state) {
    (void)state;
    char   text[600] = "{", *p = text + 1;
    bool   done = false;
    pl_err err;
    for (int i = 0; i < 20; i++)
        p += sprintf(p, "\"k%d\":[\"v\"],", i);
    strcpy(p, "\"z\":0}");
    for (uint64_t n = 1; !done; n++) {
        pl_json j;
        assert_true(n < 500);
        pl_alloc_fail_after(n);
        pl_status st = parse(&j, text, PL_JSON_UNIQUE, &err);
        pl_alloc_fail_after(0);
        done = st == PL_OK;
        if (!done) {
            assert_says(st, PL_E_MEMORY, &err, "out of memory");
            assert_null(j.root);
        }
        pl_json_close(&j);
    }
}

// ---- writing ----

static void write_sample(pl_json_out *o, int indent) {
    pl_json_out_begin(o, indent);
    pl_json_out_object(o);
    pl_json_out_key(o, "s");
    pl_json_out_str(o, "q\"b\\n\nt\tc\x01\xc3\xa9\xff.");
    pl_json_out_key(o, "i");
    pl_json_out_int(o, -9007199254740991);
    pl_json_out_key(o, "x");
    pl_json_out_array(o);
    static const double x[] = {0.1, 1e-05, 500000, 1e300, -0.0, 1.0 / 3, INFINITY, NAN};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        pl_json_out_num(o, x[i]);
    pl_json_out_close(o, ']');
    pl_json_out_key(o, "e");
    pl_json_out_array(o);
    pl_json_out_close(o, ']');
    pl_json_out_key(o, "o");
    pl_json_out_object(o);
    pl_json_out_key(o, "b");
    pl_json_out_bool(o, true);
    pl_json_out_key(o, "n");
    pl_json_out_str(o, NULL);
    pl_json_out_close(o, '}');
    pl_json_out_close(o, '}');
}

static void test_out(void **state) {
    (void)state;
    pl_json_out o;
    pl_err      err;
    write_sample(&o, 0);
    assert_ok(pl_json_out_end(&o, &err));
    assert_string_equal(o.text, "{\"s\":\"q\\\"b\\\\n\\nt\\tc\\u0001\xc3\xa9\xef\xbf\xbd.\",\"i\":-9007199254740991,"
                                "\"x\":[0.1,1e-05,500000.0,1e+300,-0.0,0.3333333333333333,null,null],\"e\":[],"
                                "\"o\":{\"b\":true,\"n\":null}}");
    assert_int_equal(o.len, strlen(o.text));
    pl_json j;
    assert_ok(parse(&j, o.text, PL_JSON_UNIQUE, &err));
    pl_json_close(&j);
    pl_free(o.text);
    pl_json_out_begin(&o, 2);
    pl_json_out_object(&o);
    pl_json_out_key(&o, "a");
    pl_json_out_array(&o);
    pl_json_out_int(&o, 1);
    pl_json_out_int(&o, 2);
    pl_json_out_close(&o, ']');
    pl_json_out_key(&o, "e");
    pl_json_out_object(&o);
    pl_json_out_close(&o, '}');
    pl_json_out_close(&o, '}');
    assert_ok(pl_json_out_end(&o, &err));
    assert_string_equal(o.text, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"e\": {}\n}\n");
    pl_free(o.text);
}

static void test_out_memory(void **state) {
    (void)state;
    pl_err err;
    bool   done = false;
    for (uint64_t n = 1; !done; n++) {
        pl_json_out o;
        assert_true(n < 50);
        pl_alloc_fail_after(n);
        write_sample(&o, 4);
        pl_alloc_fail_after(0);
        pl_status st = pl_json_out_end(&o, &err);
        done = st == PL_OK;
        if (!done) {
            assert_says(st, PL_E_MEMORY, &err, "out of memory");
            assert_null(o.text);
        }
        pl_free(o.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),      cmocka_unit_test(test_refuses),    cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_beyond_cjson), cmocka_unit_test(test_over_lines), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_duplicates),   cmocka_unit_test(test_large),      cmocka_unit_test(test_getters),
        cmocka_unit_test(test_lines),        cmocka_unit_test(test_open),       cmocka_unit_test(test_memory),
        cmocka_unit_test(test_out),          cmocka_unit_test(test_out_memory),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
