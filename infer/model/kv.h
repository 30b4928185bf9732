// A session's key/value cache: for each layer K and V, [slots, nkv*hd] fp32. Slot = position for committed rows; rows
// of a draft tree take the slots after them until commit moves the accepted ones into place. It lies where the
// backend's ops reach it.
#ifndef PL_KV_H
#define PL_KV_H

#include "infer/model/layer.h"

typedef struct pl_kv {
    int              layers, slots;
    int64_t          width; // nkv * hd
    void            *block;
    size_t           bytes, elem;
    const pl_memory *memory; // of the block
} pl_kv;

pl_status pl_kv_create(pl_kv *kv, int layers, int slots, const pl_layer_shape *s, const pl_backend *be, pl_err *err);
void      pl_kv_destroy(pl_kv *kv);
void     *pl_kv_k(const pl_kv *kv, int layer);
void     *pl_kv_v(const pl_kv *kv, int layer);
// Fills row[l * m] for all layers: this row writes to `slot` and sees n_ctx committed slots plus path (NULL: chain).
void      pl_kv_row(const pl_kv *kv, pl_kvrow *row, int64_t m, int32_t n_ctx, const int32_t *path, int32_t n_path,
                    int32_t slot);
// Commit: slots from[0..n) (ascending) move to n_ctx, n_ctx+1, ... in every layer. RoPE depends on positions, which a
// move does not change. In order with the ops of ctx.
void      pl_kv_move(pl_ctx *ctx, pl_kv *kv, int32_t n_ctx, const int32_t *from, int n);

#endif
