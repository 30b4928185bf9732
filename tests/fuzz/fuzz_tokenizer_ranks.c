// tiktoken rank files: a piece in base64 and its rank a line.
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

static void base64(char *to, const char *s, size_t n) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3, to += 4) {
        unsigned v = (unsigned)(uint8_t)s[i] << 16;
        if (i + 1 < n) v |= (unsigned)(uint8_t)s[i + 1] << 8;
        if (i + 2 < n) v |= (uint8_t)s[i + 2];
        to[0] = digit[v >> 18];
        to[1] = digit[v >> 12 & 63];
        to[2] = i + 1 < n ? digit[v >> 6 & 63] : '=';
        to[3] = i + 2 < n ? digit[v & 63] : '=';
    }
    *to = 0;
}

static void seeds(void) {
    static const char *const more[] = {"th", "he", "the", " the", "aa", "aaaa", "\n\n", "\xc3\xa9", "12"};
    char                     file[8192], piece[64];
    size_t                   at = 0;
    int                      rank = 0;
    for (int b = 0; b < 256; b++, rank++) {
        base64(piece, &(char){(char)b}, 1);
        at += (size_t)snprintf(file + at, sizeof file - at, "%s %d\n", piece, rank);
    }
    pl_fuzz_seed(file, at);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++, rank++) {
        base64(piece, more[i], strlen(more[i]));
        at += (size_t)snprintf(file + at, sizeof file - at, "%s %d\n", piece, rank);
    }
    pl_fuzz_seed(file, at);
}

static const char *const words[] = {"AA== ", "IQ== 0\n", "\n", "\r\n", " 4194303", " 4194304", "====", "dGhl ", NULL};

const pl_fuzz_target pl_fuzz = {
    .name = "tokenizer_ranks", .seeds = seeds, .words = words, .runs = 600, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_fuzz_tokenizer(pl_fuzz_file("t.model", data, n), "llama-3");
    return 0;
}
