// Regular expressions of tokenizer files: the pattern stands before the input's first line feed, the text behind it.
#include "data/tokenizer/regex.h"
#include "kernels/base/utf8.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void seeds(void) {
    static const char        text[] = "\nthe cat's 1234 caf\xc3\xa9\n\n  x\xe6\x97\xa5";
    static const char *const pattern[] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+",
        "[a[bc]\\d]+|\\w*?|.", "(a|b)*c?+", "[\\x{4e00}-\\x{9fff}]|(?<=a)b|(?>x+)"};
    for (size_t i = 0; i < sizeof pattern / sizeof *pattern; i++) {
        char   seed[256];
        size_t n = strlen(pattern[i]);
        memcpy(seed, pattern[i], n);
        memcpy(seed + n, text, sizeof text - 1);
        pl_fuzz_seed(seed, n + sizeof text - 1);
    }
}

static const char *const words[] = {
    "\\p{L}", "\\p{",     "\\s", "\\S", "[^",          "[",           "]",  "(?:", "(?=", "(?!", "(?<=", "(?i:", "(?>",
    "{1,3}",  "{,65536}", "*+",  "+?",  "\\x{10ffff}", "\\x{110000}", "&&", "|",   "(",   ")",   "\\u",  NULL};

const pl_fuzz_target pl_fuzz = {.name = "regex", .seeds = seeds, .words = words, .runs = 5000, .max_len = 1 << 10};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *feed = memchr(data, '\n', n);
    if (!feed || memchr(data, 0, (size_t)(feed - data))) return 0;
    size_t len = (size_t)(feed - data), text = n - len - 1, at = 0, start, end;
    char  *pattern = malloc(len + 1);
    pl_err err;
    bool   found = true;
    if (!pattern) pl_fuzz_finding("no memory");
    memcpy(pattern, data, len);
    pattern[len] = 0;
    const char   *s = (const char *)feed + 1;
    pl_regex     *r = NULL;
    pl_matcher    m = {0};
    pl_regex_walk w = {0};
    if (pl_utf8_valid(pattern, len) == len && pl_utf8_valid(s, text) == text &&
        pl_fuzz_result(pl_regex_compile(&r, pattern, &err), &err, &r)) {
        for (size_t k = 0; k <= text + 1; k++) {
            if (!pl_fuzz_result(pl_regex_next(r, &m, s, text, &w, &found, &start, &end, &err), &err, NULL) || !found)
                break;
            if (start < at || end < start || end > text)
                pl_fuzz_finding("a match [%zu, %zu) behind %zu", start, end, at);
            if (k > text) pl_fuzz_finding("more matches than a text of %zu bytes has", text);
            at = end;
        }
        pl_matcher_fini(&m);
        pl_regex_free(r);
    }
    free(pattern);
    return 0;
}
