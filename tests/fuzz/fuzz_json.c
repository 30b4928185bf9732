// JSON texts, and the getters over every node of what is accepted.
#include "kernels/base/arena.h"
#include "kernels/base/json.h"
#include "kernels/base/utf8.h"
#include "tests/fuzz/fuzz.h"

#include <float.h>
#include <string.h>

static void seeds(void) {
    pl_fuzz_seed_text("{}");
    pl_fuzz_seed_text("[1,-2.5e3,0,1e308,true,false,null,\"x\"]");
    pl_fuzz_seed_text("\xef\xbb\xbf{\"a\":{\"b\":{\"c\":[[[[]]]]}},\"a.b\":\"\\u00e9\\ud83d\\ude00\\n\\\"\"}\n");
    pl_fuzz_seed_text("{\"k0\":0,\"k1\":1,\"k2\":2,\"k3\":3,\"k4\":4,\"k5\":5,\"k6\":6,\"k7\":7,\"k8\":8,\"k9\":9,"
                      "\"k10\":0,\"k11\":1,\"k12\":2,\"k13\":3,\"k14\":4,\"k15\":5,\"k16\":6,\"k17\":7}");
    pl_fuzz_seed_text("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
    pl_fuzz_seed_text("123456789012345678901234567890123456789012345678901234567890.5");
}

static const char *const words[] = {"{\"a\":",          "\"a.b\"", "[[",    "]]", "}}",   "\\u0000",      "\\ud800",
                                    "\\udc00",          "\\u00e4", "1e999", "-0", "null", "\xed\xa0\x80", "\xc0\x80",
                                    "\xf4\x90\x80\x80", NULL};

const pl_fuzz_target pl_fuzz = {.name = "json", .seeds = seeds, .words = words, .runs = 20000, .max_len = 1 << 14};

static void walk(const pl_json *j, const cJSON *node, int depth) {
    pl_err      err;
    int64_t     i;
    double      x;
    bool        b;
    const char *s;
    if (depth > PL_JSON_DEPTH) pl_fuzz_finding("deeper than %d", PL_JSON_DEPTH);
    pl_fuzz_result(pl_json_int_of(j, node, -5, PL_JSON_INT_MAX, &i, &err), &err, NULL);
    if (pl_fuzz_result(pl_json_str_of(j, node, &s, &err), &err, NULL)) {
        if (pl_utf8_valid(s, strlen(s)) < strlen(s)) pl_fuzz_finding("a string that is not UTF-8");
    }
    const cJSON *c;
    cJSON_ArrayForEach(c, node) {
        if (cJSON_IsObject(node)) {
            pl_fuzz_result(pl_json_get_num(j, node, c->string, -DBL_MAX, DBL_MAX, &x, &err), &err, NULL);
            pl_fuzz_result(pl_json_opt_bool(j, node, c->string, true, &b, &err), &err, NULL);
            pl_fuzz_result(pl_json_opt_str(j, node, c->string, "", &s, &err), &err, NULL);
        }
        walk(j, c, depth + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    for (unsigned flags = 0; flags <= PL_JSON_UNIQUE; flags++) {
        pl_err  err;
        pl_json j;
        if (!pl_fuzz_result(pl_json_parse(&j, "x.json", flags ? 0 : 7, data, n, flags, &err), &err, &j.root)) continue;
        walk(&j, j.root, 0);
        pl_json_close(&j);
    }
    return 0;
}
