// SentencePiece models made by hand, field by field, for the targets that read them.
#ifndef PL_FUZZ_SPM_SEED_H
#define PL_FUZZ_SPM_SEED_H

#include "data/tokenizer/spm_proto.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

typedef struct spm_bytes {
    uint8_t b[8192];
    size_t  n;
} spm_bytes;

static inline void spm_put(spm_bytes *m, const void *data, size_t n) {
    if (n > sizeof m->b - m->n) pl_fuzz_finding("a seed of more than %zu bytes", sizeof m->b);
    memcpy(m->b + m->n, data, n);
    m->n += n;
}

// A field of wire type 2.
static inline void spm_field(spm_bytes *m, int number, const void *data, size_t n) {
    spm_put(m, (uint8_t[]){(uint8_t)(number << 3 | 2), (uint8_t)(n | 0x80), (uint8_t)(n >> 7)}, 3);
    spm_put(m, data, n);
}

static inline void spm_piece(spm_bytes *m, const char *s, float score, int type) {
    uint8_t p[64];
    size_t  n = strlen(s);
    p[0] = 0x0a;
    p[1] = (uint8_t)n;
    memcpy(p + 2, s, n);
    p[n + 2] = 0x15;
    memcpy(p + n + 3, &score, 4);
    p[n + 7] = 0x18;
    p[n + 8] = (uint8_t)type;
    spm_field(m, 1, p, n + 9);
}

// model_type: 1 unigram, 2 BPE, 3 word, 4 char. charsmap: with a normaliser that turns "x" into "zy".
static inline void spm_model(spm_bytes *m, int model_type, bool charsmap) {
    static const char *const words[] = {
        "\xE2\x96\x81",    "a",  "b",    "t",  "h",       "e", "z", "y", "ab", "th", "the",
        "\xE2\x96\x81the", "aa", "aaaa", "\n", "\xC3\xA9"};
    *m = (spm_bytes){.n = 0};
    spm_piece(m, "<unk>", 0, PL_SPM_UNKNOWN);
    spm_piece(m, "<s>", 0, PL_SPM_CONTROL);
    spm_piece(m, "</s>", 0, PL_SPM_CONTROL);
    spm_piece(m, "cat", 0, PL_SPM_USER_DEFINED);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        spm_piece(m, words[i], -(float)i, PL_SPM_NORMAL);
    spm_piece(m, "th\xE2\x96\x81", -30, PL_SPM_UNUSED);
    spm_field(m, 2, (uint8_t[]){0x18, (uint8_t)model_type}, 2);
    if (!charsmap) return;
    // Darts-clone: the label in the low 8 bits, 0x100 has a leaf, offset << 10.
    uint8_t   map[4 + 1024 + 4] = {0, 4, 0, 0};
    uint32_t  units[256] = {0};
    spm_bytes spec = {.n = 0};
    units['x'] = 'x' | 0x100u | ('x' ^ 1u) << 10;
    units[1] = 0x80000000u;
    memcpy(map + 4, units, sizeof units);
    memcpy(map + 1028, "zy\0", 4);
    spm_field(&spec, 2, map, sizeof map);
    spm_put(&spec, "\x18\x01\x20\x01\x28\x01", 6); // dummy prefix, extra whitespace removed, spaces escaped
    spm_field(m, 3, spec.b, spec.n);
}

#endif
