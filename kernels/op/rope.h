// Rotary position embedding (Su et al. 2021), with Hugging Face's rotate-half pairing, in place.
//   for a head vector v of width hd and pair i < hd/2, angle = pos[m] * inv_freq[i]:
//   v'[i] = v[i] cos - v[i + hd/2] sin,   v'[i + hd/2] = v[i + hd/2] cos + v[i] sin
// Tables narrower than hd/2, r/2 wide, rotate the first r elements of each head and leave the others unchanged: pairs
// (i, i + r/2); r = 0 changes nothing. Applied to the first n_rot head vectors of each row of qkv (queries, then keys;
// values follow unchanged). Backward rotates the gradient by the negative angle, in place: rope must be the only op
// between the producer of qkv and its readers. cos, sin: tables [positions, hd/2] in be->real, made once by
// pl_rope_table (angles in double, rounded once).
#ifndef PL_OP_ROPE_H
#define PL_OP_ROPE_H
#include "kernels/op/attention.h" // pl_kvrow
#include <string.h>

typedef struct pl_rope_args {
    pl_tensor       qkv;      // [M, width], width >= n_rot * hd
    pl_tensor       cos, sin; // [positions, r/2], r <= hd
    const int32_t  *pos;      // [M], each < positions; borrowed until replay
    int             n_rot;    // query heads + key heads
    int             hd;
    int             offset; // added to each pos (the unroll step k of training-time test)
    // [M] or NULL: rotated keys (the last of the rotated heads) and values (after them, as many, whole heads) are
    // written to their caches, row m at row[m].slot of k and v; (cache, slot) distinct, no gradient.
    const pl_kvrow *row;
} pl_rope_args;

void pl_rope(pl_ctx *ctx, const pl_rope_args *args);

// Writes one row's n keys, and the values after them, of type `real`, into its cache, on the host.
static inline void pl_rope_keep(const pl_kvrow *row, const void *keys, int64_t n, pl_dtype real) {
    const size_t elem = pl_dtype_size(real), at = (size_t)row->slot * (size_t)n;
    for (int values = 0; values < 2; values++) {
        void       *cache = values ? row->v : row->k;
        const void *from = (const char *)keys + (values ? (size_t)n * elem : 0);
        uint16_t   *to = (uint16_t *)cache + at;
        if (row->dtype != PL_BF16) memcpy((char *)cache + at * elem, from, (size_t)n * elem);
        for (int64_t i = 0; i < n && row->dtype == PL_BF16; i++)
            to[i] = pl_f32_to_bf16(real == PL_F64 ? (float)((const double *)from)[i] : ((const float *)from)[i]);
    }
}

// LLAMA3: Llama 3.1's smoothing between kept and stretched wavelengths. LINEAR: all are stretched. YARN (Peng et al.
// 2023, arXiv 2309.00071, section 3.4): pairs that turn more than beta_fast times within the original context are kept,
// those that turn less than beta_slow times are stretched, those between are blended by their index (whole indices if
// `truncate`), and cos and sin are multiplied by `attention`, which scales products of queries and keys by its square.
// LONG (LongRoPE, Ding et al. 2024, arXiv 2402.13753): each pair's frequency has its own divisor, cos and sin are
// multiplied by `attention`.
typedef enum pl_rope_scaling {
    PL_ROPE_DEFAULT,
    PL_ROPE_LLAMA3,
    PL_ROPE_LINEAR,
    PL_ROPE_YARN,
    PL_ROPE_LONG
} pl_rope_scaling;
typedef struct pl_rope_spec {
    double          theta;
    int             hd; // rotated elements per head
    pl_rope_scaling scaling;
    double          factor, original_positions;        // llama3, yarn; linear: the factor alone
    double          low_freq_factor, high_freq_factor; // llama3
    double          beta_fast, beta_slow, attention;   // yarn; long: `attention` alone
    bool            truncate;                          // yarn
    const double   *divisor;                           // long: [hd/2]
} pl_rope_spec;
// cos/sin [positions, hd/2] of dtype t (F32 or F64), caller's memory.
void pl_rope_table(void *cos, void *sin, pl_dtype t, const pl_rope_spec *spec, int64_t positions);
#endif
