// llama2.c's tokenizer.bin.
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

static uint8_t file[8192];
static size_t  at;

static void put(const char *s, float score) {
    int32_t n = (int32_t)strlen(s);
    memcpy(file + at, &score, 4);
    memcpy(file + at + 4, &n, 4);
    memcpy(file + at + 8, s, (size_t)n);
    at += 8 + (size_t)n;
}

static void seeds(void) {
    static const char *const more[] = {" ",  "t",   "h",    "e",  "a",    "\n", "\xc3\xa9",
                                       "th", "the", " the", "aa", "aaaa", "e "};
    memcpy(file, &(int32_t){8}, 4);
    at = 4;
    put("<unk>", 0);
    put("\n<s>\n", 0);
    put("\n</s>\n", 0);
    for (int b = 0; b < 256; b++) {
        char hex[8];
        snprintf(hex, sizeof hex, "<0x%02X>", (unsigned)b);
        put(hex, 0);
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        put(more[i], -(float)i);
        if (i == 0 || i == 11) pl_fuzz_seed(file, at);
    }
    pl_fuzz_seed(file, at);
}

const pl_fuzz_target pl_fuzz = {.name = "tokenizer_llama2c", .seeds = seeds, .runs = 2000, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_fuzz_tokenizer(pl_fuzz_file("tokenizer.bin", data, n), NULL);
    return 0;
}
