// vocab.json with merges.txt: the one stands before the input's first 0 byte, the other behind it.
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

// The byte alphabet of GPT-2: printable bytes are themselves, the others are U+0100 and up.
static size_t byte_text(int b, char *to) {
    static const int printable[][2] = {{'!', '~'}, {0xa1, 0xac}, {0xae, 0xff}};
    int              code = b, others = 0;
    bool             shown = false;
    for (int k = 0; k < 256; k++) {
        bool p = false;
        for (int i = 0; i < 3; i++)
            p = p || (k >= printable[i][0] && k <= printable[i][1]);
        if (k == b) {
            shown = p;
            break;
        }
        others += !p;
    }
    if (!shown) code = 256 + others;
    if (code < 128) {
        to[0] = (char)code;
        return 1;
    }
    to[0] = (char)(0xc0 | code >> 6);
    to[1] = (char)(0x80 | (code & 63));
    return 2;
}

static void seeds(void) {
    static const char merges[] = "#version: 0.2\nt h\nth e\n\xc4\xa0 the\na a\naa aa\n";
    char              file[8192] = "{";
    size_t            at = 1;
    for (int b = 0; b < 256; b++) {
        char   s[3];
        size_t n = byte_text(b, s);
        at += (size_t)snprintf(file + at, sizeof file - at, "\"%s%.*s\":%d,", b == '"' || b == '\\' ? "\\" : "", (int)n,
                               s, b);
    }
    at += (size_t)snprintf(file + at, sizeof file - at,
                           "\"th\":256,\"the\":257,\"\xc4\xa0the\":258,\"aa\":259,\"aaaa\":260}") +
          1;
    memcpy(file + at, merges, sizeof merges - 1);
    pl_fuzz_seed(file, at + sizeof merges - 1);
}

static const char *const words[] = {"\"a\":", "\"th\":256",      "4194303", "t h\n", "a a\n",
                                    "\n",     "#version: 0.2\n", " ",       NULL};

const pl_fuzz_target pl_fuzz = {
    .name = "tokenizer_pair", .seeds = seeds, .words = words, .runs = 600, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *zero = memchr(data, 0, n);
    size_t         first = zero ? (size_t)(zero - data) : n;
    const char    *vocab = pl_fuzz_file("vocab.json", data, first);
    pl_fuzz_file("merges.txt", zero ? zero + 1 : data, zero ? n - first - 1 : 0);
    pl_fuzz_tokenizer(vocab, "gpt-2");
    return 0;
}
