// A session's key/value cache: for each layer K and V, [slots, nkv*hd], in fp32 or (the shape's kv) in bf16, to which
// rope rounds the values that it writes (kernels/op/attention.h, pl_kvrow). Speculative decoding is lossless against
// plain decoding over the same kind of cache; logits over the other kind differ by that rounding. Slot = position for
// committed rows; rows of a draft tree take the slots after them until commit moves the accepted ones into place. It
// lies in memory that the backend's ops can read. Layers with a recurrence have a state in place of keys and values
// (infer/model/recurrent.h).
#ifndef PL_KV_H
#define PL_KV_H

#include "infer/model/layer.h"
#include "infer/model/recurrent.h"

typedef struct pl_kv {
    int              layers, slots;
    int64_t          width; // nkv * hd
    void            *block;
    size_t           bytes, elem;
    pl_dtype         dtype;     // PL_BF16, or PL_F32: the backend's reals
    const pl_memory *memory;    // of the block
    const bool      *recurrent; // [layers] the shape's; NULL: none is
    pl_recurrent     state;     // of recurrent layers
} pl_kv;

// The option of all commands and the recipes' key.
#define PL_KV_CHOICES "fp32", "bf16"
#define PL_KV_HELP "how caches hold keys and values, a drafter's too"
static inline pl_dtype pl_kv_chosen(int choice) {
    return choice == 1 ? PL_BF16 : PL_F32;
}
// Returns the bytes of a number in such a cache.
static inline size_t pl_kv_elem(const pl_layer_shape *s, pl_dtype real) {
    return pl_dtype_size(s->kv == PL_BF16 ? PL_BF16 : real);
}

// layers 0: no memory. Recurrent layers get a state; pl_recurrent_keep makes room for trees over it.
pl_status pl_kv_create(pl_kv *kv, int layers, int slots, const pl_layer_shape *s, const pl_backend *be, pl_err *err);
void      pl_kv_destroy(pl_kv *kv);
void     *pl_kv_k(const pl_kv *kv, int layer);
void     *pl_kv_v(const pl_kv *kv, int layer);
// Fills row[l * m] for all layers: this row writes to `slot` and attends to n_ctx committed slots plus path (NULL:
// chain). In a recurrent layer k and v are the state and its kept rows (kernels/op/deltarule.h).
void      pl_kv_row(const pl_kv *kv, pl_kvrow *row, int64_t m, int32_t n_ctx, const int32_t *path, int32_t n_path,
                    int32_t slot);
// Commits: moves slots from[0..n) (ascending) to n_ctx, n_ctx+1, ... in every layer. RoPE depends on positions, which a
// move does not change. A recurrent state replays them. Ordered with the ops of ctx.
void      pl_kv_move(pl_ctx *ctx, pl_kv *kv, int32_t n_ctx, const int32_t *from, int n);

#endif
