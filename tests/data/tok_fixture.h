// Tokenizer files that the tests of data/ make for themselves.
#ifndef PL_TOK_FIXTURE_H
#define PL_TOK_FIXTURE_H

#include "data/tokenizer/spm_train.h"
#include "data/tokenizer/tokenizer.h"
#include "kernels/base/strbuf.h"
#include "tests/checkpoints/scratch.h"

// A llama2.c vocabulary: specials, bytes, characters, and a few merges with ties and chains among their scores.
static const struct {
    const char *s;
    float       score;
} tiny_pieces[] = {{" ", -50},   {"t", -51},       {"h", -52},    {"e", -53},        {"a", -54},    {"c", -55},
                   {"n", -56},   {"d", -57},       {"\n", -58},   {"\xC3\xA9", -59}, {"th", -2},    {"he", -2},
                   {"the", -4},  {" the", -5},     {" t", -1},    {"ca", -7},        {"at", -6.5f}, {"cat", -8},
                   {" cat", -3}, {"aa", -9},       {"aaaa", -10}, {" a", -9},        {"an", -9},    {"and", -9},
                   {"nd", -9},   {" and", -1e11f}, {"e ", -2.5f}};
enum { TINY_EXTRA = sizeof tiny_pieces / sizeof *tiny_pieces, TINY_VOCAB = 259 + TINY_EXTRA };

// Whether no piece has a space behind something else (then words encode one by one).
static bool tiny_apart;

static inline void tiny_piece(int id, char s[32], float *score) {
    *score = 0;
    if (id == 0)
        strcpy(s, "<unk>");
    else if (id == 1)
        strcpy(s, "\n<s>\n");
    else if (id == 2)
        strcpy(s, "\n</s>\n");
    else if (id < 259)
        snprintf(s, 32, "<0x%02X>", id - 3);
    else {
        strcpy(s, tiny_apart && id == TINY_VOCAB - 1 ? "e\n" : tiny_pieces[id - 259].s);
        *score = tiny_pieces[id - 259].score;
    }
}

// The file's bytes; returns how many (at most 8192).
static inline size_t tiny_bin(uint8_t *to) {
    int32_t longest = 8;
    size_t  n = 4;
    memcpy(to, &longest, 4);
    for (int id = 0; id < TINY_VOCAB; id++) {
        char  s[32];
        float score;
        tiny_piece(id, s, &score);
        int32_t len = (int32_t)strlen(s);
        memcpy(to + n, &score, 4);
        memcpy(to + n + 4, &len, 4);
        memcpy(to + n + 8, s, (size_t)len);
        n += 8 + (size_t)len;
    }
    return n;
}

static inline pl_tokenizer *tiny_open(void) {
    uint8_t bin[8192];
    pl_err  err;
    put_file(at("tiny.bin"), bin, tiny_bin(bin));
    pl_tokenizer *tok;
    assert_ok(pl_tokenizer_open(&tok, at("tiny.bin"), &err));
    return tok;
}

// A corpus of one document, repeated lines of words so that merges exist.
static inline pl_corpus *small_corpus(void) {
    static const char *const words[] = {"the",   "cat",   "sat",   "on",      "a",           "mat", "and",
                                        "dog",   "log",   "rain",  "plain",   "caf\xC3\xA9", "12",  "3,456",
                                        "hello", "world", "again", "morning", "light"};
    pl_strbuf                b = {0};
    unsigned                 x = 1;
    for (int line = 0; line < 300; line++) {
        for (int w = 0; w < 9; w++) {
            x = x * 1664525u + 1013904223u;
            const char *s = words[(x >> 20) % (sizeof words / sizeof *words)];
            pl_strbuf_add(&b, s, strlen(s));
            pl_strbuf_add(&b, w == 8 ? ".\n" : " ", w == 8 ? 2 : 1);
        }
        if (line % 7 == 0) pl_strbuf_add(&b, "\n", 1);
    }
    pl_corpus *c = pl_calloc(1, sizeof *c);
    assert_non_null(c);
    c->docs = pl_calloc(1, sizeof *c->docs);
    assert_non_null(c->docs);
    c->n = 1;
    c->bytes = c->docs[0].bytes = b.n;
    c->docs[0].name = pl_strdup("small");
    c->docs[0].text = pl_strbuf_take(&b);
    return c;
}

static inline void assert_same_ids(const pl_tokenizer *a, const pl_tokenizer *b, const char *text, size_t bytes) {
    pl_err   err;
    int32_t *x, *y;
    int64_t  n, m;
    assert_ok(pl_tokenizer_encode(a, text, bytes, PL_TOK_ADD_BOS, &x, &n, &err));
    assert_ok(pl_tokenizer_encode(b, text, bytes, PL_TOK_ADD_BOS, &y, &m, &err));
    assert_int_equal(n, m);
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
    pl_free(x);
    pl_free(y);
}

// Encodes, decodes whole and one by one, and asks for the same text.
static inline void assert_round_trip(const pl_tokenizer *tok, const char *text, size_t n, unsigned flags) {
    pl_err   err;
    int32_t *ids;
    int64_t  m;
    char    *back;
    size_t   len;
    assert_ok(pl_tokenizer_encode(tok, text, n, flags, &ids, &m, &err));
    assert_ok(pl_tokenizer_decode(tok, ids, m, &back, &len, &err));
    if (len != n || memcmp(back, text, n) != 0) fail_msg("\"%s\" came back as \"%s\"", text, back);
    pl_free(back);
    pl_free(ids);
}

#endif
