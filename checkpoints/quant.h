// Quantised Hugging Face folders: the schemes that config.json states, and the tensors of a file that are one matrix.
//
//   w[r][c] = (q[r][c] - z) * s     s and z of the group of (r, c); fp32, each operation rounded once
//
// A matrix [rows, cols] is a tensor of elements and its companions (scales, zeros, groups of columns), as the formats'
// own libraries write them: fp8 (transformers), compressed-tensors 0.20, AutoAWQ 0.2.9 (gemm), GPTQModel 7.7 (gptq,
// gptq_v2), AutoRound 0.16 (in the layouts of those two), NVIDIA ModelOpt 0.47. Libraries that compute in the scales'
// fp16 or bf16 round a product to it; here the exact one is rounded once, to the type in which the target is opened.
// The tensors of a file decide what is quantised, whatever lists of ignored modules say; each quantised matrix must be
// of one of the config's schemes. Quantised activations and caches are not imitated.
#ifndef PL_QUANT_H
#define PL_QUANT_H

#include "checkpoints/weights.h"
#include "kernels/base/json.h"

#define PL_QUANT_SCHEMES 16

typedef enum pl_quant_kind {
    PL_QUANT_BYTES,  // elements F8_E4M3 or I8: weights_bytes.c
    PL_QUANT_PACKED, // fields of words along a row: weights_packed.c
    PL_QUANT_NVFP4,  // weights_nvfp4.c
    PL_QUANT_MXFP4,  // weights_mxfp4.c
    PL_QUANT_AWQ,    // weights_awq.c
    PL_QUANT_GPTQ    // weights_gptq.c
} pl_quant_kind;

// How a config says that matrices are quantised. Sizes: 0 is the matrix's own.
typedef struct pl_quant_scheme {
    pl_quant_kind kind;
    int           bits;
    bool          real;       // BYTES: F8_E4M3, else I8
    bool          zeros;      // each group has a zero
    bool          either;     // one scale for the whole matrix is as good as one for each of group_rows
    int64_t       group_rows; // rows and columns that share a scale
    int64_t       group_cols;
} pl_quant_scheme;

typedef struct pl_quant {
    char            name[64]; // method and format; "": the folder is not quantised
    int             n;        // schemes
    pl_quant_scheme scheme[PL_QUANT_SCHEMES];
    int             zero_shift;         // is added to the zeros that are stored, modulo 2^bits: GPTQ's first version
    bool            activations, cache; // are quantised too, in engines
    const cJSON    *ignore;             // names of modules; NULL: none. Lives as long as the JSON
} pl_quant;

// Reads a config (quantization_config of config.json). MXFP4 of GPT-OSS, which needs none of this, leaves *q empty.
// PL_E_INPUT names a method or a setting that is not supported.
pl_status pl_quant_parse(pl_quant *q, const pl_json *j, const cJSON *config, pl_err *err);
// Reads that of a folder: config.json's, its text_config's, or hf_quant_config.json. *j: the file, which the caller
// closes; zeroed where there is none.
pl_status pl_quant_read(pl_quant *q, pl_json *j, const char *dir, pl_err *err);

// The companions of a matrix; lives as long as the source, as pl_weight_entry.scale.
typedef struct pl_quant_matrix {
    const pl_st_entry *weight, *scale, *zero, *index; // NULL: there is none
    int                bits, zero_shift;
    int64_t            group_rows, group_cols; // above 0
    int64_t            groups;                 // scales for a row
    float              factor;                 // NVFP4: of all scales, by which they are multiplied
    bool               divides;                // NVFP4: factor divides them instead
} pl_quant_matrix;

typedef enum pl_quant_role { PL_QUANT_PLAIN, PL_QUANT_COMPANION, PL_QUANT_ELEMENTS } pl_quant_role;

// Sets the role of a tensor of a set under q. ELEMENTS: *e (but for its name, which is `module` bytes of t's, then
// ".weight") and *m are the matrix, checked so that reading stays within its tensors. COMPANION: belongs to a
// matrix, or to activations and caches.
pl_status pl_quant_join(pl_quant_role *role, pl_weight_entry *e, pl_quant_matrix *m, int *module, const pl_quant *q,
                        const pl_st *set, const pl_st_entry *t, pl_err *err);

// ---- for the codes ----

extern const pl_weight_code pl_weight_fp8, pl_weight_int8, pl_weight_packed, pl_weight_nvfp4, pl_weight_awq,
    pl_weight_gptq;

// Scale i of a tensor of scales; U8 is E8M0.
static inline float pl_quant_scale(const pl_st_entry *scale, int64_t i) {
    pl_dtype t = scale->dtype == PL_U8 ? PL_F8_E8M0 : scale->dtype;
    float    s;
    pl_to_f32(&s, (const uint8_t *)scale->data + (size_t)i * pl_dtype_size(t), t, 1);
    return s;
}

static inline uint32_t pl_quant_word(const uint8_t *words, int64_t i) {
    uint32_t w;
    memcpy(&w, words + 4 * i, 4);
    return w;
}

// Field i of a stream of fields of `bits`, the lowest first, in words that lie `step` apart; it may lie across two.
static inline uint32_t pl_quant_field(const uint8_t *words, int64_t step, int64_t i, int bits) {
    int64_t  at = i * bits / 32;
    int      shift = (int)(i * bits % 32);
    uint64_t w = pl_quant_word(words, at * step);
    if (shift + bits > 32) w |= (uint64_t)pl_quant_word(words, (at + 1) * step) << 32;
    return (uint32_t)(w >> shift) & ((1U << bits) - 1);
}

// Decodes n bytes of two E2M1 each, the lower half first, times a scale, whose sixteen products are made once.
static inline void pl_quant_halves(float *dst, const uint8_t *pair, int n, float by) {
    static const float value[16] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    float              scaled[16];
    for (int i = 0; i < 16; i++)
        scaled[i] = value[i] * by;
    for (int i = 0; i < n; i++) {
        dst[2 * i] = scaled[pair[i] & 15];
        dst[2 * i + 1] = scaled[pair[i] >> 4];
    }
}

// A code's span, hash, check and grain (weights.h). Scales that are not finite are refused, any others are carried.
size_t          pl_quant_span(const pl_weight_entry *e);
uint64_t        pl_quant_hash(const pl_weight_entry *e, uint64_t h);
pl_status       pl_quant_check(const pl_weight_entry *e, const char *path, pl_err *err);
pl_weight_grain pl_quant_grain(const pl_weight_entry *e);

#endif
