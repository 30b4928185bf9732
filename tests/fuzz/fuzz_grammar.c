// Grammars: the first byte names the reader of the others; from every state that is reached a text can end or go on.
#include "infer/grammar/grammar.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

static void seeds(void) {
    pl_fuzz_seed_text(
        "s{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"integer\",\"null\"],\"minimum\":-12},\"b\":{\"type\":"
        "\"array\",\"items\":{\"$ref\":\"#/$defs/x\"},\"maxItems\":3}},\"required\":[\"a\"],\"$defs\":{\"x\":{\"enum\":"
        "[1,\"\\u00e9\",[null]]}}}");
    pl_fuzz_seed_text(
        "s{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^[a-c]+x?$\"},{\"type\":\"number\",\"exclusiveMaximum\":3},"
        "{\"type\":\"string\",\"format\":\"date-time\"},{\"oneOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}]}");
    pl_fuzz_seed_text("c{\"form\":4,\"reasoning\":1,\"many\":true,\"tools\":[{\"name\":\"f\",\"parameters\":{\"type\":"
                      "\"object\",\"properties\":"
                      "{\"a\":{\"$ref\":\"#/$defs/x\"}},\"$defs\":{\"x\":{\"type\":\"boolean\"}}}},{\"name\":\"g\"}]}");
    pl_fuzz_seed_text("r^(?:a|[^\\d-]{2,3}|\\u00e9\\.)*x+?$");
    pl_fuzz_seed_text(
        "groot ::= term (\"+\" term)* # c\nterm ::= [0-9]{1,3} | \"(\" root \")\" | .\n  | \"\\x41\\u00e9\"");
}

static const char *const words[] = {"\"type\":",
                                    "\"enum\":",
                                    "\"const\":",
                                    "\"$ref\":\"#\"",
                                    "\"items\":",
                                    "\"properties\":",
                                    "\"required\":",
                                    "\"minimum\":",
                                    "\"maxLength\":",
                                    "\"pattern\":",
                                    "(?:",
                                    "{2,}",
                                    "[^",
                                    "\\d",
                                    "\\uFFFF",
                                    " ::= ",
                                    "root",
                                    "\" | \"",
                                    "::=",
                                    "[a-z]",
                                    "*",
                                    "+",
                                    "?",
                                    "\n",
                                    NULL};

const pl_fuzz_target pl_fuzz = {.name = "grammar", .seeds = seeds, .words = words, .runs = 8000, .max_len = 1 << 12};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_grammar_kind kind = n > 0 && data[0] == 's'   ? PL_GRAMMAR_SCHEMA
                           : n > 0 && data[0] == 'r' ? PL_GRAMMAR_REGEX
                           : n > 0 && data[0] == 'c' ? PL_GRAMMAR_CALLS
                                                     : PL_GRAMMAR_GBNF;
    pl_grammar     *g;
    pl_err          err = {0};
    if (n == 0) return 0;
    if (!pl_fuzz_result(pl_grammar_open(&g, kind, (const char *)data + 1, n - 1, NULL, &err), &err, &g)) return 0;
    int32_t at = pl_grammar_start(g);
    for (int step = 0; step < 64 && at >= 0; step++) { // of the bytes that go on, one that the input chooses
        int32_t to = PL_GRAMMAR_DEAD;
        for (int b = 0; b < 256 && to < 0; b++)
            to = pl_grammar_byte(g, at, (uint8_t)(b + data[(size_t)step % n]));
        if (to < 0 && !pl_grammar_may_end(g, at) && !pl_grammar_failed(g))
            pl_fuzz_finding("a text can neither end nor go on");
        at = to;
    }
    pl_grammar_close(g);
    return 0;
}
