#include "checkpoints/ggml.h"
#include "kernels/base/hash.h"

#include <string.h>

// Elements of a block.
#define SMALL 32
#define LARGE 256

static float half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return pl_f16_to_f32(h);
}

// ---- blocks of 32: a scale in fp16, perhaps a minimum, then the numbers; element i + 16 is in the upper half of the
// byte of element i

static int nibble(const uint8_t *pair, int i) {
    return i < 16 ? pair[i] & 15 : pair[i - 16] >> 4;
}

static void read_q4_0(const uint8_t *b, float *y) {
    float d = half_at(b);
    for (int i = 0; i < SMALL; i++)
        y[i] = d * (float)(nibble(b + 2, i) - 8);
}

static void read_q4_1(const uint8_t *b, float *y) {
    float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < SMALL; i++) {
        float scaled = d * (float)nibble(b + 4, i);
        y[i] = scaled + m;
    }
}

// The fifth bits lie in one word, element i's at i.
static int five_bits(const uint8_t *high, const uint8_t *pair, int i) {
    return nibble(pair, i) | (high[i / 8] >> i % 8 & 1) << 4;
}

static void read_q5_0(const uint8_t *b, float *y) {
    float d = half_at(b);
    for (int i = 0; i < SMALL; i++)
        y[i] = d * (float)(five_bits(b + 2, b + 6, i) - 16);
}

static void read_q5_1(const uint8_t *b, float *y) {
    float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < SMALL; i++) {
        float scaled = d * (float)five_bits(b + 4, b + 8, i);
        y[i] = scaled + m;
    }
}

static void read_q8_0(const uint8_t *b, float *y) {
    float d = half_at(b);
    for (int i = 0; i < SMALL; i++)
        y[i] = (float)(int8_t)b[2 + i] * d;
}

static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void read_iq4_nl(const uint8_t *b, float *y) {
    float d = half_at(b);
    for (int i = 0; i < SMALL; i++)
        y[i] = d * (float)uneven[nibble(b + 2, i)];
}

// A scale 2^(b[0] - 128), as the numbers are twice those of E2M1.
static void read_mxfp4(const uint8_t *b, float *y) {
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    uint32_t            bits = b[0] < 2 ? (uint32_t)0x200000 << b[0] : (uint32_t)(b[0] - 1) << 23;
    float               d;
    memcpy(&d, &bits, sizeof d);
    for (int i = 0; i < SMALL; i++)
        y[i] = d * (float)twice[nibble(b + 1, i)];
}

// ---- blocks of 256: scales of scales

// Two bits of element i: of each 128 elements the first 32 are in the lowest bits of 32 bytes, and so on.
static int two_bits(const uint8_t *q, int i) {
    return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

// Four bits: of each 64 elements the first 32 are in the lower halves of 32 bytes.
static int four_bits(const uint8_t *q, int i) {
    int byte = q[i / 64 * 32 + i % 32];
    return i % 64 < 32 ? byte & 15 : byte >> 4;
}

// One bit: elements i, i + 32, ... are the bits of byte i.
static int one_bit(const uint8_t *q, int i) {
    return q[i % 32] >> i / 32 & 1;
}

static void read_q2_k(const uint8_t *b, float *y) {
    const uint8_t *scale = b, *q = b + 16;
    float          d = half_at(b + 80), dmin = half_at(b + 82);
    for (int i = 0; i < LARGE; i++) {
        float by = d * (float)(scale[i / 16] & 15), less = dmin * (float)(scale[i / 16] >> 4);
        float scaled = by * (float)two_bits(q, i);
        y[i] = scaled - less;
    }
}

static void read_q3_k(const uint8_t *b, float *y) {
    const uint8_t *high = b, *q = b + 32, *packed = b + 96;
    float          d = half_at(b + 108);
    for (int i = 0; i < LARGE; i++) {
        int   s = i / 16; // 16 scales of six bits: four in the first eight bytes, two in the last four
        int   low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4, top = packed[8 + s % 4] >> s / 4 * 2 & 3;
        float by = d * (float)((low | top << 4) - 32);
        y[i] = by * (float)(two_bits(q, i) - (one_bit(high, i) ? 0 : 4));
    }
}

// Scale and minimum j of eight, of six bits each.
static void scale_and_minimum(const uint8_t *packed, int j, int *scale, int *minimum) {
    *scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    *minimum = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
}

// high: a fifth bit of each element, NULL: none.
static void read_with_minima(const uint8_t *b, const uint8_t *high, const uint8_t *q, float *y) {
    float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < LARGE / 32; j++) {
        int scale, minimum;
        scale_and_minimum(b + 4, j, &scale, &minimum);
        float by = d * (float)scale, less = dmin * (float)minimum;
        for (int i = 32 * j; i < 32 * j + 32; i++) {
            float scaled = by * (float)(four_bits(q, i) | (high ? one_bit(high, i) << 4 : 0));
            y[i] = scaled - less;
        }
    }
}

static void read_q4_k(const uint8_t *b, float *y) {
    read_with_minima(b, NULL, b + 16, y);
}

static void read_q5_k(const uint8_t *b, float *y) {
    read_with_minima(b, b + 16, b + 48, y);
}

static int six_bits(const uint8_t *low, const uint8_t *high, int i) {
    int byte = low[i / 128 * 64 + i % 64]; // of each 128 elements the first 64 in the lower halves
    return (i % 128 < 64 ? byte & 15 : byte >> 4) | two_bits(high, i) << 4;
}

static void read_q6_k(const uint8_t *b, float *y) {
    const uint8_t *low = b, *high = b + 128, *scale = b + 192;
    float          d = half_at(b + 208);
    for (int i = 0; i < LARGE; i++) {
        float by = d * (float)(int8_t)scale[i / 16];
        y[i] = by * (float)(six_bits(low, high, i) - 32);
    }
}

static void read_iq4_xs(const uint8_t *b, float *y) {
    const uint8_t *low = b + 4, *q = b + 8;
    float          d = half_at(b);
    for (int j = 0; j < LARGE / 32; j++) {
        int   lower = j % 2 ? low[j / 2] >> 4 : low[j / 2] & 15, upper = b[2 + j / 4] >> j % 4 * 2 & 3;
        float by = d * (float)((lower | upper << 4) - 32);
        for (int i = 0; i < 32; i++)
            y[32 * j + i] = by * (float)uneven[nibble(q + 16 * j, i)];
    }
}

// ---- blocks as codes: columns 32 * part .. of a block

static void signed_halves(const uint8_t *b, pl_code_row *to) {
    to->scale[0] = half_at(b);
    to->minimum = 0;
}

static void take_q4_0(const uint8_t *b, int part, pl_code_row *to) {
    (void)part;
    signed_halves(b, to);
    for (int i = 0; i < SMALL; i++)
        to->u[i] = (uint8_t)nibble(b + 2, i);
}

static void take_q4_1(const uint8_t *b, int part, pl_code_row *to) {
    (void)part;
    to->scale[0] = half_at(b);
    to->minimum = half_at(b + 2);
    for (int i = 0; i < SMALL; i++)
        to->u[i] = (uint8_t)nibble(b + 4, i);
}

static void take_q5_0(const uint8_t *b, int part, pl_code_row *to) {
    (void)part;
    signed_halves(b, to);
    for (int i = 0; i < SMALL; i++)
        to->u[i] = (uint8_t)(five_bits(b + 2, b + 6, i) - 16 + 128);
}

static void take_q8_0(const uint8_t *b, int part, pl_code_row *to) {
    (void)part;
    signed_halves(b, to);
    for (int i = 0; i < SMALL; i++)
        to->u[i] = (uint8_t)(b[2 + i] + 128);
}

static void take_q4_k(const uint8_t *b, int part, pl_code_row *to) {
    int scale, minimum;
    scale_and_minimum(b + 4, part, &scale, &minimum);
    to->scale[0] = half_at(b) * (float)scale;
    to->minimum = -(half_at(b + 2) * (float)minimum);
    for (int i = 0; i < 32; i++)
        to->u[i] = (uint8_t)four_bits(b + 16, 32 * part + i);
}

static void take_q6_k(const uint8_t *b, int part, pl_code_row *to) {
    for (int i = 0; i < 2; i++)
        to->scale[i] = half_at(b + 208) * (float)(int8_t)b[192 + 2 * part + i];
    for (int i = 0; i < 32; i++)
        to->u[i] = (uint8_t)(six_bits(b, b + 128, 32 * part + i) - 32 + 128);
}

// ---- types

typedef struct kind {
    pl_weight_code code; // first: the code of an entry is a kind's
    pl_ggml_type   type;
    int            bits, group; // of an element; elements that share a scale
    void (*read)(const uint8_t *block, float *y);
    void (*take)(const uint8_t *block, int part, pl_code_row *to); // NULL: no codes
} kind;

static size_t row_bytes(const pl_weight_entry *e) {
    const kind *k = (const kind *)e->code;
    return (size_t)(e->shape[1] / k->type.block) * (size_t)k->type.bytes;
}

static void read_rows(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst) {
    const kind    *k = (const kind *)e->code;
    size_t         row = row_bytes(e);
    const uint8_t *b = (const uint8_t *)e->data + (size_t)row0 * row, *end = b + (size_t)n * row;
    for (; b < end; b += k->type.bytes, dst += k->type.block)
        k->read(b, dst);
}

static void read_codes(const pl_weight_entry *e, int64_t row, pl_code_row *to) {
    const kind    *k = (const kind *)e->code;
    const uint8_t *b = (const uint8_t *)e->data + (size_t)row * row_bytes(e), *end = b + row_bytes(e);
    for (; b < end; b += k->type.bytes)
        for (int part = 0; part < k->type.block / PL_CODE_BLOCK; part++)
            k->take(b, part, to++);
}

static size_t span_of(const pl_weight_entry *e) {
    return (size_t)e->shape[0] * row_bytes(e);
}

static uint64_t hash_name(const pl_weight_entry *e, uint64_t h) {
    return pl_hash_more(h, e->code->name, strlen(e->code->name));
}

static pl_weight_grain grain_of(const pl_weight_entry *e) {
    const kind *k = (const kind *)e->code;
    return (pl_weight_grain){.bits = k->bits, .rows = 1, .cols = k->group};
}

#define PLAIN(text, t, size)                                                                                           \
    {                                                                                                                  \
        .type = {.name = (text), .dtype = (t), .block = 1, .bytes = (size) }                                           \
    }
#define OTHER(text)                                                                                                    \
    {                                                                                                                  \
        .type = {.name = (text) }                                                                                      \
    } // not supported
#define ENCODED(number, text, of, size, depth, share, reader)                                                          \
    [number] = {                                                                                                       \
        .code = {.name = (text), .read = read_rows, .span = span_of, .hash = hash_name, .grain = grain_of},            \
        .type = {.name = (text), .dtype = PL_BF16, .block = (of), .bytes = (size), .code = &kinds[number].code},       \
        .bits = (depth),                                                                                               \
        .group = (share),                                                                                              \
        .read = (reader)}
// The same with codes, of a form.
#define PACKED(number, text, of, size, depth, share, reader, as, taker)                                                \
    [number] = {.code = {.name = (text),                                                                               \
                         .read = read_rows,                                                                            \
                         .span = span_of,                                                                              \
                         .hash = hash_name,                                                                            \
                         .grain = grain_of,                                                                            \
                         .form = (as),                                                                                 \
                         .codes = read_codes},                                                                         \
                .type = {.name = (text),                                                                               \
                         .dtype = PL_BF16,                                                                             \
                         .block = (of),                                                                                \
                         .bytes = (size),                                                                              \
                         .code = &kinds[number].code},                                                                 \
                .bits = (depth),                                                                                       \
                .group = (share),                                                                                      \
                .read = (reader),                                                                                      \
                .take = (taker)}

// By ggml's numbers.
static const kind kinds[] = {
    [0] = PLAIN("F32", PL_F32, 4),
    [1] = PLAIN("F16", PL_F16, 2),
    PACKED(2, "Q4_0", SMALL, 18, 4, 32, read_q4_0, PL_CODE_4, take_q4_0),
    PACKED(3, "Q4_1", SMALL, 20, 4, 32, read_q4_1, PL_CODE_4_MINIMA, take_q4_1),
    PACKED(6, "Q5_0", SMALL, 22, 5, 32, read_q5_0, PL_CODE_8, take_q5_0),
    ENCODED(7, "Q5_1", SMALL, 24, 5, 32, read_q5_1),
    PACKED(8, "Q8_0", SMALL, 34, 8, 32, read_q8_0, PL_CODE_8, take_q8_0),
    [9] = OTHER("Q8_1"),
    ENCODED(10, "Q2_K", LARGE, 84, 2, 16, read_q2_k),
    ENCODED(11, "Q3_K", LARGE, 110, 3, 16, read_q3_k),
    PACKED(12, "Q4_K", LARGE, 144, 4, 32, read_q4_k, PL_CODE_4_WIDE, take_q4_k),
    ENCODED(13, "Q5_K", LARGE, 176, 5, 32, read_q5_k),
    PACKED(14, "Q6_K", LARGE, 210, 6, 16, read_q6_k, PL_CODE_8_WIDE, take_q6_k),
    [15] = OTHER("Q8_K"),
    [16] = OTHER("IQ2_XXS"),
    [17] = OTHER("IQ2_XS"),
    [18] = OTHER("IQ3_XXS"),
    [19] = OTHER("IQ1_S"),
    ENCODED(20, "IQ4_NL", SMALL, 18, 4, 32, read_iq4_nl),
    [21] = OTHER("IQ3_S"),
    [22] = OTHER("IQ2_S"),
    ENCODED(23, "IQ4_XS", LARGE, 136, 4, 32, read_iq4_xs),
    [24] = OTHER("I8"),
    [25] = OTHER("I16"),
    [26] = OTHER("I32"),
    [27] = OTHER("I64"),
    [28] = OTHER("F64"),
    [29] = OTHER("IQ1_M"),
    [30] = PLAIN("BF16", PL_BF16, 2),
    [34] = OTHER("TQ1_0"),
    [35] = OTHER("TQ2_0"),
    ENCODED(39, "MXFP4", SMALL, 17, 4, 32, read_mxfp4),
    [40] = OTHER("NVFP4"),
    [41] = OTHER("Q1_0"),
};

const pl_ggml_type *pl_ggml_type_of(uint32_t number) {
    return number < sizeof kinds / sizeof *kinds && kinds[number].type.name ? &kinds[number].type : NULL;
}

const char *pl_ggml_type_name(const pl_weight_entry *e) {
    return e->code ? e->code->name : pl_dtype_name(e->dtype);
}
